//! Records about HTTP messages and transactions.

use core::any::Any;
use std::borrow::Cow;

use flowgauge_wire::{Address, Nanos};

use crate::any::KnownRecord;
use crate::held::Held;
use crate::parties::{number_or_null, texts_or_null};
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};
use crate::text::lossy;
use crate::text_list::TextList;

fields! {
    /// Fields of a [`HttpMessage`].
    MessageFields, MESSAGE, HTTP_MESSAGE_SCHEMA:
    time Time None "TIME" 1 "when its first byte was captured";
    end Time None "" 0 "when its last byte was captured";
    src_ip Address None "SOURCE" 1 "its sender";
    src_port Unsigned None "PORT" 2 "port of the sender";
    dst_ip Address None "DESTINATION" 1 "its receiver";
    dst_port Unsigned None "PORT" 2 "port of the receiver";
    depth Unsigned None "NO" 3 "position in its direction of the connection, from 1";
    kind Text None "KIND" 1 "request or response";
    method Text None "METHOD" 1 "method of a request";
    host Text None "HOST" 2 "header field Host";
    uri Text None "URI" 1 "target of a request, as it was sent";
    version Text None "" 0 "0.9, 1.0, 1.1 or other";
    status Unsigned None "STATUS" 1 "status of a response";
    reason Text None "" 0 "the words behind the status";
    user_agent Text None "" 0 "header field User-Agent";
    referrer Text None "" 0 "header field Referer";
    content_type Text None "TYPE" 3 "header field Content-Type";
    content_encoding Text None "" 0 "header field Content-Encoding";
    body_bytes Unsigned Bytes "BODY" 2 "bytes of the body, without transfer coding, missing ones counted";
    missing_bytes Unsigned Bytes "" 0 "bytes of the body that were not captured";
    whole Text None "" 0 "yes: it came to its end; no: it was cut off or given up";
    odd Text None "ODD" 4 "what two programs could read differently, or null";
}

fields! {
    /// Fields of a [`HttpRow`].
    HttpFields, HTTP, HTTP_SCHEMA:
    time Time None "TIME" 1 "first byte of the request, or of the response where there is no request";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp";
    depth Unsigned None "NO" 4 "position in the connection, from 1";
    method Text None "METHOD" 1 "method of the request";
    host Text None "HOST" 2 "header field Host";
    uri Text None "URI" 1 "target of the request, as it was sent";
    status Unsigned None "STATUS" 1 "status of the response";
    request_body_bytes Unsigned Bytes "" 0 "bytes of the request's body";
    response_body_bytes Unsigned Bytes "BODY" 2 "bytes of the response's body";
    response_decoded_bytes Unsigned Bytes "" 0 "the same behind the content coding, where that was taken away";
    user_agent Text None "" 0 "header field User-Agent";
    referrer Text None "" 0 "header field Referer";
    origin Text None "" 0 "header field Origin";
    content_type Text None "TYPE" 3 "header field Content-Type of the response";
    request_mime_type Text None "" 0 "type that the request's body begins as";
    response_mime_type Text None "" 0 "type that the response's body begins as";
    request_files List None "" 0 "numbers of the files that the request's body is or holds, where files are looked at (file_id of their records, in decimal digits)";
    request_file_names Texts None "" 0 "names that the sender gave them";
    request_part_types Texts None "" 0 "types that the parts of it begin as, if it has several";
    response_files List None "" 0 "numbers of the files that the response's body is or holds";
    response_file_names Texts None "" 0 "names that the sender gave them";
    response_part_types Texts None "" 0 "types that the parts of it begin as, if it has several";
    content_encoding Text None "" 0 "header field Content-Encoding of the response";
    location Text None "" 0 "header field Location of the response";
    stream Unsigned None "" 0 "of HTTP/2, number of the stream";
    request_fields Texts None "" 0 "of HTTP/2, where each message is told: fields of the request's head, name and value with a colon and a blank between";
    response_fields Texts None "" 0 "those of the response's head";
    version Text None "" 0 "version of the request, or of the response where there is no request";
    response_version Text None "" 0 "version of the response";
    reason Text None "" 0 "the words behind the status";
    latency Duration Seconds "LATENCY" 2 "from the request's last byte to the response's first";
    request_duration Duration Seconds "" 0 "from the request's first byte to its last";
    response_duration Duration Seconds "" 0 "from the response's first byte to its last";
    syn Time None "" 0 "when the connection's SYN was captured";
    handshake_rtt Duration Seconds "" 0 "from the SYN to the end of the handshake";
    partial Text None "" 0 "yes: the connection was captured from its middle";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    whole Text None "" 0 "yes: both messages came to their ends; no: one was cut off or given up, or what was lost beside them leaves open whether they belong together";
    close Text None "" 0 "how the connection ended, where the response ended with it: fin, rst, timeout";
    missing_bytes Unsigned Bytes "" 0 "bytes of the bodies that were not captured";
    retransmitted_bytes Unsigned Bytes "" 0 "bytes sent again in the connection up to the ends of both messages; null where that is not counted";
    odd Text None "ODD" 4 "what two programs could read differently, or null";
    limit Text None "" 0 "requests: more messages waited for their partners than are kept (256), memory: there was none left, so that this one has none; tunnels: what follows is within too many others (4), and is not read; of HTTP/2 streams (more than 128 at once, the oldest of which is over), text (more than 16 KiB of fields, or 64 KiB of them coded); files: more parts than are listed (100); or null";
}

