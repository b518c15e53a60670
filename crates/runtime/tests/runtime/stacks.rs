//! Stacks on several threads: what comes out does not depend on how many.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use crate::stacks_support::Generated;
use flowgauge_flow::FlowRecord;
use flowgauge_runtime::stacks::{Change, Runner, RunnerOptions, SetupError, Snapshot, engines};
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, ComponentKind, Failure, Input, ItemType, Items, KeyTable,
    NodeId, OptionInfo, OptionKind, Outlet, Output, Packets, Parallel, PerKey, Program, Received,
    Registry, ResultInfo, ResultValue, Selection, SettingError, Settings, Sources, StreamChunk,
    StreamInfo, check, forked, parse,
};
use flowgauge_stream::{Handler, Shard, ShardConfig, Stream, Want};
use flowgauge_wire::{Batch, DecodedBatch, Nanos, PacketDescriptor};

/// What `write` components wrote, by name.
static WRITTEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn write(name: &str, what: String) {
    let mut written = WRITTEN.lock().expect("nobody panics with it");
    written.push((name.to_owned(), what));
}

/// What was written under a name, and forgets it.
fn written(name: &str) -> Vec<String> {
    let mut written = WRITTEN.lock().expect("nobody panics with it");
    let all = core::mem::take(&mut *written);
    let (mine, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(of, _)| of == name);
    *written = others;
    mine.into_iter().map(|(_, what)| what).collect()
}

fn port(packets: &Packets<'_>, place: usize) -> u16 {
    packets.decoded.packets[place].source().1
}

fn name(settings: &Settings) -> String {
    settings.text("name").unwrap_or("").to_owned()
}

/// Writes down each item; of one thread only.
struct Write(String);

impl Component for Write {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        match items {
            Items::Packets(packets) => {
                for (place, packet) in packets.iter() {
                    let bytes = packets.bytes(packet);
                    let what = format!("{} {}", port(packets, place), bytes.len());
                    write(&self.0, what);
                }
            }
            Items::Chunks(chunks) => {
                for chunk in *chunks {
                    write(&self.0, String::from_utf8_lossy(chunk.bytes).into_owned());
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        write(&self.0, "end".to_owned());
    }
}

#[derive(Clone, Default)]
struct Count(u64);

impl Component for Count {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        self.0 += items.len() as u64;
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.0))
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

/// A key per connection.
struct Connections(KeyTable<flowgauge_wire::FlowKey>);

impl Component for Connections {
    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], _: Nanos) -> Selection {
        for (place, packet) in packets.iter() {
            keys[place] = self.0.number(packets.key(place), packet.key, packet.time);
        }
        packets.selected
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.0.take_ended(now, ended);
    }

    fn outer(&self, key: u32) -> u32 {
        self.0.outer(key)
    }

    fn end_all(&mut self) {
        self.0.end_all();
    }
}

/// Counts the packets of each key, and gives the count as a chunk when the key ends.
#[derive(Default)]
struct PerConnection(PerKey<(u64, u16)>);

impl Component for PerConnection {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            for (place, packet) in packets.iter() {
                let state = self.0.of(packets.key(place));
                *state = (state.0 + 1, packet.key.low_port.max(packet.key.high_port));
            }
            packets.selected = Selection::NONE;
        }
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        if let Some((count, port)) = self.0.take(key) {
            out.emit(Items::Chunks(&[StreamChunk {
                key,
                bytes: format!("{port}: {count}").as_bytes(),
                offset: 0,
                gap_before: 0,
                stream: &StreamInfo::default(),
                end: None,
                time: Nanos(u64::from(port)),
                captured: Nanos(u64::from(port)),
            }]));
        }
    }
}

/// Makes a packet of its own of each of a port that 7 divides, and lets the others through.
#[derive(Default)]
struct Remake(DecodedBatch);

impl Component for Remake {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        let (mut memory, mut made, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for (place, packet) in all.iter() {
            if !port(&all, place).is_multiple_of(7) {
                continue;
            }
            packets.selected.remove(place);
            let bytes = all.bytes(packet);
            made.push(PacketDescriptor {
                offset: memory.len() as u32,
                ..all.batch.packets[place]
            });
            memory.extend_from_slice(bytes);
            origins.push(place as u16);
        }
        let batch = Batch::new(&memory, &made);
        flowgauge_wire::Decoder::default().decode_batch(&batch, &mut self.0);
        out.emit(Items::Packets(Packets {
            origins: &origins,
            ..Packets::new(&batch, &self.0)
        }));
    }
}

/// Fails, or panics, at a port.
struct Fail(u16, bool);

impl Component for Fail {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let all = *packets;
            if all.iter().any(|(place, _)| port(&all, place) == self.0) {
                assert!(!self.1, "at port {}", self.0);
                out.fail(Failure::new(format!("port {}", self.0)));
            }
        }
    }
}

/// Needs no more once it has had so many items.
struct Enough(u64);

impl Component for Enough {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        self.0 = self.0.saturating_sub(items.len() as u64);
        if self.0 == 0 {
            out.enough();
        }
    }
}

/// Lets everything through.
struct Idle;

impl Component for Idle {}

/// Counts how often it works, in all instances.
struct Work;

/// Batches that components `passes` have worked on, by their numbers.
static PASSES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Passes everything on.
struct Passes(usize);

