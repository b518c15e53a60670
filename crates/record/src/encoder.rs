//! The encodings behind one type.

use crate::csv::CsvEncoder;
use crate::json::JsonEncoder;
use crate::schema::{Record, Schema};
use crate::table::TableEncoder;

/// The encoding of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// Comma-separated values with a header line.
    Csv,
    /// The same for spreadsheets: [`CsvEncoder::safe`].
    SafeCsv,
    /// Aligned columns for humans.
    Table,
}

/// Encodes records. Each thread has its own encoder; an [`crate::Output`] gets the bytes of all.
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

    /// Appends the header before the first record.
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
