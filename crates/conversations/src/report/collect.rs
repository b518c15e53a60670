//! Gathers what the report says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flowgauge_flow::{EndReason, FlowRecord, FlowState};
use flowgauge_stream::Handler;
use flowgauge_wire::{Address, Batch, DecodeFlags, DecodedBatch, Nanos};

use super::histogram::{Histogram, Percentiles};
use super::said::Said;
use super::talkers::{Largest, Sums};
use super::timeline::Timeline;

const PACKET_SIZES: &[(u64, &str)] = &[
    (65, "to 64"),
    (129, "to 128"),
    (257, "to 256"),
    (513, "to 512"),
    (1025, "to 1024"),
    (1519, "to 1518"),
    (u64::MAX, "larger"),
];
const FLOW_SIZES: &[(u64, &str)] = &[
    (100, "under 100 B"),
    (1_000, "to 1 kB"),
    (10_000, "to 10 kB"),
    (100_000, "to 100 kB"),
    (1_000_000, "to 1 MB"),
    (10_000_000, "to 10 MB"),
    (u64::MAX, "larger"),
];
const DURATIONS: &[(u64, &str)] = &[
    (1_000_000, "under 1 ms"),
    (10_000_000, "to 10 ms"),
    (100_000_000, "to 100 ms"),
    (1_000_000_000, "to 1 s"),
    (10_000_000_000, "to 10 s"),
    (60_000_000_000, "to 1 min"),
    (u64::MAX, "longer"),
];

/// Kinds of packets.
pub(super) const PROTOCOLS: [&str; 6] = ["tcp", "udp", "icmp", "other ip", "not ip", "malformed"];

/// Everything the report says of the traffic.
pub(super) struct Collector {
    top: usize,
    pub(super) first: Option<Nanos>,
    pub(super) last: Nanos,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// By [`PROTOCOLS`].
    pub(super) protocols: [Sums; PROTOCOLS.len()],
    pub(super) ipv6_packets: u64,
    pub(super) fragments: u64,
    pub(super) timeline: Timeline,
    pub(super) packet_sizes: Histogram,
    pub(super) flow_sizes: Histogram,
    pub(super) flow_durations: Histogram,
    pub(super) flows: u64,
    pub(super) talkers: Largest<(u8, Address)>,
    /// Responder's protocol and port.
    pub(super) services: Largest<(u8, u16)>,
    largest_flows: BinaryHeap<Reverse<FlowSummary>>,
    pub(super) tcp: TcpHealth,
    /// What was said, where that is looked at.
    pub(super) said: Option<Box<Said>>,
}

/// How TCP connections fared.
#[derive(Clone, Debug, Default)]
pub(super) struct TcpHealth {
    pub(super) connections: u64,
    pub(super) established: u64,
    pub(super) failed: u64,
    pub(super) rejected: u64,
    pub(super) reset: u64,
    pub(super) midstream: u64,
    pub(super) packets: u64,
    pub(super) retransmitted: u64,
    pub(super) out_of_order: u64,
    pub(super) rtt: Percentiles,
}

/// A flow in the list of the largest; ordered by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowSummary {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) duration: Nanos,
    pub(super) flow_id: u64,
    pub(super) version: u8,
    pub(super) protocol: u8,
    pub(super) source: (Address, u16),
    pub(super) destination: (Address, u16),
}

impl Collector {
    /// Nothing yet; lists will have `top` entries, and take `memory_bytes` where that is bounded: a quarter what is
    /// said, where that is looked at, and the rest the others.
    pub(super) fn new(top: usize, memory_bytes: Option<u64>, looks_into: bool) -> Collector {
        let quarter = memory_bytes.map(|bytes| bytes / 4);
        let said = looks_into.then(|| Box::new(Said::with_memory(quarter)));
        let half = memory_bytes.map(|bytes| match &said {
            Some(_) => (bytes - bytes / 4) / 2,
            None => bytes / 2,
        });
        Collector {
            top,
            first: None,
            last: Nanos::ZERO,
            packets: 0,
            bytes: 0,
            protocols: [Sums::default(); PROTOCOLS.len()],
            ipv6_packets: 0,
            fragments: 0,
            timeline: Timeline::default(),
            packet_sizes: Histogram::new(PACKET_SIZES),
            flow_sizes: Histogram::new(FLOW_SIZES),
            flow_durations: Histogram::new(DURATIONS),
            flows: 0,
            talkers: half.map_or_else(Largest::default, Largest::with_memory),
            services: half.map_or_else(Largest::default, Largest::with_memory),
            largest_flows: BinaryHeap::new(),
            tcp: TcpHealth::default(),
            said,
        }
    }

    /// From the first to the last packet.
    pub(super) fn duration(&self) -> Nanos {
        self.last - self.first.unwrap_or(self.last)
    }

    /// The largest flows, largest first.
    pub(super) fn top_flows(&self) -> Vec<FlowSummary> {
        let mut flows: Vec<FlowSummary> = self.largest_flows.iter().map(|flow| flow.0).collect();
        flows.sort_unstable_by(|a, b| b.cmp(a));
        flows
    }

