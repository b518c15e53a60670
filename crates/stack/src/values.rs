//! Values of the packets of a batch.

use core::ptr;

use flowgauge_wire::{BATCH_SIZE, Selection};

use crate::component::{Outlet, Packets};

/// A component's values for the packets of a batch, for later components.
///
/// They are valid while the same batch is processed. Packets reassembled from fragments afterwards have no values.
#[derive(Clone, Debug)]
pub struct PacketValues {
    batch: u64,
    /// Where the batch's packets are; a component may have made another batch.
    packets: usize,
    valid: Selection,
    values: Box<[u64; BATCH_SIZE]>,
}

impl Default for PacketValues {
    fn default() -> PacketValues {
        PacketValues {
            batch: 0,
            packets: 0,
            valid: Selection::NONE,
            values: Box::new([0; BATCH_SIZE]),
        }
    }
}

impl PacketValues {
    /// Clears all values, before those of `packets` are set.
    pub fn begin(&mut self, packets: &Packets<'_>, out: &dyn Outlet) {
        self.batch = out.batch();
        self.packets = ptr::from_ref(packets.decoded).addr();
        self.valid = Selection::NONE;
    }

    /// Sets the value of the packet at an index.
    #[inline]
    pub fn set(&mut self, index: usize, value: u64) {
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
            self.valid.insert(index);
        }
    }

    /// The values of `packets` that have one, with their indices.
    pub fn of<'a>(
        &'a self,
        packets: &Packets<'_>,
        out: &dyn Outlet,
    ) -> impl Iterator<Item = (usize, u64)> + use<'a> {
        let selected = self.valid(packets, out).and(packets.selected);
        selected.iter().map(|index| (index, self.values[index]))
    }

    /// The value of the packet at an index of `packets`.
    pub fn at(&self, packets: &Packets<'_>, index: usize, out: &dyn Outlet) -> Option<u64> {
        let is_there = self.valid(packets, out).contains(index);
        is_there.then(|| self.values[index])
    }

    fn valid(&self, packets: &Packets<'_>, out: &dyn Outlet) -> Selection {
        let is_same =
            self.batch == out.batch() && self.packets == ptr::from_ref(packets.decoded).addr();
        match is_same {
            true => self.valid,
            false => Selection::NONE,
        }
    }
}
