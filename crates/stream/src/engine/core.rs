//! The state of an engine between packets.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use flowgauge_flow::{FlowId, Withheld};
use flowgauge_reassembly::HostPolicies;
use flowgauge_sys::prefetch::{prefetch, prefetch_address, prefetch_at};
use flowgauge_wire::{BATCH_SIZE, Budget, FoldedState, Nanos, Place};

use super::budget::Watermarks;
use super::buffers::Buffers;
use super::chunk::log_of;
use super::config::{ApplicationConfig, ApplicationId, EngineConfig, MAX_APPLICATIONS};
use super::events::Stopwatch;
use super::record::{
    Extra, Loss, OwnLoss, Parameters, Pending, Record, RecordFlags, View, ViewAt, ViewFlags,
};
use super::silence::Silences;
use super::slab::{NONE, Slab, Table};
use super::statistics::{Counts, EngineStatistics};
use super::unwanted::Beginnings;
use crate::wants::Want;

/// Packets that what is kept for a stream is fetched ahead.
pub(super) const AHEAD: usize = 16;
/// So many parameter sets are kept, whether or not anybody has them.
const FEW_SETS: usize = 1024;
/// Packets that the place in a chunk is fetched ahead.
const NEXT: usize = 6;

/// In [`Core::upcoming`]: the packet has no payload. (Numbers of streams are smaller.)
const EMPTY: u32 = 1 << 31;
/// ... and it begins or ends its direction. (Of streams with larger numbers other memory is fetched.)
const CONTROL: u32 = 1 << 30;
/// What most packets take at most in a log of packets.
const HEADERS: usize = 96;
/// Of more bytes only the first are fetched.
const FEW_BYTES: usize = 256;
/// Payload of a large segment.
const SEGMENT: usize = 1460;

/// State of an engine, apart from its shard.
pub(super) struct Core {
    pub(super) applications: Vec<Option<Application>>,
    parameters: Vec<Parameters>,
    parameter_places: HashMap<Parameters, u16>,
    /// Places that nobody uses any more.
    free_parameters: Vec<u16>,
    /// With so many sets in use those that nobody has any more are looked for.
    sweep_at: usize,
    pub(super) records: Table<Record>,
    pub(super) views: Slab<Extra>,
    losses: Slab<Loss>,
    pub(super) pending: Slab<Pending>,
    /// Bytes of buffers of partial chunks.
    pub(super) partial: u64,
    /// Chunks begun so far.
    pub(super) opened: u32,
    /// Where the search for partial chunks to be flushed goes on.
    pub(super) hand: u32,
    pub(super) buffers: Buffers,
    pub(super) budget: Budget,
    /// A handle to the budget for the next data event.
    pub(super) lent: Option<Budget>,
    pub(super) watermarks: Watermarks,
    /// Priorities that a stream has had.
    priorities: Box<[bool; 256]>,
    /// Partial chunks by parameter set in the order they time out.
    pub(super) timers: Vec<Timer>,
    pub(super) policies: HostPolicies,
    /// Whether streams do not all have the policy that the shard gives them.
    pub(super) has_policies: bool,
    /// Whether some application wants packets.
    pub(super) need_packets: bool,
    /// Whether not all of them do.
    pub(super) some_packets: bool,
    /// Whether the filters want to see packets.
    pub(super) filtered: bool,
    /// What it has of a stream from the responder, and of one from the initiator, where there is one application that asks
    /// nothing of their first packet.
    pub(super) alike: Option<[View; 2]>,
    /// The streams of the batch's packets, so that what later ones need can be fetched.
    pub(super) upcoming: Box<[u32; BATCH_SIZE + AHEAD]>,
    pub(super) fetched: usize,
    pub(super) passed: usize,
    /// The stream of the packet that is asked about.
    pub(super) asked: u32,
    /// The streams that the last packets begin or end, 0 for others; of those before, their chunks under way.
    controls: [u32; AHEAD],
    marked: usize,
    /// Whether packets have to be looked at one by one.
    pub(super) watchful: bool,
    /// More memory is used than the base threshold.
    pub(super) pressed: bool,
    /// Of the stream that is ending: what is known to be missing at its end, and where that begins.
    pub(super) trailing_gap: (u32, u64, u64),
    pub(super) statistics: EngineStatistics,
    pub(super) stopwatch: Option<Box<dyn Stopwatch>>,
    pub(super) silences: Silences,
    /// Packets that were delivered, but are dropped or discarded, and are not in the ledger yet.
    pub(super) refused: Vec<(Place, Counts)>,
    /// What else these packets had.
    pub(super) refused_bytes: u64,
    /// Where packets begin in the bytes in order that are dealt with.
    pub(super) beginnings: Beginnings,
    /// Of the packet under way: the views to which it was given where it belongs, in mode FAST, a bit each
    /// in their order.
    pub(super) placed: u32,
    /// What the shard is to do before the next packet.
    pub(super) requests: VecDeque<Want>,
    /// Whether somebody is told how much streams are wanted under overload.
    pub(super) tells_standings: bool,
    /// Of these it was told that they are beyond the overload cutoff.
    pub(super) beyond: HashSet<u32, FoldedState>,
    /// The shard is others', too ([`Engine::beside`](super::Engine::beside)).
    pub(super) is_beside: bool,
    /// What is known of the packet under way has been counted: what more is told of it says nothing.
    pub(super) is_counted: bool,
    /// The bytes that come next were taken with their packet.
    pub(super) is_taken: bool,
}

