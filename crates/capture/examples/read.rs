//! Reads captures to their end and prints what was in them; `-p` prints a line per packet.
#![allow(clippy::print_stdout)]

use std::io::Write;

use flowgauge_capture::{Error, PacketSource};

fn main() -> Result<(), Error> {
    let mut each = false;
    for path in std::env::args().skip(1) {
        if path == "-p" {
            each = true;
            continue;
        }
        let mut source = match flowgauge_capture::open(&path) {
            Ok(source) => source,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let result = read(&mut source, each);
        let ledger = source.ledger();
        let outcome = result.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        println!(
            "{path}: {} packets, {} bytes, {} interfaces: {outcome}",
            ledger.delivered(),
            ledger.delivered_bytes(),
            source.interfaces().len()
        );
    }
    Ok(())
}

fn read(source: &mut dyn PacketSource, each: bool) -> Result<(), Error> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    while let Some(batch) = source.next_batch()? {
        if !each {
            continue;
        }
        for packet in batch.packets {
            // A reader that went away is no trouble of ours.
            let _ = writeln!(
                out,
                "{}.{:09}\t{}\t{}\t{}",
                packet.time.0 / 1_000_000_000,
                packet.time.0 % 1_000_000_000,
                packet.wire_len,
                packet.captured_len,
                packet.link.0
            );
        }
    }
    Ok(())
}
