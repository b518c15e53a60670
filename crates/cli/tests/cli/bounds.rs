//! What grows with the input has a bound, also on the way between threads and machines.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::corpora::skipped;
use crate::stack_support::flowgauge;
use crate::wait::wait_until;
use flowgauge_record::words::count;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A TCP segment from a client to port 80, as a record of a pcap file. Its checksum is wrong.
fn segment(client: u32, seq: u32, flags: u8, payload: &[u8], out: &mut Vec<u8>) {
    let length = 14 + 20 + 20 + payload.len();
    out.extend(
        [client / 1000, client % 1000, length as u32, length as u32]
            .map(u32::to_le_bytes)
            .concat(),
    );
    out.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    out.extend([0x45, 0]);
    out.extend(((length - 14) as u16).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 11]);
    out.extend(&client.to_be_bytes()[1..]);
    out.extend([192, 0, 2, 1]);
    out.extend(1000_u16.to_be_bytes());
    out.extend(80_u16.to_be_bytes());
    out.extend(seq.to_be_bytes());
    out.extend([0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    out.extend(payload);
}

/// Connections with a request of 7,000 bytes each.
fn long_requests(path: &Path, count: u32) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(65_535_u32.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    let request = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(7000));
    let request = request.as_bytes();
    for client in 0..count {
        segment(client, 1, 0x18, request, &mut bytes);
        segment(client, 1 + request.len() as u32, 0x11, b"", &mut bytes);
    }
    fs::write(path, bytes).unwrap();
}

/// Whether all threads of a process wait for something, and go on doing so.
fn sleeps(child: &Child) -> bool {
    (0..1000).all(|_| {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let mut stats =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.all(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    })
}

/// With several workers records wait for a writer whose output nobody reads: no more of them than `--memory` lets, and the
/// file is read no further. All of them come when it is read.
#[test]
fn records_on_their_way_to_the_writer_are_in_the_bound() {
    const COUNT: u32 = 12_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcap");
    long_requests(&path, COUNT);
    for workers in ["2", "4"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args([
                "log",
                "-q",
                "--checksums",
                "ignore",
                "--memory",
                "16M",
                "--workers",
                workers,
                "-r",
            ])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // It has begun to write.
        assert!(!out.fill_buf().unwrap().is_empty());
        wait_until("it waits", || sleeps(&child));
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches("kB").trim();
        let most = kilobytes.parse::<u64>().unwrap() >> 10;
        // The file's pages that are mapped count, too.
        assert!(most < 150, "{workers} workers: {most} MB");
        // One that was given up for want of memory has a second record, of what came of it later.
        let requests = out.lines().map_while(Result::ok);
        let requests = requests.filter(|line| line.contains("\"method\":\"GET\""));
        assert_eq!(requests.count(), COUNT as usize, "{workers} workers");
        assert!(child.wait().unwrap().success());
    }
}

/// Runs this test again where it may do as root does, in namespaces of its own. None: it is to go on here.
fn within(name: &str, unshare: &[&str], before: &str) -> Option<Option<Output>> {
    const INSIDE: &str = "FLOWGAUGE_BOUNDS_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let line = format!("{before} || exit 77; exec \"$0\" --exact bounds::{name} --nocapture");
    let ran = Command::new("unshare")
        .args(unshare)
        .args(["sh", "-c", &line])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output();
    let output = ran.ok().filter(|output| output.status.code() != Some(77));
    let output = output.filter(|output| !text(&output.stderr).contains("unshare failed"));
    Some(output)
}

fn passed(output: Option<Output>) {
    let Some(output) = output else {
        return skipped("no namespaces can be made here");
    };
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}{said}");
    assert!(printed.contains("1 passed"), "{printed}");
}

