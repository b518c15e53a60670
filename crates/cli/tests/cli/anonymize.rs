//! `anonymize` as users run it, and policies that are forced: nothing that a policy takes out is in any output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command_support::policy;
use crate::corpora::skipped;

fn flowgauge(folder: &Path, line: &str, forced: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null());
    match forced {
        Some(policy) => command.env("FLOWGAUGE_ANONYMIZE", policy),
        None => command.env_remove("FLOWGAUGE_ANONYMIZE"),
    };
    command.output().unwrap()
}

fn succeeds(folder: &Path, line: &str) -> Output {
    let output = flowgauge(folder, line, None);
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A folder with traces of all kinds and the policies that come with the program.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for preset in ["zoo", "web"] {
        succeeds(
            folder.path(),
            &format!("generate -q {preset} --flows 60 --seed 7 -w {preset}.pcap"),
        );
    }
    for name in ["headers.toml", "web.toml"] {
        policy(folder.path(), name);
    }
    folder
}

/// Addresses of a trace, as text and as bytes, and names in it.
fn secrets(folder: &Path, trace: &str) -> BTreeSet<Vec<u8>> {
    let flows = succeeds(folder, &format!("flows -q --json -r {trace}"));
    let mut found = BTreeSet::new();
    for line in String::from_utf8(flows.stdout).unwrap().lines() {
        let flow: serde_json::Value = serde_json::from_str(line).unwrap();
        for name in ["src_ip", "dst_ip"] {
            let Some(text) = flow[name].as_str() else {
                continue;
            };
            found.insert(text.as_bytes().to_vec());
            match text.parse::<IpAddr>().unwrap() {
                IpAddr::V4(ip) => _ = found.insert(ip.octets().to_vec()),
                IpAddr::V6(ip) => _ = found.insert(ip.octets().to_vec()),
            }
        }
    }
    let stack = "tcpscan - tcpcnxdemux < tcpreseq - http > output";
    fs::write(folder.join("http.stack"), format!("[stack]\n{stack}\n")).unwrap();
    let records = succeeds(folder, &format!("stack run -q -f http.stack -r {trace}"));
    for line in String::from_utf8(records.stdout).unwrap().lines() {
        let Ok(row) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        for name in ["host", "uri", "user_agent", "referrer"] {
            let text = row[name].as_str().unwrap_or_default();
            if text.len() > 6 {
                found.insert(text.as_bytes().to_vec());
            }
        }
    }
    // What is too plain is found by accident.
    found.retain(|it| {
        let distinct: BTreeSet<&u8> = it.iter().collect();
        distinct.len() > 3 && it.iter().filter(|byte| **byte == 0).count() * 2 < it.len().max(5)
    });
    assert!(found.len() > 20, "{}", found.len());
    found
}

fn assert_without(what: &str, bytes: &[u8], secrets: &BTreeSet<Vec<u8>>) {
    for secret in secrets {
        let found = bytes
            .windows(secret.len())
            .position(|it| it == secret.as_slice());
        assert_eq!(found, None, "{what}: {:?}", String::from_utf8_lossy(secret));
    }
}

