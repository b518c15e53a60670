//! From a file or an argument to a checked stack.

use std::io::Read as _;
use std::path::Path;

use flowgauge_registry::registry;
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{
    Diagnostic, Program, Severity, Sources, check, format, parse_all, parse_stack,
};

use flowgauge_sys::files::{self, How};

use crate::failure::Failure;
use crate::options::{Cli, GivenStack};
use crate::preset::with_options;
use crate::say::say;

/// More than any stack has.
const MAX_BYTES: u64 = 16 << 20;

/// What some editors begin a text with.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// More mistakes are only counted.
const MAX_SHOWN: usize = 50;

/// A stack as it was given.
pub(super) struct Text {
    /// What messages call it.
    pub(super) name: String,
    /// The text of a file.
    pub(super) text: String,
    /// It is components without a section.
    is_bare: bool,
}

/// Reads what was given.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn given(given: &GivenStack) -> Result<Text, Failure> {
    text(given.file.as_deref(), given.expression.as_deref())
}

/// The same, of a file or an expression.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn text(file: Option<&Path>, expression: Option<&str>) -> Result<Text, Failure> {
    if let Some(expression) = expression {
        return Ok(Text {
            name: "-e".to_owned(),
            text: expression.to_owned(),
            is_bare: true,
        });
    }
    let path = file.unwrap_or(Path::new("-"));
    let (name, read) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), read_all(std::io::stdin()))
    } else {
        let read = files::named().open(path, How::read()).and_then(read_all);
        (path.display().to_string(), read)
    };
    match read {
        Ok(text) => Ok(Text {
            name,
            text,
            is_bare: false,
        }),
        Err(error) => Err(Failure::usage(
            format!("{name}: {error}"),
            "a stack is a text file of components; flowgauge stack list lists them",
        )),
    }
}

fn read_all(from: impl std::io::Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let length = from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if length as u64 > MAX_BYTES {
        return Err(std::io::Error::other("is longer than 16 MiB"));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        std::io::Error::other(format!("is not UTF-8 text (byte {at})"))
    })
}

/// Its syntax, nothing included.
///
/// # Errors
/// What is wrong with it, which was said.
pub(super) fn document(text: Text) -> Result<Document, Failure> {
    let mut sources = Sources::default();
    let name = text.name.clone();
    let file = sources.add(text.name, text.text).unwrap_or_default();
    let parsed = match text.is_bare {
        true => parse_stack(&sources, file).map(Document::of),
        false => flowgauge_stack::parse(&sources, file),
    };
    parsed.map_err(|found| refused(&name, &[*found], &sources))
}

/// A checked stack; warnings are said.
///
/// # Errors
/// What is wrong with it, which was said.
pub(super) fn program(text: Text) -> Result<Program, Failure> {
    let mut sources = Sources::default();
    let name = text.name.clone();
    let file = sources.add(text.name, text.text).unwrap_or_default();
    let document = if text.is_bare {
        parse_stack(&sources, file).map(Document::of)
    } else {
        parse_all(&mut sources, file, &mut include)
    };
    let document = document.map_err(|found| refused(&name, &[*found], &sources))?;
    let checked = check(&document, registry());
    match checked.program {
        Some(program) => {
            for found in &checked.diagnostics {
                say!("{}", found.show(&sources));
            }
            Ok(program)
        }
        None => Err(refused(&name, &checked.diagnostics, &sources)),
    }
}

/// A checked stack of a command's own. What is wrong with it is wrong with an option of the command, or is shown in the
/// stack as it would be written.
///
/// # Errors
/// It has an error.
pub(crate) fn checked(name: &str, document: &Document) -> Result<Program, Failure> {
    let checked = check(document, registry());
    if let Some(program) = checked.program {
        return Ok(program);
    }
    match of_option(name, &checked.diagnostics) {
        Some(failure) => Err(failure),
        None => program(Text {
            name: name.to_owned(),
            text: format(document),
            is_bare: false,
        }),
    }
}

/// The one error of a command's stack as one of the command's option, where it has one of that name: nobody
/// has written the stack.
fn of_option(name: &str, found: &[Diagnostic]) -> Option<Failure> {
    let mut errors = found.iter().filter(|it| it.severity == Severity::Error);
    let (Some(error), None) = (errors.next(), errors.next()) else {
        return None;
    };
    let (in_stack, what) = error.message.split_once(": ")?;
    let command = Cli::built();
    let command = command.find_subcommand(name.rsplit(' ').next()?)?;
    let mut options = command.get_arguments();
    let option = options.find(|it| it.get_id() == in_stack)?.get_long()?;
    let hint = error.hint.as_deref().map(|hint| {
        // Of a value that cannot be read it is the help of the option.
        match hint
            .strip_prefix(in_stack)
            .filter(|it| it.starts_with(": "))
        {
            Some(help) => format!("--{option}{help}"),
            None => with_options(hint),
        }
    });
    Some(Failure::Usage {
        what: format!("--{option}: {what}"),
        hint,
    })
}

/// Reads what a file includes: paths are relative to it.
fn include(including: &str, path: &str) -> Result<(String, String), String> {
    let folder = Path::new(including).parent().unwrap_or(Path::new(""));
    let path = folder.join(path);
    let name = path.display().to_string();
    let text = files::named().open(&path, How::read()).and_then(read_all);
    text.map(|text| (name.clone(), text))
        .map_err(|error| format!("{name}: {error}"))
}

/// Says all that was found.
fn refused(name: &str, found: &[Diagnostic], sources: &Sources) -> Failure {
    for found in found.iter().take(MAX_SHOWN) {
        say!("{}", found.show(sources));
    }
    if let Some(more) = found.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        say!("and {more} more");
    }
    let errors = found
        .iter()
        .filter(|found| found.severity == Severity::Error);
    let count = match errors.count() {
        1 => "an error".to_owned(),
        count => format!("{count} errors"),
    };
    Failure::Usage {
        what: format!("{name} has {count}"),
        hint: None,
    }
}
