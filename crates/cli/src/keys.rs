//! `flowgauge keys`

use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use flowgauge_link::{Error, Identity, KeyFile, KeyFolder};
use flowgauge_record::text::date_text;

use crate::credential;
use crate::failure::Failure;
use crate::options::{IdentityOptions, KeysCommand, KeysOptions};
use crate::say::say;

/// A certificate that expires sooner is pointed out.
const SOON: i64 = 30 * 86_400;

/// Runs the command.
///
/// # Errors
/// When keys are there already, or not there, or cannot be written.
pub(crate) fn run(options: &KeysOptions) -> Result<(), Failure> {
    match &options.command {
        KeysCommand::Authority(options) => {
            let folder = folder(options.keys.as_deref());
            let made = folder.create_authority().map_err(|error| of_link(&error))?;
            print(&folder, &[made])?;
            say!(
                "hint: flowgauge keys add NAME makes keys for a machine; authority.key stays here"
            );
            Ok(())
        }
        KeysCommand::Add(options) => {
            let folder = folder(options.folder.keys.as_deref());
            let until = credential::end(&options.expires)?;
            let made = folder.add_until(&options.name, &options.host, until);
            let made = made.map_err(|error| of_link(&error))?;
            print(&folder, &[made])?;
            let name = &options.name;
            say!("hint: that machine needs authority.crt, {name}.crt and {name}.key of the folder");
            Ok(())
        }
        KeysCommand::Show(options) => {
            let folder = folder(options.keys.as_deref());
            let files = folder.list().map_err(|error| of_link(&error))?;
            print(&folder, &files)
        }
    }
}

/// The folder of keys that an option names, else the usual one.
pub(crate) fn folder(path: Option<&std::path::Path>) -> KeyFolder {
    path.map_or_else(KeyFolder::usual, KeyFolder::new)
}

/// Whose key options name.
///
/// # Errors
/// When there is none that can be used.
pub(crate) fn identity(options: &IdentityOptions) -> Result<Identity, Failure> {
    let folder = folder(options.keys.as_deref());
    let identity = folder.identity(options.identity.as_deref());
    identity.map_err(|error| of_link(&error))
}

/// A failure to start.
pub(crate) fn of_link(error: &Error) -> Failure {
    let (what, hint) = (error.to_string(), error.hint());
    match error {
        Error::File { source, .. } if source.kind() == ErrorKind::StorageFull => {
            Failure::run(what, hint)
        }
        _ => Failure::Usage { what, hint },
    }
}

/// A block of lines for each certificate.
fn print(folder: &KeyFolder, files: &[KeyFile]) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs() as i64);
    let mut text = format!("{}\n", folder.path().display());
    for file in files {
        let name = file.name.as_deref().unwrap_or("(authority)");
        text += &format!("\n{name}\n");
        text += &format!("  fingerprint  {}\n", file.fingerprint);
        text += &format!("  public key   {}\n", file.key);
        if !file.hosts.is_empty() {
            text += &format!("  hosts        {}\n", file.hosts.join(", "));
        }
        let until = day(file.validity.until);
        text += &match file.validity.until - now {
            left if left < 0 => format!("  valid        until {until}: it has expired\n"),
            left if left < SOON => {
                format!("  valid        until {until}: {} days\n", left / 86_400)
            }
            _ => format!("  valid        until {until}\n"),
        };
        let key = if file.has_key { "here" } else { "not here" };
        text += &format!("  private key  {key}\n");
    }
    credential::print(&text)
}

/// The day of a time in seconds since 1970.
fn day(seconds: i64) -> String {
    let mut text = date_text(seconds);
    text.truncate(text.find('T').unwrap_or(text.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_310_625, "2026-11-22"),
            (4_102_444_800, "2100-01-01"),
        ] {
            assert_eq!(day(seconds), date);
        }
    }
}
