//! Engine events as calls of the program's callbacks.

use core::ffi::c_int;
use core::ptr::NonNull;
use std::collections::{HashMap, VecDeque};

use flowgauge_runtime::{Chunk, Handlers, StreamHandle};
use flowgauge_stream::StreamStatus;
use flowgauge_stream::engine::{ChunkFlags, ChunkInfo, Counts, StreamStatistics};

use crate::abi::{
    Callback, RawCount, RawHeader, RawIp, RawStream, RawStreamStats, chunk_flag, status,
};
use crate::current::{Request, Scene, shown_cutoff};
use crate::settings::Callbacks;

/// The program's end of one thread's events.
pub(crate) struct Program {
    scene: Scene,
    callbacks: Callbacks,
    /// Streams whose memory was made for the opposite direction's event, by number.
    prepared: HashMap<u64, NonNull<RawStream>>,
    /// Those of them whose opposite direction has ended, in this order: their own end follows soon, or never.
    left: VecDeque<u64>,
}

/// Streams that may wait for their end when the opposite direction has ended: one that a filter keeps out has none.
const MOST_LEFT: usize = 64;

// SAFETY: the pointers point into the scene's nodes, which go with it; those of the scene itself are null, or
// not used, but while a callback runs, when nothing moves to another thread.
unsafe impl Send for Program {}

impl Program {
    pub(crate) fn new(scene: Scene, callbacks: Callbacks) -> Program {
        Program {
            scene,
            callbacks,
            prepared: HashMap::new(),
            left: VecDeque::new(),
        }
    }

    /// The memory of a stream that has some. Where it is is kept in the stream's user state.
    fn known(&mut self, stream: &mut StreamHandle<'_>) -> Option<NonNull<RawStream>> {
        let place = stream.user_state();
        if place == 0 {
            let prepared = self.prepared.remove(&stream.uid())?;
            stream.set_user_state(prepared.as_ptr().expose_provenance() as u64);
            return Some(prepared);
        }
        NonNull::new(core::ptr::with_exposed_provenance_mut(place as usize))
    }

    /// The memory of a stream, made now if there is none.
    fn find(&mut self, stream: &mut StreamHandle<'_>) -> NonNull<RawStream> {
        if let Some(known) = self.known(stream) {
            return known;
        }
        let [own, opposite] = self.scene.nodes.borrow_mut().insert();
        self.prepared.insert(stream.opposite_uid(), opposite);
        let (header, uid) = (header(stream), stream.uid());
        // SAFETY: both were made just now and no callback runs: nobody else refers to them.
        unsafe {
            (*own.as_ptr()).hdr = header;
            (*own.as_ptr()).uid = uid;
            (*opposite.as_ptr()).hdr = reversed(header);
            (*opposite.as_ptr()).uid = stream.opposite_uid();
            (*opposite.as_ptr()).cutoff = shown_cutoff(stream.cutoff());
            (*opposite.as_ptr()).chunk_size = number(stream.chunk_bytes());
        }
        stream.set_user_state(own.as_ptr().expose_provenance() as u64);
        own
    }

    /// Shows the stream as it is, calls, and does what was asked for.
    fn call(
        &mut self,
        callback: Callback,
        stream: &mut StreamHandle<'_>,
        shown: NonNull<RawStream>,
        chunk: Option<&Chunk<'_>>,
    ) {
        // SAFETY: it is one of the scene's nodes and alive, and no callback runs: nobody else refers to it.
        let raw = unsafe { &mut *shown.as_ptr() };
        show(raw, stream);
        let status = raw.status;
        show_data(raw, chunk);
        if self.callbacks.data.is_none() {
            // The engine's chunks were no events.
            raw.chunks = 0;
        }
        let counted = statistics(&stream.opposite_statistics());
        // SAFETY: the opposite one is in the same pair, whose memory lives as long.
        unsafe {
            (*raw.opposite).stats = counted;
            let uid = stream.opposite_uid();
            if counted.pkts == 0 || self.prepared.contains_key(&uid) {
                // It has had no event that says so, and where a filter keeps it out it has none.
                (*raw.opposite).status = status;
            }
        }
        self.scene.call(callback, shown.as_ptr(), chunk);
        self.scene.take_requests(|uid, request| match request {
            Request::Command(command) => stream.apply_to(uid, command),
            Request::Keep => stream.keep_chunk(),
        });
        // SAFETY: as above, after the callback. What it showed is over.
        show_data(unsafe { &mut *shown.as_ptr() }, None);
    }
}

