//! Either side killed by SIGKILL in the middle: what was sent is received, or counted.
//!
//! The other side is this program again, with an environment variable that says what to do.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::loopback::own_address;
use flowgauge_link::{
    Event, Identity, KeyFolder, Listener, ListenerOptions, Sender, SenderOptions, SessionCounts,
};

const LONG: Duration = Duration::from_secs(60);
const FRAMES: u64 = 2000;
const ITEMS: u64 = 100;

fn identity(folder: &Path, name: &str) -> Identity {
    KeyFolder::new(folder).identity(Some(name)).unwrap()
}

/// Keys of two, and an address where they can meet.
fn keys() -> (tempfile::TempDir, String) {
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    let keys = KeyFolder::new(folder.path());
    keys.create_authority().unwrap();
    for name in ["collector", "sensor1"] {
        keys.add(name, &[address.ip().to_string()], 1).unwrap();
    }
    (folder, address.to_string())
}

fn sender(folder: &Path, address: &str) -> Sender {
    // One that keeps what it has where the next finds it, if there is such a place.
    let spool = folder.join("spool");
    let is_kept = spool.is_dir();
    let options = SenderOptions {
        spool_bytes: if is_kept { 200_000 } else { 64 << 20 },
        spool_file: is_kept.then_some((spool, 1 << 30)),
        least_backoff: Duration::from_millis(1),
        most_backoff: Duration::from_millis(20),
        ..SenderOptions::new(address)
    };
    Sender::start(&identity(folder, "sensor1"), options).unwrap()
}

fn send(sender: &Sender, frames: u64) {
    for frame in 0..frames {
        let number = frame.to_le_bytes();
        sender
            .send(number.repeat(1000), ITEMS as u32, frame)
            .unwrap();
    }
}

/// Takes what comes, tells after each frame how far it is, and in the end the counts.
fn take_and_tell(listener: &Listener, mut tell: impl FnMut(&str)) -> SessionCounts {
    let mut next = None;
    loop {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => {
                let (first, count) = (items.first, u64::from(items.count));
                assert_eq!(next.unwrap_or(first), first, "in order, without holes");
                let frame = u64::from_le_bytes(items.payload[..8].try_into().unwrap());
                assert_eq!(frame, first / ITEMS);
                next = Some(first + count);
                items.done();
                tell(&format!("taken {}", first + count));
            }
            Event::Ended(end) => {
                end.done();
                let counts = listener.counts().remove(0).1;
                tell(&format!(
                    "{} {} {}",
                    counts.before, counts.received, counts.lost
                ));
                return counts;
            }
            _ => {}
        }
    }
}

