//! A sensor as systemd starts it: what it tells, and when.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowgauge");

/// Ends the sensor, however the test ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn systemd_is_told_what_a_sensor_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let socket = UnixDatagram::bind(at("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let config = format!("socket = \"{}\"\nuser = \"root\"\n", at("sock").display());
    fs::write(at("sensor.toml"), config).unwrap();
    let started = Command::new(PROGRAM)
        .args(["sensor", "run", "--config"])
        .arg(at("sensor.toml"))
        .env("NOTIFY_SOCKET", at("notify"))
        .stderr(Stdio::null())
        .spawn();
    let mut sensor = Ending(started.unwrap());
    let patience = Instant::now() + Duration::from_secs(60);
    // Watchdog messages come in between.
    let next = |skipped: &str| loop {
        let mut message = [0; 1024];
        let len = socket.recv(&mut message).unwrap();
        let message = String::from_utf8_lossy(&message[..len]).into_owned();
        assert!(Instant::now() < patience, "{message}");
        if message.trim() != skipped {
            return message;
        }
    };
    assert_eq!(next("").trim(), "READY=1");
    assert!(at("sock").exists(), "it can be asked by then");
    assert_eq!(next("").trim(), "WATCHDOG=1");
    assert_eq!(next("").trim(), "WATCHDOG=1");
    signal(&sensor.0, "-HUP");
    let reloading = next("WATCHDOG=1");
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(next("WATCHDOG=1").trim(), "READY=1");
    signal(&sensor.0, "-TERM");
    assert_eq!(next("WATCHDOG=1").trim(), "STOPPING=1");
    assert!(sensor.0.wait().unwrap().success());
    assert!(!at("sock").exists());
}
