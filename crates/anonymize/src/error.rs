//! What can go wrong.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::rule::RuleError;

/// Why a policy cannot be applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    Io {
        /// What was to be done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A policy is no policy, or breaks a rule.
    Policy {
        /// In this file.
        path: PathBuf,
        /// In this line, from 1.
        line: usize,
        /// What is wrong.
        of: RuleError,
    },
    /// A rule that stands in no file.
    Rule {
        /// What is wrong.
        of: RuleError,
    },
    /// A policy of more than a mebibyte.
    TooLong {
        /// In this file.
        path: PathBuf,
    },
    /// A file is no key.
    NoKey {
        /// Which file.
        path: PathBuf,
    },
    /// A key's name is taken, and there is no key: a symbolic link that leads nowhere.
    LostKey {
        /// Which file.
        path: PathBuf,
    },
    /// Others than the owner can read a key.
    OpenKey {
        /// Which file.
        path: PathBuf,
    },
    /// The administrator's policy can be changed by others than root.
    NotOfRoot {
        /// Which file.
        path: PathBuf,
    },
}

impl Error {
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                action,
                path,
                source,
            } => write!(f, "cannot {action} {}: {source}", path.display()),
            Error::Policy { path, line, of } => write!(f, "{}:{line}: {of}", path.display()),
            Error::Rule { of } => of.fmt(f),
            Error::TooLong { path } => {
                write!(f, "{}: more than 1 MiB is no policy", path.display())
            }
            Error::NoKey { path } => write!(f, "{}: this is no key", path.display()),
            Error::LostKey { path } => write!(
                f,
                "{}: there is no key where this symbolic link leads",
                path.display()
            ),
            Error::OpenKey { path } => write!(
                f,
                "{}: others than its owner can read this key",
                path.display()
            ),
            Error::NotOfRoot { path } => write!(
                f,
                "{}: others than root can change this policy",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}
