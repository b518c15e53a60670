//! Flow counters against the session records of Arkime and the flows of nfstream.
//!
//! * Arkime: packets and frame bytes of each direction, and which TCP flags were seen (it counts them,
//!   a flow record only says which); Community ID and payload bytes are reported beside them.
//!   The configuration of its tests (`tests/config.test.ini` of its repository) sets `icmpTimeout=60` and
//!   leaves the others at the program's defaults; when a session ends depends on when it looks, too. The
//!   timeouts used here (TCP none, UDP 62 s) are those that the records show.
//! * nfstream: packets and frame bytes of both directions together. Its tables name no addresses,
//!   so the flows of a capture are compared as a whole, best pairs first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::support;
use crate::support::compare::{Exceptions, Tally, pair};
use crate::support::flows::{Conversation, Flow, Side, conversation};
use serde_json::Value;

/// The smallest shares of equal records: what differs is an exception, and counts as different.
const ARKIME_SHARE: f64 = 0.89;
const NFSTREAM_SHARE: f64 = 0.93;

// --- Arkime -------------------------------------------------------------------------------------

/// Arkime's names of counts of segments, and the flag that they are about.
const ARKIME_FLAGS: [(&str, char); 6] = [
    ("syn", 'S'),
    ("syn-ack", 'S'),
    ("fin", 'F'),
    ("rst", 'R'),
    ("psh", 'P'),
    ("urg", 'U'),
];

/// One of Arkime's sessions.
struct Session {
    source: (IpAddr, u64),
    destination: (IpAddr, u64),
    protocol: u64,
    sides: [Side; 2],
    community_id: Option<String>,
    /// TCP flags seen, as letters; `None` where it counted none.
    flags: Option<BTreeSet<char>>,
    outer: Vec<String>,
}

#[test]
fn counters_equal_arkimes() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("arkime_exceptions.tsv");
    let folder = corpora.join("arkime");
    let cases = support::files_below(&folder, &|path| {
        path.extension()
            .is_some_and(|extension| extension == "test")
            && capture_of(path).is_some()
    });
    let mut tally = Tally::default();
    for part in support::in_parallel(&cases, 2, |case| compare_arkime(case, &exceptions, None)) {
        tally.merge(part);
    }
    support::say(&tally.table("Arkime sessions"));
    tally.assert_share("Arkime sessions", ARKIME_SHARE);
    exceptions.assert_used();

    // One further packet must be noticed, and a flag that was not sent.
    let further: &dyn Fn(&mut Flow) = &|flow| flow.sides[0].packets += 1;
    let urgent: &dyn Fn(&mut Flow) = &|flow| flow.tcp_flags.push('U');
    for change in [further, urgent] {
        let noticed = cases.iter().take(40).any(|case| {
            let plain = compare_arkime(case, &exceptions, None);
            let changed = compare_arkime(case, &exceptions, Some(change));
            plain.equal > 0 && changed.unknown.len() > plain.unknown.len()
        });
        assert!(noticed, "a change went unnoticed");
    }
}

fn capture_of(case: &Path) -> Option<PathBuf> {
    ["pcap", "pcapng"]
        .iter()
        .map(|extension| case.with_extension(extension))
        .find(|path| path.is_file())
}

