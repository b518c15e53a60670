//! What is transferred as a file: digests of it, its type, and the file itself, in a folder.
//!
//! A protocol that meets a file opens a [`Body`], gives it the bytes in their order and says of holes, and
//! gets [`Facts`] at the end, for the record. Nothing here knows what carried it.
//!
//! # Bounds
//! Of bodies that are decoded, some hundred times as much is made as came, and no more
//! ([`GROWTH`]); of those that are written, so much each and so much together as the options say. No more
//! than [`MOST_DECODED`] are decoded at once and [`MOST_OPEN`] written, on each core; decoders have a share of
//! `memory` ([`share`]), and bodies stay coded where that is used up.

mod decoding;
mod digests;
mod folder;
mod kind;
mod room;

use std::path::Path;

use flowgauge_record::file::FileRow;
use flowgauge_stack::{Failure, OptionInfo, OptionKind, SettingError, Settings};

use decoding::{Decoder, Output};
pub(crate) use digests::Wanted;
use folder::Folder;
use room::Room;

/// Bytes that decoding may make of one byte.
const GROWTH: u64 = 100;
/// Bytes that it may make of however few.
const GROWTH_FREE: u64 = 1 << 20;
/// Bodies that are decoded at once: each keeps a window, of Brotli up to 16 MB.
const MOST_DECODED: u32 = 64;
/// Bytes of memory for decoders on each core, where no bound for memory is set.
const ROOM: u64 = 256 << 20;
/// Which part of `memory` is theirs.
const SHARE: u64 = 8;
/// Files that are written at once.
const MOST_OPEN: u32 = 128;

/// Give a record of each file.
pub(crate) const FILES: OptionInfo = OptionInfo::new(
    "files",
    OptionKind::Flag,
    "give a record of each file that is transferred (bodies of HTTP, data connections of FTP), too",
)
.or("no");
/// Digests.
pub(crate) const DIGESTS: OptionInfo = OptionInfo::new(
    "digests",
    OptionKind::Text,
    "digests of files in those records: md5, sha1, sha256, with commas between",
);
/// Folder.
pub(crate) const EXTRACT: OptionInfo = OptionInfo::new(
    "extract",
    OptionKind::Text,
    "write each file into this folder, which is made if it is not there; the record says its name",
);
/// Decoding.
pub(crate) const DECODE: OptionInfo = OptionInfo::new(
    "decode",
    OptionKind::Flag,
    "take content codings away before: gzip, deflate, br",
)
.or("no");
/// Most bytes of a file.
pub(crate) const FILE_LIMIT: OptionInfo = OptionInfo::new(
    "file_limit",
    OptionKind::Size,
    "bytes of a file that are written; it is cut off behind them",
)
.or("100M");
/// Most bytes of all.
pub(crate) const EXTRACT_LIMIT: OptionInfo = OptionInfo::new(
    "extract_limit",
    OptionKind::Size,
    "bytes of all files together that are written",
)
.or("10G");

/// Bytes of the option `memory` that decoders have, on all cores together.
pub(crate) fn share(settings: &Settings) -> u64 {
    match settings.size("memory").filter(|_| settings.flag("decode")) {
        Some(memory) => memory / SHARE,
        None => 0,
    }
}

/// What is done with files, on one core.
pub(crate) struct Files {
    wanted: Wanted,
    decodes: bool,
    folder: Option<Folder>,
    /// Bodies that are decoded now.
    decoding: u32,
    room: Room,
    failure: Option<Failure>,
}

