//! Pairs of hosts against tshark, which dissects on its own.

use std::collections::BTreeMap;
use std::process::Command;

use flowgauge_rmon::Probe;

use crate::corpora::{corpora, skipped};
use crate::frames::SPEED;
use crate::traces::count;

/// Packets and octets by source and destination, as tshark finds the outermost IP header.
fn dissected(path: &std::path::Path) -> Option<BTreeMap<(String, String), (u64, u64)>> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(path)
        .args(["-n", "-T", "fields", "-E", "occurrence=f"]);
    for field in ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "frame.len"] {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    let mut pairs: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [v4_source, v4_destination, v6_source, v6_destination, length] = fields[..] else {
            continue;
        };
        let (source, destination) = match v4_source {
            "" => (v6_source, v6_destination),
            _ => (v4_source, v4_destination),
        };
        if !source.is_empty() {
            let counts = pairs
                .entry((source.to_owned(), destination.to_owned()))
                .or_default();
            counts.0 += 1;
            counts.1 += length.parse::<u64>().unwrap().max(60) + 4;
        }
    }
    Some(pairs)
}

#[test]
fn pairs_are_those_of_tshark() {
    let Some(corpora) = corpora() else {
        return;
    };
    let files = [
        "big/ndpi-4.2/chrome.pcap",
        "big/ndpi-4.2/WebattackXSS.pcap",
        "big/ndpi-4.2/netflix.pcap",
    ];
    for file in files {
        let path = corpora.join(file);
        let Some(expected) = dissected(&path).filter(|pairs| !pairs.is_empty()) else {
            skipped("no tshark, or it cannot read the capture");
            return;
        };
        let mut probe = Probe::new();
        probe.add_interface(1, SPEED);
        count(&mut probe, &std::fs::read(&path).unwrap(), |_, _| {});
        let mut found: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        for pair in probe
            .pairs()
            .into_iter()
            .filter(|pair| pair.protocol == pair.network)
        {
            let counts = found
                .entry((pair.source.to_string(), pair.destination.to_string()))
                .or_default();
            counts.0 += pair.packets;
            counts.1 += pair.octets;
        }
        assert_eq!(found, expected, "{file}");
    }
}
