//! A matcher in all streams of a core.

use std::collections::HashMap;
use std::sync::Arc;

use flowgauge_flow::FlowRecord;
use flowgauge_matcher::{Match, Matcher, PatternError, PatternSet, StreamState};
use flowgauge_stream::{Chunk, Stream};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::Nanos;

/// How many packets the steps of looking ahead are apart.
const AHEAD: usize = 16;

/// A matcher and what it keeps of each stream.
pub(super) struct Search {
    matcher: Matcher,
    /// By [`Stream::id`].
    states: Vec<StreamState>,
    /// Patterns that were found, by [`Stream::id`], where that is asked for.
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

    pub(super) fn begin(&mut self, stream: &Stream<'_>) {
        let index = stream.id as usize;
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
        stream: &Stream<'_>,
        chunk: &Chunk<'_>,
        mut on_match: impl FnMut(Finding),
    ) {
        let Some(state) = self.states.get_mut(stream.id as usize) else {
            return;
        };
        let seen = &mut self.seen;
        self.matcher
            .scan(state, chunk.bytes, chunk.offset, |found| {
                on_match(Finding::new(found, chunk.time, stream.id, seen));
            });
    }

    pub(super) fn end(
        &mut self,
        stream: &Stream<'_>,
        trailing_gap: u64,
        mut on_match: impl FnMut(Finding),
    ) {
        let Some(state) = self.states.get_mut(stream.id as usize) else {
            return;
        };
        let seen = &mut self.seen;
        self.matcher.end(state, trailing_gap == 0, |found| {
            on_match(Finding::new(found, last_packet(stream), stream.id, seen));
        });
        if let Some(seen) = seen {
            seen.remove(&stream.id);
        }
    }

    /// Bytes for whose stream there was no memory.
    pub(super) fn unsearched(&self) -> u64 {
        self.matcher.unsearched_bytes()
    }
}

/// Capture time of the last packet of a stream.
fn last_packet(stream: &Stream<'_>) -> Nanos {
    let of_record = |record: &FlowRecord<'_>| {
        let side = match stream.from_initiator {
            true => &record.source,
            false => &record.destination,
        };
        // (Of a record that was cut from an earlier one it may have none.)
        match side.packets {
            0 => record.end,
            _ => side.last,
        }
    };
    stream.record(of_record).unwrap_or_default()
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
