//! Chunks that are delivered because they waited long enough.

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkFlags, DataChunk, Engine, EngineConfig, Events,
    StreamRef,
};
use flowgauge_wire::{Batch, Nanos};

use super::{ACK, START, Segment, Wire, shard};

/// Client's port, length and flags of each chunk of a client's stream.
#[derive(Default)]
struct Chunks(Vec<(u16, usize, ChunkFlags)>);

impl Events for Chunks {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let len = chunk.bytes().len();
        (self.0).push((stream.source().1, len, chunk.info().flags));
    }
}

impl Wire {
    /// `payload` at `from` of a client's stream, in this second.
    fn data(&mut self, second: u64, port: u16, from: u32, payload: &[u8]) {
        let segment = Segment {
            port,
            to_server: true,
            seq: START.wrapping_add(from),
            ack: 1000,
            flags: ACK,
            payload,
        };
        self.push(Nanos::from_secs(second), &segment);
    }
}

fn engine(application: ApplicationConfig) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        ..EngineConfig::default()
    });
    engine.add(application).unwrap();
    engine
}

#[test]
fn a_flush_does_not_wait_for_chunks_of_a_later_time() {
    let mut engine = engine(ApplicationConfig {
        flush_timeout: Some(Nanos::from_secs(6)),
        ..ApplicationConfig::default()
    });
    let mut wire = Wire::default();
    for port in [1, 2, 3] {
        wire.handshake(Nanos::from_secs(1000), port);
    }
    wire.data(1010, 1, 0, b"later");
    // Time goes backwards.
    wire.data(1005, 2, 0, b"earlier");
    wire.data(1012, 3, 0, b"now");
    let mut chunks = Chunks::default();
    engine.process(
        &Batch::new(&wire.memory, &wire.packets),
        &mut chunks as &mut dyn Events,
    );
    assert_eq!(chunks.0, [(2, 7, ChunkFlags::TIMEOUT)]);
}

#[test]
fn repeated_bytes_alone_take_the_memory_they_need() {
    const STREAMS: u16 = 50;
    let mut engine = engine(ApplicationConfig {
        chunk_bytes: 1 << 16,
        overlap_bytes: 40,
        flush_timeout: Some(Nanos::from_secs(2)),
        ..ApplicationConfig::default()
    });
    let mut chunks = Chunks::default();
    let mut process = |wire: Wire, chunks: &mut Chunks| {
        engine.process(&Batch::new(&wire.memory, &wire.packets), chunks);
        engine.statistics().memory
    };
    let mut wire = Wire::default();
    for port in 1..=STREAMS {
        wire.handshake(Nanos::from_secs(1000), port);
        wire.data(1000, port, 0, &[b'a'; 100]);
    }
    wire.handshake(Nanos::from_secs(1004), 999);
    let memory = process(wire, &mut chunks);
    assert_eq!(chunks.0.len(), usize::from(STREAMS));
    assert!(memory < u64::from(STREAMS) * 1024, "{memory}");
    // More follows in a buffer of its size, with what is repeated before it.
    let mut wire = Wire::default();
    for from in 0..100 {
        wire.data(1004, 1, 100 + 1000 * from, &[b'b'; 1000]);
    }
    wire.handshake(Nanos::from_secs(1008), 1000);
    chunks.0.clear();
    process(wire, &mut chunks);
    let lengths: Vec<_> = chunks.0.iter().map(|chunk| chunk.1).collect();
    // 65,536 - 40 new bytes, and the rest behind 40.
    assert_eq!(lengths, [65_536, 40 + 100_000 - 65_496]);
}
