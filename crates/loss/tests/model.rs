//! Against a model that knows what became of each packet.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_loss::{
    Comparison, ComparisonOptions, Observation, ObservationReader, Observer, ObserverOptions, Of,
    Row, Verdict, pairs,
};
use flowgauge_record::any::AnyObject as _;
use flowgauge_wire::{Address, Decoded, FlowKey, HashSeed, Nanos};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const MILLISECOND: u64 = 1_000_000;

/// What happens on the way.
#[derive(Clone, Debug)]
struct Path {
    seed: u64,
    flows: u64,
    packets: u64,
    /// Of a thousand packets, how many are lost, and copied.
    lost: u64,
    copied: u64,
    /// Delay of all packets, and how much more of some, in nanoseconds.
    delay: u64,
    jitter: u64,
    /// What the second clock shows more.
    shift: i64,
    routers: u8,
    marks: usize,
    is_text: bool,
}

/// Without routers, copies of a flow that goes one way look like loss of one that goes the other way: there are none then.
fn paths() -> impl Strategy<Value = Path> {
    let network = (
        0..200_u64,
        0..50_u64,
        1..30 * MILLISECOND,
        0..3 * MILLISECOND,
    );
    let points = (
        -4_000 * SECOND as i64..4_000 * SECOND as i64,
        0..3_u8,
        1..8_usize,
        any::<bool>(),
    );
    (any::<u64>(), 1..40_u64, 1..120_u64, network, points).prop_map(
        |(
            seed,
            flows,
            packets,
            (lost, copied, delay, jitter),
            (shift, routers, marks, is_text),
        )| {
            Path {
                seed,
                flows,
                packets,
                lost,
                copied: if routers == 0 { 0 } else { copied },
                delay,
                jitter,
                shift,
                routers,
                marks,
                is_text,
            }
        },
    )
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// A packet at a point; its bytes are its number.
struct Packet {
    time: u64,
    flow: u64,
    is_back: bool,
    number: u64,
    ttl: u8,
}

impl Packet {
    fn decoded(&self) -> (Decoded, [u8; 28]) {
        let client = (Address::v4([10, 0, 0, 1]), 1024 + self.flow as u16);
        let server = (Address::v4([192, 0, 2, 9]), 53 + (self.flow % 2) as u16);
        let (from, to) = if self.is_back {
            (server, client)
        } else {
            (client, server)
        };
        let (key, direction) = FlowKey::new(4, 17, from, to);
        let mut frame = [0; 28];
        frame[20..28].copy_from_slice(&self.number.to_le_bytes());
        let decoded = Decoded {
            key,
            direction,
            time: Nanos(self.time),
            ip_len: 28,
            transport_offset: 20,
            ttl: self.ttl,
            ..Decoded::default()
        };
        (decoded, frame)
    }
}

/// What is true of a direction: sent, received, copies.
type Truth = BTreeMap<(FlowKey, usize), [u64; 3]>;

/// What both points see, and what is true.
fn travel(path: &Path) -> ([Vec<Packet>; 2], Truth) {
    let mut random = Random(path.seed);
    let (mut seen, mut truth) = ([Vec::new(), Vec::new()], Truth::new());
    let mut number = 0;
    for flow in 0..path.flows {
        let mut time = START + random.below(20 * SECOND);
        for _ in 0..1 + random.below(path.packets) {
            let is_back = random.below(2) == 1;
            time += random.below(400 * MILLISECOND);
            number += 1;
            let arrival = time + path.delay + random.below(path.jitter + 1);
            let packet = |time, ttl| Packet {
                time,
                flow,
                is_back,
                number,
                ttl,
            };
            let (decoded, _) = packet(0, 0).decoded();
            let counts = truth
                .entry((decoded.key, decoded.direction.index()))
                .or_default();
            let (first, last) = if is_back { (1, 0) } else { (0, 1) };
            let by_clock = |point: usize, time: u64| match point {
                0 => time,
                _ => time.saturating_add_signed(path.shift),
            };
            seen[first].push(packet(by_clock(first, time), 64));
            counts[0] += 1;
            if random.below(1000) < path.lost {
                continue;
            }
            let ttl = 64 - path.routers;
            let copies = u64::from(random.below(1000) < path.copied);
            for copy in 0..=copies {
                seen[last].push(packet(by_clock(last, arrival + copy), ttl));
            }
            counts[1] += 1;
            counts[2] += copies;
        }
    }
    for packets in &mut seen {
        packets.sort_by_key(|packet| packet.time);
    }
    (seen, truth)
}

fn observe(path: &Path, packets: &[Packet], interval: Nanos) -> Vec<Observation> {
    let mut observer = Observer::new(ObserverOptions {
        interval,
        marks: path.marks,
        timeout: Nanos(10 * SECOND),
        max_flows: 1000,
        key: HashSeed::PUBLIC,
    });
    let mut told = Vec::new();
    for packet in packets {
        let (decoded, frame) = packet.decoded();
        observer.tick(decoded.time, &mut |one| told.push(one.clone()));
        observer.packet(&decoded, &frame);
    }
    observer.finish(&mut |one| told.push(one.clone()));
    if path.is_text {
        told.iter_mut().for_each(|one| *one = by_record(one));
    }
    told
}

/// What comes of an observation that travels as a record.
fn by_record(told: &Observation) -> Observation {
    let (mut text, mut reader) = (String::new(), ObservationReader::default());
    told.row(Some("here"), &mut text).values(&mut reader);
    let (read, point) = reader.finish().expect("it is one");
    assert_eq!((&read, point.as_deref()), (told, Some("here")));
    read
}

fn compare(told: [Vec<Observation>; 2], interval: Nanos, patience: Option<Nanos>) -> Vec<Row> {
    let mut comparison = Comparison::new(ComparisonOptions {
        points: 2,
        pairs: pairs(2, false),
        interval,
        patience,
        lag: Nanos(20 * SECOND),
        max_flows: 1000,
        flows: true,
        one_way: false,
    });
    let mut rows = Vec::new();
    let mut told = told.map(|told| told.into_iter().peekable());
    (0..2).for_each(|point| comparison.begin(point, Nanos(0)));
    // In the order of what each has told, as sensors do.
    while told.iter_mut().any(|told| told.peek().is_some()) {
        for (point, told) in told.iter_mut().enumerate() {
            let Some(first) = told.peek().map(|one| one.last.0 / interval.0) else {
                comparison.advance(point, Nanos(u64::MAX), 0);
                continue;
            };
            while let Some(one) = told.next_if(|one| one.last.0 / interval.0 <= first) {
                comparison.observe(point, &one);
            }
            comparison.advance(point, Nanos(first * interval.0), 0);
        }
        rows.append(&mut comparison.take_rows());
    }
    // Both observe on when nothing passes any more.
    (0..2).for_each(|point| comparison.advance(point, Nanos(u64::MAX), 0));
    comparison.finish();
    rows.append(&mut comparison.take_rows());
    rows
}

fn check(path: &Path, rows: &[Row], truth: &Truth) -> Result<(), TestCaseError> {
    let mut found: BTreeMap<(FlowKey, usize), [u64; 4]> = BTreeMap::new();
    let mut sums = [[0_i64; 3]; 3];
    for row in rows {
        let kind = match row.of {
            Of::Interval => 0,
            Of::Flow { .. } => 1,
            Of::Total => 2,
            Of::Application(..) => continue,
        };
        prop_assert!(row.sums.lost >= 0 && row.sums.duplicates >= 0, "{:?}", row);
        prop_assert_eq!(row.sums.uncompared, 0);
        let it = &row.sums;
        let numbers = [it.lost, it.duplicates, it.sent as i64];
        (0..3).for_each(|at| sums[kind][at] += numbers[at]);
        if let Of::Flow {
            key,
            direction,
            verdict,
            ..
        } = row.of
        {
            let all = found.entry((key, direction.index())).or_default();
            let lost = match verdict {
                Verdict::OneSided => row.sums.one_sided,
                _ => row.sums.lost as u64,
            };
            let sent = row.sums.sent + row.sums.one_sided;
            for (all, more) in
                all.iter_mut()
                    .zip([sent, row.sums.received, it.duplicates as u64, lost])
            {
                *all += more;
            }
        }
        // Of clocks and delays the truth is within what is said.
        if let (Of::Interval, Some(offset)) = (row.of, row.offset) {
            let shift = if row.from == 0 {
                path.shift
            } else {
                -path.shift
            };
            prop_assert!(
                (offset.nanos - shift).unsigned_abs() <= offset.error,
                "{:?}",
                row
            );
            let error = offset.error as i64;
            let (least, most) = (path.delay as i64, (path.delay + path.jitter + 1) as i64);
            prop_assert!(row.delay.least().expect("there is one") >= least - error - 1);
            prop_assert!(row.delay.most().expect("there is one") <= most + error + 1);
        }
    }
    prop_assert_eq!(sums[0], sums[1], "intervals and flows");
    prop_assert_eq!(sums[2], sums[1], "all and flows");
    let ways: Vec<&(FlowKey, usize)> = truth.keys().collect();
    prop_assert_eq!(ways, found.keys().collect::<Vec<_>>());
    for (way, [sent, received, copies]) in truth {
        let told = found[way];
        prop_assert_eq!(
            told,
            [*sent, received + copies, *copies, sent - received],
            "{:?}",
            way
        );
    }
    Ok(())
}

proptest! {
    /// Per flow exactly what was lost and copied, whatever the clocks show, and in the intervals as much as in the flows; the clocks'
    /// offset and the delays within the error that is told.
    #[test]
    fn each_flow_lost_what_the_path_lost(path in paths(), interval in 1..10_u64) {
        let interval = Nanos(interval * SECOND);
        let (seen, truth) = travel(&path);
        let told = || [0, 1].map(|point| observe(&path, &seen[point], interval));
        check(&path, &compare(told(), interval, None), &truth)?;
    }

    /// Whatever comes: no panic, nothing negative, no more flows than allowed.
    #[test]
    fn anything_may_be_told(
        told in proptest::collection::vec(
            (0..3_usize, 0..40_u16, any::<bool>(), any::<[u64; 6]>(), any::<bool>(), 0..5_u64), 0..300),
        patience in proptest::option::of(0..u64::MAX),
    ) {
        let mut comparison = Comparison::new(ComparisonOptions {
            points: 3,
            pairs: pairs(3, true),
            interval: Nanos(SECOND),
            patience: patience.map(Nanos),
            lag: Nanos(SECOND),
            max_flows: 16,
            flows: true,
            one_way: false,
        });
        let mut rows = Vec::new();
        for (point, port, is_back, [first, last, packets, repeats, bytes, digest], has_ended, marks) in told {
            let side = |octet, port| (Address::v4([192, 0, 2, octet]), port);
            let (key, direction) = match is_back {
                false => FlowKey::new(4, 17, side(1, port), side(2, 0)),
                true => FlowKey::new(4, 17, side(2, 0), side(1, port)),
            };
            let counts = flowgauge_loss::Counts { packets, repeats, bytes };
            let mark = |at: u64| flowgauge_loss::Mark {
                digest: (digest % 8).wrapping_add(at % 3),
                time: Nanos(first.wrapping_add(at.wrapping_mul(last))),
                counts,
                recent: (digest % 3) as u32,
            };
            let mut trips = flowgauge_loss::Spread::default();
            trips.add(bytes.cast_signed());
            comparison.observe(point, &Observation {
                trips,
                dropped: repeats,
                began: Nanos(first),
                key,
                direction,
                first: Nanos(first),
                last: Nanos(last),
                ttl: bytes as u8,
                counts,
                has_ended,
                marks: (0..marks).map(mark).collect(),
                late: repeats,
            });
            comparison.advance(point, Nanos(last), repeats);
            rows.append(&mut comparison.take_rows());
        }
        comparison.finish();
        rows.append(&mut comparison.take_rows());
        for row in &rows {
            prop_assert!(row.sums.lost >= 0 && row.sums.duplicates >= 0, "{:?}", row);
            let names = ["a", "b", "c"].map(str::to_owned);
            let record = row.record(&names);
            prop_assert!(record.least <= record.most);
        }
    }
}

/// A flow of which both points saw the same says nothing of the way in which others to its address went.
#[test]
fn a_way_that_nothing_tells_is_no_evidence() {
    let path = Path {
        seed: 8_245_665_065_951_374_402,
        flows: 8,
        packets: 2,
        lost: 68,
        copied: 0,
        delay: 1,
        jitter: 0,
        shift: 0,
        routers: 0,
        marks: 1,
        is_text: false,
    };
    let interval = Nanos(SECOND);
    let (seen, truth) = travel(&path);
    let told = [0, 1].map(|point| observe(&path, &seen[point], interval));
    check(&path, &compare(told, interval, None), &truth).unwrap_or_else(|error| panic!("{error}"));
}

/// What sensors tell while flows go on leads to the same as all at once.
#[test]
fn flows_are_compared_while_they_last() {
    let path = Path {
        seed: 5,
        flows: 30,
        packets: 400,
        lost: 50,
        copied: 10,
        delay: 5 * MILLISECOND,
        jitter: MILLISECOND,
        shift: 37 * SECOND as i64 / 10,
        routers: 1,
        marks: 4,
        is_text: true,
    };
    let interval = Nanos(2 * SECOND);
    let (seen, truth) = travel(&path);
    let told = || [0, 1].map(|point| observe(&path, &seen[point], interval));
    let rows = compare(told(), interval, Some(Nanos(60 * SECOND)));
    check(&path, &rows, &truth).unwrap_or_else(|error| panic!("{error}"));
    let before_end = rows.iter().position(|row| row.of == Of::Total);
    let intervals = rows.iter().filter(|row| matches!(row.of, Of::Interval));
    assert!(intervals.count() > 20 && before_end.is_some());
}

/// Flows that take another way are told apart from lost ones.
#[test]
fn what_passes_one_point_only_is_not_lost() {
    let path = Path {
        seed: 6,
        flows: 40,
        packets: 60,
        lost: 10,
        copied: 0,
        delay: MILLISECOND,
        jitter: 1000,
        shift: 0,
        routers: 1,
        marks: 4,
        is_text: false,
    };
    let interval = Nanos(SECOND);
    let (mut seen, _) = travel(&path);
    let is_elsewhere = |packet: &Packet| packet.flow % 4 == 1;
    let elsewhere = seen[0].iter().filter(|packet| is_elsewhere(packet)).count() as u64;
    seen[1].retain(|packet| !is_elsewhere(packet));
    let told = [0, 1].map(|point| observe(&path, &seen[point], interval));
    let rows = compare(told, interval, None);
    let all = rows.iter().filter(|row| row.of == Of::Total);
    let (mut one_sided, mut lost, mut sent) = (0, 0, 0);
    for row in all {
        one_sided += row.sums.one_sided;
        lost += row.sums.lost;
        sent += row.sums.sent;
    }
    assert!(lost * 50 < sent as i64, "{lost} of {sent}");
    // Of flows of one or two packets nobody can tell.
    assert!(
        one_sided * 100 >= elsewhere * 97,
        "{one_sided} of {elsewhere}"
    );
}

#[test]
fn what_a_sensor_drops_itself_is_within_the_bounds() {
    let path = Path {
        seed: 7,
        flows: 40,
        packets: 300,
        lost: 30,
        copied: 0,
        delay: MILLISECOND,
        jitter: 1000,
        shift: 0,
        routers: 1,
        marks: 4,
        is_text: false,
    };
    let interval = Nanos(5 * SECOND);
    for dropping in 0..2 {
        let (mut seen, truth) = travel(&path);
        let mut random = Random(1);
        let before = seen[dropping].len();
        seen[dropping].retain(|_| random.below(10) > 0);
        let dropped = (before - seen[dropping].len()) as u64;
        let mut comparison = Comparison::new(ComparisonOptions {
            points: 2,
            pairs: pairs(2, false),
            interval,
            patience: None,
            lag: interval,
            max_flows: 1000,
            flows: false,
            one_way: false,
        });
        for (point, packets) in seen.iter().enumerate() {
            comparison.begin(point, Nanos(0));
            for told in observe(&path, packets, interval) {
                comparison.observe(point, &told);
            }
            let own = if point == dropping { dropped } else { 0 };
            comparison.advance(point, Nanos(START + 3600 * SECOND), own);
        }
        comparison.finish();
        for row in comparison
            .take_rows()
            .iter()
            .filter(|row| row.of == Of::Total)
        {
            // The client has the lower address, and is on the side of the first point.
            let truth = truth.iter().filter(|((_, way), _)| *way == row.from);
            let lost: u64 = truth.map(|(_, [sent, received, _])| sent - received).sum();
            let (least, most) = row.sums.bounds(row.dropped[0], row.dropped[1]);
            assert!((least..=most).contains(&lost), "{lost}: {row:?}");
            assert!(least < most);
        }
    }
}

/// Short connections all the time, on a path that loses nothing: whichever packets of them the points see first and last.
#[test]
fn what_comes_at_the_edges_of_an_observation_is_neither_lost_nor_copied() {
    const STEP: u64 = 50_000;
    let path = Path {
        seed: 0,
        flows: 0,
        packets: 0,
        lost: 0,
        copied: 0,
        delay: STEP / 4,
        jitter: 0,
        shift: 3 * SECOND as i64,
        routers: 1,
        marks: 4,
        is_text: false,
    };
    // A connection each millisecond for 2 s, of 40 packets in 2 ms.
    let all = |point: usize| {
        let packets = (0..2000).flat_map(|flow| (0..40).map(move |at| (flow, at)));
        let mut seen: Vec<Packet> = packets
            .map(|(flow, at)| {
                let is_back = at % 2 == 1;
                let is_last = is_back == (point == 0);
                let shift = [0, path.shift as u64][point];
                let late = path.delay * u64::from(is_last);
                Packet {
                    time: START + flow * MILLISECOND + at * STEP + late + shift,
                    flow,
                    is_back,
                    number: flow * 40 + at,
                    ttl: 64 - u8::from(is_last),
                }
            })
            .collect();
        seen.sort_by_key(|packet| packet.time);
        seen
    };
    let interval = Nanos(SECOND / 4);
    let sum = |rows: &[Row], number: fn(&Row) -> u64| {
        let totals = rows.iter().filter(|row| row.of == Of::Total);
        totals.map(number).sum::<u64>()
    };
    for cut in 0..80 {
        // One point begins later and ends earlier, or begins and ends later.
        let mut seen = [all(0), all(1)];
        let (later, earlier) = (cut % 2, cut / 2 % 2);
        seen[later].drain(..1000 + cut);
        let left = seen[earlier].len() - 1000 - cut;
        seen[earlier].truncate(left);
        let mut comparison = Comparison::new(ComparisonOptions {
            points: 2,
            pairs: pairs(2, false),
            interval,
            patience: Some(interval),
            lag: interval,
            max_flows: 10_000,
            flows: false,
            one_way: false,
        });
        for (point, packets) in seen.iter().enumerate() {
            for told in observe(&path, packets, interval) {
                comparison.observe(point, &told);
            }
        }
        comparison.finish();
        let rows = comparison.take_rows();
        for row in rows.iter().filter(|row| row.of == Of::Total) {
            let sums = &row.sums;
            assert_eq!(
                (sums.lost, sums.duplicates, sums.one_sided, sums.sent),
                (0, 0, 0, sums.received),
                "{cut}: {row:?}"
            );
        }
        let all = seen.iter().map(|seen| seen.len() as u64).sum();
        let compared = sum(&rows, |row| row.sums.sent + row.sums.received);
        assert_eq!(compared + sum(&rows, |row| row.sums.uncompared), all);
        assert!(compared * 10 > all * 8, "{cut}: {compared} of {all}");
    }
}

/// Flows that were under way when the points began, and go on when they end, on a path that loses nothing and puts packets out of
/// order: whichever marks are the first and last that both saw.
#[test]
fn a_packet_that_the_first_or_last_mark_overtakes_is_not_lost() {
    const PACKETS: u64 = 200;
    let interval = Nanos(SECOND / 10);
    let mut compared = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut path = Path {
            seed,
            flows: 1,
            packets: PACKETS,
            lost: 0,
            copied: 0,
            delay: 2 * MILLISECOND,
            jitter: 25 * MILLISECOND,
            shift: 0,
            routers: 1,
            marks: 2,
            is_text: seed % 2 == 0,
        };
        let mut seen = [Vec::new(), Vec::new()];
        for number in 0..PACKETS {
            // They are 10 ms apart, and each eighth is late.
            let late = if random.below(8) == 0 { path.jitter } else { 0 };
            let time = START + number * 10 * MILLISECOND;
            for (point, time, ttl) in [(0, time, 64), (1, time + path.delay + late, 63)] {
                seen[point].push(Packet {
                    time,
                    flow: 0,
                    is_back: false,
                    number,
                    ttl,
                });
            }
        }
        path.jitter = 0;
        let mut comparison = Comparison::new(ComparisonOptions {
            points: 2,
            pairs: pairs(2, false),
            interval,
            patience: Some(interval),
            lag: interval,
            max_flows: 10,
            flows: false,
            one_way: false,
        });
        let cut = START + (200 + random.below(50)) * MILLISECOND;
        let end = START + (1430 + random.below(50)) * MILLISECOND;
        for (point, packets) in seen.iter_mut().enumerate() {
            packets.sort_by_key(|packet| packet.time);
            packets.retain(|packet| (cut..end).contains(&packet.time));
            for told in observe(&path, packets, interval) {
                comparison.observe(point, &told);
            }
        }
        comparison.finish();
        let rows = comparison.take_rows();
        for row in rows.iter().filter(|row| row.of == Of::Total) {
            let sums = &row.sums;
            assert_eq!((sums.lost, sums.duplicates), (0, 0), "{seed}: {row:?}");
            compared += sums.sent;
        }
    }
    assert!(compared > 400 * 60, "{compared}");
}