/// An application, and the place of its parameter set.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) config: ApplicationConfig,
    pub(super) parameters: u16,
    pub(super) needs_packets: bool,
}

/// Chunks of one parameter set with a flush timeout, oldest first.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) parameters: u16,
    pub(super) timeout: Nanos,
    /// Their beginnings, numbers and generations. (Time may go backwards: of what came last is not known that
    /// it is due last.)
    pub(super) chunks: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
    /// With more entries those of chunks that were delivered go.
    pub(super) compact_at: usize,
}

impl Timer {
    /// So many entries cost nothing worth talking of.
    pub(super) const FEW: usize = 256;
}

impl Core {
    pub(super) fn new(config: &EngineConfig, budget: Budget) -> Core {
        let limit = budget.limit();
        let directions = 2 * config.shard.flow.max_flows as usize;
        Core {
            applications: Vec::new(),
            parameters: Vec::new(),
            parameter_places: HashMap::new(),
            free_parameters: Vec::new(),
            sweep_at: FEW_SETS,
            records: Table::new(directions),
            views: Slab::new(directions),
            losses: Slab::new(directions),
            pending: Slab::new(directions),
            partial: 0,
            opened: 0,
            hand: 0,
            buffers: Buffers::new(budget.clone()),
            watermarks: Watermarks::new(limit, config.base_threshold, config.overload_cutoff),
            budget,
            lent: None,
            priorities: Box::new([false; 256]),
            timers: Vec::new(),
            policies: config.policies.clone(),
            has_policies: !config.policies.is_uniform(),
            need_packets: false,
            some_packets: false,
            trailing_gap: (NONE, 0, 0),
            filtered: false,
            alike: None,
            upcoming: Box::new([NONE; BATCH_SIZE + AHEAD]),
            fetched: 0,
            passed: 0,
            asked: 0,
            controls: [0; AHEAD],
            marked: 0,
            watchful: false,
            pressed: false,
            statistics: EngineStatistics::default(),
            stopwatch: None,
            refused: Vec::new(),
            refused_bytes: 0,
            beginnings: Beginnings::default(),
            placed: 0,
            silences: Silences::new(&config.shard.flow),
            requests: VecDeque::new(),
            tells_standings: false,
            beyond: HashSet::default(),
            is_beside: false,
            is_counted: false,
            is_taken: false,
        }
    }

    pub(super) fn set_policies(&mut self, policies: HostPolicies) {
        self.policies = policies;
        self.has_policies = true;
    }

    /// Enters an application; `None` when there are too many.
    pub(super) fn add(
        &mut self,
        config: ApplicationConfig,
        needs_packets: bool,
    ) -> Option<ApplicationId> {
        let free = self.applications.iter().position(Option::is_none);
        let at = free.unwrap_or(self.applications.len());
        if at >= MAX_APPLICATIONS {
            return None;
        }
        if at == self.applications.len() {
            self.applications.push(None);
        }
        let application = ApplicationId(at as u8);
        let is_entered = self.enter(application, config, needs_packets);
        is_entered.then_some(application)
    }

