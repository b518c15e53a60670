//! The components of stacks.
//!
//! A file per component: its description ([`ComponentInfo`]), and what it does. A new one is a file
//! with a `pub(crate) static INFO` and a line in a list below; listings, help, checks and the
//! command line know it from then on, by `flowgauge-registry`. Those of application protocols are in
//! `flowgauge-conversations`.
//!
//! Names are those of the Pandora paper where it has one; functions of MAPI's library are aliases
//! (`pkt_counter` of `count`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod aggregate;
mod anonymize;
mod applications;
mod around;
mod binary_operation;
mod boolean;
mod brief;
mod bucket;
mod buffers;
mod burst;
mod bytes;
mod chunked;
mod chunks;
mod condition;
mod cook;
mod copy;
mod count;
mod cutter;
mod deduplicate;
mod discard;
mod display_filter;
mod distinct;
mod distribution;
mod expired_flows;
mod fields;
mod filter;
mod flow_export;
mod follow;
mod gap;
mod hash;
mod hash_sample;
mod headers;
mod identity;
mod inject;
mod ipcnxdemux;
mod ipfragdemux;
mod ipfragswitch;
mod ipprotoswitch;
mod ipreass;
mod layers;
mod loss;
mod made;
mod matcher;
mod network;
mod observe;
mod output;
mod packet_info;
mod packets;
mod patterns;
mod pcap;
mod per_packet;
mod protocol_field;
mod rate_limit;
mod record_fields;
mod regexp;
mod result_to_file;
mod ruler;
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
mod thread;
mod threshold;
mod to_buffer;
mod top;
mod track;
mod transcript;
mod turns;
mod uncook;
mod words;

/// The example in `docs/components.md`, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/components.md")]
struct Tutorial;

use flowgauge_stack::ComponentInfo;

/// What sources, packets, demultiplexers and results have components for, and what writes them.
pub static PACKETS: &[&ComponentInfo] = &[
    &identity::INFO,
    &discard::INFO,
    &output::INFO,
    &network::receive::INFO,
    &pcap::INFO,
    &filter::INFO,
    &headers::INFO,
    &sample::INFO,
    &rate_limit::INFO,
    &deduplicate::INFO,
    &copy::INFO,
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
    &observe::INFO,
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
    &scan::TCP,
    &scan::UDP,
    &scan::ICMP,
    &ipprotoswitch::INFO,
    &ipfragswitch::INFO,
    &ipfragdemux::INFO,
    &ipreass::INFO,
    &cook::INFO,
    &uncook::INFO,
    &inject::INFO,
    &ruler::INFO,
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
    &loss::INFO,
    &anonymize::INFO,
];

/// Components that say less of records, or say it elsewhere.
pub static RECORDS: &[&ComponentInfo] = &[
    &applications::INFO,
    &brief::INFO,
    &distinct::INFO,
    &flow_export::INFO,
];

/// Streams, and patterns in them.
pub static STREAMS: &[&ComponentInfo] = &[
    &streams::INFO,
    &patterns::INFO,
    &follow::INFO,
    &transcript::INFO,
    &turns::INFO,
];

/// What goes on in a thread of its own.
pub static THREADS: &[&ComponentInfo] = &[&thread::INFO];

pub use condition::{Condition, time};
pub use display_filter::DisplayFilter;

#[doc(hidden)]
pub use network::fuzz as fuzz_items;
