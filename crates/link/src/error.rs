//! Why two ends do not come together, or came apart.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use flowgauge_sys::files::SecretError;
use rustls::{AlertDescription, CertificateError};
use strum::VariantArray as _;

/// Why a key cannot be used, a peer not be reached, or a connection ended. `Display` says what and
/// where; [`Error::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of keys could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was done: "read", "write", "create".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should: another format, damaged, readable by others.
    #[error("{path}: {reason}")]
    Key {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// A name, an address, a number that cannot be used. Likely a typing error.
    #[error("\"{what}\" {reason}")]
    Invalid {
        /// What was given.
        what: String,
        /// What is wrong with it.
        reason: String,
        /// What to write instead.
        hint: &'static str,
    },
    /// The address cannot be listened at, or the peer not be reached.
    #[error("cannot {action} {address}: {source}")]
    Network {
        /// What was done: "connect to", "listen at", "read from", "write to".
        action: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The peers could not agree on keys. Likely certificates of two authorities, an expired one, or
    /// no Flowgauge at the other end.
    #[error("{address}: TLS failed: {}", cause(.source))]
    Security {
        /// The peer's address.
        address: String,
        /// What TLS said.
        source: rustls::Error,
    },
    /// The peer is who it says, and does not want this.
    #[error("{address}: {reason}{}{detail}", before(.detail))]
    Refused {
        /// The peer's address.
        address: String,
        /// Why.
        reason: Refusal,
        /// More of it, in the peer's words.
        detail: String,
    },
    /// The peer said something that makes no sense here.
    #[error("{address}: {reason}")]
    Protocol {
        /// The peer's address.
        address: String,
        /// What.
        reason: String,
    },
    /// The peer said nothing for too long.
    #[error("{address}: silent for {seconds} s")]
    Silent {
        /// The peer's address.
        address: String,
        /// For how many seconds.
        seconds: u64,
    },
    /// A broker between the peers is not there, or does not take or give what it should.
    #[error("{address}: {reason}")]
    Broker {
        /// Where it is.
        address: String,
        /// What is wrong, in its words.
        reason: String,
        /// What to do about it.
        hint: String,
        /// Whether somebody has to change something first.
        lasts: bool,
    },
    /// The peer closed the connection.
    #[error("{address}: the connection was closed")]
    Closed {
        /// The peer's address.
        address: String,
    },
    /// Frames that the spool could not take.
    #[error("a frame of {bytes} bytes; the maximum is {most}")]
    TooLarge {
        /// Bytes of the frame.
        bytes: usize,
        /// The most that are allowed.
        most: usize,
    },
}

/// Why a listener does not want a connection; the numbers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum Refusal {
    /// It speaks other versions of the protocol.
    #[error("it speaks another version of the protocol")]
    Version = 1,
    /// It offers another service.
    #[error("it offers another service")]
    Service = 2,
    /// This name may not use it.
    #[error("this name is not allowed")]
    NotAllowed = 3,
    /// It has as many connections as it takes.
    #[error("it has reached its maximum of connections")]
    Full = 4,
    /// The session belongs to another name.
    #[error("the session belongs to another name")]
    NotYours = 5,
    /// A reason that this version does not know.
    #[error("refused")]
    Other = 255,
}

