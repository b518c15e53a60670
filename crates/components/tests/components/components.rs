//! Components over packets that the tests make: what comes through, what is counted and written.

use std::path::Path;

use crate::support::{Run, ipv4, program, tcp, udp};
use flowgauge_capture::{open, open_reader};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_wire::Nanos;

/// The frames of a capture file.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut source = open(path).expect("a capture file");
    let mut frames = Vec::new();
    while let Some(batch) = source.next_batch().expect("it is whole") {
        frames.extend((0..batch.len()).map(|index| batch.bytes(index).to_vec()));
    }
    frames
}

/// The paper's figure 2: fragments are put together, each protocol goes to its file.
#[test]
fn figure_2_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let text = format!(
        "[stack]
ipfragswitch ( ipfragdemux < ipreass > ) ipprotoswitch ( tcpscan output | udpscan output | icmpscan output ) discard
[ipreass]
timeout = 60
[ipprotoswitch]
tcpbranch = 0
udpbranch = 1
icmpbranch = 2
[output(0)]
static file = {}
[output(1)]
static file = {}
[output(2)]
static file = {}
",
        file("tcp_pkts.dat").display(),
        file("udp_pkts.dat").display(),
        file("icmp_pkts.dat").display()
    );
    let large = udp(5000, 6000, &[7; 992]);
    let whole = ipv4(17, 9, 0, false, &udp(53, 1024, b"answer"));
    let ping = ipv4(1, 10, 0, false, &[8, 0, 0, 0, 0, 1, 0, 1]);
    let segment = ipv4(6, 11, 0, false, &tcp(40_000, 80));
    let packets = vec![
        ipv4(17, 8, 496, true, &large[496..800]),
        segment.clone(),
        ipv4(17, 8, 800, false, &large[800..]),
        whole.clone(),
        ping.clone(),
        ipv4(89, 12, 0, false, &[2, 1, 0, 44]),
        ipv4(17, 8, 0, true, &large[..496]),
        ipv4(17, 13, 0, true, &large[..496]),
    ];
    for size in [1, 3, 100] {
        let mut run = Run::new(&text);
        run.packets(&packets, size);
        run.finish();
        assert_eq!(
            frames(&file("tcp_pkts.dat")),
            core::slice::from_ref(&segment)
        );
        assert_eq!(frames(&file("icmp_pkts.dat")), core::slice::from_ref(&ping));
        let written = frames(&file("udp_pkts.dat"));
        assert_eq!(written.len(), 2, "batches of {size}");
        let joined = written.iter().find(|frame| frame.len() > 100);
        let joined = joined.expect("the datagram that came in three pieces");
        assert_eq!(joined[20..], large);
        // A whole datagram by its header: 20 + 8 + 992 bytes, identification 8, no fragment.
        assert_eq!(joined[2..8], [3, 252, 0, 8, 0, 0]);
        assert!(written.contains(&whole));
        assert_eq!(run.result("ipreass"), 1, "datagram 13 never became whole");
    }
}

#[test]
fn filters_select_what_libpcap_selects() {
    let mut run = Run::new(
        "[stack] count { as = all } filter { udp port 53 } count { as = dns } bytes bytes { of = payload, as = payload }",
    );
    let packets = vec![
        ipv4(17, 1, 0, false, &udp(53, 1024, b"12345")),
        ipv4(17, 2, 0, false, &udp(1024, 54, b"1")),
        ipv4(17, 3, 0, false, &udp(1024, 53, b"123")),
        ipv4(6, 4, 0, false, &tcp(53, 1024)),
    ];
    run.packets(&packets, 2);
    assert_eq!((run.result("all"), run.result("dns")), (4, 2));
    assert_eq!(
        (run.result("bytes(0)"), run.result("payload")),
        (2 * 28 + 8, 8)
    );
}

#[test]
fn a_wrong_filter_is_found_before_anything_runs() {
    let error = program("[stack] bpf_filter { \"udp prot 53\" } count").expect_err("prot");
    assert!(
        error.starts_with("test:1:22: error: expression: "),
        "{error}"
    );
    assert!(error.contains("syntax error"), "{error}");
}

