//! Clients of a shared capture with threads of their own: the same streams and bytes as from an engine of one's
//! own, each connection on one thread, and what is slow or fails there harms nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Instant;

use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{Application, Client, Error};
use flowgauge_runtime::{Chunk, Control, Cores, Handlers, Outcome, StreamHandle};
use flowgauge_stream::engine::{ChunkFlags, Cutoff, Mode};

use crate::shared_support::feed::{Shared, everything};
use crate::shared_support::{Stories, Story, Who, alone, listen, packets_of, same, trace};

const WORKERS: usize = 4;

/// What the threads of one client have seen.
#[derive(Clone, Default)]
struct Seen {
    stories: Arc<Mutex<Stories>>,
    /// Where each connection lives.
    places: Arc<Mutex<BTreeMap<u64, ThreadId>>>,
}

struct Teller(Seen);

impl Teller {
    fn here(&self, stream: &StreamHandle<'_>) {
        let connection = stream.uid().min(stream.opposite_uid());
        let here = thread::current().id();
        let mut places = self.0.places.lock().unwrap();
        assert_eq!(*places.entry(connection).or_insert(here), here);
    }
}

impl Handlers for Teller {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        self.here(stream);
        assert_eq!(stream.user_state(), 0);
        stream.set_user_state(1);
        self.0.stories.lock().unwrap().created(&stream.snapshot());
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        self.here(stream);
        // In the order in which they came.
        assert_eq!(stream.user_state(), stream.chunks());
        stream.set_user_state(stream.chunks() + 1);
        let mut stories = self.0.stories.lock().unwrap();
        stories.data(&stream.snapshot(), chunk.offset(), chunk.bytes());
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        self.here(stream);
        assert_eq!(stream.user_state(), stream.chunks() + 1);
        self.0
            .stories
            .lock()
            .unwrap()
            .terminated(&stream.snapshot());
    }
}

type Ended = (Outcome, Result<(), Error>);

fn run<H: Handlers + 'static>(
    client: Client,
    control: &Control,
    make: impl FnMut(usize) -> H + Send + 'static,
) -> JoinHandle<Ended> {
    let control = control.clone();
    thread::spawn(move || client.run_on_workers(WORKERS, &Cores::any(), make, &control))
}

fn finished(seen: &Seen) -> BTreeMap<Who, Story> {
    core::mem::take(&mut *seen.stories.lock().unwrap()).finish()
}

#[test]
fn each_client_gets_on_its_threads_what_it_would_get_alone() {
    let portions = trace(Preset::Mix, 0.002);
    let applications = [
        everything(),
        Application {
            filter: "tcp".to_owned(),
            chunk_bytes: 1000,
            overlap_bytes: 100,
            ..everything()
        },
        Application {
            // (What was wrong with a stream is said of it as others have it, too.)
            filter: "udp".to_owned(),
            mode: Mode::Fast,
            cutoff: Cutoff(5000),
            ..everything()
        },
    ];
    let shared = Shared::start();
    let control = Control::default();
    let running: Vec<_> = applications
        .iter()
        .map(|application| {
            let seen = Seen::default();
            let tellers = seen.clone();
            let make = move |_| Teller(tellers.clone());
            (run(shared.join(application), &control, make), seen)
        })
        .collect();
    let packets = packets_of(&portions);
    shared.feed_through(&portions, packets);
    control.stop();
    for (application, (thread, seen)) in applications.iter().zip(running) {
        let (outcome, end) = thread.join().unwrap();
        end.unwrap();
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        let expected = alone(application, &portions);
        same(&finished(&seen), &expected);
        let places = seen.places.lock().unwrap();
        let threads: BTreeSet<String> = places.values().map(|place| format!("{place:?}")).collect();
        assert_eq!(threads.len(), WORKERS);
        // Counters of the client and of its threads say the same.
        let total = outcome.total();
        let sum = |of: fn(&Story) -> u64| expected.values().map(of).sum::<u64>();
        assert_eq!(outcome.workers.len(), WORKERS);
        let chunks = outcome.workers.iter().map(|worker| worker.chunks);
        assert_eq!(chunks.sum::<u64>(), sum(|story| story.chunks));
        assert_eq!(total.chunks, sum(|story| story.chunks));
        assert_eq!(total.chunk_bytes, sum(|story| story.bytes));
        let streams = expected.len() as u64;
        assert_eq!((total.created, total.terminated), (streams, streams));
        assert_eq!(outcome.lost.chunks, 0);
        assert!(outcome.ledger.is_balanced());
    }
    shared.wait_until("all is read", |status| status.pool_in_use == 0);
    shared.ledger();
}

