//! Captures on any number of threads: the same events, whoever handles them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::wait::wait_until;
use crate::workers;
use flowgauge_capture::{Error, Interface, PacketSource, open};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_runtime::{
    Capture, Chunk, Closures, Cores, Handlers, Outcome, StreamHandle, stream_filter,
};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, Cutoffs, EngineConfig, HostPolicies, Mode,
    Priorities, StreamErrors,
};
use flowgauge_sys::affinity;
use flowgauge_wire::{Batch, Ledger, Nanos, Place};
use sha2::{Digest, Sha256};

fn trace(preset: Preset, flows: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let mut config = Config::new(preset).with_flows(flows);
    config.reordered = config.reordered.max(0.02);
    config.retransmitted = config.retransmitted.max(0.02);
    generate(&config, File::create(&path).unwrap()).unwrap();
    (folder, path)
}

type Records = BTreeMap<String, u32>;

/// Notes every stream with a hash of what was delivered of it.
struct Notes {
    hashes: HashMap<u64, (Sha256, u64)>,
    records: Records,
    all: Arc<Mutex<Records>>,
}

impl Notes {
    fn new(all: &Arc<Mutex<Records>>) -> Notes {
        Notes {
            hashes: HashMap::new(),
            records: Records::new(),
            all: Arc::clone(all),
        }
    }
}

impl Handlers for Notes {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        let before = self.hashes.insert(stream.uid(), Default::default());
        assert!(before.is_none(), "a uid came twice");
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let (hash, end) = self.hashes.get_mut(&stream.uid()).unwrap();
        let start = chunk.offset() + u64::from(chunk.info().repeated);
        assert_eq!(start, *end + chunk.gap_before());
        if chunk.gap_before() != 0 {
            hash.update(format!("[{} missing]", chunk.gap_before()));
        }
        hash.update(chunk.new_bytes());
        *end = start + chunk.new_bytes().len() as u64;
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        let (hash, end) = self.hashes.remove(&stream.uid()).unwrap();
        let line = format!(
            "{:?} {} {end} {:?} {:?} {} {} {:?} {:?} {:x?}",
            stream.identity(),
            stream.from_initiator(),
            stream.statistics(),
            stream.status(),
            stream.is_cut(),
            stream.priority(),
            stream.mode(),
            stream.errors(),
            hash.finalize()
        );
        *self.records.entry(line).or_default() += 1;
    }

    fn finish(&mut self) {
        assert!(self.hashes.is_empty());
        let mut all = self.all.lock().unwrap();
        for (line, count) in core::mem::take(&mut self.records) {
            *all.entry(line).or_default() += count;
        }
    }
}

fn notes(path: &Path, config: &ApplicationConfig, shards: usize, workers: usize) -> Records {
    let all = Arc::new(Mutex::new(Records::new()));
    let to = Arc::clone(&all);
    let outcome = Capture::file(path)
        .shards(shards)
        .workers(workers)
        .application(config.clone(), move |_| Notes::new(&to))
        .run()
        .unwrap();
    check(&outcome, shards, workers);
    core::mem::take(&mut *all.lock().unwrap())
}

fn check(outcome: &Outcome, shards: usize, workers: usize) {
    assert!(outcome.ledger.is_balanced(), "{:?}", outcome.ledger);
    assert_eq!(outcome.shards.len(), shards);
    assert_eq!(outcome.workers.len(), workers);
    assert_eq!(outcome.lost, Default::default());
    assert!(outcome.errors.is_empty() && outcome.failures.is_empty());
    let total = outcome.total();
    assert_eq!(total.created, total.terminated);
    assert_eq!(total.dropped, Default::default());
}

#[test]
fn streams_are_the_same_on_any_number_of_threads() {
    let (_folder, path) = trace(Preset::Mix, 300);
    for mode in [Mode::Wait, Mode::Strict, Mode::Fast] {
        let config = ApplicationConfig {
            mode,
            cutoff: Cutoffs {
                classes: vec![(stream_filter("udp").unwrap(), Cutoff(100))],
                ..Cutoffs::default()
            },
            ..ApplicationConfig::default()
        };
        let alone = notes(&path, &config, 1, 0);
        assert!(alone.len() > 500, "{}", alone.len());
        for (shards, workers) in [(1, 1), (1, 3), (2, 0), (3, 2), (8, 0), (2, 8)] {
            let others = notes(&path, &config, shards, workers);
            let missing = alone
                .iter()
                .find(|(line, count)| others.get(*line) != Some(count));
            assert_eq!(
                missing, None,
                "{mode:?} on {shards} shards, {workers} workers"
            );
            assert_eq!(alone.len(), others.len());
        }
    }
}

