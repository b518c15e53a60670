//! What records say, as text.

use core::fmt::Write as _;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use super::name::{Name, write_escaped};
use super::numbers::write_type;
use crate::cursor::Cursor;

/// The data of a record.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Up to the end of the data: names in it point before it.
    message: &'a [u8],
    start: usize,
    kind: u16,
}

/// What stands one behind the other in the data of a type.
#[derive(Clone, Copy)]
enum Piece {
    Name,
    U8,
    U16,
    U32,
    Ipv4,
    Ipv6,
    /// A string with its length before it.
    String,
    /// Such strings, up to the end.
    Strings,
    /// A type of record.
    Type,
    /// Types of records, as bits (RFC 4034, section 4.1.2).
    Types,
    /// Bytes with their number before them, in hexadecimal digits; `-` for none.
    Salt,
    /// The same in base 32 (RFC 5155, section 3.3).
    Hash,
    /// What is left.
    Hex,
    Base64,
    /// What is left, as one string.
    Text,
    /// Parameters of a service (RFC 9460).
    Parameters,
    /// Pairs of digits with hyphens between.
    Eui,
}

fn layout(kind: u16) -> Option<&'static [Piece]> {
    use Piece::*;
    Some(match kind {
        1 => &[Ipv4],
        2..=5 | 7..=9 | 12 | 23 | 39 => &[Name],
        6 => &[Name, Name, U32, U32, U32, U32, U32],
        13 => &[String, String],
        14 | 17 | 58 => &[Name, Name],
        15 | 18 | 21 | 36 | 107 => &[U16, Name],
        16 | 19 | 20 | 27 | 56 | 99 | 258 | 261 => &[Strings],
        24 | 46 => &[Type, U8, U8, U32, U32, U32, U16, Name, Base64],
        25 | 48 | 57 | 60 => &[U16, U8, U8, Base64],
        26 => &[U16, Name, Name],
        28 => &[Ipv6],
        33 => &[U16, U16, U16, Name],
        35 => &[U16, U16, String, String, String, Name],
        37 => &[U16, U16, U8, Base64],
        43 | 59 | 32768 | 32769 => &[U16, U8, U8, Hex],
        44 => &[U8, U8, Hex],
        47 => &[Name, Types],
        49 | 61 => &[Base64],
        50 => &[U8, U8, U16, Salt, Hash, Types],
        51 => &[U8, U8, U16, Salt],
        52 | 53 => &[U8, U8, U8, Hex],
        62 => &[U32, U16, Types],
        63 => &[U32, U8, U8, Hex],
        64 | 65 => &[U16, Name, Parameters],
        105 => &[U16, Ipv4],
        108 | 109 => &[Eui],
        256 => &[U16, U16, Text],
        257 => &[U8, Tag, Text],
        _ => return None,
    })
}

use Piece::String as Tag;
/// The name of what a CAA record allows is a string without quotation marks (RFC 8659, section 4.1.1).
use data_encoding::{BASE32_DNSSEC, BASE64, HEXLOWER};

impl<'a> Data<'a> {
    pub(super) fn new(message: &'a [u8], place: Range<usize>, kind: u16) -> Data<'a> {
        Data {
            message: message.get(..place.end).unwrap_or(message),
            start: place.start,
            kind,
        }
    }

    /// As it was sent. Names in it can be compressed.
    pub fn bytes(&self) -> &'a [u8] {
        self.message.get(self.start..).unwrap_or_default()
    }

    /// Appends it in the form of zone files: an address, a name, numbers and names with blanks
    /// between, strings between quotation marks. What is of an unknown type, or does not have the
    /// form of its type, is written as RFC 3597 says: `\# 3 0a0b0c`.
    pub fn write(&self, out: &mut String) {
        let start = out.len();
        let pieces = layout(self.kind);
        if pieces.and_then(|pieces| self.pieces(pieces, out)).is_none() {
            out.truncate(start);
            self.write_unknown(out);
        }
    }

