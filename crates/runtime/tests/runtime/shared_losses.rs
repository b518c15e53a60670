//! Clients that are too slow for their events: each stream of which anything came still begins with a creation and
//! ends with a termination, and what is missing of its bytes is said.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{Application, Client, Error, EventKind, Next, SharedEvent};
use flowgauge_runtime::{Chunk, Control, Cores, Handlers, Outcome, StreamHandle};
use flowgauge_stream::StreamStatus;
use flowgauge_stream::engine::{ChunkInfo, StreamErrors, StreamSnapshot};
use flowgauge_wire::Nanos;

use crate::shared_support::feed::{Shared, everything};
use crate::shared_support::{
    LIMIT, Portion, alone, datagrams, each_event, packets_of, smaller, trace,
};

/// A stream as handlers know it.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    data: u64,
    position: u64,
    has_ended: bool,
    /// Its first event was not its first packet's.
    is_late: bool,
}

/// What the threads of a client have seen, by the number of each stream.
#[derive(Clone, Default)]
struct Seen {
    lives: Arc<Mutex<BTreeMap<u64, Life>>>,
    go: Arc<AtomicBool>,
}

struct Checker(Seen);

impl Checker {
    fn wait(&self) {
        while !self.0.go.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn with(&self, stream: &StreamSnapshot, act: impl FnOnce(&mut Life)) {
        let mut lives = self.0.lives.lock().unwrap();
        let life = lives.get_mut(&stream.uid).expect("its creation came first");
        assert!(!life.has_ended, "{stream:?}");
        assert_eq!(stream.user_state, stream.uid + 1);
        act(life);
    }
}

impl Handlers for Checker {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        self.wait();
        let (uid, now) = (stream.uid(), stream.snapshot());
        assert_eq!((now.user_state, now.chunks), (0, 0));
        stream.set_user_state(uid + 1);
        let life = Life {
            is_late: now.statistics.all.packets > 1,
            ..Life::default()
        };
        let before = self.0.lives.lock().unwrap().insert(uid, life);
        assert!(before.is_none(), "{before:?}");
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let now = stream.snapshot();
        self.with(&now, |life| {
            life.position = told(life.position, chunk.info(), chunk.bytes());
            life.data += 1;
            assert_eq!(now.chunks, life.data, "those that came");
        });
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        let now = stream.snapshot();
        self.with(&now, |life| {
            assert_eq!(now.chunks, life.data);
            life.has_ended = true;
        });
    }
}

/// Where a stream stands behind a chunk that says what it repeats, and what is missing before it.
fn told(position: u64, info: ChunkInfo, bytes: &[u8]) -> u64 {
    let fresh = info.offset + u64::from(info.repeated);
    assert_eq!(position + info.gap_before, fresh, "{info:?}");
    let repeats = info.repeated > 0;
    assert!(!repeats || info.gap_before == 0, "{position} {info:?}");
    info.offset + bytes.len() as u64
}

/// Chunks that repeat much of each other.
fn overlapping() -> Application {
    Application {
        chunk_bytes: 4000,
        overlap_bytes: 3000,
        ..everything()
    }
}