/// On whichever thread the runtime has put it.
impl Handlers for Program {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        if let Some(callback) = self.callbacks.creation {
            let shown = self.find(stream);
            self.call(callback, stream, shown, None);
        }
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        if let Some(callback) = self.callbacks.data {
            let shown = self.find(stream);
            self.call(callback, stream, shown, Some(chunk));
        }
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        let mut shown = self.known(stream);
        if let Some(callback) = self.callbacks.termination {
            let found = shown.unwrap_or_else(|| self.find(stream));
            self.call(callback, stream, found, None);
            shown = Some(found);
        }
        let Some(shown) = shown else {
            return;
        };
        let mut nodes = self.scene.nodes.borrow_mut();
        nodes.remove(shown.as_ptr());
        if !self.prepared.contains_key(&stream.opposite_uid()) {
            return;
        }
        self.left.push_back(stream.opposite_uid());
        if self.left.len() > MOST_LEFT
            && let Some(longest) = self.left.pop_front()
            && let Some(opposite) = self.prepared.remove(&longest)
        {
            nodes.remove(opposite.as_ptr());
        }
    }
}

fn show(raw: &mut RawStream, stream: &StreamHandle<'_>) {
    raw.stats = statistics(&stream.statistics());
    raw.status = match stream.status() {
        StreamStatus::Active if stream.is_halted() => status::STRICT,
        StreamStatus::Active if stream.is_cut() => status::CUTOFF,
        StreamStatus::Active => status::ACTIVE,
        StreamStatus::Fin => status::CLOSED_FIN,
        StreamStatus::Rst => status::CLOSED_RST,
        StreamStatus::Timeout => status::CLOSED_TIMEOUT,
        StreamStatus::EndOfInput => status::END_OF_INPUT,
        StreamStatus::Evicted => status::EVICTED,
    };
    raw.error = c_int::from(stream.errors().0);
    raw.cutoff = shown_cutoff(stream.cutoff());
    raw.priority = stream.priority().into();
    raw.chunk_size = number(stream.chunk_bytes());
    raw.processing_time = stream.processing_time();
    raw.chunks = stream.chunks();
    raw.missing_at_end = stream.missing_at_end();
}

fn show_data(raw: &mut RawStream, chunk: Option<&Chunk<'_>>) {
    let Some(chunk) = chunk else {
        raw.flags = 0;
        raw.data = core::ptr::null_mut();
        (raw.data_len, raw.len) = (0, 0);
        return;
    };
    let (bytes, info) = (chunk.bytes(), chunk.info());
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    raw.data = bytes.as_ptr().cast_mut().cast();
    (raw.data_len, raw.len) = (len, len);
    raw.offset = info.offset;
    raw.missing = info.gap_before;
    raw.repeated = info.repeated;
    raw.holes = if info.flags.contains(ChunkFlags::HOLE) {
        chunk.holes().len() as u32
    } else {
        0
    };
    raw.flags = flags(info);
    if raw.status == status::ACTIVE && info.flags.contains(ChunkFlags::CUTOFF) {
        // There will be no other data event that could say so.
        raw.status = status::CUTOFF;
    }
}

fn flags(info: ChunkInfo) -> c_int {
    let mut flags = if info.gap_before > 0 {
        chunk_flag::HOLE
    } else {
        0
    };
    for (engine, shown) in [
        (ChunkFlags::HOLE, chunk_flag::HOLE),
        (ChunkFlags::LAST, chunk_flag::LAST),
        (ChunkFlags::CUTOFF, chunk_flag::CUTOFF),
        (ChunkFlags::TIMEOUT, chunk_flag::TIMEOUT),
        (ChunkFlags::EARLY, chunk_flag::EARLY),
        (ChunkFlags::KEPT, chunk_flag::KEPT),
        (ChunkFlags::PACKET, chunk_flag::PACKET),
    ] {
        if info.flags.contains(engine) {
            flags |= shown;
        }
    }
    flags
}

