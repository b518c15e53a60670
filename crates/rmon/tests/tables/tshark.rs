//! Hosts, pairs of them and protocols against tshark's statistics, which dissects on its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use flowgauge_rmon::Probe;

use crate::corpora::{corpora, skipped};
use crate::frames::SPEED;
use crate::traces::{captures, count, readable};

/// Frames that Ethernet would have padded, and the others.
const FILTERS: [&str; 2] = ["frame.len<60", "frame.len>=60"];

/// Packets and octets, with check sequences, by what they are of.
type Counts<K> = BTreeMap<K, (u64, u64)>;

/// What tshark has counted.
#[derive(Debug, PartialEq, Eq)]
struct Statistics {
    /// Frames are of Ethernet, and all addresses are those of their outermost IP header, which tshark makes sense of.
    is_comparable: bool,
    /// From and to an address.
    hosts: Counts<(IpAddr, bool)>,
    /// Packets alone.
    pairs: BTreeMap<(IpAddr, IpAddr), u64>,
    /// By the names of layers. The base layer has frames with LLC, too.
    protocols: Counts<String>,
}

impl Statistics {
    fn new() -> Statistics {
        Statistics {
            is_comparable: true,
            hosts: Counts::new(),
            pairs: BTreeMap::new(),
            protocols: Counts::new(),
        }
    }
}

/// Layers by the names that tshark and the directory have for them. VLAN tags are one layer there.
const LAYERS: &[(&str, &str)] = &[
    ("eth", "ether2"),
    ("vlan", "vlan"),
    ("ip", "ip"),
    ("ipv6", "ipv6"),
    ("arp", "arp"),
    ("tcp", "tcp"),
    ("udp", "udp"),
    ("sctp", "sctp"),
    ("icmp", "icmp"),
    ("icmpv6", "icmpv6"),
    ("gre", "gre"),
];

fn add<K: Ord>(counts: &mut Counts<K>, key: K, packets: u64, octets: u64) {
    let sums = counts.entry(key).or_default();
    (sums.0, sums.1) = (sums.0 + packets, sums.1 + octets);
}

/// The statistics of a capture, or nothing where there is no tshark.
fn dissected(path: &Path) -> Option<Statistics> {
    let mut command = Command::new("tshark");
    command.arg("-qnr").arg(path);
    for option in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
    ] {
        command.args(["-o", option]);
    }
    for table in [
        "endpoints,ip",
        "endpoints,ipv6",
        "conv,ip",
        "conv,ipv6",
        "io,phs",
    ] {
        for filter in FILTERS {
            command.args(["-z", &format!("{table},{filter}")]);
        }
    }
    let output = command.output().ok()?;
    let mut found = Statistics::new();
    let (mut is_short, mut above) = (false, Vec::new());
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        if let Some(filter) = line.to_lowercase().strip_prefix("filter:") {
            is_short = filter.trim() == FILTERS[0];
            continue;
        }
        let octets = |packets: u64, bytes: u64| {
            if is_short {
                64 * packets
            } else {
                bytes + 4 * packets
            }
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let address = |at: usize| words.get(at).and_then(|word| word.parse::<IpAddr>().ok());
        if let ([_, "<->", ..], Some(one), Some(other)) = (&words[..], address(0), address(2)) {
            for (pair, packets) in [((other, one), numbers[0]), ((one, other), numbers[2])] {
                if packets != 0 {
                    *found.pairs.entry(pair).or_default() += packets;
                }
            }
        } else if let (Some(address), [_, _, sent, bytes_sent, received, bytes_received]) =
            (address(0), &numbers[..])
        {
            for (is_sent, packets, bytes) in
                [(true, sent, bytes_sent), (false, received, bytes_received)]
            {
                if *packets != 0 {
                    add(
                        &mut found.hosts,
                        (address, is_sent),
                        *packets,
                        octets(*packets, *bytes),
                    );
                }
            }
        } else if let [name, packets, bytes] = words[..]
            && let Some(packets) = packets.strip_prefix("frames:")
            && let Some(bytes) = bytes.strip_prefix("bytes:")
        {
            // The first is the frame itself.
            above.truncate((line.len() - line.trim_start().len()) / 2);
            above.push(name);
            let [_, layers @ ..] = &above[..] else {
                continue;
            };
            let Some(&link) = layers.first() else {
                continue;
            };
            let is_outer = layers
                .iter()
                .rev()
                .skip(1)
                .all(|it| matches!(*it, "eth" | "vlan"));
            let is_strange = link != "eth"
                || name == "_ws.malformed"
                || matches!(name, "ip" | "ipv6") && !is_outer;
            found.is_comparable &= !is_strange;
            let known = layers
                .iter()
                .map(|name| LAYERS.iter().find(|it| it.0 == *name));
            let known: Option<Vec<&str>> = known.map(|layer| layer.map(|it| it.1)).collect();
            let Some(mut known) = known.filter(|known| !known.ends_with(&["vlan", "vlan"])) else {
                continue;
            };
            known.dedup();
            let (packets, bytes) = (packets.parse().unwrap(), bytes.parse().unwrap());
            let octets = octets(packets, bytes);
            add(&mut found.protocols, known.join("."), packets, octets);
        }
    }
    Some(found)
}

/// The same of our tables.
fn counted(probe: &mut Probe) -> Statistics {
    let mut found = Statistics::new();
    for row in probe.hosts() {
        if row.protocol == row.network {
            for (is_sent, packets, octets) in [
                (true, row.out_packets, row.out_octets),
                (false, row.in_packets, row.in_octets),
            ] {
                if packets != 0 {
                    add(&mut found.hosts, (row.address, is_sent), packets, octets);
                }
            }
        }
    }
    for row in probe.pairs() {
        if row.protocol == row.network {
            *found
                .pairs
                .entry((row.source, row.destination))
                .or_default() += row.packets;
        }
    }
    for row in probe.protocols().into_iter().filter(|row| row.packets != 0) {
        let name = match row.protocol.as_str() {
            "llc" | "snap" | "vsnap" => "ether2".to_owned(),
            name => name.replace("ieee802.1q", "vlan"),
        };
        let is_compared = |layer: &str| LAYERS.iter().any(|it| it.1 == layer);
        if name.split('.').all(is_compared) {
            add(&mut found.protocols, name, row.packets, row.octets);
        }
    }
    found
}

#[test]
fn tables_are_those_of_tshark() {
    let Some(corpora) = corpora() else {
        return;
    };
    let large = ["chrome", "WebattackXSS", "netflix"];
    let large = large.map(|name| corpora.join(format!("big/ndpi-4.2/{name}.pcap")));
    let some = captures().into_iter().step_by(97);
    let small = some.filter(|path| path.metadata().unwrap().len() < 1 << 20);
    let mut compared = 0;
    for path in large.into_iter().chain(small) {
        let Some(file) = readable(&path) else {
            continue;
        };
        let Some(expected) = dissected(&path) else {
            return skipped("no tshark");
        };
        if !expected.is_comparable {
            continue;
        }
        let mut probe = Probe::new();
        probe.add_interface(1, SPEED);
        count(&mut probe, &file, |_, _| {});
        assert_eq!(counted(&mut probe), expected, "{}", path.display());
        compared += 1;
    }
    assert!(compared > 25, "{compared}");
}
