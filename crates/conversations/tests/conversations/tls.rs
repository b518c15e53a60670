//! TLS records of captures against what other tools say of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::conversations::{
    Compared, against_zeek, differences, endpoints, has_endpoints, records, same, text,
    zeek_endpoints,
};
use crate::corpora::{corpora, skipped};
use serde_json::Value;

#[test]
fn zeek_ssl_logs() {
    let Some(corpora) = corpora() else { return };
    let protocols = "tls,quic";
    against_zeek(
        &corpora,
        "ssl.log",
        protocols,
        EXCEPTIONS,
        |name, row, ours| {
            let version = row.get("version").map_or("-", String::as_str);
            let key = zeek_endpoints(row);
            let what = format!("{name} {key} {version}");
            // Some logs have no addresses.
            let has_ends = has_endpoints(row);
            // The client's hello came from where Zeek's responder is.
            let is_turned = row.get("ssl_history").is_some_and(|it| it.starts_with('^'));
            let (one, other) = key.split_once('-').unwrap();
            let back = format!("{other}-{one}");
            let is = |it: &&Value| {
                let ends = endpoints(it);
                let is_its = !has_ends || ends == key || is_turned && ends == back;
                it["event_type"] != "x509" && is_its
            };
            let Some(record) = ours.iter().find(is) else {
                return Some((what, vec!["not found".to_owned()]));
            };
            // Messages of TLS within QUIC's packets are not counted.
            let names: &[(&str, &str)] = match record["event_type"] == "quic" {
                true => &[("version", "tls_version")],
                false => &[
                    ("version", "version"),
                    ("next_protocol", "next_protocol"),
                    ("established", "established"),
                    ("ssl_history", "history"),
                ],
            };
            let always = [
                ("cipher", "cipher"),
                ("curve", "curve"),
                ("server_name", "server_name"),
                ("last_alert", "last_alert"),
                ("cert_chain_fps", "chain"),
                ("client_cert_chain_fps", "client_chain"),
            ];
            let mut names = [names, &always].concat();
            // Without a server's hello it is not known.
            if version != "-" {
                names.push(("resumed", "resumed"));
            }
            let differences = differences(row, record, &names, |mine, ours, theirs| {
                let theirs = match theirs.as_str() {
                    "T" => "yes",
                    "F" => "no",
                    other => other,
                };
                match mine {
                    "version" | "tls_version" => {
                        (ours.replace("TLS 1.", "TLSv1"), theirs.to_owned())
                    }
                    // Zeek took the server for the client at first.
                    "history" => (ours, theirs.trim_start_matches('^').to_owned()),
                    _ => (ours, theirs.to_owned()),
                }
            });
            Some((what, differences))
        },
    );
}

const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "tls-1.2-late-protocol-error",
        "Zeek gives the connection up at the server's ChangeCipherSpec, we note it",
    ),
    (
        "tls13-experiment",
        "an experiment with TLS 1.3: Zeek takes the session that the server repeats for a resumed one",
    ),
    (
        "quic-go.retry 193.167.0.100:42834-193.167.100.100:443 4a8294bf9201d6cf",
        "Zeek has a record for what came before the Retry packet, we one for the connection",
    ),
    (
        "exception-policy",
        "inline: Suricata drops the connection before its hello",
    ),
    (
        "bug-2646",
        "a value over two lines, which this reader of YAML does not put together",
    ),
    (
        "pgsql-upgrade-tls",
        "TLS behind PostgreSQL's own request, of which the server's answer is a byte",
    ),
    (
        "tls13-draft14",
        "Suricata has one name for drafts before the 16th",
    ),
    ("capwap_data", "within a tunnel that is not decoded"),
    (
        "heuristic_tcp_ack_payload",
        "acknowledgements have two bytes of padding as payload, which come first in the stream",
    ),
    (
        "smtp-starttls",
        "the name is that of the server's greeting, not of the hello",
    ),
    (
        "steam.pcapng",
        "nDPI's JA3S is that of the HelloRetryRequest, ours of the ServerHello",
    ),
    (
        "dtls.pcap 127.0.0.1",
        "DTLS 1.3: nDPI's JA4 has not the version in the extension, and its JA3S is that of the \
         HelloRetryRequest",
    ),
    ("tls_invalid_reads", "records that lie about their lengths"),
    (
        "tls_cipher_lens",
        "a hello that lies about its lengths: tshark reads on behind the end of the list",
    ),
    (
        "dlt_ppp.pcap",
        "TLS 1.3 in its extension of versions, which nDPI does not find",
    ),
];

