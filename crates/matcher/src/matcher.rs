//! Searching in streams.

use std::fmt;
use std::sync::Arc;

use flowgauge_sys::vectorscan::{Found, Scanner};

use crate::automaton::Automata;
use crate::error::PatternError;
use crate::set::{Check, Machine, PatternSet};

/// An occurrence of a pattern in a stream. Positions count from the stream's first byte, holes
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// Position behind its last byte.
    pub end: u64,
    /// The pattern's place in [`PatternSet::patterns`].
    pub pattern: u32,
    /// Position of its first byte: of a regular expression the leftmost from which it matches up to
    /// this end. `None` for expressions that cannot say.
    pub start: Option<u64>,
}

/// How far a stream has been searched. It belongs to the matcher that it was first given to, and is
/// to be given back with [`Matcher::end`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Position of the next byte.
    next: u64,
    /// States of the automata; or the number of the scanner's stream, plus one.
    states: [u32; 2],
}

impl fmt::Debug for StreamState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamState")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// Searches streams for the patterns of a set; one for each thread.
///
/// Of a regular expression every end is reported at which it matches: `/ab*/` in `abb` three times.
/// It is reported when it is known to match: an expression that ends with `$` when the stream ends.
pub struct Matcher {
    set: Arc<PatternSet>,
    scanner: Option<Scanner>,
    /// Positions of the first byte that a scanner's stream was given since it was begun.
    bases: Vec<u64>,
    found: Vec<Found>,
    unsearched: u64,
}

impl Matcher {
    /// A matcher that has seen nothing.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(set: &Arc<PatternSet>) -> Result<Matcher, PatternError> {
        let scanner = match &set.machine {
            Machine::Vectorscan(expressions) => Some(expressions.scanner()?),
            Machine::AhoCorasick(_) => None,
        };
        Ok(Matcher {
            set: Arc::clone(set),
            scanner,
            bases: Vec::new(),
            found: Vec::new(),
            unsearched: 0,
        })
    }

    /// Searches the bytes at `offset` in a stream. What was found is handed to `on_match` by ends,
    /// then by patterns. Where `offset` is not where the last bytes ended, bytes are missing: no
    /// match spans that place, and none relies on what was there (`^`, `\b`).
    #[inline]
    pub fn scan(
        &mut self,
        state: &mut StreamState,
        bytes: &[u8],
        offset: u64,
        on_match: impl FnMut(Match),
    ) {
        if bytes.is_empty() {
            return;
        }
        let continues = state.next == offset && state.states != [0; 2];
        state.next = offset + bytes.len() as u64;
        match (&self.set.machine, &mut self.scanner) {
            (Machine::AhoCorasick(automata), _) => {
                if !continues {
                    state.states = [0; 2];
                }
                self.found.clear();
                let found = &mut self.found;
                step(automata, &mut state.states, bytes, offset, found);
                if !found.is_empty() {
                    report(&self.set.checks, found, 0, on_match);
                }
            }
            (_, Some(scanner)) => {
                if !continues && !begin(scanner, &mut self.bases, state, offset) {
                    self.unsearched += bytes.len() as u64;
                    return;
                }
                let stream = state.states[0] - 1;
                let found = scanner.scan(stream, bytes);
                if !found.is_empty() {
                    let base = self.bases.get(stream as usize).copied().unwrap_or(0);
                    report(&self.set.checks, found, base, on_match);
                }
            }
            _ => {}
        }
    }

    /// The stream is over, or nothing more of it is wanted; what is found because nothing follows
    /// is handed to `on_match` when it `is_complete`: no byte is missing at its end.
    pub fn end(&mut self, state: &mut StreamState, is_complete: bool, on_match: impl FnMut(Match)) {
        let ended = core::mem::take(state);
        if let (Some(scanner), Some(stream)) = (&mut self.scanner, ended.states[0].checked_sub(1)) {
            let found = scanner.close(stream);
            if is_complete && !found.is_empty() {
                let base = self.bases.get(stream as usize).copied().unwrap_or(0);
                report(&self.set.checks, found, base, on_match);
            }
        }
    }

    /// Brings what [`Matcher::scan`] needs for a stream closer to the cache, in two steps (`step` 0 and
    /// 1), the second some dozen streams after the first.
    #[inline(always)]
    pub fn prefetch(&self, state: &StreamState, step: u8) {
        if let (Some(scanner), Some(stream)) = (&self.scanner, state.states[0].checked_sub(1)) {
            match step {
                0 => scanner.prefetch(stream),
                _ => scanner.prefetch_memory(stream),
            }
        }
    }

    /// The patterns.
    pub fn set(&self) -> &PatternSet {
        &self.set
    }

    /// Bytes that were not searched because there was no memory for the state of their stream.
    pub fn unsearched_bytes(&self) -> u64 {
        self.unsearched
    }
}

/// Gives a stream a scanner's stream that begins at `offset`.
#[inline]
fn begin(
    scanner: &mut Scanner,
    bases: &mut Vec<u64>,
    state: &mut StreamState,
    offset: u64,
) -> bool {
    let stream = match state.states[0].checked_sub(1) {
        Some(stream) => {
            scanner.restart(stream);
            stream
        }
        None => match scanner.open() {
            Some(stream) => stream,
            None => return false,
        },
    };
    state.states[0] = stream + 1;
    let index = stream as usize;
    if index >= bases.len() {
        bases.resize(index + 1, 0);
    }
    bases[index] = offset;
    true
}

fn step(
    automata: &Automata,
    states: &mut [u32; 2],
    bytes: &[u8],
    offset: u64,
    found: &mut Vec<Found>,
) {
    automata.scan(states, bytes, offset, |expression, end| {
        found.push(Found {
            end,
            expression,
            start: 0,
        });
    });
}

/// Hands on what an engine found in a piece that begins at `base`, in order, once.
#[cold]
#[inline(never)]
fn report(checks: &[Check], found: &mut [Found], base: u64, mut on_match: impl FnMut(Match)) {
    found.sort_unstable();
    let mut last = None;
    for &found in found.iter() {
        if last.replace(found) == Some(found) {
            continue;
        }
        let Some(check) = checks.get(found.expression as usize) else {
            continue;
        };
        let end = base + found.end;
        let start = if check.len > 0 {
            Some(end - u64::from(check.len))
        } else {
            check.has_start.then(|| base + found.start)
        };
        if check.looks_back && base > 0 && start.is_none_or(|start| start == base) {
            continue;
        }
        if let Some(bounds) = check.bounds
            && (end > bounds.end || start.is_none_or(|start| start < bounds.first))
        {
            continue;
        }
        on_match(Match {
            end,
            pattern: found.expression,
            start,
        });
    }
}
