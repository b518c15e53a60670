//! Records through a broker of Kafka: none is missing, none comes twice, whoever is killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod broker;
#[path = "../../../../tests/shared/loopback.rs"]
mod loopback;
mod process;
#[path = "../../../../tests/shared/skipped.rs"]
mod skipped;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;

mod groups;
mod topics;
mod troubles;
