//! RPC: calls of ONC RPC and their replies over UDP and TCP. What portmappers tell is learned: what is
//! said with those ports is RPC.

use core::fmt::Write as _;

use flowgauge_proto::Look;
use flowgauge_proto::rpc::{
    Body, Call, Frame, Framer, Mapping, Message, Outcome, Reply, auth_name, look, look_stream,
    mapped_port, mappings, mount_path, program_name, status_name,
};
use flowgauge_record::rpc::{RPC_SCHEMA, RpcMessage};
use flowgauge_record::text::lossy;
use flowgauge_record::text::protocol_name;
use flowgauge_stack::{ComponentInfo, Input, ItemType, ResultInfo, StreamEnd};
use flowgauge_wire::Nanos;

use super::matching::{Pool, Requests, give};
use super::table::Table;
use super::{At, Conversation, Give, ProtocolInfo, Seen, Transport, alone};

const PORTMAPPER: u32 = 100_000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "rpc",
    transport: Transport::Both,
    ports: &[111, 2049],
    look: recognise,
    begins_datagram: |_| true,
    table: Table::<Talk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "rpc",
    summary: "finds ONC RPC calls and their replies",
    help: "Over UDP and TCP. A reply belongs to the call with its number and addresses; a repeated call \
           without a reply yet counts once. Procedures of portmapper, mount, NFS and locks have names. Takes \
           datagrams, or use it within tcpcnxdemux, after tcpreseq.",
    input: Input::Of(&[ItemType::Packet, ItemType::Chunk]),
    fields: |_| Some(RPC_SCHEMA),
    result: Some(ResultInfo::number(
        "calls with and without a reply",
        "transactions",
    )),
    make: alone::make::<Talk>,
    ..alone::INFO
};

fn recognise(seen: &Seen<'_>) -> Look {
    seen.either(if seen.is_udp { look } else { look_stream })
}

/// A conversation.
#[derive(Default)]
pub(super) struct Talk {
    requests: Requests<RpcMessage>,
    framers: [Framer; 2],
}

impl Conversation for Talk {
    type Common = Pool<RpcMessage>;

    fn trim(pool: &mut Pool<RpcMessage>) {
        *pool = Pool::default();
    }

    fn data(&mut self, pool: &mut Self::Common, at: &At<'_>, bytes: &[u8], out: &mut Give<'_>) {
        if at.connection.is_udp {
            return self.message(pool, at, bytes, (bytes.len() as u64, 0), out);
        }
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.data(bytes, |frame| self.frame(pool, at, frame, out));
        self.framers[at.side()] = framer;
    }

    fn gap(&mut self, pool: &mut Self::Common, at: &At<'_>, bytes: u64, out: &mut Give<'_>) {
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.gap(bytes, |frame| self.frame(pool, at, frame, out));
        self.framers[at.side()] = framer;
    }

    fn end(&mut self, pool: &mut Self::Common, at: &At<'_>, _: StreamEnd, out: &mut Give<'_>) {
        let mut framer = core::mem::take(&mut self.framers[at.side()]);
        framer.finish(|frame| self.frame(pool, at, frame, out));
        self.framers[at.side()] = framer;
    }

    fn held(&self) -> usize {
        self.requests.held() + self.framers.iter().map(Framer::held).sum::<usize>()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.requests.oldest()
    }

    fn give_up(&mut self, pool: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.requests.give_up(at, pool, out);
    }

    fn close(&mut self, pool: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.requests.close(at.time, pool, out);
    }
}

impl Talk {
    fn frame(
        &mut self,
        pool: &mut Pool<RpcMessage>,
        at: &At<'_>,
        frame: Frame<'_>,
        out: &mut Give<'_>,
    ) {
        if let Frame::Record {
            head,
            bytes,
            missing,
            ..
        } = frame
        {
            self.message(pool, at, head, (bytes, missing), out);
        }
    }

