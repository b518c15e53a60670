//! How a run is getting on, every so often, as records.

use core::sync::atomic::{AtomicU64, Ordering};

use flowgauge_record::counters::CountersRow;
use flowgauge_stack::{Items, OptionInfo, OptionKind, RecordItem, Settings};
use flowgauge_stream::Shard;
use flowgauge_wire::{Nanos, Place};

use super::anomalies::Way;
use super::room::Room;

pub(super) const INTERVAL: OptionInfo = OptionInfo::new(
    "stats_interval",
    OptionKind::Duration,
    "give a record of counters every so often, on the clock of the capture, and at the end; without it none",
);

/// Numbers of workers, in the order in which they are made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// When such a record was given last, and what it said.
pub(super) struct Counters {
    every: Nanos,
    begin: Option<Nanos>,
    last: CountersRow,
}

impl Counters {
    /// Of a component with these settings, if it is to give such records.
    pub(super) fn of(settings: &Settings) -> Option<Counters> {
        let every = Nanos(settings.duration("stats_interval")?);
        let workers = settings.copies() as u64;
        Some(Counters {
            every,
            begin: None,
            last: CountersRow {
                worker: MADE.fetch_add(1, Ordering::Relaxed) % workers + 1,
                workers,
                ..CountersRow::default()
            },
        })
    }

    /// Gives one if it is time.
    pub(super) fn look(
        &mut self,
        shard: &Shard,
        room: &Room,
        anomalies: u64,
        is_end: bool,
        way: &mut Way<'_>,
    ) {
        let now = shard.tracker().clock();
        let begin = match self.begin {
            Some(begin) => begin,
            None if shard.ledger().received == 0 => return,
            None => {
                self.last.time = now;
                *self.begin.insert(now)
            }
        };
        let interval = Nanos(now.0.saturating_sub(self.last.time.0));
        if interval < self.every && !is_end {
            return;
        }
        let (ledger, counters) = (shard.ledger(), shard.statistics());
        let reassembly = counters.reassembly;
        let row = CountersRow {
            time: now,
            uptime: Nanos(now.0.saturating_sub(begin.0)),
            interval,
            packets: ledger.received,
            bytes: ledger.delivered_bytes,
            new_packets: ledger.received - self.last.packets,
            new_bytes: ledger.delivered_bytes.saturating_sub(self.last.bytes),
            malformed: ledger.at(Place::Malformed),
            memory_dropped: ledger.at(Place::Memory),
            bad_ip_checksum: counters.checksums.bad_ip,
            bad_checksum: counters.checksums.bad_transport,
            live_flows: shard.tracker().len() as u64,
            most_flows: counters.flow.most_flows,
            flows: counters.flow.created,
            evicted_flows: counters.flow.evicted,
            connections: counters.connections,
            stream_bytes: counters.delivered_bytes,
            out_of_order: reassembly.out_of_order,
            repeated_bytes: reassembly.old_bytes + reassembly.overlap_bytes,
            conflicting_bytes: reassembly.conflict_bytes,
            gaps: reassembly.gaps.iter().sum(),
            gap_bytes: reassembly.gap_bytes,
            fragments: counters.defragment.fragments,
            datagrams: counters.defragment.completed,
            flow_memory: shard.tracker().memory_bytes() as u64,
            segment_memory: shard.waiting_bytes(),
            fragment_memory: counters.defragment.memory_high,
            conversation_memory: room.held,
            given_up: room.requests + room.conversations,
            records: *way.records,
            anomalies,
            ..self.last
        };
        self.last = row;
        let event = way.schemas.event("statistics", None, &row);
        way.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: now,
            record: &event,
        }]));
    }
}
