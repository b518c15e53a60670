//! HTTP/2 in clear text: the frames of one direction, and the fields in them (RFC 9113).
//!
//! ```
//! use flowgauge_proto::http2::{Events, Parser};
//!
//! #[derive(Default)]
//! struct Log(Vec<String>);
//!
//! impl Events for Log {
//!     fn field(&mut self, name: &[u8], value: &[u8]) {
//!         let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
//!         self.0.push(format!("{}: {}", text(name), text(value)));
//!     }
//!     fn data(&mut self, stream: u32, bytes: &[u8]) {
//!         self.0.push(format!("{} bytes on {stream}", bytes.len()));
//!     }
//! }
//!
//! let mut parser = Parser::server();
//! let mut log = Log::default();
//! // HEADERS with ":status: 200", then DATA that ends the stream, in any pieces.
//! parser.data(&[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 0, 2], &mut log);
//! parser.data(&[0, 1, 0, 0, 0, 1, b'h', b'i'], &mut log);
//! assert_eq!(log.0, [":status: 200", "2 bytes on 1"]);
//! ```
//!
//! # Holes
//! Within data a hole is counted and read over. Where it takes the beginning of a frame, the next one is
//! looked for where a piece of data begins like one; the table of header compression has lost entries
//! then, and fields that name them are missing ([`BlockEnd::unknown`]).
//!
//! # Bounds
//! A block of fields has 64 KiB at most, the table of header compression too.

mod hpack;
mod huffman;

use hpack::Table;

/// Bytes of a block of fields, coded.
const MOST_BLOCK: usize = 64 << 10;
/// Payload of a frame where it is looked for behind a hole: larger ones are to be agreed on.
const USUAL_PAYLOAD: u32 = 16 << 10;
/// Bytes of a frame's header.
const HEADER: usize = 9;

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What of it follows the head that HTTP/1 sees in it.
const PREFACE_REST: &[u8] = b"SM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// The end of a block of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEnd {
    /// The stream that its message is on; of a promise the one that is promised.
    pub stream: u32,
    /// Its message ends with it.
    pub ends_stream: bool,
    /// It is a request that a server answers before it was asked.
    pub is_promise: bool,
    /// It could be read, or as much of it as is known.
    pub is_read: bool,
    /// It was too long to be kept.
    pub is_long: bool,
    /// Fields that are not known, as a hole took what they refer to.
    pub unknown: u32,
}

/// Receives what a [`Parser`] finds, in the order of the stream.
pub trait Events {
    /// A frame begins.
    fn frame(&mut self) {}

    /// A field of a block; a block has its fields one after the other, and then its end.
    fn field(&mut self, _name: &[u8], _value: &[u8]) {}

    /// The fields so far were a block: the head of a message, or its trailers.
    fn block(&mut self, _end: &BlockEnd) {}

    /// Bytes of a body.
    fn data(&mut self, _stream: u32, _bytes: &[u8]) {}

    /// So many bytes of a body are missing here.
    fn missing(&mut self, _stream: u32, _bytes: u64) {}

    /// A body is over, and with it the message.
    fn end(&mut self, _stream: u32) {}

    /// A stream was given up by its sender, with this error code.
    fn reset(&mut self, _stream: u32, _code: u32) {}

    /// Frames cannot be told apart any more, because of a hole or, `is_bad`, of what was sent.
    fn lost(&mut self, _is_bad: bool) {}
}

/// Reads the frames of one direction.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    state: State,
    /// What was read of the preface; all of it where there is none.
    preface: usize,
    /// A header whose end has not come.
    header: [u8; HEADER],
    seen: usize,
    /// Payload that is collected.
    payload: Vec<u8>,
    block: Block,
    table: Table,
}

