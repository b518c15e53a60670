//! What stands where in the memory that the sensor shares with users.
//!
//! A flow has a ring of events ([`flowgauge_sys::shared`]). Beside the events stand numbers of one moment, [`TIME`], [`FLAGS`],
//! [`LOST`], and those of each component ([`of_component`]). An event is a batch of packets that reached a component `to_buffer`
//! ([`Body`]): records one behind the other, each as MAPI's `struct mapipkt` and a multiple of 8 bytes long.
//!
//! ```text
//!  0   time since 1970 in seconds, fixed point of 32.32 bits
//!  8   interface, 16 bits
//!  12  bytes captured, 32 bits
//!  16  bytes on the wire, 32 bits
//!  20  the bytes, from the link-layer header
//! ```

use flowgauge_sys::shared::{BODY_BYTES, COUNTERS};

/// When the numbers were told, in nanoseconds since 1970.
pub const TIME: usize = 0;
/// [`IS_LAST`], [`HAS_FAILED`].
pub const FLAGS: usize = 1;
/// Packets that found no room in the ring.
pub const LOST: usize = 2;
/// The device has come to its end.
pub const IS_LAST: u64 = 1;
/// The flow has failed.
pub const HAS_FAILED: u64 = 2;

const FIRST: usize = 3;
/// Components whose numbers are told.
pub const MOST_COMPONENTS: usize = (COUNTERS - FIRST) / 3;

/// Where a component's numbers are: items that came to it, its result, [`UNSIGNED`] or [`SIGNED`] where that is a number; where
/// it is not, the rows that wait to be taken, and 0.
pub const fn of_component(component: usize) -> [usize; 3] {
    let at = FIRST + 3 * component;
    [at, at + 1, at + 2]
}

/// The result is a number without a sign.
pub const UNSIGNED: u64 = 1;
/// The result is a number below zero, as two's complement.
pub const SIGNED: u64 = 2;

/// Bytes of a record before the packet's own.
pub const RECORD_HEADER: usize = 20;

/// Bytes of the record of a packet.
pub const fn record_len(captured: usize) -> usize {
    (RECORD_HEADER + captured).next_multiple_of(8)
}

/// When the packet of a record was captured, in seconds since 1970 as a fixed point of 32.32 bits.
pub fn time_of(record: &[u8]) -> u64 {
    let bytes = record.first_chunk();
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// The component, by its place in the stack.
    pub component: u32,
    /// Packets in it.
    pub packets: u32,
}

impl Body {
    /// As it is sent.
    pub fn encoded(self) -> [u8; BODY_BYTES] {
        let mut bytes = [0; BODY_BYTES];
        bytes[..4].copy_from_slice(&self.component.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.packets.to_le_bytes());
        bytes
    }

    /// Of what was sent.
    pub fn of(bytes: &[u8; BODY_BYTES]) -> Body {
        let [a, b, c, d, e, f, g, h, ..] = *bytes;
        Body {
            component: u32::from_le_bytes([a, b, c, d]),
            packets: u32::from_le_bytes([e, f, g, h]),
        }
    }
}
