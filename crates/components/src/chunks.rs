//! `chunks`: the bytes of streams in chunks of a size.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, ResultInfo, ResultValue,
    SettingError, StreamChunk, StreamInfo, options,
};
use flowgauge_stream::Chunk;
use flowgauge_wire::Nanos;

use crate::cutter::Cutter;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "chunks",
    summary: "regroups the bytes of streams into chunks of a given size",
    help: "Use it after tcpreseq. A chunk is shorter than `size` before a gap, at the end of its stream, and when \
       `flush` or `memory` require it. A segment that holds a whole chunk is not copied.",
    input: Input::Of(&[ItemType::Chunk]),
    options: Options::ALL,
    result: Some(ResultInfo::number("chunks given on", "chunks")),
    parallel: Parallel::ByFlow,
    make: |settings| {
        let options = Options::read(settings);
        if !(1..=1 << 30).contains(&options.size) {
            return Err(SettingError::of("size", "is not between 1 and 1G"));
        }
        let memory = options.memory / settings.copies() as u64;
        Ok(Box::new(Chunks {
            cutter: Cutter::new(options.size, options.flush, memory, None),
            given: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    size: Size as usize = "16k", "bytes of a chunk";
    flush: Duration as u64, "deliver a partial chunk this long after its first byte";
    memory: Size = "256M", "bytes of partial chunks over all streams; beyond it, the current one is delivered";
}

struct Chunks {
    /// By key and direction.
    cutter: Cutter<StreamInfo>,
    given: u64,
}

fn index(key: u32, from_initiator: bool) -> usize {
    key as usize * 2 + usize::from(from_initiator)
}

/// Gives pieces on.
fn give<'a>(
    given: &'a mut u64,
    out: &'a mut dyn Outlet,
) -> impl FnMut(usize, &mut StreamInfo, &Chunk<'_>) + 'a {
    move |index, stream, piece| {
        *given += 1;
        out.emit(Items::Chunks(&[StreamChunk {
            key: (index / 2) as u32,
            stream,
            bytes: piece.bytes,
            offset: piece.offset,
            gap_before: piece.gap_before,
            time: piece.time,
            captured: piece.captured,
            end: None,
        }]));
    }
}

impl Component for Chunks {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Chunks(chunks) = items {
            for chunk in *chunks {
                let index = index(chunk.key, chunk.stream.from_initiator);
                if chunk.end.is_some() {
                    self.cutter.close(index, give(&mut self.given, out));
                    self.given += u64::from(!chunk.bytes.is_empty());
                    out.emit(Items::Chunks(core::slice::from_ref(chunk)));
                    continue;
                }
                if chunk.offset == 0 {
                    self.cutter.end(index, give(&mut self.given, out));
                }
                let bytes = Chunk {
                    bytes: chunk.bytes,
                    offset: chunk.offset,
                    gap_before: chunk.gap_before,
                    skipped: 0,
                    time: chunk.time,
                    captured: chunk.captured,
                };
                let note = |stream: &mut StreamInfo, _| *stream = *chunk.stream;
                let give = give(&mut self.given, out);
                self.cutter.take(index, &bytes, note, give);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        for side in [false, true] {
            let give = give(&mut self.given, out);
            self.cutter.close(index(key, side), give);
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.cutter.expire(now, give(&mut self.given, out));
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.given))
    }

    fn reset(&mut self) {
        self.given = 0;
    }
}
