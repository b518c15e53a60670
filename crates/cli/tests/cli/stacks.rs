//! The stacks of the folder `stacks`: each is checked, and does what it says.

use std::fs;

use crate::corpora;
use crate::stack_support::*;
use serde_json::Value;

#[test]
fn all_are_well_formed_and_say_what_they_are_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut seen = 0;
    for entry in fs::read_dir(stacks()).expect("it is there") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|ending| ending != "stack") {
            continue;
        }
        seen += 1;
        let name = path.display().to_string();
        for arguments in [
            ["stack", "check", &name].as_slice(),
            &["stack", "fmt", "--check", &name],
        ] {
            let output = flowgauge(folder.path(), arguments);
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {messages}");
            assert_eq!(messages, "", "{arguments:?}");
        }
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.starts_with("# "), "{name}");
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn hosts_pairs_and_vlans_are_ranked() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "late", "300");
    let by_stack = run(folder, "heavy-hitters.stack", &[&trace]);
    let by_command = flowgauge(
        folder,
        &[
            "flows",
            "-q",
            "-r",
            &trace,
            "--by",
            "src_ip",
            "--sum",
            "bytes,packets",
            "--top",
            "20",
            "--csv",
        ],
    );
    let by_command = String::from_utf8(by_command.stdout).expect("text");
    let (stack_lines, command_lines) = (by_stack.lines().count(), by_command.lines().count());
    assert_eq!(stack_lines, command_lines, "{by_stack}");
    for line in by_command.lines().skip(1) {
        let host = line.split(',').next().expect("a field");
        assert!(by_stack.contains(host), "{host}: {by_stack}");
    }
    let pairs = rows(&run(folder, "retransmissions.stack", &[&trace]));
    let counts: Vec<u64> = pairs
        .iter()
        .map(|row| row["retransmitted"].as_u64().expect("a number"))
        .collect();
    assert!(counts.len() == 20 && counts[0] > 0, "{counts:?}");
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    let vlans = run(folder, "vlans.stack", &[&trace]);
    assert!(vlans.lines().count() >= 2, "{vlans}");
}

#[test]
fn a_port_is_told_once_and_handshakes_have_their_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "500");
    let ports = rows(&run(folder, "listening-ports.stack", &[&trace]));
    let mut endpoints: Vec<String> = ports
        .iter()
        .map(|row| format!("{} {}", row["src_ip"], row["src_port"]))
        .collect();
    let told = endpoints.len();
    endpoints.sort_unstable();
    endpoints.dedup();
    assert_eq!(endpoints.len(), told);
    assert!(ports.iter().all(|row| row["tcp_flags"] == "SA"));
    let command = flowgauge(
        folder,
        &[
            "flows",
            "-q",
            "-r",
            &trace,
            "--by",
            "dst_ip,dst_port",
            "tcp",
        ],
    );
    let servers = String::from_utf8(command.stdout).expect("text");
    assert_eq!(servers.lines().count(), told);
    let handshakes = rows(&run(folder, "handshakes.stack", &[&trace]));
    assert!(handshakes.len() >= 400, "{}", handshakes.len());
    for row in &handshakes {
        assert_eq!(row["state"], "matched", "{row}");
        assert!(row["latency"].as_f64().is_some_and(|latency| latency > 0.0));
    }
}