fn header(stream: &StreamHandle<'_>) -> RawHeader {
    let identity = stream.identity();
    RawHeader {
        src_ip: RawIp {
            bytes: identity.source.0.0,
        },
        dst_ip: RawIp {
            bytes: identity.destination.0.0,
        },
        src_port: identity.source.1,
        dst_port: identity.destination.1,
        protocol: identity.protocol,
        direction: u8::from(!stream.from_initiator()),
        ip_version: identity.version,
        has_vlan: u8::from(identity.vlan.is_some()),
        vlan: identity.vlan.unwrap_or(0),
        ..RawHeader::default()
    }
}

/// The header of the opposite direction.
fn reversed(header: RawHeader) -> RawHeader {
    RawHeader {
        src_ip: header.dst_ip,
        dst_ip: header.src_ip,
        src_port: header.dst_port,
        dst_port: header.src_port,
        direction: 1 - header.direction,
        ..header
    }
}

fn statistics(of: &StreamStatistics) -> RawStreamStats {
    RawStreamStats {
        start: of.start.0,
        end: of.end.0,
        bytes: of.all.bytes,
        pkts: of.all.packets,
        dropped: count(of.dropped),
        discarded: count(of.discarded),
        captured: count(of.captured()),
    }
}

/// Counts as C programs see them.
pub(crate) fn count(of: Counts) -> RawCount {
    RawCount {
        bytes: of.bytes,
        pkts: of.packets,
    }
}

fn number(of: u32) -> c_int {
    c_int::try_from(of).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use flowgauge_generate::{Config, Preset, generate};
    use flowgauge_runtime::{Capture, stream_filter};
    use flowgauge_stream::engine::ApplicationConfig;

    use super::*;
    use crate::registry::Token;

    /// A program's end, and how many pairs it had in the end.
    struct Counted(Program, Arc<Mutex<(u64, usize, usize)>>);

    impl Handlers for Counted {
        fn created(&mut self, stream: &mut StreamHandle<'_>) {
            self.0.created(stream);
        }

        fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
            self.0.data(stream, chunk);
        }

        fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
            self.0.terminated(stream);
            self.1.lock().unwrap().0 += 1;
        }

        fn finish(&mut self) {
            let mut counted = self.1.lock().unwrap();
            counted.1 = self.0.prepared.len();
            counted.2 = self.0.scene.nodes.borrow().live_pairs();
        }
    }

    extern "C" fn nothing(_: *mut RawStream) {}

    /// Of one direction of each connection nothing comes: what was made for it is given back.
    #[test]
    fn a_direction_that_is_not_wanted_keeps_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.pcap");
        let config = Config::new(Preset::Web).scaled(0.01);
        generate(&config, std::fs::File::create(&path).unwrap()).unwrap();
        let sets: [fn(&mut Callbacks); 4] = [
            |callbacks| callbacks.creation = Some(nothing),
            |callbacks| callbacks.data = Some(nothing),
            |callbacks| callbacks.termination = Some(nothing),
            |callbacks| {
                callbacks.creation = Some(nothing);
                callbacks.data = Some(nothing);
                callbacks.termination = Some(nothing);
            },
        ];
        for set in sets {
            let mut callbacks = Callbacks::default();
            set(&mut callbacks);
            for filter in ["dst port 80 or dst port 443", ""] {
                let wanted = ApplicationConfig {
                    filter: (!filter.is_empty()).then(|| stream_filter(filter).unwrap()),
                    ..ApplicationConfig::default()
                };
                let counted = Arc::<Mutex<(u64, usize, usize)>>::default();
                let count = Arc::clone(&counted);
                let outcome = Capture::file(&path)
                    .application(wanted, move |_| {
                        let scene = Scene::new(Token(0), false, false);
                        Counted(Program::new(scene, callbacks), Arc::clone(&count))
                    })
                    .run()
                    .unwrap();
                assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
                let (ended, prepared, pairs) = *counted.lock().unwrap();
                assert!(ended > 100, "{ended}");
                assert!(prepared <= MOST_LEFT, "{filter:?}: {prepared} of {ended}");
                assert!(pairs <= MOST_LEFT, "{filter:?}: {pairs} of {ended}");
            }
        }
    }
}
