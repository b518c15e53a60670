//! `flowgauge packets` on frames made by hand: what each link layer and each option shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A file that goes with the test.
struct Capture(PathBuf);

impl Capture {
    /// A pcap file of one frame per second.
    fn new(name: &str, link: u32, frames: &[&[u8]]) -> Capture {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(65_535u32.to_le_bytes());
        bytes.extend(link.to_le_bytes());
        for (second, frame) in frames.iter().enumerate() {
            let len = frame.len() as u32;
            for number in [second as u32, 0, len, len] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(*frame);
        }
        Capture::of(name, &bytes)
    }

    fn of(name: &str, bytes: &[u8]) -> Capture {
        let name = format!("flowgauge-packets-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        Capture(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = run(arguments, &self.0);
        assert_eq!(output.status.code(), Some(0));
        output
    }

    /// The lines, without date and time.
    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.run(&[&["packets", "--table"], arguments].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned())
            .collect()
    }

    fn records(&self) -> Vec<Value> {
        let output = self.run(&["packets", "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn run(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .arg("-r")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// A SYN from 192.0.2.1 port 12345 to 192.0.2.2 port 80 with the usual options.
fn syn() -> Vec<u8> {
    let mut packet = vec![0x45, 0x10, 0, 60, 0, 7, 0x40, 0, 64, 6, 0xb6, 0xa1];
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend([
        0x30, 0x39, 0, 80, 0, 0, 0, 5, 0, 0, 0, 0, 0xa0, 2, 0xfa, 0xf0,
    ]);
    packet.extend([0x98, 0x74, 0, 0]);
    packet.extend([
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7,
    ]);
    packet
}

#[test]
fn the_link_layer_is_shown_with_e_and_details_with_v() {
    let frame = [&ETHERNET[..], &[0x81, 0, 0, 5, 8, 0], &syn()].concat();
    let capture = Capture::new("ethernet", 1, &[&frame]);
    let usual = "vlan 5 192.0.2.1.12345 > 192.0.2.2.80: tcp S seq 0 win 64240 len 0";
    let link = "02:00:00:00:00:02 > 02:00:00:00:00:01, ethertype ipv4, length 78: ";
    let details = " (tos 0x10, ttl 64, id 7, DF, ip length 60, checksum 0x9874 good; \
                   mss 1460,sackOK,TS val 9 ecr 0,wscale 7)";
    assert_eq!(capture.lines(&[]), [usual]);
    assert_eq!(capture.lines(&["-nn"]), [usual]);
    assert_eq!(capture.lines(&["-e"]), [format!("{link}{usual}")]);
    assert_eq!(capture.lines(&["-v"]), [format!("{usual}{details}")]);
    let all = [format!("{link}{usual}{details}")];
    assert_eq!(capture.lines(&["-e", "-vv", "-n"]), all);
    let record = &capture.records()[0];
    for (name, value) in [
        ("src_mac", json!("02:00:00:00:00:02")),
        ("dst_mac", json!("02:00:00:00:00:01")),
        ("way", json!(null)),
        ("tos", json!(16)),
        ("ip_id", json!(7)),
        ("ip_flags", json!("DF")),
        ("ip_length", json!(60)),
        ("checksum", json!("good")),
        (
            "tcp_options",
            json!("mss 1460,sackOK,TS val 9 ecr 0,wscale 7"),
        ),
        ("mpls", json!([])),
    ] {
        assert_eq!(record[name], value, "{name}");
    }
}

#[test]
fn a_wrong_checksum_is_bad() {
    let mut packet = syn();
    packet[36] ^= 1;
    let capture = Capture::new("checksum", 228, &[&packet]);
    let line = &capture.lines(&["-v"])[0];
    assert!(line.contains("checksum 0x9974 bad; mss"), "{line}");
    assert!(line.ends_with(" [bad checksum]"), "{line}");
    assert_eq!(capture.records()[0]["checksum"], "bad");
}

#[test]
fn mpls_labels_are_shown() {
    let labels = [0x88, 0x47, 0, 0x3e, 0x80, 63, 0xff, 0xff, 0xfb, 255];
    let frame = [&ETHERNET[..], &labels, &syn()].concat();
    let capture = Capture::new("mpls", 1, &[&frame]);
    let line = &capture.lines(&[])[0];
    assert!(
        line.starts_with("mpls 1000 mpls 1048575 192.0.2.1.12345 >"),
        "{line}"
    );
    let line = &capture.lines(&["-v"])[0];
    let start = "mpls 1000 (tc 0, ttl 63) mpls 1048575 (tc 5, ttl 255) 192.0.2.1.12345 >";
    assert!(line.starts_with(start), "{line}");
    assert_eq!(capture.records()[0]["mpls"], json!([1000, 1_048_575]));
    let csv = capture.run(&["packets", "--csv"]);
    assert!(
        String::from_utf8(csv.stdout)
            .unwrap()
            .contains("\"[1000,1048575]\"")
    );
}

#[test]
fn cooked_frames_have_a_sender_and_a_way() {
    let header = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0];
    let frame = [&header[..], &syn()].concat();
    let arp = [
        &[0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 6][..],
        &[
            0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9,
        ],
    ]
    .concat();
    let other = [0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0xcc, 1, 2];
    let capture = Capture::new("sll", 113, &[&frame, &arp, &other]);
    let lines = capture.lines(&["-e"]);
    let start = "out 02:00:00:00:00:09, ethertype ipv4, length 76: 192.0.2.1.12345 > 192.0.2.2.80";
    assert!(lines[0].starts_with(start), "{}", lines[0]);
    let expected = "broadcast 02:00:00:00:00:09, ethertype arp, length 44: ARP, Request who-has \
                    192.0.2.9 tell 192.0.2.1, length 44";
    assert_eq!(lines[1], expected);
    assert_eq!(lines[2], "in, ethertype lldp, length 18: no IP [not IP]");
    let lines = capture.lines(&[]);
    assert!(
        lines[0].starts_with("192.0.2.1.12345 > 192.0.2.2.80"),
        "{}",
        lines[0]
    );
    assert_eq!(lines[2], "in, ethertype lldp, length 18 [not IP]");
    let records = capture.records();
    assert_eq!(records[0]["src_mac"], "02:00:00:00:00:09");
    assert_eq!(records[0]["dst_mac"], Value::Null);
    assert_eq!(records[0]["way"], "out");
    assert_eq!(
        records[1]["arp"],
        "Request who-has 192.0.2.9 tell 192.0.2.1"
    );
    assert_eq!(records[2]["src_mac"], Value::Null);

    let header = [8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 2, 6, 2, 0, 0, 0, 0, 9, 0, 0];
    let frame = [&header[..], &syn()].concat();
    let capture = Capture::new("sll2", 276, &[&frame]);
    let line = &capture.lines(&["-e"])[0];
    let start = "multicast 02:00:00:00:00:09 ifindex 3, ethertype ipv4, length 80: 192.0.2.1";
    assert!(line.starts_with(start), "{line}");
    assert_eq!(capture.records()[0]["interface_index"], 3);
}

#[test]
fn a_first_fragment_has_ports_and_the_others_none() {
    let mut first = vec![
        0x45, 0, 0, 36, 0, 9, 0x20, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];
    first.extend([0, 53, 0x30, 0x39, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut second = first[..28].to_vec();
    second[3] = 28;
    second[6..8].copy_from_slice(&[0, 2]);
    let capture = Capture::new("fragments", 228, &[&first, &second]);
    assert_eq!(
        capture
            .lines(&[])
            .iter()
            .map(|line| line.split(" [").next().unwrap().to_owned())
            .collect::<Vec<_>>(),
        [
            "192.0.2.1.53 > 192.0.2.2.12345: udp fragment id 9 offset 0+ len 16",
            "192.0.2.1 > 192.0.2.2: udp fragment id 9 offset 16 len 8"
        ]
    );
    let records = capture.records();
    assert_eq!(records[0]["ip_flags"], "MF");
    assert_eq!(records[0]["src_port"], 53);
    assert_eq!(records[1]["src_port"], Value::Null);
}

/// A record of type 27 says something of the capture; it is no packet, and not passed over in
/// silence, whichever command reads the file, alone or with others.
#[test]
fn metadata_of_erf_files_is_told() {
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend([0, 0, 0, 0, 1, 0, 0, 0, 27, 0, 0, 24, 0, 0, 0, 8]);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    }
    let frame = [&ETHERNET[..], &[8, 0], &syn()].concat();
    let length = frame.len() as u8;
    bytes.extend([
        0,
        0,
        0,
        0,
        2,
        0,
        0,
        0,
        2,
        0,
        0,
        18 + length,
        0,
        0,
        0,
        length,
        0,
        0,
    ]);
    bytes.extend(&frame);
    let capture = Capture::of("metadata.erf", &bytes);
    let other = Capture::new("beside.pcap", 1, &[&frame]);
    let name = capture.0.to_str().unwrap();
    let note = format!("note: {name}: 2 metadata records (ERF type 27) were passed over\n");
    let copy = Capture::of("copy.pcap", &[]);
    let copy = copy.0.to_str().unwrap();
    for arguments in [
        &["packets"][..],
        &["packets", "-s", "96", "-c", "9", "tcp"],
        &["flows"],
        &["flows", "--workers", "2"],
        &["streams"],
        &["report"],
        &["capture", "-w", copy],
        &["capture", "--cutoff", "1k", "-w", copy],
    ] {
        let output = capture.run(arguments);
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(messages.contains(&note), "{arguments:?}: {messages}");
        assert!(
            messages.contains("1 packet received, 1 delivered"),
            "{messages}"
        );
    }
    let output = capture.run(&["flows", "-r", other.0.to_str().unwrap()]);
    assert!(String::from_utf8(output.stderr).unwrap().contains(&note));
    let output = capture.run(&["flows", "-q"]);
    assert!(output.stderr.is_empty());
}
