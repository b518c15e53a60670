//! Records about the turns of a conversation.

use flowgauge_wire::{Address, Nanos};

use crate::schema::record;
use crate::value::Symbol;

record! {
    /// Fields of a [`TurnRow`].
    TURN, TURN_SCHEMA for TurnRow<'_> as it:
    time Time "TIME" 2 = it.time, "capture time of the packet that its first byte came with";
    src_ip Address "SOURCE" 3 = (it.source.0, it.version), "address of the sender";
    src_port Unsigned "PORT" 3 = it.source.1, "port of the sender";
    dst_ip Address "DESTINATION" 4 = (it.destination.0, it.version), "address of the receiver";
    dst_port Unsigned "PORT" 4 = it.destination.1, "port of the receiver";
    direction Text "FROM" 1 = Symbol(if it.from_initiator { "initiator" } else { "responder" }), "sender: initiator or responder";
    offset Unsigned Bytes "OFFSET" 1 exact = it.offset, "stream offset of its first byte, gaps included";
    missing_bytes Unsigned Bytes "MISSING" 2 exact = it.missing_bytes, "bytes missing from the capture right before it";
    bytes Unsigned Bytes "BYTES" 1 exact = it.data.len() as u64 / 2, "number of its bytes; 0 if it only tells what is missing at the end";
    text Text "TEXT" 1 = it.text, "its bytes as text: a dot for each that is no letter, digit or sign of ASCII, tabulator or line break";
    data Text = Symbol(it.data), "its bytes in hexadecimal";
}

/// Bytes that one side sends until the other side does, a gap follows, or they become too long.
#[derive(Clone, Copy, Debug)]
pub struct TurnRow<'a> {
    /// Capture time.
    pub time: Nanos,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub version: u8,
    /// Whether it is the initiator's direction.
    pub from_initiator: bool,
    /// Stream offset of its first byte, including holes.
    pub offset: u64,
    /// Size of the hole before it.
    pub missing_bytes: u64,
    /// Its bytes as text.
    pub text: &'a str,
    /// Its bytes in hexadecimal.
    pub data: &'a str,
}