#[test]
fn a_rate_is_of_the_seconds_of_packets() {
    let at = |millis: u64| (millis * 1_000_000, ipv4(17, 1, 0, false, &udp(1, 53, b"")));
    for (millis, passed) in [
        (&[1000, 1001, 1002, 1003, 1999][..], 2),
        (&[1000, 1001, 1002, 2000, 2001, 2002, 4000], 5),
        // A packet that is late counts with the second before it; a clock that was set back begins anew.
        (&[1999, 2000, 1999, 2001, 2002], 3),
        (&[9000, 9001, 9002, 1000, 1001, 1002], 4),
    ] {
        let mut run = Run::new("[stack] rate_limit { 2 } count");
        let packets: Vec<_> = millis.iter().map(|millis| at(*millis)).collect();
        run.at(&packets);
        assert_eq!(run.result("count"), passed, "{millis:?}");
    }
}

#[test]
fn samples_are_one_of_so_many_or_per_cent() {
    let packets: Vec<Vec<u8>> = (0..1000)
        .map(|id| ipv4(17, id, 0, false, &udp(id, 53, b"")))
        .collect();
    let mut run = Run::new("[stack] sample { 7 } count");
    run.packets(&packets, 100);
    assert_eq!(run.result("count"), 1000 / 7);
    let mut run = Run::new("[stack] sample { 20, probabilistic } count");
    run.packets(&packets, 100);
    // Within four standard deviations of the binomial distribution.
    assert!(
        (150..=250).contains(&run.result("count")),
        "{}",
        run.result("count")
    );
    let error = program("[stack] sample { 101, PROBABILISTIC } count").expect_err("too many");
    assert!(
        error.contains("value: 101 is more than 100 per cent"),
        "{error}"
    );
}

#[test]
fn the_gap_is_between_the_last_two() {
    let mut run = Run::new("[stack] gap");
    run.packets(&[ipv4(17, 1, 0, false, &udp(1, 2, b""))], 1);
    assert_eq!(run.result("gap"), 0);
    run.packets(&[ipv4(17, 1, 0, false, &udp(1, 2, b""))], 1);
    assert_eq!(run.result("gap"), 1_000_000_000);
}

/// Whatever stands around it and however the packets come in batches, as many go through.
#[test]
fn demultiplexers_let_everything_through() {
    let mut trace = Vec::new();
    let config = Config::new(Preset::Hostile).with_packets(20_000);
    generate(&config, &mut trace).expect("memory");
    let mut counts = Vec::new();
    for text in [
        "tcpscan count { as = out }",
        "tcpscan tcpcnxdemux < count { as = in } > count { as = out }",
        "tcpscan tcpcnxdemux < tcpdirdemux < count { as = in } > > count { as = out }",
        "tcpscan tcpportdemux < tcpcnxdemux < identity count { as = in } > > count { as = out }",
        "tcpscan ipcnxdemux < tcpcnxdemux { keys = 3 } < tcpdirdemux < count { as = in } > > > count { as = out }",
        "ipprotoswitch ( tcpscan tcpcnxdemux { timeout = 10ms } < count { as = out } > | discard | discard ) discard",
    ] {
        let mut run = Run::new(&format!("[stack] {text}"));
        let mut source = open_reader(std::io::Cursor::new(trace.clone()), "test").expect("a trace");
        run.source(&mut source);
        run.finish();
        counts.push(run.result("out"));
        if text.contains("in }") {
            assert_eq!(run.result("in"), run.result("out"), "{text}");
        }
    }
    assert!(counts[0] > 1000, "{counts:?}");
    assert!(counts.iter().all(|&count| count == counts[0]), "{counts:?}");
}