    /// The data of a record of NetBIOS: addresses of a name (RFC 1002, section 4.2.13), with blanks
    /// between. Other kinds as [`Data::write`].
    pub fn write_netbios(&self, out: &mut String) {
        if self.kind != super::kind::NB || self.bytes().is_empty() {
            return self.write_unknown(out);
        }
        for (index, entry) in self.bytes().chunks_exact(6).enumerate() {
            if let &[_, _, a, b, c, d] = entry {
                if index > 0 {
                    out.push(' ');
                }
                let _ = write!(out, "{}", Ipv4Addr::new(a, b, c, d));
            }
        }
    }

    fn write_unknown(&self, out: &mut String) {
        // Into a string nothing fails, here and below.
        let _ = write!(out, "\\# {}", self.bytes().len());
        if !self.bytes().is_empty() {
            out.push(' ');
        }
        HEXLOWER.encode_append(self.bytes(), out);
    }

    /// `None` where the bytes do not have this form.
    fn pieces(&self, pieces: &[Piece], out: &mut String) -> Option<()> {
        let mut cursor = Cursor(self.bytes());
        for (index, piece) in pieces.iter().enumerate() {
            if index > 0
                && !(matches!(piece, Piece::Types | Piece::Parameters) && cursor.is_empty())
            {
                out.push(' ');
            }
            self.piece(*piece, &mut cursor, out)?;
        }
        cursor.is_empty().then_some(())
    }

    fn piece(&self, piece: Piece, cursor: &mut Cursor<'a>, out: &mut String) -> Option<()> {
        let mut number = |number: u32| write!(out, "{number}").ok();
        match piece {
            Piece::U8 => number(u32::from(cursor.u8()?))?,
            Piece::U16 => number(u32::from(cursor.u16()?))?,
            Piece::U32 => number(cursor.u32()?)?,
            Piece::Ipv4 => {
                let mut decimal = itoa::Buffer::new();
                for (place, part) in cursor.u32()?.to_be_bytes().into_iter().enumerate() {
                    out.push_str(if place > 0 { "." } else { "" });
                    out.push_str(decimal.format(part));
                }
            }
            Piece::Ipv6 => write!(out, "{}", Ipv6Addr::from(cursor.array::<16>()?)).ok()?,
            Piece::Name => {
                let at = self.message.len() - cursor.0.len();
                let (name, end) = Name::read(self.message, at).ok()?;
                *cursor = Cursor(self.message.get(end..)?);
                name.write(out);
            }
            Piece::Type => write_type(cursor.u16()?, out),
            Piece::Types => types(cursor, out)?,
            Piece::String => string(cursor, self.kind != 257, out)?,
            Piece::Strings => {
                string(cursor, true, out)?;
                while !cursor.is_empty() {
                    out.push(' ');
                    string(cursor, true, out)?;
                }
            }
            Piece::Salt => match cursor.vector8()? {
                [] => out.push('-'),
                salt => HEXLOWER.encode_append(salt, out),
            },
            Piece::Hash => BASE32_DNSSEC.encode_append(cursor.vector8()?, out),
            Piece::Hex => HEXLOWER.encode_append(all(cursor)?, out),
            Piece::Base64 => BASE64.encode_append(all(cursor)?, out),
            Piece::Text => quoted(all(cursor)?, out),
            Piece::Parameters => parameters(cursor, out)?,
            Piece::Eui => {
                let bytes = all(cursor)?;
                if bytes.len() != if self.kind == 108 { 6 } else { 8 } {
                    return None;
                }
                for (index, byte) in bytes.iter().enumerate() {
                    if index > 0 {
                        out.push('-');
                    }
                    HEXLOWER.encode_append(&[*byte], out);
                }
            }
        }
        Some(())
    }
}

fn all<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    cursor.take(cursor.0.len())
}

fn string(cursor: &mut Cursor<'_>, with_marks: bool, out: &mut String) -> Option<()> {
    let bytes = cursor.vector8()?;
    match with_marks {
        true => quoted(bytes, out),
        false => write_escaped(bytes, |byte| matches!(byte, b'"' | b'\\' | b' '), out),
    }
    Some(())
}

fn quoted(bytes: &[u8], out: &mut String) {
    out.push('"');
    write_escaped(bytes, |byte| matches!(byte, b'"' | b'\\'), out);
    out.push('"');
}

