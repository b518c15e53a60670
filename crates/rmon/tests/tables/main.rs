//! The tables by what managers see of them, against a model that knows neither caches nor orders.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod captured;
#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
mod counts;
mod fragments;
mod frames;
mod hostile;
mod jobs;
mod merged;
mod model;
mod sets;
mod traces;
mod tshark;
mod walks;
