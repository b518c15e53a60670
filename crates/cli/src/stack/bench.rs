//! `flowgauge stack bench`

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

use flowgauge_capture::{PacketSource, open_all};
use flowgauge_flow::CaptureClock;
use flowgauge_kit::measure::cell;
use flowgauge_record::RecordWriter;
use flowgauge_record::listed::{COST_SCHEMA, CostRow};
use flowgauge_record::results::{Cell, Value};
use flowgauge_stack::{Graph, Inner, NodeId, Stack};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodedBatch, Nanos, PacketDescriptor, hash_batch};

use super::read;
use crate::failure::{self, Failure};
use crate::options::BenchOptions;
use crate::say::say;
use crate::sinks;

/// A batch that stays in memory.
struct Kept {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    decoded: DecodedBatch,
    now: Nanos,
}

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &BenchOptions) -> Result<(), Failure> {
    let program = read::program(read::given(&options.stack)?)?;
    crate::anonymize::refuse_if_forced("bench reads unmodified packets")?;
    let source = open_all(&options.read).map_err(|error| Failure::opening(&error))?;
    let batches = keep(source, usize::from(options.batch))?;
    let packets: usize = batches.iter().map(|kept| kept.packets.len()).sum();
    if packets == 0 {
        return Err(Failure::usage("the input has no packets", "use -r FILE"));
    }
    let repeat = options.repeat.max(1);
    let output = sinks::open(&options.output, COST_SCHEMA)?;
    let format = sinks::format(&options.output);
    let mut writer = RecordWriter::new(output, format, COST_SCHEMA);
    for stack in &program.stacks {
        if stack.has_source() {
            let name = stack.name.as_deref().unwrap_or("stack");
            say!("note: {name} was not measured: it has a source of its own");
            continue;
        }
        let (rows, all) = measure(stack, &batches, repeat)?;
        let per_packet = |times: &Times| {
            let median = times.sorted.get(times.sorted.len() / 2);
            let least = times.sorted.first();
            [least, median].map(|time| time.copied().unwrap_or(0) as f64 / packets as f64)
        };
        let [nanoseconds, median] = per_packet(&all);
        let together = CostRow {
            stack: stack.name.as_deref(),
            component: None,
            depth: None,
            packets: packets as u64,
            nanoseconds,
            median,
            items: None,
            item_nanoseconds: None,
            result: Value(&Cell::None),
            most_keys: None,
        };
        for row in &rows {
            let [nanoseconds, median] = per_packet(&row.times);
            writer.write(&CostRow {
                component: Some(&row.label),
                depth: Some(row.depth as u64),
                nanoseconds,
                median,
                items: Some(row.items),
                item_nanoseconds: Some(nanoseconds * packets as f64 / row.items.max(1) as f64),
                result: Value(&row.result),
                most_keys: row.most_keys,
                ..together
            });
        }
        writer.write(&together);
    }
    failure::of_writer(&mut writer)
}

/// Reads the input into memory, decoded.
fn keep(mut source: Box<dyn PacketSource + Send>, size: usize) -> Result<Vec<Kept>, Failure> {
    let mut clock = CaptureClock::default();
    let mut decoder = Decoder::default();
    let mut all = Vec::new();
    while let Some(batch) = source
        .next_batch()
        .map_err(|error| Failure::opening(&error))?
    {
        for packets in batch.packets.chunks(size.max(1)) {
            let mut kept = Kept {
                memory: Vec::new(),
                packets: Vec::with_capacity(packets.len()),
                decoded: DecodedBatch::new(),
                now: Nanos(0),
            };
            for packet in packets {
                let offset = kept.memory.len() as u32;
                kept.memory.extend_from_slice(batch.bytes_of(packet));
                kept.packets.push(PacketDescriptor { offset, ..*packet });
                clock.packet(packet.time, None);
            }
            kept.now = clock.now();
            decoder.decode_batch(&Batch::new(&kept.memory, &kept.packets), &mut kept.decoded);
            hash_batch(&mut kept.decoded.packets);
            all.push(kept);
        }
    }
    Ok(all)
}