fn compare_arkime(
    case: &Path,
    exceptions: &Exceptions,
    change: Option<&dyn Fn(&mut Flow)>,
) -> Tally {
    let mut tally = Tally::default();
    let name = file_name(case);
    let text = std::fs::read(case).unwrap_or_else(|error| panic!("{name}: {error}"));
    let Ok(test) = serde_json::from_slice::<Value>(&text) else {
        tally.judge(exceptions, &name, "text", Some("it is not JSON".to_owned()));
        return tally;
    };
    let mut sessions = Vec::new();
    for session in test["sessions3"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
    {
        match Session::read(&session["body"]) {
            Ok(session) => sessions.push(session),
            Err(reason) => tally.exclude(reason, 1),
        }
    }
    let Some(capture) = capture_of(case) else {
        return tally;
    };
    // Arkime's timeouts as they show in these records; it does not look at checksums.
    let options = [
        "--checksums",
        "ignore",
        "--idle-timeout",
        "tcp=86400,udp=62,other=86400",
        "--vlan-aware",
        "no",
    ];
    let mut flows = read_flows(&capture, &options);
    if let Some(change) = change {
        flows.iter_mut().for_each(change);
    }
    let mut groups: BTreeMap<Conversation, (Vec<&Session>, Vec<Flow>)> = BTreeMap::new();
    for session in &sessions {
        groups
            .entry(session.conversation())
            .or_default()
            .0
            .push(session);
    }
    for flow in flows {
        let number = protocol_number(&flow).to_string();
        let ports = has_ports(&number);
        let port = |port| if ports { port } else { 0 };
        let source = (flow.source, port(flow.source_port));
        let destination = (flow.destination, port(flow.destination_port));
        let key = conversation(source, destination, &number);
        groups.entry(key).or_default().1.push(flow);
    }
    for ((_, _, protocol), (sessions, flows)) in groups {
        let flows = if has_ports(&protocol) {
            flows
        } else {
            merged(flows)
        };
        let partners = pair(&sessions, &flows, |session, flow| {
            -(session.differences(flow).len() as i64)
        });
        let same_sum = sessions.len() != flows.len()
            && sum_of(&mut sessions.iter().map(|session| session.sides))
                == sum_of(&mut flows.iter().map(|flow| flow.sides));
        let taken: BTreeSet<usize> = partners.iter().flatten().copied().collect();
        for (session, partner) in sessions.iter().zip(partners) {
            let partner = partner.map(|index| &flows[index]);
            session.compare(&name, partner, same_sum, exceptions, &mut tally);
        }
        let extra = flows
            .iter()
            .enumerate()
            .filter(|(index, _)| !taken.contains(index));
        for (number, (_, flow)) in extra.enumerate().filter(|_| !same_sum) {
            let (source, destination) = (flow.source, flow.destination);
            let label = format!("+{number} {protocol} {source} > {destination}");
            tally.judge(
                exceptions,
                &name,
                &label,
                Some("no such session".to_owned()),
            );
        }
    }
    tally
}

impl Session {
    fn read(body: &Value) -> Result<Session, &'static str> {
        let protocol = body["ipProtocol"].as_u64().unwrap_or(0);
        if protocol == 0 {
            return Err("not IP: no flow record");
        }
        let end = |name: &str| {
            let address = body[name]["ip"].as_str().and_then(|text| text.parse().ok());
            let port = if has_ports(&protocol.to_string()) {
                body[name]["port"].as_u64()
            } else {
                None
            };
            address.map(|address| (address, port.unwrap_or(0)))
        };
        let (Some(source), Some(destination)) = (end("source"), end("destination")) else {
            return Err("the session names no addresses");
        };
        let number = |object: &str, name: &str| body[object][name].as_u64().unwrap_or(0);
        let side = |end: &str, payload: &str| Side {
            packets: number(end, "packets"),
            bytes: number(end, "bytes"),
            ip_bytes: 0,
            payload_bytes: number(payload, "bytes"),
        };
        let flags = body["tcpflags"].as_object().map(|counts| {
            let seen = |name: &str| counts.get(name).and_then(Value::as_u64) > Some(0);
            // Pure acknowledgements are what it counts as "ack".
            ARKIME_FLAGS
                .iter()
                .filter(|(name, _)| seen(name))
                .map(|(_, letter)| *letter)
                .collect()
        });
        let outer = ["srcOuterIp", "dstOuterIp"]
            .iter()
            .filter_map(|name| body[*name].as_array());
        Ok(Session {
            source,
            destination,
            protocol,
            sides: [side("source", "client"), side("destination", "server")],
            community_id: body["network"]["community_id"].as_str().map(str::to_owned),
            flags,
            outer: outer
                .flatten()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect(),
        })
    }

    fn conversation(&self) -> Conversation {
        conversation(self.source, self.destination, &self.protocol.to_string())
    }

    fn compare(
        &self,
        case: &str,
        partner: Option<&Flow>,
        same_sum: bool,
        exceptions: &Exceptions,
        tally: &mut Tally,
    ) {
        let label = format!(
            "{} {}:{} > {}:{}",
            self.protocol, self.source.0, self.source.1, self.destination.0, self.destination.1
        );
        let differences = partner.map_or_else(
            || vec!["no such flow".to_owned()],
            |flow| self.differences(flow),
        );
        if let Some(flow) = partner {
            if let Some(id) = &self.community_id {
                tally.field("community_id", *id == flow.community_id);
                if *id != flow.community_id {
                    show(&format!(
                        "community_id {case} {label} {id} is {}",
                        flow.community_id
                    ));
                }
            }
            let payload = self.oriented(flow).map(|side| side.payload_bytes);
            if payload != self.sides.map(|side| side.payload_bytes) {
                show(&format!(
                    "payload {case} {label} {:?} is {payload:?}",
                    self.sides.map(|side| side.payload_bytes)
                ));
            }
            tally.field(
                "payload bytes",
                payload == self.sides.map(|side| side.payload_bytes),
            );
        }
        if differences.is_empty() {
            tally.equal += 1;
        } else if same_sum {
            let reason = "cut into sessions at other times; the packets and bytes add up";
            show(&format!("cut {case} {label} {}", differences.join(", ")));
            *tally.explained.entry(reason.to_owned()).or_default() += 1;
        } else if let Some(reason) = exceptions.reason(case, &label) {
            *tally.explained.entry(reason.to_owned()).or_default() += 1;
        } else {
            tally.unknown.push(format!(
                "{case}\t{label}\t{} {:?}",
                differences.join(", "),
                self.outer
            ));
        }
    }

    fn oriented(&self, flow: &Flow) -> [Side; 2] {
        let port = |port| {
            if has_ports(&self.protocol.to_string()) {
                port
            } else {
                0
            }
        };
        if (flow.source, port(flow.source_port)) == self.source {
            flow.sides
        } else {
            [flow.sides[1], flow.sides[0]]
        }
    }

    fn differences(&self, flow: &Flow) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(theirs) = &self.flags {
            let letters = ARKIME_FLAGS.map(|(_, letter)| letter);
            let seen = flow.tcp_flags.chars();
            let ours: BTreeSet<char> = seen.filter(|one| letters.contains(one)).collect();
            if ours != *theirs {
                found.push(format!("TCP flags {theirs:?} are {ours:?}"));
            }
        }
        for ((ours, theirs), name) in self
            .oriented(flow)
            .iter()
            .zip(&self.sides)
            .zip(["source", "destination"])
        {
            for (what, ours, theirs) in [
                ("packets", ours.packets, theirs.packets),
                ("bytes", ours.bytes, theirs.bytes),
            ] {
                if ours != theirs {
                    found.push(format!("{name} {what} {theirs} is {ours}"));
                }
            }
        }
        found
    }
}

