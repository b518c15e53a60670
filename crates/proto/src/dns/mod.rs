//! DNS (RFC 1035) with EDNS (RFC 6891): messages over UDP and TCP; multicast DNS (RFC 6762), LLMNR
//! (RFC 4795) and the name service of NetBIOS (RFC 1002) have the same form.
//!
//! ```
//! use flowgauge_proto::dns::{Message, Part};
//!
//! let bytes = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\x07example\x03com\0\0\x01\0\x01\
//!               \xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01";
//! let message = Message::new(bytes).unwrap();
//! assert!(message.header().is_reply());
//! let mut text = String::new();
//! for part in message.parts() {
//!     match part.unwrap() {
//!         Part::Question(question) => question.name.write(&mut text),
//!         Part::Record(record) => {
//!             text.push_str(" is ");
//!             record.data.write(&mut text);
//!         }
//!     }
//! }
//! assert_eq!(text, "example.com is 192.0.2.1");
//! ```
//!
//! # What is malformed
//! All up to the first name or record that cannot be read is given, then the [`Fault`]. Pointers in
//! names must lead before the part of the name that they end; a name has at most 255 bytes and 64
//! pointers. Numbers that announce more than there is cost nothing.
//!
//! # Holes
//! Over TCP each message has its length before it ([`Framer`]). A hole within a message cuts that one;
//! behind a longer one the next message is looked for where a piece of data begins like one.

mod data;
mod edns;
mod framer;
mod message;
mod name;
mod numbers;

use crate::Look;
pub use data::Data;
pub use edns::{Edns, EdnsOption};
pub use framer::{Frame, Framer};
pub use message::{Fault, Header, Message, Part, Parts, Question, Record, Section};
pub use name::Name;
pub use numbers::{
    class_number, kind, opcode_number, rcode_number, type_number, write_class,
    write_netbios_opcode, write_opcode, write_rcode, write_type,
};

/// Records that a message has at most, by its looks.
const MANY: u16 = 4096;

/// Whether a datagram is a message.
pub fn look(bytes: &[u8]) -> Look {
    match is_message(bytes, true) {
        Some(true) => Look::Yes,
        _ => Look::No,
    }
}

/// Whether a stream begins with a message's length and a message.
pub fn look_stream(bytes: &[u8]) -> Look {
    let Some((length, message)) = bytes.split_first_chunk::<2>() else {
        return Look::More;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length < Header::LEN + 5 {
        return Look::No;
    }
    let is_whole = message.len() >= length;
    match is_message(message.get(..length).unwrap_or(message), is_whole) {
        Some(true) => Look::Yes,
        Some(false) => Look::No,
        None => Look::More,
    }
}

/// Whether bytes are a message; `None` where the message has more bytes, which will tell.
fn is_message(bytes: &[u8], is_whole: bool) -> Option<bool> {
    let Some(message) = Message::new(bytes) else {
        return is_whole.then_some(false);
    };
    let header = message.header();
    let [questions, answers, authorities, additional] = header.counts;
    if questions > 64 || answers.max(authorities).max(additional) > MANY {
        return Some(false);
    }
    // No response code has been given to the higher ones, no meaning to the other opcodes.
    if !matches!(header.opcode(), 0..=2 | 4..=9) || header.rcode() > 11 {
        return Some(false);
    }
    let records = answers + authorities + additional;
    if questions == 0 && records == 0 {
        // A header alone answers what could not be read, and other opcodes; it is little to go by.
        return Some(header.is_reply() && bytes.len() == Header::LEN && header.rcode() != 0);
    }
    let mut parts = message.parts();
    for (index, part) in parts.by_ref().enumerate() {
        match part {
            Ok(Part::Question(question)) => {
                if !is_class(question.class) || question.kind == 0 {
                    return Some(false);
                }
            }
            // Behind a question anything that can be read is no chance.
            Ok(Part::Record(_)) if index > 0 => return Some(true),
            Ok(Part::Record(record)) => {
                if record.kind != kind::OPT && !is_class(record.class) {
                    return Some(false);
                }
            }
            // What was cut off on its way begins like one.
            Err(Fault::Short) if index > 0 => return Some(true),
            Err(Fault::Short) if !is_whole => return None,
            Err(_) => return Some(false),
        }
    }
    // Some senders fill their messages up; what has a name of no length is not one of them.
    Some(parts.rest().is_empty() || questions == 1)
}

fn is_class(class: u16) -> bool {
    // The highest bit is multicast DNS's.
    matches!(class & 0x7fff, 1..=4 | 254 | 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";

    #[test]
    fn messages_are_told_from_other_datagrams() {
        assert_eq!(look(QUERY), Look::Yes);
        for end in 0..QUERY.len() {
            assert_eq!(look(&QUERY[..end]), Look::No, "{end} bytes");
        }
        let mut other = QUERY.to_vec();
        other[2] |= 0x18;
        assert_eq!(look(&other), Look::No, "opcode 3");
        assert_eq!(look(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Look::No);
        assert_eq!(look(&[0; 48]), Look::No);
        assert_eq!(look(&[0xff; 48]), Look::No);
        assert_eq!(
            look(b"\x12\x34\x80\x01\0\0\0\0\0\0\0\0"),
            Look::Yes,
            "an error"
        );
    }

    #[test]
    fn streams_tell_as_soon_as_they_can() {
        let mut stream = vec![0, QUERY.len() as u8];
        stream.extend_from_slice(QUERY);
        for end in 0..stream.len() {
            assert_eq!(look_stream(&stream[..end]), Look::More, "{end} bytes");
        }
        assert_eq!(look_stream(&stream), Look::Yes);
        stream.extend_from_slice(b"\0");
        assert_eq!(look_stream(&stream), Look::Yes);
        assert_eq!(look_stream(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Look::No);
        assert_eq!(look_stream(b"\0\x05hello"), Look::No);
    }
}
