//! `httpscan`, `httpmatch`, `http`: HTTP messages and transactions.

mod file;
mod names;
mod pairs;
mod second;
mod tunnel;

use flowgauge_proto::Look;
use flowgauge_proto::http::{End, Events, Framing, Head, Parser, Start, look};
use flowgauge_proto::http2;
use flowgauge_record::Held;
use flowgauge_record::http::{HTTP_MESSAGE_SCHEMA, HTTP_SCHEMA, HttpMessage, HttpRow};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Parallel, PerKey, RecordItem,
    ResultInfo, ResultValue, StreamChunk, StreamEnd,
};
use flowgauge_wire::Nanos;

use file::HttpFile;
pub(super) use file::give_joined;
use pairs::{Pairs, Row};
use second::Second;
use tunnel::Tunnel;

use super::table::Table;
use super::{At, Connection, Conversation, Give, ProtocolInfo, Seen, Transport, Wants, alone};
use crate::files::{Files, kind};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "http",
    transport: Transport::Tcp,
    ports: &[80, 8000, 8008, 8080, 3128],
    look: recognise,
    begins_datagram: |_| false,
    table: Table::<Talk>::boxed,
};

fn recognise(seen: &Seen<'_>) -> Look {
    match seen.either(look) {
        // A server of HTTP/2 may say its settings first.
        Look::No if seen.initiator.is_empty() && http2::is_server(seen.responder) => Look::More,
        look => look,
    }
}

/// Messages of a connection that wait for their partners at once.
const WAITING: usize = 256;
/// Messages kept for use by others.
const POOL: usize = 1024;
/// Bytes of one that is kept.
const POOL_BYTES: usize = 4 << 10;

pub(crate) static SCAN: ComponentInfo = ComponentInfo {
    name: "httpscan",
    aliases: &["scanhttp"],
    summary: "finds the HTTP messages in one direction of a connection",
    help: "HTTP/0.9 to 1.1. A message is passed on at its end. After a gap that makes a message unreadable, parsing \
       continues with the next one. Use it within tcpdirdemux, after tcpreseq.",
    input: Input::Of(&[ItemType::Chunk]),
    output: Output::Of(ItemType::Message),
    fields: |_| Some(HTTP_MESSAGE_SCHEMA),
    result: Some(ResultInfo::number("messages found", "messages")),
    parallel: Parallel::ByFlow,
    make: |_| Ok(Box::new(Scan::default())),
    ..ComponentInfo::OF_PACKETS
};

pub(crate) static MATCH: ComponentInfo = ComponentInfo {
    name: "httpmatch",
    summary: "pairs HTTP requests with their responses",
    help: "Takes the messages of both directions of a connection. Messages without a partner are passed on \
           alone.",
    input: Input::Of(&[ItemType::Message]),
    output: Output::Of(ItemType::Transaction),
    fields: |_| Some(HTTP_SCHEMA),
    result: Some(ResultInfo::number(
        "requests with a response",
        "transactions",
    )),
    parallel: Parallel::ByFlow,
    make: |_| Ok(Box::new(Match::default())),
    ..ComponentInfo::OF_PACKETS
};

pub(crate) static BOTH: ComponentInfo = ComponentInfo {
    name: "http",
    summary: "finds HTTP transactions in a connection",
    help: "Combines httpscan and httpmatch for both directions, and so parses responses to HEAD and CONNECT \
       correctly. Use it within tcpcnxdemux, after tcpreseq.",
    input: Input::Of(&[ItemType::Chunk]),
    output: Output::Of(ItemType::Transaction),
    fields: |_| Some(HTTP_SCHEMA),
    result: Some(ResultInfo::number("transactions found", "transactions")),
    parallel: Parallel::ByFlow,
    options: alone::INFO.options,
    make: alone::make::<Talk>,
    ..ComponentInfo::OF_PACKETS
};

/// Messages that were used, for the next ones.
#[derive(Default)]
// They move from queue to queue, and are large.
#[allow(clippy::vec_box)]
pub(super) struct Pool(Vec<Box<HttpMessage>>);

