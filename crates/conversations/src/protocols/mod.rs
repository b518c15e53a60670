//! Application protocols: what is said in a connection or a UDP flow, as records.
//!
//! A protocol is a file here and a line in [`ALL`]. The file has a [`Conversation`], which takes the
//! bytes of both directions and gives records, and a [`ProtocolInfo`] that says how the protocol is
//! recognised; parsing itself is in `flowgauge-proto`, the fields of records are in
//! `flowgauge-record`. Conversations are led by two components: [`alone`] takes the chunks or datagrams
//! of connections that a stack has taken apart, and [`engine`] takes packets and finds out by itself
//! which protocol is spoken where.

mod alone;
mod anomalies;
mod applications;
mod classify;
pub(crate) mod contents;
mod counters;
mod datagrams;
mod detect;
pub(crate) mod dhcp;
pub(crate) mod dhcpv6;
pub(crate) mod dns;
mod engine;
pub(crate) mod ftp;
pub(crate) mod http;
pub(crate) mod icp;
pub(crate) mod icp_stack;
mod learned;
mod matching;
#[cfg(feature = "ndpi")]
mod ndpi;
#[cfg(not(feature = "ndpi"))]
#[path = "ndpi_absent.rs"]
mod ndpi;
pub(crate) mod ntp;
mod outer;
mod ports;
pub(crate) mod quic;
mod room;
pub(crate) mod rpc;
mod signatures;
pub(crate) mod smtp;
pub(crate) mod snmp;
pub(crate) mod ssh;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod text_tests;
pub(crate) mod tls;
mod watched;

use std::sync::OnceLock;

use flowgauge_proto::Look;
use flowgauge_record::event::{EventSchemas, Vlans, schemas_of_events};
use flowgauge_record::file::FileRow;
use flowgauge_record::schema::Schema;
use flowgauge_record::{AnyRecord, KnownRecord};
use flowgauge_stack::{Items, Outlet, RecordItem, StreamEnd};
use flowgauge_wire::{Address, Nanos};

use anomalies::{Anomalies, Way};
use classify::Classifier;
pub(crate) use classify::{APPLICATIONS, NDPI, classifies};
pub(crate) use engine::INFO as TRANSACTIONS;
pub(crate) use engine::{Leading, NEEDS, State};
use learned::{Learned, Note};
use room::Room;
use table::Talks;

use crate::files::Files;

/// All protocols, those first that are tried first.
static ALL: &[&ProtocolInfo] = &[
    &http::PROTOCOL,
    &tls::PROTOCOL,
    &quic::PROTOCOL,
    &ssh::PROTOCOL,
    &smtp::PROTOCOL,
    &ftp::PROTOCOL,
    &ftp::DATA,
    &dns::PROTOCOL,
    &rpc::PROTOCOL,
    &icp::PROTOCOL,
    &dhcp::PROTOCOL,
    &dhcpv6::PROTOCOL,
    &snmp::PROTOCOL,
    &ntp::PROTOCOL,
];

const _: () = assert!(ALL.len() <= 16, "detect has 16 bits for them");

/// What is known of a protocol without a conversation.
#[derive(Debug)]
pub(crate) struct ProtocolInfo {
    /// Its name in options and in records.
    name: &'static str,
    /// Over what it is spoken.
    transport: Transport,
    /// Ports of servers: they count where content does not tell.
    ports: &'static [u16],
    /// What was sent first, as this protocol sees it.
    look: fn(&Seen<'_>) -> Look,
    /// Whether a datagram of it can begin with this byte, but for malformed ones on its ports.
    begins_datagram: fn(u8) -> bool,
    /// Makes what keeps the conversations of a core.
    table: fn() -> Box<dyn Talks>,
}

/// What a protocol is spoken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP.
    Tcp,
    /// UDP: each piece of data is a datagram.
    Udp,
    /// Both; conversations ask [`Connection::is_udp`].
    Both,
}

impl Transport {
    fn has(self, is_udp: bool) -> bool {
        match self {
            Transport::Tcp => !is_udp,
            Transport::Udp => is_udp,
            Transport::Both => true,
        }
    }
}

/// What was sent first in both directions; of UDP the datagram at hand, in its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// By the initiator.
    pub(crate) initiator: &'a [u8],
    /// By the responder.
    pub(crate) responder: &'a [u8],
    /// The responder's port.
    pub(crate) port: u16,
    /// It is UDP.
    pub(crate) is_udp: bool,
}

