//! `streamdemux`: an instance per connection, of chunks.

use std::collections::HashMap;

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, KeyTable, Outlet, Parallel, ResultValue,
    Settings, StreamChunk,
};
use flowgauge_wire::{Address, Nanos};

use crate::keyed::{DEMULTIPLEXER, KEYS, KeyName, RESULTS, TIMEOUT, endpoints};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "streamdemux",
    summary: "an instance per connection, of chunks of streams",
    help: "Behind an input that takes chunks: those of several connections come mixed over a link, and \
           components that look at the bytes in order stand inside. Both directions of a connection have \
           one instance, which ends when both have, or by timeout.",
    input: Input::Of(&[ItemType::Chunk]),
    options: &[TIMEOUT, KEYS, RESULTS],
    parallel: Parallel::Never("chunks come from one place"),
    make: |settings| Ok(Box::new(Streams::new(settings))),
    ..DEMULTIPLEXER
};

/// The endpoints, the smaller first, and when the connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Connection {
    low: (Address, u16),
    high: (Address, u16),
    version: u8,
    start: Nanos,
}

impl KeyName for Connection {
    fn name(&self) -> String {
        endpoints(self.version, self.low, self.high)
    }
}

struct Streams {
    table: KeyTable<Connection>,
    /// Of keys of which one direction has ended: whether it was the one from the smaller endpoint.
    ended: HashMap<u32, bool>,
    /// Both have.
    finished: Vec<u32>,
    /// Instances that the result does not count: it was reset.
    made_before: u64,
}

impl Streams {
    fn new(settings: &Settings) -> Streams {
        let timeout = settings.duration("timeout").unwrap_or(60_000_000_000);
        let keys = settings.integer("keys").unwrap_or(1_000_000);
        Streams {
            table: KeyTable::new(Nanos(timeout), keys as usize),
            ended: HashMap::new(),
            finished: Vec::new(),
            made_before: 0,
        }
    }
}

impl Component for Streams {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {}

    fn demultiplex_chunk(&mut self, chunk: &StreamChunk<'_>) -> Option<u32> {
        let stream = chunk.stream;
        let is_from_low = stream.source <= stream.destination;
        let (low, high) = match is_from_low {
            true => (stream.source, stream.destination),
            false => (stream.destination, stream.source),
        };
        let connection = Connection {
            low,
            high,
            version: stream.version,
            start: stream.start,
        };
        let key = self.table.number(chunk.key, connection, chunk.time);
        if chunk.end.is_some() {
            match self.ended.insert(key, is_from_low) {
                Some(before) if before != is_from_low => self.finished.push(key),
                _ => {}
            }
        }
        Some(key)
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.table.made() - self.made_before))
    }

    fn reset(&mut self) {
        self.made_before = self.table.made();
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.finished.drain(..).for_each(|key| self.table.end(key));
        self.table.take_ended(now, ended);
        for key in ended {
            self.ended.remove(key);
        }
    }

    fn outer(&self, key: u32) -> u32 {
        self.table.outer(key)
    }

    fn key_name(&self, key: u32) -> Option<String> {
        self.table.key(key).map(KeyName::name)
    }

    fn end_key(&mut self, key: u32) {
        self.finished.push(key);
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.table.end_outer(key);
    }

    fn end_all(&mut self) {
        self.table.end_all();
    }
}