#[test]
fn a_key_is_made_for_its_owner_and_serves_again() {
    let folder = folder();
    let folder = folder.path();
    let run = |to: &str| {
        let output = succeeds(
            folder,
            &format!("anonymize -r zoo.pcap -w {to} --policy headers.toml"),
        );
        (
            fs::read(folder.join(to)).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let key = folder.join("anonymize.key");
    fs::remove_file(&key).unwrap();
    let (first, said) = run("one.pcap");
    assert!(
        said.contains("packets") && said.contains("received"),
        "{said}"
    );
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&key).unwrap();
    assert!(text.trim().len() == 64 && !said.contains(text.trim()));
    assert!(
        said.contains("there was no key anonymize.key: it was made"),
        "{said}"
    );
    let (second, said) = run("two.pcap");
    assert_eq!(first, second);
    assert!(!said.contains("it was made"), "{said}");
    // A file was made, whoever wants to hear of it or not; in a stack, too.
    for quiet in [
        "anonymize -q -r zoo.pcap -w q.pcap --policy headers.toml",
        "stack run -q -r zoo.pcap -e anonymize{policy=headers.toml}discard",
    ] {
        fs::remove_file(&key).unwrap();
        let said = succeeds(folder, quiet).stderr;
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("it was made"), "{quiet}: {said}");
    }
    fs::remove_file(&key).unwrap();
    std::os::unix::fs::symlink("/nonexistent", &key).unwrap();
    let output = flowgauge(
        folder,
        "anonymize -r zoo.pcap -w x.pcap --policy headers.toml",
        None,
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no key where this symbolic link leads") && said.contains("hint:"),
        "{said}"
    );
    // Another key, other addresses.
    fs::remove_file(&key).unwrap();
    assert_ne!(first, run("three.pcap").0);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = flowgauge(
        folder,
        "anonymize -r zoo.pcap -w x.pcap --policy headers.toml",
        None,
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("others than its owner") && said.contains("chmod 600"),
        "{said}"
    );
    assert!(!folder.join("x.pcap").exists());
}

