//! Where results go: standard output or a file, as table, JSON lines or CSV.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use flowgauge_kit::terminal;
use flowgauge_record::{Format, Output, Schema, Screen, WholeWrites};
use flowgauge_sys::files::{self, How};
use flowgauge_sys::process;

use crate::failure::Failure;
use crate::options::{DestinationOptions, RecordFormat};

/// The format asked for, by option or by the ending of the file's name; otherwise a table on a
/// terminal, JSON lines elsewhere.
pub(crate) fn format(options: &DestinationOptions) -> Format {
    match given_format(options) {
        Some(RecordFormat::Table) => Format::Table,
        Some(RecordFormat::Csv) => Format::Csv,
        Some(RecordFormat::CsvSafe) => Format::SafeCsv,
        None if options.write.is_none() && io::stdout().is_terminal() => Format::Table,
        _ => Format::Json,
    }
}

/// The format asked for, by option or by the ending of the file's name.
pub(crate) fn given_format(options: &DestinationOptions) -> Option<RecordFormat> {
    let by_name = || by_name(ending(options.write.as_deref())?);
    options.format().or_else(by_name)
}

/// Refuses a file whose name says another format than the options, or one that is not written.
///
/// # Errors
/// For `--json -w x.csv`, `-w x.parquet` and the like.
pub(crate) fn check_name(options: &DestinationOptions) -> Result<(), Failure> {
    let Some(ending) = ending(options.write.as_deref()) else {
        return Ok(());
    };
    let name = options.write.as_deref().unwrap_or(Path::new("")).display();
    match (options.format(), by_name(ending)) {
        (None, None) => Err(Failure::usage(
            format!("{name}: unknown format .{ending}"),
            match ending {
                "pcap" | "pcapng" => {
                    "\"flowgauge capture -r IN -w OUT\" writes packets; records are .json or .csv"
                }
                _ => "use a name ending in .json or .csv, or choose a format: --format table",
            },
        )),
        // Logs of other tools in JSON lines may have such a name as well.
        (Some(RecordFormat::Csv | RecordFormat::CsvSafe), Some(RecordFormat::Csv))
        | (Some(RecordFormat::Json | RecordFormat::Eve), Some(RecordFormat::Json))
        | (Some(RecordFormat::Zeek | RecordFormat::ZeekJson), Some(RecordFormat::Json))
        | (_, None)
        | (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(Failure::usage(
            format!("the name {name} contradicts the requested format"),
            "a name ending in .csv or .json selects that format by itself",
        )),
    }
}

/// Whether a page is written as a JSON object, by option or by the ending of the file's name.
///
/// # Errors
/// For `-w x.csv`, `-w x.parquet` and the like.
pub(crate) fn page_is_json(write: Option<&Path>, is_asked: bool) -> Result<bool, Failure> {
    let Some(ending) = ending(write).filter(|ending| !ending.eq_ignore_ascii_case("txt")) else {
        return Ok(is_asked);
    };
    match by_name(ending) {
        Some(RecordFormat::Json) => Ok(true),
        None if is_asked => Ok(true),
        _ => Err(Failure::usage(
            format!(
                "{}: a page cannot be written as .{ending}",
                write.unwrap_or(Path::new("")).display()
            ),
            "use a name ending in .txt or .json, or --json",
        )),
    }
}

/// The ending of a file's name.
fn ending(path: Option<&Path>) -> Option<&str> {
    path?.extension()?.to_str()
}

/// The format that the ending of a file's name stands for.
fn by_name(ending: &str) -> Option<RecordFormat> {
    match ending.to_ascii_lowercase().as_str() {
        "csv" => Some(RecordFormat::Csv),
        "json" | "jsonl" | "ndjson" => Some(RecordFormat::Json),
        _ => None,
    }
}

/// Whether what is written has colours: never in files.
pub(crate) fn has_colors(options: &DestinationOptions) -> bool {
    let is_file = options.write.as_deref().is_some_and(|path| path != "-");
    !is_file && terminal::has_colors(&options.color)
}

/// Opens what `options` ask for.
///
/// # Errors
/// When the file cannot be created.
pub(crate) fn open(options: &DestinationOptions, schema: Schema) -> Result<Output, Failure> {
    open_as(options, format(options), schema)
}

/// The same in this format.
///
/// # Errors
/// When the file cannot be created.
pub(crate) fn open_as(
    options: &DestinationOptions,
    format: Format,
    schema: Schema,
) -> Result<Output, Failure> {
    let target = target(options.write.as_deref())?;
    let screen = Screen {
        width: options.write.is_none().then(terminal::width).flatten(),
        has_colors: has_colors(options),
    };
    Ok(Output::new(target, format, schema, screen))
}

/// Opens a file, or standard output for `None` and `-`, without a buffer of its own.
///
/// # Errors
/// When the file cannot be created.
pub(crate) fn target(path: Option<&Path>) -> Result<Box<dyn Write + Send>, Failure> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        check_stdout()?;
        // The standard library's handle looks for line feeds in everything it writes.
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let stdout = stdout.map_err(|error| {
            Failure::run(format!("cannot write standard output: {error}"), None)
        })?;
        return Ok(Box::new(File::from(stdout)));
    };
    let file = files::named().open(path, How::replace());
    let file = file.map_err(flowgauge_capture::Error::io("create", path));
    let file = file.map_err(|error| Failure::opening(&error))?;
    Ok(Box::new(WholeWrites::new(file)))
}

/// Refuses to write to a standard output that is none.
///
/// # Errors
/// When it was closed by whoever started the program.
pub(crate) fn check_stdout() -> Result<(), Failure> {
    if !process::standard_output_was_closed() {
        return Ok(());
    }
    let hint = "the shell's >&- closes it; use > /dev/null or -w FILE";
    Err(Failure::run(
        "cannot write standard output: it is closed",
        Some(hint.to_owned()),
    ))
}
