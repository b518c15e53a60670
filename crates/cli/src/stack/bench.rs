//! `flowgauge stack bench`

use std::fmt::Write as _;
use std::time::Instant;

use flowgauge_capture::{PacketSource, open_all};
use flowgauge_flow::CaptureClock;
use flowgauge_stack::{Graph, NoTail, NodeId, Stack};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodedBatch, HashSeed, Nanos, PacketDescriptor, hash_batch};

use super::read;
use crate::failure::Failure;
use crate::options::BenchOptions;

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
    let text = read::text(options.file.as_deref(), options.expression.as_deref())?;
    let program = read::program(text)?;
    let source = open_all(&options.read).map_err(|error| Failure::opening(&error))?;
    let batches = keep(source)?;
    let packets: usize = batches.iter().map(|kept| kept.packets.len()).sum();
    if packets == 0 {
        return Err(Failure::usage(
            "the input has no packets",
            "give it a capture",
        ));
    }
    let repeat = options.repeat.max(1);
    let mut out = String::new();
    for stack in &program.stacks {
        let name = stack.name.as_deref().unwrap_or("stack");
        if stack.has_source() {
            let _ = writeln!(out, "{name}: begins with a source of its own");
            continue;
        }
        let _ = writeln!(
            out,
            "{name}: ns per packet, least and median of {repeat} runs over {packets} packets"
        );
        let row: Vec<NodeId> = stack.row(stack.entry).collect();
        let mut before = (0.0, 0.0);
        for (place, &id) in row.iter().enumerate() {
            let until = row.get(place + 1).copied();
            let all = measure(stack, until, &batches, repeat)?;
            let per = |nanos: u128| nanos as f64 / packets as f64;
            let so_far = (per(all.0), per(all.1));
            let _ = writeln!(
                out,
                "  {:<24} {:>9.2} {:>9.2}",
                stack.node(id).label,
                so_far.0 - before.0,
                so_far.1 - before.1
            );
            before = so_far;
        }
        let _ = writeln!(out, "  {:<24} {:>9.2} {:>9.2}", "all", before.0, before.1);
    }
    super::print(out.as_bytes())
}

/// Reads the input into memory, decoded.
fn keep(mut source: Box<dyn PacketSource + Send>) -> Result<Vec<Kept>, Failure> {
    let mut clock = CaptureClock::default();
    let mut decoder = Decoder::default();
    let mut all = Vec::new();
    while let Some(batch) = source
        .next_batch()
        .map_err(|error| Failure::opening(&error))?
    {
        let mut kept = Kept {
            memory: Vec::new(),
            packets: Vec::with_capacity(batch.len()),
            decoded: DecodedBatch::new(),
            now: Nanos(0),
        };
        for packet in batch.packets {
            let offset = kept.memory.len() as u32;
            kept.memory.extend_from_slice(batch.bytes_of(packet));
            kept.packets.push(PacketDescriptor { offset, ..*packet });
            clock.packet(packet.time, None);
        }
        kept.now = clock.now();
        decoder.decode_batch(&Batch::new(&kept.memory, &kept.packets), &mut kept.decoded);
        hash_batch(HashSeed::FIXED, &mut kept.decoded.packets);
        all.push(kept);
    }
    Ok(all)
}

/// Least and median time of the components before `until`.
fn measure(
    stack: &Stack,
    until: Option<NodeId>,
    batches: &[Kept],
    repeat: usize,
) -> Result<(u128, u128), Failure> {
    let failed = |what: String, hint: Option<String>| Failure::Usage { what, hint };
    let mut times = Vec::with_capacity(repeat);
    for _ in 0..repeat {
        let graph = Graph::part(stack, Some(stack.entry), until, HashSeed::FIXED, NoTail);
        let mut graph = graph.map_err(|error| failed(error.message, error.hint))?;
        let run = |graph: &mut Graph| {
            graph.start()?;
            let started = Instant::now();
            for kept in batches {
                let batch = Batch::new(&kept.memory, &kept.packets);
                graph.process(&batch, &kept.decoded, kept.now)?;
            }
            graph.finish()?;
            Ok(started.elapsed().as_nanos())
        };
        let time: Result<u128, flowgauge_stack::ComponentFailure> = run(&mut graph);
        times.push(time.map_err(|error| failed(error.to_string(), error.failure.hint))?);
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok((times.first().copied().unwrap_or_default(), median))
}
