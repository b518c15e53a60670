//! Content codings, taken away while the bytes come.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::digests::{Digests, Wanted};
use super::folder::Stored;

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
    Coded(Coded),
    /// What was made before the bytes stopped making sense, and how that is called.
    Failed(Output, &'static str),
}

pub(super) enum Coded {
    Gzip(Box<GzDecoder<Output>>),
    Deflate(Box<Inflate>),
    Brotli(Box<DecompressorWriter<Output>>),
    /// Before its first byte, which tells more of it.
    Fresh(Coding, Option<Box<Output>>),
}

/// A content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// With or without a header of zlib's: its first byte tells.
    Deflate,
    /// Its first byte tells the size of its window.
    Brotli,
}

/// Bytes that a decoder of `gzip` or `deflate` keeps: its window, its tables and what it collects.
const INFLATE_BYTES: u64 = 96 << 10;
/// Bytes that a decoder of `br` keeps beside its window.
const BROTLI_BYTES: u64 = 256 << 10;

impl Coding {
    /// Of its name; of one that is not known none.
    pub(super) fn named(name: &[u8]) -> Option<Coding> {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Some(Coding::Gzip),
            b"deflate" => Some(Coding::Deflate),
            b"br" => Some(Coding::Brotli),
            _ => None,
        }
    }

    /// Bytes that its decoder may come to keep, as the first byte tells; none where it is malformed.
    fn bytes(self, first: u8) -> Option<u64> {
        match self {
            Coding::Gzip | Coding::Deflate => Some(INFLATE_BYTES),
            Coding::Brotli => Some(BROTLI_BYTES + (1 << brotli_window(first)?)),
        }
    }
}

/// The size of a brotli stream's window as a power of two (RFC 7932, section 9.1). What is invalid there announces
/// "large windows" of up to 2^30 in some decoders, which no content coding has.
fn brotli_window(first: u8) -> Option<u32> {
    let first = u32::from(first);
    match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => Some(16),
        (_, 0, 0) => Some(17),
        (_, 0, 1) => None,
        (_, 0, more) => Some(8 + more),
        (_, more, _) => Some(17 + more),
    }
}

impl Decoder {
    pub(super) fn plain(output: Output) -> Decoder {
        Decoder::Plain(output)
    }

    /// One of a content coding.
    pub(super) fn of(coding: Coding, output: Output) -> Decoder {
        Decoder::Coded(Coded::Fresh(coding, Some(Box::new(output))))
    }

    /// Bytes that it will keep once it is given what begins so, where that is still to be said.
    pub(super) fn wants(&self, bytes: &[u8]) -> Option<u64> {
        match (self, bytes.first()) {
            (Decoder::Coded(Coded::Fresh(coding, _)), Some(&first)) => coding.bytes(first),
            _ => None,
        }
    }

    /// Leaves its bytes as they come: nothing was decoded yet.
    pub(super) fn leave(&mut self) {
        if let Decoder::Coded(Coded::Fresh(_, output)) = self
            && let Some(output) = output.take()
        {
            *self = Decoder::Plain(*output);
        }
    }

    /// Ends early: what follows is not looked at.
    pub(super) fn stop(&mut self) {
        if matches!(self, Decoder::Coded(_)) {
            self.fail();
        }
    }

    /// What was made so far.
    pub(super) fn output(&mut self) -> Option<&mut Output> {
        match self {
            Decoder::Plain(output) | Decoder::Failed(output, _) => Some(output),
            Decoder::Coded(coded) => coded.output(),
        }
    }

    /// More bytes; of what they are coded from there may be `bound` by now.
    pub(super) fn data(&mut self, bytes: &[u8], bound: u64) {
        let Decoder::Coded(coded) = self else {
            if let Decoder::Plain(output) = self {
                output.take(bytes);
            }
            return;
        };
        if let Some(&first) = bytes.first()
            && !coded.begin(first)
        {
            return self.fail();
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
            Decoder::Coded(_) => self.fail(),
            Decoder::Failed(..) => {}
        }
    }

    fn fail(&mut self) {
        let nothing = Output::new(Wanted::default(), None);
        let this = core::mem::replace(self, Decoder::Plain(nothing));
        *self = match this {
            Decoder::Coded(coded) => {
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
            Decoder::Coded(coded) => coded.finish().is_ok() && !is_holed,
            _ => true,
        };
        if !is_done {
            self.fail();
        }
        match self {
            Decoder::Plain(output) => (output, None),
            Decoder::Failed(output, why) => (output, Some(why)),
            Decoder::Coded(coded) => (coded.give_up(), Some("yes")),
        }
    }
}

impl Coded {
    /// The first byte decides what is done. False: it is malformed.
    fn begin(&mut self, first: u8) -> bool {
        let Coded::Fresh(coding, output) = self else {
            return true;
        };
        if coding.bytes(first).is_none() {
            return false;
        }
        let Some(output) = output.take().map(|output| *output) else {
            return true;
        };
        *self = match coding {
            Coding::Gzip => Coded::Gzip(Box::new(GzDecoder::new(output))),
            Coding::Deflate => {
                let has_header = first & 0x0f == 8;
                Coded::Deflate(Box::new(Inflate::new(has_header, output)))
            }
            Coding::Brotli => Coded::Brotli(Box::new(DecompressorWriter::new(output, PIECE))),
        };
        true
    }

    fn output(&mut self) -> Option<&mut Output> {
        match self {
            Coded::Gzip(it) => Some(it.get_mut()),
            Coded::Deflate(it) => Some(&mut it.output),
            Coded::Brotli(it) => Some(it.get_mut()),
            Coded::Fresh(_, output) => output.as_deref_mut(),
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
            Coded::Fresh(..) => Ok(()),
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
            Coded::Fresh(Coding::Deflate, _) => Ok(()),
            Coded::Fresh(..) => Err(io::ErrorKind::UnexpectedEof.into()),
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
