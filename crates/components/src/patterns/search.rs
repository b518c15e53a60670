//! A matcher in all streams of a core.

use std::collections::HashMap;
use std::sync::Arc;

use flowgauge_matcher::{Match, Matcher, PatternError, PatternKind, PatternSet, StreamState};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::Nanos;

/// How many packets the steps of looking ahead are apart.
const AHEAD: usize = 16;

/// A matcher and what it keeps of each stream.
pub(super) struct Search {
    matcher: Matcher,
    /// By the number of the stream.
    states: Vec<StreamState>,
    seen: Seen,
    /// The streams of the last packets that were looked ahead at.
    ahead: [u32; 2 * AHEAD],
    at: usize,
}

/// Patterns found in streams before, in a bounded amount of memory. When it is full, streams are forgotten in turn:
/// their matches are reported as if they were the first.
struct Seen {
    /// By the number of the stream, by pattern: where its last match began.
    last: HashMap<u32, Vec<(u32, Option<u64>)>>,
    /// Bytes in use, and their bound.
    held: usize,
    bound: usize,
    /// The stream to forget next, and the highest number of a stream so far.
    hand: u32,
    highest: u32,
    /// Streams forgotten before their end.
    forgotten: u64,
    /// Whether patterns are noted of which nothing but that they were found matters.
    notes_all: bool,
    /// By pattern: whether several matches of it can begin at a place, and only the first is told.
    once: Vec<bool>,
    /// Matches that began where the one of their pattern before did.
    repeats: u64,
}

/// A match, and whether it is the first of its pattern in its stream (only known where it is asked
/// for).
pub(super) struct Finding {
    pub(super) found: Match,
    pub(super) time: Nanos,
    pub(super) is_first: bool,
}

impl Search {
    /// `notes_all`: the first match of a pattern in a stream is told from others; with `all` matches of a pattern that begin at the
    /// same place are all told. What is remembered of streams takes `bound` bytes at most.
    pub(super) fn new(
        set: &Arc<PatternSet>,
        notes_all: bool,
        all: bool,
        bound: u64,
    ) -> Result<Search, PatternError> {
        let is_expression = |kind: &PatternKind| matches!(kind, PatternKind::Regex { .. });
        let patterns = set.patterns().iter();
        Ok(Search {
            matcher: Matcher::new(set)?,
            states: Vec::new(),
            seen: Seen::new(
                notes_all,
                patterns.map(|it| !all && is_expression(&it.kind)).collect(),
                bound,
            ),
            ahead: [u32::MAX; 2 * AHEAD],
            at: 0,
        })
    }

    pub(super) fn begin(&mut self, stream: u32) {
        let index = stream as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, StreamState::default);
        }
        self.states[index] = StreamState::default();
    }

    /// Each step reads what the step before has fetched: a stream's state, where its memory is, that
    /// memory. It makes `small` an eighth and `mix` a twentieth faster.
    #[inline(always)]
    pub(super) fn prefetch(&mut self, stream: u32) {
        prefetch_at(&self.states, stream as usize);
        self.at = (self.at + 1) % (2 * AHEAD);
        let last = core::mem::replace(&mut self.ahead[self.at], stream);
        if let Some(state) = self.states.get(last as usize) {
            self.matcher.prefetch(state, 1);
        }
        let middle = self.ahead[(self.at + AHEAD) % (2 * AHEAD)];
        if let Some(state) = self.states.get(middle as usize) {
            self.matcher.prefetch(state, 0);
        }
    }

    #[inline]
    pub(super) fn data(
        &mut self,
        stream: u32,
        bytes: &[u8],
        offset: u64,
        time: Nanos,
        mut on_match: impl FnMut(Finding),
    ) {
        let Some(state) = self.states.get_mut(stream as usize) else {
            return;
        };
        let seen = &mut self.seen;
        self.matcher.scan(state, bytes, offset, |found| {
            if let Some(is_first) = seen.note(stream, &found) {
                on_match(Finding {
                    found,
                    time,
                    is_first,
                });
            }
        });
    }

    /// Nothing more comes of a stream. What its end decides is found if that `is_complete`, at `time`.
    pub(super) fn end(
        &mut self,
        stream: u32,
        is_complete: bool,
        time: impl Fn() -> Nanos,
        mut on_match: impl FnMut(Finding),
    ) {
        let Some(state) = self.states.get_mut(stream as usize) else {
            return;
        };
        let seen = &mut self.seen;
        self.matcher.end(state, is_complete, |found| {
            if let Some(is_first) = seen.note(stream, &found) {
                let time = time();
                on_match(Finding {
                    found,
                    time,
                    is_first,
                });
            }
        });
        seen.forget(stream);
    }

    /// Matches that were left out, as one of their pattern that began at the same place had been told.
    pub(super) fn repeats(&self) -> u64 {
        self.seen.repeats
    }

    /// Streams whose earlier matches were forgotten for want of memory.
    pub(super) fn forgotten(&self) -> u64 {
        self.seen.forgotten
    }

    /// Bytes for whose stream there was no memory.
    pub(super) fn unsearched(&self) -> u64 {
        self.matcher.unsearched_bytes()
    }
}

