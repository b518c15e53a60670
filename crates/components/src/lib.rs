//! The components of stacks.
//!
//! A file per component: its description ([`ComponentInfo`]), and what it does. A new one is a file
//! with a `pub(crate) static INFO` and a line in the list below; listings, help, checks and the
//! command line know it from then on.
//!
//! Names are those of the Pandora paper where it has one; functions of MAPI's library are aliases
//! (`pkt_counter` of `count`).
#![forbid(unsafe_code)]

mod aggregate;
mod anonymize;
mod around;
mod binary_operation;
mod boolean;
mod brief;
mod bucket;
mod buffers;
mod burst;
mod bytes;
mod chunks;
mod closing;
mod condition;
mod cook;
mod count;
mod deduplicate;
mod discard;
mod display_filter;
mod distinct;
mod distribution;
mod engine;
mod expired_flows;
mod fields;
mod file_name;
mod files;
mod filter;
mod flows;
mod gap;
mod hash;
mod hash_sample;
mod headers;
mod icmpscan;
mod identity;
mod ipcnxdemux;
mod ipfragdemux;
mod ipfragswitch;
mod ipprotoswitch;
mod ipreass;
mod keyed;
mod layers;
mod limited;
mod logs;
mod made;
mod matcher;
mod measure;
mod network;
mod output;
mod packet_info;
mod packets;
mod patterns;
mod pcap;
mod per_packet;
mod protocol_field;
mod protocols;
mod record_fields;
mod regexp;
mod report;
mod result_to_file;
mod sample;
mod scan;
mod search;
mod start_stop;
mod statistics;
mod streamdemux;
mod streams;
mod sync;
mod tcpcnxdemux;
mod tcpdirdemux;
mod tcpportdemux;
mod tcpreseq;
mod tcpscan;
mod thread;
mod threshold;
mod to_buffer;
mod top;
mod track;
mod udpscan;
mod words;

/// The example in `docs/components.md`, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/components.md")]
struct Tutorial;

use flowgauge_stack::{
    ComponentInfo, ComponentKind, Input, ItemType, Output, Parallel, Registry, SettingError,
};

/// All components.
static COMPONENTS: &[&ComponentInfo] = &[
    &identity::INFO,
    &discard::INFO,
    &output::INFO,
    &network::receive::INFO,
    &pcap::INFO,
    &filter::INFO,
    &sample::INFO,
    &deduplicate::INFO,
    &count::INFO,
    &bytes::INFO,
    &gap::INFO,
    &display_filter::INFO,
    &search::INFO,
    &regexp::INFO,
    &around::INFO,
    &hash_sample::INFO,
    &hash::INFO,
    &packet_info::INFO,
    &protocol_field::INFO,
    &bucket::INFO,
    &statistics::INFO,
    &distribution::INFO,
    &binary_operation::INFO,
    &threshold::INFO,
    &result_to_file::INFO,
    &burst::INFO,
    &start_stop::INFO,
    &sync::INFO,
    &to_buffer::INFO,
    &top::INFO,
    &expired_flows::INFO,
    &track::FTP,
    &track::GRID_FTP,
    &track::DC,
    &track::GNUTELLA,
    &track::EDONKEY,
    &track::TORRENT,
    &track::SKYPE,
    &track::IPOVERIP,
    &track::IRC,
    &track::WEB,
    &track::MAPI,
    &tcpscan::INFO,
    &udpscan::INFO,
    &icmpscan::INFO,
    &ipprotoswitch::INFO,
    &ipfragswitch::INFO,
    &ipfragdemux::INFO,
    &ipreass::INFO,
    &cook::INFO,
    &ipcnxdemux::INFO,
    &tcpcnxdemux::INFO,
    &tcpdirdemux::INFO,
    &tcpportdemux::INFO,
    &streamdemux::INFO,
    &tcpreseq::INFO,
    &chunks::INFO,
    &packets::INFO,
    &matcher::INFO,
    &condition::INFO,
    &aggregate::INFO,
    &anonymize::INFO,
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
    &brief::INFO,
    &distinct::INFO,
    &flows::INFO,
    &streams::INFO,
    &patterns::INFO,
    &report::INFO,
    &thread::INFO,
];

#[doc(hidden)]
pub use network::fuzz as fuzz_items;

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
    fields: |_| None,
    is_end: false,
    outside: None,
    options: &[],
    result: None,
    parallel: Parallel::Anyhow,
    sequential: |_| None,
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
