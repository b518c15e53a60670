//! A segment on its way to its place.

use flowgauge_wire::Nanos;

use super::account::Account;
use super::distance;
use super::piece::Bounds;

/// What became of a part.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    /// Bytes of it that others have the place of.
    pub(super) repeated: u32,
    /// A byte of it had a place.
    pub(super) has_begun: bool,
    /// See [`Unplaced::displaced`](super::account::Unplaced::displaced).
    pub(super) displaced: u32,
}

/// What is left of a segment to be placed.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) seq: u32,
    pub(super) end: u32,
    pub(super) bytes: &'a [u8],
    pub(super) owner: Bounds,
    pub(super) time: Nanos,
    pub(super) account: Account,
    /// An earlier byte of its segment had a place.
    pub(super) has_begun: bool,
}

impl<'a> Part<'a> {
    pub(super) fn is_empty(&self) -> bool {
        distance(self.seq, self.end) <= 0
    }

    /// The part from `seq` on.
    pub(super) fn from(&self, seq: u32) -> Part<'a> {
        let skip = distance(self.seq, seq).max(0);
        Part {
            seq: self.seq.wrapping_add(skip as u32),
            bytes: self.bytes.get(skip as usize..).unwrap_or(&[]),
            ..*self
        }
    }
}