/// Prints what does not decide, where it is asked for.
fn show(text: &str) {
    if std::env::var_os("FLOWGAUGE_SHOW_FIELDS").is_some() {
        support::say(&format!("{text}\n"));
    }
}

/// Packets and bytes of all sides together.
fn sum_of(sides: &mut dyn Iterator<Item = [Side; 2]>) -> [u64; 2] {
    sides.flatten().fold([0, 0], |[packets, bytes], side| {
        [packets + side.packets, bytes + side.bytes]
    })
}

/// Arkime and nfstream keep one session for all messages of a protocol without ports.
fn merged(flows: Vec<Flow>) -> Vec<Flow> {
    let mut flows = flows.into_iter();
    let Some(mut first) = flows.next() else {
        return Vec::new();
    };
    for flow in flows {
        add(&mut first, &flow);
    }
    vec![first]
}

/// Adds the counters of a further record about the same conversation.
fn add(to: &mut Flow, flow: &Flow) {
    let same = (flow.source, flow.source_port) == (to.source, to.source_port)
        || flow.source == to.source && flow.source != flow.destination;
    let sides = if same {
        flow.sides
    } else {
        [flow.sides[1], flow.sides[0]]
    };
    for (sum, side) in to.sides.iter_mut().zip(sides) {
        sum.packets += side.packets;
        sum.bytes += side.bytes;
        sum.payload_bytes += side.payload_bytes;
    }
    to.fragments += flow.fragments;
}

