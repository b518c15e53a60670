//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use crate::rule::RuleError;

/// Why a policy cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A policy is no policy, or breaks a rule.
    #[error("{path}:{line}: {of}")]
    Policy {
        /// In this file.
        path: PathBuf,
        /// In this line, from 1.
        line: usize,
        /// What is wrong.
        of: RuleError,
    },
    /// A rule that stands in no file.
    #[error("{of}")]
    Rule {
        /// What is wrong.
        of: RuleError,
    },
    /// A policy of more than a mebibyte.
    #[error("{path}: more than 1 MiB is not a policy")]
    TooLong {
        /// In this file.
        path: PathBuf,
    },
    /// A file is no key.
    #[error("{path}: not a key")]
    NoKey {
        /// Which file.
        path: PathBuf,
    },
    /// A key's name is taken, and there is no key: a symbolic link that leads nowhere.
    #[error("{path}: there is no key where this symbolic link leads")]
    LostKey {
        /// Which file.
        path: PathBuf,
    },
    /// Others than the owner can read a key.
    #[error("{path}: others than its owner can read this key")]
    OpenKey {
        /// Which file.
        path: PathBuf,
    },
    /// The administrator's policy can be changed by others than root.
    #[error("{path}: others than root can change this policy")]
    NotOfRoot {
        /// Which file.
        path: PathBuf,
    },
}

impl Error {
    /// What an action with a file came to.
    pub(crate) fn io<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl Fn(io::Error) -> Error + Copy + 'a {
        move |source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Policy { of, .. } | Error::Rule { of } => of.hint.clone(),
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("check the path".to_owned()),
                io::ErrorKind::PermissionDenied => {
                    Some("it must be readable for who runs this".to_owned())
                }
                _ => None,
            },
            Error::TooLong { .. } => Some("name a file that holds a policy".to_owned()),
            Error::NoKey { .. } => Some(
                "a key is 32 bytes, or 64 hexadecimal digits; where there is no file, one is made"
                    .to_owned(),
            ),
            Error::LostKey { .. } => Some("remove the link, or make what it leads to".to_owned()),
            Error::OpenKey { path } => Some(format!("chmod 600 {}", path.display())),
            Error::NotOfRoot { path } => {
                let path = path.display();
                Some(format!("chown root {path} && chmod go-w {path}"))
            }
        }
    }
}