#[test]
fn mistakes_in_policies_are_told_with_their_place_and_rule() {
    let folder = folder();
    let folder = folder.path();
    for (policy, parts) in [
        (
            "[ip]\nttl = \"PREFIX_PRESERVING\"\n",
            &["p.toml:2", "rule prefix-preserving"][..],
        ),
        (
            "[ip]\n\nsrc_ip = \"UNCHANGED\"\n",
            &["p.toml:3", "rule both-directions"],
        ),
        (
            "rules = [\n  \"TCP,FLAGS,STRIP,1\",\n]\n",
            &["p.toml:2", "rule strip"],
        ),
        (
            "[tcp]\npayload = \"UNCHANGED\"\n[http]\nhost = \"ZERO\"\n",
            &["p.toml:4", "rule segments"],
        ),
        ("[ip\n", &["p.toml:1"]),
        ("keys = \"x\"\n", &["p.toml:1", "no \"keys\""]),
        ("[ipx]\nsrc = \"ZERO\"\n", &["p.toml:2", "no protocol"]),
        ("[ip]\nttl = 5\n", &["p.toml:2", "a text or a list"]),
        ("key = \"p.toml\"\n", &["p.toml"]),
    ] {
        fs::write(folder.join("p.toml"), policy).unwrap();
        let output = flowgauge(
            folder,
            "anonymize -r zoo.pcap -w out.pcap --policy p.toml",
            None,
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{policy}: {said}");
        for part in parts {
            assert!(said.contains(part), "{policy}: no {part} in {said}");
        }
        assert!(said.contains("hint: ") || policy == "[ip\n", "{said}");
        assert!(!folder.join("out.pcap").exists(), "{policy}");
    }
}

#[test]
fn nothing_of_a_trace_is_in_what_is_written() {
    let folder = folder();
    let folder = folder.path();
    for (trace, policy) in [
        ("zoo.pcap", "headers.toml"),
        ("web.pcap", "headers.toml"),
        ("web.pcap", "web.toml"),
    ] {
        let secrets = secrets(folder, trace);
        for name in ["out.pcap", "out.pcapng"] {
            let line = format!("anonymize --stats -r {trace} -w {name} --policy {policy}");
            let output = succeeds(folder, &line);
            assert_without(&line, &fs::read(folder.join(name)).unwrap(), &secrets);
            assert_without(&line, &output.stderr, &secrets);
            assert_without(&line, &output.stdout, &secrets);
            let count = |file: &str| {
                let flows = succeeds(folder, &format!("packets -q --json -r {file}"));
                String::from_utf8(flows.stdout).unwrap().lines().count()
            };
            assert_eq!(count(trace), count(name), "{line}");
        }
    }
}

/// A policy that is forced: whatever is asked, what it takes out is in no output.
#[test]
fn a_forced_policy_is_before_everything() {
    let folder = folder();
    let folder = folder.path();
    let forced = folder.join("headers.toml");
    for trace in ["zoo.pcap", "web.pcap"] {
        let secrets = secrets(folder, trace);
        for line in [
            "flows --json --stats",
            "flows --table --top 5 --by src_ip --sum src_bytes",
            "streams --list --hash --json",
            "streams --out DIR",
            "packets --json -X",
            "packets --table -vv -e -X",
            "report",
            "report --json",
            "match -e GET",
            "log --flows --format json",
            "log --flows --format eve",
            "log --flows --format zeek -w DIR",
            "capture -w FILE.pcap",
            "capture -w FILE.pcapng",
            "anonymize -w FILE.pcap --policy web.toml",
            "stack run -f http.stack",
        ] {
            for file in ["DIR", "FILE.pcap", "FILE.pcapng"] {
                let _ = fs::remove_dir_all(folder.join(file));
                let _ = fs::remove_file(folder.join(file));
            }
            let (command, rest) = match line.strip_prefix("stack run") {
                Some(rest) => ("stack run", rest),
                None => line.split_at(line.find(' ').unwrap_or(line.len())),
            };
            let line = format!("{command} -r {trace} {rest}");
            let output = flowgauge(folder, &line, Some(&forced));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{line}: {said}");
            assert!(said.contains("packets are anonymized by"), "{line}: {said}");
            assert_without(&line, &output.stdout, &secrets);
            assert_without(&line, &output.stderr, &secrets);
            for file in files_below(folder, &["DIR", "FILE.pcap", "FILE.pcapng"]) {
                assert_without(&line, &fs::read(&file).unwrap(), &secrets);
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                assert_without(&line, name.as_bytes(), &secrets);
            }
        }
    }
    // A filter would tell who is who.
    let flows = succeeds(folder, "flows -q --json -r zoo.pcap");
    let mut found = 0;
    for line in String::from_utf8(flows.stdout).unwrap().lines() {
        let flow: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(address) = flow["src_ip"].as_str().filter(|it| it.contains('.')) else {
            continue;
        };
        let line = format!("flows -q --json -r zoo.pcap host {address}");
        found += usize::from(!succeeds(folder, &line).stdout.is_empty());
        let output = flowgauge(folder, &line, Some(&forced));
        assert!(output.stdout.is_empty(), "{address}");
    }
    assert!(found > 5, "{found}");
}

#[test]
fn what_cannot_apply_a_forced_policy_refuses_to_run() {
    let folder = folder();
    let folder = folder.path();
    let forced = folder.join("headers.toml");
    fs::write(
        folder.join("source.stack"),
        "[stack]\npcap { zoo.pcap } packets output { out.json }\n",
    )
    .unwrap();
    for line in [
        "sensor run --interface lo",
        "stack bench -e count -r zoo.pcap",
        "stack run -f source.stack",
    ] {
        let output = flowgauge(folder, line, Some(&forced));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("is forced"), "{line}: {said}");
        assert!(!folder.join("out.json").exists(), "{line}");
    }
    // One that cannot be read stops everything.
    fs::write(folder.join("broken.toml"), "[ip]\nttl = \"NOTHING\"\n").unwrap();
    for name in ["broken.toml", "missing.toml"] {
        let output = flowgauge(folder, "flows -r zoo.pcap", Some(&folder.join(name)));
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}

/// What pcapng files have beside packets.
#[test]
fn metadata_of_captures_does_not_come_through() {
    let folder = folder();
    let folder = folder.path();
    fs::write(
        folder.join("secrets.txt"),
        "CLIENT_RANDOM 00 hidden-in-secrets\n",
    )
    .unwrap();
    let made = Command::new("editcap")
        .args([
            "-F",
            "pcapng",
            "-a",
            "1:hidden-in-comment",
            "--capture-comment",
            "hidden-in-section",
        ])
        .args([
            "--inject-secrets",
            "tls,secrets.txt",
            "zoo.pcap",
            "with.pcapng",
        ])
        .current_dir(folder)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return skipped("no editcap");
    }
    let is_in = |name: &str| {
        let bytes = fs::read(folder.join(name)).unwrap();
        bytes.windows(7).any(|it| it == b"hidden-")
    };
    assert!(is_in("with.pcapng"));
    for name in ["out.pcap", "out.pcapng"] {
        succeeds(
            folder,
            &format!("anonymize -r with.pcapng -w {name} --policy headers.toml"),
        );
        assert!(!is_in(name), "{name}");
    }
}

