//! What clients ask for: they do not wait for the service, which may wait for them, and it holds for what is under way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_generate::{Config, Preset};
use flowgauge_runtime::shared::{Application, EventKind, Next};
use flowgauge_runtime::{Chunk, Control, Cores, Handlers, StreamHandle, stream_filter};
use flowgauge_stream::engine::{
    ApplicationId, ChunkFlags, Cutoff, Mode, StreamFilter, StreamSnapshot,
};

use crate::shared_support::feed::{Shared, everything};
use crate::shared_support::{LIMIT, datagrams, packets_of, smaller, trace, trace_of};

/// Streams that are open when the input is over: many times the events that a small client's ring has.
const STREAMS: u32 = 8000;

/// Asks for something with each event.
#[derive(Clone)]
struct Asking(u8);

impl Handlers for Asking {
    fn data(&mut self, stream: &mut StreamHandle<'_>, _: &mut Chunk<'_>) {
        self.0 = self.0.wrapping_add(1);
        stream.set_priority(self.0 % 2);
    }
}

/// All chunks come at the end, when the service waits for clients that are slow: what they ask for meanwhile keeps
/// neither from going on.
#[test]
fn what_is_asked_for_at_the_end_costs_nothing() {
    let mut shared = Shared::start();
    let client = || {
        shared.join(&Application {
            memory_bytes: 1 << 20,
            ..everything()
        })
    };
    let (one, three) = (client(), client());
    let control = Control::default();
    let outcomes = thread::scope(|scope| {
        let running = [
            scope.spawn(|| one.run(&mut Asking(0), &control)),
            scope.spawn(|| three.run_on_workers(3, &Cores::any(), |_| Asking(0), &control)),
        ];
        for portion in smaller(&[datagrams(STREAMS)], 256) {
            shared.feed_one(&portion);
            shared.wait_until("they have read", |status| {
                status.clients.iter().all(|client| client.waiting == 0)
            });
        }
        shared.end();
        running.map(|one| one.join().unwrap())
    });
    for (outcome, end) in outcomes {
        assert!(end.unwrap_err().to_string().contains("the input is over"));
        assert_eq!(outcome.lost.chunks, 0, "{:?}", outcome.lost);
        let total = outcome.total();
        assert!(total.created >= STREAMS.into(), "{total:?}");
        assert_eq!(total.created, total.terminated);
        assert_eq!(total.chunks, u64::from(STREAMS));
    }
    shared.ledger();
}

/// Wants nothing more after the first chunk.
#[derive(Clone, Default)]
struct Content {
    bytes: Arc<AtomicU64>,
    chunks: Arc<AtomicU64>,
}

impl Handlers for Content {
    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        assert_eq!(stream.chunks(), 1);
        let bytes = chunk.new_bytes().len() as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.chunks.fetch_add(1, Ordering::Relaxed);
        stream.discard();
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        assert!(stream.chunks() <= 1);
    }
}

/// Everything was under way when it was not wanted any more.
#[test]
fn what_came_too_late_is_discarded() {
    let portions = trace(Preset::Elephants, 0.01);
    let application = Application {
        chunk_bytes: 4000,
        overlap_bytes: 100,
        ..everything()
    };
    for workers in [0, 2] {
        let shared = Shared::start();
        let client = shared.join(&application);
        shared.feed_through(&portions, packets_of(&portions));
        let control = Control::default();
        control.stop();
        let content = Content::default();
        let made = content.clone();
        let (outcome, end) = match workers {
            0 => client.run(&mut content.clone(), &control),
            _ => client.run_on_workers(workers, &Cores::any(), move |_| made.clone(), &control),
        };
        end.unwrap();
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        let total = outcome.total();
        let handled = |of: fn(&flowgauge_runtime::WorkerStatistics) -> u64| {
            outcome.workers.iter().map(of).sum::<u64>()
        };
        let passed = handled(|worker| worker.passed_bytes);
        let (bytes, chunks) = (&content.bytes, &content.chunks);
        let captured = total.captured().bytes - passed;
        assert_eq!(captured, bytes.load(Ordering::Relaxed));
        if workers == 0 {
            assert_eq!(total.chunks, chunks.load(Ordering::Relaxed));
        }
        assert!(total.discarded.bytes + passed > total.all.bytes / 2);
        shared.ledger();
    }
}

/// Bytes behind the first chunk that are wanted.
const WANTED: u64 = 700;

/// Wants a little more than the first chunk, with or without that one before it.
#[derive(Clone)]
struct Cutting {
    keeps: bool,
    cut: Arc<AtomicU64>,
}

