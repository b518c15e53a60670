//! Memory that one process writes and others only read: what several processes see of one
//! capture.
//!
//! ```text
//!  service (writes)                                         client (reads)
//!
//!  Pool ------------------- one memfd -------------------> PoolView
//!    areas of bytes, each written once, counted references    bytes, borrowed
//!  EventWriter ------------ one memfd per client --------> EventReader
//!    fixed-size events: a position in the pool and a body     in order, checked
//!                  <------- one page per client ----------
//!                           how far it has read, whether it sleeps
//! ```
//!
//! *Who can harm whom.* The pool and the rings are sealed against writing
//! ([`F_SEAL_FUTURE_WRITE`](https://man7.org/linux/man-pages/man2/F_GET_SEALS.2const.html)):
//! only the mapping that the service made before can write, clients cannot even ask the kernel
//! for it, whatever their user is. All memory is sealed against changes of its size, so no
//! access can fail because it was cut. The one page a client writes to holds two numbers; the
//! service takes them for what they are, a claim, and believes no position that is not between
//! the last one and the newest event. A client that lies about it sees bytes of its own events
//! change under its hands, nobody else does.
//!
//! An area of the pool is used again when every ring that got a reference to it was read past
//! the event, or was closed. So what a client borrows from an event stays as it is until it asks
//! for the next one, or, where it took it out ([`EventReader::take_event`]), until it drops it. A
//! ring is closed when its client's connection is, which [`PoolView`] keeps open; or when the client
//! was dismissed because it lied or broke the protocol.

mod held;
mod memory;
mod pool;
mod ring;

pub use held::HeldBytes;
pub use pool::{Area, Pool, PoolView};
pub use ring::{BODY_BYTES, COUNTERS, Counters, Event, EventReader, EventWriter};
