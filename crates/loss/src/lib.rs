//! Packet loss between observation points, passively: what each point saw of every flow, compared.
//!
//! An [`Observer`] counts the packets of each direction of each flow at one point, and selects a few of them by their identity
//! ([`digest`]): the same ones at all points. With each it remembers how many packets of the flow came up to it. A [`Comparison`]
//! takes these [`Observation`]s of all points. Between two packets that two points selected, both counted the same stretch of the
//! flow, so that the difference is what was lost there: clocks need not agree, and a flow of hours is compared while it lasts.
//! The times of such packets give one-way delays, their variation, and bounds of the clocks' offset.
//!
//! Addresses and ports have to be the same at all points: translation between them is not followed.
//!
//! Deliberately absent: I/O, clocks, threads; where observations come from.
#![forbid(unsafe_code)]

mod comparison;
mod digest;
mod observation;
mod observer;
mod pair;
mod pairing;
mod round_trips;
mod sums;

pub use comparison::{Comparison, ComparisonOptions, Of, Row, pairs};
pub use digest::{METHOD, digest};
pub use observation::{Counts, MOST_MARKS, Mark, Observation, ObservationReader};
pub use observer::{Observer, ObserverOptions};
pub use pair::Verdict;
pub use sums::{Offset, Spread, Sums};
