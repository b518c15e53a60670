//! The Simple Network Management Protocol: headers of messages of versions 1 (RFC 1157), 2c (RFC 1901,
//! RFC 3416) and 3 (RFC 3412, RFC 3414), up to the first variable.

use core::fmt::Write as _;

use crate::Look;
use crate::cursor::Cursor;

/// A message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// 0 is version 1, 1 version 2c, 3 version 3.
    pub version: u8,
    /// Of versions 1 and 2c: what stands for a password.
    pub community: Option<&'a [u8]>,
    /// Of version 3: what it says more.
    pub secure: Option<Secure<'a>>,
    /// What is asked for or said; of an encrypted message nothing is known.
    pub pdu: Option<Pdu<'a>>,
}

/// What a message of version 3 has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Secure<'a> {
    /// Chosen by who asks.
    pub id: u32,
    /// Authenticated (1), encrypted (2), to be answered (4).
    pub flags: u8,
    /// Of the user-based security model: whose engine has authority.
    pub engine: &'a [u8],
    /// The user.
    pub user: &'a [u8],
    /// The context of what is asked.
    pub context: &'a [u8],
}

/// What is asked for or said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Its kind, from 0.
    pub kind: u8,
    /// Chosen by who asks; of a trap of version 1 none.
    pub request_id: Option<u32>,
    /// What went wrong; of a bulk request how many variables are asked for once.
    pub error_status: u32,
    /// With which variable; of a bulk request how often the others are repeated.
    pub error_index: u32,
    /// How many variables there are.
    pub variables: u32,
    /// The name of the first, as it is encoded.
    pub first: Option<&'a [u8]>,
}

/// An element of BER (X.690): its tag, what it holds, and what follows it. Lengths have up to four bytes.
pub fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let mut rest = Cursor(bytes);
    let tag = rest.u8()?;
    let length = match rest.u8()? {
        short @ 0..=0x7f => usize::from(short),
        long @ 0x81..=0x84 => {
            let bytes = rest.take(usize::from(long & 0x7f))?;
            bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        }
        _ => return None,
    };
    Some((tag, rest.take(length)?, rest.0))
}

fn next<'a>(cursor: &mut Cursor<'a>) -> Option<(u8, &'a [u8])> {
    let (tag, content, rest) = element(cursor.0)?;
    cursor.0 = rest;
    Some((tag, content))
}

fn of<'a>(cursor: &mut Cursor<'a>, wanted: u8) -> Option<&'a [u8]> {
    let (tag, bytes) = next(cursor)?;
    (tag == wanted).then_some(bytes)
}

/// A number, as 32 bits.
fn number(cursor: &mut Cursor<'_>) -> Option<u32> {
    let bytes = of(cursor, 2)?;
    if bytes.is_empty() || bytes.len() > 5 {
        return None;
    }
    let sign = if bytes.first()? & 0x80 != 0 {
        u32::MAX
    } else {
        0
    };
    Some(
        bytes
            .iter()
            .fold(sign, |sum, &byte| sum << 8 | u32::from(byte)),
    )
}

const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 4;
const OID: u8 = 6;

