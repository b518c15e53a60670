//! JSON lines.

use flowgauge_wire::{Address, Nanos};

use crate::schema::{Field, FieldVisitor, Record};
use crate::text::{
    TimeWriter, write_address, write_duration, write_hex64, write_json_escaped, write_unsigned,
};

/// Appends records as JSON objects, one per line. What is unknown is `null`; names and order are
/// those of the schema, the same in every line.
#[derive(Clone, Debug, Default)]
pub struct JsonEncoder {
    time: TimeWriter,
}

/// More than a flow record needs; growing later is only a cost, not an error.
const TYPICAL_RECORD: usize = 1536;

impl JsonEncoder {
    /// Appends `record` and a line feed.
    #[inline]
    pub fn encode<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        out.reserve(TYPICAL_RECORD);
        self.object(record, out);
        out.push(b'\n');
    }

    /// Appends `record` as an object.
    #[inline]
    pub fn object<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        let start = out.len();
        record.visit(&mut JsonVisitor {
            out,
            time: &mut self.time,
        });
        // Every field was written with a comma in front: the first one becomes the brace.
        match out.get_mut(start) {
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
    }
}

struct JsonVisitor<'a> {
    out: &'a mut Vec<u8>,
    time: &'a mut TimeWriter,
}

impl JsonVisitor<'_> {
    #[inline(always)]
    fn key(&mut self, field: &'static Field) {
        self.out.extend_from_slice(field.json_key.as_bytes());
    }

    #[inline(always)]
    fn quoted(&mut self, field: &'static Field, write: impl FnOnce(&mut Self)) {
        self.key(field);
        self.out.push(b'"');
        write(self);
        self.out.push(b'"');
    }
}

impl FieldVisitor for JsonVisitor<'_> {
    #[inline]
    fn null(&mut self, field: &'static Field) {
        self.key(field);
        self.out.extend_from_slice(b"null");
    }

    #[inline]
    fn unsigned(&mut self, field: &'static Field, value: u64) {
        self.key(field);
        write_unsigned(self.out, value);
    }

    fn float(&mut self, field: &'static Field, value: f64) {
        self.key(field);
        if value.is_finite() {
            self.out.extend_from_slice(value.to_string().as_bytes());
        } else {
            self.out.extend_from_slice(b"null");
        }
    }

    fn text(&mut self, field: &'static Field, value: &str) {
        self.quoted(field, |visitor| write_json_escaped(visitor.out, value));
    }

    #[inline]
    fn symbol(&mut self, field: &'static Field, value: &str) {
        self.quoted(field, |visitor| {
            visitor.out.extend_from_slice(value.as_bytes());
        });
    }

    #[inline]
    fn hex(&mut self, field: &'static Field, value: u64) {
        self.quoted(field, |visitor| write_hex64(visitor.out, value));
    }

    #[inline]
    fn address(&mut self, field: &'static Field, value: Address, version: u8) {
        self.quoted(field, |visitor| write_address(visitor.out, value, version));
    }

    #[inline]
    fn time(&mut self, field: &'static Field, value: Nanos) {
        self.quoted(field, |visitor| visitor.time.write(visitor.out, value));
    }

    #[inline]
    fn duration(&mut self, field: &'static Field, value: Nanos) {
        self.key(field);
        write_duration(self.out, value);
    }

    #[inline]
    fn list(&mut self, field: &'static Field, values: &[u16]) {
        self.key(field);
        self.out.push(b'[');
        for (n, &value) in values.iter().enumerate() {
            if n > 0 {
                self.out.push(b',');
            }
            write_unsigned(self.out, u64::from(value));
        }
        self.out.push(b']');
    }

    #[inline]
    fn object<R: Record>(&mut self, field: &'static Field, value: Option<&R>) {
        let Some(value) = value else {
            return self.null(field);
        };
        self.key(field);
        let start = self.out.len();
        value.visit(self);
        if let Some(first) = self.out.get_mut(start) {
            *first = b'{';
        }
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fields;

    fields! {
        /// A record for tests.
        SampleFields, SAMPLE, SAMPLE_SCHEMA:
        text Text None "TEXT" 1 "any text";
        number Unsigned None "NUMBER" 1 "a number";
        list List None "LIST" 1 "a list";
        inner Object None "INNER" 0 "an object";
        ratio Float None "RATIO" 1 "a fraction";
    }

    struct Sample<'a>(&'a str, bool);

    impl Record for Sample<'_> {
        fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
            visitor.text(&SAMPLE.text, self.0);
            visitor.unsigned(&SAMPLE.number, 42);
            visitor.list(&SAMPLE.list, &[1, 4095]);
            let inner = Sample("inner", false);
            visitor.object(&SAMPLE.inner, self.1.then_some(&inner));
            visitor.float(&SAMPLE.ratio, f64::NAN);
        }
    }

    #[test]
    fn objects_nest_and_text_is_escaped() {
        assert_eq!(SAMPLE_SCHEMA.len(), 5);
        let mut out = b"before\n".to_vec();
        JsonEncoder::default().encode(&Sample("say \"hi\"", true), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "before\n{\"text\":\"say \\\"hi\\\"\",\"number\":42,\"list\":[1,4095],\
             \"inner\":{\"text\":\"inner\",\"number\":42,\"list\":[1,4095],\"inner\":null,\
             \"ratio\":null},\"ratio\":null}\n"
        );
    }
}
