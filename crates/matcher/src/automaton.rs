//! Patterns as automata of the crate `aho-corasick`, stepped byte by byte: the state between two
//! pieces of a stream is one number.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous;
use aho_corasick::{Anchored, MatchKind, PatternID, dfa};

use crate::error::PatternError;
use crate::pattern::{Pattern, PatternKind};

/// Bytes of patterns up to which a full table of transitions is made: about 500 bytes of memory
/// for each. Beyond, it would leave every cache, and the compact automaton is no slower.
const TABLE_LIMIT: usize = 256 * 1024;

/// One automaton for patterns that tell upper from lower case, one for those that do not.
#[derive(Debug)]
pub(crate) struct Automata {
    parts: [Option<Part>; 2],
}

#[derive(Debug)]
struct Part {
    automaton: Kind,
    start: u32,
    /// Places in the list of patterns.
    numbers: Vec<u32>,
}

#[derive(Debug)]
enum Kind {
    Table(dfa::DFA),
    Compact(contiguous::NFA),
}

/// Where both automata are; 0 is before the first byte (and a state that is never reached).
pub(crate) type States = [u32; 2];

impl Automata {
    pub(crate) fn compile(patterns: &[Pattern]) -> Result<Automata, PatternError> {
        let part = |wanted: bool| -> Result<Option<Part>, PatternError> {
            let mut numbers = Vec::new();
            let mut texts = Vec::new();
            for (number, pattern) in (0u32..).zip(patterns) {
                if let PatternKind::Literal { bytes, ignore_case } = &pattern.kind
                    && *ignore_case == wanted
                {
                    numbers.push(number);
                    texts.push(bytes.as_slice());
                }
            }
            if texts.is_empty() {
                return Ok(None);
            }
            Part::build(&texts, wanted, numbers).map(Some)
        };
        Ok(Automata {
            parts: [part(false)?, part(true)?],
        })
    }

    /// Steps over `bytes`, the first of which is at `offset`; tells the number and end of every
    /// match, by ends.
    #[inline]
    pub(crate) fn scan(
        &self,
        states: &mut States,
        bytes: &[u8],
        offset: u64,
        mut found: impl FnMut(u32, u64),
    ) {
        for (part, state) in self.parts.iter().zip(states) {
            let Some(part) = part else {
                continue;
            };
            match &part.automaton {
                Kind::Table(table) => part.steps(table, state, bytes, offset, &mut found),
                Kind::Compact(nfa) => part.steps(nfa, state, bytes, offset, &mut found),
            }
        }
    }
}

impl Part {
    fn build(texts: &[&[u8]], ignore_case: bool, numbers: Vec<u32>) -> Result<Part, PatternError> {
        let failed = |error: aho_corasick::BuildError| PatternError::Engine {
            message: format!("the patterns cannot be compiled: {error}"),
            hint: "fewer or shorter patterns".to_owned(),
        };
        let total: usize = texts.iter().map(|text| text.len()).sum();
        let automaton = if total <= TABLE_LIMIT {
            let table = dfa::DFA::builder()
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(ignore_case)
                .prefilter(false)
                .build(texts)
                .map_err(failed)?;
            Kind::Table(table)
        } else {
            let nfa = contiguous::NFA::builder()
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(ignore_case)
                .prefilter(false)
                .build(texts)
                .map_err(failed)?;
            Kind::Compact(nfa)
        };
        let start = match &automaton {
            Kind::Table(table) => table.start_state(Anchored::No),
            Kind::Compact(nfa) => nfa.start_state(Anchored::No),
        };
        let start = start.map_err(|error| PatternError::Engine {
            message: format!("the patterns cannot be searched: {error}"),
            hint: "report this".to_owned(),
        })?;
        Ok(Part {
            automaton,
            start: start.as_u32(),
            numbers,
        })
    }

    #[inline(always)]
    fn steps(
        &self,
        automaton: &impl Automaton,
        state: &mut u32,
        bytes: &[u8],
        offset: u64,
        found: &mut impl FnMut(u32, u64),
    ) {
        let begun = if *state == 0 { self.start } else { *state };
        let mut at = StateID::new_unchecked(begun as usize);
        for (index, &byte) in bytes.iter().enumerate() {
            at = automaton.next_state(Anchored::No, at, byte);
            if automaton.is_special(at) && automaton.is_match(at) {
                for n in 0..automaton.match_len(at) {
                    let pattern: PatternID = automaton.match_pattern(at, n);
                    if let Some(&number) = self.numbers.get(pattern.as_usize()) {
                        found(number, offset + index as u64 + 1);
                    }
                }
            }
        }
        *state = at.as_u32();
    }
}
