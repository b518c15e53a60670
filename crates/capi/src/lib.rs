//! libscap: streams as the first-class object of packet capture, for C programs.
//!
//! The interface is `include/scap.h`, documented in the header and in `docs/scap.md`. This crate only
//! translates: tokens to handles, numbers to settings, events of [`flowgauge_runtime::Handlers`] to calls of C
//! functions, failures to codes and messages.
//!
//! ```text
//! api        the functions of scap.h: check arguments, catch panics, note failures
//!  | registry, handle    open handles, their settings and states
//!  | settings, device    settings, checked when they are made
//! capture    settings for the runtime; the only module that knows the packet source
//!  | events  updates the stream_t from the engine's stream, calls the program
//!  | nodes   memory of the stream_t
//! share      joins a capture of several processes
//! current    requests of running callbacks
//! ```
//!
//! A program cannot cause undefined behaviour with this interface, except by passing pointers to memory that is
//! not its own: handles are tokens, streams are recognised by address, and requests of a callback are executed
//! after it has returned.

pub mod abi;
mod address;
pub mod api;
mod capture;
mod current;
mod device;
mod events;
mod failure;
mod handle;
mod nodes;
mod registry;
mod settings;
mod share;
