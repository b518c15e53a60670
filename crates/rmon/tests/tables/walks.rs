//! Walks with time filters, and rows that come and go during one.

use flowgauge_rmon::{Oid, Probe, Tree, Value};

use crate::frames::{SPEED, send, tick, udp};
use crate::sets::set;
use crate::traces::walk;

/// When sysUpTime is 0.
const ZERO: u64 = 1_000_000;

/// nlMatrixSDPkts of a walk below a mark, as (mark, row by the last number of its source, value).
fn marked(probe: &mut Probe, mark: u32) -> Vec<(u32, u32, u32)> {
    let found = walk(probe, &format!("15.2.1.4.1.{mark}"));
    let row = |(name, value): (Oid, Value)| {
        let numbers = name.numbers();
        let address = numbers[14] as usize;
        let Value::Gauge32(value) = value else {
            panic!("{name}: {value:?}");
        };
        (numbers[12], numbers[14 + address], value)
    };
    found.into_iter().map(row).collect()
}

/// The walks that RFC 4502 has worked out (section 6, TimeFilter), in one pass: the rows with the first mark. Rows 1 and
/// 2 are IPv4 from the start, row 3 is IPv6 from tick 3; hosts of that are no longer counted at tick 7, so that it goes.
#[test]
fn worked_examples_of_the_rfc() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(ZERO);
    let at = |probe: &mut Probe, time: u64, row: u8, times: usize| {
        send(probe, 0, ZERO + time, times, &udp(row != 3, (row, 9), 9999));
    };
    at(&mut probe, 0, 1, 1);
    at(&mut probe, 0, 2, 1);
    assert_eq!(walk(&mut probe, "15.2"), [], "sysUpTime is 0");
    at(&mut probe, 3, 3, 1);
    assert_eq!(marked(&mut probe, 0), [(0, 1, 1), (0, 2, 1), (0, 3, 1)]);
    at(&mut probe, 5, 3, 16);
    at(&mut probe, 6, 1, 4);
    assert_eq!(marked(&mut probe, 3), [(3, 1, 5), (3, 3, 17)]);
    tick(&mut probe, ZERO + 7);
    let ipv6 = "11.2.1.8.8.0.0.0.1.0.0.134.221.2.0.0";
    assert_eq!(set(&mut probe, &[(ipv6, Value::Integer(2))]), Ok(()));
    at(&mut probe, 8, 2, 8);
    tick(&mut probe, ZERO + 9);
    assert_eq!(marked(&mut probe, 6), [(6, 1, 5), (6, 2, 9)]);
    // Exactly those ticks: nothing at the next ones.
    assert_eq!(marked(&mut probe, 7), [(7, 2, 9)]);
    assert_eq!(marked(&mut probe, 9), []);
    // A row is there at each mark up to its own.
    let row = |mark: u32| -> Oid {
        let text = format!("1.3.6.1.2.1.16.15.2.1.4.1.{mark}");
        let network = probe_network();
        text.parse::<Oid>()
            .unwrap()
            .child(&[network])
            .octets(&[10, 0, 0, 1])
            .octets(&[10, 0, 0, 9])
    };
    assert_eq!(probe.get(&row(6)), Ok(Value::Gauge32(5)));
    assert_eq!(probe.get(&row(7)), Err(flowgauge_rmon::Missing::Instance));
}

