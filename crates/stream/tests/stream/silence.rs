//! Inactivity timeouts of applications and of single streams, and what of a chunk is lost.

use std::collections::BTreeMap;

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Command, DataChunk, Engine, EngineConfig, Events, Parameter,
    StreamRef,
};
use flowgauge_stream::{ChecksumPolicy, ShardConfig, StreamStatus};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

/// What a timeout may be late by: three ticks of the capture clock.
const LATE: u64 = 4;

/// What happened, by application and the client's port.
#[derive(Default)]
struct Log {
    now: u64,
    /// When streams ended, and how: only those of the initiator.
    ended: Vec<(u8, u16, u64, StreamStatus)>,
    /// Timeouts that applications give streams when they are created.
    wanted: BTreeMap<(u8, u16), Nanos>,
    uids: BTreeMap<u16, u64>,
}

impl Events for Log {
    fn created(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let port = stream.source().1;
        if !stream.from_initiator() {
            return;
        }
        self.uids.insert(port, stream.uid());
        if let Some(&timeout) = self.wanted.get(&(application.0, port)) {
            stream.set_parameter(Parameter::InactivityTimeout(Some(timeout)));
        }
    }

    fn terminated(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            let port = stream.source().1;
            let status = stream.status();
            self.ended.push((application.0, port, self.now, status));
        }
    }
}

struct Run {
    engine: Engine,
    log: Log,
}

impl Run {
    fn new(timeouts: &[Option<u64>]) -> Run {
        let mut engine = Engine::new(EngineConfig {
            shard: ShardConfig {
                checksums: ChecksumPolicy::Ignore,
                ..ShardConfig::default()
            },
            ..EngineConfig::default()
        });
        for timeout in timeouts {
            let config = ApplicationConfig {
                inactivity_timeout: timeout.map(Nanos::from_secs),
                ..ApplicationConfig::default()
            };
            engine.add(config).unwrap();
        }
        Run {
            engine,
            log: Log::default(),
        }
    }

    /// A datagram of each of these ports, at this second.
    fn see(&mut self, second: u64, ports: &[u16]) {
        self.log.now = second;
        let frames: Vec<Vec<u8>> = ports.iter().map(|&port| datagram(port)).collect();
        let mut packets = Vec::new();
        let mut offset = 0;
        for frame in &frames {
            let len = frame.len() as u32;
            packets.push(PacketDescriptor {
                time: Nanos::from_secs(second),
                offset,
                captured_len: len,
                wire_len: len,
                link: LinkType::ETHERNET,
                ..PacketDescriptor::default()
            });
            offset += len;
        }
        let memory = frames.concat();
        self.engine.process(
            &Batch::new(&memory, &packets),
            &mut self.log as &mut dyn Events,
        );
    }

    /// Lets time pass without packets, second by second.
    fn pass(&mut self, until: u64) {
        while self.log.now < until {
            self.log.now += 1;
            let mut batch = Batch::new(&[], &[]);
            batch.now = Some(Nanos::from_secs(self.log.now));
            self.engine
                .process(&batch, &mut self.log as &mut dyn Events);
        }
    }

    /// Asserts who ended and, to some ticks, when.
    fn assert_ended(&mut self, expected: &[(u8, u16, u64)]) {
        let mut ended = std::mem::take(&mut self.log.ended);
        let place =
            |of: u8, port: u16| expected.iter().position(|one| (one.0, one.1) == (of, port));
        ended.sort_by_key(|&(of, port, ..)| place(of, port));
        let found: Vec<_> = ended.iter().map(|&(of, port, ..)| (of, port)).collect();
        let wanted: Vec<_> = expected.iter().map(|&(of, port, _)| (of, port)).collect();
        assert_eq!(found, wanted, "{ended:?}");
        for (&(.., at, status), &(.., wanted)) in ended.iter().zip(expected) {
            assert_eq!(status, StreamStatus::Timeout);
            assert!((wanted..=wanted + LATE).contains(&at), "{ended:?}");
        }
    }

    fn set(&mut self, application: u8, port: u16, timeout: Option<u64>) {
        let uid = self.log.uids[&port];
        let timeout = timeout.map(Nanos::from_secs);
        let command = Command::SetParameter(Parameter::InactivityTimeout(timeout));
        assert!(
            self.engine
                .command(uid, ApplicationId(application), command)
        );
    }
}

/// From a client's port to a server's.
fn datagram(port: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0x80, 0, 0, 12, 0, 0]);
    frame.extend(*b"data");
    frame
}

#[test]
fn the_flow_tables_timeouts_hold_where_nobody_says_otherwise() {
    let mut run = Run::new(&[None]);
    run.see(100, &[1]);
    run.pass(170);
    run.assert_ended(&[(0, 1, 160)]);
}

#[test]
fn an_application_has_a_timeout_which_can_be_changed_at_any_time() {
    let mut run = Run::new(&[Some(10)]);
    run.see(100, &[1]);
    run.pass(105);
    run.see(105, &[2]);
    run.pass(120);
    run.assert_ended(&[(0, 1, 110), (0, 2, 115)]);
    // Of streams that are there already, too.
    run.see(120, &[3]);
    run.pass(122);
    let timeout =
        |timeout| move |wanted: &mut ApplicationConfig| wanted.inactivity_timeout = timeout;
    assert!(
        run.engine
            .change(ApplicationId(0), timeout(Some(Nanos::from_secs(30))))
    );
    run.pass(160);
    run.assert_ended(&[(0, 3, 150)]);
    run.see(160, &[4]);
    run.pass(170);
    assert!(
        run.engine
            .change(ApplicationId(0), timeout(Some(Nanos::from_secs(5))))
    );
    run.pass(175);
    run.assert_ended(&[(0, 4, 170)]);
    assert!(!run.engine.change(ApplicationId(1), |_| {}));
}

