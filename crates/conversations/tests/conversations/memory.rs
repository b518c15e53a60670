//! What conversations keep has a bound, and is counted.

use std::collections::BTreeSet;

use crate::corpora;
use crate::support::{answer, ipv4, records, records_of, segment, udp};
use flowgauge_generate::{Config, Preset, generate};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A number of the records of counters: the most it was, and what it was at the end.
fn counter(records: &[Value], name: &str) -> (u64, u64) {
    let counters = records.iter().filter(|it| it["event_type"] == "statistics");
    let values: Vec<u64> = counters.filter_map(|it| it[name].as_u64()).collect();
    let last = *values.last().expect("the last one");
    (values.into_iter().max().unwrap_or(0), last)
}

/// Requests of so many connections, one each in turn, with a text of so many bytes: none is answered.
fn requests(connections: u16, each: u32, bytes: usize) -> Vec<(u64, Vec<u8>)> {
    let mut packets = Vec::new();
    let mut positions = vec![1; usize::from(connections)];
    for connection in 0..connections {
        packets.push((SECOND, segment(1024 + connection, 80, 0, SYN, b"")));
        let accepts = segment(80, 1024 + connection, 0, SYN | ACK, b"");
        packets.push((SECOND, answer(accepts)));
    }
    for number in 0..each {
        for (connection, position) in (0..connections).zip(&mut positions) {
            let text = format!("/{connection}-{number}/");
            let text = format!("{text:x<bytes$}");
            let request = format!("GET {text} HTTP/1.1\r\nHost: a\r\n\r\n");
            // In pieces that a packet holds.
            for piece in request.as_bytes().chunks(1400) {
                let time = SECOND + packets.len() as u64 * 1_000_000;
                packets.push((time, segment(1024 + connection, 80, *position, ACK, piece)));
                *position += piece.len() as u32;
            }
        }
    }
    packets
}

fn uri(record: &Value) -> Option<&str> {
    record["uri"].as_str()?.split('/').nth(1)
}

#[test]
fn requests_that_wait_have_a_quarter_of_memory() {
    let packets = requests(100, 256, 4000);
    let options = "protocols = http, checksums = ignore, stats_interval = 100ms";
    let bounded = records(
        &format!("transactions {{ {options}, memory = 64M }}"),
        &packets,
    );
    let (most, last) = counter(&bounded, "conversation_memory");
    assert!((8 << 20..=16 << 20).contains(&most), "{most}");
    assert_eq!(last, 0);

    // None is missing, and the oldest were given up.
    let http: Vec<&Value> = bounded
        .iter()
        .filter(|it| it["event_type"] == "http")
        .collect();
    assert_eq!(http.len(), 25_600);
    assert_eq!(
        http.iter()
            .filter_map(|it| uri(it))
            .collect::<BTreeSet<_>>()
            .len(),
        25_600
    );
    assert!(http.iter().all(|it| it["state"] == "no_reply"));
    let limited = http.iter().filter(|it| it["limit"] == "memory").count() as u64;
    assert_eq!(limited, counter(&bounded, "given_up").1);
    assert!((20_000..25_000).contains(&limited), "{limited}");
    let is_young = |it: &&&Value| uri(it).is_some_and(|it| it.ends_with("-255"));
    assert!(http.iter().filter(is_young).all(|it| it["limit"].is_null()));

    // Without the bound all of them wait.
    let unbounded = records(&format!("transactions {{ {options} }}"), &packets);
    assert!(counter(&unbounded, "conversation_memory").0 > 100 << 20);
    assert!(unbounded.iter().all(|it| it["limit"].is_null()));
}

#[test]
fn responses_do_not_go_to_others_than_the_requests_that_were_given_up() {
    let mut packets = requests(2, 200, 4000);
    let mut time = SECOND + packets.len() as u64 * 1_000_000;
    for connection in 0..2 {
        let mut position = 1;
        for number in 0..200 {
            let text = format!("HTTP/1.1 200 {connection}-{number}\r\nContent-Length: 0\r\n\r\n");
            let segment = segment(80, 1024 + connection, position, ACK, text.as_bytes());
            position += text.len() as u32;
            time += 1_000_000;
            packets.push((time, answer(segment)));
        }
    }
    let options = "protocols = http, checksums = ignore, memory = 2M";
    let found = records(&format!("transactions {{ {options} }}"), &packets);
    let is = |state: &'static str| found.iter().filter(move |it| it["state"] == state);
    let (alone, matched) = (is("no_reply").count(), is("matched").count());
    assert_eq!(alone + matched, 400);
    assert_eq!(is("no_request").count(), alone);
    assert!(alone > 100 && matched > 50, "{alone} {matched}");
    for row in is("matched") {
        assert_eq!(uri(row), row["reason"].as_str(), "{row}");
    }
    for row in is("no_reply").chain(is("no_request")) {
        assert_eq!(row["limit"], "memory", "{row}");
    }
}

