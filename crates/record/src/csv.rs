//! CSV according to RFC 4180, except that lines end with a line feed only: most Unix tools would treat a carriage
//! return as part of the last value.

use flowgauge_wire::{Address, Nanos};

use crate::any::AnyObject;
use crate::json::JsonEncoder;
use crate::schema::{Field, FieldVisitor, Record, Schema};
use crate::text::{
    TimeWriter, harmless, write_address, write_duration, write_hex64, write_unsigned,
};
use crate::value::{Numbers, Texts, ValueRef};

/// Appends records as lines of comma-separated values. Unknown values are empty; lists and objects are single values of
/// JSON text.
#[derive(Clone, Debug, Default)]
pub struct CsvEncoder {
    time: TimeWriter,
    json: JsonEncoder,
    scratch: Vec<u8>,
    is_safe: bool,
}

impl CsvEncoder {
    /// An encoder whose cells are never interpreted as formulas by spreadsheets: text that begins with `=`, `+`, `-` or
    /// `@` is prefixed with an apostrophe. (Tabs and carriage returns, which some skip, are never in a cell.)
    pub fn safe() -> CsvEncoder {
        CsvEncoder {
            is_safe: true,
            ..CsvEncoder::default()
        }
    }

    /// Appends the header line.
    pub fn header(schema: Schema, out: &mut Vec<u8>) {
        for (n, field) in schema.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_quoted(out, field.name);
        }
        out.push(b'\n');
    }

    /// Appends `record` and a line feed.
    #[inline]
    pub fn encode<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        record.visit(&mut CsvVisitor {
            out,
            encoder: self,
            first: true,
        });
        out.push(b'\n');
    }
}

/// Appends `value`, in quotation marks where RFC 4180 needs them.
fn write_quoted(out: &mut Vec<u8>, value: &str) {
    let needs_quotes = value
        .bytes()
        .any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r'));
    if !needs_quotes {
        return out.extend_from_slice(value.as_bytes());
    }
    out.push(b'"');
    for byte in value.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

struct CsvVisitor<'a> {
    out: &'a mut Vec<u8>,
    encoder: &'a mut CsvEncoder,
    first: bool,
}

/// Whether a spreadsheet may take text for a formula.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@'])
}

impl CsvVisitor<'_> {
    #[inline(always)]
    fn next(&mut self) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
    }
}

impl FieldVisitor for CsvVisitor<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        value.give(field, self);
    }

    #[inline]
    fn null(&mut self, _field: &'static Field) {
        self.next();
    }

    #[inline]
    fn unsigned(&mut self, _field: &'static Field, value: u64) {
        self.next();
        write_unsigned(self.out, value);
    }

    fn float(&mut self, _field: &'static Field, value: f64) {
        self.next();
        if value.is_finite() {
            self.out.extend_from_slice(value.to_string().as_bytes());
        }
    }

    fn text(&mut self, _field: &'static Field, value: &str) {
        self.next();
        if self.encoder.is_safe && is_formula(value) {
            let shown = value.chars().map(harmless);
            let quoted: String = core::iter::once('\'').chain(shown).collect();
            return write_quoted(self.out, &quoted);
        }
        if value
            .chars()
            .all(|character| harmless(character) == character)
        {
            return write_quoted(self.out, value);
        }
        let shown: String = value.chars().map(harmless).collect();
        write_quoted(self.out, &shown);
    }

    #[inline]
    fn symbol(&mut self, _field: &'static Field, value: &str) {
        self.next();
        if self.encoder.is_safe && is_formula(value) {
            self.out.push(b'\'');
        }
        self.out.extend_from_slice(value.as_bytes());
    }

    #[inline]
    fn wide_symbol<const N: usize>(&mut self, _: &'static Field, value: &[u8; N], len: usize) {
        // No formula begins with a letter or digit, as these do.
        self.next();
        self.out
            .extend_from_slice(value.get(..len).unwrap_or(value));
    }

    #[inline]
    fn hex(&mut self, _field: &'static Field, value: u64) {
        self.next();
        write_hex64(self.out, value);
    }

    #[inline]
    fn address(&mut self, _field: &'static Field, value: Address, version: u8) {
        self.next();
        write_address(self.out, value, version);
    }

    #[inline]
    fn time(&mut self, _field: &'static Field, value: Nanos) {
        self.next();
        self.encoder.time.write(self.out, value);
    }

    #[inline]
    fn duration(&mut self, _field: &'static Field, value: Nanos) {
        self.next();
        write_duration(self.out, value);
    }

    fn list(&mut self, _field: &'static Field, values: Numbers<'_>) {
        self.next();
        let quoted = values.len() > 1;
        if quoted {
            self.out.push(b'"');
        }
        self.out.push(b'[');
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.out.push(b',');
            }
            write_unsigned(self.out, value);
        }
        self.out.push(b']');
        if quoted {
            self.out.push(b'"');
        }
    }

    fn texts(&mut self, field: &'static Field, values: Texts<'_>) {
        self.text(field, &values.join(";"));
    }

    fn object(&mut self, _field: &'static Field, value: Option<&dyn AnyObject>) {
        self.next();
        let Some(value) = value else {
            return;
        };
        self.encoder.scratch.clear();
        self.encoder.json.object(&value, &mut self.encoder.scratch);
        write_quoted(
            self.out,
            core::str::from_utf8(&self.encoder.scratch).unwrap_or(""),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::record;
    use crate::value::Symbol;

    struct Sample<'a>(&'a str);

    record! {
        /// A record for tests.
        SAMPLE, SAMPLE_SCHEMA for Sample<'_> as it:
        text Text "TEXT" 1 = it.0, "any text";
        texts Texts "TEXTS" 1 = [it.0, "x"].as_slice(), "several";
        symbol Text "SYMBOL" 1 = Symbol("-"), "a word";
        ratio Float "RATIO" 1 = -1.5, "a number, which may be negative";
    }

    #[test]
    fn cells_of_safe_csv_are_no_formulas() {
        assert_eq!(SAMPLE_SCHEMA.len(), 4);
        let encoded = |mut encoder: CsvEncoder, text: &str| {
            let mut out = Vec::new();
            encoder.encode(&Sample(text), &mut out);
            String::from_utf8(out).unwrap()
        };
        for (text, safe) in [
            ("=1+1", "'=1+1,'=1+1;x,'-,-1.5\n"),
            ("+1", "'+1,'+1;x,'-,-1.5\n"),
            ("-1,2", "\"'-1,2\",\"'-1,2;x\",'-,-1.5\n"),
            ("@a", "'@a,'@a;x,'-,-1.5\n"),
            // What some take for nothing before a formula.
            ("\t=1", "\u{fffd}=1,\u{fffd}=1;x,'-,-1.5\n"),
            ("a=1", "a=1,a=1;x,'-,-1.5\n"),
            ("", ",;x,'-,-1.5\n"),
        ] {
            assert_eq!(encoded(CsvEncoder::safe(), text), safe);
        }
        let plain = encoded(CsvEncoder::default(), "=1");
        assert_eq!(plain, "=1,=1;x,-,-1.5\n");
    }

    #[test]
    fn quoting_by_rfc_4180() {
        for (value, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("carriage\rreturn", "\"carriage\rreturn\""),
            ("space stays", "space stays"),
        ] {
            let mut out = Vec::new();
            write_quoted(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
