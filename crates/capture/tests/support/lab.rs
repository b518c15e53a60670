//! A network namespace with a pair of virtual interfaces. Also used by the tests of the program.

// Each test binary compiles this module and uses part of it.
#![allow(dead_code)]

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use flowgauge_sys::transmit::TransmitSocket;
use flowgauge_sys::{interfaces, privileges};

/// A network namespace of its own with `fg0` and `fg1`, the ends of a virtual cable. It is
/// silent: no IPv6, no address. Removed when dropped.
pub(crate) struct Lab {
    name: String,
}

impl Lab {
    /// `None`, with the reason printed, where this is not permitted.
    pub(crate) fn new(mtu: u32) -> Option<Lab> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);

        if !privileges::is_root() {
            skip("live tests need root");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fg-test-{}-{number}", std::process::id());
        let added = Command::new("ip").args(["netns", "add", &name]).status();
        if !added.is_ok_and(|status| status.success()) {
            skip("`ip netns add` does not work here");
            return None;
        }
        let lab = Lab { name };
        lab.exec("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        lab.exec("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        lab.ip("link add fg0 type veth peer name fg1");
        for end in ["fg0", "fg1"] {
            lab.ip(&format!("link set {end} mtu {mtu} up"));
        }
        lab.ip("link set lo up");
        Some(lab)
    }

    /// Runs `ip` with these arguments inside.
    pub(crate) fn ip(&self, arguments: &str) {
        self.command(Command::new("ip").args(["-n", &self.name]), arguments);
    }

    /// Lays a cable to another one.
    pub(crate) fn connect(&self, other: &Lab, here: &str, there: &str) {
        let peer = &other.name;
        self.ip(&format!(
            "link add {here} type veth peer name {there} netns {peer}"
        ));
    }

    fn exec(&self, arguments: &str) {
        self.command(
            Command::new("ip").args(["netns", "exec", &self.name]),
            arguments,
        );
    }

    fn command(&self, command: &mut Command, arguments: &str) {
        let status = command.args(arguments.split_whitespace()).status().unwrap();
        assert!(status.success(), "{arguments}");
    }

    /// Runs `inside` on a thread in the namespace.
    pub(crate) fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                flowgauge_sys::testing::enter_namespace(&self.name).unwrap();
                inside()
            });
            thread.join().unwrap()
        })
    }

    /// A command that runs inside.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// A sender on the interface of this name.
    pub(crate) fn sender(&self, interface: &str) -> TransmitSocket {
        self.run(|| TransmitSocket::open(interfaces::index_of(interface).unwrap()).unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// Reports the running test as skipped in the form the test runner counts, past the test harness,
/// which would swallow it.
fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("live");
    let line = format!("SKIPPED {test} {reason}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
