//! HTTP/2: streams of a connection, as transactions.

use flowgauge_proto::http::{Oddities, Oddity};
use flowgauge_proto::http2::{BlockEnd, Events, Parser};
use flowgauge_record::Held;
use flowgauge_record::http::HttpMessage;
use flowgauge_record::text::lossy;
use flowgauge_record::text_list::TextList;
use flowgauge_stack::StreamEnd;
use flowgauge_wire::Nanos;

use super::file::HttpFile;
use super::names::{self, Names};
use super::pairs::Row;
use super::{Paired, Pool};
use crate::protocols::{At, Give};

/// Streams that are open at once; more end the oldest.
const STREAMS: usize = 128;
/// Bytes of a message's text that are kept.
const MOST_TEXT: usize = 16 << 10;
/// Fields of its head that are kept.
const MOST_FIELDS: usize = 256;

/// What is said in a connection since it went over to HTTP/2.
pub(super) struct Second {
    /// Which side is the client's.
    client: usize,
    /// The parsers, by side; none where HTTP/1 has not ended.
    parsers: [Option<Parser>; 2],
    /// When the frame began that is under way, by side.
    begun: [Nanos; 2],
    /// Those that began first stand in front.
    streams: Vec<Open>,
    /// It was agreed on in HTTP/1.
    is_upgrade: bool,
    names: Option<Box<Names>>,
    close: Option<&'static str>,
}

/// A stream: what is asked and what is answered on it.
struct Open {
    number: u32,
    /// The server's, the client's.
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    message: Option<Box<HttpMessage>>,
    content_length: Option<u64>,
    oddities: Oddities,
    is_over: bool,
    /// Frames of it may be missing.
    is_holed: bool,
    file: Option<Box<HttpFile>>,
    /// A message of DNS, as far as it came.
    name_message: Option<Vec<u8>>,
}

impl Half {
    fn held(&self) -> usize {
        let file = self.file.as_ref().map_or(0, |file| file.held());
        self.message.held() + self.name_message.held() + file
    }
}

/// Fields of a block, before it is known what it is.
#[derive(Default)]
struct Fields {
    message: Option<Box<HttpMessage>>,
    content_length: Option<u64>,
    oddities: Oddities,
    has_ordinary: bool,
    file: Option<Box<HttpFile>>,
}

impl Second {
    /// Of a connection whose client is on this side.
    pub(super) fn new(client: usize) -> Second {
        Second {
            client,
            parsers: [None, None],
            begun: [Nanos(0); 2],
            streams: Vec::new(),
            is_upgrade: false,
            names: None,
            close: None,
        }
    }

    /// Bytes of memory that it keeps.
    pub(super) fn held(&self) -> usize {
        let parsers = self.parsers.iter().flatten().map(Parser::held);
        let halves = self.streams.iter().flat_map(|open| &open.halves);
        let halves = halves.map(|half| half.held());
        let streams = self.streams.capacity() * size_of::<Open>();
        let names = self.names.as_ref().map_or(0, |names| names.held());
        size_of::<Self>() + names + parsers.sum::<usize>() + streams + halves.sum::<usize>()
    }

    /// Whether a side speaks it already.
    pub(super) fn has_begun(&self, side: usize) -> bool {
        self.parsers[side].is_some()
    }

    /// Whether this side is a client that speaks it without having asked.
    pub(super) fn is_told_by(&self, side: usize) -> bool {
        side == self.client && !self.is_upgrade
    }

    /// A server speaks it without having been asked in HTTP/1. False: it is not the server.
    pub(super) fn begin(&mut self, side: usize) -> bool {
        if side == self.client {
            return false;
        }
        self.parsers[side] = Some(Parser::server());
        true
    }

    /// The request that asked for it is answered on the first stream (RFC 7540, section 3.2).
    pub(super) fn upgraded(&mut self, mut request: Box<HttpMessage>) {
        self.is_upgrade = true;
        request.stream = Some(1);
        let text = |piece| request.get(piece).map(<[u8]>::to_vec);
        let head = [
            (":method", text(request.method)),
            (":path", text(request.uri)),
            (":authority", text(request.host)),
            ("user-agent", text(request.user_agent)),
        ];
        for (name, value) in &head {
            if let Some(value) = value {
                keep_field(&mut request.fields, name.as_bytes(), value);
            }
        }
        let mut open = Open::new(1);
        open.halves[1].message = Some(request);
        open.halves[1].is_over = true;
        self.streams.push(open);
    }

