//! Stacks over generated and real captures: results, and what is written, depend neither on the number of
//! threads nor on how packets come in batches.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support;
use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_registry::registry;
use flowgauge_runtime::stacks::{Runner, RunnerOptions};
use flowgauge_stack::{Program, ResultValue, Sources, Table, check, parse};
use flowgauge_wire::{Batch, Ledger, PacketDescriptor};

/// What is run; `FILE` is where it writes.
const STACKS: &str = "
[stack two]
ipfragswitch ( ipfragdemux < ipreass > )
ipprotoswitch ( tcpscan count | udpscan bytes | icmpscan count ) output { FILE.1.pcapng }
[stack directions]
tcpscan - tcpcnxdemux < tcpdirdemux { results = 5 } < count > > tcpcnxdemux { timeout = 2, end = closed, results = 3 } < bytes > bytes { payload }
[stack sequence]
tcpscan - tcpcnxdemux < tcpreseq > bytes
[stack records]
flows count
[stack hosts]
ipcnxdemux { timeout = 1 } < count identity > sample { 7 } output { FILE.2.pcapng } thread { queue = 2 } count
[stack same]
ipcnxdemux { timeout = 1 } < count identity > filter { ip } count
[stack ports]
tcpscan tcpportdemux < count > discard
[stack intervals]
tcpscan packets aggregate { by = \"src_ip, dst_port\", sum = length, interval = 100ms } output { FILE.1.json }
[stack numbers]
udpscan packets output { FILE.2.json }
[stack over]
flows { tcp_timeout = 5, udp_timeout = 2 } aggregate { by = proto, sum = bytes, interval = 3 } output { FILE.3.json }
[stack each]
flows { active_timeout = 10 } output { FILE.4.json }
";

/// Presets and how large a part of them.
const PRESETS: [(&str, &str); 4] = [
    ("hostile", "0.02"),
    ("zoo", "1"),
    ("mix", "0.002"),
    ("syn", "0.002"),
];

/// One of so many captures of the corpora.
const STRIDE: usize = 7;

/// Captures in which time stamps jump.
const JUMPS: [&str; 2] = ["babel_update_oobr.pcap", "olsr-oobr-1.pcap"];

/// Sizes of batches, beside that of the source.
const SIZES: [usize; 2] = [1, 37];

#[test]
fn generated_traces() {
    let folder = support::scratch("stack-threads");
    let captures = PRESETS.iter().map(|(preset, scale)| {
        let path = folder.join(format!("{preset}.pcap"));
        let name = path.display().to_string();
        let made =
            support::flowgauge::run(["generate", preset, "--scale", scale, "-q", "-w", &name]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        path
    });
    let captures: Vec<PathBuf> = captures.collect();
    compare(&folder, &captures, &[2, 4]);
}

#[test]
fn real_captures() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let is_capture = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
    };
    let all = support::files_below(&corpora, &is_capture);
    let mut captures: Vec<PathBuf> = all.iter().step_by(STRIDE).cloned().collect();
    let jump = all
        .iter()
        .filter(|path| JUMPS.iter().any(|name| path.ends_with(name)));
    captures.extend(jump.cloned());
    captures.sort();
    captures.dedup();
    assert!(captures.len() > 50, "{}", captures.len());
    compare(&support::scratch("stack-threads-real"), &captures, &[2]);
}

/// A source in smaller batches.
pub(crate) struct Small {
    inner: Box<dyn PacketSource + Send>,
    size: usize,
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    at: usize,
}

impl Small {
    /// With batches of so many packets.
    pub(crate) fn new(inner: Box<dyn PacketSource + Send>, size: usize) -> Small {
        Small {
            inner,
            size,
            memory: Vec::new(),
            packets: Vec::new(),
            at: 0,
        }
    }
}

impl PacketSource for Small {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.at >= self.packets.len() {
            self.at = 0;
            self.memory.clear();
            self.packets.clear();
            let Some(batch) = self.inner.next_batch()? else {
                return Ok(None);
            };
            for packet in batch.packets {
                let offset = self.memory.len() as u32;
                self.memory.extend_from_slice(batch.bytes_of(packet));
                self.packets.push(PacketDescriptor { offset, ..*packet });
            }
        }
        let from = self.at;
        self.at = (from + self.size).min(self.packets.len());
        Ok(Some(Batch::new(&self.memory, &self.packets[from..self.at])))
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}

/// What a line says of a file whose order of packets it depends on.
const FILE: &str = "file ";

fn sum_of(bytes: &[u8], sum: u64) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A sum of all packets of a capture, whatever their order.
fn packets(path: &Path) -> u64 {
    let mut sum: u64 = 0;
    let Ok(mut source) = flowgauge_capture::open(path) else {
        return sum;
    };
    while let Ok(Some(batch)) = source.next_batch() {
        for packet in batch.packets {
            let of = sum_of(batch.bytes_of(packet), packet.time.0);
            sum = sum.wrapping_add(of);
        }
    }
    sum
}

