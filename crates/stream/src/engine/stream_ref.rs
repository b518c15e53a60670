//! A stream as seen by its application.

use flowgauge_flow::FlowTracker;
use flowgauge_wire::{Address, Direction};

use super::command::{ChunkParameters, Command, Parameter};
use super::config::{ApplicationId, Cutoff, Mode};
use super::core::{Core, flow_of};
use super::record::{OwnLoss, Parameters, RecordFlags, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::{Counts, StreamStatistics};
use crate::handler::{Stream, StreamFlow, StreamIdentity, StreamStatus};
use crate::wants::Want;

/// Errors of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamErrors(pub u8);

impl StreamErrors {
    /// Data came without a complete three-way handshake.
    pub const INCOMPLETE_HANDSHAKE: StreamErrors = StreamErrors(1);
    /// A segment's sequence number cannot belong to the connection.
    pub const INVALID_SEQUENCE: StreamErrors = StreamErrors(2);
    /// Bytes are missing.
    pub const GAP: StreamErrors = StreamErrors(4);
    /// Copies of the same bytes differed.
    pub const OVERLAP_CONFLICT: StreamErrors = StreamErrors(8);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: StreamErrors) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    pub const fn insert(&mut self, other: StreamErrors) {
        self.0 |= other.0;
    }
}

/// Where the identity and counters of a stream can be looked up, and how it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) flow: StreamFlow<'a>,
    pub(super) status: StreamStatus,
}

impl<'a> Context<'a> {
    #[inline(always)]
    pub(super) fn of(stream: &Stream<'a>) -> Context<'a> {
        Context {
            flow: stream.flow,
            status: stream.status,
        }
    }

    /// A stream in the flow table.
    pub(super) fn tracked(tracker: &'a FlowTracker, id: u32) -> Context<'a> {
        Context {
            flow: StreamFlow::Tracked(tracker, flow_of(id)),
            status: StreamStatus::Active,
        }
    }

    /// The flow table, unless the flow has left it.
    pub(super) fn tracker(&self) -> Option<&'a FlowTracker> {
        match self.flow {
            StreamFlow::Tracked(tracker, _) => Some(tracker),
            _ => None,
        }
    }

    /// The flow table's counters of direction `id`.
    fn statistics(&self, id: u32) -> StreamStatistics {
        let direction = match id & 1 {
            0 => Direction::LowToHigh,
            _ => Direction::HighToLow,
        };
        let side = match self.flow {
            StreamFlow::Tracked(tracker, id) => tracker.side(id, direction),
            StreamFlow::Ended(flow) => Some(flow.side(direction)),
            // (The engine takes no records.)
            StreamFlow::Record(_) | StreamFlow::Known(_) => None,
        };
        let side = side.unwrap_or_default();
        StreamStatistics {
            start: side.first,
            end: side.last,
            all: Counts {
                packets: side.packets,
                bytes: side.payload_bytes,
            },
            wire_bytes: side.bytes,
            ..StreamStatistics::default()
        }
    }
}

/// One direction of a connection during an event, for one application.
#[derive(Debug)]
pub struct StreamRef<'a> {
    pub(super) core: &'a mut Core,
    pub(super) context: Context<'a>,
    pub(super) at: ViewAt,
}

