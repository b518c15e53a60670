//! What all applications share, changed while packets come.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::HostPolicies;

use super::*;

/// Bytes delivered by the client's port, and whether a chunk was sent early.
#[derive(Default)]
struct Delivered {
    bytes: BTreeMap<u16, String>,
    early: bool,
}

impl Events for Delivered {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let port = stream.identity().source.1;
        let text = core::str::from_utf8(chunk.new_bytes()).unwrap();
        self.bytes.entry(port).or_default().push_str(text);
        self.early |= chunk.flags().contains(ChunkFlags::EARLY);
    }
}

struct Run {
    engine: Engine,
    delivered: Delivered,
    time: Nanos,
}

impl Run {
    fn new(config: EngineConfig, chunk_bytes: u32) -> Run {
        let mut engine = Engine::new(config);
        let application = ApplicationConfig {
            chunk_bytes,
            ..ApplicationConfig::default()
        };
        engine.add(application).unwrap();
        Run {
            engine,
            delivered: Delivered::default(),
            time: Nanos::from_secs(1),
        }
    }

    /// Packets of the client behind its handshake: position and payload.
    fn send(&mut self, port: u16, packets: &[(u32, &[u8])]) {
        let mut wire = Wire::default();
        for &(at, payload) in packets {
            let segment = Segment {
                port,
                to_server: true,
                seq: START.wrapping_add(at),
                ack: 1000,
                flags: ACK,
                payload,
            };
            wire.push(self.time, &segment);
        }
        self.process(&wire);
    }

    fn connect(&mut self, port: u16) {
        let mut wire = Wire::default();
        wire.handshake(self.time, port);
        self.process(&wire);
    }

    fn process(&mut self, wire: &Wire) {
        let batch = Batch::new(&wire.memory, &wire.packets);
        self.engine
            .process(&batch, &mut self.delivered as &mut dyn Events);
    }
}

#[test]
fn policies_change_for_streams_to_come() {
    let config = EngineConfig {
        shard: shard(),
        ..EngineConfig::default()
    };
    let mut run = Run::new(config, 0);
    // The second copy comes while the first waits behind a hole.
    let overlap = |at: u32| [(at + 2, &b"old"[..]), (at + 2, b"NEW"), (at, b"..")];
    run.connect(1);
    run.send(1, &overlap(0));
    run.engine
        .set_policies(HostPolicies::new(OverlapPolicy::Last));
    run.connect(2);
    run.send(2, &overlap(0));
    // The one that was there keeps its policy.
    run.send(1, &overlap(5));
    let mut policies = HostPolicies::new(OverlapPolicy::Last);
    policies.insert("10.0.0.2".parse().unwrap(), 32, OverlapPolicy::First);
    run.engine.set_policies(policies);
    run.connect(3);
    run.send(3, &overlap(0));
    run.send(2, &overlap(5));
    run.engine
        .set_policies(HostPolicies::new(OverlapPolicy::Last));
    run.connect(4);
    run.send(4, &overlap(0));
    let expected = ["..old..old", "..NEW..NEW", "..old", "..NEW"].map(str::to_owned);
    assert_eq!(
        run.delivered.bytes.into_values().collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn the_base_threshold_changes_at_once() {
    let config = EngineConfig {
        shard: shard(),
        memory_bytes: 64 << 10,
        base_threshold: 1.0,
        ..EngineConfig::default()
    };
    let mut run = Run::new(config, 16_384);
    assert_eq!(run.engine.base_bytes(), 64 << 10);
    let waits = [b'x'; 1000];
    for port in 1..=10 {
        run.connect(port);
        run.send(port, &[(0, &waits)]);
    }
    assert!(run.delivered.bytes.is_empty());
    // What waits is above it now.
    run.engine.set_base_threshold(0.0);
    assert_eq!(run.engine.base_bytes(), 0);
    run.connect(11);
    run.send(11, &[(0, &waits)]);
    assert!(run.delivered.early);
    assert!(run.delivered.bytes.len() >= 8, "all but what is little");
}
