//! Matches in pieces are those of a search in the whole stream, with both engines, however the
//! stream was cut.

use std::sync::Arc;

use crate::skipped::skipped;
use flowgauge_matcher::{Engine, Match, Matcher, Pattern, PatternSet, StreamState, read_patterns};
use proptest::prelude::*;

/// The engines that can be had here.
fn engines() -> Vec<Engine> {
    let mut engines = vec![Engine::AhoCorasick];
    let probe = vec![Pattern::literal(1, b"a", false)];
    match PatternSet::compile(probe, Engine::Vectorscan) {
        Ok(_) => engines.push(Engine::Vectorscan),
        Err(error) => skipped(format_args!("with Vectorscan: {error}")),
    }
    engines
}

fn matcher(patterns: Vec<Pattern>, engine: Engine) -> Matcher {
    let set = Arc::new(PatternSet::compile(patterns, engine).unwrap());
    assert_eq!(set.engine(), engine);
    Matcher::new(&set).unwrap()
}

/// A literal as a test knows it: bytes, and whether case is ignored.
type Literal = (Vec<u8>, bool);

/// Every place where a literal lies in `bytes`, found by looking at every place.
fn naive(literals: &[Literal], bytes: &[u8], offset: u64) -> Vec<Match> {
    let mut found = Vec::new();
    for (pattern, (text, ignore_case)) in (0u32..).zip(literals) {
        for (at, window) in bytes.windows(text.len()).enumerate() {
            if window == text || *ignore_case && window.eq_ignore_ascii_case(text) {
                let start = offset + at as u64;
                found.push(Match {
                    end: start + text.len() as u64,
                    pattern,
                    start: Some(start),
                });
            }
        }
    }
    found.sort();
    found
}

/// One piece of a stream: bytes, and how many are missing before them.
type Piece = (Vec<u8>, u64);

fn in_pieces(matcher: &mut Matcher, state: &mut StreamState, pieces: &[Piece]) -> Vec<Match> {
    let (mut found, mut offset) = (Vec::new(), 0);
    for (bytes, missing) in pieces {
        offset += missing;
        matcher.scan(state, bytes, offset, |m| found.push(m));
        offset += bytes.len() as u64;
    }
    matcher.end(state, true, |m| found.push(m));
    found
}

/// What a search in every whole stretch between holes finds.
fn expected(literals: &[Literal], pieces: &[Piece]) -> Vec<Match> {
    let (mut found, mut stretch, mut begin, mut offset) = (Vec::new(), Vec::new(), 0, 0);
    for (bytes, missing) in pieces {
        if *missing > 0 {
            found.extend(naive(literals, &stretch, begin));
            stretch.clear();
            offset += missing;
            begin = offset;
        }
        stretch.extend_from_slice(bytes);
        offset += bytes.len() as u64;
    }
    found.extend(naive(literals, &stretch, begin));
    found
}

fn set_of(literals: &[Literal]) -> Vec<Pattern> {
    (1..)
        .zip(literals)
        .map(|(id, (bytes, ignore_case))| Pattern::literal(id, bytes, *ignore_case))
        .collect()
}

/// Few letters, so that patterns occur, overlap and contain each other.
fn text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(
        prop_oneof![Just(b'a'), Just(b'b'), Just(b'A'), Just(0u8), Just(0xff)],
        1..most,
    )
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let missing = prop_oneof![8 => Just(0u64), 1 => 1u64..5000];
    proptest::collection::vec((text(60), missing), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cuts_and_holes_change_nothing(
        literals in proptest::collection::vec((text(9), any::<bool>()), 1..20),
        streams in proptest::collection::vec(pieces(), 1..4),
    ) {
        for engine in engines() {
            let mut matcher = matcher(set_of(&literals), engine);
            for pieces in &streams {
                let found = in_pieces(&mut matcher, &mut StreamState::default(), pieces);
                prop_assert_eq!(found, expected(&literals, pieces), "{:?}", engine);
            }
        }
    }

    #[test]
    fn streams_scanned_in_turn_do_not_mix(
        literals in proptest::collection::vec((text(7), any::<bool>()), 1..10),
        bytes in text(400),
        turns in proptest::collection::vec((0usize..3, 1usize..20), 1..60),
    ) {
        for engine in engines() {
            let mut matcher = matcher(set_of(&literals), engine);
            let mut streams = [0usize; 3].map(|at| (StreamState::default(), at, Vec::new()));
            for &(stream, count) in &turns {
                let (state, at, found) = &mut streams[stream];
                let end = (*at + count).min(bytes.len());
                matcher.scan(state, &bytes[*at..end], *at as u64, |m| found.push(m));
                *at = end;
            }
            for (mut state, at, mut found) in streams {
                matcher.end(&mut state, true, |m| found.push(m));
                prop_assert_eq!(found, naive(&literals, &bytes[..at], 0), "{:?}", engine);
            }
        }
    }
}

