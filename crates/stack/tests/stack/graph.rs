//! A stack that runs: what reaches which component, with which key, and when keys end.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use flowgauge_stack::{
    Branches, Component, ComponentInfo, ComponentKind, Graph, Input, ItemType, Items, KeyTable,
    OptionInfo, OptionKind, Outlet, Output, PacketValues, Packets, PerKey, Received, Registry,
    ResultInfo, ResultValue, Selection, SettingError, Settings, Sources, Stack, StreamChunk,
    StreamInfo, check, parse,
};
use flowgauge_wire::{
    Batch, DecodeOptions, DecodedBatch, Decoder, LinkType, Nanos, PacketDescriptor,
};

/// What components of the test have seen; one test runs at a time per name.
static SEEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn see(name: &str, what: String) {
    SEEN.lock()
        .expect("no test panics in between")
        .push((name.to_owned(), what));
}

/// What was seen under a name that begins so, and forgets it.
fn seen(prefix: &str) -> Vec<String> {
    let mut all = SEEN.lock().expect("no test panics in between");
    let (mine, others) = all
        .drain(..)
        .partition(|(name, _)| name.starts_with(prefix));
    *all = others;
    let mine: Vec<(String, String)> = mine;
    mine.into_iter()
        .map(|(name, what)| format!("{}: {what}", &name[prefix.len()..]))
        .collect()
}

/// The port that a packet came from: what the tests tell packets by.
fn port(packets: &Packets<'_>, index: usize) -> u16 {
    packets.decoded.packets[index].source().1
}

/// Writes down what it gets: ports with keys, or the bytes of chunks with keys.
struct Probe(String);

impl Component for Probe {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let what: Vec<String> = match items {
            Items::Packets(packets) => packets
                .iter()
                .map(|(index, _)| format!("{}/{}", port(packets, index), packets.key(index)))
                .collect(),
            Items::Chunks(chunks) => chunks
                .iter()
                .map(|chunk| format!("{}/{}", String::from_utf8_lossy(chunk.bytes), chunk.key))
                .collect(),
            _ => Vec::new(),
        };
        see(&self.0, what.join(" "));
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        see(&self.0, format!("close {key}"));
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        see(&self.0, "finish".to_owned());
    }
}

/// Lets packets through whose port is a multiple of `of`.
struct Multiple(u16);

impl Component for Multiple {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let all = *packets;
            packets
                .selected
                .retain(|index| port(&all, index).is_multiple_of(self.0));
        }
    }
}

/// Sends packets by their port modulo the number of branches plus one; the last rest to none.
struct Modulo;

impl Component for Modulo {
    fn route(&mut self, packets: &Packets<'_>, branches: &mut [Selection]) {
        for (index, _) in packets.iter() {
            let rest = usize::from(port(packets, index)) % (branches.len() + 1);
            if let Some(branch) = branches.get_mut(rest) {
                branch.insert(index);
            }
        }
    }
}

/// A key per port divided by `by`; port 0 has none.
struct Divide {
    by: u16,
    table: KeyTable<u16>,
}

impl Component for Divide {
    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], now: Nanos) -> Selection {
        let mut keyed = packets.selected;
        for (index, _) in packets.iter() {
            match port(packets, index) {
                0 => keyed.remove(index),
                port => keys[index] = self.table.number(packets.key(index), port / self.by, now),
            }
        }
        keyed
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.table.take_ended(now, ended);
    }

    fn outer(&self, key: u32) -> u32 {
        self.table.outer(key)
    }

    fn end_key(&mut self, key: u32) {
        self.table.end(key);
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.table.end_outer(key);
    }

    fn end_all(&mut self) {
        self.table.end_all();
    }
}

/// Makes one chunk of the ports of a key, when the key ends; at once of a port above 999.
#[derive(Default)]
struct Join(PerKey<String>);

