//! Which sensors: `eth0` of this machine's, `host:eth0`, `[2001:db8::1]:2233:eth0`, several of them separated by commas, and names
//! of scopes (`campus/*`, or `campus/eth0` for those of its devices that are called so) that a file defines.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The environment's variable that names the file of scopes.
pub const FILE_VARIABLE: &str = "FLOWGAUGE_SCOPES";
/// Where agents listen, unless they are told otherwise.
pub const DEFAULT_PORT: u16 = 2233;
/// Members that a scope may have.
const MOST: usize = 10_000;
/// The largest file of scopes.
const MOST_BYTES: u64 = 1 << 20;

/// A device of a sensor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Where the sensor's agent listens, as `host:port`; nothing: the sensor is this machine's.
    pub address: Option<String>,
    /// The device.
    pub device: String,
}

impl core::fmt::Display for Member {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.address {
            Some(address) => {
                let usual = format!(":{DEFAULT_PORT}");
                let host = address.strip_suffix(&usual).unwrap_or(address);
                write!(f, "{host}:{}", self.device)
            }
            None => f.write_str(&self.device),
        }
    }
}

/// Why a text names no sensors.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// A part of it means nothing.
    #[error("\"{0}\" names no device of a sensor")]
    Member(String),
    /// No such name is defined.
    #[error("there is no scope \"{name}\" in {file}")]
    Unknown {
        /// The name.
        name: String,
        /// Where it was looked for.
        file: String,
    },
    /// The file of scopes cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// A line of it means nothing.
    #[error("{file}, line {line}: \"{text}\" defines no scope")]
    Line {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// There are too many.
    #[error("a scope has {MOST} members at most")]
    Many,
}

impl ScopeError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ScopeError::Member(_) => {
                "write eth0, host:eth0, host:2233:eth0, [2001:db8::1]:eth0, or NAME/* for a scope"
            }
            ScopeError::Line { .. } => "a line is: campus = host1:eth0, host2:eth0",
            ScopeError::Unknown { .. } | ScopeError::File { .. } => {
                "FLOWGAUGE_SCOPES names the file; else ~/.config/flowgauge/scopes, then /etc/flowgauge/scopes"
            }
            ScopeError::Many => "ask several scopes",
        }
    }
}

/// An address as `host:port`, of what may have no port.
pub fn with_port(host: &str) -> Option<String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match host.split_once(':') {
            // More than one colon: an address of IPv6 alone.
            Some((_, rest)) if rest.contains(':') => (host, ""),
            Some((name, _)) => host.split_at(name.len()),
            None => (host, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return None,
    };
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if name.is_empty() || !name.chars().all(is_good) {
        return None;
    }
    Some(match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    })
}

/// The members that a text names, in its order.
///
/// # Errors
/// [`ScopeError`].
pub fn members(text: &str) -> Result<Vec<Member>, ScopeError> {
    members_by(text, &file)
}

/// The same, with another file of scopes.
fn members_by(
    text: &str,
    file: &dyn Fn() -> Result<(String, String), ScopeError>,
) -> Result<Vec<Member>, ScopeError> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('/') {
            Some((name, device)) if !part.contains(':') => {
                let (path, text) = file()?;
                let found = defined(name, &path, &text)?;
                let wanted = |member: &Member| device == "*" || member.device == device;
                let before = all.len();
                all.extend(found.into_iter().filter(wanted));
                if all.len() == before {
                    return Err(ScopeError::Member(part.to_owned()));
                }
            }
            _ => all.push(member(part)?),
        }
        if all.len() > MOST {
            return Err(ScopeError::Many);
        }
    }
    Ok(all)
}

fn member(text: &str) -> Result<Member, ScopeError> {
    let wrong = || ScopeError::Member(text.to_owned());
    let (address, device) = match text.rsplit_once(':') {
        Some((host, device)) => (Some(with_port(host).ok_or_else(wrong)?), device),
        None => (None, text),
    };
    let is_good = |c: char| !c.is_whitespace() && !"]/".contains(c);
    if device.is_empty() || !device.chars().all(is_good) {
        return Err(wrong());
    }
    Ok(Member {
        address,
        device: device.to_owned(),
    })
}

/// The members of a scope that a file defines: lines of `name = member, member`, and of comments.
fn defined(name: &str, file: &str, text: &str) -> Result<Vec<Member>, ScopeError> {
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = || ScopeError::Line {
            file: file.to_owned(),
            line: at + 1,
            text: line.to_owned(),
        };
        let (known, members) = line.split_once('=').ok_or_else(wrong)?;
        if known.trim() == name {
            let members = members.split(',').map(|text| member(text.trim()));
            return members.collect::<Result<_, _>>().map_err(|_| wrong());
        }
    }
    Err(ScopeError::Unknown {
        name: name.to_owned(),
        file: file.to_owned(),
    })
}

/// The file of scopes: its path and text.
fn file() -> Result<(String, String), ScopeError> {
    let named = env::var_os(FILE_VARIABLE).map(PathBuf::from);
    let candidates = match named {
        Some(path) => vec![path],
        None => {
            let home = env::var_os("HOME").map(PathBuf::from);
            let own = home.map(|home| home.join(".config/flowgauge/scopes"));
            own.into_iter()
                .chain([PathBuf::from("/etc/flowgauge/scopes")])
                .collect()
        }
    };
    let path = candidates.iter().find(|path| path.exists());
    let path = path.unwrap_or(&candidates[candidates.len() - 1]);
    let read = fs::metadata(path).and_then(|metadata| match metadata.len() {
        0..=MOST_BYTES => fs::read_to_string(path),
        _ => Err(io::Error::other("it is too large")),
    });
    let name = path.display().to_string();
    match read {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(ScopeError::File { file: name, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "# scopes\ncampus = a:eth0, b:2234:eth1, [fe80::1%eth0]:eth0 # three\nbroken\n";

    fn names(text: &str) -> Result<Vec<String>, ScopeError> {
        let file = || Ok(("scopes".to_owned(), FILE.to_owned()));
        let members = members_by(text, &file)?;
        Ok(members
            .iter()
            .map(|it| format!("{}>{}", it.address.as_deref().unwrap_or("-"), it.device))
            .collect())
    }

    #[test]
    fn devices_hosts_ports_and_scopes_are_told_apart() {
        for (text, expected) in [
            ("eth0", &["->eth0"][..]),
            ("h1:eth0, h2:7:lo", &["h1:2233>eth0", "h2:7>lo"]),
            ("[2001:db8::1]:eth0", &["[2001:db8::1]:2233>eth0"]),
            ("[2001:db8::1]:99:eth0", &["[2001:db8::1]:99>eth0"]),
            (
                "campus/*",
                &["a:2233>eth0", "b:2234>eth1", "[fe80::1%eth0]:2233>eth0"],
            ),
            ("lo,campus/eth1", &["->lo", "b:2234>eth1"]),
        ] {
            assert_eq!(names(text).unwrap(), expected, "{text}");
        }
        for wrong in [
            "",
            "a:",
            ":eth0",
            "a:b:eth0",
            "a:0:eth0",
            "a:70000:eth0",
            "[::1:eth0",
            "a b:eth0",
            "a:eth 0",
            "a,,b",
            "campus/eth9",
            "other/*",
        ] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
        let member = |address: &str| Member {
            address: Some(address.to_owned()),
            device: "eth0".to_owned(),
        };
        assert_eq!(member("h:2233").to_string(), "h:eth0");
        assert_eq!(member("h:22").to_string(), "h:22:eth0");
    }
}
