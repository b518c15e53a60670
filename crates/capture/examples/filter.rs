//! Runs a filter over every packet of a capture, by our interpreter and by libpcap's, and prints how
//! many match. To compare the two by the instructions they execute:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=out target/release/examples/filter FILE 'tcp port 443'
//! callgrind_annotate out | grep -E 'run_ours|filter_with_aux_data'
//! ```
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use flowgauge_capture::{Filter, PacketSource};
use flowgauge_wire::LinkType;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, expression] = arguments.as_slice() else {
        eprintln!("usage: filter FILE EXPRESSION");
        return ExitCode::from(2);
    };
    match run(path.as_ref(), expression) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("filter: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &std::path::Path, expression: &str) -> Result<(), Box<dyn std::error::Error>> {
    let filter = Filter::compile(expression, LinkType::ETHERNET, 262_144)?;
    let mut source = flowgauge_capture::open(path)?;
    let (mut packets, mut ours, mut theirs) = (0_u64, 0_u64, 0_u64);
    while let Some(batch) = source.next_batch()? {
        for (index, packet) in batch.packets.iter().enumerate() {
            let bytes = batch.bytes(index);
            packets += 1;
            ours += u64::from(run_ours(&filter, bytes, packet.wire_len) != 0);
            let verdict = flowgauge_sys::testing::offline_filter(
                filter.instructions(),
                bytes,
                packet.wire_len,
            );
            theirs += u64::from(verdict.is_some_and(|verdict| verdict != 0));
        }
    }
    writeln!(
        std::io::stdout(),
        "{packets} packets, {ours} match, by libpcap {theirs}"
    )?;
    Ok(())
}

/// A function of its own, so that callgrind tells its cost.
#[inline(never)]
fn run_ours(filter: &Filter, bytes: &[u8], wire_len: u32) -> u32 {
    filter.verdict(bytes, wire_len)
}
