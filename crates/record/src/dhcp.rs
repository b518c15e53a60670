//! Records about messages of DHCP.

use flowgauge_wire::Address;

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, text_or_null, texts_or_null};
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a request for an address and its reply.
    DhcpFields, DHCP, DHCP_SCHEMA:
    time Time None "TIME" 1 "when the request was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 3 "address of the client, 0.0.0.0 before it has one";
    src_port Unsigned None "" 0 "port of the client";
    dst_ip Address None "SERVER" 2 "address of the server, or of all";
    dst_port Unsigned None "" 0 "port of the server";
    proto Text None "" 0 "udp";
    trans_id Unsigned None "" 0 "number of the request";
    mac Text None "MAC" 1 "hardware address of the client";
    request Text None "REQUEST" 1 "discover, request, decline, release, inform, bootrequest, ...";
    reply Text None "REPLY" 1 "offer, ack, nak, bootreply, ...";
    client_addr Address None "" 0 "address that the client has already";
    requested_addr Address None "" 0 "address that the client wants";
    assigned_addr Address None "ADDRESS" 1 "address that the client gets";
    server_addr Address None "" 0 "address of the server, as it says";
    next_server Address None "" 0 "server of the client's next step, as it boots";
    relay_addr Address None "" 0 "relay through which it goes";
    host_name Text None "NAME" 2 "name of the client's host, as it was sent";
    client_fqdn Text None "" 0 "full name of the client";
    domain Text None "" 0 "domain that the server tells";
    lease_time Unsigned Seconds "" 0 "how long the address is the client's; without a reply how long it wants it";
    renewal_time Unsigned Seconds "" 0 "when the client is to ask for more time";
    rebinding_time Unsigned Seconds "" 0 "when it is to ask any server for that";
    subnet_mask Address None "" 0 "mask of the client's network";
    routers Texts None "" 0 "addresses of its routers";
    dns_servers Texts None "" 0 "addresses of its name servers";
    client_id Text None "" 0 "identifier that the client chose, its bytes in hexadecimal";
    vendor_class Text None "" 0 "what the client's system is";
    message Text None "" 0 "words of the server, or the client";
    parameters List None "" 0 "options that the client wants";
    request_bytes Unsigned Bytes "" 0 "bytes of the request";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply";
    latency Duration Seconds "LATENCY" 2 "from the request, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the request came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; or null";
}

/// A message of DHCP. Its buffers can be used again ([`DhcpMessage::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpMessage {
    /// Number of the request.
    pub xid: u32,
    /// Hardware address, hexadecimal with colons.
    pub mac: String,
    /// What it is.
    pub kind: &'static str,
    /// Address that the client has.
    pub client: Option<[u8; 4]>,
    /// Address that it wants.
    pub requested: Option<[u8; 4]>,
    /// Address that it gets.
    pub assigned: Option<[u8; 4]>,
    /// The server's.
    pub server: Option<[u8; 4]>,
    /// That of the next step.
    pub next_server: Option<[u8; 4]>,
    /// The relay's.
    pub relay: Option<[u8; 4]>,
    /// Name of the host.
    pub host_name: String,
    /// Full name.
    pub fqdn: String,
    /// Domain.
    pub domain: String,
    /// How long the address is the client's, s.
    pub lease: Option<u32>,
    /// When it is to ask for more time, and when any server, s.
    pub renewal: [Option<u32>; 2],
    /// Mask of its network.
    pub mask: Option<[u8; 4]>,
    /// Its routers.
    pub routers: Vec<String>,
    /// Its name servers.
    pub dns_servers: Vec<String>,
    /// What the client calls itself, hexadecimal with colons.
    pub client_id: String,
    /// What the client's system is.
    pub vendor: String,
    /// Words of its sender.
    pub text: String,
    /// Options that are wanted.
    pub parameters: Vec<u8>,
    /// Bytes of it.
    pub bytes: u64,
}

impl DhcpMessage {
    /// Forgets all but the buffers.
    pub fn clear(&mut self) {
        let take = |mut text: String| {
            text.clear();
            text
        };
        let mut old = core::mem::take(self);
        old.parameters.clear();
        *self = DhcpMessage {
            mac: take(old.mac),
            host_name: take(old.host_name),
            fqdn: take(old.fqdn),
            client_id: take(old.client_id),
            domain: take(old.domain),
            vendor: take(old.vendor),
            text: take(old.text),
            parameters: old.parameters,
            ..DhcpMessage::default()
        };
    }
}

fn address<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<[u8; 4]>) {
    match value.filter(|it| *it != [0; 4]) {
        Some(address) => visitor.address(field, Address::v4(address), 4),
        None => visitor.null(field),
    }
}

impl Record for Exchange<'_, DhcpMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        let parties = [
            &DHCP.time,
            &DHCP.src_ip,
            &DHCP.src_port,
            &DHCP.dst_ip,
            &DHCP.dst_port,
            &DHCP.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some(first) = self.first() else { return };
        visitor.unsigned(&DHCP.trans_id, u64::from(first.xid));
        filled_or_null(visitor, &DHCP.mac, &first.mac);
        text_or_null(visitor, &DHCP.request, request.map(|it| it.kind));
        text_or_null(visitor, &DHCP.reply, reply.map(|it| it.kind));
        address(visitor, &DHCP.client_addr, first.client);
        address(
            visitor,
            &DHCP.requested_addr,
            request.and_then(|it| it.requested),
        );
        address(
            visitor,
            &DHCP.assigned_addr,
            reply.and_then(|it| it.assigned),
        );
        address(
            visitor,
            &DHCP.server_addr,
            reply.or(request).and_then(|it| it.server),
        );
        address(
            visitor,
            &DHCP.next_server,
            reply.and_then(|it| it.next_server),
        );
        address(visitor, &DHCP.relay_addr, first.relay);
        filled_or_null(visitor, &DHCP.host_name, &first.host_name);
        filled_or_null(visitor, &DHCP.client_fqdn, &first.fqdn);
        filled_or_null(visitor, &DHCP.domain, reply.map_or("", |it| &it.domain));
        let last = reply.unwrap_or(first);
        number_or_null(visitor, &DHCP.lease_time, last.lease);
        number_or_null(visitor, &DHCP.renewal_time, last.renewal[0]);
        number_or_null(visitor, &DHCP.rebinding_time, last.renewal[1]);
        address(visitor, &DHCP.subnet_mask, last.mask);
        texts_or_null(visitor, &DHCP.routers, &last.routers);
        texts_or_null(visitor, &DHCP.dns_servers, &last.dns_servers);
        filled_or_null(visitor, &DHCP.client_id, &first.client_id);
        filled_or_null(visitor, &DHCP.vendor_class, &first.vendor);
        filled_or_null(
            visitor,
            &DHCP.message,
            reply.or(request).map_or("", |it| &it.text),
        );
        match first.parameters.as_slice() {
            [] => visitor.null(&DHCP.parameters),
            list => visitor.list(&DHCP.parameters, list),
        }
        number_or_null(visitor, &DHCP.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &DHCP.reply_bytes, reply.map(|it| it.bytes));
        self.visit_state(
            [&DHCP.latency, &DHCP.state, &DHCP.repeats, &DHCP.limit],
            None,
            visitor,
        );
    }
}

impl KnownRecord for Exchange<'_, DhcpMessage> {
    fn schema(&self) -> Schema {
        DHCP_SCHEMA
    }
}
