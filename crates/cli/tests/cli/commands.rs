//! The commands as users run them: output, messages and exit codes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;

use crate::command_support::{
    Folder, command, fails, handles, json_lines, policy, printed, run, signal, sorted, stderr,
    stdout, text,
};

#[test]
fn flows_account_for_every_packet() {
    let folder = Folder::new("flows");
    let (trace, truth) = folder.trace();
    let output = run(&["flows", "-r", text(&trace)]);
    assert_eq!(output.status.code(), Some(0));
    let flows = json_lines(&output);
    let packets: u64 = flows
        .iter()
        .map(|flow| flow["src_packets"].as_u64().unwrap() + flow["dst_packets"].as_u64().unwrap())
        .sum();
    assert_eq!(packets, truth["packets"].as_u64().unwrap());
    let line = format!("{packets} packets received, {packets} delivered");
    assert!(stderr(&output).contains(&line), "{}", stderr(&output));
    let quiet = run(&["flows", "-q", "-r", text(&trace)]);
    assert_eq!(stderr(&quiet), "");
    assert_eq!(quiet.stdout, output.stdout);
}

#[test]
fn streams_have_the_bytes_of_the_truth() {
    let folder = Folder::new("streams");
    let (trace, truth) = folder.trace();
    let list = json_lines(&run(&["streams", "--hash", "-r", text(&trace)]));
    let expected: Vec<&Value> = truth["streams"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|stream| stream["proto"] == "tcp" && stream["bytes"].as_u64() > Some(0))
        .collect();
    assert!(expected.len() > 20);
    let mut equal = 0;
    for stream in &expected {
        let found = list.iter().find(|row| {
            ["src_ip", "src_port", "dst_ip", "dst_port", "proto"]
                .iter()
                .all(|name| row[*name] == stream[*name])
        });
        let found = found.unwrap_or_else(|| panic!("no stream {stream}"));
        equal += usize::from(found["sha256"] == stream["captured_sha256"]);
    }
    assert_eq!(equal, expected.len());
    let totals = json_lines(&run(&["streams", "--count", "-r", text(&trace)]));
    let bytes: u64 = list.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(totals[0]["bytes"], bytes);
    assert_eq!(totals[0]["streams"], list.len());
}

#[test]
fn csv_and_table_have_a_line_per_flow() {
    let folder = Folder::new("formats");
    let (trace, _) = folder.trace();
    let flows = json_lines(&run(&["flows", "-r", text(&trace)])).len();
    let csv = run(&["flows", "--csv", "-r", text(&trace)]);
    assert_eq!(stdout(&csv).lines().count(), flows + 1);
    assert!(stdout(&csv).starts_with("src_ip,src_port,dst_ip,dst_port,proto,start,end,duration,"));
    let table = run(&["flows", "--table", "-r", text(&trace)]);
    assert_eq!(stdout(&table).lines().count(), flows + 1);
    assert!(stdout(&table).starts_with("SOURCE "));
}

#[test]
fn aggregation_adds_up_to_the_flows() {
    let folder = Folder::new("aggregate");
    let (trace, truth) = folder.trace();
    let by = [
        "flows",
        "-r",
        text(&trace),
        "--by",
        "proto",
        "--sum",
        "packets",
    ];
    let groups = json_lines(&run(&by));
    let packets: u64 = groups
        .iter()
        .map(|row| row["packets"].as_u64().unwrap())
        .sum();
    assert_eq!(packets, truth["packets"].as_u64().unwrap());
    let top = [&by[..], &["--top", "1"]].concat();
    assert_eq!(json_lines(&run(&top)), groups[..1]);
    fails(
        &["flows", "-r", text(&trace), "--by", "colour"],
        2,
        &[
            "no field \"colour\" to group by",
            "hint: \"flowgauge fields\" lists the fields of records",
        ],
    );
    for option in [["--by", "dst_prt"], ["--sum", "dst_bites"]] {
        let words = ["flows", "-r", text(&trace), "--by", "src_ip"];
        let words = match option[0] {
            "--by" => &words[..3],
            _ => &words[..],
        };
        fails(&[words, &option].concat(), 2, &["hint: did you mean dst_"]);
    }
}