#[test]
fn what_only_one_of_two_places_saw_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let before = generate(folder, "small", "200");
    // The second place is five milliseconds away, and loses every hundredth packet.
    let whole = fs::read(folder.join(&before)).expect("it was made");
    let (mut behind, mut at, mut number, mut lost) = (whole[..24].to_vec(), 24, 0, 0);
    while at + 16 <= whole.len() {
        let field = |place: usize| {
            let bytes = whole.get(place..place + 4).expect("a header");
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        let end = at + 16 + field(at + 8) as usize;
        number += 1;
        if number % 100 == 0 {
            lost += 1;
        } else {
            let micros = field(at + 4) + 5_000;
            behind.extend((field(at) + micros / 1_000_000).to_le_bytes());
            behind.extend((micros % 1_000_000).to_le_bytes());
            behind.extend_from_slice(&whole[at + 8..end]);
        }
        at = end;
    }
    let magic = u32::from_le_bytes(whole[..4].try_into().expect("four bytes"));
    assert_eq!(magic, 0xa1b2_c3d4, "times in microseconds");
    fs::write(folder.join("behind.pcap"), behind).expect("a file");
    let found = rows(&run(folder, "loss.stack", &[&before, "behind.pcap"]));
    let alone = found
        .iter()
        .filter(|row| row["state"] == "no_reply")
        .count();
    let matched: Vec<&Value> = found
        .iter()
        .filter(|row| row["state"] == "matched")
        .collect();
    assert_eq!((alone, matched.len()), (lost, number - lost));
    for row in matched {
        assert_eq!(row["latency"].as_f64(), Some(0.005), "{row}");
    }
    // The command finds the same, which goes by flows: it does not know where a flow goes of which nothing came through.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .current_dir(folder)
        .args(["loss", "--one-way", "--json", "-q", "-r"]);
    let said = command
        .args([&before, "behind.pcap"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&said.stdout);
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let totals: Vec<Value> = rows.filter(|row| row["of"] == "total").collect();
    let sum = |name: &str| {
        totals
            .iter()
            .map(|row| row[name].as_u64().expect("a number"))
            .sum::<u64>()
    };
    assert_eq!(sum("lost") + sum("one_sided"), lost as u64, "{totals:#?}");
    assert!(sum("lost") > 0 && sum("uncompared") == 0, "{totals:#?}");
}

#[test]
fn bursts_and_large_flows_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "200");
    let found = rows(&run(folder, "bursts.stack", &[&trace]));
    let count = found.iter().find(|row| row["component"] == "count");
    let packets = count.expect("a number")["value"].as_u64();
    let of_bursts = found
        .iter()
        .filter_map(|row| row["row"]["packets"].as_u64());
    assert_eq!(Some(of_bursts.sum()), packets);
    assert!(
        found
            .iter()
            .any(|row| row["row"]["gaps"].as_u64() > Some(0))
    );
    // Nothing in this trace is large.
    assert_eq!(run(folder, "large-flows.stack", &[&trace]), "");
}

