//! Handlers of an application's stream events, on any thread.
//!
//! [`Handlers`] are the same in run-to-completion mode, where the engine calls them, and on worker threads, where
//! events arrive through a queue: [`StreamHandle`] and [`Chunk`] hide the difference. On a worker, the handle is a
//! snapshot of the stream, and requests travel back to the engine. They take effect immediately for the application:
//! after `discard`, no further chunk is delivered, even if some were queued.

use std::ops::Range;
use std::sync::Arc;

use flowgauge_stream::engine::{
    ApplicationId, ChunkFlags, ChunkInfo, ChunkPacket, Command, Cutoff, DataChunk, Mode,
    OwnedChunk, Packets as EnginePackets, Parameter, StreamErrors, StreamRef, StreamSnapshot,
    StreamStatistics,
};
use flowgauge_stream::{StreamIdentity, StreamStatus};

use crate::outlet::Parcel;
use crate::shared::SharedPackets;

/// Handles the events of one application on one thread. All methods have empty defaults.
///
/// Each thread has its own instance, created by the function passed to
/// [`Capture::application`](crate::Capture::application). All events of a stream and its opposite direction go to the
/// same instance.
pub trait Handlers: Send {
    /// A stream was created.
    fn created(&mut self, _stream: &mut StreamHandle<'_>) {}

    /// A chunk is ready.
    fn data(&mut self, _stream: &mut StreamHandle<'_>, _chunk: &mut Chunk<'_>) {}

    /// The stream ended.
    fn terminated(&mut self, _stream: &mut StreamHandle<'_>) {}

    /// There are no further events for this thread.
    fn finish(&mut self) {}
}

impl<H: Handlers + ?Sized> Handlers for &mut H {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        (**self).created(stream);
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        (**self).data(stream, chunk);
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        (**self).terminated(stream);
    }

    fn finish(&mut self) {
        (**self).finish();
    }
}

type OnStream = dyn Fn(&mut StreamHandle<'_>) + Send + Sync;
type OnChunk = dyn Fn(&mut StreamHandle<'_>, &mut Chunk<'_>) + Send + Sync;

/// [`Handlers`] made of closures, which all threads share.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use flowgauge_runtime::Closures;
///
/// let bytes = Arc::new(AtomicU64::new(0));
/// let sum = Arc::clone(&bytes);
/// let closures = Closures::new()
///     .on_data(move |_stream, chunk| {
///         sum.fetch_add(chunk.bytes().len() as u64, Ordering::Relaxed);
///     })
///     .on_terminated(|stream| println!("{:?}", stream.identity()));
/// # let _ = closures;
/// ```
#[derive(Clone, Default)]
pub struct Closures {
    created: Option<Arc<OnStream>>,
    data: Option<Arc<OnChunk>>,
    terminated: Option<Arc<OnStream>>,
}

impl Closures {
    /// No closures.
    pub fn new() -> Closures {
        Closures::default()
    }

    /// Calls `handle` for each stream created.
    #[must_use]
    pub fn on_created(
        mut self,
        handle: impl Fn(&mut StreamHandle<'_>) + Send + Sync + 'static,
    ) -> Closures {
        self.created = Some(Arc::new(handle));
        self
    }

    /// Calls `handle` for each chunk.
    #[must_use]
    pub fn on_data(
        mut self,
        handle: impl Fn(&mut StreamHandle<'_>, &mut Chunk<'_>) + Send + Sync + 'static,
    ) -> Closures {
        self.data = Some(Arc::new(handle));
        self
    }

    /// Calls `handle` at the end of each stream.
    #[must_use]
    pub fn on_terminated(
        mut self,
        handle: impl Fn(&mut StreamHandle<'_>) + Send + Sync + 'static,
    ) -> Closures {
        self.terminated = Some(Arc::new(handle));
        self
    }
}

impl Handlers for Closures {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        if let Some(handle) = &self.created {
            handle(stream);
        }
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        if let Some(handle) = &self.data {
            handle(stream, chunk);
        }
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        if let Some(handle) = &self.terminated {
            handle(stream);
        }
    }
}

/// A stream, during one of its events.
#[derive(Debug)]
pub struct StreamHandle<'a> {
    place: Place<'a>,
    shard: u8,
}

#[derive(Debug)]
enum Place<'a> {
    /// In the engine.
    Here(&'a mut dyn StreamHere),
    /// On a worker.
    There(&'a mut Remote),
}

/// What a worker knows of a stream, and what it has to tell the engine.
#[derive(Debug)]
pub(crate) struct Remote {
    /// With what the application itself has changed since.
    pub(crate) snapshot: StreamSnapshot,
    pub(crate) commands: Vec<Command>,
    /// For other streams of the same shard, by their uid there.
    pub(crate) others: Vec<(u64, Command)>,
    pub(crate) kept: bool,
}

/// [`StreamRef`] without its lifetime.
trait StreamHere: core::fmt::Debug {
    fn get(&self) -> &StreamRef<'_>;
    fn apply(&mut self, command: Command);
    fn apply_to(&mut self, uid: u64, command: Command);
    fn keep(&mut self);
}

impl StreamHere for StreamRef<'_> {
    fn get(&self) -> &StreamRef<'_> {
        self
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::SetCutoff(cutoff) => self.set_cutoff(cutoff),
            Command::SetPriority(priority) => self.set_priority(priority),
            Command::Discard => self.discard(),
            Command::SetParameter(parameter) => self.set_parameter(parameter),
            Command::SetUserState(state) => self.set_user_state(state),
            // Measured by the engine itself.
            Command::AddProcessingTime(_) => {}
        }
    }

