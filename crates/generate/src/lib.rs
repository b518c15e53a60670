//! Synthetic traces whose content is known.
//!
//! [`generate`] writes a pcap (or pcapng) file of a [`Preset`], changed at will in its [`Config`], and returns
//! its [`Truth`]: totals, and for every stream its bytes, their SHA-256 and the holes.
//!
//! ```
//! use flowgauge_generate::{Config, Preset, generate};
//!
//! let mut capture = Vec::new();
//! let truth = generate(&Config::new(Preset::Mix).scaled(0.0001), &mut capture)?;
//! assert_eq!(truth.file_bytes, capture.len() as u64);
//! assert_eq!(truth.flows.tcp, 5);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Presets
//! Full size, seed 1. *Bytes* are frame bytes without the file's record headers.
//!
//! | Preset | TCP + UDP flows | Packets | Bytes | Time | What else |
//! |---|---|---|---|---|---|
//! | `mix` | 50k + 50k | 2.42 M | 1.75 GB | 60 s | 60 % HTTP (76k transactions), 30 % TLS, 10 % bulk; DNS, NTP, QUIC, RTP; 1 % of the data segments reordered, 0.5 % retransmitted, 0.1 % in other boundaries |
//! | `late` | 50k + 50k | 2.46 M | 1.76 GB | 60 s | as `mix`, and 0.3 % of the segments lost before the capture point, captured an RTT late while the receiver repeats its acknowledgement |
//! | `loss` | 50k + 50k | 2.40 M | 1.73 GB | 60 s | as `mix`, and 0.05 % of the frames (handshakes, acknowledgements and data alike) missing from the capture |
//! | `web` | 40k + 0 | 0.92 M | 446 MB | 60 s | 154k HTTP/1.1 transactions, 10 % of the bodies chunked |
//! | `small` | 400k + 100k | 5.07 M | 404 MB | 60 s | ten packets per flow, payloads of 4 to 60 bytes |
//! | `syn` | 2k + 0 | 1.07 M | 108 MB | 20 s | a million SYNs, each from another address; 2 % answered |
//! | `elephants` | 2.4k + 0 | 0.95 M | 960 MB | 60 s | 400 large flows; about 97.6 % of the bytes beyond the first 10 KB of their direction |
//! | `hostile` | 1k + 1k | 0.24 M | 64 MB | 20 s | eleven kinds of attack with as many frames each, clean flows between |
//! | `zoo` | 500 + 300 | 21 k | 15 MB | 20 s | every knob turned on: for tests |
//!
//! Response sizes follow a Pareto distribution of shape 8/7 up to 40 MB, round-trip times lie
//! between 2 and 100 ms, evenly over the octaves. Every flow has a five-tuple of its own.
//!
//! # Model
//! Each connection is simulated as one observer on its way sees it (handshake with options, slow
//! start, delayed and duplicate acknowledgements, SACK, FIN or RST). A data segment meets one of
//! several fates, which exclude each other: it passes, is overtaken, is lost before the observer,
//! is lost behind it, is sent again in other boundaries, or passes without being captured. So the
//! truth about holes is exact: a byte is missing only if no captured frame holds it.
//!
//! Frames of one flow that are fragmented lose at most one fragment; its whole datagram then counts
//! as missing. Duplicates are of TCP frames only, since nothing could tell a UDP datagram's from
//! the application's own repetition.
//!
//! # Cost
//! One core writes `mix` in about three seconds, six with all hashes. Memory holds the flows under way,
//! 16 bytes per flow to come, and with [`Detail::Full`] about 300 bytes per stream.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod application;
mod config;
mod frame;
mod hostile;
mod output;
mod payload;
mod plan;
mod random;
mod tcp;
mod truth;
mod udp;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use slab::Slab;

pub use config::{Config, Detail, Preset, Resolution};
pub use truth::{FlowCounts, Hole, HttpTotals, StreamTruth, Totals, Truth};

use hostile::Attacks;
use output::Output;
use payload::Library;
use plan::Flow;
use tcp::Context;

/// Writes the trace to `sink` (which need not be buffered) and returns what is in it.
///
/// # Errors
/// Those of the sink.
pub fn generate<W: Write>(config: &Config, sink: W) -> io::Result<Truth> {
    let library = Library::new();
    let mut output = Output::new(sink, config.resolution, config.pcapng);
    let mut truth = Truth {
        preset: config.preset.name().to_owned(),
        seed: config.seed,
        ..Truth::default()
    };
    let mut http = HttpTotals::default();
    let mut active = Active::default();
    let mut attacks = Attacks::new(config);
    let mut starts: Vec<(u64, u64)> = (0..config.tcp_flows + config.udp_flows)
        .map(|index| (plan::start(config, index), index))
        .collect();
    starts.sort_unstable();
    let mut starts = starts.into_iter().peekable();
    loop {
        let due = active.next_time();
        if let Some(&(start, index)) = starts.peek()
            && due.is_none_or(|due| start <= due)
        {
            starts.next();
            active.insert(plan::flow(config, index, start), start);
            continue;
        }
        if let Some(attack) = attacks.next_time()
            && due.is_none_or(|due| attack < due)
        {
            output.advance(attack)?;
            attacks.advance(&mut output)?;
            continue;
        }
        let Some(now) = due else { break };
        output.advance(now)?;
        let mut context = Context {
            config,
            library: &library,
            output: &mut output,
            http: &mut http,
        };
        if let Some(flow) = active.advance(now, &mut context)? {
            match flow {
                Flow::Tcp(flow) => flow.finish(&mut truth, config.detail),
                Flow::Udp(flow) => flow.finish(&mut truth, config.detail),
            }
        }
    }
    output.finish()?;
    attacks.finish(&mut truth);
    let flow_totals = truth.totals;
    truth.totals = output.totals;
    truth.totals.add_flows(&flow_totals);
    truth.http = http;
    truth.packets = output.packets;
    truth.wire_bytes = output.wire_bytes;
    truth.file_bytes = output.file_bytes;
    truth.first_ns = output.first_ns;
    truth.last_ns = output.last_ns;
    Ok(truth)
}

/// The flows under way, by the time of their next event.
#[derive(Default)]
struct Active {
    flows: Slab<Flow>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Active {
    fn next_time(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((time, _))| *time)
    }

    fn insert(&mut self, flow: Flow, start: u64) {
        let slot = self.flows.insert(flow);
        self.queue.push(Reverse((start, slot)));
    }

    /// Lets the first flow in the queue do what is due; returns it if that was its last event.
    fn advance<W: Write>(
        &mut self,
        now: u64,
        context: &mut Context<'_, W>,
    ) -> io::Result<Option<Flow>> {
        let Some(mut first) = self.queue.peek_mut() else {
            return Ok(None);
        };
        let slot = first.0.1;
        let next = match &mut self.flows[slot] {
            Flow::Tcp(flow) => {
                flow.advance(now, context)?;
                flow.next_time()
            }
            Flow::Udp(flow) => {
                flow.advance(now, context)?;
                flow.next_time()
            }
        };
        if let Some(next) = next {
            // Changing the entry in place sifts once instead of twice.
            first.0.0 = next;
            return Ok(None);
        }
        std::collections::binary_heap::PeekMut::pop(first);
        Ok(self.flows.try_remove(slot))
    }
}
