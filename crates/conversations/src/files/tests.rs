//! Bodies, their bounds and what is said of them.

use super::*;
use std::io::Write as _;

fn files(decodes: bool) -> Files {
    files_in(decodes, 1 << 30)
}

fn files_in(decodes: bool, memory: u64) -> Files {
    let wanted = Wanted::read("md5, sha1,sha256").unwrap();
    Files::new(wanted, decodes, None, &Budget::new(memory))
}

/// Nothing is left of any file.
fn assert_over(files: &Files) {
    let table = locked(&files.table);
    assert_eq!(
        (
            table.decoding.len(),
            table.writing.len(),
            table.memory.used()
        ),
        (0, 0, 0)
    );
}

fn one(files: &mut Files, coding: Option<&[u8]>, bytes: &[u8], piece: usize) -> FileRow {
    let mut body = files.open("x", coding);
    bytes.chunks(piece).for_each(|piece| body.data(piece));
    let mut row = FileRow {
        is_whole: true,
        ..FileRow::default()
    };
    files.close(body, &mut row);
    row
}

fn said(files: &Files) -> Vec<String> {
    files.counted().iter().map(Counted::to_string).collect()
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
        assert_over(&files);
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
        0x8b, 0x05, 0x80, b'h', b'e', b'l', b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd', b'!',
        0x03,
    ];
    for piece in 1..bytes.len() {
        let row = one(&mut files(true), Some(b"br"), &bytes, piece);
        assert_eq!((row.decoded, row.bytes), (Some("yes"), 12), "{piece}");
        assert_eq!(row.md5.unwrap(), "fc3ff98e8c6a0d3087d515c0473f8677");
    }
}

#[test]
fn brotli_has_no_large_window() {
    // What is invalid in RFC 7932, section 9.1, and a window of 2^30 in some decoders.
    let row = one(&mut files(true), Some(b"br"), &[0x11, 0x1e, 0xff, 0xff], 4);
    assert_eq!(
        (row.decoded, row.bytes, row.limit),
        (Some("failed"), 0, None)
    );
}

#[test]
fn decoders_have_no_more_than_memory() {
    let hello = [
        0x8b, 0x05, 0x80, b'h', b'e', b'l', b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd', b'!',
        0x03,
    ];
    // A window of 4 MiB (2^22) does not fit into 1 MiB: the bytes are left as they came.
    let mut tight = files_in(true, 1 << 20);
    let row = one(&mut tight, Some(b"br"), &hello, 5);
    assert_eq!(
        (row.decoded, row.bytes, row.limit),
        (None, 16, Some("memory"))
    );
    assert!(row.is_whole);
    assert_eq!(
        said(&tight),
        [
            "1 file was not decoded for want of memory: decoders have 1M on each core; \
             hint: --memory with more than 8M for each core gives them more"
        ]
    );
    assert_over(&tight);
    // Of two that do not fit together the one ends that was idle.
    let mut files = files_in(true, 6 << 20);
    let mut idle = files.open("x", Some(b"br"));
    idle.data(&hello[..5]);
    let row = one(&mut files, Some(b"br"), &hello, 5);
    assert_eq!((row.decoded, row.limit), (Some("yes"), None));
    idle.data(&hello[5..]);
    let mut row = FileRow {
        is_whole: true,
        ..FileRow::default()
    };
    files.close(idle, &mut row);
    assert_eq!((row.decoded, row.limit), (Some("failed"), Some("memory")));
    assert!(!row.is_whole);
    assert_over(&files);
}

#[test]
fn decoders_that_failed_do_not_stop_others() {
    let mut files = files(true);
    let mut sound = files.open("x", Some(b"gzip"));
    let coded = gzip(b"all work");
    sound.data(&coded[..9]);
    let no_gzip: Vec<Body> = (0..2 * MOST_DECODED)
        .map(|number| {
            let mut body = files.open("x", Some(b"gzip"));
            if number % 2 == 0 {
                body.data(b"GIF89a, which is no gzip");
            } else {
                body.data(&coded[..4]);
                body.gap(1);
            }
            body
        })
        .collect();
    assert_eq!(locked(&files.table).decoding.len(), 1);
    sound.data(&coded[9..]);
    let mut row = FileRow::default();
    files.close(sound, &mut row);
    assert_eq!((row.decoded, row.limit), (Some("yes"), None));
    assert_eq!(said(&files), [""; 0]);
    drop(no_gzip);
    assert_over(&files);
}

#[test]
fn stalled_bodies_do_not_stop_others() {
    let mut files = files(true);
    let coded = gzip(b"all work");
    let mut stalled: Vec<Body> = (0..MOST_DECODED + 6)
        .map(|_| {
            let mut body = files.open("x", Some(b"gzip"));
            body.data(&coded[..1]);
            body
        })
        .collect();
    // They were idle longest that came first.
    let row = one(&mut files, Some(b"gzip"), &coded, 3);
    assert_eq!((row.decoded, row.limit), (Some("yes"), None));
    assert_eq!(locked(&files.table).cut.decoders, 7);
    assert!(said(&files)[0].starts_with("7 files were not decoded"));
    let last = stalled.pop().unwrap();
    for (body, expected) in [(stalled.remove(0), Some("decoders")), (last, None)] {
        let mut row = FileRow::default();
        files.close(body, &mut row);
        assert_eq!(row.limit, expected);
    }
    // Whoever is forgotten has nothing left.
    drop(stalled);
    assert_over(&files);
}

#[test]
fn stalled_files_are_ended_for_others() {
    let path = std::env::temp_dir().join(format!("flowgauge-files-{}", std::process::id()));
    let folder = Folder::new(&path, 100, 1 << 20);
    let mut files = Files::new(
        Wanted::default(),
        false,
        Some(folder),
        &Budget::new(1 << 20),
    );
    files.start().unwrap();
    let mut stalled: Vec<Body> = (0..MOST_OPEN).map(|_| files.open("stall", None)).collect();
    stalled[0].data(b"not idle");
    let row = one(&mut files, None, b"all of it", 4);
    assert_eq!((row.extracted_bytes, row.limit), (Some(9), None));
    let mut rows = stalled.drain(..2).map(|body| {
        let mut row = FileRow {
            is_whole: true,
            ..FileRow::default()
        };
        files.close(body, &mut row);
        row
    });
    let (busy, idle) = (rows.next().unwrap(), rows.next().unwrap());
    assert_eq!((busy.limit, busy.is_whole), (None, true));
    assert_eq!((idle.limit, idle.is_whole), (Some("files"), false));
    drop(rows);
    let row = one(&mut files, None, &[b'x'; 101], 50);
    assert_eq!(
        (row.extracted_bytes, row.limit),
        (Some(100), Some("file_limit"))
    );
    drop(stalled);
    assert_over(&files);
    std::fs::remove_dir_all(path).unwrap();
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
        assert_over(&files);
    }
}

#[test]
fn a_bomb_is_not_followed() {
    let bomb = gzip(&vec![0; 64 << 20]);
    let mut files = files(true);
    let row = one(&mut files, Some(b"gzip"), &bomb, 1460);
    assert_eq!((row.decoded, row.md5), (Some("bomb"), None));
    let bound = bomb.len() as u64 * GROWTH + GROWTH_FREE;
    assert!(row.bytes <= bound && row.bytes < 64 << 20, "{}", row.bytes);
    assert_over(&files);
}
