//! A record of any kind on one line, for humans.

use flowgauge_wire::{Address, Nanos};

use crate::any::AnyRecord;
use crate::held::{Held as _, held};
use crate::schema::{Field, FieldVisitor, record};
use crate::table::human_duration;
use crate::value::ValueRef;

record! {
    /// Fields of a [`Brief`].
    BRIEF, BRIEF_SCHEMA for Brief as it:
    time Time "TIME" 1 = it.time, "when it began";
    src_ip Address "CLIENT" 1 = it.source, "address of the client";
    src_port Unsigned "PORT" 4 = it.ports[0], "port of the client";
    dst_ip Address "SERVER" 1 = it.destination, "address of the server";
    dst_port Unsigned "PORT" 2 = it.ports[1], "port of the server";
    event_type Text "EVENT" 1 = &it.kind, "type of the record";
    latency Duration Seconds "LATENCY" 3 = it.latency, "from the request to the response";
    text Text "WHAT" 1 = &it.text, "its most telling fields, with blanks between";
}

held! {
    /// The common fields of most records, and other values as text. Its buffer can be reused.
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
}

impl Brief {
    /// Reads a record's values.
    pub fn assign(&mut self, record: &dyn AnyRecord) {
        self.clear();
        record.values(&mut Taking(self));
    }
}

struct Taking<'a>(&'a mut Brief);

impl FieldVisitor for Taking<'_> {
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
            ("event_type", ValueRef::Text(text) | ValueRef::Symbol(text)) => {
                brief.kind.push_str(text);
            }
            // The usual case says nothing.
            ("state", ValueRef::Symbol("matched")) => {}
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
            ValueRef::Text(text) | ValueRef::Symbol(text) => text.to_owned(),
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
