//! Packets that a component makes: a batch of its own.

use flowgauge_stack::{Items, Outlet, Packets};
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeFlags, Decoded, DecodedBatch, Decoder, LinkType, PacketDescriptor,
    hash_batch,
};

/// Packets that were made, until they are given on together. The memory serves again.
#[derive(Default)]
pub(crate) struct Made {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    keys: Vec<u32>,
    origins: Vec<u16>,
    decoder: Decoder,
    decoded: DecodedBatch,
}

impl Made {
    /// Keeps a packet that consists of these parts; its lengths are theirs. `origin` is the place in the
    /// batch of the packet that it comes of.
    pub(crate) fn push(
        &mut self,
        descriptor: PacketDescriptor,
        parts: &[&[u8]],
        key: u32,
        origin: u16,
    ) {
        let offset = self.memory.len();
        for part in parts {
            self.memory.extend_from_slice(part);
        }
        self.end(descriptor, offset, key, origin);
    }

    /// The bytes of a packet are there, from `offset` on.
    fn end(&mut self, descriptor: PacketDescriptor, offset: usize, key: u32, origin: u16) {
        let length = (self.memory.len() - offset) as u32;
        self.packets.push(PacketDescriptor {
            offset: offset as u32,
            captured_len: length,
            wire_len: descriptor.wire_len.max(length),
            ..descriptor
        });
        self.keys.push(key);
        self.origins.push(origin);
    }

    /// Gives packets as `write` makes them of others: it appends their bytes, and returns what else is said of them.
    pub(crate) fn rewritten(
        &mut self,
        packets: &Packets<'_>,
        out: &mut dyn Outlet,
        mut write: impl FnMut(&PacketDescriptor, &Decoded, &[u8], &mut Vec<u8>) -> PacketDescriptor,
    ) {
        for (index, decoded) in packets.iter() {
            let Some(descriptor) = packets.batch.packets.get(usize::from(decoded.index)) else {
                continue;
            };
            let mut descriptor = *descriptor;
            if decoded.flags.contains(DecodeFlags::REASSEMBLED) {
                descriptor.link = LinkType::RAW;
            }
            let offset = self.memory.len();
            let bytes = packets.bytes(decoded);
            let becomes = write(&descriptor, decoded, bytes, &mut self.memory);
            let origin = packets.origins.get(index).copied().unwrap_or(decoded.index);
            self.end(becomes, offset, packets.key(index), origin);
            if self.is_full() {
                self.give(packets.before, out, |_, _| {});
            }
        }
        self.give(packets.before, out, |_, _| {});
    }

    /// Whether they should be given on before more come.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= BATCH_SIZE || self.memory.len() >= 16 << 20
    }

    /// Gives them on. `before` is how many packets of the source came before the batch; `adjust` may
    /// change headers, by their place.
    pub(crate) fn give(
        &mut self,
        before: u64,
        out: &mut dyn Outlet,
        mut adjust: impl FnMut(usize, &mut Decoded),
    ) {
        if self.packets.is_empty() {
            return;
        }
        let batch = Batch::new(&self.memory, &self.packets);
        self.decoder.decode_batch(&batch, &mut self.decoded);
        for (index, packet) in self.decoded.packets.iter_mut().enumerate() {
            adjust(index, packet);
        }
        hash_batch(&mut self.decoded.packets);
        out.emit(Items::Packets(Packets {
            keys: &self.keys,
            origins: &self.origins,
            before,
            ..Packets::new(&batch, &self.decoded)
        }));
        self.memory.clear();
        self.packets.clear();
        self.keys.clear();
        self.origins.clear();
    }
}
