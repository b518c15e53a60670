//! Packets that were merged of several (GRO, TSO) count as the frames that they are of.

use flowgauge_rmon::{Oid, Probe, Tree, Value};

use crate::counts::INTERFACE;
use crate::frames::{SPEED, send_all};
use crate::traces::walk;

const MTU: usize = 1500;

/// An Ethernet frame of a connection with so much payload: with tags, over IPv4 or IPv6, TCP with time stamps or UDP.
fn frame(tags: usize, is_v4: bool, is_tcp: bool, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..tags {
        frame.extend([0x81, 0, 0x60, 5]);
    }
    let (protocol, header) = if is_tcp { (6, 32) } else { (17, 8) };
    let length = (header + payload) as u16;
    if is_v4 {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([&[0xfd; 16][..], &[0xfc; 16]].concat());
    }
    frame.extend([0xc0, 0, 0, 80]);
    if is_tcp {
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0]);
        frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    } else {
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.resize(frame.len() + payload, 7);
    frame
}

/// All that is counted of frames.
fn counted(mtu: u32, frames: &[Vec<u8>]) -> Vec<(Oid, Value)> {
    let mut probe = Probe::new();
    let place = probe.add_interface(INTERFACE, SPEED);
    probe.note_mtu(place, mtu);
    probe.set_zero(100);
    send_all(&mut probe, 200, frames);
    let groups = [
        "1", "4", "6", "12", "13", "14", "15", "16", "17", "22.1.1", "22.1.2",
    ];
    let all = groups.iter().flat_map(|group| walk(&mut probe, group));
    all.collect()
}

#[test]
fn merged_packets_count_as_the_frames_that_they_are_of() {
    for (tags, is_v4, is_tcp) in [
        (0, true, true),
        (1, true, true),
        (2, true, false),
        (0, false, true),
        (1, false, false),
    ] {
        let empty = frame(tags, is_v4, is_tcp, 0).len();
        let room = MTU - (empty - 14 - 4 * tags);
        for payload in [room, room + 1, 2 * room, 3 * room + 200, 44 * room + 17] {
            let whole = vec![room; payload / room];
            let rest = Some(payload % room).filter(|rest| *rest != 0);
            let parts = whole.into_iter().chain(rest);
            let parts: Vec<Vec<u8>> = parts.map(|part| frame(tags, is_v4, is_tcp, part)).collect();
            let merged = [frame(tags, is_v4, is_tcp, payload)];
            let seen = counted(MTU as u32, &merged);
            assert!(seen.len() > 100, "{} objects", seen.len());
            let of = (tags, is_v4, is_tcp, payload);
            assert_eq!(seen, counted(MTU as u32, &parts), "{of:?}");
            // Of an interface that does not say it, one packet is one frame.
            let unknown = counted(0, &merged);
            assert_eq!(unknown == seen, parts.len() == 1, "{of:?}");
        }
    }
}