impl Pool {
    fn take(&mut self) -> Box<HttpMessage> {
        self.0.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut message: Box<HttpMessage>) {
        if self.0.len() < POOL && message.held() <= POOL_BYTES {
            message.clear();
            self.0.push(message);
        }
    }
}

/// One direction.
#[derive(Default)]
struct Side {
    parser: Parser,
    message: Option<Box<HttpMessage>>,
    depth: u32,
    /// Something was lost since the last message.
    is_after_loss: bool,
    /// No message was found so far, and what came does not look like one: it is another protocol.
    is_foreign: bool,
    /// The body of the message under way, where files are wanted.
    file: Option<Box<HttpFile>>,
    /// What it begins with.
    beginning: Beginning,
}

/// What the body under way begins with, until that tells its type.
#[derive(Default)]
struct Beginning {
    is_wanted: bool,
    /// Short pieces so far.
    bytes: Vec<u8>,
}

impl Beginning {
    /// Bytes that are enough to tell a type.
    const ENOUGH: usize = 64;
    /// Bytes that are looked at.
    const MOST: usize = 512;
}

/// Where messages go.
trait Taker {
    /// The request that a response is for which began then, where that is known.
    fn asked(&self, _begin: Nanos, _is_after_loss: bool) -> Option<&HttpMessage> {
        None
    }

    /// A message that begins.
    fn fresh(&mut self) -> Box<HttpMessage>;

    /// One that is over.
    fn take(&mut self, message: Box<HttpMessage>);

    /// One that was none.
    fn drop(&mut self, message: Box<HttpMessage>);

    /// What is done with bodies, if anything.
    fn files(&mut self) -> Option<&mut Files> {
        None
    }