/// A piece of a message's text; absent by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    start: u32,
    /// Plus one; 0: there is none.
    len: u32,
}

/// Files that a body is, or holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyFiles {
    /// Their numbers.
    pub ids: Vec<u64>,
    /// Names that their sender gave.
    pub names: Vec<String>,
    /// Of parts: types that they begin as.
    pub types: Vec<&'static str>,
}

impl Held for BodyFiles {
    fn held(&self) -> usize {
        size_of::<Self>()
            + self.ids.capacity() * size_of::<u64>()
            + self.names.held()
            + self.types.capacity() * size_of::<&str>()
    }
}

/// A message, kept. Its buffer can be used again ([`HttpMessage::clear`]).
#[derive(Clone, Debug, Default)]
pub struct HttpMessage {
    text: Vec<u8>,
    /// First byte.
    pub begin: Nanos,
    /// Last byte.
    pub end: Nanos,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub ip_version: u8,
    /// Position in its direction, from 1.
    pub depth: u32,
    /// It is a request.
    pub is_request: bool,
    /// Where its first line could not be read, only what surrounds it is known.
    pub has_head: bool,
    /// Method.
    pub method: Piece,
    /// Target.
    pub uri: Piece,
    /// Version.
    pub version: &'static str,
    /// Status.
    pub status: u16,
    /// Reason.
    pub reason: Piece,
    /// `Host`.
    pub host: Piece,
    /// `User-Agent`.
    pub user_agent: Piece,
    /// `Referer`.
    pub referrer: Piece,
    /// `Origin`.
    pub origin: Piece,
    /// `Content-Type`.
    pub content_type: Piece,
    /// `Content-Encoding`.
    pub content_encoding: Piece,
    /// `Location`.
    pub location: Piece,
    /// Number of its stream, of HTTP/2.
    pub stream: Option<u32>,
    /// Fields of its head, of HTTP/2 where they are wanted.
    pub fields: TextList,
    /// Type that its body begins as.
    pub mime_type: Option<&'static str>,
    /// Files that its body is or holds, where files are looked at.
    pub files: Option<Box<BodyFiles>>,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Bytes of it behind its content coding, where that was taken away.
    pub decoded_bytes: Option<u64>,
    /// Missing among them.
    pub missing_bytes: u64,
    /// It came to its end.
    pub is_whole: bool,
    /// How its stream ended, if it ended with it.
    pub close: Option<&'static str>,
    /// Messages before it were lost.
    pub is_after_loss: bool,
    /// What is odd about it, with commas between.
    pub odd: Piece,
    /// The bound that took its partner from it.
    pub limit: Option<&'static str>,
    /// Of the connection: SYN, end of the handshake.
    pub handshake: [Option<Nanos>; 2],
    /// The connection was captured from its middle.
    pub is_partial: bool,
    /// Bytes of its direction that were sent again, so far, where that is counted.
    pub retransmitted: Option<u64>,
}

