//! What the environment says.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{self, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use flowgauge_locality::{Class, DEFAULT_PACKETS, DEFAULT_TIMEOUT, Filters, packets, timeout};

/// How packets are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// By the thread that reads.
    Simple = 1,
    /// By a thread of its own, while the program works on the last buffer.
    Threaded,
    /// By the kernel, from interfaces; otherwise it is simple.
    ZeroCopy,
}

/// Where counts are told at the end.
#[derive(Debug)]
pub(crate) enum Told {
    Nowhere,
    StandardError,
    File(PathBuf),
}

impl Told {
    /// Writes a line, in one piece.
    pub(crate) fn tell(&self, line: &str) {
        let line = format!("{line}\n");
        let file = match self {
            Told::Nowhere => return,
            Told::StandardError => None,
            // Not before: programs close all files that they know nothing of.
            Told::File(path) => match OpenOptions::new().append(true).create(true).open(path) {
                Ok(file) => Some(file),
                Err(error) => {
                    let path = path.display();
                    let text = format!(
                        "libflowgauge_pcap: error: FLOWGAUGE_LOCALITY_COUNTS: cannot open {path}: {error}\n\
                         hint: is it in a folder that is there, and that the program may still write to?\n"
                    );
                    let _ = std::io::stderr().write_all(text.as_bytes());
                    None
                }
            },
        };
        let _ = match file {
            Some(mut file) => file.write_all(line.as_bytes()),
            // Or where the program has given up the rights to that file.
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
}

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) packets: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) class: Class,
    /// Filters that say the class instead.
    pub(crate) filters: Filters,
    pub(crate) variant: Variant,
    pub(crate) counts: Told,
}

impl Settings {
    pub(crate) fn get() -> &'static Settings {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(Settings::read)
    }

    fn read() -> Settings {
        Settings {
            packets: value("BUFFER", packets).unwrap_or(DEFAULT_PACKETS),
            timeout: value("TIMEOUT", timeout).unwrap_or(Some(DEFAULT_TIMEOUT)),
            class: value("CLASS", |text| {
                text.parse::<Class>().map_err(|error| error.to_string())
            })
            .unwrap_or_default(),
            filters: value("FILTERS", filters).unwrap_or_default(),
            variant: value("VARIANT", variant).unwrap_or(Variant::ZeroCopy),
            counts: value("COUNTS", counts).unwrap_or(Told::Nowhere),
        }
    }
}

fn variant(text: &str) -> Result<Variant, String> {
    match text {
        "simple" => Ok(Variant::Simple),
        "threaded" => Ok(Variant::Threaded),
        "zero-copy" => Ok(Variant::ZeroCopy),
        _ => Err(format!(
            "\"{}\" is not one of zero-copy, simple and threaded",
            text.escape_debug()
        )),
    }
}

fn counts(text: &str) -> Result<Told, String> {
    Ok(match text {
        "0" => Told::Nowhere,
        "1" => Told::StandardError,
        // The program may go to another folder.
        path => Told::File(path::absolute(path).map_err(|error| error.to_string())?),
    })
}

fn filters(path: &str) -> Result<Filters, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Filters::of(path.into(), &text).map_err(|error| error.to_string())
}

fn value<T>(name: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
    let variable = format!("FLOWGAUGE_LOCALITY_{name}");
    let text = env::var_os(&variable)?;
    let text = text.to_str().filter(|text| !text.is_empty())?;
    match read(text) {
        Ok(value) => Some(value),
        Err(error) => refuse(
            &format!("{variable}: {error}"),
            "docs/locality.md says what these variables mean",
        ),
    }
}

/// Ends the program, which would not run as was asked for.
pub(crate) fn refuse(what: &str, hint: &str) -> ! {
    let text = format!("libflowgauge_pcap: error: {what}\nhint: {hint}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    // SAFETY: ends the process. What it would do at its end may ask for these settings.
    unsafe { libc::_exit(2) }
}

// SAFETY: the system's loader calls what stands in this section once, before `main`; it is a function of the C calling
// convention, and Rust's library needs nothing else to have been called before.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_AT_START: extern "C" fn() = read_at_start;

/// What is wrong is said before the program does anything; and files that are named here may be out of its reach later.
extern "C" fn read_at_start() {
    Settings::get();
}
