//! Converts the options in a stack's text to the settings of components.

use std::collections::BTreeMap;

use flowgauge_record::words::{instead_of, near};

use crate::component::ComponentInfo;
use crate::diagnostic::Diagnostic;
use crate::items::Coming;
use crate::settings::{OptionInfo, Setting, Settings};
use crate::source::Span;
use crate::syntax::Assignment;
use crate::value::OptionKind;

/// The option that sets a component's label; every component has it.
pub const LABEL_OPTION: &str = "as";

/// The option of demultiplexers for the number of keys whose results are reported.
pub const RESULTS_OPTION: &str = "results";

/// An option as written for a component, and how near to it: what is nearer wins.
pub(crate) struct Given<'a> {
    pub(crate) assignment: &'a Assignment,
    pub(crate) level: Level,
}

/// Where an option was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Before the first stack.
    File,
    /// `[name]`
    Component,
    /// `[name(k)]`
    Instance,
    /// In braces behind the name.
    Braces,
}

/// The label and the settings of a component, what is wrong with them reported.
pub(crate) fn complete(
    info: &'static ComponentInfo,
    span: Span,
    given: Vec<Given<'_>>,
    place: (Option<Coming>, &[&'static str]),
    diagnostics: &mut Vec<Diagnostic>,
) -> (Option<String>, Settings) {
    let before = diagnostics.len();
    let chosen = choose(info, given, diagnostics);
    let mut label = None;
    if let Some(given) = chosen.get(LABEL_OPTION) {
        label = read_label(given.assignment, diagnostics);
    }
    let mut settings = Vec::with_capacity(info.options.len());
    for option in info.options {
        match chosen.get(option.name) {
            Some(given) => settings.extend(read(option, given.assignment, diagnostics)),
            None if option.is_required => diagnostics.push(missing(info, option, span)),
            None => settings.extend(default(option)),
        }
    }
    let (coming, around) = place;
    let input = coming.map(|coming| coming.port);
    let schema = coming.and_then(|coming| coming.schema);
    let kinds = coming.and_then(|coming| coming.kinds);
    let settings = Settings::new(settings)
        .placed(input, schema, around.to_vec())
        .of_kinds(kinds.map_or_else(Vec::new, |kinds| kinds()));
    // Where what comes is wrong that was said; what follows from it is not.
    if diagnostics.len() == before
        && input.is_some()
        && let Err(error) = (info.make)(&settings)
    {
        let setting = error.option.and_then(|option| settings.setting(option));
        let place = setting.and_then(|setting| setting.span).unwrap_or(span);
        let message = match error.option {
            Some(option) => format!("{option}: {}", error.message),
            None => format!("{}: {}", info.name, error.message),
        };
        let mut found = Diagnostic::error(place, message);
        found.hint = error.hint;
        diagnostics.push(found);
    }
    (label, settings)
}

/// Of each option the nearest assignment.
fn choose<'a>(
    info: &'static ComponentInfo,
    given: Vec<Given<'a>>,
    diagnostics: &mut Vec<Diagnostic>,
) -> BTreeMap<&'static str, Given<'a>> {
    let mut chosen: BTreeMap<&'static str, Given<'a>> = BTreeMap::new();
    let mut position = 0;
    for given in given {
        let place = given.assignment.option.as_ref();
        let (name, span) = match place {
            Some(name) => {
                let key = name.key();
                let names = info.options.iter().map(|option| option.name);
                let found = names.chain([LABEL_OPTION]).find(|option| *option == key);
                match found {
                    Some(option) => (option, name.span),
                    None => {
                        diagnostics.push(unknown(info, &name.text, name.span));
                        continue;
                    }
                }
            }
            None => {
                let span = given.assignment.value.span;
                let Some(option) = info.options.get(position) else {
                    diagnostics.push(too_many(info, span));
                    continue;
                };
                position += 1;
                (option.name, span)
            }
        };
        match chosen.get(name) {
            Some(other) if other.level == given.level => {
                let found = Diagnostic::error(span, format!("{name} is set twice"));
                diagnostics.push(found);
            }
            Some(other) if other.level > given.level => {}
            _ => {
                chosen.insert(name, given);
            }
        }
    }
    chosen
}

fn read(
    option: &'static OptionInfo,
    assignment: &Assignment,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Setting> {
    let value = &assignment.value;
    match option.kind.read(&value.text) {
        Ok(read) => Some(Setting {
            option,
            value: read,
            is_static: assignment.is_static,
            span: Some(value.span),
        }),
        Err(message) => {
            let found = Diagnostic::error(value.span, format!("{}: {message}", option.name))
                .with_hint(format!("{}: {}", option.name, option.help));
            diagnostics.push(found);
            None
        }
    }
}

fn default(option: &'static OptionInfo) -> Option<Setting> {
    Some(Setting {
        option,
        value: option.kind.read(option.default?).ok()?,
        is_static: false,
        span: None,
    })
}

fn read_label(assignment: &Assignment, diagnostics: &mut Vec<Diagnostic>) -> Option<String> {
    let text = &assignment.value.text;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !text.is_empty() && text.chars().all(is_name) {
        return Some(text.clone());
    }
    let message = format!("\"{text}\" is not a name");
    let found = Diagnostic::error(assignment.value.span, message)
        .with_hint("names have letters, digits, '_', '.' and '-'");
    diagnostics.push(found);
    None
}

fn missing(info: &ComponentInfo, option: &OptionInfo, span: Span) -> Diagnostic {
    let message = format!("{} needs the option {}", info.name, option.name);
    let hint = format!(
        "{} = <{}>: {}",
        option.name,
        option.kind.name(),
        option.help
    );
    Diagnostic::error(span, message).with_hint(hint)
}

fn unknown(info: &ComponentInfo, name: &str, span: Span) -> Diagnostic {
    let found = Diagnostic::error(span, format!("{} has no option {name}", info.name));
    let names: Vec<&str> = info.options.iter().map(|option| option.name).collect();
    let likely = near(name, names.iter().copied());
    found.with_hint(match (likely.as_slice(), names.as_slice()) {
        ([], []) => format!("{} has no options but {LABEL_OPTION}", info.name),
        // What looks like an option may be a text that speaks of fields.
        ([], [first, ..]) if is_text(info) => {
            format!(
                "as its {first} in quotes: {} {{ \"{name} = ...\" }}",
                info.name
            )
        }
        (_, names) => {
            let listed = format!("\"flowgauge stack list {}\" shows its options", info.name);
            instead_of(name, names.iter().copied(), &listed)
        }
    })
}

/// Whether the first option is a text that has to be there.
fn is_text(info: &ComponentInfo) -> bool {
    let first = info.options.first().filter(|option| option.is_required);
    first.is_some_and(|option| matches!(option.kind, OptionKind::Text | OptionKind::Filter))
}

fn too_many(info: &ComponentInfo, span: Span) -> Diagnostic {
    let count = info.options.len();
    let message = match count {
        0 => format!("{} takes no values", info.name),
        1 => format!("{} takes one value", info.name),
        _ => format!("{} takes at most {count} values", info.name),
    };
    Diagnostic::error(span, message)
}
