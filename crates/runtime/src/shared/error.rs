//! Why sharing failed.

use std::fmt;
use std::io;

use flowgauge_sensor_client::protocol::Refusal;

/// Why a capture could not be shared, or is over. `Display` says what and where, [`Error::hint`]
/// what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    System {
        /// What was done.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A filter does not compile, or is not for this interface.
    Filter(flowgauge_capture::Error),
    /// The service could not be started. Likely `flowgauge` is not installed.
    NotStarted {
        /// The program that was to be it.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// The service does not let this client join, or cannot capture.
    Refused {
        /// The interface.
        interface: String,
        /// What it said.
        refusal: Refusal,
    },
    /// Another user's process holds the name of the service.
    Impostor {
        /// The interface.
        interface: String,
        /// Its process, 0 if it is not visible.
        process: u32,
        /// Its user.
        user: u32,
    },
    /// The service died. Streams that were open are lost; a new connection starts a new one.
    Died {
        /// The interface.
        interface: String,
        /// Its process.
        process: u32,
    },
    /// The capture is over.
    Ended {
        /// The interface.
        interface: String,
        /// Why, as the service said.
        reason: String,
    },
    /// The service does not answer.
    Silent {
        /// The interface.
        interface: String,
    },
    /// The service says what no service says.
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// What the client wants is out of bounds.
    Wanted {
        /// What, and its bounds.
        what: String,
    },
}

impl Error {
    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { action, source }
    }

    /// Whether this process may not join, as the sensor's rights are.
    pub(super) fn is_about_rights(&self) -> bool {
        matches!(self, Error::Refused { refusal, .. } if refusal.is_about_rights())
    }

    /// What to do about it, where something general can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::System { .. } | Error::Protocol { .. } | Error::Wanted { .. } => None,
            Error::Filter(error) => error.hint(),
            Error::NotStarted { .. } => Some(
                "put flowgauge in PATH, say where it is (FLOWGAUGE_PROGRAM), or do not share the \
                 capture"
                    .to_owned(),
            ),
            Error::Refused { .. } => None,
            Error::Ended { interface, .. } => Some(format!(
                "look whether {interface} is up (ip link show {interface}), then start the capture \
                 again"
            )),
            Error::Impostor { process, .. } => Some(format!(
                "end process {process}, or do not share the capture"
            )),
            Error::Died { .. } => Some(
                "start the capture again: that starts a new process for it; the system's log may say \
                 why the old one died"
                    .to_owned(),
            ),
            Error::Silent { .. } => Some(
                "it may be stopped: look for a process \"flowgauge sensor\""
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { action, source } => write!(f, "cannot {action}: {source}"),
            Error::Filter(error) => error.fmt(f),
            Error::NotStarted { program, source } => {
                write!(f, "cannot start {program} to share the capture: {source}")
            }
            Error::Refused { interface, refusal } => write!(
                f,
                "the shared capture on {interface} refuses: {}",
                refusal.text()
            ),
            Error::Impostor {
                interface,
                process,
                user,
            } => write!(
                f,
                "process {process} of user {user} holds the name of the shared capture on \
                 {interface}"
            ),
            Error::Died { interface, process } => write!(
                f,
                "the process that captures on {interface} (number {process}) died"
            ),
            Error::Ended { interface, reason } => {
                write!(f, "the shared capture on {interface} is over: {reason}")
            }
            Error::Silent { interface } => {
                write!(f, "the shared capture on {interface} does not answer")
            }
            Error::Protocol { what } => write!(
                f,
                "the shared capture does not keep to the protocol: {what}"
            ),
            Error::Wanted { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { source, .. } | Error::NotStarted { source, .. } => Some(source),
            Error::Filter(error) => Some(error),
            _ => None,
        }
    }
}
