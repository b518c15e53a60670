//! Items that go to other machines, and come from them.

pub(crate) mod codec;
pub(crate) mod kafka;
mod merge;
pub(crate) mod receive;
pub(crate) mod send;
mod source;

use flowgauge_link::KeyFolder;
use flowgauge_stack::{Failure, Settings, options};

pub use codec::fuzz;

options! {
    pub(crate) const;
    /// Where keys are.
    KEYS = keys: InputFolder, "folder of the keys; else $FLOWGAUGE_KEYS, else ~/.config/flowgauge/keys";
    /// Which of them is this machine's.
    IDENTITY = identity: Text, "name of this machine's key, if the folder has several";
}

/// The folder that options name, or the usual one.
fn keys(settings: &Settings) -> KeyFolder {
    settings
        .text("keys")
        .map_or_else(KeyFolder::usual, KeyFolder::new)
}

fn failure(error: &flowgauge_link::Error) -> Failure {
    Failure::of(error, error.hint())
}
