//! Headers of packets (RFC 9000, section 17; version 2: RFC 9369; what all versions have in common: RFC
//! 8999).

use crate::cursor::Cursor;

/// A version as packets say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Version(pub u32);

impl Version {
    /// Its name: `1`, `2`, `draft-29`, `T051`; of others the number in hexadecimal.
    pub fn name(self) -> String {
        match self.0 {
            1 => "1".to_owned(),
            0x6b33_43cf => "2".to_owned(),
            draft @ 0xff00_0000..=0xff00_00ff => format!("draft-{}", draft & 0xff),
            google @ (0x5130_3000..=0x5139_3939 | 0x5430_3000..=0x5439_3939) => {
                String::from_utf8_lossy(&google.to_be_bytes()).into_owned()
            }
            other => format!("0x{other:08x}"),
        }
    }

    /// Whether its packets have other types and labels than those of version 1.
    pub(super) const fn is_2(self) -> bool {
        self.0 == 0x6b33_43cf
    }

    /// Whether it is one of Google's with TLS, whose frames have other numbers.
    pub(super) const fn is_google(self) -> bool {
        self.0 >> 16 == 0x5430
    }

    /// The salt of its Initial packets (RFC 9001 section 5.2 and its drafts, RFC 9369 section 3.3.1).
    pub(super) const fn salt(self) -> Option<&'static [u8; 20]> {
        Some(match self.0 {
            1 => &[
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
                0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            0x6b33_43cf => &[
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
                0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
            0xff00_001d..=0xff00_0020 => &[
                0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61,
                0x11, 0xe0, 0x43, 0x90, 0xa8, 0x99,
            ],
            // Facebook's is the 27th draft.
            0xff00_0017..=0xff00_001c | 0xface_b002 => &[
                0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4,
                0x63, 0x65, 0xbe, 0xf9, 0xf5, 0x02,
            ],
            // Google's T050 and T051.
            0x5430_3530 => &[
                0x7f, 0xf5, 0x79, 0xe5, 0xac, 0xd0, 0x72, 0x91, 0x55, 0x80, 0x30, 0x4c, 0x43, 0xa2,
                0x36, 0x7c, 0x60, 0x48, 0x83, 0x10,
            ],
            0x5430_3531 => &[
                0x7a, 0x4e, 0xde, 0xf4, 0xe7, 0xcc, 0xee, 0x5f, 0xa4, 0x50, 0x6c, 0x19, 0x12, 0x4f,
                0xc8, 0xcc, 0xda, 0x6e, 0x03, 0x3d,
            ],
            _ => return None,
        })
    }
}

/// What a packet with a long header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Initial.
    Initial,
    /// 0-RTT.
    Early,
    /// Handshake.
    Handshake,
    /// Retry.
    Retry,
    /// Version Negotiation.
    Negotiation,
}

/// A packet with a long header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long<'a> {
    pub(super) kind: Kind,
    pub(super) version: Version,
    /// The connection's id, as its receiver chose it.
    pub(super) destination: &'a [u8],
    /// As its sender chose it.
    pub(super) source: &'a [u8],
    /// Where its number stands; of Retry and Version Negotiation nowhere.
    pub(super) number_at: usize,
    /// All of it.
    pub(super) bytes: &'a [u8],
}

impl<'a> Long<'a> {
    /// Reads the first packet of a datagram. `None`: it has no long header, or no valid one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Long<'a>> {
        let mut rest = Cursor(bytes);
        let first = rest.u8()?;
        if first & 0x80 == 0 {
            return None;
        }
        let version = Version(rest.u32()?);
        let destination = rest.vector8().filter(|id| id.len() <= 20)?;
        let source = rest.vector8().filter(|id| id.len() <= 20)?;
        let mut long = Long {
            kind: Kind::Negotiation,
            version,
            destination,
            source,
            number_at: 0,
            bytes,
        };
        if version.0 == 0 {
            return Some(long);
        }
        let place = (first >> 4 & 3) + if version.is_2() { 3 } else { 0 };
        long.kind = match place & 3 {
            0 => Kind::Initial,
            1 => Kind::Early,
            2 => Kind::Handshake,
            _ => Kind::Retry,
        };
        if long.kind == Kind::Retry {
            return Some(long);
        }
        if long.kind == Kind::Initial {
            let token = number(&mut rest)?;
            rest.take(usize::try_from(token).ok()?)?;
        }
        let length = usize::try_from(number(&mut rest)?).ok()?;
        let number_at = bytes.len() - rest.0.len();
        rest.take(length)?;
        long.number_at = number_at;
        long.bytes = bytes.get(..number_at + length)?;
        Some(long)
    }
}

/// A number of variable length (RFC 9000, section 16).
pub(super) fn number(rest: &mut Cursor<'_>) -> Option<u64> {
    let first = rest.u8()?;
    let length = 1 << (first >> 6);
    let more = rest.take(length - 1)?;
    let first = u64::from(first & 0x3f);
    Some(
        more.iter()
            .fold(first, |sum, &byte| sum << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_rfc() {
        // RFC 9000, appendix A.1.
        for (bytes, expected) in [
            (
                [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c].as_slice(),
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            let mut rest = Cursor(bytes);
            assert_eq!(number(&mut rest), Some(expected));
            assert!(rest.is_empty());
            assert_eq!(number(&mut Cursor(&bytes[..bytes.len() - 1])), None);
        }
        assert_eq!(Version(0xff00_001d).name(), "draft-29");
        assert_eq!(Version(0x5130_3433).name(), "Q043");
    }
}
