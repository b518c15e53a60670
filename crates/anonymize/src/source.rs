//! A source of packets behind which nobody sees what a policy takes out.

use flowgauge_capture::memory::SharedMemory;
use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_wire::{Batch, Ledger, PacketDescriptor};

use crate::Anonymizer;

/// Packets of another source, anonymized. Of its interfaces only link types and snap lengths are told.
pub struct Anonymized<S> {
    source: S,
    anonymizer: Anonymizer,
    /// Of the batch.
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    interfaces: Vec<Interface>,
    note: Option<String>,
    /// Packets of link types that cannot be read.
    unread: u64,
}

impl<S: PacketSource> Anonymized<S> {
    /// Before `source`.
    pub fn new(source: S, anonymizer: Anonymizer) -> Anonymized<S> {
        let mut made = Anonymized {
            source,
            anonymizer,
            memory: Vec::new(),
            packets: Vec::new(),
            interfaces: Vec::new(),
            note: None,
            unread: 0,
        };
        made.note_interfaces();
        made
    }

    /// With a line about it among its notes.
    #[must_use]
    pub fn noting(self, note: Option<String>) -> Anonymized<S> {
        Anonymized { note, ..self }
    }

    fn note_interfaces(&mut self) {
        let known = self.interfaces.len();
        let new = self.source.interfaces().iter().skip(known);
        self.interfaces.extend(new.map(|interface| Interface {
            link: interface.link,
            snap_len: interface.snap_len,
            ..Interface::default()
        }));
    }
}

impl<S: PacketSource> PacketSource for Anonymized<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        self.memory.clear();
        self.packets.clear();
        let Some(batch) = self.source.next_batch()? else {
            return Ok(None);
        };
        for packet in batch.packets {
            let frame = batch.bytes_of(packet);
            let becomes = self.anonymizer.packet(packet, frame, &mut self.memory);
            self.unread += u64::from(!Anonymizer::knows_link(packet.link));
            self.packets.push(becomes);
        }
        let now = batch.now;
        self.note_interfaces();
        let mut batch = Batch::new(&self.memory, &self.packets);
        batch.now = now;
        Ok(Some(batch))
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        self.source.ledger()
    }

    fn capture_lost(&self) -> u64 {
        self.source.capture_lost()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        if self.unread > 0 {
            let unread = self.unread;
            notes.push(format!("{unread} packets are of link types that cannot be anonymized: none of their bytes is kept"));
        }
        notes.extend(self.source.notes());
        notes
    }

    fn share(&mut self) -> Option<SharedMemory> {
        // The memory is this source's own, and serves the next batch.
        None
    }

    fn is_at_hand(&self) -> bool {
        self.source.is_at_hand()
    }
}