    /// A message, or its beginning, with its bytes and how many of them are missing.
    fn message(
        &mut self,
        pool: &mut Pool<RpcMessage>,
        at: &At<'_>,
        head: &[u8],
        (bytes, missing): (u64, u64),
        out: &mut Give<'_>,
    ) {
        let Some(parsed) = Message::read(head) else {
            return;
        };
        self.requests.expire(at.time, pool, out);
        let mut message = pool.take();
        message.xid = parsed.xid;
        (message.bytes, message.missing) = (bytes, missing);
        match parsed.body {
            Body::Call(call) => {
                read_call(&call, &mut message);
                let is_cut = head.len() as u64 + missing < bytes;
                message.limit =
                    (is_cut && call.has_path() && message.argument.is_empty()).then_some("head");
                let is_same = |one: &RpcMessage, other: &RpcMessage| {
                    one.xid == other.xid && one.numbers == other.numbers
                };
                self.requests.request(at, message, is_same, pool, out);
            }
            Body::Reply(reply) => {
                let request = self.requests.find(at, |it| it.xid == parsed.xid);
                message.outcome = reply.outcome.name();
                if let Some(request) = &request {
                    read_results(request.message.numbers, &reply, &mut message);
                    learn(at, request.message.numbers, &reply, &message, out);
                }
                give(at, request, message, pool, out);
            }
        }
    }
}

fn read_call(call: &Call<'_>, message: &mut RpcMessage) {
    // Into a string nothing fails, here and below.
    let name = |name: Option<&str>, number: u32, out: &mut String| match name {
        Some(name) => out.push_str(name),
        None => {
            let _ = write!(out, "{number}");
        }
    };
    message.numbers = [call.program, call.version, call.procedure];
    name(call.program_name(), call.program, &mut message.program);
    name(
        call.procedure_name(),
        call.procedure,
        &mut message.procedure,
    );
    message.auth = auth_name(call.flavor);
    if let Some((machine, user, group)) = call.unix() {
        message.machine.push_str(&lossy(machine));
        message.user = Some((user, group));
    }
    if let Some(path) = mount_path(call) {
        message.argument.push_str(&lossy(path));
    }
    if let Some(mapping) = Mapping::of_call(call) {
        name(
            program_name(mapping.program),
            mapping.program,
            &mut message.argument,
        );
        let protocol = u8::try_from(mapping.protocol).map_or("other", protocol_name);
        let _ = write!(message.argument, " {} {protocol}", mapping.version);
        if mapping.port > 0 {
            let _ = write!(message.argument, " {}", mapping.port);
        }
    }
}

/// What the results of a call with these numbers tell.
fn read_results(numbers: [u32; 3], reply: &Reply<'_>, message: &mut RpcMessage) {
    if reply.outcome != Outcome::Success {
        return;
    }
    match numbers {
        [PORTMAPPER, version @ 2..=4, 3] => message.port = mapped_port(version, reply.results),
        [NFS, 2..=4, 1..=21] | [MOUNT, 1..=3, 1] => {
            if let Some((status, _)) = reply.results.split_first_chunk::<4>() {
                let status = u32::from_be_bytes(*status);
                match status_name(status) {
                    Some(name) => message.status.push_str(name),
                    None => {
                        let _ = write!(message.status, "{status}");
                    }
                }
            }
        }
        _ => {}
    }
}

