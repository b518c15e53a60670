//! `keys`

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `keys`
#[derive(Args, Debug)]
pub(crate) struct KeysOptions {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum KeysCommand {
    /// Make an authority, whose certificates machines believe
    Authority(FolderOptions),
    /// Make a key and a certificate for a machine, where the authority is
    Add(AddKeyOptions),
    /// Show whose certificates are in the folder, their fingerprints and until when they are valid
    Show(FolderOptions),
}

/// Where keys are.
#[derive(Args, Debug)]
pub(crate) struct FolderOptions {
    /// Folder of the keys [default: $FLOWGAUGE_KEYS, else ~/.config/flowgauge/keys]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
}

/// `keys add`
#[derive(Args, Debug)]
pub(crate) struct AddKeyOptions {
    /// What the machine is called: small letters, digits, '-' and '.'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A host name or address where others reach it (several)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}
