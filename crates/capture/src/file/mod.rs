//! Capture files: formats, compression, several files as one.
//!
//! [`open`] detects the format by the first bytes, never by the name: pcap in all its variants, pcapng, snoop and ERF,
//! plain or compressed with gzip or zstd, from a file, a pipe or standard input (`-`).
//!
//! A batch's descriptors point directly into a window of the file (see `input`): the page cache if the file can be
//! mapped and mapping does not turn out to cost more than reading (`trial`), otherwise a reused buffer, in which
//! nothing is copied except a record that crosses the buffer's end.

mod erf;
mod input;
mod multi;
mod order;
mod pattern;
mod pcap;
mod pcapng;
mod pipe;
mod snoop;
mod source;
mod trial;
mod windows;

pub use multi::{MultiSource, expand, open_all};
pub(crate) use source::{MAX_PACKET_BYTES, wire_bytes};
pub use windows::bound_windows;

use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flowgauge_sys::files::{self, How};

use crate::error::Error;
use crate::file::erf::Erf;
use crate::file::input::{Input, READ_BYTES, is_long};
use crate::file::pcapng::PcapNg;
use crate::file::pipe::Pipe;
use crate::file::snoop::Snoop;
use crate::file::source::{BatchReader, FileSource, Format};
use crate::file::windows::{Refusal, Unzstd};
use crate::source::PacketSource;

/// Both faces of a file's source.
pub(crate) trait AnyFile: PacketSource + BatchReader {}
impl<T: PacketSource + BatchReader> AnyFile for T {}

/// Opens a capture file, or standard input for `-`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or read, [`Error::NotACapture`] if its format is unknown or not
/// supported, [`Error::Damaged`] if it ends inside its header.
pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn PacketSource + Send>, Error> {
    Ok(open_with(path.as_ref(), READ_BYTES)?)
}

/// Whether a file is mapped: a long regular one without compression. Reading it twice at the same time costs little.
pub fn is_mapped(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let mut magic = [0; 4];
    path != Path::new("-")
        && files::named()
            .metadata(path)
            .is_ok_and(|file| file.is_file() && is_long(file.len()))
        && files::named()
            .open(path, How::read())
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok()
        && !is_compressed(&magic)
}

/// Reads a capture from any reader; `name` is used in messages.
///
/// # Errors
/// As [`open`].
pub fn open_reader(
    reader: impl Read + Send + 'static,
    name: impl AsRef<Path>,
) -> Result<Box<dyn PacketSource + Send>, Error> {
    Ok(open_input(Input::new(
        Box::new(reader),
        name.as_ref(),
        READ_BYTES,
    ))?)
}

pub(crate) fn open_with(path: &Path, buffer: usize) -> Result<Box<dyn AnyFile>, Error> {
    let is_standard = path == Path::new("-");
    let opened = if is_standard {
        pipe::standard_input()
    } else {
        pipe::open_file(path)
    };
    let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened.map_err(Error::io("open", path))?;
    if metadata.is_dir() {
        return Err(refused(path, "it is a directory"));
    }
    open_input(if !metadata.is_file() {
        Input::new(Box::new(Pipe::from(file)), path, buffer)
    } else if is_standard || buffer < READ_BYTES {
        // Standard input goes on from where it stands; a smaller buffer is one of many, or for a short look.
        Input::new(Box::new(file), path, buffer).at_hand(true)
    } else {
        Input::of_file(file, path, buffer)
    })
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Whether bytes begin as gzip or zstd does: a standard frame, or a skippable one in front of it.
fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(GZIP)
        || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Finds out the format and hands the input to it, decompressing on the way.
fn open_input(mut input: Input) -> Result<Box<dyn AnyFile>, Error> {
    // Two layers, because some tools compress what is compressed already; not endlessly.
    for _ in 0..2 {
        input.fill(4)?;
        let path = input.path().to_owned();
        let at_hand = input.is_at_hand();
        let window = input.window();
        if !is_compressed(window) {
            break;
        }
        // The longest header of a frame of zstd, where there is that much.
        input.fill(18)?;
        let window = input.window();
        let gzip = window.starts_with(GZIP);
        let begin = window.get(..18).unwrap_or(window).to_vec();
        let (read, rest) = input.into_parts();
        let packed = BufReader::with_capacity(READ_BYTES / 4, Cursor::new(read).chain(rest));
        let unpacked: Box<dyn Read + Send> = if gzip {
            Box::new(flate2::bufread::MultiGzDecoder::new(packed))
        } else {
            let decoder = Unzstd::new(&begin, packed).map_err(|refusal| match refusal {
                Refusal::Io(source) => source,
                Refusal::Window(window, limit) => io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    format!(
                        "it needs a window of {} MiB, and all compressed files that are open have {} MiB",
                        window >> 20,
                        limit >> 20
                    ),
                ),
            });
            Box::new(decoder.map_err(Error::io("decompress", &path))?)
        };
        input = Input::new(unpacked, &path, READ_BYTES).at_hand(at_hand);
    }
    open_format(input)
}

