//! Records of a stream (RFC 5531, section 11).

use super::message::{MAX_FRAGMENT, look_stream};
use crate::Look;

/// Bytes of a record that are kept: the header with credentials, and the first arguments.
const KEPT: usize = 2048;

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A record.
    Record {
        /// Its beginning, up to the first hole.
        head: &'a [u8],
        /// Bytes of all of it, those of marks not counted, missing ones counted.
        bytes: u64,
        /// How many of them were missing.
        missing: u64,
        /// It came to its end.
        is_whole: bool,
    },
    /// Where the next record begins is not known: it is looked for.
    Lost,
}

/// Finds records in the stream of one direction. Keeps the beginning of one.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    state: State,
    head: Vec<u8>,
    /// A hole was in what is kept: nothing more is.
    is_head_over: bool,
    bytes: u64,
    missing: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a fragment: so many bytes of its mark have come.
    Mark([u8; 4], usize),
    /// Within one: so many bytes are left, and whether it is the record's last.
    Fragment(u32, bool),
    Lost,
}

impl Default for State {
    fn default() -> State {
        State::Mark([0; 4], 0)
    }
}

/// Whether a record begins here, of a stream of which the place is not known. Arguments of a call can look like
/// a reply in the first of several fragments, which is rare: that is not taken for one.
fn is_beginning(bytes: &[u8]) -> bool {
    let is_last = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let is_call = bytes.get(8..12) == Some(&[0; 4]);
    (is_last || is_call) && look_stream(bytes) == Look::Yes
}

impl Framer {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.head.capacity()
    }

    /// Whether the next record is looked for.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// The next bytes of the stream.
    pub fn data(&mut self, bytes: &[u8], mut take: impl FnMut(Frame<'_>)) {
        if self.is_lost() && is_beginning(bytes) {
            self.state = State::default();
        }
        let mut rest = bytes;
        while let Some((&first, behind)) = rest.split_first() {
            match &mut self.state {
                State::Lost => return,
                State::Mark(mark, count) => {
                    if let Some(place) = mark.get_mut(*count) {
                        *place = first;
                    }
                    *count += 1;
                    rest = behind;
                    if *count == mark.len() {
                        let mark = u32::from_be_bytes(*mark);
                        let (length, is_last) = (mark & 0x7fff_ffff, mark >> 31 == 1);
                        if length > MAX_FRAGMENT {
                            return self.lose(&mut take);
                        }
                        self.state = State::Fragment(length, is_last);
                        self.end_fragment(&mut take);
                    }
                }
                State::Fragment(left, _) => {
                    let length = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (part, behind) = rest.split_at(length);
                    *left -= length as u32;
                    self.bytes += length as u64;
                    let room = KEPT.saturating_sub(self.head.len());
                    if !self.is_head_over {
                        let kept = part.get(..room).unwrap_or(part);
                        self.head.extend_from_slice(kept);
                    }
                    rest = behind;
                    self.end_fragment(&mut take);
                }
            }
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap(&mut self, missing: u64, mut take: impl FnMut(Frame<'_>)) {
        match &mut self.state {
            _ if missing == 0 => {}
            State::Fragment(left, _) if missing <= u64::from(*left) => {
                *left -= missing as u32;
                self.bytes += missing;
                self.missing += missing;
                self.is_head_over = true;
                self.end_fragment(&mut take);
            }
            State::Fragment(left, _) => {
                self.bytes += u64::from(*left);
                self.missing += u64::from(*left);
                self.lose(&mut take);
            }
            State::Mark(..) => self.lose(&mut take),
            State::Lost => {}
        }
    }

    /// The stream is over.
    pub fn finish(&mut self, mut take: impl FnMut(Frame<'_>)) {
        self.give(false, &mut take);
        self.state = State::Lost;
    }

    fn end_fragment(&mut self, take: &mut impl FnMut(Frame<'_>)) {
        if let State::Fragment(0, is_last) = self.state {
            self.state = State::default();
            if is_last {
                self.give(true, take);
            }
        }
    }

    fn lose(&mut self, take: &mut impl FnMut(Frame<'_>)) {
        self.give(false, take);
        self.state = State::Lost;
        take(Frame::Lost);
    }

    /// Gives the record under way, if there is one.
    fn give(&mut self, is_whole: bool, take: &mut impl FnMut(Frame<'_>)) {
        if self.bytes > 0 {
            take(Frame::Record {
                head: &self.head,
                bytes: self.bytes,
                missing: self.missing,
                is_whole,
            });
        }
        self.head.clear();
        (self.bytes, self.missing, self.is_head_over) = (0, 0, false);
    }
}