/// Patterns of many lengths, long ones too, found across every cut.
#[test]
fn long_patterns_at_every_cut() {
    let stream: Vec<u8> = (0..3000u32).map(|n| (n * n % 251) as u8).collect();
    let literals: Vec<Literal> = [
        1, 2, 3, 4, 7, 8, 9, 16, 31, 32, 33, 64, 127, 255, 256, 700, 2000,
    ]
    .iter()
    .map(|&len| (stream[900..900 + len].to_vec(), false))
    .collect();
    let whole = naive(&literals, &stream, 0);
    assert!(whole.len() >= literals.len());
    for engine in engines() {
        let mut matcher = matcher(set_of(&literals), engine);
        for cut in (880..2920).step_by(13) {
            let (one, two) = stream.split_at(cut);
            let pieces = [(one.to_vec(), 0), (two.to_vec(), 0)];
            let found = in_pieces(&mut matcher, &mut StreamState::default(), &pieces);
            assert_eq!(found, whole, "{engine:?} cut at {cut}");
        }
        let pieces: Vec<Piece> = stream.iter().map(|&byte| (vec![byte], 0)).collect();
        let found = in_pieces(&mut matcher, &mut StreamState::default(), &pieces);
        assert_eq!(found, whole, "{engine:?} byte by byte");
    }
}

/// More patterns than the table of transitions is made for.
#[test]
fn thousands_of_patterns_without_a_table() {
    let literals: Vec<Literal> = (0..20_000u32)
        .map(|n| {
            (
                format!("pattern number {:05}", n * 7 % 20_000).into_bytes(),
                n % 3 == 0,
            )
        })
        .collect();
    let stream = b"PATTERN number 00021, pattern number 19999 pattern number 00007".repeat(3);
    let whole = naive(&literals, &stream, 0);
    assert!(whole.len() > 6);
    for engine in engines() {
        let mut matcher = matcher(set_of(&literals), engine);
        let pieces: Vec<Piece> = stream.chunks(5).map(|part| (part.to_vec(), 0)).collect();
        let found = in_pieces(&mut matcher, &mut StreamState::default(), &pieces);
        assert_eq!(found, whole, "{engine:?}");
    }
}

fn found_by_lines(
    lines: &str,
    engine: Engine,
    pieces: &[(&str, u64)],
) -> Vec<(u32, Option<u64>, u64)> {
    let mut matcher = matcher(read_patterns(lines.as_bytes()).unwrap(), engine);
    let pieces: Vec<Piece> = pieces
        .iter()
        .map(|(text, missing)| (text.as_bytes().to_vec(), *missing))
        .collect();
    in_pieces(&mut matcher, &mut StreamState::default(), &pieces)
        .iter()
        .map(|m| (m.pattern, m.start, m.end))
        .collect()
}

#[test]
fn offset_and_depth_count_from_the_beginning_of_the_stream() {
    let lines = "content:\"ab\"; offset:4; depth:4\ncontent:\"ab\"; depth:3\ncontent:\"ab\"; \
                 startswith\ncontent:\"ab\"; offset:100\n";
    for engine in engines() {
        let found = found_by_lines(lines, engine, &[("aba", 0), ("babab", 0), ("abab", 93)]);
        assert_eq!(
            found,
            [
                (1, Some(0), 2),
                (2, Some(0), 2),
                (0, Some(4), 6),
                (0, Some(6), 8),
                (3, Some(101), 103),
                (3, Some(103), 105),
            ],
            "{engine:?}"
        );
    }
}

