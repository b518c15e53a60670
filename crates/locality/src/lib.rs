//! Locality buffering: packets of one class are delivered together, so that the code and data which a program needs for them
//! are in its caches.
//!
//! ```text
//!  packets     [ 0: 443 ][ 1: 80 ][ 2: 443 ][ 3: no port ][ 4: 80 ] ...     stay where they are
//!                  |                  ^
//!  Index       443 +-- 0 -> 2 --------+      a list for each class, in the order of their first packets
//!               80 +-- 1 -> 4
//!               no +-- 3
//!  delivery    0 2 1 4 3
//! ```
//!
//! A [`Classifier`] says which class a packet is in, an [`Index`] in which order packets are delivered. Within a class it is
//! that of their arrival; classes come in the order of their first packets, so that what begins a conversation is as a rule
//! delivered before what answers it. Nothing here allocates per packet, moves a packet, or changes a time stamp.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod class;
mod filters;
mod index;
mod limits;

pub use class::{Class, Classifier, NotAClass};
pub use filters::{Filters, FiltersError};
pub use index::{CLASSES, Index, NO_PORT};
pub use limits::{DEFAULT_PACKETS, DEFAULT_TIMEOUT, MAX_PACKETS, packets, timeout};
