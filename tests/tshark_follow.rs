//! What `streams --follow` prints of connections against tshark's `follow`, where tshark is installed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::support;
use serde_json::Value;

/// Captures of text and binary protocols, of IPv4 and IPv6, with retransmissions, segments out of order and holes.
const SAMPLE: [&str; 12] = [
    "zeek/Traces/wikipedia.pcap",
    "zeek/Traces/http/get.pcap",
    "zeek/Traces/ftp/ipv6-violation.pcap",
    "zeek/Traces/smtp/rfc3030-bdat-multipart.pcap",
    "zeek/Traces/smtp/smtp-bdat-gap.pcap",
    "zeek/Traces/pop3/pop3.pcap",
    "zeek/Traces/tls/tls1_1.pcap",
    "zeek/Traces/tcp/handshake-reorder.pcap",
    "zeek/Traces/http/entity_gap2.pcap",
    "packetbeat/packetbeat/pcaps/mysql_with_gap.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/one_tcp_stream.pcap",
    "pcapplusplus/Tests/Pcap++Test/PcapExamples/three_http_streams.pcap",
];

/// A connection as tshark shows it.
struct Theirs {
    /// Its endpoints, the one that tshark calls Node 0 first.
    nodes: [String; 2],
    /// What stands below them.
    text: String,
}

/// What one side says: whether it is Node 0, bytes missing before, bytes.
type Turns = Vec<(bool, u64, Vec<u8>)>;

#[test]
fn turns_equal_tsharks() {
    const TEST: &str = "tshark_follow";
    let Some(corpora) = support::corpora() else {
        return;
    };
    if Command::new("tshark").arg("--version").output().is_err() {
        support::skip(TEST, "no tshark");
        return;
    }
    let (mut compared, mut holes, mut texts) = (0, 0, 0);
    for name in SAMPLE {
        let capture = corpora.join(name);
        assert!(capture.is_file(), "{name}");
        let raw = of_tshark(&capture, "raw");
        let (ascii, hex) = (of_tshark(&capture, "ascii"), of_tshark(&capture, "hex"));
        let mut known = BTreeSet::new();
        for ((raw, ascii), hex) in raw.iter().zip(&ascii).zip(&hex) {
            // Of several connections between the same endpoints the first one is followed. A reset alone is none.
            let mut ends = raw.nodes.clone();
            ends.sort_unstable();
            if !known.insert(ends) || raw.text.trim().is_empty() {
                continue;
            }
            let theirs = turns_of_raw(&raw.text);
            let ours = ours(&capture, raw);
            let what = format!("{name} {:?}", raw.nodes);
            compared += 1;
            if theirs.iter().any(|(_, missing, _)| *missing > 0) {
                // Holes are given up at other times: what the other side says meanwhile stands elsewhere.
                holes += 1;
                for side in [true, false] {
                    assert_eq!(of_side(&ours, side), of_side(&theirs, side), "{what}");
                }
                continue;
            }
            assert_eq!(ours, theirs, "{what}");
            let is_initiator = initiates(&capture, raw);
            if theirs.is_empty() || !is_initiator {
                continue;
            }
            texts += 1;
            // tshark has a dot for a tabulator, too.
            let said = follow(&capture, raw, &[]).replace('\t', ".");
            assert_eq!(said, as_text(&ascii.text), "{what}");
            let dump = follow(&capture, raw, &["--hex"]);
            assert_eq!(joined(&dump), joined(&hex.text), "{what}");
        }
    }
    support::say(&format!(
        "\ntshark: {compared} connections are equal, {holes} of them with holes, {texts} as text and dump, too\n"
    ));
    assert!(compared > 20, "only {compared} connections");
    assert!(holes > 0 && texts > 10, "{holes} with holes, {texts} texts");
}

