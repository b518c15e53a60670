//! Records about messages of DHCP.

use flowgauge_wire::Address;

use crate::exchange::Exchange;
use crate::schema::record;
use crate::value::{Symbol, filled, listed};

record! {
    /// Fields of a request for an address and its reply.
    DHCP, DHCP_SCHEMA for Exchange<'_, DhcpMessage> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
        let last = reply.unwrap_or(first);
    }:
    time Time "TIME" 1 = it.time(), "time of the request, or of the reply if there is no request";
    src_ip Address "CLIENT" 3 = it.parties.client_ip(), "address of the client, 0.0.0.0 before it has one";
    src_port Unsigned = it.parties.client.1, "port of the client";
    dst_ip Address "SERVER" 2 = it.parties.server_ip(), "address of the server, or of all";
    dst_port Unsigned = it.parties.server.1, "port of the server";
    proto Text = it.carrier(), "udp";
    trans_id (xid: u32) Unsigned = first.xid, "number of the request";
    mac: String, Text "MAC" 1 = filled(&first.mac), "hardware address of the client";
    request Text "REQUEST" 1 = request.map(|it| it.kind), "discover, request, decline, release, inform, bootrequest, ...";
    reply Text "REPLY" 1 = reply.map(|it| it.kind), "offer, ack, nak, bootreply, ...";
    client_addr (client: Option<[u8; 4]>) Address = address(first.client), "address that the client has already";
    requested_addr (requested: Option<[u8; 4]>) Address = request.and_then(|it| address(it.requested)), "address that the client wants";
    assigned_addr (assigned: Option<[u8; 4]>) Address "ADDRESS" 1 = reply.and_then(|it| address(it.assigned)), "address that the client gets";
    server_addr (server: Option<[u8; 4]>) Address = address(last.server), "address of the server, as it says";
    next_server: Option<[u8; 4]>, Address = reply.and_then(|it| address(it.next_server)), "server of the client's next step, as it boots";
    relay_addr (relay: Option<[u8; 4]>) Address = address(first.relay), "relay";
    host_name: String, Text "NAME" 2 = filled(&first.host_name), "name of the client's host, as it was sent";
    client_fqdn (fqdn: String) Text = filled(&first.fqdn), "full name of the client";
    domain: String, Text = reply.and_then(|it| filled(&it.domain)), "domain that the server tells";
    lease_time (lease: Option<u32>) Unsigned Seconds = last.lease, "how long the address is the client's; without a reply how long it wants it";
    renewal_time Unsigned Seconds = last.renewal[0], "when the client is to ask for more time";
    rebinding_time Unsigned Seconds = last.renewal[1], "when it is to ask any server for that";
    subnet_mask (mask: Option<[u8; 4]>) Address = address(last.mask), "mask of the client's network";
    routers: Vec<String>, Texts = listed(&last.routers), "addresses of its routers";
    dns_servers: Vec<String>, Texts = listed(&last.dns_servers), "addresses of its name servers";
    client_id: String, Text = filled(&first.client_id), "identifier that the client chose, its bytes in hexadecimal";
    vendor_class (vendor: String) Text = filled(&first.vendor), "the client's system";
    message (text: String) Text = filled(&last.text), "words of the server, or the client";
    parameters: Vec<u8>, List = listed(&first.parameters), "options that the client wants";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the request";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply";
    latency Duration Seconds "LATENCY" 2 = it.latency(), "from the (first) request to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the request before the reply";
    limit Text = it.limit, "requests: too many waiting for replies (256); memory: none left for waiting requests, so \
    this one has no reply; or null";

    /// A DHCP message. Its buffers can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DhcpMessage {
        /// Its type.
        pub kind: &'static str,
        /// Renewal and rebinding time in seconds.
        pub renewal: [Option<u32>; 2],
        /// Its size in bytes.
        pub bytes: u64,
    }
}

/// An address, unless it is 0.0.0.0.
fn address(address: Option<[u8; 4]>) -> Option<(Address, u8)> {
    let address = address.filter(|it| *it != [0; 4])?;
    Some((Address::v4(address), 4))
}
