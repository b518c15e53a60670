//! `flowgauge flows`

use std::io::{self, IsTerminal as _};

use flowgauge_record::event::schema_of_classified;
use flowgauge_record::flow::FLOW_SCHEMA;
use flowgauge_record::{AggregateError, AggregateSpec, Format};
use flowgauge_stack::OptionValue;
use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::memory::{self, Needs};
use crate::options::FlowsOptions;
use crate::preset::Preset;
use crate::sinks;

/// How often a table on a terminal is drawn anew.
const WATCHED_EVERY: Nanos = Nanos::from_secs(2);

const STACK: &str = include_str!("../../../stacks/flows.stack");

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &FlowsOptions) -> Result<(), Failure> {
    let engine = &options.engine;
    let aggregation = aggregation(options)?;
    let needs = Needs {
        results: aggregation.is_some(),
        ..Needs::default()
    };
    let memory = engine.bounds.size("memory");
    let results = memory::of_results(memory, needs);
    let mut preset = Preset::new("flowgauge flows", STACK)?;
    preset.track("flows", engine);
    preset.pass("flows", &options.records);
    preset.pass("flows", &options.classify);
    preset.select(&options.select);
    if let Some((keys, sums)) = aggregation {
        preset.insert("output", "aggregate");
        preset.set("aggregate", "by", keys.join(", "));
        preset.set("aggregate", "sum", sums.join(", "));
        preset.set_some("aggregate", "top", options.aggregate.top);
        if let Some(interval) = interval(options) {
            preset.set("aggregate", "interval", OptionValue::Duration(interval.0));
            // What is under way is to be in the table, too.
            if options.records.setting("active_timeout").is_none() {
                preset.set("flows", "active_timeout", OptionValue::Duration(interval.0));
            }
            preset.set("output", "page", "yes");
        }
        if let (Some(all), Some(results)) = (memory, results) {
            preset.set("aggregate", "memory", OptionValue::Size(results));
            preset.set("flows", "memory", OptionValue::Size(all - results));
        }
    }
    preset.pick(&options.select);
    preset.write(&options.output)?;
    preset.run(
        options.preset.show_stack,
        &options.input,
        &options.output.common,
    )
}

/// How often groups are printed, if not only at the end: on a terminal somebody watches.
fn interval(options: &FlowsOptions) -> Option<Nanos> {
    let aggregate = &options.aggregate;
    let is_watched = aggregate.top.is_some()
        && !options.input.interface.is_empty()
        && options.output.write.is_none()
        && sinks::format(&options.output) == Format::Table
        && io::stdout().is_terminal();
    aggregate.interval.or(is_watched.then_some(WATCHED_EVERY))
}

/// Keys and sums.
type Aggregation = (Vec<String>, Vec<String>);

/// What to group by and to add up, if that was asked for. `--top` alone means the largest talkers.
fn aggregation(options: &FlowsOptions) -> Result<Option<Aggregation>, Failure> {
    let schema = match options.classify.flag("classify") {
        true => schema_of_classified(FLOW_SCHEMA),
        false => FLOW_SCHEMA,
    };
    let options = &options.aggregate;
    if options.top.is_none() && options.by.is_empty() {
        if !options.sum.is_empty() {
            return Err(Failure::usage(
                "--sum without --by",
                "set fields to group by, for example --by src_ip",
            ));
        }
        if options.interval.is_some() {
            return Err(Failure::usage(
                "--interval without --top or --by",
                "say what to group by, for example --by src_ip",
            ));
        }
        return Ok(None);
    }
    let or_default = |given: &[String], default: &[&str]| -> Vec<String> {
        if given.is_empty() {
            default.iter().map(|name| (*name).to_owned()).collect()
        } else {
            given.to_vec()
        }
    };
    let keys = or_default(&options.by, &["src_ip"]);
    let sums = or_default(&options.sum, &["bytes", "packets"]);
    // What is wrong with them is said in the words of the command line.
    AggregateSpec::new(schema, &keys, &sums, "flows").map_err(|error| {
        let mut hint = error.hint();
        let is_of_sums = match &error {
            AggregateError::UnknownSum { .. } => true,
            AggregateError::Repeated { name } => !keys.contains(name),
            AggregateError::UnknownKey { name, .. } => {
                if schema_of_classified(FLOW_SCHEMA)
                    .iter()
                    .any(|it| it.name == name)
                {
                    hint = format!("--classify gives flows the field {name}");
                }
                false
            }
            _ => false,
        };
        let option = if is_of_sums { "sum" } else { "by" };
        Failure::usage(format!("--{option}: {error}"), hint)
    })?;
    Ok(Some((keys, sums)))
}
