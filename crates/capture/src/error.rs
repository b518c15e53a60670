//! Errors of captures.

use std::io;
use std::path::{self, Path, PathBuf};

/// Why a source could not be opened or read, a sink not written, or a filter not compiled.
/// `Display` tells what failed and where, [`Error::hint`] what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read or written, probably because of a wrong path or missing
    /// permission.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation: "open", "read", "write", "create".
        action: &'static str,
        /// The file; `-` is standard input or output.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a capture in any known format, or in one that is not supported.
    #[error("{} is not a readable capture: {reason}", shown(.path))]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// What it contains instead.
        reason: String,
    },
    /// A pattern of file names matches nothing.
    #[error("no file matches {pattern}")]
    NoMatch {
        /// The pattern.
        pattern: PathBuf,
    },
    /// The file is damaged from this offset on. Everything before it was delivered.
    #[error("{path} is damaged at byte {offset}{}: {reason}", data(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset (in the decompressed stream) of the damage.
        offset: u64,
        /// The kind of damage.
        reason: String,
        /// Whether the file ends too early (truncated), rather than containing invalid data.
        truncated: bool,
    },
    /// libpcap refused the filter expression.
    #[error("bad filter \"{}\": {reason}", beginning(.expression))]
    Filter {
        /// The expression.
        expression: String,
        /// libpcap's message.
        reason: String,
    },
    /// A sink cannot do what was requested: the format does not support a packet, or options
    /// contradict each other.
    #[error("cannot write {path}: {reason}")]
    Sink {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// What to do instead.
        hint: String,
    },
    /// A live interface could not be opened.
    #[error("cannot capture on {name}: {reason}")]
    Interface {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
        /// What to do about it.
        hint: String,
    },
}

impl Error {
    /// Converts the system's error of an operation on a file.
    pub fn io<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + Copy + 'a {
        move |source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// What to do about it, if there is general advice.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("check the path".to_owned()),
                io::ErrorKind::PermissionDenied => {
                    Some("check who may read or write the file and its folder".to_owned())
                }
                io::ErrorKind::IsADirectory => {
                    Some("it is a folder: give the name of a file".to_owned())
                }
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                    Some("the path already exists, or part of it is not a directory".to_owned())
                }
                io::ErrorKind::OutOfMemory => Some(
                    "decompress it before (zstd -d --long=31), read fewer files at once, or raise --memory"
                        .to_owned(),
                ),
                io::ErrorKind::StorageFull => Some("free space or write elsewhere".to_owned()),
                io::ErrorKind::FileTooLarge => Some(
                    "a file may not be larger here (ulimit -f): raise that, or write several"
                        .to_owned(),
                ),
                _ => None,
            },
            Error::NoMatch { .. } => Some("check the path".to_owned()),
            Error::NotACapture { .. } => Some(
                "pcap, pcapng, snoop and ERF files are read, also compressed with gzip or zstd"
                    .to_owned(),
            ),
            Error::Damaged {
                truncated: true, ..
            } => Some(
                "the capturing program was probably stopped while writing; what was readable was \
                 processed"
                    .to_owned(),
            ),
            Error::Damaged { .. } => Some("what was readable was processed".to_owned()),
            Error::Filter { expression, .. } => Some(filter_hint(expression)),
            Error::Sink { hint, .. } | Error::Interface { hint, .. } => Some(hint.clone()),
        }
    }
}

/// What those who write such a filter most likely meant.
fn filter_hint(expression: &str) -> String {
    const MANUAL: &str = "the syntax is in the manual page pcap-filter(7)";
    const LAYERS: [&str; 10] = [
        "tcp", "udp", "ip", "ipv6", "icmp", "eth", "frame", "http", "dns", "tls",
    ];
    let words: Vec<&str> = expression
        .split(|one: char| one.is_whitespace() || "()!&|=<>".contains(one))
        .filter(|word| !word.is_empty())
        .collect();
    let is_field = |word: &&str| {
        let layer = word.split_once('.').map(|(layer, _)| layer);
        layer.is_some_and(|layer| LAYERS.contains(&layer))
    };
    if let Some(field) = words.iter().find(|word| is_field(word)) {
        return format!(
            "{field} is a display filter's; capture filters are written as tcp port 80 or host \
             192.0.2.1, see pcap-filter(7)"
        );
    }
    match crate::filter::named_host(expression) {
        Some((_, name)) => {
            format!("names are never looked up: write the address of {name} instead")
        }
        None => MANUAL.to_owned(),
    }
}

/// `-` by what it is.
fn shown(path: &Path) -> path::Display<'_> {
    match path == Path::new("-") {
        true => Path::new("standard input").display(),
        false => path.display(),
    }
}

/// Which bytes an offset in a file counts.
fn data(path: &Path) -> &'static str {
    let name = path.as_os_str().as_encoded_bytes();
    match [&b".gz"[..], b".zst", b".zstd"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        true => " of the uncompressed data",
        false => "",
    }
}

/// Of one of thousands of terms the beginning: the reason says where the mistake is.
fn beginning(expression: &str) -> String {
    const SHOWN: usize = 200;
    let shown: String = expression.chars().take(SHOWN).collect();
    match shown.len() < expression.len() {
        true => shown + "…",
        false => shown,
    }
}
