//! Memory for chunks: if it is short, partial chunks of other streams are delivered early.

use flowgauge_flow::FlowTracker;
use flowgauge_sys::blocks::Block;
use flowgauge_sys::prefetch::{prefetch, prefetch_address};

use super::chunk::ChunkFlags;
use super::core::Core;
use super::events::Events;
use super::record::ViewAt;
use super::slab::NONE;
use super::stream_ref::Context;

/// Partial chunks looked at in one search for memory.
const STEPS: u32 = 4096;
/// How many chunks ahead of the search its next ones are fetched from memory.
const VICTIMS: u32 = 6;

/// Why there is no memory for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoMemory,
    /// Somebody who was sent a chunk of another stream meanwhile has changed something about the chunker.
    Changed,
}

impl Core {
    /// A buffer, as far as the stream's priority lets it have one; under pressure partial chunks of
    /// other streams are sent first.
    pub(super) fn memory<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        size: usize,
    ) -> Result<Block, Refusal> {
        let busy = chunker.record;
        if self.budget.used() + size as u64 > self.watermarks.base()
            && let Some(tracker) = context.tracker()
        {
            let stance = self.stance(chunker);
            self.relieve(events, tracker, size as u64, busy);
            if self.stance(chunker) != stance {
                return Err(Refusal::Changed);
            }
        }
        let buffer = self.buffers.get(size, self.ceiling_of(busy));
        buffer.ok_or(Refusal::NoMemory)
    }

    /// Sends partial chunks until `need` more bytes are below the base threshold, or so little is
    /// in partial chunks that sending them does not help.
    #[cold]
    fn relieve<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        tracker: &FlowTracker,
        need: u64,
        busy: u32,
    ) {
        self.pressed = true;
        let limit = self.ceiling_of(busy);
        let little = (limit - self.budget.tables().min(limit)) / 32;
        for _ in 0..STEPS {
            let used = self.budget.used() + need;
            let fits = used <= self.watermarks.base() || used <= limit && self.partial <= little;
            if fits || self.partial == 0 {
                break;
            }
            self.hand += 1;
            if self.hand >= self.pending.bound() {
                self.hand = 0;
            }
            self.fetch_victim(self.hand + VICTIMS);
            let Some(pending) = self.pending.get(self.hand) else {
                continue;
            };
            let stream = pending.stream;
            if stream == NONE || stream == busy {
                continue;
            }
            if let Some(chunker) = self.chunker_with(stream, self.hand) {
                let context = Context::tracked(tracker, stream);
                self.send_pending(events, context, chunker, ChunkFlags::EARLY);
            }
        }
    }

    /// Fetches what it takes to send this chunk.
    #[inline]
    fn fetch_victim(&self, chunk: u32) {
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        if let Some(record) = self.records.get(pending.stream) {
            prefetch(record);
            prefetch_address(pending.content.bytes.as_slice().as_ptr());
        }
    }

    /// What somebody may have changed about a chunker while others had events: memory is found by sending
    /// them their chunks.
    fn stance(&self, chunker: ViewAt) -> Option<(u64, u32, u32, u16, u32)> {
        let view = self.view(chunker)?;
        let generation = match self.pending.get(view.chunk) {
            Some(pending) if view.chunk != NONE => pending.generation,
            _ => 0,
        };
        let limit = self.limit_of(chunker);
        let members = self.members(chunker);
        Some((
            limit,
            view.chunk,
            generation,
            view.chunk_parameters,
            members,
        ))
    }
}