#[test]
fn a_handler_that_panics_takes_only_its_application_down() {
    let (_folder, path) = trace(Preset::Small, 400);
    for (shards, workers, name) in [(1, 0, ""), (2, 0, "shard-"), (1, 2, "worker-")] {
        let all = Arc::new(Mutex::new(Records::new()));
        let to = Arc::clone(&all);
        let calls = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&calls);
        let fragile = Closures::new().on_data(move |_, _| {
            assert!(
                count.fetch_add(1, Ordering::Relaxed) < 10,
                "that was too much"
            );
        });
        let outcome = Capture::file(&path)
            .shards(shards)
            .workers(workers)
            .application(ApplicationConfig::default(), move |_| Notes::new(&to))
            .application(ApplicationConfig::default(), move |_| fragile.clone())
            .run()
            .unwrap();
        assert!(outcome.ledger.is_balanced());
        assert!(!outcome.failures.is_empty());
        for (application, failure) in &outcome.failures {
            assert_eq!(*application, ApplicationId(1));
            let text = failure.to_string();
            assert!(
                text.contains(name) && text.contains("that was too much"),
                "{text}"
            );
        }
        // Threads that were in the middle of it may have failed, too; nobody began afterwards.
        assert!(calls.load(Ordering::Relaxed) <= 11 + 2);
        let expected = notes(&path, &ApplicationConfig::default(), 1, 0);
        assert_eq!(*all.lock().unwrap(), expected);
    }
}

#[test]
fn when_all_applications_have_failed_the_capture_ends() {
    let fragile = Closures::new().on_created(|_| panic!("no"));
    let outcome = Capture::source(Endless::default(), true)
        .workers(1)
        .application(ApplicationConfig::default(), move |_| fragile.clone())
        .run()
        .unwrap();
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.ledger.is_balanced());
}

/// What a handler asks for holds at once for its own events, wherever it is.
#[derive(Default)]
struct Picky {
    sums: Arc<AtomicU64>,
    over: HashMap<u64, u64>,
}

impl Handlers for Picky {
    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let uid = stream.uid();
        assert!(!self.over.contains_key(&uid), "a chunk after the discard");
        assert!(chunk.bytes().len() <= 1000);
        stream.set_user_state(stream.user_state() + chunk.bytes().len() as u64);
        if stream.user_state() >= 5_000 {
            stream.discard();
            self.over.insert(uid, stream.user_state());
        }
        self.sums
            .fetch_add(chunk.bytes().len() as u64, Ordering::Relaxed);
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        if let Some(state) = self.over.remove(&stream.uid()) {
            assert!(stream.is_discarded());
            assert_eq!(stream.user_state(), state);
            assert_eq!(stream.chunks(), state.div_ceil(1000));
            assert_eq!(
                stream.statistics().captured().bytes,
                state,
                "{:?}",
                stream.statistics()
            );
        }
    }
}

#[test]
fn a_discard_on_a_worker_holds_at_once() {
    let (_folder, path) = trace(Preset::Mix, 200);
    let config = ApplicationConfig {
        chunk_bytes: 1000,
        ..ApplicationConfig::default()
    };
    let run = |workers| {
        let sums = Arc::new(AtomicU64::new(0));
        let to = Arc::clone(&sums);
        let outcome = Capture::file(&path)
            .workers(workers)
            .application(config.clone(), move |_| Picky {
                sums: Arc::clone(&to),
                ..Picky::default()
            })
            .run()
            .unwrap();
        assert!(outcome.ledger.is_balanced() && outcome.failures.is_empty());
        (
            sums.load(Ordering::Relaxed),
            outcome.total().discarded.bytes,
        )
    };
    let (here, discarded) = run(0);
    assert!(discarded > 0);
    assert_eq!(run(3).0, here);
}

/// Searches over the borders of chunks by keeping each second one.
struct Keeper(Arc<Mutex<Records>>);

impl Handlers for Keeper {
    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let line = format!(
            "{:?} {} {} {:x?}",
            stream.identity(),
            chunk.offset(),
            chunk.info().repeated,
            Sha256::digest(chunk.bytes())
        );
        *self.0.lock().unwrap().entry(line).or_default() += 1;
        if chunk.info().repeated == 0 && chunk.gap_before() == 0 && chunk.holes().is_empty() {
            stream.keep_chunk();
        }
    }
}

