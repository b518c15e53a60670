//! `flowgauge report`: one page about a capture.

mod collect;
mod histogram;
mod json;
mod page;
mod talkers;
mod timeline;

use std::io::{IsTerminal, Write};

use crate::failure::{self, Failure};
use crate::memory::{self, Needs};
use crate::options::ReportOptions;
use crate::run::Run;
use crate::sinks;
use collect::Collector;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &ReportOptions) -> Result<(), Failure> {
    let needs = Needs {
        results: true,
        ..Needs::default()
    };
    let engine = options.engine.with_needs(needs);
    let workers = u64::from(options.input.workers.unwrap_or(1));
    let bytes = memory::of_results(options.engine.memory, needs).map(|bytes| bytes / workers);
    let run = Run::open(&options.input, &options.common, &engine)?;
    let (outcome, parts) = run.collect(|_worker| Collector::new(options.top, bytes))?;
    let mut parts = parts.into_iter();
    let first = parts.next();
    let mut total = first.unwrap_or_else(|| Collector::new(options.top, bytes));
    parts.for_each(|part| total.merge(part));
    let text = if options.json {
        format!("{}\n", json::report(&total, &outcome, options.top))
    } else {
        page::report(&total, &outcome, options.top)
    };
    let mut target = sinks::target(options.write.as_deref())?;
    let written = target.write_all(text.as_bytes());
    // On a terminal the page has just shown the ledger.
    let shown = options.write.is_none() && !options.json && std::io::stdout().is_terminal();
    if shown {
        outcome.conclude_after_ledger(&options.common)?;
    } else {
        outcome.conclude(&options.common)?;
    }
    match written {
        Ok(()) => Ok(()),
        Err(error) => failure::of_output(error.into()).map_or(Ok(()), Err),
    }
}
