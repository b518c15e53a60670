//! EDNS (RFC 6891): what the record OPT says of a message.

use core::fmt::Write as _;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::kind;
use super::message::Record;
use crate::cursor::Cursor;

/// What its sender says beyond the header.
#[derive(Clone, Copy, Debug)]
pub struct Edns<'a> {
    /// Bytes of the largest datagram that it takes.
    pub udp_bytes: u16,
    /// The upper eight bits of the response code.
    pub extended_rcode: u8,
    /// Version.
    pub version: u8,
    /// DO: it wants signatures (RFC 3225).
    pub wants_signatures: bool,
    options: &'a [u8],
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdnsOption<'a> {
    /// Which one.
    pub code: u16,
    /// What it says.
    pub data: &'a [u8],
}

impl<'a> Edns<'a> {
    /// Of the record that carries it; `None` of any other.
    pub fn of(record: &Record<'a>) -> Option<Edns<'a>> {
        if record.kind != kind::OPT {
            return None;
        }
        let [extended_rcode, version, flags, _] = record.ttl.to_be_bytes();
        Some(Edns {
            udp_bytes: record.class,
            extended_rcode,
            version,
            wants_signatures: flags & 0x80 != 0,
            options: record.data.bytes(),
        })
    }

    /// Its options, up to the first that cannot be read.
    pub fn options(&self) -> impl Iterator<Item = EdnsOption<'a>> + use<'a> {
        let mut cursor = Cursor(self.options);
        core::iter::from_fn(move || {
            let (code, length) = (cursor.u16()?, cursor.u16()?);
            let data = cursor.take(usize::from(length))?;
            Some(EdnsOption { code, data })
        })
    }

    /// Appends the network of the client on whose behalf is asked (RFC 7871): `192.0.2.0/24`.
    /// Returns whether there is one.
    pub fn write_client_subnet(&self, out: &mut String) -> bool {
        let option = self.options().find(|option| option.code == 8);
        let Some([0, family, bits, _, address @ ..]) = option.map(|option| option.data) else {
            return false;
        };
        let mut whole = [0; 16];
        let length = if *family == 1 { 4 } else { 16 };
        for (place, byte) in whole.iter_mut().take(length).zip(address) {
            *place = *byte;
        }
        let _ = match (family, whole) {
            (1, [a, b, c, d, ..]) => write!(out, "{}/{bits}", Ipv4Addr::new(a, b, c, d)),
            (2, whole) => write!(out, "{}/{bits}", Ipv6Addr::from(whole)),
            _ => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Part};
    use super::*;

    #[test]
    fn a_query_with_options() {
        let bytes = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\
                      \0\0\x29\x10\0\x01\0\x80\0\0\x0f\0\x08\0\x07\0\x01\x18\0\xc0\0\x02\0\x0a\0\0";
        let message = Message::new(bytes).unwrap();
        let edns = message.parts().find_map(|part| match part.unwrap() {
            Part::Record(record) => Edns::of(&record),
            Part::Question(_) => None,
        });
        let edns = edns.unwrap();
        assert_eq!(
            (edns.udp_bytes, edns.extended_rcode, edns.version),
            (4096, 1, 0)
        );
        assert!(edns.wants_signatures);
        let mut text = String::new();
        assert!(edns.write_client_subnet(&mut text));
        assert_eq!(text, "192.0.2.0/24");
        let codes: Vec<u16> = edns.options().map(|option| option.code).collect();
        assert_eq!(codes, [8, 10]);
    }
}