    /// Bytes of a side.
    pub(super) fn data(&mut self, pool: &mut Pool, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        self.with(pool, at, give, |parser, said| parser.data(bytes, said));
    }

    /// Bytes are missing in a side.
    pub(super) fn gap(&mut self, pool: &mut Pool, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        self.with(pool, at, give, |parser, said| parser.gap(bytes, said));
    }

    fn with(
        &mut self,
        pool: &mut Pool,
        at: &At<'_>,
        give: &mut Give<'_>,
        work: impl FnOnce(&mut Parser, &mut Said<'_, '_>),
    ) {
        let side = at.side();
        let is_client = side == self.client;
        let parser = self.parsers[side].take();
        let mut parser = parser.unwrap_or_else(|| match is_client {
            true => Parser::client(),
            false => Parser::server(),
        });
        let mut said = Said {
            streams: &mut self.streams,
            begun: &mut self.begun[side],
            fields: Fields::default(),
            is_client,
            names: &mut self.names,
            at,
            pool,
            give,
        };
        work(&mut parser, &mut said);
        // Of a block that was cut off.
        if let Some(message) = said.fields.message.take() {
            said.pool.give_back(message);
        }
        self.parsers[side] = Some(parser);
    }

    /// A side is over.
    pub(super) fn end(&mut self, end: StreamEnd) {
        self.close = Some(end.name());
    }

    /// Both are: what is open goes on as it is.
    pub(super) fn close(&mut self, pool: &mut Pool, at: &At<'_>, give: &mut Give<'_>) {
        if let Some(mut names) = self.names.take() {
            names.close(at, give);
        }
        for mut open in self.streams.drain(..) {
            for half in &mut open.halves {
                if let Some(message) = half.message.as_mut().filter(|_| !half.is_over) {
                    message.close = self.close;
                    message.limit = give.limit.or(message.limit);
                }
            }
            open.give(pool, at, give);
        }
    }
}

impl Open {
    fn new(number: u32) -> Open {
        Open {
            number,
            halves: [Half::default(), Half::default()],
        }
    }

    /// A bound ends it.
    fn bounded(&mut self, bound: &'static str) {
        for message in self
            .halves
            .iter_mut()
            .filter_map(|half| half.message.as_mut())
        {
            message.limit = Some(bound);
        }
    }

    /// Goes on, whether it is over or not.
    fn give(mut self, pool: &mut Pool, at: &At<'_>, give: &mut Give<'_>) {
        for side in [1, 0] {
            self.end(side, false, at, give);
        }
        let [response, request] = self.halves;
        let (request, response) = (request.message, response.message);
        if request.is_some() || response.is_some() {
            Paired { pool, give }.row(request, response);
        }
    }

    /// A message is over.
    fn end(&mut self, side: usize, is_whole: bool, at: &At<'_>, give: &mut Give<'_>) {
        let is_answered = self.asked() != Some(b"HEAD");
        let half = &mut self.halves[side];
        if core::mem::replace(&mut half.is_over, true) {
            return;
        }
        let Some(message) = &mut half.message else {
            return;
        };
        message.is_whole = is_whole && !half.is_holed && message.missing_bytes == 0;
        let has_body = message.status != 304 && (side == 1 || is_answered);
        // It says how long it is, and is not.
        let is_other = half
            .content_length
            .is_some_and(|it| it != message.body_bytes);
        half.oddities
            .set_if(Oddity::TwoLengths, is_other && message.is_whole && has_body);
        message.end = at.time;
        if !half.oddities.is_empty() {
            let names: Vec<&str> = half.oddities.iter().map(|it| it.name()).collect();
            message.odd = message.keep(Some(names.join(",").as_bytes()));
        }
        if let Some(mut file) = half.file.take() {
            file.total(half.content_length);
            let is_whole = message.is_whole;
            file.close(message, is_whole, at, give);
        }
    }

    fn asked(&self) -> Option<&[u8]> {
        let request = self.halves[1].message.as_ref()?;
        request.get(request.method)
    }
}