impl Component for Join {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (index, _) in packets.iter() {
            let (key, port) = (packets.key(index), port(packets, index));
            self.0.of(key).push_str(&format!("+{port}"));
            if port > 999 {
                self.close(key, out);
            }
            if port > 9_999 {
                out.end_key(key);
            }
        }
        packets.selected = Selection::NONE;
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        if let Some(text) = self.0.take(key) {
            out.emit(Items::Chunks(&[StreamChunk {
                key,
                stream: &StreamInfo::default(),
                bytes: text.as_bytes(),
                offset: 0,
                gap_before: 0,
                time: Nanos(0),
                captured: Nanos(0),
                end: None,
            }]));
        }
    }
}

/// Counts packets, and panics at port 13.
#[derive(Default)]
struct Count(u64, PacketValues);

impl Component for Count {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        self.0 += items.len() as u64;
        if let Items::Packets(packets) = items {
            self.1.begin(packets, out);
            for (index, _) in packets.iter() {
                self.1.set(index, u64::from(port(packets, index)) * 10);
            }
            let unlucky = packets.iter().any(|(index, _)| port(packets, index) == 13);
            assert!(!unlucky, "thirteen");
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.0))
    }

    fn values(&self) -> Option<&PacketValues> {
        Some(&self.1)
    }
}

/// Gives chunks: one, then nothing, then two, then no more.
#[derive(Default)]
struct Source(u64);

impl Component for Source {
    fn receive(&mut self, out: &mut dyn Outlet, wait: Duration) -> Received {
        assert_eq!(wait, Duration::from_millis(7));
        self.0 += 1;
        let chunk = StreamChunk {
            key: 0,
            stream: &StreamInfo::default(),
            bytes: b"so",
            offset: self.0,
            gap_before: 0,
            time: Nanos(self.0),
            captured: Nanos(self.0),
            end: None,
        };
        match self.0 {
            1 => out.emit(Items::Chunks(&[chunk])),
            2 => return Received::Nothing,
            3 => out.emit(Items::Chunks(&[chunk, chunk])),
            _ => return Received::End,
        }
        Received::Until(Nanos(self.0))
    }
}

fn number(settings: &Settings) -> u16 {
    settings.integer("n").map_or(1, |n| n as u16)
}

fn divide(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let timeout = settings.duration("timeout").map_or(Nanos(32), Nanos);
    Ok(Box::new(Divide {
        by: number(settings),
        table: KeyTable::new(timeout, 4),
    }))
}

const N: OptionInfo = OptionInfo::new("n", OptionKind::Integer { min: 1, max: 999 }, "a number");
const PACKETS: Input = Input::Of(&[ItemType::Packet]);
const PROBE: ComponentInfo = ComponentInfo {
    name: "probe",
    input: Input::Any,
    is_end: true,
    options: &[OptionInfo::new("name", OptionKind::Text, "a name").or("")],
    make: |settings| {
        Ok(Box::new(Probe(
            settings.text("name").unwrap_or("").to_owned(),
        )))
    },
    ..ComponentInfo::OF_PACKETS
};

static COMPONENTS: [ComponentInfo; 8] = [
    PROBE,
    ComponentInfo {
        name: "multiple",
        input: PACKETS,
        options: &[N],
        make: |settings| Ok(Box::new(Multiple(number(settings)))),
        ..PROBE
    },
    ComponentInfo {
        name: "modulo",
        kind: ComponentKind::Switch(Branches::Any),
        input: PACKETS,
        options: &[],
        make: |_| Ok(Box::new(Modulo)),
        ..PROBE
    },
    ComponentInfo {
        name: "divide",
        kind: ComponentKind::Demux,
        input: PACKETS,
        options: &[
            N,
            OptionInfo::new("timeout", OptionKind::Duration, "idle time"),
        ],
        make: divide,
        ..PROBE
    },
    ComponentInfo {
        name: "join",
        input: PACKETS,
        output: Output::Of(ItemType::Chunk),
        options: &[],
        make: |_| Ok(Box::<Join>::default()),
        ..PROBE
    },
    ComponentInfo {
        name: "source",
        input: Input::Nothing,
        output: Output::Of(ItemType::Chunk),
        options: &[],
        make: |_| Ok(Box::<Source>::default()),
        ..PROBE
    },
    ComponentInfo {
        name: "count",
        options: &[],
        result: Some(ResultInfo::number("packets", "packets")),
        make: |_| Ok(Box::<Count>::default()),
        ..PROBE
    },
    ComponentInfo {
        name: "every",
        options: &[OptionInfo::new("of", OptionKind::Measure, "whose")],
        make: |_| Ok(Box::new(Every { next: 0 })),
        ..PROBE
    },
];

