//! A program that is a sensor with a component of its own, and a function of MAPI that becomes it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use flowgauge_generate::{Config as Trace, Preset, generate};
use flowgauge_mapi::{Becomes, Function, Shape};
use flowgauge_registry::AddError;
use flowgauge_sensor::Sensor;
use flowgauge_sensor_client::protocol::SharedStatus;
use flowgauge_sensor_client::{Client, Flow};
use flowgauge_stack::{Component, ComponentInfo, Items, Outlet, Parallel, options};

static EVERY: ComponentInfo = ComponentInfo {
    name: "every",
    aliases: &["each"],
    summary: "passes every n-th packet",
    help: "Starting with the first.",
    options: Options::ALL,
    parallel: Parallel::Never("it counts packets one after the other"),
    make: |settings| {
        Ok(Box::new(Every {
            options: Options::read(settings),
            seen: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

/// Counts in `CAME` what comes, for whichever flows.
static TALLY: ComponentInfo = ComponentInfo {
    name: "tally",
    aliases: &[],
    options: &[],
    parallel: Parallel::Anyhow,
    make: |_| {
        Ok(Box::new(Every {
            options: Options { packets: 1 },
            seen: 0,
        }))
    },
    ..EVERY
};
static COUNT: ComponentInfo = ComponentInfo {
    name: "count",
    ..EVERY
};
static LOUD: ComponentInfo = ComponentInfo {
    name: "LOUD",
    ..EVERY
};

options! {
    struct Options;
    packets: Integer(1, 1_000_000) as u64 = "10", "pass one of this many packets";
}

struct Every {
    options: Options,
    seen: u64,
}

/// Packets that came to any of them.
static CAME: AtomicU64 = AtomicU64::new(0);

impl Component for Every {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            CAME.fetch_add(packets.selected.len() as u64, Ordering::Relaxed);
            packets.selected.retain(|_| {
                self.seen += 1;
                (self.seen - 1).is_multiple_of(self.options.packets)
            });
        }
    }
}

fn function(name: &'static str) -> Function {
    Function {
        name,
        library: "ourlib",
        description: "passes every n-th packet",
        arguments: "i",
        required: 1,
        component: "every",
        result: Shape::Nothing,
        becomes: &[Becomes::Option("packets")],
    }
}

/// How many flows each execution of "tally" is for.
fn find(shared: &[SharedStatus], together: &mut Vec<usize>) {
    for it in shared {
        let is_its = it.components.iter().any(|name| name == "tally");
        together.extend(is_its.then_some(it.flows.len()));
        find(&it.next, together);
    }
}

#[test]
fn components_and_functions_of_other_crates_are_as_all_others() {
    let refused = |component, error| assert_eq!(flowgauge_registry::add(&[component]), Err(error));
    refused(&COUNT, AddError::TwoOf("count"));
    refused(&LOUD, AddError::NotLower("LOUD"));
    flowgauge_registry::add(&[&EVERY, &TALLY]).unwrap();
    refused(&EVERY, AddError::TwoOf("each"));
    assert!(flowgauge_registry::registry().find("every").is_some());
    refused(&EVERY, AddError::TooLate);
    assert!(flowgauge_mapi::add(vec![function("PKT_COUNTER")]).is_err());
    assert!(flowgauge_mapi::add(vec![function("EVERY"), function("EVERY")]).is_err());
    flowgauge_mapi::add(vec![function("EVERY")]).unwrap();
    let libraries = flowgauge_mapi::libraries();
    assert!(
        libraries
            .iter()
            .any(|(name, functions)| *name == "ourlib" && functions.len() == 1)
    );

    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("mix.pcap");
    let config = Trace::new(Preset::Mix).with_packets(2_000);
    generate(&config, File::create(&trace).unwrap()).unwrap();
    let file = folder.path().join("sensor.toml");
    let socket = folder.path().join("sock");
    fs::write(&file, format!("socket = {socket:?}\nuser = \"root\"\n")).unwrap();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let sensor = Arc::new(Sensor::start(&file, Arc::clone(&is_stopped)).unwrap());
    let running = thread::spawn(move || sensor.run(|_| {}));

    let client = Client::connect(&socket).unwrap();
    let device = client
        .create_device(File::open(&trace).unwrap().as_fd())
        .unwrap();
    let stack = flowgauge_mapi::flow("BPF_FILTER(\"udp\") PKT_COUNTER ourlib:EVERY(3) PKT_COUNTER");
    let flow = client.open(&device, &stack.unwrap().text, &[]).unwrap();
    client.start(&device).unwrap();
    let value = |flow: &Flow, label| {
        let readings = flow.readings();
        while !readings.read(0).is_last {
            thread::sleep(Duration::from_millis(1));
        }
        readings.read(flow.component(label).unwrap()).value.unwrap()
    };
    let came = value(&flow, "f2");
    assert!(came > 10);
    assert_eq!(value(&flow, "f4"), (came + 2) / 3);
    assert!(client.check(&device, "every { packets = 0 }").is_err());
    assert_eq!(i128::from(CAME.swap(0, Ordering::Relaxed)), came);

    // What flows have in common is executed once, and shown as that.
    let device = client
        .create_device(File::open(&trace).unwrap().as_fd())
        .unwrap();
    let stacks = [
        "filter { udp } tally count",
        "filter { tcp } tally count",
        "filter { udp } tally count",
        "filter { udp } tally bytes count",
        "filter { udp } tally count bytes",
    ];
    let flows = stacks.map(|stack| client.open(&device, stack, &[]).unwrap());
    let shown = client.status_with(true).unwrap().devices;
    let shown = shown.into_iter().find(|it| it.device == device).unwrap();
    let mut together = Vec::new();
    find(&shown.shared, &mut together);
    together.sort_unstable();
    assert_eq!(together, [1, 4], "{:?}", shown.shared);
    client.start(&device).unwrap();
    let counted = flows.each_ref().map(|flow| value(flow, "count"));
    assert_eq!(counted, [came, counted[1], came, came, came]);
    assert!(counted[1] > 10);
    assert_eq!(i128::from(CAME.load(Ordering::Relaxed)), came + counted[1]);
    is_stopped.store(true, Ordering::Relaxed);
    running.join().unwrap();
}