impl Seen<'_> {
    /// What both sides say, each in its own way: one suffices, unless the other contradicts.
    pub(crate) fn sides(&self, client: Look, server: Look) -> Look {
        match (client, server) {
            (Look::Yes, _) | (_, Look::Yes) => Look::Yes,
            (Look::No, Look::No) => Look::No,
            (Look::No, _) if !self.initiator.is_empty() => Look::No,
            (_, Look::No) if !self.responder.is_empty() => Look::No,
            _ => Look::More,
        }
    }

    /// What content says of messages that have little of their own: a port has to say so, too.
    pub(crate) fn on(&self, ports: &[u16], look: Look) -> Look {
        match look {
            Look::More if ports.contains(&self.port) => Look::Yes,
            Look::More => Look::No,
            look => look,
        }
    }

    /// The same of a protocol whose malformed messages are told by their port, if they have so many bytes.
    pub(crate) fn on_or_malformed(&self, ports: &[u16], look: Look, least: usize) -> Look {
        let has_head = self.initiator.len().max(self.responder.len()) >= least;
        match look {
            Look::No if has_head && ports.contains(&self.port) => Look::More,
            look => look,
        }
    }

    /// What one of the two directions says, where either is enough.
    pub(crate) fn either(&self, look: fn(&[u8]) -> Look) -> Look {
        match (self.initiator.is_empty(), self.responder.is_empty()) {
            (false, true) => look(self.initiator),
            (true, false) => look(self.responder),
            _ => match (look(self.initiator), look(self.responder)) {
                (Look::Yes, _) | (_, Look::Yes) => Look::Yes,
                (Look::No, Look::No) => Look::No,
                _ => Look::More,
            },
        }
    }
}

/// A connection or a UDP flow in which a protocol is spoken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    /// Who opened it, as far as its first packets told: address and port.
    pub(crate) initiator: (Address, u16),
    /// To whom.
    pub(crate) responder: (Address, u16),
    /// 4 or 6.
    pub(crate) version: u8,
    /// It is UDP.
    pub(crate) is_udp: bool,
    /// Connections that it is within, through proxies or WebSocket.
    pub(crate) within: u8,
    /// As in the flow's record, where that is known.
    pub(crate) flow_id: Option<u64>,
    /// Likewise.
    pub(crate) vlans: Vlans,
    /// When its SYN was captured, and when the handshake was complete.
    pub(crate) handshake: [Option<Nanos>; 2],
    /// It was captured from its middle.
    pub(crate) is_partial: bool,
    /// Bytes that were sent again so far, the initiator's second, where that is counted.
    pub(crate) retransmitted: Option<[u64; 2]>,
}

/// Where and when something was said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// In which connection.
    pub(crate) connection: &'a Connection,
    /// By whom.
    pub(crate) from_initiator: bool,
    /// When: capture time of the packet that completed it.
    pub(crate) time: Nanos,
}

impl At<'_> {
    /// Who said it.
    pub(crate) fn source(&self) -> (Address, u16) {
        match self.from_initiator {
            true => self.connection.initiator,
            false => self.connection.responder,
        }
    }

    /// To whom.
    pub(crate) fn destination(&self) -> (Address, u16) {
        match self.from_initiator {
            true => self.connection.responder,
            false => self.connection.initiator,
        }
    }

    /// The direction as an index: 1 is the initiator's.
    pub(crate) fn side(&self) -> usize {
        usize::from(self.from_initiator)
    }
}

/// What a conversation wants of what is said next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wants {
    /// All of it.
    #[default]
    All,
    /// In this direction, what is behind so many bytes.
    Behind(u64),
    /// Nothing, in both.
    Nothing,
}

impl Wants {
    /// Nothing, if so.
    pub(crate) fn nothing_if(is_done: bool) -> Wants {
        match is_done {
            true => Wants::Nothing,
            false => Wants::All,
        }
    }
}

