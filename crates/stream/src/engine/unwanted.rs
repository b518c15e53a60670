//! What is not wanted, or was lost, and whose account it is on.
//!
//! Of a direction that one application has, the direction's; of a shared one each application's own,
//! and the totals count what nobody got.

use super::assemble::Run;
use super::config::Mode;
use super::core::Core;
use super::record::{RecordFlags, ViewAt, ViewFlags};
use super::statistics::Counts;

impl Core {
    /// The cutoff of a view is reached.
    pub(super) fn cut(&mut self, at: ViewAt) {
        self.note_ahead(at);
        if let Some(view) = self.view_mut(at) {
            view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
        }
        self.leave_chunk(at);
        self.note_views(at.record);
    }

    pub(super) fn is_over(&self, at: ViewAt) -> bool {
        self.view(at)
            .is_none_or(|view| view.flags.has(ViewFlags::OVER))
    }

    /// Whether nobody wants more of a direction.
    #[inline(always)]
    pub(super) fn is_done(&self, record: u32) -> bool {
        self.records
            .get(record)
            .is_some_and(|record| record.flags.has(RecordFlags::DONE))
    }

    /// Counts bytes of a run that nobody wants any more.
    pub(super) fn discard_bytes(&mut self, record: u32, bytes: u64) {
        if bytes != 0 {
            self.discard(record, Counts { packets: 0, bytes });
        }
    }

    /// Counts what is new in a chunk that an application had no memory for.
    #[cold]
    pub(super) fn drop_chunk(&mut self, at: ViewAt, lost: Counts) {
        self.statistics.lost_bytes += lost.bytes;
        if self.is_alone(at) {
            self.lost += lost;
            self.drop(at.record, lost);
        } else if let Some(own) = self.own_loss_mut(at) {
            own.dropped += lost;
        }
    }

    /// An application wants no more of what came for it.
    #[cold]
    pub(super) fn discard_rest(&mut self, at: ViewAt, bytes: u64) {
        if self.is_alone(at) {
            self.discard_bytes(at.record, bytes);
        } else {
            self.discard_for(at, Counts { packets: 0, bytes });
        }
    }

    fn discard_for(&mut self, at: ViewAt, counts: Counts) {
        if let Some(own) = self.own_loss_mut(at) {
            own.discarded += counts;
        }
    }

    /// The views of a shared direction, in their order, for which it is over.
    #[inline]
    pub(super) fn views_that_are_over(&self, id: u32) -> u32 {
        match self.is_alone(ViewAt::first(id)) {
            true => 0,
            false => (self.views_of(id).enumerate())
                .filter(|(_, at)| self.is_over(*at))
                .fold(0, |over, (place, _)| over | 1 << place),
        }
    }

    /// A packet that others take is not wanted by those views.
    #[inline]
    pub(super) fn discard_for_each(&mut self, id: u32, over: u32, counts: Counts) {
        if over == 0 {
            return;
        }
        for (place, at) in self.all_views(id).enumerate() {
            if over & 1 << place != 0 {
                self.discard_for(at, counts);
            }
        }
    }

    /// Bytes in order are not wanted by those for whom the direction is over, while others get them.
    #[cold]
    pub(super) fn discard_for_some(&mut self, id: u32, from: u64, to: u64) {
        for at in self.all_views(id) {
            let from = from.max(self.ahead_of(at));
            if self.is_over(at) && from < to {
                let bytes = to - from;
                self.discard_for(at, Counts { packets: 0, bytes });
            }
        }
    }

    /// Bytes in order are wanted by nobody any more.
    #[cold]
    pub(super) fn discard_for_all(&mut self, id: u32, from: u64, to: u64) {
        let ahead = (self.views_of(id).map(|at| self.ahead_of(at)).max()).unwrap_or(0);
        let common = ahead.clamp(from, to);
        self.discard_for_some(id, from, common);
        self.discard_bytes(id, to - common);
    }

    /// Bytes before this were dealt with for a view when they came: it is, or was, in mode FAST.
    fn ahead_of(&self, at: ViewAt) -> u64 {
        match self.view(at) {
            Some(view) if view.flags.has(ViewFlags::AHEAD) => self.own_loss(at).ahead,
            _ => 0,
        }
    }

    /// A view in mode FAST leaves it, or wants no more.
    pub(super) fn note_ahead(&mut self, at: ViewAt) {
        let ahead = self
            .records
            .get(at.record)
            .map_or(0, |record| record.position);
        if ahead != 0 && self.mode_of(at) == Mode::Fast {
            if let Some(own) = self.own_loss_mut(at) {
                own.ahead = own.ahead.max(ahead);
            }
            if let Some(view) = self.view_mut(at) {
                view.flags.set(ViewFlags::AHEAD);
            }
        }
    }

    /// What is new of a run to a view that was in mode FAST before.
    #[cold]
    pub(super) fn skip_old<'r>(&mut self, at: ViewAt, run: Run<'r>) -> Run<'r> {
        let ahead = self.own_loss(at).ahead;
        if run.offset < ahead {
            return run.skip(ahead - run.offset);
        }
        if let Some(view) = self.view_mut(at) {
            view.flags.clear(ViewFlags::AHEAD);
        }
        run
    }
}