impl Files {
    /// As options say; none: nothing is to be done.
    ///
    /// # Errors
    /// An unknown digest.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Files>, SettingError> {
        let wanted = match settings.text("digests") {
            Some(text) => Wanted::read(text)?,
            None => Wanted::default(),
        };
        let folder = settings.text("extract");
        let is_wanted = settings.flag("files") || wanted != Wanted::default() || folder.is_some();
        let file_limit = settings.size("file_limit").unwrap_or(u64::MAX);
        let all_limit = settings.size("extract_limit").unwrap_or(u64::MAX);
        let room = match settings.size("memory") {
            Some(_) => share(settings) / settings.copies() as u64,
            None => ROOM,
        };
        Ok(is_wanted.then(|| Files {
            room: Room::new(room),
            wanted,
            decodes: settings.flag("decode"),
            folder: folder.map(|path| Folder::new(Path::new(path), file_limit, all_limit)),
            decoding: 0,
            failure: None,
        }))
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        match &mut self.folder {
            Some(folder) => folder.open(),
            None => Ok(()),
        }
    }

    /// Why nothing can be written any more; told once.
    pub(crate) fn failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// A file begins. `name` is what a file of its own would be called: letters, digits and hyphens.
    pub(crate) fn open(&mut self, name: &str, coding: Option<&[u8]>) -> Body {
        let store =
            (self.folder.as_mut()).and_then(|folder| folder.create(name, &mut self.failure));
        let output = Output::new(self.wanted, store);
        let decoder = match coding.filter(|_| self.decodes && self.decoding < MOST_DECODED) {
            Some(coding) => Decoder::of(coding, output),
            None => Decoder::plain(output),
        };
        let is_counted = decoder.is_coded();
        self.decoding += u32::from(is_counted);
        Body {
            is_counted,
            room: self.room.clone(),
            decoder,
            encoded: 0,
            missing: 0,
        }
    }

    /// A file is over: its record gets what is known of it.
    pub(crate) fn close(&mut self, body: Body, row: &mut FileRow) {
        self.decoding -= u32::from(body.is_counted);
        let (output, decoded) = body.decoder.finish(body.missing > 0);
        row.decoded = decoded;
        row.bytes = output.bytes;
        row.missing_bytes = body.missing;
        row.mime_type = kind::of(&output.begin);
        if body.missing == 0 && !matches!(decoded, Some("failed" | "bomb")) {
            let [md5, sha1, sha256] = output.digests.finish();
            row.md5 = md5;
            row.sha1 = sha1;
            row.sha256 = sha256;
        }
        if let (Some(store), Some(folder)) = (output.store, &mut self.folder) {
            let (name, bytes) = folder.close(store, &mut self.failure);
            row.extracted = Some(name);
            row.extracted_bytes = Some(bytes);
        }
    }
}

/// A file under way.
pub(crate) struct Body {
    decoder: Decoder,
    /// It counts as one that is decoded.
    is_counted: bool,
    room: Room,
    /// Bytes that came.
    encoded: u64,
    missing: u64,
}

