//! A spool on a file system that is smaller than it may become: what was written is delivered, and the
//! rest is counted.
//!
//! The file system is a tmpfs in a mount namespace of its own, where this program runs again.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::loopback::own_address;
use crate::skipped::skipped;
use flowgauge_link::{
    Event, KeyFolder, Listener, ListenerOptions, Sender, SenderOptions, WhenFull,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Where the file system is, for the one that runs there.
const FOLDER: &str = "SMALL_DISK";
const FRAMES: u64 = 500;
const ITEMS: u32 = 10;

#[test]
fn what_a_small_disk_does_not_hold_is_counted() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_it(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "small_disk::what_a_small_disk_does_not_hold_is_counted";
    let line =
        "mount -t tmpfs -o size=256k tmpfs \"$SMALL_DISK\" || exit 77; exec \"$0\" --exact \"$1\"";
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", line])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(FOLDER, folder.path())
        .output();
    let output = match ran {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return skipped("no file system can be mounted here"),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") {
        return skipped(said);
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    assert!(printed.contains("1 passed"), "{printed}");
}

fn on_it(folder: PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let keys = KeyFolder::new(temporary.path());
    keys.create_authority().unwrap();
    // Nobody listens there yet.
    let address = own_address();
    let identity = |name| {
        keys.add(name, &[address.ip().to_string()], 1).unwrap();
        keys.identity(Some(name)).unwrap()
    };
    let (collector, sensor) = (identity("collector"), identity("sensor1"));
    let options = SenderOptions {
        spool_bytes: 4000,
        spool_file: Some((folder, 64 << 20)),
        when_full: WhenFull::DropNewest,
        least_backoff: Duration::from_millis(1),
        most_backoff: Duration::from_millis(20),
        ..SenderOptions::new(address.to_string())
    };
    let sender = Sender::start(&sensor, options).unwrap();
    for frame in 0..FRAMES {
        let payload = frame.to_le_bytes().repeat(1000);
        sender.send(payload, ITEMS, frame).unwrap();
    }
    let all = FRAMES * u64::from(ITEMS);
    let counts = sender.counts();
    assert_eq!(counts.accepted, all);
    assert_eq!(counts.lost + counts.pending, all);
    // Some found room on it, most did not.
    assert!(
        counts.pending > 8 * u64::from(ITEMS) && counts.pending < all / 2,
        "{counts:?}"
    );
    let options = ListenerOptions::new(address.to_string());
    let listener = Listener::bind(&collector, options).unwrap();
    let sending = thread::spawn(move || sender.finish(LONG));
    let mut received = 0;
    loop {
        match listener.next(LONG).expect("something comes") {
            Event::Items(items) => {
                let number = items.first / u64::from(ITEMS);
                assert_eq!(*items.payload, number.to_le_bytes().repeat(1000));
                received += u64::from(items.count);
                items.done();
            }
            Event::Ended(end) => {
                end.done();
                break;
            }
            _ => {}
        }
    }
    let sent = sending.join().unwrap();
    assert_eq!((sent.delivered, sent.lost), (counts.pending, counts.lost));
    assert_eq!(
        (received, all),
        (sent.delivered, sent.delivered + sent.lost)
    );
    assert_eq!(listener.counts().remove(0).1.lost, sent.lost);
}