    /// A message's body is over; whether it came to its end.
    fn file(&mut self, _file: HttpFile, _of: &mut HttpMessage, _is_whole: bool, _at: &At<'_>) {}

    /// HTTP/2 follows: a client said so.
    fn second(&mut self, _at: &At<'_>) {}

    /// HTTP/2 follows: a server agreed to it, in a response that began then.
    fn upgraded(&mut self, _at: &At<'_>, _begin: Nanos, _is_after_loss: bool) {}

    /// What follows is another connection: to another host, or in frames of WebSocket. Returns the bound that keeps
    /// it from being read.
    fn connected(&mut self, _at: &At<'_>, _in_frames: bool) -> Option<&'static str> {
        None
    }

    /// Bytes of what follows HTTP/1.
    fn behind(&mut self, _at: &At<'_>, _bytes: &[u8]) {}

    /// Bytes of that are missing.
    fn behind_gap(&mut self, _at: &At<'_>, _bytes: u64) {}
}

/// Makes a message of what the parser finds, and gives it on at its end.
struct Builder<'a, T> {
    message: &'a mut Option<Box<HttpMessage>>,
    depth: &'a mut u32,
    is_after_loss: &'a mut bool,
    at: &'a At<'a>,
    close: Option<&'static str>,
    file: &'a mut Option<Box<HttpFile>>,
    beginning: &'a mut Beginning,
    taker: &'a mut T,
}

impl<T: Taker> Builder<'_, T> {
    /// Takes more of a body whose type is not known yet; nothing: no more comes.
    fn begins(&mut self, bytes: &[u8]) {
        let Beginning {
            is_wanted,
            bytes: kept,
        } = &mut *self.beginning;
        let bytes = &bytes[..bytes.len().min(Beginning::MOST)];
        let is_short = kept.len() + bytes.len() < Beginning::ENOUGH;
        if is_short || !kept.is_empty() {
            kept.extend_from_slice(bytes);
        }
        if is_short && !bytes.is_empty() {
            return;
        }
        *is_wanted = false;
        if let Some(message) = self.message {
            let begin = if kept.is_empty() {
                bytes
            } else {
                kept.as_slice()
            };
            message.mime_type = kind::of_coded(begin, message.get(message.content_encoding));
        }
        kept.clear();
    }

    /// The request that what is under way answers.
    fn asked(&self) -> Option<&HttpMessage> {
        let begin = self.message.as_ref().map_or(self.at.time, |it| it.begin);
        self.taker.asked(begin, *self.is_after_loss)
    }
}

impl<T: Taker> Events for Builder<'_, T> {
    fn begin(&mut self) {
        let mut message = self.taker.fresh();
        message.begin = self.at.time;
        *self.message = Some(message);
    }

    fn head(&mut self, head: &Head<'_>, framing: Framing) -> Framing {
        let Some(message) = self.message else {
            return framing;
        };
        message.has_head = true;
        message.version = head.start.version().name();
        let mut framing = framing;
        match head.start {
            Start::Request { method, uri, .. } => {
                if method == b"PRI" && uri == b"*" && message.version == "other" {
                    // The preface of HTTP/2, which looks like a request.
                    message.has_head = false;
                    self.taker.second(self.at);
                    return Framing::Tunnel;
                }
                message.is_request = true;
                message.method = message.keep(Some(method));
                message.uri = message.keep(Some(uri));
            }
            Start::Response { status, reason, .. } => {
                message.status = status;
                message.reason = message.keep(Some(reason));
                if status == 101 {
                    let upgrade = head.header("upgrade");
                    if is_second(upgrade) {
                        self.taker
                            .upgraded(self.at, message.begin, *self.is_after_loss);
                    } else if upgrade.is_some_and(|it| it.eq_ignore_ascii_case(b"websocket")) {
                        message.limit = self.taker.connected(self.at, true);
                    }
                }
                let asked = self.taker.asked(message.begin, *self.is_after_loss);
                framing = match asked.and_then(|it| it.get(it.method)) {
                    Some(b"HEAD") => Framing::None,
                    Some(b"CONNECT") if status / 100 == 2 => {
                        message.limit = self.taker.connected(self.at, false);
                        Framing::Tunnel
                    }
                    _ => framing,
                };
            }
        }
        message.host = message.keep(head.host());
        message.user_agent = message.keep(head.user_agent());
        message.referrer = message.keep(head.referer());
        message.origin = message.keep(head.origin());
        message.content_type = message.keep(head.content_type());
        message.content_encoding = message.keep(head.content_encoding());
        message.location = message.keep(head.location());
        if !matches!(framing, Framing::None | Framing::Tunnel) {
            // Of several parts each has a type.
            let is_multipart = |it: &[u8]| {
                it.get(..10)
                    .is_some_and(|it| it.eq_ignore_ascii_case(b"multipart/"))
            };
            self.beginning.is_wanted = !head.content_type().is_some_and(is_multipart);
            if self.taker.files().is_some() {
                let mut file = HttpFile::announced(head);
                let asked = self.taker.asked(message.begin, *self.is_after_loss);
                file.belongs(self.at, *self.depth + 1, message, asked);
                *self.file = Some(file);
            }
        }
        framing
    }

    fn knows_request(&self) -> bool {
        self.asked().is_some()
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        if self.beginning.is_wanted {
            self.begins(bytes);
        }
        if let Some(file) = self.file {
            file.data(bytes, self.at, self.taker.files());
        }
    }

    fn missing(&mut self, bytes: u64) {
        // What follows is not the beginning.
        self.begins(&[]);
        if let Some(file) = self.file {
            file.gap(bytes, self.at, self.taker.files());
        }
    }

    fn tunnel(&mut self, bytes: &[u8]) {
        self.taker.behind(self.at, bytes);
    }

    fn tunnel_gap(&mut self, bytes: u64) {
        self.taker.behind_gap(self.at, bytes);
    }

    fn is_headless(&self) -> bool {
        // Of a message with a head the question is what comes behind it.
        let under_way = self.message.as_ref().filter(|it| !it.has_head);
        let begin = under_way.map_or(self.at.time, |it| it.begin);
        let asked = self.taker.asked(begin, *self.is_after_loss);
        asked.is_some_and(|it| it.version == "0.9" && it.source != self.at.source())
    }

    fn end(&mut self, end: &End) {
        if self.beginning.is_wanted {
            self.begins(&[]);
        }
        let Some(mut message) = self.message.take() else {
            return;
        };
        if let Some(file) = self.file.take() {
            self.taker.file(*file, &mut message, end.is_whole, self.at);
        }
        // Noise between messages, and what is no HTTP, is no message.
        if !message.has_head {
            return self.taker.drop(message);
        }
        *self.depth += 1;
        message.depth = *self.depth;
        let connection = self.at.connection;
        // Behind a hole bytes have the time at which they were captured, which can be before those of others.
        message.end = self.at.time.max(message.begin);
        message.source = self.at.source();
        message.destination = self.at.destination();
        message.ip_version = connection.version;
        message.body_bytes = end.body_bytes;
        message.missing_bytes = end.missing_bytes;
        message.is_whole = end.is_whole;
        if end.is_head_too_long {
            message.limit.get_or_insert("head");
        }
        message.close = self.close;
        message.is_after_loss = core::mem::take(self.is_after_loss);
        message.handshake = connection.handshake;
        message.is_partial = connection.is_partial;
        message.retransmitted = connection.retransmitted.map(|of| of[self.at.side()]);
        if !end.oddities.is_empty() {
            let names: Vec<&str> = end.oddities.iter().map(|it| it.name()).collect();
            message.odd = message.keep(Some(names.join(",").as_bytes()));
        }
        self.taker.take(message);
    }
}

/// Whether `Upgrade` names HTTP/2.
fn is_second(upgrade: Option<&[u8]>) -> bool {
    upgrade.is_some_and(|name| name.eq_ignore_ascii_case(b"h2c"))
}

/// What comes next in a direction.
enum Part<'a> {
    Gap(u64),
    /// Bytes of a body that nobody looked at.
    Passed(u64),
    Data(&'a [u8]),
    End(StreamEnd),
    /// Nothing is looked at any more.
    GivenUp,
}

impl Side {
    /// Bytes of memory that it keeps beside itself.
    #[inline]
    fn held(&self) -> usize {
        let file = self.file.as_ref().map_or(0, |file| file.held());
        self.parser.held() + self.message.held() + self.beginning.bytes.held() + file
    }

    fn part(&mut self, at: &At<'_>, part: &Part<'_>, taker: &mut impl Taker) {
        if self.is_foreign {
            return;
        }
        let mut builder = Builder {
            message: &mut self.message,
            depth: &mut self.depth,
            is_after_loss: &mut self.is_after_loss,
            at,
            close: match part {
                Part::End(end) => Some(end.name()),
                _ => None,
            },
            file: &mut self.file,
            beginning: &mut self.beginning,
            taker,
        };
        match *part {
            Part::Gap(bytes) => {
                self.parser.gap(bytes, &mut builder);
                *builder.is_after_loss |= self.parser.is_lost();
            }
            Part::Passed(bytes) => self.parser.passed(bytes, &mut builder),
            Part::Data(bytes) => self.parser.data(bytes, &mut builder),
            Part::End(end) => self.parser.finish(end == StreamEnd::Fin, &mut builder),
            Part::GivenUp => self.parser.finish(false, &mut builder),
        }
        // What begins like no message, without a hole before it, is none.
        self.is_foreign = self.depth == 0 && self.parser.is_lost() && !self.is_after_loss;
    }
}

/// To what follows the matcher.
struct Matched<'a> {
    out: &'a mut dyn Outlet,
    key: u32,
    matched: &'a mut u64,
    pool: &'a mut Pool,
}

impl Row for Matched<'_> {
    fn give(&mut self, time: Nanos, row: &HttpRow<'_>) {
        *self.matched += u64::from(row.request.is_some() && row.response.is_some());
        self.out.emit(Items::Records(&[RecordItem {
            key: self.key,
            time,
            record: row,
        }]));
    }

    fn give_back(&mut self, message: Box<HttpMessage>) {
        self.pool.give_back(message);
    }
}

#[derive(Default)]
struct Scan {
    sides: PerKey<Side>,
    pool: Pool,
    messages: u64,
}

/// Gives messages to what follows.
struct ToOutlet<'a> {
    out: &'a mut dyn Outlet,
    key: u32,
    messages: &'a mut u64,
    pool: &'a mut Pool,
}