/// Takes what one side says.
struct Said<'a, 'b> {
    streams: &'a mut Vec<Open>,
    begun: &'a mut Nanos,
    fields: Fields,
    is_client: bool,
    names: &'a mut Option<Box<Names>>,
    at: &'a At<'a>,
    pool: &'a mut Pool,
    give: &'a mut Give<'b>,
}

impl Said<'_, '_> {
    /// Whether the message of the side that speaks goes on.
    fn goes_on(&self, stream: u32) -> bool {
        let side = usize::from(self.is_client);
        let open = self.streams.iter().find(|it| it.number == stream);
        open.is_some_and(|open| !open.halves[side].is_over)
    }

    fn over(&mut self, stream: u32, side: usize, is_whole: bool) {
        let place = self.streams.iter().position(|it| it.number == stream);
        let Some(open) = place.and_then(|place| self.streams.get_mut(place)) else {
            return;
        };
        open.end(side, is_whole, self.at, self.give);
        if let Some(bytes) = open.halves[side].name_message.take() {
            let at = At {
                from_initiator: self.at.from_initiator == (usize::from(self.is_client) == side),
                ..*self.at
            };
            let names = self.names.get_or_insert_default();
            names.message(&at, &bytes, self.give);
        }
        if open.halves.iter().all(|half| half.is_over) {
            self.give(stream);
        }
    }

    /// A stream goes on as a record.
    fn give(&mut self, stream: u32) {
        if let Some(place) = self.streams.iter().position(|it| it.number == stream) {
            let open = self.streams.remove(place);
            open.give(self.pool, self.at, self.give);
        }
    }

    /// A head is complete.
    fn head(&mut self, end: &BlockEnd, fields: Fields) {
        let Some(mut message) = fields.message else {
            return;
        };
        let side = usize::from(self.is_client || end.is_promise);
        let known = self.streams.iter().position(|it| it.number == end.stream);
        let place = known.unwrap_or_else(|| {
            if self.streams.len() >= STREAMS {
                let mut oldest = self.streams.remove(0);
                oldest.bounded("streams");
                oldest.give(self.pool, self.at, self.give);
            }
            self.streams.push(Open::new(end.stream));
            self.streams.len() - 1
        });
        let half = &mut self.streams[place].halves[side];
        let is_interim = side == 0 && message.status / 100 == 1 && !end.ends_stream;
        // Trailers, or an interim response.
        if half.message.is_some() || half.is_over || is_interim {
            half.oddities.join(fields.oddities);
            return self.pool.give_back(message);
        }
        let connection = self.at.connection;
        let (mut source, mut destination) = (self.at.source(), self.at.destination());
        if end.is_promise {
            core::mem::swap(&mut source, &mut destination);
        }
        message.begin = *self.begun;
        message.end = self.at.time;
        message.source = source;
        message.destination = destination;
        message.ip_version = connection.version;
        message.stream = Some(end.stream);
        message.depth = end.stream.div_ceil(2);
        message.is_request = side == 1;
        message.has_head = end.is_read;
        message.version = "2";
        message.handshake = connection.handshake;
        message.retransmitted = connection.retransmitted.map(|of| of[self.at.side()]);
        half.oddities = fields.oddities;
        if !end.is_read || end.unknown > 0 {
            half.oddities.set(Oddity::CutHead);
        }
        if end.is_long {
            message.limit = Some("text");
        }
        half.content_length = fields.content_length;
        let number = end.stream;
        let [response, request] = &mut self.streams[place].halves;
        let asked = request.message.as_deref();
        let (half, asked) = match side {
            1 => (request, None),
            _ => (response, asked),
        };
        half.file = fields.file;
        if let Some(file) = &mut half.file {
            file.belongs(self.at, number, &message, asked);
        }
        half.name_message = names::message_in(&message);
        half.message = Some(message);
    }
}

/// Keeps a field as it is, if there is room.
fn keep_field(fields: &mut TextList, name: &[u8], value: &[u8]) {
    if fields.bytes() + name.len() + value.len() <= MOST_TEXT && fields.len() < MOST_FIELDS {
        fields.push(|out| {
            for part in [name, b": ", value] {
                out.push_str(&lossy(part));
            }
        });
    }
}

