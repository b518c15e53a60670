//! One made-up segment ahead, of what its receiver can have offered or only of its window, must not blind mode FAST to
//! what follows; nor may one that is as far ahead because acknowledgements were not captured be lost.

use flowgauge_stream::ChecksumPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, Mode, StreamRef,
};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

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

/// The handshake; the server's window is 65,535 bytes.
fn handshake() -> Vec<Vec<u8>> {
    vec![
        frame(false, 99, 0, SYN, &[]),
        frame(true, 499, 100, SYN | ACK, &[]),
        frame(false, 100, 500, ACK, &[]),
    ]
}

/// Turn `turn` of the server: a thousand bytes.
fn turn(turn: u32) -> Vec<u8> {
    frame(true, 500 + 1000 * turn, 100, ACK, &[turn as u8; 1000])
}

/// What is delivered, the bytes of all packets, and those of them that were discarded.
fn run(mode: Mode, frames: &[Vec<u8>]) -> (Vec<u8>, u64, u64) {
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
        engine.process(
            &Batch::new(frame, &[packet]),
            &mut collected as &mut dyn Events,
        );
    }
    engine.finish(&mut collected as &mut dyn Events);
    assert!(engine.ledger().is_balanced());
    let discarded = engine.statistics().discarded.bytes;
    let all: usize = frames.iter().map(|frame| frame.len() - 40).sum();
    assert_eq!(
        all as u64,
        engine.statistics().all.bytes,
        "{mode:?}: all of it counts"
    );
    (collected.0, engine.statistics().all.bytes, discarded)
}

/// A hundred turns, each acknowledged, with a segment of 100 bytes so far ahead after the fourth, and
/// again where `again`; then the FIN.
fn delivered(mode: Mode, ahead: u32, again: bool) -> (Vec<u8>, u64, u64) {
    let mut frames = handshake();
    for now in 0..100_u32 {
        frames.push(turn(now));
        frames.push(frame(false, 100, 1500 + 1000 * now, ACK, &[]));
        if now == 3 || again && now == 5 {
            let made_up = 4500_u32.wrapping_add(ahead);
            frames.push(frame(true, made_up, 100, ACK, &[255; 100]));
        }
    }
    frames.push(frame(true, 100_500, 100, ACK | FIN, &[]));
    frames.push(frame(false, 100, 100_501, ACK | FIN, &[]));
    run(mode, &frames)
}

#[test]
fn a_made_up_segment_ahead_does_not_blind_fast() {
    let expected: Vec<u8> = (0..100).flat_map(|turn| [turn; 1000]).collect();
    for ahead in [
        70_123,
        200_000,
        1_000_000,
        1 << 29,
        1 << 30,
        (1 << 31) - 256,
        1 << 31,
    ] {
        let (found, all, discarded) = delivered(Mode::Fast, ahead, false);
        assert!(found == expected, "{ahead}: {} bytes", found.len());
        assert_eq!((all, discarded), (100_100, 100), "{ahead}");
    }
    // A copy of it is no second one.
    let (found, all, discarded) = delivered(Mode::Fast, 200_000, true);
    assert!(found == expected, "{} bytes", found.len());
    assert_eq!((all, discarded), (100_200, 200));
}

#[test]
fn what_acknowledgements_contradict_is_believed_in_no_mode() {
    let expected: Vec<u8> = (0..20).flat_map(|turn| [turn; 1000]).collect();
    for mode in [Mode::Wait, Mode::Fast, Mode::Strict] {
        for (after, count) in [(0, 2), (0, 30), (1, 3), (7, 2), (7, 30), (19, 2)] {
            let mut frames = handshake();
            for now in 0..=20 {
                if now == after {
                    for made_up in 0..count {
                        let seq = 500_000_000 + 100 * made_up;
                        frames.push(frame(true, seq, 100, ACK, &[255; 100]));
                    }
                }
                if now < 20 {
                    frames.push(turn(now));
                    frames.push(frame(false, 100, 1500 + 1000 * now, ACK, &[]));
                }
            }
            frames.push(frame(true, 20_500, 100, ACK | FIN, &[]));
            frames.push(frame(false, 100, 20_501, ACK | FIN, &[]));
            let (found, all, discarded) = run(mode, &frames);
            let what = format!("{mode:?} {count} after {after}");
            assert!(found == expected, "{what}: {} bytes", found.len());
            let made_up = 100 * u64::from(count);
            assert_eq!((all, discarded), (20_000 + made_up, made_up), "{what}");
        }
    }
}

#[test]
fn where_the_stream_gets_to_it_fast_takes_it_as_wait_does() {
    let wait = delivered(Mode::Wait, 70_000, false);
    assert_eq!(wait.0.len(), 100_000);
    assert_eq!(wait.0.iter().filter(|&&byte| byte == 255).count(), 100);
    assert_eq!(delivered(Mode::Fast, 70_000, false), wait);
}

