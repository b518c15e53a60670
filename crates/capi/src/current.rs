//! The callback running in this thread, for functions that take a `stream_t`.
//!
//! A callback changes nothing immediately. Its requests are noted, shown in its `stream_t`, and executed after it
//! has returned, so that the engine is not reentered.

use core::cell::{Cell, RefCell};
use core::ffi::{c_char, c_int};

use flowgauge_runtime::Chunk;
use flowgauge_stream::engine::{Command, Cutoff, Parameter};

use crate::abi::{Callback, RawPacketHeader, RawStream};
use crate::failure::{Code, Failure};
use crate::nodes::Nodes;
use crate::registry::Token;
use crate::settings;
use crate::share;

/// What a callback asks for one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Command(Command),
    Keep,
}

/// What callbacks of one thread of one capture share. Only `Cell`s and `RefCell`s: it is reached from within
/// callbacks while the engine is at work further up the stack.
pub(crate) struct Scene {
    pub(crate) token: Token,
    need_packets: bool,
    /// Other processes share the engine.
    is_shared: bool,
    pub(crate) nodes: RefCell<Nodes>,
    /// By the number of the stream.
    requests: RefCell<Vec<(u64, Request)>>,
    stream: Cell<*mut RawStream>,
    /// Valid while a data callback runs.
    chunk: Cell<*const Chunk<'static>>,
    packets: RefCell<PacketList>,
    next_hole: Cell<usize>,
}

/// The packets of the current chunk as a program sees them, found when the first one is asked for: where the
/// payload of each is in memory that stays as it is while the callback runs.
#[derive(Debug, Default)]
struct PacketList {
    is_filled: bool,
    next: usize,
    packets: Vec<(*mut c_char, RawPacketHeader)>,
}

thread_local! {
    /// The scene whose callback runs; null outside of callbacks.
    static CURRENT: Cell<*const Scene> = const { Cell::new(core::ptr::null()) };
}

impl Scene {
    pub(crate) fn new(token: Token, need_packets: bool, is_shared: bool) -> Scene {
        Scene {
            token,
            need_packets,
            is_shared,
            nodes: RefCell::default(),
            requests: RefCell::default(),
            stream: Cell::new(core::ptr::null_mut()),
            chunk: Cell::new(core::ptr::null()),
            packets: RefCell::default(),
            next_hole: Cell::new(0),
        }
    }

    /// Calls the program for an event of `stream`, with the chunk if it is a data event.
    pub(crate) fn call(
        &self,
        callback: Callback,
        stream: *mut RawStream,
        chunk: Option<&Chunk<'_>>,
    ) {
        let chunk = chunk.map_or(core::ptr::null(), core::ptr::from_ref);
        // Only the lifetime changes: the pointer is read by `event_chunk` alone, which finds it only while this
        // function runs, and `Leave` forgets it before the borrow ends.
        self.chunk.set(chunk.cast());
        self.stream.set(stream);
        self.next_hole.set(0);
        if self.need_packets {
            self.packets.borrow_mut().clear();
        }
        // A callback may run another capture.
        let _leave = Leave {
            scene: self,
            outer: CURRENT.replace(self),
        };
        callback(stream);
    }

    /// What the last callback asked for, by the number of the stream.
    pub(crate) fn take_requests(&self, mut take: impl FnMut(u64, Request)) {
        let mut requests = self.requests.borrow_mut();
        for (uid, request) in requests.drain(..) {
            take(uid, request);
        }
    }

    fn event_chunk(&self) -> Option<&Chunk<'_>> {
        // SAFETY: it is null, or `call` runs with the chunk borrowed; the result lives no longer than that, because
        // everything that asks for it returns before the callback does.
        unsafe { self.chunk.get().cast::<Chunk<'_>>().as_ref() }
    }

    fn request(&self, stream: *mut RawStream, request: Request) -> Result<(), Failure> {
        let current = self.stream.get();
        if stream != current && !self.nodes.borrow().is_live(stream) {
            return Err(no_stream(stream));
        }
        if request == Request::Keep && (stream != current || self.chunk.get().is_null()) {
            return Err(Failure::new(
                Code::State,
                "there is no chunk of this stream to keep",
                "call it in the stream's data callback",
            ));
        }
        if self.is_shared {
            share::admits(request)?;
        }
        // SAFETY: it is the current stream or a living one of this thread; callbacks run one at a time, and nothing
        // else refers to it meanwhile.
        let shown = unsafe { &mut *stream };
        show(shown, request)?;
        self.requests.borrow_mut().push((shown.uid, request));
        Ok(())
    }

    fn next_packet(
        &self,
        stream: *mut RawStream,
    ) -> Result<Option<(*mut c_char, RawPacketHeader)>, Failure> {
        if !self.need_packets {
            return Err(Failure::new(
                Code::Packets,
                "packets were not asked for",
                "give scap_create a need_pkts of 1",
            ));
        }
        let chunk = self.data_of(stream)?;
        let mut packets = self.packets.borrow_mut();
        packets.fill(chunk);
        Ok(packets.next())
    }

    fn next_hole(&self, stream: *mut RawStream) -> Result<Option<(u32, u32)>, Failure> {
        let chunk = self.data_of(stream)?;
        let index = self.next_hole.get();
        let hole = chunk.holes().into_iter().nth(index);
        if hole.is_some() {
            self.next_hole.set(index + 1);
        }
        Ok(hole.map(|hole| (hole.start, hole.end - hole.start)))
    }