/// Remembers the ports that a portmapper tells.
fn learn(
    at: &At<'_>,
    numbers: [u32; 3],
    reply: &Reply<'_>,
    message: &RpcMessage,
    out: &mut Give<'_>,
) {
    let (server, _) = at.source();
    let mut learn = |port: u16| {
        if port > 0 {
            out.learn((server, port), PROTOCOL.name, at.time);
        }
    };
    if let Some(port) = message.port {
        learn(port);
    }
    if numbers == [PORTMAPPER, 2, 4] && reply.outcome == Outcome::Success {
        for mapping in mappings(reply.results) {
            learn(mapping.port);
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Address, Nanos};

    use super::super::testing::{Said, Tester, assert_halves, cuts_and_gaps};
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn call(xid: u32, numbers: [u32; 3], arguments: &[u32]) -> Vec<u8> {
        let [program, version, procedure] = numbers;
        let head = [xid, 0, 2, program, version, procedure, 0, 0, 0, 0];
        words(&[&head, arguments].concat())
    }

    fn reply(xid: u32, results: &[u32]) -> Vec<u8> {
        words(&[&[xid, 1, 0, 0, 0, 0], results].concat())
    }

    fn record(message: &[u8]) -> Vec<u8> {
        let mark = 0x8000_0000 | message.len() as u32;
        [&mark.to_be_bytes(), message].concat()
    }

    const COLUMNS: &[&str] = &[
        "xid",
        "program",
        "procedure",
        "outcome",
        "status",
        "repeats",
        "state",
    ];

    #[test]
    fn a_portmapper_tells_ports_and_they_are_learned() {
        let mut tester = Tester::<Talk>::udp([10, 0, 0, 1], 900, [10, 0, 0, 2], 111);
        tester.say(true, 1, &call(1, [PORTMAPPER, 2, 3], &[NFS, 3, 17, 0]));
        tester.say(false, 2, &reply(1, &[2050]));
        tester.say(true, 3, &call(2, [PORTMAPPER, 2, 4], &[]));
        tester.say(false, 4, &reply(2, &[1, MOUNT, 3, 6, 634, 0]));
        tester.close();
        assert_eq!(
            tester.rows(&["procedure", "argument", "port"]),
            [r#""getport" "nfs 3 udp" 2050"#, r#""dump" null null"#]
        );
        for port in [2050, 634] {
            let told = tester
                .learned
                .get((Address::v4([10, 0, 0, 2]), port), Nanos::from_secs(5));
            assert_eq!(told, Some("rpc"), "{port}");
        }
    }

    #[test]
    fn every_message_is_in_a_record_whichever_is_missing() {
        let said = [
            (true, 1, call(1, [NFS, 3, 1], &[4, 7])),
            (true, 2, call(2, [NFS, 3, 6], &[4, 7])),
            (false, 2, reply(2, &[0, 1])),
            (true, 3, call(3, [NFS, 3, 1], &[4, 7])),
            (false, 1, reply(1, &[0, 1])),
        ];
        let of = |make: fn(&[u8]) -> Vec<u8>| {
            said.each_ref()
                .map(|(side, xid, bytes)| Said::new(*side, *xid, &make(bytes)))
        };
        let (datagrams, records) = (of(<[u8]>::to_vec), of(record));
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        cuts_and_gaps(
            || Tester::<Talk>::udp(client, 900, server, 2049),
            &datagrams,
            |missing, found| assert_halves(&datagrams, "xid", missing, found),
        );
        cuts_and_gaps(
            || Tester::<Talk>::tcp(client, 900, server, 2049),
            &records,
            |missing, found| assert_halves(&records, "xid", missing, found),
        );
    }

    #[test]
    fn calls_over_tcp_are_matched_wherever_they_are_cut() {
        let asked = [
            record(&call(1, [NFS, 3, 1], &[4, 7])),
            record(&call(2, [NFS, 3, 6], &[4, 7])),
            record(&call(1, [NFS, 3, 1], &[4, 7])),
        ]
        .concat();
        let answered = [record(&reply(2, &[70])), record(&reply(1, &[0]))].concat();
        for cut in 0..asked.len() {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 900, [10, 0, 0, 2], 2049);
            tester.say(true, 1, &asked[..cut]);
            tester.say(true, 1, &asked[cut..]);
            let cut = cut.min(answered.len());
            tester.say(false, 2, &answered[..cut]);
            tester.say(false, 2, &answered[cut..]);
            tester.close();
            assert_eq!(
                tester.rows(COLUMNS),
                [
                    r#"2 "nfs" "read" "success" "stale" 0 "matched""#,
                    r#"1 "nfs" "getattr" "success" "ok" 1 "matched""#,
                ],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_hole_in_a_record_is_counted() {
        let asked = [
            record(&call(1, [NFS, 3, 7], &[9; 100])),
            record(&call(2, [NFS, 3, 1], &[])),
        ]
        .concat();
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 900, [10, 0, 0, 2], 2049);
        tester.say(true, 1, &asked[..100]);
        tester.miss(true, 1, 200);
        tester.say(true, 1, &asked[300..]);
        tester.say(false, 2, &record(&reply(9, &[0])));
        tester.close();
        assert_eq!(
            tester.rows(&[
                "xid",
                "procedure",
                "request_bytes",
                "missing_bytes",
                "state"
            ]),
            [
                r#"9 null null 0 "no_request""#,
                r#"1 "write" 440 200 "no_reply""#,
                r#"2 "getattr" 40 0 "no_reply""#,
            ]
        );
    }
}
