//! Records of many kinds in one output: each has its kind and its flow.

use core::any::Any;

use crate::any::KnownRecord;
use crate::schema::{Field, FieldVisitor, Record, Schema, join, kept, record};
use crate::value::Symbol;

record! {
    /// Fields in front of those of a record of what was said in a flow.
    SAID, SAID_SCHEMA for Said as it, own_schema:
    event_type Text "EVENT" 1 = Symbol(it.kind), "type of the record: http, dns, flow ...";
    flow_id Hex = it.flow_id, "the same in every record about the flow";
    vlan List = it.vlans.ids(), "VLAN ids of the flow, outermost first, where it has any" if it.vlans.count > 0;
}

record! {
    /// Fields in front of or behind those of a flow: what was spoken in it.
    SPOKEN, SPOKEN_SCHEMA for Spoken<'_> as it:
    app_proto Text "PROTOCOL" 3 = it.protocol, "protocol that was spoken in the flow, or null";
    app_proto_by Text "BY" 4 = it.protocol_by, "evidence: content, learned (announced in another flow), port";
    app Text "APPLICATION" 3 = it.application, "application, by the name of the server, or null";
    app_by Text "BY" 5 = it.application_by, "evidence: name (of the server, sent by the client), dns (a name that \
    resolved to its address)";
}

record! {
    /// Fields in front of those of a flow in events, behind [`SPOKEN_SCHEMA`].
    CARRIED, CARRIED_SCHEMA for (Carried, Option<&'static str>) as it {
        let (it, after) = it;
    }:
    src_stream_bytes Unsigned Bytes = it.stream_bytes[0], "bytes sent by the initiator; for TCP by sequence numbers: \
    retransmitted bytes count once, missing bytes count";
    dst_stream_bytes Unsigned Bytes = it.stream_bytes[1], "the same of the responder";
    missing_bytes Unsigned Bytes = it.missing_bytes, "missing bytes of both streams, as far as anything of them was \
    captured";
    until_end Text = it.until_end.then_some(true), "yes: it was kept until the input ended";
    app_proto_after Text = *after, "protocol that it went over to (STARTTLS, CONNECT, HTTP/2), or null";
}

/// A record among those of other kinds.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a, R> {
    about: Said,
    /// Of a flow: what was spoken in it, and how much.
    spoken: Option<(Spoken<'a>, Carried)>,
    schema: Schema,
    record: &'a R,
}

/// What kind of record, of which flow.
#[derive(Clone, Copy, Debug)]
struct Said {
    kind: &'static str,
    flow_id: Option<u64>,
    vlans: Vlans,
}

/// VLAN ids of a flow, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    ids: [u16; 2],
    count: u8,
}

impl Vlans {
    /// The first of these.
    pub fn of(ids: &[u16]) -> Vlans {
        let mut vlans = Vlans::default();
        for (place, id) in vlans.ids.iter_mut().zip(ids) {
            *place = *id;
            vlans.count += 1;
        }
        vlans
    }

    fn ids(&self) -> &[u16] {
        self.ids.get(..self.count.into()).unwrap_or_default()
    }
}

/// Amount of data in a flow, if its streams were reassembled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of the initiator's stream and of the responder's ([`flowgauge_flow::FlowSide::stream_bytes`]).
    pub stream_bytes: [u64; 2],
    /// Bytes of both streams that were not captured.
    pub missing_bytes: u64,
    /// Whether the flow was open until the input ended.
    pub until_end: bool,
}

/// The application protocol of a flow, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoken<'a> {
    /// The protocol.
    pub protocol: Option<&'a str>,
    /// What identified the protocol.
    pub protocol_by: Option<&'static str>,
    /// The previous protocol, before an upgrade to this one; in events only.
    pub after: Option<&'static str>,
    /// The application, identified by the name of the server.
    pub application: Option<&'a str>,
    /// What identified the application.
    pub application_by: Option<&'static str>,
}

/// The record of a flow, followed by its application protocol.
#[derive(Clone, Copy, Debug)]
pub struct Classified<'a, R> {
    /// The flow's record.
    pub record: &'a R,
    /// The application protocol.
    pub spoken: Spoken<'a>,
}

