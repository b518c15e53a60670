//! A record of any kind in a line for people.

use flowgauge_wire::{Address, Nanos};

use crate::any::{AnyRecord, KnownRecord, ValueRef, ValueVisitor};
use crate::parties::number_or_null;
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};
use crate::table::human_duration;

fields! {
    /// Fields of a [`Brief`].
    BriefFields, BRIEF, BRIEF_SCHEMA:
    time Time None "TIME" 1 "when it began";
    src_ip Address None "CLIENT" 1 "address of who asks";
    src_port Unsigned None "PORT" 4 "port of who asks";
    dst_ip Address None "SERVER" 1 "address of who answers";
    dst_port Unsigned None "PORT" 2 "port of who answers";
    event_type Text None "EVENT" 1 "what kind of record it is";
    latency Duration Seconds "LATENCY" 3 "from the request to the response";
    text Text None "WHAT" 1 "its most telling fields, with blanks between";
}

/// What most records have, and the others' values as text. Its buffer can be used again.
#[derive(Clone, Debug, Default)]
pub struct Brief {
    time: Option<Nanos>,
    source: Option<(Address, u8)>,
    destination: Option<(Address, u8)>,
    ports: [Option<u64>; 2],
    latency: Option<Nanos>,
    kind: String,
    text: String,
}

impl Brief {
    /// Takes a record's values.
    pub fn assign(&mut self, record: &dyn AnyRecord) {
        let (mut kind, mut text) = (
            core::mem::take(&mut self.kind),
            core::mem::take(&mut self.text),
        );
        kind.clear();
        text.clear();
        *self = Brief {
            kind,
            text,
            ..Brief::default()
        };
        record.values(&mut Taking(self));
    }
}

struct Taking<'a>(&'a mut Brief);

impl ValueVisitor for Taking<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let brief = &mut *self.0;
        match (field.name, value) {
            ("time" | "start", ValueRef::Time(time)) => brief.time = Some(time),
            ("src_ip", ValueRef::Address(address, version)) => {
                brief.source = Some((address, version));
            }
            ("dst_ip", ValueRef::Address(address, version)) => {
                brief.destination = Some((address, version));
            }
            ("src_port", ValueRef::Unsigned(port)) => brief.ports[0] = Some(port),
            ("dst_port", ValueRef::Unsigned(port)) => brief.ports[1] = Some(port),
            ("latency", ValueRef::Duration(span)) => brief.latency = Some(span),
            ("event_type", ValueRef::Symbol(text)) => {
                brief.kind.push_str(&String::from_utf8_lossy(text));
            }
            ("event_type", ValueRef::Text(text)) => brief.kind.push_str(text),
            // The usual case says nothing.
            ("state", ValueRef::Symbol(b"matched")) => {}
            // What tables always or mostly show.
            (_, value) if (1..=2).contains(&field.column.rank) || field.name == "state" => {
                brief.add(value);
            }
            _ => {}
        }
    }
}

impl Brief {
    fn add(&mut self, value: ValueRef<'_>) {
        let shown = match value {
            ValueRef::Unsigned(value) => value.to_string(),
            ValueRef::Float(value) => value.to_string(),
            ValueRef::Text(text) => text.to_owned(),
            ValueRef::Symbol(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Address(address, version) => address.to_ip(version).to_string(),
            ValueRef::Duration(span) => human_duration(span),
            ValueRef::Texts(list) => list.join(" "),
            ValueRef::Hex(_)
            | ValueRef::Time(_)
            | ValueRef::List(_)
            | ValueRef::Null
            | ValueRef::Object(_) => return,
        };
        if !shown.is_empty() {
            if !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(&shown);
        }
    }
}

fn address<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<(Address, u8)>) {
    match value {
        Some((address, version)) => visitor.address(field, address, version),
        None => visitor.null(field),
    }
}

impl Record for Brief {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        match self.time {
            Some(time) => visitor.time(&BRIEF.time, time),
            None => visitor.null(&BRIEF.time),
        }
        let [client, server] = self.ports;
        address(visitor, &BRIEF.src_ip, self.source);
        number_or_null(visitor, &BRIEF.src_port, client);
        address(visitor, &BRIEF.dst_ip, self.destination);
        number_or_null(visitor, &BRIEF.dst_port, server);
        visitor.text(&BRIEF.event_type, &self.kind);
        match self.latency {
            Some(span) => visitor.duration(&BRIEF.latency, span),
            None => visitor.null(&BRIEF.latency),
        }
        visitor.text(&BRIEF.text, &self.text);
    }
}

impl KnownRecord for Brief {
    fn schema(&self) -> Schema {
        BRIEF_SCHEMA
    }
}
