//! Stacks as text, and messages about texts.

use std::sync::Arc;

use flowgauge_registry::registry;
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{FileId, Registry, Sources, Stack, check, parse_stack};

/// The stack that a text of components is.
///
/// # Errors
/// What is wrong with it, with its place in the text.
pub(crate) fn stack(name: &str, text: &str) -> Result<Stack, String> {
    at(name, name, text)
}

/// The same of a text whose places are shown as those of `file`.
///
/// # Errors
/// As [`stack`].
pub(crate) fn at(name: &str, file: &str, text: &str) -> Result<Stack, String> {
    let flow = flow(file, "", text)?;
    Ok(named(name, flow))
}

/// The same of components that `registry` has, not of those that users have.
pub(crate) fn of(name: &str, text: &str, registry: &Registry) -> Result<Stack, String> {
    let flow = flow_of(name, "", text, registry)?;
    Ok(named(name, flow))
}

fn named(name: &str, flow: FlowStack) -> Stack {
    Stack {
        name: Some(name.to_owned()),
        ..flow.stack
    }
}

/// What is wrong with a capture filter, in the syntax of pcap-filter(7).
pub fn filter_error(filter: &str) -> Option<String> {
    // Counted: of a filter alone it would be told that what it gives on goes nowhere.
    let text = format!("{}\ncount", crate::granted::filter_text(filter));
    stack("filter", &text).err()
}

/// A stack that begins with components that its user does not see.
#[derive(Clone, Debug)]
pub(crate) struct FlowStack {
    pub(crate) stack: Stack,
    /// How many those are.
    pub(crate) hidden: usize,
}

/// The stack of a flow: what is `forced` before it, and the text of its user, as whose messages are.
///
/// # Errors
/// What is wrong with it, with its place in the text.
pub(crate) fn flow(name: &str, forced: &str, text: &str) -> Result<FlowStack, String> {
    flow_of(name, forced, text, registry())
}

fn flow_of(name: &str, forced: &str, text: &str, registry: &Registry) -> Result<FlowStack, String> {
    let mut sources = Sources::default();
    let mut parse = |name: &str, text: &str| {
        let file = sources.add(name, text);
        let file = file.ok_or_else(|| "the stack is too long".to_owned())?;
        let body = parse_stack(&sources, file);
        let body = body.map_err(|found| found.show(&sources).to_string())?;
        Ok::<_, String>((file, body))
    };
    let mut before: Option<FileId> = None;
    let mut hidden = 0;
    let (_, mut body) = parse(name, text)?;
    if !forced.is_empty() {
        let (file, mut all) = parse("forced", forced)?;
        before = Some(file);
        hidden = all.nodes.len();
        all.nodes.append(&mut body.nodes);
        body.nodes = all.nodes;
    }
    let checked = check(&Document::of(body), registry);
    let found = checked.diagnostics;
    let stack = checked
        .program
        .and_then(|program| program.stacks.into_iter().next());
    let mut stack = stack.ok_or_else(|| {
        let is_own = |file: FileId| Some(file) != before;
        let own = found.iter().filter(|it| is_own(it.span.file));
        let shown: Vec<String> = own.map(|it| it.show(&sources).to_string()).collect();
        match shown.is_empty() {
            true => FORCED_FAILS.to_owned(),
            false => shown.join("\n"),
        }
    })?;
    relabel(&mut stack, hidden);
    Ok(FlowStack { stack, hidden })
}

/// What users are told of what they do not see.
pub(crate) const FORCED_FAILS: &str = "what the sensor's configuration or your credential puts before your flows \
     cannot be used: the sensor's administrator can tell why";

/// Labels that count components count those that the user sees; the others have such as nobody can write.
fn relabel(stack: &mut Stack, hidden: usize) {
    if hidden == 0 {
        return;
    }
    let names: Vec<&str> = stack.nodes.iter().map(|node| node.info.name).collect();
    let count = |nodes: &[&str], name: &str| nodes.iter().filter(|it| **it == name).count();
    for (at, node) in Arc::make_mut(&mut stack.nodes).iter_mut().enumerate() {
        let name = node.info.name;
        if at < hidden {
            node.label = format!("forced {name}");
            continue;
        }
        if node.label != format!("{name}({})", count(&names[..at], name)) {
            continue;
        }
        let own = &names[hidden..];
        node.label = match count(own, name) {
            1 => name.to_owned(),
            _ => format!("{name}({})", count(&names[hidden..at], name)),
        };
    }
}

/// A text in quotation marks, as stacks have it.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// For a message of an unknown name with those that there are, in backticks: the nearest.
pub(crate) fn nearest_of(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let near = names.map(|name| (strsim::damerau_levenshtein(given, name), name));
    let (distance, name) = near.min()?;
    (distance <= 1 + given.len() / 3).then(|| format!("did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forced_is_not_seen() {
        let forced = "filter { expression = \"net 10.0.0.0/8\" } ";
        let both = flow(
            "flow",
            forced,
            "filter { tcp } count - filter { port 5 } bytes",
        )
        .unwrap();
        let labels: Vec<&str> = both.stack.nodes[both.hidden..]
            .iter()
            .map(|node| node.label.as_str())
            .collect();
        assert_eq!(labels, ["filter(0)", "count", "filter(1)", "bytes"]);
        let one = flow("flow", forced, "filter { tcp } count").unwrap();
        assert_eq!(one.stack.nodes[1].label, "filter");
        let wrong = flow("flow", forced, "cuont").unwrap_err();
        assert!(wrong.starts_with("flow:1:1: error: "), "{wrong}");
        assert!(!wrong.contains("10.0.0.0"), "{wrong}");
        let wrong = flow("flow", "filter { expression = \"prot 5\" } ", "count").unwrap_err();
        assert_eq!(wrong, FORCED_FAILS);
    }
}
