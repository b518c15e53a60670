//! The corpus of reassembly cases through libscap: every mode, policy and chunk size, on one worker and
//! on three.

use std::collections::BTreeMap;
use std::path::Path;

use crate::c;
use crate::support;
use crate::support::corpus::{
    CHUNKS, Corpus, MODES, POLICIES, Wanted, all_wanted, corpus, fail_if_any,
};
use crate::support::delivered::{Delivered, whose};

const OPTIONS: [&str; 5] = [
    "-D_POSIX_C_SOURCE=200112L",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pedantic",
];

#[test]
fn every_case_through_the_c_library() {
    let test = "every_case_through_the_c_library";
    if !c::has("cc", test) || !c::has("pkg-config", test) {
        return;
    }
    let corpus = corpus();
    let folder = support::scratch("reassembly_cases_c");
    let capture = corpus.save(&folder);
    let program = folder.join("cases");
    let source = support::root().join("tests/c/cases.c");
    c::compile("cc", &OPTIONS, &source, &program);
    let mut runs: Vec<(Wanted, &str, u32)> = Vec::new();
    for policy in POLICIES {
        runs.extend(MODES.map(|mode| ((mode, CHUNKS[0].0, CHUNKS[0].1), policy, 1)));
    }
    for wanted in all_wanted() {
        runs.extend([1, 3].map(|workers| (wanted, "bsd", workers)));
    }
    let differ = support::in_parallel(&runs, 4, |&(wanted, policy, workers)| {
        differences(&corpus, &program, &capture, wanted, policy, workers)
    });
    fail_if_any(&differ.concat());
}

/// Runs the program and says where it differs from the expectations.
fn differences(
    corpus: &Corpus,
    program: &Path,
    capture: &Path,
    wanted: Wanted,
    policy: &str,
    workers: u32,
) -> Vec<String> {
    let (mode, chunk, overlap) = wanted;
    // As in scap.h.
    let mode_number = match mode {
        "fast" => 1,
        "strict" => 2,
        _ => 3,
    };
    let policy_number = POLICIES.iter().position(|name| *name == policy);
    let policy_number = policy_number.expect("it is one of them") as u32;
    let numbers = [mode_number, policy_number, chunk, overlap, workers];
    let ran = c::run(
        c::limited(program)
            .arg(capture)
            .args(numbers.map(|number| number.to_string())),
    );
    c::assert_success(&ran);
    let found = delivered(&c::text(&ran.stdout));
    let how = format!("overlap {overlap}, {workers} workers");
    let mut differ = Vec::new();
    for (index, &(case, variant)) in corpus.instances.iter().enumerate() {
        let bounds = corpus.bounds(index, mode, policy, chunk);
        for (bounds, client) in bounds.iter().zip([true, false]) {
            // Of what is missing at the end the C interface says only that it is.
            let bounds = bounds.without_end();
            let got = found.get(&(variant.number, client));
            let got = got.map_or_else(Delivered::default, |(_, got)| got.without_end());
            if !bounds.hold(&got) {
                differ.push(format!(
                    "{}, {mode}, client {client} | {policy}, chunks of {chunk}, {how}, {variant:?} | \
                     expected {}, got {got:?}",
                    corpus.cases[case].name,
                    bounds.text(),
                ));
            }
        }
    }
    differ
}

/// What the lines of `cases.c` say, by instance; of a port that is used again the last connection.
fn delivered(lines: &str) -> BTreeMap<(u16, bool), (u64, Delivered)> {
    let mut streams: BTreeMap<&str, (u64, &str, Delivered)> = BTreeMap::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [uid, start, source, offset, missing, data] = words[..] else {
            panic!("{line}");
        };
        let number = |word: &str| -> u64 { word.parse().unwrap_or_else(|e| panic!("{word}: {e}")) };
        let (_, _, stream) = streams
            .entry(uid)
            .or_insert_with(|| (number(start), source, Delivered::default()));
        stream.miss(number(missing));
        assert_eq!(number(offset), stream.end(), "{line}");
        let mut hole = 0;
        for byte in data.as_bytes().chunks(2) {
            if byte == b"--" {
                hole += 1;
                continue;
            }
            stream.miss(core::mem::take(&mut hole));
            let text = core::str::from_utf8(byte).expect("it is ASCII");
            stream.take(&[u8::from_str_radix(text, 16).expect("it is hexadecimal")]);
        }
        assert_eq!(hole, 0, "a chunk ends in a hole: {line}");
    }
    let mut found: BTreeMap<(u16, bool), (u64, Delivered)> = BTreeMap::new();
    for (start, source, stream) in streams.into_values() {
        let address = source.parse().unwrap_or_else(|e| panic!("{source}: {e}"));
        let place = found.entry(whose(address)).or_default();
        if place.0 <= start {
            *place = (start, stream);
        }
    }
    found
}
