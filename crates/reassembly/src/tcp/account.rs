//! What becomes of segments that are not handed on.

use core::ops::AddAssign;

/// What a segment counts for where it has no place, or loses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Account {
    /// A packet and its bytes.
    #[default]
    Packet,
    /// Its bytes only.
    Bytes,
    /// Nothing: what it is was counted elsewhere.
    Nothing,
}

/// What of a segment has no place in its stream, or not for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unplaced {
    /// So many bytes: they had come or had been given up before, are behind the FIN, or where the
    /// stream cannot be.
    pub bytes: u32,
    /// No byte of it has a place, not even in place of bytes that the snap length had cut off an earlier copy.
    pub whole: bool,
    /// [Packets](Account::Packet) of which the snap length had left nothing, and in whose place all of it is now.
    pub displaced: u32,
    /// None of it is where the stream is at all.
    pub outside: bool,
}

/// What waited and was not handed on: the stream was given up, began or ended elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// [Packets](Account::Packet) of which nothing was handed on.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl AddAssign for Forgotten {
    fn add_assign(&mut self, more: Forgotten) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// Of the places where packets begin leaves those behind the first `old` bytes, in what is left, of
/// `len` bytes. Returns how many packets nothing is left of.
pub(super) fn forget(begin: &mut Vec<u32>, old: u32, len: u32) -> u64 {
    let gone = begin.partition_point(|&at| at < old);
    let goes_on = gone != 0 && len != 0 && begin.get(gone) != Some(&old);
    begin.drain(..gone - usize::from(goes_on));
    for at in begin {
        *at = at.saturating_sub(old);
    }
    (gone - usize::from(goes_on)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_which_something_is_left_is_not_forgotten() {
        let forgotten = |old, len| {
            let mut begin = vec![0, 10, 20];
            (forget(&mut begin, old, len), begin)
        };
        assert_eq!(forgotten(5, 25), (0, vec![0, 5, 15]));
        assert_eq!(forgotten(10, 20), (1, vec![0, 10]));
        assert_eq!(forgotten(25, 5), (2, vec![0]));
        assert_eq!(forgotten(30, 0), (3, vec![]));
    }
}
