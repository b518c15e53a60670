//! Senders and listeners over loopback, undisturbed and disturbed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::loopback::own_address;
use crate::wait::wait_until;
use flowgauge_link::{
    Event, Identity, KeyFolder, Listener, ListenerOptions, Sender, SenderCounts, SenderOptions,
    Sent, SessionCounts, WhenFull,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// Keys of one authority, which go away with it.
struct Keys {
    folder: KeyFolder,
    _temporary: tempfile::TempDir,
}

impl Keys {
    fn new() -> Keys {
        let temporary = tempfile::tempdir().unwrap();
        let folder = KeyFolder::new(temporary.path().join("keys"));
        folder.create_authority().unwrap();
        Keys {
            folder,
            _temporary: temporary,
        }
    }

    fn identity(&self, name: &str) -> Identity {
        let hosts = ["127.0.0.1".to_owned(), own_address().ip().to_string()];
        self.folder.add(name, &hosts, 1).unwrap();
        self.folder.identity(Some(name)).unwrap()
    }
}

fn listen(identity: &Identity) -> Listener {
    Listener::bind(identity, ListenerOptions::new("127.0.0.1:0")).unwrap()
}

fn to(address: SocketAddr) -> SenderOptions {
    SenderOptions {
        least_backoff: Duration::from_millis(1),
        most_backoff: Duration::from_millis(20),
        ..SenderOptions::new(address.to_string())
    }
}

/// Sends the numbers from 0, ten in a frame.
fn send_numbers(sender: &Sender, frames: core::ops::Range<u64>) -> Vec<Sent> {
    frames
        .map(|frame| {
            let numbers = (frame * 10..frame * 10 + 10).flat_map(u64::to_le_bytes);
            sender.send(numbers.collect(), 10, frame).unwrap()
        })
        .collect()
}

fn numbers(payload: &[u8]) -> impl Iterator<Item = u64> {
    let chunks = payload.chunks_exact(8);
    chunks.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// Takes what comes, until a session ends or `most` items came.
fn take(listener: &Listener, most: usize) -> Vec<u64> {
    let mut all = Vec::new();
    while all.len() < most {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => {
                assert!(items.lost_before == 0 || items.lost_before % 10 == 0);
                for (place, number) in (items.first..).zip(numbers(&items.done())) {
                    assert_eq!(number, place, "items have the numbers that they were given");
                    all.push(number);
                }
            }
            Event::Ended(end) => {
                end.done();
                break;
            }
            _ => {}
        }
    }
    all
}

fn only(listener: &Listener) -> SessionCounts {
    let mut counts = listener.counts();
    assert_eq!(counts.len(), 1);
    counts.remove(0).1
}

/// Connections go through it, until it cuts them.
struct Wire {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    count: Arc<AtomicUsize>,
    target: Arc<Mutex<SocketAddr>>,
    is_closed: Arc<AtomicBool>,
}

impl Wire {
    fn to(target: SocketAddr) -> Wire {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire {
            address: socket.local_addr().unwrap(),
            open: Arc::default(),
            count: Arc::default(),
            target: Arc::new(Mutex::new(target)),
            is_closed: Arc::default(),
        };
        let (open, count) = (wire.open.clone(), wire.count.clone());
        let (target, is_closed) = (wire.target.clone(), wire.is_closed.clone());
        thread::spawn(move || {
            for near in socket.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(*target.lock().unwrap()) else {
                    continue;
                };
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                count.fetch_add(1, Ordering::SeqCst);
                // Before anything goes through, or a cut could come too early for it.
                let both = [&near, &far].map(|one| one.try_clone().unwrap());
                open.lock().unwrap().extend(both);
                for (mut from, mut to) in [(&near, &far), (&far, &near)]
                    .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
                {
                    thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        });
        wire
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[test]
fn all_arrives_in_order_and_both_sides_agree() {
    let keys = Keys::new();
    let listener = listen(&keys.identity("collector"));
    let sender = Sender::start(&keys.identity("sensor1"), to(listener.local_address())).unwrap();
    assert!(sender.wait_for_connection(LONG).unwrap());
    assert_eq!(sender.announce(b"what".to_vec()), 0);
    let sending = thread::spawn(move || {
        assert!(
            send_numbers(&sender, 0..2000)
                .iter()
                .all(|sent| *sent == Sent::Spooled)
        );
        sender.finish(LONG)
    });
    let event = listener.next(LONG).unwrap();
    assert!(matches!(&event, Event::Joined { peer, before: 0, .. } if peer.name == "sensor1"));
    let event = listener.next(LONG).unwrap();
    assert!(matches!(&event, Event::Announced { number: 0, payload, .. } if payload == b"what"));
    assert_eq!(
        take(&listener, usize::MAX),
        (0..20_000).collect::<Vec<u64>>()
    );
    let expected = SenderCounts {
        accepted: 20_000,
        delivered: 20_000,
        ..SenderCounts::default()
    };
    assert_eq!(sending.join().unwrap(), expected);
    let counts = only(&listener);
    assert_eq!(
        (counts.received, counts.lost, counts.repeated),
        (20_000, 0, 0)
    );
    assert!(counts.has_ended);
}

#[test]
fn connections_that_break_lose_nothing_and_repeat_nothing() {
    let keys = Keys::new();
    let listener = listen(&keys.identity("collector"));
    let wire = Wire::to(listener.local_address());
    let sender = Sender::start(&keys.identity("sensor1"), to(wire.address)).unwrap();
    let sending = thread::spawn(move || {
        send_numbers(&sender, 0..3000);
        sender.finish(LONG)
    });
    let mut all = Vec::new();
    for _ in 0..20 {
        all.extend(take(&listener, 1000));
        wire.cut();
    }
    all.extend(take(&listener, usize::MAX));
    assert_eq!(all, (0..30_000).collect::<Vec<u64>>());
    let counts = sending.join().unwrap();
    assert_eq!((counts.delivered, counts.lost), (30_000, 0));
    assert!(counts.reconnections >= 1, "{counts:?}");
    assert_eq!(only(&listener).received, 30_000);
}

#[test]
fn a_listener_that_restarts_knows_what_the_earlier_one_took() {
    let keys = Keys::new();
    let identity = keys.identity("collector");
    let first = listen(&identity);
    let wire = Wire::to(first.local_address());
    let sender = Sender::start(&keys.identity("sensor1"), to(wire.address)).unwrap();
    let sending = thread::spawn(move || {
        send_numbers(&sender, 0..1000);
        sender.finish(LONG)
    });
    take(&first, 5000);
    wire.is_closed.store(true, Ordering::SeqCst);
    drop(first);
    wire.cut();
    let second = listen(&identity);
    *wire.target.lock().unwrap() = second.local_address();
    wire.is_closed.store(false, Ordering::SeqCst);
    let rest = take(&second, usize::MAX);
    let counts = only(&second);
    // Some of what the first took may not have been acknowledged: the second gets it, too.
    assert!(counts.before <= 5000, "{counts:?}");
    assert_eq!(rest, (counts.before..10_000).collect::<Vec<u64>>());
    assert_eq!(counts.before + counts.received + counts.lost, 10_000);
    let sent = sending.join().unwrap();
    assert_eq!(sent.delivered + sent.lost, 10_000);
    assert_eq!(sent.lost, 0);
}

#[test]
fn what_a_full_spool_loses_is_counted_on_both_sides() {
    let keys = Keys::new();
    let identity = keys.identity("collector");
    for when_full in [WhenFull::DropNewest, WhenFull::DropOldest] {
        // Nobody listens yet.
        let address = own_address();
        let options = SenderOptions {
            spool_bytes: 10_000,
            when_full,
            ..to(address)
        };
        let name = format!("{when_full:?}").to_lowercase();
        let sender = Sender::start(&keys.identity(&name), options).unwrap();
        let sent = send_numbers(&sender, 0..500);
        assert!(sent.contains(&Sent::Lost));
        let counts = sender.counts();
        assert_eq!((counts.accepted, counts.delivered), (5000, 0));
        assert_eq!(counts.lost + counts.pending, 5000);
        assert!(counts.pending >= 500, "{counts:?}");
        let options = ListenerOptions::new(address.to_string());
        let listener = Listener::bind(&identity, options).unwrap();
        let sending = thread::spawn(move || sender.finish(LONG));
        let all = take(&listener, usize::MAX);
        let received = only(&listener);
        assert_eq!(received.received, all.len() as u64);
        assert_eq!(received.received, counts.pending);
        assert_eq!(received.lost, counts.lost);
        assert_eq!(sending.join().unwrap().lost, counts.lost);
        let kept = match when_full {
            WhenFull::DropNewest => 0..counts.pending,
            _ => 5000 - counts.pending..5000,
        };
        assert_eq!(all, kept.collect::<Vec<u64>>());
    }
}

#[test]
fn what_has_no_room_in_memory_waits_in_a_folder() {
    let keys = Keys::new();
    let identity = keys.identity("collector");
    let address = own_address();
    let folder = keys.folder.path().join("spool");
    let options = SenderOptions {
        spool_bytes: 10_000,
        spool_file: Some((folder.clone(), 64 << 20)),
        ..to(address)
    };
    let sender = Sender::start(&keys.identity("sensor1"), options).unwrap();
    let sent = send_numbers(&sender, 0..500);
    assert!(sent.iter().all(|sent| *sent == Sent::Spooled));
    assert_eq!(sender.counts().pending, 5000);
    let sessions = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(sessions(), 1);
    let listener = Listener::bind(&identity, ListenerOptions::new(address.to_string())).unwrap();
    let sending = thread::spawn(move || sender.finish(LONG));
    assert_eq!(take(&listener, usize::MAX), (0..5000).collect::<Vec<u64>>());
    let counts = sending.join().unwrap();
    assert_eq!((counts.delivered, counts.lost), (5000, 0));
    assert_eq!(sessions(), 0, "nothing is left");
}

/// What had not arrived when a sender ended comes with the next one, as the session that it was.
#[test]
fn what_a_sender_could_not_deliver_the_next_one_does() {
    let keys = Keys::new();
    let identity = keys.identity("collector");
    let address = own_address();
    let folder = keys.folder.path().join("spool");
    let sensor = keys.identity("sensor1");
    let options = |bytes| SenderOptions {
        spool_bytes: 10_000,
        spool_file: Some((folder.clone(), bytes)),
        when_full: WhenFull::DropNewest,
        ..to(address)
    };
    // In the second case the folder has no room for what was in memory.
    for bytes in [64 << 20, 100 * 4096] {
        let sender = Sender::start(&sensor, options(bytes)).unwrap();
        sender.announce(b"of the first".to_vec());
        send_numbers(&sender, 0..500);
        let before = sender.finish(Duration::from_millis(1));
        assert_eq!((before.accepted, before.delivered), (5000, 0));
        assert!(before.kept >= 1000 && before.kept <= before.pending);
        assert_eq!(before.kept < before.pending, bytes < 1 << 20);
        let listener =
            Listener::bind(&identity, ListenerOptions::new(address.to_string())).unwrap();
        let sender = Sender::start(&sensor, options(64 << 20)).unwrap();
        sender.announce(b"of the second".to_vec());
        send_numbers(&sender, 0..3);
        let sending = thread::spawn(move || sender.finish(LONG));
        let mut received: [Vec<u64>; 2] = Default::default();
        let mut totals = [0; 2];
        let mut announced = [Vec::new(), Vec::new()];
        let mut ends = 0;
        while ends < 2 {
            match listener.next(LONG).expect("something comes") {
                Event::Items(items) => {
                    let session = items.session.0 as usize;
                    for (place, number) in (items.first..).zip(numbers(&items.done())) {
                        assert_eq!(number, place);
                        received[session].push(number);
                    }
                }
                Event::Announced {
                    session, payload, ..
                } => {
                    announced[session.0 as usize].push(payload);
                }
                Event::Ended(end) => {
                    totals[end.session.0 as usize] = end.total;
                    end.done();
                    ends += 1;
                }
                _ => {}
            }
        }
        // The session of the process itself comes first.
        assert_eq!(received[0], (0..30).collect::<Vec<u64>>());
        assert_eq!(announced[0], [b"of the second"]);
        assert_eq!(announced[1], [b"of the first"]);
        assert_eq!(totals, [30, 5000]);
        assert_eq!(received[1].len() as u64, before.kept);
        let lost: u64 = listener
            .counts()
            .iter()
            .map(|(_, counts)| counts.lost)
            .sum();
        assert_eq!(lost, 5000 - before.kept);
        let own = sending.join().unwrap();
        assert_eq!((own.delivered, own.lost, own.kept), (30, 0, 0));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}

/// A new authority, and certificates of it: they count from the next connection on.
#[test]
fn keys_are_read_anew_when_their_files_change() {
    let (old, new) = (Keys::new(), Keys::new());
    let listener = listen(&old.identity("collector"));
    let address = listener.local_address();
    let stranger = Sender::start(&new.identity("sensor1"), to(address)).unwrap();
    stranger.wait_for_connection(LONG).unwrap_err();
    new.identity("collector");
    // Files that cannot be used change nothing.
    let key = old.folder.path().join("collector.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::write(&key, "no key").unwrap();
    let known = Sender::start(&old.identity("sensor2"), to(address)).unwrap();
    assert!(known.wait_for_connection(LONG).unwrap());
    std::fs::write(&key, kept).unwrap();
    for file in ["authority.crt", "collector.crt", "collector.key"] {
        let from = new.folder.path().join(file);
        std::fs::copy(from, old.folder.path().join(file)).unwrap();
    }
    // It tries again and again.
    loop {
        let event = listener.next(LONG).expect("it comes");
        if matches!(event, Event::Joined { peer, .. } if peer.name == "sensor1") {
            break;
        }
    }
    let refused = Sender::start(&old.folder.identity(Some("sensor2")).unwrap(), to(address));
    refused.unwrap().wait_for_connection(LONG).unwrap_err();
}

#[test]
fn a_session_that_left_can_be_forgotten() {
    let keys = Keys::new();
    let listener = listen(&keys.identity("collector"));
    let sender = Sender::start(&keys.identity("sensor1"), to(listener.local_address())).unwrap();
    send_numbers(&sender, 0..5);
    assert_eq!(take(&listener, 50).len(), 50);
    let id = listener.counts().remove(0).0;
    assert_eq!(listener.forget(id), None, "it is there");
    drop(sender);
    let counts = loop {
        if let Event::Left { .. } = listener.next(LONG).expect("it leaves") {
            break listener.forget(id).unwrap();
        }
    };
    assert_eq!((counts.received, counts.name.as_str()), (50, "sensor1"));
    assert!(listener.counts().is_empty());
}

#[test]
fn a_listener_that_takes_nothing_holds_the_sender_up() {
    let keys = Keys::new();
    let options = ListenerOptions {
        queue_bytes: 1 << 20,
        ..ListenerOptions::new("127.0.0.1:0")
    };
    let listener = Listener::bind(&keys.identity("collector"), options).unwrap();
    let options = SenderOptions {
        spool_bytes: 1 << 20,
        ..to(listener.local_address())
    };
    let sender = Arc::new(Sender::start(&keys.identity("sensor1"), options).unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let (sending, counter) = (sender.clone(), sent.clone());
    let thread = thread::spawn(move || {
        for frame in 0..100u64 {
            sending.send(vec![0; 100_000], 1, frame).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Until the spool is full of what was written and not acknowledged.
    wait_until("the spool is full", || sent.load(Ordering::SeqCst) >= 10);
    assert_eq!(sender.counts().delivered, 0);
    assert!(
        sent.load(Ordering::SeqCst) <= 11,
        "10 frames fit into the spool"
    );
    let mut received = 0;
    while received < 100 {
        if let Event::Items(items) = listener.next(LONG).expect("something comes") {
            received += u64::from(items.count);
            items.done();
        }
    }
    thread.join().unwrap();
}

#[test]
fn strangers_are_refused_with_a_reason() {
    let keys = Keys::new();
    let collector = keys.identity("collector");
    let options = ListenerOptions {
        allowed: vec!["sensor1".to_owned()],
        ..ListenerOptions::new("127.0.0.1:0")
    };
    let listener = Listener::bind(&collector, options).unwrap();
    let address = listener.local_address();
    let refused = |identity: &Identity, options: SenderOptions| {
        let sender = Sender::start(identity, options).unwrap();
        let error = sender.wait_for_connection(LONG).unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default())
    };
    // Of another authority: each side notices, whichever is first.
    let (error, hint) = refused(&Keys::new().identity("sensor1"), to(address));
    assert!(error.contains("authority"), "{error}");
    assert!(hint.contains("authority.crt"), "{hint}");
    // Another name than expected.
    let sensor = keys.identity("sensor1");
    let options = SenderOptions {
        peer: Some("archive".to_owned()),
        ..to(address)
    };
    let (error, hint) = refused(&sensor, options);
    assert!(error.contains("another name"), "{error}");
    assert!(
        hint.contains("collector")
            && ["peer = NAME", "--peer NAME"]
                .iter()
                .all(|it| hint.contains(it)),
        "{hint}"
    );
    // Not on the list.
    let (error, _) = refused(&keys.identity("sensor2"), to(address));
    assert!(
        error.contains("not allowed") && error.contains("sensor2"),
        "{error}"
    );
    // Who is, by its name, may.
    let options = SenderOptions {
        peer: Some("collector".to_owned()),
        ..to(address)
    };
    let sender = Sender::start(&sensor, options).unwrap();
    assert!(sender.wait_for_connection(LONG).unwrap());
}

#[test]
fn garbage_and_silence_disturb_nobody() {
    let keys = Keys::new();
    let options = ListenerOptions {
        handshake_timeout: Duration::from_millis(300),
        ..ListenerOptions::new("127.0.0.1:0")
    };
    let listener = Listener::bind(&keys.identity("collector"), options).unwrap();
    let address = listener.local_address();
    // More than there may be without a name from one address.
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for garbage in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0; 100_000],
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(garbage);
    }
    // Each is closed, by the timeout or at once.
    for mut stream in silent {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let ended = stream
            .read_to_end(&mut Vec::new())
            .map_err(|error| error.kind());
        assert!(
            !matches!(ended, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "{ended:?}"
        );
    }
    let sender = Sender::start(&keys.identity("sensor1"), to(address)).unwrap();
    let sending = thread::spawn(move || {
        send_numbers(&sender, 0..10);
        sender.finish(LONG)
    });
    assert_eq!(take(&listener, usize::MAX).len(), 100);
    assert_eq!(sending.join().unwrap().delivered, 100);
}

#[test]
fn a_session_belongs_to_its_name() {
    // Two senders have different sessions: what one sends never counts as the other's.
    let keys = Keys::new();
    let listener = listen(&keys.identity("collector"));
    let senders: Vec<_> = ["one", "two", "three"]
        .map(|name| {
            let sender = Sender::start(&keys.identity(name), to(listener.local_address()));
            let sender = sender.unwrap();
            thread::spawn(move || {
                send_numbers(&sender, 0..300);
                sender.finish(LONG)
            })
        })
        .into();
    for _ in 0..3 {
        take(&listener, usize::MAX);
    }
    for sender in senders {
        assert_eq!(sender.join().unwrap().delivered, 3000);
    }
    let counts = listener.counts();
    let mut names: Vec<&str> = counts
        .iter()
        .map(|(_, counts)| counts.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "three", "two"]);
    assert!(counts.iter().all(|(_, counts)| counts.received == 3000));
}
