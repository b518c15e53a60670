//! C programs as users of MAPI write them, on a sensor.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
mod scopes;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use flowgauge_credential::{Credential, IssuerKey, Limits};
use support::model::{Packet, ticks};
use support::{Process, Running, compile, compile_with, here, installed, success, text};

fn line(name: &str, values: &[u64]) -> String {
    let values = values.iter().map(u64::to_string);
    let words: Vec<String> = core::iter::once(name.to_owned()).chain(values).collect();
    words.join(" ")
}

fn stats(name: &str, values: &[u64]) -> String {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let squares: u128 = values.iter().map(|value| u128::from(*value).pow(2)).sum();
    let (max, min) = (values.iter().max().unwrap(), values.iter().min().unwrap());
    // Both are doubles, and so are sums beyond 64 bits.
    let double = |value: &u64| format!("{:.0}", *value as f64);
    let (max, min) = (double(max), double(min));
    let shown = |sum| match u64::try_from(sum) {
        Ok(sum) => sum.to_string(),
        Err(_) => format!("{:.0}", sum as f64),
    };
    let (sum, squares) = (shown(sum), shown(squares));
    format!("{name} {} {sum} {squares} {max} {min}", values.len())
}

fn dist(name: &str, values: &[u64], min: u64, max: u64, width: u64) -> String {
    let intervals = (max - min).div_ceil(width);
    let mut slots = vec![0; intervals as usize + 2];
    for value in values {
        let slot = match value {
            value if *value < min => 0,
            value if *value >= max => intervals as usize + 1,
            value => ((value - min) / width) as usize + 1,
        };
        slots[slot] += 1;
    }
    line(name, &[&[min, max, intervals], slots.as_slice()].concat())
}

