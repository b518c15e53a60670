//! What is said of components while they run.

use core::time::Duration;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use flowgauge_record::text::{harmless_json, harmless_lines};
use flowgauge_runtime::stacks::{ComponentState, Snapshot};
use flowgauge_stack::{Node, NodeId, Stack};
use flowgauge_wire::Ledger;

use super::show;
use crate::failure::Failure;
use crate::say::say;

/// Who says how stacks go while they run.
pub(crate) trait Watched {
    /// They begin.
    fn begin(&mut self, started: Instant);

    /// Whether it is time.
    fn is_due(&mut self) -> bool;

    /// Says how it goes; `source` tells of the input so far. Whether somebody may still be reading it.
    fn say(&mut self, stacks: &[Stack], snapshot: &Snapshot, source: &Ledger) -> bool;

    /// Says how it went.
    fn end(&mut self, _stacks: &[Stack], _snapshot: &Snapshot, _ledger: &Ledger) {}
}

/// What is to be said while stacks run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchOptions {
    pub(crate) every: Duration,
    pub(crate) style: WatchStyle,
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStyle {
    /// A line for each component, on standard error.
    Lines,
    /// The same as JSON.
    Json,
    /// The graph of each stack, on standard output; on standard error if a component writes there.
    Graph { on_error: bool },
}

/// When it is said, and what was said before.
struct Watch {
    options: WatchOptions,
    started: Instant,
    next: Instant,
    /// Items of each component when it was said before.
    before: Vec<u64>,
}

impl WatchOptions {
    /// Who says it.
    pub(super) fn watch(self) -> Box<dyn Watched> {
        let started = Instant::now();
        Box::new(Watch {
            options: self,
            started,
            next: started + self.every,
            before: Vec::new(),
        })
    }
}

impl Watched for Watch {
    fn begin(&mut self, started: Instant) {
        (self.started, self.next) = (started, started + self.options.every);
    }

    fn is_due(&mut self) -> bool {
        Instant::now() >= self.next
    }

    fn say(&mut self, stacks: &[Stack], snapshot: &Snapshot, _source: &Ledger) -> bool {
        let now = Instant::now();
        let seconds = (now + self.options.every - self.next).as_secs_f64();
        self.next = now + self.options.every;
        let elapsed = (now - self.started).as_secs_f64();
        let mut before = core::mem::take(&mut self.before).into_iter();
        let mut rates = Vec::new();
        for state in components(snapshot) {
            let items = state.passed.items;
            self.before.push(items);
            let gained = items.saturating_sub(before.next().unwrap_or(0));
            rates.push(gained as f64 / seconds);
        }
        match self.options.style {
            WatchStyle::Graph { on_error } => graph(stacks, snapshot, &rates, on_error),
            style => {
                let mut rates = rates.into_iter();
                for (stack, state) in stacks.iter().zip(&snapshot.stacks) {
                    for ((_, node), state) in stack.iter().zip(&state.components) {
                        let rate = rates.next().unwrap_or(0.0);
                        if style == WatchStyle::Json {
                            json(elapsed, stack, node, state, rate);
                        } else {
                            let name = stack.name.as_ref();
                            let name = name.map_or(String::new(), |name| format!("{name}."));
                            let (label, counts) = (&node.label, counts(node, state, Some(rate)));
                            say!("{elapsed:.1} s: {name}{label}: {counts}");
                        }
                    }
                }
                true
            }
        }
    }
}

fn components(snapshot: &Snapshot) -> impl Iterator<Item = &ComponentState> {
    snapshot.stacks.iter().flat_map(|state| &state.components)
}

fn json(elapsed: f64, stack: &Stack, node: &Node, state: &ComponentState, rate: f64) {
    let result = state.result.as_ref().zip(node.info.result);
    let line = serde_json::json!({
        "elapsed": elapsed,
        "stack": stack.name,
        "component": node.label,
        "items": state.passed.items,
        "items_per_second": rate,
        "result": result.and_then(|(result, _)| {
            result.number().and_then(|number| i64::try_from(number).ok())
        }),
        "unit": result.map(|(_, info)| info.unit),
    });
    say!("{}", harmless_json(&line.to_string()));
}

/// What went through a component, in words.
fn counts(node: &Node, state: &ComponentState, rate: Option<f64>) -> String {
    let rate = rate.map_or(String::new(), |rate| format!(" ({rate:.0}/s)"));
    let result = state.result.as_ref().zip(node.info.result);
    let result = result.map_or(String::new(), |(result, info)| {
        format!("; {result} {}", info.unit).trim_end().to_owned()
    });
    format!("{} items{rate}{result}", state.passed.items)
}

/// The graph of each stack with what went through its components. Whether somebody may still be reading it.
fn graph(stacks: &[Stack], snapshot: &Snapshot, rates: &[f64], on_error: bool) -> bool {
    let text = text(stacks, snapshot, rates, on_error);
    if on_error {
        crate::say::part(format_args!("{text}"));
        return true;
    }
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    written.and_then(|()| output.flush()).is_ok()
}

fn text(stacks: &[Stack], snapshot: &Snapshot, rates: &[f64], on_error: bool) -> String {
    let is_screen = !on_error && io::stdout().is_terminal();
    // On a terminal each takes the place of the one before.
    let mut text = if is_screen { "\x1b[H\x1b[J" } else { "" }.to_owned();
    let mut rates = rates;
    for (stack, state) in stacks.iter().zip(&snapshot.stacks) {
        let (mine, others) = rates
            .split_at_checked(stack.nodes.len())
            .unwrap_or((&[], &[]));
        rates = others;
        show::tree(&mut text, stack, &|id: NodeId| {
            let state = state.component(id)?;
            let rate = mine.get(id.index()).copied();
            Some(counts(stack.node(id), state, rate))
        });
    }
    text
}

/// The graph of each stack with what went through its components in the whole run.
///
/// # Errors
/// When it cannot be written.
pub(super) fn total(stacks: &[Stack], snapshot: &Snapshot, on_error: bool) -> Result<(), Failure> {
    let text = text(stacks, snapshot, &[], on_error);
    if on_error {
        crate::say::part(format_args!("{text}"));
        return Ok(());
    }
    super::print(harmless_lines(&text).as_bytes())
}