/// RFC 4502, TimeFilter and LastCreateTime: when sysUpTime is 0 again after 497 days, what changed before is at mark 0 alone, and
/// times of creation stay.
#[test]
fn time_marks_are_purged_when_sys_up_time_wraps() {
    const ROUND: u64 = 1 << 32;
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(ZERO);
    let at = |probe: &mut Probe, time: u64, row: u8| {
        send(probe, 0, ZERO + time, 1, &udp(true, (row, 9), 9999));
    };
    let created = |probe: &mut Probe| -> Vec<Value> {
        let all = walk(probe, "15.2.1.6.1.0");
        all.into_iter().map(|(_, value)| value).collect()
    };
    at(&mut probe, 5, 1);
    at(&mut probe, ROUND - 1, 2);
    let last = u32::MAX;
    assert_eq!(marked(&mut probe, last), [(last, 2, 1)]);
    assert_eq!(marked(&mut probe, 5), [(5, 1, 1), (5, 2, 1)]);
    // Stamps begin anew at 5.
    at(&mut probe, ROUND + 1, 3);
    for time in [2, 4, 5, 10] {
        tick(&mut probe, ZERO + ROUND + time);
        assert_eq!(marked(&mut probe, 1), [(1, 3, 1)], "{time}");
        assert_eq!(marked(&mut probe, 0).len(), 3, "{time}");
        assert_eq!(
            created(&mut probe),
            [5, last, 1].map(Value::TimeTicks),
            "{time}"
        );
    }
    at(&mut probe, ROUND + 20, 1);
    assert_eq!(marked(&mut probe, 1), [(1, 1, 2), (1, 3, 1)]);
    assert_eq!(marked(&mut probe, 20), [(20, 1, 2)]);
    assert_eq!(marked(&mut probe, 21), []);
    assert_eq!(created(&mut probe), [5, last, 1].map(Value::TimeTicks));
    // A clock that first jumps that far.
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    at(&mut probe, 0, 1);
    probe.set_zero(ZERO + 3 * ROUND);
    at(&mut probe, 3 * ROUND + 7, 2);
    assert_eq!(marked(&mut probe, 7), [(7, 2, 1)]);
    assert_eq!(marked(&mut probe, 8), []);
}

/// LocalIndex of IPv4 over Ethernet, which is the same in each probe.
fn probe_network() -> u32 {
    let name: Oid = "1.3.6.1.2.1.16.11.2.1.3.8.0.0.0.1.0.0.8.0.2.0.0"
        .parse()
        .unwrap();
    match Probe::new().get(&name) {
        Ok(Value::Integer(local)) => local as u32,
        other => panic!("{other:?}"),
    }
}

/// After the rows of a mark a walk goes on with the next object; the next control row's begin at mark 0.
#[test]
fn a_walk_passes_once_through_each_control_row() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.add_interface(2, SPEED);
    probe.set_zero(ZERO);
    send(&mut probe, 0, ZERO + 5, 1, &udp(true, (1, 2), 53));
    send(&mut probe, 1, ZERO + 6, 1, &udp(true, (3, 4), 53));
    let start: Oid = "1.3.6.1.2.1.16.14.2.1.4.1.5".parse().unwrap();
    let mut at = start;
    let mut marks = Vec::new();
    while let Some((name, _)) = probe.next(&at, false, None) {
        let numbers = name.numbers();
        if numbers[7..11] != [14, 2, 1, 4] {
            assert_eq!(numbers[7..11], [14, 2, 1, 5]);
            break;
        }
        marks.push((numbers[11], numbers[12], *numbers.last().unwrap()));
        at = name;
    }
    assert_eq!(marks, [(1, 5, 1), (1, 5, 2), (2, 0, 3), (2, 0, 4)]);
}

/// Whatever a walk begins at, the next object is the first one behind it in a walk of all.
#[test]
fn next_is_behind_any_name() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(ZERO);
    for host in 1..6 {
        send(
            &mut probe,
            0,
            ZERO + u64::from(host),
            1,
            &udp(host % 2 == 0, (host, 9), 53),
        );
    }
    let groups = (12..=17).map(|group| walk(&mut probe, &group.to_string()));
    let all: Vec<_> = groups.collect::<Vec<_>>().concat();
    let names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
    assert!(names.is_sorted() && names.len() > 300, "{}", names.len());
    for (name, value) in &all {
        assert_eq!(probe.get(name).as_ref(), Ok(value));
        assert_eq!(
            probe.next(name, true, None).as_ref(),
            Some(&(name.clone(), value.clone()))
        );
        // Cut anywhere, or with something behind.
        for length in 8..name.numbers().len() {
            let start = Oid::new(&name.numbers()[..length]);
            for start in [start.clone(), start.child(&[0]), start.child(&[u32::MAX])] {
                // Rows are there at other marks than 0, too.
                let of_map = start.numbers()[7..].starts_with(&[13, 5, 1]);
                let mark = start.numbers().get(if of_map { 11 } else { 12 });
                if mark.is_some_and(|mark| *mark != 0) {
                    continue;
                }
                let expected = names.partition_point(|other| *other <= start);
                let expected = all.get(expected).map(|(name, _)| name);
                let found = probe.next(&start, false, None);
                if let Some(expected) = expected {
                    assert_eq!(
                        found.map(|found| found.0).as_ref(),
                        Some(expected),
                        "after {start}"
                    );
                }
            }
        }
    }
    // The end of a range is not in it.
    assert_eq!(probe.next(&names[0], true, Some(&names[0])), None);
}
