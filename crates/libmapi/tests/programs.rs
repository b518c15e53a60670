//! C programs as users of MAPI write them, on a sensor.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod support;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;

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

/// What `functions.c` prints of counters, and of statistics over them.
fn counters(packets: &[Packet]) -> Vec<String> {
    let sizes: Vec<u64> = packets.iter().map(|packet| packet.wire).collect();
    let bytes = running(sizes.iter().copied());
    let counts = running(packets.iter().map(|_| 1));
    let gaps: Vec<u64> = packets
        .windows(2)
        .map(|two| two[1].ticks() - two[0].ticks())
        .collect();
    let mut all_gaps = gaps.clone();
    all_gaps.insert(0, 0);
    let hashes = packets.iter().map(|packet| {
        let sum: u64 = packet.bytes.iter().map(|byte| u64::from(*byte)).sum();
        (packet.bytes.len() as u64 + sum) % 500_009
    });
    let hashes: Vec<u64> = hashes.collect();
    let ttls: Vec<u64> = packets.iter().map(Packet::ttl).collect();
    let tcp = packets
        .iter()
        .filter(|packet| packet.protocol() == 6)
        .count() as u64;
    let (count, sum) = (packets.len() as u64, *bytes.last().unwrap());
    vec![
        line("packets", &[count]),
        line("bytes", &[sum]),
        line("sum", &[count + sum]),
        line("difference", &[sum - count]),
        line("size", &[*sizes.last().unwrap()]),
        line("time", &[packets.last().unwrap().ticks()]),
        line("gap", &[*gaps.last().unwrap()]),
        line("hash", &[*hashes.last().unwrap()]),
        line("tcp", &[tcp]),
        stats("counted", &counts),
        stats("sizes", &sizes),
        stats("gaps", &gaps),
        stats("hashes", &hashes),
        stats("ttls", &ttls),
        dist("lengths", &sizes, 100, 1400, 130),
        dist(
            "pauses",
            &all_gaps,
            ticks(10_000),
            ticks(1_000_000),
            ticks(100_000),
        ),
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
        assert_eq!(came.parse(), Ok(count), "{line}");
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
    let cooked = lines.next().unwrap().strip_prefix("cooked ").unwrap();
    assert!(cooked.parse::<u64>().unwrap() > 1000, "{cooked}");
    assert_eq!(lines.next().unwrap(), format!("written {}", tcp.len()));
    assert_eq!(lines.next(), None);

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
    let program = installed().join("static");
    let mut link = Command::new("gcc");
    link.args(support::pkg_config(&["--cflags"]))
        .arg(&source)
        .arg("-o")
        .arg(&program);
    link.arg(installed().join("lib/libmapi.a"));
    let libraries = support::pkg_config(&["--static", "--libs-only-l"]);
    success(link.args(libraries.iter().filter(|word| *word != "-lmapi")));
    assert_eq!(running.run(&program, &["held"]), "0 bytes\n");
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
