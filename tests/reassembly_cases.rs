//! The corpus of reassembly cases (`tests/cases/reassembly`): every case over IPv4 and IPv6 and with
//! sequence numbers that wrap, in every mode, with every overlap policy, chunk size, number of threads
//! and kind of source.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::support;
use crate::support::cases::{Frame, Variant};
use crate::support::corpus::{Corpus, MODES, POLICIES, Wanted, all_wanted, corpus, fail_if_any};
use crate::support::delivered::{Collector, Delivered, Results};
use crate::support::flowgauge::{self, Outcome};
use crate::support::records::{options, policy_option, record_differences};
use flowgauge_capture::{FileFormat, FileSink, PacketSink, SinkOptions};
use flowgauge_runtime::Capture;
use flowgauge_stream::engine::{ApplicationConfig, EngineConfig, HostPolicies};

// --- as the library delivers them ----------------------------------------------------------------

/// Runs the applications together over the capture.
fn capture(path: &Path, policy: &str, wanted: &[Wanted], shards: usize, workers: usize) -> Results {
    let all = Arc::new(Mutex::new(Results::new()));
    let policy = policy.parse().expect("a policy");
    let mut capture = Capture::file(path)
        .engine(EngineConfig {
            policies: HostPolicies::new(policy),
            ..EngineConfig::default()
        })
        .shards(shards)
        .workers(workers);
    for &(mode, chunk_bytes, overlap_bytes) in wanted {
        let to = Arc::clone(&all);
        let config = ApplicationConfig {
            mode: mode.parse().expect("a mode"),
            chunk_bytes,
            overlap_bytes,
            ..ApplicationConfig::default()
        };
        capture = capture.application(config, move |_| Collector::new(&to));
    }
    let outcome = capture.run().expect("the capture runs");
    assert!(outcome.ledger.is_balanced(), "{:?}", outcome.ledger);
    let failures: Vec<String> = outcome
        .failures
        .iter()
        .map(|(_, it)| it.to_string())
        .collect();
    assert!(failures.is_empty(), "{failures:?}");
    core::mem::take(&mut *all.lock().expect("no thread failed"))
}

/// Runs the applications and says where what they see differs from the expectations.
fn differences_of(
    corpus: &Corpus,
    path: &Path,
    policy: &str,
    wanted: &[Wanted],
    (shards, workers): (usize, usize),
) -> Vec<String> {
    let results = capture(path, policy, wanted, shards, workers);
    let mut differ = Vec::new();
    for (application, &(mode, chunk, overlap)) in wanted.iter().enumerate() {
        let how = format!(
            "overlap {overlap}, {} applications, {shards} shards, {workers} workers",
            wanted.len()
        );
        differ.extend(
            corpus.differences(&how, (mode, policy, chunk), |number, client| {
                let key = (application as u8, number, client);
                results.get(&key).map(|(_, delivered)| delivered)
            }),
        );
    }
    differ
}

#[test]
fn every_case_in_every_mode_with_every_policy_and_chunk_size() {
    let corpus = corpus();
    let path = corpus.save(&support::scratch("reassembly_cases"));
    let policies = support::in_parallel(&POLICIES, 4, |policy| {
        // Together they share the work; alone each has it for itself.
        let mut differ = differences_of(&corpus, &path, policy, &all_wanted(), (1, 0));
        for wanted in all_wanted() {
            differ.extend(differences_of(&corpus, &path, policy, &[wanted], (1, 0)));
        }
        differ
    });
    fail_if_any(&policies.concat());
    support::say(&format!(
        "{} cases, {} instances, {} policies, {} modes and chunk sizes\n",
        corpus.cases.len(),
        corpus.instances.len(),
        POLICIES.len(),
        all_wanted().len()
    ));
}

