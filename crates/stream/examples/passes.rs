//! What each pass costs by itself: `passes read|decode|flows|engine|streams FILE`. `engine` is the whole
//! engine without streams, `streams` with them, every delivered byte read.

use flowgauge_capture::PacketSource;
use flowgauge_flow::{FlowConfig, FlowTracker};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::DecodedBatch;
use flowgauge_wire::decode::{Decoder, hash_batch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(mode), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: passes read|decode|flows|engine|streams FILE".into());
    };
    let mut source = flowgauge_capture::open(&path)?;
    match mode.as_str() {
        "engine" => return engine(&mut source, Flows::default()),
        "streams" => return engine(&mut source, Bytes::default()),
        _ => {}
    }
    let mut decoder = Decoder::default();
    let mut decoded = DecodedBatch::new();
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let mut refs = Vec::new();
    let (mut packets, mut bytes, mut flows) = (0u64, 0u64, 0u64);
    while let Some(batch) = source.next_batch()? {
        packets += batch.len() as u64;
        if mode == "read" {
            bytes += batch
                .packets
                .iter()
                .map(|packet| u64::from(packet.wire_len))
                .sum::<u64>();
            continue;
        }
        decoder.decode_batch(&batch, &mut decoded);
        bytes += decoded
            .packets
            .iter()
            .map(|packet| u64::from(packet.ip_len))
            .sum::<u64>();
        if mode == "decode" {
            continue;
        }
        hash_batch(&mut decoded.packets);
        tracker.process(&decoded.packets, &decoded.tunnels, &mut refs);
        tracker.drain_ended(|_, _| flows += 1);
    }
    tracker.finish();
    tracker.drain_ended(|_, _| flows += 1);
    eprintln!("{packets} packets, {bytes} bytes, {flows} flows");
    Ok(())
}

#[derive(Debug, Default)]
struct Flows(u64);

impl Handler for Flows {
    fn flow(&mut self, _record: &flowgauge_flow::FlowRecord<'_>) {
        self.0 += 1;
    }
}

#[derive(Debug, Default)]
struct Bytes {
    bytes: u64,
    missing: u64,
    sum: u64,
}

impl Handler for Bytes {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_data(&mut self, _stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
        self.sum = self.sum.wrapping_add(byte_sum(chunk.bytes));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.missing += stream.missing_bytes + trailing_gap;
    }
}

fn engine<H: Handler + std::fmt::Debug>(
    source: &mut dyn PacketSource,
    mut handler: H,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut shard = Shard::new(ShardConfig::default());
    while let Some(batch) = source.next_batch()? {
        shard.process(&batch, &mut handler);
    }
    shard.finish(&mut handler);
    eprintln!("{handler:?}\n{:?}", shard.statistics());
    Ok(())
}
