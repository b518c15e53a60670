//! MAPI's functions, as `flowgauge mapi` takes them.

use std::fmt::Write as _;

use flowgauge_mapi::{Becomes, Function};
use flowgauge_registry::registry;

/// All functions by library, each with its arguments and what it does.
pub(super) fn list() -> String {
    let mut text = String::new();
    for (library, functions) in flowgauge_mapi::libraries() {
        let _ = writeln!(text, "{library}:");
        for function in functions {
            let (arguments, what) = (arguments(function), function.description);
            let _ = writeln!(text, "  {}{arguments}\n      {what}", function.name);
        }
    }
    text
}

/// Names and types of arguments, in brackets those that may be left out, with what they are then.
fn arguments(function: &Function) -> String {
    let info = registry().find(function.component);
    let default = |option: &str| {
        let mut options = info?.options.iter();
        options.find(|it| it.name == option)?.default
    };
    let all = function.becomes.iter().zip(function.arguments.chars());
    // The flow of a function is not written: there is one.
    let written = all
        .enumerate()
        .filter(|(_, (becomes, _))| **becomes != Becomes::Flow);
    let shown = written.map(|(at, (becomes, letter))| {
        let of_letter = match letter {
            's' => "text",
            'S' => "functions",
            'w' => "file",
            'f' => "function",
            _ => "number",
        };
        let (name, kind, default) = match *becomes {
            Becomes::Or(name, default) => (name, of_letter, Some(default)),
            Becomes::Time(name) => (name, "time", default(name)),
            Becomes::Ticks(name) => (name, "number or time", default(name)),
            Becomes::When(name) => (name, "date", default(name)),
            Becomes::Nanos(name, 1) => (name, "nanoseconds", default(name)),
            Becomes::Nanos(name, _) => (name, "seconds", default(name)),
            Becomes::Flag(name) => {
                let is_set = default(name) == Some("yes");
                (name, "0 or 1", Some(if is_set { "1" } else { "0" }))
            }
            Becomes::Option(name) | Becomes::Named(name) => (name, of_letter, default(name)),
            Becomes::Function(name) | Becomes::Special(name) => (name, of_letter, None),
            Becomes::Flow | Becomes::Nothing => ("unused", of_letter, None),
        };
        match (at < function.required, default) {
            (true, _) => format!("{name}: {kind}"),
            (false, Some(default)) => format!("[{name}: {kind} = {default}]"),
            (false, None) => format!("[{name}: {kind}]"),
        }
    });
    match shown.collect::<Vec<String>>().join(", ") {
        none if none.is_empty() => none,
        some => format!("({some})"),
    }
}
