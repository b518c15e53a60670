//! `streamdemux`: an instance per connection, of chunks.

use std::collections::HashMap;

use flowgauge_kit::keyed::{
    DEMULTIPLEXER, KEYS, KeyName, Keying, Keys, RESULTS, TIMEOUT, endpoints, keying,
};
use flowgauge_stack::{ComponentInfo, Input, ItemType, Parallel, StreamChunk};
use flowgauge_wire::{Address, Nanos};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "streamdemux",
    summary: "an instance per connection, of chunks of streams",
    help: "Use it after an input of chunks: over a link, chunks of several connections arrive interleaved; put \
       components that need bytes in order inside it. Both directions of a connection have one \
           instance, which ends when both have ended, or by timeout.",
    input: Input::Of(&[ItemType::Chunk]),
    options: &[TIMEOUT, KEYS, RESULTS],
    parallel: Parallel::Never("chunks come from one place"),
    make: |settings| Ok(keying(settings, Streams::default())),
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

#[derive(Clone, Default)]
struct Streams {
    /// Of keys of which one direction has ended: whether it was the one from the smaller endpoint.
    ended: HashMap<u32, bool>,
}

impl Keying for Streams {
    type Key = Connection;

    fn demultiplex_chunk(
        &mut self,
        keys: &mut Keys<Connection>,
        chunk: &StreamChunk<'_>,
    ) -> Option<u32> {
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
        let key = keys.table.number(chunk.key, connection, chunk.time);
        if chunk.end.is_some() {
            match self.ended.insert(key, is_from_low) {
                Some(before) if before != is_from_low => keys.finished.push(key),
                _ => {}
            }
        }
        Some(key)
    }

    fn forget(&mut self, ended: &[u32]) {
        for key in ended {
            self.ended.remove(key);
        }
    }
}