impl Held for HttpMessage {
    #[inline]
    fn held(&self) -> usize {
        let files = self.files.as_ref().map_or(0, |files| files.held());
        self.text.held() + self.fields.held() + files
    }
}

impl HttpMessage {
    /// Forgets all but the buffer.
    pub fn clear(&mut self) {
        let mut text = core::mem::take(&mut self.text);
        let mut fields = core::mem::take(&mut self.fields);
        text.clear();
        fields.clear();
        *self = HttpMessage {
            text,
            fields,
            ..HttpMessage::default()
        };
    }

    /// Becomes a copy of another one, in its own buffer.
    pub fn assign(&mut self, other: &HttpMessage) {
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        text.extend_from_slice(&other.text);
        *self = HttpMessage {
            text,
            files: other.files.clone(),
            fields: other.fields.clone(),
            ..*other
        };
    }

    /// Keeps a piece of text.
    #[inline]
    pub fn keep(&mut self, text: Option<&[u8]>) -> Piece {
        let Some(text) = text else {
            return Piece::default();
        };
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        Piece {
            start,
            len: text.len() as u32 + 1,
        }
    }

    /// Bytes of text that are kept.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// A piece of text that was kept.
    #[inline]
    pub fn get(&self, piece: Piece) -> Option<&[u8]> {
        let len = piece.len.checked_sub(1)? as usize;
        let start = piece.start as usize;
        self.text.get(start..start + len)
    }

    fn lossy(&self, piece: Piece) -> Option<Cow<'_, str>> {
        self.get(piece).map(lossy)
    }
}

fn text<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    message: Option<&HttpMessage>,
    piece: impl FnOnce(&HttpMessage) -> Piece,
) {
    match message.and_then(|message| message.lossy(piece(message))) {
        Some(text) => visitor.text(field, &text),
        None => visitor.null(field),
    }
}

fn yes_or_no(is: bool) -> &'static [u8] {
    if is { b"yes" } else { b"no" }
}

impl Record for HttpMessage {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.time(&MESSAGE.time, self.begin);
        visitor.time(&MESSAGE.end, self.end);
        visitor.address(&MESSAGE.src_ip, self.source.0, self.ip_version);
        visitor.unsigned(&MESSAGE.src_port, u64::from(self.source.1));
        visitor.address(&MESSAGE.dst_ip, self.destination.0, self.ip_version);
        visitor.unsigned(&MESSAGE.dst_port, u64::from(self.destination.1));
        visitor.unsigned(&MESSAGE.depth, u64::from(self.depth));
        let kind: &[u8] = match self.is_request {
            true => b"request",
            false => b"response",
        };
        visitor.symbol(&MESSAGE.kind, kind);
        let this = Some(self);
        text(visitor, &MESSAGE.method, this, |it| it.method);
        text(visitor, &MESSAGE.host, this, |it| it.host);
        text(visitor, &MESSAGE.uri, this, |it| it.uri);
        match self.has_head {
            true => visitor.symbol(&MESSAGE.version, self.version.as_bytes()),
            false => visitor.null(&MESSAGE.version),
        }
        match self.status {
            0 => visitor.null(&MESSAGE.status),
            status => visitor.unsigned(&MESSAGE.status, u64::from(status)),
        }
        text(visitor, &MESSAGE.reason, this, |it| it.reason);
        text(visitor, &MESSAGE.user_agent, this, |it| it.user_agent);
        text(visitor, &MESSAGE.referrer, this, |it| it.referrer);
        text(visitor, &MESSAGE.content_type, this, |it| it.content_type);
        text(visitor, &MESSAGE.content_encoding, this, |it| {
            it.content_encoding
        });
        visitor.unsigned(&MESSAGE.body_bytes, self.body_bytes);
        visitor.unsigned(&MESSAGE.missing_bytes, self.missing_bytes);
        visitor.symbol(&MESSAGE.whole, yes_or_no(self.is_whole));
        text(visitor, &MESSAGE.odd, this, |it| it.odd);
    }
}

