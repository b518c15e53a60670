//! `output { to = ... }` and `input` on one machine: what goes in comes out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::loopback::own_address;
use crate::wait::wait_until;
use flowgauge_link::KeyFolder;
use flowgauge_record::OwnedRecord;
use flowgauge_record::results::Cell;
use flowgauge_registry::registry;
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{
    Checked, Component, ComponentInfo, Graph, Input, Items, Outlet, Received, Registry,
    ResultValue, Sources, Stack, check, parse_stack,
};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodedBatch, LinkType, Nanos, PacketDescriptor, hash_batch,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// What came to `keep`, in the order in which it came: a time and bytes, or a record as text.
static KEPT: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::new(Vec::new());
/// One at a time keeps.
static TURN: Mutex<()> = Mutex::new(());

static KEEP: ComponentInfo = ComponentInfo {
    name: "keep",
    input: Input::Any,
    is_end: true,
    decodes: |_| true,
    effects: |_| true,
    make: |_| Ok(Box::new(Keep)),
    ..ComponentInfo::OF_PACKETS
};

struct Keep;

impl Component for Keep {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let mut kept = KEPT.lock().unwrap();
        match items {
            Items::Packets(packets) => kept.extend(
                packets
                    .iter()
                    .map(|(_, packet)| (packet.time.0, packets.bytes(packet).to_vec())),
            ),
            Items::Chunks(chunks) => {
                kept.extend(
                    chunks
                        .iter()
                        .map(|chunk| (chunk.time.0, chunk.bytes.to_vec())),
                );
            }
            Items::Records(records) => kept.extend(records.iter().map(|item| {
                let record = OwnedRecord::of(item.record);
                let values = record
                    .iter()
                    .map(|(field, value)| format!("{}={value:?}", field.name));
                (
                    item.time.0,
                    values.collect::<Vec<String>>().join(" ").into_bytes(),
                )
            })),
            _ => {}
        }
    }
}

struct Place {
    folder: tempfile::TempDir,
    /// Where the input listens.
    address: SocketAddr,
}

impl Place {
    fn new(names: &[&str]) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path());
        keys.create_authority().unwrap();
        let address = own_address();
        for name in names {
            keys.add(name, &[address.ip().to_string()], 1).unwrap();
        }
        Place { folder, address }
    }

    fn input(&self, options: &str) -> Graph {
        let (address, keys) = (self.address, self.folder.path().display());
        graph(&format!(
            "input {{ listen = {address}, keys = {keys}, identity = collector, {options} }} - keep"
        ))
    }

    fn output(&self, name: &str, before: &str) -> Graph {
        let (address, keys) = (self.address, self.folder.path().display());
        graph(&format!(
            "{before} output {{ to = {address}, keys = {keys}, identity = {name} }}"
        ))
    }
}

fn checked(text: &str) -> (Checked, Sources) {
    let mut sources = Sources::default();
    let file = sources.add("test".to_owned(), text.to_owned()).unwrap();
    let document = Document::of(parse_stack(&sources, file).unwrap());
    let infos = registry();
    let registry = Registry::new(infos.iter().chain([&KEEP]));
    (check(&document, &registry), sources)
}

fn stack(text: &str) -> Stack {
    let (checked, sources) = checked(text);
    let said = checked.diagnostics.iter();
    let said: Vec<String> = said.map(|found| found.show(&sources).to_string()).collect();
    checked
        .program
        .unwrap_or_else(|| panic!("{said:?}"))
        .stacks
        .remove(0)
}

fn graph(text: &str) -> Graph {
    let mut graph = Graph::new(&stack(text)).unwrap();
    graph.start().unwrap();
    graph
}

/// Takes until the end; how the clock went on.
fn receive_all(mut graph: Graph) -> (Vec<u64>, Graph) {
    let mut clock = Vec::new();
    loop {
        match graph.receive(LONG).unwrap() {
            Received::Until(now) => clock.push(now.0),
            Received::Nothing => panic!("nothing came"),
            Received::End => break,
        }
    }
    graph.finish().unwrap();
    (clock, graph)
}

