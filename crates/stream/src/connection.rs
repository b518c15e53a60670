//! What is kept per connection, found by the number of its flow.

use flowgauge_reassembly::Half;
use flowgauge_sys::prefetch::{prefetch, prefetch_at};

use crate::handler::Stream;

/// Connections per allocation: 256 KiB.
const CHUNK: usize = 1024;
const NONE: u32 = u32::MAX;

/// One direction: two cache lines, of which segments in order touch the first.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Side {
    pub(crate) half: Half,
    pub(crate) stream: Stream,
    /// Bytes of holes that no byte followed yet.
    pub(crate) pending_gap: u64,
}

/// Both directions, indexed by `Direction` relative to the flow's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) sides: [Side; 2],
}

/// What is known of a flow's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Nothing.
    Empty,
    /// Only SYNs of one side were seen: not worth a connection yet. A flood of them costs nothing.
    Syn {
        direction: usize,
        seq: u32,
        window_scale: u8,
    },
    /// The connection with this index.
    Connection(u32),
}

/// Slots by flow, connections by index. Eight bytes per flow, 256 per connection.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: Vec<[u32; 2]>,
    chunks: Vec<Vec<Connection>>,
    len: u32,
    free: Vec<u32>,
}

impl Connections {
    pub(crate) fn new() -> Connections {
        Connections {
            slots: Vec::new(),
            chunks: Vec::new(),
            len: 0,
            free: Vec::new(),
        }
    }

    /// Connections that live.
    pub(crate) fn live(&self) -> u64 {
        u64::from(self.len) - self.free.len() as u64
    }

    #[inline(always)]
    pub(crate) fn prefetch_slot(&self, flow: usize) {
        prefetch_at(&self.slots, flow);
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: usize, direction: usize) {
        if let Some(&[index, _]) = self.slots.get(flow)
            && let Some(connection) = self.get(index)
        {
            let side = &connection.sides[direction & 1];
            prefetch(&side.half);
            prefetch(&side.pending_gap);
        }
    }

    #[inline(always)]
    pub(crate) fn slot(&self, flow: usize) -> Slot {
        match self.slots.get(flow) {
            Some(&[tag, value]) => Slot::unpack(tag, value),
            None => Slot::Empty,
        }
    }

    /// The connection of a flow, if there is one.
    #[inline(always)]
    pub(crate) fn index_of(&self, flow: usize) -> Option<u32> {
        let &[tag, _] = self.slots.get(flow)?;
        (tag < Slot::FIRST_TAG).then_some(tag)
    }

    pub(crate) fn set_slot(&mut self, flow: usize, slot: Slot) {
        if flow >= self.slots.len() {
            self.slots.resize(flow + 1, Slot::Empty.pack());
        }
        self.slots[flow] = slot.pack();
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Connection> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Makes a connection; `build` gets its index.
    pub(crate) fn create(&mut self, build: impl FnOnce(u32) -> Connection) -> u32 {
        if let Some(index) = self.free.pop() {
            let connection = build(index);
            if let Some(slot) = self.get_mut(index) {
                *slot = connection;
            }
            return index;
        }
        let index = self.len;
        if (index as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(build(index));
            self.len += 1;
        }
        index
    }

    pub(crate) fn free(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl Slot {
    /// Tags from here on are not connections.
    const FIRST_TAG: u32 = NONE - 32;

    #[inline(always)]
    fn unpack(tag: u32, value: u32) -> Slot {
        if tag < Slot::FIRST_TAG {
            Slot::Connection(tag)
        } else if tag == NONE {
            Slot::Empty
        } else {
            let packed = tag - Slot::FIRST_TAG;
            Slot::Syn {
                direction: (packed & 1) as usize,
                seq: value,
                window_scale: (packed >> 1) as u8,
            }
        }
    }

    fn pack(self) -> [u32; 2] {
        match self {
            Slot::Empty => [NONE, 0],
            Slot::Connection(index) => [index, 0],
            Slot::Syn {
                direction,
                seq,
                window_scale,
            } => {
                let packed = u32::from(window_scale.min(14)) << 1 | direction as u32 & 1;
                [Slot::FIRST_TAG + packed, seq]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_two_cache_lines() {
        assert_eq!(size_of::<Side>(), 128);
        assert_eq!(size_of::<Connection>(), 256);
    }

    #[test]
    fn slots_pack() {
        for slot in [
            Slot::Empty,
            Slot::Connection(0),
            Slot::Connection(Slot::FIRST_TAG - 1),
            Slot::Syn {
                direction: 0,
                seq: 7,
                window_scale: 0,
            },
            Slot::Syn {
                direction: 1,
                seq: u32::MAX,
                window_scale: 14,
            },
        ] {
            let [tag, value] = slot.pack();
            assert_eq!(Slot::unpack(tag, value), slot);
        }
    }
}