    fn apply_to(&mut self, uid: u64, command: Command) {
        // It may have ended.
        let _ = self.command(uid, command);
    }

    fn keep(&mut self) {
        self.keep_chunk();
    }
}

/// Getters that are the same in both places.
macro_rules! read {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self) -> $type {
                match &self.place {
                    Place::Here(stream) => stream.get().$name(),
                    Place::There(remote) => remote.snapshot.$name,
                }
            }
        )*
    };
}

impl<'a> StreamHandle<'a> {
    /// The stream of an event inside the engine of this shard.
    pub fn here(stream: &'a mut StreamRef<'_>, shard: usize) -> StreamHandle<'a> {
        StreamHandle {
            place: Place::Here(stream),
            shard: shard as u8,
        }
    }

    pub(crate) fn there(remote: &'a mut Remote, shard: usize) -> StreamHandle<'a> {
        StreamHandle {
            place: Place::There(remote),
            shard: shard as u8,
        }
    }

    /// A number that is unique in the capture.
    pub fn uid(&self) -> u64 {
        let uid = match &self.place {
            Place::Here(stream) => stream.get().uid(),
            Place::There(remote) => remote.snapshot.uid,
        };
        self.unique(uid)
    }

    /// [`StreamHandle::uid`] of the opposite direction.
    pub fn opposite_uid(&self) -> u64 {
        let uid = match &self.place {
            Place::Here(stream) => stream.get().opposite_uid(),
            Place::There(remote) => remote.snapshot.opposite_uid,
        };
        self.unique(uid)
    }

    /// Engines number their streams from 0 upwards each.
    fn unique(&self, uid: u64) -> u64 {
        uid ^ u64::from(self.shard) << 56
    }

    read! {
        /// The application that the event is for.
        application: ApplicationId;
        /// Its addresses, ports and protocol.
        identity: StreamIdentity;
        /// Whether the initiator of the connection is the sender.
        from_initiator: bool;
        /// Packets and bytes so far.
        statistics: StreamStatistics;
        /// The opposite direction's packets and bytes so far.
        opposite_statistics: StreamStatistics;
        /// Its status.
        status: StreamStatus;
        /// Bytes known to be missing after the last one delivered; set at its end.
        missing_at_end: u64;
        /// Whether the application's cutoff was reached.
        is_cut: bool;
        /// Whether mode STRICT stopped it, at missing bytes or for want of a handshake.
        is_halted: bool;
        /// Whether the application discarded it.
        is_discarded: bool;
        /// Its anomalies so far.
        errors: StreamErrors;
        /// The application's cutoff.
        cutoff: Cutoff;
        /// The application's priority.
        priority: u8;
        /// Chunk size.
        chunk_bytes: u32;
        /// Bytes repeated between consecutive chunks.
        overlap_bytes: u32;
        /// Its reassembly mode.
        mode: Mode;
        /// Data events so far, including the current one.
        chunks: u64;
        /// Nanoseconds spent in its data events so far, excluding the current one.
        processing_time: u64;
        /// A word for the application's use, initially 0.
        user_state: u64;
    }

    /// A copy of its state. Uids in it are unique in its engine only; [`StreamHandle::uid`] is unique in the capture.
    pub fn snapshot(&self) -> StreamSnapshot {
        match &self.place {
            Place::Here(stream) => stream.get().snapshot(),
            Place::There(remote) => remote.snapshot,
        }
    }

    /// Sets [`StreamHandle::user_state`].
    pub fn set_user_state(&mut self, state: u64) {
        self.apply(Command::SetUserState(state));
    }

    /// Changes the cutoff.
    pub fn set_cutoff(&mut self, cutoff: Cutoff) {
        self.apply(Command::SetCutoff(cutoff));
    }

    /// Changes the priority; higher numbers are more important.
    pub fn set_priority(&mut self, priority: u8) {
        self.apply(Command::SetPriority(priority));
    }

    /// Discards the rest of the stream. Its statistics continue, and its end is still reported.
    pub fn discard(&mut self) {
        self.apply(Command::Discard);
    }

    /// Changes a parameter.
    pub fn set_parameter(&mut self, parameter: Parameter) {
        self.apply(Command::SetParameter(parameter));
    }

    /// During a data event: keeps the chunk, so that the next event delivers it together with the next chunk,
    /// contiguously ([`ChunkFlags::KEPT`]). If memory is short or bytes are missing in between, the next chunk is
    /// delivered alone. Kept chunks are charged to the memory budget.
    pub fn keep_chunk(&mut self) {
        match &mut self.place {
            Place::Here(stream) => stream.keep(),
            Place::There(remote) => remote.kept = true,
        }
    }

    /// Executes a command.
    pub fn apply(&mut self, command: Command) {
        match &mut self.place {
            Place::Here(stream) => stream.apply(command),
            Place::There(remote) => remote.apply(command),
        }
    }

    /// Executes a command for another live stream, given by its [`uid`](StreamHandle::uid), whose events are handled
    /// by this thread, such as the opposite direction.
    pub fn apply_to(&mut self, uid: u64, command: Command) {
        if uid == self.uid() {
            return self.apply(command);
        }
        let uid = self.unique(uid);
        match &mut self.place {
            Place::Here(stream) => stream.apply_to(uid, command),
            Place::There(remote) => remote.others.push((uid, command)),
        }
    }
}

