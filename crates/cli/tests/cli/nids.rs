//! `examples/pcap/nids` under `flowgauge locality`: its alerts are those of a plain search, in whatever order packets come.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flowgauge_capture::PacketSource as _;
use flowgauge_wire::{DecodedBatch, Decoder};

use crate::command_support::{Folder, printed, run, sorted, stderr, stdout, text};

#[path = "../../../matcher/examples/support/snort.rs"]
#[allow(dead_code, reason = "the example uses more of it")]
mod snort;

/// Each kind of ports and contents that the example knows. Those from 100 on match nothing.
const RULES: &str = r#"
# A comment, and then what packets of the trace have.
alert tcp any any -> any 80 (msg:"request; of a page"; content:"GET /"; depth:5; content:"host|3A 20|"; nocase; distance:0; sid:1;)
alert tcp any any -> any $HTTP_PORTS (content:"User-Agent|3a| curl"; content:!"Firefox"; sid:2; rev:3;)
alert tcp any [80,8080:8081] -> any any (content:"content-type"; nocase; content:"css"; distance:0; sid:3;)
alert tcp any ![1:79,81:65535] -> any any (content:"HTTP/1.1 200 OK|0D 0A|"; depth:17; sid:4;)
alert tcp any any -> any [20000:21000,!20100] (content:"segment"; nocase; content:"SEQUENCE"; nocase; sid:5;)
alert tcp any any <> any 20200 (content:"packet"; sid:6;)
alert udp any any -> any 53 (content:"|00 01 00 00|"; offset:2; depth:10; sid:7;)
alert udp any 53 -> any any (content:"|00 01|"; content:"|00 01 00 01|"; offset:12; distance:0; sid:8;)
alert ip any any -> any any (content:"|17 03 03|"; depth:3; sid:9;)
alert tcp any any -> any any (content:"river packet "; content:" kernel "; sid:10;)
alert tcp any any -> any 1024: (content:"buffer queue "; sid:11;)
alert tcp any :1023 -> any any (content:"packet buffer "; sid:12;)
alert tcp any any -> any any (content:"Accept\: \*/\*"; content:"GET /"; within:4; offset:0; sid:13;)
alert tcp any any -> any 80 (content:"get /"; sid:100;)
alert tcp any any -> any 80 (content:"GET /"; offset:1; depth:6; content:"GET "; distance:0; sid:101;)
alert tcp any any -> any any (content:!"anything"; sid:102;)
alert icmp any any -> any any (content:"packet"; sid:103;)
alert udp any any -> any any (content:"HTTP/1.1 200 OK"; sid:104;)
"#;

fn built(folder: &Folder) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pcap");
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(sources);
    make.arg(format!("BUILD={}", folder.0.display()));
    make.env("CFLAGS", "-O1 -Wall -Wextra -Werror");
    let done = make.env_remove("MAKEFLAGS").env_remove("MFLAGS").output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    folder.file("nids")
}

/// A rule compared with each packet after the other, as the example prints alerts.
fn expected(trace: &Path) -> Vec<String> {
    let rules = snort::read(RULES).unwrap();
    let mut source = flowgauge_capture::open(trace).unwrap();
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    let mut alerts = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        decoder.decode_batch(&batch, &mut decoded);
        for (at, packet) in decoded.packets.iter().enumerate() {
            let payload = packet.payload_of(batch.bytes(at));
            let (source, destination) = (packet.source(), packet.destination());
            let udp = packet.key.protocol == 17;
            if !(udp || packet.key.protocol == 6) || payload.is_empty() {
                continue;
            }
            let micros = batch.packets[at].time.0 / 1000;
            let matching = rules.iter().filter(|rule| {
                rule.udp == udp && rule.has_ports([source.1, destination.1]) && rule.is_in(payload)
            });
            alerts.extend(matching.map(|rule| {
                format!(
                    "{}.{:06} {} {} {} {} > {} {}",
                    micros / 1_000_000,
                    micros % 1_000_000,
                    rule.sid,
                    if udp { "udp" } else { "tcp" },
                    source.0.to_ip(packet.key.version),
                    source.1,
                    destination.0.to_ip(packet.key.version),
                    destination.1
                )
            }));
        }
    }
    alerts.sort_unstable();
    alerts
}