impl StreamRef<'_> {
    /// A number that is unique in its engine, past and future.
    pub fn uid(&self) -> u64 {
        self.core.uid(self.at.record)
    }

    /// [`StreamRef::uid`] of the opposite direction.
    pub fn opposite_uid(&self) -> u64 {
        self.core.uid(self.at.record ^ 1)
    }

    /// The application of the event.
    pub fn application(&self) -> ApplicationId {
        ApplicationId(self.view(|view| view.application))
    }

    /// Its endpoints and flow.
    pub fn identity(&self) -> StreamIdentity {
        self.context.flow.identity(self.at.record)
    }

    /// Address and port of the sender.
    pub fn source(&self) -> (Address, u16) {
        self.identity().source
    }

    /// Address and port of the receiver.
    pub fn destination(&self) -> (Address, u16) {
        self.identity().destination
    }

    /// Whether it is the initiator's direction.
    pub fn from_initiator(&self) -> bool {
        self.record_flags().has(RecordFlags::FROM_INITIATOR)
    }

    /// Packets and bytes so far.
    pub fn statistics(&self) -> StreamStatistics {
        self.statistics_of(self.at.record)
    }

    /// The opposite direction's packets and bytes so far.
    pub fn opposite_statistics(&self) -> StreamStatistics {
        self.statistics_of(self.at.record ^ 1)
    }

    /// Whether the stream is open, or how it ended. Independent of the cutoff ([`StreamRef::is_cut`]):
    /// the record of a stream that was cut off stays until the stream ends.
    pub fn status(&self) -> StreamStatus {
        self.context.status
    }

    /// In [`Events::terminated`](super::Events::terminated): bytes known to be missing at the end of
    /// the stream, after the last chunk (the receiver acknowledged them, or a FIN or cut packets show
    /// that there were more). Zero in other events. Bytes beyond the cutoff do not count. If the cutoff
    /// was reached ([`StreamRef::is_cut`]) by bytes after the missing ones, or mode STRICT stopped
    /// ([`StreamRef::is_halted`]): the bytes missing there, from then on.
    pub fn missing_at_end(&self) -> u64 {
        if self.is_halted() || self.is_cut() {
            return self.core.own_loss(self.at).missing;
        }
        match self.core.trailing_gap {
            (id, bytes, from) if id == self.at.record && !self.is_discarded() => {
                bytes.min(self.cutoff().0.saturating_sub(from))
            }
            _ => 0,
        }
    }

    /// Whether the application's cutoff was reached.
    pub fn is_cut(&self) -> bool {
        self.view(|view| view.flags.has(ViewFlags::CUT))
    }

    /// Whether mode STRICT stopped: bytes are missing ([`StreamRef::missing_at_end`]), or the handshake
    /// was not seen. Later bytes are discarded.
    pub fn is_halted(&self) -> bool {
        self.view(|view| view.flags.has(ViewFlags::HALTED))
    }

    /// Whether the application discarded it.
    pub fn is_discarded(&self) -> bool {
        self.view(|view| view.flags.has(ViewFlags::DISCARDED))
    }

    /// Errors so far.
    pub fn errors(&self) -> StreamErrors {
        let record = self.core.records.get(self.at.record);
        record.map_or(StreamErrors(0), |record| record.errors)
    }

    /// The application's cutoff.
    pub fn cutoff(&self) -> Cutoff {
        Cutoff(self.view(|view| view.limit))
    }

    /// The application's priority.
    pub fn priority(&self) -> u8 {
        self.view(|view| view.priority)
    }

    /// The amount of memory that may be in use after a charge for this stream.
    pub fn ceiling(&self) -> u64 {
        self.core.watermarks.ceiling(self.priority())
    }

    /// The same for the event of its creation.
    pub fn creation_ceiling(&self) -> u64 {
        self.core.watermarks.creation_ceiling(self.priority())
    }

    /// Its chunk size.
    pub fn chunk_bytes(&self) -> u32 {
        self.parameters().chunk_bytes
    }

    /// Bytes at the end of a chunk that the next one repeats.
    pub fn overlap_bytes(&self) -> u32 {
        self.parameters().overlap_bytes
    }

    /// How its bytes are reassembled.
    pub fn mode(&self) -> Mode {
        self.parameters().mode
    }

    /// Data events so far, including the current one.
    pub fn chunks(&self) -> u64 {
        u64::from(self.view(|view| view.chunks))
    }

    /// Nanoseconds spent in its data events so far; 0 without a stopwatch
    /// ([`Engine::set_stopwatch`](super::Engine::set_stopwatch)).
    pub fn processing_time(&self) -> u64 {
        self.view(|view| view.processing)
    }

    /// A word for the application's use, initially 0.
    pub fn user_state(&self) -> u64 {
        self.view(|view| view.user_state)
    }

    /// Sets [`StreamRef::user_state`].
    pub fn set_user_state(&mut self, state: u64) {
        self.core.apply(self.at, Command::SetUserState(state));
    }

    /// A copy of its state, which can be sent elsewhere.
    pub fn snapshot(&self) -> StreamSnapshot {
        let parameters = self.parameters();
        StreamSnapshot {
            uid: self.uid(),
            opposite_uid: self.opposite_uid(),
            application: self.application(),
            identity: self.identity(),
            from_initiator: self.from_initiator(),
            statistics: self.statistics(),
            opposite_statistics: self.opposite_statistics(),
            status: self.status(),
            missing_at_end: self.missing_at_end(),
            is_cut: self.is_cut(),
            is_halted: self.is_halted(),
            is_discarded: self.is_discarded(),
            errors: self.errors(),
            cutoff: self.cutoff(),
            priority: self.priority(),
            chunk_bytes: parameters.chunk_bytes,
            overlap_bytes: parameters.overlap_bytes,
            mode: parameters.mode,
            chunks: self.chunks(),
            processing_time: self.processing_time(),
            user_state: self.user_state(),
        }
    }

    /// Changes the cutoff. If the stream has already passed it, it is reached with the next byte. A
    /// cutoff that was reached can be raised; bytes discarded meanwhile are missing.
    pub fn set_cutoff(&mut self, cutoff: Cutoff) {
        self.core.apply(self.at, Command::SetCutoff(cutoff));
    }

    /// Changes the priority; higher numbers are more important.
    pub fn set_priority(&mut self, priority: u8) {
        self.core.apply(self.at, Command::SetPriority(priority));
    }

    /// Discards the rest of the stream. Its statistics continue, and it ends with its connection.
    pub fn discard(&mut self) {
        self.core.apply(self.at, Command::Discard);
    }

    /// Changes a parameter.
    pub fn set_parameter(&mut self, parameter: Parameter) {
        self.core.apply(self.at, Command::SetParameter(parameter));
    }

    /// During a data event: keeps the chunk, so that the next event delivers it together with the next
    /// chunk, contiguously.
    pub fn keep_chunk(&mut self) {
        self.core.keep(self.at);
    }

    /// Executes a command for another live stream of the application, given by its [`StreamRef::uid`].
    /// False if there is none.
    pub fn command(&mut self, uid: u64, command: Command) -> bool {
        let application = self.application();
        self.core.command(uid, application, command)
    }

    fn statistics_of(&self, id: u32) -> StreamStatistics {
        let loss = self.core.loss(id);
        let application = self.view(|view| view.application);
        let own = self.core.views_of(id).find(|&at| {
            let view = self.core.view(at);
            view.is_some_and(|view| view.application == application)
        });
        let own = own.map_or_else(OwnLoss::default, |at| self.core.own_loss(at));
        let mut statistics = self.context.statistics(id);
        // A packet that came behind a cutoff which was raised before its bytes were in order counts as
        // discarded, whatever became of these.
        statistics.discard(loss.discarded + own.discarded);
        statistics.drop(loss.dropped + own.dropped);
        statistics
    }

    fn record_flags(&self) -> RecordFlags {
        let record = self.core.records.get(self.at.record);
        record.map_or(RecordFlags(0), |record| record.flags)
    }

    fn view<R: Default>(&self, read: impl FnOnce(&super::record::View) -> R) -> R {
        self.core.view(self.at).map_or_else(R::default, read)
    }

    fn parameters(&self) -> Parameters {
        self.core.parameters(self.view(|view| view.parameters))
    }
}