impl Component for Passes {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {
        PASSES[self.0].fetch_add(1, Ordering::Relaxed);
    }

    fn fork(&self) -> Option<Box<dyn Component>> {
        Some(Box::new(Passes(self.0)))
    }
}

static WORKED: AtomicU64 = AtomicU64::new(0);

impl Component for Work {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {
        WORKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until it is let go.
struct Gate;

static OPEN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

impl Component for Gate {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {
        let open = OPEN.0.lock().expect("nobody panics with it");
        let is_open = OPEN.1.wait_while(open, |open| !*open);
        drop(is_open.expect("nobody panics with it"));
    }
}

/// Gives numbers as chunks.
struct Numbers(u64, u64);

impl Component for Numbers {
    fn receive(&mut self, out: &mut dyn Outlet, _: Duration) -> Received {
        if self.0 == self.1 {
            return Received::End;
        }
        self.0 += 1;
        out.emit(Items::Chunks(&[StreamChunk {
            key: 0,
            bytes: self.0.to_string().as_bytes(),
            offset: 0,
            gap_before: 0,
            stream: &StreamInfo::default(),
            end: None,
            time: Nanos(self.0),
            captured: Nanos(self.0),
        }]));
        Received::Until(Nanos(self.0))
    }
}

/// Wants frames only, and finds no headers.
struct Frames(u64);

impl Component for Frames {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            assert!(packets.decoded.packets.is_empty());
            self.0 += packets.selected.len() as u64;
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.0))
    }
}

/// Counts the flows that end, and panics at one.
#[derive(Clone)]
struct Flows(u64, u64);

impl Component for Flows {
    forked!();

    fn take(&mut self, feed: Feed<'_, '_>, _: &mut dyn Outlet) {
        feed.to(self);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.0))
    }

    fn account(&self) -> Option<Box<Account>> {
        Some(Box::new(Account {
            notes: vec![format!("{} flows", self.0)],
            ..Account::default()
        }))
    }
}

impl Handler for Flows {
    fn flow(&mut self, _: &FlowRecord<'_>) {
        self.0 += 1;
        assert!(self.0 != self.1, "at flow {}", self.1);
    }
}

/// Looks at its engine: how many streams that has begun, or, where it reads streams itself and wants nothing of them, of how many
/// the engine gives less than all.
#[derive(Default)]
struct Looks {
    reads: bool,
    wants: VecDeque<Want>,
    found: u64,
}

impl Component for Looks {
    fn take(&mut self, feed: Feed<'_, '_>, _: &mut dyn Outlet) {
        match self.reads {
            true => feed.to(self),
            false => feed.to(&mut Flows(0, 0)),
        }
    }

    fn end_step(&mut self, _: &Step<'_, '_>, engine: Option<&Shard>, _: &mut dyn Outlet) {
        let engine = engine.expect("it has an engine");
        self.found = match self.reads {
            true => engine.wanted().count() as u64,
            false => engine.statistics().connections,
        };
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.found))
    }
}

impl Handler for Looks {
    const STREAMS: bool = true;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.wants.push_back(Want::Nothing(stream.id));
    }

    fn want(&mut self) -> Option<Want> {
        self.wants.pop_front()
    }
}

/// Reads streams.
struct Reads;

impl Component for Reads {
    fn take(&mut self, feed: Feed<'_, '_>, _: &mut dyn Outlet) {
        feed.to(self);
    }
}

impl Handler for Reads {
    const STREAMS: bool = true;
}

const ANY: ComponentInfo = ComponentInfo {
    input: Input::Any,
    is_end: true,
    options: &[
        OptionInfo::new("name", OptionKind::Text, "a name").or(""),
        OptionInfo::new(
            "n",
            OptionKind::Integer {
                min: 0,
                max: 99_999,
            },
            "a number",
        )
        .or("0"),
    ],
    make: |_| Ok(Box::new(Idle)),
    ..ComponentInfo::OF_PACKETS
};

fn number(settings: &Settings) -> u64 {
    settings.integer("n").unwrap_or(0) as u64
}

fn engine(streams: bool) -> Result<Option<Required>, SettingError> {
    let config = ShardConfig::default();
    Ok(Some(Required {
        config,
        streams,
        applications: None,
    }))
}

