//! `flowgauge streams`

use crate::failure::Failure;
use crate::options::StreamsOptions;
use crate::preset::Preset;
use crate::sinks;

const STACK: &str = include_str!("../../../stacks/streams.stack");
const FOLLOW: &str = include_str!("../../../stacks/follow.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StreamsOptions) -> Result<(), Failure> {
    let preset = match options.follow.text("connection") {
        Some(_) => follow(options)?,
        None => streams(options)?,
    };
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}

/// All streams.
fn streams(options: &StreamsOptions) -> Result<Preset, Failure> {
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
    Ok(preset)
}

/// One connection: as text, or as records where something of these is asked for.
fn follow(options: &StreamsOptions) -> Result<Preset, Failure> {
    let mut preset = Preset::new("flowgauge streams", FOLLOW)?;
    preset.track("follow", &options.engine);
    preset.pass("follow", &options.follow);
    if !options.writes_text() {
        if options.transcript.flag("hex") {
            return Err(Failure::usage(
                "--hex is for text, and records have their bytes in hexadecimal anyway",
                "leave --hex out, or what asks for records (--json, --fields, --where, -w FILE.json)",
            ));
        }
        preset.remove("transcript");
        preset.insert("output", "turns");
        preset.select(&options.select);
        preset.pick(&options.select);
        preset.write(&options.output)?;
        return Ok(preset);
    }
    preset.pass("transcript", &options.transcript);
    if sinks::has_colors(&options.output) {
        preset.set("transcript", "color", "yes");
    }
    preset.set_file("output", options.output.write.as_deref())?;
    Ok(preset)
}