#[test]
fn kept_chunks_are_the_same_on_workers() {
    let (_folder, path) = trace(Preset::Web, 40);
    let run = |workers| {
        let all = Arc::new(Mutex::new(Records::new()));
        let to = Arc::clone(&all);
        Capture::file(&path)
            .workers(workers)
            .application(ApplicationConfig::default(), move |_| {
                Keeper(Arc::clone(&to))
            })
            .run()
            .unwrap();
        core::mem::take(&mut *all.lock().unwrap())
    };
    let here = run(0);
    assert!(here.keys().any(|line| !line.contains(" 0 [")));
    assert_eq!(here, run(2));
}

/// Does so much for each chunk that the reader is always ahead.
struct Slow;

impl Handlers for Slow {
    fn data(&mut self, _: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        for _ in 0..20 {
            core::hint::black_box(Sha256::digest(chunk.bytes()));
        }
    }
}

/// Keeping without end fills the memory, and then the next chunk comes alone.
#[test]
fn what_workers_keep_is_within_the_memory() {
    const MEMORY: u64 = 512 << 10;
    // Of one stream alone: where a worker is so slow that chunks on their way fill the memory, it keeps what is
    // there of it in the end.
    let (_folder, path) = trace(Preset::Elephants, 1);
    let longest = Arc::new(AtomicU64::new(0));
    let bytes = Arc::new(AtomicU64::new(0));
    let (to, sum) = (Arc::clone(&longest), Arc::clone(&bytes));
    let greedy = Closures::new().on_data(move |stream, chunk| {
        to.fetch_max(chunk.bytes().len() as u64, Ordering::Relaxed);
        sum.fetch_add(chunk.new_bytes().len() as u64, Ordering::Relaxed);
        stream.keep_chunk();
    });
    let outcome = Capture::file(&path)
        .memory(MEMORY)
        .workers(2)
        .application(ApplicationConfig::default(), move |_| greedy.clone())
        .run()
        .unwrap();
    let longest = longest.load(Ordering::Relaxed);
    assert!(longest > 100_000 && longest <= MEMORY, "{longest}");
    assert!(outcome.ledger.is_balanced());
    let total = outcome.total();
    assert!(total.memory_high <= MEMORY);
    assert_eq!(
        total.chunk_bytes,
        bytes.load(Ordering::Relaxed) + outcome.lost.bytes
    );
}

#[test]
fn a_file_waits_for_slow_workers_and_nothing_is_lost() {
    let (_folder, path) = trace(Preset::Mix, 120);
    let bytes = |workers, memory: u64| {
        let outcome = Capture::file(&path)
            .memory(memory)
            .workers(workers)
            .application(ApplicationConfig::default(), |_| Slow)
            .run()
            .unwrap();
        check(&outcome, 1, workers);
        assert!(outcome.total().memory_high <= memory);
        outcome.total().chunk_bytes
    };
    assert_eq!(bytes(2, 2 << 20), bytes(0, 64 << 20));
}

/// A source that says when it has given everything.
struct Telling {
    inner: Box<dyn PacketSource + Send>,
    ended: Arc<AtomicBool>,
}

impl PacketSource for Telling {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let batch = self.inner.next_batch()?;
        if batch.is_none() {
            self.ended.store(true, Ordering::Release);
        }
        Ok(batch)
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}

