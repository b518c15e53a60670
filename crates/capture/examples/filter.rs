//! Runs filters over every packet of a capture, as those of one place that share what they find, one by one by our
//! interpreter, and by libpcap's, and prints how many packets match. To compare the three by the instructions they execute:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=out target/release/examples/filter FILE 'tcp port 443' 'udp port 53'
//! callgrind_annotate --inclusive=yes out | grep -E 'run_together|run_ours|filter_with_aux_data'
//! ```
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use flowgauge_capture::filter::{Columns, FilterSet};
use flowgauge_capture::{Filter, PacketSource};
use flowgauge_wire::{Batch, LinkType, Selection};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((path, expressions)) = arguments.split_first() else {
        eprintln!("usage: filter FILE EXPRESSION...");
        return ExitCode::from(2);
    };
    match run(path.as_ref(), expressions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("filter: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &std::path::Path, expressions: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let filters = expressions
        .iter()
        .map(|expression| Filter::compile(expression, LinkType::ETHERNET, 262_144));
    let filters = filters.collect::<Result<Vec<Filter>, _>>()?;
    let sets = expressions
        .iter()
        .map(|expression| FilterSet::new(expression, 262_144, None));
    let mut sets: Vec<FilterSet> = sets.collect();
    let mut columns = Columns::default();
    let mut source = flowgauge_capture::open(path)?;
    let (mut packets, mut together, mut ours, mut theirs) = (0, 0, 0, 0);
    while let Some(batch) = source.next_batch()? {
        packets += batch.len();
        columns.begin();
        for set in &mut sets {
            together += run_together(set, &mut columns, &batch)?;
        }
        for filter in &filters {
            for (index, packet) in batch.packets.iter().enumerate() {
                let bytes = batch.bytes(index);
                ours += usize::from(run_ours(filter, bytes, packet.wire_len) != 0);
                let verdict = flowgauge_sys::testing::offline_filter(
                    filter.instructions(),
                    bytes,
                    packet.wire_len,
                );
                theirs += usize::from(verdict.is_some_and(|verdict| verdict != 0));
            }
        }
    }
    writeln!(
        std::io::stdout(),
        "{packets} packets, {together} match, by our interpreter {ours}, by libpcap {theirs}"
    )?;
    Ok(())
}

/// A function of its own, so that callgrind tells its cost.
#[inline(never)]
fn run_ours(filter: &Filter, bytes: &[u8], wire_len: u32) -> u32 {
    filter.verdict(bytes, wire_len)
}

/// Likewise.
#[inline(never)]
fn run_together(
    set: &mut FilterSet,
    columns: &mut Columns,
    batch: &Batch<'_>,
) -> Result<usize, flowgauge_capture::Error> {
    let mut selected = Selection::first(batch.len());
    set.select(columns, batch, None, &mut selected)?;
    Ok(selected.len())
}
