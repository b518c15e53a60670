//! Patterns from the command line and from files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flowgauge_matcher::{
    Engine, Pattern, PatternError, PatternSet, ReadOptions, read_patterns_with,
};

use crate::failure::Failure;
use crate::options::{MatchEngine, PatternOptions};

/// Largest file of patterns that is read; a device that never ends is not.
const LARGEST_FILE: u64 = 64 << 20;

/// Reads and compiles the patterns that `options` name.
///
/// # Errors
/// When a file or a pattern cannot be read, or a pattern cannot be compiled.
pub(crate) fn compile(options: &PatternOptions) -> Result<PatternSet, Failure> {
    let mut reader = Reader {
        options,
        patterns: Vec::new(),
        origins: Vec::new(),
    };
    for given in &options.given {
        reader.given(given)?;
    }
    for path in &options.files {
        reader.file(path)?;
    }
    let Reader {
        patterns, origins, ..
    } = reader;
    let lines: Vec<usize> = patterns.iter().map(|pattern| pattern.line).collect();
    let engine = match options.matcher {
        MatchEngine::Auto => Engine::Automatic,
        MatchEngine::Vectorscan => Engine::Vectorscan,
        MatchEngine::AhoCorasick => Engine::AhoCorasick,
    };
    PatternSet::compile(patterns, engine).map_err(|error| {
        let place = match &error {
            PatternError::Pattern { index, .. } => place_of(&origins, &lines, *index),
            _ => String::new(),
        };
        Failure::usage(format!("{place}{}", error.message()), error.hint())
    })
}

struct Reader<'a> {
    options: &'a PatternOptions,
    patterns: Vec<Pattern>,
    /// Where patterns come from: number of the first one, and a name for people.
    origins: Vec<(usize, Origin)>,
}

enum Origin {
    Given(String),
    File(String),
}

impl Reader<'_> {
    fn given(&mut self, text: &OsStr) -> Result<(), Failure> {
        let shown = text.to_string_lossy().into_owned();
        let before = self.patterns.len();
        self.origins.push((before, Origin::Given(shown.clone())));
        self.read(text.as_bytes()).map_err(|error| {
            Failure::usage(format!("-e {shown}: {}", error.message()), error.hint())
        })?;
        if self.patterns.len() == before {
            return Err(Failure::usage(
                format!("-e \"{shown}\" is no pattern: empty lines and lines with # do not count"),
                "in quotation marks it is a text: -e '\"# text\"'",
            ));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let from_stdin = path.as_os_str() == "-";
        let shown = if from_stdin {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        let failed = |source: io::Error| {
            Failure::opening(&flowgauge_capture::Error::Io {
                action: "read",
                path: path.to_owned(),
                source,
            })
        };
        let mut text = Vec::new();
        let read = if from_stdin {
            io::stdin()
                .lock()
                .take(LARGEST_FILE + 1)
                .read_to_end(&mut text)
        } else {
            let file = File::open(path).map_err(failed)?;
            file.take(LARGEST_FILE + 1).read_to_end(&mut text)
        };
        read.map_err(failed)?;
        if text.len() as u64 > LARGEST_FILE {
            return Err(Failure::usage(
                format!("{shown} is larger than 64 MiB"),
                "-f reads files with one pattern per line; captures are read with -r",
            ));
        }
        self.origins
            .push((self.patterns.len(), Origin::File(shown.clone())));
        self.read(&text).map_err(|error| {
            let what = match &error {
                PatternError::Line { line, message, .. } => format!("{shown}:{line}: {message}"),
                other => format!("{shown}: {other}"),
            };
            Failure::usage(what, error.hint())
        })
    }

    fn read(&mut self, text: &[u8]) -> Result<(), PatternError> {
        let options = ReadOptions {
            fixed: self.options.fixed_strings,
            ignore_case: self.options.ignore_case,
            first_id: self.patterns.len() as u64 + 1,
        };
        self.patterns.extend(read_patterns_with(text, options)?);
        Ok(())
    }
}

/// `patterns.txt:7: ` of the pattern with number `index`.
fn place_of(origins: &[(usize, Origin)], lines: &[usize], index: usize) -> String {
    let origin = origins.iter().rev().find(|(first, _)| *first <= index);
    let line = lines.get(index).copied().unwrap_or(0);
    match origin {
        Some((_, Origin::Given(text))) => format!("-e {text}: "),
        Some((_, Origin::File(name))) => format!("{name}:{line}: "),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_where_they_were_written() {
        let origins = [
            (0, Origin::Given("a".to_owned())),
            (1, Origin::File("one".to_owned())),
            (1, Origin::File("two".to_owned())),
        ];
        let lines = [1, 4, 9];
        assert_eq!(place_of(&origins, &lines, 0), "-e a: ");
        assert_eq!(place_of(&origins, &lines, 2), "two:9: ");
    }
}
