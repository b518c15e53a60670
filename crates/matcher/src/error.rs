//! What can be wrong with patterns.

/// Why patterns cannot be read or compiled, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A line cannot be read as a pattern.
    #[error("line {line}: {message}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        message: String,
        /// What to write instead.
        hint: String,
    },
    /// A pattern cannot be compiled.
    #[error("pattern {}: {message}", .index + 1)]
    Pattern {
        /// Its place in the list, from 0.
        index: usize,
        /// What is wrong.
        message: String,
        /// What to write instead.
        hint: String,
    },
    /// The engine asked for, or memory, is missing.
    #[error("{message}")]
    Engine {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: String,
    },
}

impl PatternError {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        match self {
            PatternError::Line { hint, .. }
            | PatternError::Pattern { hint, .. }
            | PatternError::Engine { hint, .. } => hint,
        }
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        match self {
            PatternError::Line { message, .. }
            | PatternError::Pattern { message, .. }
            | PatternError::Engine { message, .. } => message,
        }
    }
}