#[test]
fn of_several_applications_the_most_patient_decides() {
    let mut run = Run::new(&[Some(5), Some(20)]);
    run.see(100, &[1]);
    run.pass(130);
    run.assert_ended(&[(0, 1, 120), (1, 1, 120)]);
    // It goes, and with it its patience; what it said of single streams, too.
    run.see(130, &[2, 3]);
    run.set(1, 3, Some(100));
    run.engine.remove(ApplicationId(1));
    run.pass(145);
    run.assert_ended(&[(0, 2, 135), (0, 3, 135)]);
    // Whoever says nothing wants the flow table's.
    run.engine.add(ApplicationConfig::default()).unwrap();
    run.see(150, &[4]);
    run.pass(220);
    run.assert_ended(&[(0, 4, 210), (1, 4, 210)]);
}

#[test]
fn streams_have_timeouts_of_their_own() {
    let mut run = Run::new(&[Some(20)]);
    let seconds = Nanos::from_secs;
    run.log.wanted = BTreeMap::from([((0, 1), seconds(5)), ((0, 2), seconds(40))]);
    run.see(100, &[1, 2, 3]);
    run.pass(104);
    run.see(104, &[1]);
    run.pass(150);
    run.assert_ended(&[(0, 1, 109), (0, 3, 120), (0, 2, 140)]);
    // The next stream of the same hosts has nothing of it.
    run.log.wanted.clear();
    run.see(150, &[1, 2]);
    run.pass(190);
    assert_eq!(run.log.ended.len(), 2);
    run.log.ended.clear();
    // Changed twice, and taken back.
    run.see(200, &[4, 5]);
    run.set(0, 4, Some(100));
    run.set(0, 4, Some(50));
    run.set(0, 5, Some(100));
    run.pass(210);
    run.set(0, 5, None);
    run.pass(270);
    run.assert_ended(&[(0, 5, 220), (0, 4, 250)]);
    // Less than a second is a second.
    run.log.wanted = BTreeMap::from([((0, 6), Nanos(1))]);
    run.see(300, &[6]);
    run.see(301, &[6]);
    run.pass(310);
    run.assert_ended(&[(0, 6, 302)]);
}

#[test]
fn a_stream_lives_as_long_as_any_application_wants() {
    let mut run = Run::new(&[Some(20), Some(10)]);
    let seconds = Nanos::from_secs;
    run.log.wanted = BTreeMap::from([
        ((0, 1), seconds(5)),
        ((0, 2), seconds(5)),
        ((1, 2), seconds(30)),
        ((1, 3), seconds(2)),
    ]);
    run.see(100, &[1, 2, 3]);
    run.pass(140);
    run.assert_ended(&[
        (0, 1, 110),
        (1, 1, 110),
        (0, 3, 120),
        (1, 3, 120),
        (0, 2, 130),
        (1, 2, 130),
    ]);
}

/// Takes chunks while there is memory, and holds on to them.
#[derive(Debug, Default)]
struct Hoard {
    held: Vec<flowgauge_stream::engine::OwnedChunk>,
    lost: u64,
    taken: u64,
    dropped: (u64, u64),
    all: (u64, u64),
}

impl Events for Hoard {
    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let bytes = chunk.new_bytes().len() as u64;
        match chunk.take() {
            Ok(chunk) => {
                self.taken += bytes;
                self.held.push(chunk);
            }
            Err(_) => self.lost += bytes,
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let statistics = stream.statistics();
        self.dropped.0 += statistics.dropped.packets;
        self.dropped.1 += statistics.dropped.bytes;
        self.all.0 += statistics.all.packets;
        self.all.1 += statistics.all.bytes;
    }
}

#[test]
fn packets_of_chunks_without_memory_count_as_dropped() {
    for chunk_bytes in [0, 4, 8] {
        let mut engine = Engine::new(EngineConfig {
            shard: ShardConfig {
                checksums: ChecksumPolicy::Ignore,
                ..ShardConfig::default()
            },
            memory_bytes: 64 << 10,
            base_threshold: 1.0,
            ..EngineConfig::default()
        });
        let config = ApplicationConfig {
            chunk_bytes,
            ..ApplicationConfig::default()
        };
        engine.add(config).unwrap();
        let mut hoard = Hoard::default();
        let frame = datagram(7);
        for micros in 0..20_000 {
            let packet = PacketDescriptor {
                time: Nanos::from_micros(1_000_000 + micros),
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                link: LinkType::ETHERNET,
                ..PacketDescriptor::default()
            };
            engine.process(
                &Batch::new(&frame, &[packet]),
                &mut hoard as &mut dyn Events,
            );
        }
        engine.finish(&mut hoard as &mut dyn Events);
        let statistics = engine.statistics();
        assert!(hoard.lost != 0 && hoard.taken != 0, "{hoard:?}");
        // Each packet has four bytes.
        assert_eq!(hoard.dropped, (hoard.lost / 4, hoard.lost), "{chunk_bytes}");
        assert_eq!(hoard.all, (20_000, 80_000));
        let dropped = (statistics.dropped.packets, statistics.dropped.bytes);
        assert_eq!(dropped, hoard.dropped);
        let captured = statistics.captured();
        assert_eq!(captured.packets, hoard.taken / 4);
        assert_eq!(captured.bytes, hoard.taken);
    }
}
