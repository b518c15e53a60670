//! `credential`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use flowgauge_credential::{Check, Visible, Window};

use super::agent::Action;
use super::keys::FolderOptions;

/// `credential`
#[derive(Args, Debug)]
pub(crate) struct CredentialOptions {
    #[command(subcommand)]
    pub(crate) command: CredentialCommand,
}

/// What can be done with credentials.
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    /// Create the keys of an issuer: NAME.issuer and NAME.issuer.pub
    Key(IssuerOptions),
    /// Issue a credential
    Issue(IssueOptions),
    /// Restrict a credential further; needs no key
    Attenuate(AttenuateOptions),
    /// Show a credential's restrictions, in words, and its identifiers
    Show(ShowCredentialOptions),
    /// Check who issued a credential, and that it is neither revoked nor expired
    Verify(VerifyOptions),
    /// Revoke a credential: append its identifier to the file of revoked ones
    Revoke(RevokeOptions),
}

/// Whose key.
#[derive(Args, Debug)]
pub(crate) struct IssuerOptions {
    /// The issuer
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}

/// What is allowed at most.
#[derive(Args, Debug)]
pub(crate) struct LimitOptions {
    /// For the holder of this key: name of a certificate in the key folder, or the key's SHA-256 (several)
    #[arg(long, value_name = "NAME|SHA256")]
    pub(crate) holder: Vec<String>,
    /// For holders of a certificate with this name, whatever its key (several)
    #[arg(long, value_name = "NAME")]
    pub(crate) certificate: Vec<String>,
    /// For this local user of the sensor's machine, by name or number (several)
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,
    /// On this device (several)
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// Access to packets: none (counts only), headers or payload
    #[arg(long, value_name = "WHAT", value_parser = visible)]
    pub(crate) packets: Option<Visible>,
    /// This component, with bounds on its options: 'top(count<=10, by=ip.src|ip.dst)' (several)
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) function: Vec<String>,
    /// Request allowed to an agent that runs stacks (several)
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: Vec<Action>,
    /// Packets that pass this capture filter
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Packets anonymized by this policy of the sensor
    #[arg(long, value_name = "NAME")]
    pub(crate) anonymize: Option<String>,
    /// Maximum number of flows at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) most_flows: Option<u32>,
    /// Packets per second of each flow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) packets_per_second: Option<u64>,
    /// Times of the week in UTC: 'mon-fri 08:00-18:00' (several)
    #[arg(long = "time", value_name = "TIMES", value_parser = Window::parse)]
    pub(crate) times: Vec<Vec<Window>>,
    /// A check in Datalog: 'check if device($d), $d.starts_with("eth")' (several)
    #[arg(long, value_name = "CHECK", value_parser = Check::parse)]
    pub(crate) check: Vec<Check>,
}

fn visible(text: &str) -> Result<Visible, flowgauge_credential::Error> {
    Visible::parse(text)
}

/// `credential issue`
#[derive(Args, Debug)]
pub(crate) struct IssueOptions {
    /// Issuer whose key signs it: NAME.issuer in the key folder
    #[arg(long, value_name = "NAME")]
    pub(crate) issuer: String,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Expiry: 2026-12-01, 2026-12-01T18:00:00Z, 12h, 30d, or never
    #[arg(long, value_name = "DATE", default_value = "30d")]
    pub(crate) expires: String,
    /// Write it to a new file [default: standard output]
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}

/// `credential attenuate`
#[derive(Args, Debug)]
pub(crate) struct AttenuateOptions {
    /// The credential
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Expiry, if earlier
    #[arg(long, value_name = "DATE")]
    pub(crate) expires: Option<String>,
    /// Prevent further restriction
    #[arg(long)]
    pub(crate) seal: bool,
    /// Write it to a new file [default: standard output]
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}

/// `credential show`
#[derive(Args, Debug)]
pub(crate) struct ShowCredentialOptions {
    /// The credential
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// As Datalog
    #[arg(long)]
    pub(crate) datalog: bool,
}

/// `credential verify`
#[derive(Args, Debug)]
pub(crate) struct VerifyOptions {
    /// The credential
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Expected issuer: NAME.issuer.pub in the key folder, or a key (ed25519/...)
    #[arg(long, value_name = "NAME|KEY")]
    pub(crate) issuer: String,
    /// File of revoked identifiers
    #[arg(long, value_name = "FILE")]
    pub(crate) revoked: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}

/// `credential revoke`
#[derive(Args, Debug)]
pub(crate) struct RevokeOptions {
    /// The credential, or an identifier of one
    #[arg(value_name = "FILE|ID")]
    pub(crate) what: String,
    /// File of revoked identifiers, as in the sensor's configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) revoked: PathBuf,
    /// Only credentials that contain this block, from 0 [default: the last of the credential]
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<usize>,
}
