//! DHCP: requests for addresses and their replies, which go to all where the client has no address yet.

use flowgauge_proto::dhcp::{Message, look, option};
use flowgauge_record::dhcp::{DHCP_SCHEMA, DhcpMessage};
use flowgauge_record::text::lossy;
use flowgauge_stack::ComponentInfo;

use super::datagrams::{AnsweredBy, Datagrams, Role, Talk};
use super::dhcpv6::hardware;
use super::table::Table;
use super::{At, ProtocolInfo, Transport, alone};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "dhcp",
    transport: Transport::Udp,
    ports: &[67, 68],
    look: |seen| seen.on(PROTOCOL.ports, seen.either(look)),
    begins_datagram: |byte| matches!(byte, 1 | 2),
    table: Table::<Talk<Dhcp>>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "dhcp",
    summary: "finds DHCP requests and their replies",
    help: "A reply belongs to the request with its number and hardware address, from any sender: offers to \
           discoveries, others to requests. Takes datagrams.",
    fields: |_| Some(DHCP_SCHEMA),
    make: alone::make::<Talk<Dhcp>>,
    ..alone::INFO
};

/// The protocol.
pub(super) struct Dhcp;

impl Datagrams for Dhcp {
    type Message = DhcpMessage;

    const ANSWERED_BY: AnsweredBy = AnsweredBy::Anyone;

    fn read(bytes: &[u8], _: &At<'_>, message: &mut DhcpMessage) -> Option<Role> {
        let parsed = Message::read(bytes)?;
        read(&parsed, bytes.len(), message);
        Some(match parsed.is_reply {
            true => Role::Reply,
            false => Role::Request,
        })
    }

    fn is_same(one: &DhcpMessage, other: &DhcpMessage) -> bool {
        one.xid == other.xid && one.kind == other.kind && one.mac == other.mac
    }

    fn is_answer(request: &DhcpMessage, reply: &DhcpMessage) -> bool {
        let is_offer = reply.kind == "offer";
        let fits = match request.kind {
            "discover" => is_offer,
            "request" | "inform" => !is_offer,
            _ => true,
        };
        fits && request.xid == reply.xid && request.mac == reply.mac
    }
}

