//! Delivery of in-order bytes to the handler.

use flowgauge_flow::PacketFlow;
use flowgauge_reassembly::{GapCause, Receiver};
use flowgauge_wire::{Decoded, Nanos};

use crate::connection::{Progress, SKIPS, Side};
use crate::handler::{Chunk, Cut, Handler, Stream, StreamFlow};
use crate::streams::{Pass, stream_id};
use crate::wants::Skip;

/// Totals over all streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) bytes: u64,
    pub(crate) chunks: u64,
    /// What is not looked at of streams, by their numbers: valid with [`SKIPS`].
    skips: Vec<Skip>,
}

impl Delivered {
    pub(crate) fn skip_of(&mut self, stream: u32) -> &mut Skip {
        let at = stream as usize;
        if at >= self.skips.len() {
            self.skips
                .resize((at + 1).next_power_of_two(), Skip::default());
        }
        &mut self.skips[at]
    }

    /// What is not looked at of a stream with [`SKIPS`].
    pub(crate) fn skip(&self, stream: u32) -> Option<Skip> {
        self.skips.get(stream as usize).copied()
    }
}

/// A direction's bytes on their way to the handler.
pub(crate) struct Delivery<'a, H> {
    pub(crate) id: u32,
    pub(crate) flow: StreamFlow<'a>,
    pub(crate) progress: &'a mut Progress,
    pub(crate) total: &'a mut Delivered,
    pub(crate) time: Nanos,
    /// Bytes that waited are complete since then: now, and behind a hole since they were captured.
    pub(crate) complete: Nanos,
    pub(crate) handler: &'a mut H,
}

impl<'a, H: Handler> Delivery<'a, H> {
    /// Of the direction `side` that a packet belongs to.
    #[inline(always)]
    pub(crate) fn of_packet(
        pass: &Pass<'a>,
        packet: &Decoded,
        flow: PacketFlow,
        side: &'a mut Side,
        total: &'a mut Delivered,
        handler: &'a mut H,
    ) -> Delivery<'a, H> {
        Delivery {
            id: stream_id(flow.id, packet.direction.index()),
            flow: StreamFlow::Tracked(pass.tracker, flow.id),
            progress: &mut side.progress,
            total,
            time: packet.time,
            complete: packet.time,
            handler,
        }
    }

    #[inline(always)]
    pub(crate) fn deliver(&mut self, bytes: &[u8]) {
        self.deliver_of(bytes, self.time);
    }

    #[inline(always)]
    fn deliver_of(&mut self, bytes: &[u8], captured: Nanos) {
        let progress = &mut *self.progress;
        let gap_before = progress.settle_gap();
        let chunk = Chunk {
            bytes,
            offset: progress.position(),
            gap_before,
            skipped: 0,
            time: self.time,
            captured,
        };
        progress.count(bytes, self.total);
        if progress.has(SKIPS) {
            return self.deliver_rest(&chunk);
        }
        self.handler
            .stream_data(&progress.stream(self.id, self.flow), &chunk);
    }
}

impl<H: Handler> Delivery<'_, H> {
    /// What is looked at of a chunk.
    #[inline(never)]
    fn deliver_rest(&mut self, chunk: &Chunk<'_>) {
        if let Some(rest) = self.total.skip_of(self.id).rest(chunk) {
            self.progress.marks &= !SKIPS;
            let stream = self.progress.stream(self.id, self.flow);
            self.handler.stream_data(&stream, &rest);
        }
    }

    /// The stream ends: tells what is not told yet.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if !self.progress.has(SKIPS) {
            return;
        }
        let stream = self.progress.stream(self.id, self.flow);
        if let Some(last) = self.total.skip_of(self.id).last(&stream) {
            self.handler.stream_data(&stream, &last);
        }
    }
}

impl<H: Handler> Receiver for Delivery<'_, H> {
    const PACKETS: bool = H::PACKETS;

    fn position(&self) -> u64 {
        self.progress.position()
    }

    fn data(&mut self, bytes: &[u8]) {
        self.deliver(bytes);
    }

    fn waited(&mut self, bytes: &[u8], captured: Nanos, begin: &[u32]) {
        self.complete = self.complete.max(captured);
        self.handler
            .stream_begins(self.progress.position(), Some(begin));
        self.deliver_of(bytes, self.complete);
        self.handler.stream_begins(0, None);
    }

    fn gap(&mut self, bytes: u64, cause: GapCause) {
        // What a packet was cut by did not come later than the packet.
        if cause != GapCause::Cut {
            self.complete = Nanos::ZERO;
        }
        self.progress.pending_gap += bytes;
    }

    fn cut(&mut self, bytes: u64, packets: u64) {
        self.progress
            .cut(bytes, packets, self.id, self.flow, self.handler);
    }

    fn begun(&mut self) {
        self.complete = Nanos::ZERO;
    }
}

impl Progress {
    /// How far the stream has got, holes counted.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.bytes + self.missing_bytes + self.pending_gap
    }

    /// The snap length cut off what is next: so many bytes, with which so many packets begin.
    pub(crate) fn cut<H: Handler>(
        &mut self,
        bytes: u64,
        packets: u64,
        id: u32,
        flow: StreamFlow<'_>,
        handler: &mut H,
    ) {
        if H::PACKETS && bytes != 0 {
            let cut = Cut {
                offset: self.position(),
                bytes,
                packets,
            };
            handler.stream_cut(&self.stream(id, flow), &cut);
        }
        self.pending_gap += bytes;
    }

    /// Bytes were delivered.
    #[inline(always)]
    pub(crate) fn count(&mut self, bytes: &[u8], total: &mut Delivered) {
        self.bytes += bytes.len() as u64;
        total.bytes += bytes.len() as u64;
        total.chunks += 1;
    }

    /// Bytes follow the hole before them, if there is one: returns its size.
    #[inline(always)]
    pub(crate) fn settle_gap(&mut self) -> u64 {
        let gap = self.pending_gap;
        if gap != 0 {
            self.pending_gap = 0;
            self.missing_bytes += gap;
            self.gaps += 1;
        }
        gap
    }

    /// As a handler sees it.
    #[inline(always)]
    pub(crate) fn stream<'a>(&self, id: u32, flow: StreamFlow<'a>) -> Stream<'a> {
        Stream {
            id,
            opposite: id ^ 1,
            bytes: self.bytes,
            missing_bytes: self.missing_bytes,
            gaps: self.gaps,
            status: self.status,
            from_initiator: self.from_initiator,
            flow,
        }
    }
}
