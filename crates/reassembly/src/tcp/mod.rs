//! TCP sequence space: the segments of each direction, put in order.
//!
//! Each direction of a connection is a [`Half`] of 32 bytes. A segment that begins where the last
//! one ended is handed on as it lies in the packet ([`Half::take_in_order`]), touching nothing but
//! that half. Everything else goes through [`Reassembler::segment`]: segments that came too early
//! wait in blocks of a pool that all streams share, as a sorted list of *pieces*:
//!
//! ```text
//!  next_seq                     pieces, each with the bounds of the segment that owns its bytes
//!     |<------- hole -------->[ piece ][ piece ]<-- hole -->[ piece ]
//! ```
//!
//! Where segments overlap, [`OverlapPolicy`](crate::OverlapPolicy) decides per piece. Bytes already handed on cannot be
//! taken back: what arrives for them again is dropped.
//!
//! # Holes
//! A hole that does not fill is *given up*, the receiver told its exact size, when
//! - the peer has acknowledged past it, so the bytes were received but not captured, and that was
//!   known for the reordering allowance: [`ReassemblyConfig::reorder_time`] long, or while
//!   [`ReassemblyConfig::reorder_bytes`] more were captured. Packets can be captured in another
//!   order than they were received in;
//! - the peer has acknowledged past it with data of its own ([`Reassembler::answered`]): at once, so that
//!   what was asked comes before what was answered. Who answers has read; a capture that shows a segment
//!   later than the answer to it loses that segment;
//! - no packet of the peer was ever captured, and the hole is older than
//!   [`ReassemblyConfig::one_sided_time`] or has [`ReassemblyConfig::one_sided_bytes`] behind it;
//! - it is older than [`ReassemblyConfig::hole_time`], or more than
//!   [`ReassemblyConfig::hole_bytes`] wait behind it, or the pool is used up;
//! - the stream ends.
//!
//! As long as the peer's acknowledgements stay at the hole, its bytes are still to come, however
//! much waits behind it.
//!
//! # Choices
//! - Urgent data are delivered in band (RFC 6093 recommends it to receivers).
//! - Data on a SYN (TCP Fast Open) are delivered; their first byte is the one after the SYN.
//! - Keep-alives (no byte or one byte before the next) are old data and dropped. The byte of a
//!   zero-window probe is the stream's next byte and delivered.
//! - Data after a FIN are dropped. A FIN is believed when the stream has got there and the peer has
//!   not acknowledged beyond it.
//! - Sequence numbers are unwrapped by the nearest position, up to half their space. A segment far outside of what
//!   the peer can have offered waits until a second one agrees (a capture can lose much; a forged segment stands
//!   alone), and as long as the peer's acknowledgements keep up with the stream until they allow it:
//!   [`Reassembler::believe`]. Where nothing spoke against it, it is given out at the end of the stream, up to three
//!   quarters of half the space ahead.
//! - No window is larger than a gibibyte (RFC 7323): holes further back than that from the farthest believed byte are given
//!   up at once, so that what waits spans less than sequence numbers can tell. For the same reason a start that was
//!   guessed from one packet is taken back where others agree on numbers further away.
//! - Bytes cut off by the snap length are a hole that is given up at once: no retransmission will
//!   bring them.

mod account;
mod config;
mod doubt;
mod half;
mod part;
mod piece;
mod pool;
mod queue;
mod reassembler;
mod receiver;

pub use account::{Account, Forgotten, Unplaced};
pub use config::{ReassemblyConfig, ReassemblyStatistics};
pub use half::{Half, HalfFlags, Segment};
pub use reassembler::{Passed, Reassembler};
pub use receiver::{GapCause, Receiver};

/// Signed distance from `from` to `to` in sequence space (RFC 9293 section 3.4).
#[inline(always)]
pub(crate) const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;
