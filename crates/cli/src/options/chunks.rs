//! Options of streams as applications see them: in chunks, cut off, with priorities, in one memory
//! budget. `match` and `capture` have some of them, too.

use clap::Args;
use flowgauge_kit::chunks::{CUTOFF_CLIENT, CUTOFF_SERVER};
use flowgauge_stack::{OptionInfo, OptionValue, Setting, Settings};

use super::passed::{lines, passed, rare, setting};
use super::values::read_option;
use crate::failure::Failure;

/// How much of which stream, in what order, in which memory.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Chunks (any of these delivers all streams in chunks)")]
pub(crate) struct ChunkOptions {
    #[command(flatten)]
    pub(crate) order: OrderOptions,
    #[command(flatten)]
    pub(crate) cutoffs: CutoffOptions,
    #[command(flatten)]
    pub(crate) delivery: DeliveryOptions,
}

passed! {
    /// How chunks are made and what is lost first.
    DeliveryOptions of "streams" {
        priority: |arg| rare(lines(arg)),
        chunk: rare,
        overlap: rare,
        flush_timeout: rare,
        base_threshold: rare,
        overload_cutoff: rare,
        counters: |arg| arg.conflicts_with_all(["count", "gaps"]),
    }
}

passed! {
    /// How bytes are put in order.
    OrderOptions of "streams" {
        mode: rare,
        host_policy: |arg| rare(arg.conflicts_with("overlap_policy")),
    }
}

passed! {
    /// How much of streams.
    StreamCutoffs of "streams" { cutoff, cutoff_class: |arg| rare(lines(arg)) }
}

/// How much of which stream.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CutoffOptions {
    #[command(flatten)]
    streams: StreamCutoffs,
    /// Cutoff of one direction, before --cutoff: client:10K (what the initiator sends) or server:1M;
    /// may be repeated
    #[arg(long, value_name = "SIDE:SIZE", value_parser = parse_direction, hide_short_help = true)]
    cutoff_direction: Vec<Setting>,
}

impl CutoffOptions {
    /// All that were given, as a component has them.
    ///
    /// # Errors
    /// Two cutoffs for the same side.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let sides = &self.cutoff_direction;
        let is_first = |(at, one): (usize, &Setting)| {
            !sides[..at].iter().any(|before| before.option == one.option)
        };
        if !sides.iter().enumerate().all(is_first) {
            return Err(Failure::usage(
                "--cutoff-direction is given twice for the same side",
                "use one for client and one for server",
            ));
        }
        Ok(self.streams.iter().chain(sides).cloned().collect())
    }
}

fn parse_direction(text: &str) -> Result<Setting, String> {
    static SIDES: [(&str, OptionInfo); 2] = [("client", CUTOFF_CLIENT), ("server", CUTOFF_SERVER)];
    let (side, bytes) = text
        .split_once(':')
        .ok_or("write client:SIZE or server:SIZE")?;
    let (_, option) = SIDES
        .iter()
        .find(|(name, _)| *name == side)
        .ok_or_else(|| format!("\"{side}\" is neither client nor server"))?;
    let value: OptionValue = read_option(option.kind, bytes)?;
    Ok(setting(option, value))
}
