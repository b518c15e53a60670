//! `flowgauge log`

use flowgauge_record::Format;
use flowgauge_stack::OptionValue;
use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::options::{LogOptions, RecordFormat};
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
    preset.select(&options.select);
    if options.anonymize.iter().next().is_some() {
        preset.insert("output", "anonymize");
        preset.pass("anonymize", &options.anonymize);
    }
    let format = match sinks::given_format(&options.output) {
        Some(format) => format,
        None if sinks::format(&options.output) == Format::Table => RecordFormat::Table,
        None => RecordFormat::Json,
    };
    let has_fields = options.select.fields.iter().next().is_some();
    let end = match format {
        RecordFormat::Table | RecordFormat::Csv | RecordFormat::CsvSafe | RecordFormat::Json => {
            preset.pick(&options.select);
            if format != RecordFormat::Json && !has_fields {
                preset.insert("output", "brief");
            }
            preset.set("output", "format", format.in_stacks());
            preset.color(&options.output);
            "output"
        }
        RecordFormat::Eve | RecordFormat::Zeek | RecordFormat::ZeekJson => {
            if has_fields {
                return Err(Failure::usage(
                    "--fields: logs in Suricata's and Zeek's format have fixed fields",
                    "omit --fields, or use --format json, csv or table",
                ));
            }
            preset.insert("output", "logs");
            preset.remove("output");
            preset.set("logs", "format", format.in_stacks());
            preset.set("transactions", "each_message", "yes");
            if format == RecordFormat::Eve {
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
            let is_zeek = format != RecordFormat::Eve;
            if is_zeek && (has_files || files.text("extract").is_some()) && !files.flag("decode") {
                preset.set("transactions", "decode", "yes");
            }
            "logs"
        }
    };
    preset.set_file(end, options.output.write.as_deref())?;
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}