static COMPONENTS: [ComponentInfo; 17] = [
    ComponentInfo {
        name: "flows",
        result: Some(ResultInfo::number("flows", "flows")),
        decodes: |_| true,
        engine: Some(|_| engine(false)),
        make: |settings| Ok(Box::new(Flows(0, number(settings)))),
        ..ANY
    },
    ComponentInfo {
        name: "looks",
        result: Some(ResultInfo::number("found", "found")),
        decodes: |_| true,
        engine: Some(|settings| engine(number(settings) > 0)),
        make: |settings| {
            Ok(Box::new(Looks {
                reads: number(settings) > 0,
                ..Looks::default()
            }))
        },
        ..ANY
    },
    ComponentInfo {
        name: "reads",
        decodes: |_| true,
        engine: Some(|_| engine(true)),
        make: |_| Ok(Box::new(Reads)),
        ..ANY
    },
    ComponentInfo {
        name: "enough",
        make: |settings| Ok(Box::new(Enough(number(settings)))),
        ..ANY
    },
    ComponentInfo {
        name: "write",
        parallel: Parallel::Never("it writes"),
        effects: |_| true,
        make: |settings| Ok(Box::new(Write(name(settings)))),
        ..ANY
    },
    ComponentInfo {
        name: "count",
        result: Some(ResultInfo::number("items", "items")),
        make: |_| Ok(Box::<Count>::default()),
        ..ANY
    },
    ComponentInfo {
        name: "demux",
        kind: ComponentKind::Demux,
        parallel: Parallel::ByFlow,
        make: |_| Ok(Box::new(Connections(KeyTable::new(Nanos(1000), 1000)))),
        ..ANY
    },
    ComponentInfo {
        name: "percnx",
        output: Output::Of(ItemType::Chunk),
        make: |_| Ok(Box::<PerConnection>::default()),
        ..ANY
    },
    ComponentInfo {
        name: "remake",
        output: Output::Of(ItemType::Packet),
        make: |_| Ok(Box::<Remake>::default()),
        ..ANY
    },
    ComponentInfo {
        name: "fail",
        make: |settings| Ok(Box::new(Fail(number(settings) as u16, false))),
        ..ANY
    },
    ComponentInfo {
        name: "panic",
        make: |settings| Ok(Box::new(Fail(number(settings) as u16, true))),
        ..ANY
    },
    ComponentInfo {
        name: "work",
        make: |_| Ok(Box::new(Work)),
        ..ANY
    },
    ComponentInfo {
        name: "passes",
        make: |settings| Ok(Box::new(Passes(number(settings) as usize))),
        ..ANY
    },
    ComponentInfo {
        name: "gate",
        make: |_| Ok(Box::new(Gate)),
        ..ANY
    },
    ComponentInfo {
        name: "numbers",
        input: Input::Nothing,
        output: Output::Of(ItemType::Chunk),
        effects: |_| true,
        make: |settings| Ok(Box::new(Numbers(0, number(settings)))),
        ..ANY
    },
    ComponentInfo {
        name: "frames",
        decodes: |_| true,
        make: |_| Ok(Box::new(Frames(0))),
        ..ANY
    },
    ComponentInfo {
        name: "thread",
        kind: ComponentKind::Thread,
        parallel: Parallel::Never("it is a thread"),
        options: &[
            OptionInfo::new("queue", OptionKind::Integer { min: 1, max: 100 }, "batches").or("4"),
            OptionInfo::new("when_full", OptionKind::Choice(&["wait", "drop"]), "what").or("wait"),
        ],
        ..ANY
    },
];

fn program(text: &str) -> Program {
    let mut sources = Sources::default();
    let file = sources.add("test", text.to_owned()).expect("room");
    let document = parse(&sources, file).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let checked = check(&document, &Registry::new(&COMPONENTS));
    let errors: Vec<String> = checked
        .diagnostics
        .iter()
        .map(|found| found.show(&sources).to_string())
        .collect();
    let program = checked.program;
    program.unwrap_or_else(|| panic!("{}", errors.join("\n")))
}

fn options(workers: usize) -> RunnerOptions {
    RunnerOptions {
        workers,
        ..RunnerOptions::default()
    }
}

/// Runs stacks to the end; the failures are returned, too.
fn run(text: &str, workers: usize, packets: u32, lends: bool) -> (Runner, Vec<String>) {
    let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
    let mut source = Generated::new(packets, lends);
    while runner.wants_packets() {
        if runner
            .step(&mut source)
            .expect("nothing is damaged")
            .is_none()
        {
            break;
        }
    }
    while runner.has_sources() {
        runner.wait(Duration::from_millis(50));
    }
    runner.finish();
    let failures = runner.failures();
    let failures = failures
        .iter()
        .map(|failure| format!("{}: {}", failure.stack, failure.failure))
        .collect();
    (runner, failures)
}

/// The result of a component of a stack.
fn result(runner: &Runner, snapshot: &Snapshot, stack: usize, label: &str) -> u64 {
    let stacks = runner.stacks();
    let found = stacks[stack].find(label);
    let found = found.or_else(|| stacks[stack].find(&format!("{label}(0)")));
    let id = found.expect("it is there");
    match snapshot.stacks[stack].components[id.index()].result {
        Some(ResultValue::Sum(value)) => value,
        ref other => panic!("{label}: {other:?}"),
    }
}

#[test]
fn packets_come_out_in_the_same_order_whatever_the_number_of_workers() {
    let mut expected = Vec::new();
    for (workers, lends) in [(1, false), (2, false), (2, true), (4, false), (4, true)] {
        let (runner, failures) = run(
            "[stack] demux < count > remake count { as = all } write { name = order } count { as = end }",
            workers,
            20_000,
            lends,
        );
        assert_eq!(failures, [""; 0]);
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "count"), 20_000);
        assert_eq!(result(&runner, &snapshot, 0, "all"), 20_000);
        assert_eq!(result(&runner, &snapshot, 0, "end"), 20_000);
        let lines = written("order");
        assert_eq!(lines.len(), 20_001);
        if workers == 1 {
            expected = lines;
        } else {
            assert!(lines == expected, "{workers} workers, lends: {lends}");
        }
    }
}

