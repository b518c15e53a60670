//! Streams of generated traces against the generator's truth: every byte and every hole.

use std::collections::HashMap;
use std::net::IpAddr;

use flowgauge_capture::PacketSource;
use flowgauge_generate::{Config, Preset, Truth, generate};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use sha2::{Digest, Sha256};

type Name = (IpAddr, u16, IpAddr, u16, &'static str);

#[derive(Default)]
struct Direction {
    hash: Sha256,
    bytes: u64,
    missing: u64,
    holes: Vec<(u64, u64)>,
}

#[derive(Default)]
struct Directions {
    streams: HashMap<Name, Direction>,
    flows: u64,
}

fn name(stream: &Stream<'_>) -> Name {
    let stream = stream.identity();
    (
        stream.source.0.to_ip(stream.version),
        stream.source.1,
        stream.destination.0.to_ip(stream.version),
        stream.destination.1,
        if stream.protocol == 6 { "tcp" } else { "udp" },
    )
}

impl Handler for Directions {
    const STREAMS: bool = true;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let direction = self.streams.entry(name(stream)).or_default();
        if chunk.gap_before > 0 {
            let at = chunk.offset - chunk.gap_before;
            direction.holes.push((at, chunk.gap_before));
        }
        direction.hash.update(chunk.bytes);
        direction.bytes += chunk.bytes.len() as u64;
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let direction = self.streams.entry(name(stream)).or_default();
        direction.missing += stream.missing_bytes + trailing_gap;
        if trailing_gap > 0 {
            let at = stream.bytes + stream.missing_bytes;
            direction.holes.push((at, trailing_gap));
        }
    }

    fn flow(&mut self, _: &flowgauge_flow::FlowRecord<'_>) {
        self.flows += 1;
    }
}

fn run(preset: Preset, packets: u64) -> (Directions, Truth, Shard) {
    let mut file = Vec::new();
    let truth = generate(&Config::new(preset).with_packets(packets), &mut file).unwrap();
    let mut source =
        flowgauge_capture::open_reader(std::io::Cursor::new(file), preset.name()).unwrap();
    let mut shard = Shard::new(ShardConfig::default());
    let mut directions = Directions::default();
    while let Some(batch) = source.next_batch().unwrap() {
        shard.process(&batch, &mut directions);
        assert!(shard.ledger().is_balanced());
    }
    shard.finish(&mut directions);
    assert!(shard.ledger().is_balanced());
    assert_eq!(shard.ledger().received(), truth.packets);
    assert_eq!(shard.waiting_bytes(), 0);
    (directions, truth, shard)
}

#[test]
fn every_byte_and_every_hole() {
    for &preset in Preset::ALL {
        let (directions, truth, shard) = run(preset, 50_000);
        let mut wrong = Vec::new();
        for stream in &truth.streams {
            let proto = if stream.proto == "tcp" { "tcp" } else { "udp" };
            let name = (
                stream.src_ip,
                stream.src_port,
                stream.dst_ip,
                stream.dst_port,
                proto,
            );
            let empty = Direction::default();
            let got = directions.streams.get(&name).unwrap_or(&empty);
            let hash: [u8; 32] = got.hash.clone().finalize().into();
            let holes: Vec<_> = stream
                .holes
                .iter()
                .map(|hole| (hole.offset, hole.size))
                .collect();
            let captured = stream.bytes - stream.missing_bytes;
            // Datagrams have no sequence numbers: their holes cannot be known.
            let holes_right = proto == "udp" || got.holes == holes;
            if got.bytes != captured || hash != stream.captured_sha256 || !holes_right {
                wrong.push(format!(
                    "{name:?}: {} of {captured} bytes, holes {:?}, not {holes:?}",
                    got.bytes, got.holes
                ));
            }
        }
        println!(
            "{}: {} streams, {} wrong; {:?}",
            preset.name(),
            truth.streams.len(),
            wrong.len(),
            shard.statistics().reassembly
        );
        for line in wrong.iter().take(10) {
            println!("  {line}");
        }
        assert!(
            wrong.is_empty(),
            "{}: {} streams wrong",
            preset.name(),
            wrong.len()
        );
    }
}
