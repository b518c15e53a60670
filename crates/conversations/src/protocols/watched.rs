//! What was said in connections of which it does not tell yet what is spoken.

use flowgauge_sys::prefetch::{prefetch, prefetch_at};
use flowgauge_wire::Nanos;

use super::detect::{BEGINNING, Found};
use super::table::Piece;

/// Bytes of each direction that are kept of a connection that is of no protocol that is read, so far.
const KEPT: usize = 2 << 10;
/// Pieces of a connection at most: it is given up with the last of them.
pub(super) const MOST_PIECES: usize = 6;
/// Bytes for which there is room at first.
const FIRST: usize = 192;
/// Connections whose memory is used again, and the most bytes of one.
const SPARE: usize = 1 << 12;
const SPARE_BYTES: usize = 1 << 10;
const CACHE_LINE: usize = 64;

/// Connections that are watched, by numbers.
#[derive(Default)]
pub(super) struct Watched {
    all: Vec<Kept>,
    free: Vec<u32>,
}

/// What was said in one of them.
///
/// Many connections are watched at once, and what is said next in one is looked at when nothing of it is in the CPU's cache: so it
/// stands in two places, not in one for each vector, and what every look needs in the first line of one.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Kept {
    /// What the responder said, and behind it what the initiator did.
    said: Vec<u8>,
    /// Where that begins.
    split: usize,
    /// Of which connection.
    pub(super) owner: u32,
    count: u8,
    /// Both sides began with a line that is not complete, and only its end can tell more.
    pub(super) awaits_line: bool,
    is_open: bool,
    /// All pieces are [words](are_words).
    are_words: bool,
    pieces: [KeptPiece; MOST_PIECES],
}

/// One piece.
#[derive(Clone, Copy, Default)]
pub(super) struct KeptPiece {
    time: Nanos,
    gap_before: u64,
    len: u32,
    /// Bytes of it that are not kept.
    pub(super) left_out: u32,
    pub(super) from_initiator: bool,
    /// No protocol begins with it, whatever follows.
    pub(super) begins_nothing: bool,
}

impl Kept {
    pub(super) fn pieces(&self) -> &[KeptPiece] {
        self.pieces.get(..usize::from(self.count)).unwrap_or(&[])
    }

    pub(super) fn pieces_mut(&mut self) -> &mut [KeptPiece] {
        let count = usize::from(self.count);
        self.pieces.get_mut(..count).unwrap_or(&mut [])
    }

    /// What each side said, the responder first.
    fn sides(&self) -> [&[u8]; 2] {
        let (responder, initiator) = self.said.split_at(self.split.min(self.said.len()));
        [responder, initiator]
    }

