//! Waiting bytes of one segment.

use flowgauge_wire::Nanos;

use super::distance;
use super::half::NONE;

/// A run of waiting bytes that belong to one segment, in a block of the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) seq: u32,
    pub(super) len: u32,
    /// Bounds of the whole segment these bytes came in: overlap policies compare by them.
    pub(super) owner: Bounds,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// When it came.
    pub(super) time: Nanos,
    /// Where the bytes begin in the block.
    pub(super) start: u16,
    /// False for bytes that the snap length cut off: they are known to exist, nothing more.
    pub(super) captured: bool,
    /// Its first byte is the first that had a place of a segment that counts as a packet.
    pub(super) begins: bool,
    /// What it counts for was counted elsewhere.
    pub(super) refused: bool,
    /// Other segments have joined it: where they begin is noted in the block.
    pub(super) has_joined: bool,
}

/// Where a segment begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Piece {
    pub(super) const EMPTY: Piece = Piece {
        seq: 0,
        len: 0,
        owner: Bounds { start: 0, end: 0 },
        next: NONE,
        prev: NONE,
        time: Nanos::ZERO,
        start: 0,
        captured: false,
        begins: false,
        refused: false,
        has_joined: false,
    };

    #[inline]
    pub(super) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    /// How far `seq` lies behind the piece's first byte.
    #[inline]
    pub(super) fn offset_of(&self, seq: u32) -> usize {
        distance(self.seq, seq).max(0) as usize
    }
}
