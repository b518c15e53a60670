//! Packets beside the chunks of a shared capture: those who ask get what an engine of their own gives, those who do
//! not get nothing of them, and pay for none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{Application, Client, EventKind};
use flowgauge_runtime::{Chunk, Control, Cores, Handlers, StreamHandle};
use flowgauge_stream::engine::{
    ApplicationId, ChunkPacket, Cutoff, DataChunk, Engine, EngineConfig, Events, Mode, StreamRef,
    StreamSnapshot,
};

use crate::shared_support::feed::{Shared, everything};
use crate::shared_support::{
    Portion, alone, configuration, each_event, listen, packets_of, same, smaller, trace,
};

/// The packets of each stream, in their order, with the position of their chunk.
#[derive(Default)]
struct Packets(BTreeMap<String, Vec<String>>);

impl Packets {
    fn take<'a>(
        &mut self,
        stream: &StreamSnapshot,
        offset: u64,
        packets: impl ExactSizeIterator<Item = ChunkPacket<'a>>,
    ) {
        let who = format!("{:?} {}", stream.identity, stream.from_initiator);
        let list = self.0.entry(who).or_default();
        let count = packets.len();
        let before = list.len();
        list.extend(packets.map(|packet| format!("{offset} {packet:?}")));
        assert_eq!(list.len() - before, count);
    }

    fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

impl Events for Packets {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let snapshot = stream.snapshot();
        self.take(&snapshot, chunk.offset(), chunk.packets());
    }
}

/// What an engine of its own gives the application.
fn packets_alone(application: &Application, portions: &[Portion]) -> Packets {
    let mut engine = Engine::new(EngineConfig {
        need_packets: true,
        ..EngineConfig::default()
    });
    engine.add(configuration(application)).unwrap();
    let mut packets = Packets::default();
    for portion in portions {
        engine.process(&portion.batch(), &mut packets);
    }
    engine.finish(&mut packets);
    packets
}

/// All of a client's, until its end.
fn packets_of_client(client: &mut Client) -> Packets {
    let mut packets = Packets::default();
    each_event(client, |event| {
        if let EventKind::Data(chunk) = &event.kind {
            let offset = chunk.info().offset;
            packets.take(event.stream.snapshot(), offset, chunk.packets());
        }
    });
    packets
}

fn same_packets(got: &Packets, expected: &Packets) {
    for (who, packets) in &expected.0 {
        let got = got.0.get(who).map_or(&[][..], Vec::as_slice);
        for (one, other) in got.iter().zip(packets) {
            assert_eq!(one, other, "{who}");
        }
        assert_eq!(got.len(), packets.len(), "{who}");
    }
    assert_eq!(got.0.len(), expected.0.len());
}

fn wanting(application: Application) -> Application {
    Application {
        need_packets: true,
        ..application
    }
}

#[test]
fn those_who_ask_get_what_they_would_get_alone() {
    let portions = trace(Preset::Mix, 0.002);
    let asking = [
        everything(),
        Application {
            filter: "tcp port 80".to_owned(),
            chunk_bytes: 1000,
            overlap_bytes: 100,
            ..everything()
        },
        Application {
            filter: "udp or icmp".to_owned(),
            mode: Mode::Fast,
            ..everything()
        },
        Application {
            cutoff: Cutoff(700),
            chunk_bytes: 0,
            ..everything()
        },
    ]
    .map(wanting);
    let plain = [
        everything(),
        Application {
            cutoff: Cutoff(700),
            chunk_bytes: 0,
            ..everything()
        },
    ];
    let mut shared = Shared::start();
    let start = |application: &Application| shared.join(application);
    let clients: Vec<Client> = asking.iter().map(start).collect();
    let others: Vec<Client> = plain.iter().map(start).collect();
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || (packets_of_client(&mut client), client.statistics().0))
        })
        .collect();
    let plain_readers: Vec<_> = others
        .into_iter()
        .map(|mut client| std::thread::spawn(move || listen(&mut client)))
        .collect();
    shared.feed(&portions);
    shared.end();
    for (application, reader) in asking.iter().zip(readers) {
        let (got, statistics) = reader.join().unwrap();
        let expected = packets_alone(application, &portions);
        assert!(expected.count() > 100, "{}", expected.count());
        assert!(statistics.is_complete(), "{statistics:?}");
        same_packets(&got, &expected);
    }
    // Chunks of those who did not are what they would be if nobody had asked.
    for (application, reader) in plain.iter().zip(plain_readers) {
        same(&reader.join().unwrap(), &alone(application, &portions));
    }
    shared.ledger();
}