impl<'a> Message<'a> {
    /// Of a datagram; `None` where it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut cursor = Cursor(of(&mut Cursor(bytes), SEQUENCE)?);
        let mut message = Message {
            version: u8::try_from(number(&mut cursor)?).ok()?,
            ..Message::default()
        };
        match message.version {
            0 | 1 => {
                message.community = Some(of(&mut cursor, OCTETS)?);
                message.pdu = Some(Pdu::read(&mut cursor)?);
            }
            3 => {
                let mut header = Cursor(of(&mut cursor, SEQUENCE)?);
                let (id, _max) = (number(&mut header)?, number(&mut header)?);
                let flags = *of(&mut header, OCTETS)?.first()?;
                let model = number(&mut header)?;
                let mut secure = Secure {
                    id,
                    flags,
                    ..Secure::default()
                };
                let parameters = of(&mut cursor, OCTETS)?;
                if model == 3 {
                    let mut parameters = Cursor(of(&mut Cursor(parameters), SEQUENCE)?);
                    secure.engine = of(&mut parameters, OCTETS)?;
                    number(&mut parameters)?;
                    number(&mut parameters)?;
                    secure.user = of(&mut parameters, OCTETS)?;
                }
                if flags & 2 == 0 {
                    let mut scoped = Cursor(of(&mut cursor, SEQUENCE)?);
                    of(&mut scoped, OCTETS)?;
                    secure.context = of(&mut scoped, OCTETS)?;
                    message.pdu = Some(Pdu::read(&mut scoped)?);
                }
                message.secure = Some(secure);
            }
            _ => return None,
        }
        Some(message)
    }

    /// The name of its version.
    pub const fn version_name(&self) -> &'static str {
        match self.version {
            0 => "1",
            1 => "2c",
            _ => "3",
        }
    }

    /// What tells whose reply a message is.
    pub fn id(&self) -> Option<u32> {
        match self.secure {
            Some(secure) => Some(secure.id),
            None => self.pdu?.request_id,
        }
    }
}

impl Secure<'_> {
    /// How far it is secured.
    pub const fn level(&self) -> &'static str {
        match self.flags & 3 {
            0 => "noAuthNoPriv",
            1 => "authNoPriv",
            _ => "authPriv",
        }
    }
}

impl<'a> Pdu<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Option<Pdu<'a>> {
        let (tag, bytes) = next(cursor)?;
        let mut pdu = Pdu {
            kind: tag.checked_sub(0xa0).filter(|&kind| kind <= 8)?,
            ..Pdu::default()
        };
        let mut cursor = Cursor(bytes);
        if pdu.kind == 4 {
            // Enterprise, address, kinds of trap, time.
            of(&mut cursor, OID)?;
            for _ in 0..4 {
                next(&mut cursor)?;
            }
        } else {
            pdu.request_id = Some(number(&mut cursor)?);
            pdu.error_status = number(&mut cursor)?;
            pdu.error_index = number(&mut cursor)?;
        }
        let mut variables = Cursor(of(&mut cursor, SEQUENCE)?);
        while let Some(variable) = of(&mut variables, SEQUENCE) {
            if pdu.first.is_none() {
                pdu.first = of(&mut Cursor(variable), OID);
            }
            pdu.variables += 1;
        }
        Some(pdu)
    }

    /// The name of its kind.
    pub const fn name(&self) -> &'static str {
        match self.kind {
            0 => "get",
            1 => "getnext",
            2 => "response",
            3 => "set",
            4 | 7 => "trap",
            5 => "getbulk",
            6 => "inform",
            _ => "report",
        }
    }

    /// Whether it answers.
    pub const fn is_reply(&self) -> bool {
        matches!(self.kind, 2 | 8)
    }

    /// Whether nobody answers it.
    pub const fn is_trap(&self) -> bool {
        matches!(self.kind, 4 | 7)
    }

    /// The name of what went wrong (RFC 3416, section 3).
    pub fn error_name(&self) -> Option<&'static str> {
        const NAMES: [&str; 19] = [
            "noError",
            "tooBig",
            "noSuchName",
            "badValue",
            "readOnly",
            "genErr",
            "noAccess",
            "wrongType",
            "wrongLength",
            "wrongEncoding",
            "wrongValue",
            "noCreation",
            "inconsistentValue",
            "resourceUnavailable",
            "commitFailed",
            "undoFailed",
            "authorizationError",
            "notWritable",
            "inconsistentName",
        ];
        match self.is_reply() {
            true => NAMES.get(usize::try_from(self.error_status).ok()?).copied(),
            false => None,
        }
    }
}

