//! `flowgauge share-service`: captures for the processes that share an interface.

use std::time::Duration;

use flowgauge_runtime::shared::{self, OpenedService, ServiceConfig};
use flowgauge_sys::local::Listener;
use flowgauge_sys::machine::{Check, Status};
use flowgauge_sys::privileges;

use crate::anonymize;
use crate::control::Control;
use crate::failure::Failure;
use crate::options::ShareServiceOptions;
use crate::say::say;
use crate::summary;

/// Whom root becomes: the first that exists.
const USERS: [&str; 2] = ["flowgauge", "nobody"];

/// The environment variable that names the group whose members may join, where no option does.
const GROUP: &str = "FLOWGAUGE_SHARE_GROUP";

/// How long the program that started this one may take to come, before it is told why there is nothing.
const COMING: Duration = Duration::from_secs(2);

/// Runs the command. Where another program started it nobody sees what it prints: whoever comes to the
/// socket is told what is wrong.
///
/// # Errors
/// When standard input is no listening socket, or the interface cannot be opened.
pub(crate) fn run(options: &ShareServiceOptions) -> Result<(), Failure> {
    let forced =
        anonymize::refuse_if_forced("other programs would get the packets of a shared capture");
    let listener = match listener(options) {
        Ok(listener) => listener,
        Err(failure) => return Err(forced.err().unwrap_or(failure)),
    };
    let opened = forced.and_then(|()| open(options));
    let (opened, control) = opened.inspect_err(|failure| {
        let patience = match options.listen {
            true => Duration::ZERO,
            false => COMING,
        };
        shared::turn_away(&listener, &failure.in_one_line(), patience);
    })?;
    if options.listen {
        say!(
            "flowgauge: sharing {}, until it is stopped",
            options.interface
        );
    }
    let served = opened.run(listener, &control.stop_handle());
    say!("{}", summary::ledger_line(&served.ledger));
    match served.failure {
        None => Ok(()),
        Some(error) => Err(Failure::running(&error)),
    }
}

/// The socket that programs come to.
fn listener(options: &ShareServiceOptions) -> Result<Listener, Failure> {
    if options.listen {
        return shared::listen(&options.interface).map_err(|error| failed(&error));
    }
    shared::inherited_listener().map_err(|error| {
        Failure::usage(
            error.to_string(),
            "programs that share a capture start this command; by hand, give --listen",
        )
    })
}

/// Opens the interface, and gives up root.
fn open(options: &ShareServiceOptions) -> Result<(OpenedService, Control), Failure> {
    let group = group(options)?;
    let control = Control::install()?;
    let user = USERS.into_iter().find(|user| privileges::user_exists(user));
    let mut config = ServiceConfig {
        group,
        ..ServiceConfig::default()
    };
    if options.listen {
        config.grace = Duration::MAX;
    }
    let opened = OpenedService::open(&options.interface, user, config);
    Ok((opened.map_err(|error| failed(&error))?, control))
}

fn failed(error: &shared::Error) -> Failure {
    Failure::run(error.to_string(), error.hint())
}

/// The group that may join, from the option or the environment.
fn group(options: &ShareServiceOptions) -> Result<Option<u32>, Failure> {
    let from_environment = || {
        let name = std::env::var_os(GROUP).filter(|name| !name.is_empty())?;
        Some(name.to_string_lossy().into_owned())
    };
    let name = options.group.clone().or_else(from_environment);
    let number = name.map(|name| {
        privileges::group_id(&name).map_err(|error| {
            Failure::usage(
                format!(
                    "who may share the capture on {}: {error}",
                    options.interface
                ),
                format!("--group or {GROUP} takes a group's name or number; see getent group"),
            )
        })
    });
    number.transpose()
}

/// The captures that are shared here, for `doctor`.
pub(crate) fn checks() -> Vec<Check> {
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
                    "give the process that loses events more memory, or let it want less".to_owned()
                }),
            }
        })
        .collect()
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
            let events = statistics.lost_data().events
                + statistics.lost_created
                + statistics.lost_terminated;
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
