//! ICP: what caches ask each other, and the replies.

use flowgauge_proto::Look;
use flowgauge_proto::icp::{Message, look};
use flowgauge_record::icp::{ICP_SCHEMA, IcpMessage};
use flowgauge_record::text::lossy;
use flowgauge_stack::{ComponentInfo, ResultInfo};

use super::datagrams::{AnsweredBy, Datagrams, Role, Talk};
use super::table::Table;
use super::{At, ProtocolInfo, Seen, Transport, alone};

/// The port on which hosts send back what they get.
const ECHO: u16 = 7;

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "icp",
    transport: Transport::Udp,
    ports: &[3130],
    look: recognise,
    begins_datagram: |byte| matches!(byte, 0..=4 | 10 | 11 | 21..=23),
    table: Table::<Talk<Icp>>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "icp",
    aliases: &["matchicp", "icpmatch"],
    summary: "finds ICP queries between caches and their replies",
    help: "Version 2. A reply belongs to the query with its number and addresses; a repeated query without a \
           reply yet counts once. Takes datagrams.",
    fields: |_| Some(ICP_SCHEMA),
    result: Some(ResultInfo::number(
        "queries with and without a reply",
        "transactions",
    )),
    make: alone::make::<Talk<Icp>>,
    ..alone::INFO
};

fn recognise(seen: &Seen<'_>) -> Look {
    seen.on_or_malformed(PROTOCOL.ports, seen.either(look), 20)
}

/// The protocol.
pub(super) struct Icp;

impl Datagrams for Icp {
    type Message = IcpMessage;

    const ANSWERED_BY: AnsweredBy = AnsweredBy::Group;

    fn read(bytes: &[u8], at: &At<'_>, message: &mut IcpMessage) -> Option<Role> {
        let parsed = Message::read(bytes)?;
        message.opcode = parsed.opcode.name();
        message.version = parsed.version;
        message.number = parsed.number;
        message.url.push_str(&lossy(parsed.url));
        message.requester = parsed.requester.map(|it| it.octets());
        message.server_rtt_ms = parsed.server_rtt_ms();
        message.object_bytes = parsed.object.map(|it| it.len() as u16);
        message.bytes = bytes.len() as u64;
        message.is_odd = parsed.is_odd;
        // What comes back from an echo port is a reply, whatever it says.
        Some(match parsed.opcode.is_request() && at.source().1 != ECHO {
            true => Role::Request,
            false => Role::Reply,
        })
    }

    fn is_same(one: &IcpMessage, other: &IcpMessage) -> bool {
        one.number == other.number && one.opcode == other.opcode && one.url == other.url
    }

    fn is_answer(request: &IcpMessage, reply: &IcpMessage) -> bool {
        request.number == reply.number
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn message(opcode: u8, number: u8, url: &str) -> Vec<u8> {
        let requester: &[u8] = if opcode == 1 { &[10, 0, 0, 3] } else { &[] };
        let length = 20 + requester.len() + url.len() + 1;
        let mut bytes = vec![opcode, 2, 0, length as u8, 0, 0, 0, number];
        bytes.extend([0; 12]);
        bytes.extend_from_slice(requester);
        bytes.extend_from_slice(url.as_bytes());
        bytes.push(0);
        bytes
    }

    const COLUMNS: &[&str] = &[
        "number",
        "opcode",
        "url",
        "requester",
        "result",
        "latency",
        "repeats",
        "state",
    ];

    #[test]
    fn replies_find_their_queries_by_number() {
        let mut tester = Tester::<Talk<Icp>>::udp([10, 0, 0, 1], 3130, [10, 0, 0, 2], 3130);
        tester.say(true, 1, &message(1, 1, "http://a/"));
        tester.say(true, 2, &message(1, 2, "http://b/"));
        // Both ask, over the same flow.
        tester.say(false, 3, &message(1, 1, "http://c/"));
        tester.say(true, 4, &message(1, 1, "http://a/"));
        tester.say(false, 5, &message(3, 1, "http://a/"));
        tester.say(true, 6, &message(2, 1, "http://c/"));
        tester.say(false, 7, &message(22, 9, "http://d/"));
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#"1 "query" "http://a/" "10.0.0.3" "miss" 4.0 1 "matched""#,
                r#"1 "query" "http://c/" "10.0.0.3" "hit" 3.0 0 "matched""#,
                r#"9 null "http://d/" null "denied" null 0 "no_request""#,
                r#"2 "query" "http://b/" "10.0.0.3" null null 0 "no_reply""#,
            ]
        );
    }

    #[test]
    fn an_echo_is_the_reply_to_itself() {
        let mut tester = Tester::<Talk<Icp>>::udp([10, 0, 0, 1], 3130, [10, 0, 0, 2], 7);
        tester.say(true, 1, &message(10, 1, "http://a/"));
        tester.say(false, 2, &message(10, 1, "http://a/"));
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [r#"1 "secho" "http://a/" null "secho" 1.0 0 "matched""#]
        );
    }

    #[test]
    fn a_group_is_asked_and_each_answers() {
        let mut tester = Tester::<Talk<Icp>>::udp([10, 0, 0, 1], 3130, [224, 0, 0, 9], 3130);
        tester.say(true, 1, &message(1, 1, "http://a/"));
        tester.meet([10, 0, 0, 5], 3130, [10, 0, 0, 1], 3130);
        tester.say(true, 2, &message(2, 1, "http://a/"));
        tester.say(true, 2, &message(2, 1, "http://a/"));
        tester.close();
        assert_eq!(
            tester.rows(&["src_ip", "dst_ip", "state"]),
            [
                r#""10.0.0.1" "10.0.0.5" "matched""#,
                r#""10.0.0.1" "10.0.0.5" "no_request""#,
            ]
        );
    }

    #[test]
    fn a_message_that_is_cut_or_missing_costs_no_other() {
        let said = [
            Said::new(true, 1, &message(1, 1, "http://a/")),
            Said::new(false, 1, &message(3, 1, "http://a/")),
            Said::new(true, 2, &message(1, 2, "http://b/")),
            Said::new(false, 2, &message(2, 2, "http://b/")),
        ];
        cuts_and_gaps(
            || Tester::<Talk<Icp>>::udp([10, 0, 0, 1], 3130, [10, 0, 0, 2], 3130),
            &said,
            |missing, records| assert_halves(&said, "number", missing, records),
        );
    }
}
