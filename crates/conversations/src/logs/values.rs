//! A record's values by name, looked at where they are, and how they are written.

use flowgauge_record::any::AnyRecord;
use flowgauge_record::schema::Schema;
use flowgauge_record::store::{Kept, KeptTexts, RecordStore, StoredRecord};
use flowgauge_record::text::{
    TimeWriter, harmless, write_address, write_hex_bytes, write_json_escaped, write_unsigned,
};
use flowgauge_wire::{Address, Nanos};

/// Names of fields that logs of others are made of.
macro_rules! names {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types)] // as the fields are called
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Name { $($name),* }
        static NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
names! {
    aa anomaly answer_types answers app_proto app_proto_by arg assigned_addr auth bytes chain
    cipher client client_addr client_chain client_protocols command community community_id
    content_type curve data_port date depth detail dst_bytes dst_ip dst_ip_bytes dst_packets
    dst_payload_bytes dst_port duration end end_reason established event_type extracted
    extracted_bytes file_name flow_id flow_memory flows from gaps gid hassh hassh_server helo
    history host host_name issuer ja3 ja3s ja4 last_alert latency layer lease_time live_flows
    mac machine mailfrom malformed md5 method mime_type missing_bytes new_bytes new_memory_dropped
    new_packets next_protocol not_after not_before oid outcome packets passive proto protocol
    qclass qtype query ra rcode rcptto rd reason referrer relay_addr reply reply_code
    reply_msg request request_body_bytes response_body_bytes response_version resumed
    segment_memory sent_by serial server server_name sha1 sha256 source src_bytes
    src_ip src_ip_bytes src_packets src_payload_bytes src_port start state status subject tc
    time to total_bytes trans_depth trans_id ttls uid uptime uri user user_agent version whole
    worker xid z
}

/// Where a kind of records has the fields of these names.
#[derive(Debug)]
struct Layout {
    schema: Schema,
    /// By [`Name`]; [`NOWHERE`]: it has not.
    places: Vec<u8>,
}

const NOWHERE: u8 = u8::MAX;

impl Layout {
    fn of(schema: Schema) -> Layout {
        let place = |name: &&str| {
            let place = schema.iter().position(|field| field.name == *name);
            place.map_or(NOWHERE, |place| place.min(NOWHERE.into()) as u8)
        };
        Layout {
            schema,
            places: NAMES.iter().map(place).collect(),
        }
    }
}

/// Looks at one record after the other. What the first one needed serves the next.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    store: RecordStore,
    layouts: Vec<Layout>,
}

impl Looking {
    pub(crate) fn at(&mut self, record: &dyn AnyRecord) -> Option<Values<'_>> {
        self.store.clear();
        self.store.push(record);
        let schema = record.schema();
        let is_it = |layout: &Layout| core::ptr::eq(layout.schema, schema);
        let index = match self.layouts.iter().position(is_it) {
            Some(index) => index,
            None => {
                self.layouts.push(Layout::of(schema));
                self.layouts.len() - 1
            }
        };
        Some(Values {
            record: self.store.get(0)?,
            layout: self.layouts.get(index)?,
        })
    }
}

/// A record, looked at by name.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    record: StoredRecord<'a>,
    layout: &'a Layout,
}

impl<'a> Values<'a> {
    #[inline]
    fn get(&self, name: Name) -> Kept<'a> {
        match self.layout.places.get(name as usize) {
            None | Some(&NOWHERE) => Kept::Null,
            Some(&place) => self.record.value(place.into()),
        }
    }

    /// The fields, and the value of each.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, Kept<'a>)> {
        let (record, schema) = (self.record, self.layout.schema);
        let fields = schema.iter().enumerate();
        fields.map(move |(place, field)| (field.name, record.value(place)))
    }

    pub(crate) fn text(&self, name: Name) -> Option<&'a str> {
        match self.get(name) {
            Kept::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self, name: Name) -> Option<u64> {
        match self.get(name) {
            Kept::Unsigned(value) | Kept::Hex(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn texts(&self, name: Name) -> Option<KeptTexts<'a>> {
        match self.get(name) {
            Kept::Texts(texts) if texts.iter().len() > 0 => Some(texts),
            _ => None,
        }
    }

    pub(super) fn numbers(&self, name: Name) -> &'a [u64] {
        match self.get(name) {
            Kept::List(list) => list,
            _ => &[],
        }
    }

    pub(super) fn time(&self, name: Name) -> Option<Nanos> {
        match self.get(name) {
            Kept::Time(time) => Some(time),
            _ => None,
        }
    }

    pub(crate) fn span(&self, name: Name) -> Option<Nanos> {
        match self.get(name) {
            Kept::Duration(span) => Some(span),
            _ => None,
        }
    }

    pub(super) fn address(&self, name: Name) -> Option<(Address, u8)> {
        match self.get(name) {
            Kept::Address(address, version) => Some((address, version)),
            _ => None,
        }
    }

    /// `yes` and `no`.
    pub(super) fn yes(&self, name: Name) -> Option<bool> {
        self.text(name).map(|text| text == "yes")
    }

    /// The protocol that a flow was found to speak: others do not guess by its port.
    pub(super) fn spoken(&self) -> Option<&'a str> {
        self.text(Name::app_proto)
            .filter(|_| self.text(Name::app_proto_by) != Some("port"))
    }

    /// What kind of record it is.
    pub(crate) fn kind(&self) -> &'a str {
        self.text(Name::event_type).unwrap_or_default()
    }

    /// When it began.
    pub(super) fn begin(&self) -> Option<Nanos> {
        self.time(Name::time).or_else(|| self.time(Name::start))
    }
}

