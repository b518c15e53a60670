//! What `packets` says of each packet against tshark's fields, where tshark is installed.

use std::path::Path;
use std::process::Command;

use crate::support;
use serde_json::Value;

/// Captures of several link layers without tunnels.
const SAMPLE: [&str; 12] = [
    "arkime/tests/pcap/icmp-frame-relay.pcap",
    "libtrace/test/traces/10_mpls_ip.pcap",
    "zeek/Traces/mixed-vlan-mpls.pcap",
    "zeek/Traces/mpls-in-vlan.pcap",
    "zeek/Traces/wikipedia.pcap",
    "zeek/Traces/http/get.pcap",
    "zeek/Traces/ipv6-http-atomic-frag.trace",
    "dnscap/src/test/sll2.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/sll.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/sll2.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/example.pcap",
    "nfstream/tests/pcaps/instagram.pcap",
];

/// A field of tshark and ours; numbers are compared as numbers.
const FIELDS: [(&str, &str); 24] = [
    ("frame.len", "length"),
    ("ip.src", "src_ip"),
    ("ip.dst", "dst_ip"),
    ("ipv6.src", "src_ip"),
    ("ipv6.dst", "dst_ip"),
    ("ip.ttl", "ttl"),
    ("ipv6.hlim", "ttl"),
    ("ip.id", "ip_id"),
    ("ip.dsfield", "tos"),
    ("ip.len", "ip_length"),
    ("tcp.srcport", "src_port"),
    ("tcp.dstport", "dst_port"),
    ("udp.srcport", "src_port"),
    ("udp.dstport", "dst_port"),
    ("tcp.seq_raw", "seq"),
    ("tcp.ack_raw", "ack"),
    ("tcp.window_size_value", "window"),
    ("tcp.len", "payload_bytes"),
    ("eth.src", "src_mac"),
    ("eth.dst", "dst_mac"),
    ("sll.src.eth", "src_mac"),
    ("sll.ifindex", "interface_index"),
    ("mpls.label", "mpls"),
    ("vlan.id", "vlan"),
];

#[test]
fn fields_equal_tsharks() {
    const TEST: &str = "tshark_packets";
    let Some(corpora) = support::corpora() else {
        return;
    };
    if Command::new("tshark").arg("--version").output().is_err() {
        support::skip(TEST, "no tshark");
        return;
    }
    let (mut packets, mut values) = (0, [0u32; FIELDS.len()]);
    for name in SAMPLE {
        let capture = corpora.join(name);
        if !capture.is_file() {
            continue;
        }
        let theirs = of_tshark(&capture);
        let outcome = support::flowgauge::run(
            ["packets", "-q", "--json", "-r"]
                .map(Path::new)
                .iter()
                .copied()
                .chain([capture.as_path()]),
        );
        let ours = outcome.json_lines();
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            packets += 1;
            // The fields after those of FIELDS: an ICMP message quotes a packet, whose fields
            // tshark shows as if they were the message's.
            if theirs[FIELDS.len()..].iter().any(|value| !value.is_empty()) {
                continue;
            }
            for (number, (their_name, our_name)) in FIELDS.iter().enumerate() {
                let their = &theirs[number];
                if their.is_empty() {
                    continue;
                }
                let our = text(&ours[our_name]);
                assert_eq!(
                    &our,
                    &plain(their),
                    "{name} {} {their_name}",
                    ours["number"]
                );
                values[number] += 1;
            }
        }
    }
    assert!(packets > 500, "only {packets} packets");
    for ((name, _), count) in FIELDS.iter().zip(values) {
        assert!(count > 0, "{name} was never compared");
    }
    let values: u32 = values.iter().sum();
    support::say(&format!(
        "\ntshark: {values} values of {packets} packets are equal\n"
    ));
}

/// A value as text; lists with commas, as tshark has them.
fn text(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(text).collect();
            values.join(",")
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Hexadecimal numbers in decimal.
fn plain(value: &str) -> String {
    let number = value.strip_prefix("0x");
    match number.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
        Some(number) => number.to_string(),
        None => value.to_owned(),
    }
}

/// The fields of each packet.
fn of_tshark(capture: &Path) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command
        .arg("-n")
        .arg("-r")
        .arg(capture)
        .args(["-T", "fields"]);
    for option in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
    ] {
        command.args(["-o", option]);
    }
    let names = FIELDS.iter().map(|(name, _)| *name);
    for name in names.chain(["icmp.type", "icmpv6.type"]) {
        command.args(["-e", name]);
    }
    let outcome = support::flowgauge::run_command(command);
    String::from_utf8_lossy(&outcome.stdout)
        .lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}
