//! Which bytes of a datagram were received.

/// A run of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Whether the bytes were captured.
    pub(super) captured: bool,
}

/// Pieces that are moved at most to make room for another.
const LEAF: usize = 64;
/// Room for so many pieces is kept when a datagram is done.
pub(super) const KEPT: usize = 16;

/// What was received, sorted, without overlap. Adjacent pieces are kept apart: where a piece begins
/// and ends decides over later overlaps.
///
/// They stand in leaves of up to [`LEAF`], so that a datagram in thousands of fragments, in
/// whatever order, costs some dozens of steps for each. The usual few are one leaf.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    leaves: Vec<Vec<Piece>>,
    covered: u32,
}

impl Pieces {
    /// Bytes in all pieces.
    pub(super) fn covered(&self) -> u32 {
        self.covered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.covered == 0
    }

    /// The end of the last piece, or 0.
    pub(super) fn end(&self) -> u32 {
        let last = self.leaves.last().and_then(|leaf| leaf.last());
        last.map_or(0, |piece| piece.end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.leaves.iter().flatten()
    }

    /// Adds a piece where none is. `steps` counts the pieces looked at or moved.
    pub(super) fn insert(&mut self, piece: Piece, steps: &mut u64) {
        self.covered += piece.end - piece.start;
        let mut at = self.leaf_ending_after(piece.start);
        if at == self.leaves.len() {
            // Behind everything, by far the most common.
            *steps += 1;
            match self.leaves.last_mut() {
                Some(leaf) if leaf.len() < LEAF => leaf.push(piece),
                _ => self.leaves.push(vec![piece]),
            }
            return;
        }
        if self.leaves[at].len() == LEAF {
            let upper = self.leaves[at].split_off(LEAF / 2);
            *steps += upper.len() as u64;
            let begins = upper.first().map_or(0, |first| first.start);
            self.leaves.insert(at + 1, upper);
            at += usize::from(begins <= piece.start);
        }
        let leaf = &mut self.leaves[at];
        let place = leaf.partition_point(|other| other.start < piece.start);
        *steps += (leaf.len() - place) as u64 + 1;
        leaf.insert(place, piece);
    }

    /// Takes out the pieces that have bytes in `start..end`, in order.
    pub(super) fn take(&mut self, start: u32, end: u32, out: &mut Vec<Piece>, steps: &mut u64) {
        out.clear();
        let mut at = self.leaf_ending_after(start);
        while let Some(leaf) = self.leaves.get_mut(at) {
            let from = leaf.partition_point(|piece| piece.end <= start);
            let to = leaf.partition_point(|piece| piece.start < end);
            let goes_on = to == leaf.len();
            *steps += (leaf.len() - from.min(leaf.len())) as u64 + 1;
            if from < to {
                out.extend(leaf.drain(from..to));
            }
            if leaf.is_empty() && self.leaves.len() > 1 {
                self.leaves.remove(at);
            } else {
                at += 1;
            }
            if !goes_on {
                break;
            }
        }
        self.covered -= out.iter().map(|piece| piece.end - piece.start).sum::<u32>();
    }

    pub(super) fn clear(&mut self) {
        self.covered = 0;
        self.leaves.truncate(1);
        match self.leaves.first_mut() {
            Some(leaf) if leaf.capacity() <= KEPT => leaf.clear(),
            _ => self.leaves = Vec::new(),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let pieces: usize = match self.leaves.as_slice() {
            // Capacities of many are not worth a walk through them for every fragment.
            leaves @ [_, _, ..] => leaves.len() * LEAF,
            leaves => leaves.iter().map(Vec::capacity).sum(),
        };
        pieces * size_of::<Piece>() + self.leaves.capacity() * size_of::<Vec<Piece>>()
    }

    /// The first leaf with a piece that ends after `start`.
    fn leaf_ending_after(&self, start: u32) -> usize {
        let ends_before = |leaf: &Vec<Piece>| leaf.last().is_none_or(|piece| piece.end <= start);
        self.leaves.partition_point(ends_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u32) -> Piece {
        Piece {
            start: at * 8,
            end: at * 8 + 8,
            captured: true,
        }
    }

    #[test]
    fn any_order_is_sorted_in_few_steps() {
        const COUNT: u32 = 8192;
        for factor in [1, 8191, 4099, 5] {
            let (mut pieces, mut steps) = (Pieces::default(), 0);
            for n in 0..COUNT {
                pieces.insert(piece(n * factor % COUNT), &mut steps);
            }
            assert!(steps < u64::from(COUNT) * 64, "{factor}: {steps} steps");
            assert!(pieces.iter().copied().eq((0..COUNT).map(piece)));
            assert_eq!((pieces.covered(), pieces.end()), (COUNT * 8, COUNT * 8));
            let mut out = Vec::new();
            pieces.take(100, 65_000, &mut out, &mut steps);
            assert!(out.iter().copied().eq((12..8125).map(piece)));
            assert_eq!(pieces.iter().count(), 12 + 8192 - 8125);
            assert_eq!(pieces.covered(), (12 + 8192 - 8125) * 8);
            pieces.take(0, u32::MAX, &mut out, &mut steps);
            assert!(pieces.is_empty() && pieces.iter().next().is_none());
            pieces.insert(piece(3), &mut steps);
            assert_eq!(pieces.end(), 32);
        }
    }
}
