//! SSH records of captures against what other tools say of them.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../../tests/shared/run.rs"]
mod support;

use conversations::{
    Compared, against_zeek, differences, endpoints, records, same, suricata_checks, text,
    zeek_endpoints,
};
use corpora::corpora;
use serde_json::Value;

const EXCEPTIONS: &[(&str, &str)] = &[(
    "protocol-analyzer-tcp-over-udp",
    "SSH over UDP, which a script of the test makes Zeek read",
)];

#[test]
fn zeek_ssh_logs() {
    let Some(corpora) = corpora() else { return };
    against_zeek(&corpora, "ssh.log", "ssh", EXCEPTIONS, |name, row, ours| {
        if !row.contains_key("id.orig_h") {
            return None;
        }
        let key = zeek_endpoints(row);
        let what = format!("{name} {key}");
        let Some(record) = ours.iter().find(|record| endpoints(record) == key) else {
            return Some((what, vec!["not found".to_owned()]));
        };
        let names = same([
            "version",
            "client",
            "server",
            "cipher_alg",
            "mac_alg",
            "compression_alg",
            "kex_alg",
            "host_key_alg",
            "host_key_fingerprint",
        ]);
        let differences = differences(row, record, &names, |name, mut ours, theirs| {
            if name == "host_key_fingerprint" {
                // Zeek writes its first 32 characters; and none where it saw one side only.
                ours.truncate(theirs.len());
            }
            (ours, theirs)
        });
        Some((what, differences))
    });
}

#[test]
fn suricata_ssh_events() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    for (name, trace, count, wanted) in suricata_checks(&corpora, "ssh") {
        let fields: Vec<(&str, &String)> = [
            ("ssh.client.proto_version", "client_proto"),
            ("ssh.server.proto_version", "server_proto"),
            ("ssh.client.software_version", "client_software"),
            ("ssh.server.software_version", "server_software"),
            ("ssh.client.hassh.hash", "hassh"),
            ("ssh.server.hassh.hash", "hassh_server"),
        ]
        .into_iter()
        .filter_map(|(theirs, ours)| Some((ours, wanted.get(theirs)?)))
        .collect();
        if fields.is_empty() {
            continue;
        }
        let ours = records(&trace, "ssh");
        let of = |record: &Value, name: &str| {
            let Some((side, part)) = name.split_once('_') else {
                return text(record, name);
            };
            let line = text(record, side);
            let mut parts = line.splitn(3, '-').skip(1);
            match part {
                "proto" => parts.next().unwrap_or_default().to_owned(),
                "software" => {
                    let rest = parts.nth(1).unwrap_or_default();
                    rest.split(' ').next().unwrap_or_default().to_owned()
                }
                _ => text(record, name),
            }
        };
        let found = ours
            .iter()
            .filter(|record| {
                fields
                    .iter()
                    .all(|(name, value)| of(record, name) == **value)
            })
            .count();
        let differences: Vec<String> = (found != count)
            .then(|| format!("{found} not {count} with {fields:?}"))
            .into_iter()
            .collect();
        compared.note(&name, &differences, EXCEPTIONS);
    }
    compared.show("Suricata ssh");
    compared.assert_equal();
}
