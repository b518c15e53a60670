//! Components that remember packets: bursts, the last ones, the most, flows that have ended.

use crate::support::{Run, answer, ethernet, ipv4, ipv6, program, tcp, udp};
use flowgauge_stack::{Cell, Table};
use flowgauge_wire::{LinkType, Nanos};

const SECOND: u64 = 1_000_000_000;

fn packet(from: u8, length: usize) -> Vec<u8> {
    let mut packet = ipv4(17, 1, 0, false, &udp(1, 2, &vec![0; length - 28]));
    packet[15] = from;
    packet
}

fn numbers(table: &Table, column: usize) -> Vec<u64> {
    let cells = table.rows.iter().map(|row| &row[column]);
    cells
        .map(|cell| match cell {
            Cell::Unsigned(number) => *number,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn packets_come_through_between_two_times() {
    let packets: Vec<(u64, Vec<u8>)> = (10..20)
        .map(|second| (second * SECOND, packet(1, 100)))
        .collect();
    for (options, expected) in [
        ("+2s, +5s", 3),
        ("stop = +2500ms", 3),
        ("+0, +100s", 10),
        ("\"1970-01-01 00:00:15\"", 5),
        ("\"1970-01-01 00:00:12\", +3s", 1),
        ("+7s, \"1970-01-01 00:00:12\"", 0),
    ] {
        let mut run = Run::new(&format!("[stack] startstop {{ {options} }} count"));
        packets.chunks(4).for_each(|batch| run.at(batch));
        assert_eq!(run.result("count"), expected, "{options}");
    }
    let mut run = Run::new("[stack] start_stop { +2s, +5s }");
    run.at(&packets);
    let times = [10, 12, 14].map(|second| Cell::Time(Nanos(second * SECOND)));
    assert_eq!(run.table("start_stop").rows, [times.to_vec()]);
    let error = program("[stack] start_stop { 10s } count").expect_err("no +");
    assert!(error.contains("start: \"10s\" is not a time"), "{error}");
}

#[test]
fn nothing_comes_before_the_others_have_begun() {
    let mut run = Run::new(
        "[stack] filter { greater 200 } count { as = large } sync { large } count { as = open }",
    );
    run.packets(&[packet(1, 300)], 1);
    assert_eq!(run.result("open"), 1);
    let mut run = Run::new(
        "[stack] ipprotoswitch ( count { as = tcp } | sync { of = \"tcp\" } count { as = udp } ) discard",
    );
    let segment = ipv4(6, 1, 0, false, &tcp(1, 2));
    run.packets(
        &[packet(1, 100), packet(1, 100), segment, packet(1, 100)],
        1,
    );
    assert_eq!((run.result("udp"), run.result("sync")), (1, 2));
}

#[test]
fn the_last_packets_are_kept_as_they_were() {
    let mut run = Run::new("[stack] to_buffer { 3 } to_buffer { 1, snap = 4 }");
    let packets: Vec<Vec<u8>> = [100, 60, 1500, 200, 61]
        .map(|length| packet(7, length))
        .to_vec();
    run.packets(&packets, 2);
    let table = run.table("to_buffer(0)");
    assert_eq!(numbers(&table, 1), [1500, 200, 61]);
    let hexadecimal: String = packets[4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(table.rows[2][3], Cell::Text(hexadecimal));
    assert_eq!(table.rows[2][2], Cell::Unsigned(LinkType::RAW.0.into()));
    let short = run.table("to_buffer(1)");
    assert_eq!(short.rows[0][3], Cell::Text("4500003d".to_owned()));
}

#[test]
fn bursts_end_with_a_pause() {
    // At 1000 Mbit/s 1000 bytes take 8 us.
    let at = |micros: u64| micros * 1000;
    let packets = [
        (at(100), packet(1, 1000)),
        (at(108) + 96, packet(1, 1000)),
        (at(116) + 200, packet(1, 1000)),
        // 100 us later: 92 us of silence, room for 11,500 bytes.
        (at(216) + 200, packet(1, 1000)),
        // Sooner than the link could have carried it.
        (at(217), packet(1, 1000)),
    ];
    for size in [1, 5] {
        let mut run = Run::new("[stack] burst { 1k, 4k, 1k, speed = 1000 }");
        packets.chunks(size).for_each(|batch| run.at(batch));
        run.finish();
        let table = run.table("burst");
        let from: Vec<Cell> = table.rows.iter().map(|row| row[0].clone()).collect();
        assert_eq!(
            from,
            [Cell::None, Cell::Unsigned(2048), Cell::Unsigned(4096)]
        );
        // Two bursts of one packet and a gap without room; one of three; one gap.
        assert_eq!(numbers(&table, 1), [2000, 3000, 0]);
        assert_eq!(numbers(&table, 2), [2, 3, 0]);
        assert_eq!(numbers(&table, 3), [2, 1, 0]);
        assert_eq!(numbers(&table, 4), [0, 0, 11_500]);
        assert_eq!(numbers(&table, 5), [1, 0, 1]);
    }
    let error = program("[stack] burst { 4k, 1k }").expect_err("min and max");
    assert!(
        error.contains("there is no interval between min and max"),
        "{error}"
    );
}

#[test]
fn the_most_are_told_by_packets_or_bytes() {
    let mut packets = vec![packet(1, 1000), ipv6(17, &udp(1, 2, b""))];
    packets.extend((0..5).map(|_| packet(2, 100)));
    packets.extend((3..250).map(|host| packet(host, 60)));
    let mut run = Run::new(
        "[stack] top { ip.src, 2 } top { by = \"ip.src ipv6.src\", count = 300, sort = packets } \
         top { udp.dstport } top",
    );
    run.packets(&packets, 100);
    let host = |last| Cell::Address(std::net::IpAddr::from([192, 0, 2, last]));
    let table = run.table("top(0)");
    assert_eq!(table.rows[0][0], host(1));
    assert_eq!(table.rows[1][0], host(2));
    assert_eq!(
        (numbers(&table, 1), numbers(&table, 2)),
        (vec![1, 5], vec![1000, 500])
    );
    let table = run.table("top(1)");
    assert_eq!(table.rows.len(), 250);
    assert_eq!(table.rows[0][0], host(2));
    assert!(
        table
            .rows
            .iter()
            .any(|row| matches!(row[0], Cell::Address(ip) if ip.is_ipv6()))
    );
    assert_eq!(numbers(&run.table("top(2)"), 1), [254]);
    // Receivers count, too.
    assert_eq!(numbers(&run.table("top(3)"), 1)[0], 253);
    let error = program("[stack] top { ip.source }").expect_err("no such field");
    assert!(error.contains("by: there is no field ip.source"), "{error}");
}

#[test]
fn a_full_table_says_how_wrong_it_may_be() {
    let mut run = Run::new("[stack] top { udp.srcport, 3, packets, table = 2000 }");
    let mut packets = Vec::new();
    for port in 0..6000_u16 {
        packets.push(ipv4(17, 1, 0, false, &udp(port + 100, 9, b"")));
        packets.push(ipv4(17, 1, 0, false, &udp(7, 9, b"")));
    }
    packets.push(ipv4(17, 1, 0, false, &udp(8, 9, b"")));
    run.packets(&packets, 200);
    let table = run.table("top");
    assert_eq!(
        table.rows[0][..4],
        [7, 6000, 6000 * 28, 0].map(Cell::Unsigned)
    );
    assert_eq!(table.rows[0][4], Cell::Time(Nanos(SECOND)));
    // What came late may have been there before, once as often as the last that was forgotten.
    assert!(numbers(&table, 3)[1..].iter().all(|error| *error >= 1));
}

#[test]
fn the_most_of_the_last_interval() {
    let mut run = Run::new("[stack] top { ip.src, 1, interval = 10s }");
    let packets: Vec<(u64, Vec<u8>)> = [(11, 1), (12, 1), (13, 2), (21, 2), (25, 2), (31, 3)]
        .map(|(second, host)| (second * SECOND, packet(host, 100)))
        .to_vec();
    run.at(&packets[..3]);
    assert_eq!(numbers(&run.table("top"), 1), [2]);
    run.at(&packets[3..]);
    let host = Cell::Address(std::net::IpAddr::from([192, 0, 2, 2]));
    let expected = [
        host,
        Cell::Unsigned(2),
        Cell::Unsigned(200),
        Cell::Unsigned(0),
        Cell::Time(Nanos(20 * SECOND)),
    ];
    assert_eq!(run.table("top").rows, [expected.to_vec()]);
}

#[test]
fn flows_are_kept_when_they_have_ended() {
    let request = |port| ipv4(17, 1, 0, false, &udp(port, 53, b"q"));
    let mut fin = tcp(4000, 80);
    fin[13] = 0x11;
    let packets = [
        (100 * SECOND, request(1000)),
        (170 * SECOND, request(2000)),
        (
            171 * SECOND,
            answer(ipv4(17, 1, 0, false, &udp(53, 2000, b"answer"))),
        ),
        (172 * SECOND, request(2000)),
        (173 * SECOND, ipv4(6, 1, 0, false, &tcp(4000, 80))),
        (174 * SECOND, ipv4(6, 1, 0, false, &fin)),
        (175 * SECOND, ethernet(None, &request(1))[14..].to_vec()),
    ];
    let mut run = Run::new("[stack] expired_flows expired_flows { least = 2, warmup = no }");
    run.at(&packets);
    // The one with FIN has ended, and the one that may have begun before the capture.
    assert_eq!(numbers(&run.table("expired_flows(0)"), 5), [4000]);
    run.at(&[(300 * SECOND, request(3000))]);
    let mut ports = numbers(&run.table("expired_flows(0)"), 5);
    ports.sort_unstable();
    assert_eq!(ports, [1, 53, 2000, 4000]);
    run.finish();
    let table = run.table("expired_flows(0)");
    let flow = table.rows.iter().find(|row| row[5] == Cell::Unsigned(2000));
    let flow = flow.expect("it has ended");
    assert_eq!(flow[0], Cell::Time(Nanos(170 * SECOND)));
    assert_eq!(flow[1..3], [Cell::Unsigned(2), Cell::Unsigned(58)]);
    assert_eq!(flow[6..], [53, 17, 64].map(Cell::Unsigned));
    assert_eq!(numbers(&run.table("expired_flows(1)"), 1), [2, 2]);
}

#[test]
fn what_became_of_all_flows_stands_above_those_that_have_ended() {
    let request = |port| ipv4(17, 1, 0, false, &udp(port, 53, b"q"));
    let mut packets = vec![(100 * SECOND, request(1)), (101 * SECOND, request(1))];
    packets.extend((2..7).map(|port| ((200 + u64::from(port)) * SECOND, request(port))));
    packets.extend([(207 * SECOND, request(6)), (208 * SECOND, request(5))]);
    packets.push((500 * SECOND, request(9)));
    let mut run = Run::new("[stack] expired_flows { 1, least = 2 }");
    run.at(&packets);
    let head = run.table("expired_flows").head.expect("counts");
    let counts: Vec<u64> = (0..10).map(|column| numbers(&head, column)[0]).collect();
    // 1 may have begun before; 2, 3, 4 are too short; of 5 and 6 one is forgotten; 9 goes on.
    assert_eq!(counts, [1, 7, 6, 4, 1, 2, 10, 9, 5, 2]);
    assert_eq!(run.table("expired_flows").rows.len(), 1);
}

#[test]
fn what_came_before_and_after_a_text_comes_through() {
    let say = |port, text: &[u8]| ipv4(17, 1, 0, false, &udp(port, 53, text));
    let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
    for number in 0..40_u64 {
        let text = format!("number {number:02}");
        packets.push((
            (number + 1) * SECOND,
            say(1 + number as u16 % 2, text.as_bytes()),
        ));
    }
    packets[20].1 = say(1, b"the secret");
    for (options, expected) in [
        ("secret, 3, 2", vec![14, 16, 18, 20, 22, 24]),
        ("SECRET, 1, 1, nocase = yes", vec![18, 20, 22]),
        ("secret, 0, 0", vec![20]),
        (
            "secret, 100, 100, timeout = 5s",
            (0..=24).step_by(2).collect(),
        ),
        ("nothing", vec![]),
        // Both flows have one.
        ("\"secret||number 21\", 1, 1", vec![18, 20, 19, 21, 22, 23]),
    ] {
        for size in [1, 7, 40] {
            let stack = format!("[stack] around {{ {options} }} to_buffer {{ 100 }}");
            let mut run = Run::new(&stack);
            packets.chunks(size).for_each(|batch| run.at(batch));
            let rows = run.table("to_buffer").rows;
            let times: Vec<Cell> = rows.iter().map(|row| row[0].clone()).collect();
            let at = |number: &u64| Cell::Time(Nanos((number + 1) * SECOND));
            let expected: Vec<Cell> = expected.iter().map(at).collect();
            assert_eq!(times, expected, "{options}, batches of {size}");
        }
    }
}

#[test]
fn packets_before_a_text_are_kept_in_bounded_memory() {
    let mut run = Run::new("[stack] around { secret, 1M, 0, memory = 64k } to_buffer { 10k }");
    let packets: Vec<Vec<u8>> = (0..3000_u32)
        .map(|number| {
            let length = 100 + (number * 7919 % 1300) as usize;
            packet(1, length)
        })
        .collect();
    run.packets(&packets, 100);
    run.packets(&[ipv4(17, 1, 0, false, &udp(1, 2, b"secret"))], 1);
    let rows = run.table("to_buffer").rows;
    // As many of the last ones as fit, each as it was.
    assert!((40..=90).contains(&rows.len()), "{}", rows.len());
    let (_, before) = rows.split_last().expect("the one with the text");
    for (row, packet) in before.iter().rev().zip(packets.iter().rev()) {
        assert_eq!(row[1], Cell::Unsigned(packet.len() as u64));
        let hexadecimal: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(row[3], Cell::Text(hexadecimal));
    }
}
