//! A matcher in all streams of a core.

use std::collections::HashMap;
use std::sync::Arc;

use flowgauge_matcher::{Match, Matcher, PatternError, PatternSet, StreamState};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::Nanos;

/// How many packets the steps of looking ahead are apart.
const AHEAD: usize = 16;

/// A matcher and what it keeps of each stream.
pub(super) struct Search {
    matcher: Matcher,
    /// By the number of the stream.
    states: Vec<StreamState>,
    /// Patterns that were found, by the number of the stream, where that is asked for.
    seen: Option<HashMap<u32, Vec<u32>>>,
    /// The streams of the last packets that were looked ahead at.
    ahead: [u32; 2 * AHEAD],
    at: usize,
}

/// A match, and whether it is the first of its pattern in its stream (only known where it is asked
/// for).
pub(super) struct Finding {
    pub(super) found: Match,
    pub(super) time: Nanos,
    pub(super) is_first: bool,
}

impl Search {
    pub(super) fn new(set: &Arc<PatternSet>, with_seen: bool) -> Result<Search, PatternError> {
        Ok(Search {
            matcher: Matcher::new(set)?,
            states: Vec::new(),
            seen: with_seen.then(HashMap::new),
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
            on_match(Finding::new(found, time, stream, seen));
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
            on_match(Finding::new(found, time(), stream, seen));
        });
        if let Some(seen) = seen {
            seen.remove(&stream);
        }
    }

    /// Bytes for whose stream there was no memory.
    pub(super) fn unsearched(&self) -> u64 {
        self.matcher.unsearched_bytes()
    }
}

impl Finding {
    fn new(
        found: Match,
        time: Nanos,
        stream: u32,
        seen: &mut Option<HashMap<u32, Vec<u32>>>,
    ) -> Finding {
        let is_first = seen.as_mut().is_some_and(|seen| {
            let patterns = seen.entry(stream).or_default();
            match patterns.binary_search(&found.pattern) {
                Ok(_) => false,
                Err(at) => {
                    patterns.insert(at, found.pattern);
                    true
                }
            }
        });
        Finding {
            found,
            time,
            is_first,
        }
    }
}
