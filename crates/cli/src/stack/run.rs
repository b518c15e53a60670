//! `flowgauge stack run`

use std::path::Path;

use flowgauge_record::RecordWriter;
use flowgauge_record::results::{RESULT_SCHEMA, ResultRow};
use flowgauge_stack::{OptionKind, OptionValue, Program, Stack};

use super::execute::{Origin, Running};
use super::read;
use super::watch::{WatchOptions, WatchStyle};
use crate::confinement;
use crate::failure::{self, Failure};
use crate::input;
use crate::options::{InputOptions, RecordFormat, RunOptions};
use crate::say::say;
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &RunOptions) -> Result<(), Failure> {
    let program = read::program(read::given(&options.stack)?)?;
    let input = &options.input;
    let mut early = None;
    if options.folder.is_some() {
        confinement::of_connections(&program)?;
        early = give_up_early(input, &program)?;
    }
    let input = early.as_ref().unwrap_or(input);
    let common = &options.output.common;
    refuse_overwriting(input, &program.stacks)?;
    // Files are opened before privileges are given up.
    let format = sinks::format(&options.output);
    let is_taken = options.output.write.is_none() && writes(&program.stacks, "-");
    let output = (!is_taken).then(|| sinks::open(&options.output, RESULT_SCHEMA));
    let output = output.transpose()?;
    let watch = options.watch.every().map(|every| {
        let watch = WatchOptions {
            every,
            style: match options.output.format() {
                Some(RecordFormat::Json) => WatchStyle::Json,
                _ => WatchStyle::Lines,
            },
        };
        watch.watch()
    });
    let file = options.stack.file.as_deref();
    let origin = match file.filter(|file| file.as_os_str() != "-" && options.folder.is_none()) {
        Some(file) => Origin::File(file.to_owned(), Box::new(input.clone())),
        None => Origin::Stack,
    };
    let mut running = Running::begin(program, input, common, watch, origin)?;
    let mut writer = output.map(|output| RecordWriter::new(output, format, RESULT_SCHEMA));
    let mut give = |row: &ResultRow<'_>| match &mut writer {
        Some(writer) => writer.write(row),
        // Standard output has what a component writes.
        None if common.quiet => {}
        None => say!("{row}"),
    };
    running.run(&mut give);
    running.results(&mut give);
    let written = writer.as_mut().map_or(Ok(()), failure::of_writer);
    running.conclude(common).and(written)
}

/// Becomes the user that the options name before any file is opened, where nothing is captured and so nothing needs
/// root. Returns what is left to be done.
fn give_up_early(input: &InputOptions, program: &Program) -> Result<Option<InputOptions>, Failure> {
    if program.stacks.iter().any(Stack::captures) || !input.interface.is_empty() {
        return Ok(None);
    }
    input::give_up_privileges(input, false)?;
    Ok(Some(InputOptions {
        user: None,
        ..input.clone()
    }))
}

/// A stack may not write over what it reads.
pub(crate) fn refuse_overwriting(input: &InputOptions, stacks: &[Stack]) -> Result<(), Failure> {
    files(stacks).try_for_each(|file| {
        let refused = input::refuse_overwriting(input, Path::new(file));
        refused.map_err(|failure| match failure {
            Failure::Usage { what, .. } => {
                Failure::usage(what, "rename the file in the component's option file")
            }
            other => other,
        })
    })
}

/// Whether a component writes to a file.
pub(super) fn writes(stacks: &[Stack], name: &str) -> bool {
    files(stacks).any(|file| file == name)
}

/// The files that components write.
fn files(stacks: &[Stack]) -> impl Iterator<Item = &str> {
    let nodes = stacks.iter().flat_map(|stack| stack.nodes.iter());
    // An output to another machine writes none.
    let nodes = nodes.filter(|node| {
        let mut elsewhere = ["to", "kafka"].into_iter();
        elsewhere.all(|option| node.settings.text(option).is_none())
    });
    let settings = nodes.flat_map(|node| node.settings.iter());
    settings.filter_map(|setting| match &setting.value {
        OptionValue::Text(file) if setting.option.kind == OptionKind::OutputFile => {
            Some(file.as_str())
        }
        _ => None,
    })
}