/// One of two points begins anew under way: each packet that both counted is in the sums once, compared or not.
#[test]
fn what_a_point_that_begins_anew_counts_is_counted_once() {
    let path = Path {
        seed: 8,
        flows: 30,
        packets: 200,
        lost: 0,
        copied: 0,
        delay: MILLISECOND,
        jitter: 0,
        shift: 0,
        routers: 1,
        marks: 4,
        is_text: false,
    };
    let interval = Nanos(SECOND);
    let (seen, _) = travel(&path);
    let all: u64 = seen.iter().map(|packets| packets.len() as u64).sum();
    let cut = START + 20 * SECOND;
    let mut comparison = Comparison::new(ComparisonOptions {
        points: 2,
        pairs: pairs(2, false),
        interval,
        patience: Some(interval),
        lag: interval,
        max_flows: 1000,
        flows: false,
        one_way: false,
    });
    // The first point goes on; the second one is another observer from the cut on.
    let [first, second] = &seen;
    let at = second.partition_point(|packet| packet.time < cut);
    let parts = [&second[..at], &second[at..]].map(|part| observe(&path, part, interval));
    let (early, late): (Vec<_>, Vec<_>) = observe(&path, first, interval)
        .into_iter()
        .partition(|told| told.last.0 < cut);
    comparison.advance(0, Nanos(START + SECOND), 60);
    for ((whole, part), dropped) in [early, late].iter().zip(&parts).zip([100, 130]) {
        whole.iter().for_each(|told| comparison.observe(0, told));
        part.iter().for_each(|told| comparison.observe(1, told));
        let last = whole.iter().map(|told| told.last).max().unwrap();
        comparison.advance(0, last, dropped);
        comparison.begin_anew();
    }
    let rows = comparison.take_rows();
    // What was dropped until an interval before the break is in no bounds of what was compared after it.
    let totals = rows.iter().filter(|row| row.of == Of::Total);
    let dropped = totals.map(|row| row.dropped[row.from]);
    assert_eq!(dropped.collect::<BTreeSet<_>>(), [100, 70].into());
    let totals = rows.iter().filter(|row| row.of == Of::Total);
    let told: u64 = totals
        .map(|row| row.sums.sent + row.sums.received + row.sums.uncompared + row.sums.one_sided)
        .sum();
    assert_eq!(told, all);
}

