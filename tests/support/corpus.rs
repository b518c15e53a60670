//! The corpus of reassembly cases as one capture, what must come of it, and with what it is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cases::{self, Case, Frame, Variant};
use super::delivered::{Bounds, Delivered, orders, shown};

pub(crate) const POLICIES: [&str; 14] = [
    "first",
    "last",
    "bsd",
    "bsd-right",
    "linux",
    "old-linux",
    "windows",
    "windows2003",
    "vista",
    "solaris",
    "hpux10",
    "hpux11",
    "irix",
    "macos",
];

pub(crate) const MODES: [&str; 3] = ["wait", "fast", "strict"];

/// Chunk sizes, and how much of a chunk is repeated in the next.
pub(crate) const CHUNKS: [(u32, u32); 9] = [
    (16_384, 0),
    (16_384, 1000),
    (0, 0),
    (1, 0),
    (7, 0),
    (7, 6),
    (64, 0),
    (64, 13),
    (1000, 1),
];

/// An application: mode, chunk size, overlap.
pub(crate) type Wanted = (&'static str, u32, u32);

/// Every mode with every chunk size.
pub(crate) fn all_wanted() -> Vec<Wanted> {
    MODES
        .into_iter()
        .flat_map(|mode| CHUNKS.map(|(chunk, overlap)| (mode, chunk, overlap)))
        .collect()
}

/// Cases are this far apart, more than any time that a hole may stay.
const APART: u64 = 120_000_000_000;

/// Each case in each variant, with the number that is in its addresses.
pub(crate) struct Corpus {
    pub(crate) cases: Vec<Case>,
    pub(crate) instances: Vec<(usize, Variant)>,
    pub(crate) frames: Vec<Frame>,
}

/// All of it.
pub(crate) fn corpus() -> Corpus {
    corpus_of(|_| true)
}

/// The instances whose packets are wanted.
pub(crate) fn corpus_of(wanted: impl Fn(&[Frame]) -> bool) -> Corpus {
    let cases = cases::load(&super::root().join("tests/cases/reassembly"));
    assert!(cases.len() >= 50, "only {} cases found", cases.len());
    let mut instances = Vec::new();
    let mut frames = Vec::new();
    let mut start = 1_700_000_000_000_000_000;
    for (index, case) in cases.iter().enumerate() {
        for (ipv6, client_isn, server_isn) in [
            (false, 1000, 5000),
            (true, 1000, 5000),
            (false, u32::MAX - 3, u32::MAX - 1),
            (true, u32::MAX - 1, 0x7fff_fffe),
        ] {
            let number = instances.len() as u16;
            let variant = Variant {
                ipv6,
                client_isn,
                server_isn,
                number,
            };
            let packets = case.frames(variant, start);
            if !wanted(&packets) {
                continue;
            }
            start = packets.last().map_or(start, |frame| frame.nanos) + APART;
            frames.extend(packets);
            instances.push((index, variant));
        }
    }
    Corpus {
        cases,
        instances,
        frames,
    }
}

impl Corpus {
    /// What must come of an instance, `[client, server]`.
    pub(crate) fn bounds(
        &self,
        instance: usize,
        mode: &str,
        policy: &str,
        chunk: u32,
    ) -> [Bounds; 2] {
        let case = &self.cases[self.instances[instance].0];
        let (least, most) = orders(mode);
        let (least, most) = (case.expected(least, policy), case.expected(most, policy));
        match mode {
            "fast" => [(least.0, most.0), (least.1, most.1)]
                .map(|(least, most)| Bounds::fast(chunk, least, most)),
            _ => [least.0, least.1].map(Bounds::exactly),
        }
    }

    /// Where what was delivered differs from what must come.
    pub(crate) fn differences<'a>(
        &self,
        how: &str,
        (mode, policy, chunk): (&str, &str, u32),
        found: impl Fn(u16, bool) -> Option<&'a Delivered>,
    ) -> Vec<String> {
        let nothing = Delivered::default();
        let mut differ = Vec::new();
        for (index, &(case, variant)) in self.instances.iter().enumerate() {
            let bounds = self.bounds(index, mode, policy, chunk);
            for (bounds, client) in bounds.iter().zip([true, false]) {
                let got = found(variant.number, client).unwrap_or(&nothing);
                if !bounds.hold(got) {
                    differ.push(format!(
                        "{}, {mode}, {side} | {policy}, chunks of {chunk}, {how}, {variant:?} | \
                         expected {}, got {}",
                        self.cases[case].name,
                        bounds.text(),
                        shown(got),
                        side = if client { "client" } else { "server" },
                    ));
                }
            }
        }
        differ
    }

    /// Writes it to a file in `folder`.
    pub(crate) fn save(&self, folder: &Path) -> PathBuf {
        let path = folder.join("cases.pcap");
        std::fs::write(&path, cases::pcap(&self.frames)).expect("the capture can be written");
        path
    }
}

/// Fails with one line for each kind of difference: `what (how, where, ...)`.
pub(crate) fn fail_if_any(differ: &[String]) {
    let mut kinds: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    for line in differ {
        let (what, how) = line.split_once(" | ").unwrap_or((line, ""));
        let (how, got) = how.split_once(" | ").unwrap_or((how, ""));
        kinds.entry((what, got)).or_insert((0, how)).0 += 1;
    }
    let lines = kinds.iter().map(|((what, got), (count, how))| {
        format!("{what}: {got} ({count} times, first with {how})\n")
    });
    assert!(
        kinds.is_empty(),
        "{} differences:\n{}",
        differ.len(),
        lines.take(100).collect::<String>()
    );
}