    /// Changes what an application wants. False when there is no such application, or too many
    /// parameter sets.
    pub(super) fn change(
        &mut self,
        application: ApplicationId,
        change: impl FnOnce(&mut ApplicationConfig),
    ) -> bool {
        let place = self.applications.get(usize::from(application.0));
        let Some(Some(current)) = place else {
            return false;
        };
        let (mut config, needs_packets) = (current.config.clone(), current.needs_packets);
        change(&mut config);
        self.enter(application, config, needs_packets)
    }

    fn enter(
        &mut self,
        application: ApplicationId,
        config: ApplicationConfig,
        needs_packets: bool,
    ) -> bool {
        let mut config = config;
        if needs_packets && config.chunk_bytes == 0 {
            // Packets are records beside a chunk's bytes: there has to be one.
            config.chunk_bytes = ApplicationConfig::CHUNK_BYTES;
        }
        let Some(parameters) = self.intern(Parameters::of(&config, needs_packets)) else {
            return false;
        };
        self.watchful |= config.mode != super::config::Mode::Wait;
        self.applications[usize::from(application.0)] = Some(Application {
            config,
            parameters,
            needs_packets,
        });
        self.note_applications();
        true
    }

    /// Forgets an application, and what streams have of it.
    pub(super) fn remove(&mut self, application: ApplicationId) {
        if let Some(place) = self.applications.get_mut(usize::from(application.0)) {
            *place = None;
        }
        self.forget_silences(application);
        for id in 0..self.records.bound() {
            let Some(at) = self.live_view(id, application) else {
                continue;
            };
            if let Some(view) = self.view_mut(at) {
                // Another application may get its number.
                view.application = u8::MAX;
                view.flags.set(ViewFlags::OVER | ViewFlags::DISCARDED);
            }
            self.leave_chunk(at);
            self.note_views(id);
            if self.is_done(id) {
                self.requests.push_back(Want::Nothing(id));
            }
        }
        self.note_applications();
    }

    fn note_applications(&mut self) {
        let mut needs = (self.applications.iter().flatten()).map(|one| one.needs_packets);
        let first = needs.next();
        self.some_packets = needs.any(|one| Some(one) != first);
        self.need_packets = self.some_packets || first == Some(true);
        self.filtered = self.applications.iter().flatten().any(|application| {
            let application = &application.config;
            application.filter.is_some()
                || !application.cutoff.classes.is_empty()
                || !application.priority.classes.is_empty()
        });
        let mut all = (0..)
            .zip(&self.applications)
            .filter_map(|(at, one)| Some((at, one.as_ref()?)));
        self.alike = match (self.filtered, all.next(), all.next()) {
            (false, Some((at, one)), None) => Some([false, true].map(|from_initiator| {
                let limit = one.config.cutoff.of_direction(from_initiator);
                one.view(at, limit, one.config.priority.default)
            })),
            _ => None,
        };
        self.rank_priorities();
        self.note_silences();
    }

    /// The place of a parameter set in the list; `None` when there are too many sets.
    pub(super) fn intern(&mut self, parameters: Parameters) -> Option<u16> {
        if let Some(&found) = self.parameter_places.get(&parameters) {
            return Some(found);
        }
        let place = match self.free_parameters.pop() {
            Some(place) => {
                self.parameters[usize::from(place)] = parameters;
                place
            }
            None => {
                let Ok(place) = u16::try_from(self.parameters.len()) else {
                    self.statistics.parameters_refused += 1;
                    return None;
                };
                self.parameters.push(parameters);
                place
            }
        };
        self.parameter_places.insert(parameters, place);
        if let Some(timeout) = parameters.flush_timeout {
            self.timers.push(Timer {
                parameters: place,
                timeout,
                chunks: BinaryHeap::new(),
                compact_at: Timer::FEW,
            });
        }
        Some(place)
    }

    /// Forgets parameter sets that nobody has any more, where there are many. (Not in the midst of a
    /// packet: places are remembered on the way.)
    #[inline]
    pub(super) fn tidy_parameters(&mut self) {
        if self.parameter_places.len() >= self.sweep_at {
            self.sweep_parameters();
        }
    }

