//! Conversations of application protocols: how they are recognised and followed, and what is written of them.
//!
//! `protocols` has a file per protocol and the engine that leads conversations, `files` the bodies that are
//! carried in them, `logs` the forms in which Suricata and Zeek write them; `flows` and `report` say of
//! flows which protocol they are. Components are described and listed as in `flowgauge-components`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod files;
mod flows;
mod logs;
mod protocols;
mod report;
#[cfg(test)]
#[path = "../../../tests/shared/skipped.rs"]
mod skipped;

use flowgauge_stack::ComponentInfo;

pub use logs::names_elsewhere;
pub use protocols::contents::Contents;

/// Components of application protocols, and the one that writes their records as other tools do.
pub static PROTOCOLS: &[&ComponentInfo] = &[
    &protocols::http::SCAN,
    &protocols::http::MATCH,
    &protocols::http::BOTH,
    &protocols::TRANSACTIONS,
    &protocols::dns::INFO,
    &protocols::icp::INFO,
    &protocols::icp_stack::SCAN,
    &protocols::icp_stack::DEMUX,
    &protocols::rpc::INFO,
    &protocols::dhcp::INFO,
    &protocols::dhcpv6::INFO,
    &protocols::ntp::INFO,
    &protocols::snmp::INFO,
    &protocols::tls::INFO,
    &protocols::quic::INFO,
    &protocols::ssh::INFO,
    &protocols::smtp::INFO,
    &protocols::ftp::INFO,
    &logs::INFO,
];

/// Records of flows.
pub static FLOWS: &[&ComponentInfo] = &[&flows::INFO];

/// The page about all packets.
pub static REPORT: &[&ComponentInfo] = &[&report::INFO];