/// Appends the name of a variable in numbers with dots between (X.690, section 8.19). Numbers of more
/// than 32 bits, which SNMP does not have, end it.
pub fn write_oid(bytes: &[u8], out: &mut String) {
    let mut number = 0_u64;
    let mut is_first = true;
    for &byte in bytes {
        number = number << 7 | u64::from(byte & 0x7f);
        if number > u64::from(u32::MAX) + 80 {
            return;
        }
        if byte & 0x80 != 0 {
            continue;
        }
        // Into a string nothing fails.
        let _ = match core::mem::take(&mut is_first) {
            true => {
                let top = (number / 40).min(2);
                write!(out, "{top}.{}", number - top * 40)
            }
            false => write!(out, ".{number}"),
        };
        number = 0;
    }
}

/// Whether a datagram is a message.
pub fn look(bytes: &[u8]) -> Look {
    match Message::read(bytes) {
        Some(_) => Look::Yes,
        None => Look::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x07\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\
        \x06\x08\x2b\x06\x01\x02\x01\x01\x05\0\x05\0";

    #[test]
    fn a_request_of_version_2c() {
        let message = Message::read(GET).unwrap();
        assert_eq!(
            (message.version_name(), message.community),
            ("2c", Some(&b"public"[..]))
        );
        let pdu = message.pdu.unwrap();
        assert_eq!(
            (pdu.name(), pdu.request_id, pdu.variables),
            ("get", Some(7), 1)
        );
        let mut text = String::new();
        write_oid(pdu.first.unwrap(), &mut text);
        assert_eq!((text.as_str(), look(GET)), ("1.3.6.1.2.1.1.5.0", Look::Yes));
        for end in 0..GET.len() {
            assert_eq!(Message::read(&GET[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn a_report_of_version_3_and_an_encrypted_message() {
        let header = |flags: u8| {
            [
                &b"\x02\x01\x03\x30\x0d\x02\x01\x09\x02\x02\x05\xdc\x04\x01"[..],
                &[flags],
                b"\x02\x01\x03\x04\x14\x30\x12\x04\x02\x80\x01\x02\x01\x01\x02\x01\x02\x04\x02me\x04\0\x04\0",
            ]
            .concat()
        };
        let message = |flags: u8, rest: &[u8]| {
            let inner = [&header(flags)[..], rest].concat();
            [&[0x30, inner.len() as u8], &inner[..]].concat()
        };
        let plain = message(0, b"\x30\x15\x04\x02\x80\x01\x04\x01c\xa8\x0c\x02\x01\x05\x02\x01\x10\x02\x01\0\x30\x01\0");
        // The last element is no sequence of variables but a byte: it has none.
        let read = Message::read(&plain).unwrap();
        let secure = read.secure.unwrap();
        assert_eq!(
            (secure.id, secure.level(), secure.user),
            (9, "noAuthNoPriv", &b"me"[..])
        );
        assert_eq!(
            (secure.engine, secure.context),
            (&b"\x80\x01"[..], &b"c"[..])
        );
        let pdu = read.pdu.unwrap();
        assert_eq!(
            (pdu.name(), pdu.error_name(), pdu.variables),
            ("report", Some("authorizationError"), 0)
        );
        let encrypted = message(3, b"\x04\x03\x01\x02\x03");
        let read = Message::read(&encrypted).unwrap();
        assert_eq!((read.id(), read.pdu), (Some(9), None));
        assert_eq!(read.secure.unwrap().level(), "authPriv");
    }

    #[test]
    fn lengths_and_numbers_have_bounds() {
        assert_eq!(Message::read(b"\x30\x84\xff\xff\xff\xff\x02\x01\0"), None);
        assert_eq!(Message::read(b"\x30\x80\x02\x01\0\0\0"), None);
        assert_eq!(
            Message::read(b"\x30\x03\x02\x01\x02"),
            None,
            "version 2 was another one"
        );
        let mut text = String::new();
        write_oid(b"\x2b\xff\xff\xff\xff\xff\x7f\x01", &mut text);
        assert_eq!(text, "1.3");
        text.clear();
        write_oid(b"\x88\x37\x8f\xff\xff\xff\x7f", &mut text);
        assert_eq!(text, "2.999.4294967295");
    }
}
