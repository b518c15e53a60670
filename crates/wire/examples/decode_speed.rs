//! Time per packet of decoding, hashing and checksums over packets in memory.
//!
//! `cargo run --release -p flowgauge-wire --example decode_speed [PASSES]`
#![allow(clippy::print_stdout)]

use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodedBatch, Decoder, PacketDescriptor, hash_batch, verify_transport,
};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let passes: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000);
    for (name, payload) in [("small", 20), ("full", 1448)] {
        let (memory, packets) = trace(payload);
        measure(name, &memory, &packets, passes);
    }
}

/// TCP and UDP over IPv4, three to one, with different addresses and ports.
fn trace(payload: usize) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for i in 0..BATCH_SIZE {
        let offset = memory.len() as u32;
        let tcp = i % 4 != 0;
        let header = if tcp { 20 } else { 8 };
        let total = ((20 + header + payload) as u16).to_be_bytes();
        memory.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
        let protocol = if tcp { 6 } else { 17 };
        memory.extend([
            0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0,
        ]);
        memory.extend([10, 0, 0, i as u8, 10, 0, 1, (i * 7) as u8]);
        memory.extend([0x30 + (i % 16) as u8, i as u8, 0, 80]);
        if tcp {
            memory.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        } else {
            let length = ((8 + payload) as u16).to_be_bytes();
            memory.extend([length[0], length[1], 0, 1]);
        }
        memory.resize(memory.len() + payload, i as u8);
        let captured_len = memory.len() as u32 - offset;
        packets.push(PacketDescriptor {
            offset,
            captured_len,
            wire_len: captured_len,
            ..PacketDescriptor::default()
        });
    }
    (memory, packets)
}

fn measure(name: &str, memory: &[u8], packets: &[PacketDescriptor], passes: usize) {
    let batch = Batch::new(memory, packets);
    let mut decoder = Decoder::default();
    let mut out = DecodedBatch::new();
    let mut report = |what: &str, work: &mut dyn FnMut(&mut Decoder, &mut DecodedBatch)| {
        let start = Instant::now();
        for _ in 0..passes {
            work(&mut decoder, &mut out);
        }
        let each = start.elapsed().as_secs_f64() * 1e9 / (passes * packets.len()) as f64;
        println!("{name:6} {what:18} {each:6.2} ns/packet");
    };
    report("decode", &mut |decoder, out| {
        decoder.decode_batch(black_box(&batch), out);
        black_box(out);
    });
    report("decode + hash", &mut |decoder, out| {
        decoder.decode_batch(black_box(&batch), out);
        hash_batch(&mut out.packets);
        black_box(out);
    });
    report("checksum", &mut |_, out| {
        for packet in &out.packets {
            black_box(verify_transport(out.bytes(&batch, packet), packet));
        }
    });
}