const TSHARK_FIELDS: [&str; 12] = [
    "frame.len",
    "ip.proto",
    "ip.ttl",
    "ip.len",
    "ipv6.plen",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.flags",
    "udp.srcport",
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
];

/// tshark finds in what is written what it found before, but for addresses, which are one for one.
#[test]
fn tshark_reads_the_same_but_for_addresses() {
    let folder = folder();
    let folder = folder.path();
    let policy = "\
[ethernet]
src_mac = \"UNCHANGED\"
dst_mac = \"UNCHANGED\"
vlan_id = \"UNCHANGED\"
[ip]
src_ip = \"PREFIX_PRESERVING\"
dst_ip = \"PREFIX_PRESERVING\"
ttl = \"UNCHANGED\"
tos = \"UNCHANGED\"
id = \"UNCHANGED\"
[tcp]
src_port = \"UNCHANGED\"
dst_port = \"UNCHANGED\"
sequence_number = \"UNCHANGED\"
ack_number = \"UNCHANGED\"
window = \"UNCHANGED\"
tcp_options = \"UNCHANGED\"
payload = \"UNCHANGED\"
[udp]
src_port = \"UNCHANGED\"
dst_port = \"UNCHANGED\"
payload = \"UNCHANGED\"
[icmp]
payload = \"UNCHANGED\"
";
    fs::write(folder.join("p.toml"), policy).unwrap();
    let output = succeeds(folder, "anonymize -r zoo.pcap -w out.pcap --policy p.toml");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("no key in the policy") && said.contains("TCP,PAYLOAD is kept"),
        "{said}"
    );
    let Some(before) = tshark(&folder.join("zoo.pcap")) else {
        return skipped("no tshark");
    };
    let after = tshark(&folder.join("out.pcap")).unwrap();
    assert_eq!(before.len(), after.len());
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    for (number, (one, other)) in before.iter().zip(&after).enumerate() {
        assert_eq!(one[4..], other[4..], "packet {}", number + 1);
        for (one, other) in one[..4].iter().zip(&other[..4]) {
            assert_eq!(one.is_empty(), other.is_empty());
            let ones = one.split(',').zip(other.split(','));
            for (one, other) in ones.filter(|it| !it.0.is_empty()) {
                assert_eq!(
                    pairs
                        .entry(one.to_owned())
                        .or_insert_with(|| other.to_owned()),
                    other
                );
            }
        }
    }
    let different: BTreeSet<&String> = pairs.values().collect();
    assert!(
        pairs.len() > 20 && different.len() == pairs.len(),
        "{} {}",
        pairs.len(),
        different.len()
    );
}

/// Addresses, then the other fields, of each packet.
fn tshark(path: &Path) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    for layer in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{layer}.check_checksum:TRUE")]);
    }
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields"]);
    for field in ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"]
        .into_iter()
        .chain(TSHARK_FIELDS)
    {
        command.args(["-e", field]);
    }
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect(),
    )
}

fn files_below(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in names {
        let path = folder.join(name);
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            found.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}
