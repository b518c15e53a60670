//! `--dedup`: a trace seen from two places gives what it gives from one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use flowgauge_capture::{FileSink, PacketSink, PacketSource, SinkOptions, open};
use flowgauge_wire::Batch;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// Standard output and error.
    fn run(&self, line: &str) -> (String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
        (stdout, stderr)
    }
}

/// The frame of an IP datagram behind a router, in another VLAN.
fn routed(frame: &[u8]) -> Option<Vec<u8>> {
    let mut other = frame.to_vec();
    match frame.get(12..14)? {
        [8, 0] => {
            other[22] -= 1;
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let (sum, carry) = sum.overflowing_add(0x100);
            other[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        [0x86, 0xdd] => other[21] -= 1,
        _ => return None,
    }
    other[..6].fill(0x22);
    other.splice(12..12, [0x81, 0, 0, 99]);
    Some(other)
}

/// Writes all packets of `plain.pcap`, and behind each IP datagram its copy 20 us later, to
/// `doubled.pcap`. Gives the number of packets and of copies.
fn double(folder: &Folder) -> (u64, u64) {
    let mut source = open(folder.0.join("plain.pcap")).unwrap();
    let options = SinkOptions::default();
    let mut sink = FileSink::create(folder.0.join("doubled.pcap"), options).unwrap();
    let (mut packets, mut copies) = (0, 0);
    sink.set_interfaces(source.interfaces()).unwrap();
    while let Some(batch) = source.next_batch().unwrap() {
        for descriptor in batch.packets {
            let frame = batch.bytes_of(descriptor);
            sink.write(&Batch::new(batch.memory, &[*descriptor]))
                .unwrap();
            packets += 1;
            let Some(copy) = routed(frame) else {
                continue;
            };
            let mut descriptor = *descriptor;
            descriptor.time.0 += 20_000;
            descriptor.offset = 0;
            descriptor.captured_len += 4;
            descriptor.wire_len += 4;
            sink.write(&Batch::new(&copy, &[descriptor])).unwrap();
            copies += 1;
        }
    }
    sink.close().unwrap();
    (packets, copies)
}

#[test]
fn what_is_seen_twice_counts_once() {
    counts_once("mix");
}

/// With fragments, tunnels, both IP versions.
#[test]
fn what_is_seen_twice_counts_once_in_a_zoo() {
    counts_once("zoo");
}

fn counts_once(preset: &str) {
    let name = format!("flowgauge-deduplicate-{}-{preset}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    fs::create_dir_all(&folder.0).unwrap();
    let made = format!("generate {preset} --flows 200 --duplicated 0 --seed 3 -w plain.pcap");
    folder.run(&made);
    let (packets, copies) = double(&folder);
    assert!(copies > 2000, "{copies} of {packets}");
    let all = format!("{} packets received, {packets} delivered", packets + copies);
    let places = format!("{copies} discarded (duplicate {copies})");
    for command in [
        "flows --json",
        "streams --json --hash",
        "packets --json",
        "report --json",
    ] {
        let (plain, _) = folder.run(&format!("{command} -r plain.pcap"));
        let dedup = format!("{command} --dedup=1ms -r doubled.pcap");
        let (one, said) = folder.run(&dedup);
        assert!(
            said.contains(&all) && said.contains(&places),
            "{command}: {said}"
        );
        let (twice, _) = folder.run(&format!("{command} -r doubled.pcap"));
        assert_ne!(plain, twice, "{command}");
        if command.starts_with("report") {
            continue;
        }
        assert_eq!(plain, one, "{command}");
        if command.starts_with("packets") {
            continue;
        }
        // One thread reads and leaves copies out, whoever gets the packets.
        let (several, said) = folder.run(&format!("{dedup} --workers 3"));
        assert!(said.contains(&places), "{command}: {said}");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&plain), sorted(&several), "{command}");
    }
    // What is written has each packet once; -c counts those.
    folder.run("capture --dedup=1ms -r doubled.pcap -w single.pcap");
    let (single, _) = folder.run("packets --json -r single.pcap");
    let (plain, _) = folder.run("packets --json -r plain.pcap");
    assert_eq!(single, plain);
    let (first, _) = folder.run("packets --json --dedup=1ms -c 500 -r doubled.pcap");
    let (expected, _) = folder.run("packets --json -c 500 -r plain.pcap");
    assert_eq!(first, expected);
    // A stack, by the option and by the component.
    let (_, said) = folder.run("stack run -e count --dedup=1ms -r doubled.pcap");
    assert!(said.contains(&places), "{said}");
    let stack = ["stack", "run", "--json", "-e", "deduplicate { 1ms } count"];
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(stack)
        .args(["-r", "doubled.pcap"])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    let results = String::from_utf8(output.stdout).unwrap();
    for value in [copies, packets] {
        assert!(results.contains(&format!(":{value}")), "{value}: {results}");
    }
}
