//! Input made to use up memory or time: both stay within their bounds. Steps are counted, nothing
//! is timed.

use flowgauge_wire::Nanos;

use super::{Account, GapCause, Half, Reassembler, ReassemblyConfig, Receiver, Segment};
use crate::policy::OverlapPolicy;

const BASE: u32 = 0xffff_0000;

#[derive(Default)]
struct Counted {
    bytes: u64,
    missing: u64,
}

impl Receiver for Counted {
    fn position(&self) -> u64 {
        self.bytes + self.missing
    }

    fn data(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    fn gap(&mut self, bytes: u64, _: GapCause) {
        self.missing += bytes;
    }
}

/// A direction under attack, behind a hole of one byte.
struct Target {
    reassembler: Reassembler,
    half: Half,
    peer: Half,
    out: Counted,
    bound: u64,
}

impl Target {
    fn new(policy: OverlapPolicy, memory_bytes: u64) -> Target {
        let mut target = Target {
            reassembler: Reassembler::new(ReassemblyConfig {
                memory_bytes,
                ..ReassemblyConfig::default()
            }),
            half: Half::new(policy),
            peer: Half::new(policy),
            out: Counted::default(),
            bound: memory_bytes,
        };
        target.half.start_at(BASE.wrapping_sub(1));
        target.peer.note_ack(0, BASE.wrapping_sub(1), u16::MAX);
        target
    }

    fn send(&mut self, offset: u32, bytes: &[u8], len: usize) {
        let segment = Segment {
            seq: BASE.wrapping_add(offset),
            bytes,
            len: len as u32,
            fin: false,
            time: Nanos::from_secs(1),
            account: Account::Packet,
        };
        let (half, peer) = (&mut self.half, &self.peer);
        self.reassembler
            .segment(0, half, peer, &segment, &mut self.out);
        assert!(self.reassembler.memory() <= self.bound);
    }

    fn steps(&self) -> u64 {
        self.reassembler.statistics().search_steps
    }

    fn finish(mut self) -> Counted {
        let (half, peer) = (&mut self.half, &self.peer);
        self.reassembler.finish(half, peer, &mut self.out);
        assert_eq!(self.reassembler.memory(), 0);
        assert_eq!(self.reassembler.waiting(), 0);
        self.out
    }
}

/// Every number below `count` once, in no order.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    assert!(count.is_power_of_two());
    (0..count).map(move |n| n.wrapping_mul(2_654_435_761) % count)
}

#[test]
fn a_flood_of_holes_is_bounded_and_loses_nothing_captured() {
    const COUNT: u32 = 1 << 18;
    for policy in [OverlapPolicy::First, OverlapPolicy::Bsd] {
        // Room for all of them, then for some.
        for memory in [1 << 30, 2 << 20] {
            let mut target = Target::new(policy, memory);
            for at in scattered(COUNT) {
                target.send(at * 2, &[1], 1);
            }
            let steps = target.steps();
            assert!(steps < u64::from(COUNT) * 70, "{policy}: {steps} steps");
            let old = target.reassembler.statistics().old_bytes;
            let out = target.finish();
            assert_eq!(out.bytes + old, u64::from(COUNT), "{policy}");
            assert!(memory < 1 << 30 || out.missing == u64::from(COUNT) && old == 0);
        }
    }
}

#[test]
fn tiny_segments_in_a_row_share_blocks() {
    let mut target = Target::new(OverlapPolicy::First, 2 << 20);
    for at in 0..1 << 20 {
        target.send(at, &[at as u8], 1);
    }
    // A mebibyte in single bytes fits into two.
    assert_eq!(target.out.bytes, 0);
    assert!(target.steps() < 3 << 20);
    let out = target.finish();
    assert_eq!((out.bytes, out.missing), (1 << 20, 1));
}

#[test]
fn half_the_sequence_space_away_nothing_is_waited_for() {
    for memory in [0, 1 << 20] {
        let mut target = Target::new(OverlapPolicy::Bsd, memory);
        target.send(u32::MAX, &[1; 2], 2);
        for before in 0..4 {
            target.send((1 << 31) + 1 - before, &[2; 3], 3);
        }
        target.send(1, &[3; 5], 5);
        assert_eq!(target.steps(), 0);
        let out = target.finish();
        assert_eq!((out.bytes, out.missing), (7, 0));
    }
}

#[test]
fn a_storm_of_overlaps_costs_no_more_than_its_bytes() {
    for &policy in OverlapPolicy::ALL {
        let mut target = Target::new(policy, 64 << 20);
        let mut sent = 0;
        for round in 0..4u8 {
            for at in scattered(1 << 13) {
                let len = 1 + (at as usize * 7 + usize::from(round)) % 100;
                target.send(at * 8, &vec![round ^ at as u8; len], len);
                sent += len as u64;
            }
        }
        // Each step but those of finding the place compares one byte or more.
        let steps = target.steps();
        assert!(steps < sent + 4 * (1 << 13) * 70, "{policy}: {steps}");
        let out = target.finish();
        assert!(out.bytes <= (1 << 16) + 100, "{policy}: {}", out.bytes);
    }
}

#[test]
fn segments_without_captured_bytes_cost_no_more_than_they_say() {
    let mut target = Target::new(OverlapPolicy::Linux, 64 << 20);
    for at in scattered(1 << 12) {
        target.send(at * 16, &[1], 1);
    }
    let before = target.steps();
    for _ in 0..100 {
        target.send(0, &[], 60_000);
    }
    assert!(target.steps() - before < 100 * 60_000);
    assert_eq!(target.finish().missing, 1 + 65_521 - (1 << 12));
}
