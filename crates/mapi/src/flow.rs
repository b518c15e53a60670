//! Flows as stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use flowgauge_sys::datagrams::Datagrams;
use flowgauge_sys::files::{self, How};

use crate::call::{Call, Error, Place};
use crate::functions::Shape;

/// What happens in the flow itself only, when others compute its functions again.
const ONCE: [&str; 5] = ["FLOW_REPORT", "INJECT", "RES2FILE", "TO_BUFFER", "TO_FILE"];

/// The label of the component after all functions of a flow.
pub const PASSED: &str = "passed";

/// The label of the `to_buffer` for functions that run in the program.
pub const OWN: &str = "own";

/// The label of a function, by its number in the flow.
pub fn label(number: usize) -> String {
    format!("f{number}")
}

/// A stack, and its output files and sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Its text. Function `number` is the component labelled [`label`]; [`PASSED`] counts packets that all functions
    /// pass.
    pub text: String,
    /// What it writes to; `fd:0` in the text is the first.
    pub targets: Vec<Target>,
}

/// Something a flow writes to, which the user opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file.
    File {
        /// Its path.
        path: String,
        /// The text at its beginning.
        begins: String,
    },
    /// A UDP port: `host:2055`.
    Collector(String),
    /// An interface.
    Interface(String),
}

impl Target {
    /// Opens it with the rights of this process. A new file is accessible to its user only. An existing file is
    /// truncated: immediately if it has an initial text, else when the sensor writes to it.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(&self) -> Result<OwnedFd, Error> {
        let (name, number, opened) = match self {
            Target::File { path, begins } => {
                let how = match begins.is_empty() {
                    true => How::keep(),
                    false => How::replace(),
                };
                let file = files::named().open(Path::new(path), how.mode(0o600));
                let written = file.and_then(|mut file| {
                    file.write_all(begins.as_bytes())?;
                    Ok(OwnedFd::from(file))
                });
                (path, Error::FILE, written)
            }
            Target::Collector(to) => (to, Error::number_of(1), Datagrams::udp(to).map(Into::into)),
            Target::Interface(name) => (
                name,
                Error::number_of(0),
                Datagrams::onto(name).map(Into::into),
            ),
        };
        opened.map_err(|error| {
            let is_rights = |target: &Target| matches!(target, Target::Interface(_));
            let number = match error.kind() {
                ErrorKind::PermissionDenied if is_rights(self) => Error::RIGHTS,
                _ => number,
            };
            Error::new(number, format!("{name}: {error}"))
        })
    }
}

/// The stack for the functions of flow `own`, in order. They may refer to functions of other flows, which `others`
/// returns.
///
/// # Errors
/// An argument is missing, has the wrong type, or refers to a function that does not precede it.
pub fn stack(
    calls: &[Call],
    own: i128,
    others: &dyn Fn(i128) -> Option<Vec<Call>>,
) -> Result<Stack, Error> {
    let mut used: BTreeMap<i128, (Vec<Call>, usize)> = BTreeMap::new();
    let mut find = |flow: i128, function: i128, before: usize| {
        let number = usize::try_from(function).unwrap_or(0);
        let unknown = || {
            Error::new(
                Error::NO_FUNCTION,
                format!("there is no function {function}"),
            )
        };
        if flow == own || flow == 0 {
            let found = number.checked_sub(1).and_then(|at| calls.get(at));
            let found = found.filter(|_| number < before).ok_or_else(unknown)?;
            return match found.function.is_own() {
                true => Err(of_own(found)),
                false => Ok(label(number)),
            };
        }
        let known = match used.entry(flow) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let calls = others(flow).ok_or_else(|| {
                    Error::new(Error::NO_FUNCTION, format!("there is no flow {flow}"))
                })?;
                new.insert((calls, 0))
            }
        };
        if number == 0 || number > known.0.len() {
            return Err(unknown());
        }
        let name = known.0[number - 1].function.name;
        if ONCE.contains(&name) {
            let what = format!("{name} has a result for functions of its own flow only");
            return Err(Error::new(Error::NO_FUNCTION, what));
        }
        known.1 = known.1.max(number);
        Ok(format!("g{flow}_{number}"))
    };
    let mut targets = Vec::new();
    let mut components = Vec::new();
    let with_values = with_values(calls);
    let mut own: Option<&Call> = None;
    for (number, call) in (1..).zip(calls) {
        let component = call.component(&mut Place {
            label: label(number),
            find: &mut |flow, function| find(flow, function, number),
            targets: &mut targets,
            has_values: with_values.contains(&number),
        })?;
        match own {
            _ if call.function.is_own() => {
                if own.replace(call).is_none() {
                    components.push(format!("to_buffer {{ as = {OWN} }}"));
                }
            }
            None => components.push(component),
            // The program has the packets.
            Some(_) if call.function.result == Shape::Packets => {}
            Some(own) => {
                let what = format!(
                    "{} runs in the sensor, and cannot follow {}, which runs in this program",
                    call.function.name, own.function.name
                );
                return Err(Error::new(Error::ARGUMENTS, what));
            }
        }
    }
    let mut copies = Vec::new();
    for (flow, (calls, until)) in used {
        copies.push(copy(flow, &calls[..until])?);
    }
    copies.append(&mut components);
    copies.push(format!("count {{ as = {PASSED} }}"));
    let text = copies.join(" ");
    Ok(Stack { text, targets })
}

/// Functions of another flow, computed again over all packets. What they write stays out.
fn copy(flow: i128, calls: &[Call]) -> Result<String, Error> {
    let mut components = Vec::new();
    let with_values = with_values(calls);
    for (number, call) in (1..).zip(calls) {
        if call.function.is_own() {
            return Err(of_own(call));
        }
        if ONCE.contains(&call.function.name) {
            continue;
        }
        components.push(call.component(&mut Place {
            label: format!("g{flow}_{number}"),
            find: &mut |of, function| match of == flow || of == 0 {
                true => Ok(format!("g{flow}_{function}")),
                false => {
                    let what = "results of a flow that takes results of a third";
                    Err(Error::new(Error::NO_FUNCTION, what))
                }
            },
            targets: &mut Vec::new(),
            has_values: with_values.contains(&number),
        })?);
    }
    Ok(format!("copy ( {} discard )", components.join(" ")))
}

/// Why a function of the program's own has no result for others.
fn of_own(call: &Call) -> Error {
    let what = format!(
        "{} runs in the program: the sensor has no result of it",
        call.function.name
    );
    Error::new(Error::NO_FUNCTION, what)
}

/// The functions whose value after each packet others ask for.
fn with_values(calls: &[Call]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for call in calls {
        let of_each = match call.function.name {
            "DIST" => true,
            "STATS" => matches!(call.text(2), None | Some("0" | "1")),
            _ => false,
        };
        if of_each {
            found.extend(
                call.number(1)
                    .and_then(|number| usize::try_from(number).ok()),
            );
        }
        if call.function.name == "RES2FILE" && call.text(4) == Some("0") {
            let functions = call.text(1).unwrap_or_default().split(',');
            let numbers =
                functions.filter_map(|entry| entry.split('@').next()?.trim().parse::<usize>().ok());
            found.extend(numbers);
        }
    }
    found
}
