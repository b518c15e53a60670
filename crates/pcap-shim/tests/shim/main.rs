//! Programs read with the library in front of libpcap what they read without it.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../capture/tests/support/lab.rs"]
mod lab;
mod limits;
mod live;
mod live_programs;
mod polling;
mod programs;
mod returns;
mod support;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;
mod zero_copy;
