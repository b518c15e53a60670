//! What a packet costs: `packets FILE [POLICY [OUT]]`. Without a policy the packets are read only; with one they are
//! anonymized, and written to OUT if that is given.

#![allow(clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Instant;

use flowgauge_anonymize::{Anonymized, Anonymizer, Policy};
use flowgauge_capture::{FileSink, PacketSink, PacketSource, SinkOptions};
use flowgauge_sys::files::Folder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: packets FILE [POLICY [OUT]]")?;
    let (policy, out) = (arguments.next(), arguments.next());
    let mut source = flowgauge_capture::open(&path)?;
    if let Some(policy) = &policy {
        let anonymizer = Anonymizer::new(&Policy::read(&Folder::anywhere(), Path::new(policy))?)?;
        source = Box::new(Anonymized::new(source, anonymizer));
    }
    let mut sink = out
        .map(|out| FileSink::create(&out, SinkOptions::default()))
        .transpose()?;
    if let Some(sink) = &mut sink {
        sink.set_interfaces(source.interfaces())?;
    }
    let begin = Instant::now();
    let (mut packets, mut bytes) = (0_u64, 0_u64);
    while let Some(batch) = source.next_batch()? {
        packets += batch.len() as u64;
        bytes += batch
            .packets
            .iter()
            .map(|it| u64::from(it.captured_len))
            .sum::<u64>();
        if let Some(sink) = &mut sink {
            sink.write(&batch)?;
        }
    }
    if let Some(sink) = &mut sink {
        sink.close()?;
    }
    let elapsed = begin.elapsed();
    let each = elapsed.as_nanos() as f64 / packets.max(1) as f64;
    println!("{packets} packets, {bytes} bytes: {elapsed:.3?}, {each:.1} ns each");
    Ok(())
}