fn running<'a>(values: impl Iterator<Item = u64> + 'a) -> Vec<u64> {
    let sums = values.scan(0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    sums.collect()
}

/// Pauses between packets, where time does not go backwards.
fn gaps(packets: &[Packet]) -> Vec<u64> {
    let two = packets.windows(2);
    two.map(|two| two[1].ticks().saturating_sub(two[0].ticks()))
        .collect()
}

/// What programs print of statistics of frames.
fn frames(packets: &[Packet]) -> [String; 5] {
    let sizes: Vec<u64> = packets.iter().map(|packet| packet.wire).collect();
    let gaps = gaps(packets);
    let all_gaps = [&[0], &gaps[..]].concat();
    let hashes = packets.iter().map(|packet| {
        let sum: u64 = packet.bytes.iter().map(|byte| u64::from(*byte)).sum();
        (packet.bytes.len() as u64 + sum) % 500_009
    });
    let hashes: Vec<u64> = hashes.collect();
    [
        stats("sizes", &sizes),
        stats("gaps", &gaps),
        stats("hashes", &hashes),
        dist("lengths", &sizes, 100, 1400, 130),
        dist(
            "pauses",
            &all_gaps,
            ticks(10_000),
            ticks(1_000_000),
            ticks(100_000),
        ),
    ]
}

/// What `functions.c` prints of counters, and of statistics over them.
fn counters(packets: &[Packet]) -> Vec<String> {
    let bytes = running(packets.iter().map(|packet| packet.wire));
    let counts = running(packets.iter().map(|_| 1));
    let ttls: Vec<u64> = packets.iter().map(Packet::ttl).collect();
    let is_tcp = |packet: &&Packet| packet.protocol() == 6;
    let tcp = packets.iter().filter(is_tcp).count() as u64;
    let (count, sum) = (packets.len() as u64, *bytes.last().unwrap());
    let last = packets.last().unwrap();
    let hash: u64 = last.bytes.iter().map(|byte| u64::from(*byte)).sum();
    let hash = (last.bytes.len() as u64 + hash) % 500_009;
    let [sizes, gaps_of, hashes, lengths, pauses] = frames(packets);
    vec![
        line("packets", &[count]),
        line("bytes", &[sum]),
        line("sum", &[count + sum]),
        line("difference", &[sum - count]),
        line("size", &[last.wire]),
        line("time", &[last.ticks()]),
        line("gap", &[*gaps(packets).last().unwrap()]),
        line("hash", &[hash]),
        line("tcp", &[tcp]),
        stats("counted", &counts),
        sizes,
        gaps_of,
        hashes,
        stats("ttls", &ttls),
        lengths,
        pauses,
        dist("spread", &bytes, 1_000_000, 5_000_000, 500_000),
        line("filtered", &[count, tcp]),
    ]
}

fn filters(packets: &[Packet]) -> Vec<String> {
    let count =
        |selects: &dyn Fn(&Packet) -> bool| packets.iter().filter(|it| selects(it)).count() as u64;
    let get = |packet: &Packet| packet.contains(b"GET /");
    let has = |port| {
        move |it: &Packet| it.protocol() == 17 && (it.ports().0 == port || it.ports().1 == port)
    };
    let at66 = count(&|it| it.bytes.get(66..71) == Some(b"GET /"));
    assert!(at66 > 7);
    let to_80 = packets
        .iter()
        .filter(|it| it.protocol() == 6 && it.ports().1 == 80);
    let to_80: Vec<&Packet> = to_80.collect();
    let wire = to_80.iter().map(|it| it.wire).sum();
    vec![
        line("udp53", &[count(&has(53))]),
        line("get", &[count(&get)]),
        line("hex", &[count(&get)]),
        line("either", &[count(&|it| get(it) || it.contains(b"POST /"))]),
        line("syn", &[count(&|it| it.flags() & 2 != 0)]),
        line(
            "regexp",
            &[count(&|it| {
                (b'a'..=b'z').any(|letter| it.contains(&[b"GET /", &[letter][..]].concat()))
            })],
        ),
        line("rewritten", &[to_80.len() as u64, to_80.len() as u64, wire]),
        line("at66", &[at66]),
        line("sampled", &[at66 / 7]),
    ]
}

fn times(packets: &[Packet]) -> String {
    const SECOND: u64 = 1_000_000_000;
    let first = packets[0].nanos;
    let is_within = |it: &&Packet| (first + SECOND..first + 2 * SECOND).contains(&it.nanos);
    let within: Vec<&Packet> = packets.iter().filter(is_within).collect();
    let times = [&packets[0], within[0], within[within.len() - 1]].map(Packet::ticks);
    line("times", &[&times[..], &[within.len() as u64]].concat())
}

fn buckets(packets: &[Packet]) -> Vec<String> {
    const LENGTH: u64 = 100_000_000;
    let number = |packet: &Packet| packet.nanos / LENGTH;
    let all = number(&packets[0])..=number(packets.last().unwrap());
    let count = |bucket| packets.iter().filter(|it| number(it) == bucket).count() as u64;
    let lines = all.map(|bucket| line("bucket", &[ticks(bucket * LENGTH), count(bucket)]));
    lines.collect()
}

fn samples(packets: &[Packet]) -> Vec<String> {
    const FLAGS: [(u8, u64); 5] = [(0x02, 1), (0x10, 2), (0x04, 4), (0x01, 8), (0x08, 16)];
    let syns = packets
        .iter()
        .filter(|it| it.protocol() == 6 && it.flags() & 2 != 0);
    let lines = syns.map(|it| {
        let set = FLAGS.iter().filter(|(flag, _)| it.flags() & flag != 0);
        let flags: u64 = set.map(|(_, flag)| flag).sum();
        let (from, to) = it.ports();
        let rest = line("", &[from, to, it.sequence(), flags, 6]);
        format!("sample {} {}{rest}", it.ticks(), it.source())
    });
    lines.collect()
}

/// The most frequent values: packets, bytes.
fn top<K: Ord + Clone>(values: impl Iterator<Item = (K, u64)>, most: usize) -> Vec<(K, u64, u64)> {
    let mut sums: BTreeMap<K, (u64, u64)> = BTreeMap::new();
    for (value, bytes) in values {
        let sums = sums.entry(value).or_default();
        *sums = (sums.0 + 1, sums.1 + bytes);
    }
    let mut all: Vec<(K, u64, u64)> = sums
        .into_iter()
        .map(|(value, (packets, bytes))| (value, packets, bytes))
        .collect();
    all.sort_by_key(|(value, packets, _)| (core::cmp::Reverse(*packets), value.clone()));
    all.truncate(most);
    all
}

fn tops(packets: &[Packet]) -> Vec<String> {
    let tcp = packets.iter().filter(|it| it.protocol() == 6);
    let ports = top(tcp.map(|it| (it.ports().1, it.wire)), 5);
    let hosts = top(packets.iter().map(|it| (it.source(), it.wire)), 3);
    let ports = ports
        .iter()
        .map(|(port, packets, bytes)| line("port", &[*port, *packets, *bytes]));
    let hosts = hosts
        .iter()
        .map(|(host, packets, bytes)| format!("host {host} {packets} {bytes}"));
    ports.chain(hosts).collect()
}

/// Bursts of packets 96 ns apart, 1,000 ns sooner or later, at 1,000 Mbit/s.
fn bursts(packets: &[Packet]) -> Vec<String> {
    let slot = |bytes: u64| {
        if bytes >= 4096 {
            5
        } else {
            bytes as usize / 1024 + 1
        }
    };
    let mut slots = [[0_u64; 5]; 6];
    let (mut bytes, mut count) = (0, 0);
    for (at, packet) in packets.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| packets[at].nanos as i64);
        let gap = before.map(|before| packet.nanos as i64 - packet.wire as i64 * 8 - before);
        if let Some(gap) = gap.filter(|gap| !(96 - 1000..=96 + 1000).contains(gap)) {
            let of = &mut slots[slot(bytes)];
            *of = [of[0] + bytes, of[1] + count, of[2] + 1, of[3], of[4]];
            (bytes, count) = (0, 0);
            let idle = gap.max(0) as u64 / 8;
            slots[slot(idle)][3] += idle;
            slots[slot(idle)][4] += 1;
        }
        bytes += packet.wire;
        count += 1;
    }
    let of = &mut slots[slot(bytes)];
    *of = [of[0] + bytes, of[1] + count, of[2] + 1, of[3], of[4]];
    let lines = (0..)
        .zip(slots)
        .map(|(at, slot)| line("burst", &[&[at], &slot[..]].concat()));
    lines.collect()
}

