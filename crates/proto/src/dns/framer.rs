//! Messages of a stream (RFC 1035, section 4.2.2; RFC 7766).

use super::{Header, look_stream};
use crate::Look;

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message.
    Message(&'a [u8]),
    /// The beginning of one: a hole or the end of the stream cut it.
    Cut(&'a [u8]),
    /// Where the next message begins is not known: it is looked for.
    Lost,
}

/// Bytes that are kept of what may begin a message, where one is looked for: less than a header does not tell.
const MAX_BEGINNING: usize = 2 + Header::LEN;

/// Finds messages in the stream of one direction. Keeps at most one, which has at most 65,535 bytes.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    state: State,
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// In a message, or between two: what has come is kept, its length too.
    #[default]
    Message,
    /// In one that was cut: so many bytes of it are left.
    Skip(usize),
    Lost,
}

/// The length that stands before a message, and what follows it.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*length)), rest))
}

impl Framer {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Whether the next message is looked for.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// The next bytes of the stream.
    pub fn data(&mut self, bytes: &[u8], mut take: impl FnMut(Frame<'_>)) {
        match self.is_lost() {
            true => self.search(bytes, &mut take),
            false => self.messages(bytes, &mut take),
        }
    }

    /// Looks for a piece of data that begins a message, of which the length can be a piece of its own.
    fn search(&mut self, bytes: &[u8], take: &mut impl FnMut(Frame<'_>)) {
        let mut all = core::mem::take(&mut self.kept);
        all.extend_from_slice(bytes);
        if let Some(bytes) = [bytes, &all]
            .into_iter()
            .find(|bytes| look_stream(bytes) == Look::Yes)
        {
            self.state = State::Message;
            return self.messages(bytes, take);
        }
        let may_be =
            |bytes: &&[u8]| bytes.len() < MAX_BEGINNING && look_stream(bytes) == Look::More;
        if let Some(beginning) = [all.as_slice(), bytes].into_iter().find(may_be) {
            self.kept.extend_from_slice(beginning);
        }
    }

    fn messages(&mut self, bytes: &[u8], take: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match &mut self.state {
                State::Lost => return,
                State::Skip(left) => {
                    let skipped = (*left).min(rest.len());
                    *left -= skipped;
                    if *left == 0 {
                        self.state = State::Message;
                    }
                    skipped
                }
                State::Message if self.kept.is_empty() => match split(rest) {
                    Some((length, _)) if length < Header::LEN => {
                        self.lose(take);
                        return;
                    }
                    Some((length, message)) if message.len() >= length => {
                        let (message, _) = message.split_at(length);
                        take(Frame::Message(message));
                        length + 2
                    }
                    _ => {
                        self.kept.extend_from_slice(rest);
                        return;
                    }
                },
                State::Message => {
                    // First the length, then all that it says.
                    let wanted = split(&self.kept).map_or(2, |(length, _)| length + 2);
                    let more = rest.len().min(wanted.saturating_sub(self.kept.len()));
                    self.kept
                        .extend_from_slice(rest.get(..more).unwrap_or(rest));
                    match split(&self.kept) {
                        Some((length, _)) if length < Header::LEN => {
                            self.lose(take);
                            return;
                        }
                        Some((length, message)) if message.len() == length => {
                            take(Frame::Message(message));
                            self.kept.clear();
                        }
                        _ => {}
                    }
                    more
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap(&mut self, missing: u64, mut take: impl FnMut(Frame<'_>)) {
        if missing == 0 {
            return;
        }
        let left = match self.state {
            State::Lost => return self.kept.clear(),
            State::Skip(left) => left,
            State::Message => {
                let left = self.cut(&mut take);
                left.unwrap_or(0)
            }
        };
        match usize::try_from(missing) {
            Ok(missing) if missing < left => self.state = State::Skip(left - missing),
            Ok(missing) if missing == left => self.state = State::Message,
            _ => self.lose(&mut take),
        }
    }

    /// The stream is over.
    pub fn finish(&mut self, mut take: impl FnMut(Frame<'_>)) {
        if let State::Message = self.state {
            self.cut(&mut take);
        }
        self.kept.clear();
        self.state = State::Lost;
    }

    /// Gives up the message under way. Returns how many bytes of it are left, if that is known.
    fn cut(&mut self, take: &mut impl FnMut(Frame<'_>)) -> Option<usize> {
        let (length, message) = split(&self.kept)?;
        let left = length.saturating_sub(message.len());
        take(Frame::Cut(message));
        self.kept.clear();
        Some(left)
    }

    fn lose(&mut self, take: &mut impl FnMut(Frame<'_>)) {
        self.kept.clear();
        self.state = State::Lost;
        take(Frame::Lost);
    }
}
