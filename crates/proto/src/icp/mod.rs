//! The Internet Cache Protocol, version 2 (RFC 2186): what proxies ask each other.
//!
//! ```
//! use flowgauge_proto::icp::Message;
//!
//! let message = Message::read(b"\x02\x02\0\x18\0\0\0\x07\0\0\0\0\0\0\0\0\xc0\0\x02\x01http://a/\0").unwrap();
//! assert_eq!((message.opcode.name(), message.number, message.url), ("hit", 7, &b"http://a/"[..]));
//! ```

use core::net::Ipv4Addr;

use crate::Look;
use crate::cursor::Cursor;

/// Bytes of a message's header.
const HEADER: usize = 20;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// In records: as in RFC 2186, lower case.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "invalid",
            1 => "query",
            2 => "hit",
            3 => "miss",
            4 => "err",
            10 => "secho",
            11 => "decho",
            21 => "miss_nofetch",
            22 => "denied",
            23 => "hit_obj",
            _ => "unknown",
        }
    }

    /// Whether it asks: a query, or one to the echo port of a server or a cache without ICP, which
    /// sends it back as it is.
    pub const fn is_request(self) -> bool {
        matches!(self.0, 1 | 10 | 11)
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub opcode: Opcode,
    /// Version; replies to version 2 can be of version 3.
    pub version: u8,
    /// Chosen by who asks, and repeated in the reply.
    pub number: u32,
    /// Options, as bits.
    pub options: u32,
    /// What belongs to the options.
    pub option_data: u32,
    /// Address of the sender, as it says itself.
    pub sender: Ipv4Addr,
    /// Of a query: for whom it is.
    pub requester: Option<Ipv4Addr>,
    /// What is asked for.
    pub url: &'a [u8],
    /// The object itself, in a reply that has it.
    pub object: Option<&'a [u8]>,
    /// The URL has no end, or the object is cut, or the length is not that of the datagram.
    pub is_odd: bool,
}

impl<'a> Message<'a> {
    /// Of a datagram; `None` where there is no whole header, or one of another version.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut cursor = Cursor(bytes);
        let (opcode, version) = (Opcode(cursor.u8()?), cursor.u8()?);
        if !matches!(version, 2 | 3) {
            return None;
        }
        let length = usize::from(cursor.u16()?);
        let number = cursor.u32()?;
        let (options, option_data) = (cursor.u32()?, cursor.u32()?);
        let sender = Ipv4Addr::from(cursor.u32()?);
        let mut is_odd = length != bytes.len();
        let mut requester = None;
        if opcode.0 == 1 {
            requester = cursor.u32().map(Ipv4Addr::from);
            is_odd |= requester.is_none();
        }
        let end = cursor.0.iter().position(|&byte| byte == 0);
        let url = cursor.take(end.unwrap_or(cursor.0.len()))?;
        is_odd |= end.is_none();
        let mut object = None;
        if opcode.0 == 23 && end.is_some() {
            cursor.u8()?;
            let size = cursor.u16().map(usize::from);
            object = size.and_then(|size| cursor.take(size));
            is_odd |= object.is_none();
        }
        Some(Message {
            opcode,
            version,
            number,
            options,
            option_data,
            sender,
            requester,
            url,
            object,
            is_odd,
        })
    }

    /// Round trip from the cache to the server, ms, where a reply tells it.
    pub const fn server_rtt_ms(&self) -> Option<u16> {
        const SRC_RTT: u32 = 0x4000_0000;
        match !self.opcode.is_request() && self.options & SRC_RTT != 0 {
            true => Some(self.option_data as u16),
            false => None,
        }
    }
}

/// Whether a datagram is a message.
pub fn look(bytes: &[u8]) -> Look {
    let is_message = Message::read(bytes).is_some_and(|message| {
        let is_known = matches!(message.opcode.0, 0..=4 | 10 | 11 | 21..=23);
        is_known && !message.is_odd && bytes.len() > HEADER && message.url.is_ascii()
    });
    match is_message {
        true => Look::Yes,
        false => Look::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_replies() {
        let query = b"\x01\x02\0\x20\0\0\0\x09\x40\0\0\0\0\0\0\0\x0a\0\0\x01\x0a\0\0\x02http://\0";
        let message = Message::read(query).unwrap();
        assert_eq!((message.opcode.name(), message.number), ("query", 9));
        assert_eq!(message.requester, Some(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(message.server_rtt_ms(), None);
        assert_eq!(
            (message.url, message.is_odd, look(query)),
            (&b"http://"[..], false, Look::Yes)
        );
        let hit = b"\x17\x02\0\x20\0\0\0\x09\x40\0\0\0\0\0\0\x19\x0a\0\0\x01http:/\0\0\x03abc";
        let message = Message::read(hit).unwrap();
        assert_eq!(message.object, Some(&b"abc"[..]));
        assert_eq!((message.server_rtt_ms(), message.is_odd), (Some(25), false));
        for end in 0..hit.len() {
            let message = Message::read(&hit[..end]);
            assert_eq!(message.is_none(), end < HEADER, "{end} bytes");
            assert!(message.is_none_or(|message| message.is_odd), "{end} bytes");
            assert_eq!(look(&hit[..end]), Look::No);
        }
        assert_eq!(look(&[0; 40]), Look::No);
        assert!(Message::read(b"\x01\x04\0\x14").is_none());
    }
}