/// Packets of these times; each holds its time and `mark`.
fn feed(graph: &mut Graph, times: impl Iterator<Item = u64>, mark: u8) {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    let mut decoder = Decoder::default();
    let mut decoded = DecodedBatch::new();
    for time in times {
        let mut bytes = time.to_le_bytes().to_vec();
        bytes.resize(20 + (time % 80) as usize, mark);
        packets.push(PacketDescriptor {
            time: Nanos(time),
            offset: memory.len() as u32,
            captured_len: bytes.len() as u32,
            wire_len: bytes.len() as u32 + 7,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
        memory.extend(bytes);
    }
    for packets in packets.chunks(BATCH_SIZE) {
        let batch = Batch::new(&memory, packets);
        decoder.decode_batch(&batch, &mut decoded);
        hash_batch(&mut decoded.packets);
        let now = packets.last().unwrap().time;
        graph.process(&batch, &decoded, now).unwrap();
    }
}

fn kept() -> Vec<(u64, Vec<u8>)> {
    core::mem::take(&mut *KEPT.lock().unwrap())
}

/// A column of an input's table by sender.
fn of_senders(graph: &Graph, column: &str) -> BTreeMap<String, u64> {
    let Some(ResultValue::Table(table)) = graph.result(stack(INPUT).entry) else {
        panic!("no table");
    };
    let place = table
        .columns
        .iter()
        .position(|found| found.field.name == column)
        .unwrap();
    let rows = table.rows.iter().map(|row| match (&row[0], &row[place]) {
        (Cell::Text(name), Cell::Unsigned(value)) => (name.clone(), *value),
        _ => panic!("no name and number"),
    });
    rows.collect()
}

/// The sum of a column.
fn cell(graph: &Graph, column: &str) -> u64 {
    of_senders(graph, column).values().sum()
}

/// Waits until the input knows the sender: the start of an output waits for that no longer than it says.
fn wait_for_sender(input: &Graph, name: &str) {
    wait_until("the sender is there", || {
        of_senders(input, "received").contains_key(name)
    });
}

/// A stack whose source is an input, for [`of_senders`].
const INPUT: &str = "input { listen = 127.0.0.1:1 } - keep";

#[test]
fn several_outputs_meet_in_one_input_in_the_order_of_time() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::new(&["collector", "one", "two", "three"]);
    let input = place.input("senders = 3, timeout = 60s");
    let receiving = thread::spawn(move || receive_all(input));
    // One has few packets, one sends all at once, one begins late.
    let sending: Vec<_> = [("one", 1, 3), ("two", 2, 40), ("three", 50_001, 7)]
        .into_iter()
        .enumerate()
        .map(|(mark, (name, from, step))| {
            let mut graph = place.output(name, "");
            thread::spawn(move || {
                feed(&mut graph, (from..100_000).step_by(step), mark as u8);
                graph.finish().unwrap();
            })
        })
        .collect();
    sending
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let (clock, graph) = receiving.join().unwrap();
    let kept = kept();
    let mut expected: Vec<(u64, u8)> = [(1, 3), (2, 40), (50_001, 7)]
        .into_iter()
        .zip(0..)
        .flat_map(|((from, step), mark)| (from..100_000).step_by(step).map(move |at| (at, mark)))
        .collect();
    expected.sort_unstable();
    let mut found: Vec<(u64, u8)> = kept
        .iter()
        .map(|(time, bytes)| (*time, *bytes.last().unwrap()))
        .collect();
    assert!(found.is_sorted_by_key(|(time, _)| *time));
    found.sort_unstable();
    assert_eq!(found, expected);
    for (time, bytes) in &kept {
        assert_eq!(bytes[..8], time.to_le_bytes());
        assert_eq!(bytes.len() as u64, 20 + time % 80);
    }
    assert!(clock.is_sorted());
    assert_eq!(cell(&graph, "received"), expected.len() as u64);
    assert_eq!(cell(&graph, "late") + cell(&graph, "lost"), 0);
}

#[test]
fn items_of_another_type_are_left_out_and_counted() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::new(&["collector", "one"]);
    let input = place.input("senders = 1, type = record");
    let receiving = thread::spawn(move || receive_all(input));
    let mut output = place.output("one", "");
    feed(&mut output, 0..1000, 0);
    output.finish().unwrap();
    let (_, graph) = receiving.join().unwrap();
    assert!(kept().is_empty());
    assert_eq!(cell(&graph, "refused"), 1000);
    assert_eq!(cell(&graph, "received"), 0);
}