/// What nDPI says of a flow: `[name: value]` between brackets.
fn ndpi_flows(path: &Path) -> Vec<(String, BTreeMap<String, String>)> {
    let text = std::fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&text);
    let mut flows = Vec::new();
    for line in text.lines() {
        let Some((_, rest)) = line
            .split_once("\tTCP ")
            .or_else(|| line.split_once("\tUDP "))
        else {
            continue;
        };
        let Some((ends, rest)) = rest.split_once(" [") else {
            continue;
        };
        let Some((client, server)) = ends.split_once(" <-> ").or_else(|| ends.split_once(" -> "))
        else {
            continue;
        };
        let key = format!("{client}-{server}").replace(['[', ']'], "");
        let parts = rest
            .split(['[', ']'])
            .filter_map(|part| part.split_once(": "));
        let parts = parts.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        flows.push((key, parts.collect()));
    }
    flows
}

/// Without what nDPI does in ways of its own: it writes `i` unless it knows a name, from wherever, where
/// the description asks whether there is the extension; takes other letters of the protocol's name; and
/// hashes an empty list of extensions.
fn ndpi_ja4(text: &str) -> String {
    let mut text = text.replace("_e3b0c44298fc", "_000000000000");
    if text.len() == 36 && text.is_ascii() {
        text.replace_range(3..4, "*");
        text.replace_range(8..10, "**");
    }
    text
}

#[test]
fn ndpi_results() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("ndpi/tests/cfgs/default");
    let (mut compared, mut fields) = (Compared::default(), 0);
    let mut results: Vec<_> = std::fs::read_dir(root.join("result")).unwrap().collect();
    results.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    for entry in results {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let flows = ndpi_flows(&path);
        let flows = flows
            .into_iter()
            .filter(|(_, parts)| parts.contains_key("JA4"));
        let flows: Vec<_> = flows.collect();
        let trace = root.join("pcap").join(&name);
        if flows.is_empty() || !trace.is_file() {
            continue;
        }
        let ours = records(&trace, "tls,quic");
        for (key, parts) in flows {
            let what = format!("{name} {key}");
            let (client, server) = key.split_once('-').unwrap();
            let back = format!("{server}-{client}");
            let found = ours
                .iter()
                .find(|it| it["event_type"] != "x509" && [&key, &back].contains(&&endpoints(it)));
            let Some(record) = found else {
                compared.note(&what, &[format!("not found {}", parts["JA4"])], EXCEPTIONS);
                continue;
            };
            let mut differences = Vec::new();
            for (theirs, mine) in [
                ("JA4", "ja4"),
                ("JA3C", "ja3"),
                ("JA3S", "ja3s"),
                ("Hostname/SNI", "server_name"),
                ("(Negotiated) ALPN", "next_protocol"),
                ("(Advertised) ALPNs", "client_protocols"),
                ("Cipher", "cipher"),
                ("Certificate SHA-1", "sha1"),
                ("Validity", "validity"),
            ] {
                let Some(theirs) = parts.get(theirs) else {
                    continue;
                };
                fields += 1;
                let ours = match mine {
                    "validity" => {
                        let date = |name| text(record, name)[..19].replace('T', " ");
                        format!("{} - {}", date("not_before"), date("not_after"))
                    }
                    "sha1" => {
                        let digits = text(record, mine).to_uppercase();
                        let pairs: Vec<&str> = (0..digits.len() / 2)
                            .map(|at| &digits[2 * at..2 * at + 2])
                            .collect();
                        pairs.join(":")
                    }
                    "client_protocols" => text(record, mine).replace(',', ";"),
                    mine => text(record, mine),
                };
                // Verdicts behind it.
                let theirs = theirs.split(" (").next().unwrap();
                let (ours, theirs) = match mine {
                    "ja4" => (ndpi_ja4(&ours), ndpi_ja4(theirs)),
                    _ => (ours, theirs.to_owned()),
                };
                if !ours.eq_ignore_ascii_case(&theirs) {
                    differences.push(format!("{mine} {ours:?} not {theirs:?}"));
                }
            }
            compared.note(&what, &differences, EXCEPTIONS);
        }
    }
    compared.show("nDPI");
    eprintln!("{fields} fields");
    compared.assert_equal();
}

