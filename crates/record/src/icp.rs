//! Records about queries between caches (ICP), and their replies.

use flowgauge_wire::Address;

use crate::exchange::Exchange;
use crate::schema::record;
use crate::value::{Symbol, filled};

record! {
    /// Fields of an exchange of ICP.
    ICP, ICP_SCHEMA for Exchange<'_, IcpMessage> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
        let is_odd = [request, reply].iter().flatten().any(|it| it.is_odd);
    }:
    time Time "TIME" 1 = it.time(), "time of the query, or of the reply if there is no query";
    src_ip Address "CLIENT" 1 = it.parties.client_ip(), "address of the cache that asks";
    src_port Unsigned "PORT" 5 = it.parties.client.1, "its port";
    dst_ip Address "SERVER" 1 = it.parties.server_ip(), "address of the cache that is asked, or the group";
    dst_port Unsigned "PORT" 5 = it.parties.server.1, "its port";
    proto Text = it.carrier(), "udp";
    number: u32, Unsigned "NO" 5 = first.number, "number of the query";
    opcode Text "QUERY" 3 = request.map(|it| it.opcode), "query, secho or decho";
    version: u8, Unsigned = first.version, "version of the query, or of the reply if there is no query";
    url: String, Text "URL" 1 = filled(&first.url), "URL queried";
    requester Address = request.and_then(|it| it.requester).map(|it| (Address::v4(it), 4)), "for whom, as the query says";
    result Text "RESULT" 1 = reply.map(|it| it.opcode), "opcode of the reply: hit, miss, miss_nofetch, hit_obj, denied, err, ...";
    server_rtt (server_rtt_ms: Option<u16>) Unsigned = reply.and_then(|it| it.server_rtt_ms), "round trip from the cache that is asked to the server, ms, as it says";
    object_bytes: Option<u16>, Unsigned Bytes = reply.and_then(|it| it.object_bytes), "bytes of the object that the reply carries";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the query";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply";
    latency Duration Seconds "LATENCY" 1 = it.latency(), "from the (first) query to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the query before the reply";
    limit Text = it.limit, "requests: too many waiting for replies (256); memory: none left for waiting requests, so \
    this one has no reply; or null";
    odd Text "ODD" 4 = is_odd.then_some("malformed"), "malformed: a message is cut, or its length is not that of the datagram";

    /// An ICP message. Its buffer can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct IcpMessage {
        /// Its opcode.
        pub opcode: &'static str,
        /// The requesting host.
        pub requester: Option<[u8; 4]>,
        /// Its size in bytes.
        pub bytes: u64,
        /// Whether it is malformed.
        pub is_odd: bool,
    }
}
