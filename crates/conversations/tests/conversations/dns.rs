//! DNS records of captures against what other tools say of them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::conversations::{
    Compared, against_zeek, differences, endpoints, has_endpoints, records, same, text,
    zeek_endpoints,
};
use crate::corpora::corpora;
use serde_json::Value;

/// Types of records that Zeek writes as they are, or nearly so; the others it only names.
const PLAIN: [&str; 9] = ["A", "AAAA", "CNAME", "NS", "PTR", "MX", "SRV", "TXT", "SPF"];

#[test]
fn zeek_dns_logs() {
    let Some(corpora) = corpora() else { return };
    against_zeek(
        &corpora,
        "dns.log",
        "dns",
        ZEEK_EXCEPTIONS,
        |name, row, ours| {
            halve(ours);
            let key = zeek_endpoints(row);
            let of = |name: &str| match row.get(name).map_or("", String::as_str) {
                "-" => "",
                other => other,
            };
            let what = format!("{name} {key} {} {}", of("trans_id"), of("rcode_name"));
            // Of a reply alone Zeek's originator is who sent it; some logs have no addresses.
            let (one, other) = key.split_once('-').unwrap();
            let back = format!("{other}-{one}");
            let has_ends = has_endpoints(row);
            let has_reply = !of("rcode").is_empty();
            let is = |record: &Value| {
                // A query that came again is one of ours, and one each of Zeek's.
                let is_again = record["repeats"] != 0 && record["state"] != "no_request";
                (!has_ends || endpoints(record) == key || endpoints(record) == back)
                    && (of("trans_id").is_empty() || text(record, "trans_id") == of("trans_id"))
                    && (record["rcode"].is_null() != has_reply
                        || !has_reply && is_again
                        || !row.contains_key("rcode"))
                    && (of("query").is_empty() || name_of(record) == of("query").to_lowercase())
            };
            let Some(place) = ours.iter().position(is) else {
                return Some((what, vec![format!("not found {}", of("query"))]));
            };
            let record = ours[place].clone();
            match record["repeats"].as_u64() {
                // The query once more, alone.
                Some(repeats) if repeats > 0 => {
                    ours[place]["repeats"] = (repeats - 1).into();
                    if has_reply {
                        ours[place]["rcode"] = Value::Null;
                    }
                }
                _ => {
                    ours.remove(place);
                }
            }
            let mut names = same(["proto"]).to_vec();
            names.push(("query", "query"));
            // Zeek knows questions by their queries only, and not those with a bad checksum.
            if !of("qtype_name").is_empty() {
                names.extend([
                    ("qclass_name", "qclass"),
                    ("qtype_name", "qtype"),
                    ("RD", "rd"),
                ]);
            }
            if has_reply {
                names.push(("rcode_name", "rcode"));
            }
            // What else a reply says Zeek notes with the first answer that it reads.
            if !of("rtt").is_empty() {
                names.extend([("AA", "aa"), ("TC", "tc"), ("RA", "ra"), ("rtt", "latency")]);
            }
            let types = record["answer_types"].as_array().cloned();
            let types = types.unwrap_or_default();
            let is_plain = |kind: &Value| kind.as_str().is_some_and(|it| PLAIN.contains(&it));
            if has_reply && types.iter().all(is_plain) {
                names.push(("answers", "answers"));
            }
            if !of("TTLs").is_empty() {
                names.push(("TTLs", "ttls"));
            }
            let differences = differences(row, &record, &names, |name, ours, theirs| match name {
                "query" if theirs.is_empty() => (String::new(), theirs),
                "query" => (name_of(&record), theirs.to_lowercase()),
                "answers" => (
                    zeek_answers(&record["answers"], &types),
                    theirs.to_lowercase(),
                ),
                "ttls" => (ours, theirs.replace(".000000", "")),
                "latency" => (rounded(&ours), rounded(&theirs)),
                "qclass" => (ours.replace("IN", "C_INTERNET"), theirs),
                _ => {
                    let theirs = match theirs.as_str() {
                        "T" => "yes",
                        "F" => "no",
                        "*" => "ANY",
                        // NetBIOS has other names for the same numbers.
                        "NIMLOC" if ours == "NB" => "NB",
                        "query-65534" => "TYPE65534",
                        other => other,
                    };
                    (ours, theirs.to_owned())
                }
            });
            Some((what, differences))
        },
    );
}