#[test]
fn expressions_match_across_cuts_and_say_where() {
    if !engines().contains(&Engine::Vectorscan) {
        return;
    }
    let find =
        |lines: &str, pieces: &[(&str, u64)]| found_by_lines(lines, Engine::Vectorscan, pieces);
    let pieces = [("user=al", 0), ("ice&Pass", 0), ("word=x", 0)];
    assert_eq!(
        find("/user=[a-z]+&/\n/PASSW(or)?d=/i\nword\n", &pieces),
        [(0, Some(0), 11), (2, Some(15), 19), (1, Some(11), 20)]
    );
    // The stream's end is known when it has ended, its beginning when it was captured.
    assert_eq!(
        find("/d=x$/\n/^user/\n/^ice/\n", &pieces),
        [(1, Some(0), 4), (0, Some(18), 21)]
    );
    // Every end is reported.
    assert_eq!(
        find("/ab*/\n", &[("xa", 0), ("bb", 0)]),
        [(0, Some(1), 2), (0, Some(1), 3), (0, Some(1), 4)]
    );
    assert_eq!(
        find("/a .b # comment/x\n", &[("axb", 0)]),
        [(0, Some(0), 3)]
    );
    assert_eq!(find("/^b/m\n", &[("a\n", 0), ("b", 0)]), [(0, Some(2), 3)]);
    assert_eq!(find("/a.b/\n/a.b/s\n", &[("a\nb", 0)]), [(1, Some(0), 3)]);
}

#[test]
fn nothing_relies_on_bytes_that_are_missing() {
    if !engines().contains(&Engine::Vectorscan) {
        return;
    }
    let find =
        |lines: &str, pieces: &[(&str, u64)]| found_by_lines(lines, Engine::Vectorscan, pieces);
    let lines = "/^ab/\n/\\bab/\n/ab/\n/^ab/m\n";
    assert_eq!(find(lines, &[("ab", 0)]).len(), 4);
    assert_eq!(find(lines, &[("ab", 10)]), [(2, Some(10), 12)]);
    assert_eq!(
        find(lines, &[("-", 0), ("ab ab\nab", 10)]),
        [
            (2, Some(11), 13),
            (1, Some(14), 16),
            (2, Some(14), 16),
            (1, Some(17), 19),
            (2, Some(17), 19),
            (3, Some(17), 19),
        ]
    );
    assert_eq!(find("/a.*b/s\n", &[("xa", 0), ("b", 1)]), []);
    // The end before a hole is not the stream's end.
    let mut matcher = matcher(read_patterns(b"/ab$/\n").unwrap(), Engine::Vectorscan);
    let (mut state, mut found) = (StreamState::default(), 0);
    matcher.scan(&mut state, b"ab", 0, |_| found += 1);
    matcher.scan(&mut state, b"xab", 9, |_| found += 1);
    matcher.end(&mut state, false, |_| found += 1);
    assert_eq!(found, 0);
}

#[test]
fn expressions_that_cannot_be_had_are_refused() {
    let compile = |lines: &str, engine| {
        let patterns = read_patterns(lines.as_bytes()).unwrap();
        PatternSet::compile(patterns, engine).unwrap_err()
    };
    let error = compile("ab\n/a+/\n", Engine::AhoCorasick);
    assert!(error.to_string().starts_with("pattern 2:"), "{error}");
    assert!(!error.hint().is_empty());
    assert!(PatternSet::compile(Vec::new(), Engine::Automatic).is_err());
    if !engines().contains(&Engine::Vectorscan) {
        return;
    }
    for (line, part) in [
        ("/(a/", "parenthes"),
        ("/a*/", "empty buffer"),
        ("/(a)\\1/", "ack"),
        ("/(?=a)b/", "Zero-width"),
    ] {
        let error = compile(&format!("ok\n{line}\n"), Engine::Vectorscan);
        assert!(error.to_string().starts_with("pattern 2:"), "{error}");
        assert!(error.message().contains(part), "{line}: {error}");
    }
}