/// What tshark says: its own JA3 and JA3S.
#[test]
fn tshark_ja3() {
    let Some(corpora) = corpora() else { return };
    if Command::new("tshark").arg("--version").output().is_err() {
        return skipped("no tshark");
    }
    let root = corpora.join("ndpi/tests/cfgs/default");
    let mut compared = Compared::default();
    let mut traces: Vec<_> = std::fs::read_dir(root.join("pcap"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    traces.sort();
    for trace in traces {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        let result = std::fs::read(root.join("result").join(format!("{name}.out")));
        if !String::from_utf8_lossy(&result.unwrap_or_default()).contains("JA4: t") {
            continue;
        }
        let output = Command::new("tshark")
            .args([
                "-r",
                trace.to_str().unwrap(),
                "-Y",
                "tls.handshake.ja3 || tls.handshake.ja3s",
            ])
            .args(["-T", "fields", "-E", "occurrence=f"])
            .args([
                "-e",
                "tcp.stream",
                "-e",
                "tls.handshake.ja3",
                "-e",
                "tls.handshake.ja3s",
            ])
            .output()
            .unwrap();
        let mut theirs: Vec<(String, String)> = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut parts = line.split('\t');
            let _stream = parts.next();
            theirs.push((
                parts.next().unwrap_or("").to_owned(),
                parts.next().unwrap_or("").to_owned(),
            ));
        }
        let ours = records(&trace, "tls,quic");
        let has = |name: &str, value: &str| ours.iter().any(|it| text(it, name) == *value);
        for (ja3, ja3s) in theirs {
            for (name, value) in [("ja3", ja3), ("ja3s", ja3s)] {
                if !value.is_empty() {
                    let differences: Vec<String> = (!has(name, &value))
                        .then(|| format!("no {value}"))
                        .into_iter()
                        .collect();
                    compared.note(
                        &format!("{name} {}", trace.display()),
                        &differences,
                        EXCEPTIONS,
                    );
                }
            }
        }
    }
    compared.show("tshark");
    compared.assert_equal();
}

#[test]
fn zeek_quic_logs() {
    let Some(corpora) = corpora() else { return };
    against_zeek(
        &corpora,
        "quic.log",
        "quic",
        EXCEPTIONS,
        |name, row, ours| {
            let key = zeek_endpoints(row);
            // Histories of QUIC's packets are not kept.
            if !row.contains_key("server_name") {
                return None;
            }
            let id = row.get("client_initial_dcid").map_or("", String::as_str);
            let what = format!("{name} {key} {id}");
            let has_ends = has_endpoints(row);
            let is = |it: &&Value| !has_ends || endpoints(it) == key;
            let Some(record) = ours.iter().find(is) else {
                return Some((what, vec!["not found".to_owned()]));
            };
            let names = same([
                "version",
                "client_initial_dcid",
                "client_scid",
                "server_scid",
                "server_name",
                "client_protocol",
            ]);
            let differences = differences(row, record, &names, |_, ours, theirs| {
                match theirs == "quicv2" {
                    true => (ours, "2".to_owned()),
                    false => (ours, theirs),
                }
            });
            Some((what, differences))
        },
    );
}
