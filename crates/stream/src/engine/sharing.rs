//! Applications that share a chunk.
//!
//! Those of equal parameter sets and cutoffs do ([`Core::settle`]); the first of their views leads.
//! Whoever changes anything goes its own way from there on, with a copy of what the chunk had.

use flowgauge_sys::blocks::Block;
use flowgauge_wire::Place;

use super::assemble::Run;
use super::chunk::{ChunkFlags, Content};
use super::config::{MAX_APPLICATIONS, Mode};
use super::core::Core;
use super::events::Events;
use super::record::{Parameters, Pending, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::Context;

impl Core {
    /// A new view shares chunks with an earlier one of equal parameters and cutoff, or with nobody.
    /// (In mode FAST with nobody: where a late segment fits in depends on what was delivered.)
    pub(super) fn share_or_not(&mut self, at: ViewAt) {
        let Some(view) = self.view(at) else {
            return;
        };
        let limit = view.limit;
        let parameters = self.parameters(view.parameters);
        let same = self
            .views_of(at.record)
            .take_while(|&this| this != at)
            .filter_map(|this| self.view(this))
            .find(|view| {
                let theirs = Parameters {
                    private: None,
                    ..self.parameters(view.parameters)
                };
                parameters.mode != Mode::Fast && view.limit == limit && theirs == parameters
            })
            .map(|view| view.parameters);
        let place = same.or_else(|| self.own_place(at, parameters));
        if let (Some(place), Some(view)) = (place, self.view_mut(at)) {
            view.parameters = place;
        }
    }

    /// The same where a chunk may be shared. Any of the applications may go its own way in the midst
    /// of the run: each gets the rest nevertheless.
    pub(super) fn append_shared<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: Run<'_>,
    ) {
        let Some(place) = self.view(leader).map(|view| view.parameters) else {
            return;
        };
        let mut run = run;
        let mut members = self.members(leader.record, place);
        for member in &mut members {
            // It is known that they do not want it.
            if member.is_some_and(|at| self.is_over(at)) {
                *member = None;
            }
        }
        loop {
            // The first that still shares and wants more.
            let leads = |at: &ViewAt| {
                self.view(*at).is_some_and(|view| {
                    view.parameters == place && !view.flags.has(ViewFlags::OVER)
                })
            };
            let Some(leader) = members.iter().flatten().copied().find(leads) else {
                return;
            };
            let is_over = run.bytes.is_empty();
            if is_over {
                if run.last {
                    self.send_pending(events, context, leader, ChunkFlags::LAST);
                }
            } else if let Some(rest) = self.append_turn(events, context, leader, run) {
                run = rest;
            }
            for member in &mut members {
                if let Some(at) = *member
                    && self.view(at).is_none_or(|view| view.parameters != place)
                {
                    *member = None;
                    self.append(events, context, at, run);
                } else if let Some(at) = *member
                    && self.is_over(at)
                {
                    *member = None;
                    self.discard_run(at, &run, Place::Cutoff);
                }
            }
            if is_over {
                return;
            }
        }
    }

    #[cold]
    pub(super) fn stop_of_all(&mut self, leader: ViewAt, offset: u64, gap: u64) -> Option<u64> {
        let place = self.view(leader)?.parameters;
        let mut stop = u64::MAX;
        let mut at = Some(ViewAt::first(leader.record));
        while let Some(this) = at {
            at = self.next_view(this);
            let Some(view) = self.view(this) else {
                continue;
            };
            if view.parameters != place || view.flags.has(ViewFlags::OVER) {
                continue;
            }
            if view.limit <= offset {
                self.cut(this);
                self.note_missing(this, offset, gap);
            } else {
                stop = stop.min(view.limit);
            }
        }
        let view = self.view(leader)?;
        (!view.flags.has(ViewFlags::OVER)).then_some(stop)
    }

    /// A view goes its own way, with parameters `place`: its share of a partial chunk becomes a
    /// chunk of its own.
    pub(super) fn split_chunk(&mut self, at: ViewAt, place: u16) {
        let Some(chunk) = self.view(at).map(|view| view.chunk) else {
            return;
        };
        if chunk == NONE {
            return;
        }
        let parameters = self.parameters(place);
        if !self.is_shared(at, chunk) {
            self.opened = self.opened.wrapping_add(1);
            let generation = self.opened;
            let Some(pending) = self.pending.get_mut(chunk) else {
                return;
            };
            pending.parameters = place;
            pending.target = parameters.chunk_bytes.max(1).max(pending.repeated + 1);
            // Its time is now that of its new parameters.
            pending.generation = generation;
            let (is_new, since) = (pending.is_new(), pending.since);
            if is_new {
                self.start_timer(chunk, place, generation, since);
            }
            return;
        }
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        let copy = Pending {
            start: pending.start,
            gap_before: pending.gap_before,
            since: pending.since,
            time: pending.time,
            flags: pending.flags,
            repeated: pending.repeated,
            segments: pending.segments,
            target: parameters.chunk_bytes.max(1).max(pending.repeated + 1),
            ..Pending::default()
        };
        let len = pending.content.bytes.len();
        let lost = Counts {
            packets: u64::from(pending.segments),
            bytes: pending.content.received_from(pending.repeated),
        };
        let holes = pending.content.holes.clone();
        let ceiling = self.ceiling_of(at.record);
        let buffer = self.buffers.get(len.max(copy.target as usize), ceiling);
        if let Some(view) = self.view_mut(at) {
            view.chunk = NONE;
            view.parameters = place;
        }
        // Without memory for it, the beginning of this chunk is lost to the application.
        let (Some(mut bytes), Some(pending)) = (buffer, self.pending.get(chunk)) else {
            return self.drop_chunk(at, lost);
        };
        bytes.extend(pending.content.bytes.as_slice());
        let mut content = Content { bytes, holes };
        let more = content.charge_holes();
        if !self.budget.charge(more, ceiling) {
            content.uncharge_holes(more);
            self.drop_chunk(at, lost);
            return self.recycle(content, Block::EMPTY);
        }
        self.open_chunk(at, Pending { content, ..copy });
    }

    /// A view wants no more of its chunk; the last one out frees it.
    pub(super) fn leave_chunk(&mut self, at: ViewAt) {
        let Some(view) = self.view_mut(at) else {
            return;
        };
        let chunk = core::mem::replace(&mut view.chunk, NONE);
        if chunk != NONE && !self.is_shared(at, chunk) {
            let pending = self.pending.remove(chunk);
            self.partial -= pending.memory();
            self.recycle(pending.content, pending.log);
        }
    }

    /// The views of a direction with these parameters.
    pub(super) fn members(&self, record: u32, place: u16) -> [Option<ViewAt>; MAX_APPLICATIONS] {
        let mut members = [None; MAX_APPLICATIONS];
        let found = self
            .views_of(record)
            .filter(|&at| self.view(at).is_some_and(|view| view.parameters == place));
        for (member, at) in members.iter_mut().zip(found) {
            *member = Some(at);
        }
        members
    }

    /// The leaders of a direction, without the views of `over`, a bit each in their order.
    pub(super) fn leaders(&self, record: u32, over: u32) -> impl Iterator<Item = ViewAt> + use<> {
        let mut leaders = [None; MAX_APPLICATIONS];
        let views = self.views_of(record).enumerate();
        let found = views
            .filter(|&(place, at)| over & 1 << place == 0 && self.is_leader(at))
            .map(|(_, at)| at);
        for (place, at) in leaders.iter_mut().zip(found) {
            *place = Some(at);
        }
        leaders.into_iter().flatten()
    }

    /// Whether `at` is the first view of its direction with its parameters that wants anything.
    pub(super) fn is_leader(&self, at: ViewAt) -> bool {
        let Some(mine) = self.view(at) else {
            return false;
        };
        if mine.flags.has(ViewFlags::OVER) || mine.application == u8::MAX {
            return false;
        }
        if at.extra == NONE {
            return true;
        }
        self.views_of(at.record)
            .take_while(|&this| this != at)
            .filter_map(|this| self.view(this))
            .all(|view| view.parameters != mine.parameters || view.flags.has(ViewFlags::OVER))
    }

    /// The first view of a direction that has this chunk under way.
    pub(super) fn leader_of(&self, record: u32, chunk: u32) -> Option<ViewAt> {
        self.views_of(record)
            .find(|&at| self.view(at).is_some_and(|view| view.chunk == chunk))
    }

    /// Whether a chunk under way is led by `at`: an earlier view does not have it.
    pub(super) fn leads_chunk(&self, at: ViewAt) -> bool {
        let chunk = self.view(at).map_or(NONE, |view| view.chunk);
        chunk != NONE && self.leader_of(at.record, chunk) == Some(at)
    }

    /// Whether another view than `at` has this chunk under way.
    fn is_shared(&self, at: ViewAt, chunk: u32) -> bool {
        self.views_of(at.record)
            .any(|this| this != at && self.view(this).is_some_and(|view| view.chunk == chunk))
    }

    /// The first view after `at` with these parameters that wants more.
    pub(super) fn heir(&self, at: ViewAt, place: u16) -> Option<ViewAt> {
        self.views_of(at.record)
            .skip_while(|&this| this != at)
            .skip(1)
            .find(|&this| {
                self.view(this).is_some_and(|view| {
                    view.parameters == place && !view.flags.has(ViewFlags::OVER)
                })
            })
    }

    /// The views of a direction, as they are now.
    pub(super) fn all_views(&self, record: u32) -> impl Iterator<Item = ViewAt> + use<> {
        let mut views = [None; MAX_APPLICATIONS];
        for (place, at) in views.iter_mut().zip(self.views_of(record)) {
            *place = Some(at);
        }
        views.into_iter().flatten()
    }
}
