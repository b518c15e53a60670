//! Programs of others on an interface: what they find out is the same, and all of it came from the kernel's ring.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::lab::Lab;
use crate::live::{Cable, sockets};
use crate::programs::{differences, flows};
use crate::support::{Settings, counts, folder, limited, run, shimmed, text, trace};
use crate::wait::wait_until;

/// The others are tested by some programs only, as each run takes seconds.
const RING: [&str; 1] = ["zero-copy"];
const ALL: [&str; 3] = ["simple", "threaded", "zero-copy"];

/// A program that captures on `fg1` until it is told to end.
struct Program {
    name: &'static str,
    /// `$PORT` is where flows go, the folder is an empty one.
    script: &'static str,
    /// Ends the process `$CAPTOR`.
    end: &'static str,
}

impl Program {
    /// What the program leaves in its folder once the trace has come, with the library before libpcap or not.
    fn results(
        &self,
        lab: &Lab,
        way: Option<&str>,
        results: impl FnOnce(&Path) -> String,
    ) -> String {
        let Program { name, end, .. } = *self;
        let cable = Cable::new(lab);
        let place = folder().join(format!("live-{name}-{}", way.unwrap_or("plain")));
        fs::create_dir_all(&place).unwrap();
        let mut command = lab.inside("timeout");
        command.args(["--foreground", "60", "sh", "-c", self.script]);
        command.current_dir(&place).env("TZ", "UTC");
        let receiver = lab.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        command.env("PORT", receiver.local_addr().unwrap().port().to_string());
        let told = way.map(|way| {
            let settings = [("BUFFER", "1000"), ("CLASS", "flow"), ("VARIANT", way)];
            (way, shimmed(&mut command, Settings(&settings)))
        });
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        cable.send(lab, way.map_or(1, sockets));
        settle(child.id());
        let mut ending = limited("sh");
        ending.args(["-c", end]).current_dir(&place);
        ending.env("CAPTOR", captor(child.id()).to_string());
        assert!(run(&mut ending).status.success());
        child.wait().unwrap();
        // All that it has sent has arrived.
        receiver.set_nonblocking(true).unwrap();
        let exported = flows(&receiver).into_iter();
        let mut lines: Vec<String> = exported.map(|flow| format!("{flow:02x?}")).collect();
        lines.extend(results(&place).lines().map(str::to_owned));
        lines.sort_unstable();
        assert!(lines.len() > 100, "{name}: {lines:?}");
        if let Some((way, told)) = told {
            let told = counts(&told);
            let of_packets = told.iter().find(|it| it.of("gathered") > 0).unwrap();
            of_packets.assert_grouped(&format!("live, {way}, flow"));
            let (delivered, sent) = (of_packets.of("delivered"), cable.frames.len() as u64);
            // Some have a filter.
            assert!(
                delivered <= sent && delivered * 10 >= sent * 8,
                "{of_packets:?}"
            );
        }
        lines.join("\n")
    }

    fn is_the_same(&self, ways: &[&str], results: impl Fn(&Path) -> String) {
        let Some(lab) = Lab::new(1500) else { return };
        let expected = self.results(&lab, None, &results);
        for way in ways {
            let got = self.results(&lab, Some(way), &results);
            let differ = differences(&expected, &got);
            assert!(differ.is_empty(), "{}, {way}: {differ}", self.name);
        }
    }
}

/// The process that captures, below one that only waits for it.
fn captor(process: u32) -> u32 {
    let children = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let first = children.split_whitespace().next();
    first.map_or(process, |child| captor(child.parse().unwrap()))
}

/// Waits until the process has been doing nothing for a while.
fn settle(process: u32) {
    let worked = || {
        let stat = format!("/proc/{}/stat", captor(process));
        let stat = fs::read_to_string(stat).unwrap_or_default();
        let fields = stat.split_whitespace().skip(13).take(2);
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut before, mut calm) = (worked(), 0);
    wait_until("the program has worked all off", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = worked();
        calm = if now == before { calm + 1 } else { 0 };
        before = now;
        calm >= 8
    });
}