impl Handlers for Cutting {
    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let (len, holes) = (chunk.bytes().len() as u32, chunk.holes());
        for hole in &holes {
            assert!(hole.start < hole.end && hole.end <= len, "{hole:?} {len}");
        }
        assert_eq!(chunk.flags().contains(ChunkFlags::HOLE), !holes.is_empty());
        if chunk.offset() == 0 && !chunk.flags().contains(ChunkFlags::KEPT) {
            stream.set_cutoff(Cutoff(u64::from(len) + WANTED));
            if self.keeps {
                stream.keep_chunk();
            }
        } else if chunk.flags().contains(ChunkFlags::CUTOFF) {
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn holes_are_within_what_is_left_of_a_chunk() {
    let mut config = Config::new(Preset::Elephants).scaled(0.01);
    config.missing = 0.05;
    let portions = trace_of(&config);
    let application = Application {
        mode: Mode::Fast,
        ..everything()
    };
    for (workers, keeps) in [(0, false), (0, true), (2, false), (2, true)] {
        let shared = Shared::start();
        let (client, mut whole) = (shared.join(&application), shared.join(&application));
        shared.feed_through(&portions, packets_of(&portions));
        let control = Control::default();
        control.stop();
        let cutting = Cutting {
            keeps,
            cut: Arc::default(),
        };
        let made = cutting.clone();
        let (outcome, end) = match workers {
            0 => client.run(&mut cutting.clone(), &control),
            _ => client.run_on_workers(workers, &Cores::any(), move |_| made.clone(), &control),
        };
        end.unwrap();
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        assert!(cutting.cut.load(Ordering::Relaxed) > 0);
        // Who wants everything sees holes behind that.
        whole.leave();
        let mut behind = 0;
        loop {
            match whole.next_event(Some(LIMIT)).unwrap() {
                Next::Event(event) => {
                    let is_second = event.stream.snapshot().chunks == 2;
                    if let EventKind::Data(chunk) = &event.kind
                        && is_second
                    {
                        behind += chunk
                            .holes()
                            .filter(|hole| u64::from(hole.end) > WANTED)
                            .count();
                    }
                }
                Next::Idle => panic!("nothing happens"),
                Next::End(_) => break,
            }
        }
        assert!(behind > 0);
        shared.ledger();
    }
}

/// A change that is out of bounds changes nothing, and those that come later still do.
#[test]
fn changes_that_cannot_be_are_counted() {
    struct First(bool);
    impl Handlers for First {
        fn created(&mut self, stream: &mut StreamHandle<'_>) {
            self.0 |= stream.cutoff() == Cutoff(77);
        }
    }
    let portions = trace(Preset::Mix, 0.002);
    let shared = Shared::start();
    let client = shared.join(&everything());
    let control = Control::default();
    let own = ApplicationId(0);
    assert!(control.change(own, |wanted| wanted.chunk_bytes = 1 << 30));
    assert!(control.change(own, |wanted| wanted.cutoff.default = Cutoff(77)));
    let mut handlers = First(false);
    let (outcome, end) = thread::scope(|scope| {
        let running = scope.spawn(|| client.run(&mut handlers, &control));
        while control.progress().lost.commands == 0 {
            thread::yield_now();
        }
        // The service answers behind what it was told before.
        shared.status();
        shared.feed_through(&portions, packets_of(&portions));
        control.stop();
        running.join().unwrap()
    });
    end.unwrap();
    assert_eq!(outcome.lost.commands, 1);
    assert!(handlers.0);
    shared.ledger();
}

/// Classes and the filter can be changed while a shared capture runs, as those of a private one: they hold for streams
/// that begin then.
#[test]
fn classes_and_filter_change_for_streams_to_come() {
    #[derive(Default)]
    struct Begun(Arc<Mutex<Vec<StreamSnapshot>>>);
    impl Handlers for Begun {
        fn created(&mut self, stream: &mut StreamHandle<'_>) {
            self.0.lock().unwrap().push(stream.snapshot());
        }
    }
    let portions = trace(Preset::Mix, 0.004);
    let half = portions.len() / 2;
    let shared = Shared::start();
    let mut client = shared.join(&Application {
        cutoff_classes: vec![("tcp".to_owned(), Cutoff(9000))],
        ..everything()
    });
    let other = shared.join(&everything());
    let refused = client.change(|wanted| wanted.filter = Some(StreamFilter::new(|_| true)));
    assert!(refused.unwrap_err().to_string().contains("an expression"));
    let too_many = client.change(|wanted| {
        wanted.cutoff.classes = vec![(stream_filter("udp").unwrap(), Cutoff(1)); 65];
    });
    assert!(too_many.is_err());
    let begun = Begun::default();
    let streams = Arc::clone(&begun.0);
    let (mut handlers, control, own) = (begun, Control::default(), ApplicationId(0));
    let (outcome, end) = thread::scope(|scope| {
        let running = scope.spawn(|| client.run(&mut handlers, &control));
        shared.feed_through(&portions[..half], packets_of(&portions[..half]));
        let (udp, port) = (
            stream_filter("udp").unwrap(),
            stream_filter("port 53").unwrap(),
        );
        assert!(control.change(own, move |wanted| {
            // Behind the class that is there.
            wanted.cutoff.classes.push((udp.clone(), Cutoff(7)));
            wanted.priority.classes = vec![(port.clone(), 9)];
            wanted.filter = Some(stream_filter("not port 443").unwrap());
        }));
        assert!(control.change(own, |wanted| wanted.filter =
            Some(StreamFilter::new(|_| true))));
        while control.progress().lost.commands == 0 {
            thread::yield_now();
        }
        // The service answers behind what it was told before.
        shared.status();
        shared.feed_through(&portions[half..], packets_of(&portions));
        control.stop();
        running.join().unwrap()
    });
    end.unwrap();
    assert_eq!(outcome.lost.commands, 1);
    let streams = streams.lock().unwrap();
    let change = portions[half].packets[0].time;
    let (before, after): (Vec<_>, Vec<_>) =
        (streams.iter().copied()).partition(|one| one.identity.start < change);
    let has = |stream: &StreamSnapshot, port: u16| {
        stream.identity.source.1 == port || stream.identity.destination.1 == port
    };
    assert!(before.iter().any(|one| has(one, 443)));
    for one in &before {
        let expected = match one.identity.protocol {
            6 => Cutoff(9000),
            _ => Cutoff::UNLIMITED,
        };
        assert_eq!((one.cutoff, one.priority), (expected, 0), "{one:?}");
    }
    let mut important = 0;
    for one in &after {
        let expected = match one.identity.protocol {
            6 => Cutoff(9000),
            17 => Cutoff(7),
            _ => Cutoff::UNLIMITED,
        };
        let priority = if has(one, 53) { 9 } else { 0 };
        assert_eq!((one.cutoff, one.priority), (expected, priority), "{one:?}");
        assert!(!has(one, 443), "{one:?}");
        important += u64::from(priority);
    }
    assert!(after.len() > 100 && important > 0, "{}", after.len());
    drop(other);
    shared.ledger();
}

/// More than fits in a packet of the socket, as long as it is not more than the sensor takes.
#[test]
fn long_filters_travel_in_parts() {
    let shared = Shared::start();
    let hosts = |net: usize, count: usize| {
        let hosts = (0..count).map(|at| format!("host 10.{net}.{}.{}", at / 250, at % 250));
        hosts.collect::<Vec<_>>().join(" or ")
    };
    let classes = |count: usize| -> Vec<(String, Cutoff)> {
        let nets = 0..64;
        nets.map(|net| (hosts(net, count), Cutoff(net as u64)))
            .collect()
    };
    let long = Application {
        cutoff_classes: classes(64),
        ..everything()
    };
    let bytes: usize = long.cutoff_classes.iter().map(|(text, _)| text.len()).sum();
    assert!(bytes > 64 << 10, "{bytes}");
    let mut client = shared.join(&long);
    let mut refused = 0;
    for (count, is_refused) in [(72, false), (370, true), (0, false)] {
        client
            .change(|wanted| {
                let classes = classes(count).into_iter().filter(|it| !it.0.is_empty());
                let classes = classes.map(|(text, cutoff)| (stream_filter(&text).unwrap(), cutoff));
                wanted.cutoff.classes = classes.collect();
            })
            .unwrap();
        refused += u64::from(is_refused);
        // What finds no room in the socket goes on its way while events are taken.
        let refused_now = || shared.status().clients[0].statistics.refused_commands;
        let since = Instant::now();
        while refused_now() < refused && since.elapsed() < LIMIT {
            assert!(matches!(
                client.next_event(Some(Duration::ZERO)),
                Ok(Next::Idle)
            ));
        }
        assert_eq!(refused_now(), refused, "{count}");
    }
    let refused = shared.connect(&Application {
        cutoff_classes: classes(370),
        ..everything()
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("instructions"), "{refused}");
    drop(client);
    shared.ledger();
}
