//! Frames of any bytes: nothing panics, and both programs see the same in them.

use flowgauge_rmon::{Probe, Tree};
use flowgauge_wire::{LinkType, Nanos};
use proptest::prelude::*;

use crate::counts::{INTERFACE, compare};
use crate::frames::{SPEED, TICK, udp};
use crate::model::Model;
use crate::traces::{Packet, observe};

/// sysUpTime is 0 at this tick.
const ZERO: u64 = 1_000_000;

/// A frame with something in front, changed, cut, or of any bytes.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let header = prop_oneof![
        Just(vec![]),
        Just(vec![0x81, 0, 0, 5]),
        Just(vec![0x00, 0x40, 0xaa, 0xaa, 3, 0, 0, 0]),
        Just(vec![0x00, 0x40, 0x06, 0x06, 3]),
        // IPv4 with IPv4, IPv6 and GRE within; IPv6 with extension headers.
        Just(
            [
                &[8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 4, 0, 0][..],
                &[10; 8]
            ]
            .concat()
        ),
        Just(
            [
                &[8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 41, 0, 0][..],
                &[10; 8]
            ]
            .concat()
        ),
        Just(
            [
                &[8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 47, 0, 0][..],
                &[10; 8],
                &[0x20, 0, 8, 0, 0, 0, 0, 1]
            ]
            .concat()
        ),
        Just(
            [
                &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 0, 64][..],
                &[7; 32],
                &[17, 0, 1, 2, 3, 4, 5, 6]
            ]
            .concat()
        ),
    ];
    let made = (any::<bool>(), 1u8..6, 1u8..6, any::<u16>(), header).prop_map(
        |(is_v4, from, to, port, header)| {
            let mut frame = udp(is_v4, (from, to), port % 200);
            // Without a type where the header in front says it.
            let at = if header.len() > 8 || header.len() == 5 {
                14
            } else {
                12
            };
            frame.splice(12..at, header);
            frame
        },
    );
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (made, changes, 0usize..90).prop_map(|(mut frame, changes, length)| {
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(length.max(12));
        frame
    });
    prop_oneof![4 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..120)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_frames_are_counted_alike(frames in proptest::collection::vec((frame(), 0usize..8), 1..30)) {
        let mut probe = Probe::new();
        probe.add_interface(INTERFACE, SPEED);
        probe.set_zero(ZERO);
        let Some(mut model) = Model::new(&mut probe, [usize::MAX; 2], ZERO) else {
            return Ok(());
        };
        let links = [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::LINUX_SLL2];
        let mut packets = Vec::new();
        for (at, (bytes, link)) in frames.iter().enumerate() {
            let packet = Packet {
                time: Nanos((ZERO + 10 + at as u64) * TICK),
                length: bytes.len() as u32,
                link: *links.get(*link).unwrap_or(&LinkType::ETHERNET),
                tag: None,
                bytes: bytes.clone(),
            };
            model.count(&packet);
            packets.push(packet);
        }
        observe(&mut probe, &packets);
        compare("frames", &mut probe, &mut model, 0);
    }
}
