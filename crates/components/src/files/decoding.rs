//! Content codings, taken away while the bytes come.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::digests::{Digests, Wanted};
use super::folder::Stored;
use super::room::{Room, Taken};

/// Bytes by which a file's type is told.
const BEGIN: usize = 512;
/// What a decoder collects before it writes.
const PIECE: usize = 16 << 10;

/// Where the bytes of a file go.
pub(super) struct Output {
    pub(super) digests: Digests,
    pub(super) store: Option<Stored>,
    pub(super) begin: Vec<u8>,
    pub(super) bytes: u64,
    /// As many there may be now.
    bound: u64,
    /// There were more.
    is_over: bool,
}

impl Output {
    pub(super) fn new(wanted: Wanted, store: Option<Stored>) -> Output {
        Output {
            digests: Digests::new(wanted),
            store,
            begin: Vec::new(),
            bytes: 0,
            bound: 0,
            is_over: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let more = BEGIN - self.begin.len();
        if more > 0 {
            self.begin
                .extend_from_slice(&bytes[..bytes.len().min(more)]);
        }
        self.bytes += bytes.len() as u64;
        self.digests.data(bytes);
        if let Some(store) = &mut self.store {
            store.data(bytes);
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.bound.saturating_sub(self.bytes);
        if bytes.len() as u64 > room {
            self.is_over = true;
            return Err(io::Error::other("it grows too much"));
        }
        self.take(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a file is coded. The decoders are large.
pub(super) enum Decoder {
    Plain(Output),
    Coded(Coded, Option<Taken>),
    /// What was made before the bytes stopped making sense, and how that is called.
    Failed(Output, &'static str),
}

pub(super) enum Coded {
    Gzip(Box<GzDecoder<Output>>),
    Deflate(Box<Inflate>),
    Brotli(Box<DecompressorWriter<Output>>),
    /// Before its first byte, which tells how much memory it takes, and of `deflate` whether it has a
    /// header of zlib's.
    Unread(Coding, Option<Box<Output>>),
}

/// A content coding that is known (RFC 9110, section 8.4.1).
#[derive(Clone, Copy)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

impl Coding {
    fn named(name: &[u8]) -> Option<Coding> {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Some(Coding::Gzip),
            b"deflate" => Some(Coding::Deflate),
            b"br" => Some(Coding::Brotli),
            _ => None,
        }
    }

    /// Bytes of memory that a decoder may take, by the first byte that it gets.
    fn memory(self, first: u8) -> u64 {
        // A window of 32 KB, tables, and what is collected.
        const INFLATE: u64 = 96 << 10;
        let Coding::Brotli = self else {
            return INFLATE;
        };
        // RFC 7932, section 9.1.
        let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
            (0, ..) => 16,
            (_, 0, 0) => 17,
            (_, 0, more) => 8 + more,
            (_, more, _) => 17 + more,
        };
        (1 << bits) + (128 << 10)
    }
}

impl Decoder {
    pub(super) fn plain(output: Output) -> Decoder {
        Decoder::Plain(output)
    }

    /// One of a content coding; of one that is not known none.
    pub(super) fn of(coding: &[u8], output: Output) -> Decoder {
        match Coding::named(coding) {
            Some(coding) => Decoder::Coded(Coded::Unread(coding, Some(Box::new(output))), None),
            None => Decoder::Plain(output),
        }
    }

    pub(super) fn is_coded(&self) -> bool {
        !matches!(self, Decoder::Plain(_))
    }

    /// More bytes; of what they are coded from there may be `bound` by now. Where `room` has no memory for
    /// a decoder, they stay coded.
    pub(super) fn data(&mut self, bytes: &[u8], bound: u64, room: &Room) {
        let Decoder::Coded(coded, memory) = self else {
            if let Decoder::Plain(output) = self {
                output.take(bytes);
            }
            return;
        };
        if let (Coded::Unread(coding, output), Some(&first)) = (&mut *coded, bytes.first())
            && let Some(output) = output.take()
        {
            *memory = room.take(coding.memory(first));
            if memory.is_none() {
                *self = Decoder::Plain(*output);
                return self.data(bytes, bound, room);
            }
            *coded = match coding {
                Coding::Gzip => Coded::Gzip(Box::new(GzDecoder::new(*output))),
                Coding::Deflate => {
                    let has_header = first & 0x0f == 8;
                    Coded::Deflate(Box::new(Inflate::new(has_header, *output)))
                }
                Coding::Brotli => Coded::Brotli(Box::new(DecompressorWriter::new(*output, PIECE))),
            };
        }
        if coded.write(bytes, bound).is_err() {
            self.fail();
        }
    }

    /// What follows a hole cannot be decoded.
    pub(super) fn gap(&mut self, bytes: u64) {
        match self {
            Decoder::Plain(output) => {
                if let Some(store) = &mut output.store {
                    store.gap(bytes);
                }
            }
            Decoder::Coded(..) => self.fail(),
            Decoder::Failed(..) => {}
        }
    }

    fn fail(&mut self) {
        let nothing = Output::new(Wanted::default(), None);
        let this = core::mem::replace(self, Decoder::Plain(nothing));
        *self = match this {
            Decoder::Coded(coded, _) => {
                let output = coded.give_up();
                let why = if output.is_over { "bomb" } else { "failed" };
                Decoder::Failed(output, why)
            }
            other => other,
        };
    }

    /// All came. Returns what was made of it, and what decoding came to.
    pub(super) fn finish(mut self, is_holed: bool) -> (Output, Option<&'static str>) {
        let is_done = match &mut self {
            Decoder::Coded(coded, _) => coded.finish().is_ok() && !is_holed,
            _ => true,
        };
        if !is_done {
            self.fail();
        }
        match self {
            Decoder::Plain(output) => (output, None),
            Decoder::Failed(output, why) => (output, Some(why)),
            Decoder::Coded(coded, _) => (coded.give_up(), Some("yes")),
        }
    }
}

impl Coded {
    fn output(&mut self) -> Option<&mut Output> {
        match self {
            Coded::Gzip(it) => Some(it.get_mut()),
            Coded::Deflate(it) => Some(&mut it.output),
            Coded::Brotli(it) => Some(it.get_mut()),
            Coded::Unread(_, output) => output.as_deref_mut(),
        }
    }

    fn write(&mut self, bytes: &[u8], bound: u64) -> io::Result<()> {
        if let Some(output) = self.output() {
            output.bound = bound;
        }
        let written = match self {
            Coded::Gzip(it) => it.write_all(bytes),
            Coded::Deflate(it) => it.data(bytes),
            Coded::Brotli(it) => it.write_all(bytes),
            Coded::Unread(..) => Ok(()),
        };
        match written {
            // It had come to its end; what follows is none of it.
            Err(error) if error.kind() == io::ErrorKind::WriteZero => Ok(()),
            written => written,
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Coded::Gzip(it) => it.try_finish(),
            Coded::Deflate(it) if it.is_over => Ok(()),
            Coded::Deflate(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Coded::Brotli(it) => it.close(),
            Coded::Unread(Coding::Deflate, _) => Ok(()),
            Coded::Unread(..) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// What was made so far.
    fn give_up(mut self) -> Output {
        let nothing = Output::new(Wanted::default(), None);
        match self.output() {
            Some(output) => core::mem::replace(output, nothing),
            None => nothing,
        }
    }
}

/// `deflate`. The writer of `flate2` does not say whether its stream came to its end.
pub(super) struct Inflate {
    state: Decompress,
    buffer: Vec<u8>,
    output: Output,
    is_over: bool,
}

impl Inflate {
    fn new(has_header: bool, output: Output) -> Inflate {
        Inflate {
            state: Decompress::new(has_header),
            buffer: vec![0; PIECE],
            output,
            is_over: false,
        }
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !self.is_over {
            let before = (self.state.total_in(), self.state.total_out());
            let flush = FlushDecompress::None;
            let status = self.state.decompress(rest, &mut self.buffer, flush);
            let status = status.map_err(io::Error::other)?;
            let taken = (self.state.total_in() - before.0) as usize;
            let made = (self.state.total_out() - before.1) as usize;
            rest = rest.get(taken..).unwrap_or_default();
            let made = self.buffer.get(..made).unwrap_or_default();
            self.output.write_all(made)?;
            self.is_over = status == Status::StreamEnd;
            if taken == 0 && made.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
