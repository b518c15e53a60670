//! The end-to-end tests, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../crates/capi/tests/support/mod.rs"]
mod c;
mod support;

mod c_examples;
mod changing_stacks;
mod equal_pairs;
mod equal_results;
mod many_filters;
mod priorities;
mod reassembly_cases;
mod reassembly_cases_c;
mod session_flows;
mod soak;
mod stack_files;
mod stack_threads;
mod streams_exact;
mod suricata_events;
mod suricata_reassembly;
mod transactions;
mod tshark_flows;
mod tshark_follow;
mod tshark_packets;
mod zeek_logs;
