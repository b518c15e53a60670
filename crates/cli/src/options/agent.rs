//! `stack agent` and `stack admin`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::stack::PlacedStack;
use super::values::parse_seconds;

/// Whose key this program shows.
#[derive(Args, Debug)]
pub(crate) struct IdentityOptions {
    /// Folder of the keys [default: $FLOWGAUGE_KEYS, else ~/.config/flowgauge/keys]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
    /// Name of this machine's key, if the folder has several
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
}

/// `stack agent`
#[derive(Args, Debug)]
pub(crate) struct AgentOptions {
    /// Address and port to listen on, such as 192.0.2.1:2234
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// Who may do what: tables of users and issuers of credentials, in TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) rights: PathBuf,
    /// Stacks read and write files in this folder only
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Run stacks as this user, who must be able to write to the folder; interfaces are opened as root first
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Remember stacks in this folder and restart them with the agent; not within --folder
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Forget remembered stacks
    #[arg(long, requires = "state")]
    pub(crate) forget: bool,
    /// Maximum number of stacks
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) most: u16,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
}

/// `stack admin`
#[derive(Args, Debug)]
pub(crate) struct AdminOptions {
    /// Where the agent listens
    #[arg(value_name = "HOST:PORT")]
    pub(crate) host: String,
    /// Name in the agent's certificate, if not HOST
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
    /// The credential to bring [default: the file named by $FLOWGAUGE_CREDENTIAL]
    #[arg(long, value_name = "FILE")]
    pub(crate) credential: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

/// What can be asked of an agent.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Action {
    Start,
    List,
    Show,
    Watch,
    Stop,
    Restart,
    Configure,
}

/// What an agent can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Start a stack
    Start(DefinitionOptions),
    /// List the stacks
    List,
    /// Show a stack: text, status, latest output
    Show(NameOptions),
    /// Follow a stack's output, with periodic counters
    Watch(WatchOptions),
    /// Stop a stack and forget it
    Stop(NameOptions),
    /// Restart a stack
    Restart(NameOptions),
    /// Change a stack's text or input and restart it
    Configure(DefinitionOptions),
}

/// Which stack.
#[derive(Args, Debug)]
pub(crate) struct NameOptions {
    /// The stack's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// A stack and what it reads.
#[derive(Args, Debug)]
pub(crate) struct DefinitionOptions {
    /// The stack's name at the agent
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) stack: PlacedStack,
    /// Read packets from a file in the agent's folder (several)
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub(crate) read: Vec<String>,
    /// Capture on an interface of the agent's machine (several)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
}

/// `stack admin watch`
#[derive(Args, Debug)]
pub(crate) struct WatchOptions {
    /// The stack's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Time between two counts
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_seconds)]
    pub(crate) every: u64,
}
