//! Overload handled by a backend, before packets are copied ([`Overload`]).
//!
//! The backend knows the watermarks and the memory in use. For each new stream it is told the priority, and later when
//! the stream has passed the overload cutoff. Packets of streams not seen yet may be important, and pass.

use flowgauge_flow::Withheld;

use super::core::Core;
use super::record::RecordFlags;
use super::statistics::Counts;
use crate::offload::{Overload, Standing};
use crate::wants::Want;

impl Core {
    /// How it stands, where some lose before others do.
    pub(super) fn overload(&self) -> Option<Overload<'_>> {
        let is_of_use = self.watermarks.tell_streams_apart();
        is_of_use.then(|| Overload {
            watermarks: &self.watermarks,
            used: self.budget.used(),
        })
    }

    /// Tells how much a direction is wanted under overload, where that differs.
    pub(super) fn tell_standing(&mut self, id: u32) {
        if self.tells_standings && self.watermarks.tell_streams_apart() {
            let standing = Standing {
                priority: self.priority_of(id),
                is_beginning: !self.beyond.contains(&id),
            };
            self.requests.push_back(Want::Standing(id, standing));
        }
    }

    /// A chunk of a direction was sent that ends there.
    #[inline]
    pub(super) fn note_position(&mut self, id: u32, end: u64) {
        if end >= self.watermarks.overload_cutoff()
            && self.tells_standings
            && self.beyond.insert(id)
        {
            self.tell_standing(id);
        }
    }

    /// The overload cutoff has changed: who is beyond it is found out anew.
    pub(super) fn forget_positions(&mut self) {
        for id in core::mem::take(&mut self.beyond) {
            self.tell_standing(id);
        }
    }

    /// A backend lost packets to overload, of a stream if that lives.
    pub(super) fn take_lost(&mut self, stream: Option<u32>, lost: &Withheld) {
        let counts = Counts {
            packets: lost.packets,
            bytes: lost.payload_bytes,
        };
        self.statistics.all += counts;
        self.statistics.withheld += counts;
        let record = stream.and_then(|id| self.records.get(id));
        let is_wanted = record.is_some_and(|record| !record.flags.has(RecordFlags::UNWANTED));
        match stream.filter(|_| is_wanted) {
            Some(id) => self.drop(id, counts),
            None => self.statistics.drop(counts),
        }
    }
}