#[test]
fn what_is_around_a_match_is_a_capture() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut frames = Vec::new();
    for (port, text) in [
        (1_u16, "first"),
        (2, "other"),
        (1, "my password"),
        (2, "other"),
        (1, "last"),
    ] {
        let mut datagram = Vec::new();
        datagram.extend(port.to_be_bytes());
        datagram.extend(53_u16.to_be_bytes());
        datagram.extend((8 + text.len() as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(text.as_bytes());
        let mut packet = vec![0x45, 0];
        packet.extend((20 + datagram.len() as u16).to_be_bytes());
        packet.extend([0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend(datagram);
        frames.push(packet);
    }
    let mut file = Vec::new();
    // Raw IP packets, a second apart.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (second, packet) in (1_u32..).zip(&frames) {
        let length = packet.len() as u32;
        for word in [second, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    fs::write(folder.join("in.pcap"), file).expect("a file");
    // Also where it lies across two segments.
    let parted =
        "around { \"pass|77|ord\", before = 1, after = 0 } packets output { fields = length }";
    let mut segments = fs::read(folder.join("in.pcap")).expect("it was made")[..24].to_vec();
    for (seq, text) in [(1_u32, "my pass"), (8, "word"), (12, "password")] {
        let mut packet = vec![0x45, 0, 0, 40 + text.len() as u8];
        packet.extend([0, 1, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend([1, 1, 0, 80]);
        packet.extend(seq.to_be_bytes());
        packet.extend([0, 0, 0, 1, 0x50, 0x18, 16, 0, 0, 0, 0, 0]);
        packet.extend(text.as_bytes());
        let length = packet.len() as u32;
        for word in [seq, 0, length, length] {
            segments.extend(word.to_le_bytes());
        }
        segments.extend(packet);
    }
    fs::write(folder.join("segments.pcap"), segments).expect("a file");
    let lengths = results(folder, parted, "segments.pcap", "1");
    let lengths: Vec<_> = lengths
        .iter()
        .filter_map(|row| row["length"].as_u64())
        .collect();
    assert_eq!(lengths, [47, 44, 48]);
    for workers in ["1", "2"] {
        let stack = stack("around-match.stack");
        let arguments = [
            "stack",
            "run",
            "-q",
            "--workers",
            workers,
            "-f",
            &stack,
            "-r",
            "in.pcap",
        ];
        assert!(flowgauge(folder, &arguments).status.success());
        let arguments = ["packets", "-q", "--json", "-r", "around-match.pcap"];
        let packets = flowgauge(folder, &arguments);
        let packets = rows(&String::from_utf8(packets.stdout).expect("text"));
        let seconds = packets
            .iter()
            .map(|row| &row["time"].as_str().expect("a time")[17..19]);
        assert_eq!(
            seconds.collect::<Vec<_>>(),
            ["01", "03", "05"],
            "{workers} threads"
        );
    }
}

/// Halves of a trace by direction, as two links have them.
#[test]
fn http_over_two_links_is_put_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "web", "300");
    for (name, filter) in [
        ("there.pcap", "dst port 80 or dst port 8080"),
        ("back.pcap", "src port 80 or src port 8080"),
    ] {
        let arguments = ["capture", "-q", "-r", &trace, "-w", name, filter];
        let output = flowgauge(folder, &arguments);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
    }
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let one = sorted(run(folder, "http-two-links.stack", &[&trace]));
    let two = sorted(run(
        folder,
        "http-two-links.stack",
        &["there.pcap", "-r", "back.pcap"],
    ));
    assert!(one.len() > 100, "{}", one.len());
    assert_eq!(one, two);
    let matched = two.iter().filter(|line| line.contains("\"matched\""));
    assert!(matched.count() * 10 > one.len() * 9);
    // One link alone: requests that nobody answers.
    let alone = rows(&run(folder, "http-two-links.stack", &["there.pcap"]));
    assert!(!alone.is_empty() && alone.iter().all(|row| row["state"] == "no_reply"));
    // Those that took long are some of all.
    let all = rows(&run(folder, "http.stack", &[&trace]));
    let is_slow = |row: &&Value| row["state"] == "no_reply" || row["latency"].as_f64() > Some(1.0);
    let slow = rows(&run(folder, "slow-http.stack", &[&trace]));
    assert_eq!(slow.len(), all.iter().filter(is_slow).count());
    let alone = rows(&run(folder, "slow-http.stack", &["there.pcap"]));
    assert!(!alone.is_empty() && alone.iter().all(|row| row["state"] == "no_reply"));
}

/// The paper's figure 4 as it stands there, and the stack made of it: what Squid's access log says.
#[test]
fn queries_between_caches_are_those_of_squids_log() {
    let Some(corpora) = corpora::corpora() else {
        return;
    };
    let source = corpora.join("icp-squid/run1");
    let trace = source.join("icp.pcap").display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let figure = "[stack]\nipfragswitch ( ipfragdemux < ipreass > ) ipcnxdemux < scanudp - scanicp - icpdemux < \
                  matchicp > > output\n";
    fs::write(folder.join("figure4"), figure).expect("written");
    let arguments = ["stack", "run", "-q", "-f", "figure4", "-r", &trace];
    let output = flowgauge(folder, &arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let records = rows(&String::from_utf8(output.stdout).expect("text"));
    let log = fs::read_to_string(source.join("parent-a.access.log")).expect("a log");
    // Seconds, duration, asker, result, bytes, method, URL.
    let lines = log
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut expected: Vec<String> = lines
        .filter(|line| line.get(5) == Some(&"ICP_QUERY"))
        .map(|line| {
            let result = line[3].split('/').next().unwrap_or_default();
            let result = result.trim_start_matches("UDP_").to_lowercase();
            format!("{} {result} {} {}", line[2], line[4], line[6])
        })
        .collect();
    let field = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let of_row = |row: &Value| {
        let (client, result, url) = (
            field(row, "src_ip"),
            field(row, "result"),
            field(row, "url"),
        );
        format!("{client} {result} {} {url}", row["reply_bytes"])
    };
    let is_matched = |row: &&Value| row["state"] == "matched";
    let mut found: Vec<String> = records.iter().filter(is_matched).map(of_row).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert!(expected.len() > 5);
    assert_eq!(found, expected);
    // The overhead adds up to the same.
    let sums = rows(&run(folder, "icp-overhead.stack", &[&trace]));
    let sum = |name: &str| -> u64 { sums.iter().filter_map(|row| row[name].as_u64()).sum() };
    let of = |name: &str| -> u64 { records.iter().filter_map(|row| row[name].as_u64()).sum() };
    assert!(sum("reply_bytes") > 0);
    assert_eq!(sum("reply_bytes"), of("reply_bytes"));
    assert_eq!(sum("request_bytes"), of("request_bytes"));
}