#[test]
fn a_source_that_cannot_wait_loses_by_priority() {
    let (_folder, path) = trace(Preset::Mix, 300);
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    let delivered = Arc::new(Mutex::new(HashMap::<u8, u64>::new()));
    let to = Arc::clone(&delivered);
    // Where each stream has got to, and what was said to be missing.
    let ends = Arc::new(Mutex::new((HashMap::<u64, u64>::new(), 0)));
    let (of, at_end) = (Arc::clone(&ends), Arc::clone(&ends));
    // It takes nothing until there is nothing left to come.
    let stuck = Closures::new()
        .on_data(move |stream, chunk| {
            let (ends, missing) = &mut *of.lock().unwrap();
            let end = ends.entry(stream.uid()).or_default();
            assert_eq!(chunk.offset(), *end + chunk.gap_before());
            *end = chunk.offset() + chunk.bytes().len() as u64;
            *missing += chunk.gap_before();
            assert!(chunk.gap_before() == 0 || stream.errors().contains(StreamErrors::GAP));
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        })
        .on_terminated(move |stream| {
            at_end.lock().unwrap().1 += stream.missing_at_end();
            let dropped = stream.statistics().dropped.packets;
            *to.lock().unwrap().entry(stream.priority()).or_default() += dropped;
        });
    let engine = EngineConfig {
        memory_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let source = Telling {
        inner: open(&path).unwrap(),
        ended,
    };
    let config = ApplicationConfig {
        priority: Priorities {
            default: 0,
            classes: vec![(stream_filter("udp").unwrap(), 5)],
        },
        ..ApplicationConfig::default()
    };
    let outcome = Capture::source(source, true)
        .engine(engine)
        .workers(1)
        .application(config, move |_| stuck.clone())
        .run()
        .unwrap();
    let total = outcome.total();
    assert!(outcome.ledger.is_balanced(), "{:?}", outcome.ledger);
    assert!(total.dropped.packets > 0);
    let refused = outcome.ledger.at(Place::Priority) + outcome.ledger.at(Place::Memory);
    assert_eq!(refused, total.dropped.packets);
    assert!(total.memory_high <= 1 << 20, "{total:?}");
    let missing = ends.lock().unwrap().1;
    // (Whether a chunk is lost depends on how fast the worker is once the source is at its end.)
    assert!(
        missing >= outcome.lost.bytes,
        "{missing} {:?}",
        outcome.lost
    );
    let (chunks, lost) = (outcome.workers[0].chunks, outcome.lost.chunks);
    assert_eq!(chunks + lost, total.chunks);
    let delivered = delivered.lock().unwrap();
    assert!(delivered[&0] > 0, "{delivered:?}");
    assert_eq!(delivered.values().sum::<u64>(), total.dropped.packets);
}

/// Captured and dropped bytes, of UDP and of everything else, where nothing is taken until all was captured and streams of
/// UDP have this priority, others 0. Handlers run in this thread, and do not hold up the live source.
fn overloaded(path: &Path, priority: u8) -> [[u64; 2]; 2] {
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    let sums = Arc::new(Mutex::new([[0; 2]; 2]));
    let to = Arc::clone(&sums);
    let here = std::thread::current().id();
    let stuck = Closures::new()
        .on_data(move |_, _| {
            assert_eq!(std::thread::current().id(), here);
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        })
        .on_terminated(move |stream| {
            let statistics = stream.statistics();
            let sums = &mut to.lock().unwrap()[usize::from(stream.identity().protocol != 17)];
            sums[0] += statistics.captured().bytes;
            sums[1] += statistics.dropped.bytes;
        });
    let source = Telling {
        inner: open(path).unwrap(),
        ended,
    };
    let mut config = ApplicationConfig::default();
    (config.priority.classes).push((stream_filter("udp").unwrap(), priority));
    let outcome = Capture::source(source, true)
        .engine(EngineConfig {
            memory_bytes: 1 << 20,
            ..EngineConfig::default()
        })
        .application(config, move |_| stuck.clone())
        .run()
        .unwrap();
    assert!(outcome.ledger.is_balanced(), "{:?}", outcome.ledger);
    let sums = sums.lock().unwrap();
    *sums
}

#[test]
fn what_is_more_important_is_lost_less() {
    let (_folder, path) = trace(Preset::Mix, 300);
    let [udp, rest] = overloaded(&path, 5);
    let [udp_alike, rest_alike] = overloaded(&path, 0);
    assert!(udp_alike[1] > 0 && rest_alike[1] > 0);
    // The memory behind the lower watermark is there for UDP alone: an eighth of it at least is full of it.
    assert!(udp[1] + (32 << 10) < udp_alike[1], "{udp:?} {udp_alike:?}");
    assert!(rest[1] > rest_alike[1], "{rest:?} {rest_alike:?}");
}

/// What comes of so many connections at once where a callback takes no event until all were captured.
fn with_a_stuck_callback(connections: u32, memory_bytes: u64) -> Outcome {
    let connection = |number: u32| {
        let [_, high, middle, low] = number.to_be_bytes();
        let datagram = workers::udp(4000, &[]);
        let packet = workers::ipv4([10, high, middle, low], [10, 9, 9, 9], 1, 0, &datagram);
        (0, packet)
    };
    let packets: Vec<_> = (0..connections).map(connection).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("connections.pcap");
    std::fs::write(&path, workers::capture(&packets)).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    let live = Arc::new(AtomicU64::new(0));
    let (begun, left) = (Arc::clone(&live), Arc::clone(&live));
    let stuck = Closures::new()
        .on_created(move |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        })
        .on_terminated(move |_| {
            left.fetch_sub(1, Ordering::Relaxed);
        });
    let source = Telling {
        inner: open(&path).unwrap(),
        ended,
    };
    let outcome = Capture::source(source, true)
        .engine(EngineConfig {
            memory_bytes,
            ..EngineConfig::default()
        })
        .application(ApplicationConfig::default(), move |_| stuck.clone())
        .run()
        .unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert!(outcome.ledger.is_balanced(), "{:?}", outcome.ledger);
    assert_eq!(
        live.load(Ordering::Relaxed),
        0,
        "who began is told of its end"
    );
    let total = outcome.total();
    assert_eq!(total.created, u64::from(connections) * 2);
    assert!(total.memory_high <= memory_bytes, "{total:?}");
    let told = outcome.workers[0].streams;
    assert_eq!(told + outcome.lost.streams, total.created);
    outcome
}

