//! What is said on standard error at the end of a run.

use std::time::Duration;

pub(crate) use flowgauge_record::ledger::ledger_line;
use flowgauge_stream::engine::EngineStatistics;
use flowgauge_wire::Ledger;

use crate::failure::Failure;
use crate::options::CommonOptions;
use crate::say::{count, say};

/// How a run ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Where every packet went.
    pub(crate) ledger: Ledger,
    /// What was damaged or failed; the run went on with what was readable.
    pub(crate) errors: Vec<flowgauge_capture::Error>,
    /// Lines about what came of it.
    pub(crate) summary: Vec<String>,
    /// Lines about what a user should know, such as offloading hosts.
    pub(crate) notes: Vec<String>,
    /// Lines of engine statistics for `--stats`.
    pub(crate) statistics: Vec<String>,
    /// What became of streams in chunks.
    pub(crate) streams: Option<EngineStatistics>,
    /// Wall-clock time it took.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// Prints the ledger, notes and errors, and decides whether the run was a success.
    ///
    /// # Errors
    /// The failure that the exit code is to tell.
    pub(crate) fn conclude(self, options: &CommonOptions) -> Result<(), Failure> {
        if !options.quiet {
            for line in &self.summary {
                say!("{line}");
            }
            say!("{}", ledger_line(&self.ledger));
            if let Some(streams) = &self.streams {
                say!("{}", streams_line(streams));
            }
        }
        self.conclude_after_ledger(options)
    }

    /// The same where the ledger has been shown.
    ///
    /// # Errors
    /// The failure that the exit code is to tell.
    pub(crate) fn conclude_after_ledger(self, options: &CommonOptions) -> Result<(), Failure> {
        if !options.quiet {
            for note in &self.notes {
                say!("note: {note}");
            }
        }
        if options.stats {
            print_statistics(&self.ledger, &self.statistics, self.elapsed);
        }
        let mut errors = self.errors.iter();
        let first = errors.next();
        for error in errors {
            say!("flowgauge: error: {error}");
        }
        if let Some(error) = first {
            return Err(Failure::running(error));
        }
        let dropped = self.ledger.dropped();
        if options.fail_on_drop && dropped > 0 {
            return Err(Failure::Dropped { packets: dropped });
        }
        Ok(())
    }
}

/// What became of streams, in the words of Scap.
fn streams_line(streams: &EngineStatistics) -> String {
    let captured = streams.captured();
    let (all, dropped, discarded) = (streams.all, streams.dropped, streams.discarded);
    format!(
        "{}: {} ({}) in all, {} ({}) dropped, {} ({}) discarded, {} ({}) captured; {}",
        count(streams.created, "stream"),
        count(all.packets, "packet"),
        count(all.bytes, "byte"),
        dropped.packets,
        dropped.bytes,
        discarded.packets,
        discarded.bytes,
        captured.packets,
        captured.bytes,
        count(streams.chunks, "chunk")
    )
}

/// Prints engine statistics, for `--stats` and SIGUSR1.
pub(crate) fn print_statistics(ledger: &Ledger, statistics: &[String], elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    let rate = |amount: u64| {
        if seconds > 0.0 {
            amount as f64 / seconds
        } else {
            0.0
        }
    };
    say!(
        "{seconds:.3} s, {:.0} packets/s, {:.1} MB/s",
        rate(ledger.received()),
        rate(ledger.delivered_bytes()) / 1e6
    );
    for line in statistics {
        say!("{line}");
    }
}