    #[cold]
    fn sweep_parameters(&mut self) {
        let mut used = vec![false; self.parameters.len()];
        for application in self.applications.iter().flatten() {
            used[usize::from(application.parameters)] = true;
        }
        for id in 0..self.records.bound() {
            let is_live = |record: &Record| record.flags.has(RecordFlags::LIVE);
            if !self.records.get(id).is_some_and(is_live) {
                continue;
            }
            // Of applications that are gone nothing is asked any more.
            for at in self.views_of(id) {
                let Some(view) = self.view(at) else {
                    continue;
                };
                if view.application != u8::MAX {
                    used[usize::from(view.parameters)] = true;
                }
                if self.members(at) != 0 {
                    used[usize::from(view.chunk_parameters)] = true;
                }
            }
        }
        let free = &mut self.free_parameters;
        self.parameter_places.retain(|_, place| {
            let keep = used[usize::from(*place)];
            if !keep {
                free.push(*place);
            }
            keep
        });
        let places = &self.parameter_places;
        let parameters = &self.parameters;
        self.timers.retain(|timer| {
            places.get(&parameters[usize::from(timer.parameters)]) == Some(&timer.parameters)
        });
        self.sweep_at = (2 * self.parameter_places.len()).clamp(FEW_SETS, usize::from(u16::MAX));
    }

    #[inline(always)]
    pub(super) fn parameters(&self, place: u16) -> Parameters {
        // The list only grows, and places come from it.
        self.parameters[usize::from(place)]
    }

    #[inline(always)]
    pub(super) fn view(&self, at: ViewAt) -> Option<&View> {
        if at.extra == NONE {
            Some(&self.records.get(at.record)?.view)
        } else {
            Some(&self.views.get(at.extra)?.view)
        }
    }

    #[inline(always)]
    pub(super) fn view_mut(&mut self, at: ViewAt) -> Option<&mut View> {
        if at.extra == NONE {
            Some(&mut self.records.get_mut(at.record)?.view)
        } else {
            Some(&mut self.views.get_mut(at.extra)?.view)
        }
    }

    /// The direction's view after `at`.
    #[inline]
    pub(super) fn next_view(&self, at: ViewAt) -> Option<ViewAt> {
        let extra = if at.extra == NONE {
            self.records.get(at.record)?.more
        } else {
            self.views.get(at.extra)?.next
        };
        let place = at.place + 1;
        (extra != NONE).then_some(ViewAt { extra, place, ..at })
    }