#[test]
fn every_case_on_any_number_of_shards_and_workers() {
    let corpus = corpus();
    let path = corpus.save(&support::scratch("reassembly_cases_threads"));
    let mut differ = Vec::new();
    for shards in [1, 2, 3] {
        for workers in [0, 1, 2, 3] {
            let threads = (shards, workers);
            let together = all_wanted();
            differ.extend(differences_of(&corpus, &path, "linux", &together, threads));
            for mode in MODES {
                let alone = [(mode, 16_384, 0)];
                differ.extend(differences_of(&corpus, &path, "last", &alone, threads));
            }
        }
    }
    fail_if_any(&differ);
}

// --- as a user runs it ---------------------------------------------------------------------------

/// What the program is run with: modes and chunk sizes, and in place.
fn programs() -> Vec<Option<Wanted>> {
    let exact = MODES
        .into_iter()
        .flat_map(|mode| [(mode, 16_384, 0), (mode, 0, 0), (mode, 1, 0)]);
    exact.map(Some).chain([None]).collect()
}

/// Runs `streams` over a source with the options.
fn streams(source: &[String], wanted: Option<Wanted>, policy: &str, workers: &str) -> Outcome {
    let mut arguments: Vec<String> = ["streams", "-q", "--list", "--hash", "--gaps", "--json"]
        .map(str::to_owned)
        .to_vec();
    let policy_option = policy_option(wanted);
    arguments.extend([policy_option, policy, "--workers", workers].map(str::to_owned));
    arguments.extend(options(wanted));
    arguments.push("-r".to_owned());
    match source {
        [input, file] if input == "stdin" => {
            arguments.push("-".to_owned());
            flowgauge::run_with_input(&arguments, Path::new(file))
        }
        files => {
            arguments.extend(files.iter().cloned());
            flowgauge::run(&arguments)
        }
    }
}

#[test]
fn every_case_with_every_policy() {
    let corpus = corpus();
    let path = corpus.save(&support::scratch("reassembly_cases_policies"));
    let source = [path.display().to_string()];
    let differ = support::in_parallel(&POLICIES, 4, |policy| {
        let each = programs().into_iter().map(|wanted| {
            let outcome = streams(&source, wanted, policy, "1");
            record_differences(&corpus, "pcap", policy, wanted, &outcome)
        });
        each.collect::<Vec<_>>().concat()
    });
    fail_if_any(&differ.concat());
}

#[test]
fn every_case_from_every_source_on_any_number_of_workers() {
    let corpus = corpus();
    let sources = sources(&corpus, &support::scratch("reassembly_cases_sources"));
    let differ = support::in_parallel(&sources, 4, |source| {
        let mut differ = Vec::new();
        for wanted in programs() {
            for workers in ["1", "2", "3"] {
                let outcome = streams(source, wanted, "linux", workers);
                let how = format!("{source:?}, {workers} workers");
                differ.extend(record_differences(&corpus, &how, "linux", wanted, &outcome));
            }
        }
        differ
    });
    fail_if_any(&differ.concat());
}

/// The corpus as files of all kinds, and through a pipe.
fn sources(corpus: &Corpus, folder: &Path) -> Vec<Vec<String>> {
    let name = |name: &str| folder.join(name).display().to_string();
    let mut sources = Vec::new();
    for (file, format) in [
        ("cases.pcap", FileFormat::PcapNanoseconds),
        ("cases_us.pcap", FileFormat::PcapMicroseconds),
        ("cases.pcapng", FileFormat::PcapNg),
        ("cases.pcap.gz", FileFormat::PcapNanoseconds),
        ("cases.pcapng.zst", FileFormat::PcapNg),
    ] {
        write(&folder.join(file), format, &corpus.frames);
        sources.push(vec![name(file)]);
        sources.push(vec!["stdin".to_owned(), name(file)]);
    }
    // Two taps that took turns: merged by time.
    let (mut odd, mut even) = (Vec::new(), Vec::new());
    for (index, frame) in corpus.frames.iter().enumerate() {
        if index % 2 == 0 { &mut even } else { &mut odd }.push(frame.clone());
    }
    write(&folder.join("odd.pcap"), FileFormat::PcapNanoseconds, &odd);
    write(&folder.join("even.pcapng"), FileFormat::PcapNg, &even);
    sources.push(vec![name("odd.pcap"), name("even.pcapng")]);
    sources
}

