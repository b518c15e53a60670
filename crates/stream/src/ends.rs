//! Ends of streams.

use flowgauge_flow::{EndReason, EndedFlow, FlowId, FlowTracker, Taker};

use crate::connection::Phase;
use crate::delivery::Delivery;
use crate::handler::{Handler, StreamFlow, StreamStatus};
use crate::offload::Interest;
use crate::streams::{Streams, TCP, UDP, sides, stream_id};

/// Ends the streams of flows that have ended, and hands their records on.
pub(crate) struct EndStreams<'a, H> {
    pub(crate) streams: &'a mut Streams,
    pub(crate) interest: Option<&'a mut Interest>,
    pub(crate) handler: &'a mut H,
}

impl<H: Handler> Taker for EndStreams<'_, H> {
    #[inline(always)]
    fn fetch(&mut self, flow: FlowId, step: usize) {
        if H::STREAMS {
            self.streams.prefetch(flow, step, self.handler);
        }
    }

    #[inline(always)]
    fn take(&mut self, ended: &EndedFlow<'_>) {
        if let Some(interest) = &mut self.interest
            && ended.reason() != EndReason::Active
        {
            interest.forget(ended.identity().key, ended.id());
        }
        if !self.handler.wants_flows() {
            if H::STREAMS {
                self.streams
                    .end(ended, StreamFlow::Ended(ended), self.handler);
            }
            return;
        }
        ended.with_record(|record| {
            if H::STREAMS {
                // (Who takes packets asks for counters of a direction.)
                let flow = match H::PACKETS {
                    true => StreamFlow::Ended(ended),
                    false => StreamFlow::Record(record),
                };
                self.streams.end(ended, flow, self.handler);
            }
            self.handler.flow(record);
        });
    }
}

/// Shows flows that are open, and their streams, as if they had ended. They stay as they are.
pub(crate) struct ShowStreams<'a, H>(pub(crate) EndStreams<'a, H>);

impl<H: Handler> Taker for ShowStreams<'_, H> {
    fn fetch(&mut self, flow: FlowId, step: usize) {
        self.0.fetch(flow, step);
    }

    fn take(&mut self, ended: &EndedFlow<'_>) {
        let id = ended.id();
        let streams = [0, 1].map(|direction| stream_id(id, direction));
        let kept = self.0.streams.connections.get(id).copied();
        let skips = streams.map(|stream| self.0.streams.delivered.skip(stream));
        self.0.take(ended);
        let all = &mut *self.0.streams;
        if let (Some(place), Some(kept)) = (all.connections.get_mut(id), kept) {
            *place = kept;
        }
        for (stream, skip) in streams.into_iter().zip(skips) {
            if let Some(skip) = skip {
                *all.delivered.skip_of(stream) = skip;
            }
        }
    }
}

impl Streams {
    /// Shows the streams of open flows as if these had ended: see [`ShowStreams`].
    pub(crate) fn show_open<H: Handler>(&mut self, tracker: &FlowTracker, handler: &mut H) {
        // What waits is handed on by taking it out: of a copy.
        let copy = self.reassembler.clone();
        let reassembler = core::mem::replace(&mut self.reassembler, copy);
        let syns = core::mem::take(&mut self.syns);
        let (live, bytes, chunks) = (self.live, self.delivered.bytes, self.delivered.chunks);
        let streams = &mut *self;
        tracker.show_open(&mut ShowStreams(EndStreams {
            streams,
            interest: None,
            handler,
        }));
        (self.reassembler, self.syns, self.live) = (reassembler, syns, live);
        (self.delivered.bytes, self.delivered.chunks) = (bytes, chunks);
    }

    /// Fetches what [`Streams::end`] needs of a flow.
    #[inline(always)]
    fn prefetch<H: Handler>(&self, flow: FlowId, step: usize, handler: &mut H) {
        for direction in [0, 1] {
            if step == 0 {
                self.connections.prefetch(flow, direction);
            }
            handler.prefetch_end(stream_id(flow, direction), step);
        }
    }

    /// Ends the streams of a flow whose record is complete.
    #[inline]
    pub(crate) fn end<H: Handler>(
        &mut self,
        ended: &EndedFlow<'_>,
        flow: StreamFlow<'_>,
        handler: &mut H,
    ) {
        let (id, protocol) = (ended.id(), ended.protocol());
        let has_streams = H::PACKETS || matches!(protocol, TCP | UDP);
        if !has_streams || ended.reason() == EndReason::Active {
            return;
        }
        self.syns.take(id);
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let progress = &connection[0].progress;
        let is_open = progress.phase == Phase::Open;
        if is_open || H::PACKETS && progress.is_known() {
            let status = match ended.reason() {
                EndReason::Fin => StreamStatus::Fin,
                EndReason::Rst => StreamStatus::Rst,
                EndReason::Idle | EndReason::Active => StreamStatus::Timeout,
                EndReason::EndOfInput => StreamStatus::EndOfInput,
                EndReason::Evicted => StreamStatus::Evicted,
            };
            let end = ended.end();
            let first = usize::from(!connection[0].progress.from_initiator);
            for direction in [first, 1 - first] {
                let (side, peer) = sides(connection, direction);
                let mut trailing = 0;
                let stream = side.progress.stream(stream_id(id, direction), flow);
                handler.stream_ends(&stream, ended.at());
                let waits = side.half.is_queued();
                let mut delivery = Delivery {
                    id: stream_id(id, direction),
                    flow,
                    progress: &mut side.progress,
                    total: &mut self.delivered,
                    time: end,
                    complete: end,
                    handler,
                };
                if protocol == TCP {
                    trailing = self
                        .reassembler
                        .finish(&mut side.half, &peer.half, &mut delivery);
                }
                delivery.finish();
                if H::PACKETS && waits {
                    let forgotten = self.reassembler.take_forgotten();
                    handler.stream_forgotten(stream_id(id, direction), forgotten);
                }
                if side.progress.status == StreamStatus::Active {
                    side.progress.status = status;
                }
                trailing += side.progress.pending_gap;
                if side.half.is_abandoned() {
                    // Nobody misses it.
                    trailing = 0;
                }
                let stream = side.progress.stream(stream_id(id, direction), flow);
                handler.stream_terminated(&stream, trailing);
                if H::PACKETS && is_open {
                    handler.stream_over(&stream, trailing);
                }
            }
            self.live -= 1;
        }
        self.connections.clear(id);
    }
}
