//! Random sequences of operations on an engine, as hostile as they come, against what a naive
//! reassembler knows: which bytes were ever sent for which position of a stream.
//!
//! Segments in any order, overlapping, with copies that differ, far outside the window, behind a
//! FIN; resets; several applications whose parameters differ, who keep chunks, change cutoffs, parameters
//! and priorities and discard streams in the midst of their events, come and go; memory from a few
//! kilobytes on; flow tables of a few flows. `FLOWGAUGE_HOSTILE=N` runs N seeds,
//! `FLOWGAUGE_HOSTILE_SEED=S` that one.
//!
//! What must hold, whatever happens: no application gets a byte that nobody sent for its
//! position, nor a position twice as new; the counters balance; memory is never above its budget, and all of
//! it comes back.

mod applications;
mod batches;
mod traffic;

use applications::Applications;
use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{Engine, EngineConfig, Events, HostPolicies, Mode};
use flowgauge_stream::{ChecksumPolicy, ShardConfig};
use flowgauge_wire::{Batch, Nanos, Place};
use traffic::Traffic;

/// xorshift64*.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

pub(crate) fn mode(random: &mut Random) -> Mode {
    random.of(&[Mode::Wait, Mode::Fast, Mode::Strict])
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let memory = random.of(&[2 << 10, 9 << 10, 30 << 10, 100 << 10, 1 << 20, 8 << 20]);
    let policy = random.of(OverlapPolicy::ALL);
    let mut shard = ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        overlap_policy: policy,
        flow: FlowConfig {
            max_flows: random.of(&[2, 5, 1000]),
            tcp_idle: Nanos::from_secs(10),
            linger: Nanos::from_secs(random.below(3)),
            ..FlowConfig::default()
        },
        ..ShardConfig::default()
    };
    shard.reassembly.hole_bytes = random.of(&[500, 20_000, u64::MAX]);
    shard.reassembly.reorder_bytes = random.of(&[100, 256 << 10]);
    let mut policies = HostPolicies::new(policy);
    if random.once_in(3) {
        policies.insert(
            "10.0.0.2".parse().unwrap(),
            32,
            random.of(OverlapPolicy::ALL),
        );
    }
    let mut engine = Engine::new(EngineConfig {
        shard,
        memory_bytes: memory,
        connection_bytes: random.of(&[None, Some(0), Some(100)]),
        base_threshold: random.of(&[0.0, 0.5, 0.9, 1.0]),
        overload_cutoff: random.of(&[None, Some(500), Some(0)]),
        need_packets: random.once_in(3),
        policies,
    });
    let mut traffic = Traffic::new(&mut random);
    let mut applications = Applications::new(random.clone());
    applications.is_quiet = random.once_in(4);
    for _ in 0..random.of(&[1, 1, 2, 3, 5]) {
        applications.add(&mut engine);
    }
    for _ in 0..random.of(&[3, 20, 60]) {
        let packets = random.of(&[1, 1, 2, 7, 40]);
        for _ in 0..packets {
            traffic.step(&mut random);
        }
        let batch = Batch::new(&traffic.memory, &traffic.packets);
        applications.sent = core::mem::take(&mut traffic.sent);
        engine.process(&batch, &mut applications as &mut dyn Events);
        traffic.sent = core::mem::take(&mut applications.sent);
        traffic.sent_packets += traffic.packets.len() as u64;
        traffic.packets.clear();
        traffic.memory.clear();
        if random.once_in(5) {
            let mut batch = Batch::new(&[], &[]);
            batch.now = Some(traffic.now);
            applications.sent = core::mem::take(&mut traffic.sent);
            engine.process(&batch, &mut applications as &mut dyn Events);
            traffic.sent = core::mem::take(&mut applications.sent);
        }
        applications.sent = core::mem::take(&mut traffic.sent);
        applications.meddle(&mut engine);
        traffic.sent = core::mem::take(&mut applications.sent);
        assert!(engine.budget().used() <= memory);
        balance(&engine, &applications, false);
    }
    applications.sent = core::mem::take(&mut traffic.sent);
    engine.finish(&mut applications as &mut dyn Events);
    assert!(engine.budget().high() <= memory);
    applications.held.clear();
    assert_eq!(engine.budget().used(), 0, "all memory comes back");
    assert_eq!(engine.ledger().received(), traffic.sent_packets);
    balance(&engine, &applications, true);
    applications.at_the_end(&engine);
}

/// What holds of counters at any time, and when all has ended.
fn balance(engine: &Engine, applications: &Applications, is_over: bool) {
    let (ledger, statistics) = (engine.ledger(), engine.statistics());
    assert!(ledger.is_balanced());
    let discarded = ledger.discarded() - ledger.at(Place::Malformed);
    assert_eq!(statistics.discarded.packets, discarded, "discarded packets");
    let dropped = ledger.at(Place::Priority) + ledger.at(Place::Memory);
    assert_eq!(statistics.dropped.packets, dropped, "dropped packets");
    let lost = statistics.dropped + statistics.discarded;
    assert!(
        lost.bytes <= statistics.all.bytes && lost.packets <= statistics.all.packets,
        "{statistics:?}"
    );
    if is_over && applications.saw_all {
        assert_eq!(applications.all, statistics.all, "all");
    }
}

/// A number from the environment.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_the_invariants_hold() {
    if let Some(seed) = number("FLOWGAUGE_HOSTILE_SEED") {
        return run(seed);
    }
    let seeds = number("FLOWGAUGE_HOSTILE").unwrap_or(1000);
    let mut failed = Vec::new();
    for seed in 0..seeds {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
}