impl Taker for ToOutlet<'_> {
    fn fresh(&mut self) -> Box<HttpMessage> {
        self.pool.take()
    }

    fn drop(&mut self, message: Box<HttpMessage>) {
        self.pool.give_back(message);
    }

    fn take(&mut self, message: Box<HttpMessage>) {
        *self.messages += 1;
        self.out.emit(Items::Records(&[RecordItem {
            key: self.key,
            time: message.end,
            record: &*message,
        }]));
        self.pool.give_back(message);
    }
}

/// Takes a chunk of a direction whose opposite is not known.
fn scan(side: &mut Side, chunk: &StreamChunk<'_>, taker: &mut ToOutlet<'_>) {
    if chunk.offset == 0 && chunk.end.is_none() && side.depth > 0 {
        // Another stream under the same key.
        *side = Side::default();
    }
    let stream = chunk.stream;
    let mut connection = Connection {
        initiator: stream.source,
        responder: stream.destination,
        version: stream.version,
        handshake: [stream.syn, stream.established],
        is_partial: stream.syn.is_none(),
        ..Connection::default()
    };
    if !stream.from_initiator {
        core::mem::swap(&mut connection.initiator, &mut connection.responder);
        connection.handshake = [None; 2];
    }
    let retransmitted = connection.retransmitted.get_or_insert_default();
    retransmitted[usize::from(stream.from_initiator)] = stream.retransmitted;
    let at = At {
        connection: &connection,
        from_initiator: stream.from_initiator,
        time: match chunk.end {
            Some(_) => chunk.time,
            None => chunk.captured,
        },
    };
    if chunk.gap_before > 0 {
        side.part(&at, &Part::Gap(chunk.gap_before), taker);
    }
    if !chunk.bytes.is_empty() {
        side.part(&at, &Part::Data(chunk.bytes), taker);
    }
    if let Some(end) = chunk.end {
        side.part(&at, &Part::End(end), taker);
    }
}