#[test]
fn filters_limits_and_copies_agree() {
    let folder = Folder::new("capture");
    let (trace, _) = folder.trace();
    let copy = folder.file("copy.pcapng");
    let made = run(&["capture", "-r", text(&trace), "-w", text(&copy), "udp"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let filtered = run(&["flows", "-q", "-r", text(&trace), "udp"]);
    let copied = run(&["flows", "-q", "-r", text(&copy)]);
    // Timeouts are looked at once per batch, so records can come in another order.
    assert!(sorted(&filtered) == sorted(&copied));
    assert!(!sorted(&copied).is_empty());
    let five = run(&["packets", "-r", text(&trace), "-c", "5"]);
    assert_eq!(json_lines(&five).len(), 5);
    let lines = run(&["packets", "--table", "-X", "-r", text(&trace), "-c", "1"]);
    assert!(stdout(&lines).contains("\t0x0000:  "));
}

#[test]
fn report_says_what_there_is() {
    let folder = Folder::new("report");
    let (trace, truth) = folder.trace();
    let page = run(&["report", "-r", text(&trace)]);
    for title in [
        "Traffic",
        "Protocols",
        "Top talkers",
        "Top flows",
        "TCP health",
    ] {
        assert!(stdout(&page).contains(title), "{title}");
    }
    let object = &json_lines(&run(&["report", "--json", "-r", text(&trace)]))[0];
    assert_eq!(object["packets"], truth["packets"]);
    assert_eq!(object["bytes"], truth["wire_bytes"]);
    assert_eq!(object["ledger"]["received"], truth["packets"]);
    let protocols = object["protocols"].as_array().unwrap();
    let packets: u64 = protocols
        .iter()
        .map(|row| row["packets"].as_u64().unwrap())
        .sum();
    assert_eq!(packets, truth["packets"].as_u64().unwrap());
}

#[test]
fn report_says_what_was_said() {
    let folder = Folder::new("report-said");
    let trace = folder.file("web.pcap");
    run(&[
        "generate",
        "web",
        "--scale",
        "0.005",
        "-q",
        "-w",
        text(&trace),
    ]);
    let truth = fs::read(folder.file("web.pcap.truth.json")).unwrap();
    let truth: Value = serde_json::from_slice(&truth).unwrap();
    let object = &json_lines(&run(&["report", "--json", "-r", text(&trace)]))[0];
    let http = &object["http"];
    assert_eq!(http["transactions"], truth["http"]["transactions"]);
    let sum = |name: &str| -> u64 {
        let list = http[name].as_array().unwrap();
        list.iter().map(|row| row["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("statuses"), http["transactions"].as_u64().unwrap());
    assert_eq!(http["latency"]["count"], http["transactions"]);
    let flows = |name: &str| -> u64 {
        let list = object[name].as_array().unwrap();
        list.iter().map(|row| row["flows"].as_u64().unwrap()).sum()
    };
    assert_eq!(flows("app_protos"), object["flows"].as_u64().unwrap());
    assert!(
        object["app_protos"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["name"] == "http")
    );
    let page = run(&["report", "-r", text(&trace)]);
    for title in [
        "Application protocols (? = guessed from port)",
        "\nHTTP\n",
        "of them",
        "latency",
    ] {
        assert!(stdout(&page).contains(title), "{title}");
    }
    let page = run(&["report", "--headers-only", "-r", text(&trace)]);
    assert!(!stdout(&page).contains("HTTP"));
    let object = &json_lines(&run(&[
        "report",
        "--headers-only",
        "--json",
        "-r",
        text(&trace),
    ]))[0];
    assert!(object.get("http").is_none());
}

#[test]
fn bad_use_is_told_with_a_hint() {
    let folder = Folder::new("bad");
    let (trace, _) = folder.trace();
    let trace = text(&trace);
    fails(&["flows"], 2, &["nothing to read", "hint: use -r FILE"]);
    fails(
        &["flows", "-r", "gone.pcap"],
        2,
        &["cannot open gone.pcap", "hint: check the path"],
    );
    fails(
        &["flows", "-r", trace, "gone.pcap"],
        2,
        &["cannot open gone.pcap"],
    );
    fails(
        &["flows", "-r", "Cargo.toml"],
        2,
        &["not a readable capture", "hint: "],
    );
    fails(&["flows", "-r", "src"], 2, &["it is a directory"]);
    fails(
        &["flows", "-r", trace, "tcp", "prt", "80"],
        2,
        &["syntax error", "hint: "],
    );
    fails(&["flows", "-i", "nosuch0"], 2, &["nosuch0", "lo"]);
    fails(&["flows", "--bogus"], 2, &["--bogus"]);
    fails(
        &["flows", "-r", trace, "--idle-timeout", "sctp=1"],
        2,
        &["(expected tcp, udp or other)"],
    );
    fails(
        &["generate", "-w", "x", "--preset", "none"],
        2,
        &["no preset", "hint: there are mix, "],
    );
    fails(&["capture", "-r", trace], 2, &["no output file"]);
    fails(&[], 2, &["Usage: flowgauge"]);
}

#[test]
fn a_cut_capture_is_processed_as_far_as_it_goes() {
    let folder = Folder::new("cut");
    let (trace, _) = folder.trace();
    let whole = fs::read(&trace).unwrap();
    let cut = folder.file("cut.pcap");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    for command in ["flows", "streams", "packets", "report"] {
        let output = fails(
            &[command, "-r", text(&cut)],
            1,
            &["is damaged at byte", "hint: "],
        );
        assert!(!output.stdout.is_empty());
    }
}

/// A capture of raw IPv4 packets (link type 228), a second apart.
fn write_ipv4(path: &Path, packets: &[Vec<u8>]) {
    write_ipv4_at(path, packets, 1);
}

/// The same with so many packets per second.
fn write_ipv4_at(path: &Path, packets: &[Vec<u8>], per_second: u32) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(65_535u32.to_le_bytes());
    bytes.extend(228u32.to_le_bytes());
    for (at, packet) in packets.iter().enumerate() {
        let (at, len) = (at as u32, packet.len() as u32);
        let micros = at % per_second * (1_000_000 / per_second);
        for number in [at / per_second + 1, micros, len, len] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(packet);
    }
    fs::write(path, bytes).unwrap();
}

/// An IPv4 packet with a right header checksum.
fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let [high, low] = length.to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(source);
    packet.extend(destination);
    let words = packet
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

#[test]
fn a_host_that_talks_to_itself_counts_once() {
    let folder = Folder::new("itself");
    let file = folder.file("itself.pcap");
    let udp = [0, 53, 0, 53, 0, 8, 0, 0];
    let packet = ipv4(17, [127, 0, 0, 1], [127, 0, 0, 1], &udp);
    write_ipv4(&file, &[packet.clone(), packet]);
    let report = json_lines(&run(&["report", "--json", "-r", text(&file)]));
    assert_eq!(report[0]["talkers"][0]["packets"], 2);
    assert_eq!(report[0]["talkers"][0]["flows"], 1);
}

/// TCP from port 1 of 192.0.2.1 to port 2 of 192.0.2.2; checksums are to be ignored.
fn segment(seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0, 1, 0, 2];
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, flags, 16, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    ipv4(6, [192, 0, 2, 1], [192, 0, 2, 2], &tcp)
}

#[test]
fn every_hole_is_told_with_its_place_and_size() {
    let folder = Folder::new("gaps");
    let file = folder.file("gaps.pcap");
    let packets = [
        segment(99, 2, b""),
        segment(100, 16, b"abc"),
        segment(107, 16, b"hijkl"),
        // 20 bytes are missing before the FIN.
        segment(132, 17, b""),
    ];
    write_ipv4(&file, &packets);
    let streams = |arguments: &[&str]| {
        let mut all = vec!["streams", "--checksums", "ignore", "-r", text(&file)];
        all.extend(arguments);
        run(&all)
    };
    let gaps = json_lines(&streams(&["--gaps"]));
    let place = |gap: &Value| (gap["offset"].as_u64(), gap["size"].as_u64());
    let places: Vec<_> = gaps.iter().map(place).collect();
    assert_eq!(places, [(Some(3), Some(4)), (Some(12), Some(20))]);
    assert_eq!(gaps[0]["src_ip"], "192.0.2.1");
    assert_eq!(gaps[0]["dst_port"], 2);
    for listed in [&["--gaps", "--list"][..], &["--gaps", "--hash"]] {
        let all = json_lines(&streams(listed));
        let stream = all.iter().find(|row| row["gaps"] == 2).unwrap();
        assert_eq!(stream["flow_id"], gaps[0]["flow_id"]);
        assert!(stream["size"].is_null());
        let found: Vec<_> = all.iter().filter(|row| row["state"].is_null()).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(place(found[1]), places[1]);
        let names: Vec<_> = all
            .iter()
            .map(|row| row.as_object().unwrap().len())
            .collect();
        assert!(names.iter().all(|count| *count == names[0]));
        let mut as_csv = listed.to_vec();
        as_csv.push("--csv");
        let csv = streams(&as_csv);
        let widths = stdout(&csv).lines().map(|line| line.split(',').count());
        assert!(widths.into_iter().all(|width| width == names[0]));
    }
}

/// A UDP packet between the ports; `checksum` 1 is wrong.
fn datagram(source: [u8; 4], port: u8, checksum: u8) -> Vec<u8> {
    let destination = [192, 0, 2, 2];
    let mut udp = vec![0, port, 0, 53, 0, 8, 0, checksum];
    if checksum == 0 {
        let words = source
            .chunks(2)
            .chain(destination.chunks(2))
            .chain(udp.chunks(2));
        let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = sum + 17 + 8;
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        udp[6..].copy_from_slice(&sum.to_be_bytes());
    }
    ipv4(17, source, destination, &udp)
}

#[test]
fn notes_tell_what_was_taken_left_out_and_evicted() {
    let folder = Folder::new("notes");
    let file = folder.file("notes.pcap");
    let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 7]);
    let mut damaged_header = datagram(other, 1, 0);
    damaged_header[10] ^= 1;
    let packets = [
        datagram(one, 1, 1),
        datagram(one, 2, 0),
        datagram(one, 3, 1),
        damaged_header,
    ];
    write_ipv4(&file, &packets);
    let output = run(&["flows", "--max-flows", "1", "-r", text(&file)]);
    let messages = stderr(&output);
    for part in [
        "note: 1 packet of 192.0.2.1 with wrong or uncomputed udp checksums was taken as it is",
        "note: 1 packet of 192.0.2.7 with wrong or uncomputed IP header checksums was taken as it is",
        "note: 1 packet was left out because of wrong checksums (most from 192.0.2.1: 1); hint: \
         --checksums ignore takes them",
        "flows were evicted",
        "hint: raise --max-flows or --memory",
    ] {
        assert!(messages.contains(part), "{part}\n{messages}");
    }
    let output = run(&["flows", "--checksums", "ignore", "-r", text(&file)]);
    assert!(!stderr(&output).contains("note:"), "{}", stderr(&output));
    // Where a policy takes addresses out, notes have none either.
    let policy = policy(&folder.0, "headers.toml");
    let stack = format!(
        "[stack]\ntransactions {{ flows = yes }} - anonymize {{ policy = \"{}\" }} - output\n",
        text(&policy)
    );
    let of_stack = folder.file("anonymize.stack");
    fs::write(&of_stack, stack).unwrap();
    for line in [
        ["log", "--flows", "--anonymize", text(&policy)],
        ["stack", "run", "-f", text(&of_stack)],
    ] {
        let mut line = line.to_vec();
        line.extend(["-r", text(&file)]);
        let output = run(&line);
        let messages = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{messages}");
        assert!(
            messages.contains("left out because of wrong checksums"),
            "{messages}"
        );
        assert!(
            messages.contains("wrong or uncomputed checksums"),
            "{messages}"
        );
        assert!(!messages.contains("192.0.2."), "{messages}");
        assert!(!stdout(&output).contains("192.0.2."));
    }
}

/// Runs with so much address space that a process which kept everything would be ended.
fn run_within(kib: u32, arguments: &[&str]) -> Output {
    let limit = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    Command::new("sh")
        .args(["-c", &limit, env!("CARGO_BIN_EXE_flowgauge")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A flood of flows, each seen once, in the memory that was given.
#[test]
fn memory_bounds_flows_groups_hashes_and_lists() {
    let folder = Folder::new("memory");
    let flood = folder.file("syn.pcap");
    let flood = text(&flood);
    let made = [
        "generate",
        "syn",
        "--flows",
        "300000",
        "--summary",
        "-w",
        flood,
    ];
    assert_eq!(run(&made).status.code(), Some(0));
    for command in [
        &["flows"][..],
        &["flows", "--by", "src_ip,src_port", "--sum", "bytes"],
        &["streams", "--hash"],
        &["streams", "--count"],
        &["streams", "--count", "--cutoff", "10k"],
        &["streams", "--mode", "fast", "--hash"],
        &[
            "match",
            "-e",
            "GET",
            "--cutoff",
            "1k",
            "--matcher",
            "aho-corasick",
        ],
        &["report"],
    ] {
        let arguments = [command, &["--memory", "16M", "-r", flood]].concat();
        let output = run_within(113_000, &arguments);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(stderr(&output).contains("flows were evicted"));
    }
    // What the limit means: it cannot be done without a bound.
    let output = run_within(113_000, &["flows", "-r", flood]);
    assert_ne!(output.status.code(), Some(0));
}

/// Fragments that were given up for memory are dropped packets.
#[test]
fn memory_that_runs_out_is_in_the_ledger() {
    let folder = Folder::new("fragments");
    let file = folder.file("fragments.pcap");
    let packets: Vec<Vec<u8>> = (0..2000u16)
        .map(|id| {
            let mut packet = ipv4(17, [192, 0, 2, 1], [198, 51, 100, 2], &[0; 512]);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[6..8].copy_from_slice(&[0x20, 0]);
            packet
        })
        .collect();
    // None of them times out.
    write_ipv4_at(&file, &packets, 1000);
    let arguments = ["flows", "--checksums", "ignore", "-r", text(&file)];
    assert!(stderr(&run(&arguments)).contains(" 0 dropped"));
    let arguments = [&arguments[..], &["--memory", "2M", "--fail-on-drop"]].concat();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(3));
    let messages = stderr(&output);
    assert!(messages.contains("(memory 1"), "{messages}");
    assert!(messages.contains("datagrams were given up for memory"));
}

/// A pipe into which nobody writes any more, and that nobody closes, keeps no run from its end.
#[test]
fn a_signal_ends_a_run_whose_input_is_silent() {
    let folder = Folder::new("silent");
    let (trace, truth) = folder.trace();
    let bytes = fs::read(&trace).unwrap();
    let bytes = &bytes[..bytes.len() - 5];
    for arguments in [
        "log",
        "flows --json",
        "report",
        "streams --json --workers 2",
    ] {
        let line: Vec<&str> = arguments.split(' ').chain(["-r", "-"]).collect();
        let mut child = command(&line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // It may print more than a pipe holds before it has read all.
        let mut printed = child.stdout.take().unwrap();
        let printed = thread::spawn(move || {
            let mut text = String::new();
            printed.read_to_string(&mut text).map(|_| text)
        });
        input.write_all(bytes).unwrap();
        handles(&child, 15);
        signal(&child, "-TERM");
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!printed.join().unwrap().unwrap().is_empty(), "{arguments}");
        // What was read: all but what the pipe and two buffers hold, at least.
        let said = stderr(&output);
        let received = said
            .lines()
            .find_map(|line| line.split_once(" packets received"));
        let received: usize = received.unwrap().0.parse().unwrap();
        assert!(
            received > 0 && received * 2 > truth["packets"].as_u64().unwrap() as usize,
            "{said}"
        );
    }
    // One with a name, before anybody opens its other end, is waited for.
    let fifo = folder.file("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let waiting = || {
        command(&["flows", "-r", text(&fifo), "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // (Where nobody comes, the run can be ended.)
    let child = waiting();
    handles(&child, 15);
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("ended before a capture came"));
    let child = waiting();
    fs::write(&fifo, bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "it ends inside a record");
    assert!(stderr(&output).contains("ends inside a record"));
    assert!(!stdout(&output).is_empty());
}

/// Before packets come a signal ends what nothing else can stop, and who waits is told what it is.
#[test]
fn what_takes_long_to_compile_is_said_and_ends_by_a_signal() {
    let folder = Folder::new("compiling");
    let (trace, _) = folder.trace();
    // With vlan among them, and not in front, libpcap compiles them as a whole, which takes minutes.
    let hosts = (0..8000).map(|number| format!("host 10.0.{}.{}", number / 250, number % 250));
    let filter = folder.file("filter");
    fs::write(
        &filter,
        format!("vlan or {}", hosts.collect::<Vec<_>>().join(" or ")),
    )
    .unwrap();
    let mut child = command(&["flows", "-r", text(&trace), "-F", text(&filter)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut said).unwrap();
    let bytes = fs::metadata(&filter).unwrap().len();
    let expected = format!(
        "still compiling a filter of {bytes} bytes: this may take minutes (Ctrl-C ends it)\n"
    );
    assert_eq!(said, expected);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    said.clear();
    errors.read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "nothing more is said");
}

/// Every field is in the manual.
#[test]
fn the_manual_has_each_field() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual.md");
    let manual = fs::read_to_string(manual).unwrap();
    let schemas = [
        flowgauge_record::flow::FLOW_SCHEMA,
        flowgauge_record::flow::TUNNEL_SCHEMA,
        flowgauge_record::stream::STREAM_GAPS_HASH_SCHEMA,
        flowgauge_record::stream::STREAM_COUNTERS_HASH_SCHEMA,
        flowgauge_record::totals::TOTALS_SCHEMA,
        flowgauge_record::matches::MATCH_SCHEMA,
        flowgauge_record::matches::MATCH_COUNT_SCHEMA,
        flowgauge_record::packet::PACKET_BYTES_SCHEMA,
        flowgauge_record::ledger::LEDGER_SCHEMA,
        flowgauge_record::check::CHECK_SCHEMA,
        flowgauge_record::listed::COMPONENT_SCHEMA,
        flowgauge_record::listed::COST_SCHEMA,
        flowgauge_record::listed::SENSOR_FLOW_SCHEMA,
        flowgauge_record::results::RESULT_SCHEMA,
        flowgauge_record::loss::LOSS_SCHEMA,
        flowgauge_record::loss::OBSERVATION_SCHEMA,
        flowgauge_record::rmon::RMON_PROTOCOL_SCHEMA,
        flowgauge_record::rmon::RMON_HOST_SCHEMA,
        flowgauge_record::rmon::RMON_PAIR_SCHEMA,
    ];
    for field in schemas.iter().copied().flatten() {
        let row = format!("| `{}` |", field.name);
        assert!(manual.contains(&row), "{} is not in the manual", field.name);
        assert!(
            manual.contains(field.help),
            "{}: {}",
            field.name,
            field.help
        );
    }
}

/// Whoever reads lends its memory to all workers, one of which it is itself.
#[test]
fn workers_share_what_is_no_mapped_file() {
    let folder = Folder::new("lent");
    let (plain, packed) = (folder.file("long.pcap"), folder.file("long.pcap.gz"));
    // More than all buffers there are, in a few batches.
    printed(&[
        "generate",
        "elephants",
        "-q",
        "--packets",
        "60000",
        "-w",
        text(&plain),
    ]);
    printed(&["capture", "-q", "-r", text(&plain), "-w", text(&packed)]);
    assert!(fs::metadata(&plain).unwrap().len() > 40 << 20);
    let flows = |name: &str, workers: &str, input: Stdio| {
        let mut command = command(&["flows", "-q", "--json", "-r", name, "--workers", workers]);
        let output = command.stdin(input).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        sorted(&output).join("\n")
    };
    let expected = flows(text(&plain), "1", Stdio::null());
    for workers in ["2", "3"] {
        assert_eq!(flows(text(&packed), workers, Stdio::null()), expected);
        let input = fs::File::open(&plain).unwrap();
        assert_eq!(flows("-", workers, input.into()), expected);
    }
}

/// What the component behind an option refuses is said of the option: nobody has written its stack.
#[test]
fn what_is_wrong_with_an_option_is_said_of_it() {
    let folder = Folder::new("options");
    let (trace, _) = folder.trace();
    for (option, value, what) in [
        (
            "--cutoff-class",
            "10k:tcp prt 80",
            "--cutoff-class: bad filter \"tcp prt 80\"",
        ),
        ("--overlap", "16k", "--overlap: 16384 is not less"),
    ] {
        let refused = run(&["streams", "--count", "-r", text(&trace), option, value]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let begin = format!("flowgauge: error: {what}");
        assert!(
            said.starts_with(&begin) && said.contains("\nhint: "),
            "{said}"
        );
    }
}