#[test]
fn a_sender_that_is_gone_holds_the_others_up_no_longer_than_said() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::new(&["collector", "one", "two"]);
    let mut input = place.input("senders = 2, timeout = 300ms");
    let mut silent = place.output("one", "");
    let mut output = place.output("two", "");
    wait_for_sender(&input, "one");
    wait_for_sender(&input, "two");
    feed(&mut silent, 0..10, 1);
    feed(&mut output, 0..1000, 2);
    let done = thread::spawn(move || output.finish().unwrap());
    let mut found = Vec::new();
    let of = |found: &[(u64, Vec<u8>)], mark| {
        let marks = found.iter().map(|(_, bytes)| bytes[19]);
        marks.filter(|found| *found == mark).count()
    };
    wait_until("all of the other sender came", || {
        let received = input.receive(Duration::from_millis(20)).unwrap();
        assert_ne!(received, Received::End);
        found.extend(kept());
        of(&found, 2) == 1000
    });
    done.join().unwrap();
    // It was only slow: what it has is late, and comes.
    let done = thread::spawn(move || silent.finish().unwrap());
    receive_to_the_end(&mut input);
    input.finish().unwrap();
    done.join().unwrap();
    found.extend(kept());
    assert_eq!((of(&found, 1), of(&found, 2)), (10, 1000));
    // All of it, unless this thread stood still and a frame that is not full was old enough to be sent.
    let mut until = 0;
    let late = found.iter().filter(|(time, _)| {
        until = until.max(*time);
        *time < until
    });
    assert_eq!(cell(&input, "late"), late.count() as u64);
}

/// Takes until the end, which comes soon.
fn receive_to_the_end(input: &mut Graph) {
    wait_until("all came and went", || {
        input.receive(Duration::from_millis(20)).unwrap() == Received::End
    });
}

/// A sender that does not come back is forgotten after the time that is said, and what it had is counted.
#[test]
fn a_sender_that_does_not_come_back_is_forgotten() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::new(&["collector", "one", "two"]);
    let mut input = place.input("senders = 2, timeout = 100ms, forget = 200ms");
    let mut gone = place.output("one", "");
    // (Both have come before the input looks: its timeout is for those that do not.)
    wait_for_sender(&input, "one");
    feed(&mut gone, 0..10, 1);
    // It goes without a word.
    drop(gone);
    let mut output = place.output("two", "");
    wait_for_sender(&input, "two");
    let done = thread::spawn(move || {
        feed(&mut output, 0..1000, 2);
        output.finish().unwrap();
    });
    receive_to_the_end(&mut input);
    done.join().unwrap();
    input.finish().unwrap();
    let received = of_senders(&input, "received");
    assert_eq!(received.len(), 2);
    // Where this thread stood still, the frame was old enough to be sent before its sender went.
    assert!([0, 10].contains(&received["one"]), "{received:?}");
    assert_eq!(received["two"], 1000);
    assert_eq!(kept().len() as u64, received["one"] + 1000);
}

