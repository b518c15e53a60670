//! SYNs within ongoing connections ([`PacketFlowFlags::HELD_SYN`](flowgauge_flow::PacketFlowFlags::HELD_SYN)), until
//! it is known whether they start another connection: its streams then start with them and their data.

use std::collections::HashMap;

use flowgauge_flow::{FlowId, FlowTracker};
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, FoldedState, PacketDescriptor};

use crate::streams::Pass;

/// The most memory that they take; one more is nobody's.
const MOST_BYTES: usize = 4 << 20;

/// The last one of each flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Syns {
    by_flow: HashMap<u32, Syn, FoldedState>,
    bytes: usize,
    /// There was no room for so many.
    pub(crate) refused: u64,
}

/// One, and all that is read of it.
#[derive(Clone, Debug)]
pub(crate) struct Syn {
    pub(crate) packet: Decoded,
    descriptor: PacketDescriptor,
    bytes: Box<[u8]>,
}

impl Syns {
    /// Keeps that of a flow, instead of an earlier one.
    #[cold]
    pub(crate) fn keep(&mut self, flow: FlowId, pass: &Pass<'_>, packet: &Decoded) {
        self.take(flow);
        let bytes = pass.decoded.bytes(pass.batch, packet);
        if self.bytes + Syn::cost(bytes) > MOST_BYTES {
            self.refused += 1;
            return;
        }
        self.bytes += Syn::cost(bytes);
        let descriptor = pass.descriptor(packet);
        let syn = Syn {
            packet: Decoded {
                index: 0,
                tunnel: 0,
                ..*packet
            },
            descriptor: PacketDescriptor {
                offset: 0,
                ..descriptor
            },
            bytes: bytes.into(),
        };
        self.by_flow.insert(flow.0, syn);
    }

    /// Takes that of a flow out: it begins another connection, or the flow is over.
    #[inline]
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<Syn> {
        if self.by_flow.is_empty() {
            return None;
        }
        let syn = self.by_flow.remove(&flow.0)?;
        self.bytes -= Syn::cost(&syn.bytes);
        Some(syn)
    }
}

impl Syn {
    fn cost(bytes: &[u8]) -> usize {
        size_of::<Syn>() + bytes.len()
    }

    /// Lets `act` deal with it as with a packet of a batch.
    pub(crate) fn pass(&self, tracker: &FlowTracker, act: impl FnOnce(&Pass<'_>, &Decoded)) {
        let mut decoded = DecodedBatch::default();
        if self.packet.flags.contains(DecodeFlags::REASSEMBLED) {
            decoded.memory.extend_from_slice(&self.bytes);
            (decoded.datagrams).push((0, 0, self.bytes.len() as u32));
        }
        let descriptors = [self.descriptor];
        let pass = Pass {
            batch: &Batch::new(&self.bytes, &descriptors),
            decoded: &decoded,
            tracker,
        };
        act(&pass, &self.packet);
    }
}
