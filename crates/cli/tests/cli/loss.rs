//! `loss` over files of which it is known what is missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use flowgauge_capture::{FileFormat, FileSink, PacketSink, SinkOptions};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodedBatch, Ledger, LinkType, Nanos, PacketDescriptor, Place};
use serde_json::Value;

use crate::command_support::{Folder, command, run, wait_until};
use crate::mapi::Sensor;

/// What the second clock shows more.
const SHIFT: u64 = 3_700_000_000;
const DELAY: u64 = 2_000_000;

/// Two files of one trace, from points between which packets get lost.
struct Points {
    folder: Folder,
    /// By flow and direction: sent, lost.
    truth: BTreeMap<String, [u64; 2]>,
    /// Lost from the first point to the second, and the other way.
    lost: [u64; 2],
}

impl Points {
    /// Of a thousand packets so many are lost.
    fn new(name: &str, lost: u64) -> Points {
        let folder = Folder::new(name);
        let mut config = Config::new(Preset::Mix).with_packets(30_000);
        config.seed = lost;
        let mut trace = Vec::new();
        generate(&config, &mut trace).unwrap();
        fs::write(folder.file("trace.pcap"), trace).unwrap();
        let mut source = flowgauge_capture::open(folder.file("trace.pcap")).unwrap();
        let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
        let (mut seen, mut truth) = ([Vec::new(), Vec::new()], BTreeMap::new());
        let (mut number, mut lost_ways) = (0_u64, [0, 0]);
        while let Some(batch) = source.next_batch().unwrap() {
            decoder.decode_batch(&batch, &mut decoded);
            for (index, packet) in decoded.packets.iter().enumerate() {
                number += 1;
                let (from, to) = (packet.source(), packet.destination());
                let is_there = from.0 <= to.0;
                let random = flowgauge_wire::scattered(number);
                // Nobody knows what came before the first packet of a file, and what the first and last common marks of flows
                // overtake is lost to them.
                let is_inner = (500..29_500).contains(&number);
                let is_lost = random % 1000 < lost && is_inner && packet.has_ip();
                lost_ways[usize::from(!is_there)] += u64::from(is_lost);
                if packet.has_ip() {
                    let version = packet.key.version;
                    let way = (from.0.to_ip(version), from.1, to.0.to_ip(version), to.1);
                    let way = format!("{way:?} {}", packet.key.protocol);
                    let counts: &mut [u64; 2] = truth.entry(way).or_default();
                    *counts = [counts[0] + 1, counts[1] + u64::from(is_lost)];
                }
                let later = DELAY + u64::from(is_inner) * (random / 1000 % 50_000);
                let times = match is_there {
                    true => [packet.time.0, packet.time.0 + later + SHIFT],
                    false => [packet.time.0 + later, packet.time.0 + SHIFT],
                };
                for point in 0..2 {
                    if !is_lost || is_there == (point == 0) {
                        seen[point].push((times[point], batch.bytes(index).to_vec()));
                    }
                }
            }
        }
        for (packets, name) in seen.iter_mut().zip(["a.pcap", "b.pcap"]) {
            packets.sort_by_key(|(time, _)| *time);
            write(packets, &folder.file(name));
        }
        Points {
            folder,
            truth,
            lost: lost_ways,
        }
    }