/// Runs a stack on threads that read the same source each, until so many batches were taken.
fn run_apart(text: &str, workers: usize, packets: u32, batches: usize) -> (Runner, u64) {
    let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
    let sources = (0..runner.apart()).map(|_| Box::new(Generated::new(packets, false)) as _);
    let sources: Vec<_> = sources.collect();
    assert_eq!(sources.len(), workers - 1);
    runner.read_apart(sources);
    let mut source = Generated::new(packets, false);
    let mut taken = 0;
    for _ in 0..batches {
        match runner.step(&mut source).expect("nothing is damaged") {
            Some(step) => taken += step.packets,
            None => break,
        }
    }
    while let Some(step) = runner.settle(&mut source).expect("nothing is damaged") {
        taken += step.packets;
    }
    runner.finish();
    assert!(runner.failures().is_empty());
    (runner, taken)
}

#[test]
fn what_each_thread_reads_for_itself_comes_out_in_the_same_order() {
    let text = |name: &str| {
        format!(
            "[stack] demux < count > remake count {{ as = all }} write {{ name = {name} }} count {{ as = end }}"
        )
    };
    let (_, failures) = run(&text("shared"), 1, 100_000, false);
    assert_eq!(failures, [""; 0]);
    let expected = written("shared");
    for (workers, batches) in [(2, usize::MAX), (4, usize::MAX), (3, 40), (2, 1)] {
        let name = format!("apart-{workers}-{batches}");
        let (runner, taken) = run_apart(&text(&name), workers, 100_000, batches);
        // Where a run is ended all have taken the same.
        assert!(
            taken > 0 && (batches == usize::MAX) == (taken == 100_000),
            "{taken}"
        );
        let snapshot = runner.snapshot();
        for label in ["count", "all", "end"] {
            assert_eq!(result(&runner, &snapshot, 0, label), taken, "{label}");
        }
        let lines = written(&name);
        assert_eq!(lines.len() as u64, taken + 1);
        assert!(
            lines[..taken as usize] == expected[..taken as usize],
            "{name}"
        );
    }
}

#[test]
fn keys_end_at_the_same_time_whatever_the_number_of_workers() {
    let mut expected = Vec::new();
    for workers in [1, 2, 3] {
        let text = "[stack] demux < percnx > write { name = keys }";
        let (_, failures) = run(text, workers, 5_000, false);
        assert_eq!(failures, [""; 0]);
        let mut lines = written("keys");
        assert_eq!(lines.pop().as_deref(), Some("end"));
        lines.sort();
        assert!(lines.len() > 4000, "{}", lines.len());
        if workers == 1 {
            expected = lines;
        } else {
            assert_eq!(lines, expected, "{workers} workers");
        }
    }
}

#[test]
fn a_thread_gets_everything_in_order_and_waits() {
    for workers in [1, 2] {
        let (runner, failures) = run(
            "[stack] remake thread { queue = 1 } count thread { queue = 2 } write { name = waits }",
            workers,
            20_000,
            workers == 2,
        );
        assert_eq!(failures, [""; 0]);
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "count"), 20_000);
        assert_eq!(result(&runner, &snapshot, 0, "thread(0)"), 0);
        assert_eq!(written("waits").len(), 20_001);
    }
}

#[test]
fn what_a_full_queue_refuses_is_counted() {
    for workers in [1, 2] {
        *OPEN.0.lock().expect("nobody panics with it") = false;
        let text = "[stack] count { as = all } thread { queue = 2, when_full = drop } gate count { as = behind }";
        let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
        let mut source = Generated::new(20_000, true);
        while runner.step(&mut source).expect("it is whole").is_some() {}
        *OPEN.0.lock().expect("nobody panics with it") = true;
        OPEN.1.notify_all();
        runner.finish();
        let snapshot = runner.snapshot();
        let of = |label| result(&runner, &snapshot, 0, label);
        assert_eq!(of("all"), 20_000);
        assert!(of("thread") > 0 && of("behind") > 0);
        assert_eq!(of("thread") + of("behind"), 20_000);
    }
}

#[test]
fn a_stack_that_fails_is_over_in_all_its_parts_and_the_others_go_on() {
    let text = "[stack] demux < panic { n = 5000 } > thread write { name = bad }\n\
                [stack] count write { name = good }\n\
                [stack] count thread fail { n = 7000 } write { name = worse }";
    for workers in [1, 2, 4] {
        let (runner, mut failures) = run(text, workers, 20_000, false);
        failures.sort();
        assert_eq!(
            failures,
            [
                "0: the component panic failed: at port 5000",
                "2: the component fail failed: port 7000",
            ]
        );
        assert_eq!(result(&runner, &runner.snapshot(), 1, "count"), 20_000);
        assert_eq!(written("good").len(), 20_001);
        // Neither was told that the input came to its end.
        assert!(!written("bad").contains(&"end".to_owned()));
        assert!(!written("worse").contains(&"end".to_owned()));
    }
}