fn has_ports(protocol: &str) -> bool {
    matches!(protocol, "6" | "17" | "132")
}

fn protocol_number(flow: &Flow) -> u64 {
    match flow.protocol.as_str() {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        "icmp" if flow.source.is_ipv4() => 1,
        "icmp" | "icmp6" | "icmpv6" => 58,
        number => number.parse().unwrap_or(0),
    }
}

// --- nfstream -----------------------------------------------------------------------------------

#[test]
fn counters_equal_nfstreams() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("nfstream_exceptions.tsv");
    let elsewhere = captures_elsewhere(&corpora);
    let tables = support::files_below(&corpora.join("nfstream/tests/results"), &|_| true);
    let mut tally = Tally::default();
    for part in support::in_parallel(&tables, 2, |table| {
        compare_nfstream(&corpora, table, &elsewhere, &exceptions, 0)
    }) {
        tally.merge(part);
    }
    support::say(&tally.table("nfstream flows"));
    tally.assert_share("nfstream flows", NFSTREAM_SHARE);
    exceptions.assert_used();

    let noticed = tables.iter().take(20).any(|table| {
        let plain = compare_nfstream(&corpora, table, &elsewhere, &exceptions, 0);
        let changed = compare_nfstream(&corpora, table, &elsewhere, &exceptions, 1);
        plain.equal > 0 && !changed.unknown.is_empty()
    });
    assert!(noticed, "a further packet went unnoticed");
}

/// Captures that are kept once for several collections: nfstream's name to the file.
fn captures_elsewhere(corpora: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for map in support::files_below(&corpora.join("nfstream"), &|path| {
        path.extension().is_some_and(|extension| extension == "tsv")
    }) {
        let text = std::fs::read_to_string(&map).unwrap_or_else(|it| panic!("{map:?}: {it}"));
        for line in text.lines() {
            if let Some((name, path)) = line.split_once('\t') {
                found.insert(file_name(Path::new(name)), corpora.join(path));
            }
        }
    }
    for path in support::files_below(&corpora.join("big"), &|path| {
        path.extension()
            .is_some_and(|extension| extension.to_string_lossy().starts_with("pcap"))
    }) {
        found.entry(file_name(&path)).or_insert(path);
    }
    found
}

