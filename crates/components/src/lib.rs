//! The components of stacks.
//!
//! A file per component: its description ([`ComponentInfo`]), and what it does. A new one is a file
//! with a `pub(crate) static INFO` and a line in the list below; listings, help, checks and the
//! command line know it from then on.
//!
//! Names are those of the Pandora paper where it has one; functions of MAPI's library are aliases
//! (`pkt_counter` of `count`).
#![forbid(unsafe_code)]

mod bytes;
mod count;
mod discard;
mod engine;
mod filter;
mod flows;
mod gap;
mod icmpscan;
mod identity;
mod ipcnxdemux;
mod ipfragdemux;
mod ipfragswitch;
mod ipprotoswitch;
mod ipreass;
mod keyed;
mod matcher;
mod output;
mod packets;
mod sample;
mod scan;
mod tcpcnxdemux;
mod tcpdirdemux;
mod tcpportdemux;
mod tcpreseq;
mod tcpscan;
mod thread;
mod udpscan;

use flowgauge_stack::{
    ComponentInfo, ComponentKind, Input, ItemType, Output, Parallel, Registry, SettingError,
};

/// All components.
static COMPONENTS: &[&ComponentInfo] = &[
    &identity::INFO,
    &discard::INFO,
    &output::INFO,
    &filter::INFO,
    &sample::INFO,
    &count::INFO,
    &bytes::INFO,
    &gap::INFO,
    &tcpscan::INFO,
    &udpscan::INFO,
    &icmpscan::INFO,
    &ipprotoswitch::INFO,
    &ipfragswitch::INFO,
    &ipfragdemux::INFO,
    &ipreass::INFO,
    &ipcnxdemux::INFO,
    &tcpcnxdemux::INFO,
    &tcpdirdemux::INFO,
    &tcpportdemux::INFO,
    &tcpreseq::INFO,
    &packets::INFO,
    &matcher::INFO,
    &flows::INFO,
    &thread::INFO,
];

/// The components by name.
pub fn registry() -> Registry {
    Registry::new(COMPONENTS.iter().copied())
}

/// What most components that take packets have in common.
const OF_PACKETS: ComponentInfo = ComponentInfo {
    name: "",
    aliases: &[],
    summary: "",
    help: "",
    kind: ComponentKind::Simple,
    input: Input::Of(&[ItemType::Packet]),
    output: Output::Same,
    is_end: false,
    outside: None,
    options: &[],
    result: None,
    parallel: Parallel::Anyhow,
    decodes: false,
    effects: false,
    make: |_| {
        Err(SettingError {
            option: None,
            message: "it says not how it is made".to_owned(),
            hint: None,
        })
    },
};