#[test]
fn a_live_source_never_waits_for_a_callback() {
    let outcome = with_a_stuck_callback(40_000, 256 << 20);
    assert_eq!(outcome.lost, Default::default());
    // What there is no memory for is lost, and counted, both streams of a connection.
    let lost = with_a_stuck_callback(40_000, 1 << 20).lost;
    assert!(
        lost.streams > 0 && lost.streams.is_multiple_of(2),
        "{lost:?}"
    );
}

/// Loses the last packet of its first batch.
struct Losing<S> {
    inner: S,
    loses: bool,
}

impl<S: PacketSource> PacketSource for Losing<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let loses = core::mem::take(&mut self.loses);
        let mut batch = self.inner.next_batch()?;
        if let Some(batch) = &mut batch
            && loses
        {
            batch.packets = &batch.packets[..batch.packets.len() - 1];
        }
        Ok(batch)
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}

#[test]
fn a_packet_lost_between_source_and_engine_is_no_balance() {
    let (_folder, path) = trace(Preset::Mix, 20);
    for loses in [false, true] {
        let source = Losing {
            inner: open(&path).unwrap(),
            loses,
        };
        let outcome = Capture::source(source, false)
            .application(ApplicationConfig::default(), |_| Closures::new())
            .run()
            .unwrap();
        assert_eq!(outcome.ledger.is_balanced(), !loses, "{:?}", outcome.ledger);
    }
}

#[test]
fn more_threads_than_there_can_be_are_refused() {
    let (_folder, path) = trace(Preset::Mix, 1);
    for (shards, workers) in [(1, 257), (257, 0)] {
        let outcome = Capture::file(&path).shards(shards).workers(workers).run();
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "more than 256 shards or workers"
        );
    }
}

/// Gives the same SYN, from other ports, until it is stopped.
#[derive(Default)]
struct Endless {
    port: u16,
    time: u64,
    memory: Vec<u8>,
    packets: Vec<flowgauge_wire::PacketDescriptor>,
    ledger: Ledger,
}

impl PacketSource for Endless {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        self.port = self.port.wrapping_add(1);
        self.time += 1_000_000;
        let mut packet = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend(self.port.to_be_bytes());
        packet.extend([0x30, 0x39, 0, 9, 0, 0, b'x']);
        self.memory = packet;
        self.packets = vec![flowgauge_wire::PacketDescriptor {
            time: Nanos(self.time),
            captured_len: 29,
            wire_len: 29,
            link: flowgauge_wire::LinkType::IPV4,
            ..Default::default()
        }];
        self.ledger.take(1, 29);
        Ok(Some(Batch::new(&self.memory, &self.packets)))
    }

    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }
}

