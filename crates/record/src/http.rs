//! Records about HTTP messages and transactions.

use core::any::Any;

use flowgauge_wire::{Address, Nanos};

use crate::any::KnownRecord;
use crate::exchange::state;
use crate::held::held;
use crate::origin::Origin;
use crate::parties::Parties;
use crate::schema::{Schema, record};
use crate::text_list::TextList;
use crate::value::{Lossy, Symbol, listed};

record! {
    /// Fields of a [`HttpMessage`].
    MESSAGE, HTTP_MESSAGE_SCHEMA for HttpMessage as it, own_schema:
    time (begin: Nanos) Time "TIME" 1 = it.begin, "when its first byte was captured";
    end: Nanos, Time = it.end, "when its last byte was captured";
    src_ip Address "SOURCE" 1 = (it.source.0, it.ip_version), "its sender";
    src_port Unsigned "PORT" 2 = it.source.1, "port of the sender";
    dst_ip Address "DESTINATION" 1 = (it.destination.0, it.ip_version), "its receiver";
    dst_port Unsigned "PORT" 2 = it.destination.1, "port of the receiver";
    depth: u32, Unsigned "NO" 3 = it.depth, "position in its direction of the connection, from 1";
    kind Text "KIND" 1 = Symbol(if it.is_request { "request" } else { "response" }), "request or response";
    method: Piece, Text "METHOD" 1 = it.lossy(it.method), "method of a request";
    host: Piece, Text "HOST" 2 = it.lossy(it.host), "header field Host";
    uri: Piece, Text "URI" 1 = it.lossy(it.uri), "target of a request, as it was sent";
    version: &'static str, Text = it.has_head.then_some(Symbol(it.version)), "0.9, 1.0, 1.1 or other";
    status: u16, Unsigned "STATUS" 1 = it.status(), "status of a response";
    reason: Piece, Text = it.lossy(it.reason), "reason phrase";
    user_agent: Piece, Text = it.lossy(it.user_agent), "header field User-Agent";
    referrer: Piece, Text = it.lossy(it.referrer), "header field Referer";
    content_type: Piece, Text "TYPE" 3 = it.lossy(it.content_type), "header field Content-Type";
    content_encoding: Piece, Text = it.lossy(it.content_encoding), "header field Content-Encoding";
    body_bytes: u64, Unsigned Bytes "BODY" 2 = it.body_bytes, "bytes of the body, without transfer coding, missing ones counted";
    missing_bytes: u64, Unsigned Bytes = it.missing_bytes, "bytes of the body that were not captured";
    whole (is_whole: bool) Text = it.is_whole, "yes: it is complete; no: it was cut off or abandoned";
    odd: Piece, Text "ODD" 4 = it.lossy(it.odd), "ambiguity that two implementations could parse differently, or null";

    /// An owned message. Its buffer can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default)]
    pub struct HttpMessage {
        text: Vec<u8>,
        /// Sender.
        pub source: (Address, u16),
        /// Receiver.
        pub destination: (Address, u16),
        /// 4 or 6.
        pub ip_version: u8,
        /// Whether it is a request.
        pub is_request: bool,
        /// False if its first line could not be parsed; only its context is known then.
        pub has_head: bool,
        /// `Origin`.
        pub origin: Piece,
        /// `Location`.
        pub location: Piece,
        /// Number of its stream, for HTTP/2.
        pub stream: Option<u32>,
        /// Header fields, if requested for HTTP/2.
        pub fields: TextList,
        /// Type detected from the start of its body.
        pub mime_type: Option<&'static str>,
        /// Files in its body, if files are extracted.
        pub files: Option<Box<BodyFiles>>,
        /// Size of its body after decoding the content coding, if it was decoded.
        pub decoded_bytes: Option<u64>,
        /// How its stream ended, if it ended with it.
        pub close: Option<&'static str>,
        /// Whether previous messages were lost.
        pub is_after_loss: bool,
        /// The limit that separated it from its request or response.
        pub limit: Option<&'static str>,
        /// Times of the connection: SYN, end of the handshake.
        pub handshake: [Option<Nanos>; 2],
        /// Whether the connection was captured from the middle.
        pub is_partial: bool,
        /// Bytes retransmitted so far in its direction, if counted.
        pub retransmitted: Option<u64>,
    }
}