/// Writes down a component's result every ten nanoseconds, and what the packets of a batch gave.
struct Every {
    next: u64,
}

impl Component for Every {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let (Items::Packets(packets), Some(values)) = (items, out.values("of")) else {
            return;
        };
        let values: Vec<u64> = values.of(packets, out).map(|(_, value)| value).collect();
        see("every", format!("{values:?}"));
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn interval(&self) -> Option<Nanos> {
        Some(Nanos(10))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        if now.0 < self.next {
            return;
        }
        self.next = (now.0 / 10 + 1) * 10;
        let result = out.result("of").expect("it has one");
        see("every", format!("{}: {result}", now.0));
    }
}

fn stack(text: &str) -> Stack {
    let mut sources = Sources::default();
    let file = sources
        .add("test", format!("[stack] {text}"))
        .expect("room");
    let document = parse(&sources, file).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let mut checked = check(&document, &Registry::new(&COMPONENTS));
    let errors: Vec<String> = checked
        .diagnostics
        .iter()
        .map(|found| found.show(&sources).to_string())
        .collect();
    let program = checked.program.take();
    program
        .unwrap_or_else(|| panic!("{}", errors.join("\n")))
        .stacks
        .remove(0)
}

fn graph(text: &str) -> Graph {
    Graph::new(&stack(text)).expect("it can be made")
}

/// A batch of datagrams from these ports.
fn feed(graph: &mut Graph, now: u64, ports: &[u16]) -> Result<(), String> {
    let packets: Vec<(u64, u16)> = ports.iter().map(|port| (now, *port)).collect();
    feed_at(graph, now, &packets)
}

/// A batch of datagrams that came at these times from these ports.
fn feed_at(graph: &mut Graph, now: u64, datagrams: &[(u64, u16)]) -> Result<(), String> {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for (time, port) in datagrams {
        let offset = memory.len() as u32;
        memory.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        memory.extend(port.to_be_bytes());
        memory.extend([0, 53, 0, 8, 0, 0]);
        packets.push(PacketDescriptor {
            time: Nanos(*time),
            offset,
            captured_len: 28,
            wire_len: 28,
            link: LinkType::RAW,
            ..PacketDescriptor::default()
        });
    }
    let batch = Batch::new(&memory, &packets);
    let mut decoded = DecodedBatch::new();
    Decoder::new(DecodeOptions::default()).decode_batch(&batch, &mut decoded);
    graph
        .process(&batch, &decoded, Nanos(now))
        .map_err(|failure| failure.to_string())
}

#[test]
fn filters_and_switches_leave_the_packets_in_order() {
    let mut graph = graph(
        "modulo ( multiple { 4 } probe { sw.even } | probe { sw.one } multiple { 100 } ) probe { sw.all }",
    );
    feed(&mut graph, 1, &[3, 4, 1, 2, 6, 8, 9, 12, 100]).expect("nothing fails");
    let mut all = seen("sw.");
    all.sort();
    // Modulo 3: 3 6 9 12 to the first, 4 1 100 to the second, 2 8 to none.
    assert_eq!(
        all,
        [
            "all: 2/0 8/0 12/0 100/0",
            "even: 12/0",
            "one: 4/0 1/0 100/0"
        ]
    );
}

