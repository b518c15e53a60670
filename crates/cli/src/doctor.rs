//! `flowgauge doctor`

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;

use flowgauge_record::check::{CHECK_SCHEMA, CheckRow};
use flowgauge_record::{Format, Output, RecordWriter, Screen};
use flowgauge_runtime::shared;
use flowgauge_sys::machine::{self, Check, Status};

use crate::failure::{self, Failure};
use crate::options::{DEFAULT_MASTER, DoctorOptions};
use crate::say::instead_of;
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// When an interface does not exist, or the output fails.
pub(crate) fn run(options: &DoctorOptions) -> Result<(), Failure> {
    let mut checks = machine::checks();
    checks.extend(shared_captures());
    checks.push(agentx());
    let checks = wanted(checks, &options.interface)?;
    // Advice is for people, who may read it through a pipe.
    let format = match sinks::given_format(&options.output) {
        Some(_) => sinks::format(&options.output),
        None => Format::Table,
    };
    let target = sinks::target(options.output.write.as_deref())?;
    let screen = Screen {
        width: None,
        has_colors: sinks::has_colors(&options.output),
    };
    let output = Output::new(target, format, CHECK_SCHEMA, screen);
    let mut writer = RecordWriter::new(output, format, CHECK_SCHEMA);
    for check in &checks {
        writer.write(&CheckRow {
            name: &check.name,
            status: check.status.name(),
            found: &check.found,
            advice: check.advice.as_deref(),
        });
    }
    failure::of_writer(&mut writer)?;
    if format != Format::Table || options.output.write.is_some() {
        return Ok(());
    }
    let mut advice = String::new();
    for check in &checks {
        if let Some(text) = &check.advice {
            advice.push_str(&format!("\n{}: {text}", check.name));
        }
    }
    if advice.is_empty() {
        advice.push_str("\nnothing to change");
    }
    advice.push('\n');
    let written = sinks::target(None)?.write_all(advice.as_bytes());
    match written {
        Ok(()) => Ok(()),
        Err(error) => failure::of_output(error.into()).map_or(Ok(()), Err),
    }
}

/// All checks that are not about an interface, and those about the interfaces named.
fn wanted(checks: Vec<Check>, interfaces: &[String]) -> Result<Vec<Check>, Failure> {
    if interfaces.is_empty() {
        return Ok(checks);
    }
    let known = flowgauge_sys::interfaces::list().unwrap_or_default();
    for name in interfaces {
        if !known.iter().any(|interface| interface.name == *name) {
            let names = known.iter().map(|known| known.name.as_str());
            return Err(Failure::usage(
                format!("no interface \"{name}\""),
                instead_of(name, names, "flowgauge capture -D lists the interfaces"),
            ));
        }
    }
    let other = |check: &Check, name: &str| {
        !interfaces.iter().any(|wanted| wanted == name)
            && check
                .name
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    Ok(checks
        .into_iter()
        .filter(|check| !known.iter().any(|interface| other(check, &interface.name)))
        .collect())
}

/// The captures that are shared here.
fn shared_captures() -> Vec<Check> {
    let captures = shared::shared_captures().unwrap_or_default();
    captures
        .iter()
        .map(|capture| {
            let (status, found) = match capture.status() {
                Ok(status) => describe(&status),
                Err(error) => (Status::Unknown, error.to_string()),
            };
            Check {
                name: format!("{} shared", capture.interface),
                status,
                found,
                advice: (status == Status::Warn).then(|| {
                    "give the process that loses events more memory, or have it subscribe to less".to_owned()
                }),
            }
        })
        .collect()
}

/// Whether there is a master for `flowgauge rmon`.
fn agentx() -> Check {
    let error = UnixStream::connect(DEFAULT_MASTER).map(drop).err();
    let (status, found) = match &error {
        None => (Status::Ok, format!("a master listens at {DEFAULT_MASTER}")),
        Some(error) if error.kind() == ErrorKind::PermissionDenied => {
            (Status::Unknown, format!("{DEFAULT_MASTER}: {error}"))
        }
        Some(error) => (Status::Missing, format!("{DEFAULT_MASTER}: {error}")),
    };
    let advice = match status {
        Status::Ok => None,
        Status::Unknown => Some(
            "for flowgauge rmon: set agentXPerms in snmpd.conf to give a group access to the socket and its folder",
        ),
        _ => Some("for flowgauge rmon: run snmpd, with the line 'master agentx' in snmpd.conf"),
    };
    Check {
        name: "agentx".to_owned(),
        status,
        found,
        advice: advice.map(str::to_owned),
    }
}

fn describe(status: &shared::Status) -> (Status, String) {
    let mut found = format!("by process {}", status.process);
    let mut verdict = Status::Ok;
    for client in &status.clients {
        let name = &client.name;
        found.push_str(&format!(", for {name} (process {}", client.process));
        let statistics = &client.statistics;
        if !statistics.is_complete() {
            verdict = Status::Warn;
            let events = statistics.lost_events();
            found.push_str(&format!(", {events} events lost"));
        }
        if statistics.refused_commands > 0 {
            let refused = statistics.refused_commands;
            found.push_str(&format!(", {refused} requests refused"));
        }
        found.push(')');
    }
    (verdict, found)
}
