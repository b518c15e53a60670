//! A source for tests of stacks.

use flowgauge_capture::{Error, Interface, PacketSource, SharedMemory};
use flowgauge_wire::{Batch, Ledger, LinkType, Nanos, PacketDescriptor};

/// Datagrams between some hundred pairs of hosts, in batches of different lengths.
pub(crate) struct Generated {
    memory: SharedMemory,
    packets: Vec<PacketDescriptor>,
    /// Packets given on so far.
    pub(crate) next: usize,
    number: u64,
    lends: bool,
    at_hand: bool,
    ledger: Ledger,
}

impl Generated {
    pub(crate) fn new(packets: u32, lends: bool) -> Generated {
        let mut memory = Vec::new();
        let mut descriptors = Vec::new();
        let mut state = 7u32;
        for number in 0..packets {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (host, turned) = ((state >> 8) % 100, state >> 30 & 1 == 1);
            let (one, other) = ([10, 0, 0, host as u8], [10, 1, 0, 1]);
            let (source, destination) = if turned { (other, one) } else { (one, other) };
            // The port says which packet it is.
            let port = (1024 + number % 60_000) as u16;
            let offset = memory.len() as u32;
            let padding = number % 13;
            memory.extend([0x45, 0, 0, 28 + padding as u8, 0, 0, 0, 0, 64, 17, 0, 0]);
            memory.extend(source);
            memory.extend(destination);
            memory.extend(port.to_be_bytes());
            memory.extend([0, 9, 0, 8 + padding as u8, 0, 0]);
            memory.extend((0..padding).map(|_| 0));
            descriptors.push(PacketDescriptor {
                time: Nanos(u64::from(number) * 3),
                offset,
                captured_len: 28 + padding,
                wire_len: 28 + padding,
                link: LinkType::RAW,
                ..PacketDescriptor::default()
            });
        }
        Generated {
            memory: SharedMemory::new(memory),
            packets: descriptors,
            next: 0,
            number: 0,
            lends,
            at_hand: packets.is_multiple_of(2),
            ledger: Ledger::default(),
        }
    }
}

impl PacketSource for Generated {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let left = self.packets.len() - self.next;
        if left == 0 {
            return Ok(None);
        }
        self.number += 1;
        let length = [256, 3, 100, 0, 255, 1][self.number as usize % 6].min(left);
        let begin = self.next;
        self.next += length;
        self.ledger.take(length as u64, 0);
        let packets = &self.packets[begin..self.next];
        Ok(Some(Batch::new(&self.memory, packets)))
    }

    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }

    fn share(&mut self) -> Option<SharedMemory> {
        (!self.lends).then(|| self.memory.clone())
    }

    fn is_at_hand(&self) -> bool {
        self.at_hand
    }
}
