//! Patterns as automata of the crate `aho-corasick`, stepped byte by byte: the state between two
//! pieces of a stream is one number.

use std::collections::HashMap;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous;
use aho_corasick::{Anchored, MatchKind, PatternID, dfa};

use crate::error::PatternError;
use crate::pattern::{Pattern, PatternKind};

/// Bytes of patterns up to which a full table of transitions is made: about 500 bytes of memory
/// for each. Beyond, it would leave every cache, and the compact automaton is no slower.
const TABLE_LIMIT: usize = 256 * 1024;

/// Steps from failure to failure that making a full table may take. The crate goes back from each state for each byte that
/// does not lead on, which are steps by the square of a pattern's length where it repeats itself.
const MOST_STEPS: u64 = 1 << 28;

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
        let is_small = total <= TABLE_LIMIT && failures(texts, ignore_case) <= MOST_STEPS;
        let automaton = if is_small {
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

/// How many steps from failure to failure there are from all states of an automaton together, for each byte that patterns
/// have: what making a full table takes.
fn failures(texts: &[&[u8]], ignore_case: bool) -> u64 {
    let mut next: HashMap<(usize, u8), usize> = HashMap::new();
    // Of each state how deep it is, the one before it and the byte between.
    let mut states = vec![(0, 0, 0)];
    for text in texts {
        let mut at = 0;
        for (depth, byte) in text.iter().enumerate() {
            let byte = match ignore_case {
                true => byte.to_ascii_lowercase(),
                false => *byte,
            };
            at = *next.entry((at, byte)).or_insert_with(|| {
                states.push((depth + 1, at, byte));
                states.len() - 1
            });
        }
    }
    let mut order: Vec<usize> = (1..states.len()).collect();
    order.sort_by_key(|&state| states[state].0);
    // Of each state where it fails to, and how many failures there are from it to the beginning.
    let mut failing = vec![(0, 0_u64); states.len()];
    let mut is_byte = [false; 256];
    for state in order {
        let (depth, before, byte) = states[state];
        let (mut to, mut at) = (0, before);
        while at != 0 && to == 0 {
            at = failing[at].0;
            to = next.get(&(at, byte)).copied().unwrap_or(0);
        }
        debug_assert!(states[to].0 < depth);
        failing[state] = (to, failing[to].1 + 1);
        is_byte[usize::from(byte)] = true;
    }
    let steps: u64 = failing.iter().map(|(_, count)| count).sum();
    let bytes = is_byte.iter().filter(|is| **is).count() as u64;
    steps.saturating_mul(bytes + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_repeat_themselves_get_no_full_table() {
        let has_table = |texts: &[&[u8]]| {
            let part = Part::build(texts, false, Vec::new()).unwrap();
            matches!(part.automaton, Kind::Table(_))
        };
        let other: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        for (text, steps) in [
            // To the beginning from "a"; from "ab", "aba" by way of "a".
            (b"a".as_slice(), 2),
            (b"aba".as_slice(), 3 * (1 + 1 + 2)),
            (&[b'a'; 1000], 2 * 1000 * 1001 / 2),
        ] {
            assert_eq!(failures(&[text], false), steps);
            assert!(has_table(&[text]));
        }
        assert_eq!(failures(&[b"aA"], true), 2 * (1 + 2));
        assert!(!has_table(&[&[b'a'; 100_000]]));
        assert!(!has_table(&[&other]));
        let words: Vec<String> = (0..10_000).map(|it| format!("word {it}")).collect();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        assert!(has_table(&words));
    }
}
