//! Whether the library finds what is there.
//!
//! Vectorscan 5.4.9 to 5.4.12 has an error in its code for AVX-512 (corrected in 5.4.13, pull request 378): the
//! last bytes of what is scanned are not looked at by a search for the end of a run, so that matches are missed
//! or made up, depending on where the bytes lie in memory. So each expression here is searched for at all places
//! relative to a cache line, and compared with a search of our own.

use std::sync::Arc;

use super::database::{Database, Expression, ExpressionFlags};
use super::library::Functions;
use super::scanner::Scanner;

/// Bytes scanned at once: some are behind the last whole vector, wherever the first is.
const LEN: usize = 331;
/// Texts that are scanned.
const TEXTS: u32 = 6;
/// The widest vector.
const LINE: usize = 64;

/// An expression, and whether a match of it ends with this byte of the text.
type Probe = (&'static str, ExpressionFlags, fn(&[u8], usize) -> bool);

const PROBES: [Probe; 3] = [
    (r"a[^\n]*e", ExpressionFlags::START, |text, at| {
        let line = text[..at].rsplit(|&byte| byte == b'\n').next();
        text[at] == b'e' && line.is_some_and(|line| line.contains(&b'a'))
    }),
    ("a.{0,5}e", ExpressionFlags::DOT_ALL, |text, at| {
        text[at] == b'e' && text[at.saturating_sub(6)..at].contains(&b'a')
    }),
    ("pa(ss)?=[^&]+", ExpressionFlags::CASELESS, |text, at| {
        let run = text[..=at].rsplit(|&byte| byte == b'&').next();
        let lower = run.unwrap_or(&[]).to_ascii_lowercase();
        let begins = |begin: &[u8]| {
            let before = lower.len().saturating_sub(1);
            lower[..before]
                .windows(begin.len())
                .any(|part| part == begin)
        };
        begins(b"pa=") || begins(b"pass=")
    }),
];

/// Whether all of this is found where it is, and nothing else; `None` where it could not be tried.
pub(super) fn is_sound(functions: Functions) -> Option<bool> {
    let mut found = PROBES.iter().map(|probe| finds(functions, probe));
    found.try_fold(true, |all, one| Some(all && one?))
}

fn finds(functions: Functions, (text, flags, ends): &Probe) -> Option<bool> {
    let expression = Expression {
        text: text.as_bytes().to_vec(),
        flags: *flags,
    };
    let database = Database::compile_with(functions, &[expression]).ok()?;
    let mut scanner = Scanner::new(Arc::new(database)).ok()?;
    let stream = scanner.open()?;
    let mut memory = vec![0; LEN + 2 * LINE];
    let begin = memory.as_ptr().align_offset(LINE);
    for number in 0..TEXTS {
        let text = text_of(number);
        let expected: Vec<u64> = (0..LEN)
            .filter(|&at| ends(&text, at))
            .map(|at| at as u64 + 1)
            .collect();
        for at in begin..begin + LINE {
            let place = memory.get_mut(at..at + LEN)?;
            place.copy_from_slice(&text);
            scanner.restart(stream);
            let mut found: Vec<u64> = scanner
                .scan(stream, place)
                .iter()
                .map(|it| it.end)
                .collect();
            found.sort_unstable();
            found.dedup();
            if found != expected {
                return Some(false);
            }
        }
    }
    Some(true)
}

/// Letters that match nothing, among them now and then what the expressions are about.
fn text_of(number: u32) -> Vec<u8> {
    const PIECES: [&[u8]; 8] = [b"a", b"e", b"\n", b"pa=", b"&", b"PASS=", b"a.e", b"\n\n"];
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut text = Vec::with_capacity(LEN + 8);
    while text.len() < LEN {
        match random() {
            number if number % 23 == 0 => text.extend(PIECES[random() as usize % PIECES.len()]),
            number => text.push(b"bcdfghijklmnoqrstuvwxyz"[number as usize % 23]),
        }
    }
    text.truncate(LEN);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    /// What is used passes, and a library that found something else would not.
    #[test]
    fn code_is_used_that_finds_what_is_there() {
        let Ok(functions) = super::super::library::functions() else {
            return skipped("Vectorscan is not installed");
        };
        assert_eq!(is_sound(*functions), Some(true));
        for (expression, flags, ends) in PROBES {
            assert_eq!(finds(*functions, &(expression, flags, ends)), Some(true));
            let other: Probe = (expression, flags, |text, at| text[at] == b'e');
            assert_eq!(finds(*functions, &other), Some(false), "{expression}");
        }
    }

    #[test]
    fn texts_have_matches_and_misses_of_all() {
        for (expression, _, ends) in PROBES {
            let count = (0..TEXTS)
                .map(|number| {
                    let text = text_of(number);
                    (0..LEN).filter(|&at| ends(&text, at)).count()
                })
                .sum::<usize>();
            assert!(
                (5..LEN * TEXTS as usize - 5).contains(&count),
                "{expression}: {count}"
            );
        }
    }
}
