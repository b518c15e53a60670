//! Time per packet of classifying, ordering and taking, over packets in memory.
//!
//! `cargo run --release -p flowgauge-locality --example order_speed [BUFFERS [CLASSES]]`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use flowgauge_locality::{Class, Classifier, Index};
use flowgauge_wire::{BATCH_SIZE, Batch, PacketDescriptor, scattered};

/// Packets of a buffer, and bytes of one.
const BUFFER: usize = 4000;
const LEN: usize = 700;

fn main() {
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse().ok());
    let buffers: usize = number(1).unwrap_or(2000);
    let one = number(2);
    for classes in [1, 16, 256, 4000, 65_536] {
        if one.is_none_or(|one| one == classes) {
            let (memory, packets) = trace(classes as u64);
            for class in Class::ALL {
                measure(class, classes, &memory, &packets, buffers);
            }
        }
    }
}

/// UDP over IPv4, to so many ports in no order.
fn trace(classes: u64) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for packet in 0..BUFFER as u64 {
        let offset = memory.len();
        let port = ((scattered(packet) % classes) as u16).to_be_bytes();
        memory.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
        let total = ((LEN - 14) as u16).to_be_bytes();
        memory.extend([0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 17, 0, 0]);
        memory.extend([10, 0, 0, packet as u8, 10, 0, 1, 7]);
        let length = ((LEN - 34) as u16).to_be_bytes();
        memory.extend([0xf0, 0, port[0], port[1], length[0], length[1], 0, 0]);
        memory.resize(offset + LEN, packet as u8);
        packets.push(PacketDescriptor {
            offset: offset as u32,
            captured_len: LEN as u32,
            wire_len: LEN as u32,
            ..PacketDescriptor::default()
        });
    }
    (memory, packets)
}

fn measure(
    class: Class,
    classes: usize,
    memory: &[u8],
    packets: &[PacketDescriptor],
    buffers: usize,
) {
    let mut classifier = Classifier::new(class);
    let mut index = Index::new(BUFFER);
    let start = Instant::now();
    for _ in 0..buffers {
        for batch in packets.chunks(BATCH_SIZE) {
            classifier.add(black_box(&Batch::new(memory, batch)), &mut index);
        }
        while let Some(number) = index.pop() {
            black_box(number);
        }
        index.clear();
    }
    let each = start.elapsed().as_secs_f64() * 1e9 / (buffers * packets.len()) as f64;
    println!("{class:10} {classes:5} classes {each:6.2} ns/packet");
}
