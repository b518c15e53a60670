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
pub(crate) enum KeysCommand {
    /// Create a certificate authority
    Authority(FolderOptions),
    /// Create a key and certificate for a machine, on the authority's machine
    Add(AddKeyOptions),
    /// List the certificates in the folder, with fingerprints and expiry
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
    /// Name of the machine: lower-case letters, digits, '-' and '.'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Host name or address of the machine (several)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Expiry: 2026-12-01, 2026-12-01T18:00:00Z, 12h or 30d
    #[arg(long, value_name = "DATE", default_value = "730d")]
    pub(crate) expires: String,
    #[command(flatten)]
    pub(crate) folder: FolderOptions,
}
