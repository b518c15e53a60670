//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod command_support;
#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../../../tests/shared/loopback.rs"]
mod loopback;
#[path = "../../../../tests/shared/net_snmp.rs"]
#[allow(dead_code, reason = "the subagent's own tests use more of it")]
mod net_snmp;
mod skipped {
    pub(crate) use crate::corpora::skipped;
}
mod stack_support;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;

mod anomalies;
mod anonymize;
mod bounds;
mod capture_cutoff;
mod cases;
mod commands;
mod confinement;
mod credential;
mod deb;
mod deduplicate;
mod dependencies;
mod element;
mod eve;
mod follow;
mod full_disk;
mod links;
mod locality;
mod log;
mod log_limits;
mod loss;
mod mapi;
mod match_cutoff;
mod matches;
mod nids;
mod packet_contents;
mod packets;
mod protocol_stacks;
mod rmon;
mod select;
mod sensor;
mod sharing;
mod stack;
mod stack_runs;
mod stack_show;
mod stacks;
mod stream_chunks;
mod surroundings;
mod top;
mod written_files;