#[test]
fn alerts_are_those_of_a_plain_search_in_any_order() {
    let folder = Folder::new("nids");
    let nids = built(&folder);
    let (trace, rules) = (folder.file("trace.pcap"), folder.file("rules"));
    let made = ["generate", "mix", "--flows", "400", "-w", text(&trace)];
    printed(&[&made[..], &["--tunnel", "0", "--fragments", "0"]].concat());
    std::fs::write(&rules, RULES).unwrap();
    let expected = expected(&trace);
    let sids = expected.iter().map(|line| line.split(' ').nth(1).unwrap());
    let sids: BTreeSet<u32> = sids.map(|sid| sid.parse().unwrap()).collect();
    assert!(sids.iter().copied().eq(1..=13), "{sids:?}");

    let arguments = [text(&nids), "-r", text(&trace), text(&rules)];
    let plain = Command::new(&nids).args(&arguments[1..]).output().unwrap();
    let alerted = |output: &Output, case: &str| {
        assert!(output.status.success(), "{case}: {}", stderr(output));
        assert!(sorted(output) == expected, "{case}");
        let counted = format!(" {} alerts", expected.len());
        assert!(stderr(output).contains(&counted), "{case}");
    };
    alerted(&plain, "plain");
    for options in [
        &["--class", "dst-port"][..],
        &["--class", "dst-port", "--threaded"],
        &["--class", "lower-port", "--buffer", "100"],
        &["--class", "flow", "--threaded"],
    ] {
        let case = format!("{options:?}");
        let command = [&["locality", "--stats"], options, &["--"], &arguments].concat();
        let output = run(&command);
        alerted(&output, &case);
        assert!(stdout(&output) != stdout(&plain), "{case}");
        assert!(stderr(&output).contains(" passed 0,"), "{case}");
    }
}

#[test]
fn wrong_rules_are_told() {
    let folder = Folder::new("nids-wrong");
    let nids = built(&folder);
    let rules = folder.file("rules");
    for (rule, part) in [
        ("alert tcp any any -> any 80", "no options in parentheses"),
        ("alert tcp any 80 (content:\"a\";)", "not a head of a rule"),
        (
            "alert tcp any any -> any 99999 (content:\"a\";)",
            "\"99999\" is not a port",
        ),
        (
            "alert tcp any any -> any x (content:\"a\";)",
            "\"x\" is not a port",
        ),
        (
            "alert tcp any any -> any 9:8 (content:\"a\";)",
            "\"9:8\" is not a port",
        ),
        (
            "alert tcp any any -> any [] (content:\"a\";)",
            "a list of ports is empty",
        ),
        (
            "alert tcp any any -> any ![0:] (content:\"a\";)",
            "no port is left",
        ),
        (
            "alert tcp any any -> any $X (content:\"a\";)",
            "nothing is known of ports $X",
        ),
        (
            "alert tcp any any -> any 80 (content:\"|4|\";)",
            "is not hexadecimal",
        ),
        (
            "alert tcp any any -> any 80 (content:\"|41\";)",
            "empty or not ended",
        ),
        (
            "alert tcp any any -> any 80 (content:a;)",
            "not in quotation marks",
        ),
        (
            "alert tcp any any -> any 80 (content:\"a;)",
            "a quotation mark is not closed",
        ),
        ("# none", "there is no rule"),
    ] {
        std::fs::write(&rules, format!("\n{rule}\n")).unwrap();
        let mut command = Command::new(&nids);
        let output = command.args(["-r", "/dev/null"]).arg(&rules).output();
        let output = output.unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{rule}: {said}");
        assert!(
            said.contains(part) && said.contains("hint: "),
            "{rule}: {said}"
        );
        assert!(
            rule.starts_with('#') || said.contains("rules:2: "),
            "{said}"
        );
    }
}
