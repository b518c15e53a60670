//! The engine with the options of the command line.

use flowgauge_record::text::protocol_name;
use flowgauge_stream::{
    ChecksumPolicy, DamagedSender, Handler, OffloadingSender, Shard, ShardConfig,
};
use flowgauge_wire::{Batch, Ledger, Place};

use crate::options::{ChecksumMode, EngineOptions};

/// Senders of packets with wrong checksums that are named at the end; the others are counted.
const NAMED_SENDERS: usize = 5;

/// One shard of the engine.
pub(crate) struct Engine {
    shard: Shard,
}

impl Engine {
    /// A shard of `workers` that share the limits of `options`.
    pub(crate) fn new(options: &EngineOptions, workers: usize) -> Engine {
        Engine {
            shard: Shard::new(configuration(options, workers as u64)),
        }
    }

    /// Processes a batch.
    #[inline]
    pub(crate) fn process<H: Handler>(&mut self, batch: &Batch<'_>, handler: &mut H) {
        self.shard.process(batch, handler);
    }

    /// Ends every stream and flow.
    pub(crate) fn finish<H: Handler>(&mut self, handler: &mut H) {
        self.shard.finish(handler);
    }

    /// The source's ledger with what the engine refused.
    pub(crate) fn ledger(&self, source: Ledger) -> Ledger {
        let mut ledger = source;
        let engine = self.shard.ledger();
        let mut refused_bytes = ledger
            .delivered_bytes
            .saturating_sub(engine.delivered_bytes);
        for place in Place::ALL {
            let packets = engine.at(place);
            if packets > 0 {
                ledger.refuse(place, packets, core::mem::take(&mut refused_bytes));
            }
        }
        ledger
    }

    /// What a user should know of the input.
    pub(crate) fn findings(&self) -> Findings {
        let counters = self.shard.statistics();
        Findings {
            accepted: self.shard.offloading_senders(),
            left_out: counters.checksums.left_out,
            most_left_out: self.shard.most_damaged_sender(),
            evicted: counters.flow.evicted,
        }
    }

    /// Counters, for `--stats`.
    pub(crate) fn statistics(&self) -> Vec<String> {
        let counters = self.shard.statistics();
        let (flow, checksums) = (counters.flow, counters.checksums);
        let (fragments, segments) = (counters.defragment, counters.reassembly);
        vec![
            format!(
                "flows: {} created, {} at once at most, {} evicted; {} packets without a flow, {} \
                 before the clock",
                flow.created, flow.most_flows, flow.evicted, flow.without_flow, flow.time_backwards
            ),
            format!(
                "checksums: {} packets with a wrong IP header, {} with a wrong transport checksum, \
                 {} with a wrong one taken as they are",
                checksums.bad_ip, checksums.bad_transport, checksums.offloaded
            ),
            format!(
                "fragments: {} seen, {} datagrams completed, {} timed out, {} evicted, {} overlaps",
                fragments.fragments,
                fragments.completed,
                fragments.timed_out,
                fragments.evicted,
                fragments.overlaps
            ),
            format!(
                "streams: {} connections, {} at once at most, {} bytes in {} chunks, {} segments \
                 out of order, {} bytes missing, {} bytes of memory at most",
                counters.connections,
                counters.connections_high,
                counters.delivered_bytes,
                counters.chunks,
                segments.out_of_order,
                segments.gap_bytes,
                segments.memory_high
            ),
        ]
    }
}

/// What a run found that changes what its results mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    accepted: Vec<OffloadingSender>,
    left_out: u64,
    most_left_out: Option<DamagedSender>,
    evicted: u64,
}

impl Findings {
    /// Adds another worker's.
    pub(crate) fn merge(&mut self, other: Findings) {
        for theirs in other.accepted {
            let same = |mine: &&mut OffloadingSender| {
                (mine.address, mine.version, mine.protocol)
                    == (theirs.address, theirs.version, theirs.protocol)
            };
            match self.accepted.iter_mut().find(same) {
                Some(mine) => mine.packets += theirs.packets,
                None => self.accepted.push(theirs),
            }
        }
        self.accepted
            .sort_by(|a, b| b.packets.cmp(&a.packets).then(a.address.cmp(&b.address)));
        self.left_out += other.left_out;
        self.evicted += other.evicted;
        self.most_left_out = match (self.most_left_out, other.most_left_out) {
            (Some(mine), Some(theirs)) if theirs.packets > mine.packets => Some(theirs),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// As lines.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self
            .accepted
            .iter()
            .take(NAMED_SENDERS)
            .map(accepted)
            .collect();
        let others = self.accepted.get(NAMED_SENDERS..).unwrap_or_default();
        if !others.is_empty() {
            let packets: u64 = others.iter().map(|sender| sender.packets).sum();
            notes.push(format!(
                "{packets} such packets of {} further senders were taken, too",
                others.len()
            ));
        }
        if self.left_out > 0 {
            let most = self.most_left_out.map_or(String::new(), |sender| {
                let address = sender.address.to_ip(sender.version);
                format!(" (most from {address}: {})", sender.packets)
            });
            notes.push(format!(
                "{} packets were left out because of wrong checksums{most}; hint: --checksums \
                 ignore takes them",
                self.left_out
            ));
        }
        if self.evicted > 0 {
            notes.push(format!(
                "{} flows were ended early to make room for others, so long ones may be in several \
                 records; hint: raise --max-flows or --memory",
                self.evicted
            ));
        }
        notes
    }
}

fn accepted(sender: &OffloadingSender) -> String {
    let address = sender.address.to_ip(sender.version);
    let packets = sender.packets;
    match sender.protocol {
        Some(protocol) => format!(
            "{packets} packets of {address} with wrong or uncomputed {} checksums were taken as they \
             are (offloading to its network card, or a rewritten address)",
            protocol_name(protocol)
        ),
        None => format!(
            "{packets} packets of {address} with wrong or uncomputed IP header checksums were taken \
             as they are (offloading to its network card, or a rewritten address)"
        ),
    }
}

fn configuration(options: &EngineOptions, workers: u64) -> ShardConfig {
    let mut config = ShardConfig {
        checksums: match options.checksums {
            ChecksumMode::Verify => ChecksumPolicy::Verify,
            ChecksumMode::Ignore => ChecksumPolicy::Ignore,
            ChecksumMode::Auto => ChecksumPolicy::Auto,
        },
        ..ShardConfig::default()
    }
    .with_policy(options.overlap_policy);
    if let Some(bytes) = options.memory {
        // Half for flows, half for segments that wait.
        let half = (bytes / workers / 2).max(1);
        config.flow = config.flow.with_memory(half);
        config = config.with_memory(half);
    }
    if let Some(flows) = options.max_flows {
        let share = flows.div_ceil(workers);
        config.flow.max_flows = u32::try_from(share).unwrap_or(u32::MAX);
    }
    if let Some(timeouts) = options.idle_timeout {
        let flow = &mut config.flow;
        flow.tcp_idle = timeouts.tcp.unwrap_or(flow.tcp_idle);
        flow.udp_idle = timeouts.udp.unwrap_or(flow.udp_idle);
        flow.other_idle = timeouts.other.unwrap_or(flow.other_idle);
    }
    config.flow.active = options.active_timeout;
    config
}