/// Chunks of several streams come mixed; inside streamdemux each connection has its own.
#[test]
fn streams_come_apart_again_behind_a_link() {
    use flowgauge_capture::PacketSource as _;
    use flowgauge_generate::{Config, Preset, generate};
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut trace = Vec::new();
    generate(&Config::new(Preset::Web).scaled(0.001), &mut trace).unwrap();
    let through = |graph: &mut Graph| {
        let trace = std::io::Cursor::new(trace.clone());
        let mut source = flowgauge_capture::open_reader(trace, "test").unwrap();
        let mut decoder = Decoder::default();
        let mut decoded = DecodedBatch::new();
        while let Some(batch) = source.next_batch().unwrap() {
            decoder.decode_batch(&batch, &mut decoded);
            hash_batch(&mut decoded.packets);
            let now = batch.packets.iter().map(|packet| packet.time).max();
            graph
                .process(&batch, &decoded, now.unwrap_or_default())
                .unwrap();
        }
        graph.finish().unwrap();
    };
    let mut here = graph("tcpscan tcpcnxdemux < tcpreseq http > keep");
    through(&mut here);
    let mut expected = kept();
    let place = Place::new(&["collector", "one"]);
    let (address, keys) = (place.address, place.folder.path().display());
    let listen = format!(
        "input {{ listen = {address}, keys = {keys}, identity = collector, type = chunk, \
         senders = 1 }} -"
    );
    let text = format!("{listen} streamdemux {{ results = 3 }} < http bytes > keep");
    let (checked, _) = checked(&format!("{listen} http - keep"));
    assert!(checked.program.is_some());
    assert!(checked.diagnostics[0].message.contains("come mixed"));
    let text = text.replace(" bytes", "");
    let input = graph(&text);
    let receiving = thread::spawn(move || receive_all(input));
    let mut output = place.output("one", "tcpscan tcpcnxdemux < tcpreseq >");
    through(&mut output);
    let (_, input) = receiving.join().unwrap();
    let mut found = kept();
    // Times at which they came to be differ at the end of the input.
    let by_text = |kept: &mut Vec<(u64, Vec<u8>)>| kept.sort_by(|one, other| one.1.cmp(&other.1));
    by_text(&mut expected);
    by_text(&mut found);
    assert!(expected.len() > 100, "{}", expected.len());
    let texts = |kept: &[(u64, Vec<u8>)]| -> Vec<Vec<u8>> {
        kept.iter().map(|(_, text)| text.clone()).collect()
    };
    assert_eq!(texts(&found), texts(&expected));
    let stack = stack(&text);
    let streams = stack.find("streamdemux").unwrap();
    let http = stack.find("http").unwrap();
    let by_key = input.result_by_key(http).unwrap();
    assert_eq!(by_key.rows.len(), 3);
    let Some(ResultValue::Sum(instances)) = input.result(streams) else {
        panic!("a number");
    };
    assert!(instances > 20, "{instances}");
}

#[test]
fn options_that_contradict_each_other_are_named() {
    let refused = |text: &str| {
        let (checked, sources) = checked(text);
        assert!(checked.program.is_none(), "{text}");
        checked.diagnostics[0].show(&sources).to_string()
    };
    for (text, part) in [
        (
            "output { to = collector }",
            "is not an address with a port (host:port)",
        ),
        ("output { to = c:1, file = x }", "is for files"),
        ("output { spool = 8M }", "has no meaning without to"),
        (
            "output { to = c:1, spool_file = 8M }",
            "without spool_folder",
        ),
        ("output { to = c:1, spool = 8k }", "is less than 1M"),
        (
            "input { listen = 7 } - keep",
            "is not an address with a port (host:port)",
        ),
        ("keep input { listen = 1.1.1.1:1 }", "begin"),
        (
            "input { listen = 1.1.1.1:1, type = chunk } - tcpscan",
            "takes packet",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(part), "{text}: {said}");
    }
}

#[test]
fn an_output_without_keys_says_how_to_make_them() {
    let text = "output { to = 127.0.0.1:1, keys = /nonexistent }";
    let failed = Graph::new(&stack(text)).unwrap().start().unwrap_err();
    assert!(
        failed.failure.hint.unwrap().contains("flowgauge keys"),
        "{}",
        failed.failure.message
    );
}

#[test]
fn nobody_keeps_what_does_not_belong_here() {
    // The helper of these tests, not a component of the program.
    let names: Arc<[&str]> = registry().iter().map(|info| info.name).collect();
    assert!(!names.contains(&"keep") && names.contains(&"input"));
}
