//! The Dynamic Host Configuration Protocol for IPv6 (RFC 8415).

use core::net::Ipv6Addr;

use crate::Look;
use crate::cursor::Cursor;

/// Relays that a message goes through at most (RFC 8415, section 7.6, HOP_COUNT_LIMIT).
const MAX_RELAYS: usize = 8;

/// Numbers of options that are used here (IANA, "DHCPv6 Parameters").
pub mod option {
    #![allow(missing_docs)] // their names are what they are
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const ADDRESSES: u16 = 3;
    pub const TEMPORARY: u16 = 4;
    pub const ADDRESS: u16 = 5;
    pub const WANTED: u16 = 6;
    pub const RELAYED: u16 = 9;
    pub const STATUS: u16 = 13;
    pub const VENDOR: u16 = 16;
    pub const DNS_SERVERS: u16 = 23;
    pub const DOMAINS: u16 = 24;
    pub const PREFIXES: u16 = 25;
    pub const PREFIX: u16 = 26;
    pub const FQDN: u16 = 39;
}

/// Types of messages.
const NAMES: [&str; 15] = [
    "solicit",
    "advertise",
    "request",
    "confirm",
    "renew",
    "rebind",
    "reply",
    "release",
    "decline",
    "reconfigure",
    "information-request",
    "relay-forw",
    "relay-repl",
    "leasequery",
    "leasequery-reply",
];

const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

/// A message; one that relays wrapped is unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u8,
    /// Chosen by the client, 24 bits.
    pub xid: u32,
    /// The relay nearest to the client: the address of its link, and the client's there.
    pub relay: Option<(Ipv6Addr, Ipv6Addr)>,
    options: &'a [u8],
}

/// An address or a prefix that a server gives, or a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address, or the beginning of the prefix.
    pub address: Ipv6Addr,
    /// Bits of the prefix; of an address none.
    pub prefix: Option<u8>,
    /// How long it is preferred, and valid, s.
    pub lifetimes: [u32; 2],
}

/// Options, up to the first that is cut.
#[derive(Clone, Copy, Debug)]
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut cursor = Cursor(self.0);
        let (code, value) = (cursor.u16()?, cursor.vector16()?);
        self.0 = cursor.0;
        Some((code, value))
    }
}

fn address(cursor: &mut Cursor<'_>) -> Option<Ipv6Addr> {
    cursor.array::<16>().map(Ipv6Addr::from)
}

