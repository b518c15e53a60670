//! `chunks`: the bytes of streams in chunks of a size.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, PerKey, ResultInfo,
    ResultValue, SettingError, StreamChunk, StreamInfo, options,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "chunks",
    summary: "gives the bytes of streams in chunks of a size",
    help: "Behind tcpreseq. A chunk is shorter than `size` before a hole, at the end of its stream, and \
           where `flush` or `memory` ask for it. A segment that holds a whole chunk is not copied.",
    input: Input::Of(&[ItemType::Chunk]),
    options: Options::ALL,
    result: Some(ResultInfo::number("chunks given on", "chunks")),
    parallel: Parallel::ByFlow,
    make: |settings| {
        let options = Options::read(settings);
        if !(1..=1 << 30).contains(&options.size) {
            return Err(SettingError::of("size", "is not between 1 and 1G"));
        }
        Ok(Box::new(Chunks {
            partial: PerKey::default(),
            given: Given {
                size: options.size,
                flush: options.flush,
                chunks: 0,
            },
            memory: options.memory / settings.copies() as u64,
            held: 0,
            earliest: None,
        }))
    },
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    size: Size as usize = "16k", "bytes of a chunk";
    flush: Duration as u64, "give a chunk that is not full so long after its first byte";
    memory: Size = "256M", "bytes of chunks that are not full, of all streams; with more, the one under way is given";
}

struct Chunks {
    /// By key: of each direction what is not given yet.
    partial: PerKey<[Partial; 2]>,
    given: Given,
    memory: u64,
    /// Bytes of all of them.
    held: u64,
    /// No chunk is older.
    earliest: Option<Nanos>,
}

#[derive(Default)]
struct Partial {
    bytes: Vec<u8>,
    stream: StreamInfo,
    offset: u64,
    gap_before: u64,
    /// Of the first byte, and of the last.
    first: Nanos,
    last: Nanos,
    captured: Nanos,
}

struct Given {
    size: usize,
    flush: Option<u64>,
    chunks: u64,
}

impl Given {
    fn give(&mut self, chunk: &StreamChunk<'_>, out: &mut dyn Outlet) {
        self.chunks += u64::from(!chunk.bytes.is_empty());
        out.emit(Items::Chunks(core::slice::from_ref(chunk)));
    }

    /// Gives what there is of a chunk; returns how many bytes that was.
    fn flush(&mut self, key: u32, partial: &mut Partial, out: &mut dyn Outlet) -> u64 {
        let length = partial.bytes.len() as u64;
        if length > 0 {
            let chunk = StreamChunk {
                key,
                stream: &partial.stream,
                bytes: &partial.bytes,
                offset: partial.offset,
                gap_before: partial.gap_before,
                time: partial.last,
                captured: partial.captured,
                end: None,
            };
            self.give(&chunk, out);
            partial.bytes.clear();
        }
        length
    }

    /// Takes the next bytes of a stream; returns by how many more or fewer bytes are held then.
    fn take(
        &mut self,
        partial: &mut Partial,
        chunk: &StreamChunk<'_>,
        out: &mut dyn Outlet,
    ) -> i64 {
        let before = partial.bytes.len() as i64;
        let is_late = self
            .flush
            .is_some_and(|flush| chunk.time.0 >= partial.first.0.saturating_add(flush));
        if chunk.gap_before > 0 || chunk.offset == 0 || chunk.end.is_some() || is_late {
            self.flush(chunk.key, partial, out);
        }
        if chunk.end.is_some() {
            self.give(chunk, out);
            partial.bytes = Vec::new();
            return -before;
        }
        let (mut rest, mut offset, mut gap_before) = (chunk.bytes, chunk.offset, chunk.gap_before);
        while !rest.is_empty() {
            if partial.bytes.is_empty() && rest.len() >= self.size {
                let (bytes, others) = rest.split_at(self.size);
                self.give(
                    &StreamChunk {
                        bytes,
                        offset,
                        gap_before,
                        ..*chunk
                    },
                    out,
                );
                rest = others;
                offset += bytes.len() as u64;
                gap_before = 0;
                continue;
            }
            if partial.bytes.is_empty() {
                (partial.offset, partial.gap_before) = (offset, gap_before);
                partial.first = chunk.time;
            }
            let room = self.size - partial.bytes.len();
            let (bytes, others) = rest.split_at(room.min(rest.len()));
            partial.bytes.extend_from_slice(bytes);
            partial.last = chunk.time;
            partial.captured = chunk.captured;
            partial.stream = *chunk.stream;
            rest = others;
            offset += bytes.len() as u64;
            gap_before = 0;
            if partial.bytes.len() == self.size {
                self.flush(chunk.key, partial, out);
            }
        }
        partial.bytes.len() as i64 - before
    }
}

impl Component for Chunks {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Chunks(chunks) = items {
            for chunk in *chunks {
                let side = usize::from(chunk.stream.from_initiator);
                let partial = &mut self.partial.of(chunk.key)[side];
                let more = self.given.take(partial, chunk, out);
                self.held = self.held.saturating_add_signed(more);
                if self.held > self.memory {
                    self.held -= self.given.flush(chunk.key, partial, out);
                    partial.bytes = Vec::new();
                }
                if self.given.flush.is_some() && !partial.bytes.is_empty() {
                    let earliest = self.earliest.get_or_insert(partial.first);
                    *earliest = partial.first.min(*earliest);
                }
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        for partial in self.partial.take(key).iter_mut().flatten() {
            self.held -= self.given.flush(key, partial, out);
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        let (Some(flush), Some(earliest)) = (self.given.flush, self.earliest) else {
            return;
        };
        if now.0 < earliest.0.saturating_add(flush) {
            return;
        }
        self.earliest = None;
        for (key, sides) in self.partial.iter_mut() {
            for partial in sides.iter_mut().filter(|it| !it.bytes.is_empty()) {
                if now.0 >= partial.first.0.saturating_add(flush) {
                    self.held -= self.given.flush(key, partial, out);
                } else {
                    let earliest = self.earliest.get_or_insert(partial.first);
                    *earliest = partial.first.min(*earliest);
                }
            }
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.given.chunks))
    }

    fn reset(&mut self) {
        self.given.chunks = 0;
    }
}