#[test]
fn a_capture_is_stopped_from_another_thread() {
    for (shards, workers) in [(1, 0), (3, 2)] {
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        let closures = Closures::new().on_created(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let running = Capture::source(Endless::default(), false)
            .shards(shards)
            .workers(workers)
            .application(ApplicationConfig::default(), move |_| closures.clone())
            .start()
            .unwrap();
        wait_until("packets come", || {
            seen.load(Ordering::Relaxed) >= 1_000 && running.progress().ledger.received() > 0
        });
        running.stop();
        let outcome = running.join().unwrap();
        assert!(outcome.ledger.is_balanced());
        assert_eq!(outcome.total().created, seen.load(Ordering::Relaxed));
    }
}

/// Workers that do not come on fill their queues; what is in them is handled when they do.
#[test]
fn a_capture_is_stopped_while_its_queues_are_full() {
    for workers in [1, 2, 3] {
        let seen = Arc::new(AtomicU64::new(0));
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (count, wait) = (Arc::clone(&seen), Arc::clone(&gate));
        let closures = Closures::new().on_created(move |_| {
            drop(wait.lock());
            count.fetch_add(1, Ordering::Relaxed);
        });
        let running = Capture::source(Endless::default(), false)
            .workers(workers)
            .application(ApplicationConfig::default(), move |_| closures.clone())
            .start()
            .unwrap();
        // It tells every 64 packets; a queue takes more.
        wait_until("the queues are full", || {
            running.progress().ledger.received() >= 128
        });
        running.stop();
        drop(closed);
        let outcome = running.join().unwrap();
        assert!(outcome.ledger.is_balanced() && outcome.failures.is_empty());
        let total = outcome.total();
        assert_eq!(total.created, seen.load(Ordering::Relaxed));
        assert_eq!(total.created, total.terminated);
        assert_eq!(outcome.lost, Default::default());
    }
}

#[test]
fn threads_stay_on_the_cores_they_may_use() {
    let (_folder, path) = trace(Preset::Small, 200);
    let cores = Cores::allowed();
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let to = Arc::clone(&seen);
    let closures = Closures::new().on_created(move |_| {
        let thread = std::thread::current().name().unwrap().to_owned();
        to.lock().unwrap().insert(thread, affinity::allowed());
    });
    Capture::file(&path)
        .workers(2)
        .pin(true)
        .application(ApplicationConfig::default(), move |_| closures.clone())
        .run()
        .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen["worker-0"], [cores.of(1).unwrap()]);
    assert_eq!(seen["worker-1"], [cores.of(2).unwrap()]);
}

/// A source that gives most of its packets after something has happened.
struct Halting {
    inner: Box<dyn PacketSource + Send>,
    packets_before: usize,
    has_happened: Arc<AtomicBool>,
}

impl PacketSource for Halting {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.packets_before == 0 {
            wait_until("it happens", || self.has_happened.load(Ordering::Acquire));
        }
        let batch = self.inner.next_batch()?;
        let count = batch.as_ref().map_or(0, Batch::len);
        self.packets_before = self.packets_before.saturating_sub(count);
        Ok(batch)
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}

#[test]
fn what_an_application_wants_changes_while_the_capture_runs() {
    let (_folder, path) = trace(Preset::Mix, 3000);
    for (shards, workers) in [(1, 0), (3, 0), (2, 2)] {
        let control = flowgauge_runtime::Control::default();
        let seen = Arc::new(Mutex::new(BTreeMap::<(u64, u32), u64>::new()));
        let (to, changes) = (Arc::clone(&seen), control.clone());
        let asked = Arc::new(AtomicBool::new(false));
        let has_asked = Arc::new(AtomicBool::new(false));
        let source = Halting {
            inner: open(&path).unwrap(),
            packets_before: 10_000,
            has_happened: Arc::clone(&has_asked),
        };
        let handlers = Closures::new()
            .on_created(move |stream| {
                let key = (stream.cutoff().0, stream.chunk_bytes());
                *to.lock().unwrap().entry(key).or_default() += 1;
            })
            .on_data(move |_, _| {
                if !asked.swap(true, Ordering::Relaxed) {
                    assert!(changes.change(ApplicationId(0), |wanted| {
                        wanted.cutoff.default = Cutoff(99);
                        wanted.chunk_bytes = 500;
                    }));
                    assert!(changes.set_base_threshold(0.75));
                    assert!(changes.set_overload_cutoff(Some(99)));
                    assert!(changes.set_policies(HostPolicies::new(OverlapPolicy::Last)));
                    has_asked.store(true, Ordering::Release);
                }
            });
        let outcome = Capture::source(source, false)
            .shards(shards)
            .workers(workers)
            .controlled_by(control)
            .application(ApplicationConfig::default(), move |_| handlers.clone())
            .run()
            .unwrap();
        check(&outcome, shards, workers);
        let seen = seen.lock().unwrap();
        let keys: Vec<_> = seen.keys().copied().collect();
        assert_eq!(keys, [(99, 500), (u64::MAX, 16_384)], "{seen:?}");
        assert!(seen[&keys[0]] > seen[&keys[1]] / 8, "{seen:?}");
    }
}
