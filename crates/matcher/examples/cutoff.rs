//! What a stream cutoff saves and what it costs (figure 8 of the Scap paper): `cutoff FILE PATTERNS`.
//!
//! The capture goes through the engine once for each cutoff, every delivered byte through the
//! matcher. A JSON object per cutoff: bytes handed to the application, bytes discarded before, CPU seconds
//! (reading the file included), matches.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod support;

use std::sync::Arc;

use flowgauge_capture::PacketSource;
use flowgauge_matcher::{Engine as Choice, Matcher, PatternSet, read_patterns};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, Cutoffs, DataChunk, Engine, EngineConfig, Events,
    StreamRef,
};
use support::{Search, cpu_seconds};

const CUTOFFS: [Option<u64>; 9] = [
    None,
    Some(100 << 20),
    Some(10 << 20),
    Some(1 << 20),
    Some(100 << 10),
    Some(10 << 10),
    Some(1 << 10),
    Some(100),
    Some(0),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(capture), Some(patterns)) = (arguments.next(), arguments.next()) else {
        return Err("usage: cutoff FILE PATTERNS".into());
    };
    let patterns = read_patterns(&std::fs::read(patterns)?)?;
    let set = Arc::new(PatternSet::compile(patterns, Choice::Automatic)?);
    for cutoff in CUTOFFS {
        let before = cpu_seconds();
        let mut source = flowgauge_capture::open(&capture)?;
        let mut engine = Engine::new(EngineConfig::default());
        engine.add(ApplicationConfig {
            cutoff: Cutoffs {
                default: cutoff.map_or(Cutoff::UNLIMITED, Cutoff),
                ..Cutoffs::default()
            },
            ..ApplicationConfig::default()
        });
        let mut search = Searching {
            search: Search::new(Matcher::new(&set)?),
            bytes: 0,
        };
        while let Some(batch) = source.next_batch()? {
            engine.process(&batch, &mut search);
        }
        engine.finish(&mut search);
        let statistics = engine.statistics();
        println!(
            "{{\"cutoff\":{},\"delivered_bytes\":{},\"discarded_bytes\":{},\"all_bytes\":{},\"cpu_seconds\":{:.3},\"matches\":{}}}",
            cutoff.map_or("null".to_owned(), |cutoff| cutoff.to_string()),
            search.bytes,
            statistics.discarded.bytes,
            statistics.all.bytes,
            cpu_seconds() - before,
            search.search.matches
        );
    }
    Ok(())
}

struct Searching {
    search: Search,
    bytes: u64,
}

impl Events for Searching {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let bytes = chunk.new_bytes();
        self.bytes += bytes.len() as u64;
        self.search.scan(stream, bytes, chunk.offset());
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.search.end(stream);
    }
}
