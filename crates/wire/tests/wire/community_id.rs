//! Community ID against the specification's and Zeek's baselines.

use crate::common;
use flowgauge_wire::{CommunityId, DecodedBatch, Decoder, community_id_hash};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

/// The value of `"name": value` in one JSON object of the baselines, unquoted.
fn field<'a>(object: &'a str, name: &str) -> &'a str {
    let quoted = format!("\"{name}\":");
    let rest = &object[object.find(&quoted).unwrap() + quoted.len()..];
    rest.split([',', '}'])
        .next()
        .unwrap()
        .trim()
        .trim_matches('"')
}

fn baseline(path: &Path) -> HashSet<(u8, IpAddr, IpAddr, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let objects = text.split('{').skip(1);
    objects
        .map(|object| {
            (
                field(object, "proto").parse().unwrap(),
                field(object, "saddr").parse().unwrap(),
                field(object, "daddr").parse().unwrap(),
                field(object, "communityid").to_string(),
            )
        })
        .collect()
}

/// What decoding the specification's captures gives, in the form of its baselines.
fn computed(
    folder: &Path,
    text: impl Fn(&flowgauge_wire::FlowKey) -> String,
) -> HashSet<(u8, IpAddr, IpAddr, String)> {
    let mut decoder = Decoder::default();
    let mut out = DecodedBatch::new();
    let mut found = HashSet::new();
    for path in common::captures(folder) {
        for packet in common::read(&path) {
            let decoded = common::decode(
                &mut decoder,
                packet.link,
                &packet.bytes,
                packet.wire_len,
                &mut out,
            );
            if decoded.has_ip() {
                let version = decoded.key.version;
                found.insert((
                    decoded.key.protocol,
                    decoded.source().0.to_ip(version),
                    decoded.destination().0.to_ip(version),
                    text(&decoded.key),
                ));
            }
        }
    }
    found
}

#[test]
fn specification_baselines() {
    let Some(corpora) = common::corpora() else {
        return;
    };
    let folder = corpora.join("community-id-spec");
    let captures = folder.join("pcaps");
    for (name, seed) in [("baseline_deflt.json", 0), ("baseline_seed1.json", 1)] {
        let expected = baseline(&folder.join("baseline").join(name));
        let found = computed(&captures, |key| {
            CommunityId::of(key, seed).unwrap().to_string()
        });
        assert!(expected.len() > 10);
        assert_eq!(found, expected, "{name}");
    }
    let expected = baseline(&folder.join("baseline/baseline_nob64.json"));
    let found = computed(&captures, |key| {
        let hash = community_id_hash(key, 0).unwrap();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("1:{hex}")
    });
    assert_eq!(found, expected, "without base64");
}

/// Zeek's own function, run over the same captures. Zeek knows no SCTP ports, so that one capture
/// differs from the specification there and is left out.
#[test]
fn zeek_baselines() {
    let Some(corpora) = common::corpora() else {
        return;
    };
    let baselines = corpora.join("zeek/Baseline/bifs.community_id.run-pcaps");
    let folders = ["community-id-spec/pcaps", "zeek/Traces/communityid"];
    let found: HashSet<String> = folders
        .iter()
        .flat_map(|folder| {
            computed(&corpora.join(folder), |key| {
                CommunityId::of(key, 0).unwrap().to_string()
            })
        })
        .map(|(_, _, _, id)| id)
        .collect();
    let mut compared = 0;
    for name in ["icmp", "icmp6", "ipv6", "tcp", "udp"] {
        let path = baselines.join(format!("{name}.pcap.out"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        for id in text.lines().filter_map(|line| line.split("], ").nth(1)) {
            assert!(found.contains(id), "{name}: {id}");
            compared += 1;
        }
    }
    assert!(compared >= 8, "only {compared} compared");
}

/// The tuples of the specification's table, without captures.
#[test]
fn specification_table() {
    use flowgauge_wire::{Address, FlowKey};
    let (a, b) = (Address::v4([1, 2, 3, 4]), Address::v4([5, 6, 7, 8]));
    for (protocol, expected) in [
        (6, "1:wCb3OG7yAFWelaUydu0D+125CLM="),
        (17, "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg="),
        (132, "1:EKt4MsxuyaE6mL+hmrEkQ9csDD8="),
    ] {
        let there = FlowKey::new(4, protocol, (a, 1122), (b, 3344)).0;
        let back = FlowKey::new(4, protocol, (b, 3344), (a, 1122)).0;
        for key in [there, back] {
            assert_eq!(CommunityId::of(&key, 0).unwrap().as_str(), expected);
        }
    }
    let echo = FlowKey::new(4, 1, (a, 8), (b, 0)).0;
    let id = CommunityId::of(&echo, 0).unwrap();
    assert_eq!(id.as_str(), "1:crodRHL2FEsHjbv3UkRrfbs4bZ0=");
    assert_eq!(CommunityId::of(&FlowKey::default(), 0), None);
}
