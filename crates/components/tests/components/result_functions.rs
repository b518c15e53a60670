//! Components that look at the results of others.

use crate::support::{Run, ipv4, program, udp};
use flowgauge_stack::{Cell, Table};
use flowgauge_wire::Nanos;

const SECOND: u64 = 1_000_000_000;

/// A datagram whose frame has this length.
fn packet(length: usize) -> Vec<u8> {
    ipv4(17, 1, 0, false, &udp(1, 2, &vec![0; length - 28]))
}

/// A stack over packets at these times, in batches of `size`, to its end.
fn run(stack: &str, packets: &[(u64, Vec<u8>)], size: usize) -> Run {
    let mut run = Run::new(&format!("[stack] {stack}"));
    packets.chunks(size).for_each(|batch| run.at(batch));
    run.finish();
    run
}

fn rows(table: &Table) -> Vec<(Cell, Cell)> {
    let rows = table.rows.iter();
    rows.map(|row| (row[0].clone(), row[1].clone())).collect()
}

fn series(rows: &[(u64, u64)]) -> Vec<(Cell, Cell)> {
    let rows = rows.iter();
    rows.map(|(time, value)| (Cell::Time(Nanos(*time)), Cell::Unsigned(*value)))
        .collect()
}

#[test]
fn buckets_hold_what_came_in_their_interval_however_packets_are_batched() {
    let half = SECOND / 2;
    let packets: Vec<(u64, Vec<u8>)> = [21, 22, 23, 24, 30, 31]
        .map(|halves| (halves * half, packet(100)))
        .to_vec();
    for size in [1, 2, 6] {
        let run = run(
            "count bucket { of = count } bucket { count, reset = no } bucket { bytes, slots = 2 } bytes \
             bucket { of = gap } gap bucket { count, 1h }",
            &packets,
            size,
        );
        let expected = [(10, 1), (11, 2), (12, 1), (13, 0), (14, 0), (15, 2)];
        let expected = expected.map(|(second, value)| (second * SECOND, value));
        assert_eq!(
            rows(&run.table("bucket(0)")),
            series(&expected),
            "batches of {size}"
        );
        let sums = [(10, 1), (11, 3), (12, 4), (13, 4), (14, 4), (15, 6)];
        let sums = sums.map(|(second, value)| (second * SECOND, value));
        assert_eq!(rows(&run.table("bucket(1)")), series(&sums));
        let bytes = [(14 * SECOND, 0), (15 * SECOND, 200)];
        assert_eq!(rows(&run.table("bucket(2)")), series(&bytes));
        let gaps = [
            (10, 0),
            (11, half),
            (12, half),
            (13, 0),
            (14, 0),
            (15, half),
        ];
        let gaps = gaps.map(|(second, value)| (second * SECOND, value));
        assert_eq!(rows(&run.table("bucket(3)")), series(&gaps));
        assert_eq!(rows(&run.table("bucket(4)")), series(&[(0, 6)]));
    }
}

#[test]
fn a_long_silence_makes_no_more_rows_than_are_kept() {
    let packets = [(SECOND, packet(100)), (400 * 86_400 * SECOND, packet(100))];
    let run = run("count bucket { count, 1us, slots = 5 }", &packets, 2);
    let table = run.table("bucket");
    assert_eq!(table.rows.len(), 5);
    assert_eq!(
        table.rows[4],
        [Cell::Time(Nanos(400 * 86_400 * SECOND)), Cell::Unsigned(1)]
    );
}

#[test]
fn statistics_and_histograms_are_of_each_packet() {
    let packets: Vec<(u64, Vec<u8>)> = [60, 100, 60, 1500, 200]
        .into_iter()
        .zip(1..)
        .map(|(length, second)| (second * SECOND, packet(length)))
        .collect();
    for size in [1, 5] {
        let run = run(
            "packet_info statistics { packet_info } filter { less 200 } stats { of = packet_info } \
             distribution { packet_info, 60, 200, 50 }",
            &packets,
            size,
        );
        let number = Cell::Unsigned;
        let squares = 2 * 3600 + 10_000 + 2_250_000 + 40_000;
        let expected = [5, 1920, squares, 1500, 60].map(number);
        assert_eq!(run.table("statistics(0)").rows, [expected.to_vec()]);
        // Behind the filter only those that it lets through.
        let expected = [4, 420, 2 * 3600 + 10_000 + 40_000, 200, 60].map(number);
        assert_eq!(run.table("statistics(1)").rows, [expected.to_vec()]);
        let expected = [
            (Cell::None, number(0)),
            (number(60), number(3)),
            (number(110), number(0)),
            (number(160), number(0)),
            (number(200), number(1)),
        ];
        assert_eq!(rows(&run.table("distribution")), expected);
    }
}