/// This program again, as the other side.
fn other_side(what: &str, folder: &Path, address: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_other_side", "--nocapture"])
        .env("OTHER_SIDE", what)
        .env("KEYS", folder)
        .env("ADDRESS", address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.map_while(Result::ok);
    let lines = lines.filter_map(|line| line.strip_prefix("says ").map(str::to_owned));
    (child, lines)
}

#[test]
fn the_other_side() {
    let Ok(what) = std::env::var("OTHER_SIDE") else {
        return;
    };
    let (folder, address) = (
        std::env::var("KEYS").unwrap(),
        std::env::var("ADDRESS").unwrap(),
    );
    let folder = Path::new(&folder);
    #[allow(clippy::print_stdout)] // What it tells the test that started it.
    let tell = |line: &str| println!("says {line}");
    match what.as_str() {
        "listener" => {
            let options = ListenerOptions::new(address);
            let listener = Listener::bind(&identity(folder, "collector"), options).unwrap();
            tell("listening");
            take_and_tell(&listener, tell);
        }
        "spooler" => {
            let sender = sender(folder, &address);
            send(&sender, FRAMES);
            tell(&format!("spooled {}", sender.counts().pending));
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        _ => {
            let sender = sender(folder, &address);
            send(&sender, FRAMES);
            let counts = sender.finish(LONG);
            tell(&format!("{} {}", counts.delivered, counts.lost));
        }
    }
}

#[test]
fn a_listener_is_killed() {
    let (folder, address) = keys();
    let (mut first, mut lines) = other_side("listener", folder.path(), &address);
    assert_eq!(lines.next().unwrap(), "listening");
    let sender = sender(folder.path(), &address);
    let sending = std::thread::spawn(move || {
        send(&sender, FRAMES);
        sender.finish(LONG)
    });
    let taken = lines
        .by_ref()
        .filter_map(|line| line.strip_prefix("taken ")?.parse::<u64>().ok());
    taken
        .into_iter()
        .find(|taken| *taken >= FRAMES * ITEMS / 3)
        .unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let (mut second, lines) = other_side("listener", folder.path(), &address);
    let last = lines
        .filter(|line| !line.starts_with("taken") && line != "listening")
        .last()
        .unwrap();
    second.wait().unwrap();
    let numbers: Vec<u64> = last
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [before, received, lost] = numbers[..] else {
        panic!("{last}");
    };
    assert_eq!(before + received + lost, FRAMES * ITEMS);
    assert_eq!(lost, 0);
    // What it had taken and not acknowledged came to the second, too: whole frames.
    assert_eq!(before % ITEMS, 0);
    let counts = sending.join().unwrap();
    assert_eq!(
        (counts.delivered, counts.lost, counts.pending),
        (FRAMES * ITEMS, 0, 0)
    );
    assert!(counts.rewritten <= counts.delivered);
}

#[test]
fn a_sender_is_killed() {
    let (folder, address) = keys();
    let options = ListenerOptions::new(&address);
    let listener = Listener::bind(&identity(folder.path(), "collector"), options).unwrap();
    // One that does not end of itself, however fast it is.
    let (mut first, _lines) = other_side("spooler", folder.path(), &address);
    let mut received = 0;
    let mut is_killed = false;
    loop {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => {
                assert_eq!(items.first, received);
                received += u64::from(items.count);
                items.done();
                if received >= FRAMES * ITEMS / 3 && !is_killed {
                    first.kill().unwrap();
                    first.wait().unwrap();
                    is_killed = true;
                }
            }
            Event::Left { .. } => break,
            _ => {}
        }
    }
    let counts = listener.counts().remove(0).1;
    assert!(!counts.has_ended && !counts.is_connected);
    assert_eq!((counts.received, counts.lost), (received, 0));
    // What it was last known to have: at least what came. The rest died with it.
    assert!(counts.accepted >= received && counts.accepted <= FRAMES * ITEMS);
    // A new one is another session, and all of it comes.
    let (mut second, mut lines) = other_side("sender", folder.path(), &address);
    loop {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => drop(items.done()),
            Event::Ended(end) => {
                assert_eq!((end.total, end.lost_before), (FRAMES * ITEMS, 0));
                end.done();
                break;
            }
            _ => {}
        }
    }
    assert_eq!(lines.next().unwrap(), format!("{} 0", FRAMES * ITEMS));
    second.wait().unwrap();
    assert_eq!(listener.counts()[1].1.received, FRAMES * ITEMS);
}

/// What it had on disk the next one sends, as its session; what it had in memory is counted as lost.
#[test]
fn a_sender_that_spools_is_killed() {
    let (folder, address) = keys();
    std::fs::create_dir(folder.path().join("spool")).unwrap();
    let (mut first, mut lines) = other_side("spooler", folder.path(), &address);
    let spooled = format!("spooled {}", FRAMES * ITEMS);
    assert_eq!(
        lines.find(|line| line.starts_with("spooled")),
        Some(spooled)
    );
    first.kill().unwrap();
    first.wait().unwrap();
    let options = ListenerOptions::new(&address);
    let listener = Listener::bind(&identity(folder.path(), "collector"), options).unwrap();
    let sender = sender(folder.path(), &address);
    send(&sender, 3);
    let sending = std::thread::spawn(move || sender.finish(LONG));
    let mut ends = 0;
    while ends < 2 {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => {
                let frame = u64::from_le_bytes(items.payload[..8].try_into().unwrap());
                assert_eq!(frame, items.first / ITEMS);
                items.done();
            }
            Event::Ended(end) => {
                end.done();
                ends += 1;
            }
            _ => {}
        }
    }
    let own = sending.join().unwrap();
    assert_eq!((own.delivered, own.lost), (3 * ITEMS, 0));
    let counts = listener.counts();
    assert_eq!(counts[0].1.received, 3 * ITEMS);
    let old = &counts[1].1;
    assert_eq!(old.received + old.lost, FRAMES * ITEMS);
    // Memory had room for 25 frames of 8000 bytes.
    assert!(old.lost >= 20 * ITEMS && old.lost <= 25 * ITEMS, "{old:?}");
    assert!(old.has_ended);
}