/// Zeek matches no replies that come from elsewhere than where the query went: what is one record of ours, of
/// multicast DNS, is a row for the query to the group and one for the reply to it.
fn halve(ours: &mut Vec<Value>) {
    let is_whole = |it: &&mut Value| it["service"] == "mdns" && it["state"] == "matched";
    let mut replies = Vec::new();
    for query in ours.iter_mut().filter(is_whole) {
        let mut reply = query.clone();
        let is_v4 = text(query, "src_ip").contains('.');
        let group = if is_v4 { "224.0.0.251" } else { "ff02::fb" };
        reply["src_ip"] = query["dst_ip"].clone();
        reply["dst_ip"] = group.into();
        reply["state"] = "no_request".into();
        reply["repeats"] = 0.into();
        query["dst_ip"] = group.into();
        query["state"] = "no_reply".into();
        for name in ["rcode", "answers", "answer_types", "ttls"] {
            query[name] = Value::Null;
        }
        replies.push(reply);
    }
    ours.extend(replies);
}

/// The name that is asked for, of NetBIOS without its kind.
fn name_of(record: &Value) -> String {
    let name = text(record, "query").to_lowercase();
    let plain = name.split('<').next().unwrap_or_default();
    plain.to_owned()
}

/// A time to the microsecond.
fn rounded(text: &str) -> String {
    let number: Option<f64> = text.parse().ok();
    number.map_or_else(String::new, |it| format!("{it:.5}"))
}

/// Answers as Zeek writes them.
fn zeek_answers(answers: &Value, types: &[Value]) -> String {
    let empty = Vec::new();
    let answers = answers.as_array().unwrap_or(&empty).iter().zip(types);
    let texts = answers.map(|(answer, kind)| {
        let answer = answer.as_str().unwrap_or_default();
        let words: Vec<&str> = answer.split(' ').collect();
        match kind.as_str().unwrap_or_default() {
            kind @ ("TXT" | "SPF") => {
                let texts = answer.split('"').filter(|text| !text.trim().is_empty());
                let texts = texts.map(|text| format!("{kind} {} {text}", text.len()));
                texts.collect::<Vec<_>>().join(" ")
            }
            "MX" => words.last().copied().unwrap_or_default().to_owned(),
            "SRV" => words.last().copied().unwrap_or_default().to_owned(),
            _ => answer.to_owned(),
        }
    });
    texts.collect::<Vec<_>>().join(",").to_lowercase()
}

const ZEEK_EXCEPTIONS: &[(&str, &str)] = &[(
    "dns.dynamic-update",
    "Zeek names what an update changes and lists its conditions and changes as answers; we name its zone",
)];

/// A message in a text of dnscap's.
#[derive(Debug, Default)]
struct Dumped {
    file: String,
    time: String,
    client: String,
    server: String,
    is_reply: bool,
    id: String,
    flags: String,
    rcode: String,
    question: Vec<String>,
    /// Type, time to live, data of each answer.
    answers: Vec<[String; 3]>,
    counts: [usize; 3],
}

/// Messages in a text of dnscap's: a line for each, with the next ones behind backslashes.
fn dumped(text: &str) -> Vec<Dumped> {
    let text = text.replace("\\\n\t", "\u{1}");
    let mut messages = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('\u{1}').map(str::trim);
        let (Some(head), Some(ends), Some(dns)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let Some(dns) = dns.strip_prefix("dns ") else {
            continue;
        };
        let words: Vec<&str> = head.split(' ').collect();
        let [_, date, time, _, file, ..] = words.as_slice() else {
            continue;
        };
        let end = |text: &str| text.trim_matches('[').replace("].", ":");
        let (source, destination) = ends.split_once(' ').unwrap();
        let (source, destination) = (end(source), end(destination));
        let fields: Vec<&str> = dns.split(',').collect();
        let [_, rcode, id, flags] = fields.as_slice() else {
            continue;
        };
        let is_reply = flags.split('|').any(|flag| flag == "qr");
        let (client, server) = match is_reply {
            true => (destination, source),
            false => (source, destination),
        };
        let mut message = Dumped {
            file: (*file).to_owned(),
            time: format!("{date}T{time}"),
            client,
            server,
            is_reply,
            id: (*id).to_owned(),
            flags: (*flags).to_owned(),
            rcode: (*rcode).to_owned(),
            ..Dumped::default()
        };
        // Sections: each is how many there are, and so many records.
        let words: Vec<&str> = parts.flat_map(|part| part.split(' ')).collect();
        let mut words = words.into_iter().filter(|word| !word.is_empty());
        for section in 0..4 {
            let count = words.next().and_then(|count| count.parse().ok());
            for _ in 0..count.unwrap_or(0) {
                let fields: Vec<String> = words
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .map(str::to_owned)
                    .collect();
                match section {
                    0 => message.question = fields,
                    1 => {
                        if let [_, _, kind, ttl, data @ ..] = fields.as_slice() {
                            message
                                .answers
                                .push([kind.clone(), ttl.clone(), data.join(",")]);
                        }
                    }
                    _ => {}
                }
            }
            if section > 0 {
                message.counts[section - 1] = count.unwrap_or(0);
            }
        }
        messages.push(message);
    }
    messages
}