fn write(path: &Path, format: FileFormat, frames: &[Frame]) {
    let options = SinkOptions {
        format,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(path, options).expect("the file can be created");
    for frame in frames {
        sink.write(&frame.batch(&[frame.descriptor()]))
            .expect("the file can be written");
    }
    sink.close().expect("the file can be closed");
}

#[test]
fn every_case_in_files() {
    let corpus = corpus();
    let folder = support::scratch("reassembly_cases_out");
    let path = corpus.save(&folder).display().to_string();
    for wanted in programs() {
        for workers in ["1", "2", "3"] {
            let out = support::scratch("reassembly_cases_out/streams");
            let out = out.display().to_string();
            let mut arguments = vec!["streams", "-q", "-r", &path, "--out", &out];
            let policy = policy_option(wanted);
            arguments.extend([policy, "linux", "--workers", workers]);
            let options = options(wanted);
            arguments.extend(options.iter().map(String::as_str));
            let outcome = flowgauge::run(&arguments);
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            let (mode, chunk, _) = wanted.unwrap_or(("wait", 0, 0));
            for (index, &(case, variant)) in corpus.instances.iter().enumerate() {
                let bounds = corpus.bounds(index, mode, "linux", chunk);
                for (bounds, client) in bounds.iter().zip([true, false]) {
                    let expected = bounds.exact().expect("one answer");
                    let got = files(Path::new(&out), variant, client);
                    let is_there = got.contains(&expected.bytes);
                    assert!(
                        is_there || got.is_empty() && expected.bytes.is_empty(),
                        "{} ({wanted:?}, {workers} workers, {variant:?}) client {client}: \
                         expected {}, got {:?}",
                        corpus.cases[case].name,
                        bounds.text(),
                        got.iter()
                            .map(|it| String::from_utf8_lossy(it))
                            .collect::<Vec<_>>()
                    );
                }
            }
        }
    }
}

/// What is in the files of an instance's direction: those of two connections where a port is used again. (Where the first is
/// not over then, its data may be delivered after those of the second, and so have the higher number.)
fn files(folder: &Path, variant: Variant, client: bool) -> Vec<Vec<u8>> {
    let [high, low] = variant.number.to_be_bytes();
    let end = |client: bool| {
        let (host, port) = if client { (1, 40_000) } else { (2, 80) };
        if variant.ipv6 {
            let groups = [0x2001, 0xdb8, 0, 0, 0, 0, 10 << 8 | u16::from(high)];
            let [a, b, c, d, e, f, g] = groups;
            let last = u16::from(low) << 8 | host;
            let address = std::net::Ipv6Addr::new(a, b, c, d, e, f, g, last);
            format!("{address}.{port:05}")
        } else {
            format!("010.{high:03}.{low:03}.{host:03}.{port:05}")
        }
    };
    let name = format!("{}-{}", end(client), end(!client));
    [format!("{name}c1"), name]
        .iter()
        .filter_map(|name| std::fs::read(folder.join(name)).ok())
        .collect()
}

// --- what is wrong -------------------------------------------------------------------------------

/// RFC 7413: a server that knows the client takes the data with the SYN and acknowledges them.
#[test]
fn strict_mode_delivers_data_on_the_syn() {
    let corpus = corpus();
    let path = corpus.save(&support::scratch("reassembly_cases_syn"));
    let results = capture(&path, "linux", &[("strict", 16_384, 0)], 1, 0);
    for &(case, variant) in &corpus.instances {
        if corpus.cases[case].name == "data on the SYN" {
            let (_, delivered) = &results[&(0, variant.number, true)];
            assert_eq!(*delivered, Delivered::parse("abcd"), "{variant:?}");
        }
    }
}
