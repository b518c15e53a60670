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

/// What was found in streams before.
struct Seen {
    /// By the number of the stream, by pattern: where its last match began.
    last: HashMap<u32, Vec<(u32, Option<u64>)>>,
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
    /// same place are all told.
    pub(super) fn new(
        set: &Arc<PatternSet>,
        notes_all: bool,
        all: bool,
    ) -> Result<Search, PatternError> {
        let is_expression = |kind: &PatternKind| matches!(kind, PatternKind::Regex { .. });
        let patterns = set.patterns().iter();
        Ok(Search {
            matcher: Matcher::new(set)?,
            states: Vec::new(),
            seen: Seen {
                last: HashMap::new(),
                notes_all,
                once: patterns.map(|it| !all && is_expression(&it.kind)).collect(),
                repeats: 0,
            },
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
        seen.last.remove(&stream);
    }

    /// Matches that were left out, as one of their pattern that began at the same place had been told.
    pub(super) fn repeats(&self) -> u64 {
        self.seen.repeats
    }

    /// Bytes for whose stream there was no memory.
    pub(super) fn unsearched(&self) -> u64 {
        self.matcher.unsearched_bytes()
    }
}

impl Seen {
    /// Whether a match is the first of its pattern in its stream, as far as that is asked for; `None`: it begins where the one of
    /// its pattern before did, and is not to be told.
    fn note(&mut self, stream: u32, found: &Match) -> Option<bool> {
        let once = self.once.get(found.pattern as usize) == Some(&true);
        let once = once && found.start.is_some();
        if !once && !self.notes_all {
            return Some(false);
        }
        let patterns = self.last.entry(stream).or_default();
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
                patterns.insert(at, (found.pattern, found.start));
                Some(true)
            }
        }
    }
}