impl Remote {
    pub(crate) fn new(snapshot: StreamSnapshot) -> Remote {
        Remote {
            snapshot,
            commands: Vec::new(),
            others: Vec::new(),
            kept: false,
        }
    }

    fn apply(&mut self, command: Command) {
        let snapshot = &mut self.snapshot;
        match command {
            Command::SetCutoff(cutoff) => snapshot.cutoff = cutoff,
            Command::SetPriority(priority) => snapshot.priority = priority,
            Command::Discard => snapshot.is_discarded = true,
            Command::SetParameter(parameter) => match parameter {
                Parameter::ChunkBytes(bytes) => snapshot.chunk_bytes = bytes,
                Parameter::OverlapBytes(bytes) => snapshot.overlap_bytes = bytes,
                Parameter::Mode(mode) => snapshot.mode = mode,
                Parameter::FlushTimeout(_)
                | Parameter::InactivityTimeout(_)
                | Parameter::Policy(_) => {}
            },
            Command::SetUserState(state) => snapshot.user_state = state,
            Command::AddProcessingTime(time) => snapshot.processing_time += time,
        }
        self.commands.push(command);
    }
}

/// Contiguous bytes of a stream during a data event.
#[derive(Debug)]
pub struct Chunk<'a>(Bytes<'a>);

#[derive(Debug)]
enum Bytes<'a> {
    Here(&'a mut dyn ChunkHere),
    There(&'a Parcel, Shown<'a>),
}

/// What is delivered of a chunk that came from elsewhere: its first bytes, perhaps behind others that were kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) info: ChunkInfo,
    /// By how much positions in the chunk have moved.
    pub(crate) shift: u32,
}

impl Shown<'_> {
    /// Holes of the chunk that came, as positions in what is delivered.
    fn holes(&self, came: impl IntoIterator<Item = Range<u32>>) -> Vec<Range<u32>> {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let place = |position: u32| position.saturating_add(self.shift).min(len);
        came.into_iter()
            .map(|hole| place(hole.start)..place(hole.end))
            .filter(|hole| !hole.is_empty())
            .collect()
    }
}

/// [`DataChunk`] without its lifetime.
trait ChunkHere: core::fmt::Debug {
    fn bytes(&self) -> &[u8];
    fn info(&self) -> ChunkInfo;
    fn holes(&self) -> &[Range<u32>];
    fn packets(&self) -> EnginePackets<'_>;
    fn take(&mut self) -> Option<OwnedChunk>;
}