/// A block of fields under way.
#[derive(Clone, Debug, Default)]
struct Block {
    is_open: bool,
    /// The stream of its frames.
    carrier: u32,
    /// That of its message.
    stream: u32,
    ends_stream: bool,
    is_promise: bool,
    /// Some of it is missing, or it is too long.
    is_lost: bool,
    is_long: bool,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Preface,
    /// In a frame's header.
    Header,
    /// Before the byte that says how much padding follows; payload that is left.
    Padding(Frame, u32),
    /// In a body: data that is left, and padding.
    Data(Frame, u32, u32),
    /// Collecting: payload that is left.
    Collect(Frame, u32),
    /// Reading over: payload that is left.
    Skip(u32),
    /// Where the next frame begins is not known.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    length: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frame {
    fn read(header: &[u8]) -> Option<Frame> {
        let &[a, b, c, kind, flags, d, e, f, g] = header.first_chunk::<HEADER>()?;
        Some(Frame {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([d & 0x7f, e, f, g]),
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it may be sent so (RFC 9113, section 6). Kinds that are not known are read over.
    fn is_valid(&self) -> bool {
        let is_connection = self.stream == 0;
        match (self.kind, self.length) {
            (DATA | HEADERS | CONTINUATION, _) => !is_connection,
            (PUSH_PROMISE, length) => !is_connection && length >= 4,
            (2, length) => !is_connection && length == 5,
            (RST_STREAM, length) => !is_connection && length == 4,
            (SETTINGS, length) => is_connection && length % 6 == 0,
            (6, length) => is_connection && length == 8,
            (7, length) => is_connection && length >= 8,
            (8, length) => length == 4,
            _ => true,
        }
    }
}

/// Whether a piece of data begins as a frame does, and the next one where it should.
fn begins_frame(bytes: &[u8]) -> bool {
    let is_usual = |frame: &Frame| {
        frame.is_valid() && frame.kind <= CONTINUATION && frame.length <= USUAL_PAYLOAD
    };
    let Some(first) = Frame::read(bytes).filter(is_usual) else {
        return false;
    };
    let behind = bytes.get(HEADER + first.length as usize..);
    match behind.and_then(Frame::read) {
        Some(next) => is_usual(&next),
        None => true,
    }
}

/// Whether a direction begins as that of a server does: with its settings.
pub fn is_server(bytes: &[u8]) -> bool {
    let frame = Frame::read(bytes).filter(Frame::is_valid);
    frame.is_some_and(|it| it.kind == SETTINGS && it.flags == 0 && it.length <= 6 * 32)
}

impl Parser {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.payload.capacity() + self.block.bytes.capacity() + self.table.held()
    }

    /// Of a client, behind the head that HTTP/1 sees in its preface.
    pub fn client() -> Parser {
        Parser::default()
    }

    /// Of a server, or of a client behind its preface.
    pub fn server() -> Parser {
        Parser {
            state: State::Header,
            ..Parser::default()
        }
    }

    /// Whether where the next frame begins is not known.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// The next bytes of the stream.
    pub fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        if self.is_lost() && begins_frame(bytes) {
            self.state = State::Header;
            self.seen = 0;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Preface => self.preface(rest, events),
                State::Header => self.header(rest, events),
                State::Padding(frame, left) => {
                    self.padding(frame, left, u32::from(rest[0]), events);
                    1
                }
                State::Data(frame, data, padding) => {
                    let taken = (data as usize).min(rest.len());
                    if taken > 0 {
                        events.data(frame.stream, &rest[..taken]);
                    }
                    self.body(frame, data - taken as u32, padding, events);
                    taken
                }
                State::Collect(frame, left) => {
                    let taken = (left as usize).min(rest.len());
                    self.collect(&rest[..taken]);
                    self.collected(frame, left - taken as u32, events);
                    taken
                }
                State::Skip(left) => {
                    let taken = (left as usize).min(rest.len());
                    self.skip(left - taken as u32);
                    taken
                }
                State::Lost => rest.len(),
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: Events>(&mut self, missing: u64, events: &mut E) {
        if missing == 0 {
            return;
        }
        let fits = |left: u32| missing <= u64::from(left);
        match self.state {
            State::Data(frame, data, padding) if fits(data.saturating_add(padding)) => {
                let counted = (missing as u32).min(data);
                if counted > 0 {
                    events.missing(frame.stream, u64::from(counted));
                }
                let padding = padding - (missing as u32 - counted);
                self.body(frame, data - counted, padding, events);
            }
            State::Collect(frame, left) if fits(left) => {
                self.block.is_lost |= self.block.is_open;
                self.payload.clear();
                if frame.kind == RST_STREAM {
                    return self.skip(left - missing as u32);
                }
                self.collected(frame, left - missing as u32, events);
            }
            State::Skip(left) if fits(left) => self.skip(left - missing as u32),
            State::Lost => {}
            State::Data(frame, data, _) => {
                if data > 0 {
                    events.missing(frame.stream, u64::from(data));
                }
                self.lose(false, events);
            }
            _ => self.lose(false, events),
        }
    }

    fn lose<E: Events>(&mut self, is_bad: bool, events: &mut E) {
        self.table.lose();
        self.block = Block::default();
        self.payload.clear();
        self.state = State::Lost;
        events.lost(is_bad);
    }

    fn preface<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        let wanted = PREFACE_REST.get(self.preface..).unwrap_or_default();
        let taken = wanted.len().min(bytes.len());
        if bytes[..taken] != wanted[..taken] {
            self.lose(true, events);
            return bytes.len();
        }
        self.preface += taken;
        if self.preface == PREFACE_REST.len() {
            self.state = State::Header;
        }
        taken
    }

    fn header<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        if self.seen == 0 {
            events.frame();
        }
        let taken = (HEADER - self.seen).min(bytes.len());
        self.header[self.seen..self.seen + taken].copy_from_slice(&bytes[..taken]);
        self.seen += taken;
        if self.seen < HEADER {
            return taken;
        }
        self.seen = 0;
        let Some(frame) = Frame::read(&self.header).filter(Frame::is_valid) else {
            self.lose(true, events);
            return taken;
        };
        // Nothing may come between the parts of a block (section 6.2).
        let is_part = frame.kind == CONTINUATION && frame.stream == self.block.carrier;
        if self.block.is_open && !is_part {
            self.lose(true, events);
            return taken;
        }
        let is_padded = frame.has(PADDED);
        match frame.kind {
            DATA if is_padded && frame.length == 0 => self.lose(true, events),
            DATA if is_padded => self.state = State::Padding(frame, frame.length - 1),
            DATA => self.body(frame, frame.length, 0, events),
            HEADERS | PUSH_PROMISE | CONTINUATION | RST_STREAM => {
                self.payload.clear();
                if frame.kind != RST_STREAM && !self.block.is_open {
                    self.block.is_open = true;
                    self.block.carrier = frame.stream;
                    self.block.stream = frame.stream;
                    self.block.ends_stream = frame.kind == HEADERS && frame.has(END_STREAM);
                    self.block.is_promise = frame.kind == PUSH_PROMISE;
                    // The beginning of a block was in a hole.
                    self.block.is_lost = frame.kind == CONTINUATION;
                    self.block.is_long = false;
                    self.block.bytes.clear();
                }
                self.collected(frame, frame.length, events);
            }
            _ => self.skip(frame.length),
        }
        taken
    }

    fn padding<E: Events>(&mut self, frame: Frame, left: u32, padding: u32, events: &mut E) {
        match left.checked_sub(padding) {
            Some(data) => self.body(frame, data, padding, events),
            None => self.lose(true, events),
        }
    }

    fn body<E: Events>(&mut self, frame: Frame, data: u32, padding: u32, events: &mut E) {
        self.state = State::Data(frame, data, padding);
        if data == 0 {
            if frame.has(END_STREAM) {
                events.end(frame.stream);
            }
            self.skip(padding);
        }
    }

    fn skip(&mut self, left: u32) {
        self.state = match left {
            0 => State::Header,
            left => State::Skip(left),
        };
    }

    fn collect(&mut self, bytes: &[u8]) {
        if self.payload.len() + bytes.len() > MOST_BLOCK {
            self.block.is_lost |= self.block.is_open;
            self.block.is_long |= self.block.is_open;
            self.payload.clear();
        }
        if !self.block.is_lost {
            self.payload.extend_from_slice(bytes);
        }
    }

    /// So much of a frame's payload is left.
    fn collected<E: Events>(&mut self, frame: Frame, left: u32, events: &mut E) {
        if left > 0 {
            self.state = State::Collect(frame, left);
            return;
        }
        self.state = State::Header;
        if frame.kind == RST_STREAM {
            let code = self
                .payload
                .first_chunk::<4>()
                .map_or(0, |it| u32::from_be_bytes(*it));
            return events.reset(frame.stream, code);
        }
        if !self.block.is_lost {
            let Some(part) = part(&frame, &self.payload) else {
                return self.lose(true, events);
            };
            if let Some(promised) = part.promised {
                self.block.stream = promised;
            }
            if self.block.bytes.len() + part.bytes.len() > MOST_BLOCK {
                self.block.is_lost = true;
                self.block.is_long = true;
            } else {
                self.block.bytes.extend_from_slice(part.bytes);
            }
        }
        if frame.has(END_HEADERS) {
            self.block_over(events);
        }
    }

    fn block_over<E: Events>(&mut self, events: &mut E) {
        let mut block = core::mem::take(&mut self.block);
        let read = match block.is_lost {
            true => None,
            false => {
                let read = self
                    .table
                    .read(&block.bytes, |name, value| events.field(name, value));
                read.ok()
            }
        };
        if read.is_none() {
            self.table.lose();
        }
        events.block(&BlockEnd {
            stream: block.stream,
            ends_stream: block.ends_stream,
            is_promise: block.is_promise,
            is_read: read.is_some(),
            is_long: block.is_long,
            unknown: read.map_or(0, |it| it.unknown),
        });
        block.bytes.clear();
        self.block.bytes = block.bytes;
    }
}

/// What of a frame's payload belongs to its block.
struct Part<'a> {
    bytes: &'a [u8],
    promised: Option<u32>,
}

fn part<'a>(frame: &Frame, payload: &'a [u8]) -> Option<Part<'a>> {
    let mut bytes = payload;
    let mut promised = None;
    if frame.kind != CONTINUATION && frame.has(PADDED) {
        let (&padding, behind) = bytes.split_first()?;
        let end = behind.len().checked_sub(usize::from(padding))?;
        bytes = &behind[..end];
    }
    if frame.kind == HEADERS && frame.has(PRIORITY) {
        bytes = bytes.get(5..)?;
    }
    if frame.kind == PUSH_PROMISE {
        let (number, behind) = bytes.split_first_chunk::<4>()?;
        promised = Some(u32::from_be_bytes(*number) & 0x7fff_ffff);
        bytes = behind;
    }
    Some(Part { bytes, promised })
}