/// Heads without an end in more connections than there is memory for: those that were silent longest are given up.
#[test]
fn halves_of_messages_are_bounded() {
    let mut packets = Vec::new();
    let mut position = 1;
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
    head.resize(1400, b'x');
    for round in 0..20 {
        for connection in 0..500 {
            if round == 0 {
                packets.push((SECOND, segment(1024 + connection, 80, 0, SYN, b"")));
            }
            let time = SECOND + packets.len() as u64 * 1_000_000;
            packets.push((time, segment(1024 + connection, 80, position, ACK, &head)));
        }
        position += head.len() as u32;
        head.fill(b'x');
    }
    let stack = "transactions { checksums = ignore, memory = 16M, stats_interval = 10ms }";
    let found = records(stack, &packets);
    let (most, last) = counter(&found, "conversation_memory");
    assert!((2 << 20..=4 << 20).contains(&most), "{most}");
    assert_eq!(last, 0);
    assert!(counter(&found, "given_up").1 > 100);
}

/// The same of the components of protocols.
#[test]
fn components_of_protocols_have_a_bound() {
    let packets = requests(20, 100, 4000);
    let stack = |memory: &str| {
        format!("tcpscan tcpcnxdemux {{ timeout = 1h }} < tcpreseq http {{ memory = {memory} }} >")
    };
    let found = records(&stack("1M"), &packets);
    assert_eq!(found.len(), 2000);
    let limited = |found: &[Value]| found.iter().filter(|it| it["limit"] == "memory").count();
    // A request keeps more than 4 kB.
    assert!(
        (1750..2000).contains(&limited(&found)),
        "{}",
        limited(&found)
    );
    assert_eq!(limited(&records(&stack("64M"), &packets)), 0);

    let query = |number: u16| {
        let mut query = number.to_be_bytes().to_vec();
        query.extend(
            b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01",
        );
        query
    };
    let ask = |number: u16| {
        let datagram = udp(1024 + number, 53, &query(number));
        (SECOND + u64::from(number), ipv4(17, 1, 0, false, &datagram))
    };
    let packets: Vec<(u64, Vec<u8>)> = (0..5000).map(ask).collect();
    let found = records("dns { memory = 1M }", &packets);
    assert_eq!(found.len(), 5000);
    assert!(
        (2000..4500).contains(&limited(&found)),
        "{}",
        limited(&found)
    );
}

/// Whatever is said, when all is over nothing is charged any more.
#[test]
fn nothing_is_charged_at_the_end() {
    let check = |trace: &[u8], name: &str| {
        for memory in ["", ", memory = 1M"] {
            let stack =
                format!("transactions {{ checksums = ignore, stats_interval = 1h{memory} }}");
            let found = records_of(&stack, trace);
            if found.iter().any(|it| it["event_type"] == "statistics") {
                assert_eq!(
                    counter(&found, "conversation_memory").1,
                    0,
                    "{name}{memory}"
                );
            }
        }
    };
    let mut trace = Vec::new();
    generate(&Config::new(Preset::Mix).scaled(0.005), &mut trace).expect("memory");
    check(&trace, "mix");
    let Some(root) = corpora::corpora() else {
        return;
    };
    for folder in [
        "dns", "http", "tls", "smtp", "ftp", "ssh", "rpc", "quic", "dtls", "snmp", "ntp",
    ] {
        let folder = root.join("zeek/Traces").join(folder);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let trace = std::fs::read(entry.path()).unwrap_or_default();
            // Others than captures are none of its business.
            if flowgauge_capture::open(entry.path()).is_ok() {
                check(&trace, &entry.path().display().to_string());
            }
        }
    }
}