/// A value as logs of others have it.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    /// There is none.
    Unset,
    Bool(bool),
    Number(u64),
    Text(&'a str),
    /// A number behind a text.
    Numbered(&'static str, u64),
    /// One behind the other.
    Joined(&'static str, &'a str),
    /// In capitals.
    Upper(&'a str),
    /// Its underscores as hyphens.
    Hyphens(&'a str),
    /// `aabb` as `aa:bb`.
    Colons(&'a str),
    /// `TLS 1.2` as `TLSv12`.
    TlsVersion(&'a str),
    /// A letter, and a number to the base 62.
    Id(u8, u64),
    Address(Address, u8),
    /// Seconds with six decimals.
    Seconds(Nanos),
    /// A date and time: so many characters, and this behind them.
    Date(Nanos, usize, &'static str),
    Texts(KeptTexts<'a>),
    /// A list of one text.
    One(&'a str),
    /// A list of one number, as text.
    OneNumber(u64),
    /// Names of a list that are there.
    Some([Option<&'static str>; 4]),
    /// A list of spans, in seconds.
    Spans(&'a [u64]),
}

impl<'a> Cell<'a> {
    pub(super) fn of<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell<'a>) -> Cell<'a> {
        value.map_or(Cell::Unset, cell)
    }

    pub(super) fn is_unset(&self) -> bool {
        matches!(self, Cell::Unset)
    }

    /// Appends it as JSON.
    pub(super) fn json(&self, time: &mut TimeWriter, out: &mut Vec<u8>) {
        match *self {
            Cell::Unset => out.extend_from_slice(b"null"),
            Cell::Bool(true) => out.extend_from_slice(b"true"),
            Cell::Bool(false) => out.extend_from_slice(b"false"),
            Cell::Number(number) => write_unsigned(out, number),
            Cell::Seconds(span) => write_seconds(span, true, out),
            Cell::Texts(texts) => list(texts.iter(), out, quoted),
            Cell::Some(names) => list(names.into_iter().flatten(), out, quoted),
            Cell::One(text) => list([text].into_iter(), out, quoted),
            Cell::OneNumber(number) => list([number].into_iter(), out, |number, out| {
                out.push(b'"');
                write_unsigned(out, number);
                out.push(b'"');
            }),
            Cell::Spans(spans) => list(spans.iter(), out, |span, out| {
                write_seconds(whole_seconds(*span), true, out);
            }),
            _ => {
                out.push(b'"');
                self.plain(time, out, |text, out| write_json_escaped(out, text));
                out.push(b'"');
            }
        }
    }

    /// Appends it between tabs, as Zeek does.
    pub(super) fn between_tabs(&self, time: &mut TimeWriter, out: &mut Vec<u8>) {
        let tabbed = |text: &str, out: &mut Vec<u8>| match text {
            "" => out.extend_from_slice(b"(empty)"),
            "-" => out.extend_from_slice(b"\\x2d"),
            text => escape(text, false, out),
        };
        let in_list = |text: &str, out: &mut Vec<u8>| match text {
            "" => out.extend_from_slice(b"(empty)"),
            text => escape(text, true, out),
        };
        match *self {
            Cell::Unset => out.push(b'-'),
            Cell::Bool(is) => out.push(if is { b'T' } else { b'F' }),
            Cell::Number(number) | Cell::OneNumber(number) => write_unsigned(out, number),
            Cell::Seconds(span) => write_seconds(span, false, out),
            Cell::Texts(texts) => separated(texts.iter(), out, in_list),
            Cell::Some(names) => separated(names.into_iter().flatten(), out, in_list),
            Cell::One(text) => in_list(text, out),
            Cell::Spans(spans) => separated(spans.iter(), out, |span, out| {
                write_seconds(whole_seconds(*span), false, out);
            }),
            _ => self.plain(time, out, tabbed),
        }
    }

    /// Appends what is text, by `write` where it comes from outside.
    #[inline]
    fn plain(&self, time: &mut TimeWriter, out: &mut Vec<u8>, write: impl Fn(&str, &mut Vec<u8>)) {
        let start = out.len();
        match *self {
            Cell::Text(text) => write(text, out),
            Cell::Joined(front, text) => {
                out.extend_from_slice(front.as_bytes());
                write(text, out);
            }
            Cell::Numbered(front, number) => {
                out.extend_from_slice(front.as_bytes());
                write_unsigned(out, number);
            }
            // From other machines anything can come.
            Cell::Upper(text) | Cell::Hyphens(text) | Cell::Colons(text)
                if !text.bytes().all(is_of_word) =>
            {
                write(text, out);
            }
            Cell::Upper(text) => {
                out.extend_from_slice(text.as_bytes());
                out.get_mut(start..)
                    .unwrap_or_default()
                    .make_ascii_uppercase();
            }
            Cell::Hyphens(text) => {
                let bytes = text.bytes();
                out.extend(bytes.map(|byte| if byte == b'_' { b'-' } else { byte }));
            }
            Cell::Colons(text) => {
                for (n, pair) in text.as_bytes().chunks(2).enumerate() {
                    if n > 0 {
                        out.push(b':');
                    }
                    out.extend_from_slice(pair);
                }
            }
            Cell::TlsVersion(text) => match text.split_once(' ') {
                Some((name, number)) if number.bytes().all(is_of_word) => {
                    write(name, out);
                    out.push(b'v');
                    out.extend(number.bytes().filter(|&byte| byte != b'.'));
                }
                _ => write(text, out),
            },
            Cell::Id(letter, mut id) => {
                const DIGITS: &[u8; 62] =
                    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
                let mut text = [letter; 12];
                for place in text.iter_mut().skip(1) {
                    *place = DIGITS[(id % 62) as usize];
                    id /= 62;
                }
                out.extend_from_slice(&text);
            }
            Cell::Address(address, version) => write_address(out, address, version),
            Cell::Date(at, length, end) => {
                let text = time.format(at);
                out.extend_from_slice(text.get(..length).unwrap_or_default());
                out.extend_from_slice(end.as_bytes());
            }
            Cell::Unset
            | Cell::Bool(_)
            | Cell::OneNumber(_)
            | Cell::Number(_)
            | Cell::Seconds(_)
            | Cell::Texts(_)
            | Cell::One(_)
            | Cell::Some(_)
            | Cell::Spans(_) => {}
        }
    }
}

/// Whether no log has to write it in another way.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

fn whole_seconds(seconds: u64) -> Nanos {
    Nanos(seconds.saturating_mul(1_000_000_000))
}

fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_json_escaped(out, text);
    out.push(b'"');
}

/// Appends things with commas between.
fn separated<T>(
    things: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    for (n, thing) in things.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write(thing, out);
    }
}

/// Appends things as a JSON list.
pub(super) fn list<T>(
    things: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    out.push(b'[');
    separated(things, out, write);
    out.push(b']');
}

/// Seconds with six decimals; in JSON without zeros at the end.
fn write_seconds(span: Nanos, is_short: bool, out: &mut Vec<u8>) {
    write_unsigned(out, span.0 / 1_000_000_000);
    let mut micros = span.0 / 1_000 % 1_000_000;
    let mut text = *b".000000";
    for place in text.iter_mut().skip(1).rev() {
        *place = b'0' + (micros % 10) as u8;
        micros /= 10;
    }
    let mut len = text.len();
    while is_short && len > 2 && text[len - 1] == b'0' {
        len -= 1;
    }
    out.extend_from_slice(text.get(..len).unwrap_or_default());
}

/// What ends a line or a column, and what is not [`harmless`] on a terminal, byte by byte as `\x09`.
fn escape(text: &str, in_list: bool, out: &mut Vec<u8>) {
    let is_plain = |character| match character {
        '\\' => false,
        ',' => !in_list,
        character => harmless(character) == character,
    };
    let mut done = 0;
    for (at, character) in text.char_indices() {
        if is_plain(character) {
            continue;
        }
        let bytes = text.as_bytes();
        let end = at + character.len_utf8();
        out.extend_from_slice(bytes.get(done..at).unwrap_or_default());
        if character == '\\' {
            out.extend_from_slice(b"\\\\");
        } else {
            for byte in bytes.get(at..end).unwrap_or_default() {
                out.extend_from_slice(b"\\x");
                write_hex_bytes(out, &[*byte]);
            }
        }
        done = end;
    }
    out.extend_from_slice(text.as_bytes().get(done..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use flowgauge_record::http::{HttpMessage, HttpRow};

    use super::*;

    fn both(cell: Cell<'_>) -> (String, String) {
        let (mut json, mut tabs) = (Vec::new(), Vec::new());
        let mut time = TimeWriter::default();
        cell.json(&mut time, &mut json);
        cell.between_tabs(&mut time, &mut tabs);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(json), text(tabs))
    }

    #[test]
    fn each_kind_of_value_is_written_as_both_formats_want_it() {
        let second = Nanos(1_700_000_000_023_267_999);
        for (cell, json, tabs) in [
            (Cell::Unset, "null", "-"),
            (Cell::Bool(true), "true", "T"),
            (
                Cell::Number(u64::MAX),
                "18446744073709551615",
                "18446744073709551615",
            ),
            (Cell::Text(""), "\"\"", "(empty)"),
            (Cell::Text("-"), "\"-\"", "\\x2d"),
            (
                Cell::Text("a\t\"\\\u{7f}é,"),
                "\"a\\t\\\"\\\\\\u007fé,\"",
                "a\\x09\"\\\\\\x7fé,",
            ),
            (
                Cell::Text("\u{9b}x\u{202e}"),
                "\"\\u009bx\\u202e\"",
                "\\xc2\\x9bx\\xe2\\x80\\xae",
            ),
            (Cell::OneNumber(226), "[\"226\"]", "226"),
            (Cell::One("a,b"), "[\"a,b\"]", "a\\x2cb"),
            (
                Cell::Joined("HTTP/", "1.1\n"),
                "\"HTTP/1.1\\n\"",
                "HTTP/1.1\\x0a",
            ),
            (Cell::Upper("tcp"), "\"TCP\"", "TCP"),
            (Cell::Upper("t\""), "\"t\\\"\"", "t\""),
            (Cell::Hyphens("ftp_data"), "\"ftp-data\"", "ftp-data"),
            (Cell::Colons("aabbc"), "\"aa:bb:c\"", "aa:bb:c"),
            (Cell::Colons("\"\\"), "\"\\\"\\\\\"", "\"\\\\"),
            (Cell::TlsVersion("TLS 1.0"), "\"TLSv10\"", "TLSv10"),
            (Cell::TlsVersion("a \""), "\"a \\\"\"", "a \""),
            (Cell::Id(b'C', 62), "\"C01000000000\"", "C01000000000"),
            (
                Cell::Seconds(second),
                "1700000000.023267",
                "1700000000.023267",
            ),
            (Cell::Seconds(Nanos(2_500_000_000)), "2.5", "2.500000"),
            (Cell::Seconds(Nanos(0)), "0.0", "0.000000"),
            (Cell::Spans(&[1, 300]), "[1.0,300.0]", "1.000000,300.000000"),
            (
                Cell::Some([None, Some("MD5"), None, Some("A")]),
                "[\"MD5\",\"A\"]",
                "MD5,A",
            ),
            (
                Cell::Date(second, 26, "+0000"),
                "\"2023-11-14T22:13:20.023267+0000\"",
                "2023-11-14T22:13:20.023267+0000",
            ),
        ] {
            assert_eq!(both(cell), (json.to_owned(), tabs.to_owned()));
        }
    }

    #[test]
    fn fields_are_found_in_records_of_any_kind() {
        let mut message = HttpMessage::default();
        message.is_request = true;
        message.host = message.keep(Some(b"a.example"));
        let row = HttpRow {
            request: Some(&message),
            response: None,
        };
        let mut looking = Looking::default();
        for _ in 0..2 {
            let values = looking.at(&row).expect("a record");
            assert_eq!(values.text(Name::host), Some("a.example"));
            assert_eq!(values.text(Name::state), Some("no_reply"));
            assert_eq!(values.number(Name::src_port), Some(0));
            assert_eq!(values.text(Name::server_name), None);
            let values = looking.at(&message).expect("a record");
            assert_eq!(values.text(Name::host), Some("a.example"));
            assert_eq!(values.text(Name::state), None);
        }
        assert_eq!(looking.layouts.len(), 2);
    }
}
