//! Chunkers, which let applications share chunks.
//!
//! Each view of a direction has a chunker, which has at most one chunk. Views with equal parameters
//! share one chunker ([`Core::share`]), regardless of their cutoffs. A view whose parameters change
//! uses another one from its next chunk on, as does a view that keeps a chunk or stops in the middle
//! of one: [`Core::part`]. One is always free, as there are as many as views.

use super::config::{MAX_APPLICATIONS, Mode};
use super::core::Core;
use super::record::{Parameters, View, ViewAt, ViewFlags};
use super::slab::NONE;

impl Core {
    /// Of a new direction those views use a chunker together whose parameters are equal.
    pub(super) fn share(&mut self, id: u32) {
        if self.is_alone(ViewAt::first(id)) {
            return;
        }
        for at in self.all_views(id).skip(1) {
            let parameters = self.view(at).map(|view| view.parameters);
            let same = self
                .views_of(id)
                .find(|&this| self.view(this).map(|view| view.parameters) == parameters);
            if let (Some(same), Some(view)) = (same, self.view_mut(at)) {
                view.chunker = same.place;
            }
        }
    }

    /// The chunker that a view uses, as the view that it is beside.
    #[inline(always)]
    pub(super) fn chunker_of(&self, at: ViewAt) -> ViewAt {
        match self.view(at) {
            Some(view) if view.chunker != at.place => self.chunker_at(at.record, view.chunker),
            _ => at,
        }
    }

    #[cold]
    fn chunker_at(&self, record: u32, place: u8) -> ViewAt {
        let found = self.views_of(record).nth(usize::from(place));
        found.unwrap_or(ViewAt::first(record))
    }

    /// The parameters of a chunker.
    #[inline(always)]
    pub(super) fn parameters_of(&self, chunker: ViewAt) -> Parameters {
        let place = self.view(chunker).map_or(0, |view| view.chunk_parameters);
        self.parameters(place)
    }

    /// The chunk under way of a chunker, or `NONE`.
    #[inline(always)]
    pub(super) fn chunk_of(&self, chunker: ViewAt) -> u32 {
        self.view(chunker).map_or(NONE, |view| view.chunk)
    }

    /// The chunker of a direction that has this chunk under way.
    pub(super) fn chunker_with(&self, record: u32, chunk: u32) -> Option<ViewAt> {
        self.views_of(record).find(|&at| self.chunk_of(at) == chunk)
    }

    /// The views that use a chunker and want more, a bit each in their order.
    #[inline(always)]
    pub(super) fn members(&self, chunker: ViewAt) -> u32 {
        match self.records.get(chunker.record) {
            Some(record) if record.more == NONE => {
                u32::from(!record.view.flags.has(ViewFlags::OVER))
            }
            _ => self.members_of_many(chunker),
        }
    }

    #[inline(never)]
    fn members_of_many(&self, chunker: ViewAt) -> u32 {
        self.views_of(chunker.record)
            .filter(|&at| self.view(at).is_some_and(|view| view.is_member(chunker)))
            .fold(0, |members, at| members | at.bit())
    }

    /// The first of these views that is not before `from`.
    #[inline]
    pub(super) fn next_of(&self, views: u32, from: Option<ViewAt>) -> Option<ViewAt> {
        let mut at = from.filter(|_| views != 0);
        while let Some(this) = at
            && views & this.bit() == 0
        {
            at = self.next_view(this);
        }
        at
    }

    /// The first view of a direction that wants more and is none of these.
    pub(super) fn first_without(&self, id: u32, views: u32) -> Option<ViewAt> {
        self.views_of(id)
            .find(|&at| views & at.bit() == 0 && !self.is_over(at))
    }

    /// The smallest cutoff of those who use a chunker.
    #[inline(always)]
    pub(super) fn limit_of(&self, chunker: ViewAt) -> u64 {
        match self.records.get(chunker.record) {
            Some(record) if record.more == NONE => record.view.limit,
            _ => self.limits_of(chunker).min().unwrap_or(0),
        }
    }

    /// The cutoffs of those who use a chunker.
    pub(super) fn limits_of(&self, chunker: ViewAt) -> impl Iterator<Item = u64> + '_ {
        self.users_of(chunker).map(|view| view.limit)
    }

    /// Whether those who use a chunker have got a chunk.
    pub(super) fn has_chunks(&self, chunker: ViewAt) -> bool {
        let first = self.users_of(chunker).next();
        first.is_some_and(|view| view.chunks != 0)
    }

    fn users_of(&self, chunker: ViewAt) -> impl Iterator<Item = &View> {
        self.views_of(chunker.record)
            .filter_map(|at| self.view(at))
            .filter(move |view| view.is_member(chunker))
    }

    /// A view that has no chunk under way follows its parameters.
    pub(super) fn follow(&mut self, at: ViewAt) {
        let place = self
            .view(self.chunker_of(at))
            .map(|view| view.chunk_parameters);
        if self.view(at).map(|view| view.parameters) != place {
            self.part(at);
        }
    }

    /// From here on a view uses a chunker with its own parameters and without a chunk, alone.
    pub(super) fn part(&mut self, at: ViewAt) {
        let Some(parameters) = self.view(at).map(|view| view.parameters) else {
            return;
        };
        let used = self
            .views_of(at.record)
            .filter(|&this| this != at)
            .filter_map(|this| self.view(this))
            .filter(|view| !view.flags.has(ViewFlags::OVER))
            .fold(0, |used, view| used | 1_u32 << view.chunker);
        let old = self.chunker_of(at);
        let chunker = match used & old.bit() {
            0 => Some(old),
            _ => self.views_of(at.record).find(|this| used & this.bit() == 0),
        };
        let Some(chunker) = chunker else {
            return;
        };
        let (before, after) = (self.mode_of(at), self.parameters(parameters).mode);
        if after != Mode::Fast {
            self.note_ahead(at);
        }
        if let Some(view) = self.view_mut(chunker) {
            debug_assert_eq!(view.chunk, NONE);
            view.chunk_parameters = parameters;
        }
        if let Some(view) = self.view_mut(at) {
            view.chunker = chunker.place;
        }
        if before != after {
            self.note_views(at.record);
        }
    }

    /// A view wants no more of its chunk; the last one out frees it.
    pub(super) fn leave_chunk(&mut self, at: ViewAt) {
        let chunker = self.chunker_of(at);
        if self.members(chunker) == 0 {
            self.free_chunk(chunker);
        }
    }

    /// Takes the memory of a chunk under way back.
    pub(super) fn free_chunk(&mut self, chunker: ViewAt) {
        if let Some(pending) = self.take_pending(chunker) {
            let (content, log) = pending.take_memory();
            self.recycle(content, log);
        }
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

impl View {
    /// Whether it uses this chunker and wants more.
    #[inline(always)]
    fn is_member(&self, chunker: ViewAt) -> bool {
        self.chunker == chunker.place && !self.flags.has(ViewFlags::OVER)
    }
}
