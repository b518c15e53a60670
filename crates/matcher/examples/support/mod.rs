//! What the examples that search streams share.

mod clock;

pub(crate) use clock::cpu_seconds;
use flowgauge_matcher::{Matcher, StreamState};
use flowgauge_stream::engine::StreamRef;

/// A matcher, and how far each stream has been searched.
pub(crate) struct Search {
    matcher: Matcher,
    /// By the number in the stream's user state, plus one.
    states: Vec<StreamState>,
    pub(crate) matches: u64,
}

impl Search {
    pub(crate) fn new(matcher: Matcher) -> Search {
        Search {
            matcher,
            states: Vec::new(),
            matches: 0,
        }
    }

    /// Searches the bytes that are at `offset` in a stream.
    pub(crate) fn scan(&mut self, stream: &mut StreamRef<'_>, bytes: &[u8], offset: u64) {
        if stream.user_state() == 0 {
            self.states.push(StreamState::default());
            stream.set_user_state(self.states.len() as u64);
        }
        if let Some(state) = self.states.get_mut(stream.user_state() as usize - 1) {
            let matches = &mut self.matches;
            self.matcher.scan(state, bytes, offset, |_| *matches += 1);
        }
    }

    /// The stream is over.
    pub(crate) fn end(&mut self, stream: &StreamRef<'_>) {
        let state = (stream.user_state() as usize).checked_sub(1);
        if let Some(state) = state.and_then(|at| self.states.get_mut(at)) {
            let matches = &mut self.matches;
            self.matcher.end(state, true, |_| *matches += 1);
        }
    }
}