#[test]
fn who_has_enough_gets_no_more_and_ends_properly() {
    for workers in [1, 3] {
        let text = "[stack] enough { n = 100 } - demux < percnx > write { name = enough }";
        let (runner, _) = run(text, workers, 20_000, true);
        assert!(!runner.wants_packets());
        let snapshot = runner.snapshot();
        let came = snapshot.stacks[0].components[0].passed.items;
        assert!((100..20_000).contains(&came), "{came}");
        // What components kept has come out, on all cores.
        let written = written("enough");
        assert_eq!(written.last().map(String::as_str), Some("end"));
        let counts = written.iter().filter_map(|line| line.split_once(": "));
        let all: u64 = counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum();
        assert_eq!(all, came, "{workers}");
        // Others go on.
        let text = "[stack] enough { n = 1 } - count [stack] count";
        let (runner, _) = run(text, workers, 20_000, true);
        assert!(runner.wants_packets());
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 1, "count"), 20_000);
        assert!(result(&runner, &snapshot, 0, "count") < 20_000);
    }
}

#[test]
fn what_several_stacks_begin_with_is_done_once() {
    // Nobody else uses `work`.
    for workers in [1, 2] {
        WORKED.store(0, Ordering::Relaxed);
        let text = "[stack] work count { name = a } write { name = one }\n\
                    [stack] work count { name = a } count { as = more }\n\
                    [stack] work { n = 7 } count\n\
                    [stack] work count { name = a }\n\
                    [stack] work panic { n = 3000 } count";
        let (runner, failures) = run(text, workers, 3_000, false);
        assert_eq!(failures, ["4: the component panic failed: at port 3000"]);
        let worked = WORKED.load(Ordering::Relaxed);
        let snapshot = runner.snapshot();
        // Once for the first, second, fourth and fifth, once for the third.
        let batches = |stack: usize| snapshot.stacks[stack].components[0].passed.batches;
        assert_eq!(worked, batches(0) + batches(2));
        for stack in [0, 1, 3] {
            assert_eq!(batches(stack), batches(0));
        }
        for (stack, label) in [
            (0, "count"),
            (1, "count"),
            (1, "more"),
            (2, "count"),
            (3, "count"),
        ] {
            assert_eq!(
                result(&runner, &snapshot, stack, label),
                3_000,
                "{stack} {label}"
            );
        }
        assert_eq!(written("one").len(), 3_001);
    }
}

#[test]
fn who_subscribes_to_an_engine_fails_alone() {
    for workers in [1, 2] {
        let text = "[stack] flows { name = a } count\n\
                    [stack] flows { name = b, n = 100 }\n\
                    [stack] count flows { name = c }";
        let stacks = program(text).stacks;
        let engines: Vec<Vec<usize>> = engines(&stacks)
            .into_iter()
            .map(|engine| engine.into_iter().map(|(stack, _)| stack).collect())
            .collect();
        assert_eq!(engines, [vec![0, 1], vec![2]]);
        let (runner, failures) = run(text, workers, 3_000, false);
        assert_eq!(failures, ["1: the component flows failed: at flow 100"]);
        let snapshot = runner.snapshot();
        let flows = result(&runner, &snapshot, 2, "flows");
        assert!(flows > 1_000, "{flows}");
        assert_eq!(result(&runner, &snapshot, 0, "flows"), flows);
        for stack in [0, 2] {
            let components = &snapshot.stacks[stack].components;
            let account = components.iter().find_map(|it| it.account.as_ref());
            let account = account.expect("it has an engine");
            assert_eq!(account.ledger.received(), 3_000, "of the engine");
            assert!(
                account.notes.iter().any(|it| it.ends_with(" flows")),
                "of its own"
            );
        }
    }
}

#[test]
fn a_stack_with_a_source_of_its_own_runs_beside_the_others() {
    for workers in [1, 2] {
        let text = "[stack] numbers { n = 1000 } count thread write { name = numbers }\n\
                    [stack] count";
        let (runner, failures) = run(text, workers, 1_000, false);
        assert_eq!(failures, [""; 0]);
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "count"), 1_000);
        assert_eq!(result(&runner, &snapshot, 1, "count"), 1_000);
        let lines = written("numbers");
        let expected: Vec<String> = (1..=1000).map(|number| number.to_string()).collect();
        assert_eq!(lines[..1000], expected);
        assert_eq!(lines[1000..], ["end"]);
    }
    let mut alone = Runner::new(program("[stack] numbers { n = 9 } count"), &options(1)).unwrap();
    assert!(!alone.wants_packets());
    while alone.has_sources() {
        alone.wait(Duration::from_secs(5));
    }
    alone.finish();
    assert_eq!(result(&alone, &alone.snapshot(), 0, "count"), 9);
}

#[test]
fn nothing_is_decoded_that_nobody_wants_decoded() {
    for workers in [1, 2] {
        let (runner, failures) = run("[stack] frames [stack] frames frames", workers, 999, true);
        assert_eq!(failures, [""; 0]);
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "frames"), 999);
        assert_eq!(result(&runner, &snapshot, 1, "frames(1)"), 999);
    }
    let (_, failures) = run("[stack] frames [stack] count", 1, 999, true);
    assert_eq!(failures.len(), 1, "now there are headers: {failures:?}");
}

#[test]
fn results_are_read_and_reset_while_it_runs() {
    for workers in [1, 2, 4] {
        let text = "[stack] demux < count > thread count { as = behind }";
        let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
        let mut source = Generated::new(10_000, false);
        for _ in 0..30 {
            runner.step(&mut source).expect("it is whole");
        }
        let seen = runner.reset();
        let before = result(&runner, &seen, 0, "count");
        assert!(before <= source.next as u64);
        while runner.step(&mut source).expect("it is whole").is_some() {}
        runner.finish();
        let after = result(&runner, &runner.snapshot(), 0, "count");
        assert!(after <= 10_000 && before + after <= 10_000);
        assert!(after >= 10_000 - 30 * 256);
    }
}

