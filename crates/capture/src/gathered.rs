//! Packets of several sources in one memory.
//!
//! Merging by time yields runs of packets, and the runs of a connection's two directions are short. A batch for each
//! would cost more than its packets, so packets of short runs are copied to one memory.

use flowgauge_wire::{BATCH_SIZE, Batch, PacketDescriptor};

use crate::memory::{Lending, SharedMemory};

/// So many packets in a row are lent where they are.
pub(crate) const LENT: usize = 64;
/// Bytes of a batch, unless it is of one packet: what is copied stays in a second-level cache.
const BYTES: usize = 1 << 19;

/// A batch of copies.
#[derive(Debug, Default)]
pub struct Gathered {
    memory: SharedMemory,
    used: usize,
    packets: Vec<PacketDescriptor>,
    lending: Lending,
}

impl Gathered {
    /// Starts a batch.
    pub fn begin(&mut self) {
        self.packets.clear();
        self.used = 0;
        if self.memory.exclusive().is_none() || self.memory.is_empty() {
            self.memory = self.lending.fresh(BYTES);
        }
    }

    /// Copies the first of these `packets` in `memory`, with another interface number if `interface` is given. Returns
    /// the number copied: as many as there is room for.
    pub fn take(
        &mut self,
        memory: &[u8],
        packets: &[PacketDescriptor],
        interface: Option<u16>,
    ) -> usize {
        let Some(to) = self.memory.exclusive() else {
            return 0;
        };
        let mut taken = 0;
        for packet in packets.iter().take(BATCH_SIZE - self.packets.len()) {
            let start = packet.offset as usize;
            let bytes = memory
                .get(start..start + packet.captured_len as usize)
                .unwrap_or_default();
            if self.used + bytes.len() > to.len() {
                if self.used > 0 {
                    break;
                }
                to.resize(bytes.len(), 0);
            }
            if let Some(room) = to.get_mut(self.used..self.used + bytes.len()) {
                room.copy_from_slice(bytes);
            }
            self.packets.push(PacketDescriptor {
                offset: self.used as u32,
                captured_len: bytes.len() as u32,
                interface: interface.unwrap_or(packet.interface),
                ..*packet
            });
            self.used += bytes.len();
            taken += 1;
        }
        taken
    }

    /// The copied packets.
    pub fn packets(&self) -> &[PacketDescriptor] {
        &self.packets
    }

    /// Whether it has the maximum number of packets of a batch.
    pub fn is_full(&self) -> bool {
        self.packets.len() >= BATCH_SIZE
    }

    /// The copied packets as a batch.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.memory, &self.packets)
    }

    /// See [`PacketSource::share`](crate::PacketSource::share).
    pub(crate) fn share(&mut self) -> SharedMemory {
        self.lending.begin();
        self.memory.clone()
    }

    /// See [`PacketSource::is_exhausted`](crate::PacketSource::is_exhausted).
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lending.is_exhausted()
    }
}
