//! Findings of a run that qualify its results.

use flowgauge_reassembly::GapCause;

use crate::checksums::Wrong;
use crate::{DamagedSender, OffloadingSender, ShardStatistics};

/// Findings of a run that qualify its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Senders whose packets were accepted in spite of wrong checksums, the most active first.
    pub accepted: Vec<OffloadingSender>,
    /// Packets left out because of wrong checksums, or whose payload was.
    pub left_out: u64,
    /// The sender of most of those.
    pub most_left_out: Option<DamagedSender>,
    /// Flows evicted to make room.
    pub evicted: u64,
    /// Fragmented datagrams given up because memory was full.
    pub datagrams: u64,
    /// Holes in streams given up because memory was full.
    pub relieved: u64,
}

impl Findings {
    pub(crate) fn new(counters: &ShardStatistics, wrong: &Wrong) -> Findings {
        Findings {
            accepted: wrong.offloading(),
            left_out: wrong.statistics.left_out,
            most_left_out: wrong.most_damaged(),
            evicted: counters.flow.evicted,
            datagrams: counters.defragment.evicted,
            relieved: counters.reassembly.gaps[GapCause::Memory as usize],
        }
    }

    /// Adds the findings of another worker.
    pub fn merge(&mut self, other: &Findings) {
        let sender = |it: &OffloadingSender| (it.address, it.version, it.protocol);
        self.accepted.extend(&other.accepted);
        self.accepted.sort_unstable_by_key(sender);
        self.accepted.dedup_by(|next, kept| {
            let same = sender(next) == sender(kept);
            if same {
                kept.packets += next.packets;
            }
            same
        });
        self.accepted
            .sort_by(|a, b| b.packets.cmp(&a.packets).then(a.address.cmp(&b.address)));
        self.left_out += other.left_out;
        self.evicted += other.evicted;
        self.datagrams += other.datagrams;
        self.relieved += other.relieved;
        self.most_left_out = match (self.most_left_out, other.most_left_out) {
            (Some(mine), Some(theirs)) if theirs.packets > mine.packets => Some(theirs),
            (mine, theirs) => mine.or(theirs),
        };
    }
}
