//! One capture for several processes.
//!
//! Processes that know nothing of each other and look at the same interface need not capture it
//! twice: the packets come through one ring, flows are looked up and streams put together once, and
//! a chunk that several want is in memory once.
//!
//! ```text
//!                      sensor (a stack of its device)
//!  interface --> ring --> Engine --> Members --+-- Pool: chunks ---- mapped read-only ----+
//!                            ^                 |                                          |
//!                            | Service::join,  +-- ring of events 0 -- read-only --> Client (process A)
//!                            | hear, dismiss   |       ^-- page: how far read, asleep --- |
//!                            |                 +-- ring of events 1 -- read-only --> Client (process B)
//!                            +--- the sensor's threads that hear programs <---------------+
//! ```
//!
//! # Who runs it
//! A sensor that captures the interface. Its [`Service`] has the engine and the memory, and is a component of a stack that runs while
//! there are programs; it does no more than that has to: connections, requests ([`flowgauge_sensor_client::programs`]), rights and compiled filters are the sensor's.
//!
//! Where there is none, the first client takes the name that programs look for, an abstract socket address of the network
//! namespace, and starts a program with that socket as its standard input ([`ServiceProgram`]);
//! connections can wait there before the program runs. This sensor is nobody's child, has a session
//! of its own, opens the interface, gives up root, and stays until the last client has been gone for
//! some seconds. Nothing is left behind: names and memory go with the processes.
//!
//! # Who may join
//! Whom the sensor's policies let have the streams of the device, for as long as they do. A client checks in turn that the
//! sensor is its own user's or root's.
//!
//! # What a client can do to others
//! - *Die*: its connection ends with it, however it ends; what waited for it is given back.
//! - *Stop, or be slow*: each client has memory of its own size for chunks that wait
//!   ([`Application::memory_bytes`]) and a ring for events. What does not fit is lost for this client
//!   and counted ([`ClientStatistics`]): chunks of low priority first, as the paper's prioritized
//!   packet loss says; creations and terminations have places reserved. The service never waits.
//! - *Lie*: chunks and events cannot be written by clients at all (sealed memory,
//!   [`flowgauge_sys::shared`]); how far it claims to have read is believed if it can be so,
//!   otherwise the client is dismissed. Each client has a bounded number of filters, sets of parameters, and one request at a
//!   time that the device has to do. Nobody gets more than half of the memory that is left.
//! - *Decide for others*: the overlap policy is that of the service. When silence ends a stream the client with the
//!   longest inactivity timeout decides, of those who have it; a day is the longest.
//!
//! What remains shared is the speed of the one engine: a client that wants bytes where others want
//! statistics costs its work, and filters of all run for each new stream.
//!
//! When the service itself dies, clients read what was published, then get [`Error::Died`].
//!
//! Packets stand beside the chunks of those clients that want some ([`Application::need_packets`]). Events come one by one ([`Client::next_event`]) or go to the same
//! [`Handlers`](crate::Handlers) as those of a private capture ([`Client::run`]), on threads of the client's own, too
//! ([`Client::run_on_workers`]).
//!
//! # Deliberately absent
//! Filters in the kernel (the union of all clients' is
//! whatever the last one brings); more than one capturing thread.

mod application;
mod asked;
mod backlog;
mod client;
mod codec;
mod drive;
mod error;
mod grant;
mod held;
mod layout;
mod lives;
mod member;
mod outbox;
mod service;
mod start;
mod statistics;

pub use application::Application;
pub use asked::{Program, Said};
pub use client::{Client, EventKind, Leaver, Next, SharedChunk, SharedEvent, SharedStream};
pub use error::Error;
pub use flowgauge_sensor_client::programs::{Chunks, ClientStatistics, ClientStatus};
pub(crate) use held::HeldChunk;
pub use layout::SharedPackets;
pub use service::{Service, say_last};
pub use start::{
    ServiceProgram, SharedCapture, inherited_listener, listen, shared_captures, turn_away,
};
pub use statistics::Status;