impl Seen {
    /// Bytes of a stream's entry: twice its size, as the table grows to twice what it needs.
    const ENTRY: usize = 2 * (size_of::<(u32, Vec<(u32, Option<u64>)>)>() + 1);

    fn new(notes_all: bool, once: Vec<bool>, bound: u64) -> Seen {
        Seen {
            last: HashMap::new(),
            held: 0,
            bound: usize::try_from(bound).unwrap_or(usize::MAX),
            hand: 0,
            highest: 0,
            forgotten: 0,
            notes_all,
            once,
            repeats: 0,
        }
    }

    /// Whether a match is the first of its pattern in its stream, as far as that is asked for; `None`: it begins where the one of
    /// its pattern before did, and is not to be told.
    fn note(&mut self, stream: u32, found: &Match) -> Option<bool> {
        let once = self.once.get(found.pattern as usize) == Some(&true);
        let once = once && found.start.is_some();
        if !once && !self.notes_all {
            return Some(false);
        }
        let patterns = self.last.entry(stream).or_insert_with(|| {
            self.held += Seen::ENTRY;
            Vec::new()
        });
        match patterns.binary_search_by_key(&found.pattern, |(pattern, _)| *pattern) {
            Ok(at) => {
                let last = patterns.get_mut(at).map(|(_, last)| last);
                let before = last.and_then(|last| core::mem::replace(last, found.start));
                if once && before == found.start {
                    self.repeats += 1;
                    return None;
                }
                Some(false)
            }
            Err(at) => {
                let before = bytes(patterns);
                patterns.insert(at, (found.pattern, found.start));
                self.held += bytes(patterns) - before;
                self.highest = self.highest.max(stream);
                while self.held > self.bound {
                    self.forgotten += u64::from(self.forget(self.hand));
                    self.hand = if self.hand < self.highest {
                        self.hand + 1
                    } else {
                        0
                    };
                }
                Some(true)
            }
        }
    }

    /// Forgets the matches of a stream, if there were any.
    fn forget(&mut self, stream: u32) -> bool {
        let gone = self.last.remove(&stream);
        if let Some(patterns) = &gone {
            self.held -= Seen::ENTRY + bytes(patterns);
        }
        gone.is_some()
    }
}

fn bytes(patterns: &Vec<(u32, Option<u64>)>) -> usize {
    patterns.capacity() * size_of::<(u32, Option<u64>)>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_matches_is_bounded_and_given_back() {
        let mut seen = Seen::new(true, Vec::new(), 50_000);
        let found = |pattern| Match {
            end: 9,
            pattern,
            start: Some(1),
        };
        let mut firsts = 0;
        for _ in 0..3 {
            for stream in 0..1000 {
                for pattern in 0..10 {
                    firsts += u32::from(seen.note(stream, &found(pattern)) == Some(true));
                    let held = seen.last.values().map(|it| Seen::ENTRY + bytes(it));
                    assert_eq!(seen.held, held.sum::<usize>());
                    assert!(seen.held <= seen.bound);
                }
                assert_eq!(seen.note(stream, &found(9)), Some(false));
            }
        }
        // Each stream is forgotten before its turn comes again.
        assert_eq!(firsts, 30_000);
        assert_eq!(seen.forgotten, 3000 - seen.last.len() as u64);
        for stream in 0..1000 {
            seen.forget(stream);
        }
        assert_eq!(seen.held, 0);
        // Not even one stream has room.
        let mut seen = Seen::new(true, Vec::new(), 1);
        assert_eq!(seen.note(7, &found(0)), Some(true));
        assert_eq!((seen.held, seen.forgotten), (0, 1));
    }
}