fn compare_nfstream(
    corpora: &Path,
    table: &Path,
    elsewhere: &BTreeMap<String, PathBuf>,
    exceptions: &Exceptions,
    further_packets: u64,
) -> Tally {
    let mut tally = Tally::default();
    let name = file_name(table);
    let text = std::fs::read_to_string(table).unwrap_or_else(|it| panic!("{table:?}: {it}"));
    let expected = read_nfstream(&text);
    let here = corpora.join("nfstream/tests/pcaps").join(&name);
    let capture = if here.is_file() {
        Some(&here)
    } else {
        elsewhere.get(&name)
    };
    let Some(capture) = capture.filter(|path| path.is_file()) else {
        match exceptions.reason(&name, "capture") {
            Some(reason) => tally.exclude(reason, expected.len() as u64),
            None => tally
                .unknown
                .push(format!("{name}\tcapture\tit is not there")),
        }
        return tally;
    };
    let options = [
        "--checksums",
        "ignore",
        "--idle-timeout",
        "120",
        "--active-timeout",
        "1800",
        "--vlan-aware",
        "yes",
    ];
    // It keeps one flow for all messages of a protocol without ports.
    let mut with_ports: Vec<Flow> = Vec::new();
    let mut last: BTreeMap<(Conversation, String), usize> = BTreeMap::new();
    let mut without: BTreeMap<Conversation, Vec<Flow>> = BTreeMap::new();
    let mut flows = read_flows(capture, &options);
    flows.sort_by(|a, b| a.start.total_cmp(&b.start));
    for flow in flows {
        if has_ports(&protocol_number(&flow).to_string()) {
            // It does not end a flow with its connection: a port used again goes on in it.
            let key = (flow.conversation(), flow.vlan.to_string());
            match last.get(&key).map(|&index| &mut with_ports[index]) {
                Some(before)
                    if flow.start - before.end < 120.0 && flow.end - before.start < 1800.0 =>
                {
                    before.end = before.end.max(flow.end);
                    add(before, &flow);
                }
                _ => {
                    last.insert(key, with_ports.len());
                    with_ports.push(flow);
                }
            }
        } else {
            let key = conversation((flow.source, 0), (flow.destination, 0), &flow.protocol);
            without.entry(key).or_default().push(flow);
        }
    }
    with_ports.extend(without.into_values().flat_map(merged));
    let found: Vec<[u64; 2]> = with_ports
        .iter()
        .map(|flow| {
            let [source, destination] = flow.sides;
            [
                source.packets + destination.packets + further_packets,
                source.bytes + destination.bytes,
            ]
        })
        .collect();
    let distance = |want: &[u64; 2], have: &[u64; 2]| {
        -((want[0].abs_diff(have[0]) * 100 + want[1].abs_diff(have[1])) as i64)
    };
    let partners = pair(&expected, &found, distance);
    let taken: BTreeSet<usize> = partners.iter().flatten().copied().collect();
    for (index, (want, partner)) in expected.iter().zip(partners).enumerate() {
        let have = partner.map(|index| found[index]);
        let difference = (have != Some(*want)).then(|| {
            format!(
                "{want:?} is {have:?} of {} and {}",
                expected.len(),
                found.len()
            )
        });
        tally.judge(exceptions, &name, &index.to_string(), difference);
    }
    let extra = found
        .iter()
        .enumerate()
        .filter(|(index, _)| !taken.contains(index));
    for (number, (_, have)) in extra.enumerate() {
        let difference = format!("{have:?} is of no flow");
        tally.judge(exceptions, &name, &format!("+{number}"), Some(difference));
    }
    tally
}

/// Packets and bytes of each flow.
fn read_nfstream(text: &str) -> Vec<[u64; 2]> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |name: &str| names.iter().position(|column| *column == name);
    let (Some(packets), Some(bytes)) = (
        column("bidirectional_packets"),
        column("bidirectional_bytes"),
    ) else {
        return Vec::new();
    };
    lines
        .filter_map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            Some([
                values.get(packets)?.parse().ok()?,
                values.get(bytes)?.parse().ok()?,
            ])
        })
        .collect()
}

fn read_flows(capture: &Path, options: &[&str]) -> Vec<Flow> {
    let outcome = support::flowgauge::flows(capture, options, None);
    outcome.json_lines().iter().map(Flow::from_json).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[test]
fn reads_nfstreams_table() {
    let text = "id,bidirectional_packets,bidirectional_bytes,application_name\n0,102,14076,ICMP\n1,7,546,DNS\n";
    assert_eq!(read_nfstream(text), [[102, 14076], [7, 546]]);
    assert!(read_nfstream("id\n0\n").is_empty());
}

#[test]
fn reads_arkimes_session() {
    let body: Value = serde_json::json!({
        "ipProtocol": 6,
        "source": {"ip": "10.0.0.1", "port": 1000, "packets": 5, "bytes": 487},
        "destination": {"ip": "10.0.0.2", "port": 80, "packets": 3, "bytes": 313},
        "client": {"bytes": 145}, "server": {"bytes": 107},
        "tcpflags": {"syn": 1}, "network": {"community_id": "1:x"}
    });
    let Ok(session) = Session::read(&body) else {
        panic!("refused");
    };
    assert_eq!(session.sides[1].payload_bytes, 107);
    assert_eq!(session.destination.1, 80);
    assert_eq!(session.flags, Some(BTreeSet::from(['S'])));
    assert!(Session::read(&serde_json::json!({"source": {"ip": "10.0.0.1"}})).is_err());
}
