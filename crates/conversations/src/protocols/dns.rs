//! DNS: queries and their replies over UDP and TCP; multicast DNS, LLMNR, the name service of NetBIOS.

use core::fmt::Write as _;
use core::net::IpAddr;

use flowgauge_proto::Look;
use flowgauge_proto::dns::{
    Edns, Frame, Framer, Message, Name, Part, Question, Record, Section, kind, look, look_stream,
    write_class, write_netbios_opcode, write_opcode, write_rcode, write_type,
};
use flowgauge_record::Held;
use flowgauge_record::dns::{DNS_SCHEMA, DnsMessage};
use flowgauge_record::parties::Parties;
use flowgauge_stack::{ComponentInfo, Input, ItemType, ResultInfo, StreamEnd};
use flowgauge_wire::Nanos;

use super::matching::{Pool, Request, Requests, give, is_group};
use super::table::Table;
use super::{At, Conversation, Give, ProtocolInfo, Seen, Transport, alone};

/// Answers of a message that are written down.
const ANSWERS: usize = 1024;
/// Bytes of their text: with more no further ones are.
const ANSWER_BYTES: usize = 32 << 10;
/// Names these bounds.
const TOO_MANY: &str = "answers";

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "dns",
    transport: Transport::Both,
    ports: &[53, 5353, 5355, 137],
    look: recognise,
    begins_datagram: |_| true,
    table: Table::<Talk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "dns",
    summary: "finds DNS queries and their replies",
    help: "Over UDP and TCP; also multicast DNS, LLMNR and NetBIOS names. A reply belongs to the query with \
           its number, question and addresses; a repeated query without a reply yet counts once. Takes \
           datagrams, or use it within tcpcnxdemux, after tcpreseq.",
    input: Input::Of(&[ItemType::Packet, ItemType::Chunk]),
    fields: |_| Some(DNS_SCHEMA),
    result: Some(ResultInfo::number(
        "queries with and without a reply",
        "transactions",
    )),
    make: alone::make::<Talk>,
    ..alone::INFO
};

fn recognise(seen: &Seen<'_>) -> Look {
    if !seen.is_udp {
        return seen.either(look_stream);
    }
    seen.on_or_malformed(PROTOCOL.ports, seen.either(look), 12)
}

