//! What packet delivery costs the application that the Scap paper measures it with (section 6.5.3), a search for patterns:
//! `packet_search chunks|both|packets FILE PATTERNS`.
//!
//! With `chunks` chunks are searched; with `both` each of their packets is looked at, too; with `packets` each packet's
//! payload is searched instead of the chunks, as part of its stream. A JSON object: CPU seconds (reading the file
//! included, compiling the patterns not), packets, bytes searched, matches.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;

use flowgauge_capture::PacketSource;
use flowgauge_matcher::{Engine as Search, Matcher, PatternSet, StreamState, read_patterns};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, StreamRef,
};

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
    let set = Arc::new(PatternSet::compile(patterns, Search::Automatic)?);
    let before = cpu_seconds();
    let mut source = flowgauge_capture::open(&capture)?;
    let mut engine = Engine::new(EngineConfig {
        need_packets: way != Way::Chunks,
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig::default());
    let mut search = Searching {
        way,
        matcher: Matcher::new(&set)?,
        states: Vec::new(),
        packets: 0,
        wire_bytes: 0,
        bytes: 0,
        matches: 0,
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
        search.matches
    );
    Ok(())
}

struct Searching {
    way: Way,
    matcher: Matcher,
    /// By the number in the stream's user state, plus one.
    states: Vec<StreamState>,
    packets: u64,
    wire_bytes: u64,
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
        let matches = &mut self.matches;
        for packet in chunk.packets() {
            self.packets += 1;
            self.wire_bytes += u64::from(packet.wire_len);
            if self.way == Way::Packets && !packet.payload.is_empty() {
                self.bytes += packet.payload.len() as u64;
                let offset = packet.offset.map_or(0, |offset| offset.max(0) as u64);
                self.matcher
                    .scan(state, packet.payload, offset, |_| *matches += 1);
            }
        }
        if self.way != Way::Packets {
            let bytes = chunk.new_bytes();
            self.bytes += bytes.len() as u64;
            self.matcher
                .scan(state, bytes, chunk.offset(), |_| *matches += 1);
        }
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
