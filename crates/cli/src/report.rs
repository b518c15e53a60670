//! `flowgauge report`

use std::io::{self, IsTerminal};

use crate::failure::Failure;
use crate::options::{Offload, ReportOptions};
use crate::preset::Preset;
use crate::say::say;
use crate::sinks;

const STACK: &str = include_str!("../../../stacks/report.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &ReportOptions) -> Result<(), Failure> {
    let is_asked = matches!(options.input.offload, Offload::Socket | Offload::Xdp);
    if is_asked && !options.common.quiet {
        say!("note: report needs all packets: no in-kernel offload (--offload)");
    }
    let mut preset = Preset::new("flowgauge report", STACK)?;
    preset.track("report", &options.engine);
    preset.pass("report", &options.records);
    preset.pass("report", &options.page);
    if options.headers_only {
        preset.set("report", "payload", "no");
    }
    let is_json = sinks::page_is_json(options.write.as_deref(), options.json)?;
    if is_json {
        preset.set("report", "format", "json");
    }
    preset.set_file("report", options.write.as_deref())?;
    // On a terminal the page shows the ledger.
    if options.write.is_none() && !is_json && io::stdout().is_terminal() {
        preset.ledger_is_shown();
    }
    preset.run(options.preset.show_stack, &options.input, &options.common)
}
