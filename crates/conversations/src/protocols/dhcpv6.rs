//! DHCP for IPv6: requests for addresses and prefixes, and their replies.

use core::fmt::Write as _;

use data_encoding::HEXLOWER;
use flowgauge_proto::dhcp::v6::{Message, look, option};
use flowgauge_record::dhcpv6::{DHCPV6_SCHEMA, Dhcpv6Message};
use flowgauge_record::text::lossy;
use flowgauge_stack::ComponentInfo;

use super::datagrams::{AnsweredBy, Datagrams, Role, Talk};
use super::table::Table;
use super::{At, ProtocolInfo, Transport, alone};

/// Addresses, prefixes, domains and servers of a message that are written down.
const MOST: usize = 32;
/// Options wanted that are.
const WANTED: usize = 256;
/// Bytes of an identifier that are (RFC 8415, section 11.1: at most 130).
const MAX_ID: usize = 130;

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "dhcpv6",
    transport: Transport::Udp,
    ports: &[546, 547],
    look: |seen| seen.on(PROTOCOL.ports, seen.either(look)),
    // A port has to say so, too.
    begins_datagram: |_| false,
    table: Table::<Talk<Dhcpv6>>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "dhcpv6",
    summary: "finds DHCPv6 requests and their replies",
    help: "A reply belongs to the request with its number, client and relay, from any sender: advertisements \
           to solicitations, others to any request. Messages are unwrapped from those of relays. Takes \
           datagrams.",
    fields: |_| Some(DHCPV6_SCHEMA),
    make: alone::make::<Talk<Dhcpv6>>,
    ..alone::INFO
};

/// The protocol.
pub(super) struct Dhcpv6;

impl Datagrams for Dhcpv6 {
    type Message = Dhcpv6Message;

    const ANSWERED_BY: AnsweredBy = AnsweredBy::Anyone;

    fn read(bytes: &[u8], _: &At<'_>, message: &mut Dhcpv6Message) -> Option<Role> {
        let parsed = Message::read(bytes)?;
        read(&parsed, bytes.len(), message);
        Some(match message.kind {
            _ if parsed.is_reply() => Role::Reply,
            "other" => Role::Alone,
            _ => Role::Request,
        })
    }

    fn is_same(one: &Dhcpv6Message, other: &Dhcpv6Message) -> bool {
        one.kind == other.kind && has_ids(one, other)
    }

    fn is_answer(request: &Dhcpv6Message, reply: &Dhcpv6Message) -> bool {
        (reply.kind != "advertise" || request.kind == "solicit") && has_ids(request, reply)
    }
}

fn has_ids(one: &Dhcpv6Message, other: &Dhcpv6Message) -> bool {
    one.xid == other.xid && one.client_id == other.client_id && one.relay == other.relay
}

/// Appends a hardware address, with colons.
pub(super) fn hardware(bytes: &[u8], out: &mut String) {
    for (index, byte) in bytes.iter().enumerate() {
        out.push_str(if index > 0 { ":" } else { "" });
        HEXLOWER.encode_append(&[*byte], out);
    }
}

