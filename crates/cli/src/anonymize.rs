//! `flowgauge anonymize`, and the policy that is forced on all commands.

use std::path::PathBuf;

use flowgauge_anonymize::{Anonymized, Anonymizer, Error, Policy, forced_policy};

use flowgauge_sys::files;

use crate::capture;
use crate::failure::Failure;
use crate::input::Source;
use crate::options::AnonymizeOptions;
use crate::say::say;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &AnonymizeOptions) -> Result<(), Failure> {
    let policy = Policy::read(files::named(), &options.policy).map_err(|error| failure(&error))?;
    // Whoever asks for quiet gets a file all the same.
    say_made(&policy);
    if !options.common.quiet {
        for note in policy.notes() {
            say!("{note}");
        }
    }
    // One is made before anything is opened, as no random bytes are a reason not to begin.
    Anonymizer::new(&policy).map_err(|error| failure(&error))?;
    capture::write_packets(&options.capture(), |source| within(&policy, source, None))
}

fn say_made(policy: &Policy) {
    if let Some(note) = policy.made_key() {
        say!("note: {note}");
    }
}

/// A policy that is forced on this process, and where it is from.
pub(crate) struct Forced {
    policy: Policy,
    path: PathBuf,
}

impl Forced {
    /// The one that there is, if there is one.
    ///
    /// # Errors
    /// It is there and cannot be applied: nothing may run then.
    pub(crate) fn read() -> Result<Option<Forced>, Failure> {
        let forced = forced_policy().map_err(|error| failure(&error))?;
        Ok(forced.map(|(policy, path)| {
            say_made(&policy);
            Forced { policy, path }
        }))
    }

    /// A source behind which nobody sees what it takes out.
    ///
    /// # Errors
    /// No random bytes.
    pub(crate) fn within(&self, source: Source) -> Result<Source, Failure> {
        let note = format!("packets are anonymized by {}", self.path.display());
        within(&self.policy, source, Some(note))
    }
}

/// What a command of which packets leave on other ways than by its input says where a policy is forced.
///
/// # Errors
/// There is a forced policy.
pub(crate) fn refuse_if_forced(what: &str) -> Result<(), Failure> {
    match Forced::read()? {
        None => Ok(()),
        Some(Forced { path, .. }) => Err(Failure::usage(
            format!(
                "{what}: the policy {} is forced on this machine and cannot be applied to that",
                path.display()
            ),
            "read packets with -r or -i, so that they can be anonymized; or ask the administrator",
        )),
    }
}

fn within(policy: &Policy, source: Source, note: Option<String>) -> Result<Source, Failure> {
    let anonymizer = Anonymizer::new(policy).map_err(|error| failure(&error))?;
    Ok(Box::new(Anonymized::new(source, anonymizer).noting(note)))
}

fn failure(error: &Error) -> Failure {
    let what = error.to_string();
    match error.hint() {
        Some(hint) => Failure::usage(what, hint),
        None => Failure::Usage { what, hint: None },
    }
}
