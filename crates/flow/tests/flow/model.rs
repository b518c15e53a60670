//! Random packets against a naive model: the same flows, the same counters.

use std::collections::HashMap;

use crate::packets::{SECOND, packet};
use flowgauge_flow::{EndReason, FlowConfig, FlowTracker};
use flowgauge_wire::{Decoded, FlowKey, Nanos};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// First packet, last packet, packets and bytes per direction of the key.
type Record = (FlowKey, u64, u64, [u64; 2], [u64; 2]);

#[derive(Default)]
struct Model {
    live: HashMap<FlowKey, (Record, u64)>,
    done: Vec<Record>,
    clock: u64,
}

impl Model {
    fn packet(&mut self, packet: &Decoded, timeout: u64) {
        self.clock = self.clock.max(packet.time.0);
        let time = packet.time.0;
        if let Some((record, seen)) = self.live.get(&packet.key)
            && self.clock - (*seen).max(record.2) > timeout
        {
            self.done.push(*record);
            self.live.remove(&packet.key);
        }
        let new = (packet.key, time, time, [0; 2], [0; 2]);
        let (record, seen) = self.live.entry(packet.key).or_insert((new, 0));
        let side = packet.direction.index();
        record.1 = match record.3[side] {
            0 => record.1.min(time),
            _ => record.1,
        };
        record.2 = record.2.max(time);
        record.3[side] += 1;
        record.4[side] += u64::from(packet.wire_len);
        // The tracker knows the clock at the last packet to one tick.
        *seen = self.clock >> 30 << 30;
    }
}

fn timeout_of(protocol: u8) -> u64 {
    SECOND
        * match protocol {
            6 => 300,
            17 => 60,
            _ => 30,
        }
}

fn random_packet(random: &mut Random, now: &mut u64, flows: u64) -> Decoded {
    // Mostly dense, sometimes a pause near a timeout, sometimes time goes backwards.
    *now += match random.below(100) {
        0 => random.below(350 * SECOND),
        1..5 => random.below(61 * SECOND),
        5..20 => random.below(3 * SECOND),
        _ => random.below(SECOND / 100),
    };
    let time = match random.below(20) {
        0 => now.saturating_sub(random.below(100 * SECOND)),
        _ => *now,
    };
    let protocol = [6, 17, 47][random.below(3) as usize];
    let client = random.below(flows) as u16;
    let len = random.below(1400) as u32;
    packet(protocol, client, random.below(2) == 1, time, len)
}

fn take(tracker: &mut FlowTracker, records: &mut Vec<Record>) {
    tracker.drain_ended(|_, record| {
        let (source, destination) = (&record.source, &record.destination);
        let (key, direction) = FlowKey::new(
            record.version,
            record.protocol,
            (source.address, source.port),
            (destination.address, destination.port),
        );
        let mut sides = [source, destination];
        if direction.index() == 1 {
            sides.reverse();
        }
        records.push((
            key,
            record.start.0,
            record.end.0,
            sides.map(|side| side.packets),
            sides.map(|side| side.bytes),
        ));
    });
}

fn order(record: &Record) -> (u16, u16, u8, u64, u64, [u64; 2]) {
    let key = &record.0;
    (
        key.low_port,
        key.high_port,
        key.protocol,
        record.1,
        record.2,
        record.3,
    )
}

#[test]
fn the_same_flows_as_a_naive_model() {
    for seed in 1..60 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let flows = 1 + random.below(2000);
        let mut tracker = FlowTracker::new(FlowConfig::default());
        let mut model = Model::default();
        let mut now = 1_700_000_000 * SECOND;
        let (mut refs, mut records) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let batch: Vec<Decoded> = (0..1 + random.below(300))
                .map(|_| random_packet(&mut random, &mut now, flows))
                .collect();
            for packet in &batch {
                model.packet(packet, timeout_of(packet.key.protocol));
            }
            tracker.process(&batch, &[], &mut refs);
            assert_eq!(refs.len(), batch.len());
            for (packet, flow) in batch.iter().zip(&refs) {
                let same = tracker.with_record(flow.id, |record| record.protocol);
                assert_eq!(same, Some(packet.key.protocol));
            }
            take(&mut tracker, &mut records);
        }
        assert_eq!(tracker.clock(), Nanos(model.clock));
        tracker.finish();
        take(&mut tracker, &mut records);
        let mut expected = model.done;
        expected.extend(model.live.into_values().map(|(record, _)| record));
        expected.sort_by_key(order);
        records.sort_by_key(order);
        assert_eq!(records, expected, "seed {seed}");
    }
}

#[test]
fn a_full_table_evicts_attempts_and_then_the_longest_idle() {
    for seed in 1..40 {
        let mut random = Random(0x5851_f42d_4c95_7f2du64.wrapping_mul(seed));
        let config = FlowConfig {
            max_flows: 1 + random.below(40) as u32,
            ..FlowConfig::default()
        };
        let mut tracker = FlowTracker::new(config);
        // Of each flow, whether it is more than one packet, and when it was seen last.
        let mut last: HashMap<u32, (bool, u64)> = HashMap::new();
        let (mut refs, mut sent, mut given, mut evicted) = (Vec::new(), 0, 0, 0);
        let mut now = 1_700_000_000 * SECOND;
        for _ in 0..2000 {
            now += random.below(2 * SECOND);
            let packet = packet(17, random.below(100) as u16, false, now, 1);
            tracker.process(core::slice::from_ref(&packet), &[], &mut refs);
            assert!(tracker.len() <= config.max_flows as usize);
            sent += 1;
            tracker.drain_ended(|id, record| {
                let ended = last.remove(&id.0);
                given += record.source.packets + record.destination.packets;
                if record.end_reason == EndReason::Evicted {
                    evicted += 1;
                    // The longest idle of those that go first.
                    let class = last.values().map(|&(confirmed, _)| confirmed).min();
                    let confirmed = ended.is_some_and(|(confirmed, _)| confirmed);
                    assert!(class.is_none_or(|class| confirmed <= class), "seed {seed}");
                    let seen = last.values().filter(|&&(of, _)| of == confirmed);
                    let oldest = seen.map(|&(_, time)| time).min().unwrap_or(u64::MAX);
                    assert!(
                        record.end.0 <= oldest.saturating_add(2 << 30),
                        "seed {seed}"
                    );
                }
            });
            let confirmed = last.contains_key(&refs[0].id.0);
            last.insert(refs[0].id.0, (confirmed, now));
        }
        assert_eq!(tracker.statistics().evicted, evicted);
        assert!(config.max_flows > 30 || evicted > 0);
        tracker.finish();
        tracker.drain_ended(|_, record| {
            given += record.source.packets + record.destination.packets;
        });
        assert_eq!(given, sent, "every packet is in exactly one record");
    }
}