fn threshold(packets: &[Packet]) -> String {
    const LENGTH: u64 = 10_000_000;
    let first = packets[0].nanos / LENGTH + 1;
    let count = |end: u64| packets.iter().filter(|it| it.nanos < end).count() as u64;
    let end = (first..)
        .map(|number| number * LENGTH)
        .find(|end| count(*end) > 1000)
        .unwrap();
    line("threshold", &[ticks(end), count(end)])
}

/// Flows by direction, in the form of `functions.c`, and their counts: received, expired, ignored, dropped or sent.
fn expired(packets: &[Packet]) -> (Vec<String>, [u64; 10]) {
    const TIMEOUT: u64 = 60_000_000_000;
    type Key = (Ipv4Addr, Ipv4Addr, (u64, u64), u8);
    let mut open: BTreeMap<Key, Vec<&Packet>> = BTreeMap::new();
    let mut ended: Vec<(Key, Vec<&Packet>)> = Vec::new();
    for packet in packets {
        let key = (
            packet.source(),
            packet.destination(),
            packet.ports(),
            packet.protocol(),
        );
        let is_over = |of: &Vec<&Packet>| packet.nanos - of.last().unwrap().nanos > TIMEOUT;
        if open.get(&key).is_some_and(is_over) {
            ended.extend(open.remove_entry(&key));
        }
        open.entry(key).or_default().push(packet);
        if packet.flags() & 5 != 0 {
            ended.extend(open.remove_entry(&key));
        }
    }
    ended.extend(open);
    let is_ignored = |of: &[&Packet]| of.len() < 2 || of[0].nanos < packets[0].nanos + TIMEOUT;
    let mut counts = [0; 10];
    let mut lines = Vec::new();
    for ((source, destination, ports, protocol), of) in &ended {
        let ignored = is_ignored(of);
        for (at, adds) in [(0, 1), (5, of.len() as u64)] {
            counts[at] += if ignored { 0 } else { adds };
            counts[at + 1] += adds;
            counts[at + 2] += adds;
            counts[at + 3] += if ignored { adds } else { 0 };
        }
        if !ignored {
            let bytes: u64 = of.iter().map(|it| it.ip_len()).sum();
            let numbers = line("flow", &[of[0].ticks(), of.len() as u64, bytes]);
            let ends = format!("{source}:{} {destination}:{}", ports.0, ports.1);
            lines.push(format!("{numbers} {ends} {protocol} {}", of[0].ttl()));
        }
    }
    lines.sort();
    (lines, counts)
}

#[test]
fn functions_give_what_a_naive_model_gives() {
    let running = Running::start("");
    let said = running.run(&compile("functions"), &["mix.pcap", "long.pcap"]);
    let packets = running.packets("mix.pcap");
    let lines: Vec<&str> = said.lines().collect();
    let mut at = 0;
    let mut next = |expected: Vec<String>| {
        let end = (at + expected.len()).min(lines.len());
        assert_eq!(lines[at..end], expected);
        at = end;
    };
    next(counters(&packets));
    next(filters(&packets));
    next(vec![times(&packets)]);
    next(buckets(&packets));
    next(samples(&packets));
    next(tops(&packets));
    next(bursts(&packets));
    next(vec![threshold(&packets)]);
    let (flows, counts) = expired(&running.packets("long.pcap"));
    assert!(flows.len() > 200, "{}", flows.len());
    let mut told: Vec<&str> = lines[at..at + flows.len()].to_vec();
    told.sort_unstable();
    assert_eq!(told, flows);
    assert_eq!(lines[at + flows.len()], line("expired", &counts));
    // Of a list of 20 the first were forgotten; what was sent and what was dropped is the same together.
    let rest: Vec<u64> = lines[at + flows.len() + 1]
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    for of in [0, 5] {
        assert_eq!(rest[of + 1..of + 4], counts[of + 1..of + 4]);
        assert_eq!(rest[of] + rest[of + 4], counts[of]);
    }
    assert_eq!(rest[0], 20);
    assert_eq!(lines.len(), at + flows.len() + 2);
}

/// Packets of a capture that libpcap's own filter lets through.
fn by_tcpdump(trace: &Path, filter: &str) -> u64 {
    let mut tcpdump = Command::new("tcpdump");
    let written = success(tcpdump.arg("-r").arg(trace).args(["-w", "-", filter]));
    support::model::parse(&written.stdout).unwrap().len() as u64
}