impl KnownRecord for HttpMessage {
    fn schema(&self) -> Schema {
        HTTP_MESSAGE_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// A request and its response, or one of them alone.
#[derive(Clone, Copy, Debug)]
pub struct HttpRow<'a> {
    /// What the client sent.
    pub request: Option<&'a HttpMessage>,
    /// What the server sent.
    pub response: Option<&'a HttpMessage>,
}

impl Record for HttpRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let (request, response) = (self.request, self.response);
        let Some(first) = request.or(response) else {
            return;
        };
        let (client, server) = match request {
            Some(request) => (request.source, request.destination),
            None => (first.destination, first.source),
        };
        visitor.time(&HTTP.time, first.begin);
        visitor.address(&HTTP.src_ip, client.0, first.ip_version);
        visitor.unsigned(&HTTP.src_port, u64::from(client.1));
        visitor.address(&HTTP.dst_ip, server.0, first.ip_version);
        visitor.unsigned(&HTTP.dst_port, u64::from(server.1));
        visitor.symbol(&HTTP.proto, b"tcp");
        visitor.unsigned(&HTTP.depth, u64::from(first.depth));
        text(visitor, &HTTP.method, request, |it| it.method);
        text(visitor, &HTTP.host, request, |it| it.host);
        text(visitor, &HTTP.uri, request, |it| it.uri);
        match response.map(|it| it.status).filter(|&status| status != 0) {
            Some(status) => visitor.unsigned(&HTTP.status, u64::from(status)),
            None => visitor.null(&HTTP.status),
        }
        let bytes = |message: Option<&HttpMessage>| message.map_or(0, |it| it.body_bytes);
        visitor.unsigned(&HTTP.request_body_bytes, bytes(request));
        visitor.unsigned(&HTTP.response_body_bytes, bytes(response));
        let decoded = response.and_then(|it| it.decoded_bytes);
        number_or_null(visitor, &HTTP.response_decoded_bytes, decoded);
        text(visitor, &HTTP.user_agent, request, |it| it.user_agent);
        text(visitor, &HTTP.referrer, request, |it| it.referrer);
        text(visitor, &HTTP.origin, request, |it| it.origin);
        text(visitor, &HTTP.content_type, response, |it| it.content_type);
        for (field, message) in [
            (&HTTP.request_mime_type, request),
            (&HTTP.response_mime_type, response),
        ] {
            match message.and_then(|it| it.mime_type) {
                Some(name) => visitor.symbol(field, name.as_bytes()),
                None => visitor.null(field),
            }
        }
        let none = BodyFiles::default();
        for (fields, message) in [
            (
                [
                    &HTTP.request_files,
                    &HTTP.request_file_names,
                    &HTTP.request_part_types,
                ],
                request,
            ),
            (
                [
                    &HTTP.response_files,
                    &HTTP.response_file_names,
                    &HTTP.response_part_types,
                ],
                response,
            ),
        ] {
            let files = message.and_then(|it| it.files.as_deref()).unwrap_or(&none);
            let [ids, names, types] = fields;
            visitor.list(ids, &files.ids);
            texts_or_null(visitor, names, &files.names);
            match files.types.as_slice() {
                [] => visitor.null(types),
                names => visitor.texts(types, names),
            }
        }
        text(visitor, &HTTP.content_encoding, response, |it| {
            it.content_encoding
        });
        text(visitor, &HTTP.location, response, |it| it.location);
        number_or_null(visitor, &HTTP.stream, first.stream);
        for (field, message) in [
            (&HTTP.request_fields, request),
            (&HTTP.response_fields, response),
        ] {
            match message {
                Some(message) => message.fields.visit(field, visitor),
                None => visitor.null(field),
            }
        }
        match first.has_head {
            true => visitor.symbol(&HTTP.version, first.version.as_bytes()),
            false => visitor.null(&HTTP.version),
        }
        match response.filter(|it| it.has_head) {
            Some(response) => visitor.symbol(&HTTP.response_version, response.version.as_bytes()),
            None => visitor.null(&HTTP.response_version),
        }
        text(visitor, &HTTP.reason, response, |it| it.reason);
        let mut span = |field, from: Option<Nanos>, to: Option<Nanos>| match from.zip(to) {
            Some((from, to)) => visitor.duration(field, Nanos(to.0.saturating_sub(from.0))),
            None => visitor.null(field),
        };
        span(
            &HTTP.latency,
            request.map(|it| it.end),
            response.map(|it| it.begin),
        );
        span(
            &HTTP.request_duration,
            request.map(|it| it.begin),
            request.map(|it| it.end),
        );
        span(
            &HTTP.response_duration,
            response.map(|it| it.begin),
            response.map(|it| it.end),
        );
        let part = |index: usize| {
            let of = |message: Option<&HttpMessage>| message?.handshake[index];
            of(request).or(of(response))
        };
        match part(0) {
            Some(syn) => visitor.time(&HTTP.syn, syn),
            None => visitor.null(&HTTP.syn),
        }
        match part(0).zip(part(1)) {
            Some((syn, done)) => {
                let rtt = Nanos(done.0.saturating_sub(syn.0));
                visitor.duration(&HTTP.handshake_rtt, rtt);
            }
            None => visitor.null(&HTTP.handshake_rtt),
        }
        visitor.symbol(&HTTP.partial, yes_or_no(first.is_partial));
        let state: &[u8] = match (request, response) {
            (Some(_), Some(_)) => b"matched",
            (Some(_), None) => b"no_reply",
            _ => b"no_request",
        };
        visitor.symbol(&HTTP.state, state);
        let both = [request, response];
        let is_whole = both.iter().flatten().all(|it| it.is_whole);
        visitor.symbol(&HTTP.whole, yes_or_no(is_whole));
        match response.and_then(|it| it.close) {
            Some(close) => visitor.symbol(&HTTP.close, close.as_bytes()),
            None => visitor.null(&HTTP.close),
        }
        let sum = |of: fn(&HttpMessage) -> u64| both.iter().flatten().map(|it| of(it)).sum();
        visitor.unsigned(&HTTP.missing_bytes, sum(|it| it.missing_bytes));
        match first.retransmitted {
            Some(_) => {
                let bytes = sum(|it| it.retransmitted.unwrap_or(0));
                visitor.unsigned(&HTTP.retransmitted_bytes, bytes);
            }
            None => visitor.null(&HTTP.retransmitted_bytes),
        }
        let odd = both.iter().flatten().find(|it| it.odd != Piece::default());
        text(visitor, &HTTP.odd, odd.copied(), |it| it.odd);
        let limit = both.iter().flatten().find_map(|it| it.limit);
        match limit {
            Some(limit) => visitor.symbol(&HTTP.limit, limit.as_bytes()),
            None => visitor.null(&HTTP.limit),
        }
    }
}

impl KnownRecord for HttpRow<'_> {
    fn schema(&self) -> Schema {
        HTTP_SCHEMA
    }
}