/// The state of a stream at an event, which a worker thread gets with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// See [`StreamRef::uid`].
    pub uid: u64,
    /// See [`StreamRef::opposite_uid`].
    pub opposite_uid: u64,
    /// The application of the event.
    pub application: ApplicationId,
    /// Its endpoints and flow.
    pub identity: StreamIdentity,
    /// Whether it is the initiator's direction.
    pub from_initiator: bool,
    /// Packets and bytes.
    pub statistics: StreamStatistics,
    /// Packets and bytes of the opposite direction.
    pub opposite_statistics: StreamStatistics,
    /// Whether it was open, or how it ended.
    pub status: StreamStatus,
    /// See [`StreamRef::missing_at_end`].
    pub missing_at_end: u64,
    /// Whether the cutoff was reached.
    pub is_cut: bool,
    /// Whether mode STRICT stopped, see [`StreamRef::is_halted`].
    pub is_halted: bool,
    /// Whether the application discarded it.
    pub is_discarded: bool,
    /// Errors.
    pub errors: StreamErrors,
    /// Cutoff.
    pub cutoff: Cutoff,
    /// Priority.
    pub priority: u8,
    /// Chunk size.
    pub chunk_bytes: u32,
    /// Bytes at the end of a chunk that the next one repeats.
    pub overlap_bytes: u32,
    /// How its bytes were reassembled.
    pub mode: Mode,
    /// Data events.
    pub chunks: u64,
    /// Nanoseconds spent in data events.
    pub processing_time: u64,
    /// The application's own word.
    pub user_state: u64,
}

