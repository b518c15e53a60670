//! One made-up segment far ahead must not blind mode FAST to what follows.

#![allow(clippy::unwrap_used, reason = "tests")]

use flowgauge_stream::ChecksumPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, Mode, StreamRef,
};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const SYN: u8 = 2;
const ACK: u8 = 16;

#[derive(Default)]
struct Collected(Vec<u8>);

impl Events for Collected {
    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.0.extend_from_slice(chunk.new_bytes());
    }
}

/// An IPv4 datagram of host 1 to host 2, or back.
fn frame(back: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = if back { (2, 1) } else { (1, 2) };
    let mut frame = vec![0x45, 0];
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend([0, from, 0, to]);
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

fn delivered(mode: Mode, ahead: u32) -> Vec<u8> {
    let mut frames = vec![
        frame(false, 99, 0, SYN, &[]),
        frame(true, 499, 100, SYN | ACK, &[]),
        frame(false, 100, 500, ACK, &[]),
    ];
    for turn in 0..100_u32 {
        frames.push(frame(
            true,
            500 + 1000 * turn,
            100,
            ACK,
            &[turn as u8; 1000],
        ));
        frames.push(frame(false, 100, 1500 + 1000 * turn, ACK, &[]));
        if turn == 3 {
            frames.push(frame(
                true,
                (4500_u32).wrapping_add(ahead),
                100,
                ACK,
                &[255; 100],
            ));
        }
    }
    let mut config = EngineConfig::default();
    config.shard.checksums = ChecksumPolicy::Ignore;
    let mut engine = Engine::new(config);
    let application = ApplicationConfig {
        mode,
        ..ApplicationConfig::default()
    };
    engine.add(application).unwrap();
    let mut collected = Collected::default();
    for (turn, frame) in frames.iter().enumerate() {
        let packet = PacketDescriptor {
            time: Nanos::from_secs(1000 + turn as u64 / 100),
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            link: LinkType::RAW,
            ..PacketDescriptor::default()
        };
        engine.process(&Batch::new(frame, &[packet]), &mut collected);
    }
    engine.finish(&mut collected);
    assert!(engine.ledger().is_balanced());
    collected.0
}

#[test]
fn a_made_up_segment_far_ahead_does_not_blind_fast() {
    let expected: Vec<u8> = (0..100).flat_map(|turn| [turn; 1000]).collect();
    for mode in [Mode::Fast] {
        for ahead in [1 << 29, 1 << 30, (1 << 31) - 256, 1 << 31] {
            let found = delivered(mode, ahead);
            assert!(found == expected, "{mode:?} {ahead}: {} bytes", found.len());
        }
    }
}
