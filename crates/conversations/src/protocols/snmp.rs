//! SNMP: requests and their replies, and traps.

use data_encoding::HEXLOWER;
use flowgauge_proto::snmp::{Message, look, write_oid};
use flowgauge_record::snmp::{SNMP_SCHEMA, SnmpMessage};
use flowgauge_record::text::lossy;
use flowgauge_stack::{ComponentInfo, ResultInfo};
use flowgauge_wire::Nanos;

use super::matching::{Pool, Requests, give, give_request};
use super::table::Table;
use super::{At, Conversation, Give, ProtocolInfo, Transport, alone};

/// Ports of agents, and of those who take traps.
const PORTS: [u16; 2] = [161, 162];

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "snmp",
    transport: Transport::Udp,
    ports: &PORTS,
    look: |seen| seen.either(look),
    table: Table::<Talk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "snmp",
    summary: "finds requests of SNMP and their replies, and traps",
    help: "Versions 1, 2c and 3; of encrypted messages what is not. A reply belongs to the request with its \
           number and addresses. Takes datagrams.",
    fields: |_| Some(SNMP_SCHEMA),
    result: Some(ResultInfo::number(
        "requests with and without a reply, and traps",
        "transactions",
    )),
    make: alone::make::<Talk>,
    ..alone::INFO
};

/// A conversation.
#[derive(Default)]
pub(super) struct Talk(Requests<SnmpMessage>);

impl Conversation for Talk {
    type Common = Pool<SnmpMessage>;

    fn data(&mut self, pool: &mut Self::Common, at: &At<'_>, bytes: &[u8], out: &mut Give<'_>) {
        let Some(parsed) = Message::read(bytes) else {
            return;
        };
        let mut message = pool.take();
        read(&parsed, bytes.len(), &mut message);
        self.0.expire(at.time, pool, out);
        let is_reply = match parsed.pdu {
            Some(pdu) if pdu.is_trap() => return give_request(at, message, pool, out),
            Some(pdu) => pdu.is_reply(),
            // Of what is encrypted the ports tell, or that it answers what is known.
            None => self.0.has(at, |it| it.id == message.id) || PORTS.contains(&at.source().1),
        };
        if !is_reply {
            return self.0.request(at, message, is_same, pool, out);
        }
        let request = self.0.find(at, |it| it.id == message.id);
        give(at, request, message, pool, out);
    }

    fn held(&self) -> usize {
        self.0.held()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.0.oldest()
    }

    fn give_up(&mut self, pool: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.0.give_up(at, pool, out);
    }

    fn close(&mut self, pool: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.0.close(at.time, pool, out);
    }
}

fn is_same(one: &SnmpMessage, other: &SnmpMessage) -> bool {
    one.id == other.id && one.kind == other.kind && one.oid == other.oid
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
            || Tester::<Talk>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 161),
            &said,
            |missing, records| assert_halves(&said, "id", missing, records),
        );
    }

    #[test]
    fn replies_have_the_numbers_of_requests_and_traps_stand_alone() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 161);
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
