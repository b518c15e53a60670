//! Why sharing failed.

use std::io;

use flowgauge_sensor_client::protocol::Refusal;

/// Why a capture could not be shared, or is over. `Display` says what and where, [`Error::hint`]
/// what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was done.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The service could not be started. Likely `flowgauge` is not installed.
    #[error("cannot start {program} to share the capture: {source}")]
    NotStarted {
        /// The program that was to be it.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// The service does not let this client join, or cannot capture.
    #[error("the shared capture on {interface} refuses: {}", .refusal.text())]
    Refused {
        /// The interface.
        interface: String,
        /// What it said.
        refusal: Refusal,
    },
    /// Another user's process holds the name of the service.
    #[error("process {process} of user {user} holds the name of the shared capture on {interface}")]
    Impostor {
        /// The interface.
        interface: String,
        /// Its process, 0 if it is not visible.
        process: u32,
        /// Its user.
        user: u32,
    },
    /// The service died. Streams that were open are lost; a new connection starts a new one.
    #[error("the process that captures on {interface} (number {process}) died")]
    Died {
        /// The interface.
        interface: String,
        /// Its process.
        process: u32,
    },
    /// The capture is over.
    #[error("the shared capture on {interface} is over: {reason}")]
    Ended {
        /// The interface.
        interface: String,
        /// Why, as the service said.
        reason: String,
    },
    /// The service does not answer.
    #[error("the shared capture on {interface} does not answer")]
    Silent {
        /// The interface.
        interface: String,
    },
    /// The service says what no service says.
    #[error("the shared capture does not keep to the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// What the client wants is out of bounds.
    #[error("{what}")]
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
        matches!(self, Error::Refused { refusal, .. } if refusal.is_about_rights)
    }

    /// What to do about it, where something general can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(
                "another sensor of this user captures there, and programs come to it: \
                 flowgauge doctor shows its process, which must end first"
                    .to_owned(),
            ),
            Error::System { .. } | Error::Protocol { .. } | Error::Wanted { .. } => None,
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