#[test]
fn what_is_in_a_demultiplexer_exists_once_and_tells_keys_apart() {
    let mut graph = graph("divide { 10 } < probe { de.in } multiple { 2 } > probe { de.out }");
    feed(&mut graph, 1, &[11, 25, 0, 12, 24]).expect("nothing fails");
    assert_eq!(
        seen("de."),
        ["in: 11/0 25/1 12/0 24/1", "out: 0/0 12/0 24/0"]
    );
}

#[test]
fn keys_end_by_the_capture_clock_and_flush_to_what_follows() {
    let mut graph = graph("divide { 10 } < join probe { ti.in } > probe { ti.out }");
    feed(&mut graph, 1000, &[11, 25, 12]).expect("nothing fails");
    feed(&mut graph, 1020, &[21]).expect("nothing fails");
    assert_eq!(seen("ti."), [""; 0]);
    feed(&mut graph, 1034, &[]).expect("nothing fails");
    assert_eq!(
        seen("ti."),
        ["in: +11+12/0", "out: +11+12/0", "in: close 0"]
    );
    graph.finish().expect("nothing fails");
    assert_eq!(
        seen("ti."),
        [
            "in: +25+21/1",
            "out: +25+21/0",
            "in: close 1",
            "in: finish",
            "out: finish"
        ]
    );
}

#[test]
fn with_too_many_keys_the_longest_idle_ends() {
    let mut graph = graph("divide { n = 10, timeout = 1000s } < join > probe { ev.out }");
    for (time, port) in [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)] {
        feed(&mut graph, time * 100_000_000_000, &[port]).expect("nothing fails");
    }
    assert_eq!(seen("ev."), ["out: +10/0"]);
}

#[test]
fn inner_keys_belong_to_outer_keys_and_end_with_them() {
    let mut graph = graph(
        "divide { n = 100, timeout = 32ns } < divide { n = 10, timeout = 99s } < join probe { ne.in } > probe { ne.mid } > probe { ne.out }",
    );
    feed(&mut graph, 1, &[111, 112, 120, 211, 1111]).expect("nothing fails");
    // The last one leaves at once; its keys are the third of the outer, the fourth of the inner.
    assert_eq!(seen("ne."), ["in: +1111/3", "mid: +1111/2", "out: +1111/0"]);
    feed(&mut graph, 200, &[]).expect("nothing fails");
    let all = seen("ne.");
    let of = |name: &str| -> Vec<&str> {
        let mine = all.iter().filter_map(|line| line.strip_prefix(name));
        mine.filter(|what| !what.contains("close")).collect()
    };
    let mut inner = of("in: ");
    inner.sort_unstable();
    assert_eq!(inner, ["+111+112/0", "+120/1", "+211/2"]);
    let mut middle = of("mid: ");
    middle.sort_unstable();
    assert_eq!(middle, ["+111+112/0", "+120/0", "+211/1"]);
    assert_eq!(of("out: ").len(), 3);
    assert_eq!(
        all.iter().filter(|line| line.contains("close")).count(),
        4 + 3
    );
}

#[test]
fn a_component_ends_the_key_that_it_works_on() {
    let mut graph = graph("divide { 10 } < join probe { ek.in } > probe { ek.out }");
    feed(&mut graph, 1, &[11, 10_001]).expect("nothing fails");
    assert_eq!(
        seen("ek."),
        ["in: +10001/1", "out: +10001/0", "in: close 1"]
    );
    // The first is still there, the second begins anew.
    feed(&mut graph, 2, &[1_001, 10_002, 12]).expect("nothing fails");
    graph.finish().expect("nothing fails");
    let all = seen("ek.");
    assert!(all.contains(&"out: +10002/0".to_owned()), "{all:?}");
    assert!(all.contains(&"out: +11+12/0".to_owned()), "{all:?}");
}

