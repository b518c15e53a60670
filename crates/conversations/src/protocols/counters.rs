//! How a run is getting on, every so often, as records.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use flowgauge_kit::measure::Intervals;
use flowgauge_record::counters::CountersRow;
use flowgauge_stack::{Items, RecordItem, SettingError, Settings, options};
use flowgauge_stream::Shard;
use flowgauge_wire::{Nanos, Place};

use super::anomalies::Way;
use super::room::Room;

options! {
    pub(super) const;
    INTERVAL = stats_interval: Duration, "also write a record of counters at multiples of this time, on the capture clock, and at the end";
}

/// When such a record was given last, and what it said.
pub(super) struct Counters {
    intervals: Intervals,
    /// When the first packet came.
    begin: Option<Nanos>,
    last: CountersRow,
    /// How many workers have a number: those that are made later go on behind it.
    _made: Arc<AtomicU64>,
}

/// When it is asked for a record.
pub(super) enum When {
    /// The clock has gone on to here.
    Tick(Nanos),
    /// The input is over.
    End,
}

impl Counters {
    /// Of a component with these settings, if it is to give such records.
    ///
    /// # Errors
    /// The interval is no time.
    pub(super) fn of(settings: &Settings) -> Result<Option<Counters>, SettingError> {
        let Some(every) = settings.duration("stats_interval") else {
            return Ok(None);
        };
        if every == 0 {
            return Err(SettingError::of("stats_interval", "is not a time"));
        }
        // In the order in which they are made.
        let made = settings.shared(|| Ok(AtomicU64::new(0)))?;
        let workers = settings.copies() as u64;
        Ok(Some(Counters {
            intervals: Intervals::new(every),
            begin: None,
            last: CountersRow {
                worker: made.fetch_add(1, Ordering::Relaxed) % workers + 1,
                workers,
                ..CountersRow::default()
            },
            _made: made,
        }))
    }

    /// At the ends of which intervals it is to be asked.
    pub(super) fn interval(&self) -> Nanos {
        Nanos(self.intervals.length())
    }

    /// Gives one if it is time.
    pub(super) fn look(
        &mut self,
        shard: &Shard,
        room: &Room,
        anomalies: u64,
        when: &When,
        way: &mut Way<'_>,
    ) {
        let now = match *when {
            When::Tick(now) => now,
            When::End => shard.tracker().clock(),
        };
        let begin = match self.begin {
            Some(begin) if shard.ledger().received() > 0 => begin,
            _ => {
                // The last tick before the first packet has its time.
                self.last.time = now;
                self.intervals.restart(now);
                *self.begin.insert(now)
            }
        };
        if shard.ledger().received() == 0 {
            return;
        }
        let now = match when {
            When::Tick(_) if now < self.intervals.end() => return,
            When::Tick(_) => {
                self.intervals.advance(now);
                self.intervals.start().unwrap_or(now)
            }
            When::End => now.max(self.last.time),
        };
        let interval = Nanos(now.0.saturating_sub(self.last.time.0));
        let (ledger, counters) = (shard.ledger(), shard.statistics());
        let reassembly = counters.reassembly;
        let row = CountersRow {
            time: now,
            uptime: Nanos(now.0.saturating_sub(begin.0)),
            interval,
            packets: ledger.received(),
            bytes: ledger.delivered_bytes(),
            new_packets: ledger.received() - self.last.packets,
            new_bytes: ledger.delivered_bytes().saturating_sub(self.last.bytes),
            malformed: ledger.at(Place::Malformed),
            memory_dropped: ledger.at(Place::Memory),
            new_memory_dropped: ledger.at(Place::Memory) - self.last.memory_dropped,
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

#[cfg(test)]
mod tests {
    use flowgauge_stack::{OptionValue, Setting};

    use super::*;

    #[test]
    fn workers_have_numbers_of_their_own_in_each_component() {
        let settings = || {
            let mut settings = Settings::new(vec![Setting {
                option: &INTERVAL,
                value: OptionValue::Duration(1_000_000_000),
                is_static: true,
                span: None,
            }]);
            settings.set_copies(2);
            settings
        };
        let both = [settings(), settings()];
        // As long as they live.
        let made: Vec<Counters> = (0..4)
            .filter_map(|number| Counters::of(&both[number % 2]).unwrap())
            .collect();
        let numbers: Vec<u64> = made.iter().map(|it| it.last.worker).collect();
        assert_eq!(numbers, [1, 1, 2, 2]);
    }
}
