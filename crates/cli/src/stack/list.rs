//! `flowgauge stack list`

use std::fmt::Write as _;
use std::io::Write as _;

use flowgauge_record::listed::{COMPONENT_SCHEMA, ComponentRow};
use flowgauge_record::{Format, RecordWriter};
use flowgauge_registry::registry;
use flowgauge_stack::{
    Branches, ComponentInfo, ComponentKind, Input, LABEL_OPTION, OptionKind, Output, Parallel,
};
use serde_json::{Value, json};

use crate::failure::{self, Failure};
use crate::options::{ListOptions, RecordFormat};
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// When there is no such component.
pub(super) fn run(options: &ListOptions) -> Result<(), Failure> {
    let registry = registry();
    let Some(name) = &options.component else {
        return list(options);
    };
    let Some(info) = registry.find(name) else {
        let near = registry.near(name);
        return Err(Failure::usage(
            format!("unknown component {name}"),
            if near.is_empty() {
                "omit the name to list all".to_owned()
            } else {
                format!("did you mean {}?", near.join(" or "))
            },
        ));
    };
    let mut text = String::new();
    let is_asked = match options.output.format() {
        Some(RecordFormat::Json) => true,
        Some(RecordFormat::Csv | RecordFormat::CsvSafe) => {
            return Err(Failure::usage(
                format!("the page about {name} cannot be written as CSV"),
                "omit the name to list all components, or use --json",
            ));
        }
        _ => false,
    };
    match sinks::page_is_json(options.output.write.as_deref(), is_asked)? {
        true => _ = writeln!(text, "{}", object(info)),
        false => page(&mut text, info),
    }
    let written = sinks::target(options.output.write.as_deref())?.write_all(text.as_bytes());
    match written {
        Ok(()) => Ok(()),
        Err(error) => failure::of_output(error.into()).map_or(Ok(()), Err),
    }
}

/// Writes a record for each component: a table, unless another format is asked for, as people read it through a pipe.
fn list(options: &ListOptions) -> Result<(), Failure> {
    let format = match sinks::given_format(&options.output) {
        Some(_) => sinks::format(&options.output),
        None => Format::Table,
    };
    let output = sinks::open_as(&options.output, format, COMPONENT_SCHEMA)?;
    let mut writer = RecordWriter::new(output, format, COMPONENT_SCHEMA);
    for info in registry().iter() {
        let names: Vec<&str> = info.options.iter().map(|option| option.name).collect();
        writer.write(&ComponentRow {
            component: info.name,
            aliases: info.aliases,
            usage: &usage(info),
            input: &input(info),
            output: output_of(info),
            result: info.result.map(|result| result.summary),
            options: &names,
            summary: info.summary,
        });
    }
    failure::of_writer(&mut writer)
}

/// As it is written in a stack.
fn usage(info: &ComponentInfo) -> String {
    let name = info.name;
    match info.kind {
        ComponentKind::Simple | ComponentKind::Thread => name.to_owned(),
        ComponentKind::Demux => format!("{name} < ... >"),
        ComponentKind::Switch(Branches::Fixed([_])) => format!("{name} ( ... )"),
        ComponentKind::Switch(_) => format!("{name} ( ... | ... )"),
    }
}

fn input(info: &ComponentInfo) -> String {
    match info.input {
        Input::Any => "any".to_owned(),
        Input::Nothing => "-".to_owned(),
        Input::Of(items) => {
            let names: Vec<&str> = items.iter().map(|item| item.name()).collect();
            names.join("|")
        }
    }
}

fn output_of(info: &ComponentInfo) -> &'static str {
    match info.output {
        Output::Same => "the same",
        Output::Of(item) => item.name(),
        Output::Option(_) => "any",
        Output::Nothing => "-",
    }
}

/// All about a component.
fn page(text: &mut String, info: &ComponentInfo) {
    let _ = writeln!(text, "{}\n  {}", usage(info), info.summary);
    if !info.help.is_empty() {
        let _ = writeln!(text, "\n  {}", info.help);
    }
    if !info.aliases.is_empty() {
        let _ = writeln!(text, "\nalso called: {}", info.aliases.join(", "));
    }
    let _ = writeln!(text, "\ntakes: {}\ngives: {}", input(info), output_of(info));
    if let Some(result) = info.result {
        let each = match result.is_per_packet {
            true => "; each packet has its own",
            false => "",
        };
        let _ = writeln!(text, "result: {} ({}{each})", result.summary, result.unit);
        for column in result.columns {
            let _ = writeln!(text, "  {}: {}", column.field.name, column.field.help);
        }
    }
    let _ = writeln!(text, "on several cores: {}", parallel(info));
    let _ = writeln!(text, "\noptions:");
    for option in info.options {
        let words = match option.kind {
            OptionKind::Choice(words) => words.join("|"),
            kind => format!("<{}>", kind.name()),
        };
        let _ = writeln!(text, "  {} = {words}", option.name);
        let default = match (option.default, option.is_required) {
            (Some(default), _) => format!(" [default: {default}]"),
            (None, true) => " [must be given]".to_owned(),
            (None, false) => String::new(),
        };
        let _ = writeln!(text, "      {}{default}", option.help);
    }
    let _ = writeln!(
        text,
        "  {LABEL_OPTION} = <name>\n      its name in the stack"
    );
}

fn parallel(info: &ComponentInfo) -> String {
    match info.parallel {
        Parallel::Anyhow => "yes".to_owned(),
        Parallel::ByFlow => "yes, connections kept together".to_owned(),
        Parallel::Never(because) => format!("no: {because}"),
    }
}

fn object(info: &ComponentInfo) -> Value {
    let options: Vec<Value> = info
        .options
        .iter()
        .map(|option| {
            json!({
                "name": option.name,
                "type": option.kind.name(),
                "words": match option.kind {
                    OptionKind::Choice(words) => words,
                    _ => &[],
                },
                "default": option.default,
                "required": option.is_required,
                "help": option.help,
            })
        })
        .collect();
    json!({
        "name": info.name,
        "aliases": info.aliases,
        "summary": info.summary,
        "help": info.help,
        "kind": match info.kind {
            ComponentKind::Simple => "simple",
            ComponentKind::Switch(_) => "switch",
            ComponentKind::Demux => "demux",
            ComponentKind::Thread => "thread",
        },
        "input": input(info),
        "output": output_of(info),
        "result": info.result.map(|result| json!({
            "summary": result.summary,
            "unit": result.unit,
            "per_packet": result.is_per_packet,
            "columns": result.columns.iter().map(|column| json!({
                "name": column.field.name,
                "help": column.field.help,
            })).collect::<Vec<Value>>(),
        })),
        "parallel": parallel(info),
        "options": options,
    })
}