impl Refusal {
    /// The one that is sent as this number.
    pub(crate) fn of(code: u8) -> Refusal {
        let mut all = Refusal::VARIANTS.iter().copied();
        all.find(|one| *one as u8 == code).unwrap_or(Refusal::Other)
    }
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Error {
        let hint = error.hint().unwrap_or_default();
        match error {
            SecretError::Unreadable { path, source } => Error::File {
                action: "read",
                path,
                source,
            },
            SecretError::Exposed { path } => Error::Key {
                path,
                reason: "other users can read this secret".to_owned(),
                hint,
            },
        }
    }
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::File { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    "create keys with flowgauge keys; --keys names their folder"
                }
                io::ErrorKind::PermissionDenied => {
                    "keys must belong to the user who runs the program"
                }
                io::ErrorKind::AlreadyExists => "keys are not overwritten; remove it first",
                io::ErrorKind::StorageFull => {
                    "the disk is full: make room, or choose another folder"
                }
                _ => return None,
            },
            Error::Key { hint, .. } | Error::Broker { hint, .. } => return Some(hint.clone()),
            Error::Invalid { hint, .. } => hint,
            Error::Network { source, .. } => match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    "check that the other side is running, on this port"
                }
                io::ErrorKind::AddrInUse => "another program listens there; choose another port",
                io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    "check that the machine is up, and that no firewall blocks the port"
                }
                _ => return None,
            },
            Error::Security { source, .. } => return security_hint(source),
            Error::Refused { reason, .. } => match reason {
                Refusal::Version => "use the same version of Flowgauge on both machines",
                Refusal::Service => "inputs and agents listen on different ports",
                Refusal::NotAllowed => {
                    "access is granted by the listener's option allow, or the agent's file"
                }
                Refusal::Full => "end others, or raise the limit of the listener",
                Refusal::NotYours | Refusal::Other => return None,
            },
            Error::Protocol { .. } => "use the same version of Flowgauge on both machines",
            Error::Silent { .. } => "check the machine and the network",
            Error::Closed { .. } => {
                "see its log; it may have reached its maximum of connections from one address"
            }
            Error::TooLarge { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// Whether it says no more than that the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. })
    }

    /// That nothing was heard until a deadline is a silence.
    pub(crate) fn or_silent(self, silence: Duration) -> Error {
        match self {
            Error::Network {
                address, source, ..
            } if source.kind() == io::ErrorKind::TimedOut => Error::Silent {
                address,
                seconds: silence.as_secs(),
            },
            other => other,
        }
    }

    /// Whether another attempt is of no use until somebody changes something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Error::File { .. } | Error::Key { .. } | Error::Invalid { .. } => true,
            Error::Security { source, .. } => !matches!(
                source,
                rustls::Error::General(_) | rustls::Error::FailedToGetCurrentTime
            ),
            Error::Refused { reason, .. } => !matches!(reason, Refusal::Full),
            Error::Broker { lasts, .. } => *lasts,
            _ => false,
        }
    }
}

const NAME_HINT: &str = "name the expected peer (peer = NAME in a stack, --peer NAME on the command line), or create \
its certificate with --host";

/// What stands between a refusal and more of it.
fn before(detail: &str) -> &'static str {
    if detail.is_empty() { "" } else { ": " }
}

/// What goes wrong most often in TLS: in our words where those of `rustls` say less, and what to do about it.
fn explained(error: &rustls::Error) -> Option<(Option<&'static str>, &'static str)> {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    let (cause, hint) = match error {
        rustls::Error::InvalidCertificate(reason) => match reason {
            Certificate::UnknownIssuer | Certificate::BadSignature => (
                "its certificate is from an unknown authority",
                "the other side's certificate is from another authority: both need the same authority.crt",
            ),
            Certificate::Expired | Certificate::ExpiredContext { .. } => (
                "its certificate has expired",
                "create a new one with flowgauge keys add, or check this machine's clock",
            ),
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => (
                "its certificate is not valid yet",
                "the clocks of the two machines differ: synchronise them (NTP)",
            ),
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                ("its certificate is for another name", NAME_HINT)
            }
            _ => return None,
        },
        rustls::Error::AlertReceived(alert) => match *alert {
            Alert::UnknownCA | Alert::DecryptError => (
                "it does not trust the authority of this side's certificate",
                "the other side does not trust this side's authority: both need the same authority.crt",
            ),
            Alert::CertificateExpired => (
                "it says that this side's certificate expired",
                "this side's certificate has expired (flowgauge keys show), or the other side's clock is wrong",
            ),
            Alert::CertificateRequired | Alert::NoCertificate => (
                "it requires a certificate",
                "the other side requires a certificate",
            ),
            Alert::ProtocolVersion | Alert::NoApplicationProtocol => {
                return Some((None, "use the same version of Flowgauge on both machines"));
            }
            Alert::BadCertificate | Alert::CertificateUnknown => {
                let hint =
                    "the other side does not accept this side's certificate; check the clocks";
                return Some((None, hint));
            }
            _ => return None,
        },
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => {
            let hint = "check that the other end is Flowgauge";
            return Some((None, hint));
        }
        _ => return None,
    };
    Some((Some(cause), hint))
}

/// What went wrong in TLS.
fn cause(error: &rustls::Error) -> String {
    let ours = explained(error).and_then(|(cause, _)| cause);
    ours.map_or_else(|| error.to_string(), str::to_owned)
}

fn security_hint(error: &rustls::Error) -> Option<String> {
    let (_, hint) = explained(error)?;
    let rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
        presented,
        ..
    }) = error
    else {
        return Some(hint.to_owned());
    };
    let names = presented.iter().filter_map(|name| name.split('"').nth(1));
    let names: Vec<&str> = names.collect();
    Some(match names.as_slice() {
        [] => hint.to_owned(),
        names => format!("it is {}; {hint}", names.join(", ")),
    })
}
