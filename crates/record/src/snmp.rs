//! Records about messages of the Simple Network Management Protocol.

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, text_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a request and its reply, or of a trap.
    SnmpFields, SNMP, SNMP_SCHEMA:
    time Time None "TIME" 1 "when the request was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 1 "address of who asks, or of who sends a trap";
    src_port Unsigned None "PORT" 5 "its port";
    dst_ip Address None "SERVER" 1 "address of who is asked";
    dst_port Unsigned None "PORT" 5 "its port";
    proto Text None "" 0 "udp";
    version Text None "VERSION" 2 "1, 2c or 3";
    community Text None "COMMUNITY" 3 "community, of versions 1 and 2c";
    user Text None "" 0 "user, of version 3";
    engine Text None "" 0 "engine that has authority, of version 3, hexadecimal";
    context Text None "" 0 "context, of version 3";
    level Text None "" 0 "security, of version 3: noAuthNoPriv, authNoPriv or authPriv";
    id Unsigned None "ID" 5 "number of the request; of version 3 that of the message";
    request Text None "REQUEST" 1 "get, getnext, getbulk, set, inform or trap; null where it is encrypted";
    reply Text None "REPLY" 2 "response or report";
    error Text None "ERROR" 2 "what went wrong, as noError or noSuchName";
    error_index Unsigned None "" 0 "with which variable";
    oid Text None "OID" 2 "name of the first variable of the request, or of the reply where there is no request";
    request_variables Unsigned None "" 0 "variables of the request";
    reply_variables Unsigned None "" 0 "variables of the reply";
    request_bytes Unsigned Bytes "" 0 "bytes of the request";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply";
    latency Duration Seconds "LATENCY" 1 "from the request, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the request came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; or null";
}

/// A message of SNMP. Its buffers can be used again ([`SnmpMessage::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnmpMessage {
    /// Version.
    pub version: &'static str,
    /// Community.
    pub community: String,
    /// User.
    pub user: String,
    /// Engine.
    pub engine: String,
    /// Context.
    pub context: String,
    /// Security.
    pub level: Option<&'static str>,
    /// What tells whose reply it is.
    pub id: Option<u32>,
    /// Its kind, unless it is encrypted.
    pub kind: Option<&'static str>,
    /// What went wrong.
    pub error: Option<&'static str>,
    /// With which variable.
    pub error_index: u32,
    /// First variable.
    pub oid: String,
    /// How many there are.
    pub variables: Option<u32>,
    /// Bytes of it.
    pub bytes: u64,
}

impl SnmpMessage {
    /// Forgets all but the buffers.
    pub fn clear(&mut self) {
        let take = |mut text: String| {
            text.clear();
            text
        };
        let old = core::mem::take(self);
        *self = SnmpMessage {
            community: take(old.community),
            user: take(old.user),
            engine: take(old.engine),
            context: take(old.context),
            oid: take(old.oid),
            ..SnmpMessage::default()
        };
    }
}

impl Record for Exchange<'_, SnmpMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        let parties = [
            &SNMP.time,
            &SNMP.src_ip,
            &SNMP.src_port,
            &SNMP.dst_ip,
            &SNMP.dst_port,
            &SNMP.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some(first) = self.first() else { return };
        visitor.symbol(&SNMP.version, first.version.as_bytes());
        filled_or_null(visitor, &SNMP.community, &first.community);
        filled_or_null(visitor, &SNMP.user, &first.user);
        filled_or_null(visitor, &SNMP.engine, &first.engine);
        filled_or_null(visitor, &SNMP.context, &first.context);
        text_or_null(visitor, &SNMP.level, first.level);
        number_or_null(visitor, &SNMP.id, first.id);
        text_or_null(visitor, &SNMP.request, request.and_then(|it| it.kind));
        text_or_null(visitor, &SNMP.reply, reply.and_then(|it| it.kind));
        text_or_null(visitor, &SNMP.error, reply.and_then(|it| it.error));
        let with_error = reply.filter(|it| it.error.is_some());
        number_or_null(
            visitor,
            &SNMP.error_index,
            with_error.map(|it| it.error_index),
        );
        filled_or_null(visitor, &SNMP.oid, &first.oid);
        number_or_null(
            visitor,
            &SNMP.request_variables,
            request.and_then(|it| it.variables),
        );
        number_or_null(
            visitor,
            &SNMP.reply_variables,
            reply.and_then(|it| it.variables),
        );
        number_or_null(visitor, &SNMP.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &SNMP.reply_bytes, reply.map(|it| it.bytes));
        self.visit_state(
            [&SNMP.latency, &SNMP.state, &SNMP.repeats, &SNMP.limit],
            None,
            visitor,
        );
    }
}

impl KnownRecord for Exchange<'_, SnmpMessage> {
    fn schema(&self) -> Schema {
        SNMP_SCHEMA
    }
}
