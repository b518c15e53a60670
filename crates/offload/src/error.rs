//! Why a backend cannot be had.

use std::io;

/// Why a backend cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not take its programs or maps.
    #[error("the kernel does not take the program (eBPF): {0}")]
    Load(String),
    /// The system's.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is a capture on several interfaces, or on one without Ethernet frames.
    #[error("packets are kept away on single interfaces with Ethernet frames alone")]
    Interface,
    /// The sockets of a mirror port.
    #[error(transparent)]
    Sockets(#[from] flowgauge_capture::Error),
    /// The capture's filter uses what eBPF cannot ask for.
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
