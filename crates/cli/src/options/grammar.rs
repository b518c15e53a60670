//! One grammar: an option is called, written and read alike in every command.

use std::collections::BTreeMap;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Parser};

use super::Cli;
use super::values::OPTIONAL;

/// Names that are something else in some command, and why that is so.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "anonymize",
        "log: a file; credential: a name of the sensor's",
    ),
    (
        "check",
        "stack fmt: whether the layout differs; credential: in Datalog",
    ),
    (
        "count",
        "streams, match: totals only; sensor flow, mapi: after so many results",
    ),
    (
        "device",
        "sensor flow, mapi: -d, also a scope; credential: one that is allowed",
    ),
    (
        "filter",
        "loss: pcap-filter; credential: the same, called an expression there",
    ),
    (
        "flows",
        "log, loss: records of flows, too; generate: how many",
    ),
    ("format", "capture, anonymize: of captures"),
    ("issuer", "credential verify: a key as well"),
    (
        "packets",
        "generate: how many; credential: of which packets",
    ),
    ("priority", "streams: of streams; rmon: among subagents"),
    ("stats", "locality: of its buffers"),
    (
        "svg",
        "loss: a file beside the records; stack show: the result",
    ),
    (
        "user",
        "stack agent: who runs it; credential: whom it is for",
    ),
];

/// Commands whose result is a page for people, or JSON.
const PAGES: &[&str] = &["mapi", "replay", "report", "sensor flow", "sensor status"];

/// Every command with its name.
fn commands() -> Vec<(String, Command)> {
    fn add(command: &Command, name: &str, all: &mut Vec<(String, Command)>) {
        all.push((name.to_owned(), command.clone()));
        for within in command
            .get_subcommands()
            .filter(|it| it.get_name() != "help")
        {
            let name = format!("{name} {}", within.get_name());
            add(within, name.trim_start(), all);
        }
    }
    let mut all = Vec::new();
    add(&Cli::built(), "", &mut all);
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// Every option of every command.
fn options() -> Vec<(String, Arg)> {
    let of = |(name, command): (String, Command)| {
        let options: Vec<Arg> = command.get_arguments().cloned().collect();
        options.into_iter().map(move |arg| (name.clone(), arg))
    };
    let all = commands().into_iter().flat_map(of);
    all.filter(|(_, arg)| arg.get_long().is_some()).collect()
}

/// What its value is called.
fn value(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let names = arg.get_value_names().filter(|_| takes).unwrap_or_default();
    let names: Vec<&str> = names
        .iter()
        .map(|name| name.trim_end_matches("..."))
        .collect();
    names.join(" ")
}

#[test]
fn an_option_is_the_same_in_every_command() {
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (command, arg) in options() {
        let long = arg.get_long().unwrap_or_default().to_owned();
        if DIFFERENT.iter().any(|(name, _)| *name == long) {
            continue;
        }
        let short = arg
            .get_short()
            .map_or(String::new(), |short| format!("-{short}, "));
        let equals = if arg.is_require_equals_set() {
            "[=]"
        } else {
            ""
        };
        let shape = format!("{short}--{long}{equals} {}", value(&arg));
        let (first, before) = seen
            .entry(long)
            .or_insert_with(|| (command.clone(), shape.clone()));
        if *before != shape {
            wrong.push(format!("{command}: {shape}\n  {first}: {before}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn who_writes_records_has_all_formats() {
    for (name, command) in commands() {
        let has = |long: &str| {
            command
                .get_arguments()
                .any(|it| it.get_long() == Some(long))
        };
        let formats = ["json", "csv", "table", "format", "write"].map(has);
        match PAGES.contains(&name.as_str()) {
            true => assert!(has("json") && !has("csv"), "{name}"),
            false if has("json") => assert_eq!(formats, [true; 5], "{name}"),
            false => assert!(!has("csv") && !has("table"), "{name}"),
        }
    }
}

/// Whether a command reads a value of an option, whatever else it lacks.
fn reads(command: &str, arg: &Arg, value: &str) -> bool {
    let long = format!("--{}", arg.get_long().unwrap_or_default());
    let words = ["flowgauge"].into_iter().chain(command.split(' '));
    let words = words.map(str::to_owned).chain([format!("{long}={value}")]);
    let Err(error) = Cli::try_parse_from(words) else {
        return true;
    };
    let is_of_it = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => name.starts_with(&long),
        _ => false,
    };
    !(is_of_it
        && matches!(
            error.kind(),
            ErrorKind::ValueValidation | ErrorKind::InvalidValue
        ))
}

#[test]
fn values_of_a_kind_are_written_alike() {
    let kinds: [(&str, &[&str], &[&str]); 3] = [
        ("DURATION", &["1m", "1000ms", "5"], &["five", "5 parsecs"]),
        ("SIZE", &["1M", "512k", "1000000"], &["big", "1Q"]),
        (
            "TIME",
            &["2026-11-22 10:30", "2026-11-22T10:30:00Z"],
            &["soon"],
        ),
    ];
    let mut checked = 0;
    for (command, arg) in options() {
        let value = value(&arg);
        let old = ["SECONDS", "BYTES", "KIB", "DAYS", "WINDOW", "INTERFACE"];
        assert!(!old.contains(&value.as_str()), "{command} {arg}");
        let Some((_, good, bad)) = kinds.iter().find(|(name, ..)| *name == value) else {
            continue;
        };
        for value in *good {
            assert!(reads(&command, &arg, value), "{command} {arg}: {value}");
        }
        for value in *bad {
            assert!(!reads(&command, &arg, value), "{command} {arg}: {value}");
        }
        checked += 1;
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn values_that_may_be_left_out_are_known() {
    for (command, arg) in options() {
        let long = format!("--{}", arg.get_long().unwrap_or_default());
        let is_optional = arg.is_require_equals_set();
        assert_eq!(
            OPTIONAL.contains(&long.as_str()),
            is_optional,
            "{command} {long}"
        );
    }
}

#[test]
fn stacks_are_named_alike() {
    for name in [
        "check",
        "fmt",
        "show",
        "run",
        "bench",
        "admin start",
        "admin configure",
    ] {
        let name = format!("stack {name}");
        let command = commands().into_iter().find(|(it, _)| *it == name);
        let (_, command) = command.expect("it is there");
        let all: Vec<&Arg> = command.get_arguments().collect();
        let has = |test: &dyn Fn(&Arg) -> bool| all.iter().any(|arg| test(arg));
        assert!(has(&|arg| arg.get_short() == Some('f')), "{name}");
        assert!(has(&|arg| arg.get_short() == Some('e')), "{name}");
        assert!(
            has(&|arg| arg.is_positional() && value(arg) == "FILE"),
            "{name}"
        );
    }
}

#[test]
fn the_short_help_fits_on_a_screen() {
    let mut long = Vec::new();
    for (name, mut command) in commands() {
        let lines = command.render_help().to_string().lines().count();
        if lines > 40 {
            long.push(format!("{name}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
