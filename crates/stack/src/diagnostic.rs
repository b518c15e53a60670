//! Errors and warnings about a stack, with their positions.

use core::fmt;

use crate::source::{Sources, Span};

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The position in the text.
    pub span: Span,
    /// The message: "expected a component, found '>'".
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The stack runs, but probably not as intended.
    Warning,
    /// The stack cannot run.
    Error,
}

impl Severity {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl Diagnostic {
    /// An error.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            span,
            message: message.into(),
            hint: None,
        }
    }

    /// A warning.
    pub fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(span, message)
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }

    /// Formats it for users: position, message, the line with the position underlined, hint.
    pub fn show<'a>(&'a self, sources: &'a Sources) -> impl fmt::Display + 'a {
        Shown {
            diagnostic: self,
            sources,
        }
    }
}

struct Shown<'a> {
    diagnostic: &'a Diagnostic,
    sources: &'a Sources,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown {
            diagnostic,
            sources,
        } = self;
        let place = sources.position(diagnostic.span);
        write!(
            f,
            "{}:{}:{}: {}: {}\n{}",
            sources.name(diagnostic.span.file),
            place.line,
            place.column,
            diagnostic.severity.name(),
            diagnostic.message,
            sources.excerpt(diagnostic.span),
        )?;
        match &diagnostic.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
