//! What `display_filter` lets through against tshark's display filters, where tshark is installed: how
//! many frames and bytes of real captures each filter selects.

use std::path::Path;
use std::process::Command;

use crate::corpora::{corpora, skipped};
use crate::support::Run;
use flowgauge_capture::open;

/// Captures without tunnels and without fragments: there fields mean the same in both.
const SAMPLE: [&str; 12] = [
    "zeek/Traces/wikipedia.pcap",
    "zeek/Traces/http/get.pcap",
    "zeek/Traces/mixed-vlan-mpls.pcap",
    "zeek/Traces/mpls-in-vlan.pcap",
    "zeek/Traces/dns53.pcap",
    "zeek/Traces/ftp/ftp-with-numbers-in-filename.pcap",
    "zeek/Traces/arp-who-has.pcap",
    "nfstream/tests/pcaps/1kxun.pcap",
    "nfstream/tests/pcaps/ftp.pcap",
    "nfstream/tests/pcaps/webex.pcap",
    "nfstream/tests/pcaps/mdns.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/example.pcap",
];

/// Without commas, which part filters in tshark's option.
const FILTERS: [&str; 44] = [
    "ip",
    "ipv6",
    "tcp",
    "udp",
    "tcp.flags.push == 1",
    "arp",
    "eth.addr == ff:ff:ff:ff:ff:ff",
    "eth.type == 0x0800",
    "vlan.id >= 1",
    "mpls.label",
    "ip.ttl < 64",
    "ip.ttl > 0x40",
    "ip.addr == 192.168.0.0/16",
    "ip.addr != 192.168.0.0/16",
    "ip.src == 10.0.0.0/8 or ip.dst == 10.0.0.0/8",
    "ip.flags.df == 1",
    "ip.dsfield.dscp > 0",
    "ip.len > 100 and not tcp",
    "ip.id == 0",
    "ip.proto == 17",
    "ipv6.addr == fe80::/10",
    "ipv6.hlim == 255",
    "tcp.port == 80",
    "tcp.port != 80",
    "tcp.port in {80 .. 443}",
    "tcp.srcport < tcp.dstport",
    "udp.port == 53 || udp.port == 5353",
    "udp.length > 60",
    "tcp.flags & 0x04",
    "tcp.flags.syn == 1 && tcp.flags.ack == 0",
    "tcp.flags == 0x018",
    "tcp.window_size_value > 1000",
    "tcp.len > 0",
    "tcp.hdr_len > 20",
    "tcp.options.mss_val == 1460",
    "tcp.options.timestamp.tsval",
    "tcp contains \"HTTP/1.1\"",
    "frame contains 0d:0a:0d:0a",
    "tcp.payload[0:3] == 47:45:54",
    "tcp[13] == 12",
    "ip[8] == 40 or ip[8] == 80",
    "tcp.payload matches \"^(get|post) /\"",
    "frame.len > 500 and (tcp or udp) and !(ip.ttl == 64)",
    "udp.payload[2:2] == 01:00",
];

#[test]
fn filters_select_what_tsharks_select() {
    let Some(corpora) = corpora() else {
        return;
    };
    if Command::new("tshark").arg("--version").output().is_err() {
        return skipped("no tshark");
    }
    let (mut compared, mut selected) = (0, [0_u64; FILTERS.len()]);
    let mut different = Vec::new();
    for name in SAMPLE {
        let capture = corpora.join(name);
        if !capture.is_file() {
            continue;
        }
        let Some(theirs) = of_tshark(&capture) else {
            continue;
        };
        for (number, filter) in FILTERS.iter().enumerate() {
            let ours = of_ours(&capture, filter);
            compared += 1;
            selected[number] += ours.0;
            if ours != theirs[number] {
                different.push(format!(
                    "{name}: {filter}: {ours:?}, tshark {:?}",
                    theirs[number]
                ));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    println!("{compared} filters of captures compared");
    let unused = FILTERS
        .iter()
        .zip(selected)
        .filter(|(_, count)| *count == 0);
    let unused: Vec<&str> = unused.map(|(filter, _)| *filter).collect();
    assert!(
        compared == 0 || unused.is_empty(),
        "select nothing: {unused:?}"
    );
}

/// Frames and bytes that each filter selects.
/// `None` of a capture that lasts no time, of which tshark prints none.
fn of_tshark(capture: &Path) -> Option<Vec<(u64, u64)>> {
    let output = Command::new("tshark")
        .args([
            "-q",
            "-o",
            "ip.defragment:FALSE",
            "-o",
            "tcp.desegment_tcp_streams:FALSE",
            "-r",
        ])
        .arg(capture)
        .args(["-z", &format!("io,stat,0,{}", FILTERS.join(","))])
        .output()
        .expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().find(|line| line.contains("<>"))?;
    let cells: Vec<u64> = row
        .split('|')
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    assert_eq!(
        cells.len(),
        2 * FILTERS.len(),
        "{}: {row}",
        capture.display()
    );
    Some(cells.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

fn of_ours(capture: &Path, filter: &str) -> (u64, u64) {
    let filter = filter.replace('"', "\\\"");
    let mut run = Run::new(&format!(
        "[stack] display_filter {{ \"{filter}\" }} count bytes"
    ));
    let mut source = open(capture).expect("a capture");
    run.source(&mut source);
    run.finish();
    (run.result("count"), run.result("bytes"))
}