/// The schema of [`Classified`] records for this schema of flow records.
pub fn schema_of_classified(schema: Schema) -> Schema {
    joined(&[], schema, SPOKEN_SCHEMA)
}

impl<R: Record> Record for Classified<'_, R> {
    #[inline]
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        self.record.visit(visitor);
        self.spoken.visit(visitor);
    }
}

impl<R: KnownRecord> KnownRecord for Classified<'_, R> {
    fn schema(&self) -> Schema {
        schema_of_classified(self.record.schema())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.record.as_any()
    }
}

/// The schemas of events, by the schemas of their records.
#[derive(Clone, Debug, Default)]
pub struct EventSchemas(Vec<(Schema, Schema, Schema)>);

impl EventSchemas {
    /// An event for a record of this kind, and its flow.
    #[inline]
    pub fn event<'a, R: KnownRecord>(
        &mut self,
        kind: &'static str,
        flow_id: Option<u64>,
        record: &'a R,
    ) -> Event<'a, R> {
        self.tagged(kind, flow_id, Vlans::default(), record)
    }

    /// The same for a flow in these VLANs.
    #[inline]
    pub fn tagged<'a, R: KnownRecord>(
        &mut self,
        kind: &'static str,
        flow_id: Option<u64>,
        vlans: Vlans,
        record: &'a R,
    ) -> Event<'a, R> {
        let schema = self.of(record.schema(), before(vlans));
        Event {
            about: Said {
                kind,
                flow_id,
                vlans,
            },
            spoken: None,
            schema,
            record,
        }
    }

    /// The record of a flow itself, with its application protocol and amount of data.
    pub fn flow<'a, R: KnownRecord>(
        &mut self,
        spoken: Spoken<'a>,
        carried: Carried,
        record: &'a R,
    ) -> Event<'a, R> {
        let schema = self.of(record.schema(), OF_FLOWS);
        Event {
            about: Said {
                kind: "flow",
                flow_id: None,
                vlans: Vlans::default(),
            },
            spoken: Some((spoken, carried)),
            schema,
            record,
        }
    }

    #[inline]
    fn of(&mut self, schema: Schema, before: Schema) -> Schema {
        let is_it = |(of, behind, _): &&(Schema, Schema, Schema)| {
            core::ptr::eq(*of, schema) && core::ptr::eq(*behind, before)
        };
        match self.0.iter().find(is_it) {
            Some((.., whole)) => whole,
            None => self.add(schema, before),
        }
    }

    #[cold]
    fn add(&mut self, schema: Schema, before: Schema) -> Schema {
        let whole = joined(before, schema, &[]);
        self.0.push((schema, before, whole));
        whole
    }
}

/// In front of records of what was said in a flow that is in no VLAN.
static OF_EVENTS: Schema = SAID_SCHEMA.split_at(SAID_SCHEMA.len() - 1).0;

#[inline]
fn before(vlans: Vlans) -> Schema {
    if vlans.count == 0 {
        OF_EVENTS
    } else {
        SAID_SCHEMA
    }
}

/// In front of those of flows.
static OF_FLOWS: Schema = &join::<10>(&[SAID_SCHEMA.split_at(1).0, SPOKEN_SCHEMA, CARRIED_SCHEMA]);

/// Fields of a record with others around them.
fn joined(before: &[&'static Field], schema: Schema, behind: &[&'static Field]) -> Schema {
    kept(before.iter().chain(schema).chain(behind).copied())
}

/// Kinds of events other than flows.
pub(crate) static SAID_KINDS: [(&str, &Schema); 18] = [
    ("anomaly", &crate::anomaly::ANOMALY_SCHEMA),
    ("dhcp", &crate::dhcp::DHCP_SCHEMA),
    ("dhcpv6", &crate::dhcpv6::DHCPV6_SCHEMA),
    ("dns", &crate::dns::DNS_SCHEMA),
    ("file", &crate::file::FILE_SCHEMA),
    ("ftp", &crate::ftp::FTP_SCHEMA),
    ("ftp_data", &crate::ftp::FTP_DATA_SCHEMA),
    ("http", &crate::http::HTTP_SCHEMA),
    ("icp", &crate::icp::ICP_SCHEMA),
    ("ntp", &crate::ntp::NTP_SCHEMA),
    ("quic", &crate::quic::QUIC_SCHEMA),
    ("rpc", &crate::rpc::RPC_SCHEMA),
    ("smtp", &crate::smtp::SMTP_SCHEMA),
    ("snmp", &crate::snmp::SNMP_SCHEMA),
    ("ssh", &crate::ssh::SSH_SCHEMA),
    ("statistics", &crate::counters::COUNTERS_SCHEMA),
    ("tls", &crate::tls::TLS_SCHEMA),
    ("x509", &crate::tls::X509_SCHEMA),
];