impl Component for Scan {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Chunks(chunks) = items {
            for chunk in *chunks {
                let mut taker = ToOutlet {
                    out,
                    key: chunk.key,
                    messages: &mut self.messages,
                    pool: &mut self.pool,
                };
                scan(self.sides.of(chunk.key), chunk, &mut taker);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.sides.take(key);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.messages))
    }

    fn reset(&mut self) {
        self.messages = 0;
    }
}

#[derive(Default)]
struct Match {
    pairs: PerKey<Pairs>,
    pool: Pool,
    matched: u64,
}

impl Component for Match {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                // Other messages are none of its business.
                let known = item.record.as_any();
                let Some(message) = known.and_then(|it| it.downcast_ref::<HttpMessage>()) else {
                    continue;
                };
                let mut kept = self.pool.take();
                kept.assign(message);
                let mut give = Matched {
                    out,
                    key: item.key,
                    matched: &mut self.matched,
                    pool: &mut self.pool,
                };
                self.pairs.of(item.key).add(kept, &mut give);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        if let Some(mut pairs) = self.pairs.take(key) {
            let give = &mut Matched {
                out,
                key,
                matched: &mut self.matched,
                pool: &mut self.pool,
            };
            pairs.close(give, None);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        // Outside of all demultiplexers nothing else ends it.
        self.close(0, out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.matched))
    }

    fn reset(&mut self) {
        self.matched = 0;
    }
}

/// What is said in a connection.
#[derive(Default)]
pub(super) struct Talk {
    /// The responder's, the initiator's.
    sides: [Side; 2],
    pairs: Pairs,
    /// What they said since they went over to HTTP/2.
    second: Option<Box<Second>>,
    /// What they say since a proxy agreed to CONNECT, or within WebSocket.
    tunnel: Option<Tunnel>,
}

