//! Records about messages of DHCP for IPv6.

use flowgauge_wire::Address;

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, text_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text_list::TextList;

fields! {
    /// Fields of a request of DHCP for IPv6 and its reply.
    Dhcpv6Fields, DHCPV6, DHCPV6_SCHEMA:
    time Time None "TIME" 1 "when the request was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 2 "address of the client, or of the relay";
    src_port Unsigned None "" 0 "port of the client";
    dst_ip Address None "SERVER" 2 "address of the server, or of all";
    dst_port Unsigned None "" 0 "port of the server";
    proto Text None "" 0 "udp";
    trans_id Unsigned None "" 0 "number of the request";
    client_id Text None "" 0 "identifier of the client (DUID), hexadecimal";
    server_id Text None "" 0 "identifier of the server (DUID), hexadecimal";
    mac Text None "MAC" 1 "hardware address in the client's identifier, of Ethernet";
    request Text None "REQUEST" 1 "solicit, request, renew, rebind, release, information-request, ...";
    reply Text None "REPLY" 1 "advertise, reply, reconfigure";
    requested Texts None "" 0 "addresses and prefixes that the client names";
    assigned Texts None "ADDRESSES" 1 "addresses and prefixes that the client gets";
    lease_time Unsigned Seconds "" 0 "how long the first of them is valid";
    status Unsigned None "" 0 "status that is no success, else 0; null where there is none";
    message Text None "" 0 "words on the status";
    relay_addr Address None "" 0 "address of the client's link at the relay nearest to it";
    peer_addr Address None "" 0 "address of the client at that relay";
    client_fqdn Text None "NAME" 2 "full name of the client";
    domains Texts None "" 0 "domains that the server tells";
    dns_servers Texts None "" 0 "servers of DNS that the server tells";
    parameters List None "" 0 "options that the client wants";
    request_bytes Unsigned Bytes "" 0 "bytes of the request";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply";
    latency Duration Seconds "LATENCY" 2 "from the request, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the request came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; list: more leases, domains or servers than are written down (32), or options wanted (256); text: an identifier of more than 130 bytes; or null";
}

/// A message. Its buffers can be used again ([`Dhcpv6Message::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dhcpv6Message {
    /// Number of the request.
    pub xid: u32,
    /// What it is.
    pub kind: &'static str,
    /// The client's identifier, hexadecimal.
    pub client_id: String,
    /// The server's.
    pub server_id: String,
    /// Hardware address, hexadecimal with colons.
    pub mac: String,
    /// Addresses and prefixes.
    pub leases: TextList,
    /// How long the first of them is valid, s.
    pub lifetime: Option<u32>,
    /// Status.
    pub status: Option<u16>,
    /// Words on it.
    pub text: String,
    /// Link and client's address at the relay nearest to the client.
    pub relay: Option<[[u8; 16]; 2]>,
    /// Full name.
    pub fqdn: String,
    /// Domains.
    pub domains: TextList,
    /// Servers of DNS.
    pub dns_servers: TextList,
    /// Options that are wanted.
    pub parameters: Vec<u16>,
    /// Bytes of it.
    pub bytes: u64,
    /// The first bound that left something out.
    pub limit: Option<&'static str>,
}

impl Dhcpv6Message {
    /// Forgets all but the buffers.
    pub fn clear(&mut self) {
        let text = |mut text: String| {
            text.clear();
            text
        };
        let list = |mut list: TextList| {
            list.clear();
            list
        };
        let mut old = core::mem::take(self);
        old.parameters.clear();
        *self = Dhcpv6Message {
            client_id: text(old.client_id),
            server_id: text(old.server_id),
            mac: text(old.mac),
            leases: list(old.leases),
            text: text(old.text),
            fqdn: text(old.fqdn),
            domains: list(old.domains),
            dns_servers: list(old.dns_servers),
            parameters: old.parameters,
            ..Dhcpv6Message::default()
        };
    }
}

impl Record for Exchange<'_, Dhcpv6Message> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        let parties = [
            &DHCPV6.time,
            &DHCPV6.src_ip,
            &DHCPV6.src_port,
            &DHCPV6.dst_ip,
            &DHCPV6.dst_port,
            &DHCPV6.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some(first) = self.first() else { return };
        // What the reply says comes before what is asked for.
        let last = reply.or(request);
        visitor.unsigned(&DHCPV6.trans_id, u64::from(first.xid));
        filled_or_null(visitor, &DHCPV6.client_id, &first.client_id);
        let server_id = last.map_or("", |it| &it.server_id);
        filled_or_null(visitor, &DHCPV6.server_id, server_id);
        filled_or_null(visitor, &DHCPV6.mac, &first.mac);
        text_or_null(visitor, &DHCPV6.request, request.map(|it| it.kind));
        text_or_null(visitor, &DHCPV6.reply, reply.map(|it| it.kind));
        match request {
            Some(request) => request.leases.visit(&DHCPV6.requested, visitor),
            None => visitor.null(&DHCPV6.requested),
        }
        match reply {
            Some(reply) => reply.leases.visit(&DHCPV6.assigned, visitor),
            None => visitor.null(&DHCPV6.assigned),
        }
        let lifetime = reply.and_then(|it| it.lifetime);
        number_or_null(visitor, &DHCPV6.lease_time, lifetime);
        number_or_null(visitor, &DHCPV6.status, last.and_then(|it| it.status));
        filled_or_null(visitor, &DHCPV6.message, last.map_or("", |it| &it.text));
        let fields = [&DHCPV6.relay_addr, &DHCPV6.peer_addr];
        for (place, field) in fields.into_iter().enumerate() {
            match first.relay {
                Some(relay) => visitor.address(field, Address(relay[place]), 6),
                None => visitor.null(field),
            }
        }
        let mut both = [request, reply].into_iter().flatten();
        let fqdn = both.find(|it| !it.fqdn.is_empty());
        filled_or_null(visitor, &DHCPV6.client_fqdn, fqdn.map_or("", |it| &it.fqdn));
        match reply {
            Some(reply) => {
                reply.domains.visit(&DHCPV6.domains, visitor);
                reply.dns_servers.visit(&DHCPV6.dns_servers, visitor);
            }
            None => {
                visitor.null(&DHCPV6.domains);
                visitor.null(&DHCPV6.dns_servers);
            }
        }
        match first.parameters.as_slice() {
            [] => visitor.null(&DHCPV6.parameters),
            list => visitor.list(&DHCPV6.parameters, list),
        }
        number_or_null(visitor, &DHCPV6.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &DHCPV6.reply_bytes, reply.map(|it| it.bytes));
        self.visit_state(
            [
                &DHCPV6.latency,
                &DHCPV6.state,
                &DHCPV6.repeats,
                &DHCPV6.limit,
            ],
            [request, reply]
                .into_iter()
                .flatten()
                .find_map(|it| it.limit),
            visitor,
        );
    }
}

impl KnownRecord for Exchange<'_, Dhcpv6Message> {
    fn schema(&self) -> Schema {
        DHCPV6_SCHEMA
    }
}
