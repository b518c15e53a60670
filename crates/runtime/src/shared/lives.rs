//! Synthesises creations and terminations of streams that were lost.

use std::collections::{HashMap, VecDeque};

use flowgauge_stream::StreamStatus;
use flowgauge_stream::engine::StreamSnapshot;

use super::layout::Kind;

/// What a client has heard of streams that have not ended: so that each of which anything comes begins with a creation
/// and ends with a termination, whatever was lost in between.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// As they were when they were heard of last, by the place of their number that is used again.
    known: HashMap<u32, Box<StreamSnapshot>>,
    /// Those that end because nothing comes any more.
    ending: VecDeque<StreamSnapshot>,
    /// Creations that were made up.
    made_up: u64,
}

impl Lives {
    /// What has to come before an event; it is to be asked again then.
    pub(super) fn before(
        &mut self,
        kind: Kind,
        stream: &StreamSnapshot,
    ) -> Option<(Kind, StreamSnapshot)> {
        let place = stream.uid as u32;
        match self.known.get(&place) {
            Some(known) if known.uid == stream.uid => None,
            // Whoever had the place before has ended unheard.
            Some(_) => {
                let gone = self.known.remove(&place)?;
                Some((Kind::Terminated, ended(*gone)))
            }
            None if kind == Kind::Created => None,
            None => {
                self.made_up += 1;
                self.known.insert(place, Box::new(*stream));
                Some((Kind::Created, newborn(stream)))
            }
        }
    }

    /// An event comes.
    pub(super) fn see(&mut self, kind: Kind, stream: &StreamSnapshot) {
        let place = stream.uid as u32;
        if kind == Kind::Terminated {
            self.known.remove(&place);
            return;
        }
        match self.known.get_mut(&place) {
            Some(known) => **known = *stream,
            None => {
                self.known.insert(place, Box::new(*stream));
            }
        }
    }

    /// No event comes any more: the next stream that ends with that.
    pub(super) fn end_one(&mut self) -> Option<StreamSnapshot> {
        if !self.known.is_empty() {
            let left = self.known.drain().map(|(_, stream)| ended(*stream));
            self.ending.extend(left);
            self.ending
                .make_contiguous()
                .sort_unstable_by_key(|stream| stream.uid);
        }
        self.ending.pop_front()
    }

    /// Creations that did not come, of streams of which anything did.
    pub(super) fn made_up(&self) -> u64 {
        self.made_up
    }
}

/// A stream as it may have been when it was created.
fn newborn(stream: &StreamSnapshot) -> StreamSnapshot {
    StreamSnapshot {
        status: StreamStatus::Active,
        missing_at_end: 0,
        chunks: 0,
        ..*stream
    }
}

/// One that has ended, nobody knows how.
fn ended(mut stream: StreamSnapshot) -> StreamSnapshot {
    if stream.status == StreamStatus::Active {
        stream.status = StreamStatus::EndOfInput;
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::snapshot;
    use super::*;

    /// What comes with these events, each a kind and a stream's number.
    fn told(lives: &mut Lives, events: &[(Kind, u64)]) -> Vec<(Kind, u64)> {
        let mut told = Vec::new();
        for &(kind, uid) in events {
            let stream = StreamSnapshot {
                status: StreamStatus::Active,
                ..snapshot(uid)
            };
            while let Some((kind, stream)) = lives.before(kind, &stream) {
                told.push((kind, stream.uid));
                let is_end = stream.status == StreamStatus::EndOfInput;
                assert_eq!(is_end, kind == Kind::Terminated);
            }
            lives.see(kind, &stream);
            told.push((kind, uid));
        }
        told
    }

    #[test]
    fn what_did_not_come_is_made_up() {
        use Kind::{Created, Data, Terminated};
        let mut lives = Lives::default();
        let again = 1 << 32;
        let whole = [(Created, 1), (Data, 1), (Terminated, 1)];
        assert_eq!(told(&mut lives, &whole), whole);
        assert_eq!(
            told(&mut lives, &[(Data, 2), (Data, 2), (Terminated, 2)]),
            [(Created, 2), (Data, 2), (Data, 2), (Terminated, 2)]
        );
        assert_eq!(
            told(&mut lives, &[(Terminated, 3)]),
            [(Created, 3), (Terminated, 3)]
        );
        // Its number is used again.
        assert_eq!(
            told(&mut lives, &[(Created, 4), (Data, again | 4), (Created, 5)]),
            [
                (Created, 4),
                (Terminated, 4),
                (Created, again | 4),
                (Data, again | 4),
                (Created, 5)
            ]
        );
        assert_eq!(lives.made_up(), 3);
        let left: Vec<u64> = core::iter::from_fn(|| lives.end_one())
            .map(|stream| stream.uid)
            .collect();
        assert_eq!(left, [5, again | 4]);
    }
}
