//! Applications by the names of their servers.

use std::collections::HashMap;
use std::path::Path;

use flowgauge_sys::files;

/// What is built in.
const BUILT_IN: &str = include_str!("applications.tsv");
/// Bytes of a user's table.
const MOST_BYTES: u64 = 1 << 20;
/// Characters of a bad line that are told.
const MOST_TOLD: usize = 60;
/// Labels of a name that are looked at.
const MOST_LABELS: usize = 16;

/// An application, by its place in a table.
pub(crate) type Application = u16;

/// A user's table.
fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let bytes = files::named()
        .read(path, MOST_BYTES)
        .map_err(|error| format!("cannot read {name}: {error}"))?
        .ok_or_else(|| {
            let most = MOST_BYTES >> 20;
            format!("{name} has more than {most} MiB, which no table has")
        })?;
    String::from_utf8(bytes).map_err(|error| format!("cannot read {name}: {error}"))
}

/// A text as messages show it.
fn told(text: &str) -> String {
    match text.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{:?} ...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The table: which names of servers belong to which application.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    suffixes: HashMap<Box<str>, Application>,
    names: Vec<Box<str>>,
}

impl Applications {
    /// What is built in, and a user's table, whose lines count more.
    ///
    /// # Errors
    /// Why the user's cannot be read: file, line, what was expected.
    pub(crate) fn read(path: Option<&str>) -> Result<Applications, String> {
        let mut table = Applications::default();
        table.add(BUILT_IN, "the built-in table")?;
        if let Some(path) = path {
            table.add(&read(Path::new(path))?, path)?;
        }
        Ok(table)
    }

    fn add(&mut self, text: &str, file: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = || format!("{file}:{}", number + 1);
            let Some((suffix, name)) = line.split_once([' ', '\t']) else {
                let expected = "expected a name of hosts, blanks, and an application's name";
                return Err(format!("{}: {expected}, found {}", place(), told(line)));
            };
            let suffix = suffix.trim_start_matches("*.").trim_matches('.');
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if suffix.is_empty() || !suffix.bytes().all(is_name) {
                return Err(format!(
                    "{}: {} is not a name of hosts",
                    place(),
                    told(suffix)
                ));
            }
            let name = name.trim();
            let known = self.names.iter().position(|it| **it == *name);
            let application = known.unwrap_or_else(|| {
                self.names.push(name.into());
                self.names.len() - 1
            });
            let Ok(application) = Application::try_from(application) else {
                return Err(format!("{}: too many applications", place()));
            };
            let suffix = suffix.to_ascii_lowercase().into_boxed_str();
            self.suffixes.insert(suffix, application);
        }
        Ok(())
    }

    /// The application that a server of this name is of.
    pub(crate) fn of(&self, host: &str) -> Option<Application> {
        let host = host.trim_end_matches('.');
        // A port stands behind the name in HTTP.
        let host = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        if host.is_empty() || host.len() > 255 {
            return None;
        }
        let lower = host.to_ascii_lowercase();
        let mut rest = lower.as_str();
        for _ in 0..MOST_LABELS {
            if let Some(application) = self.suffixes.get(rest) {
                return Some(*application);
            }
            rest = rest.split_once('.')?.1;
        }
        None
    }

    /// An application's name.
    pub(crate) fn name(&self, application: Application) -> Option<&str> {
        self.names.get(usize::from(application)).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(table: &'a Applications, host: &str) -> Option<&'a str> {
        table.of(host).and_then(|it| table.name(it))
    }

    #[test]
    fn the_longest_suffix_of_whole_labels_counts() {
        let table = Applications::read(None).unwrap();
        assert_eq!(name(&table, "www.google.com"), Some("Google"));
        assert_eq!(name(&table, "Mail.Google.com."), Some("Gmail"));
        assert_eq!(name(&table, "a.b.mail.google.com:8443"), Some("Gmail"));
        assert_eq!(name(&table, "notgoogle.com"), None);
        assert_eq!(name(&table, "com"), None);
        assert_eq!(name(&table, ""), None);
        assert_eq!(name(&table, &"a.".repeat(200)), None);
    }

    #[test]
    fn a_users_lines_count_more_and_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applications");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Applications::read(path.to_str())
        };
        let table = read("# ours\n*.example.com  Our shop\ngoogle.com\tSearch\n").unwrap();
        assert_eq!(name(&table, "a.example.com"), Some("Our shop"));
        assert_eq!(name(&table, "www.google.com"), Some("Search"));
        assert_eq!(name(&table, "mail.google.com"), Some("Gmail"));
        let error = read("example.com\n").unwrap_err();
        assert!(error.contains(":1: expected a name of hosts"), "{error}");
        let error = read("\nexa/mple.com X\n").unwrap_err();
        assert!(
            error.contains(":2: \"exa/mple.com\" is not a name"),
            "{error}"
        );
        assert!(Applications::read(Some("/nowhere/at/all")).is_err());
        // Too large, wherever what is read of it ends.
        let error = read(&"é".repeat(1 << 20)).unwrap_err();
        assert!(error.contains("more than 1 MiB"), "{error}");
    }
}