impl Core {
    /// Does what an application asks for one of its streams; false when it has ended.
    pub(super) fn command(
        &mut self,
        uid: u64,
        application: ApplicationId,
        command: Command,
    ) -> bool {
        let found = self.view_of(uid, application);
        if let Some(at) = found {
            self.apply(at, command);
        }
        found.is_some()
    }

    /// What an application has of a stream that lives.
    fn view_of(&self, uid: u64, application: ApplicationId) -> Option<ViewAt> {
        self.views_of(self.find(uid)?).find(|&at| {
            self.view(at)
                .is_some_and(|view| view.application == application.0)
        })
    }

    /// How an application gets the chunks of a stream that lives.
    pub(super) fn chunk_parameters(
        &self,
        uid: u64,
        application: ApplicationId,
    ) -> Option<ChunkParameters> {
        let view = self.view(self.view_of(uid, application)?)?;
        Some(self.parameters(view.parameters).of_chunks())
    }

    /// Does what an application asks for its view of a stream.
    pub(super) fn apply(&mut self, at: ViewAt, command: Command) {
        match command {
            Command::SetCutoff(Cutoff(limit)) => self.set_limit(at, limit),
            Command::SetPriority(priority) => {
                let Some(view) = self.view_mut(at) else {
                    return;
                };
                view.priority = priority;
                self.use_priority(priority);
                self.tell_standing(at.record);
            }
            Command::Discard => {
                self.discard_chunk(at);
                self.note_end(at);
                if let Some(view) = self.view_mut(at) {
                    view.flags.set(ViewFlags::OVER | ViewFlags::DISCARDED);
                }
                self.leave_chunk(at);
                self.note_views(at.record);
            }
            Command::SetParameter(parameter) => self.set_parameter(at, parameter),
            Command::SetUserState(state) => {
                if let Some(view) = self.view_mut(at) {
                    view.user_state = state;
                }
            }
            Command::AddProcessingTime(time) => {
                if let Some(view) = self.view_mut(at) {
                    view.processing += time;
                }
            }
        }
    }

    /// What is in the chunk under way of a view will not be delivered.
    fn discard_chunk(&mut self, at: ViewAt) {
        let chunk = self.chunk_of(self.chunker_of(at));
        if let Some(pending) = self.pending.get(chunk)
            && chunk != NONE
            && !self.is_over(at)
        {
            let counts = Counts {
                packets: u64::from(pending.segments),
                bytes: pending.content.received_from(pending.repeated),
            };
            self.discard_all_of(at, counts);
        }
    }

    fn set_limit(&mut self, at: ViewAt, limit: u64) {
        let was_done = self.is_done(at.record);
        let Some(view) = self.view_mut(at) else {
            return;
        };
        view.limit = limit;
        let is_open = view.flags.has(ViewFlags::CUT) && !view.flags.has(ViewFlags::DISCARDED);
        // One that was reached is open again where it was raised.
        if is_open {
            self.part(at);
            if let Some(view) = self.view_mut(at) {
                let ended = ViewFlags::CUT | ViewFlags::OVER | ViewFlags::KEEP | ViewFlags::CLIPPED;
                view.flags.clear(ended);
            }
        }
        self.note_views(at.record);
        if was_done && !self.is_done(at.record) {
            self.requests.push_back(Want::From(at.record, 0));
        }
    }