/// What a handler asks for holds at once, and gets to the service.
#[test]
fn a_thread_discards_and_keeps() {
    struct Keeper {
        joined: Arc<AtomicU64>,
        bytes: Arc<AtomicU64>,
        /// Nanoseconds that each stream took here, or less.
        busy: BTreeMap<u64, u64>,
    }
    impl Handlers for Keeper {
        fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
            // So long that every clock notices it.
            let began = Instant::now();
            while began.elapsed().is_zero() {}
            *self.busy.entry(stream.uid()).or_default() += began.elapsed().as_nanos() as u64;
            let fresh = chunk.new_bytes().len() as u64;
            self.bytes.fetch_add(fresh, Ordering::Relaxed);
            if chunk.flags().contains(ChunkFlags::KEPT) {
                assert!(chunk.bytes().len() > 1000);
                assert_eq!(chunk.offset(), 0);
                self.joined.fetch_add(1, Ordering::Relaxed);
                return stream.discard();
            }
            assert_eq!(chunk.offset(), 0, "nothing comes behind a discard");
            stream.keep_chunk();
        }
        fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
            let busy = self.busy.remove(&stream.uid()).unwrap_or_default();
            assert_eq!(busy == 0, stream.chunks() == 0);
            assert!(stream.processing_time() >= busy);
        }
    }
    let portions = trace(Preset::Elephants, 0.01);
    let application = Application {
        filter: "tcp".to_owned(),
        chunk_bytes: 1000,
        ..everything()
    };
    let expected = alone(&application, &portions);
    let shared = Shared::start();
    let control = Control::default();
    let (joined, bytes) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (joins, counts) = (Arc::clone(&joined), Arc::clone(&bytes));
    let running = run(shared.join(&application), &control, move |_| Keeper {
        joined: Arc::clone(&joins),
        bytes: Arc::clone(&counts),
        busy: BTreeMap::new(),
    });
    shared.feed_through(&portions, packets_of(&portions));
    control.stop();
    let (outcome, end) = running.join().unwrap();
    end.unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let long = expected.values().filter(|story| story.chunks > 1).count();
    assert!(long > 5, "{long}");
    assert_eq!(joined.load(Ordering::Relaxed), long as u64);
    let some: u64 = expected.values().map(|story| story.bytes.min(2000)).sum();
    assert_eq!(bytes.load(Ordering::Relaxed), some);
    shared.ledger();
}

/// One thread that does not go on: its client loses events, nobody else does, and it ends when it is let.
#[test]
fn a_slow_thread_costs_its_own_client_only() {
    struct Slow(Arc<AtomicBool>, Arc<AtomicU64>);
    impl Handlers for Slow {
        fn data(&mut self, _: &mut StreamHandle<'_>, _: &mut Chunk<'_>) {
            while !self.0.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let portions = trace(Preset::Mix, 0.004);
    let shared = Shared::start();
    let mut quick = shared.join(&everything());
    let slow = shared.join(&Application {
        memory_bytes: 1 << 20,
        name: "slow".to_owned(),
        ..everything()
    });
    let control = Control::default();
    let (go, chunks) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (waits, counts) = (Arc::clone(&go), Arc::clone(&chunks));
    let running = run(slow, &control, move |_| {
        Slow(Arc::clone(&waits), Arc::clone(&counts))
    });
    let reader = thread::spawn(move || listen(&mut quick));
    shared.feed_through(&portions, packets_of(&portions));
    let status = shared.status();
    let named = status.clients.iter().find(|one| one.name == "slow");
    let named = named.unwrap();
    assert!(named.held <= 1 << 20, "{named:?}");
    assert!(!named.statistics.is_complete());
    go.store(true, Ordering::Relaxed);
    control.stop();
    let (outcome, end) = running.join().unwrap();
    end.unwrap();
    let whole: u64 = alone(&everything(), &portions)
        .values()
        .map(|story| story.chunks)
        .sum();
    assert!(outcome.lost.chunks > 0);
    assert_eq!(chunks.load(Ordering::Relaxed) + outcome.lost.chunks, whole);
    shared.wait_until("all is read", |status| status.clients.len() == 1);
    shared.ledger();
    same(&reader.join().unwrap(), &alone(&everything(), &portions));
}

#[test]
fn a_handler_that_panics_ends_its_client() {
    struct Fails;
    impl Handlers for Fails {
        fn data(&mut self, _: &mut StreamHandle<'_>, _: &mut Chunk<'_>) {
            panic!("enough");
        }
    }
    let portions = trace(Preset::Mix, 0.001);
    let shared = Shared::start();
    let mut other = shared.join(&everything());
    let control = Control::default();
    let running = run(shared.join(&everything()), &control, |_| Fails);
    shared.feed_through(&portions, packets_of(&portions));
    let (outcome, end) = running.join().unwrap();
    end.unwrap();
    let failures = outcome.failures.iter();
    let told: Vec<String> = failures.map(|(_, failure)| failure.to_string()).collect();
    assert!(
        !told.is_empty() && told.iter().all(|one| one.contains("enough")),
        "{told:?}"
    );
    shared.wait_until("it is gone", |status| status.clients.len() == 1);
    shared.ledger();
    same(&listen(&mut other), &alone(&everything(), &portions));
}

#[test]
fn threads_are_on_the_cores_that_are_given() {
    struct Where(Arc<Mutex<BTreeSet<Vec<usize>>>>);
    impl Handlers for Where {
        fn created(&mut self, _: &mut StreamHandle<'_>) {
            let mut seen = self.0.lock().unwrap();
            seen.insert(flowgauge_sys::affinity::allowed());
        }
    }
    let portions = trace(Preset::Mix, 0.001);
    let shared = Shared::start();
    let control = Control::default();
    let seen = Arc::<Mutex<BTreeSet<_>>>::default();
    let sees = Arc::clone(&seen);
    let client = shared.join(&everything());
    let stop = control.clone();
    let core = Cores::allowed().of(0).unwrap();
    let running = thread::spawn(move || {
        let cores = Cores::these(vec![core]);
        client.run_on_workers(2, &cores, move |_| Where(Arc::clone(&sees)), &stop)
    });
    shared.feed_through(&portions, packets_of(&portions));
    control.stop();
    running.join().unwrap().1.unwrap();
    assert_eq!(*seen.lock().unwrap(), BTreeSet::from([vec![core]]));
    shared.ledger();
}