fn ends(record: &Value) -> [String; 2] {
    ["src", "dst"].map(|side| {
        let part = |name: &str| text(record, &format!("{side}_{name}"));
        format!("{}:{}", part("ip"), part("port"))
    })
}

/// Time of a record as dnscap writes it, to the microsecond: of the query, or of the reply.
fn time_of(record: &Value, is_reply: bool) -> String {
    let time = text(record, "time");
    let (rest, fraction) = time.trim_end_matches('Z').split_once('.').unwrap();
    let latency = record["latency"].as_f64().unwrap_or(0.0);
    let add = if is_reply {
        (latency * 1e9).round() as u64
    } else {
        0
    };
    let nanos = fraction.parse::<u64>().unwrap() + add;
    let seconds: u64 = rest[rest.len() - 2..].parse().unwrap();
    format!(
        "{:02}.{:06}",
        (seconds + nanos / 1_000_000_000) % 60,
        nanos % 1_000_000_000 / 1000
    )
}

#[test]
fn dnscap_texts() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("dnscap/src/test");
    let mut compared = Compared::default();
    // The others are of the same captures, with options.
    let texts = [
        "dns.gold",
        "dnspad.gold",
        "edns.gold",
        "ether_padd.gold",
        "sll2.gold",
        "test10.gold",
        "test8.gold",
        "vlan11.gold",
    ];
    for name in texts {
        let text_of = std::fs::read_to_string(root.join(name)).unwrap();
        let mut ours: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for message in dumped(&text_of) {
            // Some runs are repeated with other options.
            if !seen.insert(format!("{message:?}")) {
                continue;
            }
            let ours = ours
                .entry(message.file.clone())
                .or_insert_with(|| records(&root.join(&message.file), "dns"));
            let what = format!("{name} {} {} {}", message.file, message.time, message.id);
            compared.note(&what, &dumped_differences(&message, ours), &[]);
        }
    }
    compared.show("dnscap");
    compared.assert_equal();
}

fn dumped_differences(message: &Dumped, ours: &[Value]) -> Vec<String> {
    let none = if message.is_reply {
        "no_reply"
    } else {
        "no_request"
    };
    let is = |record: &&Value| {
        ends(record) == [message.client.clone(), message.server.clone()]
            && text(record, "trans_id") == message.id
            && record["state"] != none
    };
    let is_then = |record: &&Value| message.time.ends_with(&time_of(record, message.is_reply));
    let all = || ours.iter().filter(is);
    // Over TCP dnscap takes another packet's time, and we wait at holes.
    let any = message.file.contains("tcp").then(|| all().next()).flatten();
    let Some(record) = all().find(is_then).or(any) else {
        return vec!["not found".to_owned()];
    };
    let mut differences = Vec::new();
    let mut expect = |name: &str, theirs: String| {
        let ours = text(record, name);
        if ours != theirs {
            differences.push(format!("{name} {ours:?} not {theirs:?}"));
        }
    };
    // Names of dnscap's end in a dot.
    let plain = |text: &str| match text {
        "." => ".".to_owned(),
        text => text.strip_suffix('.').unwrap_or(text).to_owned(),
    };
    if let [name, class, kind] = message.question.as_slice() {
        expect("query", plain(name));
        expect("qclass", class.clone());
        expect("qtype", kind.clone());
    }
    let has = |flag: &str| match message.flags.split('|').any(|it| it == flag) {
        true => "yes".to_owned(),
        false => "no".to_owned(),
    };
    expect("rd", has("rd"));
    if message.is_reply {
        for flag in ["aa", "tc", "ra", "ad"] {
            expect(flag, has(flag));
        }
        expect("rcode", message.rcode.clone());
        for (name, count) in ["answer_count", "authority_count", "additional_count"]
            .into_iter()
            .zip(message.counts)
        {
            expect(name, count.to_string());
        }
        let list = |place: usize| {
            message
                .answers
                .iter()
                .map(|it| it[place].clone())
                .collect::<Vec<_>>()
                .join(",")
        };
        expect("answer_types", list(0));
        expect("ttls", list(1));
        // Numbers in brackets are lengths of what dnscap does not write.
        let data: Vec<String> = message.answers.iter().map(|it| plain(&it[2])).collect();
        let ours = record["answers"].as_array().cloned().unwrap_or_default();
        for (ours, theirs) in ours.iter().zip(&data) {
            let ours = ours.as_str().unwrap_or_default();
            let ours = ours.trim_matches('"').replace(' ', ",");
            if !theirs.starts_with('[') && ours != *theirs {
                differences.push(format!("answer {ours:?} not {theirs:?}"));
            }
        }
    }
    differences
}

