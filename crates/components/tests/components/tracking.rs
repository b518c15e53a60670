//! Streams as packets, and packets of applications.

use crate::support::{Run, answer, ipv4, ipv6, program, segment, udp};
use flowgauge_generate::{Config, Detail, Preset, generate};

const SECOND: u64 = 1_000_000_000;

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

#[test]
fn what_lies_across_segments_is_found_in_cooked_packets() {
    let packets: Vec<(u64, Vec<u8>)> = vec![
        (SECOND, segment(1024, 80, 0, SYN, b"")),
        (SECOND + 1, segment(1024, 80, 1, ACK, b"GET /pass")),
        (SECOND + 2, segment(1024, 80, 14, ACK, b" HTTP/1.1")),
        (SECOND + 3, segment(1024, 80, 10, ACK, b"word")),
        (
            SECOND + 4,
            ipv4(17, 1, 0, false, &udp(53, 53, b"GET /password")),
        ),
    ];
    for size in [1, 3, 5] {
        let mut run = Run::new("[stack] search { \"/password HTTP\" } count");
        packets.chunks(size).for_each(|batch| run.at(batch));
        run.finish();
        assert_eq!(run.result("count"), 0);
        let mut run = Run::new(
            "[stack] cooking { checksums = ignore } count { as = all } search { \"/password HTTP\" } \
             bytes { of = payload } count { as = found }",
        );
        packets.chunks(size).for_each(|batch| run.at(batch));
        run.finish();
        assert_eq!(run.result("all"), 2, "batches of {size}");
        assert_eq!((run.result("found"), run.result("bytes")), (1, 22));
        assert_eq!(run.result("cook"), 1);
    }
}

#[test]
fn pieces_have_their_size_and_sides_and_are_given_after_a_time() {
    let mut packets = vec![(SECOND, segment(1024, 80, 0, SYN, b""))];
    for number in 0..10 {
        let at = 2 + u64::from(number);
        packets.push((
            at * SECOND,
            segment(1024, 80, 1 + 100 * number, ACK, &[b'c'; 100]),
        ));
        let reply = answer(segment(80, 1024, 1 + 100 * number, ACK, &[b's'; 100]));
        packets.push((at * SECOND + 1, reply));
    }
    packets.push((100 * SECOND, ipv4(17, 1, 0, false, &udp(1, 2, b""))));
    for (options, made, bytes) in [
        ("threshold = 300", 8, 2000),
        ("threshold = 300, once = yes", 2, 600),
        ("threshold = 300, side = 1", 4, 1000),
        ("threshold = 500, side = server", 2, 1000),
        ("timeout = 1h", 2, 2000),
        // Those of 2 to 5 s, say: four hundred bytes at a time.
        ("timeout = 3500ms, side = client", 3, 1000),
    ] {
        for size in [1, 4, packets.len()] {
            let stack = format!(
                "[stack] cook {{ {options}, checksums = ignore }} tcpscan bytes {{ of = payload }} count"
            );
            let mut run = Run::new(&stack);
            packets.chunks(size).for_each(|batch| run.at(batch));
            run.finish();
            assert_eq!(run.result("bytes"), bytes, "{options}, batches of {size}");
            assert_eq!(run.result("count"), made, "{options}, batches of {size}");
        }
    }
    let error = program("[stack] cook { 70k } count").expect_err("too long for IP");
    assert!(
        error.contains("threshold: is not between 1 and 65000"),
        "{error}"
    );
}

#[test]
fn cooked_packets_hold_all_bytes_and_are_whole() {
    let mut config = Config::new(Preset::Late).scaled(0.01);
    config.detail = Detail::Full;
    let mut trace = Vec::new();
    let truth = generate(&config, &mut trace).expect("memory");
    let expected: u64 = truth
        .streams
        .iter()
        .filter(|stream| stream.proto == "tcp")
        .map(|stream| stream.bytes - stream.missing_bytes)
        .sum();
    let mut run = Run::new(
        "[stack] tcpscan cook { 1000, timeout = 1h } bytes { of = payload } \
         display_filter { \"tcp.srcport and ip.len <= 1040\" } count \
         tcpcnxdemux { timeout = 1h } < tcpreseq { checksums = verify } bytes { as = again } >",
    );
    run.trace(&trace);
    assert_eq!(run.result("bytes(0)"), expected);
    // Put in order once more, their checksums looked at, they give the same bytes.
    assert_eq!(run.result("again"), expected);
    assert_eq!(run.result("count"), run.result("cook"));
}

#[test]
fn more_pieces_than_a_batch_holds_are_all_given() {
    let packets = [
        (SECOND, segment(1024, 80, 0, SYN, b"")),
        (SECOND + 1, segment(1024, 80, 1, ACK, &[b'c'; 600])),
    ];
    let mut run = Run::new("[stack] cook { 1, checksums = ignore } tcpscan bytes { of = payload }");
    run.at(&packets);
    run.finish();
    assert_eq!((run.result("cook"), run.result("bytes")), (600, 600));
}

/// How many packets a tracker lets through, whatever the batches.
fn passed(tracker: &str, packets: &[Vec<u8>]) -> u64 {
    let mut counts = [1, 2, packets.len()].map(|size| {
        let mut run = Run::new(&format!("[stack] {tracker} count"));
        run.packets(packets, size);
        run.result("count")
    });
    counts.sort_unstable();
    assert_eq!(counts[0], counts[2], "{tracker}");
    counts[0]
}

