//! Compiled patterns.

use crate::automaton::Automata;
use crate::error::PatternError;
use crate::expressions::Expressions;
use crate::pattern::{Bounds, Pattern, PatternKind, RegexFlags};

/// What searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Vectorscan where it can be loaded, otherwise [`Engine::AhoCorasick`].
    #[default]
    Automatic,
    /// The Vectorscan library.
    Vectorscan,
    /// The crate `aho-corasick`: no regular expressions.
    AhoCorasick,
}

/// Patterns, compiled once for all threads.
#[derive(Debug)]
pub struct PatternSet {
    patterns: Vec<Pattern>,
    pub(crate) checks: Vec<Check>,
    pub(crate) machine: Machine,
}

#[derive(Debug)]
pub(crate) enum Machine {
    Vectorscan(Expressions),
    AhoCorasick(Box<Automata>),
}

/// What is known of a match before the engine's word is passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    /// Length of a literal; 0 for a regular expression.
    pub(crate) len: u32,
    /// Whether a regular expression's matches say where they begin.
    pub(crate) has_start: bool,
    /// Whether what comes before a match may decide about it.
    pub(crate) looks_back: bool,
    pub(crate) bounds: Option<Bounds>,
}

impl PatternSet {
    /// Compiles patterns.
    ///
    /// # Errors
    /// When there are none, one cannot be compiled, or the engine asked for is not there.
    pub fn compile(patterns: Vec<Pattern>, engine: Engine) -> Result<PatternSet, PatternError> {
        if patterns.is_empty() {
            return Err(PatternError::Engine {
                message: "there are no patterns".to_owned(),
                hint: "a file of patterns has one in each line; empty lines and lines with # do not count".to_owned(),
            });
        }
        let mut checks: Vec<Check> = patterns.iter().map(Check::of).collect();
        let missing = match engine {
            Engine::AhoCorasick => None,
            Engine::Automatic | Engine::Vectorscan => match flowgauge_sys::vectorscan::version() {
                Ok(_) => {
                    let machine =
                        Machine::Vectorscan(Expressions::compile(&patterns, &mut checks)?);
                    return Ok(PatternSet {
                        patterns,
                        checks,
                        machine,
                    });
                }
                Err(error) if engine == Engine::Vectorscan => {
                    return Err(PatternError::Engine {
                        message: error.to_string(),
                        hint: INSTALL.to_owned(),
                    });
                }
                Err(error) => Some(error),
            },
        };
        let is_regex = |pattern: &Pattern| matches!(pattern.kind, PatternKind::Regex { .. });
        if let Some(index) = patterns.iter().position(is_regex) {
            return Err(PatternError::Pattern {
                index,
                message: match missing {
                    Some(error) => format!("regular expressions need Vectorscan: {error}"),
                    None => "aho-corasick knows no regular expressions".to_owned(),
                },
                hint: match engine {
                    Engine::AhoCorasick => "omit --matcher".to_owned(),
                    _ => INSTALL.to_owned(),
                },
            });
        }
        let machine = Machine::AhoCorasick(Box::new(Automata::compile(&patterns)?));
        Ok(PatternSet {
            patterns,
            checks,
            machine,
        })
    }

    /// The patterns; matches name them by their place here.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The engine that searches; never [`Engine::Automatic`].
    pub fn engine(&self) -> Engine {
        match self.machine {
            Machine::Vectorscan(_) => Engine::Vectorscan,
            Machine::AhoCorasick(_) => Engine::AhoCorasick,
        }
    }

    /// Bytes of memory for each stream that bytes were scanned of, besides its [`StreamState`](crate::StreamState).
    pub fn stream_bytes(&self) -> usize {
        match &self.machine {
            Machine::Vectorscan(expressions) => expressions.stream_bytes(),
            Machine::AhoCorasick(_) => 0,
        }
    }
}

const INSTALL: &str = "install Vectorscan: apt install libvectorscan5";

impl Check {
    fn of(pattern: &Pattern) -> Check {
        let (len, looks_back) = match &pattern.kind {
            PatternKind::Literal { bytes, .. } => (bytes.len() as u32, false),
            PatternKind::Regex { text, .. } => (0, RegexFlags::looks_back(text)),
        };
        Check {
            len,
            has_start: false,
            looks_back,
            bounds: pattern.bounds,
        }
    }
}