impl Fields {
    /// A field of a head.
    fn take(&mut self, message: &mut HttpMessage, name: &[u8], value: &[u8]) {
        let is_pseudo = name.first() == Some(&b':');
        let is_bad = name.iter().any(u8::is_ascii_uppercase)
            || value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
            || (is_pseudo && self.has_ordinary);
        if is_bad {
            self.oddities.set(Oddity::BadHeader);
        }
        self.has_ordinary |= !is_pseudo;
        let keep = |message: &mut HttpMessage| message.keep(Some(value));
        let none = Default::default();
        match name {
            b":method" if message.method == none => message.method = keep(message),
            b":path" if message.uri == none => message.uri = keep(message),
            b":authority" if message.host == none => message.host = keep(message),
            b":status" if message.status == 0 => {
                let text = core::str::from_utf8(value).unwrap_or_default();
                message.status = text.parse().unwrap_or(0);
            }
            // Twice.
            b":method" | b":path" | b":authority" | b":status" => {
                self.oddities.set(Oddity::BadHeader);
            }
            b"host" if message.host == none => message.host = keep(message),
            b"host" if message.get(message.host) != Some(value) => {
                self.oddities.set(Oddity::TwoHosts);
            }
            b"user-agent" if message.user_agent == none => message.user_agent = keep(message),
            b"referer" if message.referrer == none => message.referrer = keep(message),
            b"content-type" if message.content_type == none => {
                message.content_type = keep(message);
            }
            b"content-encoding" if message.content_encoding == none => {
                message.content_encoding = keep(message);
            }
            b"location" if message.location == none => message.location = keep(message),
            b"content-length" => {
                let text = core::str::from_utf8(value).unwrap_or_default();
                let length = text.parse().ok().filter(|_| !text.starts_with('+'));
                match (length, self.content_length) {
                    (None, _) => self.oddities.set(Oddity::BadLength),
                    (Some(length), None) => self.content_length = Some(length),
                    (length, known) if length == known => {}
                    _ => self.oddities.set(Oddity::TwoLengths),
                }
            }
            // HTTP/2 has none: who takes it back to HTTP/1 may be led astray by it.
            b"transfer-encoding" => self.oddities.set(Oddity::LengthAndCoding),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"upgrade" => {
                self.oddities.set(Oddity::BadHeader);
            }
            _ => {}
        }
        if let Some(file) = &mut self.file {
            file.field(name, value);
        }
    }
}

impl Events for Said<'_, '_> {
    fn frame(&mut self) {
        *self.begun = self.at.time;
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let mut message = match self.fields.message.take() {
            Some(message) => message,
            None => {
                if self.give.files.is_some() {
                    self.fields.file = Some(HttpFile::new());
                }
                self.pool.take()
            }
        };
        match message.text_len() + value.len() <= MOST_TEXT {
            true => {
                self.fields.take(&mut message, name, value);
                if self.give.each_message {
                    keep_field(&mut message.fields, name, value);
                }
            }
            false => message.limit = Some("text"),
        }
        self.fields.message = Some(message);
    }

    fn block(&mut self, end: &BlockEnd) {
        let mut fields = core::mem::take(&mut self.fields);
        if fields.message.is_none() && (!end.is_read || end.unknown > 0) {
            fields.message = Some(self.pool.take());
        }
        self.head(end, fields);
        if end.ends_stream {
            self.over(end.stream, usize::from(self.is_client), true);
        } else if end.is_promise {
            // A promise has no body.
            self.over(end.stream, 1, true);
        }
    }

    fn data(&mut self, stream: u32, bytes: &[u8]) {
        let at = self.at;
        let side = usize::from(self.is_client);
        let Some(open) = self.streams.iter_mut().find(|it| it.number == stream) else {
            return;
        };
        let half = &mut open.halves[side];
        if let Some(message) = half.message.as_mut().filter(|_| !half.is_over) {
            message.body_bytes += bytes.len() as u64;
            if let Some(kept) = &mut half.name_message
                && kept.len() + bytes.len() <= names::MOST
            {
                kept.extend_from_slice(bytes);
            }
            if let Some(file) = &mut half.file {
                file.data(bytes, at, self.give.files.as_deref_mut());
                file.give_parts(self.give);
            }
        }
    }

