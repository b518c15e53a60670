//! What packet delivery costs the application that the Scap paper measures it with (section 6.5.3), a search for patterns:
//! `packet_search chunks|both|packets FILE PATTERNS`.
//!
//! With `chunks` chunks are searched; with `both` each of their packets is looked at, too; with `packets` each packet's
//! payload is searched instead of the chunks, as part of its stream. A JSON object: CPU seconds (reading the file
//! included, compiling the patterns not), packets, bytes searched, matches.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod support;

use std::sync::Arc;

use flowgauge_capture::PacketSource;
use flowgauge_matcher::{Engine as Choice, Matcher, PatternSet, read_patterns};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use support::{Search, cpu_seconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Chunks,
    Both,
    Packets,
}

const USAGE: &str = "usage: packet_search chunks|both|packets FILE PATTERNS";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(way), Some(capture), Some(patterns)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(USAGE.into());
    };
    let way = match way.as_str() {
        "chunks" => Way::Chunks,
        "both" => Way::Both,
        "packets" => Way::Packets,
        _ => return Err(USAGE.into()),
    };
    let patterns = read_patterns(&std::fs::read(patterns)?)?;
    let set = Arc::new(PatternSet::compile(patterns, Choice::Automatic)?);
    let before = cpu_seconds();
    let mut source = flowgauge_capture::open(&capture)?;
    let mut engine = Engine::new(EngineConfig {
        need_packets: way != Way::Chunks,
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig::default());
    let mut search = Searching {
        way,
        search: Search::new(Matcher::new(&set)?),
        packets: 0,
        wire_bytes: 0,
        bytes: 0,
    };
    while let Some(batch) = source.next_batch()? {
        engine.process(&batch, &mut search);
    }
    engine.finish(&mut search);
    println!(
        "{{\"cpu_seconds\":{:.3},\"packets\":{},\"wire_bytes\":{},\"bytes\":{},\"matches\":{}}}",
        cpu_seconds() - before,
        search.packets,
        search.wire_bytes,
        search.bytes,
        search.search.matches
    );
    Ok(())
}

struct Searching {
    way: Way,
    search: Search,
    packets: u64,
    wire_bytes: u64,
    bytes: u64,
}

impl Events for Searching {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        for packet in chunk.packets() {
            self.packets += 1;
            self.wire_bytes += u64::from(packet.wire_len);
            if self.way == Way::Packets && !packet.payload.is_empty() {
                self.bytes += packet.payload.len() as u64;
                let offset = packet.offset.map_or(0, |offset| offset.max(0) as u64);
                self.search.scan(stream, packet.payload, offset);
            }
        }
        if self.way != Way::Packets {
            let bytes = chunk.new_bytes();
            self.bytes += bytes.len() as u64;
            self.search.scan(stream, bytes, chunk.offset());
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.search.end(stream);
    }
}
