//! A flow as a stack.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Call, Error, Place};

/// The label of the component behind all functions of a flow.
pub const PASSED: &str = "passed";

/// The label of a flow's function by its number.
pub fn label(number: usize) -> String {
    format!("f{number}")
}

/// A stack, and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Its text. Function `number` is the component [`label`]; [`PASSED`] counts what all functions pass.
    pub text: String,
    /// Paths of the files that it writes to, and with what they begin: `fd:0` in the text is the first.
    pub files: Vec<(String, Option<String>)>,
}

/// The stack of functions, in their order. They are those of flow `own`; `others` tells those of another flow, whose functions
/// they may refer to.
///
/// # Errors
/// An argument that is missing, of another kind, or names no function before.
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
            let is_there = (1..before).contains(&number);
            return is_there.then(|| label(number)).ok_or_else(unknown);
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
        known.1 = known.1.max(number);
        Ok(format!("g{flow}_{number}"))
    };
    let mut files = Vec::new();
    let mut components = Vec::new();
    let with_values = with_values(calls);
    for (number, call) in (1..).zip(calls) {
        components.push(call.component(&mut Place {
            label: label(number),
            find: &mut |flow, function| find(flow, function, number),
            files: &mut files,
            has_values: with_values.contains(&number),
        })?);
    }
    let mut copies = Vec::new();
    for (flow, (calls, until)) in used {
        copies.push(copy(flow, &calls[..until])?);
    }
    copies.append(&mut components);
    copies.push(format!("count {{ as = {PASSED} }}"));
    let text = copies.join(" ");
    Ok(Stack { text, files })
}

/// Functions of another flow, computed again over all packets. What they write stays out.
fn copy(flow: i128, calls: &[Call]) -> Result<String, Error> {
    let mut components = Vec::new();
    let with_values = with_values(calls);
    for (number, call) in (1..).zip(calls) {
        if matches!(call.function.name, "RES2FILE" | "TO_FILE" | "TO_BUFFER") {
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
            files: &mut Vec::new(),
            has_values: with_values.contains(&number),
        })?);
    }
    Ok(format!("copy ( {} discard )", components.join(" ")))
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