    /// Adds another worker's share.
    pub(super) fn merge(&mut self, other: Collector) {
        if let Some(first) = other.first {
            self.first = Some(self.first.map_or(first, |mine| mine.min(first)));
        }
        self.last = self.last.max(other.last);
        self.packets += other.packets;
        self.bytes += other.bytes;
        for (mine, theirs) in self.protocols.iter_mut().zip(other.protocols) {
            mine.bytes += theirs.bytes;
            mine.packets += theirs.packets;
            mine.flows += theirs.flows;
        }
        self.ipv6_packets += other.ipv6_packets;
        self.fragments += other.fragments;
        self.timeline.merge(&other.timeline);
        self.packet_sizes.merge(&other.packet_sizes);
        self.flow_sizes.merge(&other.flow_sizes);
        self.flow_durations.merge(&other.flow_durations);
        self.flows += other.flows;
        self.talkers.merge(other.talkers);
        self.services.merge(other.services);
        for Reverse(flow) in other.largest_flows {
            self.keep_if_large(flow);
        }
        self.tcp.merge(&other.tcp);
        if let (Some(mine), Some(theirs)) = (&mut self.said, other.said) {
            mine.merge(*theirs);
        }
    }

    fn keep_if_large(&mut self, flow: FlowSummary) {
        if self.largest_flows.len() < self.top {
            self.largest_flows.push(Reverse(flow));
        } else if let Some(mut smallest) = self.largest_flows.peek_mut()
            && smallest.0 < flow
        {
            *smallest = Reverse(flow);
        }
    }
}

impl Handler for Collector {
    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        for packet in batch.packets {
            let bytes = u64::from(packet.wire_len);
            self.packets += 1;
            self.bytes += bytes;
            self.first = Some(
                self.first
                    .map_or(packet.time, |first| first.min(packet.time)),
            );
            self.last = self.last.max(packet.time);
            self.timeline.add(packet.time, bytes);
            self.packet_sizes.add(bytes);
        }
        for packet in &decoded.packets {
            let kind = if packet.problem.is_malformed() {
                5
            } else if !packet.has_ip() {
                4
            } else {
                match packet.key.protocol {
                    6 => 0,
                    17 => 1,
                    1 | 58 => 2,
                    _ => 3,
                }
            };
            let sums = &mut self.protocols[kind];
            // A reassembled datagram stands for its fragments.
            let frames = u64::from(packet.frames.max(1));
            sums.packets += frames;
            sums.bytes += u64::from(packet.wire_len);
            if packet.key.version == 6 {
                self.ipv6_packets += frames;
            }
            let fragment = DecodeFlags::FRAGMENT.0 | DecodeFlags::REASSEMBLED.0;
            if packet.flags.0 & fragment != 0 {
                self.fragments += frames;
            }
        }
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        let (source, destination) = (&record.source, &record.destination);
        let sums = Sums::of(record);
        self.flows += 1;
        let kind = match record.protocol {
            6 => 0,
            17 => 1,
            1 | 58 => 2,
            _ => 3,
        };
        self.protocols[kind].flows += 1;
        self.flow_sizes.add(sums.bytes);
        self.flow_durations.add((record.end - record.start).0);
        self.talkers.add((record.version, source.address), sums);
        // A host that talks to itself is one talker.
        if destination.address != source.address {
            self.talkers
                .add((record.version, destination.address), sums);
        }
        if matches!(record.protocol, 6 | 17 | 132) {
            self.services.add((record.protocol, destination.port), sums);
        }
        self.keep_if_large(FlowSummary {
            bytes: sums.bytes,
            packets: sums.packets,
            duration: record.end - record.start,
            flow_id: record.flow_id,
            version: record.version,
            protocol: record.protocol,
            source: (source.address, source.port),
            destination: (destination.address, destination.port),
        });
        if record.protocol == 6 {
            self.tcp.add(record);
        }
    }
}

impl TcpHealth {
    fn add(&mut self, record: &FlowRecord<'_>) {
        let (source, destination) = (&record.source, &record.destination);
        self.connections += 1;
        self.packets += source.packets + destination.packets;
        self.retransmitted += source.retransmitted + destination.retransmitted;
        self.out_of_order += source.out_of_order + destination.out_of_order;
        if let Some(rtt) = record.handshake_rtt {
            self.rtt.add(rtt.0);
        }
        match record.state {
            FlowState::S0 | FlowState::Sh | FlowState::Rstos0 => self.failed += 1,
            FlowState::Rej => self.rejected += 1,
            FlowState::Oth | FlowState::Shr | FlowState::Rstrh => self.midstream += 1,
            _ => self.established += 1,
        }
        self.reset += u64::from(record.end_reason == EndReason::Rst);
    }

    fn merge(&mut self, other: &TcpHealth) {
        self.connections += other.connections;
        self.established += other.established;
        self.failed += other.failed;
        self.rejected += other.rejected;
        self.reset += other.reset;
        self.midstream += other.midstream;
        self.packets += other.packets;
        self.retransmitted += other.retransmitted;
        self.out_of_order += other.out_of_order;
        self.rtt.merge(&other.rtt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_out_once() {
        let keys = |bytes, looks_into| {
            let collector = Collector::new(10, Some(bytes), looks_into);
            (collector.talkers.max_keys(), collector.services.max_keys())
        };
        assert_eq!(keys(4 << 20, true), keys(3 << 20, false));
        assert!(keys(4 << 20, true) < keys(4 << 20, false));
    }
}
