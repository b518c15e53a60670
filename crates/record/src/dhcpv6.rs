//! Records about DHCPv6 messages.

use flowgauge_wire::Address;

use crate::exchange::Exchange;
use crate::schema::record;
use crate::text_list::TextList;
use crate::value::{Symbol, filled, listed};

record! {
    /// Fields of a request of DHCP for IPv6 and its reply.
    DHCPV6, DHCPV6_SCHEMA for Exchange<'_, Dhcpv6Message> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
        let both = || [request, reply].into_iter().flatten();
        // What the reply says comes before what is asked for.
        let last = reply.unwrap_or(first);
    }:
    time Time "TIME" 1 = it.time(), "time of the request, or of the reply if there is no request";
    src_ip Address "CLIENT" 2 = it.parties.client_ip(), "address of the client, or of the relay";
    src_port Unsigned = it.parties.client.1, "port of the client";
    dst_ip Address "SERVER" 2 = it.parties.server_ip(), "address of the server, or of all";
    dst_port Unsigned = it.parties.server.1, "port of the server";
    proto Text = it.carrier(), "udp";
    trans_id (xid: u32) Unsigned = first.xid, "number of the request";
    client_id: String, Text = filled(&first.client_id), "identifier of the client (DUID), hexadecimal";
    server_id: String, Text = filled(&last.server_id), "identifier of the server (DUID), hexadecimal";
    mac: String, Text "MAC" 1 = filled(&first.mac), "hardware address in the client's identifier, of Ethernet";
    request Text "REQUEST" 1 = request.map(|it| it.kind), "solicit, request, renew, rebind, release, information-request, ...";
    reply Text "REPLY" 1 = reply.map(|it| it.kind), "advertise, reply, reconfigure";
    requested Texts = request.map(|it| &it.leases), "addresses and prefixes that the client names";
    assigned Texts "ADDRESSES" 1 = reply.map(|it| &it.leases), "addresses and prefixes that the client gets";
    lease_time (lifetime: Option<u32>) Unsigned Seconds = reply.and_then(|it| it.lifetime), "lifetime of the first of \
    them";
    status: Option<u16>, Unsigned = last.status, "first status other than success, or 0; null if there is none";
    message (text: String) Text = filled(&last.text), "words on the status";
    relay_addr Address = first.relay.map(|it| (Address(it[0]), 6)), "address of the client's link at the relay nearest to it";
    peer_addr Address = first.relay.map(|it| (Address(it[1]), 6)), "address of the client at that relay";
    client_fqdn (fqdn: String) Text "NAME" 2 = both().find_map(|it| filled(&it.fqdn)), "full name of the client";
    domains: TextList, Texts = reply.map(|it| &it.domains), "domains that the server tells";
    dns_servers: TextList, Texts = reply.map(|it| &it.dns_servers), "servers of DNS that the server tells";
    parameters: Vec<u16>, List = listed(&first.parameters), "options that the client wants";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the request";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply";
    latency Duration Seconds "LATENCY" 2 = it.latency(), "from the (first) request to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the request before the reply";
    limit Text = it.limit.or(both().find_map(|it| it.limit)), "requests: too many waiting for replies (256); memory: \
    none left for waiting requests, so this one has no reply; list: more leases, domains or servers (32) or requested options (256) than are recorded; text: an identifier of more than 130 bytes; or null";

    /// A message. Its buffers can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Dhcpv6Message {
        /// Its type.
        pub kind: &'static str,
        /// Addresses and prefixes.
        pub leases: TextList,
        /// Link address and client's address at the relay closest to the client.
        pub relay: Option<[[u8; 16]; 2]>,
        /// Its size in bytes.
        pub bytes: u64,
        /// The first limit that caused an omission.
        pub limit: Option<&'static str>,
    }
}