fn read(parsed: &Message<'_>, length: usize, message: &mut Dhcpv6Message) {
    message.xid = parsed.xid;
    message.kind = parsed.type_name();
    let of = |code: u16| parsed.option(code).unwrap_or_default();
    let id = |code: u16| of(code).get(..MAX_ID).unwrap_or(of(code));
    HEXLOWER.encode_append(id(option::CLIENT_ID), &mut message.client_id);
    HEXLOWER.encode_append(id(option::SERVER_ID), &mut message.server_id);
    hardware(parsed.hardware().unwrap_or_default(), &mut message.mac);
    message.relay = parsed
        .relay
        .map(|(link, peer)| [link.octets(), peer.octets()]);
    for lease in parsed.leases().take(MOST) {
        message.lifetime.get_or_insert(lease.lifetimes[1]);
        message.leases.push(|out| {
            let _ = write!(out, "{}", lease.address);
            if let Some(bits) = lease.prefix {
                let _ = write!(out, "/{bits}");
            }
        });
    }
    if let Some((status, text)) = parsed.status() {
        message.status = Some(status);
        message.text.push_str(&lossy(text));
    }
    message.fqdn.push_str(&parsed.fqdn().unwrap_or_default());
    for domain in parsed.domains().take(MOST) {
        message.domains.push(|out| out.push_str(&domain));
    }
    for server in parsed.dns_servers().take(MOST) {
        message.dns_servers.push(|out| {
            let _ = write!(out, "{server}");
        });
    }
    message.parameters.extend(parsed.wanted().take(WANTED));
    let ids = [option::CLIENT_ID, option::SERVER_ID];
    if ids.iter().any(|&id| of(id).len() > MAX_ID) {
        message.limit = Some("text");
    }
    if parsed.leases().nth(MOST).is_some()
        || parsed.domains().nth(MOST).is_some()
        || parsed.dns_servers().nth(MOST).is_some()
        || parsed.wanted().nth(WANTED).is_some()
    {
        message.limit = Some("list");
    }
    message.bytes = length as u64;
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let head = [code.to_be_bytes(), (value.len() as u16).to_be_bytes()];
        [&head.concat(), value].concat()
    }

    /// A message of a client, or to it; `lease` is the last byte of an address.
    fn message(kind: u8, xid: u8, client: u8, lease: Option<u8>) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, xid];
        bytes.extend(option(1, &[0, 3, 0, 1, 2, 0, 0, 0, 0, client]));
        if let Some(last) = lease {
            let mut address = vec![0x20, 1];
            address.resize(15, 0);
            address.extend([last, 0, 0, 0, 10, 0, 0, 0, 20]);
            bytes.extend(option(3, &[&[0; 12][..], &option(5, &address)].concat()));
        }
        bytes
    }

    const COLUMNS: &[&str] = &[
        "dst_ip", "mac", "request", "reply", "assigned", "repeats", "state",
    ];

    #[test]
    fn an_address_is_offered_and_given() {
        let mut tester = Tester::<Talk<Dhcpv6>>::udp([10, 0, 0, 5], 546, [224, 0, 0, 2], 547);
        tester.say(true, 1, &message(1, 1, 9, None));
        tester.say(true, 2, &message(1, 1, 9, None));
        tester.say(true, 2, &message(1, 1, 8, None));
        tester.meet([10, 0, 0, 1], 547, [10, 0, 0, 5], 546);
        tester.say(true, 3, &message(2, 1, 9, Some(7)));
        tester.meet([10, 0, 0, 5], 546, [224, 0, 0, 2], 547);
        tester.say(true, 4, &message(3, 2, 9, Some(7)));
        tester.meet([10, 0, 0, 1], 547, [10, 0, 0, 5], 546);
        // An advertisement answers no request.
        tester.say(true, 5, &message(2, 2, 9, Some(7)));
        tester.say(true, 5, &message(7, 2, 9, Some(7)));
        tester.meet([10, 0, 0, 5], 546, [224, 0, 0, 2], 547);
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#""10.0.0.1" "02:00:00:00:00:09" "solicit" "advertise" ["2001::7"] 1 "matched""#,
                r#""10.0.0.1" "02:00:00:00:00:09" null "advertise" ["2001::7"] 0 "no_request""#,
                r#""10.0.0.1" "02:00:00:00:00:09" "request" "reply" ["2001::7"] 0 "matched""#,
                r#""224.0.0.2" "02:00:00:00:00:08" "solicit" null null 0 "no_reply""#,
            ]
        );
        assert_eq!(
            tester.rows(&["client_id", "requested", "lease_time", "request_bytes"])[2],
            r#""00030001020000000009" ["2001::7"] 20 62"#
        );
    }

    #[test]
    fn every_message_is_in_a_record_whichever_is_missing() {
        let said = [(true, 1, 5), (true, 2, 5), (false, 2, 7), (false, 1, 7)];
        let said = said
            .map(|(side, xid, kind)| Said::new(side, xid, &message(kind, xid as u8, 9, Some(7))));
        cuts_and_gaps(
            || Tester::<Talk<Dhcpv6>>::udp([10, 0, 0, 5], 546, [10, 0, 0, 1], 547),
            &said,
            |missing, records| assert_halves(&said, "trans_id", missing, records),
        );
    }

    #[test]
    fn a_relayed_message_is_another_one_than_that_of_the_client() {
        let relayed = |kind: u8, message: &[u8]| {
            let mut bytes = vec![kind, 0];
            bytes.extend([7; 32]);
            bytes.extend(option(9, message));
            bytes
        };
        let mut tester = Tester::<Talk<Dhcpv6>>::udp([10, 0, 0, 5], 546, [224, 0, 0, 2], 547);
        tester.say(true, 1, &message(11, 1, 9, None));
        tester.meet([10, 0, 0, 2], 547, [10, 0, 0, 1], 547);
        tester.say(true, 1, &relayed(12, &message(11, 1, 9, None)));
        tester.say(false, 2, &relayed(13, &message(7, 1, 9, None)));
        tester.meet([10, 0, 0, 2], 547, [10, 0, 0, 5], 546);
        tester.say(true, 3, &message(7, 1, 9, None));
        assert_eq!(
            tester.rows(&["src_ip", "dst_ip", "request", "latency", "peer_addr"]),
            [
                r#""10.0.0.2" "10.0.0.1" "information-request" 1.0 "707:707:707:707:707:707:707:707""#,
                r#""10.0.0.5" "10.0.0.2" "information-request" 2.0 null"#,
            ]
        );
    }
}