/// A protocol's state in a connection or a UDP flow: what both directions say, as records.
///
/// What it keeps is bounded, whatever comes. A new one is made by `Default`, or is a used one that
/// was cleared.
pub(crate) trait Conversation: Default + Send + 'static {
    /// What all conversations of a core have in common: buffers, results.
    type Common: Default + Send;

    /// Bytes of one direction, in order; of UDP a datagram.
    fn data(&mut self, common: &mut Self::Common, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>);

    /// Bytes are missing here in one direction.
    fn gap(&mut self, _common: &mut Self::Common, _at: &At<'_>, _bytes: u64, _give: &mut Give<'_>) {
    }

    /// A direction is over.
    fn end(
        &mut self,
        _common: &mut Self::Common,
        _at: &At<'_>,
        _end: StreamEnd,
        _give: &mut Give<'_>,
    ) {
    }

    /// Both are: what waits for its partner goes on alone. The direction in `at` means nothing.
    fn close(&mut self, _common: &mut Self::Common, _at: &At<'_>, _give: &mut Give<'_>) {}

    /// Bytes of memory that it keeps beside itself. Asked for with each piece of data.
    fn held(&self) -> usize;

    /// What it wants of what is said next in a direction. Asked for with each piece of data.
    fn wants(&self, _at: &At<'_>) -> Wants {
        Wants::All
    }

    /// So many bytes of one direction came that it did not [want](Wants::Behind).
    fn passed(&mut self, _: &mut Self::Common, _: &At<'_>, _bytes: u64, _: &mut Give<'_>) {}

    /// When the oldest of what waits for its partner came.
    fn oldest(&self) -> Option<Nanos> {
        None
    }

    /// That goes on alone, for [`Give::limit`].
    fn give_up(&mut self, _common: &mut Self::Common, _at: &At<'_>, _give: &mut Give<'_>) {}

    /// All that is kept goes on as it is, though the connection is not over, for [`Give::limit`].
    fn abandon(&mut self, common: &mut Self::Common, at: &At<'_>, give: &mut Give<'_>) {
        self.close(common, at, give);
    }

    /// Frees what is kept for use by others.
    fn trim(_common: &mut Self::Common) {}

    /// Forgets all; buffers may stay.
    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Where a conversation's records go.
pub(crate) struct Give<'a> {
    out: &'a mut dyn Outlet,
    key: u32,
    records: &'a mut u64,
    /// Bytes that conversations keep.
    held: &'a mut u64,
    flow_id: Option<u64>,
    vlans: Vlans,
    among: Option<Among<'a>>,
    /// What is done with files, if anything.
    files: Option<&'a mut Files>,
    /// Messages that others would join are records of their own.
    each_message: bool,
    /// Why what waits goes on alone.
    limit: Option<&'static str>,
}

/// What conversations of several protocols have in common.
struct Among<'a> {
    learned: &'a mut Learned,
    /// Records say of which kind they are.
    schemas: &'a mut EventSchemas,
    protocol: &'static str,
    classifier: Option<&'a mut Classifier>,
    /// Nobody wants records.
    is_silent: bool,
    /// Where what records say of themselves is told, too.
    anomalies: Option<&'a mut Anomalies>,
}

/// What connections of other protocols go over to.
const WITHIN: [&str; 3] = ["tls", "ssh", "smtp"];

/// Whether the checker of stacks knows that there are records with these fields.
fn is_known(schema: Schema) -> bool {
    static KNOWN: OnceLock<Vec<Schema>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(schemas_of_events).iter();
    known.any(|known| core::ptr::eq(*known, schema))
}

