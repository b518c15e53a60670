//! The subagent against a master of our own and against Net-SNMP's.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../../fuzz/harness/rmon.rs"]
mod harness;

mod codec;
mod damaged;
#[path = "../../../../tests/shared/modules.rs"]
mod modules;
#[allow(dead_code, reason = "tests of the command use more of it")]
#[path = "../../../../tests/shared/net_snmp.rs"]
mod net_snmp;
mod others;
mod session;
#[path = "../../../../tests/shared/skipped.rs"]
mod skipped;
mod snmpd;
mod tables;