#[test]
fn where_acknowledgements_were_not_captured_fast_loses_nothing() {
    // Two segments were lost, far behind the last acknowledgement.
    let turns: Vec<u32> = (0..200).filter(|turn| ![90, 150].contains(turn)).collect();
    for last in [89, 91, 92, 149, 151, 152, 199] {
        let seen = turns.iter().filter(|&&turn| turn <= last);
        let mut frames = handshake();
        frames.extend(seen.clone().map(|&now| turn(now)));
        let (found, all, discarded) = run(Mode::Fast, &frames);
        // A chunk has zeros where bytes are missing.
        let expected: Vec<u8> = (0..=last)
            .flat_map(|turn| [turn as u8 * u8::from(turns.contains(&turn)); 1000])
            .collect();
        assert!(found == expected, "{last}: {} bytes", found.len());
        assert_eq!((all, discarded), (1000 * seen.count() as u64, 0), "{last}");
    }
}

#[test]
fn without_acknowledgements_no_window_is_known() {
    let expected: Vec<u8> = [0, 200].into_iter().flat_map(|turn| [turn; 1000]).collect();
    let begins = frame(true, 499, 100, SYN | ACK, &[]);
    let frames = [begins, turn(0), turn(200), turn(2)];
    let (found, _, discarded) = run(Mode::Fast, &frames);
    assert!(found == expected);
    assert_eq!(discarded, 1000);
}

/// A made-up segment with these flags and this acknowledgement, then the true one: what is delivered, and how
/// many bytes of it are made up.
fn with_made_up(mode: Mode, ack: u32, flags: u8) -> (Vec<u8>, usize) {
    let mut frames = handshake();
    frames.push(turn(0));
    frames.push(frame(false, 100, 1500, ACK, &[]));
    frames.push(frame(true, 1500, ack, flags, &[255; 1000]));
    frames.push(turn(1));
    frames.push(frame(false, 100, 2500, ACK, &[]));
    frames.push(frame(true, 2500, 100, ACK | FIN, &[]));
    frames.push(frame(false, 100, 2501, ACK | FIN, &[]));
    frames.push(frame(true, 2501, 101, ACK, &[]));
    let (found, all, discarded) = run(mode, &frames);
    assert_eq!((all, discarded), (3000, 1000));
    let made_up = found.iter().filter(|&&byte| byte == 255).count();
    (found, made_up)
}

#[test]
fn strict_refuses_what_the_receiver_does() {
    let expected: Vec<u8> = [0, 1].into_iter().flat_map(|turn| [turn; 1000]).collect();
    for (ack, flags) in [(100 + 900_000, ACK), (0, 8)] {
        assert_eq!(
            with_made_up(Mode::Strict, ack, flags),
            (expected.clone(), 0)
        );
        // Others take what comes first.
        assert_eq!(with_made_up(Mode::Wait, ack, flags).1, 1000);
    }
}

#[test]
fn behind_holes_of_any_size_nothing_is_lost_in_any_mode() {
    for gap in [100_000_000_u32, 600_000_000, 1_500_000_000] {
        for (mode, acknowledged) in [
            (Mode::Wait, true),
            (Mode::Wait, false),
            (Mode::Fast, true),
            (Mode::Fast, false),
            (Mode::Strict, true),
        ] {
            let mut frames = handshake();
            let (mut seq, mut expected) = (500_u32, Vec::new());
            // Several times around. Of every third transfer two segments follow each other, and the first comes again.
            for turn in 0..12_u8 {
                let segments = if turn % 3 == 0 { 2 } else { 1 };
                let first = seq;
                for segment in 0..segments {
                    let payload = [2 * turn + segment; 1000];
                    frames.push(frame(true, seq, 100, ACK, &payload));
                    expected.extend(payload);
                    seq = seq.wrapping_add(1000);
                }
                if acknowledged {
                    frames.push(frame(false, 100, seq, ACK, &[]));
                }
                if segments == 2 {
                    frames.push(frame(true, first, 100, ACK, &[2 * turn; 1000]));
                }
                seq = seq.wrapping_add(gap);
            }
            let (found, all, discarded) = run(mode, &frames);
            let what = format!("{mode:?} {gap} {acknowledged}");
            assert_eq!(all, 20_000, "{what}");
            match mode {
                Mode::Strict => assert!(found == expected[..2000], "{what}: {}", found.len()),
                _ => {
                    assert!(found == expected, "{what}: {}", found.len());
                    assert_eq!(discarded, 4000, "{what}: the copies");
                }
            }
        }
    }
}
