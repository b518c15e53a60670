//! Patterns as expressions of Vectorscan.

use std::sync::Arc;

use flowgauge_sys::vectorscan::{CompileError, Database, Expression, ExpressionFlags, Scanner};

use crate::error::PatternError;
use crate::pattern::{Pattern, PatternKind, RegexFlags};
use crate::set::Check;

/// A database of all patterns.
#[derive(Debug)]
pub(crate) struct Expressions {
    database: Arc<Database>,
}

impl Expressions {
    /// Compiles all patterns. Regular expressions are asked where their matches begin; those that
    /// cannot say are compiled without, and `checks` tells.
    pub(crate) fn compile(
        patterns: &[Pattern],
        checks: &mut [Check],
    ) -> Result<Expressions, PatternError> {
        let mut expressions: Vec<Expression> = patterns.iter().map(expression).collect();
        loop {
            match Database::compile(&expressions) {
                Ok(database) => {
                    for (check, expression) in checks.iter_mut().zip(&expressions) {
                        check.has_start = expression.flags.contains(ExpressionFlags::START);
                    }
                    return Ok(Expressions {
                        database: Arc::new(database),
                    });
                }
                Err(error) => relax(&mut expressions, &error)?,
            }
        }
    }

    pub(crate) fn stream_bytes(&self) -> usize {
        self.database.stream_bytes()
    }

    pub(crate) fn scanner(&self) -> Result<Scanner, PatternError> {
        Scanner::new(Arc::clone(&self.database)).map_err(|error| failed(&error))
    }
}

/// Asks the expression at fault no longer where its matches begin.
fn relax(expressions: &mut [Expression], error: &CompileError) -> Result<(), PatternError> {
    let CompileError::Expression { index, message } = error else {
        return Err(failed(error));
    };
    match expressions.get_mut(*index) {
        Some(expression) if expression.flags.contains(ExpressionFlags::START) => {
            expression.flags = expression.flags.without(ExpressionFlags::START);
            Ok(())
        }
        _ => Err(PatternError::Pattern {
            index: *index,
            message: message.trim_end_matches('.').to_owned(),
            hint: hint(message).to_owned(),
        }),
    }
}

fn failed(error: &CompileError) -> PatternError {
    PatternError::Engine {
        message: error.to_string(),
        hint: "fewer or shorter patterns, or more memory".to_owned(),
    }
}

fn hint(message: &str) -> &'static str {
    if message.contains("empty buffer") {
        "it matches the empty text, and so everywhere: use + instead of *"
    } else if message.contains("too large") {
        "bounded repeats such as {1,1000} make an expression large"
    } else if message.contains("length exceeds") {
        "Vectorscan takes expressions of 16,000 characters at most, and a byte of a text that is no \
         letter or digit takes four: search for a part of it, or take --matcher aho-corasick"
    } else {
        "the syntax is PCRE's without back references, look-around and atomic groups; a text as it \
         stands goes in quotation marks"
    }
}

fn expression(pattern: &Pattern) -> Expression {
    let none = ExpressionFlags::default();
    let when = |wanted: bool, flag| if wanted { flag } else { none };
    match &pattern.kind {
        PatternKind::Literal { bytes, ignore_case } => Expression {
            text: escaped(bytes),
            flags: when(*ignore_case, ExpressionFlags::CASELESS),
        },
        PatternKind::Regex { text, flags } => Expression {
            text: expanded(text, *flags),
            flags: when(flags.ignore_case, ExpressionFlags::CASELESS)
                .and(when(flags.multi_line, ExpressionFlags::MULTI_LINE))
                .and(when(flags.dot_all, ExpressionFlags::DOT_ALL))
                .and(ExpressionFlags::START),
        },
    }
}

fn expanded(text: &[u8], flags: RegexFlags) -> Vec<u8> {
    if flags.extended {
        // The line feed ends a comment that ends the expression.
        [b"(?x)", text, b"\n"].concat()
    } else {
        text.to_vec()
    }
}

/// An expression for nothing but these bytes.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() {
            text.push(byte);
        } else {
            text.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
    text
}