/// What a stack writes as JSON lines.
fn lines(text: &str, trace: &[u8]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let mut run = Run::new(&format!("[stack] {text} output {{ {} }}", path.display()));
    let mut source = open_reader(std::io::Cursor::new(trace.to_vec()), "test").expect("a trace");
    run.source(&mut source);
    run.finish();
    let text = std::fs::read_to_string(&path).expect("it was written");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

#[test]
fn a_matcher_pairs_requests_with_replies_and_shows_those_alone() {
    let mut trace = Vec::new();
    let config = Config::new(Preset::Loss).scaled(0.02);
    let truth = generate(&config, &mut trace).expect("memory");
    let key = "key = \"src_ip, src_port, dst_ip, dst_port\"";
    let matched = lines(
        &format!(
            "filter {{ \"tcp[13] & 2 != 0\" }} packets matcher {{ {key}, request = \"tcp_flags = S\" }}"
        ),
        &trace,
    );
    let count = |state: &str| matched.iter().filter(|row| row["state"] == state).count() as u64;
    let handshakes = truth.totals.handshakes;
    // Half a per mille of the frames are missing.
    assert!(
        count("matched") <= handshakes,
        "{} {handshakes}",
        count("matched")
    );
    assert!(
        count("matched") + count("no_reply") + count("no_request") >= handshakes - 2,
        "{handshakes}"
    );
    assert!(count("matched") > handshakes * 9 / 10);
    for row in matched.iter().filter(|row| row["state"] == "matched") {
        assert_eq!(row["request"]["src_ip"], row["reply"]["dst_ip"]);
        assert_eq!(row["request"]["dst_port"], row["reply"]["src_port"]);
        assert_eq!(row["reply"]["tcp_flags"], "SA");
        let (request, reply) = (&row["request"]["seq"], &row["reply"]["ack"]);
        assert_eq!(
            (request.as_u64().expect("a number") + 1) & 0xffff_ffff,
            reply.as_u64().expect("a number")
        );
    }
    // No two packets have the same number: none is matched, not even with itself.
    let alone = lines(
        "sample { 10 } packets matcher { key = number, way = same, timeout = 1s, unmatched = yes }",
        &trace,
    );
    assert!(alone.len() > 1000);
    assert!(
        alone
            .iter()
            .all(|row| row["state"] == "no_reply" && row["reply"].is_null())
    );
}

#[test]
fn a_matcher_says_which_field_is_missing() {
    let error = program("[stack] packets matcher output").expect_err("key must be given");
    assert!(error.contains("key"), "{error}");
    let error =
        program("[stack] packets matcher { key = a, request = x } output").expect_err("no =");
    assert!(error.contains("request: has no \"=\""), "{error}");
    let error = program("[stack] packets matcher { key = \"src_ip, colour\" } discard");
    let error = error.expect_err("no such field");
    assert!(
        error.contains("key: the records have no field colour"),
        "{error}"
    );
    assert!(
        error.contains("hint: \"flowgauge fields\" lists"),
        "{error}"
    );
    let error = program("[stack] packets matcher { key = \"src_ip, ip_di\" } discard");
    let error = error.expect_err("no such field");
    assert!(error.contains("hint: did you mean ip_id?"), "{error}");
}

/// A segment of the connection 192.0.2.1:4000 to 198.51.100.7:80, or back.
fn segment(up: bool, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let mut segment = Vec::new();
    let (from, to): (u16, u16) = if up { (4000, 80) } else { (80, 4000) };
    segment.extend(from.to_be_bytes());
    segment.extend(to.to_be_bytes());
    segment.extend(seq.to_be_bytes());
    segment.extend(ack.to_be_bytes());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let mut packet = ipv4(6, 1, 0, false, &segment);
    if !up {
        let (source, destination) = packet[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
    }
    packet
}

const FIN_ACK: u8 = 0x11;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// How many instances packets make, in batches of one and in one batch.
fn instances(stack: &str, packets: &[Vec<u8>]) -> [u64; 2] {
    [1, 100].map(|size| {
        let mut run = Run::new(stack);
        run.packets(packets, size);
        run.finish();
        assert_eq!(run.result("count"), packets.len() as u64);
        run.result("tcpcnxdemux")
    })
}

#[test]
fn a_connection_ends_when_it_has_closed_where_that_is_wanted() {
    let closed = "[stack] tcpscan tcpcnxdemux { end = closed } < count > discard";
    let packets = [
        segment(true, SYN, 99, 0),
        segment(true, FIN_ACK, 100, 500),
        segment(false, ACK, 500, 101),
        segment(false, FIN_ACK, 500, 101),
        segment(true, ACK, 101, 500),
        segment(true, ACK, 101, 501),
    ];
    // Closed by the last one; before it the other FIN is not acknowledged.
    assert_eq!(instances(closed, &packets), [1, 1]);
    let mut again = packets.to_vec();
    again.push(segment(true, SYN, 900, 0));
    again.push(segment(true, RST, 901, 0));
    again.push(segment(true, SYN, 1900, 0));
    assert_eq!(instances(closed, &again), [3, 3]);
    let timeout = "[stack] tcpscan tcpcnxdemux < count > discard";
    assert_eq!(instances(timeout, &again), [1, 1]);
    // What still comes of a connection is another instance once the batch is over.
    let mut late = packets.to_vec();
    late.push(segment(false, ACK, 501, 101));
    assert_eq!(instances(closed, &late), [2, 1]);
}

#[test]
fn a_day_is_replayed_in_less_than_a_second_of_ours() {
    for (timeout, expected) in [("30m", 24), ("2h", 1)] {
        let text =
            format!("[stack] tcpscan tcpcnxdemux {{ timeout = {timeout} }} < count > discard");
        let mut run = Run::new(&text);
        run.now = Nanos(1_700_000_000_000_000_000);
        for _ in 0..24 {
            run.now = Nanos(run.now.0 + 3_599_000_000_000);
            run.packets(&[segment(true, ACK, 1, 1)], 1);
        }
        run.finish();
        assert_eq!(run.result("tcpcnxdemux"), expected, "{timeout}");
    }
}

#[test]
fn a_time_far_ahead_holds_up_no_other_request() {
    let mut run = Run::new(
        "[stack] packets matcher { key = \"src_ip, dst_ip, src_port, dst_port\", timeout = 5s } count",
    );
    let request = |port| ipv4(17, 1, 0, false, &udp(port, 53, b""));
    let second = 1_000_000_000;
    // The clock does not believe the first one: nothing confirms it.
    run.graph_at(&[(10_000_000 * second, request(1))], 0);
    run.graph_at(&[(second, request(2))], second);
    run.graph_at(&[(7 * second, request(3))], 7 * second);
    assert_eq!(run.result("count"), 1, "the one that has waited 6 seconds");
    run.finish();
    assert_eq!(run.result("count"), 3);
}

#[test]
fn records_are_let_through_by_a_condition_whatever_their_batches() {
    let packets: Vec<Vec<u8>> = (0..100)
        .map(|port| ipv4(17, 1, 0, false, &udp(port, 53, &vec![0; usize::from(port)])))
        .collect();
    for size in [1, 7, 100] {
        let mut run = Run::new(
            "[stack] packets where { \"src_port in {10..19, 90} and payload_bytes < 50\" } count \
             where { \"ttl = 63 or src_port = 12\", as = second } count where { tunnel } count",
        );
        run.packets(&packets, size);
        run.finish();
        assert_eq!(run.result("where(0)"), 10);
        assert_eq!(run.result("count(0)"), 10);
        assert_eq!(run.result("second"), 1);
        assert_eq!((run.result("count(1)"), run.result("count(2)")), (1, 0));
    }
}

#[test]
fn only_amounts_are_added_up() {
    for (stack, said) in [
        (
            "packets aggregate { proto, ttl } output",
            "no field \"ttl\" to sum",
        ),
        (
            "packets aggregate { proto, seq } output",
            "no field \"seq\" to sum",
        ),
        (
            "packets aggregate { proto, fragment_offset } output",
            "to sum",
        ),
        (
            "flows aggregate { src_ip, port } output",
            "no field \"port\" to sum",
        ),
        (
            "packets aggregate { proto, length } where { \"payload_bytes > 1\" } output",
            "the records have no field payload_bytes",
        ),
    ] {
        let error = program(&format!("[stack] {stack}")).expect_err(stack);
        assert!(error.contains(said), "{stack}: {error}");
    }
    let stack = "[stack] packets aggregate { proto, \"length, payload_bytes\", interval = 1s } \
                 where { \"payload_bytes > 1 and interval\" } distinct { proto } output";
    assert!(program(stack).is_ok());
    assert!(
        program("[stack] tcpscan tcpcnxdemux < tcpreseq http > distinct { host } output").is_ok()
    );
}

#[test]
fn files_of_records_are_rotated_as_captures_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let packets: Vec<Vec<u8>> = (0..100)
        .map(|port| ipv4(17, 1, 0, false, &udp(port, 53, b"")))
        .collect();
    let read = |name: &str| std::fs::read_to_string(file(name)).expect("it was written");
    for batch in [1, 100] {
        let stack = format!(
            "[stack] packets output {{ {}, fields = src_port, rotate_size = 100 }} \
             output {{ {}, fields = src_port, rotate_size = 100, rotate_files = 3 }} \
             output {{ {}, fields = \"time, src_port\", rotate_time = 40s }}",
            file("size.csv"),
            file("ring.json"),
            file("time-%s.csv"),
        );
        let mut run = Run::new(&stack);
        run.packets(&packets, batch);
        run.finish();
        // A header and as many ports as fit: the line that goes beyond 100 bytes is the last.
        assert!(read("size.csv").starts_with("src_port\n0\n1\n"));
        assert!(read("size.csv1").starts_with("src_port\n"));
        let all: String = ["size.csv", "size.csv1", "size.csv2", "size.csv3"]
            .map(|name| read(name).replace("src_port\n", ""))
            .concat();
        let expected: String = (0..100).map(|port| format!("{port}\n")).collect();
        assert_eq!(all, expected, "batches of {batch}");
        assert!((100..=120).contains(&read("size.csv").len()));
        // Three files in turn: what they have now is the end.
        let mut kept: Vec<u64> = Vec::new();
        for name in ["ring.json0", "ring.json1", "ring.json2"] {
            for line in read(name).lines() {
                let row: serde_json::Value = serde_json::from_str(line).expect("an object");
                kept.push(row["src_port"].as_u64().expect("a number"));
            }
        }
        kept.sort_unstable();
        assert!(kept.len() < 30 && kept.ends_with(&[98, 99]), "{kept:?}");
        // Packets are a second apart, from 1 on.
        for (name, lines) in [("time-1.csv", 41), ("time-41.csv", 41), ("time-81.csv", 21)] {
            assert_eq!(read(name).lines().count(), lines, "{name}");
        }
    }
    let stack = format!(
        "[stack] packets output {{ {}, rotate_size = 0 }}",
        file("x")
    );
    let error = program(&stack).expect_err("0");
    assert!(error.contains("a limit of rotation is zero"), "{error}");
    let stack = format!(
        "[stack] packets output {{ {}, fields = src_port, rotate_time = 10s, rotate_files = 2 }}",
        file("two-%s.json")
    );
    let mut run = Run::new(&stack);
    run.packets(&packets, 1);
    assert!(run.graph.is_over());
    assert_eq!(
        read("two-1.json").lines().count() + read("two-11.json").lines().count(),
        20
    );
}

/// The table in `docs/mapi-functions.md`.
#[test]
fn functions_of_mapi_are_known_by_their_names() {
    let text = include_str!("../../../../docs/mapi-functions.md");
    let known = flowgauge_registry::registry();
    let mut functions = 0;
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let mut names = line.split('`').skip(1).step_by(2);
        let (function, component) = (names.next().expect("one"), names.next().expect("one"));
        let found = known.find(function).map(|info| info.name);
        assert_eq!(found, Some(component), "{function}");
        functions += 1;
    }
    assert_eq!(functions, 42);
}

