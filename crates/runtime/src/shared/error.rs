//! Errors of shared captures.

use std::io;

use flowgauge_sensor_client::protocol::Refusal;

/// Why a capture could not be shared, or ended. `Display` tells what failed and where, [`Error::hint`] what to do
/// about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The service could not be started; probably, `flowgauge` is not installed.
    #[error("cannot start {program} to share the capture: {source}")]
    NotStarted {
        /// The program of the service.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The service refuses this client, or cannot capture.
    #[error("the shared capture on {interface} refuses: {}", .refusal.text())]
    Refused {
        /// The interface.
        interface: String,
        /// What it said.
        refusal: Refusal,
    },
    /// A process of another user occupies the service's address.
    #[error("process {process} of user {user} holds the name of the shared capture on {interface}")]
    Impostor {
        /// The interface.
        interface: String,
        /// Its process number, 0 if it is not visible.
        process: u32,
        /// Its user.
        user: u32,
    },
    /// The service died. Open streams are lost; a new connection starts a new service.
    #[error("the process that captures on {interface} (number {process}) died")]
    Died {
        /// The interface.
        interface: String,
        /// Its process.
        process: u32,
    },
    /// The capture ended.
    #[error("the shared capture on {interface} is over: {reason}")]
    Ended {
        /// The interface.
        interface: String,
        /// The reason given by the service.
        reason: String,
    },
    /// The service does not respond.
    #[error("the shared capture on {interface} does not answer")]
    Silent {
        /// The interface.
        interface: String,
    },
    /// The service violated the protocol.
    #[error("the shared capture does not keep to the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// The client's configuration is out of bounds.
    #[error("{what}")]
    Wanted {
        /// The setting and its bounds.
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

    /// What to do about it, if there is general advice.
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