/// A client that stands still while most of the packets come.
fn slow(
    application: Application,
    run: impl FnOnce(Client, Seen, &Control) -> (Outcome, Result<(), Error>) + Send,
) {
    let portions = trace(Preset::Mix, 0.01);
    let expected = alone(&application, &portions).len() as u64;
    let most = portions.len() * 3 / 4;
    let before = packets_of(&portions[..most]);
    let shared = Shared::start();
    let client = shared.join(&Application {
        memory_bytes: 1 << 20,
        ..application
    });
    let (control, seen) = (Control::default(), Seen::default());
    let (outcome, end) = thread::scope(|scope| {
        let running = scope.spawn(|| run(client, seen.clone(), &control));
        shared.feed_through(&portions[..most], before);
        let lost = shared.status().clients[0].statistics;
        seen.go.store(true, Ordering::Release);
        assert!(
            lost.lost_created > 0 && lost.lost_terminated > 0,
            "{lost:?}"
        );
        for portion in smaller(&portions[most..], 256) {
            shared.feed_one(&portion);
            shared.wait_until("it has read", |status| status.clients[0].waiting == 0);
        }
        let since = Instant::now();
        while control.progress().lost.chunks == 0 {
            assert!(since.elapsed() < LIMIT, "it is told meanwhile");
            thread::yield_now();
        }
        control.stop();
        running.join().unwrap()
    });
    end.unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let lives = seen.lives.lock().unwrap();
    assert!(lives.values().all(|life| life.has_ended));
    assert!(lives.values().any(|life| life.is_late && life.data > 0));
    let streams = lives.len() as u64;
    let total = outcome.total();
    assert_eq!((total.created, total.terminated), (streams, streams));
    assert!(outcome.lost.chunks > 0);
    assert_eq!(streams + outcome.lost.streams, expected);
    assert!(outcome.lost.streams > 0, "{streams} of {expected}");
    shared.ledger();
}

#[test]
fn every_stream_begins_and_ends_in_one_thread() {
    for application in [everything(), overlapping()] {
        slow(application, |client, seen, control| {
            client.run(&mut Checker(seen), control)
        });
    }
}

#[test]
fn every_stream_begins_and_ends_on_workers() {
    for application in [everything(), overlapping()] {
        slow(application, |client, seen, control| {
            client.run_on_workers(3, &Cores::any(), move |_| Checker(seen.clone()), control)
        });
    }
}

#[test]
fn what_was_lost_at_the_end_is_missing_there() {
    missing_at_the_end(everything());
    missing_at_the_end(overlapping());
}

fn missing_at_the_end(application: Application) {
    let portions = trace(Preset::Elephants, 0.01);
    let mut shared = Shared::start();
    let mut quick = shared.join(&application);
    let mut slow = shared.join(&Application {
        memory_bytes: 1 << 20,
        ..application
    });
    let ends = |client: &mut Client| {
        let (mut positions, mut ends) = (BTreeMap::<u64, u64>::new(), BTreeMap::new());
        let mut missing = 0;
        each_event(client, |event| {
            let stream = event.stream.snapshot();
            let position = positions.entry(stream.uid).or_default();
            match &event.kind {
                EventKind::Created => {}
                EventKind::Data(chunk) => {
                    *position = told(*position, chunk.info(), chunk.bytes());
                }
                EventKind::Terminated => {
                    missing += stream.missing_at_end;
                    ends.insert(stream.uid, *position + stream.missing_at_end);
                }
            }
        });
        (ends, missing)
    };
    let (told, nothing) = thread::scope(|scope| {
        let reader = scope.spawn(|| ends(&mut quick));
        shared.feed_through(&portions, packets_of(&portions));
        shared.end();
        reader.join().unwrap()
    });
    let (got, missing) = ends(&mut slow);
    assert_eq!(slow.statistics().0.lost_terminated, 0);
    assert!(missing > nothing, "{missing}");
    assert_eq!(got, told);
    shared.ledger();
}

/// Datagrams, and one so much later that the streams of all others have ended in silence.
fn datagrams_that_end(count: u32) -> Portion {
    let mut portion = datagrams(count + 1);
    if let Some(last) = portion.packets.last_mut() {
        last.time = Nanos(last.time.0 + Nanos::from_secs(300).0);
    }
    portion
}

/// What a loop of its own hears of each stream.
#[derive(Default)]
struct Heard {
    open: BTreeMap<u64, u64>,
    /// By number: bytes that came, and the last that was said.
    ended: BTreeMap<u64, (u64, StreamSnapshot)>,
}

