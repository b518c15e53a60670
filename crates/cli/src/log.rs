//! `flowgauge log`

use std::io::{self, IsTerminal};

use flowgauge_record::Format;
use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::options::{LogFormat, LogOptions};
use crate::preset::{Preset, duration};
use crate::sinks;

const STACK: &str = include_str!("../../../stacks/log.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &LogOptions) -> Result<(), Failure> {
    let mut preset = Preset::new("flowgauge log", STACK)?;
    preset.track(
        "transactions",
        &options.engine,
        options.engine.bounds.memory,
    );
    preset.set_some("transactions", "protocols", options.protocols.as_ref());
    if options.flows {
        preset.set("transactions", "flows", "yes");
    }
    if options.anomalies {
        preset.set("transactions", "anomalies", "yes");
    }
    let interval = options.stats_interval.map(duration);
    preset.set_some("transactions", "stats_interval", interval);
    let files = "transactions";
    if options.files {
        preset.set(files, "files", "yes");
    }
    if options.decode {
        preset.set(files, "decode", "yes");
    }
    if options.mails {
        preset.set(files, "mails", "yes");
    }
    preset.set_some(files, "digests", options.digests.as_ref());
    preset.set_path(files, "extract", options.extract_files.as_deref())?;
    preset.set_some(files, "file_limit", options.file_limit.as_ref());
    preset.set_some(files, "extract_limit", options.extract_limit.as_ref());
    preset.set_path(
        "transactions",
        "applications",
        options.applications.as_deref(),
    )?;
    if let Some(policy) = &options.anonymize {
        preset.insert("output", "anonymize");
        preset.set_path("anonymize", "policy", Some(policy))?;
    }
    let active_timeout = options.records.active_timeout.map(duration);
    preset.set_some("transactions", "active_timeout", active_timeout);
    if options.engine.community_id_seed != 0 {
        let seed = options.engine.community_id_seed;
        preset.set("transactions", "community_id_seed", seed);
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
                if options.flows && options.input.workers.unwrap_or(1) == 1 {
                    preset.set("transactions", "outer_flows", "yes");
                }
                // As Suricata ends flows by its own configuration.
                let given = options.engine.idle_timeout.unwrap_or_default();
                for (option, given, seconds) in [
                    ("tcp_timeout", given.tcp, 600),
                    ("udp_timeout", given.udp, 300),
                    ("other_timeout", given.other, 300),
                    ("closed_timeout", None, 60),
                ] {
                    if given.is_none() {
                        preset.set("transactions", option, duration(Nanos::from_secs(seconds)));
                    }
                }
            }
            if options.engine.community_id_seed != 0 {
                preset.set(
                    "logs",
                    "community_id_seed",
                    options.engine.community_id_seed,
                );
            }
            // Zeek takes content codings away always.
            let has_files = options.files || options.digests.is_some();
            let is_zeek = format != LogFormat::Eve;
            if is_zeek && (has_files || options.extract_files.is_some()) && !options.decode {
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
