//! The corpus of reassembly cases from an interface: over a virtual cable in network namespaces. Needs
//! root; otherwise it says that it is skipped.

use crate::frames::lab::Lab;
use crate::live_support::{Program, Signal, Trace, ledger};
use crate::support;
use crate::support::corpus::{MODES, corpus_of, fail_if_any};
use crate::support::records::{options, policy_option, record_differences};

#[test]
fn every_case_from_an_interface() {
    // What the capture cut cannot be sent.
    let is_whole = |frames: &[support::cases::Frame]| {
        let mut frames = frames.iter();
        frames.all(|frame| frame.wire_len as usize == frame.bytes.len())
    };
    let corpus = corpus_of(is_whole);
    let trace = Trace::of(corpus.frames.iter().map(|it| it.bytes.clone()).collect());
    let count = trace.frames.len() as u64;
    let in_place = [(None, "1"), (None, "3")];
    let chunks = MODES.map(|mode| (Some((mode, 16_384, 0)), "2"));
    for (wanted, workers) in in_place.into_iter().chain(chunks) {
        let Some(lab) = Lab::new(65_000) else { return };
        let mut arguments: Vec<String> = ["streams", "-i", "fg1", "-B", "131072", "--workers"]
            .map(str::to_owned)
            .to_vec();
        let records = [workers, "--list", "--hash", "--gaps", "--json"];
        arguments.extend(records.map(str::to_owned));
        arguments.extend([policy_option(wanted), "bsd"].map(str::to_owned));
        arguments.extend(options(wanted));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let program = Program::start(&lab, &arguments);
        trace.replay(&lab, "fg0");
        program.wait_for_packets(count);
        let outcome = program.stop(Signal::SIGINT);
        assert_eq!(ledger(&outcome.stderr).received, count);
        let how = format!("{workers} workers");
        fail_if_any(&record_differences(&corpus, &how, "bsd", wanted, &outcome));
    }
}
