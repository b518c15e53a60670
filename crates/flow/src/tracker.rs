//! The flow tracker.

use std::collections::HashMap;

use flowgauge_wire::{Decoded, FlowKey, Nanos, Tunnel};

use crate::config::FlowConfig;
use crate::packet_flow::{FlowId, PacketFlow, PacketFlowFlags};
use crate::record::{EndReason, FlowRecord, FlowSide, FlowState};

/// What a tracker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Flows created.
    pub created: u64,
    /// Flows evicted because the table was full.
    pub evicted: u64,
    /// Packets whose time was before the capture clock.
    pub time_backwards: u64,
    /// Packets that belong to no flow (no IP, excluded).
    pub without_flow: u64,
}

#[derive(Clone, Copy, Debug)]
struct Interim {
    key: FlowKey,
    sides: [FlowSide; 2],
    initiator: usize,
    start: Nanos,
    end: Nanos,
}

/// Follows flows through batches of decoded packets.
#[derive(Debug)]
pub struct FlowTracker {
    config: FlowConfig,
    index: HashMap<FlowKey, u32>,
    flows: Vec<Interim>,
    free: Vec<u32>,
    ended: Vec<(u32, EndReason)>,
    clock: Nanos,
    statistics: FlowStatistics,
}

impl FlowTracker {
    /// An empty tracker.
    pub fn new(config: FlowConfig) -> FlowTracker {
        FlowTracker {
            config,
            index: HashMap::new(),
            flows: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            clock: Nanos::ZERO,
            statistics: FlowStatistics::default(),
        }
    }

    /// Looks every packet's flow up, creating it where needed, and updates it. `refs` is cleared
    /// and gets one entry per packet. `Decoded::hash` must be filled. Flows that end meanwhile are
    /// kept, and their ids not reused, until [`FlowTracker::drain_ended`].
    pub fn process(
        &mut self,
        packets: &[Decoded],
        _tunnels: &[Tunnel],
        refs: &mut Vec<PacketFlow>,
    ) {
        refs.clear();
        for packet in packets {
            self.clock = self.clock.max(packet.time);
            if !packet.has_ip() {
                self.statistics.without_flow += 1;
                refs.push(PacketFlow::NONE);
                continue;
            }
            let mut flags = PacketFlowFlags(0);
            let id = match self.index.get(&packet.key) {
                Some(&id) => id,
                None => {
                    flags.insert(PacketFlowFlags::NEW);
                    self.create(packet)
                }
            };
            let flow = &mut self.flows[id as usize];
            let side = packet.direction.index();
            if side == flow.initiator {
                flags.insert(PacketFlowFlags::FROM_INITIATOR);
            }
            let counters = &mut flow.sides[side];
            if counters.packets == 0 {
                counters.first = packet.time;
            }
            counters.packets += u64::from(packet.frames);
            counters.bytes += u64::from(packet.wire_len);
            counters.ip_bytes += u64::from(packet.ip_len);
            counters.payload_bytes += u64::from(packet.payload_len);
            counters.tcp_flags = counters.tcp_flags.with(packet.tcp_flags);
            counters.last = packet.time;
            flow.end = flow.end.max(packet.time);
            refs.push(PacketFlow {
                id: FlowId(id),
                flags,
            });
        }
    }

    /// Moves the capture clock of an idle live source on, ending what times out.
    pub fn advance(&mut self, now: Nanos) {
        self.clock = self.clock.max(now);
    }

    /// Ends every flow: the input is over.
    pub fn finish(&mut self) {
        let all = self
            .index
            .drain()
            .map(|(_, id)| (id, EndReason::EndOfInput));
        self.ended.extend(all);
    }

    /// The record of a flow so far: one in the table, or ended and not drained yet.
    pub fn with_record<R>(&self, id: FlowId, read: impl FnOnce(&FlowRecord<'_>) -> R) -> Option<R> {
        let flow = self.flows.get(id.index())?;
        Some(read(&record(flow, EndReason::Active)))
    }

    /// Gives out, in the order they ended, the records complete since the last call, and frees
    /// their ids. A record with [`EndReason::Active`] was only cut: its flow and id live on.
    pub fn drain_ended(&mut self, mut take: impl FnMut(FlowId, &FlowRecord<'_>)) {
        for (id, reason) in self.ended.drain(..) {
            take(FlowId(id), &record(&self.flows[id as usize], reason));
            self.free.push(id);
        }
    }

    /// Whether [`FlowTracker::drain_ended`] has something to give.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The capture clock: the largest time seen.
    pub fn clock(&self) -> Nanos {
        self.clock
    }

    /// Counters.
    pub fn statistics(&self) -> FlowStatistics {
        self.statistics
    }

    /// The configuration.
    pub fn config(&self) -> &FlowConfig {
        &self.config
    }

    fn create(&mut self, packet: &Decoded) -> u32 {
        let (low, high) = (packet.key.low, packet.key.high);
        let side = |address, port| FlowSide {
            address,
            port,
            ..FlowSide::default()
        };
        let flow = Interim {
            key: packet.key,
            sides: [
                side(low, packet.key.low_port),
                side(high, packet.key.high_port),
            ],
            initiator: packet.direction.index(),
            start: packet.time,
            end: packet.time,
        };
        let id = self.free.pop().unwrap_or(self.flows.len() as u32);
        match self.flows.get_mut(id as usize) {
            Some(slot) => *slot = flow,
            None => self.flows.push(flow),
        }
        self.index.insert(packet.key, id);
        self.statistics.created += 1;
        id
    }
}

fn record(flow: &Interim, end_reason: EndReason) -> FlowRecord<'_> {
    FlowRecord {
        flow_id: 0,
        version: flow.key.version,
        protocol: flow.key.protocol,
        source: flow.sides[flow.initiator],
        destination: flow.sides[1 - flow.initiator],
        start: flow.start,
        end: flow.end,
        handshake_rtt: None,
        fragments: 0,
        state: FlowState::Oth,
        history: "",
        vlans: &[],
        tunnel: None,
        end_reason,
    }
}