#[test]
fn functions_of_frames_give_what_a_naive_model_gives_over_the_corpora() {
    let Some(corpora) = corpora::corpora() else {
        return;
    };
    let mut traces: Vec<(PathBuf, Vec<Packet>)> = Vec::new();
    let mut find = Command::new("find");
    let found = find.arg(corpora).args(["-type", "f", "-size", "-2000k"]);
    let found = text(&success(found).stdout);
    let mut found: Vec<PathBuf> = found.lines().map(PathBuf::from).collect();
    found.sort();
    for file in found {
        let bytes = fs::read(&file).unwrap();
        // Of Ethernet: some links have no such filters.
        let is_ethernet = bytes.get(20..24) == Some(&1_u32.to_ne_bytes());
        let packets = support::model::parse(&bytes).filter(|_| is_ethernet);
        let packets = packets.filter(|packets| packets.len() > 1);
        traces.extend(packets.map(|packets| (file, packets)));
    }
    let step = traces.len().div_ceil(400);
    let traces: Vec<_> = traces.into_iter().step_by(step).collect();
    // Before there is a sensor, which gives up rights that tcpdump gives up itself.
    let filters = ["tcp", "udp and greater 100 or ip6"];
    let by_tcpdump = |(file, _): &(PathBuf, Vec<Packet>)| {
        filters.map(|filter| line(filter, &[by_tcpdump(file, filter)]))
    };
    let filtered: Vec<[String; 2]> = traces.iter().map(by_tcpdump).collect();
    assert!(traces.len() > 100, "{}", traces.len());
    let running = Running::start("");
    let names: Vec<&str> = traces
        .iter()
        .map(|(file, _)| file.to_str().unwrap())
        .collect();
    let said = running.run(&compile("frames"), &names);
    let mut said = said.split("trace ").skip(1);
    for ((file, packets), filtered) in traces.iter().zip(filtered) {
        let said = said.next().unwrap();
        let wire: u64 = packets.iter().map(|packet| packet.wire).sum();
        let count = packets.len() as u64;
        let has = |packet: &&Packet| packet.contains(b"HTTP/1");
        let mut expected = vec![
            file.display().to_string(),
            line("packets", &[count]),
            line("bytes", &[wire]),
            line("difference", &[wire - count]),
            line("time", &[packets[packets.len() - 1].ticks()]),
        ];
        expected.extend(frames(packets));
        expected.extend(bursts(packets));
        expected.extend(filtered);
        expected.push(line("HTTP/1", &[packets.iter().filter(has).count() as u64]));
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn headers_have_the_published_layouts_in_every_dialect() {
    let layouts = here().join("tests/c/layouts.c");
    for standard in ["gnu89", "c99", "gnu11", "c17"] {
        let standard = format!("-std={standard}");
        let program = compile_with("gcc", &[&standard, "-Wall", "-Wextra", "-Werror"], &layouts);
        let mut run = Command::new(program);
        success(run.env("LD_LIBRARY_PATH", installed().join("lib")));
    }
    compile_with(
        "g++",
        &["-std=c++17", "-x", "c++", "-Wall", "-Wextra", "-Werror"],
        &layouts,
    );
}

#[test]
fn exactly_the_headers_calls_are_exported() {
    let header = std::fs::read_to_string(here().join("include/mapi.h")).unwrap();
    let calls = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '#', 't']));
    let calls = calls.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let mut declared: Vec<&str> = calls.filter(|name| name.starts_with("mapi_")).collect();
    declared.sort_unstable();
    let mut list = Command::new("nm");
    list.args(["-D", "--defined-only"])
        .arg(installed().join("lib/libmapi.so"));
    let listed = text(&success(&mut list).stdout);
    let exported: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(exported, declared);
    assert!(declared.len() >= 30);
}

#[test]
fn misuse_is_answered_by_the_errors_of_mapi() {
    let running = Running::start("[devices.held]\nfiles = [\"{folder}/mix.pcap\"]\nhold = true\n");
    running.run(&compile("misuse"), &["held"]);
}

#[test]
fn a_program_asks_with_credentials() {
    let issuer = IssuerKey::generate();
    let tables = format!(
        "[devices.held]\nfiles = [\"{{folder}}/mix.pcap\"]\nhold = true\n[issuers.ops]\nkey = \"{}\"\npackets = \"payload\"\n",
        issuer.public()
    );
    let running = Running::start(&tables);
    let limits = Limits {
        most_flows: Some(1),
        ..Limits::default().function("count").unwrap()
    };
    let good = Credential::issue(&issuer, &limits).unwrap().text();
    let other = Credential::issue(&IssuerKey::generate(), &limits)
        .unwrap()
        .text();
    running.run(&compile("credential"), &["held", &good, &other]);
}

/// Every call, library and function has its page, and the pages are well-formed.
#[test]
fn man_pages_tell_of_everything() {
    let folder = installed().join("share/man/man3");
    let page = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.3"))).unwrap();
    let mut list = Command::new("nm");
    list.args(["-D", "--defined-only"])
        .arg(installed().join("lib/libmapi.so"));
    let listed = text(&success(&mut list).stdout);
    for call in listed
        .lines()
        .filter_map(|line| line.split(' ').next_back())
    {
        assert!(page(call).contains(&format!(".Nm {call}")), "{call}");
    }
    for function in flowgauge_mapi::FUNCTIONS {
        let page = page(function.library);
        assert!(page.contains(function.name), "{}", function.name);
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let mut format = Command::new("groff");
        format
            .args(["-mdoc", "-ww", "-z"])
            .arg(entry.unwrap().path());
        assert_eq!(text(&success(&mut format).stderr), "");
    }
}

