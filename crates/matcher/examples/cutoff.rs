//! What a stream cutoff saves and what it costs (figure 8 of the Scap paper): `cutoff FILE PATTERNS`.
//!
//! The capture goes through the engine once for each cutoff, every delivered byte through the
//! matcher. A JSON object per cutoff: bytes handed to the application, bytes discarded before, CPU seconds
//! (reading the file included), matches.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;

use flowgauge_capture::PacketSource;
use flowgauge_matcher::{Engine as Search, Matcher, PatternSet, StreamState, read_patterns};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, Cutoffs, DataChunk, Engine, EngineConfig, Events,
    StreamRef,
};

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
    let set = Arc::new(PatternSet::compile(patterns, Search::Automatic)?);
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
            matcher: Matcher::new(&set)?,
            states: Vec::new(),
            bytes: 0,
            matches: 0,
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
            search.matches
        );
    }
    Ok(())
}

struct Searching {
    matcher: Matcher,
    /// By the number in the stream's user state, plus one.
    states: Vec<StreamState>,
    bytes: u64,
    matches: u64,
}

impl Events for Searching {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        if stream.user_state() == 0 {
            self.states.push(StreamState::default());
            stream.set_user_state(self.states.len() as u64);
        }
        let Some(state) = self.states.get_mut(stream.user_state() as usize - 1) else {
            return;
        };
        self.bytes += chunk.new_bytes().len() as u64;
        let matches = &mut self.matches;
        let (bytes, offset) = (chunk.new_bytes(), chunk.offset());
        self.matcher.scan(state, bytes, offset, |_| *matches += 1);
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let state = (stream.user_state() as usize).checked_sub(1);
        if let Some(state) = state.and_then(|at| self.states.get_mut(at)) {
            let matches = &mut self.matches;
            self.matcher.end(state, true, |_| *matches += 1);
        }
    }
}

/// Seconds this thread was on a CPU.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text
        .split(' ')
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}
