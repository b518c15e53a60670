//! What was said in connections of which it does not tell yet what is spoken.

use flowgauge_sys::prefetch::prefetch;
use flowgauge_wire::Nanos;

use super::detect::{BEGINNING, Found};
use super::table::Piece;

/// Bytes of each direction that are kept of a connection that is of no protocol that is read, so far.
const KEPT: usize = 2 << 10;
/// Connections whose memory is used again, and the most bytes of one.
const SPARE: usize = 1 << 12;
const SPARE_BYTES: u64 = 1 << 10;

/// Connections that are watched, by numbers.
#[derive(Default)]
pub(super) struct Watched {
    all: Vec<Kept>,
    free: Vec<u32>,
}

/// What was said in one of them.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) pieces: Vec<KeptPiece>,
    /// The responder's, the initiator's.
    said: [Vec<u8>; 2],
    /// Of which connection.
    pub(super) owner: u32,
    /// Both sides began with a line that is not complete, and only its end can tell more.
    pub(super) awaits_line: bool,
    is_open: bool,
}

/// One piece.
pub(super) struct KeptPiece {
    pub(super) from_initiator: bool,
    gap_before: u64,
    time: Nanos,
    len: usize,
    /// Bytes of it that are not kept.
    pub(super) left_out: usize,
    /// No protocol begins with it, whatever follows.
    pub(super) begins_nothing: bool,
}

impl Kept {
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut rest = self.said.each_ref().map(Vec::as_slice);
        self.pieces.iter().map(move |kept| {
            let rest = &mut rest[usize::from(kept.from_initiator)];
            let (bytes, behind) = rest.split_at(kept.len.min(rest.len()));
            *rest = behind;
            Piece {
                bytes,
                gap_before: kept.gap_before,
                skipped: 0,
                from_initiator: kept.from_initiator,
                time: kept.time,
            }
        })
    }

    /// What was said from a piece on, by the responder and the initiator, up to their first holes.
    pub(super) fn said_from(&self, place: usize) -> [&[u8]; 2] {
        [false, true].map(|side| {
            let (mut start, mut end) = (0, 0);
            for (at, piece) in self.pieces.iter().enumerate() {
                if piece.from_initiator != side {
                    continue;
                }
                if at >= place && piece.gap_before > 0 && end > start {
                    break;
                }
                end += piece.len;
                if at < place {
                    start = end;
                }
            }
            self.said[usize::from(side)].get(start..end).unwrap_or(&[])
        })
    }

    /// Bytes of memory that it keeps beside itself.
    pub(super) fn held(&self) -> u64 {
        let said = self.said[0].capacity() + self.said[1].capacity();
        (self.pieces.capacity() * size_of::<KeptPiece>() + said) as u64
    }

    /// When something was said last.
    pub(super) fn last(&self) -> Nanos {
        self.pieces
            .last()
            .map(|piece| piece.time)
            .unwrap_or_default()
    }

    pub(super) fn keep(&mut self, piece: &Piece<'_>) {
        self.pieces.push(KeptPiece {
            from_initiator: piece.from_initiator,
            gap_before: piece.gap_before,
            time: piece.time,
            len: piece.bytes.len(),
            left_out: 0,
            begins_nothing: false,
        });
        self.said[usize::from(piece.from_initiator)].extend_from_slice(piece.bytes);
    }

    /// This was found in the only piece that there is.
    pub(super) fn begins_nothing(&mut self, found: Found) {
        if let Some(first) = self.pieces.first_mut() {
            first.begins_nothing = found == Found::Nothing && first.len < BEGINNING;
        }
    }

    /// Whether the last piece, this one, still does not tell more.
    pub(super) fn still_awaits_line(&self, last: &Piece<'_>) -> bool {
        self.awaits_line
            && self.said[usize::from(last.from_initiator)].len() < BEGINNING
            && memchr::memchr(b'\n', last.bytes).is_none()
    }

    /// No protocol that is read begins with what there is: of the last piece no more than the signatures need
    /// is kept.
    pub(super) fn shorten(&mut self) {
        if let Some(last) = self.pieces.last_mut() {
            let said = &mut self.said[usize::from(last.from_initiator)];
            let before = said.len() - last.len;
            let kept = KEPT.saturating_sub(before).min(last.len);
            last.left_out = last.len - kept;
            last.len = kept;
            said.truncate(before + kept);
        }
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.said.iter_mut().for_each(Vec::clear);
        self.awaits_line = false;
        self.is_open = false;
    }
}

impl Watched {
    /// A number for a connection.
    pub(super) fn open(&mut self, owner: u32) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Kept::default());
            self.all.len() as u32 - 1
        });
        if let Some(kept) = self.all.get_mut(number as usize) {
            kept.owner = owner;
            kept.is_open = true;
        }
        number
    }

    /// Those that are open.
    pub(super) fn open_ones(&self) -> impl Iterator<Item = (u32, &Kept)> {
        let all = self.all.iter().zip(0..);
        all.filter(|(kept, _)| kept.is_open)
            .map(|(kept, number)| (number, kept))
    }

    /// Brings one closer.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(kept) = self.get(number) {
            prefetch(&kept.pieces);
            prefetch(&kept.owner);
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Kept> {
        self.all.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Kept> {
        self.all.get_mut(number as usize)
    }

    /// Its number is another one's from now on. The memory of some is kept for them.
    pub(super) fn close(&mut self, number: u32) {
        if let Some(kept) = self
            .all
            .get_mut(number as usize)
            .filter(|kept| kept.is_open)
        {
            kept.clear();
            if self.free.len() >= SPARE || kept.held() > SPARE_BYTES {
                *kept = Kept::default();
            }
            self.free.push(number);
        }
    }
}
