//! Zeek's `history`, packed into 16 bytes.

/// The letters, as their number in [`LETTERS`]. Upper case (added 0) is the initiator's, lower case
/// (added 1) the responder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Letter {
    Syn = 2,
    SynAck = 4,
    Ack = 6,
    Data = 8,
    Fin = 10,
    Rst = 12,
    Checksum = 14,
    Gap = 16,
    Retransmission = 18,
    ZeroWindow = 20,
    Inconsistent = 22,
    MultiFlag = 24,
}

/// Number of the mark for roles that were exchanged.
const FLIPPED: u8 = 1;

/// By number; 0 ends a history.
const LETTERS: &[u8; 32] = b"\0^SsHhAaDdFfRrCcGgTtWwIiQq\0\0\0\0\0\0";

/// Bits per letter.
const BITS: u32 = 5;

/// Letters per word.
const PER_WORD: usize = 12;

/// A word that is at least this large is full: no letter has number 0.
const FULL: u64 = 1 << (BITS as usize * (PER_WORD - 1));

/// The most letters kept; later ones are dropped.
pub(crate) const CAPACITY: usize = 2 * PER_WORD;

/// A history: the first word's letters, then the second's, the newest of a word in its low bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History([u64; 2]);

impl History {
    pub(crate) const EMPTY: History = History([0; 2]);

    #[inline(always)]
    pub(crate) fn push(&mut self, letter: Letter, from_initiator: bool) {
        self.push_number(letter as u8 + u8::from(!from_initiator));
    }

    pub(crate) fn push_flipped(&mut self) {
        self.push_number(FLIPPED);
    }

    #[inline(always)]
    fn push_number(&mut self, number: u8) {
        let [first, second] = &mut self.0;
        let word = if *first < FULL { first } else { second };
        if *word < FULL {
            *word = *word << BITS | u64::from(number);
        }
    }

    /// As text, in `buffer`.
    pub(crate) fn text<'a>(&self, buffer: &'a mut [u8; CAPACITY]) -> &'a str {
        let mut len = 0;
        for word in self.0 {
            // From the first letter, which is in the highest bits in use.
            let mut left = (u64::BITS - word.leading_zeros()).div_ceil(BITS);
            while left > 0 {
                left -= 1;
                let Some(to) = buffer.get_mut(len) else { break };
                *to = LETTERS[(word >> (BITS * left)) as usize & 31];
                len += 1;
            }
        }
        core::str::from_utf8(buffer.get(..len).unwrap_or(&[])).unwrap_or("")
    }

    pub(crate) fn letters(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flat_map(|word| {
            let used = (u64::BITS - word.leading_zeros()).div_ceil(BITS);
            (0..used)
                .rev()
                .map(move |at| LETTERS[(word >> (BITS * at)) as usize & 31])
        })
    }

    /// Whether the initiator sent a SYN and then a RST with nothing of its own between that shows
    /// an established connection (Zeek's pattern `\^?S[^HAFGIQ]*R.*`).
    pub(crate) fn is_syn_then_rst(&self) -> bool {
        let mut letters = self.letters().skip_while(|&letter| letter == b'^');
        if letters.next() != Some(b'S') {
            return false;
        }
        letters
            .find(|letter| b"RHAFGIQ".contains(letter))
            .is_some_and(|letter| letter == b'R')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        let mut history = History::default();
        let mut buffer = [0; CAPACITY];
        assert_eq!(history.text(&mut buffer), "");
        history.push_flipped();
        history.push(Letter::Syn, true);
        history.push(Letter::SynAck, false);
        history.push(Letter::MultiFlag, false);
        assert_eq!(history.text(&mut buffer), "^Shq");
        for _ in 0..40 {
            history.push(Letter::Ack, true);
        }
        assert_eq!(history.text(&mut buffer), "^ShqAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn knows_half_open_scans() {
        let of = |letters: &[(Letter, bool)]| {
            let mut history = History::default();
            for &(letter, from_initiator) in letters {
                history.push(letter, from_initiator);
            }
            history.is_syn_then_rst()
        };
        assert!(of(&[(Letter::Syn, true), (Letter::Rst, true)]));
        assert!(of(&[
            (Letter::Syn, true),
            (Letter::SynAck, false),
            (Letter::Rst, true)
        ]));
        assert!(!of(&[
            (Letter::Syn, true),
            (Letter::Ack, true),
            (Letter::Rst, true)
        ]));
        assert!(!of(&[(Letter::Rst, true)]));
    }
}
