//! Programs of others, as their packages have them: what they make of a file is the same.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::support::{Settings, counts, folder, limited, run, shimmed, sorted, text, trace};

/// What of a program's files and output is compared: `$TRACE` is read, `.` is an empty folder.
struct Program {
    name: &'static str,
    script: &'static str,
}

/// Those whose results depend on the order of packets within connections alone.
const PROGRAMS: [Program; 6] = [
    Program {
        name: "tcpdump",
        script: "tcpdump -Z root -nn -tt -S -v -r $TRACE 2>&1",
    },
    Program {
        name: "tcpflow",
        script: "tcpflow -r $TRACE -o flows && cd flows && sha256sum *.*-*.*",
    },
    Program {
        name: "ngrep",
        script: "ngrep -I $TRACE -q -t -W single 'GET|HTTP'",
    },
    Program {
        name: "nfpcapd",
        script: "mkdir flows && nfpcapd -r $TRACE -w flows && nfdump -R flows -q -o 'fmt:%ts %td %pr %sap %dap %flg %pkt %byt'",
    },
    Program {
        name: "argus",
        script: "argus -r $TRACE -w flows && ra -n -r flows -s stime ltime proto saddr sport daddr dport spkts dpkts sbytes dbytes - tcp or udp",
    },
    Program {
        name: "p0f",
        // What it finds out about hosts depends on the order of their connections.
        script: "p0f -r $TRACE -o log >/dev/null && grep -E 'mod=(syn|syn.ack|mtu)[|]' log",
    },
];

/// Runs a script in a folder of its own.
fn shell(case: &str, script: &str, settings: Option<Settings<'_>>) -> (String, Option<String>) {
    let place = folder().join(format!("program-{case}"));
    fs::create_dir_all(&place).unwrap();
    let mut command = limited("sh");
    command.args(["-c", script]).current_dir(&place);
    command.env("TRACE", trace()).env("TZ", "UTC");
    let told = settings.map(|settings| shimmed(&mut command, settings));
    let output = run(&mut command);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{case}: {said}");
    let lines = sorted(&text(&output.stdout)).join("\n");
    assert!(lines.lines().count() > 100, "{case}: {lines}\n{said}");
    (lines, told.map(|told| fs::read_to_string(told).unwrap()))
}

#[test]
fn results_of_files_are_the_same() {
    for Program { name, script } in PROGRAMS {
        let (expected, _) = shell(name, script, None);
        for variant in ["simple", "threaded"] {
            let settings = [("BUFFER", "1000"), ("CLASS", "flow"), ("VARIANT", variant)];
            let case = format!("{name}-{variant}");
            let (got, told) = shell(&case, script, Some(Settings(&settings)));
            let told = told.unwrap();
            // In a file that they may turn back in there is no thread.
            let is_followed = ["nfpcapd", "argus"].contains(&name);
            let variant = if is_followed { "simple" } else { variant };
            assert!(
                told.contains(&format!("file, {variant}, flow: gathered")),
                "{case}: {told}"
            );
            let differ = differences(&expected, &got);
            assert!(differ.is_empty(), "{case}: {differ}");
        }
    }
}

/// Lines of one text that are not in the other, each way.
pub(crate) fn differences(one: &str, other: &str) -> String {
    let lines = |text: &str| {
        let mut lines = BTreeMap::<String, i64>::new();
        text.lines()
            .for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
        lines
    };
    let mut all = lines(one);
    for (line, count) in lines(other) {
        *all.entry(line).or_default() -= count;
    }
    let differ = all.iter().filter(|(_, count)| **count != 0);
    differ
        .map(|(line, count)| format!("{count:+} {line}\n"))
        .collect()
}

/// Grouped by destination port: packets and bytes of each direction are the same, however flows are cut.
#[test]
fn totals_by_port_are_the_same() {
    let script = "mkdir flows && nfpcapd -r $TRACE -w flows && nfdump -R flows -q -o 'fmt:%sap %dap,%pkt,%byt' -N";
    let totals = |lines: &str| {
        let mut totals = BTreeMap::<String, (u64, u64)>::new();
        for line in lines.lines() {
            let mut parts = line.split(',').map(str::trim);
            let direction = parts
                .next()
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
            let total = totals.entry(direction).or_default();
            *total = (total.0 + number(), total.1 + number());
        }
        totals
    };
    let (expected, _) = shell("totals", script, None);
    let expected = totals(&expected);
    assert!(expected.len() > 500);
    for class in ["dst-port", "lower-port", "ports"] {
        let settings = [("BUFFER", "1000"), ("CLASS", class)];
        let (got, told) = shell(
            &format!("totals-{class}"),
            script,
            Some(Settings(&settings)),
        );
        assert!(
            told.unwrap()
                .contains(&format!("file, simple, {class}: gathered"))
        );
        assert_eq!(totals(&got), expected, "{class}");
    }
}

/// Flows of NetFlow version 5, without their times.
pub(crate) fn flows(socket: &UdpSocket) -> Vec<Vec<u8>> {
    const HEADER: usize = 24;
    const RECORD: usize = 48;
    let mut flows = Vec::new();
    let mut bytes = [0; 2048];
    while let Ok(len) = socket.recv(&mut bytes) {
        let records = bytes[HEADER..len].chunks_exact(RECORD);
        flows.extend(records.map(|record| {
            // Addresses, packets and bytes, ports, flags of TCP and the protocol.
            [
                &record[..8],
                &record[16..24],
                &record[32..36],
                &record[37..39],
            ]
            .concat()
        }));
        socket.set_nonblocking(true).unwrap();
    }
    flows.sort_unstable();
    flows
}

fn receiver() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // What comes is sent before the program ends; this only ends a hang.
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// What softflowd exports of the trace.
pub(crate) fn softflowd(case: &str, settings: Option<Settings<'_>>) -> Vec<Vec<u8>> {
    let (socket, address) = receiver();
    let mut command = limited("softflowd");
    let file = |ending: &str| folder().join(format!("softflowd-{case}.{ending}"));
    command.args(["-d", "-v", "5", "-m", "100000", "-n", &address]);
    command.arg("-r").arg(trace());
    command.args(["-c", "none", "-p"]).arg(file("pid"));
    let told = settings.map(|settings| shimmed(&mut command, settings));
    assert!(run(&mut command).status.success());
    if let Some(told) = told {
        counts(&told)[0].assert_grouped("file");
    }
    flows(&socket)
}

#[test]
fn softflowd_exports_the_same() {
    let expected = softflowd("plain", None);
    assert!(expected.len() > 500);
    for variant in ["simple", "threaded"] {
        let settings = [("BUFFER", "1000"), ("CLASS", "flow"), ("VARIANT", variant)];
        assert!(
            softflowd(variant, Some(Settings(&settings))) == expected,
            "{variant}"
        );
    }
}