    fn missing(&mut self, stream: u32, bytes: u64) {
        let at = self.at;
        let side = usize::from(self.is_client);
        let Some(open) = self.streams.iter_mut().find(|it| it.number == stream) else {
            return;
        };
        let half = &mut open.halves[side];
        if let Some(message) = half.message.as_mut().filter(|_| !half.is_over) {
            message.body_bytes += bytes;
            message.missing_bytes += bytes;
            half.name_message = None;
            if let Some(file) = &mut half.file {
                file.gap(bytes, at, self.give.files.as_deref_mut());
            }
        }
    }

    fn end(&mut self, stream: u32) {
        self.over(stream, usize::from(self.is_client), true);
    }

    fn reset(&mut self, stream: u32, code: u32) {
        // A server that needs no more of a request resets its stream without an error behind its answer.
        let is_done = code == 0 && !self.goes_on(stream);
        if let Some(place) = self.streams.iter().position(|it| it.number == stream) {
            let open = &mut self.streams[place];
            for side in [1, 0] {
                open.end(side, is_done, self.at, self.give);
            }
        }
        self.give(stream);
    }

    fn lost(&mut self, is_bad: bool) {
        if let Some(message) = self.fields.message.take() {
            self.pool.give_back(message);
        }
        self.fields = Fields::default();
        let side = usize::from(self.is_client);
        for open in self.streams.iter_mut() {
            let half = &mut open.halves[side];
            if !half.is_over {
                half.is_holed = true;
                if is_bad {
                    half.oddities.set(Oddity::BadHeader);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Talk;
    use crate::protocols::testing::Tester;
    use flowgauge_proto::http2::PREFACE;

    const COLUMNS: &[&str] = &[
        "depth",
        "method",
        "host",
        "uri",
        "version",
        "status",
        "response_version",
        "request_body_bytes",
        "response_body_bytes",
        "content_type",
        "state",
        "whole",
        "odd",
    ];

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Fields as literals that are not kept.
    fn fields(list: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in list {
            bytes.extend([0, name.len() as u8]);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(value.len() as u8);
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes
    }

    fn request(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut list = vec![(":method", "POST"), (":path", path), (":authority", "a")];
        list.extend_from_slice(more);
        fields(&list)
    }

    fn conversation() -> [Vec<u8>; 2] {
        let mut client = PREFACE.to_vec();
        client.extend(frame(4, 0, 0, &[]));
        client.extend(frame(1, 4, 1, &request("/one", &[("content-length", "5")])));
        client.extend(frame(1, 5, 3, &request("/two", &[])));
        client.extend(frame(0, 1, 1, b"hello"));
        client.extend(frame(1, 5, 5, &request("/three", &[])));
        let mut server = frame(4, 0, 0, &[]);
        server.extend(frame(
            1,
            4,
            3,
            &fields(&[(":status", "200"), ("content-type", "text/a")]),
        ));
        server.extend(frame(1, 4, 1, &fields(&[(":status", "103")])));
        server.extend(frame(0, 0, 3, b"abc"));
        server.extend(frame(1, 5, 1, &fields(&[(":status", "204")])));
        server.extend(frame(0, 1, 3, b"de"));
        server.extend(frame(3, 0, 5, &[0, 0, 0, 7]));
        [client, server]
    }

    const ROWS: [&str; 3] = [
        r#"1 "POST" "a" "/one" "2" 204 "2" 5 0 null "matched" "yes" null"#,
        r#"2 "POST" "a" "/two" "2" 200 "2" 0 5 "text/a" "matched" "yes" null"#,
        r#"3 "POST" "a" "/three" "2" null null 0 0 null "no_reply" "yes" null"#,
    ];

    #[test]
    fn streams_are_matched_however_they_are_cut() {
        let [client, server] = conversation();
        for cut in 1..client.len().max(server.len()) {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
            let (one, other) = client.split_at(cut.min(client.len()));
            tester.say(true, 1, one);
            tester.say(true, 2, other);
            let (one, other) = server.split_at(cut.min(server.len()));
            tester.say(false, 3, one);
            tester.say(false, 4, other);
            tester.close();
            assert_eq!(tester.rows(COLUMNS), ROWS, "cut at {cut}");
        }
    }

    #[test]
    fn dns_within_has_records_of_its_own() {
        let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        let mut reply = query.to_vec();
        (reply[2], reply[7]) = (0x81, 1);
        reply.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
        // RFC 4648, section 5: without padding.
        let uri = "/dns-query?x=1&dns=AAcBAAABAAAAAAAAAWEAAAEAAQ";
        let kind = ("content-type", "application/dns-message");
        let mut client = PREFACE.to_vec();
        client.extend(frame(4, 0, 0, &[]));
        client.extend(frame(1, 5, 1, &request(uri, &[])));
        client.extend(frame(1, 4, 3, &request("/dns-query", &[kind])));
        client.extend(frame(0, 1, 3, query));
        client.extend(frame(1, 5, 5, &request("/other?dns=!", &[])));
        let mut server = frame(4, 0, 0, &[]);
        for stream in [1, 3] {
            let head = fields(&[(":status", "200"), kind]);
            server.extend(frame(1, 4, stream, &head));
            server.extend(frame(0, 0, stream, &reply[..9]));
            server.extend(frame(0, 1, stream, &reply[9..]));
        }
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 443);
        tester.say(true, 1, &client);
        tester.say(false, 2, &server);
        tester.close();
        let rows = tester.rows(&["event_type", "service", "query", "answers", "state", "uri"]);
        let dns = r#""dns" "doh" "a" ["192.0.2.1"] "matched" null"#;
        assert_eq!(
            rows.iter().filter(|row| *row == dns).count(),
            2,
            "{rows:#?}"
        );
        assert_eq!(rows.len(), 5, "{rows:#?}");
    }

    #[test]
    fn fields_are_told_where_all_is() {
        let [client, server] = conversation();
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
        tester.each_message = true;
        tester.say(true, 1, &client);
        tester.say(false, 2, &server);
        tester.close();
        assert_eq!(
            tester.rows(&["stream", "request_fields", "response_fields"])[0],
            r#"1 [":method: POST",":path: /one",":authority: a","content-length: 5"] [":status: 204"]"#
        );
    }

    #[test]
    fn a_server_may_speak_first() {
        let [client, server] = conversation();
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
        tester.say(false, 1, &server[..9]);
        tester.say(true, 2, &client);
        tester.say(false, 3, &server[9..]);
        tester.close();
        assert_eq!(tester.rows(COLUMNS), ROWS);
    }

    #[test]
    fn the_upgraded_request_is_the_one_that_is_answered() {
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
        tester.say(true, 1, b"GET /lost HTTP/1.1\r\nHost: a\r\n\r\n");
        tester.miss(false, 2, 100);
        tester.say(
            true,
            3,
            b"GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
        );
        let mut server = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n".to_vec();
        server.extend(frame(4, 0, 0, &[]));
        server.extend(frame(1, 5, 1, &fields(&[(":status", "200")])));
        tester.say(false, 4, &server);
        tester.close();
        assert_eq!(
            tester.rows(&["uri", "status", "state", "whole"]),
            [
                r#""/lost" null "no_reply" "no""#,
                r#""/up" 101 "matched" "no""#,
                r#""/up" 200 "matched" "yes""#,
            ]
        );
    }

    #[test]
    fn an_upgrade_is_answered_on_the_first_stream() {
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
        tester.say(
            true,
            1,
            b"GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
        );
        let mut server = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n".to_vec();
        server.extend(frame(4, 0, 0, &[]));
        server.extend(frame(1, 4, 1, &fields(&[(":status", "200")])));
        server.extend(frame(0, 1, 1, b"abc"));
        tester.say(false, 2, &server);
        let mut client = PREFACE.to_vec();
        client.extend(frame(1, 5, 3, &request("/next", &[])));
        tester.say(true, 3, &client);
        tester.say(false, 4, &frame(1, 5, 3, &fields(&[(":status", "404")])));
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#"1 "GET" "a" "/up" "1.1" 101 "1.1" 0 0 null "matched" "yes" null"#,
                r#"1 "GET" "a" "/up" "1.1" 200 "2" 0 3 null "matched" "yes" null"#,
                r#"2 "POST" "a" "/next" "2" 404 "2" 0 0 null "matched" "yes" null"#,
            ]
        );
    }

    /// Frames of a side, each a segment.
    fn segments(bytes: &[u8], preface: usize) -> Vec<&[u8]> {
        let (first, mut rest) = bytes.split_at(preface);
        let mut all = vec![first];
        while let Some(&[a, b, c]) = rest.first_chunk::<3>() {
            let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
            let (frame, behind) = rest.split_at(length);
            all.push(frame);
            rest = behind;
        }
        all.retain(|segment| !segment.is_empty());
        all
    }

    #[test]
    fn a_missing_segment_costs_what_is_in_it() {
        let [client, server] = conversation();
        let sides = [segments(&server, 0), segments(&client, PREFACE.len())];
        for (side, number) in [0, 1].into_iter().flat_map(|side| {
            let count = sides[side].len();
            (0..count).map(move |number| (side, number))
        }) {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
            for (from_initiator, all) in [(true, &sides[1]), (false, &sides[0])] {
                for (place, segment) in all.iter().enumerate() {
                    if side == usize::from(from_initiator) && place == number {
                        tester.miss(from_initiator, 1, segment.len() as u64);
                    } else {
                        tester.say(from_initiator, 1, segment);
                    }
                }
            }
            tester.close();
            let rows = tester.rows(&["depth", "uri", "status", "whole", "state"]);
            let what = format!("{side} {number}: {rows:?}");
            // The connection may look like no HTTP/2 then.
            if (side, number) == (1, 0) {
                continue;
            }
            // The last is only asked for.
            let expected = if (side, number) == (1, 5) { 2 } else { 3 };
            assert_eq!(rows.len(), expected, "{what}");
            let asked = rows.iter().filter(|row| row.contains("\"/")).count();
            assert!(asked >= if side == 0 { 3 } else { 2 }, "{what}");
            let answered = rows.iter().filter(|row| row.contains(" 20")).count();
            assert!(answered >= if side == 0 { 1 } else { 2 }, "{what}");
        }
    }

    /// Of a connection captured from within what either says may come first.
    #[test]
    fn an_agreement_without_its_request_is_one() {
        let mut server = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n".to_vec();
        server.extend(frame(4, 0, 0, &[]));
        server.extend(frame(1, 5, 1, &fields(&[(":status", "200")])));
        let mut client = PREFACE.to_vec();
        client.extend(frame(4, 0, 0, &[]));
        for client_is_first in [true, false] {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
            if client_is_first {
                tester.say(true, 1, &client);
            }
            tester.say(false, 2, &server);
            if !client_is_first {
                tester.say(true, 3, &client);
            }
            tester.close();
            let rows = tester.rows(&["status", "response_version", "state"]);
            let mut expected = [r#"200 "2" "no_request""#, r#"101 "1.1" "no_request""#];
            expected.sort_unstable();
            let mut rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            rows.sort_unstable();
            assert_eq!(rows, expected, "{client_is_first}");
        }
    }

    #[test]
    fn what_leads_astray_is_marked() {
        for (more, body, odd) in [
            (&[("content-length", "3")][..], &b"abcd"[..], "two_lengths"),
            (
                &[("content-length", "3"), ("content-length", "4")],
                b"abc",
                "two_lengths",
            ),
            (&[("content-length", "x")], b"", "bad_length"),
            (
                &[("transfer-encoding", "chunked")],
                b"",
                "length_and_coding",
            ),
            (&[("host", "b")], b"", "two_hosts"),
            (&[("X-Upper", "1")], b"", "bad_header"),
            (&[("x", "a\r\nb: c")], b"", "bad_header"),
            (&[("x", "1"), (":path", "/other")], b"", "bad_header"),
            (&[("connection", "close")], b"", "bad_header"),
        ] {
            let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80);
            tester.say(true, 1, PREFACE);
            tester.say(true, 2, &frame(1, 4, 1, &request("/", more)));
            tester.say(true, 3, &frame(0, 1, 1, body));
            tester.close();
            let rows = tester.rows(&["odd"]);
            assert_eq!(rows, [format!("\"{odd}\"")], "{more:?}");
        }
    }
}
