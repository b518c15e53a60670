//! What `packets` prints beyond headers, as tcpdump and tshark see it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::command_support::{Folder, fails, printed, text};
use crate::corpora::{corpora, skipped};

/// What another program prints; `None`: it is not installed.
fn by(program: &str, words: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(words).output() else {
        skipped(format_args!("{program} is not installed"));
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn lines(trace: &Path, options: &[&str]) -> Vec<String> {
    let words = ["packets", "-q", "--table", "-t", "-r", text(trace)];
    let printed = printed(&[&words[..], options].concat());
    printed.lines().map(str::to_owned).collect()
}

#[test]
fn dns_is_that_of_tcpdump() {
    let Some(corpora) = corpora() else {
        return;
    };
    let mut compared = BTreeMap::new();
    for name in [
        "tcpdump/tests/dns_udp.pcap",
        "tcpdump/tests/dns_udp_2.pcap",
        "dnscap/src/test/dns.pcap",
        "dnscap/src/test/dns6.pcap",
        "dnscap/src/test/edns.pcap",
    ] {
        let path = corpora.join(name);
        let filter = "udp port 53 and not (ip[6:2] & 0x3fff != 0)";
        let Some(theirs) = by("tcpdump", &["-n", "-t", "-r", text(&path), filter]) else {
            return;
        };
        let ours = lines(&path, &[filter]);
        assert_eq!(ours.len(), theirs.lines().count(), "{name}");
        for (ours, theirs) in ours.iter().zip(theirs.lines()) {
            // 192.0.2.1.4242 > 192.0.2.53.53: 7+ A? example.org. (29)
            let (_, said) = theirs.split_once(": ").unwrap();
            let (said, _) = said.rsplit_once(" (").unwrap_or((said, ""));
            let (_, found) = ours.split_once(": udp len ").unwrap();
            let (_, found) = found.split_once(": ").unwrap_or(("", ""));
            let is_query = said.contains("? ");
            // Data of a few types is written as zone files have it, and so are names of codes.
            let kept = |line: &str| match is_query {
                true => line.to_owned(),
                false => {
                    let counts = line
                        .split(' ')
                        .take_while(|word| !word.contains('/'))
                        .count();
                    let words = line.split(' ').take(counts + 1).collect::<Vec<_>>();
                    words.join(" ").to_ascii_lowercase()
                }
            };
            assert_eq!(kept(found), kept(said), "{name}\n{ours}\n{theirs}");
            *compared.entry(is_query).or_insert(0) += 1;
            if said.ends_with(|it: char| it.is_ascii_digit()) && said.contains(" A ") {
                assert_eq!(found, said, "{name}");
            }
        }
    }
    assert!(
        compared[&true] > 10 && compared[&false] > 10,
        "{compared:?}"
    );
}

/// Sequence numbers are counted from the beginning of each connection.
#[test]
fn sequence_numbers_are_those_of_tshark() {
    let folder = Folder::new("relative");
    let trace = folder.file("late.pcap");
    for preset in ["mix", "late", "web"] {
        let made = [
            "generate",
            preset,
            "-q",
            "--packets",
            "3000",
            "-w",
            text(&trace),
        ];
        printed(&[&made[..], &["--tunnel", "0", "--vlan", "0", "--qinq", "0"]].concat());
        let fields = [
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "tcp.seq",
            "-e",
            "tcp.ack",
        ];
        let words = [
            "-r",
            text(&trace),
            "-Y",
            "tcp && !ip.reassembled_in && !ip.fragments",
        ];
        let Some(theirs) = by("tshark", &[&words[..], &fields].concat()) else {
            return;
        };
        let all = lines(&trace, &[]);
        let number = |line: &str, name: &str| -> String {
            // Those of tshark's without ACK have the number 0.
            let number = line
                .split_once(name)
                .map(|(_, rest)| rest.split(' ').next());
            number.flatten().unwrap_or("0").to_owned()
        };
        let (mut compared, mut different) = (0, Vec::new());
        for line in theirs.lines() {
            let [at, seq, ack] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let ours = &all[at.parse::<usize>().unwrap() - 1];
            if !ours.contains(" seq ") {
                continue;
            }
            compared += 1;
            if [seq, ack] != [number(ours, " seq "), number(ours, " ack ")] {
                different.push(format!("{line}\n{ours}"));
            }
        }
        assert!(compared > 1000, "{preset}: {compared}");
        assert!(
            different.is_empty(),
            "{preset}: {}\n{}",
            different.len(),
            different.join("\n")
        );
    }
}

#[test]
fn display_filters_select_what_they_do_in_tshark() {
    let folder = Folder::new("displayed");
    // (In tunnels tshark also asks the outer headers.)
    let trace = folder.file("mix.pcap");
    let words = [
        "generate",
        "mix",
        "-q",
        "--packets",
        "3000",
        "-w",
        text(&trace),
    ];
    printed(&[&words[..], &["--tunnel", "0"]].concat());
    for filter in [
        "tcp.flags.syn == 1",
        "ip.ttl > 60 and udp",
        "dns or tcp.port == 443",
    ] {
        let words = [
            "-r",
            text(&trace),
            "-Y",
            filter,
            "-T",
            "fields",
            "-e",
            "frame.number",
        ];
        let Some(theirs) = by("tshark", &words) else {
            return;
        };
        if filter.contains("dns") {
            fails(
                &["packets", "-r", text(&trace), "-Y", filter],
                2,
                &["-Y: ", "dns"],
            );
            continue;
        }
        let words = [
            "packets",
            "-q",
            "--csv",
            "--fields",
            "number",
            "-r",
            text(&trace),
        ];
        let ours = printed(&[&words[..], &["-Y", filter]].concat());
        let ours: Vec<&str> = ours.lines().skip(1).collect();
        assert_eq!(ours, theirs.lines().collect::<Vec<_>>(), "{filter}");
        assert!(!ours.is_empty(), "{filter}");
    }
}

/// `-t`, as in tcpdump.
#[test]
fn times_are_printed_as_by_tcpdump() {
    let folder = Folder::new("stamps");
    let trace = folder.file("small.pcap");
    printed(&[
        "generate",
        "small",
        "-q",
        "--packets",
        "20",
        "-w",
        text(&trace),
    ]);
    for times in ["-tt", "-tttt"] {
        let Some(theirs) = by("tcpdump", &["-n", times, "-r", text(&trace)]) else {
            return;
        };
        let words = ["packets", "-q", "--table", times, "-r", text(&trace)];
        let ours = printed(&words);
        let begin = |line: &str| -> String {
            let words = if times == "-tt" { 1 } else { 2 };
            line.split(' ').take(words).collect::<Vec<_>>().join(" ")
        };
        let of = |text: &str| text.lines().map(begin).collect::<Vec<_>>();
        assert_eq!(of(&ours), of(&theirs), "{times}");
    }
    let first = lines(&trace, &["-c", "1"]);
    assert!(
        first[0].contains(" > ") && !first[0].starts_with("20"),
        "{}",
        first[0]
    );
    let words = ["packets", "-q", "--table", "-ttttt", "-r", text(&trace)];
    assert!(printed(&words).starts_with("0.000000 "));
}
