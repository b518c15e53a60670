//! Numbered frames of items through topics of Kafka, for any number of senders and of takers that share them.
//!
//! A [`Producer`] carries the frames of a [`flowgauge_link::Sender`], which numbers, spools and counts them as on links. Items
//! are numbered for each partition. A [`Group`] takes them as a [`flowgauge_link::Listener`] does, as a member of a consumer
//! group. Beside the offset of a partition the broker keeps its account: how many items were taken, and which number
//! comes next in each session. Offset and account are committed as one, so that the member that takes the partition over goes
//! on with both: what comes twice is known by its number, what is missing by the gap.
//!
//! What is in a message and in an account is in `docs/kafka.md`. The protocol itself is librdkafka's.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod cluster;
mod group;
mod message;
mod producer;

pub use cluster::{Cluster, Login, Mechanism, Security};
pub use group::{Group, GroupOptions};
pub use message::{Form, Frame, partition_of};
pub use producer::{Producer, Totals};
