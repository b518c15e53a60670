//! `flowgauge streams --follow`: which connection is meant, and how what it says is printed. (What it says is compared with tshark's
//! in `tests/tshark_follow.rs`.)

use std::fs;

use crate::command_support::{Folder, fails, json_lines, printed, run, stderr, stdout, text};

/// A capture with three connections between two hosts, two of them to port 80; of the first a segment is missing.
fn capture(folder: &Folder) -> String {
    let path = folder.file("three.pcap");
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 101] {
        file.extend(word.to_le_bytes());
    }
    let mut packet = |time: u32,
                      from_client: bool,
                      port: u16,
                      service: u16,
                      flags: u8,
                      seq: u32,
                      ack: u32,
                      data: &[u8]| {
        let mut bytes = vec![0x45, 0, 0, (40 + data.len()) as u8, 0, 0, 0, 0, 64, 6, 0, 0];
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 7]);
        let (ends, ports) = match from_client {
            true => ([client, server], [port, service]),
            false => ([server, client], [service, port]),
        };
        bytes.extend(ends.concat());
        ports
            .iter()
            .for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend(seq.to_be_bytes());
        bytes.extend(ack.to_be_bytes());
        bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(data);
        for word in [time, 0, bytes.len() as u32, bytes.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    };
    for (time, port, service) in [(1, 1001, 80), (2, 1002, 80), (3, 1003, 22)] {
        packet(time, true, port, service, 0x02, 99, 0, b"");
        packet(time, false, port, service, 0x12, 499, 100, b"");
        packet(
            time,
            true,
            port,
            service,
            0x18,
            100,
            500,
            b"hi\r\n\x1b[2Jthere",
        );
        packet(time, false, port, service, 0x18, 500, 113, b"yes");
        let next = if port == 1001 { 120 } else { 113 };
        packet(time, true, port, service, 0x18, next, 503, b"bye\n");
        packet(time, false, port, service, 0x14, 503, next + 4, b"");
    }
    fs::write(&path, file).unwrap();
    text(&path).to_owned()
}

fn follow<'a>(capture: &'a str, id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![
        "streams",
        "--checksums",
        "ignore",
        "-r",
        capture,
        "--follow",
        id,
    ];
    arguments.extend(more);
    arguments
}

#[test]
fn a_connection_is_told_by_any_of_its_names() {
    let folder = Folder::new("follow-names");
    let capture = capture(&folder);
    let flows = json_lines(&run(&[
        "flows",
        "--json",
        "--checksums",
        "ignore",
        "-r",
        &capture,
    ]));
    let of_port = |port: u16| flows.iter().find(|flow| flow["src_port"] == port).unwrap();
    let ssh = of_port(1003);
    let said = "> hi\n> .[2Jthere\n< yes\n> bye\n";
    for id in [
        ssh["flow_id"].as_str().unwrap(),
        ssh["community_id"].as_str().unwrap(),
        "tcp 192.0.2.1:1003 192.0.2.7:22",
        "192.0.2.7:22 > 192.0.2.1:1003",
        "tcp,192.0.2.7,192.0.2.1:1003",
        ":22",
    ] {
        let output = run(&follow(&capture, id, &[]));
        assert_eq!(stdout(&output), said, "{id}: {}", stderr(&output));
        let words = "tcp 192.0.2.1:1003 > 192.0.2.7:22, flow_id";
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert!(
            !stderr(&output).contains("could be meant"),
            "{}",
            stderr(&output)
        );
    }
    let output = run(&follow(&capture, "192.0.2.7:80", &[]));
    let other = format!("flow_id {}", of_port(1002)["flow_id"].as_str().unwrap());
    let note = format!(
        "1 further connection could be meant by 192.0.2.7:80: tcp 192.0.2.1:1002 > 192.0.2.7:80, {other}"
    );
    assert!(stderr(&output).contains(&note), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("> [7 bytes missing]\n> bye\n"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn what_is_no_connection_is_refused_or_told() {
    let folder = Folder::new("follow-none");
    let capture = capture(&folder);
    fails(
        &follow(&capture, "udp :80", &[]),
        1,
        &["no connection with data matches udp :80", "hint: "],
    );
    fails(
        &follow(&capture, "icmp :80", &[]),
        2,
        &["\"icmp\" is not an endpoint", "hint: "],
    );
    fails(&follow(&capture, ":22", &["--hash"]), 2, &["--hash"]);
    fails(
        &follow(&capture, ":22", &["--hex", "--json"]),
        2,
        &["--hex"],
    );
    fails(&["streams", "-r", &capture, "--hex"], 2, &["--follow"]);
}

#[test]
fn it_is_text_a_dump_or_records() {
    let folder = Folder::new("follow-styles");
    let capture = capture(&folder);
    let dump = printed(&follow(&capture, ":22", &["-q", "-X"]));
    let first = "00000000  68 69 0d 0a 1b 5b 32 4a  74 68 65 72 65           hi...[2J there\n";
    assert!(dump.starts_with(first), "{dump}");
    assert!(dump.contains("\n\t00000000  79 65 73  "), "{dump}");
    let colored = printed(&follow(&capture, ":22", &["-q", "--color", "always"]));
    assert_eq!(
        colored,
        "\x1b[31mhi\x1b[0m\n\x1b[31m.[2Jthere\x1b[0m\n\x1b[34myes\x1b[0m\n\x1b[31mbye\x1b[0m\n"
    );
    let file = folder.file("said.txt");
    printed(&follow(
        &capture,
        ":22",
        &["-q", "--color", "always", "-w", text(&file)],
    ));
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        "> hi\n> .[2Jthere\n< yes\n> bye\n"
    );
    let records = json_lines(&run(&follow(&capture, "192.0.2.1:1001", &["-q", "--json"])));
    let told: Vec<String> = records
        .iter()
        .map(|it| {
            format!(
                "{} {} {} {} {} {}",
                it["direction"],
                it["offset"],
                it["missing_bytes"],
                it["bytes"],
                it["text"],
                it["data"]
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            r#""initiator" 0 0 13 "hi\r\n.[2Jthere" "68690d0a1b5b324a7468657265""#,
            r#""responder" 0 0 3 "yes" "796573""#,
            r#""initiator" 20 7 4 "bye\n" "6279650a""#,
        ]
    );
    let some = printed(&follow(
        &capture,
        ":22",
        &[
            "-q",
            "--csv",
            "--where",
            "direction = responder",
            "--fields",
            "bytes,text",
        ],
    ));
    assert_eq!(some, "bytes,text\n3,yes\n");
}
