//! SNMP: requests and their replies, and traps.

use data_encoding::HEXLOWER;
use flowgauge_proto::snmp::{Message, look, write_oid};
use flowgauge_record::snmp::{SNMP_SCHEMA, SnmpMessage};
use flowgauge_record::text::lossy;
use flowgauge_stack::{ComponentInfo, ResultInfo};

use super::datagrams::{AnsweredBy, Datagrams, Role, Talk};
use super::table::Table;
use super::{At, ProtocolInfo, Transport, alone};

/// Ports of agents, and of those who take traps.
const PORTS: [u16; 2] = [161, 162];

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "snmp",
    transport: Transport::Udp,
    ports: &PORTS,
    look: |seen| seen.either(look),
    begins_datagram: |byte| byte == 0x30,
    table: Table::<Talk<Snmp>>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "snmp",
    summary: "finds SNMP requests, their replies, and traps",
    help: "Versions 1, 2c and 3; for encrypted messages only the clear parts. A reply belongs to the request \
           with its number and addresses. Takes datagrams.",
    fields: |_| Some(SNMP_SCHEMA),
    result: Some(ResultInfo::number(
        "requests with and without a reply, and traps",
        "transactions",
    )),
    make: alone::make::<Talk<Snmp>>,
    ..alone::INFO
};

/// The protocol.
pub(super) struct Snmp;

impl Datagrams for Snmp {
    type Message = SnmpMessage;

    const ANSWERED_BY: AnsweredBy = AnsweredBy::Server;

    fn read(bytes: &[u8], at: &At<'_>, message: &mut SnmpMessage) -> Option<Role> {
        let parsed = Message::read(bytes)?;
        read(&parsed, bytes.len(), message);
        Some(match parsed.pdu {
            Some(pdu) if pdu.is_trap() => Role::Alone,
            Some(pdu) if pdu.is_reply() => Role::Reply,
            Some(_) => Role::Request,
            // Of what is encrypted the ports tell, or that it answers what is known.
            None if PORTS.contains(&at.source().1) => Role::Reply,
            None => Role::Either,
        })
    }

    fn is_same(one: &SnmpMessage, other: &SnmpMessage) -> bool {
        one.id == other.id && one.kind == other.kind && one.oid == other.oid
    }

    fn is_answer(request: &SnmpMessage, reply: &SnmpMessage) -> bool {
        request.id == reply.id
    }
}

fn read(parsed: &Message<'_>, length: usize, message: &mut SnmpMessage) {
    let text = |bytes: &[u8], out: &mut String| out.push_str(&lossy(bytes));
    message.version = parsed.version_name();
    text(parsed.community.unwrap_or_default(), &mut message.community);
    if let Some(secure) = &parsed.secure {
        text(secure.user, &mut message.user);
        text(secure.context, &mut message.context);
        HEXLOWER.encode_append(secure.engine, &mut message.engine);
        message.level = Some(secure.level());
    }
    message.id = parsed.id();
    if let Some(pdu) = &parsed.pdu {
        message.kind = Some(pdu.name());
        message.error = pdu.error_name();
        message.error_index = pdu.error_index;
        message.variables = Some(pdu.variables);
        write_oid(pdu.first.unwrap_or_default(), &mut message.oid);
    }
    message.bytes = length as u64;
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn message(kind: u8, id: u8, error: u8) -> Vec<u8> {
        let variable = b"\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x05\0\x05\0";
        let mut bytes = vec![0x30, 0x26, 2, 1, 1, 4, 6];
        bytes.extend(b"public");
        bytes.extend([0xa0 + kind, 0x19, 2, 1, id, 2, 1, error, 2, 1, error]);
        bytes.extend_from_slice(variable);
        bytes
    }

    #[test]
    fn every_message_is_in_a_record_whichever_is_missing() {
        let said = [(true, 1, 0), (true, 2, 1), (false, 2, 2), (false, 1, 2)];
        let said = said.map(|(side, id, kind)| Said::new(side, id, &message(kind, id as u8, 0)));
        cuts_and_gaps(
            || Tester::<Talk<Snmp>>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 161),
            &said,
            |missing, records| assert_halves(&said, "id", missing, records),
        );
    }

    #[test]
    fn replies_have_the_numbers_of_requests_and_traps_stand_alone() {
        let mut tester = Tester::<Talk<Snmp>>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 161);
        tester.say(true, 1, &message(0, 1, 0));
        tester.say(true, 2, &message(1, 2, 0));
        tester.say(true, 2, &message(1, 2, 0));
        tester.say(false, 3, &message(2, 2, 2));
        tester.say(false, 4, &message(2, 9, 0));
        tester.say(true, 5, &message(7, 0, 0));
        tester.close();
        assert_eq!(
            tester.rows(&[
                "id",
                "community",
                "request",
                "reply",
                "error",
                "oid",
                "repeats",
                "state"
            ]),
            [
                r#"2 "public" "getnext" "response" "noSuchName" "1.3.6.1.2.1.1.5.0" 1 "matched""#,
                r#"9 "public" null "response" "noError" "1.3.6.1.2.1.1.5.0" 0 "no_request""#,
                r#"0 "public" "trap" null null "1.3.6.1.2.1.1.5.0" 0 "no_reply""#,
                r#"1 "public" "get" null null "1.3.6.1.2.1.1.5.0" 0 "no_reply""#,
            ]
        );
    }
}
