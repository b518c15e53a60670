//! Frames to send through a pair of virtual interfaces, and what comes out.

// Each test binary compiles this module and uses part of it.
#![allow(dead_code)]

pub(crate) mod lab;

use flowgauge_capture::PacketSource;
use flowgauge_sys::transmit::TransmitSocket;
use flowgauge_wire::{Nanos, PacketDescriptor, PacketFlags};

/// A packet that was captured, copied out of its batch.
pub(crate) struct Captured {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptor: PacketDescriptor,
}

/// Packets until there are `count`, or until nothing came for some ticks.
pub(crate) fn collect(source: &mut impl PacketSource, count: usize) -> Vec<Captured> {
    const MOST_TICKS: u32 = 30;

    let mut captured = Vec::new();
    let mut ticks = 0;
    while captured.len() < count && ticks < MOST_TICKS {
        let batch = source.next_batch().unwrap().unwrap();
        ticks = if batch.is_empty() { ticks + 1 } else { 0 };
        for (index, descriptor) in batch.packets.iter().enumerate() {
            captured.push(Captured {
                bytes: batch.bytes(index).to_vec(),
                descriptor: *descriptor,
            });
        }
    }
    captured
}

/// All packets until the source has been idle for some ticks.
pub(crate) fn collect_all(source: &mut impl PacketSource) -> Vec<Captured> {
    const IDLE_TICKS: u32 = 3;

    let mut captured = Vec::new();
    let mut ticks = 0;
    while ticks < IDLE_TICKS {
        let more = collect_one(source);
        ticks = if more.is_empty() { ticks + 1 } else { 0 };
        captured.extend(more);
    }
    captured
}

fn collect_one(source: &mut impl PacketSource) -> Vec<Captured> {
    let batch = source.next_batch().unwrap().unwrap();
    let packets = batch.packets.iter().enumerate();
    packets
        .map(|(index, descriptor)| Captured {
            bytes: batch.bytes(index).to_vec(),
            descriptor: *descriptor,
        })
        .collect()
}

/// The frame with the VLAN tag that the kernel took out back in its place.
pub(crate) fn whole_frame(packet: &Captured) -> Vec<u8> {
    let mut bytes = packet.bytes.clone();
    if packet.descriptor.flags.contains(PacketFlags::VLAN) {
        let [a, b] = packet.descriptor.vlan_tpid.to_be_bytes();
        let [c, d] = packet.descriptor.vlan_tci.to_be_bytes();
        bytes.splice(12..12, [a, b, c, d]);
    }
    bytes
}

/// 2020-09-13.
pub(crate) fn a_time_in_the_past() -> Nanos {
    Nanos::from_secs(1_600_000_000)
}

/// A frame to send.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tags: u32,
}

impl Frame {
    fn new(bytes: Vec<u8>) -> Frame {
        Frame { bytes, tags: 0 }
    }

    /// Puts a VLAN tag in front of those there are.
    pub(crate) fn tag(&mut self, tpid: u16, tci: u16) {
        let [a, b] = tpid.to_be_bytes();
        let [c, d] = tci.to_be_bytes();
        self.bytes.splice(12..12, [a, b, c, d]);
        self.tags += 1;
    }
}

/// Sends all frames in order.
pub(crate) fn send(sender: &TransmitSocket, frames: &[Frame]) {
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).collect();
    sender.send_all(&bytes).unwrap();
}

/// `count` UDP packets over IPv4 with numbered payloads of up to `longest` bytes.
pub(crate) fn udp_frames(count: usize, longest: usize) -> Vec<Frame> {
    (0..count)
        .map(|number| {
            let len = 8 + number * 7919 % (longest - 7);
            let mut payload = vec![number as u8; len];
            payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
            let port = 2000 + (number % 10) as u16;
            let udp = udp(1000, port, &payload);
            Frame::new(ethernet(
                0x0800,
                &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 0, 17, &udp),
            ))
        })
        .collect()
}

/// A packet of flow `flow`: UDP over IPv4 or IPv6, with one or no VLAN tag.
pub(crate) fn ip_frame(flow: u16, back: bool, six: bool, tagged: bool) -> Frame {
    let [high, low] = flow.to_be_bytes();
    let ports = if back {
        (53, 1024 + flow)
    } else {
        (1024 + flow, 53)
    };
    let udp = udp(ports.0, ports.1, b"payload");
    let mut frame = if six {
        let mut client = [0x20; 16];
        client[14..].copy_from_slice(&[high, low]);
        let server = [0x30; 16];
        let (from, to) = if back {
            (server, client)
        } else {
            (client, server)
        };
        let mut packet = vec![0x60, 0, 0, 0, 0, udp.len() as u8, 17, 64];
        packet.extend(from);
        packet.extend(to);
        packet.extend(&udp);
        Frame::new(ethernet(0x86dd, &packet))
    } else {
        let (client, server) = ([10, 1, high, low], [10, 2, 0, 1]);
        let (from, to) = if back {
            (server, client)
        } else {
            (client, server)
        };
        Frame::new(ethernet(0x0800, &ipv4(from, to, 0, 17, &udp)))
    };
    if tagged {
        // Two: the kernel takes out the outer one only.
        frame.tag(0x8100, 3);
        frame.tag(0x8100, 4);
    }
    frame
}

/// Datagrams in two fragments each, between as many pairs of hosts.
pub(crate) fn fragments(count: u16) -> Vec<Frame> {
    let first = udp(5, 6, &[1; 56]);
    let datagrams = (0..count).flat_map(|number| {
        let [high, low] = number.to_be_bytes();
        let (from, to) = ([10, 3, high, low], [10, 4, 0, 1]);
        [
            ipv4(from, to, 0x2000, 17, &first),
            ipv4(from, to, 8, 17, &[2; 40]),
        ]
    });
    datagrams
        .map(|datagram| Frame::new(ethernet(0x0800, &datagram)))
        .collect()
}

/// What tells the flows of [`ip_frame`] and [`fragments`] apart, the same in both directions.
pub(crate) fn flow_id(frame: &[u8]) -> Vec<u8> {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0] {
        at += 4;
    }
    let ip = &frame[at + 2..];
    let (from, to) = if ip[0] >> 4 == 4 {
        (&ip[12..16], &ip[16..20])
    } else {
        (&ip[8..24], &ip[24..40])
    };
    let (low, high) = if from < to { (from, to) } else { (to, from) };
    [low, high].concat()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

fn ipv4(from: [u8; 4], to: [u8; 4], fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    packet
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(from.to_be_bytes());
    datagram.extend(to.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}