#[test]
fn a_run_that_is_given_up_ends_its_threads() {
    let text = "[stack] numbers { n = 99999 } count\n[stack] demux < count > thread count";
    let mut runner = Runner::new(program(text), &options(3)).expect("it can be made");
    let mut source = Generated::new(10_000, false);
    for _ in 0..5 {
        runner.step(&mut source).expect("it is whole");
    }
    drop(runner);
}

/// A run of one program for so many batches, and then of another to the end of the input. Returns the packets before.
fn run_changing(
    texts: [&str; 2],
    workers: usize,
    lends: bool,
    is_apart: bool,
) -> (Runner, Change, u32) {
    let mut runner = Runner::new(program(texts[0]), &options(workers)).expect("it can be made");
    if is_apart {
        let sources = (0..runner.apart()).map(|_| Box::new(Generated::new(20_000, lends)) as _);
        let sources = sources.collect();
        runner.read_apart(sources);
    }
    let mut source = Generated::new(20_000, lends);
    // (How much a step reads depends on how busy the threads are: some 1,600 packets at most.)
    while source.next < 4_000 {
        runner.step(&mut source).expect("nothing is damaged");
    }
    if is_apart {
        let refused = runner.replace(program(texts[1]));
        assert!(matches!(refused, Err(SetupError::Unsettled)), "{refused:?}");
        while runner
            .settle(&mut source)
            .expect("nothing is damaged")
            .is_some()
        {}
    }
    let taken = source.next as u32;
    let change = runner.replace(program(texts[1])).expect("it can be made");
    while runner
        .step(&mut source)
        .expect("nothing is damaged")
        .is_some()
    {}
    runner.finish();
    assert!(runner.failures().is_empty());
    (runner, change, taken)
}

#[test]
fn stacks_begin_and_end_between_the_same_packets_while_others_go_on() {
    let row = "demux < count > remake count { as = all }";
    let before = |name: &str| {
        format!(
            "[stack gone] {row} write {{ name = gone-{name} }}\n\
             [stack keys] demux < percnx > thread write {{ name = keys-{name} }}\n\
             [stack stays] {row} write {{ name = stays-{name} }}"
        )
    };
    let after = |name: &str| {
        format!(
            "[stack stays] {row} write {{ name = stays-{name} }}\n\
             [stack comes] {row} thread {{ queue = 2 }} write {{ name = comes-{name} }}\n\
             [stack alone] thread count {as_counted}",
            as_counted = "{ as = counted }"
        )
    };
    let (_, failures) = run(&before("whole"), 1, 20_000, false);
    assert_eq!(failures, [""; 0]);
    let whole = written("stays-whole");
    for (workers, lends, is_apart) in [
        (1, false, false),
        (2, false, false),
        (2, true, false),
        (4, true, false),
        (2, false, true),
        (3, false, true),
    ] {
        let name = format!("{workers}-{lends}-{is_apart}");
        let texts = [before(&name), after(&name)];
        let (runner, change, taken) =
            run_changing([&texts[0], &texts[1]], workers, lends, is_apart);
        assert!(taken > 1_000 && taken < 19_000, "{name}: {taken}");
        assert_eq!(change.was, [Some(2), None, None]);
        let at = taken as usize;
        let stays = written(&format!("stays-{name}"));
        let differs = stays
            .iter()
            .zip(&whole)
            .position(|(one, other)| one != other);
        assert_eq!((stays.len(), differs), (whole.len(), None), "{name}, {at}");
        let gone = written(&format!("gone-{name}"));
        assert_eq!(gone.last().map(String::as_str), Some("end"), "{name}");
        assert!(gone[..at] == whole[..at] && gone.len() == at + 1, "{name}");
        let comes = written(&format!("comes-{name}"));
        assert!(comes == whole[at..], "{name}: {}", comes.len());
        // What was kept for keys came out.
        let keys = written(&format!("keys-{name}"));
        let counts = keys.iter().filter_map(|line| line.split_once(": "));
        let all: u64 = counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum();
        assert_eq!(
            (all, keys.last().map(String::as_str)),
            (at as u64, Some("end"))
        );
        let ended: Vec<&str> = change
            .ended
            .iter()
            .filter_map(|it| it.stack.name.as_deref())
            .collect();
        assert_eq!(ended, ["gone", "keys"]);
        let all = change.ended[0].stack.find("all").expect("it is there");
        let all = change.ended[0]
            .state
            .component(all)
            .and_then(|it| it.result.clone());
        assert_eq!(all, Some(ResultValue::Sum(at as u64)), "{name}");
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "all"), 20_000);
        assert_eq!(result(&runner, &snapshot, 1, "all"), 20_000 - at as u64);
        assert_eq!(result(&runner, &snapshot, 2, "counted"), 20_000 - at as u64);
    }
}

