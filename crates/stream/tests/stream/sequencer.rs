//! Reassembly for callers that tell connections apart themselves: what comes of it does not depend on how the
//! input is cut into batches.

use std::collections::BTreeMap;

use flowgauge_capture::PacketSource;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::{
    ChecksumPolicy, Chunk, Handler, Numbered, Sequencer, ShardConfig, Stream, StreamStatus,
};
use flowgauge_wire::{Batch, DecodedBatch, Decoder, FlowKey, Nanos, PacketDescriptor};

/// Position, hole, length, a sum, when it came.
type Piece = (u64, u64, usize, u32, Nanos);

/// By stream: what was delivered, and what was missing at the end.
#[derive(Debug, Default, PartialEq)]
struct Collect {
    pieces: BTreeMap<u32, Vec<Piece>>,
    ends: BTreeMap<u32, u64>,
    gaps: u64,
}

impl Handler for Collect {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let add = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
        let sum = chunk.bytes.iter().fold(0, add);
        self.gaps += u64::from(chunk.gap_before != 0);
        let piece = (
            chunk.offset,
            chunk.gap_before,
            chunk.bytes.len(),
            sum,
            chunk.time,
        );
        self.pieces.entry(stream.id).or_default().push(piece);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        assert!(self.ends.insert(stream.id, trailing_gap).is_none());
    }
}

fn trace(preset: Preset) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut config = Config::new(preset).with_packets(6000);
    // Segments that never come: what is behind them waits for time to pass.
    config.missing = 0.02;
    let mut file = Vec::new();
    generate(&config, &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(std::io::Cursor::new(file), "trace").unwrap();
    let (mut memory, mut packets) = (Vec::new(), Vec::new());
    while let Some(batch) = source.next_batch().unwrap() {
        for (at, packet) in batch.packets.iter().enumerate() {
            let offset = memory.len() as u32;
            memory.extend_from_slice(batch.bytes(at));
            packets.push(PacketDescriptor { offset, ..*packet });
        }
    }
    (memory, packets)
}

fn run(memory: &[u8], packets: &[PacketDescriptor], size: usize) -> Collect {
    let mut config = ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        ..ShardConfig::default()
    };
    // Only time gives holes up.
    config.reassembly.hole_time = Nanos::from_millis(1500);
    let mut sequencer = Sequencer::new(&config, 1 << 16);
    let mut collect = Collect::default();
    let mut numbers = BTreeMap::<FlowKey, (u32, bool)>::new();
    let mut decoder = Decoder::default();
    let mut decoded = DecodedBatch::new();
    let mut now = Nanos::ZERO;
    for packets in packets.chunks(size) {
        let batch = Batch::new(memory, packets);
        decoder.decode_batch(&batch, &mut decoded);
        for packet in &decoded.packets {
            now = now.max(packet.time);
            let next = numbers.len() as u32;
            let from_high = packet.direction.index() == 1;
            let &mut (connection, by_high) = numbers.entry(packet.key).or_insert((next, from_high));
            let numbered = Numbered {
                connection,
                from_initiator: from_high == by_high,
            };
            sequencer.packet(&batch, &decoded, packet, numbered, &mut collect);
        }
        sequencer.maintain(now, &mut collect);
    }
    for (connection, _) in numbers.values() {
        sequencer.end(*connection, StreamStatus::Timeout, now, &mut collect);
    }
    collect
}

#[test]
fn batches_of_any_size_give_the_same() {
    for preset in [Preset::Loss, Preset::Late, Preset::Mix] {
        let (memory, packets) = trace(preset);
        let one = run(&memory, &packets, 1);
        assert!(
            one.pieces.len() > 20 && one.gaps > 5,
            "{preset:?}: {}",
            one.gaps
        );
        for size in [7, 64, 256] {
            let found = run(&memory, &packets, size);
            for (stream, pieces) in &one.pieces {
                assert_eq!(
                    found.pieces.get(stream),
                    Some(pieces),
                    "{preset:?} {size} {stream}"
                );
            }
            assert_eq!(found.ends, one.ends, "{preset:?} {size}");
        }
    }
}
