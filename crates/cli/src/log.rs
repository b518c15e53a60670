//! `flowgauge log`

use std::io::{self, IsTerminal};

use flowgauge_record::Format;
use flowgauge_stack::OptionValue;
use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::options::{LogFormat, LogOptions};
use crate::preset::Preset;
use crate::sinks;

const STACK: &str = include_str!("../../../stacks/log.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &LogOptions) -> Result<(), Failure> {
    let mut preset = Preset::new("flowgauge log", STACK)?;
    preset.track("transactions", &options.engine);
    preset.pass("transactions", &options.records);
    preset.pass("transactions", &options.logged);
    preset.pass("transactions", &options.files);
    if options.anonymize.iter().next().is_some() {
        preset.insert("output", "anonymize");
        preset.pass("anonymize", &options.anonymize);
    }
    let format = format(options)?;
    let end = match format {
        LogFormat::Json => {
            preset.set("output", "format", "json");
            "output"
        }
        LogFormat::Table | LogFormat::Csv => {
            preset.insert("output", "brief");
            let is_table = format == LogFormat::Table;
            preset.set("output", "format", if is_table { "table" } else { "csv" });
            "output"
        }
        LogFormat::Eve | LogFormat::Zeek | LogFormat::ZeekJson => {
            preset.insert("output", "logs");
            preset.remove("output");
            let name = match format {
                LogFormat::Eve => "eve",
                LogFormat::Zeek => "zeek",
                _ => "zeek-json",
            };
            preset.set("logs", "format", name);
            preset.set("transactions", "each_message", "yes");
            if format == LogFormat::Eve {
                if options.logged.flag("flows") && options.input.workers.unwrap_or(1) == 1 {
                    preset.set("transactions", "outer_flows", "yes");
                }
                // As Suricata ends flows by its own configuration.
                let given = options.engine.idle_timeout.as_ref();
                for (option, seconds) in [
                    ("tcp_timeout", 600),
                    ("udp_timeout", 300),
                    ("other_timeout", 300),
                    ("closed_timeout", 60),
                ] {
                    if given.is_none_or(|given| given.setting(option).is_none()) {
                        let time = OptionValue::Duration(Nanos::from_secs(seconds).0);
                        preset.set("transactions", option, time);
                    }
                }
            }
            preset.pass("logs", &options.engine.tracking);
            // Zeek takes content codings away always.
            let files = &options.files;
            let has_files = files.flag("files") || files.text("digests").is_some();
            let is_zeek = format != LogFormat::Eve;
            if is_zeek && (has_files || files.text("extract").is_some()) && !files.flag("decode") {
                preset.set("transactions", "decode", "yes");
            }
            "logs"
        }
    };
    preset.set_file(end, options.write.as_deref())?;
    preset.run(options.preset.show_stack, &options.input, &options.common)
}

/// The format asked for, by option or by the ending of the file's name; otherwise a table on a terminal, JSON lines
/// elsewhere.
fn format(options: &LogOptions) -> Result<LogFormat, Failure> {
    let by_option = match (options.json, options.csv) {
        (true, _) => Some(LogFormat::Json),
        (_, true) => Some(LogFormat::Csv),
        _ => options.format,
    };
    let path = options.write.as_deref();
    match (by_option, sinks::by_name(path)) {
        // Logs of others in lines of JSON can have such a name, too.
        (Some(LogFormat::Table | LogFormat::Csv), Some(Format::Json)) => {
            Err(sinks::contradiction(path))
        }
        (Some(format), Some(Format::Csv)) if format != LogFormat::Csv => {
            Err(sinks::contradiction(path))
        }
        (Some(format), _) => Ok(format),
        (None, Some(Format::Csv)) => Ok(LogFormat::Csv),
        (None, None) if path.is_none() && io::stdout().is_terminal() => Ok(LogFormat::Table),
        (None, _) => Ok(LogFormat::Json),
    }
}