/// Gives messages to their partners.
struct ToPairs<'a, 'b> {
    pairs: &'a mut Pairs,
    second: &'a mut Option<Box<Second>>,
    tunnel: &'a mut Option<Tunnel>,
    pool: &'a mut Pool,
    give: &'a mut Give<'b>,
}

impl Taker for ToPairs<'_, '_> {
    fn asked(&self, begin: Nanos, is_after_loss: bool) -> Option<&HttpMessage> {
        self.pairs.asked(begin, is_after_loss)
    }

    fn fresh(&mut self) -> Box<HttpMessage> {
        self.pool.take()
    }

    fn drop(&mut self, message: Box<HttpMessage>) {
        self.pool.give_back(message);
    }

    fn take(&mut self, message: Box<HttpMessage>) {
        let (pool, give) = (&mut *self.pool, &mut *self.give);
        self.pairs.add(message, &mut Paired { pool, give });
    }

    fn files(&mut self) -> Option<&mut Files> {
        self.give.files.as_deref_mut()
    }

    fn file(&mut self, file: HttpFile, of: &mut HttpMessage, is_whole: bool, at: &At<'_>) {
        file.close(of, is_whole, at, self.give);
    }

    fn second(&mut self, at: &At<'_>) {
        let client = at.side();
        self.second
            .get_or_insert_with(|| Box::new(Second::new(client)));
    }

    fn upgraded(&mut self, at: &At<'_>, begin: Nanos, is_after_loss: bool) {
        let client = at.side() ^ 1;
        let second = self
            .second
            .get_or_insert_with(|| Box::new(Second::new(client)));
        if let Some(request) = self.pairs.asked(begin, is_after_loss) {
            let mut kept = self.pool.take();
            kept.assign(request);
            second.upgraded(kept);
        }
    }

    fn connected(&mut self, at: &At<'_>, in_frames: bool) -> Option<&'static str> {
        let tunnel = Tunnel::new(at.connection, in_frames);
        let limit = tunnel.is_none().then_some("tunnels");
        self.tunnel
            .get_or_insert(tunnel.unwrap_or_else(Tunnel::closed));
        limit
    }

    fn behind(&mut self, at: &At<'_>, bytes: &[u8]) {
        if let Some(tunnel) = self.tunnel {
            return tunnel.data(at, bytes, self.give);
        }
        if let Some(second) = self.second {
            second.data(self.pool, at, bytes, self.give);
        }
    }

    fn behind_gap(&mut self, at: &At<'_>, bytes: u64) {
        if let Some(second) = self.second {
            second.gap(self.pool, at, bytes, self.give);
        }
    }
}

struct Paired<'a, 'b> {
    pool: &'a mut Pool,
    give: &'a mut Give<'b>,
}

impl Row for Paired<'_, '_> {
    fn give(&mut self, time: Nanos, row: &HttpRow<'_>) {
        if let Some(host) = row.request.and_then(|it| it.get(it.host)) {
            self.give.server_is(host);
        }
        if row
            .request
            .or(row.response)
            .is_some_and(|it| it.stream.is_some())
        {
            self.give.went_over("http2");
        }
        self.give.record(time, row);
    }

    fn give_back(&mut self, message: Box<HttpMessage>) {
        self.pool.give_back(message);
    }
}

impl Talk {
    fn part(&mut self, pool: &mut Pool, at: &At<'_>, part: &Part<'_>, give: &mut Give<'_>) {
        let mut taker = ToPairs {
            pairs: &mut self.pairs,
            second: &mut self.second,
            tunnel: &mut self.tunnel,
            pool,
            give,
        };
        let side = &mut self.sides[at.side()];
        side.part(at, part, &mut taker);
        if let Some(file) = &mut side.file {
            file.give_parts(taker.give);
        }
    }

    /// Whether a direction has begun with HTTP/2, without a word of HTTP/1 before.
    #[inline]
    fn is_second(&mut self, at: &At<'_>, bytes: &[u8]) -> bool {
        match &self.second {
            Some(second) => second.has_begun(at.side()) || self.begins_second(at, bytes),
            None => bytes.first() == Some(&0) && self.begins_second(at, bytes),
        }
    }

