//! What components of stacks have in common, whichever crate they are in.
//!
//! A module is here when components of `flowgauge-components` and of `flowgauge-conversations` use it; one that only
//! those of one use stays there.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod chunks;
mod closing;
pub mod engine;
pub mod file_name;
pub mod headers;
pub mod keyed;
pub mod measure;
pub mod terminal;
pub mod writing;

pub use closing::Closing;
use flowgauge_stack::{
    ComponentInfo, ComponentKind, Input, ItemType, Output, Parallel, SettingError,
};

/// What most components that take packets have in common.
pub const OF_PACKETS: ComponentInfo = ComponentInfo {
    name: "",
    aliases: &[],
    summary: "",
    help: "",
    kind: ComponentKind::Simple,
    input: Input::Of(&[ItemType::Packet]),
    output: Output::Same,
    fields: |_| None,
    kinds: None,
    is_end: false,
    is_of_one: false,
    outside: None,
    options: &[],
    result: None,
    parallel: Parallel::Anyhow,
    sequential: |_| None,
    decodes: |_| false,
    engine: None,
    effects: |_| false,
    make: |_| {
        Err(SettingError {
            option: None,
            message: "it says not how it is made".to_owned(),
            hint: None,
        })
    },
};