#[test]
fn a_source_gives_its_stack_items_until_it_ends() {
    let mut graph = graph("source probe { so.out }");
    let mut received = Vec::new();
    while received.last() != Some(&Received::End) {
        let wait = Duration::from_millis(7);
        received.push(graph.receive(wait).expect("nothing fails"));
    }
    graph.finish().expect("nothing fails");
    let until = |time| Received::Until(Nanos(time));
    assert_eq!(
        received,
        [until(1), Received::Nothing, until(3), Received::End]
    );
    assert_eq!(seen("so."), ["out: so/0", "out: so/0 so/0", "out: finish"]);
}

#[test]
fn packets_of_a_key_are_given_together() {
    let mut memory = Vec::new();
    let packets: Vec<PacketDescriptor> = (0..7u8)
        .map(|number| {
            memory.push(number);
            PacketDescriptor {
                offset: u32::from(number),
                captured_len: 1,
                wire_len: 1,
                ..PacketDescriptor::default()
            }
        })
        .collect();
    let batch = Batch::new(&memory, &packets);
    let decoded = DecodedBatch::new();
    let mut all = Packets::new(&batch, &decoded);
    all.keys = &[4, 9, 4, 0, 9, 4, 4];
    all.selected.remove(2);
    let (mut order, mut seen) = (Vec::new(), Vec::new());
    all.by_key(&mut order, |key, places| seen.push((key, places.to_vec())));
    assert_eq!(seen, [(0, vec![3]), (4, vec![0, 5, 6]), (9, vec![1, 4])]);
}

#[test]
fn results_and_counts_can_be_read_while_it_runs() {
    let stack = stack("count modulo ( multiple { 100 } count { as = some } )");
    let mut graph = Graph::new(&stack).expect("it can be made");
    feed(&mut graph, 1, &[100, 200, 300, 3]).expect("nothing fails");
    let some = stack.find("some").expect("it is there");
    assert_eq!(graph.result(some), Some(ResultValue::Sum(3)));
    let first = stack.find("count(0)").expect("it is there");
    assert_eq!(graph.result(first), Some(ResultValue::Sum(4)));
    feed(&mut graph, 2, &[400]).expect("nothing fails");
    assert_eq!(graph.result(some), Some(ResultValue::Sum(4)));
    assert_eq!(
        (graph.passed(first).items, graph.passed(first).batches),
        (5, 2)
    );
}

#[test]
fn a_result_is_read_when_all_packets_before_the_time_have_come_and_none_after() {
    let mut graph = graph("count multiple { 2 } every { count }");
    // 200 is a jump that the clock does not believe, 27 comes late.
    let packets = [
        (12, 1),
        (15, 2),
        (19, 4),
        (20, 6),
        (31, 8),
        (200, 3),
        (27, 2),
        (33, 5),
    ];
    feed_at(&mut graph, 33, &packets).expect("nothing fails");
    feed_at(&mut graph, 60, &[]).expect("nothing fails");
    assert_eq!(
        seen("every"),
        [
            ": 12: 0",
            ": [20, 40]",
            ": 20: 3",
            ": [60]",
            ": 31: 4",
            ": [80, 20]",
            ": 60: 8"
        ]
    );
}

#[test]
fn a_component_that_panics_is_named_and_ends_its_stack() {
    let mut one = graph("divide { 10 } < count { as = mine } > probe { pa.out }");
    let mut other = graph("probe { pa.other }");
    feed(&mut one, 1, &[11]).expect("nothing fails yet");
    let error = feed(&mut one, 2, &[12, 13]).expect_err("it panics");
    assert_eq!(error, "the component mine failed: thirteen");
    feed(&mut one, 3, &[11]).expect("it is over, and stays so");
    one.finish().expect("it is over, and stays so");
    feed(&mut other, 3, &[13]).expect("others go on");
    assert_eq!(seen("pa."), ["out: 11/0", "other: 13/0"]);
}

#[test]
fn components_can_be_sent_to_other_threads() {
    let graph = Arc::new(Mutex::new(graph("count")));
    let there = Arc::clone(&graph);
    let thread = std::thread::spawn(move || {
        feed(&mut there.lock().expect("not poisoned"), 1, &[1]).expect("nothing fails");
    });
    thread.join().expect("it ends");
}