impl<'a> Message<'a> {
    /// Of a datagram; `None` where its head is cut, or it has more relays than there may be.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut cursor = Cursor(bytes);
        let mut relay = None;
        for _ in 0..=MAX_RELAYS {
            let kind = cursor.u8()?;
            if !matches!(kind, RELAY_FORWARD | RELAY_REPLY) {
                let xid = cursor.array::<3>()?;
                let xid = xid.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
                return Some(Message {
                    kind,
                    xid,
                    relay,
                    options: cursor.0,
                });
            }
            // How many relays there are in front.
            cursor.u8()?;
            relay = Some((address(&mut cursor)?, address(&mut cursor)?));
            let within = Options(cursor.0).find(|it| it.0 == option::RELAYED)?;
            cursor = Cursor(within.1);
        }
        None
    }

    /// Its options, but for those within others.
    pub fn options(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        Options(self.options)
    }

    /// What an option says.
    pub fn option(&self, wanted: u16) -> Option<&'a [u8]> {
        self.options().find(|it| it.0 == wanted).map(|it| it.1)
    }

    /// The name of its type, as in the RFC, small.
    pub fn type_name(&self) -> &'static str {
        let place = usize::from(self.kind).checked_sub(1);
        let name = place.and_then(|place| NAMES.get(place));
        name.copied().unwrap_or("other")
    }

    /// A server sends it.
    pub const fn is_reply(&self) -> bool {
        matches!(self.kind, 2 | 7 | 10 | 15)
    }

    /// Options of the associations: those within, in order.
    fn within(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.options().flat_map(|(code, value)| {
            let head = match code {
                option::ADDRESSES | option::PREFIXES => 12,
                option::TEMPORARY => 4,
                _ => value.len(),
            };
            Options(value.get(head..).unwrap_or_default())
        })
    }

    /// Addresses and prefixes in it.
    pub fn leases(&self) -> impl Iterator<Item = Lease> + use<'a> {
        self.within().filter_map(|(code, value)| {
            let mut cursor = Cursor(value);
            match code {
                option::ADDRESS => Some(Lease {
                    address: address(&mut cursor)?,
                    prefix: None,
                    lifetimes: [cursor.u32()?, cursor.u32()?],
                }),
                option::PREFIX => {
                    let lifetimes = [cursor.u32()?, cursor.u32()?];
                    let prefix = Some(cursor.u8()?);
                    Some(Lease {
                        address: address(&mut cursor)?,
                        prefix,
                        lifetimes,
                    })
                }
                _ => None,
            }
        })
    }

    /// Its status and words on it: the first that is no success, of the message or an association.
    pub fn status(&self) -> Option<(u16, &'a [u8])> {
        let all = self.options().chain(self.within());
        let mut all = all.filter(|it| it.0 == option::STATUS).filter_map(|it| {
            let mut cursor = Cursor(it.1);
            Some((cursor.u16()?, cursor.0))
        });
        let first = all.next()?;
        match first.0 {
            0 => all.find(|it| it.0 != 0).or(Some(first)),
            _ => Some(first),
        }
    }

    /// The hardware address in the client's identifier, of Ethernet (RFC 8415, sections 11.2 and 11.4).
    pub fn hardware(&self) -> Option<&'a [u8]> {
        match self.option(option::CLIENT_ID)? {
            [0, 1, 0, 1, _, _, _, _, address @ ..] | [0, 3, 0, 1, address @ ..] => {
                (address.len() == 6).then_some(address)
            }
            _ => None,
        }
    }

    /// Options that the client wants.
    pub fn wanted(&self) -> impl Iterator<Item = u16> + use<'a> {
        crate::cursor::numbers(self.option(option::WANTED).unwrap_or_default())
    }

    /// Servers of DNS that the client is to ask.
    pub fn dns_servers(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        let bytes = self.option(option::DNS_SERVERS).unwrap_or_default();
        let chunks = bytes.chunks_exact(16);
        chunks.filter_map(|chunk| address(&mut Cursor(chunk)))
    }

    /// Domains to look in for names.
    pub fn domains(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut cursor = Cursor(self.option(option::DOMAINS).unwrap_or_default());
        core::iter::from_fn(move || name(&mut cursor))
    }

    /// The client's full name (RFC 4704).
    pub fn fqdn(&self) -> Option<String> {
        let mut cursor = Cursor(self.option(option::FQDN)?);
        cursor.u8()?;
        name(&mut cursor)
    }
}

/// The next name in the form of DNS, without compression (RFC 8415, section 10); one that is cut has
/// what is there.
fn name(cursor: &mut Cursor<'_>) -> Option<String> {
    if cursor.is_empty() {
        return None;
    }
    let mut text = String::new();
    while let Some(label) = cursor.vector8()
        && !label.is_empty()
    {
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&String::from_utf8_lossy(label));
    }
    (!text.is_empty()).then_some(text)
}

