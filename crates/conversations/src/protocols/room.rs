//! Memory for what conversations keep until it is complete.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use flowgauge_stack::{Counted, Settings};
use flowgauge_stream::{Needs, Shares};
use flowgauge_wire::Nanos;

/// Bytes for all cores together, where no bound for memory is set.
const WITHOUT_BOUND: u64 = 256 << 20;
/// So much of it is free when room was made: an eighth.
const FREE_SHIFT: u32 = 3;

/// What conversations of a core keep, and may.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes that they keep: what each keeps is charged when it changes.
    pub(super) held: u64,
    limit: u64,
    /// Requests that went on alone for want of it.
    pub(super) requests: u64,
    /// Conversations that were given up for want of it.
    pub(super) conversations: u64,
}

/// What giving up something in a conversation came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Its oldest request. What is next there is so old.
    Request(Nanos),
    /// All of it. Who opened it has this number.
    Conversation(u32),
    /// There is no such conversation.
    #[default]
    Nothing,
}

/// Those that keep something, the oldest first: since when, in which table, their number there.
pub(super) type ByAge = BinaryHeap<Reverse<(Nanos, usize, u32)>>;

impl Room {
    /// What they may keep on each core by the option `memory`, of which `needs` has a part.
    pub(crate) fn of(settings: &Settings, memory: Option<u64>, needs: Needs) -> Room {
        let all = memory.map_or(WITHOUT_BOUND, |memory| Shares::of_results(memory, needs));
        Room::new(all / settings.copies() as u64)
    }

    pub(super) fn new(limit: u64) -> Room {
        Room {
            held: 0,
            limit,
            requests: 0,
            conversations: 0,
        }
    }

    /// They may keep half as much.
    pub(super) fn halve(&mut self) {
        self.limit /= 2;
    }

    /// Whether they keep more than they may.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.held > self.limit
    }

    /// Whether more has to be given up, now that it is.
    pub(super) fn is_shrinking(&self) -> bool {
        self.held > self.limit - (self.limit >> FREE_SHIFT)
    }

    /// What is to be told at the end.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        let all = [
            (self.requests, "request"),
            (self.conversations, "conversation"),
        ];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, thing)| Counted {
            count,
            thing,
            what: "given up for want of memory; hint: raise --memory".to_owned(),
        })
    }
}