/// Of each of many keys its own, whatever the batches: compared with counting by hand.
#[test]
fn results_by_key_count_what_each_key_had() {
    // Of each of 40 servers' ports so many packets as its number; ports end after three seconds.
    let mut packets = Vec::new();
    for port in (1..=40).rev() {
        for _ in 0..port {
            packets.push(ipv4(6, 1, 0, false, &tcp(50_000, port)));
        }
    }
    for size in [1, 7, 256] {
        let mut run = Run::new(
            "[stack] tcpscan tcpportdemux { results = 5, timeout = 3s } < count sample { 2 } bytes >",
        );
        run.packets(&packets, size);
        let by_key = |run: &Run, label: &str| {
            let id = run.stack.find(label).expect("it is there");
            run.graph.result_by_key(id).expect("it is inside")
        };
        let text = |table: &flowgauge_stack::Table| -> Vec<String> {
            table.iter().map(|row| row.to_string()).collect()
        };
        let expected = [
            "instances=40 shown=5",
            "key=40 value=40",
            "key=39 value=39",
            "key=38 value=38",
            "key=37 value=37",
            "key=36 value=36",
        ];
        // The last port lives on, the others have ended.
        assert_eq!(text(&by_key(&run, "count")), expected);
        run.finish();
        assert_eq!(text(&by_key(&run, "count")), expected);
        // One of two packets, and of the bytes only those.
        let bytes = text(&by_key(&run, "bytes"));
        assert_eq!(bytes[1], "key=40 value=800", "{bytes:?}");
        assert!(
            run.graph
                .result_by_key(run.stack.find("tcpscan").expect("it"))
                .is_none()
        );
        run.graph.reset();
        assert_eq!(text(&by_key(&run, "count")), ["instances=0 shown=5"]);
    }
}

