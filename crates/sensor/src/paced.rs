//! Captures in their own time.

use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor};

/// The longest sleep: who reads has other things to look at, too.
const LOOK: Duration = Duration::from_millis(2);

/// Gives each packet of a source as long after the first as it was captured after it, and empty batches meanwhile.
pub(crate) struct Paced<S> {
    source: S,
    /// When the first packet was given, and when it was captured.
    began: Option<(Instant, Nanos)>,
    /// What was read, and how many packets of it were given.
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    given: usize,
}

impl<S: PacketSource> Paced<S> {
    pub(crate) fn new(source: S) -> Paced<S> {
        Paced {
            source,
            began: None,
            memory: Vec::new(),
            packets: Vec::new(),
            given: 0,
        }
    }

    /// Reads on where all was given. Whether there is something to give.
    fn fill(&mut self) -> Result<bool, Error> {
        if self.given < self.packets.len() {
            return Ok(true);
        }
        self.memory.clear();
        self.packets.clear();
        self.given = 0;
        let Some(batch) = self.source.next_batch()? else {
            return Ok(false);
        };
        for packet in batch.packets {
            let from = packet.offset as usize;
            let bytes = batch.memory.get(from..from + packet.captured_len as usize);
            let offset = self.memory.len() as u32;
            self.memory.extend_from_slice(bytes.unwrap_or_default());
            self.packets.push(PacketDescriptor { offset, ..*packet });
        }
        Ok(true)
    }
}

impl<S: PacketSource> PacketSource for Paced<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if !self.fill()? {
            return Ok(None);
        }
        let rest = self.packets.get(self.given..).unwrap_or_default();
        let Some(first) = rest.first() else {
            return Ok(Some(Batch::new(&[], &[])));
        };
        let (began, captured) = *self.began.get_or_insert((Instant::now(), first.time));
        let due = |packet: &PacketDescriptor| {
            let after = packet.time.0.saturating_sub(captured.0);
            began + Duration::from_nanos(after)
        };
        let now = Instant::now();
        let ready = rest.iter().take_while(|packet| due(packet) <= now).count();
        if ready == 0 {
            thread::sleep(due(first).saturating_duration_since(now).min(LOOK));
        }
        self.given += ready;
        Ok(Some(Batch::new(&self.memory, &rest[..ready])))
    }

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        let waiting = self.packets.get(self.given..).unwrap_or_default();
        let bytes = waiting
            .iter()
            .map(|packet| u64::from(packet.wire_len))
            .sum();
        ledger.leave_out(waiting.len() as u64, bytes);
        ledger
    }
}
