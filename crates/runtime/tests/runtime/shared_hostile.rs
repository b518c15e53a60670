//! Clients of a shared capture that lie, flood, say nonsense or vanish: the capture goes on, the other
//! clients get what they would get alone, and every packet is in the ledger.
//!
//! Nothing here needs root. Where another process is needed this program starts itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use flowgauge_generate::Preset;
use flowgauge_sensor_client::protocol::{Answer, receive_answer};
use flowgauge_sys::local::Connection;
use flowgauge_sys::process;
use serde_json::json;

use crate::shared_support::feed::{ServiceConfig, Shared, everything};
use crate::shared_support::{LIMIT, alone, listen, packets_of, same, trace};

const STATUS: &[u8] = br#"{"do":"status"}"#;
/// What joined clients say of a stream.
const COMMAND: &[u8] = br#"{"do":"streams","commands":[[7,"discard"]]}"#;

/// The name that the service listens under.
fn name(shared: &Shared) -> String {
    format!(
        "flowgauge/share/10/{}/{}",
        process::user(),
        shared.interface
    )
}

/// What the sensor says next: an answer that has one part, or a notice.
fn next(connection: &Connection) -> (Answer, Vec<OwnedFd>) {
    receive_answer(connection, LIMIT).unwrap()
}

/// The same, why it refuses.
fn refused(connection: &Connection) -> String {
    match next(connection).0 {
        Answer::Refused(refusal) => refusal.text(),
        other => panic!("{other:?}"),
    }
}

/// Waits until the service has closed the connection.
fn wait_for_end(connection: &Connection) {
    let mut message = vec![0; 1 << 16];
    loop {
        assert!(connection.wait(Some(LIMIT)).unwrap());
        if connection.receive(&mut message).is_err() {
            return;
        }
    }
}

/// What a client says that wants everything.
fn join_message(interface: &str) -> Vec<u8> {
    let join = json!({
        "do": "capture", "interface": interface, "program": "hand", "memory": 1 << 20,
        "least_memory": 1 << 20, "thresholds": {"base": 0.5}, "packets": false, "data": true,
        "wanted": {
            "mode": "wait", "cutoff": u64::MAX, "cutoffs": [], "chunk_bytes": 16_384, "overlap_bytes": 0,
            "priority": 0, "priorities": [],
        },
    });
    join.to_string().into()
}

/// A client without this project's code: its connection, and the pool, the ring and the page it was
/// given.
fn join_by_hand(name: &str) -> (Connection, [File; 3]) {
    let connection = Connection::connect(name).unwrap();
    let (_, interface) = name.rsplit_once('/').unwrap();
    connection.send(&join_message(interface)).unwrap();
    let (answer, files) = next(&connection);
    assert!(matches!(answer, Answer::Capture(_)), "{answer:?}");
    let files = files.into_iter().map(File::from).collect::<Vec<_>>();
    (connection, files.try_into().unwrap())
}

/// Connections that say anything at all, before they join and afterwards, disturb nobody.
#[test]
fn hostile_connections_disturb_nobody() {
    let portions = trace(Preset::Mix, 0.002);
    let mut shared = Shared::start();
    let mut honest = shared.join(&everything());
    let name = name(&shared);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let reader = std::thread::spawn(move || (listen(&mut honest), honest.statistics().0));
    let mut open = Vec::new();
    let mut sent = 0;
    for portion in &portions {
        for _ in 0..20 {
            if open.len() > 40 {
                open.remove(random() as usize % 40);
            }
            let Ok(connection) = Connection::connect(&name) else {
                continue;
            };
            for _ in 0..random() % 8 {
                let starts: [&[u8]; 4] = [b"+", b".", COMMAND, b"{\"do\":\"capture\","];
                let start = starts[random() as usize % 4];
                let len = match random() % 3 {
                    0 => 1 + random() % 16,
                    1 => 1 + random() % 300,
                    _ => 1 + random() % 60_000,
                };
                let mut message: Vec<u8> = (0..len).map(|_| random() as u8).collect();
                message.splice(0..0, start.iter().copied());
                sent += u32::from(connection.send(&message).is_ok());
            }
            open.push(connection);
        }
        shared.feed(core::slice::from_ref(portion));
    }
    shared.end();
    let (stories, statistics) = reader.join().unwrap();
    same(&stories, &alone(&everything(), &portions));
    assert!(statistics.is_complete(), "{statistics:?}");
    assert!(sent > 100, "{sent}");
    drop(open);
    assert_eq!(shared.ledger().received(), packets_of(&portions));
}

