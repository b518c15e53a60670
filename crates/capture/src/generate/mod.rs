//! Synthetic traces whose content is known.
//!
//! [`generate`] writes a pcap file of a [`Preset`], changed at will in its [`Config`], and returns
//! its [`Truth`]: totals, and for every stream its bytes with their SHA-256.
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
    let mut output = Output::new(sink, config.resolution);
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
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Active {
    fn next_time(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((time, _))| *time)
    }

    fn insert(&mut self, flow: Flow, start: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            (self.flows.len() - 1) as u32
        });
        self.flows[slot as usize] = Some(flow);
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
        let next = match &mut self.flows[slot as usize] {
            Some(Flow::Tcp(flow)) => {
                flow.advance(now, context)?;
                flow.next_time()
            }
            Some(Flow::Udp(flow)) => {
                flow.advance(now, context)?;
                flow.next_time()
            }
            None => None,
        };
        if let Some(next) = next {
            // Changing the entry in place sifts once instead of twice.
            first.0.0 = next;
            return Ok(None);
        }
        std::collections::binary_heap::PeekMut::pop(first);
        self.free.push(slot);
        Ok(self.flows[slot as usize].take())
    }
}
