//! SMTP: commands and messages of the client, replies of the server (RFC 5321; BDAT: RFC 3030).
//!
//! Whether what follows DATA is a message depends on the server's reply: who reads both directions says
//! so ([`Commands::refused`], [`Commands::asks`], [`Commands::taken`]). At most 4 KiB of a line are kept,
//! and none of a message.

mod commands;

pub use crate::lines::{Replies, Reply, ReplyEvents};
pub use commands::{CommandEvents, Commands, look_client, look_server};
