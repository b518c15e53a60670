//! Records about queries between caches (ICP) and their replies.

use flowgauge_wire::Address;

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, text_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of an exchange of ICP.
    IcpFields, ICP, ICP_SCHEMA:
    time Time None "TIME" 1 "when the query was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 1 "address of the cache that asks";
    src_port Unsigned None "PORT" 5 "its port";
    dst_ip Address None "SERVER" 1 "address of the cache that is asked, or the group";
    dst_port Unsigned None "PORT" 5 "its port";
    proto Text None "" 0 "udp";
    number Unsigned None "NO" 5 "number of the query";
    opcode Text None "QUERY" 3 "query, secho or decho";
    version Unsigned None "" 0 "version of the query, or of the reply where there is no query";
    url Text None "URL" 1 "what is asked for";
    requester Address None "" 0 "for whom, as the query says";
    result Text None "RESULT" 1 "opcode of the reply: hit, miss, miss_nofetch, hit_obj, denied, err, ...";
    server_rtt Unsigned None "" 0 "round trip from the cache that is asked to the server, ms, as it says";
    object_bytes Unsigned Bytes "" 0 "bytes of the object that the reply carries";
    request_bytes Unsigned Bytes "" 0 "bytes of the query";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply";
    latency Duration Seconds "LATENCY" 1 "from the query, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the query came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; or null";
    odd Text None "ODD" 4 "malformed: a message is cut, or its length is not that of the datagram";
}

/// A message of ICP. Its buffer can be used again ([`IcpMessage::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IcpMessage {
    /// What it is.
    pub opcode: &'static str,
    /// Version.
    pub version: u8,
    /// Number of the query.
    pub number: u32,
    /// What is asked for.
    pub url: String,
    /// For whom.
    pub requester: Option<[u8; 4]>,
    /// Round trip to the server, ms.
    pub server_rtt_ms: Option<u16>,
    /// Bytes of the object.
    pub object_bytes: Option<u16>,
    /// Bytes of it.
    pub bytes: u64,
    /// It is malformed.
    pub is_odd: bool,
}

impl IcpMessage {
    /// Forgets all but the buffer.
    pub fn clear(&mut self) {
        let mut url = core::mem::take(&mut self.url);
        url.clear();
        *self = IcpMessage {
            url,
            ..IcpMessage::default()
        };
    }
}

impl Record for Exchange<'_, IcpMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        let parties = [
            &ICP.time,
            &ICP.src_ip,
            &ICP.src_port,
            &ICP.dst_ip,
            &ICP.dst_port,
            &ICP.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some(first) = self.first() else { return };
        visitor.unsigned(&ICP.number, u64::from(first.number));
        text_or_null(visitor, &ICP.opcode, request.map(|it| it.opcode));
        visitor.unsigned(&ICP.version, u64::from(first.version));
        filled_or_null(visitor, &ICP.url, &first.url);
        match request.and_then(|it| it.requester) {
            Some(address) => visitor.address(&ICP.requester, Address::v4(address), 4),
            None => visitor.null(&ICP.requester),
        }
        text_or_null(visitor, &ICP.result, reply.map(|it| it.opcode));
        number_or_null(
            visitor,
            &ICP.server_rtt,
            reply.and_then(|it| it.server_rtt_ms),
        );
        number_or_null(
            visitor,
            &ICP.object_bytes,
            reply.and_then(|it| it.object_bytes),
        );
        number_or_null(visitor, &ICP.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &ICP.reply_bytes, reply.map(|it| it.bytes));
        self.visit_state(
            [&ICP.latency, &ICP.state, &ICP.repeats, &ICP.limit],
            None,
            visitor,
        );
        let is_odd = [request, reply].iter().flatten().any(|it| it.is_odd);
        text_or_null(visitor, &ICP.odd, is_odd.then_some("malformed"));
    }
}

impl KnownRecord for Exchange<'_, IcpMessage> {
    fn schema(&self) -> Schema {
        ICP_SCHEMA
    }
}