/// Whether a datagram can be a message: it has options, one behind the other up to its end. A port has to
/// say so too.
pub fn look(bytes: &[u8]) -> Look {
    let is_message = || {
        let message = Message::read(bytes)?;
        let mut options = Options(message.options);
        let count = options.by_ref().count();
        let is_known = (1..=NAMES.len()).contains(&usize::from(message.kind));
        (is_known && count > 0 && options.0.is_empty()).then_some(())
    };
    match is_message() {
        Some(()) => Look::More,
        None => Look::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let head = [code.to_be_bytes(), (value.len() as u16).to_be_bytes()];
        [&head.concat(), value].concat()
    }

    fn client_id() -> Vec<u8> {
        option(1, &[0, 1, 0, 1, 9, 9, 9, 9, 2, 0, 0, 0, 0, 7])
    }

    fn ip(last: u8) -> [u8; 16] {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0x20, 1, last);
        address
    }

    fn reply() -> Vec<u8> {
        let lease = option(5, &[&ip(5)[..], &[0, 0, 0, 60, 0, 0, 0, 90]].concat());
        let prefix = [&[0, 0, 0, 1, 0, 0, 0, 2, 56][..], &ip(0)].concat();
        let failed = option(13, &[&[0, 6][..], b"none"].concat());
        [
            vec![7, 0x12, 0x34, 0x56],
            client_id(),
            option(3, &[&[0; 12][..], &lease].concat()),
            option(25, &[&[0; 12][..], &option(26, &prefix), &failed].concat()),
            option(13, &[0, 0]),
            option(23, &[ip(1), ip(2)].concat()),
            option(24, b"\x01a\x03org\0\x01b\0"),
            option(39, b"\x01\x04host\0"),
            option(6, &[0, 23, 0, 24]),
        ]
        .concat()
    }

    #[test]
    fn options_say_what_it_is() {
        let bytes = reply();
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.type_name(), message.xid), ("reply", 0x0012_3456));
        assert!(message.is_reply());
        assert_eq!(message.hardware(), Some(&[2, 0, 0, 0, 0, 7][..]));
        let leases: Vec<String> = message
            .leases()
            .map(|it| format!("{}/{:?} {:?}", it.address, it.prefix, it.lifetimes))
            .collect();
        assert_eq!(leases, ["2001::5/None [60, 90]", "2001::/Some(56) [1, 2]"]);
        assert_eq!(message.status(), Some((6, &b"none"[..])));
        let servers: Vec<String> = message.dns_servers().map(|it| it.to_string()).collect();
        assert_eq!(servers, ["2001::1", "2001::2"]);
        assert_eq!(message.domains().collect::<Vec<_>>(), ["a.org", "b"]);
        assert_eq!(message.fqdn().as_deref(), Some("host"));
        assert_eq!(message.wanted().collect::<Vec<_>>(), [23, 24]);
        assert_eq!(look(&bytes), Look::More);
    }

    #[test]
    fn what_is_cut_has_what_is_there() {
        let bytes = reply();
        for end in 0..bytes.len() {
            let message = Message::read(&bytes[..end]);
            assert_eq!(message.is_some(), end >= 4, "{end}");
            let all = Message::read(&bytes).unwrap();
            let is_part =
                |it: &Message<'_>| it.leases().all(|one| all.leases().any(|it| it == one));
            assert!(message.as_ref().is_none_or(is_part), "{end}");
        }
        assert_eq!(look(&bytes[..bytes.len() - 1]), Look::No);
        assert_eq!(look(&[1, 0, 0, 1]), Look::No);
        assert_eq!(look(&[99, 0, 0, 1, 0, 1, 0, 0]), Look::No);
    }

    #[test]
    fn relays_are_unwrapped_and_bounded() {
        let mut bytes = reply();
        for hops in 0..12 {
            let message = Message::read(&bytes);
            assert_eq!(message.is_some(), hops <= 8, "{hops}");
            if let Some(message) = message {
                assert_eq!(message.type_name(), "reply");
                let relay = message
                    .relay
                    .map(|(link, peer)| (link.octets(), peer.octets()));
                assert_eq!(relay, (hops > 0).then(|| (ip(0), ip(100))), "{hops}");
            }
            let head = [&[13, hops][..], &ip(hops), &ip(100 + hops)].concat();
            bytes = [head, option(9, &bytes)].concat();
        }
    }
}