fn open_format(mut input: Input) -> Result<Box<dyn AnyFile>, Error> {
    // Not more than a short capture has: a pipe may stay silent after it.
    input.fill(24)?;
    match pcap::open(input.window()) {
        pcap::Opened::Little(format, header) => return behind_header(input, format, header),
        pcap::Opened::Big(format, header) => return behind_header(input, format, header),
        pcap::Opened::Refused(reason) => return Err(refused(input.path(), &reason)),
        pcap::Opened::Short => return Err(short(&input)),
        pcap::Opened::Other => {}
    }
    if PcapNg::matches(input.window()) {
        let source = FileSource::new(input, PcapNg::default());
        return Ok(Box::new(source.with_first_interfaces()?));
    }
    if input.window().starts_with(snoop::MAGIC) {
        if input.window().len() < snoop::HEADER_BYTES {
            return Err(short(&input));
        }
        let format = Snoop::new(input.window()).map_err(|reason| refused(input.path(), &reason))?;
        return behind_header(input, format, snoop::HEADER_BYTES);
    }
    // No magic: only the looks of the first records speak for it, so it comes last.
    if Erf::matches(input.window()) {
        return Ok(Box::new(
            FileSource::new(input, Erf::default()).with_first_interfaces()?,
        ));
    }
    Err(unknown(&input))
}

fn behind_header<F: Format + 'static>(
    mut input: Input,
    format: F,
    header: usize,
) -> Result<Box<dyn AnyFile>, Error> {
    input.fill(header)?;
    input.consume(header);
    Ok(Box::new(FileSource::new(input, format)))
}

fn short(input: &Input) -> Error {
    if input.is_stopped() {
        return stopped(input);
    }
    Error::Damaged {
        path: input.path().to_owned(),
        offset: input.window().len() as u64,
        reason: "the file ends inside its header".to_owned(),
        truncated: true,
    }
}

/// The process is to end, and there was no capture yet.
fn stopped(input: &Input) -> Error {
    Error::io("read", input.path())(io::Error::new(
        io::ErrorKind::Interrupted,
        "the run was ended before a capture came",
    ))
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::NotACapture {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Says what the file is instead, where that can be told.
fn unknown(input: &Input) -> Error {
    if input.is_stopped() {
        return stopped(input);
    }
    let bytes = input.window();
    let head = bytes.get(..16).unwrap_or(bytes);
    if bytes.is_empty() {
        return refused(input.path(), "it is empty");
    }
    let known: [(&[u8], &str); 9] = [
        (
            b"BZh",
            "it is compressed with bzip2: unpack it first (bzip2 -dc FILE | ... -r -)",
        ),
        (
            b"\xfd7zXZ\0",
            "it is compressed with xz: unpack it first (xz -dc FILE | ... -r -)",
        ),
        (
            b"\x04\x22\x4d\x18",
            "it is compressed with lz4: unpack it first (lz4 -dc FILE | ... -r -)",
        ),
        (b"PK\x03\x04", "it is a zip archive: unpack it first"),
        (b"7z\xbc\xaf", "it is a 7z archive: unpack it first"),
        (
            b"GMBU",
            "it is a Microsoft Network Monitor capture: convert it with editcap",
        ),
        (
            b"RTSS",
            "it is a Microsoft Network Monitor capture: convert it with editcap",
        ),
        (b"XCP\0", "it is a NetXray capture: convert it with editcap"),
        (b"\x7fELF", "it is a program"),
    ];
    if let Some((_, reason)) = known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return refused(input.path(), reason);
    }
    let sample = bytes.get(..512).unwrap_or(bytes);
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
    if sample.iter().all(is_text) {
        let line = sample.split(|byte| *byte == b'\n').next().unwrap_or(sample);
        let line = String::from_utf8_lossy(line.get(..40).unwrap_or(line));
        return refused(
            input.path(),
            &format!("it is text, beginning with {line:?}"),
        );
    }
    refused(
        input.path(),
        &format!("no known format begins with {head:02x?}"),
    )
}
