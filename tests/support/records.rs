//! What `flowgauge streams` says of the reassembly cases.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::corpus::{Corpus, Wanted};
use super::delivered::{Delivered, whose};
use super::flowgauge::Outcome;

/// A direction's bytes as a record states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    sha256: String,
    bytes: u64,
    holes: Vec<(u64, u64)>,
}

impl Record {
    fn of(delivered: &Delivered) -> Record {
        Record {
            sha256: hex(&Sha256::digest(&delivered.bytes)),
            bytes: delivered.bytes.len() as u64,
            holes: delivered.holes.clone(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Streams and holes as `streams --list --hash --gaps --json` writes them, by instance.
fn records(outcome: &Outcome) -> BTreeMap<(u16, bool), Record> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut found: BTreeMap<(u16, bool), Record> = BTreeMap::new();
    for record in outcome.json_lines() {
        let address = record["src_ip"].as_str().unwrap_or_default();
        let address = address.parse().unwrap_or_else(|e| panic!("{address}: {e}"));
        let entry = found.entry(whose(address)).or_default();
        match (record["offset"].as_u64(), record["size"].as_u64()) {
            (Some(offset), Some(size)) => entry.holes.push((offset, size)),
            _ if is_superseded(entry, &record) => {}
            _ => {
                record["sha256"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut entry.sha256);
                entry.bytes = record["bytes"].as_u64().unwrap_or(0);
            }
        }
    }
    found
}

/// Of a port that is used again the last connection counts, which ended otherwise than by RST.
fn is_superseded(entry: &Record, record: &Value) -> bool {
    !entry.sha256.is_empty() && record["state"] == "rst"
}

/// The program's options for a mode and chunk size; in place where there is none.
pub(crate) fn options(wanted: Option<Wanted>) -> Vec<String> {
    let Some((mode, chunk, overlap)) = wanted else {
        return Vec::new();
    };
    [
        "--mode",
        mode,
        "--chunk",
        &chunk.to_string(),
        "--overlap",
        &overlap.to_string(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Says where the records differ from the expectations.
pub(crate) fn record_differences(
    corpus: &Corpus,
    how: &str,
    policy: &str,
    wanted: Option<Wanted>,
    outcome: &Outcome,
) -> Vec<String> {
    let found = records(outcome);
    let (mode, chunk, _) = wanted.unwrap_or(("wait", 0, 0));
    let mut differ = Vec::new();
    for (index, &(case, variant)) in corpus.instances.iter().enumerate() {
        let name = &corpus.cases[case].name;
        let bounds = corpus.bounds(index, mode, policy, chunk);
        for (bounds, client) in bounds.iter().zip([true, false]) {
            let expected = bounds
                .exact()
                .unwrap_or_else(|| panic!("{name} has no one answer"));
            let expected = Record::of(expected);
            let key = (variant.number, client);
            let got = found.get(&key).cloned();
            let got = got.unwrap_or_else(|| Record::of(&Delivered::default()));
            let holds = match bounds.ends_in_a_hole() {
                true => got.sha256 == expected.sha256,
                false => got == expected,
            };
            if !holds {
                differ.push(format!(
                    "{name}, {mode}, chunks of {chunk}, client {client} | {how}, {policy}, \
                     {variant:?} | expected {}, {expected:?}, got {got:?}",
                    bounds.text()
                ));
            }
        }
    }
    differ
}

/// Overlap policies of chunks may be by subnet.
pub(crate) fn policy_option(wanted: Option<Wanted>) -> &'static str {
    match wanted {
        Some(_) => "--host-policy",
        None => "--overlap-policy",
    }
}