impl Heard {
    fn event(&mut self, event: &SharedEvent<'_>) {
        let stream = *event.stream.snapshot();
        match &event.kind {
            EventKind::Created => {
                assert_eq!(stream.status, StreamStatus::Active);
                assert!(self.open.insert(stream.uid, 0).is_none(), "{stream:?}");
            }
            EventKind::Data(chunk) => {
                let bytes = self.open.get_mut(&stream.uid).expect("it was created");
                *bytes += chunk.bytes().len() as u64;
            }
            EventKind::Terminated => {
                let bytes = self.open.remove(&stream.uid).expect("it was created");
                let before = self.ended.insert(stream.uid, (bytes, stream));
                assert!(before.is_none(), "{stream:?}");
            }
        }
    }

    fn until(&mut self, client: &mut Client, streams: usize) {
        while self.ended.len() < streams {
            match client.next_event(Some(LIMIT)).unwrap() {
                Next::Event(event) => self.event(&event),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn small() -> Application {
    Application {
        memory_bytes: 1 << 20,
        ..everything()
    }
}

/// A client that stood still hears of all ends as soon as it reads on, while the capture goes on, and what it lost of each
/// stream is said there.
#[test]
fn ends_wait_for_room_and_say_what_is_missing() {
    const STREAMS: u32 = 800;
    let shared = Shared::start();
    let mut client = shared.join(&small());
    shared.feed_through(&[datagrams_that_end(STREAMS)], u64::from(STREAMS) + 1);
    let status = shared.status();
    let lost = status.clients[0].statistics;
    assert!(lost.lost_to_ring.events > 100, "{lost:?}");
    assert_eq!((lost.lost_created, lost.lost_terminated), (0, 0));
    // More than the ring has room for.
    assert_eq!((status.clients[0].waiting, lost.terminated), (1024, 1600));
    let mut heard = Heard::default();
    heard.until(&mut client, 2 * STREAMS as usize);
    let mut missing = 0;
    for (bytes, stream) in heard.ended.values() {
        assert_eq!(stream.status, StreamStatus::Timeout);
        let has_lost = stream.missing_at_end > 0;
        assert_eq!(stream.errors.contains(StreamErrors::GAP), has_lost);
        assert_eq!(stream.statistics.dropped.bytes, stream.missing_at_end);
        let sent = stream.statistics.all.bytes;
        assert_eq!(bytes + stream.missing_at_end, sent, "{stream:?}");
        missing += stream.missing_at_end;
    }
    assert_eq!(missing, lost.lost_data().bytes);
    shared.ledger();
}

/// The same where it leaves before it reads on.
#[test]
fn who_leaves_hears_of_all_ends() {
    const STREAMS: u32 = 800;
    let shared = Shared::start();
    let mut client = shared.join(&small());
    shared.feed_through(&[datagrams_that_end(STREAMS)], u64::from(STREAMS) + 1);
    client.leave();
    let mut heard = Heard::default();
    let reason = each_event(&mut client, |event| heard.event(&event));
    assert_eq!(reason, "as asked");
    let ended = heard.ended.len();
    assert_eq!((heard.open.len(), ended), (0, 2 * STREAMS as usize + 2));
    shared.ledger();
}

/// Where more is lost than there is memory for, a loop of its own still gets a creation and a termination of each stream
/// of which anything comes.
#[test]
fn a_loop_gets_what_is_made_up() {
    const STREAMS: u32 = 8000;
    let mut shared = Shared::start();
    let mut client = shared.join(&small());
    let portions = [datagrams(STREAMS)];
    shared.feed_through(&portions, u64::from(STREAMS));
    let before = shared.status().clients[0].statistics;
    assert!(before.lost_created > 1000, "{before:?}");
    let mut heard = Heard::default();
    thread::scope(|scope| {
        let reader = scope.spawn(|| each_event(&mut client, |event| heard.event(&event)));
        shared.end();
        reader.join().unwrap()
    });
    let lost = client.statistics().0;
    assert!(heard.open.is_empty(), "{}", heard.open.len());
    let ended = heard.ended.len() as u64;
    assert!(
        ended > lost.created && ended <= 2 * u64::from(STREAMS),
        "{ended} {lost:?}"
    );
    let last = client.next_event(Some(LIMIT)).unwrap();
    assert!(matches!(last, Next::End(_)), "{last:?}");
    shared.ledger();
}
