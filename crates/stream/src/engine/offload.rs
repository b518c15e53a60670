//! Where the decision not to want a flow's bytes any more goes: to the kernel or the network card.
//!
//! Every decision to stop wanting bytes (a cutoff reached, a stream discarded, a filter that does
//! not match) leaves the engine as a [`Verdict`]. A backend may then keep such packets away before
//! they are copied; packets with SYN, FIN or RST must still pass (section 5.5 of the paper), and so
//! must those of the other direction. What it kept away comes back as [`OffloadCounters`] and is
//! added to the flow's. Backends for kernel and card are to come; [`NoOffload`] is that of user
//! space: it keeps nothing away.

use flowgauge_wire::{Direction, FlowKey, Nanos};

use super::statistics::Counts;

/// What a backend shall do with a flow's packets, those with SYN, FIN or RST apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Payload in this direction is not wanted any more.
    DiscardDirection(Direction),
    /// Nothing of the flow is wanted any more.
    Discard,
    /// All of it is wanted again.
    Resume,
    /// The flow has ended: whatever was kept for it can go.
    Forget,
}

/// The flow a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadFlow {
    /// Five-tuple.
    pub key: FlowKey,
    /// Unique id of the direction from `key.low` to `key.high`; counters come back with it.
    pub uid: u64,
}

/// What a backend kept away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadCounters {
    /// By [`Direction`]: what was discarded.
    pub discarded: [Counts; 2],
    /// When a packet was last seen; zero when not known.
    pub last: Nanos,
}

/// A backend.
pub trait Offload: Send {
    /// Takes a verdict. It is a hint: the engine copes with packets that come all the same.
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict);

    /// Gives counters since the last call to `merge`, by [`OffloadFlow::uid`]. Asked after every batch; what
    /// is told of a flow after its [`Verdict::Forget`] only counts in the totals.
    fn poll(&mut self, merge: &mut dyn FnMut(u64, OffloadCounters));
}

/// Keeps nothing away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOffload;

impl Offload for NoOffload {
    fn verdict(&mut self, _flow: &OffloadFlow, _verdict: Verdict) {}

    fn poll(&mut self, _merge: &mut dyn FnMut(u64, OffloadCounters)) {}
}
