//! `turns`: what both sides of a connection say, as records.

use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::turn::{TURN_SCHEMA, TurnRow};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Parallel, PerKey, RecordItem,
    ResultInfo, ResultValue, StreamChunk, StreamInfo, options,
};
use flowgauge_wire::Nanos;

use crate::transcript::shown;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "turns",
    summary: "makes a record of what one side of a connection sends until the other one does",
    help: "Use it behind follow, or behind tcpreseq. A gap begins another record, which says how much is missing before it; \
           so does what exceeds `longest`. What is missing at the end is a record without bytes.",
    input: Input::Of(&[ItemType::Chunk]),
    output: Output::Of(ItemType::Record),
    fields: |_| Some(TURN_SCHEMA),
    options: Options::ALL,
    result: Some(ResultInfo::number("records", "records")),
    parallel: Parallel::ByFlow,
    make: |settings| {
        Ok(Box::new(Turns {
            longest: Options::read(settings).longest,
            open: PerKey::default(),
            given: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    longest: Size as usize = "1M", "bytes of one record";
}

struct Turns {
    longest: usize,
    open: PerKey<Option<Turn>>,
    given: u64,
}

/// What a side has sent since the other one did.
struct Turn {
    stream: StreamInfo,
    time: Nanos,
    offset: u64,
    missing_bytes: u64,
    bytes: Vec<u8>,
}

impl Turns {
    fn chunk(&mut self, chunk: &StreamChunk<'_>, out: &mut dyn Outlet) {
        let side = chunk.stream.from_initiator;
        let open = self.open.of(chunk.key);
        let says = chunk.gap_before > 0 || !chunk.bytes.is_empty();
        let is_over = open.as_ref().is_some_and(|turn| {
            let is_same = turn.stream.from_initiator == side;
            let is_full = turn.bytes.len() + chunk.bytes.len() > self.longest;
            match is_same {
                true => chunk.end.is_some() || chunk.gap_before > 0 || is_full,
                false => says,
            }
        });
        if is_over {
            self.give(chunk.key, out);
        }
        if !says {
            return;
        }
        let turn = self.open.of(chunk.key).get_or_insert_with(|| Turn {
            stream: *chunk.stream,
            time: chunk.time,
            offset: chunk.offset,
            missing_bytes: chunk.gap_before,
            bytes: Vec::new(),
        });
        turn.bytes.extend_from_slice(chunk.bytes);
        if chunk.end.is_some() {
            self.give(chunk.key, out);
        }
    }

    fn give(&mut self, key: u32, out: &mut dyn Outlet) {
        let Some(turn) = self.open.of(key).take() else {
            return;
        };
        let is_kept = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'\t');
        let shown = |byte: &u8| char::from(if is_kept(byte) { *byte } else { shown(*byte) });
        let text: String = turn.bytes.iter().map(shown).collect();
        let mut data = Vec::with_capacity(turn.bytes.len() * 2);
        write_hex_bytes(&mut data, &turn.bytes);
        let row = TurnRow {
            time: turn.time,
            source: turn.stream.source,
            destination: turn.stream.destination,
            version: turn.stream.version,
            from_initiator: turn.stream.from_initiator,
            offset: turn.offset,
            missing_bytes: turn.missing_bytes,
            text: &text,
            data: core::str::from_utf8(&data).unwrap_or(""),
        };
        self.given += 1;
        out.emit(Items::Records(&[RecordItem {
            key,
            time: turn.time,
            record: &row,
        }]));
    }
}

impl Component for Turns {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Chunks(chunks) = items {
            for chunk in *chunks {
                self.chunk(chunk, out);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        self.give(key, out);
        self.open.take(key);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.given))
    }
}
