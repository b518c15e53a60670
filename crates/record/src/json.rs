//! JSON lines.

use flowgauge_wire::{Address, Nanos};

use crate::any::AnyObject;
use crate::cursor::{Cursor, Scratch};
use crate::schema::{Field, FieldVisitor, Record};
use crate::text::{TimeWriter, hex64, short_duration, short_ipv4, write_duration, write_ipv6};
use crate::value::{Numbers, Texts, ValueRef};

/// Appends records as JSON objects, one per line. Unknown values are `null`; names and order are
/// those of the schema, the same on every line.
#[derive(Clone, Debug, Default)]
pub struct JsonEncoder {
    time: TimeWriter,
    scratch: Scratch,
}

impl JsonEncoder {
    /// Appends `record` and a line feed.
    #[inline]
    pub fn encode<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        write_ended(record, b"}\n", &mut self.scratch, &mut self.time, out);
    }

    /// Appends `record` as an object.
    pub fn object<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        write_object(record, &mut self.scratch, &mut self.time, out);
    }
}

struct JsonVisitor<'a> {
    text: Cursor<'a>,
    time: &'a mut TimeWriter,
}

impl JsonVisitor<'_> {
    #[inline(always)]
    fn key(&mut self, field: &'static Field) {
        let (bytes, len) = field.json_key.parts();
        self.text.put(bytes, len);
    }

    /// The key of a value in quotation marks, and the first mark.
    #[inline(always)]
    fn quoted_key(&mut self, field: &'static Field) {
        let (bytes, len) = field.json_key.parts();
        self.text.put(bytes, len + 1);
    }
}

impl FieldVisitor for JsonVisitor<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        value.give(field, self);
    }

    #[inline(always)]
    fn null(&mut self, field: &'static Field) {
        self.key(field);
        self.text.put_all(b"null");
    }

    #[inline(always)]
    fn unsigned(&mut self, field: &'static Field, value: u64) {
        self.key(field);
        self.text.put_unsigned(value);
    }

    #[inline(always)]
    fn float(&mut self, field: &'static Field, value: f64) {
        self.key(field);
        self.text.put_grown(|out| write_float(out, value));
    }

    #[inline(always)]
    fn text(&mut self, field: &'static Field, value: &str) {
        self.lossy(field, value.as_bytes());
    }

    #[inline(always)]
    fn lossy(&mut self, field: &'static Field, value: &[u8]) {
        self.quoted_key(field);
        self.text.put_json(value);
        self.text.put_all(b"\"");
    }

    #[inline(always)]
    fn symbol(&mut self, field: &'static Field, value: &str) {
        self.quoted_key(field);
        self.text.put_slice(value.as_bytes());
        self.text.put_all(b"\"");
    }

    #[inline(always)]
    fn wide_symbol<const N: usize>(&mut self, field: &'static Field, value: &[u8; N], len: usize) {
        self.quoted_key(field);
        self.text.put(value, len);
        self.text.put_all(b"\"");
    }

    #[inline(always)]
    fn hex(&mut self, field: &'static Field, value: u64) {
        self.quoted_key(field);
        self.text.put_all(&hex64(value));
        self.text.put_all(b"\"");
    }

    #[inline(always)]
    fn address(&mut self, field: &'static Field, value: Address, version: u8) {
        self.quoted_key(field);
        if version == 4 {
            let [.., a, b, c, d] = value.0;
            self.text.put_short(&short_ipv4([a, b, c, d], b'"'));
        } else {
            self.text.put_grown(|out| write_ipv6(out, value.0));
            self.text.put_all(b"\"");
        }
    }

    #[inline(always)]
    fn time(&mut self, field: &'static Field, value: Nanos) {
        self.quoted_key(field);
        self.text.put_short(&self.time.short(value, b'"'));
    }

    #[inline(always)]
    fn duration(&mut self, field: &'static Field, value: Nanos) {
        self.key(field);
        match short_duration(value) {
            Some(text) => self.text.put_short(&text),
            None => self.text.put_grown(|out| write_duration(out, value)),
        }
    }

    #[inline(always)]
    fn list(&mut self, field: &'static Field, values: Numbers<'_>) {
        self.key(field);
        self.text.put_all(b"[");
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.text.put_all(b",");
            }
            self.text.put_unsigned(value);
        }
        self.text.put_all(b"]");
    }

    fn texts(&mut self, field: &'static Field, values: Texts<'_>) {
        self.key(field);
        self.text.put_all(b"[");
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.text.put_all(b",");
            }
            self.text.put_all(b"\"");
            self.text.put_json(value.as_bytes());
            self.text.put_all(b"\"");
        }
        self.text.put_all(b"]");
    }

    #[inline(always)]
    fn object(&mut self, field: &'static Field, value: Option<&dyn AnyObject>) {
        let Some(value) = value else {
            return self.null(field);
        };
        self.key(field);
        let time = &mut *self.time;
        // Rare: memory of its own does not matter.
        self.text
            .put_grown(|out| write_object(&value, &mut Scratch::default(), time, out));
    }
}

/// Appends `record` as an object. A function of its own, so that what writes the record around it
/// need not give its state away.
#[inline(never)]
fn write_object<R: Record>(
    record: &R,
    scratch: &mut Scratch,
    time: &mut TimeWriter,
    out: &mut Vec<u8>,
) {
    write_ended(record, b"}", scratch, time, out);
}

#[inline(always)]
fn write_ended<R: Record, const N: usize>(
    record: &R,
    end: &[u8; N],
    scratch: &mut Scratch,
    time: &mut TimeWriter,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut visitor = JsonVisitor {
        text: Cursor::new(scratch, out),
        time,
    };
    record.visit(&mut visitor);
    visitor.text.put_all(end);
    visitor.text.finish();
    // Every field was written with a comma in front: the first one becomes the brace.
    match out.get_mut(start) {
        Some(first) if *first == b',' => *first = b'{',
        // A record without fields.
        _ => out.insert(start, b'{'),
    }
}

fn write_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::record;
    use crate::value::Object;

    struct Sample<'a>(&'a str, bool);

    record! {
        /// A record for tests.
        SAMPLE, SAMPLE_SCHEMA for Sample<'_> as it:
        text Text "TEXT" 1 = it.0, "any text";
        number Unsigned "NUMBER" 1 = 42_u64, "a number";
        list List "LIST" 1 = [1_u16, 4095].as_slice(), "a list";
        inner Object "INNER" 0 = Object(it.1.then_some(Sample("inner", false))), "an object";
        ratio Float "RATIO" 1 = f64::NAN, "a fraction";
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