    /// Runs the command over the files, the first one first.
    fn loss(&self, options: &[&str]) -> Vec<Value> {
        let files = ["a.pcap", "b.pcap"].map(|name| self.folder.file(name));
        let files = files.each_ref().map(|file| file.to_str().unwrap());
        let done = run(&[&["loss", "-q", "--json", "-r"], &files[..], options].concat());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{said}");
        let text = String::from_utf8(done.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// With a table that is too small less is compared, and next to no loss is made up (between two marks where an observer began anew).
#[test]
fn flows_that_end_early_are_not_compared() {
    let points = Points::new("loss-early", 0);
    for most in ["10", "100", "200"] {
        let rows = points.loss(&["--max-flows", most]);
        let totals = rows.iter().filter(|row| row["of"] == "total");
        let sum = |name: &str| {
            let values = totals.clone().map(|row| row[name].as_i64().unwrap());
            values.sum::<i64>()
        };
        assert!(sum("lost").abs() <= 3 && sum("one_sided") == 0, "{most}");
        assert!(sum("uncompared") > 0, "{most}");
    }
}

/// Where one point observed for a part of the time only.
#[test]
fn much_that_is_not_compared_is_said() {
    let points = Points::new("loss-uncompared", 0);
    let files = ["a.pcap", "b.pcap", "part.pcap"].map(|name| points.folder.file(name));
    let mut source = flowgauge_capture::open(&files[1]).unwrap();
    let mut packets = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        let each = batch.packets.iter().enumerate();
        packets.extend(each.map(|(at, packet)| (packet.time.0, batch.bytes(at).to_vec())));
    }
    write(&packets[packets.len() / 3..packets.len() / 2], &files[2]);
    let [whole, other, part] = files.each_ref().map(|file| file.to_str().unwrap());
    for (arguments, is_said) in [
        (vec!["loss", "-r", whole, part], true),
        (vec!["loss", "-r", whole, part, "-q"], false),
        (vec!["loss", "-r", whole, other], false),
    ] {
        let done = run(&arguments);
        let text = String::from_utf8_lossy(&done.stderr);
        let says = text.contains("were not compared") && text.contains("--every");
        assert_eq!(says, is_said, "{arguments:?}: {text}");
    }
}

/// Where one point saw nothing at all, as behind a link that is down.
#[test]
fn a_point_that_saw_nothing_is_named() {
    let points = Points::new("loss-silent", 0);
    let [whole, empty] = ["a.pcap", "empty.pcap"].map(|name| points.folder.file(name));
    write(&[], &empty);
    let [whole, empty] = [&whole, &empty].map(|file| file.to_str().unwrap());
    for files in [[whole, empty], [empty, whole]] {
        let done = run(&["loss", "-r", files[0], files[1]]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{said}");
        let named = format!("nothing was compared: {empty} saw none of ");
        assert!(
            said.contains(&named) && said.contains("check that the link is up"),
            "{said}"
        );
        assert!(!said.contains("--every"), "{said}");
    }
    // Others are compared beside it.
    let other = points.folder.file("b.pcap");
    let done = run(&["loss", "-r", whole, other.to_str().unwrap(), empty]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("{empty} saw none of ")), "{said}");
}

/// Where each point saw flows that no other did, as where nothing passes between them.
#[test]
fn points_that_saw_different_flows_compare_nothing() {
    let points = Points::new("loss-apart", 0);
    let whole = points.folder.file("a.pcap");
    let files = ["one.pcap", "other.pcap"].map(|name| points.folder.file(name));
    let mut kinds = [Vec::new(), Vec::new()];
    let mut source = flowgauge_capture::open(&whole).unwrap();
    while let Some(batch) = source.next_batch().unwrap() {
        for packet in batch.packets {
            let frame = &batch.memory[packet.offset as usize..][..packet.captured_len as usize];
            let is_tcp = frame[12..14] == [8, 0] && frame[23] == 6;
            kinds[usize::from(is_tcp)].push((packet.time.0, frame.to_vec()));
        }
    }
    for (packets, file) in kinds.iter().zip(&files) {
        assert!(!packets.is_empty());
        write(packets, file);
    }
    let [one, other] = files.each_ref().map(|file| file.to_str().unwrap());
    let done = run(&["loss", "-r", one, other]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no two points saw packets of the same flow"),
        "{said}"
    );
}

fn write(packets: &[(u64, Vec<u8>)], path: &Path) {
    let mut sink = FileSink::create(path, SinkOptions::default()).unwrap();
    for (time, frame) in packets {
        let descriptor = PacketDescriptor {
            time: Nanos(*time),
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        };
        sink.write(&Batch::new(frame, &[descriptor])).unwrap();
    }
    sink.close().unwrap();
}

fn number(row: &Value, field: &str) -> u64 {
    row[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field}: {row}"))
}

fn of<'a>(rows: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["of"] == kind)
}

/// Per flow exactly what is missing, with clocks that are seconds apart.
#[test]
fn each_flow_lost_what_is_missing_in_the_other_file() {
    for lost in [1, 10, 50] {
        let points = Points::new(&format!("loss-{lost}"), lost);
        let rows = points.loss(&["--flows"]);
        let mut found: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for row in of(&rows, "flow") {
            let address = |field: &str| row[field].as_str().unwrap().parse().unwrap();
            let way: (std::net::IpAddr, _, std::net::IpAddr, _) = (
                address("src_ip"),
                number(row, "src_port"),
                address("dst_ip"),
                number(row, "dst_port"),
            );
            let protocol = match row["proto"].as_str().unwrap() {
                "tcp" => 6,
                "udp" => 17,
                "icmp" if row["src_ip"].as_str().unwrap().contains(':') => 58,
                "icmp" => 1,
                other => other.parse().unwrap(),
            };
            let counts = found.entry(format!("{way:?} {protocol}")).or_default();
            counts[0] += number(row, "sent") + number(row, "one_sided");
            counts[1] += number(row, "lost") + number(row, "one_sided");
            assert_eq!(number(row, "duplicates"), 0, "{row}");
        }
        assert_eq!(found, points.truth);
        // As much in the intervals as in all, and hardly anything that could be taken for routing.
        for field in ["lost", "sent", "received"] {
            let sum = |kind| of(&rows, kind).map(|row| number(row, field)).sum::<u64>();
            assert_eq!(sum("interval"), sum("total"), "{field}");
            assert_eq!(sum("flow"), sum("total"), "{field}");
            assert_eq!(sum("application"), sum("total"), "{field}");
        }
        let one_sided: u64 = of(&rows, "total").map(|row| number(row, "one_sided")).sum();
        assert!(one_sided <= 5, "{one_sided}");
        for row in of(&rows, "total") {
            let seconds = |field: &str| row[field].as_f64().unwrap();
            let shift = if row["from"].as_str().unwrap().ends_with("a.pcap") {
                3.7
            } else {
                -3.7
            };
            assert!(
                (seconds("offset") - shift).abs() <= seconds("offset_error"),
                "{row}"
            );
            assert!(seconds("offset_error") < 0.0022, "{row}");
            let delay = seconds("delay_mean");
            assert!(
                (delay - 0.002_025).abs() < 0.000_1 + seconds("offset_error"),
                "{row}"
            );
        }
    }
}

/// A capture that dropped a tenth of its packets and says so: what was lost is within the bounds, which are not the same.
#[test]
fn what_a_capture_dropped_itself_is_within_the_bounds() {
    let points = Points::new("loss-dropped", 20);
    let folder = &points.folder;
    let (whole, some) = (folder.file("b.pcap"), folder.file("some.pcapng"));
    let mut source = flowgauge_capture::open(&whole).unwrap();
    let options = SinkOptions {
        format: FileFormat::PcapNg,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(&some, options).unwrap();
    let (mut packets, mut dropped) = (0_u64, 0_u64);
    while let Some(batch) = source.next_batch().unwrap() {
        let mut kept = batch.packets.to_vec();
        kept.retain(|_| {
            packets += 1;
            packets < 500 || !flowgauge_wire::scattered(packets).is_multiple_of(10)
        });
        dropped += (batch.packets.len() - kept.len()) as u64;
        sink.write(&Batch::new(batch.memory, &kept)).unwrap();
    }
    let mut ledger = Ledger::default();
    ledger.miss(Place::KernelRing, dropped);
    sink.set_ledger(&ledger);
    sink.close().unwrap();
    fs::rename(&some, &whole).unwrap();
    let rows = points.loss(&[]);
    for row in of(&rows, "total") {
        let is_there = row["from"].as_str().unwrap().ends_with("a.pcap");
        let lost = points.lost[usize::from(!is_there)];
        let drops = ["from_dropped", "to_dropped"].map(|field| number(row, field));
        assert_eq!(drops, if is_there { [0, dropped] } else { [dropped, 0] });
        let bounds = number(row, "least")..=number(row, "most");
        assert!(bounds.contains(&lost), "{lost}: {row}");
    }
}

/// The filter decides what is compared; the picture has a line for each direction.
#[test]
fn a_filter_selects_and_a_picture_is_drawn() {
    let points = Points::new("loss-filter", 20);
    let picture = points.folder.file("loss.svg");
    let rows = points.loss(&[
        "--filter",
        "udp port 53",
        "--svg",
        picture.to_str().unwrap(),
    ]);
    let applications: Vec<&Value> = of(&rows, "application").collect();
    assert!(!applications.is_empty());
    assert!(
        applications
            .iter()
            .all(|row| row["proto"] == "udp" && row["port"] == 53)
    );
    let dns = |way: &&String| way.ends_with(" 17") && way.contains(", 53");
    let lost: u64 = points
        .truth
        .iter()
        .filter(|(way, _)| dns(way))
        .map(|(_, [_, lost])| lost)
        .sum();
    let found: u64 = of(&rows, "total")
        .map(|row| number(row, "lost") + number(row, "one_sided"))
        .sum();
    assert!(lost > 0);
    assert_eq!(found, lost);
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polyline").count(), 2);
}

/// Two devices of a sensor, which read the files: the same as of the files themselves.
#[test]
fn sensors_tell_what_files_tell() {
    let points = Points::new("loss-sensor", 20);
    let folder = &points.folder;
    let socket = folder.file("sock");
    let device = |name: &str| {
        let file = folder.file(&format!("{name}.pcap"));
        format!("[devices.{name}]\nfiles = [{file:?}]\nhold = true\n")
    };
    let config = format!(
        "socket = {socket:?}\nuser = \"root\"\n{}{}",
        device("a"),
        device("b")
    );
    fs::write(folder.file("sensor.toml"), config).unwrap();
    let path = |name: &str| folder.file(name).to_str().unwrap().to_owned();
    let mut sensor = command(&["sensor", "run", "--config", &path("sensor.toml")]);
    let mut sensor = sensor.stderr(Stdio::null()).spawn().unwrap();
    let socket = path("sock");
    wait_until("the sensor is there", || fs::exists(&socket).unwrap());
    // One point is none.
    let alone = run(&[
        "loss",
        "--between",
        "a,none",
        "--socket",
        &socket,
        "--for",
        "1s",
    ]);
    assert_eq!(alone.status.code(), Some(1));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(
        said.contains("nothing was compared: none never observed"),
        "{said}"
    );
    let out = fs::File::create(path("out")).unwrap();
    let mut loss = command(&[
        "loss",
        "--between",
        "a,b",
        "--socket",
        &socket,
        "-q",
        "--json",
    ]);
    let mut loss = loss.stdout(out).spawn().unwrap();
    wait_until("both devices have the flow", || {
        let status = run(&["sensor", "status", "--json", "--socket", &socket]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let devices = status["devices"].as_array().into_iter().flatten();
        devices
            .filter(|device| !device["stacks"][0]["flows"][0].is_null())
            .count()
            == 2
    });
    for device in ["a", "b"] {
        let started = run(&["sensor", "start", device, "--socket", &socket]);
        assert_eq!(started.status.code(), Some(0));
    }
    assert!(loss.wait().unwrap().success());
    assert!(
        run(&["sensor", "stop", "--socket", &socket])
            .status
            .success()
    );
    sensor.wait().unwrap();
    let text = fs::read_to_string(path("out")).unwrap();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Flows that pause are several here, and of those that one point missed as a whole less is known when they end.
    let sums = |rows: &[Value]| {
        let sum = |field| of(rows, "total").map(|row| number(row, field)).sum::<u64>();
        let missing = sum("lost") + sum("one_sided");
        [
            sum("received"),
            missing,
            sum("duplicates"),
            sum("uncompared"),
        ]
    };
    // What sensors see in their first and last 0.1 s is not compared.
    let (live, files) = (sums(&rows), sums(&points.loss(&[])));
    assert_eq!(live[1..3], files[1..3]);
    assert_eq!(live[1], points.lost.iter().sum::<u64>());
    assert_eq!(2 * (files[0] - live[0]), live[3]);
    assert!(live[3] < 100, "{live:?}");
    let intervals = of(&rows, "interval").map(|row| row["time"].as_str().unwrap());
    let intervals: Vec<&str> = intervals.collect();
    assert!(intervals.is_sorted() && intervals.len() > 4);
}

/// Where all sensors have stopped the command ends with what there is, and says why; and that nothing was seen.
#[test]
fn points_whose_sensor_stops_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let devices = ["a", "b"].map(|name| {
        format!("[devices.{name}]\ninterface = \"lo\"\nfilter = \"host 192.0.2.77\"\n")
    });
    let _sensor = Sensor::with(folder, &devices.concat());
    let socket = folder.join("sock").to_str().unwrap().to_owned();
    let mut loss = command(&[
        "loss",
        "--between",
        "a,b",
        "--for",
        "1h",
        "--socket",
        &socket,
    ]);
    let loss = loss.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let loss = loss.unwrap();
    wait_until("both devices have the flow", || {
        let flows = run(&["sensor", "flows", "--json", "--socket", &socket]);
        String::from_utf8_lossy(&flows.stdout).lines().count() == 2
    });
    let stopped = run(&["sensor", "stop", "--socket", &socket]);
    assert!(stopped.status.success());
    let done = loss.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    for part in ["no point saw an IP packet", "a, b: the sensor has stopped"] {
        assert!(said.contains(part), "{said}");
    }
}

/// Several points on a path: nothing is lost between equal files.
#[test]
fn several_points_are_compared_along_the_path_or_each_with_each() {
    let points = Points::new("loss-path", 20);
    let file = |name: &str| points.folder.file(name).to_str().unwrap().to_owned();
    let names = ["a.pcap", "b.pcap", "c.pcap", "d.pcap"].map(file);
    fs::copy(&names[1], &names[2]).unwrap();
    fs::copy(&names[1], &names[3]).unwrap();
    let pairs = |options: &[&str]| {
        let mut arguments = vec!["loss", "-q", "--json", "-r"];
        arguments.extend(names.iter().map(String::as_str));
        let done = run(&[&arguments[..], options].concat());
        let text = String::from_utf8(done.stdout).unwrap();
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            if row["of"] == "total" {
                let end = |field: &str| names.iter().position(|name| row[field] == **name).unwrap();
                let (from, to) = (end("from"), end("to"));
                *found.entry((from.min(to), from.max(to))).or_insert(0) += number(&row, "lost");
            }
        }
        found
    };
    let lost: u64 = pairs(&[])[&(0, 1)];
    assert!(lost > 0);
    assert_eq!(
        pairs(&[]),
        [((0, 1), lost), ((0, 3), lost), ((1, 2), 0), ((2, 3), 0)].into()
    );
    let matrix = [
        ((0, 1), lost),
        ((0, 2), lost),
        ((0, 3), lost),
        ((1, 2), 0),
        ((1, 3), 0),
        ((2, 3), 0),
    ];
    assert_eq!(pairs(&["--matrix"]), matrix.into());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new("loss-refused");
    let (trace, _) = folder.trace();
    let trace = trace.to_str().unwrap();
    for (arguments, code, said) in [
        (
            vec!["loss", "-r", trace],
            2,
            "loss needs at least two points",
        ),
        (
            vec!["loss", "--json", "-r", trace, trace, "-w", trace],
            2,
            "is also an input file",
        ),
        (
            vec!["loss", "-r", trace, trace, "--svg", trace],
            2,
            "is also an input file",
        ),
        (vec!["loss"], 2, "--between"),
        (
            vec!["loss", "-r", trace, trace, "--every", "1us"],
            2,
            "--every is less than a millisecond",
        ),
        (
            vec!["loss", "-r", trace, trace, "--filter", "tpc"],
            2,
            "tpc",
        ),
        (vec!["loss", "-r", trace, "/nonexistent"], 2, "/nonexistent"),
    ] {
        let done = run(&arguments);
        let text = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

/// What one direction of a connection waits for, by what tshark reads of packets.
#[derive(Default)]
struct Asked {
    stamp: Option<(u32, u64)>,
    latest: Option<u32>,
    edge: Option<u64>,
    spin: Option<bool>,
}

/// Round trips, in nanoseconds: of each direction the first segment with a new time stamp, until it is echoed; of QUIC an edge of the spin bit until
/// the next one of the other direction.
fn round_trips_by_tshark(capture: &Path) -> Vec<u64> {
    let fields = "frame.time_epoch ip.src ipv6.src ip.dst ipv6.dst tcp.srcport udp.srcport tcp.dstport udp.dstport \
                  tcp.options.timestamp.tsval tcp.options.timestamp.tsecr tcp.len tcp.flags quic.header_form quic.spin_bit";
    let mut tshark = std::process::Command::new("tshark");
    tshark
        .args(["-n", "-T", "fields", "-E", "separator=;", "-r"])
        .arg(capture);
    fields.split_whitespace().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let text = String::from_utf8(tshark.output().unwrap().stdout).unwrap();
    let (mut asked, mut trips) = (BTreeMap::<[String; 2], Asked>::new(), Vec::new());
    let is_after = |one: u32, other: u32| one != other && one.wrapping_sub(other) < 1 << 31;
    for line in text.lines() {
        let it: Vec<&str> = line.split(';').collect();
        let (seconds, nanos) = it[0].split_once('.').unwrap();
        let now = seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanos.parse::<u64>().unwrap();
        let end = |at: usize, port: usize| [it[at], it[at + 1], it[port], it[port + 1]].join(" ");
        let (from, to) = (end(1, 5), end(3, 7));
        let (there, back) = ([from.clone(), to.clone()], [to, from]);
        let first = |at: usize| it[at].split(',').next().unwrap().to_owned();
        if let (Ok(value), Ok(echo)) = (it[9].parse::<u32>(), it[10].parse::<u32>()) {
            let flags = u32::from_str_radix(it[12].trim_start_matches("0x"), 16).unwrap();
            let other = asked.entry(back).or_default();
            if let Some((waiting, since)) = other.stamp.filter(|_| flags & 16 != 0) {
                trips.extend((echo == waiting).then(|| now - since));
                other.stamp = other.stamp.filter(|_| is_after(waiting, echo));
            }
            let own = asked.entry(there).or_default();
            if own.latest.is_none_or(|latest| is_after(value, latest)) {
                own.latest = Some(value);
                if own.stamp.is_none() && (it[11] != "0" || flags & 2 != 0) {
                    own.stamp = Some((value, now));
                }
            }
        } else if first(13) == "0" {
            let spin = first(14) == "1";
            let own = asked.entry(there.clone()).or_default();
            let turned = own.spin.replace(spin).is_some_and(|before| before != spin);
            if turned && own.edge.is_none() {
                own.edge = Some(now);
                trips.extend(
                    asked
                        .entry(back)
                        .or_default()
                        .edge
                        .take()
                        .map(|since| now - since),
                );
            }
        }
    }
    trips
}

#[test]
fn round_trips_are_those_of_the_stamps_and_bits_that_tshark_reads() {
    let Some(corpora) = crate::corpora::corpora() else {
        return;
    };
    if std::process::Command::new("tshark")
        .arg("-v")
        .output()
        .is_err()
    {
        return crate::corpora::skipped("no tshark");
    }
    for name in [
        "zeek/Traces/wikipedia.pcap",
        "zeek/Traces/http/get.pcap",
        "nfstream/tests/pcaps/instagram.pcap",
        "big/ndpi-4.2/netflix.pcap",
        "ndpi/tests/cfgs/default/pcap/quic-v2.pcapng",
    ] {
        let capture = corpora.join(name);
        let expected = round_trips_by_tshark(&capture);
        let observe = "observe { interval = 1d, timeout = 1d } - output";
        let done = run(&[
            "stack",
            "run",
            "-q",
            "--json",
            "-r",
            capture.to_str().unwrap(),
            "-e",
            observe,
        ]);
        let text = String::from_utf8(done.stdout).unwrap();
        let rows = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows: Vec<Value> = rows.filter(|row| row["trips"].as_u64() > Some(0)).collect();
        let count: u64 = rows.iter().map(|row| number(row, "trips")).sum();
        let seconds =
            |field: &'static str| rows.iter().map(move |row| row[field].as_f64().unwrap());
        assert_eq!(count, expected.len() as u64, "{name}");
        assert!(count > 0, "{name}");
        let sum = expected.iter().sum::<u64>() as f64 / 1e9;
        assert!(
            (seconds("trips_sum").sum::<f64>() - sum).abs() < 1e-6,
            "{name}"
        );
        let ends =
            [expected.iter().min(), expected.iter().max()].map(|it| *it.unwrap() as f64 / 1e9);
        let least = seconds("trip_least").fold(f64::INFINITY, f64::min);
        let most = seconds("trip_most").fold(0.0, f64::max);
        assert!(
            (least - ends[0]).abs() < 1e-8 && (most - ends[1]).abs() < 1e-8,
            "{name}"
        );
    }
}
