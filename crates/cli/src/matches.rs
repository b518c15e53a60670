//! `flowgauge match`

use std::ffi::OsStr;
use std::path::Path;

use flowgauge_matcher::{ReadOptions, read_patterns_with};
use flowgauge_record::Format;

use crate::failure::Failure;
use crate::options::{MatchOptions, PatternOptions};
use crate::preset::Preset;
use crate::sinks;

const STACK: &str = include_str!("../../../stacks/match.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &MatchOptions) -> Result<(), Failure> {
    let mut preset = Preset::new("flowgauge match", STACK)?;
    preset.track("match", &options.engine);
    if standard_inputs(options) > 1 {
        return Err(Failure::usage(
            "standard input was given twice, for the capture and patterns or for patterns twice",
            "use a file for one of them",
        ));
    }
    find(&mut preset, &options.patterns)?;
    preset.pass("match", &options.patterns.how);
    preset.pass("match", &options.found);
    // In a table for people what was found would be lost among thousands of zeros.
    if options.found.flag("count") && sinks::format(&options.output) == Format::Table {
        preset.set("match", "zeros", "no");
    }
    preset.pass("match", &options.order);
    preset.pass("match", &options.cutoffs.settings()?);
    preset.select(&options.select);
    preset.pick(&options.select);
    preset.write(&options.output)?;
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}

/// How many files are standard input.
fn standard_inputs(options: &MatchOptions) -> usize {
    let captures = options.input.read.iter().map(AsRef::<OsStr>::as_ref);
    let patterns = options.patterns.files.iter().map(AsRef::as_ref);
    captures.chain(patterns).filter(|&name| name == "-").count()
}

/// Sets what is searched for.
fn find(preset: &mut Preset, options: &PatternOptions) -> Result<(), Failure> {
    preset.unset("match", "pattern");
    let mut lines = Vec::new();
    for given in &options.given {
        lines.push(pattern(given, options)?);
    }
    if !lines.is_empty() {
        preset.set("match", "pattern", lines.join("\n"));
    }
    let mut files = Vec::new();
    for path in &options.files {
        files.push(file(path)?);
    }
    if !files.is_empty() {
        preset.set("match", "file", files.join("\n"));
    }
    Ok(())
}

/// A pattern of the command line. What is wrong with it is said in the words of the command line.
fn pattern<'a>(given: &'a OsStr, options: &PatternOptions) -> Result<&'a str, Failure> {
    let shown = given.to_string_lossy();
    let Some(text) = given.to_str() else {
        return Err(Failure::usage(
            format!("-e {shown}: is not UTF-8 text"),
            "in quotation marks bytes are written in hexadecimal: -e '\"text |ff 00|\"'; a file of \
             patterns (-f) may have any bytes",
        ));
    };
    let read = ReadOptions {
        fixed: options.how.flag("fixed"),
        ignore_case: options.how.flag("ignore_case"),
        first_id: 1,
    };
    let patterns = read_patterns_with(text.as_bytes(), read).map_err(|error| {
        Failure::usage(format!("-e {shown}: {}", error.message()), error.hint())
    })?;
    if patterns.is_empty() {
        return Err(Failure::usage(
            format!("-e \"{shown}\" is not a pattern: empty lines and lines with # do not count"),
            "in quotation marks it is a text: -e '\"# text\"'",
        ));
    }
    Ok(text)
}

/// The name of a file of patterns: several stand in lines.
fn file(path: &Path) -> Result<&str, Failure> {
    let text = path.to_str().filter(|name| !name.contains('\n'));
    text.ok_or_else(|| {
        Failure::usage(
            format!("{}: is not a line of text in UTF-8", path.display()),
            "rename the file",
        )
    })
}
