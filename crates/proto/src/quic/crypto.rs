//! The stream of handshake messages in frames of type CRYPTO (RFC 9000, section 19.6).

/// Bytes that wait for those before them.
const MAX_BYTES: usize = 64 << 10;
/// Pieces that wait.
const MAX_PIECES: usize = 64;

/// Puts pieces into order.
#[derive(Debug, Default)]
pub(super) struct Crypto {
    /// Up to here all came.
    next: u64,
    /// What came before its time, by its place.
    waiting: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Crypto {
    /// Bytes of memory that it keeps beside itself.
    pub(super) fn held(&self) -> usize {
        self.bytes + self.waiting.capacity() * size_of::<(u64, Vec<u8>)>()
    }

    /// A piece; gives what is in order now to `take`. False: too much waits, it is left out.
    pub(super) fn piece(&mut self, place: u64, bytes: &[u8], take: &mut dyn FnMut(&[u8])) -> bool {
        if place > self.next {
            let is_known =
                (self.waiting.iter()).any(|(at, piece)| *at == place && piece.len() >= bytes.len());
            if is_known || bytes.is_empty() {
                return true;
            }
            let is_full = self.waiting.len() >= MAX_PIECES
                || self.bytes + bytes.len() > MAX_BYTES
                || place - self.next > MAX_BYTES as u64;
            if is_full {
                return false;
            }
            self.bytes += bytes.len();
            let at = self.waiting.partition_point(|(at, _)| *at < place);
            self.waiting.insert(at, (place, bytes.to_vec()));
            return true;
        }
        self.ordered(place, bytes, take);
        while self
            .waiting
            .first()
            .is_some_and(|(place, _)| *place <= self.next)
        {
            let (place, bytes) = self.waiting.remove(0);
            self.bytes -= bytes.len();
            self.ordered(place, &bytes, take);
        }
        true
    }

    /// A piece that begins at or before what is next: its first copy counts.
    fn ordered(&mut self, place: u64, bytes: &[u8], take: &mut dyn FnMut(&[u8])) {
        let known = usize::try_from(self.next - place).unwrap_or(usize::MAX);
        if let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
            self.next += fresh.len() as u64;
            take(fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_any_order_and_again() {
        let mut crypto = Crypto::default();
        let mut text = Vec::new();
        let mut take = |bytes: &[u8]| text.extend_from_slice(bytes);
        for (place, bytes) in [
            (9, b"jkl".as_slice()),
            (3, b"def"),
            (3, b"de"),
            (5, b"fghi"),
            (0, b"abcd"),
            (0, b"abcdefghijklm"),
            (2, b"c"),
        ] {
            assert!(crypto.piece(place, bytes, &mut take));
        }
        assert_eq!(text, b"abcdefghijklm");
        assert_eq!((crypto.bytes, crypto.waiting.len()), (0, 0));
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut crypto = Crypto::default();
        let mut took = 0;
        for place in 1..1000 {
            crypto.piece(place * 2, b"x", &mut |_| took += 1);
        }
        assert_eq!((took, crypto.waiting.len()), (0, MAX_PIECES));
        assert!(!crypto.piece(1, &vec![0; MAX_BYTES], &mut |_| took += 1));
        assert!(!crypto.piece(u64::MAX, b"x", &mut |_| took += 1));
    }
}
