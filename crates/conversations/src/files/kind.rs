//! What a file is, by how it begins.

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};

/// Beginnings, from this place, and the type.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"BM", "image/x-ms-bmp"),
    (0, b"\0\0\x01\0", "image/x-icon"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"%!PS", "application/postscript"),
    (0, b"{\\rtf", "text/rtf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/x-rar"),
    (0, b"MSCF\0\0\0\0", "application/vnd.ms-cab-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/msword"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/x-dosexec"),
    (0, b"\xca\xfe\xba\xbe", "application/x-java-applet"),
    (0, b"FWS", "application/x-shockwave-flash"),
    (0, b"CWS", "application/x-shockwave-flash"),
    (0, b"\0asm", "application/wasm"),
    (0, b"wOFF", "application/font-woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"\0\x01\0\0", "application/x-font-ttf"),
    (0, b"OTTO", "application/vnd.ms-opentype"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "application/ogg"),
    (0, b"fLaC", "audio/x-flac"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"FLV\x01", "video/x-flv"),
    (0, b"SQLite format 3\0", "application/x-sqlite3"),
    (0, b"\xd4\xc3\xb2\xa1", "application/vnd.tcpdump.pcap"),
    (0, b"\xa1\xb2\xc3\xd4", "application/vnd.tcpdump.pcap"),
    (0, b"#!", "text/x-shellscript"),
    (0, b"-----BEGIN ", "application/x-pem"),
];

/// Tags with which a page begins, in lower case.
const TAGS: [&[u8]; 9] = [
    b"<!doctype html",
    b"<html",
    b"<head",
    b"<body",
    b"<title",
    b"<script",
    b"<table",
    b"<h1",
    b"<div",
];

/// Bytes that are decoded to tell what a coded file is.
const DECODED: usize = 512;

/// The type of a body with this beginning and content coding, as it is behind the coding.
pub(crate) fn of_coded(begin: &[u8], coding: Option<&[u8]>) -> Option<&'static str> {
    let Some(coding) = coding else {
        return of(begin);
    };
    let mut decoded = [0; DECODED];
    let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
    let count = if is("gzip") || is("x-gzip") {
        filled(GzDecoder::new(begin), &mut decoded)
    } else if is("deflate") {
        // As it was meant, and as some send it (RFC 9110, section 8.4.1.2).
        match filled(ZlibDecoder::new(begin), &mut decoded) {
            0 => filled(DeflateDecoder::new(begin), &mut decoded),
            count => count,
        }
    } else if is("identity") {
        return of(begin);
    } else {
        0
    };
    of(&decoded[..count])
}

/// How many bytes a decoder gives.
fn filled(mut decoder: impl std::io::Read, buffer: &mut [u8]) -> usize {
    let mut count = 0;
    while let Some(rest @ [_, ..]) = buffer.get_mut(count..) {
        match decoder.read(rest) {
            Ok(more @ 1..) => count += more,
            // It ends, or makes no sense further on.
            Ok(0) | Err(_) => break,
        }
    }
    count
}

/// By first byte: the signatures that can be there, as bits by place in [`SIGNATURES`].
static BY_FIRST_BYTE: [u64; 256] = {
    let mut places = [0; 256];
    let mut at = 0;
    while at < SIGNATURES.len() {
        let mut byte = 0;
        while byte < 256 {
            let can_be = SIGNATURES[at].0 > 0 || SIGNATURES[at].1[0] as usize == byte;
            places[byte] |= (can_be as u64) << at;
            byte += 1;
        }
        at += 1;
    }
    places
};

/// The type of a file with this beginning (as WHATWG's MIME Sniffing has it, with the names of Zeek's logs);
/// none: of nothing that is known.
pub(crate) fn of(begin: &[u8]) -> Option<&'static str> {
    let mut left = BY_FIRST_BYTE[usize::from(*begin.first()?)];
    while left != 0 {
        let (at, bytes, name) = SIGNATURES.get(left.trailing_zeros() as usize)?;
        if begin.get(*at..).is_some_and(|rest| rest.starts_with(bytes)) {
            return Some(name);
        }
        left &= left - 1;
    }
    let text = begin
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(begin)
        .trim_ascii_start();
    let starts = |tag: &[u8]| {
        text.get(..tag.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(tag))
    };
    if text.starts_with(b"<") && TAGS.iter().any(|tag| starts(tag)) {
        return Some("text/html");
    }
    if text.starts_with(b"<?xml") {
        let is_page = text.windows(5).any(|it| it.eq_ignore_ascii_case(b"<html"));
        return Some(if is_page {
            "text/html"
        } else {
            "application/xml"
        });
    }
    if text.starts_with(b"<svg") {
        return Some("image/svg+xml");
    }
    let is_object = |first: u8, next: &[u8]| {
        let rest = text.strip_prefix(&[first]).map(<[u8]>::trim_ascii_start);
        rest.and_then(<[u8]>::first)
            .is_some_and(|byte| next.contains(byte))
    };
    if is_object(b'{', b"\"}") || is_object(b'[', b"{[\"]0123456789-") {
        return Some("application/json");
    }
    // Without a branch for each byte.
    let is_space = |byte: u8| {
        (byte == b'\t') | (byte == b'\n') | (byte == b'\r') | (byte == 0x0c) | (byte == 0x1b)
    };
    let is_text = |byte: u8| (byte >= 0x20) & (byte != 0x7f) | is_space(byte);
    let is_all = begin.iter().fold(true, |is, byte| is & is_text(*byte));
    is_all.then_some("text/plain")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::{of, of_coded};

    #[test]
    fn what_is_coded_is_told_behind_its_coding() {
        let page = b"<html><body>hello</body></html>";
        let coded = |mut encoder: GzEncoder<Vec<u8>>| {
            encoder.write_all(page).unwrap();
            encoder.finish().unwrap()
        };
        let gzip = coded(GzEncoder::new(Vec::new(), Compression::fast()));
        let html = Some("text/html");
        assert_eq!(of_coded(page, None), html);
        assert_eq!(of_coded(page, Some(b"identity")), html);
        assert_eq!(of_coded(&gzip, Some(b"GZIP")), html);
        // Cut off, as a first segment is; and not as it says.
        assert_eq!(of_coded(&gzip[..gzip.len() - 12], Some(b"x-gzip")), html);
        assert_eq!(of_coded(page, Some(b"gzip")), None);
        assert_eq!(of_coded(page, Some(b"br")), None);
    }

    #[test]
    fn beginnings_tell() {
        for (begin, kind) in [
            (&b""[..], None),
            (b"\0\x02\x03", None),
            (b"GIF89a...", Some("image/gif")),
            (b"\xef\xbb\xbf \r\n<HTML lang=en>", Some("text/html")),
            (b"<?xml version=\"1.0\"?><a/>", Some("application/xml")),
            (b"<?xml version=\"1.0\"?>\n<html>", Some("text/html")),
            (b"{ \"a\": 1}", Some("application/json")),
            (b"{ a }", Some("text/plain")),
            (b"hello", Some("text/plain")),
            (b"MZ\x90\0", Some("application/x-dosexec")),
        ] {
            assert_eq!(of(begin), kind, "{begin:?}");
        }
    }
}