impl Body {
    /// More of it.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        self.encoded += bytes.len() as u64;
        let bound = self
            .encoded
            .saturating_mul(GROWTH)
            .saturating_add(GROWTH_FREE);
        self.decoder.data(bytes, bound, &self.room);
    }

    /// So many bytes are missing here.
    pub(crate) fn gap(&mut self, bytes: u64) {
        self.missing += bytes;
        self.decoder.gap(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn files(decodes: bool) -> Files {
        Files {
            wanted: Wanted::read("md5, sha1,sha256").unwrap(),
            decodes,
            folder: None,
            decoding: 0,
            room: Room::new(ROOM),
            failure: None,
        }
    }

    fn one(files: &mut Files, coding: Option<&[u8]>, bytes: &[u8], piece: usize) -> FileRow {
        let mut body = files.open("x", coding);
        bytes.chunks(piece).for_each(|piece| body.data(piece));
        let mut row = FileRow::default();
        files.close(body, &mut row);
        row
    }

    #[test]
    fn digests_are_those_of_the_test_vectors() {
        let row = one(&mut files(false), None, b"abc", 2);
        assert_eq!(row.md5.unwrap(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            row.sha1.unwrap(),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert_eq!(
            row.sha256.unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!((row.bytes, row.decoded), (3, None));
        assert!(Wanted::read("md5,crc").is_err());
    }

    #[test]
    fn a_hole_leaves_no_digest() {
        let mut files = files(false);
        let mut body = files.open("x", None);
        body.data(b"ab");
        body.gap(3);
        body.data(b"f");
        let mut row = FileRow::default();
        files.close(body, &mut row);
        assert_eq!((row.bytes, row.missing_bytes, row.md5), (3, 3, None));
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn codings_are_taken_away_in_any_pieces() {
        let plain = b"all work and no play makes Jack a dull boy. ".repeat(20);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&plain).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(&plain).unwrap();
        let expected = one(&mut files(false), None, &plain, 100).sha256;
        for (coding, bytes) in [
            ("gzip", gzip(&plain)),
            ("x-gzip", gzip(&plain)),
            ("deflate", zlib.finish().unwrap()),
            ("Deflate", raw.finish().unwrap()),
        ] {
            let mut files = files(true);
            for piece in [1, 2, 7, bytes.len()] {
                let row = one(&mut files, Some(coding.as_bytes()), &bytes, piece);
                assert_eq!(row.decoded, Some("yes"), "{coding} {piece}");
                assert_eq!(row.sha256, expected, "{coding} {piece}");
                assert_eq!(row.bytes, plain.len() as u64);
            }
            // Cut off: what there is of it was decoded, and that is said.
            let row = one(
                &mut files,
                Some(coding.as_bytes()),
                &bytes[..bytes.len() / 2],
                9,
            );
            assert_eq!(
                (row.decoded, row.sha256),
                (Some("failed"), None),
                "{coding}"
            );
            assert_eq!(files.decoding, 0);
        }
        let row = one(&mut files(true), Some(b"gzip"), b"no gzip at all", 3);
        assert_eq!(row.decoded, Some("failed"));
        // Of what is not asked to be decoded the bytes that came count.
        let row = one(&mut files(false), Some(b"gzip"), &gzip(b"x"), 99);
        assert_eq!(
            (row.decoded, row.mime_type),
            (None, Some("application/gzip"))
        );
    }

    #[test]
    fn brotli_is_known() {
        // Twelve bytes as they are (RFC 7932, section 9.2).
        let bytes = [
            0x8b, 0x05, 0x80, b'h', b'e', b'l', b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd',
            b'!', 0x03,
        ];
        for piece in 1..bytes.len() {
            let row = one(&mut files(true), Some(b"br"), &bytes, piece);
            assert_eq!((row.decoded, row.bytes), (Some("yes"), 12), "{piece}");
            assert_eq!(row.md5.unwrap(), "fc3ff98e8c6a0d3087d515c0473f8677");
        }
    }

    proptest::proptest! {
        /// Whatever is said to be coded, in whatever pieces, with and without a hole.
        #[test]
        fn any_bytes_can_come(
            bytes: Vec<u8>,
            plain: Vec<u8>,
            flip: proptest::sample::Index,
            to: u8,
            piece in 1_usize..40,
            hole: bool,
        ) {
            let mut damaged = gzip(&plain);
            let at = flip.index(damaged.len());
            damaged[at] = to;
            let mut brotli = vec![0x8b, 0x05, 0x80];
            brotli.extend_from_slice(&bytes);
            let mut files = files(true);
            for bytes in [&bytes, &damaged, &brotli] {
                for coding in ["gzip", "deflate", "br", "identity"] {
                    let mut body = files.open("x", Some(coding.as_bytes()));
                    for piece in bytes.chunks(piece) {
                        body.data(piece);
                    }
                    if hole {
                        body.gap(1);
                        body.data(b"behind");
                    }
                    let mut row = FileRow::default();
                    files.close(body, &mut row);
                    let bound = (bytes.len() as u64 + 6) * GROWTH + GROWTH_FREE;
                    assert!(row.bytes <= bound && !(hole && row.sha256.is_some()));
                }
            }
            assert_eq!(files.decoding, 0);
        }
    }

    #[test]
    fn without_memory_for_a_decoder_bodies_stay_coded() {
        let mut files = files(true);
        // For one of gzip, and none of Brotli with its window of 4 MB.
        files.room = Room::new(100 << 10);
        let coded = gzip(b"text");
        let mut first = files.open("x", Some(b"gzip"));
        first.data(&coded[..5]);
        let second = one(&mut files, Some(b"gzip"), &coded, 3);
        assert_eq!((second.decoded, second.bytes), (None, coded.len() as u64));
        assert_eq!(second.mime_type, Some("application/gzip"));
        first.data(&coded[5..]);
        let mut row = FileRow::default();
        files.close(first, &mut row);
        assert_eq!((row.decoded, row.bytes), (Some("yes"), 4));
        let large = one(&mut files, Some(b"br"), &[0x1b, 0, 0], 1);
        assert_eq!((large.decoded, large.bytes), (None, 3));
        // Its memory is there again.
        let third = one(&mut files, Some(b"gzip"), &coded, 3);
        assert_eq!(third.decoded, Some("yes"));
        assert_eq!(files.decoding, 0);
    }

    #[test]
    fn a_bomb_is_not_followed() {
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut files = files(true);
        let row = one(&mut files, Some(b"gzip"), &bomb, 1460);
        assert_eq!((row.decoded, row.md5), (Some("bomb"), None));
        let bound = bomb.len() as u64 * GROWTH + GROWTH_FREE;
        assert!(row.bytes <= bound && row.bytes < 64 << 20, "{}", row.bytes);
        assert_eq!(files.decoding, 0);
    }
}