/// A file for each connection, more of them than may be open at once, and for each day; what is in
/// them together is what came.
#[test]
fn files_are_named_by_keys_and_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut packets = Vec::new();
    for round in 0..3 {
        for port in 1..=300 {
            packets.push(ipv4(6, round, 0, false, &tcp(50_000, port)));
        }
    }
    let listed = || -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).expect("it is there");
        let names = entries.map(|entry| entry.expect("a file").file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().expect("text")).collect();
        names.sort();
        names
    };
    for ending in ["pcap", "pcapng", "pcap.gz", "pcapng.zst"] {
        // Twice: the second run writes over the files of the first.
        for size in [256, 100] {
            let text = format!(
                "[stack] tcpscan tcpcnxdemux {{ timeout = 1d }} < output {{ \"{}\" }} >",
                at(&format!("%{{key}}.{ending}"))
            );
            let mut run = Run::new(&text);
            run.packets(&packets, size);
            run.finish();
            assert_eq!(run.result("output"), 900, "{ending}");
        }
        let names = listed();
        assert_eq!(names.len(), 300, "{ending}");
        for name in names {
            let path = folder.path().join(&name);
            let port = name.strip_prefix("192.0.2.1_50000-198.51.100.7_");
            let port = port.and_then(|rest| rest.strip_suffix(ending)?.strip_suffix('.'));
            let port: u16 = port.expect("a key").parse().expect("a port");
            let expected: Vec<Vec<u8>> = packets
                .iter()
                .filter(|it| it[22..24] == port.to_be_bytes())
                .cloned()
                .collect();
            assert_eq!(frames(&path), expected, "{name}");
            std::fs::remove_file(path).expect("it can go");
        }
    }
    // Records, by day and by instance; CSV has its names once.
    let day = 86_400 * 1_000_000_000;
    let packets: Vec<(u64, Vec<u8>)> = (0..40)
        .map(|number| {
            (
                number * day / 10 + day / 2,
                packets[number as usize % 2].clone(),
            )
        })
        .collect();
    let text = format!(
        "[stack] tcpscan packets output {{ \"{}\" }}",
        at("of-%Y.csv")
    );
    let mut run = Run::new(&text);
    run.at(&packets);
    run.finish();
    assert_eq!(listed(), ["of-1970.csv"]);
    std::fs::remove_file(folder.path().join("of-1970.csv")).expect("it can go");
    // A connection ends after an hour: each packet makes two instances of its own a day.
    let text = format!(
        "[stack] tcpscan tcpcnxdemux {{ timeout = 1h }} < packets output {{ file = \"{}\", fields = src_port }} >",
        at("%d-%{number}.csv")
    );
    let mut run = Run::new(&text);
    for packet in packets.chunks(1) {
        run.at(packet);
    }
    run.finish();
    assert_eq!(listed().len(), 40);
    let text = std::fs::read_to_string(folder.path().join("01-1.csv")).expect("it was written");
    assert_eq!(text, "src_port\n50000\n");
    for name in listed() {
        std::fs::remove_file(folder.path().join(name)).expect("it can go");
    }
    // static: all instances have the file that the first one makes.
    let text = format!(
        "[stack] tcpscan tcpcnxdemux < output >\n[output]\nstatic file = \"{}\"",
        at("%j.pcap")
    );
    let mut run = Run::new(&text);
    run.at(&packets);
    run.finish();
    assert_eq!(listed().len(), 1);
    assert_eq!(frames(&folder.path().join(&listed()[0])).len(), 40);
    for (text, error) in [
        ("output { \"%{key}\" }", "outside of demultiplexers"),
        (
            "tcpscan tcpcnxdemux < output { \"%{key}\", rotate_size = 1M } >",
            "are not rotated",
        ),
    ] {
        let found = program(&format!("[stack] {text}")).expect_err("it means nothing");
        assert!(found.contains(error), "{found}");
    }
}