    fn set_parameter(&mut self, at: ViewAt, parameter: Parameter) {
        let Some(view) = self.view(at) else {
            return;
        };
        let current = self.parameters(view.parameters);
        match parameter {
            Parameter::Policy(policy) => {
                self.requests.push_back(Want::Policy(at.record, policy));
                return;
            }
            Parameter::InactivityTimeout(timeout) => return self.set_silence(at, timeout),
            _ => {}
        }
        let (is_busy, is_over) = (view.flags.has(ViewFlags::BUSY), self.is_over(at));
        let changed = current.changed(current.of_chunks().with(parameter));
        let Some(place) = self.intern(changed) else {
            return;
        };
        if is_over && changed.mode != Mode::Fast {
            self.note_ahead(at);
        }
        if let Some(view) = self.view_mut(at) {
            view.parameters = place;
        }
        // They hold from the next chunk on.
        if !is_busy && self.chunk_of(self.chunker_of(at)) == NONE {
            self.follow(at);
        }
    }

    /// Whether no other application wants the direction.
    #[inline(always)]
    pub(super) fn is_alone(&self, at: ViewAt) -> bool {
        self.records
            .get(at.record)
            .is_some_and(|record| record.more == NONE)
    }

    fn keep(&mut self, at: ViewAt) {
        if let Some(view) = self.view_mut(at)
            && view.flags.has(ViewFlags::BUSY)
        {
            view.flags.set(ViewFlags::KEEP);
        }
    }

    /// Whether one application has a direction, wants more of it, and in order.
    #[inline]
    fn is_simple(&self, id: u32) -> bool {
        self.records.get(id).is_some_and(|record| {
            let view = &record.view;
            record.more == NONE
                && view.application != u8::MAX
                && !view.flags.has(ViewFlags::OVER)
                && self.parameters(view.chunk_parameters).mode == Mode::Wait
        })
    }

    /// Notes what the views of a direction say together.
    pub(super) fn note_views(&mut self, id: u32) {
        if self.is_simple(id)
            && let Some(record) = self.records.get_mut(id)
        {
            record.flags.clear(RecordFlags::OF_VIEWS);
            record.flags.set(RecordFlags::ORDERED | RecordFlags::SIMPLE);
            return;
        }
        let (mut over, mut fast, mut ordered, mut simple) = (true, false, false, true);
        let (mut halted, mut unwanted, mut strict) = (false, false, true);
        let record = self.records.get(id);
        let datagrams = record.is_some_and(|record| record.flags.has(RecordFlags::DATAGRAMS));
        for at in self.views_of(id) {
            let Some(view) = self.view(at) else {
                continue;
            };
            if view.application == u8::MAX {
                continue;
            }
            if view.flags.has(ViewFlags::OVER) {
                halted |= view.flags.has(ViewFlags::HALTED);
                unwanted |= !view.flags.has(ViewFlags::HALTED);
                continue;
            }
            over = false;
            let mode = self.mode_of(at);
            simple &= mode == Mode::Wait && self.is_alone(at);
            strict &= mode == Mode::Strict && !datagrams;
            match mode {
                Mode::Fast if !datagrams => fast = true,
                _ => ordered = true,
            }
        }
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let flags = &mut record.flags;
        flags.clear(RecordFlags::OF_VIEWS);
        for (holds, bit) in [
            (over, RecordFlags::DONE),
            (over && halted && !unwanted, RecordFlags::HALTED),
            (fast, RecordFlags::FAST),
            (strict && !over, RecordFlags::STRICT),
            (ordered, RecordFlags::ORDERED),
            (simple && !over, RecordFlags::SIMPLE),
        ] {
            if holds {
                flags.set(bit);
            }
        }
        self.watchful |= over || fast || halted || unwanted;
    }
}
