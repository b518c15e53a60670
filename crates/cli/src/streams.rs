//! `flowgauge streams`

use flowgauge_stack::OptionValue;

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
    preset.track("streams", &options.engine, options.engine.bounds.memory);
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
    let size = |bytes: u32| OptionValue::Size(u64::from(bytes));
    preset.order("streams", &options.order)?;
    preset.cut_off("streams", &options.cutoffs)?;
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