#[test]
fn a_stack_that_shared_an_engine_or_its_beginning_ends_as_if_alone() {
    let before = "[stack a] flows count [stack b] flows { n = 99999 } [stack c] flows count { name = c }\n\
                  [stack d] count { name = d }";
    let after = "[stack a] flows count [stack d] count { name = d }";
    for workers in [1, 2] {
        let (alone, _) = run("[stack] flows", workers, 20_000, false);
        let all = result(&alone, &alone.snapshot(), 0, "flows");
        let (runner, change, taken) = run_changing([before, after], workers, false, false);
        let (alone, _) = run("[stack] flows", workers, taken, false);
        let some = result(&alone, &alone.snapshot(), 0, "flows");
        assert!(0 < some && some < all, "{some} and {all}");
        for ended in &change.ended {
            let flows = ended.stack.find("flows").expect("it is there");
            let state = ended.state.component(flows).expect("it is there");
            assert_eq!(
                state.result,
                Some(ResultValue::Sum(some)),
                "{:?}",
                ended.stack.name
            );
            let account = state.account.as_ref().expect("it has an engine");
            assert_eq!(account.ledger.received(), u64::from(taken));
        }
        assert_eq!(change.ended.len(), 2);
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "flows"), all);
        assert_eq!(result(&runner, &snapshot, 1, "count"), 20_000);
    }
}

#[test]
fn a_stack_joins_an_engine_that_runs_and_another_leaves_it() {
    let flows_of = |packets: u32| {
        let (runner, _) = run("[stack] flows", 1, packets, false);
        result(&runner, &runner.snapshot(), 0, "flows")
    };
    for workers in [1, 2] {
        let text = "[stack a] flows\n";
        let both = format!("{text}[stack b] flows {{ name = b }}\n");
        let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
        let mut source = Generated::new(20_000, false);
        let mut read = |runner: &mut Runner, packets: usize| {
            // At least a step, however far it has come.
            let until = packets.max(source.next + 1).min(20_000);
            while source.next < until {
                runner.step(&mut source).expect("nothing is damaged");
            }
            source.next as u32
        };
        let joined = read(&mut runner, 2_000);
        runner.replace(program(&both)).expect("it can be made");
        let ended = result(&runner, &runner.snapshot(), 0, "flows");
        let left = read(&mut runner, 6_000);
        let change = runner
            .replace(program(&both[text.len()..]))
            .expect("it can be made");
        let state = change.ended[0].state.component(NodeId(0)).expect("it ran");
        let all = state.result.as_ref().and_then(ResultValue::number);
        assert_eq!(all, Some(flows_of(left).into()), "with those that are open");
        let taken = read(&mut runner, 20_000);
        assert!(joined < left && left < taken, "{joined}, {left}, {taken}");
        runner.finish();
        let snapshot = runner.snapshot();
        // Those that saw no packet any more, too.
        let flows = result(&runner, &snapshot, 0, "flows");
        assert_eq!(flows, flows_of(20_000) - ended);
        let account = snapshot.stacks[0].components[0].account.as_ref();
        let ledger = &account.expect("of the engine").ledger;
        assert_eq!(ledger.received(), 20_000 - u64::from(joined));
        assert!(ledger.is_balanced());
    }
}

#[test]
fn a_stack_that_is_replaced_leaves_its_engine_to_the_new_one() {
    for workers in [1, 2] {
        let texts = ["[stack a] flows", "[stack a] flows { n = 99999 }"];
        let (runner, change, taken) = run_changing(texts, workers, false, false);
        let flows = result(&runner, &runner.snapshot(), 0, "flows");
        let (alone, _) = run("[stack] flows", 1, 20_000, false);
        assert_eq!(flows, result(&alone, &alone.snapshot(), 0, "flows"));
        let account = runner.snapshot().stacks.remove(0).components.remove(0);
        let ledger = account.account.expect("of the engine").ledger;
        assert_eq!(ledger.received(), 20_000 - u64::from(taken));
        let (alone, _) = run("[stack] flows", 1, taken, false);
        let state = change.ended[0].state.component(NodeId(0)).expect("it ran");
        let before = state.result.as_ref().and_then(ResultValue::number);
        let until = result(&alone, &alone.snapshot(), 0, "flows");
        assert_eq!(before, Some(until.into()), "with those that are open");
        let account = state.account.as_ref().expect("of the engine");
        assert_eq!(account.ledger.received(), u64::from(taken));
    }
}

#[test]
fn an_engine_does_no_more_than_those_want_who_are_left() {
    for workers in [1, 2] {
        for (looks, is_less) in [("looks", false), ("looks { n = 1 }", true)] {
            let (alone, both) = (
                format!("[stack a] {looks}"),
                format!("[stack a] {looks} [stack b] reads"),
            );
            let mut runner =
                Runner::new(program(&both), &options(workers)).expect("it can be made");
            let mut source = Generated::new(20_000, false);
            // How many streams have begun, or of how many not all is read, when all threads have come so far.
            let mut found = |packets: usize, text: &str| {
                while source.next < packets {
                    runner.step(&mut source).expect("nothing is damaged");
                }
                runner.replace(program(text)).expect("it can be made");
                let found = result(&runner, &runner.snapshot(), 0, "looks");
                // Every thirteenth datagram is empty.
                let read = source.next as u64;
                (found, read - read.div_ceil(13))
            };
            let (together, begun) = found(4_000, &both);
            found(8_000, &alone);
            let (left, all) = found(16_000, &alone);
            match is_less {
                false => assert_eq!((together, left), (begun, 0)),
                true => assert_eq!((together, left), (0, 2 * all)),
            }
        }
    }
}