/// A point as a sensor runs it: what it told waits until it is taken.
struct Live {
    observer: Observer,
    told: Vec<Observation>,
    clock: u64,
}

impl Live {
    fn new(interval: Nanos) -> Live {
        Live {
            observer: Observer::new(ObserverOptions {
                interval,
                marks: 4,
                timeout: Nanos(2 * interval.0),
                max_flows: 1000,
                key: HashSeed::PUBLIC,
            }),
            told: Vec::new(),
            clock: 0,
        }
    }

    fn tick(&mut self, now: u64) {
        self.clock = now;
        let told = &mut self.told;
        (self.observer).tick(Nanos(now), &mut |one| told.push(one.clone()));
    }
}

/// One of two sensors is killed at any time, and is back soon, or in the next interval: nothing is lost or copied on the way, and
/// what cannot be compared is not told as such. Totals say from when on they are.
#[test]
fn a_point_that_is_killed_and_comes_back_is_no_loss() {
    const TICK: u64 = SECOND / 16;
    let path = Path {
        seed: 3,
        flows: 60,
        packets: 60,
        lost: 0,
        copied: 0,
        delay: MILLISECOND,
        jitter: 0,
        shift: 0,
        routers: 1,
        marks: 4,
        is_text: false,
    };
    let (seen, _) = travel(&path);
    let interval = Nanos(2 * SECOND);
    let first = START / TICK + 1;
    let mut compared = 0;
    for (kill, away) in (0..96).flat_map(|at| [(first + 80 + at, 9), (first + 80 + at, 40)]) {
        let killed = (kill % 2) as usize;
        let mut comparison = Comparison::new(ComparisonOptions {
            points: 2,
            pairs: pairs(2, false),
            interval,
            patience: Some(Nanos(2 * interval.0)),
            lag: Nanos(3 * interval.0),
            max_flows: 1000,
            flows: false,
            one_way: false,
        });
        let mut live = [0, 1].map(|_| Some(Live::new(interval)));
        let mut next = [0; 2];
        for tick in first..first + 70 * 16 {
            let now = tick * TICK;
            if tick == kill {
                live[killed] = None;
            } else if tick == kill + away {
                live[killed] = Some(Live::new(interval));
            }
            for (point, packets) in seen.iter().enumerate() {
                let end = packets.partition_point(|packet| packet.time < now);
                if let Some(live) = &mut live[point] {
                    live.tick(now - TICK);
                    for packet in &packets[next[point]..end] {
                        let (decoded, frame) = packet.decoded();
                        live.tick(packet.time.max(live.clock));
                        live.observer.packet(&decoded, &frame);
                    }
                    live.tick(now);
                }
                next[point] = end;
            }
            // It is looked four times in an interval.
            if tick % 8 != 0 {
                continue;
            }
            if (kill..kill + 8).contains(&tick) {
                comparison.broken(killed);
            }
            if (kill + away..kill + away + 8).contains(&tick) {
                comparison.begin_anew();
            }
            for (point, live) in live.iter_mut().enumerate() {
                let Some(live) = live else { continue };
                live.told
                    .drain(..)
                    .for_each(|told| comparison.observe(point, &told));
                comparison.advance(point, Nanos(live.clock), 0);
            }
        }
        for (point, live) in live.iter_mut().flatten().enumerate() {
            live.observer
                .finish(&mut |told| comparison.observe(point, told));
        }
        comparison.finish();
        let rows = comparison.take_rows();
        for row in &rows {
            let sums = &row.sums;
            let wrong = (sums.lost, sums.duplicates, sums.one_sided);
            assert_eq!(wrong, (0, 0, 0), "killed {kill} for {away}: {row:?}");
        }
        let totals = rows
            .iter()
            .filter(|row| row.of == Of::Total && row.from == 0);
        let begins: Vec<Nanos> = totals.clone().map(|row| row.begin).collect();
        assert!(
            matches!(begins[..], [one, other] if one < other),
            "{begins:?}"
        );
        compared += totals.map(|row| row.sums.sent).sum::<u64>();
    }
    // Most of what passed both.
    let all = seen[0].iter().filter(|packet| !packet.is_back).count() as u64;
    assert!(compared > 2 * 96 * all / 2, "{compared} of {all} each time");
}
