//! A policy that who runs a program cannot choose.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use flowgauge_sys::files::Folder;

use crate::error::Error;
use crate::policy::Policy;

/// The administrator's policy: where this file is, nothing leaves a command that reads packets but by it.
pub const FORCED_POLICY: &str = "/etc/flowgauge/anonymize.toml";

/// An environment variable that names a policy for a process where the administrator has none, as in the
/// description of a service.
pub const FORCED_BY: &str = "FLOWGAUGE_ANONYMIZE";

/// The policy that is forced on this process, and where it stands; `None`: there is none.
///
/// # Errors
/// It is there and cannot be read, is no policy, or others than root could change it. Nothing may run then.
pub fn forced_policy() -> Result<Option<(Policy, PathBuf)>, Error> {
    let path = Path::new(FORCED_POLICY);
    match Folder::anywhere().metadata(path) {
        Ok(metadata) => {
            if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
                return Err(Error::NotOfRoot {
                    path: path.to_owned(),
                });
            }
            return Ok(Some((
                Policy::read(&Folder::anywhere(), path)?,
                path.to_owned(),
            )));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("read", path)(error)),
    }
    match std::env::var_os(FORCED_BY) {
        Some(path) if !path.is_empty() => {
            let path = PathBuf::from(path);
            Ok(Some((Policy::read(&Folder::anywhere(), &path)?, path)))
        }
        _ => Ok(None),
    }
}