/// A sensor sends what it captures over the interface that it captures on: it does not capture that. With `--own-traffic` it
/// would.
#[test]
fn a_sensor_does_not_capture_what_it_sends() {
    let name = "a_sensor_does_not_capture_what_it_sends";
    if let Some(output) = within(name, &["--net"], "ip link set lo up") {
        return passed(output);
    }
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "keys authority",
        "keys add c --host 127.0.0.1",
        "keys add s",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = keyed(folder.path(), &words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for own_traffic in [false, true] {
        let input =
            "input { listen = 127.0.0.1:2233, identity = c, senders = 1 } filter { udp } count";
        let (collector, _) = started(folder.path(), &["-e", input], "listening");
        let output = "output { to = 127.0.0.1:2233, identity = s }";
        let mut words = vec!["-e", output, "-i", "lo", "-c", "20000"];
        words.extend(own_traffic.then_some("--own-traffic"));
        let (mut sensor, said_before) = started(folder.path(), &words, "listening on");
        let said = "packets of this program's own links are excluded";
        assert_eq!(said_before.contains(said), !own_traffic, "{said_before}");
        let sink = UdpSocket::bind("127.0.0.1:9").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Long enough for some of them to be sent before the last one is captured.
        wait_until("the sensor has what it wants", || {
            sender
                .send_to(&[7; 100], sink.local_addr().unwrap())
                .unwrap();
            sensor.0.try_wait().unwrap().is_some()
        });
        let (_, said) = ended(sensor);
        let (results, _) = ended(collector);
        let own = said.split_once("own ").and_then(|(_, rest)| {
            rest.split(|letter: char| !letter.is_ascii_digit())
                .next()?
                .parse::<u64>()
                .ok()
        });
        assert_eq!(own.unwrap_or(0) > 0, !own_traffic, "{said}");
        // With its own traffic some of these are others.
        let all = results.contains("\"value\":20000,");
        assert!(all || own_traffic, "{said}{results}");
    }
}

fn keyed(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .current_dir(folder)
        .env("FLOWGAUGE_KEYS", folder.join("keys"));
    command.stdin(Stdio::null()).args(words);
    command
}

type Running = (Child, BufReader<std::process::ChildStderr>);

/// A stack that has said a line with `word`; what it has said until then.
fn started(folder: &Path, words: &[&str], word: &str) -> (Running, String) {
    let words = [&["stack", "run", "--json"], words].concat();
    let mut child = keyed(folder, &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut before = String::new();
    while !before
        .lines()
        .last()
        .is_some_and(|line| line.contains(word))
    {
        assert_ne!(
            said.read_line(&mut before).unwrap(),
            0,
            "it ended: {before}"
        );
    }
    ((child, said), before)
}

fn ended((mut child, mut said): Running) -> (String, String) {
    let (mut out, mut rest) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    said.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {rest}");
    (out, rest)
}

/// Files are counted where they are in the folder, with the bytes that they have; a log goes on when files cannot be extracted
/// any more, and says how many that were.
#[test]
fn what_is_said_of_files_on_a_full_disk_is_there() {
    let name = "what_is_said_of_files_on_a_full_disk_is_there";
    let mount = "mount -t tmpfs -o size=256k tmpfs /mnt";
    if let Some(output) = within(name, &["--mount"], mount) {
        return passed(output);
    }
    let folder = tempfile::tempdir().unwrap();
    let made = flowgauge(
        folder.path(),
        &["generate", "mix", "-q", "--flows", "2000", "-w", "mix.pcap"],
    );
    assert!(made.status.success());
    for workers in ["1", "3"] {
        let words = [
            "streams",
            "--out",
            "/mnt/streams",
            "--workers",
            workers,
            "-r",
            "mix.pcap",
        ];
        let output = flowgauge(folder.path(), &words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
        let files = fs::read_dir("/mnt/streams").unwrap();
        let sizes: Vec<u64> = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect();
        let there = format!(
            "{} with {} bytes in /mnt/streams",
            count(sizes.len() as u64, "file"),
            sizes.iter().sum::<u64>()
        );
        assert!(said.contains(&there), "{workers} workers: {there}: {said}");
        assert_eq!(said.matches("bytes in /mnt/streams").count(), 1, "{said}");
        fs::remove_dir_all("/mnt/streams").unwrap();
    }
    // Bodies of 7,000 bytes each, of which few have room.
    let mut requests = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    requests.extend(65_535_u32.to_le_bytes());
    requests.extend(1_u32.to_le_bytes());
    let body = "b".repeat(7000);
    let post = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7000\r\n\r\n{body}");
    for client in 0..100 {
        segment(client, 1, 0x18, post.as_bytes(), &mut requests);
        segment(client, 1 + post.len() as u32, 0x11, b"", &mut requests);
    }
    let mut file = File::create(folder.path().join("posts.pcap")).unwrap();
    file.write_all(&requests).unwrap();
    for workers in ["1", "3"] {
        let words = [
            "log",
            "--checksums",
            "ignore",
            "--files",
            "--extract-files",
            "/mnt/files",
            "--workers",
            workers,
            "-r",
            "posts.pcap",
        ];
        let output = flowgauge(folder.path(), &words);
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}");
        let records: Vec<serde_json::Value> = printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |kind: &str| {
            let kind = kind.to_owned();
            records
                .iter()
                .filter(move |record| record["event_type"] == kind.as_str())
        };
        assert_eq!(
            (of("http").count(), of("file").count()),
            (100, 100),
            "{said}"
        );
        let lost = of("file").filter(|file| file["limit"] == "disk").count();
        let whole = of("file")
            .filter(|file| file["extracted_bytes"] == 7000)
            .count();
        assert!(
            lost > 50 && whole > 10 && lost + whole == 100,
            "{lost} {whole}: {said}"
        );
        for file in of("file").filter(|file| !file["extracted"].is_null()) {
            let path = Path::new("/mnt/files").join(file["extracted"].as_str().unwrap());
            let there = fs::metadata(path).unwrap().len();
            assert_eq!(file["extracted_bytes"], there, "{file}");
        }
        let expected = format!("{lost} files were not extracted, or not to the end: ");
        assert!(said.contains(&expected), "{expected}: {said}");
        assert_eq!(
            said.matches("files are counted instead").count(),
            1,
            "{said}"
        );
        fs::remove_dir_all("/mnt/files").unwrap();
    }
}

/// Files that users name and that never end are read to a bound, and refused.
#[test]
fn files_that_never_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = flowgauge(
        folder.path(),
        &["generate", "small", "-q", "-w", "small.pcap"],
    );
    assert!(made.status.success());
    // Of policies a device is none.
    let large = File::create(folder.path().join("large")).unwrap();
    large.set_len(17 << 20).unwrap();
    for (words, what) in [
        (
            &["match", "-f", "/dev/zero", "-r", "small.pcap"][..],
            "larger than 64 MiB",
        ),
        (
            &[
                "match",
                "-e",
                "x",
                "--host-policy",
                "large",
                "-r",
                "small.pcap",
            ],
            "longer than 16 MiB",
        ),
        (
            &["flows", "-F", "/dev/zero", "-r", "small.pcap"],
            "longer than 1 MiB",
        ),
        (
            &[
                "stack",
                "agent",
                "--listen",
                "127.0.0.1:0",
                "--folder",
                ".",
                "--rights",
                "/dev/zero",
            ],
            "longer than 4 MiB",
        ),
    ] {
        let output = flowgauge(folder.path(), words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(
            said.contains(what) && said.contains("hint: "),
            "{words:?}: {said}"
        );
    }
}