/// The schemas of all events: of flows, and of records about them.
pub fn schemas_of_events() -> Vec<Schema> {
    let said = SAID_KINDS.iter().map(|(_, schema)| **schema);
    let flow = joined(OF_FLOWS, crate::flow::FLOW_SCHEMA, &[]);
    let plain = said.clone().map(schema_of_events);
    let tagged = said.map(|schema| joined(SAID_SCHEMA, schema, &[]));
    plain.chain(tagged).chain([flow]).collect()
}

/// The schema of events for records of this schema, as in [`EventSchemas::event`].
pub fn schema_of_events(schema: Schema) -> Schema {
    joined(OF_EVENTS, schema, &[])
}

impl<R: Record> Record for Event<'_, R> {
    #[inline]
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        match &self.spoken {
            None => self.about.visit(visitor),
            Some((spoken, carried)) => {
                visitor.symbol(&SAID.event_type, self.about.kind);
                spoken.visit(visitor);
                (*carried, spoken.after).visit(visitor);
            }
        }
        self.record.visit(visitor);
    }
}

impl<R: KnownRecord> KnownRecord for Event<'_, R> {
    fn schema(&self) -> Schema {
        self.schema
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.record.as_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::OwnedRecord;
    use crate::http::{HTTP_MESSAGE_SCHEMA, HttpMessage};
    use crate::json::JsonEncoder;

    #[test]
    fn what_was_spoken_stands_behind_a_flow_or_in_front_of_its_event() {
        let message = HttpMessage::default();
        let spoken = Spoken {
            protocol: Some("tls"),
            application: Some("Wikipedia"),
            ..Spoken::default()
        };
        let record = &message;
        let classified = Classified { record, spoken };
        let names = |schema: Schema| schema.iter().map(|field| field.name).collect::<Vec<_>>();
        let schema = names(classified.schema());
        let last = ["app_proto", "app_proto_by", "app", "app_by"];
        assert_eq!(schema[schema.len() - 4..], last);
        let owned = OwnedRecord::of(&classified);
        assert!(
            schema
                .into_iter()
                .eq(owned.iter().map(|(field, _)| field.name))
        );
        assert!(core::ptr::eq(
            classified.schema(),
            schema_of_classified(HTTP_MESSAGE_SCHEMA)
        ));
        let mut schemas = EventSchemas::default();
        let event = schemas.flow(spoken, Carried::default(), &message);
        let owned = OwnedRecord::of(&event);
        assert!(
            names(event.schema())
                .into_iter()
                .eq(owned.iter().map(|(field, _)| field.name))
        );
    }

    #[test]
    fn what_it_is_stands_in_front() {
        let message = HttpMessage::default();
        let mut schemas = EventSchemas::default();
        let event = schemas.event("http", Some(0xfeed), &message);
        assert_eq!(event.schema().len(), HTTP_MESSAGE_SCHEMA.len() + 2);
        let mut text = Vec::new();
        JsonEncoder::default().object(&event, &mut text);
        let text = String::from_utf8(text).unwrap();
        let start = r#"{"event_type":"http","flow_id":"000000000000feed","time":"#;
        assert!(text.starts_with(start), "{text}");
        let names = event.schema().iter().map(|field| field.name);
        let owned = OwnedRecord::of(&event);
        assert!(names.eq(owned.iter().map(|(field, _)| field.name)));
        let again = schemas.event("http", None, &message);
        assert!(core::ptr::eq(again.schema(), event.schema()));
        assert!(core::ptr::eq(
            schema_of_events(HTTP_MESSAGE_SCHEMA),
            event.schema()
        ));
    }
}
