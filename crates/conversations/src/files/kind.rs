//! What a file is, by how it begins.

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

/// The type of a file with this beginning (as WHATWG's MIME Sniffing has it, with the names of Zeek's logs);
/// none: of nothing that is known.
pub(super) fn of(begin: &[u8]) -> Option<&'static str> {
    if begin.is_empty() {
        return None;
    }
    let known = SIGNATURES
        .iter()
        .find(|(at, bytes, _)| begin.get(*at..).is_some_and(|rest| rest.starts_with(bytes)));
    if let Some((_, _, name)) = known {
        return Some(name);
    }
    let text = begin
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(begin)
        .trim_ascii_start();
    let starts = |tag: &[u8]| {
        text.get(..tag.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(tag))
    };
    if TAGS.iter().any(|tag| starts(tag)) {
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
    let is_text =
        |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x20..=0x7e | 0x80..);
    begin.iter().all(is_text).then_some("text/plain")
}

#[cfg(test)]
mod tests {
    use super::of;

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
