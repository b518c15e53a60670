//! Counts the bytes of all streams in captures and prints what the engine did; with `--list`, one
//! line per stream with the SHA-256 of its bytes.
//!
//! `cargo run --release -p flowgauge-stream --example streams -- [--list] [--flows] FILE...`

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;

use flowgauge_capture::PacketSource;
use flowgauge_flow::FlowRecord;
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use sha2::{Digest, Sha256};

#[derive(Default)]
struct Count {
    bytes: u64,
    sum: u64,
    streams: u64,
    missing: u64,
    gaps: u64,
}

impl Handler for Count {
    const STREAMS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
        let words = chunk.bytes.chunks_exact(8);
        let rest: u64 = words.remainder().iter().map(|&byte| u64::from(byte)).sum();
        self.sum = words.fold(self.sum.wrapping_add(rest), |sum, word| {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            sum.wrapping_add(u64::from_le_bytes(value))
        });
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.streams += 1;
        self.missing += stream.missing_bytes + trailing_gap;
        self.gaps += u64::from(stream.gaps) + u64::from(trailing_gap > 0);
    }
}

#[derive(Default)]
struct Flows(u64);

impl Handler for Flows {
    fn flow(&mut self, _: &FlowRecord<'_>) {
        self.0 += 1;
    }
}

#[derive(Default)]
struct List {
    hashes: HashMap<u32, Sha256>,
    out: Vec<u8>,
}

impl Handler for List {
    const STREAMS: bool = true;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.hashes
            .entry(stream.id)
            .or_default()
            .update(chunk.bytes);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let hash = self
            .hashes
            .remove(&stream.id)
            .unwrap_or_default()
            .finalize();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let identity = stream.identity();
        let (source, destination) = (identity.source, identity.destination);
        let _ = writeln!(
            self.out,
            "{} {} {} {} {} {} {} {} {} {hex}",
            source.0.to_ip(identity.version),
            source.1,
            destination.0.to_ip(identity.version),
            destination.1,
            identity.protocol,
            stream.bytes,
            stream.missing_bytes + trailing_gap,
            u64::from(stream.gaps) + u64::from(trailing_gap > 0),
            stream.status.name(),
        );
    }
}

fn run<H: Handler>(files: &[String], handler: &mut H) -> Result<Shard, Box<dyn Error>> {
    let mut shard = Shard::new(ShardConfig::default());
    let mut source = flowgauge_capture::open_all(files)?;
    while let Some(batch) = source.next_batch()? {
        shard.process(&batch, handler);
    }
    shard.finish(handler);
    Ok(shard)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, files): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("--"));
    let mut err = std::io::stderr();
    if options.iter().any(|option| option == "--list") {
        let mut list = List::default();
        run(&files, &mut list)?;
        std::io::stdout().write_all(&list.out)?;
    } else if options.iter().any(|option| option == "--flows") {
        let mut flows = Flows::default();
        run(&files, &mut flows)?;
        writeln!(err, "{} flows", flows.0)?;
    } else {
        let mut count = Count::default();
        let shard = run(&files, &mut count)?;
        writeln!(
            err,
            "{} streams, {} bytes (sum {:016x}), {} missing in {} gaps",
            count.streams, count.bytes, count.sum, count.missing, count.gaps
        )?;
        writeln!(err, "{:#?}\n{:?}", shard.statistics(), shard.ledger())?;
    }
    Ok(())
}
