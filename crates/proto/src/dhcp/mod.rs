//! The Dynamic Host Configuration Protocol for IPv4 (RFC 2131, options: RFC 2132), and BOOTP; for IPv6
//! [`v6`].

pub mod v6;

use core::net::Ipv4Addr;

use crate::Look;
use crate::cursor::Cursor;

/// What stands before the options (RFC 2132, section 2).
const MAGIC: [u8; 4] = [99, 130, 83, 99];

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// It is from a server.
    pub is_reply: bool,
    /// Chosen by the client.
    pub xid: u32,
    /// The client's own address, of one that has it already.
    pub client: Ipv4Addr,
    /// The address that the client gets.
    pub assigned: Ipv4Addr,
    /// The next server of a boot.
    pub next_server: Ipv4Addr,
    /// The relay through which it goes.
    pub relay: Ipv4Addr,
    /// Hardware address of the client.
    pub hardware: &'a [u8],
    options: &'a [u8],
    /// Fields that hold options where these do not suffice (option 52).
    file: &'a [u8],
    name: &'a [u8],
}

/// Numbers of options that are used here.
pub mod option {
    #![allow(missing_docs)] // their names are what they are
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTERS: u8 = 3;
    pub const DNS_SERVERS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN: u8 = 15;
    pub const REQUESTED: u8 = 50;
    pub const LEASE: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const TYPE: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const PARAMETERS: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const RENEWAL: u8 = 58;
    pub const REBINDING: u8 = 59;
    pub const VENDOR: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const FQDN: u8 = 81;
}

impl<'a> Message<'a> {
    /// Of a datagram; `None` where the fixed part is cut, or says that it is no message.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut cursor = Cursor(bytes);
        let [op, _hardware, length, _hops] = cursor.array()?;
        if !matches!(op, 1 | 2) {
            return None;
        }
        let xid = cursor.u32()?;
        cursor.take(4)?;
        let mut address = || cursor.u32().map(Ipv4Addr::from);
        let (client, assigned) = (address()?, address()?);
        let (next_server, relay) = (address()?, address()?);
        let hardware = cursor.take(16)?;
        let (name, file) = (cursor.take(64)?, cursor.take(128)?);
        let options = match cursor.array() {
            Some(MAGIC) => cursor.0,
            _ => &[],
        };
        Some(Message {
            is_reply: op == 2,
            xid,
            client,
            assigned,
            next_server,
            relay,
            hardware: hardware.get(..usize::from(length)).unwrap_or(hardware),
            options,
            file,
            name,
        })
    }

    /// Its options, up to the first that is cut; one of more than 255 bytes comes in pieces.
    pub fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let overload = Options(self.options).find(|it| it.0 == option::OVERLOAD);
        let overload = overload.and_then(|it| it.1.first().copied()).unwrap_or(0);
        let of = |bit: u8, field: &'a [u8]| Options(if overload & bit != 0 { field } else { &[] });
        let more = of(1, self.file).chain(of(2, self.name));
        Options(self.options).chain(more)
    }

    /// What an option says.
    pub fn option(&self, wanted: u8) -> Option<&'a [u8]> {
        self.options().find(|it| it.0 == wanted).map(|it| it.1)
    }

    /// What an option says whose value is an address.
    pub fn address(&self, wanted: u8) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.option(wanted)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    }

    /// Addresses that an option lists.
    pub fn addresses(&self, wanted: u8) -> impl Iterator<Item = Ipv4Addr> + use<'a> {
        let bytes = self.option(wanted).unwrap_or_default();
        let (addresses, _) = bytes.as_chunks::<4>();
        addresses.iter().map(|it| Ipv4Addr::from(*it))
    }

    /// What an option says whose value is a number of seconds.
    pub fn seconds(&self, wanted: u8) -> Option<u32> {
        let bytes = self.option(wanted)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    /// The name of its type; of BOOTP `bootrequest` or `bootreply`.
    pub fn type_name(&self) -> &'static str {
        match self.option(option::TYPE) {
            Some([1]) => "discover",
            Some([2]) => "offer",
            Some([3]) => "request",
            Some([4]) => "decline",
            Some([5]) => "ack",
            Some([6]) => "nak",
            Some([7]) => "release",
            Some([8]) => "inform",
            Some([9]) => "forcerenew",
            Some([10]) => "leasequery",
            Some([11]) => "leaseunassigned",
            Some([12]) => "leaseunknown",
            Some([13]) => "leaseactive",
            Some(_) => "other",
            None if self.is_reply => "bootreply",
            None => "bootrequest",
        }
    }

    /// The client's full name (RFC 4702): as text, or in the form of DNS.
    pub fn write_fqdn(&self, out: &mut String) {
        let Some([flags, _, _, name @ ..]) = self.option(option::FQDN) else {
            return;
        };
        match flags & 4 != 0 {
            false => out.push_str(&String::from_utf8_lossy(name)),
            true => {
                let mut rest = name;
                while let Some((&length, behind)) = rest.split_first()
                    && let Some((label, behind)) = behind.split_at_checked(usize::from(length))
                    && length > 0
                {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(&String::from_utf8_lossy(label));
                    rest = behind;
                }
            }
        }
    }
}

struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut cursor = Cursor(self.0);
        loop {
            match cursor.u8()? {
                0 => {}
                255 => return None,
                code => {
                    let value = cursor.vector8()?;
                    self.0 = cursor.0;
                    return Some((code, value));
                }
            }
        }
    }
}

/// Whether a datagram is a message.
pub fn look(bytes: &[u8]) -> Look {
    match Message::read(bytes) {
        Some(message) if !message.options.is_empty() => Look::Yes,
        // BOOTP without options: a port has to say so too.
        Some(_) if bytes.len() >= 300 => Look::More,
        _ => Look::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn message(op: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![op, 1, 6, 0, 0, 0, 0, 7];
        bytes.resize(28, 0);
        bytes.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
        bytes.resize(236, 0);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn options_say_what_it_is() {
        let bytes = message(1, b"\x35\x01\x01\x00\x0c\x04host\x32\x04\x0a\0\0\x05\x51\x0a\x04\0\0\x01a\x03org\0\xff\x0f\x01x");
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.type_name(), message.xid), ("discover", 7));
        assert_eq!(message.hardware, [2, 0, 0, 0, 0, 9]);
        assert_eq!(message.option(option::HOST_NAME), Some(&b"host"[..]));
        assert_eq!(
            message.address(option::REQUESTED),
            Some(Ipv4Addr::new(10, 0, 0, 5))
        );
        assert_eq!(message.option(option::DOMAIN), None, "behind the end");
        let mut name = String::new();
        message.write_fqdn(&mut name);
        assert_eq!((name.as_str(), look(&bytes)), ("a.org", Look::Yes));
        for end in 0..236 {
            assert_eq!(Message::read(&bytes[..end]), None, "{end} bytes");
        }
        for end in 236..bytes.len() {
            Message::read(&bytes[..end]).unwrap().options().count();
        }
    }

    #[test]
    fn options_go_on_in_other_fields() {
        let mut bytes = message(2, b"\x34\x01\x03\x35\x01\x02\xff");
        bytes[108..114].copy_from_slice(b"\x0c\x04host");
        bytes[44..47].copy_from_slice(b"\x0f\x01d");
        let message = Message::read(&bytes).unwrap();
        assert_eq!(message.type_name(), "offer");
        assert_eq!(message.option(option::HOST_NAME), Some(&b"host"[..]));
        assert_eq!(message.option(option::DOMAIN), Some(&b"d"[..]));
    }

    #[test]
    fn bootp_has_no_options() {
        let mut bytes = message(2, &[]);
        bytes.truncate(236);
        bytes.resize(300, 0);
        assert_eq!(Message::read(&bytes).unwrap().type_name(), "bootreply");
        assert_eq!(look(&bytes), Look::More);
        bytes[0] = 3;
        assert_eq!(look(&bytes), Look::No);
    }
}
