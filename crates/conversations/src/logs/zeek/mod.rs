//! Logs as Zeek has them: which columns each has, and their values.

mod known;
mod leases;
mod made;
mod tables;

use flowgauge_record::JsonKey;
use flowgauge_record::text::TimeWriter;

use super::values::{Cell, Name, Values};
pub(super) use known::Known;
pub(super) use leases::Leases;
pub(super) use tables::{DHCP, log};

/// A log: its name, and its columns behind those that all have.
pub(super) struct Log {
    pub(super) path: &'static str,
    front: &'static [Column],
    columns: &'static [Column],
    /// Which records of the kind have a line in it.
    pub(super) has: fn(&Values<'_>) -> bool,
    /// Where they have another.
    pub(super) next: Option<&'static Log>,
}

/// A column: name, type, and where its value comes from.
struct Column {
    name: &'static str,
    key: JsonKey,
    kind: &'static str,
    as_is: AsIs,
    origin: Origin,
}

/// How a field is written as it is.
#[derive(Clone, Copy)]
enum AsIs {
    Address,
    Number,
    Bool,
    Span,
    Texts,
    Spans,
    Text,
}

const fn column(name: &'static str, kind: &'static str, origin: Origin) -> Column {
    Column {
        name,
        key: JsonKey::new(name),
        kind,
        as_is: match kind.as_bytes() {
            b"addr" => AsIs::Address,
            b"count" | b"port" => AsIs::Number,
            b"bool" => AsIs::Bool,
            b"interval" | b"time" => AsIs::Span,
            b"vector[string]" | b"set[string]" | b"vector[addr]" => AsIs::Texts,
            b"vector[interval]" => AsIs::Spans,
            _ => AsIs::Text,
        },
        origin,
    }
}

#[derive(Clone, Copy)]
enum Origin {
    /// This field, as the column's type has it.
    Field(Name),
    /// What is made of the record.
    Made(for<'a> fn(&Values<'a>) -> Cell<'a>),
    /// Not known here.
    Unset,
}
use Origin::{Field, Made, Unset};

impl Column {
    #[inline]
    fn value<'a>(&self, values: &Values<'a>) -> Cell<'a> {
        let name = match self.origin {
            Unset => return Cell::Unset,
            Made(make) => return make(values),
            Field(name) => name,
        };
        match self.as_is {
            AsIs::Address => Cell::of(values.address(name), |(address, version)| {
                Cell::Address(address, version)
            }),
            AsIs::Number => Cell::of(values.number(name), Cell::Number),
            AsIs::Bool => Cell::of(values.yes(name), Cell::Bool),
            AsIs::Span => values.seconds(name),
            AsIs::Texts => Cell::of(values.texts(name), Cell::Texts),
            AsIs::Spans => match values.numbers(name) {
                [] => Cell::Unset,
                spans => Cell::Spans(spans),
            },
            AsIs::Text => Cell::of(values.text(name), Cell::Text),
        }
    }
}

impl Log {
    /// The column that is a field, or is made of it and called like it or as said.
    pub(super) fn column_of(&self, field: &str, made: &str) -> Option<&'static str> {
        let is_it = |column: &&Column| match column.origin {
            Field(name) => name.as_str() == field,
            Made(_) => column.name == field || column.name == made,
            Unset => false,
        };
        self.all().find(is_it).map(|column| column.name)
    }

    fn all(&self) -> impl Iterator<Item = &'static Column> {
        self.front.iter().chain(self.columns)
    }

    /// The lines in front.
    pub(super) fn header(&self, out: &mut Vec<u8>) {
        let columns = |of: fn(&Column) -> &'static str| -> String {
            self.all()
                .map(|column| format!("\t{}", of(column)))
                .collect()
        };
        let text = format!(
            "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\t{}\n\
             #fields{}\n#types{}\n",
            self.path,
            columns(|column| column.name),
            columns(|column| column.kind),
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// A record's values, by column.
    pub(super) fn cells<'a>(&self, values: &'a Values<'a>) -> impl Iterator<Item = Cell<'a>> {
        self.all().map(|column| column.value(values))
    }

    /// A line, values with tabs between.
    pub(super) fn line<'a>(
        cells: impl Iterator<Item = Cell<'a>>,
        time: &mut TimeWriter,
        out: &mut Vec<u8>,
    ) {
        for (n, cell) in cells.enumerate() {
            if n > 0 {
                out.push(b'\t');
            }
            cell.write::<false>(time, out);
        }
        out.push(b'\n');
    }

    /// The same as an object: what is not known is left out.
    pub(super) fn object<'a>(
        &self,
        cells: impl Iterator<Item = Cell<'a>>,
        with_path: bool,
        time: &mut TimeWriter,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if with_path {
            out.extend_from_slice(b",\"_path\":\"");
            out.extend_from_slice(self.path.as_bytes());
            out.push(b'"');
        }
        for (column, value) in self.all().zip(cells) {
            if !value.is_unset() {
                out.extend_from_slice(column.key.with_comma());
                value.write::<true>(time, out);
            }
        }
        match out.get_mut(start) {
            // Instead of the first comma.
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::counters::CountersRow;
    use flowgauge_record::event::EventSchemas;

    use super::super::Looking;
    use super::*;

    /// As Zeek has it: what was dropped since the last of these lines.
    #[test]
    fn dropped_packets_are_those_of_the_interval() {
        let row = CountersRow {
            memory_dropped: 5,
            new_memory_dropped: 2,
            ..CountersRow::default()
        };
        let mut schemas = EventSchemas::default();
        let event = schemas.event("statistics", None, &row);
        let mut looking = Looking::default();
        let values = looking.at(&event).unwrap();
        let mut line = Vec::new();
        let cells = tables::STATS.cells(&values);
        tables::STATS.object(cells, false, &mut TimeWriter::default(), &mut line);
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["pkts_dropped"], 2);
    }
}
