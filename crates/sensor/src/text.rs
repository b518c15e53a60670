//! Stacks as text, and messages about texts.

use flowgauge_registry::registry;
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{Sources, Stack, check, parse_stack};

/// The stack that a text of components is.
///
/// # Errors
/// What is wrong with it, with its place in the text.
pub(crate) fn stack(name: &str, text: &str) -> Result<Stack, String> {
    let mut sources = Sources::default();
    let file = sources.add(name.to_owned(), text.to_owned());
    let file = file.ok_or_else(|| "the stack is too long".to_owned())?;
    let body = parse_stack(&sources, file).map_err(|found| found.show(&sources).to_string())?;
    let checked = check(&Document::of(body), registry());
    let found = checked.diagnostics.iter();
    let stack = checked
        .program
        .and_then(|program| program.stacks.into_iter().next());
    let mut stack = stack.ok_or_else(|| {
        let shown: Vec<String> = found.map(|it| it.show(&sources).to_string()).collect();
        shown.join("\n")
    })?;
    stack.name = Some(name.to_owned());
    Ok(stack)
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