    #[cold]
    fn begins_second(&mut self, at: &At<'_>, bytes: &[u8]) -> bool {
        let side = &self.sides[at.side()];
        let is_new = side.depth == 0 && side.message.is_none() && !side.parser.is_tunnel();
        let second = self.second.as_ref();
        // Or the answer in HTTP/1 that agrees to it, behind the client's first words.
        let is_first = bytes.first() == Some(&b'H');
        let is_answer = !is_first && second.is_some_and(|it| it.is_told_by(at.side() ^ 1));
        if !is_new || !(is_answer || http2::is_server(bytes)) {
            return false;
        }
        let client = at.side() ^ 1;
        let second = self
            .second
            .get_or_insert_with(|| Box::new(Second::new(client)));
        second.begin(at.side())
    }
}

impl Conversation for Talk {
    type Common = Pool;

    #[inline]
    fn data(&mut self, pool: &mut Pool, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if let Some(tunnel) = &mut self.tunnel {
            return tunnel.data(at, bytes, give);
        }
        if self.is_second(at, bytes)
            && let Some(second) = &mut self.second
        {
            return second.data(pool, at, bytes, give);
        }
        self.part(pool, at, &Part::Data(bytes), give);
    }

    fn gap(&mut self, pool: &mut Pool, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        if let Some(tunnel) = &mut self.tunnel {
            return tunnel.gap(at, bytes, give);
        }
        if self.is_second(at, &[])
            && let Some(second) = &mut self.second
        {
            return second.gap(pool, at, bytes, give);
        }
        self.part(pool, at, &Part::Gap(bytes), give);
    }

    fn wants(&self, at: &At<'_>) -> Wants {
        let side = &self.sides[at.side()];
        let reads_body = side.file.is_some() || side.beginning.is_wanted;
        match reads_body || self.tunnel.is_some() || self.second.is_some() {
            true => Wants::All,
            false => Wants::Behind(side.parser.ahead()),
        }
    }

    fn passed(&mut self, pool: &mut Pool, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        self.part(pool, at, &Part::Passed(bytes), give);
    }

    fn end(&mut self, pool: &mut Pool, at: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.end(at, end, give);
        }
        if let Some(second) = &mut self.second {
            second.end(end);
        }
        self.part(pool, at, &Part::End(end), give);
    }

    fn held(&self) -> usize {
        let [responder, initiator] = &self.sides;
        let second = self.second.as_ref().map_or(0, |it| it.held());
        let tunnel = self.tunnel.as_ref().map_or(0, Tunnel::held);
        self.pairs.held() + responder.held() + initiator.held() + second + tunnel
    }

    fn clear(&mut self) {
        *self = Talk {
            pairs: core::mem::take(&mut self.pairs).renewed(),
            ..Talk::default()
        };
    }

    fn trim(pool: &mut Pool) {
        *pool = Pool::default();
    }

    fn oldest(&self) -> Option<Nanos> {
        self.pairs.oldest()
    }

    fn give_up(&mut self, pool: &mut Pool, _: &At<'_>, give: &mut Give<'_>) {
        let limit = give.limit.unwrap_or_default();
        self.pairs.crowded(&mut Paired { pool, give }, limit);
    }

    fn abandon(&mut self, pool: &mut Pool, at: &At<'_>, give: &mut Give<'_>) {
        for from_initiator in [true, false] {
            let at = At {
                from_initiator,
                ..*at
            };
            self.part(pool, &at, &Part::GivenUp, give);
        }
        self.close(pool, at, give);
    }

    fn close(&mut self, pool: &mut Pool, at: &At<'_>, give: &mut Give<'_>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.close(give);
        }
        if let Some(second) = &mut self.second {
            second.close(pool, at, give);
        }
        let limit = give.limit;
        self.pairs.close(&mut Paired { pool, give }, limit);
    }
}