fn read(parsed: &Message<'_>, length: usize, message: &mut DhcpMessage) {
    message.xid = parsed.xid;
    message.kind = parsed.type_name();
    hardware(parsed.hardware, &mut message.mac);
    // Behind the type of its hardware address.
    if let Some([_, id @ ..]) = parsed.option(option::CLIENT_ID) {
        hardware(id, &mut message.client_id);
    }
    message.next_server = Some(parsed.next_server.octets());
    message.mask = parsed.address(option::SUBNET_MASK).map(|it| it.octets());
    let list = |code| parsed.addresses(code).map(|it| it.to_string()).collect();
    message.routers = list(option::ROUTERS);
    message.dns_servers = list(option::DNS_SERVERS);
    message.renewal = [option::RENEWAL, option::REBINDING].map(|code| parsed.seconds(code));
    message.client = Some(parsed.client.octets());
    message.assigned = Some(parsed.assigned.octets());
    message.relay = Some(parsed.relay.octets());
    message.requested = parsed.address(option::REQUESTED).map(|it| it.octets());
    message.server = parsed.address(option::SERVER).map(|it| it.octets());
    message.lease = parsed.seconds(option::LEASE);
    let text = |code: u8, out: &mut String| {
        let bytes = parsed.option(code).unwrap_or_default();
        let text = lossy(bytes);
        out.push_str(text.trim_end_matches('\0'));
    };
    let host_name = parsed.option(option::HOST_NAME).unwrap_or_default();
    message.host_name.push_str(&lossy(host_name));
    text(option::DOMAIN, &mut message.domain);
    text(option::VENDOR, &mut message.vendor);
    text(option::MESSAGE, &mut message.text);
    parsed.write_fqdn(&mut message.fqdn);
    let parameters = parsed.option(option::PARAMETERS).unwrap_or_default();
    message.parameters.extend_from_slice(parameters);
    message.bytes = length as u64;
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn message(op: u8, kind: u8, assigned: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![op, 1, 6, 0, 0, 0, 0, 7];
        bytes.resize(16, 0);
        bytes.extend([0, 0, 0, assigned]);
        bytes.resize(28, 0);
        bytes.extend([2, 0, 0, 0, 0, 9]);
        bytes.resize(236, 0);
        bytes.extend([99, 130, 83, 99, 53, 1, kind]);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn every_message_is_in_a_record_whichever_is_missing() {
        let said = [(true, 1, 3), (true, 2, 3), (false, 2, 5), (false, 1, 5)];
        let said = said.map(|(side, xid, kind)| {
            let mut bytes = message(if side { 1 } else { 2 }, kind, 5, b"\x0c\x04host");
            bytes[7] = xid as u8;
            Said::new(side, xid, &bytes)
        });
        cuts_and_gaps(
            || Tester::<Talk<Dhcp>>::udp([10, 0, 0, 5], 68, [10, 0, 0, 1], 67),
            &said,
            |missing, records| assert_halves(&said, "trans_id", missing, records),
        );
    }

    #[test]
    fn an_address_is_offered_and_given() {
        let mut tester = Tester::<Talk<Dhcp>>::udp([0; 4], 68, [255; 4], 67);
        tester.say(true, 1, &message(1, 1, 0, b"\x0c\x04host\x37\x02\x01\x03"));
        tester.say(true, 2, &message(1, 1, 0, b""));
        tester.meet([10, 0, 0, 1], 67, [255; 4], 68);
        tester.say(
            true,
            3,
            &message(
                2,
                2,
                5,
                b"\x36\x04\x0a\0\0\x01\x33\x04\0\0\x0e\x10\x3a\x04\0\0\x07\x08\x01\x04\xff\xff\xff\0\
                  \x03\x04\x0a\0\0\x01\x06\x09\x0a\0\0\x01\x0a\0\0\x02\0",
            ),
        );
        tester.meet([0; 4], 68, [255; 4], 67);
        tester.say(true, 4, &message(1, 3, 0, b"\x32\x04\x0a\0\0\x05"));
        tester.meet([10, 0, 0, 1], 67, [255; 4], 68);
        tester.say(true, 5, &message(2, 5, 5, b""));
        tester.say(true, 5, &message(2, 5, 5, b""));
        tester.meet([0; 4], 68, [255; 4], 67);
        tester.say(true, 6, &message(1, 7, 0, b""));
        tester.close();
        assert_eq!(
            tester.rows(&[
                "dst_ip",
                "mac",
                "request",
                "reply",
                "assigned_addr",
                "repeats",
                "state"
            ]),
            [
                r#""10.0.0.1" "02:00:00:00:00:09" "discover" "offer" "0.0.0.5" 1 "matched""#,
                r#""10.0.0.1" "02:00:00:00:00:09" "request" "ack" "0.0.0.5" 0 "matched""#,
                r#""255.255.255.255" "02:00:00:00:00:09" null "ack" "0.0.0.5" 0 "no_request""#,
                r#""255.255.255.255" "02:00:00:00:00:09" "release" null null 0 "no_reply""#,
            ]
        );
        assert_eq!(
            tester.rows(&[
                "host_name",
                "parameters",
                "server_addr",
                "lease_time",
                "requested_addr"
            ])[..2],
            [
                r#""host" [1,3] "10.0.0.1" 3600 null"#,
                r#"null null null null "10.0.0.5""#
            ]
        );
        let fields = [
            "renewal_time",
            "rebinding_time",
            "subnet_mask",
            "routers",
            "dns_servers",
        ];
        assert_eq!(
            tester.rows(&fields)[0],
            r#"1800 null "255.255.255.0" ["10.0.0.1"] ["10.0.0.1","10.0.0.2"]"#
        );
    }
}