/// Types with blanks between.
fn types(cursor: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    let mut is_first = true;
    while !cursor.is_empty() {
        let window = cursor.u8()?;
        for (index, byte) in cursor.vector8()?.iter().enumerate() {
            for bit in (0..8).filter(|bit| byte & 0x80 >> bit != 0) {
                if !core::mem::take(&mut is_first) {
                    out.push(' ');
                }
                // A window has 32 bytes; more are of no type.
                let place = u16::try_from(index * 8 + bit)
                    .ok()
                    .filter(|&place| place < 256)?;
                write_type(u16::from(window) << 8 | place, out);
            }
        }
    }
    Some(())
}

/// Parameters of a service with blanks between (RFC 9460, section 2.1 and appendix A).
fn parameters(cursor: &mut Cursor<'_>, out: &mut String) -> Option<()> {
    const NAMES: [&str; 8] = [
        "mandatory",
        "alpn",
        "no-default-alpn",
        "port",
        "ipv4hint",
        "ech",
        "ipv6hint",
        "dohpath",
    ];
    let mut is_first = true;
    while !cursor.is_empty() {
        let (key, length) = (cursor.u16()?, cursor.u16()?);
        let mut value = Cursor(cursor.take(usize::from(length))?);
        if !core::mem::take(&mut is_first) {
            out.push(' ');
        }
        match NAMES.get(usize::from(key)) {
            Some(name) => out.push_str(name),
            None => write!(out, "key{key}").ok()?,
        }
        if value.is_empty() {
            continue;
        }
        out.push('=');
        let mut is_inner = false;
        match key {
            0 | 1 | 4 | 6 => {
                while !value.is_empty() {
                    if core::mem::replace(&mut is_inner, true) {
                        out.push(',');
                    }
                    match key {
                        0 => {
                            let key = value.u16()?;
                            match NAMES.get(usize::from(key)) {
                                Some(name) => out.push_str(name),
                                None => write!(out, "key{key}").ok()?,
                            }
                        }
                        1 => {
                            let special = |byte| matches!(byte, b',' | b'"' | b'\\' | b' ');
                            write_escaped(value.vector8()?, special, out);
                        }
                        4 => write!(out, "{}", Ipv4Addr::from(value.u32()?)).ok()?,
                        _ => write!(out, "{}", Ipv6Addr::from(value.array::<16>()?)).ok()?,
                    }
                }
            }
            3 => write!(out, "{}", value.u16()?).ok()?,
            5 => BASE64.encode_append(all(&mut value)?, out),
            7 => write_escaped(
                all(&mut value)?,
                |byte| matches!(byte, b'"' | b'\\' | b' '),
                out,
            ),
            _ => quoted(all(&mut value)?, out),
        }
        if !value.is_empty() {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: u16, data: &[u8]) -> String {
        let mut message = b"\x07example\x03com\x00".to_vec();
        let start = message.len();
        message.extend_from_slice(data);
        let mut out = String::new();
        Data::new(&message, start..start + data.len(), kind).write(&mut out);
        out
    }

    #[test]
    fn data_is_written_as_in_zone_files() {
        assert_eq!(text(1, &[192, 0, 2, 1]), "192.0.2.1");
        assert_eq!(
            text(
                28,
                &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
            ),
            "2001:db8::1"
        );
        assert_eq!(text(5, b"\x03www\xc0\x00"), "www.example.com");
        assert_eq!(text(15, b"\x00\x0a\x04mail\xc0\x00"), "10 mail.example.com");
        assert_eq!(text(2, b"\x00"), ".");
        assert_eq!(
            text(
                6,
                b"\xc0\x00\x01r\xc0\x00\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05"
            ),
            "example.com r.example.com 1 2 3 4 5"
        );
        assert_eq!(text(16, b"\x05a \"b\\\x00\x01c"), r#""a \"b\\" "" "c""#);
        assert_eq!(
            text(33, b"\0\x01\0\x02\0\x35\xc0\x00"),
            "1 2 53 example.com"
        );
        assert_eq!(
            text(35, b"\0\x64\0\x0a\x01u\x07E2U+sip\x04!a!b\x00"),
            r#"100 10 "u" "E2U+sip" "!a!b" ."#
        );
        assert_eq!(
            text(257, b"\x00\x05issueca.example"),
            r#"0 issue "ca.example""#
        );
        assert_eq!(
            text(108, &[0, 0x1a, 0x2b, 0x3c, 0x4d, 0x5e]),
            "00-1a-2b-3c-4d-5e"
        );
    }

    /// RFC 4034, section 4.3; RFC 5155, appendix A; RFC 4034, section 5.4.
    #[test]
    fn dnssec() {
        let mut nsec = b"\x04host\xc0\x00\x00\x06\x40\x01\x00\x00\x00\x03\x04\x1b".to_vec();
        nsec.extend_from_slice(&[0; 26]);
        nsec.push(0x20);
        assert_eq!(text(47, &nsec), "host.example.com A MX RRSIG NSEC TYPE1234");
        assert_eq!(
            text(51, b"\x01\x00\x00\x0c\x04\xaa\xbb\xcc\xdd"),
            "1 0 12 aabbccdd"
        );
        let hash = [
            0x17, 0x4e, 0xb2, 0x40, 0x9f, 0xe2, 0x8b, 0xcb, 0x48, 0x87, 0xa1, 0x83, 0x6f, 0x95,
            0x7f, 0x0a, 0x84, 0x25, 0xe2, 0x7b,
        ];
        let mut nsec3 = b"\x01\x01\x00\x0c\x00\x14".to_vec();
        nsec3.extend_from_slice(&hash);
        nsec3.extend_from_slice(b"\x00\x01\x22");
        assert_eq!(
            text(50, &nsec3),
            "1 1 12 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr NS SOA"
        );
        assert_eq!(text(43, b"\xec\x45\x05\x01\x2b\xb1"), "60485 5 1 2bb1");
        assert_eq!(text(48, b"\x01\x00\x03\x05ab"), "256 3 5 YWI=");
    }

    /// RFC 9460, appendix D.
    #[test]
    fn parameters_of_services() {
        assert_eq!(text(65, b"\x00\x00\x03foo\xc0\x00"), "0 foo.example.com");
        assert_eq!(text(64, b"\x00\x01\x00"), "1 .");
        assert_eq!(
            text(64, b"\x00\x10\xc0\x00\x00\x03\x00\x02\x00\x35"),
            "16 example.com port=53"
        );
        assert_eq!(
            text(64, b"\x00\x01\xc0\x00\x02\x9b\x00\x05hello"),
            "1 example.com key667=\"hello\""
        );
        assert_eq!(
            text(65, b"\x00\x01\x00\x00\x00\x00\x04\x00\x01\x00\x04\x00\x01\x00\x06\x02h2\x02h3\x00\x04\x00\x04\xc0\x00\x02\x01"),
            "1 . mandatory=alpn,ipv4hint alpn=h2,h3 ipv4hint=192.0.2.1"
        );
    }

    /// RFC 3597, section 5.
    #[test]
    fn what_is_unknown_or_malformed_is_written_in_digits() {
        assert_eq!(text(731, b"\xab\xcd\xef\x01\x23\x45"), "\\# 6 abcdef012345");
        assert_eq!(text(62347, b""), "\\# 0");
        assert_eq!(text(1, &[192, 0, 2]), "\\# 3 c00002");
        assert_eq!(text(1, &[192, 0, 2, 1, 0]), "\\# 5 c000020100");
        assert_eq!(text(5, b"\xc0\x0d"), "\\# 2 c00d");
        assert_eq!(text(15, b"\x00"), "\\# 1 00");
    }

    /// RFC 4648, section 10.
    #[test]
    fn base64_and_base32() {
        let texts = |text: &[u8]| {
            let (mut base64, mut base32) = (String::new(), String::new());
            BASE64.encode_append(text, &mut base64);
            BASE32_DNSSEC.encode_append(text, &mut base32);
            (base64, base32)
        };
        assert_eq!(texts(b""), (String::new(), String::new()));
        assert_eq!(texts(b"f"), ("Zg==".to_owned(), "co".to_owned()));
        assert_eq!(
            texts(b"foob"),
            ("Zm9vYg==".to_owned(), "cpnmuog".to_owned())
        );
        assert_eq!(
            texts(b"foobar"),
            ("Zm9vYmFy".to_owned(), "cpnmuoj1e8".to_owned())
        );
    }
}
