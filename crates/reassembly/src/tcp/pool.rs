//! Blocks for waiting segments, shared by all streams.

use flowgauge_wire::Budget;

use super::half::NONE;
use super::piece::Piece;
use super::queue::Queue;

/// Bytes in a block: a full Ethernet segment fits.
pub(super) const BLOCK: usize = 2048;
/// Where segments have joined, the end of a block has a bit for each of its bytes: whether a packet begins
/// there.
const NOTES: usize = BLOCK / 8;
/// Blocks that are allocated together: a mebibyte.
const SLAB: usize = 512;
/// What a block costs, its description included, and that of a queue: each has one block at least.
pub(super) const BLOCK_COST: u64 =
    (BLOCK + size_of::<Piece>() + size_of::<Queue>() + 2 * size_of::<u32>()) as u64;

/// Blocks by index, each with its [`Piece`]. Grows by slabs up to its limit and never shrinks; a
/// freed block is the next one given out, while it is still in the cache.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    slabs: Vec<Box<[u8]>>,
    pieces: Vec<Piece>,
    free: u32,
    used: usize,
    limit: usize,
    /// What blocks in use are charged to, where others share it.
    budget: Option<Budget>,
    /// Blocks are charged up to here.
    ceiling: u64,
}

impl Pool {
    pub(super) fn new(memory_bytes: u64) -> Pool {
        Pool {
            slabs: Vec::new(),
            pieces: Vec::new(),
            free: NONE,
            used: 0,
            limit: blocks_in(memory_bytes),
            budget: None,
            ceiling: u64::MAX,
        }
    }

    /// A block for `piece`; `None` when the limit is reached.
    pub(super) fn allocate(&mut self, piece: Piece) -> Option<u32> {
        if self.used >= self.limit {
            return None;
        }
        if let Some(budget) = &self.budget
            && !budget.charge(BLOCK_COST, self.ceiling)
        {
            return None;
        }
        let index = match self.pieces.get_mut(self.free as usize) {
            Some(slot) => {
                let index = self.free;
                self.free = slot.next;
                *slot = piece;
                index
            }
            None => {
                let index = self.pieces.len();
                if index == self.slabs.len() * SLAB {
                    self.slabs.push(vec![0; SLAB * BLOCK].into_boxed_slice());
                }
                self.pieces.push(piece);
                index as u32
            }
        };
        self.used += 1;
        Some(index)
    }

    /// Charges blocks to `budget` from now on, besides the limit. None may be in use.
    pub(super) fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    /// Blocks are charged while no more than this is.
    #[inline]
    pub(super) fn set_ceiling(&mut self, bytes: u64) {
        self.ceiling = bytes;
    }

    /// Takes the charge of a block off before it is freed: its bytes go to somebody who charges
    /// them anew.
    #[inline]
    pub(super) fn uncharge(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release(BLOCK_COST);
        }
    }

    /// Takes back a block that is not charged any more ([`Pool::uncharge`]).
    pub(super) fn free(&mut self, index: u32) {
        if let Some(slot) = self.pieces.get_mut(index as usize) {
            *slot = Piece {
                next: self.free,
                ..Piece::EMPTY
            };
            self.free = index;
            self.used -= 1;
        }
    }

    #[inline]
    pub(super) fn piece(&self, index: u32) -> Option<&Piece> {
        self.pieces.get(index as usize)
    }

    #[inline]
    pub(super) fn piece_mut(&mut self, index: u32) -> Option<&mut Piece> {
        self.pieces.get_mut(index as usize)
    }

    /// The piece's bytes; empty when they were not captured.
    #[inline]
    pub(super) fn bytes(&self, index: u32) -> &[u8] {
        let Some(piece) = self.piece(index).filter(|piece| piece.captured) else {
            return &[];
        };
        let start = (index as usize % SLAB) * BLOCK + usize::from(piece.start);
        self.slabs
            .get(index as usize / SLAB)
            .and_then(|slab| slab.get(start..start + piece.len as usize))
            .unwrap_or(&[])
    }

    /// Overwrites bytes of a piece from `offset` on.
    pub(super) fn write(&mut self, index: u32, offset: usize, data: &[u8]) {
        let Some(piece) = self.pieces.get(index as usize) else {
            return;
        };
        let start = (index as usize % SLAB) * BLOCK + usize::from(piece.start) + offset;
        let slab = self.slabs.get_mut(index as usize / SLAB);
        if let Some(target) = slab.and_then(|slab| slab.get_mut(start..start + data.len())) {
            target.copy_from_slice(data);
        }
    }

    /// Appends to a piece, if its block has room for all of `data` and for notes where packets begin in
    /// it: one `begins` there, or not.
    pub(super) fn append(&mut self, index: u32, data: &[u8], begins: bool) -> bool {
        let Some(&piece) = self.pieces.get(index as usize) else {
            return false;
        };
        let len = piece.len as usize;
        if !piece.captured || usize::from(piece.start) + len + data.len() > BLOCK - NOTES {
            return false;
        }
        self.write(index, len, data);
        let is_noted = begins || piece.has_joined;
        if is_noted && let Some(notes) = self.notes_mut(index) {
            if !piece.has_joined {
                notes.fill(0);
            }
            if begins && let Some(byte) = notes.get_mut(len / 8) {
                *byte |= 1 << (len % 8);
            }
        }
        if let Some(piece) = self.pieces.get_mut(index as usize) {
            piece.len += data.len() as u32;
            piece.has_joined = is_noted;
        }
        true
    }

    /// Tells where packets begin in a piece, in order.
    #[inline]
    pub(super) fn beginnings(&self, index: u32, mut tell: impl FnMut(u32)) {
        let Some(piece) = self.piece(index) else {
            return;
        };
        if piece.begins {
            tell(0);
        }
        if !piece.has_joined {
            return;
        }
        let slab = self.slabs.get(index as usize / SLAB);
        let notes = slab.and_then(|slab| slab.get(notes_of(index)));
        let notes = notes.unwrap_or(&[]).iter().zip((0..piece.len).step_by(8));
        for (&byte, from) in notes {
            let mut rest = byte;
            while rest != 0 {
                let at = from + rest.trailing_zeros();
                // (A piece that was cut in two has notes of what is no longer in it.)
                if at < piece.len {
                    tell(at);
                }
                rest &= rest - 1;
            }
        }
    }

    fn notes_mut(&mut self, index: u32) -> Option<&mut [u8]> {
        let slab = self.slabs.get_mut(index as usize / SLAB)?;
        slab.get_mut(notes_of(index))
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used as u64 * BLOCK_COST
    }

    /// Whether more than seven eighths are used of what is there up to `ceiling`.
    pub(super) fn is_tight(&self, ceiling: u64) -> bool {
        if let Some(budget) = &self.budget {
            let bytes = budget.limit().min(ceiling);
            return budget.used() > bytes - bytes / 8;
        }
        self.used > self.limit - self.limit / 8
    }
}

/// Where the notes of a block are in its slab.
fn notes_of(index: u32) -> core::ops::Range<usize> {
    let end = (index as usize % SLAB + 1) * BLOCK;
    end - NOTES..end
}

/// Blocks that fit into so many bytes.
fn blocks_in(bytes: u64) -> usize {
    (bytes / BLOCK_COST).min(u64::from(NONE - 1)) as usize
}