/// All TCP connections of a capture, in this style.
fn of_tshark(capture: &Path, style: &str) -> Vec<Theirs> {
    let run = |arguments: &[String]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(capture).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fields = ["-T", "fields", "-e", "tcp.stream"].map(str::to_owned);
    let numbers: BTreeSet<u32> = run(&fields)
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    let one = |number: &u32| {
        let arguments = [
            "-q".to_owned(),
            "-z".to_owned(),
            format!("follow,tcp,{style},{number}"),
        ];
        let text = run(&arguments);
        let node = |number: usize| {
            let name = format!("Node {number}: ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap().to_owned()
        };
        let nodes = [node(0), node(1)];
        let (_, behind) = text.split_once("\nNode 1: ").unwrap();
        let (_, body) = behind.split_once('\n').unwrap();
        let body = body.strip_suffix("\n").unwrap();
        let (body, _) = body.rsplit_once("=====\n").unwrap_or((body, ""));
        let body = body.trim_end_matches('=').to_owned();
        Theirs { nodes, text: body }
    };
    numbers.iter().map(one).collect()
}

/// Our output for the connection.
fn follow(capture: &Path, connection: &Theirs, options: &[&str]) -> String {
    let [one, other] = &connection.nodes;
    let id = format!("tcp {one} {other}");
    let mut arguments = vec!["streams", "-q", "--checksums", "ignore", "--follow", &id];
    arguments.extend(options);
    arguments.extend(["-r", capture.to_str().unwrap()]);
    let outcome = support::flowgauge::run(arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    String::from_utf8(outcome.stdout).unwrap()
}

fn records(capture: &Path, connection: &Theirs) -> Vec<Value> {
    let text = follow(capture, connection, &["--json"]);
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Whether that is Node 0 which we call the initiator.
fn initiates(capture: &Path, connection: &Theirs) -> bool {
    let first = &records(capture, connection)[0];
    (first["direction"] == "initiator") == is_of_node_0(first, connection)
}

fn is_of_node_0(record: &Value, connection: &Theirs) -> bool {
    let address = record["src_ip"].as_str().unwrap();
    let port = &record["src_port"];
    let shown = match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    };
    connection.nodes[0] == shown
}

fn ours(capture: &Path, connection: &Theirs) -> Turns {
    let mut turns = Turns::new();
    for record in records(capture, connection) {
        let bytes = bytes(record["data"].as_str().unwrap());
        assert_eq!(record["bytes"], bytes.len());
        let missing = record["missing_bytes"].as_u64().unwrap();
        add(
            &mut turns,
            is_of_node_0(&record, connection),
            missing,
            bytes,
        );
    }
    turns
}

fn turns_of_raw(text: &str) -> Turns {
    let mut turns = Turns::new();
    let mut missing = [0; 2];
    for line in text.lines() {
        let side = !line.starts_with('\t');
        let bytes = bytes(line.trim());
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let hole = said
            .strip_prefix('[')
            .and_then(|it| it.split_once(" bytes missing in capture file]"));
        match hole {
            Some((number, _)) => missing[usize::from(side)] = number.parse().unwrap(),
            None => {
                let missing = core::mem::take(&mut missing[usize::from(side)]);
                add(&mut turns, side, missing, bytes);
            }
        }
    }
    turns
}

fn add(turns: &mut Turns, side: bool, missing: u64, bytes: Vec<u8>) {
    match turns.last_mut() {
        Some((last, _, said)) if *last == side && missing == 0 => said.extend(bytes),
        _ => turns.push((side, missing, bytes)),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// What a side says, as pieces without holes; holes at the end are not tshark's.
fn of_side(turns: &Turns, side: bool) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for (_, missing, bytes) in turns.iter().filter(|(of, ..)| *of == side) {
        match pieces.last_mut() {
            Some((_, before)) if *missing == 0 => before.extend(bytes),
            _ => pieces.push((*missing, bytes.clone())),
        }
    }
    pieces.retain(|(_, bytes)| !bytes.is_empty());
    pieces
}

/// tshark's pieces of text, of which each stands behind its length, as our lines.
fn as_text(theirs: &str) -> String {
    let mut turns: Vec<(bool, String)> = Vec::new();
    let mut rest = theirs;
    while let Some((length, behind)) = rest.split_once('\n') {
        let side = !length.starts_with('\t');
        let (piece, behind) = behind.split_at(length.trim().parse().unwrap());
        rest = behind.strip_prefix('\n').unwrap();
        match turns.last_mut() {
            Some((last, said)) if *last == side => said.push_str(piece),
            _ => turns.push((side, piece.to_owned())),
        }
    }
    let mut lines = String::new();
    for (side, said) in turns {
        let said = said.replace("\r\n", "\n").replace('\r', ".");
        for line in said.strip_suffix('\n').unwrap_or(&said).split('\n') {
            writeln!(lines, "{} {line}", if side { '>' } else { '<' }).unwrap();
        }
    }
    lines
}

/// A dump without the line breaks that stand where a segment ends: bytes, and what stands for them, of each turn.
fn joined(dump: &str) -> Vec<(bool, u64, String, String)> {
    let mut turns: Vec<(bool, u64, String, String)> = Vec::new();
    for line in dump.lines() {
        let side = !line.starts_with('\t');
        let line = line.trim_start_matches('\t');
        let offset = u64::from_str_radix(&line[..8], 16).unwrap();
        let hex: String = line[10..line.len().min(58)]
            .chars()
            .filter(|it| *it != ' ')
            .collect();
        assert_eq!(&line[8..10], "  ");
        // Between the halves of a line is a blank, at its end there is none.
        let shown = line.get(60..).unwrap_or_default();
        let shown = match shown.len() > 8 {
            true => format!("{}{}", &shown[..8], &shown[9..]),
            false => shown.to_owned(),
        };
        let shown = format!("{shown:width$}", width = hex.len() / 2);
        match turns.last_mut() {
            Some((last, begin, before, seen)) if *last == side => {
                assert_eq!(*begin + before.len() as u64 / 2, offset);
                before.push_str(&hex);
                seen.push_str(&shown);
            }
            _ => turns.push((side, offset, hex, shown)),
        }
    }
    turns
}