#[test]
fn a_stack_that_has_failed_begins_anew() {
    for workers in [1, 2] {
        let text = "[stack fails] count fail { n = 1500 }\n[stack stays] count { as = all }";
        let mut runner = Runner::new(program(text), &options(workers)).expect("it can be made");
        // (More than the first worker may have waiting, while reading comes before its own packets.)
        let mut source = Generated::new(60_000, false);
        while runner.failures().is_empty() {
            let step = runner.step(&mut source).expect("nothing is damaged");
            assert!(step.is_some(), "the failure comes before the end");
        }
        let change = runner.replace(program(text)).expect("it can be made");
        assert_eq!(change.was, [None, Some(1)]);
        assert_eq!(change.ended[0].failure, None, "it was told");
        let taken = source.next as u64;
        while runner
            .step(&mut source)
            .expect("nothing is damaged")
            .is_some()
        {}
        runner.finish();
        let snapshot = runner.snapshot();
        assert_eq!(result(&runner, &snapshot, 0, "count"), 60_000 - taken);
        assert_eq!(result(&runner, &snapshot, 1, "all"), 60_000);
    }
}

/// Flows of users come at any time, and go on in their own ways behind what others have, too.
#[test]
fn stacks_that_join_share_what_runs_and_count_from_their_beginning() {
    // Several workers read ahead, as far as their queues take it: where a stack joins is not known then.
    let workers = 1;
    let number = workers + 1;
    let front = format!("passes {{ n = {number} }}");
    let passed = || PASSES[number].load(Ordering::Relaxed);
    let texts = [
        format!("[stack a] {front} count\n"),
        format!("[stack b] {front} passes count\n"),
        format!("[stack c] {front} flows\n"),
        format!("[stack d] {front} passes flows {{ name = d }} [stack e] {front} passes count\n"),
        format!("[stack f] {front} flows {{ name = f }}\n"),
    ];
    let mut runner = Runner::new(program(&texts[0]), &options(workers)).expect("it can be made");
    let mut source = Generated::new(20_000, false);
    let mut began = vec![0];
    for joined in 1..=texts.len() {
        let until = source.next + 2_000;
        while source.next < until {
            let step = runner.step(&mut source).expect("nothing is damaged");
            assert!(step.is_some(), "the input has ended at {}", source.next);
        }
        if joined < texts.len() {
            let all = texts[..=joined].concat();
            runner.replace(program(&all)).expect("it can be made");
            began.push(source.next as u64);
        }
    }
    // The first leaves; what it began goes on for the others.
    let all = texts[1..].concat();
    let change = runner.replace(program(&all)).expect("it can be made");
    let (left, batches) = (source.next as u64, passed());
    let counted = change.ended[0].state.component(NodeId(1));
    assert_eq!(counted.expect("it ran").passed.items, left);
    while (runner.step(&mut source).expect("nothing is damaged")).is_some() {}
    runner.finish();
    let snapshot = runner.snapshot();
    let items = |stack: usize, node: usize| snapshot.stacks[stack].components[node].passed.items;
    for (stack, began) in [(0, began[1]), (1, began[2]), (2, began[3]), (3, began[3])] {
        let all = 20_000 - began;
        assert_eq!((items(stack, 0), items(stack, 1)), (all, all), "{stack}");
    }
    assert_eq!(result(&runner, &snapshot, 0, "count"), 20_000 - began[1]);
    assert_eq!(result(&runner, &snapshot, 3, "count"), 20_000 - began[3]);
    // Each packet is a flow. The engine behind the first component is that of both: who came later has its older flows, too.
    let flows = |stack: usize, name: &str| result(&runner, &snapshot, stack, name);
    let ended = 20_000 - began[2] - flows(4, "flows");
    assert_eq!(flows(1, "flows"), 20_000 - began[2]);
    assert!(ended < began[4] - began[2], "{ended}");
    assert_eq!(flows(2, "flows"), 20_000 - began[3]);
    // However many there are, each batch has gone through what they share once on each thread.
    let pieces = batches.div_ceil(left) * 20_000;
    assert!(
        passed() <= pieces && passed() > batches,
        "{batches}, {}",
        passed()
    );
}

#[test]
fn a_stack_at_rest_gets_no_packets_and_others_do() {
    let text = "[stack a] flows\n[stack b] count\n";
    let mut runner = Runner::new(program(text), &options(1)).expect("it can be made");
    let mut source = Generated::new(20_000, false);
    let mut read = |runner: &mut Runner, until: usize| {
        while source.next < until {
            runner.step(&mut source).expect("nothing is damaged");
        }
        source.next as u64
    };
    let before = read(&mut runner, 4_000);
    runner.set_rests(1, true);
    let rested = read(&mut runner, 8_000) - before;
    assert_eq!((runner.missed(0), runner.missed(1)), (0, rested));
    runner.set_rests(1, false);
    read(&mut runner, 20_000);
    runner.finish();
    let state = runner.state(1).expect("it runs");
    assert_eq!(state, runner.snapshot().stacks[1]);
    assert_eq!(state.components[0].passed.items, 20_000 - rested);
    assert!(runner.cost(0) > 0 && runner.cost(1) > 0);
    assert_eq!(runner.cost(2), 0, "there is none");
}