    /// The pieces as they came.
    pub(super) fn said(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut rest = self.sides();
        self.pieces().iter().map(move |kept| {
            let rest = &mut rest[usize::from(kept.from_initiator)];
            let (bytes, behind) = rest.split_at((kept.len as usize).min(rest.len()));
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
        let mut ranges = [(0, 0); 2];
        let mut have_holes = [false; 2];
        for (at, piece) in self.pieces().iter().enumerate() {
            let side = usize::from(piece.from_initiator);
            let (start, end) = &mut ranges[side];
            have_holes[side] |= at >= place && piece.gap_before > 0 && *end > *start;
            if have_holes[side] {
                continue;
            }
            *end += piece.len as usize;
            if at < place {
                *start = *end;
            }
        }
        let sides = self.sides();
        [0, 1].map(|side| {
            let (start, end) = ranges[side];
            sides[side].get(start..end).unwrap_or(&[])
        })
    }

    /// Whether all that was said are [words](are_words), of which no protocol and no signature says yes.
    pub(super) fn are_words(&self) -> bool {
        self.are_words
    }

    /// Bytes of memory that it takes.
    pub(super) fn held(&self) -> u64 {
        (size_of::<Kept>() + self.said.capacity()) as u64
    }

    /// When something was said last.
    pub(super) fn last(&self) -> Nanos {
        self.pieces()
            .last()
            .map(|piece| piece.time)
            .unwrap_or_default()
    }

    pub(super) fn keep(&mut self, piece: &Piece<'_>) {
        let Some(kept) = self.pieces.get_mut(usize::from(self.count)) else {
            return;
        };
        *kept = KeptPiece {
            time: piece.time,
            gap_before: piece.gap_before,
            len: piece.bytes.len() as u32,
            from_initiator: piece.from_initiator,
            ..KeptPiece::default()
        };
        self.are_words = (self.are_words || self.count == 0) && are_words(piece.bytes);
        self.count += 1;
        if self.said.capacity() == 0 {
            self.said.reserve(FIRST);
        }
        let end = self.said.len();
        self.said.extend_from_slice(piece.bytes);
        if !piece.from_initiator {
            // In front of what the initiator said.
            if let Some(moved) = self.said.get_mut(self.split..) {
                moved.rotate_left(end - self.split);
            }
            self.split += piece.bytes.len();
        }
    }

    /// This was found in the only piece that there is.
    pub(super) fn begins_nothing(&mut self, found: Found) {
        if let Some(first) = self.pieces_mut().first_mut() {
            first.begins_nothing = found == Found::Nothing && (first.len as usize) < BEGINNING;
        }
    }

    /// Whether the last piece, this one, still does not tell more.
    pub(super) fn still_awaits_line(&self, last: &Piece<'_>) -> bool {
        self.awaits_line
            && self.sides()[usize::from(last.from_initiator)].len() < BEGINNING
            && memchr::memchr(b'\n', last.bytes).is_none()
    }

    /// No protocol that is read begins with what there is: of the last piece no more than the signatures need
    /// is kept.
    pub(super) fn shorten(&mut self) {
        let sides = self.sides().map(<[u8]>::len);
        let split = self.split;
        let Some(last) = self.pieces_mut().last_mut() else {
            return;
        };
        let side = usize::from(last.from_initiator);
        let before = sides[side] - last.len as usize;
        let kept = KEPT.saturating_sub(before).min(last.len as usize);
        last.left_out = last.len - kept as u32;
        last.len = kept as u32;
        let start = if last.from_initiator { split } else { 0 };
        let cut = start + before + kept..start + sides[side];
        if side == 0 {
            self.split -= cut.len();
        }
        self.said.drain(cut);
    }

    fn clear(&mut self) {
        self.said.clear();
        self.split = 0;
        self.count = 0;
        self.awaits_line = false;
        self.is_open = false;
    }
}

/// Whether these bytes are printable ones from the first to the last, the first a small letter. What begins with such, and consists of
/// such, is no complete line and no message of a binary protocol: no protocol and no signature says yes to it. (Four
/// hexadecimal digits would be git's.) Long ones are not looked at.
fn are_words(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first_chunk::<4>() else {
        return false;
    };
    first[0].is_ascii_lowercase()
        && bytes.len() <= BEGINNING
        && !first.iter().all(u8::is_ascii_hexdigit)
        && is_printable(bytes)
}

/// Whether all of these bytes are from the blank to the tilde.
#[inline]
pub(super) fn is_printable(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // A byte below the blank borrows, one above the tilde passes 127: the highest bit of some is set if one is not printable.
    let odd = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (word.wrapping_sub(ONES * 0x20) & !word | word.wrapping_add(ONES) | word) & ONES << 7
    };
    let Some(last) = bytes.last_chunk() else {
        return bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    };
    let (words, _) = bytes.as_chunks();
    words.iter().fold(odd(last), |all, word| all | odd(word)) == 0
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

    /// Brings one closer, and in the second step what was said.
    #[inline]
    pub(super) fn prefetch(&self, number: u32, step: usize) {
        let Some(kept) = self.get(number) else {
            return;
        };
        if step == 1 {
            prefetch(kept);
            prefetch(&kept.pieces[1]);
        } else {
            prefetch_at(&kept.said, 0);
            prefetch_at(&kept.said, CACHE_LINE);
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
            if self.free.len() >= SPARE || kept.said.capacity() > SPARE_BYTES {
                *kept = Kept::default();
            }
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept is what was said, in any order of the sides, shortened or not.
    #[test]
    fn each_side_is_kept_in_one_piece() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let mut kept = Kept::default();
            let mut model: Vec<(bool, u64, Vec<u8>)> = Vec::new();
            for place in 0..MOST_PIECES {
                let most = [3_000, 40, 40, 40][random(4) as usize];
                let len = random(most) as usize + 1;
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + place) as u8).collect();
                let (from_initiator, gap_before) = (random(2) == 0, random(5) / 4 * 9);
                kept.keep(&Piece {
                    bytes: &bytes,
                    gap_before,
                    skipped: 0,
                    from_initiator,
                    time: Nanos(place as u64),
                });
                model.push((from_initiator, gap_before, bytes));
                if random(3) == 0 {
                    kept.shorten();
                    let said = model.iter().filter(|it| it.0 == from_initiator);
                    let all: usize = said.map(|it| it.2.len()).sum();
                    if let Some((.., last)) = model.last_mut() {
                        last.truncate(KEPT.saturating_sub(all - last.len()));
                        let left_out = kept.pieces()[place].left_out as usize;
                        assert_eq!(last.len() + left_out, len);
                    }
                }
                let said = kept
                    .said()
                    .map(|it| (it.from_initiator, it.gap_before, it.bytes.to_vec()));
                assert_eq!(said.collect::<Vec<_>>(), model);
                for from in 0..=place {
                    let of = |side: bool| {
                        let mut all: Vec<u8> = Vec::new();
                        for (_, gap, bytes) in model[from..].iter().filter(|it| it.0 == side) {
                            if *gap > 0 && !all.is_empty() {
                                break;
                            }
                            all.extend(bytes);
                        }
                        all
                    };
                    assert_eq!(kept.said_from(from), [of(false), of(true)], "{model:?}");
                }
            }
        }
    }

    #[test]
    fn words_are_printable_from_the_first_to_the_last() {
        for length in 4..40 {
            let mut bytes = vec![b'x'; length];
            assert!(are_words(&bytes));
            for (at, byte) in (0..length).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                bytes[at] = byte;
                let is_first = at > 0 || byte.is_ascii_lowercase();
                let is_printable = matches!(byte, b' '..=b'~');
                assert_eq!(are_words(&bytes), is_first && is_printable, "{bytes:?}");
                bytes[at] = b'x';
            }
        }
        for no in ["", "abc", "beef", "0032git-upload-pack", "Word", " word"] {
            assert!(!are_words(no.as_bytes()), "{no}");
        }
    }
}