impl<'a> Give<'a> {
    /// Of a protocol that is a component of its own.
    fn alone(
        out: &'a mut dyn Outlet,
        key: u32,
        records: &'a mut u64,
        room: &'a mut Room,
    ) -> Give<'a> {
        Give {
            out,
            key,
            records,
            held: &mut room.held,
            flow_id: None,
            vlans: Vlans::default(),
            among: None,
            files: None,
            each_message: false,
            limit: None,
        }
    }

    /// Gives a record that came to be at `time`.
    #[inline]
    pub(crate) fn record<R: KnownRecord>(&mut self, time: Nanos, record: &R) {
        let protocol = self.among.as_ref().map_or("", |among| among.protocol);
        self.record_of(protocol, time, record);
    }

    /// One of another kind than the protocol's own.
    #[inline]
    pub(crate) fn record_of<R: KnownRecord>(
        &mut self,
        kind: &'static str,
        time: Nanos,
        record: &R,
    ) {
        if WITHIN.contains(&kind) {
            self.went_over(kind);
        }
        match &mut self.among {
            Some(among) if among.is_silent => {}
            Some(among) => {
                let (schemas, vlans) = (&mut among.schemas, self.vlans);
                let event = schemas.tagged(kind, self.flow_id, vlans, record);
                debug_assert!(is_known(AnyRecord::schema(&event)), "{kind}");
                *self.records += 1;
                self.out.emit(Items::Records(&[RecordItem {
                    key: self.key,
                    time,
                    record: &event,
                }]));
                if let Some(anomalies) = &mut among.anomalies {
                    let mut way = Way {
                        out: self.out,
                        schemas: among.schemas,
                        records: self.records,
                    };
                    anomalies.record(kind, self.flow_id, time, record, &mut way);
                }
            }
            None => self.any(time, record),
        }
    }

    /// What follows is of this protocol. Returns the one before.
    pub(crate) fn speaks(&mut self, protocol: &'static str) -> &'static str {
        match &mut self.among {
            Some(among) => core::mem::replace(&mut among.protocol, protocol),
            None => protocol,
        }
    }

    /// What the connection carries is of this protocol from now on, whatever it began with.
    pub(crate) fn went_over(&mut self, protocol: &'static str) {
        if let Some(among) = &mut self.among
            && let Some(classifier) = &mut among.classifier
            && let Some(flow_id) = self.flow_id
        {
            classifier.went_over(flow_id, protocol);
        }
    }

    /// What goes next to an address and port that was learned.
    pub(crate) fn note(&mut self, endpoint: (Address, u16), note: Note) {
        if let Some(among) = &mut self.among {
            among.learned.note(endpoint, note);
        }
    }

    /// What was told of one.
    pub(crate) fn take_note(&mut self, endpoint: (Address, u16)) -> Option<Note> {
        self.among.as_mut()?.learned.take_note(endpoint)
    }

    /// A file was transferred.
    fn file(&mut self, time: Nanos, row: &FileRow) {
        // It began in this flow; the last of its ranges can have come in another one.
        let flow_id = self.flow_id;
        self.flow_id = row.flow_id.or(flow_id);
        self.record_of("file", time, row);
        self.flow_id = flow_id;
    }

    fn any(&mut self, time: Nanos, record: &dyn AnyRecord) {
        *self.records += 1;
        self.out.emit(Items::Records(&[RecordItem {
            key: self.key,
            time,
            record,
        }]));
    }

    /// What is said with this address and port as responder is this protocol's for a while: a data
    /// connection was agreed on, or a port told.
    pub(crate) fn learn(&mut self, endpoint: (Address, u16), protocol: &'static str, now: Nanos) {
        if let Some(among) = &mut self.among {
            among.learned.add(endpoint, protocol, now);
        }
    }
}

impl Give<'_> {
    /// The server has this name, as the client says.
    #[inline]
    pub(crate) fn server_is(&mut self, name: &[u8]) {
        if let Some(among) = &mut self.among
            && let Some(classifier) = &mut among.classifier
            && let Some(flow_id) = self.flow_id
        {
            classifier.named(flow_id, name);
        }
    }

    /// Whether somebody wants to know what flows are for.
    pub(crate) fn classifies(&self) -> bool {
        let among = self.among.as_ref();
        among.is_some_and(|among| among.classifier.is_some())
    }

    /// A name that leads to this address.
    #[inline]
    pub(crate) fn resolved(&mut self, name: &str, address: Address, now: Nanos) {
        if let Some(among) = &mut self.among
            && let Some(classifier) = &mut among.classifier
        {
            classifier.resolved(name, address, now);
        }
    }
}

/// Text of a record, of so many bytes at most: of a longer one the beginning, and the record's `limit` says so.
fn bounded_text(bytes: &[u8], most: usize, limit: &mut Option<&'static str>) -> String {
    if bytes.len() > most {
        limit.get_or_insert("text");
    }
    flowgauge_record::text::lossy(&bytes[..bytes.len().min(most)]).into_owned()
}

/// A protocol by its name.
fn named(name: &str) -> Option<&'static ProtocolInfo> {
    ALL.iter()
        .copied()
        .find(|protocol| protocol.name.eq_ignore_ascii_case(name))
}