impl ChunkHere for DataChunk<'_> {
    fn bytes(&self) -> &[u8] {
        DataChunk::bytes(self)
    }

    fn info(&self) -> ChunkInfo {
        DataChunk::info(self)
    }

    fn holes(&self) -> &[Range<u32>] {
        DataChunk::holes(self)
    }

    fn packets(&self) -> EnginePackets<'_> {
        DataChunk::packets(self)
    }

    fn take(&mut self) -> Option<OwnedChunk> {
        DataChunk::take(self).ok()
    }
}

impl<'a> Chunk<'a> {
    /// The chunk of an event where it arises.
    pub fn here(chunk: &'a mut DataChunk<'_>) -> Chunk<'a> {
        Chunk(Bytes::Here(chunk))
    }

    /// A chunk that came as `parcel`, or what is left of it.
    pub(crate) fn there(parcel: &'a Parcel, mut shown: Shown<'a>) -> Chunk<'a> {
        // Its holes may have been in what is not delivered.
        if shown.info.flags.contains(ChunkFlags::HOLE) && shown.holes(parcel.holes()).is_empty() {
            shown.info.flags = shown.info.flags.without(ChunkFlags::HOLE);
        }
        Chunk(Bytes::There(parcel, shown))
    }

    /// The bytes, contiguous in memory. Holes are filled with zeros.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Here(chunk) => chunk.bytes(),
            Bytes::There(_, shown) => shown.bytes,
        }
    }

    /// The bytes that were not in a previous chunk, that is, without overlap and kept bytes.
    pub fn new_bytes(&self) -> &[u8] {
        self.bytes()
            .get(self.info().repeated as usize..)
            .unwrap_or(&[])
    }

    /// Properties of the chunk.
    pub fn info(&self) -> ChunkInfo {
        match &self.0 {
            Bytes::Here(chunk) => chunk.info(),
            Bytes::There(_, shown) => shown.info,
        }
    }

    /// Stream offset of the first byte, including holes.
    pub fn offset(&self) -> u64 {
        self.info().offset
    }

    /// Bytes missing right before the first one.
    pub fn gap_before(&self) -> u64 {
        self.info().gap_before
    }

    /// Its flags.
    pub fn flags(&self) -> ChunkFlags {
        self.info().flags
    }

    /// Holes inside the chunk, as ranges of [`Chunk::bytes`] (without those of kept chunks).
    pub fn holes(&self) -> Vec<Range<u32>> {
        match &self.0 {
            Bytes::Here(chunk) => chunk.holes().to_vec(),
            Bytes::There(parcel, shown) => shown.holes(parcel.holes()),
        }
    }

    /// Its packets in the order of capture, if requested by
    /// [`EngineConfig::need_packets`](flowgauge_stream::engine::EngineConfig::need_packets), in a shared capture also
    /// by [`Application::need_packets`](crate::shared::Application::need_packets).
    #[inline]
    pub fn packets(&self) -> Packets<'_> {
        Packets(match &self.0 {
            Bytes::Here(chunk) => PacketsOf::Engine(chunk.packets()),
            Bytes::There(Parcel::Own(owned), ..) => PacketsOf::Engine(owned.packets()),
            Bytes::There(Parcel::Shared(held), ..) => PacketsOf::Shared(held.packets()),
        })
    }

    /// Takes the chunk out of the call. It is charged to the memory budget until it is dropped. `None` if it would
    /// have to be copied and there is no room, and in a shared capture. On a worker, it excludes the chunk kept by
    /// [`StreamHandle::keep_chunk`].
    pub fn take(&mut self) -> Option<OwnedChunk> {
        match &mut self.0 {
            Bytes::Here(chunk) => chunk.take(),
            Bytes::There(Parcel::Own(owned), ..) => Some(owned.clone()),
            // It is the ring's, which goes on.
            Bytes::There(Parcel::Shared(_), ..) => None,
        }
    }
}

/// The packets of a chunk, in the order of capture.
#[derive(Clone, Debug)]
pub struct Packets<'a>(PacketsOf<'a>);

#[derive(Clone, Debug)]
enum PacketsOf<'a> {
    Engine(EnginePackets<'a>),
    Shared(SharedPackets<'a>),
}

impl<'a> Iterator for Packets<'a> {
    type Item = ChunkPacket<'a>;

    #[inline]
    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        match &mut self.0 {
            PacketsOf::Engine(packets) => packets.next(),
            PacketsOf::Shared(packets) => packets.next(),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            PacketsOf::Engine(packets) => packets.size_hint(),
            PacketsOf::Shared(packets) => packets.size_hint(),
        }
    }
}

impl ExactSizeIterator for Packets<'_> {}
