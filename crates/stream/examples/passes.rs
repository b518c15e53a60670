//! What each pass costs by itself: `passes read|decode|flows FILE`.

use flowgauge_capture::PacketSource;
use flowgauge_flow::{FlowConfig, FlowTracker};
use flowgauge_wire::decode::{Decoder, hash_batch};
use flowgauge_wire::{DecodedBatch, HashSeed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(mode), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: passes read|decode|flows FILE".into());
    };
    let mut source = flowgauge_capture::open(&path)?;
    let mut decoder = Decoder::default();
    let mut decoded = DecodedBatch::new();
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let mut refs = Vec::new();
    let (mut packets, mut bytes, mut flows) = (0u64, 0u64, 0u64);
    while let Some(batch) = source.next_batch()? {
        packets += batch.len() as u64;
        if mode == "read" {
            bytes += batch.packets.iter().map(|packet| u64::from(packet.wire_len)).sum::<u64>();
            continue;
        }
        decoder.decode_batch(&batch, &mut decoded);
        bytes += decoded.packets.iter().map(|packet| u64::from(packet.ip_len)).sum::<u64>();
        if mode == "decode" {
            continue;
        }
        hash_batch(HashSeed::FIXED, &mut decoded.packets);
        tracker.process(&decoded.packets, &decoded.tunnels, &mut refs);
        tracker.drain_ended(|_, _| flows += 1);
    }
    tracker.finish();
    tracker.drain_ended(|_, _| flows += 1);
    eprintln!("{packets} packets, {bytes} bytes, {flows} flows");
    Ok(())
}