record! {
    /// Fields of a [`HttpRow`].
    HTTP, HTTP_SCHEMA for HttpRow<'_> as it {
        let (request, response) = (it.request, it.response);
        let Some(first) = request.or(response) else {
            return;
        };
        let both = || [request, response].into_iter().flatten();
        let (syn, established) = (it.handshake(0), it.handshake(1));
    }:
    ..it.origin(), "first byte of the request, or of the response where there is no request", Symbol("tcp"), "tcp";
    depth Unsigned "NO" 4 = first.depth, "position in the connection, from 1";
    method Text "METHOD" 1 = text(request, |it| it.method), "method of the request";
    host Text "HOST" 2 = text(request, |it| it.host), "header field Host";
    uri Text "URI" 1 = text(request, |it| it.uri), "target of the request, as it was sent";
    status Unsigned "STATUS" 1 = response.and_then(HttpMessage::status), "status of the response";
    request_body_bytes Unsigned Bytes = request.map_or(0, |it| it.body_bytes), "bytes of the request's body";
    response_body_bytes Unsigned Bytes "BODY" 2 = response.map_or(0, |it| it.body_bytes), "bytes of the response's body";
    response_decoded_bytes Unsigned Bytes = response.and_then(|it| it.decoded_bytes), "the same after decoding, if \
    decoded";
    user_agent Text = text(request, |it| it.user_agent), "header field User-Agent";
    referrer Text = text(request, |it| it.referrer), "header field Referer";
    origin Text = text(request, |it| it.origin), "header field Origin";
    content_type Text "TYPE" 3 = text(response, |it| it.content_type), "header field Content-Type of the response";
    request_mime_type Text = request.and_then(|it| it.mime_type).map(Symbol), "type of the request's body by its \
    first bytes";
    response_mime_type Text = response.and_then(|it| it.mime_type).map(Symbol), "type of the response's body by its \
    first bytes";
    request_files List = &files(request).ids, "numbers of the files in the request's body, if files are tracked \
    (file_id of their records, in decimal)";
    request_file_names Texts = listed(&files(request).names), "names that the sender gave them";
    request_part_types Texts = listed(&files(request).types), "types of its parts by their first bytes, if it has \
    several";
    response_files List = &files(response).ids, "numbers of the files that the response's body is or holds";
    response_file_names Texts = listed(&files(response).names), "names that the sender gave them";
    response_part_types Texts = listed(&files(response).types), "types of its parts by their first bytes, if it has \
    several";
    content_encoding Text = text(response, |it| it.content_encoding), "header field Content-Encoding of the response";
    location Text = text(response, |it| it.location), "header field Location of the response";
    stream Unsigned = first.stream, "of HTTP/2, number of the stream";
    request_fields Texts = request.map(|it| &it.fields), "HTTP/2 (with each_message): header fields of the request, \
    as name: value";
    response_fields Texts = response.map(|it| &it.fields), "those of the response's head";
    version Text = first.has_head.then_some(Symbol(first.version)), "version of the request, or of the response if \
    there is no request";
    response_version Text = response.filter(|it| it.has_head).map(|it| Symbol(it.version)), "version of the response";
    reason Text = text(response, |it| it.reason), "reason phrase";
    latency Duration Seconds "LATENCY" 2 = span(request.map(|it| it.end), response.map(|it| it.begin)), "from the request's last byte to the response's first";
    request_duration Duration Seconds = span(request.map(|it| it.begin), request.map(|it| it.end)), "from the request's first byte to its last";
    response_duration Duration Seconds = span(response.map(|it| it.begin), response.map(|it| it.end)), "from the response's first byte to its last";
    syn Time = syn, "when the connection's SYN was captured";
    handshake_rtt Duration Seconds = span(syn, established), "from the SYN to the end of the handshake";
    partial Text = first.is_partial, "yes: the connection was captured from its middle";
    state Text "STATE" 3 = Symbol(state(request.is_some(), response.is_some())), "matched, no_reply or no_request";
    whole Text = both().all(|it| it.is_whole), "yes: both messages are complete; no: one was cut off or abandoned, or \
    missing data leaves their pairing uncertain";
    close Text = response.and_then(|it| it.close).map(Symbol), "end of the connection, if it ended the response: fin, \
    rst, timeout";
    missing_bytes Unsigned Bytes = both().map(|it| it.missing_bytes).sum::<u64>(), "bytes of the bodies that were not captured";
    retransmitted_bytes Unsigned Bytes = first.retransmitted.map(|_| both().filter_map(|it| it.retransmitted).sum::<u64>()), "bytes retransmitted in the connection up to the end of both messages; null if not counted";
    odd Text "ODD" 4 = both().find_map(|it| it.lossy(it.odd)), "ambiguity that two implementations could parse \
    differently, or null";
    limit Text = both().find_map(|it| it.limit).map(Symbol), "requests: too many messages waiting for partners (256); \
    memory: none left, so this one has no partner; head: longer than is parsed (384 KiB), later data is not parsed; tunnels: too many nested tunnels (4), later data is not parsed; of HTTP/2 streams (more than 128 at once, the oldest of which is over), text (more than 16 KiB of fields, or 64 KiB of them coded); files: more parts than are listed (100); or null";
}

