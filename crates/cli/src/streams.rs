//! `flowgauge streams`

use crate::failure::Failure;
use crate::options::StreamsOptions;
use crate::preset::Preset;

const STACK: &str = include_str!("../../../stacks/streams.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StreamsOptions) -> Result<(), Failure> {
    let mut preset = Preset::new("flowgauge streams", STACK)?;
    preset.pass("streams", &options.written);
    if options.written.flag("gaps") && !options.list && !options.written.flag("hash") {
        preset.set("streams", "list", "no");
    }
    preset.track("streams", &options.engine);
    preset.pass("streams", &options.chunks.order);
    preset.pass("streams", &options.chunks.cutoffs.settings()?);
    preset.pass("streams", &options.chunks.delivery);
    if options.files_are_all() {
        preset.set("streams", "list", "no");
        preset.remove("output");
    } else {
        preset.select(&options.select);
        preset.pick(&options.select);
        preset.write(&options.output)?;
    }
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}