/// Pairs of query and reply, as dnsjit finds them.
#[test]
fn dnsjit_pairs() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("dnsjit/src/test");
    let pairs = std::fs::read_to_string(root.join("test2.gold")).unwrap();
    let ours = records(&root.join("dns.pcap"), "dns");
    let mut compared = Compared::default();
    for line in pairs.lines().skip(1) {
        let words: Vec<&str> = line.split('\t').collect();
        let [client, server, id, rcode, name, kind] = words.as_slice() else {
            continue;
        };
        // `<12>` before a label says where it stands.
        let labels = name
            .split('<')
            .filter_map(|label| Some(label.split_once('>')?.1));
        let name: String = labels.collect();
        let wanted = [
            ("src_ip", *client),
            ("dst_ip", *server),
            ("trans_id", *id),
            ("rcode", *rcode),
            ("query", name.trim_end_matches('.')),
            ("qtype", *kind),
            ("state", "matched"),
        ];
        let is = |record: &&Value| {
            wanted
                .iter()
                .all(|(name, value)| text(record, name) == *value)
        };
        let found = ours.iter().filter(is).count();
        let differences: Vec<String> = (found != 1)
            .then(|| format!("{found} of {wanted:?}"))
            .into_iter()
            .collect();
        compared.note(line, &differences, &[]);
    }
    compared.show("dnsjit");
    assert_eq!(
        compared.records,
        ours.iter().filter(|it| it["state"] == "matched").count()
    );
    compared.assert_equal();
}

/// The only record of a capture of packetbeat's.
fn packetbeats(corpora: &Path, name: &str) -> Value {
    let path = corpora.join("packetbeat/packetbeat/pcaps").join(name);
    let mut ours = records(&path, "dns");
    assert_eq!(ours.len(), 1, "{name}: {ours:?}");
    ours.remove(0)
}

/// What packetbeat's tests assert.
#[test]
fn packetbeat_assertions() {
    let Some(corpora) = corpora() else { return };
    let fields = [
        "src_ip", "src_port", "dst_ip", "dst_port", "proto", "opcode", "qclass", "qtype", "query",
        "rcode", "state",
    ];
    let show = |record: &Value| fields.map(|name| text(record, name)).join(" ");
    let record = packetbeats(&corpora, "dns_google_com.pcap");
    assert_eq!(
        show(&record),
        "192.168.238.68 60893 192.168.238.1 53 udp query IN A google.com NOERROR matched"
    );
    assert_eq!(text(&record, "latency"), "0.061782");
    assert!(text(&record, "time").starts_with("2015-08-27T08:00:55.638"));
    assert_eq!(
        (text(&record, "request_bytes"), text(&record, "reply_bytes")),
        ("28".to_owned(), "284".to_owned())
    );
    assert_eq!(text(&record, "answer_types"), vec!["A"; 16].join(","));
    let record = packetbeats(&corpora, "dns_ns.pcap");
    assert!(
        show(&record).ends_with("udp query IN NS elastic.co NOERROR matched"),
        "{record}"
    );
    let record = packetbeats(&corpora, "dns_txt.pcap");
    assert!(
        show(&record).ends_with("8.8.8.8 53 udp query IN TXT elastic.co NOERROR matched"),
        "{record}"
    );
    assert_eq!(text(&record, "answer_types"), "TXT,TXT");
    assert!(
        text(&record, "answers").contains("include:_spf.google.com"),
        "{record}"
    );
    let record = packetbeats(&corpora, "dns_udp_edns_ds.pcap");
    assert!(
        show(&record).ends_with("udp query IN DS ietf.org NOERROR matched"),
        "{record}"
    );
    // Its size is that of the reply.
    assert_eq!(text(&record, "dnssec_ok"), "yes");
    assert_eq!(record["answers"].as_array().map(Vec::len), Some(3));
}