    /// The views of a direction.
    pub(super) fn views_of(&self, record: u32) -> impl Iterator<Item = ViewAt> + '_ {
        core::iter::successors(Some(ViewAt::first(record)), |&at| self.next_view(at))
    }

    /// A stream's unique id: the place in the table, and how often it was used before.
    #[inline]
    pub(super) fn uid(&self, id: u32) -> u64 {
        let generation = self.records.get(id).map_or(0, |record| record.generation);
        u64::from(generation) << 32 | u64::from(id)
    }

    /// The place of a stream that lives.
    pub(super) fn find(&self, uid: u64) -> Option<u32> {
        let id = uid as u32;
        let record = self.records.get(id)?;
        (record.flags.has(RecordFlags::LIVE) && self.uid(id) == uid).then_some(id)
    }

    /// An application's view of a stream that lives.
    pub(super) fn live_view(&self, id: u32, application: ApplicationId) -> Option<ViewAt> {
        let record = self.records.get(id)?;
        if !record.flags.has(RecordFlags::LIVE)
            || record.flags.has(RecordFlags::UNWANTED | RecordFlags::NEW)
        {
            return None;
        }
        self.views_of(id).find(|&at| {
            let view = self.view(at);
            view.is_some_and(|view| view.application == application.0)
        })
    }

    /// Whether anything was lost of a direction, or not wanted.
    #[inline]
    pub(super) fn has_loss(&self, id: u32) -> bool {
        self.records
            .get(id)
            .is_some_and(|record| record.loss != NONE)
    }

    /// What was lost of a direction.
    pub(super) fn loss(&self, id: u32) -> Loss {
        let place = self.records.get(id).map_or(NONE, |record| record.loss);
        self.losses.get(place).copied().unwrap_or_default()
    }

    /// The same, to be changed.
    pub(super) fn loss_mut(&mut self, id: u32) -> Option<&mut Loss> {
        let record = self.records.get_mut(id)?;
        if record.loss == NONE {
            record.loss = self.losses.insert(Loss::default());
        }
        self.losses.get_mut(record.loss)
    }

    /// What an application alone has lost of a direction.
    pub(super) fn own_loss(&self, at: ViewAt) -> OwnLoss {
        match self.views.get(at.extra) {
            Some(extra) if at.extra != NONE => extra.own,
            _ => self.loss(at.record).own,
        }
    }

    /// The same, to be changed.
    pub(super) fn own_loss_mut(&mut self, at: ViewAt) -> Option<&mut OwnLoss> {
        if at.extra == NONE {
            return Some(&mut self.loss_mut(at.record)?.own);
        }
        Some(&mut self.views.get_mut(at.extra)?.own)
    }

    pub(super) fn forget_loss(&mut self, id: u32) {
        if let Some(record) = self.records.get_mut(id)
            && record.loss != NONE
        {
            let place = core::mem::replace(&mut record.loss, NONE);
            self.losses.remove(place);
        }
    }

    /// Counts what is not wanted.
    pub(super) fn discard(&mut self, id: u32, counts: Counts) {
        self.statistics.discard(counts);
        if let Some(loss) = self.loss_mut(id) {
            loss.discarded += counts;
        }
    }

    /// Counts what is lost.
    pub(super) fn drop(&mut self, id: u32, counts: Counts) {
        self.statistics.drop(counts);
        if let Some(loss) = self.loss_mut(id) {
            loss.dropped += counts;
        }
    }

    /// A backend kept packets away, of a stream if that lives.
    pub(super) fn take_withheld(&mut self, stream: Option<u32>, withheld: &Withheld) -> Place {
        let counts = |packets| Counts {
            packets,
            bytes: withheld.payload_bytes,
        };
        self.statistics.all += counts(withheld.packets);
        self.statistics.withheld += counts(withheld.packets);
        let record = stream.and_then(|id| self.records.get(id));
        let is_unwanted = record.is_some_and(|record| record.flags.has(RecordFlags::UNWANTED));
        match stream.filter(|_| !is_unwanted) {
            Some(id) => {
                self.discard(id, counts(withheld.data_packets));
                self.done_place(id)
            }
            None => {
                self.statistics.discard(counts(withheld.packets));
                Place::Filter
            }
        }
    }

    /// A stream has this priority. It is in use from then on: memory is kept for the next stream
    /// that has it, too.
    #[inline]
    pub(super) fn use_priority(&mut self, priority: u8) {
        if !self.priorities[usize::from(priority)] {
            self.priorities[usize::from(priority)] = true;
            self.rank_priorities();
        }
    }

    /// Ranks the priorities that are in use: a stream had them, or an application may give them.
    fn rank_priorities(&mut self) {
        let mut used = [false; 256];
        for application in self.applications.iter().flatten() {
            let priority = &application.config.priority;
            used[usize::from(priority.default)] = true;
            for (_, priority) in &priority.classes {
                used[usize::from(*priority)] = true;
            }
        }
        let priorities = &self.priorities;
        self.watermarks
            .set_priorities(|at| used[usize::from(at)] || priorities[usize::from(at)]);
    }

    /// Whether packets of those who use a chunker are noted.
    #[inline(always)]
    pub(super) fn notes_packets(&self, chunker: &View) -> bool {
        !self.some_packets || self.parameters(chunker.chunk_parameters).packets
    }

    /// The highest priority that an application gives a direction.
    pub(super) fn priority_of(&self, id: u32) -> u8 {
        self.views_of(id)
            .filter_map(|at| self.view(at))
            .filter(|view| !view.flags.has(ViewFlags::OVER))
            .map(|view| view.priority)
            .max()
            .unwrap_or(0)
    }

    /// As much memory may be in use with what is charged for a direction.
    #[inline]
    pub(super) fn ceiling_of(&self, id: u32) -> u64 {
        match self.records.get(id) {
            Some(record) if record.more == NONE => self.watermarks.ceiling(record.view.priority),
            _ => self.watermarks.ceiling(self.priority_of(id)),
        }
    }

    /// A packet of the batch is likely one of stream `id`: fetches its record.
    #[inline(always)]
    pub(super) fn fetch(&mut self, id: u32, has_payload: bool) {
        self.upcoming[self.fetched % BATCH_SIZE] = if has_payload { id } else { id | EMPTY };
        self.fetched += 1;
        if let Some(record) = self.records.get(id) {
            prefetch(record);
        }
    }

    /// A stream ends soon: fetches its record, then its chunk under way, then the bytes of that.
    #[inline(always)]
    pub(super) fn fetch_end(&self, id: u32, step: usize) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        if step == 0 {
            return prefetch(record);
        }
        let Some(pending) = self.pending.get(record.view.chunk) else {
            return;
        };
        if step == 1 {
            return prefetch(pending);
        }
        let bytes = pending.content.bytes.as_slice();
        for at in (0..bytes.len().min(FEW_BYTES)).step_by(64) {
            prefetch_at(bytes, at);
        }
    }

    /// Whether the packet that is asked about begins or ends its direction. Such a one needs the record (of both directions,
    /// which most CPUs fetch together) whether it has payload or not, later the chunk under way, and then its bytes. (No
    /// branches: nobody could guess them.)
    #[inline(always)]
    pub(super) fn mark_control(&mut self, is_control: bool) {
        let asked = if is_control { self.asked } else { 0 };
        prefetch_address(self.records.address(asked).cast());
        let at = self.marked;
        self.marked = at.wrapping_add(1);
        let next = core::mem::replace(&mut self.controls[at % AHEAD], asked);
        let later = at.wrapping_add(AHEAD / 2) % AHEAD;
        let chunk = self.chunk_or_first(self.controls[later]);
        self.controls[later] = chunk;
        let pending = self.pending.address(chunk).cast::<u8>();
        prefetch_address(pending);
        prefetch_address(pending.wrapping_add(64));
        if let Some(pending) = self.pending.get(next) {
            prefetch_address(pending.content.bytes.as_slice().as_ptr());
        }
        if self.need_packets {
            let last = self.fetched.wrapping_sub(1) % BATCH_SIZE;
            self.upcoming[last] |= u32::from(is_control) * CONTROL;
        }
    }

    /// The chunk under way of a stream; the first chunk where there is none.
    #[inline(always)]
    fn chunk_or_first(&self, id: u32) -> u32 {
        let chunk = self
            .records
            .get(id)
            .map_or(NONE, |record| record.view.chunk);
        if chunk < self.pending.bound() {
            chunk
        } else {
            0
        }
    }

    /// A packet that [`Core::fetch`] was told of is up: fetches what those after it need, first the
    /// chunk under way, then the place in it where bytes go.
    #[inline(always)]
    pub(super) fn fetch_ahead(&mut self) {
        let at = self.passed % BATCH_SIZE;
        if self.passed == 0 {
            self.fetch_first();
        }
        self.passed += 1;
        self.fetch_chunk(at + AHEAD);
        self.fetch_place(at + NEXT);
    }

    /// What the first packets of a batch need.
    #[inline(never)]
    fn fetch_first(&self) {
        (0..AHEAD).for_each(|at| self.fetch_chunk(at));
        (0..NEXT).for_each(|at| self.fetch_place(at));
    }

    #[inline(always)]
    fn fetch_chunk(&self, at: usize) {
        let (pending, has_payload) = self.upcoming_chunk(at);
        if let Some(pending) = pending
            && (has_payload || self.need_packets)
        {
            prefetch(pending);
        }
    }

    #[inline(always)]
    fn fetch_place(&self, at: usize) {
        let (pending, has_payload) = self.upcoming_chunk(at);
        let Some(pending) = pending else {
            return;
        };
        let bytes = &pending.content.bytes;
        if has_payload {
            (0..2).for_each(|line| prefetch_address(bytes.end().wrapping_add(64 * line)));
        }
        if self.need_packets {
            let end = bytes.stack_end();
            for before in [1, 65, HEADERS] {
                prefetch_address(end.wrapping_sub(before));
            }
            let is_last = self.upcoming[at] & CONTROL != 0;
            if is_last || bytes.len() + SEGMENT > pending.target as usize {
                log_of(&pending.content, &pending.log).fetch();
            }
        }
    }

    /// The chunk under way of the stream of an upcoming packet, and whether the packet has payload.
    #[inline(always)]
    fn upcoming_chunk(&self, at: usize) -> (Option<&Pending>, bool) {
        let upcoming = self.upcoming[at];
        let record = self.records.get(upcoming & !(EMPTY | CONTROL));
        let chunk = record.map_or(NONE, |record| record.view.chunk);
        (self.pending.get(chunk), upcoming & EMPTY == 0)
    }

    /// Notes whether memory is short.
    #[inline]
    pub(super) fn look_at_memory(&mut self) {
        self.pressed = self.budget.used() > self.watermarks.base();
    }
}

/// The flow of a direction.
pub(super) fn flow_of(id: u32) -> FlowId {
    FlowId(id / 2)
}

impl core::fmt::Debug for Core {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core")
            .field("applications", &self.applications)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
