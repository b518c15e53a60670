//! Users without rights on payload get none of it: a marker in it is looked for in all that they are told.

use std::fmt::Write as _;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use flowgauge_stack::OptionKind;

use super::*;

const MARKER: &str = "SeCrEtMaRkEr";
/// Where the test finds its sensor when it is run as another user.
const SOCKET: &str = "FLOWGAUGE_MARKER_SOCKET";
/// That user.
const NOBODY: u32 = 65_534;

/// A frame of Ethernet with IPv4 and this behind its header.
fn ipv4(protocol: u8, fragment: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = [[2; 6], [4; 6]].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + behind.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(behind);
    frame
}

fn udp(port: u16, payload: &str) -> Vec<u8> {
    let mut segment = [4000_u16, port, 8 + payload.len() as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    segment.extend(payload.as_bytes());
    segment
}

fn tcp(ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &str) -> Vec<u8> {
    let mut segment = ports.map(u16::to_be_bytes).concat();
    segment.extend(numbers.map(u32::to_be_bytes).concat());
    segment.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend(payload.as_bytes());
    segment
}

/// Packets with the marker wherever payload can be.
fn marked() -> Vec<u8> {
    let get = format!("GET /{MARKER} HTTP/1.1\r\nHost: {MARKER}\r\n\r\n");
    let answer =
        format!("HTTP/1.1 200 OK\r\nServer: {MARKER}\r\nContent-Length: 12\r\n\r\n{MARKER}");
    let (to, from) = ([1000, 80], [80, 1000]);
    let asked = 1 + get.len() as u32;
    let answered = 1 + answer.len() as u32;
    let mut padded = ipv4(6, 0, &tcp(to, [asked, answered], 0x10, ""));
    padded.extend(MARKER.as_bytes());
    let first = udp(5000, &MARKER.repeat(4));
    let icmp = |kind: u8| [&[kind, 0, 0, 0, 0, 1, 0, 1], MARKER.as_bytes()].concat();
    let mut other = [[2; 6], [4; 6]].concat();
    other.extend([0x88, 0xb5]);
    other.extend(MARKER.as_bytes());
    let frames = [
        ipv4(6, 0, &tcp(to, [0, 0], 2, "")),
        ipv4(6, 0, &tcp(from, [0, 1], 0x12, "")),
        ipv4(6, 0, &tcp(to, [1, 1], 0x18, &get)),
        ipv4(6, 0, &tcp(from, [1, asked], 0x18, &answer)),
        padded,
        ipv4(6, 0, &tcp(to, [asked, answered], 0x11, "")),
        ipv4(17, 0, &udp(53, MARKER)),
        ipv4(17, 0, &udp(4789, &MARKER.repeat(8))),
        ipv4(17, 0x2000, &first[..24]),
        ipv4(17, 3, &first[24..]),
        ipv4(1, 0, &icmp(8)),
        ipv4(1, 0, &icmp(3)),
        ipv4(47, 0, MARKER.as_bytes()),
        ipv4(6, 0, &MARKER.as_bytes()[..6]),
        ipv4(132, 0, &[&[0; 12], MARKER.as_bytes()].concat()),
        other,
    ];
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in (0_u32..).zip(frames) {
        let len = frame.len() as u32;
        for word in [1_700_000_000 + number, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Stacks of each component: alone, and with what it needs.
fn stacks() -> Vec<String> {
    let mut stacks = Vec::new();
    for info in registry().iter() {
        let mut options = Vec::new();
        for option in info.options.iter().filter(|option| option.is_required) {
            let value = match option.kind {
                OptionKind::Integer { min, .. } => min.max(1).to_string(),
                OptionKind::Reference | OptionKind::References | OptionKind::Measure => {
                    "count".to_owned()
                }
                OptionKind::Duration => "10ms".to_owned(),
                OptionKind::Choice(words) => words[0].to_owned(),
                _ => "tcp".to_owned(),
            };
            options.push(format!("{} = {value}", option.name));
        }
        let component = format!("{} {{ {} }}", info.name, options.join(", "));
        for (before, after) in [
            ("", ""),
            ("", " to_buffer"),
            ("transactions ", ""),
            ("streams ", ""),
            ("ipfragdemux < ipreass > ", ""),
        ] {
            stacks.push(format!("count - {before}{component}{after}"));
        }
    }
    let more = [
        "to_buffer",
        "output { file = fd:0 }",
        "cook to_buffer",
        "protocol_field { http.request.uri } - result_to_file { of = protocol_field, file = fd:0, interval = 1s }",
        "hash { layer = 3 } - result_to_file { of = hash, file = fd:0, format = raw, interval = 1s }",
        "search { SeCrEt } count",
        "regexp { \"SeCrEt.*\" } count",
        "filter { \"tcp[20:4] = 0x47455420\" } count",
        "display_filter { frame contains \"SeCrEt\" } count",
        "top { by = http.request.uri }",
        "packets - output { file = fd:0 }",
        "transactions - output { file = fd:0 }",
        "match { patterns = SeCrEt } output { file = fd:0 }",
        "filter { nonsense",
    ];
    stacks.extend(more.map(str::to_owned));
    stacks
}

/// All that a user is told, as text, and in it how many flows ran.
fn told(socket: &Path) -> String {
    let mut all = String::new();
    let mut ran = 0;
    let mut add = |bytes: &[u8]| {
        write!(all, "{} ", String::from_utf8_lossy(bytes)).unwrap();
        bytes
            .iter()
            .for_each(|byte| write!(all, "{byte:02x}").unwrap());
        all.push('\n');
    };
    for (number, stack) in stacks().iter().enumerate() {
        let client = Client::connect(socket).unwrap();
        let path = std::env::temp_dir().join(format!("marker.{}.{number}", std::process::id()));
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        fs::remove_file(&path).unwrap();
        if let Err(error) = client.check("marked", stack) {
            add(error.to_string().as_bytes());
            add(error.hint().unwrap_or_default().as_bytes());
        }
        // Each has the packets once more: a device that was read is made anew by a reload of the sensor's owner.
        match client.open(&format!("marked{number}"), stack, &[file.as_fd()]) {
            Err(error) => add(error.to_string().as_bytes()),
            Ok(mut flow) => {
                ran += 1;
                client.start(&format!("marked{number}")).unwrap();
                let readings = flow.readings();
                while let Some(packet) = flow.next(Duration::from_secs(60)).unwrap() {
                    add(packet.bytes());
                }
                while !readings.read(0).is_last && !readings.read(0).has_failed {
                    thread::sleep(Duration::from_millis(1));
                }
                let results = flow.results().unwrap();
                let mut numbers: Vec<u8> = Vec::new();
                for component in 0..results.components.len() {
                    let reading = readings.read(component);
                    numbers.extend(reading.value.unwrap_or(0).to_be_bytes());
                }
                add(&numbers);
                add(serde_json::to_string(&results).unwrap().as_bytes());
                add(serde_json::to_string(&client.status().unwrap())
                    .unwrap()
                    .as_bytes());
                add(serde_json::to_string(&flow.close().unwrap())
                    .unwrap()
                    .as_bytes());
                let mut written = Vec::new();
                std::io::Seek::rewind(&mut file).unwrap();
                file.read_to_end(&mut written).unwrap();
                add(&written);
            }
        }
    }
    write!(all, "{ran} flows ran").unwrap();
    all
}

#[test]
fn nobody_without_the_right_gets_payload() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        println!("{}", told(Path::new(&socket)));
        return;
    }
    if !flowgauge_sys::privileges::is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("marked.pcap");
    fs::write(&trace, marked()).unwrap();
    let policy = folder.path().join("policy.toml");
    fs::write(
        &policy,
        "[ip]\nttl = \"UNCHANGED\"\n[tcp]\nsrc_port = \"UNCHANGED\"\n",
    )
    .unwrap();
    for (rights, sees) in [
        ("packets = \"none\"".to_owned(), false),
        ("packets = \"headers\"".to_owned(), false),
        (
            format!(
                "packets = \"payload\"\nanonymize = \"{}\"",
                policy.display()
            ),
            false,
        ),
        ("packets = \"payload\"".to_owned(), true),
    ] {
        let device = |name: &str| {
            format!(
                "[devices.{name}]\nfiles = [\"{}\"]\nhold = true\n",
                trace.display()
            )
        };
        let mut tables = device("marked");
        for number in 0..stacks().len() {
            tables += &device(&format!("marked{number}"));
        }
        tables += &format!("[users.{NOBODY}]\n{rights}\n");
        let running = Running::start(1, &tables);
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(running.folder.path(), open).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "marker::nobody_without_the_right_gets_payload",
                "--nocapture",
            ])
            .env(SOCKET, running.folder.path().join("sock"))
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        let Ok(output) = output else {
            println!("skipped: another user cannot run this test");
            return;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let told = String::from_utf8_lossy(&output.stdout);
        let line = told
            .lines()
            .find(|line| line.ends_with("flows ran"))
            .unwrap();
        let ran: usize = line.split(' ').next().unwrap().parse().unwrap();
        let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
        // Half of it is found, too: users have said less than that themselves.
        let found = [&MARKER[6..], &hex[12..]].map(|what| told.find(what));
        let at = found.into_iter().flatten().next();
        let about = at.map(|at| told[..at].chars().rev().take(500).collect::<String>());
        let about: String = about.unwrap_or_default().chars().rev().collect();
        assert_eq!(at.is_some(), sees, "{rights}: {ran} flows: ...{about}");
        let least = if rights.contains("none") { 10 } else { 60 };
        assert!(ran >= least, "{rights}: {ran} flows ran");
    }
}
