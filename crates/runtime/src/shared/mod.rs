//! Captures shared by several processes.
//!
//! Independent processes that monitor the same interface do not each need a capture: packets come through one ring,
//! flows are looked up and streams reassembled once, and a chunk that several processes want is in memory once.
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
//! A sensor that captures the interface. Its [`Service`] owns the engine and the memory, and is a component of a
//! stack that runs while there are clients. The sensor handles everything else: connections, requests
//! ([`flowgauge_sensor_client::programs`]), rights and compiled filters.
//!
//! If there is no sensor, the first client binds the abstract socket address of the service in the network namespace,
//! and starts a program with that socket as standard input ([`ServiceProgram`]); connections can wait there before
//! the program runs. This sensor is detached, with its own session. It opens the interface, drops root privileges,
//! and exits some seconds after the last client has gone. Nothing is left behind: addresses and memory disappear with
//! the processes.
//!
//! # Who may join
//! Users whom the sensor's policies grant the streams of the device, for as long as they do. Clients verify that the
//! sensor runs as their own user or root.
//!
//! # What a client can do to others
//! - *Die*: its connection ends with it in any case, and the memory of its waiting data is freed.
//! - *Stop, or be slow*: each client has its own amount of memory for waiting chunks ([`Application::memory_bytes`])
//!   and a ring for events. Data that does not fit is lost for this client and counted ([`ClientStatistics`]): chunks
//!   of low priority first, as in the paper's prioritized packet loss. Slots are reserved for creations and
//!   terminations. The service never waits.
//! - *Lie*: clients cannot write chunks and events (sealed memory, [`flowgauge_sys::shared`]); a client that reports
//!   an impossible read position is dismissed. The number of filters and parameter sets per client is bounded, and the
//!   device handles one request of each client at a time. A client gets at most half of the remaining memory.
//! - *Decide for others*: the overlap policy is that of the service. A stream times out after the longest inactivity
//!   timeout of its clients, at most a day.
//!
//! The speed of the single engine remains shared: reassembly for one client slows down others that only want
//! statistics, and the filters of all clients are evaluated for each new stream.
//!
//! If the service dies, clients read the published events, and then get [`Error::Died`].
//!
//! Clients can request packets with chunks ([`Application::need_packets`]). They read events one by one
//! ([`Client::next_event`]), or pass them to the same [`Handlers`](crate::Handlers) as in a private capture
//! ([`Client::run`]), optionally on worker threads ([`Client::run_on_workers`]).
//!
//! # Deliberately absent
//! Filters in the kernel, as each new client changes the union of all filters; more than one capturing thread.

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
