//! Packets and bytes of conversations against tshark's, where tshark is installed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use crate::support::flows::{Conversation, Flow, conversation};

/// Plain captures of several kinds, so that what tshark calls a conversation is what we call a
/// flow: no tunnels, no fragments.
const SAMPLE: [&str; 8] = [
    "zeek/Traces/wikipedia.pcap",
    "zeek/Traces/http/get.pcap",
    "zeek/Traces/ipv6-http-atomic-frag.trace",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/example.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/4KHttpRequests.pcap",
    "nfstream/tests/pcaps/skype_no_unknown.pcap",
    "nfstream/tests/pcaps/instagram.pcap",
    "big/ndpi-4.2/netflix.pcap",
];

/// Packets and frame bytes from the smaller endpoint, then from the larger one.
type Counts = [u64; 4];

#[test]
fn conversations_equal_tsharks() {
    const TEST: &str = "tshark_flows";
    let Some(corpora) = support::corpora() else {
        return;
    };
    if Command::new("tshark").arg("--version").output().is_err() {
        support::skip(TEST, "no tshark");
        return;
    }
    let captures: Vec<PathBuf> = SAMPLE
        .iter()
        .map(|name| corpora.join(name))
        .filter(|path| path.is_file())
        .collect();
    assert!(!captures.is_empty());
    let mut compared = 0;
    for capture in &captures {
        let theirs = of_tshark(capture);
        let ours = of_flowgauge(capture);
        for (conversation, counts) in &theirs {
            assert_eq!(
                ours.get(conversation),
                Some(counts),
                "{}: {conversation:?}",
                capture.display()
            );
            compared += 1;
        }
        assert_eq!(ours.len(), theirs.len(), "{}", capture.display());
    }
    support::say(&format!(
        "\ntshark: {compared} conversations of {} captures are equal\n",
        captures.len()
    ));
    assert!(compared > 50, "only {compared} conversations");
}

/// Our records of TCP and UDP, several of one conversation added up: tshark knows no timeouts.
fn of_flowgauge(capture: &Path) -> BTreeMap<Conversation, Counts> {
    let outcome = support::flowgauge::flows(capture, &["--checksums", "ignore"], None);
    let mut found: BTreeMap<Conversation, Counts> = BTreeMap::new();
    for flow in outcome.json_lines().iter().map(Flow::from_json) {
        if !matches!(flow.protocol.as_str(), "tcp" | "udp") {
            continue;
        }
        let key = flow.conversation();
        let source_is_low = (flow.source, flow.source_port) == key.0;
        let [source, destination] = flow.sides;
        let (low, high) = if source_is_low {
            (source, destination)
        } else {
            (destination, source)
        };
        let counts = found.entry(key).or_default();
        for (sum, count) in
            counts
                .iter_mut()
                .zip([low.packets, low.bytes, high.packets, high.bytes])
        {
            *sum += count;
        }
    }
    found
}

/// The packets as tshark decodes them, added up by conversation.
fn of_tshark(capture: &Path) -> BTreeMap<Conversation, Counts> {
    let mut command = Command::new("tshark");
    command
        .arg("-n")
        .arg("-r")
        .arg(capture)
        .args(["-T", "fields", "-E", "occurrence=l"]);
    // No reassembly: a field of a frame is about that frame only.
    command.args([
        "-o",
        "ip.defragment:FALSE",
        "-o",
        "ipv6.defragment:FALSE",
        "-o",
        "tcp.desegment_tcp_streams:FALSE",
    ]);
    for field in [
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "frame.len",
        "icmp.type",
        "icmpv6.type",
    ] {
        command.args(["-e", field]);
    }
    let outcome = support::flowgauge::run_command(command);
    let mut found: BTreeMap<Conversation, Counts> = BTreeMap::new();
    for line in String::from_utf8_lossy(&outcome.stdout).lines() {
        let Some((key, from_low, bytes)) = conversation_of(line) else {
            continue;
        };
        let counts = found.entry(key).or_default();
        let at = if from_low { 0 } else { 2 };
        counts[at] += 1;
        counts[at + 1] += bytes;
    }
    found
}

/// Conversation, whether the smaller endpoint sent it, and frame bytes of one line of fields.
fn conversation_of(line: &str) -> Option<(Conversation, bool, u64)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [
        ip4_source,
        ip6_source,
        ip4_destination,
        ip6_destination,
        tcp_source,
        tcp_destination,
        udp_source,
        udp_destination,
        length,
        icmp,
        icmp6,
    ] = fields.as_slice()
    else {
        return None;
    };
    if !icmp.is_empty() || !icmp6.is_empty() {
        // The ports are those of the packet the message quotes.
        return None;
    }
    let address = |v4: &str, v6: &str| -> Option<IpAddr> {
        if v4.is_empty() {
            v6.parse().ok()
        } else {
            v4.parse().ok()
        }
    };
    let (source_port, destination_port, protocol) = if tcp_source.is_empty() {
        (
            udp_source.parse().ok()?,
            udp_destination.parse().ok()?,
            "udp",
        )
    } else {
        (
            tcp_source.parse().ok()?,
            tcp_destination.parse().ok()?,
            "tcp",
        )
    };
    let source = (address(ip4_source, ip6_source)?, source_port);
    let destination = (address(ip4_destination, ip6_destination)?, destination_port);
    Some((
        conversation(source, destination, protocol),
        source <= destination,
        length.parse().ok()?,
    ))
}

#[test]
fn reads_a_line_of_fields() {
    let line = "10.0.0.2\t\t10.0.0.1\t\t80\t1000\t\t\t60\t\t";
    let (key, from_low, bytes) = conversation_of(line).unwrap();
    assert_eq!(key.2, "tcp");
    assert!(!from_low);
    assert_eq!(bytes, 60);
    assert!(conversation_of("10.0.0.2\t\t10.0.0.1\t\t\t\t5\t6\t60\t3\t").is_none());
}
