//! A user who takes more than a share of the processors, on an interface that brings more than is taken: the user's flows rest, and
//! then the costliest is cut off. (On its own, as it has a component of its own.)

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_sensor::Sensor;
use flowgauge_sensor_client::{Client, Flow};
use flowgauge_stack::{Component, ComponentInfo, Items, Outlet, Parallel, options};
use flowgauge_sys::process;
use flowgauge_sys::testing::{become_on_this_thread, enter_namespace};
use flowgauge_sys::transmit::TransmitSocket;

/// A user who need not exist.
const USER: u32 = 64_003;

static BUSY: ComponentInfo = ComponentInfo {
    name: "busy",
    summary: "takes time",
    help: "For each packet.",
    options: Options::ALL,
    parallel: Parallel::Never("it is one"),
    make: |settings| {
        let name = thread::current().name().map(str::to_owned);
        MADE_BY.lock().unwrap().extend(name);
        Ok(Box::new(Busy {
            options: Options::read(settings),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

/// The threads that made it.
static MADE_BY: Mutex<Vec<String>> = Mutex::new(Vec::new());

options! {
    struct Options;
    wait: Integer(0, 1_000_000) as u64 = "0", "microseconds that it waits for each packet";
    work: Integer(0, 1_000_000) as u64 = "0", "microseconds of processor time that it takes for each packet";
}

struct Busy {
    options: Options,
}

impl Component for Busy {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let packets = packets.selected.len() as u64;
            thread::sleep(Duration::from_micros(self.options.wait * packets));
            let until = process::thread_time() + 1000 * self.options.work * packets;
            while process::thread_time() < until {}
        }
    }
}

/// A network namespace with a virtual cable; it goes with this.
struct Cable(String);

impl Cable {
    fn new() -> Option<Cable> {
        let name = format!("fg-cut-{}", std::process::id());
        let ip = |arguments: &str| {
            let ran = Command::new("ip").args(arguments.split(' ')).output();
            ran.is_ok_and(|ran| ran.status.success())
        };
        if process::user() != 0 || !ip(&format!("netns add {name}")) {
            eprintln!("SKIPPED: needs root, and network namespaces");
            return None;
        }
        let cable = Cable(name);
        for change in [
            "add cut0 type veth peer name cut1",
            "set cut0 up",
            "set cut1 up",
        ] {
            assert!(ip(&format!("-n {} link {change}", cable.0)), "{change}");
        }
        Some(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Sends frames for as long as that is wanted.
fn send(is_stopped: &AtomicBool) {
    let index = fs::read_to_string("/sys/class/net/cut0/ifindex");
    let index = index.ok().and_then(|text| text.trim().parse().ok());
    let socket = TransmitSocket::open(index.unwrap_or_else(interface_index)).unwrap();
    let frame = [&[0xff; 12][..], &[0x88, 0xb5], &[0; 100]].concat();
    let frames = vec![frame.as_slice(); TransmitSocket::MOST_PER_CALL];
    while !is_stopped.load(Ordering::Relaxed) {
        // A full queue is waited for.
        let _ = socket.send(&frames);
        thread::sleep(Duration::from_millis(1));
    }
}

/// The number of the sending end. (/sys shows the interfaces of the namespace in which it was mounted.)
fn interface_index() -> i32 {
    let shown = Command::new("ip")
        .args(["-o", "link", "show", "cut0"])
        .output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    shown.split(':').next().unwrap().trim().parse().unwrap()
}

#[test]
fn who_takes_too_much_rests_and_is_cut_off() {
    let Some(cable) = Cable::new() else {
        return;
    };
    flowgauge_registry::add(&[&BUSY]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (
        folder.path().join("sensor.toml"),
        folder.path().join("sock"),
    );
    // The device takes 20,000 packets per second, and three times as many come.
    let text = format!(
        "socket = {socket:?}\nuser = \"root\"\n[devices.cut1]\nbuffer = 1048576\n\
         [stacks.slow]\nstack = \"busy {{ wait = 50 }} count\"\n\
         [users.{USER}]\npackets = \"payload\"\ncpu = 0.01\n"
    );
    fs::write(&file, &text).unwrap();
    let is_stopped = AtomicBool::new(false);
    let ends = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let _ending = Ending(&is_stopped, &ends);
        let inside = || {
            enter_namespace(&cable.0).unwrap();
            let sensor = Arc::new(Sensor::start(&file, Arc::clone(&ends)).unwrap());
            scope.spawn(|| send(&is_stopped));
            thread::spawn(move || sensor.run(|_| {}))
        };
        scope.spawn(inside).join().unwrap();
        for path in [folder.path(), &socket] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        let admin = Client::connect(&socket).unwrap();
        let other = admin.open("cut1", "count", &[]).unwrap();
        let (client, costly, light) = scope
            .spawn(|| {
                become_on_this_thread(USER).unwrap();
                let client = Client::connect(&socket).unwrap();
                let costly = client.open("cut1", "busy { work = 20 } count", &[]);
                let costly = costly.unwrap();
                let light = client.open("cut1", "bytes", &[]).unwrap();
                (client, costly, light)
            })
            .join()
            .unwrap();
        cut_off(&client, &costly, &light);
        // Nobody else rests.
        let status = admin.status().unwrap();
        let flows = status.devices[0].stacks.iter().flat_map(|it| &it.flows);
        let of_other = flows.clone().find(|flow| flow.flow == other.number());
        assert_eq!(of_other.unwrap().lost, 0, "{status:?}");
        assert_eq!(flows.count(), 2, "{status:?}");
        assert!(admin.results(other.number()).unwrap().failure.is_none());
        // What a reload brings is not made by the thread that takes packets.
        MADE_BY.lock().unwrap().clear();
        fs::write(
            &file,
            text.clone() + "[stacks.more]\nstack = \"busy count\"\n",
        )
        .unwrap();
        assert_eq!(admin.reload().unwrap(), ["device cut1: changed more"]);
        let made_by = MADE_BY.lock().unwrap().clone();
        let is_other = |name: &String| name != "fg-cut1";
        assert!(
            !made_by.is_empty() && made_by.iter().all(is_other),
            "{made_by:?}"
        );
    });
}

/// Ends what runs, however the test ends.
struct Ending<'a>(&'a AtomicBool, &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.store(true, Ordering::Relaxed);
    }
}

fn cut_off(client: &Client, costly: &Flow, light: &Flow) {
    let patience = Instant::now() + Duration::from_secs(120);
    let wait = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(Instant::now() < patience, "{:?}", client.status());
            thread::sleep(Duration::from_millis(20));
        }
    };
    // It rests, and is told what it did not get.
    wait(&|| costly.readings().read(0).lost > 0);
    wait(&|| costly.readings().read(0).has_failed);
    let results = client.results(costly.number()).unwrap();
    let failure = results.failure.unwrap_or_default();
    assert!(
        failure.contains("the flow was ended") && failure.contains("cpu = 0.01"),
        "{failure}"
    );
    assert!(results.is_last && results.components.len() == 2);
    // The other one of the user stays.
    let results = client.results(light.number()).unwrap();
    assert_eq!(results.failure, None);
    assert!(client.close(costly.number()).is_ok());
}