#[test]
fn a_client_that_says_nonsense_is_dismissed() {
    let shared = Shared::start();
    let _other = shared.join(&everything());
    // Who has not joined may ask for something else.
    let connection = Connection::connect(&name(&shared)).unwrap();
    let early: [(&[u8], &str); 2] = [(&[3, 1, 2], "not a request"), (COMMAND, "join a capture")];
    for (message, why) in early {
        connection.send(message).unwrap();
        let refused = refused(&connection);
        assert!(refused.contains(why), "{refused}");
    }
    drop(connection);
    // And one that has joined.
    let join = join_message(&shared.interface);
    let no_filter = br#"{"do":"change","wanted":{"filter":"tcp"}}"#;
    let nothings: [&[u8]; 4] = [&[3, 1, 2], b".{}", &join, no_filter];
    for nonsense in nothings {
        let (connection, _) = join_by_hand(&name(&shared));
        assert_eq!(shared.status().clients.len(), 2);
        connection.send(nonsense).unwrap();
        let ended = Answer::Ended("not understood".to_owned());
        assert_eq!(next(&connection).0, ended);
        wait_for_end(&connection);
        shared.wait_until("it is dismissed", |status| status.clients.len() == 1);
    }
    shared.ledger();
}

#[test]
fn what_clients_read_they_cannot_write() {
    let portions = trace(Preset::Mix, 0.002);
    let mut shared = Shared::start();
    let mut honest = shared.join(&everything());
    let (hostile, [pool, ring, page]) = join_by_hand(&name(&shared));
    let reader = std::thread::spawn(move || (listen(&mut honest), honest.statistics().0));
    shared.feed_through(&portions[..4], packets_of(&portions[..4]));
    for file in [&pool, &ring] {
        let len = file.metadata().unwrap().len();
        assert!(len > 4096);
        for at in [0, 64, 4096, len - 8] {
            assert!(file.write_at(&[0x5a; 8], at).is_err());
        }
        for other in [0, len - 1, len + 1, 2 * len] {
            assert!(file.set_len(other).is_err());
        }
    }
    // The page is the client's own, but neither may it be cut: the service looks at it.
    assert!(page.set_len(0).is_err() && page.set_len(1 << 20).is_err());
    assert!(shared.status().clients.iter().any(|one| one.name == "hand"));
    // It has read what was never written.
    page.write_at(&u64::MAX.to_le_bytes(), 0).unwrap();
    wait_for_end(&hostile);
    shared.feed(&portions[4..]);
    shared.end();
    let (stories, statistics) = reader.join().unwrap();
    same(&stories, &alone(&everything(), &portions));
    assert!(statistics.is_complete(), "{statistics:?}");
    assert_eq!(shared.ledger().received(), packets_of(&portions));
}

#[test]
fn who_asks_without_end_and_never_listens_stops_nothing() {
    let portions = trace(Preset::Mix, 0.002);
    let mut shared = Shared::start();
    let mut honest = shared.join(&everything());
    let reader = std::thread::spawn(move || (listen(&mut honest), honest.statistics().0));
    let talkers = [0; 8].map(|_| join_by_hand(&name(&shared)).0);
    let mut sent = 0_u64;
    for portion in &portions {
        for (number, talker) in talkers.iter().enumerate() {
            // Until its socket is full.
            let message = if number % 2 == 0 { STATUS } else { COMMAND };
            sent += (0..1000)
                .take_while(|_| talker.send(message).is_ok())
                .count() as u64;
        }
        shared.feed(core::slice::from_ref(portion));
    }
    assert!(sent > 1_000, "{sent}");
    shared.feed_through(&[], packets_of(&portions));
    shared.end();
    let (stories, statistics) = reader.join().unwrap();
    same(&stories, &alone(&everything(), &portions));
    assert!(statistics.is_complete(), "{statistics:?}");
    assert_eq!(shared.ledger().received(), packets_of(&portions));
}

#[test]
fn descriptors_that_clients_send_are_closed() {
    let shared = Shared::start();
    let (connection, [pool, ring, page]) = join_by_hand(&name(&shared));
    let files = [pool.as_fd(), ring.as_fd(), page.as_fd(), connection.as_fd()];
    // Descriptors of these files alone: other tests of this program open and close theirs meanwhile.
    let file = |path: PathBuf| -> Option<(u64, u64)> {
        let about = std::fs::metadata(path).ok()?;
        Some((about.dev(), about.ino()))
    };
    let own = files.map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into());
    let own = own.map(file);
    assert!(own.iter().all(Option::is_some));
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let all = all.map(|entry| file(entry.unwrap().path()));
        all.filter(|found| own.contains(found)).count()
    };
    let before = open();
    assert!(before >= files.len());
    for _ in 0..200 {
        connection.send_files(COMMAND, &files).unwrap();
        // It is heard then.
        shared.status();
    }
    // It may have answered the last one before it closed them.
    let after = open();
    assert!(after <= before + files.len(), "{after} of {before}");
    drop(connection);
    shared.wait_until("it is gone", |status| status.clients.is_empty());
    shared.ledger();
}