fn output_of(place: &Path, script: &str) -> String {
    let mut command = limited("sh");
    let output = run(command.args(["-c", script]).current_dir(place));
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn p0f() {
    let program = Program {
        name: "p0f",
        script: "exec p0f -i fg1 -o log",
        end: "kill -INT $CAPTOR",
    };
    // What it finds out about hosts depends on the order of their connections.
    program.is_the_same(&RING, |place| {
        output_of(
            place,
            "grep -E 'mod=(syn|syn.ack|mtu)[|]' log | sed 's/^[[][^]]*[]] //'",
        )
    });
}

/// Without the library it waits until libpcap's blocks are full, so what it makes of a file is what it has to find out.
#[test]
fn softflowd() {
    let program = Program {
        name: "softflowd",
        script: "exec softflowd -d -i fg1 -v 5 -m 100000 -n 127.0.0.1:$PORT -c $PWD/control -p pid",
        end: "softflowctl -c $PWD/control shutdown",
    };
    let Some(lab) = Lab::new(1500) else { return };
    let expected = crate::programs::softflowd("expected", None);
    let mut expected: Vec<String> = expected.iter().map(|flow| format!("{flow:02x?}")).collect();
    expected.sort_unstable();
    let got = program.results(&lab, Some("zero-copy"), |_| String::new());
    let differ = differences(&expected.join("\n"), &got);
    assert!(differ.is_empty(), "{differ}");
}

/// Its option `-B` sets the size of the socket's buffer, on the descriptor that libpcap gives. Packets and bytes of each direction are
/// those of the trace.
#[test]
fn fprobe() {
    const FIELDS: &str =
        "-T fields -e ip.src -e ip.dst -e ip.proto -e tcp.port -e udp.port -e ip.len";
    let program = Program {
        name: "fprobe",
        script: "exec fprobe -i fg1 -B 4096 -q 100000 -l 2 -f 'tcp or udp' 127.0.0.1:$PORT",
        end: "kill -TERM $CAPTOR",
    };
    let Some(lab) = Lab::new(1500) else { return };
    let got = program.results(&lab, Some("zero-copy"), |_| String::new());
    let mut totals = BTreeMap::<String, (u64, u64)>::new();
    for line in got.lines() {
        let bytes = line.trim_matches(['[', ']']).split(", ");
        let bytes: Vec<u8> = bytes
            .map(|it| u8::from_str_radix(it, 16).unwrap())
            .collect();
        let number = |at: std::ops::Range<usize>| {
            let bytes = &bytes[at];
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let address = |at: usize| std::net::Ipv4Addr::from_bits(number(at..at + 4) as u32);
        let (from, to) = (number(16..18), number(18..20));
        let key = format!("{} {} {} {from},{to}", address(0), address(4), bytes[21]);
        let total = totals.entry(key).or_default();
        *total = (total.0 + number(8..12), total.1 + number(12..16));
    }
    let command = format!(
        "tshark -n -r {} -Y 'ip and (tcp or udp) and not icmp' {FIELDS}",
        trace().display()
    );
    for line in output_of(folder(), &command).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [from, to, protocol, ports, len] = fields[..] else {
            panic!("{line}");
        };
        let key = format!("{from} {to} {protocol} {ports}");
        let total = totals.entry(key).or_default();
        *total = (
            total.0.wrapping_sub(1),
            total.1.wrapping_sub(len.parse().unwrap()),
        );
    }
    totals.retain(|_, total| *total != (0, 0));
    assert!(totals.is_empty(), "{totals:?}");
}

#[test]
fn argus() {
    let program = Program {
        name: "argus",
        script: "exec argus -i fg1 -S 3600 -w flows",
        end: "kill -INT $CAPTOR",
    };
    program.is_the_same(&RING, |place| {
        output_of(
            place,
            "ra -n -r flows -s proto saddr sport daddr dport spkts dpkts sbytes dbytes - tcp or udp",
        )
    });
}

/// Every match is shown, also that of the last packets.
#[test]
fn ngrep() {
    let program = Program {
        name: "ngrep",
        script: "exec ngrep -d fg1 -q -W single -l 'GET|HTTP' >log",
        end: "kill -INT $CAPTOR",
    };
    program.is_the_same(&ALL, |place| output_of(place, "grep '^T ' log"));
}

const FIELDS: &str =
    "-T fields -e frame.len -e ip.src -e ip.dst -e ip.id -e tcp.seq_raw -e udp.srcport";

/// What was written is what tshark reads of the trace, in another order.
fn writes(name: &'static str, script: &'static str, ways: &[&str]) {
    let read = |file: &Path| {
        let command = format!("tshark -n -r {} {FIELDS}", file.display());
        output_of(folder(), &command)
    };
    let plain = read(trace());
    // They let libpcap keep packets for a second.
    let end = "sleep 1.5 && kill -INT $CAPTOR";
    let program = Program { name, script, end };
    let Some(lab) = Lab::new(1500) else { return };
    for way in ways {
        let got = program.results(&lab, Some(way), |place| {
            let written = read(&place.join("written.pcap"));
            assert!(written != plain);
            written
        });
        let differ = differences(&plain, &got);
        assert!(differ.is_empty(), "{name}, {way}: {differ}");
    }
}

#[test]
fn dumpcap() {
    writes(
        "dumpcap",
        "exec dumpcap -q -P -i fg1 -w written.pcap",
        &RING,
    );
}

#[test]
fn tcpdump() {
    let script = "exec tcpdump -i fg1 -n -U -Z root -B 65536 -w written.pcap";
    writes("tcpdump", script, &ALL);
}
