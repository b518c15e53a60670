//! Stacks of the folder `stacks` about application protocols, on a capture that is made here.

use std::path::Path;
use std::process::Command;

use crate::stack_support;

/// A datagram in a packet without a link layer.
fn packet(from: [u8; 4], ports: [u16; 2], to: [u8; 4], data: &[u8]) -> Vec<u8> {
    let total = 28 + data.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    for port in ports {
        bytes.extend(port.to_be_bytes());
    }
    bytes.extend((8 + data.len() as u16).to_be_bytes());
    // Without a checksum.
    bytes.extend([0, 0]);
    bytes.extend(data);
    bytes
}

/// A capture of packets, each 10 ms after the one before.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (index, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        for word in [1, index as u32 * 10_000, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// What a stack of the folder prints for these packets.
fn run(stack: &str, packets: &[Vec<u8>]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, capture(packets)).expect("it can be written");
    let stacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stacks");
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["stack", "run", "-q", "-f"])
        .arg(stacks.join(stack))
        .arg("-r")
        .arg(&file)
        .output()
        .expect("it runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let text = String::from_utf8(output.stdout).expect("text");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

const SERVER: [u8; 4] = [10, 0, 0, 53];

fn dns(id: u8, is_reply: bool) -> Vec<u8> {
    let flags = if is_reply { 0x81 } else { 1 };
    let mut bytes = vec![0, id, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(b"\x01a\x07example\0\0\x01\0\x01");
    bytes
}

#[test]
fn latencies_of_dns_stand_by_host() {
    let ask = |host: u8, id: u8| packet([10, 0, 0, host], [5000, 53], SERVER, &dns(id, false));
    let answer = |host: u8, id: u8| packet(SERVER, [53, 5000], [10, 0, 0, host], &dns(id, true));
    let packets = [
        ask(1, 1),
        ask(1, 1),
        answer(1, 1),
        ask(1, 2),
        answer(1, 2),
        ask(2, 3),
        // One that nobody asked for is not about latency.
        answer(2, 4),
    ];
    let lines = run("dns-latency.stack", &packets);
    let rows = [
        "10.0.0.1 10.0.0.53 matched 2 1 15.00ms 20.00ms",
        "10.0.0.2 10.0.0.53 no_reply 1 0 - -",
    ];
    assert_eq!(lines[1..], rows, "{lines:?}");
}

/// A hello of DTLS in a datagram.
fn hello(kind: u8, version: u8) -> Vec<u8> {
    let mut body = vec![0xfe, version];
    body.extend([7; 32]);
    // Session; of a client cookie and the length of its list, too.
    body.extend(if kind == 1 { &[0, 0, 0, 2][..] } else { &[0] });
    body.extend([0xc0, 0x2b]);
    body.extend(if kind == 1 { &[1, 0][..] } else { &[0] });
    let length = body.len() as u8;
    let mut record = vec![22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12 + length];
    record.extend([kind, 0, 0, length, 0, 0, 0, 0, 0, 0, 0, length]);
    record.extend(body);
    record
}

#[test]
fn versions_of_tls_stand_by_server() {
    let mut packets = Vec::new();
    for (port, version) in [(5001, 0xfd), (5002, 0xff), (5003, 0xfd), (5004, 0)] {
        let client = [10, 0, 0, 1];
        packets.push(packet(client, [port, 4433], SERVER, &hello(1, 0xfd)));
        // The last one gets no answer.
        if version != 0 {
            packets.push(packet(SERVER, [4433, port], client, &hello(2, version)));
        }
    }
    let lines = run("tls-versions.stack", &packets);
    let cipher = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let rows = [
        format!("10.0.0.53 4433 DTLS 1.2 {cipher} 2"),
        format!("10.0.0.53 4433 DTLS 1.0 {cipher} 1"),
    ];
    assert_eq!(lines[1..], rows, "{lines:?}");
}

#[test]
fn groups_are_of_flows_in_vlans_and_in_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = stack_support::generate(folder, "zoo", "300");
    for (stack, protocol) in [("dns-latency.stack", "dns"), ("tls-versions.stack", "tls")] {
        let grouped = stack_support::run(folder, stack, &[&trace]);
        assert!(grouped.lines().count() > 2, "{stack}: {grouped}");
        let of = |more: &str| {
            let text = format!("transactions {{ protocols = {protocol} }} {more} output");
            stack_support::printed(folder, &text, &trace, "1")
        };
        let all = of("");
        let in_vlans = all.lines().filter(|line| line.contains("\"vlan\":"));
        let in_vlans = in_vlans.count();
        assert!(0 < in_vlans && in_vlans < all.lines().count(), "{all}");
        let groups = of("aggregate { by = proto }");
        let records: Vec<u64> = groups
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line).ok()?["records"].as_u64()
            })
            .collect();
        let records: u64 = records.into_iter().sum();
        let said = all.lines().filter(|line| line.contains("\"event_type\":"));
        assert_eq!(records, said.count() as u64, "{groups}");
    }
}