    /// The chunk of the data event, which must be of `stream`.
    fn data_of(&self, stream: *mut RawStream) -> Result<&Chunk<'_>, Failure> {
        if stream != self.stream.get() {
            return Err(if self.nodes.borrow().is_live(stream) {
                Failure::new(
                    Code::Stream,
                    "the data event is one of another stream",
                    "ask for the stream that the callback was given",
                )
            } else {
                no_stream(stream)
            });
        }
        self.event_chunk().ok_or_else(|| {
            Failure::new(
                Code::State,
                "not a data event",
                "call it in a callback of scap_dispatch_data",
            )
        })
    }
}

/// Ends a callback's time.
struct Leave<'a> {
    scene: &'a Scene,
    outer: *const Scene,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
        self.scene.chunk.set(core::ptr::null());
        self.scene.stream.set(core::ptr::null_mut());
    }
}

/// The capture whose callback runs in this thread.
pub(crate) fn token() -> Option<Token> {
    with_current(|scene| Ok(scene.token)).ok()
}

/// Notes what a callback of the capture `token` asks for `stream`.
///
/// # Errors
/// Outside of its callbacks, or when the stream is not one of its living ones.
pub(crate) fn request(
    token: Token,
    stream: *mut RawStream,
    request: Request,
) -> Result<(), Failure> {
    if stream.is_null() {
        return Err(no_stream(stream));
    }
    with_current(|scene| {
        if scene.token != token {
            return Err(Failure::new(
                Code::Stream,
                "the callback that runs is one of another capture",
                "give the handle that the stream belongs to",
            ));
        }
        scene.request(stream, request)
    })
}

/// The next packet of the current chunk.
///
/// # Errors
/// Outside of data callbacks, or when packets were not asked for.
pub(crate) fn next_packet(
    stream: *mut RawStream,
) -> Result<Option<(*mut c_char, RawPacketHeader)>, Failure> {
    with_current(|scene| scene.next_packet(stream))
}

/// The next hole in the current chunk, as position and length.
///
/// # Errors
/// Outside of data callbacks.
pub(crate) fn next_hole(stream: *mut RawStream) -> Result<Option<(u32, u32)>, Failure> {
    with_current(|scene| scene.next_hole(stream))
}

fn with_current<T>(act: impl FnOnce(&Scene) -> Result<T, Failure>) -> Result<T, Failure> {
    let scene = CURRENT.get();
    if scene.is_null() {
        return Err(Failure::new(
            Code::State,
            "no callback runs in this thread",
            "streams are to be used in callbacks, in the thread they are called in",
        ));
    }
    // SAFETY: `Scene::call` has set it and resets it before it returns; its scene is borrowed for so long.
    act(unsafe { &*scene })
}

/// Shows a program what it has asked for.
fn show(stream: &mut RawStream, request: Request) -> Result<(), Failure> {
    match request {
        Request::Command(Command::SetCutoff(cutoff)) => stream.cutoff = shown_cutoff(cutoff),
        Request::Command(Command::SetPriority(priority)) => stream.priority = priority.into(),
        Request::Command(Command::SetParameter(Parameter::ChunkBytes(bytes))) => {
            stream.chunk_size = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        }
        Request::Command(Command::SetParameter(Parameter::OverlapBytes(bytes))) => {
            settings::check_overlap(u32::try_from(stream.chunk_size).unwrap_or(0), bytes)?;
        }
        Request::Command(_) | Request::Keep => {}
    }
    Ok(())
}

/// A cutoff as C programs see it.
pub(crate) fn shown_cutoff(cutoff: Cutoff) -> c_int {
    settings::limit(cutoff).map_or(-1, |bytes| c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

fn no_stream(stream: *mut RawStream) -> Failure {
    if stream.is_null() {
        return Failure::new(
            Code::Stream,
            "the stream is NULL",
            "give the one of the callback",
        );
    }
    Failure::new(
        Code::Stream,
        "not a living stream of this thread of the capture",
        "it has ended, or another worker thread has it; give the one of the callback",
    )
}

impl PacketList {
    fn clear(&mut self) {
        self.is_filled = false;
        self.next = 0;
        self.packets.clear();
    }

    fn fill(&mut self, chunk: &Chunk<'_>) {
        if self.is_filled {
            return;
        }
        self.is_filled = true;
        for packet in chunk.packets() {
            let nanos = packet.time.0;
            let (header_len, payload_len) = (packet.header.len(), packet.payload.len());
            let header = RawPacketHeader {
                ts: libc::timeval {
                    tv_sec: (nanos / 1_000_000_000) as libc::time_t,
                    tv_usec: (nanos % 1_000_000_000 / 1000) as libc::suseconds_t,
                },
                caplen: (header_len + payload_len) as u32,
                len: packet.wire_len,
                time: nanos,
                offset: packet.offset.unwrap_or(i64::MIN),
                headers_len: header_len as u32,
                payload_len: payload_len as u32,
                headers: packet.header.as_ptr().cast(),
                reserved: 0,
            };
            let payload = packet.payload.as_ptr().cast_mut().cast();
            self.packets.push((payload, header));
        }
    }

    fn next(&mut self) -> Option<(*mut c_char, RawPacketHeader)> {
        let packet = self.packets.get(self.next).copied();
        self.next += usize::from(packet.is_some());
        packet
    }
}