#[test]
fn every_function_that_is_told_of_works() {
    let running = Running::start("");
    let said = running.run(&compile("walk"), &["mix.pcap"]);
    let count = running.packets("mix.pcap").len() as u64;
    let mut names = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, has_result, came, passed] = words[..] else {
            panic!("{line}")
        };
        assert!(came.parse() == Ok(count) || name == "INJECT", "{line}");
        // Of the protocols of trackflib only the web is in the trace.
        let is_tracker = name.starts_with("TRACK_") && name != "TRACK_WEB";
        let has_passed = passed.parse::<u64>().unwrap() > 0;
        assert!(has_result == "1" || has_passed || is_tracker, "{line}");
        names.push(name.to_owned());
    }
    let known: Vec<&str> = flowgauge_mapi::FUNCTIONS.iter().map(|it| it.name).collect();
    assert_eq!(names, known);
}

fn hashed<'a>(packets: impl Iterator<Item = &'a Packet>) -> String {
    let (mut hash, mut count) = (14_695_981_039_346_656_037_u64, 0);
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211);
        }
    };
    for packet in packets {
        mix(&packet.ticks().to_ne_bytes());
        mix(&(packet.bytes.len() as u32).to_ne_bytes());
        mix(&(packet.wire as u32).to_ne_bytes());
        mix(&packet.bytes);
        count += 1;
    }
    format!("{count} {hash:x}")
}

/// What tshark reads of a file of TCP with right checksums: ends, bytes of data and sequence number of each segment.
fn segments(running: &Running, file: &str) -> Vec<(String, u64, u64)> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(running.folder.path().join(file));
    for option in [
        "tcp.check_checksum:TRUE",
        "ip.check_checksum:TRUE",
        "tcp.relative_sequence_numbers:FALSE",
    ] {
        tshark.args(["-o", option]);
    }
    tshark.args([
        "-Y",
        "tcp.checksum.status == Good && ip.checksum.status == Good",
        "-T",
        "fields",
    ]);
    for field in [
        "ip.src",
        "tcp.srcport",
        "ip.dst",
        "tcp.dstport",
        "tcp.len",
        "tcp.seq",
    ] {
        tshark.args(["-e", field]);
    }
    let said = text(&success(&mut tshark).stdout);
    let rows = said.lines().map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        (
            cells[..4].join(" "),
            cells[4].parse().unwrap(),
            cells[5].parse().unwrap(),
        )
    });
    rows.collect()
}

#[test]
fn packets_and_files_are_those_of_the_trace() {
    let running = Running::start("");
    let said = running.run(&compile("packets"), &["mix.pcap"]);
    let packets = running.packets("mix.pcap");
    let tcp: Vec<&Packet> = packets.iter().filter(|it| it.protocol() == 6).collect();
    let is_dns = |it: &&Packet| it.protocol() == 17 && (it.ports().0 == 53 || it.ports().1 == 53);
    let mut lines = said.lines();
    assert_eq!(
        lines.next().unwrap(),
        format!("loop {}", hashed(packets.iter()))
    );
    assert_eq!(
        lines.next().unwrap(),
        format!("some {}", hashed(packets[..101].iter()))
    );
    assert_eq!(
        lines.next().unwrap(),
        format!("dns {}", hashed(packets.iter().filter(is_dns)))
    );
    assert_eq!(
        lines.next().unwrap(),
        format!("loop {}", hashed(packets.iter()))
    );
    let dns = packets.iter().filter(is_dns).count();
    assert_eq!(lines.next().unwrap(), format!("rest {}", dns - 10));
    let cooked = lines.next().unwrap().strip_prefix("cooked ").unwrap();
    assert!(cooked.parse::<u64>().unwrap() > 1000, "{cooked}");
    assert_eq!(lines.next().unwrap(), format!("written {}", tcp.len()));
    assert_eq!(lines.next(), None);

    let (cooked, uncooked) = (
        segments(&running, "cooked.pcap"),
        segments(&running, "uncooked.pcap"),
    );
    assert!(cooked.iter().any(|it| it.1 > 1460) && uncooked.iter().all(|it| it.1 <= 1460));
    let cut = cooked.iter().flat_map(|(stream, len, sequence)| {
        (0..len.div_ceil(1460)).map(move |at| {
            let from = at * 1460;
            (stream.clone(), 1460.min(len - from), sequence + from)
        })
    });
    assert_eq!(uncooked, cut.collect::<Vec<_>>());

    let read = |name: &str| std::fs::read_to_string(running.folder.path().join(name)).unwrap();
    let some = running.packets("some.pcap");
    assert_eq!(hashed(some.iter()), hashed(tcp[..100].iter().copied()));
    assert_eq!(
        hashed(running.packets("all.pcap").iter()),
        hashed(tcp.iter().copied())
    );
    let mode = std::fs::metadata(running.folder.path().join("each.txt")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );

    let mut before = packets[0].ticks();
    let mut each = vec!["packets\tgap".to_owned(), "size".to_owned()];
    for (number, packet) in (1..).zip(&packets) {
        let gap = packet.ticks() - core::mem::replace(&mut before, packet.ticks());
        // Of 2^32 parts of a second, as many as %.12Lf has of them.
        let fraction = ((gap as u128 % (1 << 32)) * 1_000_000_000_000 + (1 << 31)) >> 32;
        each.push(format!(
            "{number} {}.{fraction:012} {} ",
            gap >> 32,
            packet.wire
        ));
    }
    assert_eq!(read("each.txt").lines().collect::<Vec<_>>(), each);
    let second = |it: &Packet| it.nanos / 1_000_000_000;
    let all = second(&packets[0])..=second(packets.last().unwrap());
    let mut seconds = vec!["PER SECOND".to_owned()];
    seconds
        .extend(all.map(|at| format!("{} ", packets.iter().filter(|it| second(it) == at).count())));
    assert_eq!(read("second.txt").lines().collect::<Vec<_>>(), seconds);
    assert_eq!(read("array.txt"), format!("LINE\n{} \n", packets.len()));
    let sizes: Vec<u64> = packets.iter().map(|it| it.wire).collect();
    let (sum, squares): (u64, u64) = (sizes.iter().sum(), sizes.iter().map(|it| it * it).sum());
    let (min, max) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    let line = format!(
        "{}  {sum}.000000 {squares}.000000 {min}.000000 {max}.000000 ",
        sizes.len()
    );
    assert_eq!(read("stats.txt"), format!("\n{line}\n"));
}

