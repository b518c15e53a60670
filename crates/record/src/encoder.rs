//! The encodings behind one type.

use crate::csv::CsvEncoder;
use crate::json::JsonEncoder;
use crate::schema::{Record, Schema};
use crate::table::TableEncoder;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// Comma-separated values with a line of names.
    Csv,
    /// The same for spreadsheets: [`CsvEncoder::safe`].
    SafeCsv,
    /// Aligned columns for people.
    Table,
}

/// Turns records into bytes. Each thread has its own; an [`crate::Output`] takes the bytes of all.
#[derive(Clone, Debug)]
pub enum Encoder {
    /// JSON lines.
    Json(JsonEncoder),
    /// CSV.
    Csv(Box<CsvEncoder>),
    /// Cells that the output lays out as a table.
    Table(TableEncoder),
}

impl Encoder {
    /// An encoder for `format`.
    pub fn new(format: Format) -> Encoder {
        match format {
            Format::Json => Encoder::Json(JsonEncoder::default()),
            Format::Csv => Encoder::Csv(Box::default()),
            Format::SafeCsv => Encoder::Csv(Box::new(CsvEncoder::safe())),
            Format::Table => Encoder::Table(TableEncoder::default()),
        }
    }

    /// Appends what comes before the first record.
    pub fn header(&self, schema: Schema, out: &mut Vec<u8>) {
        if let Encoder::Csv(_) = self {
            CsvEncoder::header(schema, out);
        }
    }

    /// Appends one record.
    #[inline]
    pub fn encode<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        match self {
            Encoder::Json(encoder) => encoder.encode(record, out),
            Encoder::Csv(encoder) => encoder.encode(record, out),
            Encoder::Table(encoder) => encoder.encode(record, out),
        }
    }
}
