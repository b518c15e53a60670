//! libscap: streams as the first-class object of packet capture, for C programs.
//!
//! The interface is `include/scap.h`; its documentation is in the header and in `docs/scap.md`. This crate only
//! translates: tokens to handles, numbers to settings, events of [`flowgauge_runtime::Handlers`] to calls of C
//! functions, failures to codes and messages.
//!
//! ```text
//!  api        the functions of scap.h: arguments checked, panics caught, failures noted
//!   | registry, handle    which handles are open; what was set; where it stands
//!   | settings, device    what was asked for, checked when it is asked
//!  capture    settings as the runtime takes them; the only place that knows where packets come from
//!   | events  a stream_t is shown as the engine's stream is, the program is called
//!   | nodes   where the stream_t are
//!  share      the part in a capture of several processes
//!  current    what callbacks ask for while they run
//! ```
//!
//! Nothing that a program does with this interface, short of giving pointers to memory that is not its own, is
//! undefined: handles are tokens, streams are recognised by address, and what a callback asks for is done after
//! it has returned.

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