#[test]
fn functions_of_the_programs_own_run_in_the_program() {
    let source = here().join("tests/c/own_library.c");
    let library = compile_with(
        "gcc",
        &["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"],
        &source,
    );
    let running = Running::start("[devices.held]\nfiles = [\"{folder}/mix.pcap\"]\nhold = true\n");
    let library = library.display().to_string();
    let said = running.run(&compile("own"), &["mix.pcap", &library, "held"]);
    let packets = running.packets("mix.pcap");
    let tcp: Vec<&Packet> = packets.iter().filter(|it| it.protocol() == 6).collect();
    let third: Vec<&&Packet> = tcp.iter().step_by(3).collect();
    let captured: usize = third.iter().map(|it| it.bytes.len()).sum();
    let all: usize = packets.iter().map(|it| it.bytes.len()).sum();
    let (read, tcp) = (third.len(), tcp.len());
    let read = format!("read {read} {captured} of {tcp}, {tcp}\n");
    assert_eq!(said, format!("{read}tally {} {all}\n", packets.len()));
}

/// What tshark reads of messages to a collector, or of a file of them: packets, bytes and ends of each record.
fn exported(file: &std::path::Path, more: &[&str]) -> Vec<[String; 7]> {
    let fields = [
        "cflow.packets",
        "cflow.octets",
        "cflow.srcaddr",
        "cflow.dstaddr",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
    ];
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(file)
        .args(more)
        .args(["-T", "fields", "-E", "aggregator=;"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let said = text(&success(&mut tshark).stdout);
    let mut records = Vec::new();
    for line in said.lines() {
        let columns: Vec<Vec<&str>> = line.split('\t').map(|it| it.split(';').collect()).collect();
        for at in 0..columns[0].len() {
            records.push(core::array::from_fn(|column| {
                columns[column]
                    .get(at)
                    .copied()
                    .unwrap_or_default()
                    .to_owned()
            }));
        }
    }
    records
}

/// The directions of flows, in the form of [`exported`].
fn directions(packets: &[Packet]) -> Vec<[String; 7]> {
    let mut all: BTreeMap<[String; 5], (u64, u64)> = BTreeMap::new();
    for it in packets {
        let (from, to) = match it.protocol() {
            6 | 17 => it.ports(),
            _ => (0, 0),
        };
        let key = [
            it.source().to_string(),
            it.destination().to_string(),
            from.to_string(),
            to.to_string(),
            it.protocol().to_string(),
        ];
        let sums = all.entry(key).or_default();
        *sums = (sums.0 + 1, sums.1 + it.ip_len());
    }
    let rows = all.into_iter().map(|([a, b, c, d, e], (packets, bytes))| {
        [packets.to_string(), bytes.to_string(), a, b, c, d, e]
    });
    rows.collect()
}

/// Records of the same five values are one connection after the other: sums of them. Ports of ICMP, which say its type, are left.
fn summed(records: Vec<[String; 7]>) -> Vec<[String; 7]> {
    let mut all: BTreeMap<[String; 5], (u64, u64)> = BTreeMap::new();
    for [packets, bytes, a, b, c, d, e] in records {
        let is_icmp = e == "1";
        let port = |port: String| if is_icmp { "0".to_owned() } else { port };
        let sums = all.entry([a, b, port(c), port(d), e]).or_default();
        let (packets, bytes): (u64, u64) = (packets.parse().unwrap(), bytes.parse().unwrap());
        *sums = (sums.0 + packets, sums.1 + bytes);
    }
    let rows = all.into_iter().map(|([a, b, c, d, e], (packets, bytes))| {
        [packets.to_string(), bytes.to_string(), a, b, c, d, e]
    });
    rows.collect()
}

#[test]
fn flows_are_exported_as_tshark_reads_them() {
    let running = Running::start("");
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = collector.local_addr().unwrap().port();
    let received = std::thread::spawn({
        let collector = collector.try_clone().unwrap();
        move || {
            let mut messages = Vec::new();
            let mut message = [0; 2000];
            while let Ok(len @ 1..) = collector.recv(&mut message) {
                messages.push(message[..len].to_vec());
            }
            messages
        }
    });
    let to = format!("127.0.0.1:{port}");
    let said = running.run(&compile("report"), &["mix.pcap", &to]);
    collector.send_to(&[], &to).unwrap();
    let messages = received.join().unwrap();
    let model = directions(&running.packets("mix.pcap"));
    let counts: Vec<(&str, u64)> = said
        .lines()
        .map(|line| {
            let (name, count) = line.split_once(' ').unwrap();
            (name, count.parse().unwrap())
        })
        .collect();
    assert_eq!(counts.len(), 6);
    let records = counts[0].1;
    assert!(
        counts[..5].iter().all(|(_, count)| *count == records),
        "{said}"
    );
    assert!(counts[5].1 < records && records < 2 * counts[5].1 + 1);
    let folder = running.folder.path();
    let of_file = exported(&folder.join("flows.ipfix"), &[]);
    assert_eq!(of_file.len() as u64, records);
    assert_eq!(summed(of_file), model);
    for version in [5, 9, 10] {
        let its = messages.iter().filter(|it| it[1] == version);
        let trace = folder.join(format!("{version}.pcap"));
        std::fs::write(
            &trace,
            support::model::datagrams(its.map(Vec::as_slice), 2055),
        )
        .unwrap();
        let read = exported(&trace, &["-d", "udp.port==2055,cflow"]);
        assert_eq!(read.len() as u64, records, "version {version}");
        assert_eq!(summed(read), model, "version {version}");
    }
}

/// Results that a program takes one by one hold a trace up; none is lost.
#[test]
fn a_trace_waits_for_a_slow_program() {
    let running = Running::start("");
    let packets = running.packets("mix.pcap");
    let said = running.run(&compile("slow"), &["mix.pcap"]);
    let number = |packet: &Packet| packet.nanos / 100_000;
    let buckets = number(packets.last().unwrap()) - number(&packets[0]) + 1;
    let count = packets.len();
    assert_eq!(
        said,
        format!("samples {count} {count} 1\nbuckets {buckets} {count}\n")
    );
}

#[test]
fn functions_of_several_flows_work_together() {
    let running = Running::start("");
    let said = running.run(&compile("several"), &["mix.pcap"]);
    let packets = running.packets("mix.pcap");
    let of = |protocol| {
        packets
            .iter()
            .filter(|it| it.protocol() == protocol)
            .count()
    };
    let (tcp, udp) = (of(6), of(17));
    assert_eq!(
        said,
        format!("{tcp} {udp} {} {}\n", tcp + udp, packets.len())
    );
    let file = std::fs::read_to_string(running.folder.path().join("several.txt")).unwrap();
    assert_eq!(file, format!("tcp udp\n{tcp} {udp} \n"));
}

/// Is the sensor of another test, as a process of its own, where that has set its configuration.
#[test]
fn is_a_sensor_for_other_tests() {
    if let Some(config) = std::env::var_os(support::CONFIG) {
        support::serve_until_killed(std::path::Path::new(&config));
    }
}

#[test]
fn programs_have_threads_fork_and_survive_their_sensor() {
    let folder = Running::folder("[devices.held]\nfiles = [\"{folder}/mix.pcap\"]\nhold = true\n");
    let count = support::model::packets(&folder.path().join("mix.pcap")).len();
    let mut sensor = Process::sensor(&folder);
    let mut program = Process::program(&compile("life"), &folder, &["held", "mix.pcap"]);
    let counted = format!("packets {count}");
    for _ in 0..3 {
        assert_eq!(program.line(), counted);
    }
    assert_eq!(program.line(), "kill");
    sensor.kill();
    program.go_on();
    assert_eq!(program.line(), "start");
    let sensor = Process::sensor(&folder);
    program.go_on();
    assert_eq!(program.line(), "stop");
    sensor.signal("STOP");
    program.go_on();
    assert_eq!(program.line(), "continue");
    sensor.signal("CONT");
    program.go_on();
    assert_eq!(program.line(), counted);
    program.succeeds();
}

/// Runs a test once more in a namespace of its own. Whether this is that run; without the right to make one there is none.
fn is_alone(namespace: &str, test: &str) -> bool {
    const INSIDE: &str = "FLOWGAUGE_TEST_INSIDE";

    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut alone = Command::new("unshare");
    alone.arg(namespace).arg(std::env::current_exe().unwrap());
    alone.args(["--exact", test, "--nocapture"]);
    let output = alone.env(INSIDE, "yes").output().unwrap();
    let said = text(&[output.stdout, output.stderr].concat());
    match said.contains("unshare failed") {
        true => corpora::skipped(format_args!("{test}: no namespace can be made here")),
        false => assert!(output.status.success(), "{said}"),
    }
    false
}

#[test]
fn a_full_disk_ends_its_flow_alone_and_says_so() {
    if !is_alone("--mount", "a_full_disk_ends_its_flow_alone_and_says_so") {
        return;
    }
    let folder = Running::folder("");
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=64k", "small"])
        .arg(&small);
    success(&mut mount);
    let sensor = Process::sensor(&folder);
    let said = support::run(&compile("full"), &folder, &["mix.pcap", "small"]);
    let packets = support::model::packets(&folder.path().join("mix.pcap"));
    assert_eq!(said, format!("counted {}\n", packets.len()));
    drop(sensor);
    success(Command::new("umount").arg(&small));
}

/// It sends.
#[test]
fn packets_are_sent_onto_an_interface() {
    if !is_alone("--net", "packets_are_sent_onto_an_interface") {
        return;
    }
    let ip = |arguments: &str| success(Command::new("ip").args(arguments.split(' ')));
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    let folder = Running::folder("inject = [\"va\"]\n[devices.vb]\n");
    let _sensor = Process::sensor(&folder);
    let said = support::run(&compile("inject"), &folder, &["mix.pcap", "va", "vb"]);
    let packets = support::model::packets(&folder.path().join("mix.pcap"));
    let is_dns = |it: &&Packet| it.protocol() == 17 && (it.ports().0 == 53 || it.ports().1 == 53);
    assert_eq!(
        said,
        format!("sent {}\n", packets.iter().filter(is_dns).count())
    );
}

/// The program of the documentation runs as it stands, linked with either library.
#[test]
fn the_documentations_program_runs() {
    let page = std::fs::read_to_string(here().join("../../docs/mapi.md")).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let source = installed().join("documentation.c");
    std::fs::write(&source, rest.split_once("```").unwrap().0).unwrap();
    let running = Running::start("[devices.held]\nfiles = [\"{folder}/mix.pcap\"]\nhold = true\n");
    let warnings = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let shared = compile_with("gcc", &warnings, &source);
    assert_eq!(running.run(&shared, &["held"]), "0 bytes\n");
    // With the static library alone, and a program that is static as a whole.
    let libraries = support::pkg_config(&["--static", "--libs-only-other", "--libs-only-l"]);
    let libraries: Vec<String> = libraries
        .into_iter()
        .filter(|word| word != "-lmapi")
        .collect();
    for options in [&[][..], &["-static"]] {
        let program = installed().join(format!("static{}", options.len()));
        let mut link = Command::new("gcc");
        link.args(options).args(support::pkg_config(&["--cflags"]));
        link.arg(&source).arg("-o").arg(&program);
        link.arg(installed().join("lib/libmapi.a"));
        success(link.args(&libraries));
        assert_eq!(running.run(&program, &["held"]), "0 bytes\n");
    }
}

/// Of IPv4: address and port of both ends, packets, bytes, as `examples/mapi/flows` prints a flow.
fn printed(line: &str) -> Option<(String, u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == ">")?;
    let ends = format!("{} {} {}", words[1], words[at - 1], words[at + 1]);
    Some((
        ends,
        words[at + 2].parse().ok()?,
        words[at + 4].parse().ok()?,
    ))
}

#[test]
fn the_examples_find_what_is_in_a_trace() {
    let folder = here().join("../../examples/mapi");
    let mut make = Command::new("make");
    make.arg("-s")
        .arg("-C")
        .arg(&folder)
        .arg(format!("BUILD={}", installed().display()));
    make.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    make.env("CFLAGS", "-O1 -Wall -Wextra -Werror");
    success(make.env_remove("MAKEFLAGS").env_remove("MFLAGS"));
    let running = Running::start("");
    let said = running.run(&installed().join("flows"), &["-r", "long.pcap"]);
    let (flows, counts) = expired(&running.packets("long.pcap"));
    let packets = said.lines().take_while(|line| !line.ends_with("largest:"));
    let all: Vec<(String, u64, u64)> = packets.filter_map(printed).collect();
    // Those of one packet, too.
    assert!(all.len() >= flows.len() && all.iter().filter(|it| it.1 > 1).count() == flows.len());
    let sum: u64 = all.iter().filter(|it| it.1 > 1).map(|it| it.1).sum();
    assert_eq!(sum, counts[5]);
    let largest: Vec<_> = said
        .lines()
        .skip(all.len() + 1)
        .filter_map(printed)
        .collect();
    let mut bytes: Vec<u64> = all.iter().map(|it| it.2).collect();
    bytes.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(
        largest.iter().map(|it| it.2).collect::<Vec<_>>(),
        bytes[..10]
    );

    let words = ["GET /", "HTTP/1.1", "|0d 0a 0d 0a|"];
    let arguments = [&["mix.pcap"][..], &words].concat();
    let said = running.run(&installed().join("signatures"), &arguments);
    let packets = running.packets("mix.pcap");
    for (line, bytes) in said.lines().zip([&b"GET /"[..], b"HTTP/1.1", b"\r\n\r\n"]) {
        let count = packets
            .iter()
            .filter(|it| it.protocol() == 6 && it.contains(bytes))
            .count();
        let counts: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(counts[0], count as u64, "{line}");
        assert!(counts[1] > 0 && counts[1] <= counts[0], "{line}");
    }
    assert_eq!(said.lines().count(), 3);
}

/// Nothing of the engine is in the library, whatever the packages that it is made of are called.
#[test]
fn the_engine_is_not_in_the_library() {
    let mut list = Command::new("nm");
    list.args(["-C", "--defined-only"])
        .arg(installed().join("lib/libmapi.so"));
    let symbols = text(&success(&mut list).stdout);
    assert!(symbols.contains("flowgauge_sensor_client::"));
    for engine in [
        "stack",
        "registry",
        "runtime",
        "components",
        "stream",
        "capture",
        "flow",
    ] {
        assert!(
            !symbols.contains(&format!("flowgauge_{engine}::")),
            "{engine}"
        );
    }
}