/// What was measured of a component, or of all.
struct Times {
    /// Of each run, in nanoseconds; the least first.
    sorted: Vec<u64>,
}

impl Times {
    fn of(mut all: Vec<u64>) -> Times {
        all.sort_unstable();
        Times { sorted: all }
    }
}

/// A component.
struct Row {
    label: String,
    /// In how many others it is.
    depth: usize,
    items: u64,
    result: Cell,
    /// Of a demultiplexer: keys at once.
    most_keys: Option<u64>,
    times: Times,
}

/// The time of each component without what is in it and behind it, and of all together, which is
/// measured apart: a look at the clock costs as much as a simple component does for a packet.
fn measure(stack: &Stack, batches: &[Kept], repeat: usize) -> Result<(Vec<Row>, Times), Failure> {
    let failed = |what: String, hint: Option<String>| Failure::Usage { what, hint };
    let demultiplexers = || {
        let all = stack.iter();
        all.filter(|(_, node)| matches!(node.inner, Inner::PerKey(_)))
    };
    let mut most: BTreeMap<NodeId, i64> = BTreeMap::new();
    let mut run = |watches: bool| {
        let graph = Graph::new(stack);
        let mut graph = graph.map_err(|error| failed(error.message, error.hint))?;
        if watches {
            graph.measure(clock);
        }
        let mut drive = || {
            graph.start()?;
            let started = clock();
            for kept in batches {
                let batch = Batch::new(&kept.memory, &kept.packets);
                graph.process(&batch, &kept.decoded, kept.now)?;
                // Those that count their keys. Not while all is measured.
                for (id, _) in demultiplexers().filter(|_| watches) {
                    let made = graph.result(id).and_then(|result| result.number());
                    let made = made.and_then(|made| i64::try_from(made).ok());
                    if let Some(made) = made {
                        let now = made - graph.keys_ended(id) as i64;
                        let most = most.entry(id).or_default();
                        *most = now.max(*most);
                    }
                }
            }
            graph.finish()?;
            Ok(clock() - started)
        };
        let time: Result<u64, flowgauge_stack::ComponentFailure> = drive();
        let time = time.map_err(|error| failed(error.to_string(), error.failure.hint))?;
        Ok::<_, Failure>((graph, time))
    };
    let look = cost_of_clock();
    let mut all = Vec::with_capacity(repeat);
    let mut each: Vec<Vec<u64>> = vec![Vec::with_capacity(repeat); stack.nodes.len()];
    let mut rows = Vec::new();
    for _ in 0..repeat {
        all.push(run(false)?.1);
        let (graph, _) = run(true)?;
        rows.clear();
        for (id, node) in stack.iter() {
            let passed = graph.passed(id);
            let spent = graph.spent(id).saturating_sub(passed.batches * look);
            if let Some(times) = each.get_mut(id.index()) {
                times.push(spent);
            }
            let around = core::iter::successors(node.parent, |&id| stack.node(id).parent);
            let result = graph.result(id).and_then(|result| result.number());
            rows.push(Row {
                label: node.label.clone(),
                depth: around.count(),
                items: passed.items,
                result: result.map_or(Cell::None, cell),
                most_keys: None,
                times: Times::of(Vec::new()),
            });
        }
    }
    for ((id, _), (row, times)) in stack.iter().zip(rows.iter_mut().zip(each)) {
        row.times = Times::of(times);
        row.most_keys = most.get(&id).map(|most| most.unsigned_abs());
    }
    Ok((rows, Times::of(all)))
}

/// Nanoseconds since the first look.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What a look at the clock costs.
fn cost_of_clock() -> u64 {
    const LOOKS: u64 = 1000;
    let of = |_| {
        let started = clock();
        (1..LOOKS).for_each(|_| {
            clock();
        });
        (clock() - started) / LOOKS
    };
    (0..10).map(of).min().unwrap_or(0)
}
