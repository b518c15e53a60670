//! Packets made for a test.

use flowgauge_rmon::Probe;
use flowgauge_wire::{Batch, DecodedBatch, Decoder, LinkType, Nanos, PacketDescriptor};

/// Bits per second of interfaces.
pub(crate) const SPEED: u64 = 1_000_000_000;

/// A tick in nanoseconds.
pub(crate) const TICK: u64 = 10_000_000;

/// An Ethernet frame with UDP between these hosts of 10.0.0.0/24 (or fd00::/64), to a port.
pub(crate) fn udp(is_v4: bool, (source, destination): (u8, u8), port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source];
    if is_v4 {
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, source, 10, 0, 0, destination]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        for host in [source, destination] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
    }
    frame.extend([0xc0, 0]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

/// Counts a frame so many times at a tick.
pub(crate) fn send(probe: &mut Probe, interface: usize, tick: u64, times: usize, frame: &[u8]) {
    let packets = vec![descriptor(tick, 0, frame, interface); times];
    observe(probe, frame, &packets);
}

/// Counts frames at a tick, as one batch of the first interface.
pub(crate) fn send_all(probe: &mut Probe, tick: u64, frames: &[Vec<u8>]) {
    let (mut bytes, mut packets) = (Vec::new(), Vec::new());
    for frame in frames {
        packets.push(descriptor(tick, bytes.len(), frame, 0));
        bytes.extend_from_slice(frame);
    }
    observe(probe, &bytes, &packets);
}

fn descriptor(tick: u64, offset: usize, frame: &[u8], interface: usize) -> PacketDescriptor {
    PacketDescriptor {
        time: Nanos(tick * TICK),
        offset: offset as u32,
        captured_len: frame.len() as u32,
        wire_len: frame.len() as u32,
        link: LinkType::ETHERNET,
        interface: interface as u16,
        ..PacketDescriptor::default()
    }
}

fn observe(probe: &mut Probe, bytes: &[u8], packets: &[PacketDescriptor]) {
    let batch = Batch::new(bytes, packets);
    let mut decoded = DecodedBatch::new();
    Decoder::default().decode_batch(&batch, &mut decoded);
    probe.observe(&batch, &decoded);
}

/// Goes on to a tick.
pub(crate) fn tick(probe: &mut Probe, tick: u64) {
    probe.tick(Nanos(tick * TICK));
}
