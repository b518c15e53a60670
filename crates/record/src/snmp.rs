//! Records about messages of the Simple Network Management Protocol.

use crate::exchange::Exchange;
use crate::schema::record;
use crate::value::{Symbol, filled};

record! {
    /// Fields of a request and its reply, or of a trap.
    SNMP, SNMP_SCHEMA for Exchange<'_, SnmpMessage> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
    }:
    time Time "TIME" 1 = it.time(), "time of the request, or of the reply if there is no request";
    src_ip Address "CLIENT" 1 = it.parties.client_ip(), "address of the requester, or of the sender of a trap";
    src_port Unsigned "PORT" 5 = it.parties.client.1, "its port";
    dst_ip Address "SERVER" 1 = it.parties.server_ip(), "address of the agent";
    dst_port Unsigned "PORT" 5 = it.parties.server.1, "its port";
    proto Text = it.carrier(), "udp";
    version: &'static str, Text "VERSION" 2 = Symbol(first.version), "1, 2c or 3";
    community: String, Text "COMMUNITY" 3 = filled(&first.community), "community, of versions 1 and 2c";
    user: String, Text = filled(&first.user), "user, of version 3";
    engine: String, Text = filled(&first.engine), "engine that has authority, of version 3, hexadecimal";
    context: String, Text = filled(&first.context), "context, of version 3";
    level: Option<&'static str>, Text = first.level, "security, of version 3: noAuthNoPriv, authNoPriv or authPriv";
    id: Option<u32>, Unsigned "ID" 5 = first.id, "number of the request; of version 3 that of the message";
    request Text "REQUEST" 1 = request.and_then(|it| it.kind), "get, getnext, getbulk, set, inform or trap; null if \
    encrypted";
    reply Text "REPLY" 2 = reply.and_then(|it| it.kind), "response or report";
    error Text "ERROR" 2 = reply.and_then(|it| it.error), "error status, such as noError or noSuchName";
    error_index: u32, Unsigned = reply.filter(|it| it.error.is_some()).map(|it| it.error_index), "with which variable";
    oid: String, Text "OID" 2 = filled(&first.oid), "name of the first variable of the request, or of the reply if \
    there is no request";
    request_variables Unsigned = request.and_then(|it| it.variables), "variables of the request";
    reply_variables Unsigned = reply.and_then(|it| it.variables), "variables of the reply";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the request";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply";
    latency Duration Seconds "LATENCY" 1 = it.latency(), "from the (first) request to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the request before the reply";
    limit Text = it.limit, "requests: too many waiting for replies (256); memory: none left for waiting requests, so \
    this one has no reply; or null";

    /// An SNMP message. Its buffers can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SnmpMessage {
        /// Its kind, unless it is encrypted.
        pub kind: Option<&'static str>,
        /// Its error.
        pub error: Option<&'static str>,
        /// Number of variables.
        pub variables: Option<u32>,
        /// Its size in bytes.
        pub bytes: u64,
    }
}
