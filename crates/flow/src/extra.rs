//! State that few flows have: holes in the sequence space, a tunnel, fragments, an individual
//! timeout.

use flowgauge_wire::{Nanos, Tunnel};

use crate::flow::Flow;
use crate::holes::Holes;
use crate::slab::Slab;

/// No [`Extra`].
pub(crate) const NO_EXTRA: u32 = u32::MAX;

/// Holes remembered per side.
pub(crate) const HOLES: usize = 4;

/// What few flows have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    /// Per side, ranges of sequence space below the highest that were not seen, in order; empty
    /// ranges are unused.
    pub(crate) holes: [Holes; 2],
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) fragments: u64,
    /// Upper halves of the packet counters.
    pub(crate) packets_high: [u32; 2],
    /// Its idle timeout where it has one of its own.
    pub(crate) idle: Nanos,
    /// Next free one, while this is free.
    pub(crate) next_free: u32,
}

impl Extra {
    pub(crate) const EMPTY: Extra = Extra {
        holes: [[(0, 0); HOLES]; 2],
        tunnel: None,
        fragments: 0,
        packets_high: [0; 2],
        idle: Nanos::ZERO,
        next_free: NO_EXTRA,
    };
}

/// The extra parts of all flows.
#[derive(Clone, Debug)]
pub(crate) struct Extras {
    slab: Slab<Extra>,
    /// First of the free ones.
    free: u32,
}

impl Extras {
    pub(crate) const fn new() -> Extras {
        Extras {
            slab: Slab::new(),
            free: NO_EXTRA,
        }
    }

    /// The one with this number.
    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> Option<&Extra> {
        if at == NO_EXTRA {
            return None;
        }
        self.slab.get(at)
    }

    /// The flow's, where it has one.
    #[inline(always)]
    pub(crate) fn existing(&mut self, flow: &Flow) -> Option<&mut Extra> {
        if flow.cold.extra == NO_EXTRA {
            return None;
        }
        self.slab.get_mut(flow.cold.extra)
    }

    /// The flow's, made where it has none.
    #[inline(never)]
    pub(crate) fn of(&mut self, flow: &mut Flow) -> &mut Extra {
        if flow.cold.extra == NO_EXTRA {
            flow.cold.extra = if self.free == NO_EXTRA {
                self.slab.push(Extra::EMPTY)
            } else {
                let at = self.free;
                let slot = self.slab.at(at);
                self.free = slot.next_free;
                *slot = Extra::EMPTY;
                at
            };
        }
        self.slab.at(flow.cold.extra)
    }

    /// Frees one.
    pub(crate) fn free(&mut self, at: u32) {
        if let Some(extra) = self.slab.get_mut(at) {
            extra.next_free = self.free;
            self.free = at;
        }
    }

    /// Bytes of memory reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes()
    }
}