#[test]
fn threads_get_packets_too() {
    struct Taker(Arc<Mutex<Packets>>);
    impl Handlers for Taker {
        fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
            let mut packets = self.0.lock().unwrap();
            packets.take(&stream.snapshot(), chunk.offset(), chunk.packets());
        }
    }
    let portions = trace(Preset::Mix, 0.002);
    let shared = Shared::start();
    let control = Control::default();
    let application = wanting(everything());
    let running = [0, 3].map(|workers| {
        let (client, control) = (shared.join(&application), control.clone());
        let seen = Arc::<Mutex<Packets>>::default();
        let taker = Arc::clone(&seen);
        let thread = std::thread::spawn(move || match workers {
            0 => client.run(&mut Taker(taker), &control).1,
            _ => {
                let make = move |_| Taker(Arc::clone(&taker));
                client
                    .run_on_workers(workers, &Cores::any(), make, &control)
                    .1
            }
        });
        (thread, seen)
    });
    shared.feed_through(&portions, packets_of(&portions));
    control.stop();
    let expected = packets_alone(&application, &portions);
    for (thread, seen) in running {
        thread.join().unwrap().unwrap();
        same_packets(&seen.lock().unwrap(), &expected);
    }
    shared.ledger();
}

#[test]
fn packets_are_in_the_account_of_those_who_ask() {
    let portions = trace(Preset::Mix, 0.001);
    let (one, two) = (Shared::start(), Shared::start());
    let mut clients = vec![
        one.join(&everything()),
        two.join(&everything()),
        two.join(&wanting(everything())),
    ];
    for shared in [&one, &two] {
        shared.feed_through(&portions, packets_of(&portions));
    }
    // Nobody has read anything yet.
    let (first, second) = (one.status(), two.status());
    let held = |at: usize| second.clients[at].held;
    assert!(first.clients[0].held > 1 << 20);
    assert_eq!(held(0), first.clients[0].held);
    assert!(
        held(1) > held(0) + (held(0) >> 4),
        "{} {}",
        held(1),
        held(0)
    );
    assert_eq!(second.pool_in_use, held(0) + held(1));
    for client in &mut clients {
        client.leave();
    }
    for client in &mut clients[..2] {
        each_event(client, |event| {
            if let EventKind::Data(chunk) = &event.kind {
                assert_eq!(chunk.packets().len(), 0);
                assert!(!chunk.bytes().is_empty());
            }
        });
    }
    packets_of_client(&mut clients[2]);
    for shared in [one, two] {
        shared.wait_until("all is read", |status| status.pool_in_use == 0);
        shared.ledger();
    }
}

/// Who asks comes and goes while others are there, who notice nothing.
#[test]
fn others_do_not_notice_who_comes_and_goes() {
    let portions = smaller(&trace(Preset::Mix, 0.002), 64);
    let mut shared = Shared::start();
    let mut staying = shared.join(&everything());
    let reader = std::thread::spawn(move || listen(&mut staying));
    let mut seen = 0;
    for (number, portion) in portions.iter().enumerate() {
        if number % 10 == 3 {
            let mut passing = shared.join(&wanting(everything()));
            shared.feed_one(portion);
            if number % 20 == 3 {
                passing.leave();
                seen += packets_of_client(&mut passing).count();
            }
        } else {
            shared.feed_one(portion);
        }
    }
    shared.end();
    assert!(seen > 10, "{seen}");
    same(&reader.join().unwrap(), &alone(&everything(), &portions));
    shared.ledger();
}
