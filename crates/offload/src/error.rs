//! Errors of backends.

use std::io;

/// Why a backend is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses its programs or maps.
    #[error("the kernel does not take the program (eBPF): {0}")]
    Load(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The capture is on several interfaces, or on one without Ethernet frames.
    #[error("packets are kept away on single interfaces with Ethernet frames alone")]
    Interface,
    /// The sockets of a mirror port failed.
    #[error(transparent)]
    Sockets(#[from] flowgauge_capture::Error),
    /// The capture's filter uses an extension that eBPF does not have.
    #[error("the filter asks for something that eBPF does not know (operation {0:#06x})")]
    Filter(u16),
}

impl Error {
    pub(crate) fn load(error: impl core::fmt::Display) -> Error {
        Error::Load(error.to_string())
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let hint = match self {
            Error::Sockets(error) => return error.hint().unwrap_or_default(),
            Error::Interface => "name one interface with Ethernet frames",
            Error::Filter(_) => "let all packets come, or take a filter without it",
            _ => {
                "it takes CAP_BPF, CAP_NET_ADMIN and Linux 5.12 (flowgauge doctor); all results are the same without, at more CPU time"
            }
        };
        hint.to_owned()
    }
}
