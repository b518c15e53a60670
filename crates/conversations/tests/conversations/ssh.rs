//! SSH records of captures against what other tools say of them.

use crate::conversations::{against_zeek, differences, endpoints, same, zeek_endpoints};
use crate::corpora::corpora;

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
