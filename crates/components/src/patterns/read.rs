//! Patterns from a stack's options and from files.

use std::io;
use std::path::Path;

use flowgauge_matcher::{
    Engine, Pattern, PatternError, PatternSet, ReadOptions, read_patterns_with,
};
use flowgauge_record::words::count;
use flowgauge_stack::{Failure, SettingError, Settings};
use flowgauge_sys::ending::without_stop;
use flowgauge_sys::files;

/// Largest file of patterns that is read; a device that never ends is not.
const LARGEST_FILE: u64 = 64 << 20;

/// Which patterns, and how they are meant.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    given: Vec<String>,
    files: Vec<String>,
    is_fixed: bool,
    ignore_case: bool,
    pub(super) engine: Engine,
}

impl Wanted {
    /// What the options say. No file is opened.
    ///
    /// # Errors
    /// When they name none, or one of the option `pattern` cannot be read.
    pub(super) fn new(settings: &Settings) -> Result<Wanted, SettingError> {
        let lines = |option| -> Vec<String> {
            let text = settings.text(option).unwrap_or_default();
            let lines = text.split('\n').filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        let wanted = Wanted {
            given: lines("pattern"),
            files: lines("file"),
            is_fixed: settings.flag("fixed"),
            ignore_case: settings.flag("ignore_case"),
            engine: match settings.text("matcher") {
                Some("vectorscan") => Engine::Vectorscan,
                Some("aho-corasick") => Engine::AhoCorasick,
                _ => Engine::Automatic,
            },
        };
        if wanted.given.is_empty() && wanted.files.is_empty() {
            return Err(
                SettingError::of_all("there is nothing to find").with_hint("set pattern, or file")
            );
        }
        for line in &wanted.given {
            wanted.read(line.as_bytes(), 1).map_err(|error| {
                SettingError::of("pattern", format!("{line}: {}", error.message()))
                    .with_hint(error.hint())
            })?;
        }
        Ok(wanted)
    }

    fn read(&self, text: &[u8], first_id: u64) -> Result<Vec<Pattern>, PatternError> {
        let options = ReadOptions {
            fixed: self.is_fixed,
            ignore_case: self.ignore_case,
            first_id,
        };
        read_patterns_with(text, options)
    }

    /// Reads the files and compiles it all.
    ///
    /// # Errors
    /// When a file or a pattern cannot be read, or a pattern cannot be compiled.
    pub(super) fn compile(&self) -> Result<PatternSet, Failure> {
        let mut patterns = Vec::new();
        let mut origins = Vec::new();
        for line in &self.given {
            origins.push((patterns.len(), Origin::Given(line.clone())));
            let read = self.read(line.as_bytes(), patterns.len() as u64 + 1);
            patterns.extend(read.map_err(|error| failure("", &error))?);
        }
        for path in &self.files {
            let (name, text) = text_of(path)?;
            origins.push((patterns.len(), Origin::File(name.clone())));
            let read = self.read(&text, patterns.len() as u64 + 1);
            patterns.extend(read.map_err(|error| {
                let place = match &error {
                    PatternError::Line { line, .. } => format!("{name}:{line}: "),
                    _ => format!("{name}: "),
                };
                failure(&place, &error)
            })?);
        }
        let lines: Vec<usize> = patterns.iter().map(|pattern| pattern.line).collect();
        let what = format!("compiling {}", count(patterns.len() as u64, "pattern"));
        let compiled = without_stop(|| what, || PatternSet::compile(patterns, self.engine));
        compiled.map_err(|error| {
            let place = match &error {
                PatternError::Pattern { index, .. } => place_of(&origins, &lines, *index),
                _ => String::new(),
            };
            failure(&place, &error)
        })
    }
}

/// Where patterns come from.
enum Origin {
    Given(String),
    File(String),
}

/// What is wrong, and where.
pub(super) fn failure(place: &str, error: &PatternError) -> Failure {
    Failure {
        message: format!("{place}{}", error.message()),
        hint: Some(error.hint().to_owned()),
    }
}

/// A file's name for people, and what is in it.
fn text_of(path: &str) -> Result<(String, Vec<u8>), Failure> {
    let failed = |source: io::Error| {
        let error = flowgauge_capture::Error::io("read", Path::new(path))(source);
        Failure::of(&error, error.hint())
    };
    let (name, read) = if path == "-" {
        let read = files::read_limited(io::stdin().lock(), LARGEST_FILE);
        ("standard input", read)
    } else {
        (path, files::named().read(Path::new(path), LARGEST_FILE))
    };
    let text = read.map_err(failed)?.ok_or_else(|| {
        Failure::new(format!("{name} is larger than 64 MiB"))
            .with_hint("a file of patterns has one in each line; is this a capture?")
    })?;
    Ok((name.to_owned(), text))
}

/// `patterns.txt:7: ` of the pattern with number `index`.
fn place_of(origins: &[(usize, Origin)], lines: &[usize], index: usize) -> String {
    let origin = origins.iter().rev().find(|(first, _)| *first <= index);
    let line = lines.get(index).copied().unwrap_or(0);
    match origin {
        Some((_, Origin::Given(text))) => format!("pattern {text}: "),
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
        assert_eq!(place_of(&origins, &lines, 0), "pattern a: ");
        assert_eq!(place_of(&origins, &lines, 2), "two:9: ");
    }
}