/// A part of a message's text; absent by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    start: u32,
    /// Plus one; 0: there is none.
    len: u32,
}

held! {
    /// Files in a body.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct BodyFiles {
        /// Their numbers.
        pub ids: Vec<u64>,
        /// Names given by their sender.
        pub names: Vec<String>,
        /// For parts: types detected from their start.
        pub types: Vec<&'static str>,
    }
}

impl HttpMessage {
    /// Becomes a copy of another message, in its own buffer.
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

    /// Stores text.
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

    /// Number of bytes of text stored.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Stored text.
    #[inline]
    pub fn get(&self, piece: Piece) -> Option<&[u8]> {
        let len = piece.len.checked_sub(1)? as usize;
        let start = piece.start as usize;
        self.text.get(start..start + len)
    }

    fn lossy(&self, piece: Piece) -> Option<Lossy<'_>> {
        self.get(piece).map(Lossy)
    }

    fn status(&self) -> Option<u16> {
        Some(self.status).filter(|status| *status != 0)
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
    /// The request.
    pub request: Option<&'a HttpMessage>,
    /// The response.
    pub response: Option<&'a HttpMessage>,
}

impl HttpRow<'_> {
    /// When it began, client and server.
    fn origin(&self) -> Origin {
        let of = |message: &HttpMessage| Origin {
            time: message.begin,
            parties: Parties {
                client: message.source,
                server: message.destination,
                ip_version: message.ip_version,
            },
        };
        match (self.request, self.response) {
            (Some(request), _) => of(request),
            (None, Some(response)) => {
                let Origin { time, parties } = of(response);
                let parties = parties.exchanged();
                Origin { time, parties }
            }
            (None, None) => Origin::default(),
        }
    }

    /// Of the connection: the SYN, or the end of the handshake.
    fn handshake(&self, part: usize) -> Option<Nanos> {
        let of = |message: Option<&HttpMessage>| message?.handshake[part];
        of(self.request).or(of(self.response))
    }
}

/// A piece of a message's text.
fn text(message: Option<&HttpMessage>, piece: fn(&HttpMessage) -> Piece) -> Option<Lossy<'_>> {
    message.and_then(|message| message.lossy(piece(message)))
}

/// The files of a message.
fn files(message: Option<&HttpMessage>) -> &BodyFiles {
    static NONE: BodyFiles = BodyFiles {
        ids: Vec::new(),
        names: Vec::new(),
        types: Vec::new(),
    };
    let files = message.and_then(|message| message.files.as_deref());
    files.unwrap_or(&NONE)
}

/// From one time to another.
fn span(from: Option<Nanos>, to: Option<Nanos>) -> Option<Nanos> {
    Some(Nanos(to?.0.saturating_sub(from?.0)))
}
