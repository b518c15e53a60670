//! Flush timeouts of partial chunks.

use core::cmp::Reverse;

use flowgauge_flow::FlowTracker;
use flowgauge_wire::Nanos;

use super::chunk::ChunkFlags;
use super::core::{Core, Timer};
use super::events::Events;
use super::record::{Pending, ViewAt};
use super::slab::NONE;
use super::stream_ref::Context;

impl Core {
    /// Whether partial chunks time out at all.
    #[inline(always)]
    pub(super) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// A chunk has its first byte.
    pub(super) fn start_timer(&mut self, chunk: u32, place: u16, generation: u32, since: Nanos) {
        if let Some(timer) = self
            .timers
            .iter_mut()
            .find(|timer| timer.parameters == place)
        {
            timer.chunks.push(Reverse((since, chunk, generation)));
            if timer.chunks.len() > timer.compact_at {
                // Most of what was entered was delivered long ago.
                let pending = &self.pending;
                timer.chunks.retain(|&Reverse((_, chunk, generation))| {
                    pending.get(chunk).is_some_and(|pending| {
                        pending.stream != NONE && pending.generation == generation
                    })
                });
                timer.compact_at = (2 * timer.chunks.len()).max(Timer::FEW);
            }
        }
    }

    /// Sends chunks whose flush timeout has passed.
    pub(super) fn flush_old<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        tracker: &FlowTracker,
        now: Nanos,
    ) {
        for timer in 0..self.timers.len() {
            while let Some(timer) = self.timers.get_mut(timer)
                && let Some(&Reverse((since, chunk, generation))) = timer.chunks.peek()
                && now - since >= timer.timeout
            {
                timer.chunks.pop();
                let Some(pending) = self.pending.get(chunk) else {
                    continue;
                };
                let stream = pending.stream;
                if stream == NONE || pending.generation != generation {
                    continue;
                }
                if let Some(chunker) = self.chunker_with(stream, chunk) {
                    let context = Context::tracked(tracker, stream);
                    self.send_pending(events, context, chunker, ChunkFlags::TIMEOUT);
                }
            }
        }
    }

    /// Sends the chunks of a direction whose flush timeout has passed at `time`, when something more of
    /// it comes: as [`Core::flush_old`] would have if it had been called before.
    pub(super) fn flush_due<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        id: u32,
        time: Nanos,
    ) {
        let mut at = Some(ViewAt::first(id));
        while let Some(chunker) = at {
            at = self.next_view(chunker);
            let Some(pending) = self.pending.get(self.chunk_of(chunker)) else {
                continue;
            };
            let timeout = self.parameters_of(chunker).flush_timeout;
            if timeout.is_some_and(|timeout| pending.is_due(time, timeout)) {
                self.send_pending(events, context, chunker, ChunkFlags::TIMEOUT);
            }
        }
    }
}

impl Pending {
    /// Whether its flush timeout has passed since its first new byte.
    fn is_due(&self, time: Nanos, timeout: Nanos) -> bool {
        self.content.bytes.len() > self.repeated as usize && time - self.since >= timeout
    }
}
