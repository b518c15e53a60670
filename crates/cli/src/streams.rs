//! `flowgauge streams`

use flowgauge_stack::OptionValue;
use flowgauge_stream::engine::Cutoff;

use crate::failure::Failure;
use crate::options::{ChunkOptions, StreamsOptions};
use crate::preset::{Preset, duration};

const STACK: &str = include_str!("../../../stacks/streams.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StreamsOptions) -> Result<(), Failure> {
    let mut preset = Preset::new("flowgauge streams", STACK)?;
    for (option, is_given) in [
        ("gaps", options.gaps),
        ("hash", options.hash),
        ("count", options.tally),
        ("fill_gaps", options.fill_gaps),
        ("counters", options.chunks.counters),
    ] {
        if is_given {
            preset.set("streams", option, "yes");
        }
    }
    if options.gaps && !options.list && !options.hash {
        preset.set("streams", "list", "no");
    }
    if let Some(folder) = &options.out {
        let Some(text) = folder.to_str() else {
            return Err(Failure::usage(
                format!("{}: is no text in UTF-8", folder.display()),
                "give the folder another name",
            ));
        };
        preset.set("streams", "out", text);
    }
    preset.track("streams", &options.engine, options.engine.memory);
    chunks(&mut preset, &options.chunks)?;
    if options.files_are_all() {
        preset.set("streams", "list", "no");
        preset.remove("output");
    } else {
        preset.write(&options.output)?;
    }
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}

fn chunks(preset: &mut Preset, options: &ChunkOptions) -> Result<(), Failure> {
    let bytes = |cutoff: &Cutoff| OptionValue::Size(cutoff.0);
    let size = |bytes: u32| OptionValue::Size(u64::from(bytes));
    preset.set_some("streams", "mode", options.mode.map(|mode| mode.name()));
    preset.set_some("streams", "policy", options.policy.as_ref());
    preset.set_some("streams", "cutoff", options.cutoff.as_ref().map(bytes));
    let mut sides = [false; 2];
    for direction in &options.cutoff_direction {
        let option = if direction.from_initiator {
            "cutoff_client"
        } else {
            "cutoff_server"
        };
        let side = &mut sides[usize::from(direction.from_initiator)];
        if core::mem::replace(side, true) {
            return Err(Failure::usage(
                "--cutoff-direction is given twice for the same side",
                "give one for client and one for server",
            ));
        }
        preset.set("streams", option, bytes(&direction.cutoff));
    }
    let cutoffs = options.cutoff_class.iter();
    let cutoffs = cutoffs.map(|class| format!("{}: {}", bytes(&class.value), class.filter));
    preset.set_lines("streams", "cutoff_class", cutoffs);
    let priorities = options.priority.iter();
    let priorities = priorities.map(|class| format!("{}: {}", class.value, class.filter));
    preset.set_lines("streams", "priority", priorities);
    preset.set_some("streams", "chunk", options.chunk.map(size));
    preset.set_some("streams", "overlap", options.overlap.map(size));
    preset.set_some(
        "streams",
        "flush_timeout",
        options.flush_timeout.map(duration),
    );
    preset.set_some("streams", "base_threshold", options.base_threshold);
    let overload = options.overload_cutoff.map(OptionValue::Size);
    preset.set_some("streams", "overload_cutoff", overload);
    Ok(())
}