#[test]
fn statistics_of_a_count_are_of_each_interval_in_which_packets_came() {
    let packets: Vec<(u64, Vec<u8>)> = [10, 10, 10, 11, 15, 15]
        .map(|second| (second * SECOND, packet(100)))
        .to_vec();
    for size in [1, 4, 6] {
        let run = run(
            "count statistics { count } dist { count, 1, 4, 1 }",
            &packets,
            size,
        );
        let expected = [3, 6, 9 + 1 + 4, 3, 1].map(Cell::Unsigned);
        assert_eq!(
            run.table("statistics").rows,
            [expected.to_vec()],
            "batches of {size}"
        );
        let counts: Vec<Cell> = run
            .table("distribution")
            .rows
            .into_iter()
            .map(|row| row[1].clone())
            .collect();
        assert_eq!(counts, [0, 1, 1, 1, 0].map(Cell::Unsigned));
    }
    let run = run("count statistics { count }", &[], 1);
    let none = [
        Cell::Unsigned(0),
        Cell::Unsigned(0),
        Cell::Unsigned(0),
        Cell::None,
        Cell::None,
    ];
    assert_eq!(run.table("statistics").rows, [none.to_vec()]);
}

#[test]
fn results_are_added_and_subtracted() {
    let packets = [(SECOND, packet(100)), (2 * SECOND, packet(300))];
    let run = run(
        "count { as = all } filter { greater 200 } count { as = large } binop { add, all, large } \
         binop { 1, large, with = all } bucket { binary_operation(0) } \
         binop { subtract, binary_operation(0), large, as = nested }",
        &packets,
        2,
    );
    assert_eq!(run.difference("binary_operation(0)"), 3);
    assert_eq!(run.difference("binary_operation(1)"), -1);
    assert_eq!(run.difference("nested"), 2);
    assert_eq!(
        rows(&run.table("bucket")),
        series(&[(SECOND, 1), (2 * SECOND, 2)])
    );
    // Made of each other: there is none, but nothing goes round for ever.
    let run = self::run(
        "count binop { add, y, count, as = x } binop { add, x, count, as = y }",
        &packets,
        1,
    );
    assert_eq!(
        run.graph.result(run.stack.find("x").expect("it is there")),
        None
    );
    let error = program("[stack] count bucket { of = bucket }").expect_err("itself");
    assert!(error.contains("bucket is this component"), "{error}");
}

#[test]
fn a_threshold_is_noted_when_it_is_reached() {
    let packets: Vec<(u64, Vec<u8>)> = [10, 11, 11, 11, 12, 15, 15]
        .map(|second| (second * SECOND, packet(100)))
        .to_vec();
    for size in [1, 7] {
        let run = run(
            "count threshold { count, 3 } threshold { count, 1, difference_greater, count = 5 } \
             threshold { count, 0, 4, count = 9 } threshold { count, 2, 0, divider = 2, count = 2 }",
            &packets,
            size,
        );
        let at = |rows: &[(u64, u64)]| {
            let rows: Vec<(u64, u64)> = rows
                .iter()
                .map(|(second, value)| (second * SECOND, *value))
                .collect();
            series(&rows)
        };
        // 4 at the end of the second from 11 to 12.
        assert_eq!(
            rows(&run.table("threshold(0)")),
            at(&[(12, 4)]),
            "batches of {size}"
        );
        assert_eq!(rows(&run.table("threshold(1)")), at(&[(12, 3), (16, 2)]));
        assert_eq!(rows(&run.table("threshold(2)")), at(&[(15, 0)]));
        assert_eq!(rows(&run.table("threshold(3)")), at(&[(12, 2), (13, 2)]));
    }
}

#[test]
fn results_are_written_as_they_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let packets: Vec<(u64, Vec<u8>)> = [10, 11, 11, 14]
        .map(|second| (second * SECOND, packet(100)))
        .to_vec();
    let stack = format!(
        "count bytes res2file {{ \"count, bytes\", {}, interval = 1s, header = packets }} \
         bucket {{ count, 10s }} res2file {{ \"bucket count\", {} }} res2file {{ count, {}, format = raw }}",
        file("text"),
        file("end"),
        file("raw"),
    );
    let run = run(&stack, &packets, 3);
    let read = |name: &str| std::fs::read(file(name)).expect("it was written");
    assert_eq!(
        String::from_utf8_lossy(&read("text")),
        "packets\n11.000000000\t1\t100\n14.000000000\t3\t300\n14.000000000\t4\t400\n"
    );
    assert_eq!(
        String::from_utf8_lossy(&read("end")),
        "14.000000000\t4\nbucket\ttime=10.000000000 value=4\n"
    );
    assert_eq!(read("raw"), 4_u64.to_le_bytes());
    assert_eq!(run.result("result_to_file(0)"), 3);
    let error = program("[stack] count res2file { counts }").expect_err("counts");
    assert!(error.contains("of: unknown component counts"), "{error}");
}