/// This program as another process; see `other`.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, name: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if role == "tight" {
            command = Command::new("sh");
            command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]);
            command.arg(std::env::current_exe().unwrap());
        }
        let mut child = command
            .args([
                "--exact",
                "shared_hostile::other",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("FLOWGAUGE_TEST_ROLE", format!("{role} {name}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        Process {
            child,
            input,
            output,
        }
    }

    /// ... that says that it is ready.
    fn start_until_ready(role: &str, name: &str) -> Process {
        let mut process = Process::start(role, name);
        process.wait_for("ready");
        process
    }

    /// What it says after `word`.
    fn wait_for(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test, but what the other process does.
#[test]
fn other() {
    let Ok(role) = std::env::var("FLOWGAUGE_TEST_ROLE") else {
        return;
    };
    match role.split_once(' ').unwrap() {
        ("flood", name) => flood(name),
        ("orphan", name) => orphan(name),
        ("tight", _) => tight(),
        _ => unreachable!("{role}"),
    }
}

/// Connects without end and never joins, until its input ends.
fn flood(name: &str) {
    let stop = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let mut open = std::collections::VecDeque::new();
    let mut count = 0_u64;
    while !stop.is_finished() {
        if open.len() == 500 {
            open.pop_front();
        }
        if let Ok(connection) = Connection::connect(name) {
            open.push_back(connection);
            count += 1;
        }
        if count == 200 {
            println!("ready");
            std::io::stdout().flush().unwrap();
        }
    }
    println!("flooded {count}");
}

/// Joins, and has a child that has the connection, too, and does nothing.
fn orphan(name: &str) {
    let (connection, _files) = join_by_hand(name);
    let mut child = Command::new("sleep")
        .arg("1000")
        .stdin(connection.as_fd().try_clone_to_owned().unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    println!("ready\nchild {}", child.id());
    std::io::stdout().flush().unwrap();
    // It is killed before its input ends.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let _ = (child.kill(), child.wait());
}

/// A service that has descriptors for one connection and one half of a ring left.
fn tight() {
    let shared = Shared::start();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - 2);
    println!("ready {}", name(&shared));
    std::io::stdout().flush().unwrap();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

#[test]
fn who_cannot_be_given_memory_is_told_so() {
    let mut tight = Process::start("tight", "");
    let name = tight.wait_for("ready ");
    let connection = Connection::connect(&name).unwrap();
    let (_, interface) = name.rsplit_once('/').unwrap();
    connection.send(&join_message(interface)).unwrap();
    let told = refused(&connection);
    assert!(told.contains("Too many open files"), "{told}");
}

/// Thousands of connections of one process keep nobody out, and no packet.
#[test]
fn a_flood_of_connections_keeps_nobody_out() {
    let portions = trace(Preset::Mix, 0.002);
    let mut shared = Shared::start();
    let mut flood = Process::start_until_ready("flood", &name(&shared));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let mut honest = shared.join(&everything());
            std::thread::spawn(move || (listen(&mut honest), honest.statistics().0))
        })
        .collect();
    shared.feed(&portions);
    drop(flood.input.take());
    let count: u64 = flood.wait_for("flooded ").parse().unwrap();
    assert!(count >= 200, "{count}");
    shared.end();
    let expected = alone(&everything(), &portions);
    for reader in readers {
        let (stories, statistics) = reader.join().unwrap();
        same(&stories, &expected);
        assert!(statistics.is_complete(), "{statistics:?}");
    }
    assert_eq!(shared.ledger().received(), packets_of(&portions));
}

/// A client is its process: with that it is gone, even where a child has the connection.
#[test]
fn a_client_ends_with_its_process_and_the_service_with_the_last() {
    let shared = Shared::start_with(ServiceConfig {
        grace: Some(Duration::ZERO),
        pool_bytes: 64 << 20,
    });
    let mut orphan = Process::start_until_ready("orphan", &name(&shared));
    let child = orphan.wait_for("child ");
    assert_eq!(shared.status().clients.len(), 1);
    drop(orphan);
    // It ends although its source does not.
    let ledger = shared.thread.join().unwrap();
    assert!(ledger.is_balanced());
    let killed = Command::new("kill").args(["-KILL", &child]).status();
    assert!(killed.unwrap().success());
}