#[test]
fn applications_are_known_by_what_they_say() {
    let say = |text: &[u8]| segment(4000, 5000, 1, ACK, text);
    let datagram = |text: &[u8]| ipv4(17, 1, 0, false, &udp(4000, 5000, text));
    let later = || answer(segment(5000, 4000, 1, ACK, b"later"));
    for (tracker, packet) in [
        ("track_ftp", say(b"220 ProFTPD FTP server\r\n")),
        ("track_grid_ftp", say(b"220 host GridFTP Server 3.1\r\n")),
        ("track_gridftp", say(b"220 host GridFTP Server 3.1\r\n")),
        ("track_dc", say(b"$Lock EXTENDEDPROTOCOL Pk=x|")),
        ("track_gnutella", say(b"GNUTELLA CONNECT/0.6\r\n")),
        ("track_edonkey", say(b"\xe3\x02\x00\x00\x00\x01\x10")),
        ("track_torrent", say(b"\x13BitTorrent protocol\0\0\0\0")),
        (
            "track_torrent",
            say(b"GET /announce?x=1&info_hash=a HTTP/1.0\r\n"),
        ),
        ("track_irc", say(b"NICK somebody\r\nUSER a b c :d\r\n")),
        ("TRACK_WEB", say(b"GET / HTTP/1.1\r\n")),
    ] {
        let other = say(b"nothing in particular");
        let mut unrelated = other.clone();
        unrelated[19] = 9;
        let packets = [other.clone(), packet, later(), unrelated, other];
        assert_eq!(passed(tracker, &packets), 3, "{tracker}");
        assert_eq!(passed(tracker, &[later()]), 0, "{tracker}");
    }
    for (tracker, packet) in [
        ("track_gnutella", datagram(b"GND\x01abc")),
        ("track_edonkey", datagram(b"\xe3\x96\0\0\0\0")),
        (
            "track_torrent",
            datagram(b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaa"),
        ),
        ("track_skype", datagram(b"\x12\x34\x02aaaaaaaaaaaaaaaa")),
    ] {
        assert_eq!(
            passed(tracker, &[datagram(b"x"), packet, datagram(b"x")]),
            2,
            "{tracker}"
        );
    }
    // Of a length that is not that of the packet, and cut short.
    for text in [b"\xe3\x03\x00\x00\x00\x01\x10".as_slice(), b"\xe3", b""] {
        assert_eq!(passed("track_edonkey", &[say(text)]), 0);
    }
}

#[test]
fn applications_are_known_by_ports_unless_these_do_not_count() {
    for (tracker, port) in [
        ("track_ftp", 21),
        ("track_grid_ftp", 2811),
        ("track_dc", 411),
        ("track_gnutella", 6346),
        ("track_edonkey", 4662),
        ("track_torrent", 6881),
        ("track_skype", 33_033),
        ("track_irc", 6667),
        ("track_web", 443),
        ("track_mapi", 2233),
    ] {
        let packets = [
            segment(4000, port, 0, SYN, b""),
            answer(segment(port, 4000, 0, SYN | ACK, b"")),
            segment(4000, 5000, 0, SYN, b""),
        ];
        assert_eq!(passed(tracker, &packets), 2, "{tracker}");
        assert_eq!(
            passed(&format!("{tracker} {{ ports = no }}"), &packets),
            0,
            "{tracker}"
        );
    }
}

#[test]
fn data_connections_that_were_announced_are_followed() {
    let active = [
        segment(4000, 21, 1, ACK, b"PORT 192,0,2,1,4,1\r\n"),
        // From the server's port 20 to port 1025 of the client.
        answer(segment(2020, 1025, 0, SYN, b"")),
        answer(segment(2020, 1025, 1, ACK, b"data")),
        answer(segment(2020, 1026, 0, SYN, b"")),
    ];
    assert_eq!(passed("track_ftp", &active), 3);
    let passive = [
        answer(segment(
            21,
            4000,
            1,
            ACK,
            b"227 Entering Passive Mode (198,51,100,7,39,16)\r\n",
        )),
        segment(4001, 10_000, 0, SYN, b""),
        answer(segment(10_000, 4001, 0, SYN | ACK, b"")),
        segment(4001, 10_001, 0, SYN, b""),
    ];
    assert_eq!(passed("track_ftp", &passive), 3);
    let extended = [
        answer(segment(
            21,
            4000,
            1,
            ACK,
            b"229 Entering Extended Passive Mode (|||10000|)\r\n",
        )),
        segment(4001, 10_000, 0, SYN, b""),
        segment(4001, 10_001, 0, SYN, b""),
    ];
    assert_eq!(passed("track_ftp", &extended), 2);
}

#[test]
fn a_flow_is_forgotten_after_a_pause_and_tunnels_are_seen() {
    let hello = segment(4000, 5000, 1, ACK, b"GET / HTTP/1.1\r\n");
    let more = segment(4000, 5000, 20, ACK, b"more");
    let mut run = Run::new("[stack] track_web { timeout = 10s } count");
    run.at(&[(SECOND, hello), (10 * SECOND, more.clone())]);
    run.at(&[(25 * SECOND, more)]);
    assert_eq!((run.result("count"), run.result("track_web")), (2, 1));
    let inner = ipv4(17, 1, 0, false, &udp(1, 2, b""));
    let packets = [
        ipv4(4, 1, 0, false, &inner),
        inner.clone(),
        ipv4(41, 1, 0, false, &ipv6(17, &udp(3, 4, b""))),
    ];
    assert_eq!(passed("track_ipoverip", &packets), 2);
    assert_eq!(passed("track_ipoverip", &[inner]), 0);
}
