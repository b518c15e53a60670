//! A process that is to end waits for room in a spool no longer than it is said.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowgauge_link::{KeyFolder, Sender, SenderOptions, Sent};
use flowgauge_sys::ending::ends_when;

#[test]
fn who_waits_for_room_loses_what_comes_once_the_process_is_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyFolder::new(folder.path());
    keys.create_authority().unwrap();
    keys.add("sensor1", &["127.0.0.1".to_owned()], 1).unwrap();
    // Nobody answers there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = SenderOptions {
        spool_bytes: 10_000,
        linger: Duration::from_millis(50),
        ..SenderOptions::new(silent.local_addr().unwrap().to_string())
    };
    let sender = Sender::start(&keys.identity(None).unwrap(), options).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    ends_when(flag.clone());
    let mut spooled = 0;
    while sender.counts().pending * 1000 < 8000 {
        assert_eq!(sender.send(vec![0; 1000], 1, 0).unwrap(), Sent::Spooled);
        spooled += 1;
    }
    flag.store(true, Ordering::Relaxed);
    let mut lost = 0;
    for _ in 0..100 {
        lost += u64::from(sender.send(vec![0; 1000], 1, 0).unwrap() == Sent::Lost);
    }
    assert!(lost > 90, "{lost}");
    // Who waited has waited already: the end does not wait once more, however long it may.
    let counts = sender.finish(Duration::from_secs(3600));
    assert_eq!(counts.accepted, spooled + 100);
    assert_eq!((counts.lost, counts.pending), (lost, spooled + 100 - lost));
}