#[test]
fn a_threshold_opens_the_way_or_ends_the_stack() {
    let packets: Vec<(u64, Vec<u8>)> = [10, 11, 11, 11, 12, 13, 14, 15]
        .map(|second| (second * SECOND, packet(100)))
        .to_vec();
    for size in [1, 3, 8] {
        let run = run(
            "count { as = all } threshold { all, 3, then = open } count { as = after }",
            &packets,
            size,
        );
        // 4 at the end of the second from 11 to 12.
        assert_eq!(run.result("after"), 4, "batches of {size}");
        let mut run = Run::new(
            "[stack] count { as = all } threshold { all, 1, difference_greater, then = end } \
             count { as = behind }",
        );
        let mut over = Vec::new();
        for batch in packets.chunks(size) {
            run.at(batch);
            over.push(run.graph.has_enough());
        }
        // With the packet of 12, at the latest with its batch.
        let expected: Vec<bool> = (1..=over.len()).map(|done| done * size >= 5).collect();
        assert_eq!(over, expected, "batches of {size}");
        assert_eq!(run.result("all"), 4, "batches of {size}");
    }
    let mut run = Run::new("[stack] count threshold { count, 1k, then = end, timeout = 2s }");
    run.at(&packets[..4]);
    assert!(!run.graph.has_enough());
    run.at(&packets[4..5]);
    assert!(run.graph.has_enough());
    let error = program("[stack] count threshold { count, 1, timeout = 2s }").expect_err("end");
    assert!(
        error.contains("timeout: has no meaning without then = end"),
        "{error}"
    );
}

#[test]
fn results_are_written_as_json_and_as_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let packets: Vec<(u64, Vec<u8>)> = [10, 11, 13]
        .map(|second| (second * SECOND, packet(100)))
        .to_vec();
    let stack = format!(
        "count gap bucket {{ count, 10s }} res2file {{ \"count, bucket\", {}, format = json }} \
         res2file {{ gap, {}, format = 2 }}",
        file("json"),
        file("seconds"),
    );
    run(&stack, &packets, 2);
    let read = |name: &str| std::fs::read_to_string(file(name)).expect("it was written");
    assert_eq!(
        read("json"),
        "{\"time\":\"1970-01-01T00:00:13.000000000Z\",\"component\":\"count\",\"value\":3,\"row\":null}\n\
         {\"time\":\"1970-01-01T00:00:13.000000000Z\",\"component\":\"bucket\",\"value\":null,\
         \"row\":{\"time\":\"1970-01-01T00:00:10.000000000Z\",\"value\":3}}\n"
    );
    assert_eq!(read("seconds"), "13.000000000\t2.000000000\n");
}

#[test]
fn counts_have_values_of_packets_where_they_are_asked_for() {
    let lengths = [60_u64, 100, 60, 1500, 200];
    let packets: Vec<(u64, Vec<u8>)> = (1..)
        .zip(lengths)
        .map(|(second, length)| (second * SECOND, packet(length as usize)))
        .collect();
    for size in [1, 2, 5] {
        let run = run(
            "count { values = yes } bytes { values = yes } stats { of = count } stats { of = bytes, skip = 1 } filter { greater 100 } \
             distribution { count, 0, 6, 1 }",
            &packets,
            size,
        );
        let number = Cell::Unsigned;
        let expected = [5, 15, 55, 5, 1].map(number);
        assert_eq!(
            run.table("statistics(0)").rows,
            [expected.to_vec()],
            "batches of {size}"
        );
        let sums = [160_u64, 220, 1720, 1920];
        let squares = sums.iter().map(|sum| sum * sum).sum();
        let expected = [4, sums.iter().sum(), squares, 1920, 160].map(number);
        assert_eq!(run.table("statistics(1)").rows, [expected.to_vec()]);
        let counts: Vec<Cell> = run
            .table("distribution")
            .rows
            .iter()
            .map(|row| row[1].clone())
            .collect();
        assert_eq!(counts, [0, 0, 0, 1, 0, 1, 1, 0].map(number));
    }
}

#[test]
fn branches_of_a_copy_see_what_goes_on() {
    let packets: Vec<(u64, Vec<u8>)> = [60, 100, 60, 1500, 200]
        .map(|length| (SECOND, packet(length)))
        .to_vec();
    for size in [1, 5] {
        let run = run(
            "copy ( filter { greater 100 } count { as = long } discard | flows { as = flows } discard ) filter { less 100 } \
             count { as = short } binary_operation { add, of = long, with = short } count { as = last }",
            &packets,
            size,
        );
        let numbers = ["long", "flows", "short", "last"].map(|label| run.result(label));
        assert_eq!(numbers, [3, 1, 3, 3]);
        assert_eq!(run.difference("binary_operation"), 6);
    }
}

#[test]
fn times_are_told_in_the_fixed_point_of_mapi() {
    let packets = [
        (SECOND + SECOND / 2, packet(60)),
        (3 * SECOND + 1, packet(60)),
    ];
    let run = run("packet_info { ticks } gap { ticks }", &packets, 2);
    assert_eq!(run.result("packet_info"), (3 << 32) + 4);
    assert_eq!(run.result("gap"), (3 << 31) + 4);
}
