//! What an agent remembers over a restart: the stacks that it was told to run, a file each.
//!
//! The files stand apart from what stacks may write: who wrote them himself could give himself another
//! name. They are checked again, by the rights of the day, before anything of them runs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::MOST_MESSAGE;
use super::job::Definition;

/// How the names of its files end.
const ENDING: &str = ".json";

/// A folder of definitions.
#[derive(Debug)]
pub(super) struct Memory {
    folder: PathBuf,
}

/// A stack that ran when the agent was there last.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Remembered {
    #[serde(skip)]
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) definition: Definition,
    /// The process that it was.
    pub(super) process: u32,
}

impl Memory {
    /// In a folder, which is made.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn open(folder: &Path) -> io::Result<Memory> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        Ok(Memory {
            folder: fs::canonicalize(folder)?,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Remembers a stack, in place of one of the same name.
    ///
    /// # Errors
    /// It cannot be written; what was remembered before is.
    pub(super) fn keep(&self, name: &str, definition: &Definition, process: u32) -> io::Result<()> {
        let text = serde_json::to_vec(&Remembered {
            name: name.to_owned(),
            definition: definition.clone(),
            process,
        })?;
        let new = self.folder.join(format!("{name}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(new, self.path(name))
    }

    /// Remembers a stack no more.
    ///
    /// # Errors
    /// It was remembered, and cannot be removed.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What is remembered, by name, and what cannot be read.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn all(&self) -> io::Result<(Vec<Remembered>, Vec<String>)> {
        let (mut all, mut unreadable) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder)? {
            let file = entry?.file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(ENDING)) else {
                continue;
            };
            match self.one(name) {
                Some(remembered) => all.push(remembered),
                None => unreadable.push(name.to_owned()),
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((all, unreadable))
    }

    fn one(&self, name: &str) -> Option<Remembered> {
        let mut text = String::new();
        let file = File::open(self.path(name)).ok()?;
        // With what JSON makes of some characters.
        let most = 8 * MOST_MESSAGE as u64;
        file.take(most).read_to_string(&mut text).ok()?;
        let read: Remembered = serde_json::from_str(&text).ok()?;
        Some(Remembered {
            name: name.to_owned(),
            ..read
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}{ENDING}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::open(&folder.path().join("state")).unwrap();
        let definition = Definition {
            text: "tcpscan -\ncount \"\"".to_owned(),
            is_bare: true,
            read: vec!["a.pcap".to_owned()],
            ..Definition::default()
        };
        memory.keep("b", &definition, 7).unwrap();
        memory.keep("a", &definition, 8).unwrap();
        memory.keep("b", &definition, 9).unwrap();
        fs::write(memory.folder().join("c.json"), "{").unwrap();
        let (all, unreadable) = memory.all().unwrap();
        let found: Vec<(&str, u32)> = all
            .iter()
            .map(|one| (one.name.as_str(), one.process))
            .collect();
        assert_eq!(found, [("a", 8), ("b", 9)]);
        assert_eq!(all[1].definition.text, definition.text);
        assert_eq!(all[1].definition.read, definition.read);
        assert_eq!(unreadable, ["c"]);
        memory.forget("a").unwrap();
        memory.forget("a").unwrap();
        assert_eq!(memory.all().unwrap().0.len(), 1);
    }
}