/// Which name service it is, by its ports.
fn service(at: &At<'_>) -> &'static str {
    let ports = [at.connection.initiator.1, at.connection.responder.1];
    let has = |port| ports.contains(&port);
    match () {
        () if has(5353) => "mdns",
        () if has(5355) => "llmnr",
        () if has(137) => "nbns",
        () => "dns",
    }
}

#[derive(Default)]
pub(crate) struct Common {
    pool: Pool<DnsMessage>,
    /// Queries to groups: who answers does so in a flow of its own.
    to_groups: Requests<DnsMessage>,
}

/// A conversation.
#[derive(Default)]
pub(crate) struct Talk {
    requests: Requests<DnsMessage>,
    framers: [Framer; 2],
    transfer: Option<Box<Transfer>>,
    /// Messages so far.
    messages: u64,
    /// Of one within another protocol.
    service: Option<&'static str>,
}

/// A zone transfer: its reply is many messages (RFC 5936, section 2.2).
struct Transfer {
    request: Request<DnsMessage>,
    reply: Box<DnsMessage>,
    time: Nanos,
    /// Records of the zone's authority so far: the second ends it.
    authorities: u32,
}

impl Conversation for Talk {
    type Common = Common;

    fn trim(common: &mut Common) {
        common.pool = Pool::default();
    }

    fn data(&mut self, common: &mut Common, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if at.connection.is_udp {
            return self.message(common, at, bytes, "", give);
        }
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.data(bytes, |frame| self.frame(common, at, frame, give));
        self.framers[at.side()] = framer;
    }

    fn gap(&mut self, common: &mut Common, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.gap(bytes, |frame| self.frame(common, at, frame, give));
        self.framers[at.side()] = framer;
    }

    fn end(&mut self, common: &mut Common, at: &At<'_>, _: StreamEnd, give: &mut Give<'_>) {
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.finish(|frame| self.frame(common, at, frame, give));
        self.framers[at.side()] = framer;
    }

    fn held(&self) -> usize {
        let framers = self.framers.iter().map(Framer::held).sum::<usize>();
        self.requests.held() + framers + self.transfer.as_ref().map_or(0, |it| it.held())
    }

    fn oldest(&self) -> Option<Nanos> {
        self.requests.oldest()
    }

    fn give_up(&mut self, common: &mut Common, at: &At<'_>, give: &mut Give<'_>) {
        self.requests.give_up(at, &mut common.pool, give);
    }

    fn close(&mut self, common: &mut Common, at: &At<'_>, give: &mut Give<'_>) {
        let Common { pool, to_groups } = common;
        self.end_transfer(at, pool, give);
        self.requests.close(at.time, pool, give);
        to_groups.close_of(at, pool, give);
    }
}

impl Talk {
    /// Within HTTP/2 (RFC 8484).
    pub(crate) fn within_http() -> Talk {
        Talk {
            service: Some("doh"),
            ..Talk::default()
        }
    }

    fn frame(&mut self, common: &mut Common, at: &At<'_>, frame: Frame<'_>, out: &mut Give<'_>) {
        match frame {
            Frame::Message(bytes) => self.message(common, at, bytes, "", out),
            Frame::Cut(bytes) => self.message(common, at, bytes, "cut", out),
            Frame::Lost => {}
        }
    }

    /// A message.
    pub(crate) fn message(
        &mut self,
        common: &mut Common,
        at: &At<'_>,
        bytes: &[u8],
        odd: &'static str,
        out: &mut Give<'_>,
    ) {
        let Common { pool, to_groups } = common;
        let mut message = pool.take();
        message.service = self.service.unwrap_or_else(|| service(at));
        message.odd = odd;
        let Some(found) = read(bytes, &mut message) else {
            return pool.give_back(message);
        };
        self.messages += 1;
        message.place = self.messages;
        self.requests.expire(at.time, pool, out);
        to_groups.expire(at.time, pool, out);
        // Each query and each reply is of its own flow.
        let is_each = out.each_message || self.service.is_some();
        if !found.is_reply {
            let requests = match is_group(at.destination().0) && !is_each {
                true => to_groups,
                false => &mut self.requests,
            };
            let is_same = |one: &DnsMessage, other: &DnsMessage| !is_each && is_same(one, other);
            return requests.request(at, message, is_same, pool, out);
        }
        if out.classifies() {
            tell_addresses(&message, at.time, out);
        }
        if let Some(transfer) = &mut self.transfer {
            if transfer.reply.id == message.id {
                transfer.add(&message, found.authorities);
                let is_over = transfer.authorities >= 2;
                pool.give_back(message);
                if is_over {
                    self.end_transfer(at, pool, out);
                }
                return;
            }
            self.end_transfer(at, pool, out);
        }
        let fits = |it: &DnsMessage| fits(it, &message);
        let request = self.requests.find(at, fits).or_else(|| {
            to_groups.find_any(|parties, it| fits(it) && is_asker(parties, at, message.service))
        });
        match request {
            Some(request)
                if !at.connection.is_udp
                    && found.authorities == 1
                    && matches!(request.message.qtype.as_str(), "AXFR" | "IXFR") =>
            {
                self.transfer = Some(Box::new(Transfer {
                    request,
                    reply: message,
                    time: at.time,
                    authorities: 1,
                }));
            }
            request => give(at, request, message, pool, out),
        }
    }

    fn end_transfer(&mut self, at: &At<'_>, pool: &mut Pool<DnsMessage>, out: &mut Give<'_>) {
        if let Some(transfer) = self.transfer.take() {
            let at = At {
                time: transfer.time,
                from_initiator: !transfer.request.is_from(at.connection.initiator),
                ..*at
            };
            give(&at, Some(transfer.request), transfer.reply, pool, out);
        }
    }
}

impl Transfer {
    fn held(&self) -> usize {
        size_of::<Self>() + self.request.message.held() + self.reply.held()
    }

    fn add(&mut self, message: &DnsMessage, authorities: u32) {
        let reply = &mut self.reply;
        for (count, more) in reply.counts.iter_mut().zip(message.counts) {
            *count = count.saturating_add(more);
        }
        reply.bytes += message.bytes;
        self.authorities += authorities;
        let names = message.answer_types.iter().zip(message.answer_names.iter());
        for (text, (kind, name)) in message.answers.iter().zip(names) {
            if !has_room(reply) {
                reply.limit = Some(TOO_MANY);
                break;
            }
            reply.answers.push(|out| out.push_str(text));
            reply.answer_types.push(|out| out.push_str(kind));
            reply.answer_names.push(|out| out.push_str(name));
        }
        let room = reply.answers.len().saturating_sub(reply.ttls.len());
        reply.ttls.extend(message.ttls.iter().take(room));
        reply.limit = reply.limit.or(message.limit);
    }
}

/// Says where the name that was asked for leads.
fn tell_addresses(message: &DnsMessage, now: Nanos, give: &mut Give<'_>) {
    for text in message.answers.iter() {
        if let Ok(address) = text.parse::<IpAddr>() {
            give.resolved(&message.query, address.into(), now);
        }
    }
}

/// Whether more records are written down.
fn has_room(message: &DnsMessage) -> bool {
    let lists = [
        &message.answers,
        &message.answer_names,
        &message.authorities,
        &message.additionals,
    ];
    lists.iter().all(|list| list.len() < ANSWERS)
        && lists.iter().map(|list| list.bytes()).sum::<usize>() < ANSWER_BYTES
}

/// Whether a query is another one again.
fn is_same(one: &DnsMessage, other: &DnsMessage) -> bool {
    one.id == other.id && one.opcode == other.opcode && has_question(one, other)
}

fn has_question(one: &DnsMessage, other: &DnsMessage) -> bool {
    one.qtype == other.qtype
        && one.qclass == other.qclass
        && one.query.eq_ignore_ascii_case(&other.query)
}

/// Whether a reply can be one to a query.
fn fits(query: &DnsMessage, reply: &DnsMessage) -> bool {
    match reply.service {
        // Replies of multicast DNS have neither number nor question, but answer it at first.
        "mdns" => {
            (query.id == reply.id || reply.id == 0)
                && query.query.eq_ignore_ascii_case(&reply.query)
                && (query.qtype == reply.qtype || query.qtype == "ANY")
        }
        // Who could not read a query repeats none of it; NetBIOS never does.
        _ => {
            query.id == reply.id
                && query.opcode == reply.opcode
                && (reply.counts[0] == 0 || has_question(query, reply))
        }
    }
}

/// Whether who asked a group is who gets the reply: in multicast DNS that can be all.
fn is_asker(parties: &Parties, at: &At<'_>, service: &str) -> bool {
    let to = at.destination();
    let is_to_all = service == "mdns" && is_group(to.0);
    match is_to_all {
        true => parties.server == to && parties.client != at.source(),
        false => parties.client == to,
    }
}

/// What of a message is not in its record.
struct Found {
    is_reply: bool,
    /// Records of a zone's authority among the answers.
    authorities: u32,
}

/// Reads a message, of which `service` and `odd` are known. `None` where there is no whole header.
fn read(bytes: &[u8], message: &mut DnsMessage) -> Option<Found> {
    let parsed = Message::new(bytes)?;
    let header = *parsed.header();
    let mut found = Found {
        is_reply: header.is_reply(),
        authorities: 0,
    };
    message.id = header.id;
    match message.service {
        "nbns" => write_netbios_opcode(header.opcode(), &mut message.opcode),
        _ => write_opcode(header.opcode(), &mut message.opcode),
    }
    message.is_authoritative = header.is_authoritative();
    message.is_truncated = header.is_truncated();
    message.wants_recursion = header.wants_recursion();
    message.has_recursion = header.has_recursion();
    message.is_authentic = header.is_authentic();
    message.checks_disabled = header.checks_disabled();
    message.has_reserved = header.has_reserved();
    message.counts = header.counts;
    message.flags = header.flags;
    message.bytes = bytes.len() as u64;
    let mut rcode = u16::from(header.rcode());
    let mut parts = parsed.parts();
    for part in parts.by_ref() {
        match part {
            Ok(Part::Question(question)) => {
                if message.qtype.is_empty() {
                    write_question(&question, message);
                }
            }
            Ok(Part::Record(record)) if record.section == Section::Answer => {
                found.authorities += u32::from(record.kind == kind::SOA);
                if message.qtype.is_empty() && found.is_reply {
                    let Record {
                        name, kind, class, ..
                    } = record;
                    write_question(&Question { name, kind, class }, message);
                }
                write_answer(&record, message);
            }
            Ok(Part::Record(record)) => match Edns::of(&record) {
                Some(edns) => {
                    message.edns = Some((edns.wants_signatures, edns.udp_bytes));
                    edns.write_client_subnet(&mut message.client_subnet);
                    rcode |= u16::from(edns.extended_rcode) << 4;
                }
                None if found.is_reply && has_room(message) => write_other(&record, message),
                None => {}
            },
            Err(fault) if message.odd.is_empty() => message.odd = fault.name(),
            Err(_) => {}
        }
    }
    if message.odd.is_empty() && !parts.rest().is_empty() {
        message.odd = "trailing_bytes";
    }
    if found.is_reply {
        write_rcode(rcode, &mut message.rcode);
    }
    Some(found)
}

fn write_name(name: &Name<'_>, is_netbios: bool, out: &mut String) {
    match is_netbios {
        true => name.write_netbios(out),
        false => name.write(out),
    }
}

fn write_kind(number: u16, is_netbios: bool, out: &mut String) {
    match number {
        kind::NB if is_netbios => out.push_str("NB"),
        kind::NBSTAT if is_netbios => out.push_str("NBSTAT"),
        _ => write_type(number, out),
    }
}

fn write_question(question: &Question<'_>, message: &mut DnsMessage) {
    let is_netbios = message.service == "nbns";
    write_name(&question.name, is_netbios, &mut message.query);
    write_kind(question.kind, is_netbios, &mut message.qtype);
    // The highest bit says something else in multicast DNS (RFC 6762, sections 5.4 and 10.2).
    let class = match message.service {
        "mdns" => question.class & 0x7fff,
        _ => question.class,
    };
    write_class(class, &mut message.qclass);
}

fn write_answer(record: &Record<'_>, message: &mut DnsMessage) {
    if !has_room(message) {
        message.limit = Some(TOO_MANY);
        return;
    }
    let is_netbios = message.service == "nbns";
    message
        .answers
        .push(|out| write_data(record, is_netbios, out));
    message
        .answer_types
        .push(|out| write_kind(record.kind, is_netbios, out));
    message
        .answer_names
        .push(|out| write_name(&record.name, is_netbios, out));
    message.ttls.push(record.ttl);
}

fn write_data(record: &Record<'_>, is_netbios: bool, out: &mut String) {
    match is_netbios {
        true => record.data.write_netbios(out),
        false => record.data.write(out),
    }
}

/// A record of an authority or an additional one.
fn write_other(record: &Record<'_>, message: &mut DnsMessage) {
    let is_netbios = message.service == "nbns";
    let list = match record.section {
        Section::Additional => &mut message.additionals,
        _ => &mut message.authorities,
    };
    list.push(|out| {
        let start = out.len();
        write_name(&record.name, is_netbios, out);
        // A blank would end it.
        if out.get(start..).is_some_and(|name| name.contains(' ')) {
            let name = out.split_off(start);
            out.push_str(&name.replace(' ', "\\032"));
        }
        // Into a string nothing fails.
        let _ = write!(out, " {} ", record.ttl);
        write_kind(record.kind, is_netbios, out);
        out.push(' ');
        write_data(record, is_netbios, out);
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn message(id: u8, flags: &[u8; 2], counts: [u8; 4], rest: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0, id, flags[0], flags[1]];
        bytes.extend(counts.iter().flat_map(|&count| [0, count]));
        bytes.extend(rest.concat());
        bytes
    }

    const QUESTION: &[u8] = b"\x01A\x07example\x00\x00\x01\x00\x01";
    const ANSWER: &[u8] = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01";

    fn query(id: u8) -> Vec<u8> {
        message(id, &[1, 0], [1, 0, 0, 0], &[QUESTION])
    }

    fn reply(id: u8) -> Vec<u8> {
        message(id, &[0x81, 0x80], [1, 1, 0, 0], &[QUESTION, ANSWER])
    }

    const COLUMNS: &[&str] = &[
        "trans_id", "query", "rcode", "answers", "latency", "repeats", "state",
    ];

    #[test]
    fn a_query_that_comes_again_is_one() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53);
        tester.say(true, 1, &query(7));
        tester.say(true, 3, &query(7));
        // The case of letters is the client's own business.
        let mut other = query(7);
        other[13] = b'a';
        tester.say(true, 4, &other);
        tester.say(false, 5, &reply(7));
        tester.say(false, 6, &reply(7));
        tester.say(true, 7, &query(8));
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#"7 "A.example" "NOERROR" ["192.0.2.1"] 4.0 2 "matched""#,
                r#"7 "A.example" "NOERROR" ["192.0.2.1"] null 0 "no_request""#,
                r#"8 "A.example" null null null 0 "no_reply""#,
            ]
        );
    }

    #[test]
    fn number_and_question_have_to_be_the_same_unless_there_is_no_question() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53);
        tester.say(true, 1, &query(7));
        tester.say(false, 2, &reply(9));
        let mut other = reply(7);
        other[13] = b'b';
        tester.say(false, 3, &other);
        tester.say(false, 4, &message(7, &[0x81, 0x81], [0, 0, 0, 0], &[]));
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#"9 "A.example" "NOERROR" ["192.0.2.1"] null 0 "no_request""#,
                r#"7 "b.example" "NOERROR" ["192.0.2.1"] null 0 "no_request""#,
                r#"7 "A.example" "FORMERR" null 3.0 0 "matched""#,
            ]
        );
    }

    #[test]
    fn queries_wait_a_minute_and_not_more_than_some() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 53, [10, 0, 0, 2], 53);
        tester.say(true, 1, &query(1));
        tester.say(true, 62, &query(2));
        assert_eq!(tester.rows(&["trans_id", "state"]), [r#"1 "no_reply""#]);
        for id in 0..=255 {
            for port in [5, 6] {
                tester.say(
                    true,
                    63,
                    &message(
                        id,
                        &[1, 0],
                        [1, 0, 0, 0],
                        &[b"\x01A\x00\x00", &[port], b"\x00\x01"],
                    ),
                );
            }
        }
        let given = tester.rows(&["trans_id"]).len();
        tester.close();
        assert_eq!((given, tester.rows(&["trans_id"]).len()), (258, 514));
    }

    fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
        let lengths = messages.iter().map(|it| (it.len() as u16).to_be_bytes());
        let pairs = lengths.zip(messages);
        pairs
            .flat_map(|(length, message)| [&length[..], message].concat())
            .collect()
    }

    #[test]
    fn over_tcp_it_does_not_matter_where_data_is_cut() {
        let (asked, answered) = (stream(&[query(1), query(2)]), stream(&[reply(2), reply(1)]));
        for cut in 0..answered.len() {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53);
            tester.say(true, 1, &asked[..cut.min(asked.len())]);
            tester.say(true, 1, &asked[cut.min(asked.len())..]);
            tester.say(false, 2, &answered[..cut]);
            tester.say(false, 2, &answered[cut..]);
            tester.close();
            let expected = [
                r#"2 "A.example" "NOERROR" ["192.0.2.1"] 1.0 0 "matched""#,
                r#"1 "A.example" "NOERROR" ["192.0.2.1"] 1.0 0 "matched""#,
            ];
            assert_eq!(tester.rows(COLUMNS), expected, "cut at {cut}");
        }
    }

    #[test]
    fn every_message_is_in_a_record_whichever_is_missing() {
        let mut said = Vec::new();
        for (from_initiator, id) in [(true, 1), (true, 2), (false, 2), (true, 3), (false, 1)] {
            let bytes = match from_initiator {
                true => query(id),
                false => reply(id),
            };
            said.push((from_initiator, id, bytes));
        }
        let of = |make: fn(&[u8]) -> Vec<u8>| -> Vec<Said> {
            let said = said.iter();
            said.map(|(side, id, bytes)| Said::new(*side, u64::from(*id), &make(bytes)))
                .collect()
        };
        let (datagrams, messages) = (of(<[u8]>::to_vec), of(|bytes| stream(&[bytes.to_vec()])));
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        cuts_and_gaps(
            || Tester::<Talk>::udp(client, 5000, server, 53),
            &datagrams,
            |missing, records| assert_halves(&datagrams, "trans_id", missing, records),
        );
        cuts_and_gaps(
            || Tester::<Talk>::tcp(client, 5000, server, 53),
            &messages,
            |missing, records| assert_halves(&messages, "trans_id", missing, records),
        );
    }

    #[test]
    fn a_hole_cuts_a_message_and_the_others_are_found() {
        let answered = stream(&[reply(1), reply(2)]);
        let first = reply(1).len() + 2;
        for start in 3..first {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53);
            tester.say(true, 1, &stream(&[query(1), query(2)]));
            tester.say(false, 2, &answered[..start]);
            tester.miss(false, 2, (first - start) as u64);
            tester.say(false, 3, &answered[first..]);
            tester.close();
            let rows = tester.rows(&["trans_id", "state", "odd"]);
            let second = r#"2 "matched" null"#;
            // Of the first nothing is known where its header was cut.
            match start - 2 {
                1..12 => assert_eq!(rows, [second, r#"1 "no_reply" null"#], "{start}"),
                length if length < 12 + QUESTION.len() => {
                    // Without its question whose reply it is cannot be said for sure.
                    assert!(rows.contains(&second.to_owned()), "{start}: {rows:?}");
                    assert!(
                        rows.iter().any(|row| row.ends_with("\"cut\"")),
                        "{start}: {rows:?}"
                    );
                }
                _ => assert_eq!(rows, [r#"1 "matched" "cut""#, second], "{start}"),
            }
        }
    }

    #[test]
    fn a_zone_transfer_is_one_reply_of_many_messages() {
        let question = b"\x01z\x00\x00\xfc\x00\x01";
        let authority = b"\xc0\x0c\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
        let asked = message(1, &[0, 0], [1, 0, 0, 0], &[question]);
        let begin = message(1, &[0x84, 0], [1, 1, 0, 0], &[question, authority]);
        let middle = message(1, &[0x84, 0], [1, 2, 0, 0], &[question, ANSWER, ANSWER]);
        let end = message(1, &[0x84, 0], [1, 1, 0, 0], &[question, authority]);
        let bytes = begin.len() + 2 * middle.len() + end.len();
        let answered = stream(&[begin, middle.clone(), middle, end, reply(3)]);
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53);
        tester.say(true, 1, &stream(&[asked]));
        tester.say(false, 2, &answered[..40]);
        tester.say(false, 9, &answered[40..]);
        tester.close();
        assert_eq!(
            tester.rows(&["trans_id", "state", "answer_count", "reply_bytes"]),
            [
                format!(r#"1 "matched" 6 {bytes}"#),
                r#"3 "no_request" 1 43"#.to_owned()
            ]
        );
    }

    #[test]
    fn a_group_is_asked_and_one_of_it_answers() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 5000, [224, 0, 0, 252], 5355);
        tester.say(true, 1, &query(1));
        tester.say(true, 1, &query(2));
        tester.meet([10, 0, 0, 9], 5355, [10, 0, 0, 1], 5000);
        tester.say(true, 2, &reply(1));
        tester.meet([10, 0, 0, 1], 5000, [224, 0, 0, 252], 5355);
        tester.close();
        assert_eq!(
            tester.rows(&["service", "src_ip", "dst_ip", "trans_id", "state"]),
            [
                r#""llmnr" "10.0.0.1" "10.0.0.9" 1 "matched""#,
                r#""llmnr" "10.0.0.1" "224.0.0.252" 2 "no_reply""#,
            ]
        );
    }

    #[test]
    fn multicast_dns_answers_all_without_number_or_question() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 5353, [224, 0, 0, 251], 5353);
        tester.say(true, 1, &query(0));
        tester.meet([10, 0, 0, 9], 5353, [224, 0, 0, 251], 5353);
        let answer = [
            &QUESTION[..QUESTION.len() - 2],
            b"\x80\x01\x00\x00\x00\x78\x00\x04\xc0\x00\x02\x02",
        ]
        .concat();
        let answer = message(0, &[0x84, 0], [0, 1, 0, 0], &[&answer]);
        tester.say(true, 2, &answer);
        tester.say(true, 3, &answer);
        tester.close();
        assert_eq!(
            tester.rows(&["src_ip", "dst_ip", "query", "qclass", "answers", "state"]),
            [
                r#""10.0.0.1" "10.0.0.9" "A.example" "IN" ["192.0.2.2"] "matched""#,
                // What nobody asked for: from its sender to all.
                r#""10.0.0.9" "224.0.0.251" "A.example" "IN" ["192.0.2.2"] "no_request""#,
            ]
        );
    }
}