/// Whether a time stamp is so far ahead of those before it that it takes another packet to be believed:
/// one of the same batch is enough at once.
fn jumps_far(path: &Path) -> bool {
    let Ok(mut source) = flowgauge_capture::open(path) else {
        return false;
    };
    let mut latest = None;
    while let Ok(Some(batch)) = source.next_batch() {
        for packet in batch.packets {
            let before = latest.unwrap_or(packet.time.0);
            if packet.time.0 > before.saturating_add(600_000_000_000) {
                return true;
            }
            latest = Some(before.max(packet.time.0));
        }
    }
    false
}

/// What came of a run: a line for each component, and what was written.
fn run(capture: &Path, file: &Path, workers: usize, size: Option<usize>) -> Vec<String> {
    let options = RunnerOptions {
        workers,
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(program(file), &options).expect("it can begin");
    let mut lines = Vec::new();
    match flowgauge_capture::open(capture) {
        Err(error) => lines.push(error.to_string()),
        Ok(source) => {
            let mut source: Box<dyn PacketSource + Send> = Box::new(source);
            if let Some(size) = size {
                source = Box::new(Small::new(source, size));
            }
            loop {
                match runner.step(&mut source) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => lines.push(error.to_string()),
                }
            }
        }
    }
    runner.finish();
    let mut failed = Vec::new();
    for failure in runner.failures() {
        lines.push(format!("{}: {}", failure.stack, failure.failure));
        failed.push(failure.stack);
    }
    let snapshot = runner.snapshot();
    let stacks = runner.stacks().iter().zip(&snapshot.stacks).enumerate();
    for (index, (stack, state)) in stacks {
        if failed.contains(&index) {
            // How far the other threads had come is nobody's business.
            continue;
        }
        for ((_, node), state) in stack.iter().zip(&state.components) {
            let result = state.result.as_ref().and_then(ResultValue::number);
            let name = stack.name.as_deref().unwrap_or("");
            let items = state.passed.items;
            lines.push(format!("{name}.{}: {items} items, {result:?}", node.label));
            for row in state.by_key.iter().flat_map(Table::iter) {
                lines.push(format!("{name}.{}: {row}", node.label));
            }
        }
    }
    for number in 1..=2 {
        if !failed.is_empty() {
            continue;
        }
        let path = PathBuf::from(format!("{}.{number}.pcapng", file.display()));
        let bytes = fs::read(&path).unwrap_or_default();
        let sum = sum_of(&bytes, 0);
        lines.push(format!("{FILE}{number}: {} bytes, {sum:x}", bytes.len()));
        lines.push(format!("packets {number}: {:x}", packets(&path)));
        let _ = fs::remove_file(&path);
    }
    for number in 1..=4 {
        if !failed.is_empty() {
            continue;
        }
        let path = PathBuf::from(format!("{}.{number}.json", file.display()));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut records: Vec<&str> = text.lines().collect();
        // In which order those of the same time come is nobody's business.
        records.sort_unstable();
        lines.extend(records.iter().map(|record| format!("{number}: {record}")));
        let _ = fs::remove_file(&path);
    }
    lines
}

fn program(file: &Path) -> Program {
    let mut sources = Sources::default();
    let text = STACKS.replace("FILE", &file.display().to_string());
    let id = sources.add("test", text).expect("room");
    let document = parse(&sources, id).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let checked = check(&document, registry());
    let said = checked.diagnostics.iter();
    let said: Vec<String> = said.map(|found| found.show(&sources).to_string()).collect();
    checked
        .program
        .unwrap_or_else(|| panic!("{}", said.join("\n")))
}

fn compare(folder: &Path, captures: &[PathBuf], workers: &[usize]) {
    let numbered: Vec<(usize, &PathBuf)> = captures.iter().enumerate().collect();
    let differ = support::in_parallel(&numbered, 2, |&(number, capture)| {
        let file = folder.join(number.to_string());
        let one = run(capture, &file, 1, None);
        let mut differ = Vec::new();
        let workers = workers.iter().map(|&workers| (workers, None));
        let sizes = SIZES.iter().filter(|_| !jumps_far(capture));
        let sizes = sizes.map(|&size| (1, Some(size)));
        for (workers, size) in workers.chain(sizes) {
            let other = run(capture, &file, workers, size);
            let lines = one.iter().zip(&other);
            let different = lines.filter(|(one, other)| one != other);
            // What was put together comes before what is left of its batch.
            let different = different.filter(|(one, _)| size.is_none() || !one.starts_with(FILE));
            let different: Vec<String> = different
                .take(4)
                .map(|(one, other)| format!("{one} <> {other}"))
                .collect();
            if one.len() != other.len() || !different.is_empty() {
                let name = capture.display();
                let lines = (one.len(), other.len());
                differ.push(format!(
                    "{name}, {workers} workers, {size:?} packets: {lines:?} lines, {different:#?}"
                ));
            }
        }
        differ
    });
    let differ = differ.concat();
    assert!(
        differ.is_empty(),
        "{} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
}
