//! Results of filters for a batch.
//!
//! A filter is evaluated once per batch, for all packets that reach a test, as a bit set. The result of a test is a
//! set, too. The value it tests is read once per packet, regardless of how many filters test it, and of the constants
//! they compare it with:
//!
//! ```text
//!  value               packets that pass, by test
//!  half at 12          = 0x800: 11101111   = 0x86dd: 00010000
//!  half at 4*IHL + 16  = 80:    10000001   = 443:    01100000   >= 1024: 00001100
//! ```
//!
//! Packets that reach tests of one value in the same way, regardless of the constants, are [`Arrivals`]: one look-up in
//! the table of the value decides all these tests. Filters of ports and five-tuples start like others, so what remains
//! for each filter is the intersection of its arrivals with the packets that pass its last tests:
//!
//! ```text
//!  tcp port 80     half at 12 = 0x800 -- byte at 23 = 6 -- no fragment --+-- half at 4*IHL + 14: = 80, = 443, ...
//!  tcp port 443                                                          +-- half at 4*IHL + 16: = 80, = 443, ...
//! ```
//!
//! (The second port is also tested for packets whose first is 80: they are accepted anyway.)
//!
//! No result depends on previous packets, so only the number of values and tests has to be bounded, which is that of
//! the existing filters: the entries of a filter are removed with it.

mod column;
mod frames;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_wire::{LinkType, Selection};
use slab::Slab;

use self::column::{Column, Loaded, without_mask};
use self::frames::Frames;
pub(super) use self::frames::Places;
use super::Filter;
use super::decisions::{Decisions, Test, Value};

/// Results of one thread's filters for the packets of a batch. Filters that use the same columns share their results.
#[derive(Debug)]
pub struct Columns {
    /// No other's.
    id: u64,
    columns: Slab<Column>,
    /// The places of values in `columns`.
    places: HashMap<Arc<Value>, usize>,
    /// What columns look at, and where it is.
    loaded: Slab<Loaded>,
    loaded_places: HashMap<Arc<Value>, usize>,
    arrivals: Slab<Arrivals>,
    rests: Slab<Rest>,
    /// The filters that have their places here, by their numbers.
    bound: Slab<Arc<Bound>>,
    /// Of those that are watched, the epoch in which any packet came to their ends last.
    reached: Vec<u64>,
    /// Where they are watched.
    watches: Slab<Watch>,
    watch_numbers: HashMap<Vec<u32>, u32>,
    /// The numbers of arrivals by value and ways, and of rests by test and ways.
    arrival_numbers: HashMap<(usize, Vec<Edge>), u32>,
    rest_numbers: HashMap<(Edge, Vec<Edge>), u32>,
    /// The packets that filters were asked of in this batch, and how many they are.
    start: Selection,
    asked: u64,
    /// Counts what is known of arrivals and rests.
    epoch: u64,
    /// Counts batches.
    batch: u64,
    frames: Frames,
}

/// A way to a test, or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Edge {
    Start,
    /// Of packets among these arrivals that have the value.
    Asked(u32),
    /// Of packets among these arrivals that passed this test, by its place in [`Column::passed`].
    Passed(u32, u32),
    /// Of the others.
    Rest(u32),
}

/// Packets that come to tests of a value in the same way.
#[derive(Debug)]
struct Arrivals {
    column: usize,
    from: Vec<Edge>,
    users: u32,
    /// Tests that packets pass which filters then accept, with the numbers of these filters, in order.
    watched: Vec<(u32, u32)>,
    /// What is known is of this [`Columns::epoch`].
    epoch: u64,
    packets: Selection,
}

/// Packets that came to a test and did not pass it.
#[derive(Debug)]
struct Rest {
    column: usize,
    /// [`Edge::Passed`] of the same test.
    test: Edge,
    from: Vec<Edge>,
    users: u32,
    epoch: u64,
    packets: Selection,
}

/// Arrivals at the last tests of a filter, or of several that have these in common.
#[derive(Debug)]
struct Watch {
    arrivals: Vec<u32>,
    users: u32,
    /// They are known of this epoch.
    epoch: u64,
}

/// What has to be known before a filter is decided, in this order.
#[derive(Clone, Copy, Debug)]
enum Need {
    Arrivals(u32),
    Rest(u32),
}

/// A filter's places.
#[derive(Debug)]
struct Bound {
    columns: u64,
    decisions: Arc<Decisions>,
    needs: Vec<Need>,
    /// Column and place of each test.
    tests: Vec<(usize, u32)>,
    accepted: Vec<Edge>,
    /// The arrivals at whose tests packets are accepted, if all are by passing one: whether any are is found for all filters
    /// that have tests there at once.
    watch: Option<u32>,
}

/// A filter's places in the columns that it used last.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding(Option<(Arc<Bound>, usize)>);

/// Identifies an entry of [`Columns`] that says whether a filter accepts any packets, while that filter is in use.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    columns: u64,
    link: LinkType,
    number: u32,
    watch: u32,
}

impl Binding {
    /// Where it is said whether the filter accepts any packets, if it is watched.
    pub(super) fn refusal(&self, link: LinkType) -> Option<Refusal> {
        let (bound, number) = self.0.as_ref()?;
        Some(Refusal {
            columns: bound.columns,
            link,
            number: *number as u32,
            watch: bound.watch?,
        })
    }
}

impl Default for Columns {
    fn default() -> Columns {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Columns {
            id: NUMBERS.fetch_add(1, Ordering::Relaxed),
            columns: Slab::new(),
            places: HashMap::new(),
            loaded: Slab::new(),
            loaded_places: HashMap::new(),
            arrivals: Slab::new(),
            rests: Slab::new(),
            bound: Slab::new(),
            reached: Vec::new(),
            watches: Slab::new(),
            watch_numbers: HashMap::new(),
            arrival_numbers: HashMap::new(),
            rest_numbers: HashMap::new(),
            start: Selection::NONE,
            asked: 0,
            epoch: 1,
            batch: 1,
            frames: Frames::default(),
        }
    }
}

impl Columns {
    /// Starts another batch.
    pub fn begin(&mut self) {
        self.batch += 1;
        self.epoch += 1;
        self.start = Selection::NONE;
        self.asked = 0;
        self.frames.is_known = false;
    }

    /// Removes the entries of filters that no longer exist.
    pub fn release(&mut self) {
        let is_gone = |(_, bound): &(usize, &Arc<Bound>)| Arc::strong_count(bound) == 1;
        let gone: Vec<usize> =
            (self.bound.iter().filter(is_gone).map(|(number, _)| number)).collect();
        for number in gone {
            let bound = self.bound.remove(number);
            self.remove(&bound, number as u32);
            self.epoch += 1;
        }
    }

    /// Whether there are no entries for any filter.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
            && self.columns.is_empty()
            && self.places.is_empty()
            && self.loaded.is_empty()
            && self.loaded_places.is_empty()
            && self.arrivals.is_empty()
            && self.arrival_numbers.is_empty()
            && self.rests.is_empty()
            && self.rest_numbers.is_empty()
            && self.watches.is_empty()
            && self.watch_numbers.is_empty()
    }

    /// The packets of each link type.
    #[inline]
    pub(super) fn links(&mut self, places: Places<'_>) -> usize {
        if !self.frames.is_known {
            self.frames.look(places);
        }
        self.frames.links.len()
    }

    /// One of those.
    #[inline]
    pub(super) fn link(&self, number: usize) -> (LinkType, Selection) {
        self.frames.links[number]
    }

    /// Which of these packets a filter accepts, all of its link type.
    pub(super) fn accepted(
        &mut self,
        filter: &Filter,
        binding: &mut Binding,
        places: Places<'_>,
        packets: Selection,
    ) -> Selection {
        let Some(decisions) = filter.program.decisions() else {
            let mut accepted = packets;
            accepted.retain(|place| places.verdict(filter, place) != 0);
            return accepted;
        };
        let (bound, number) = self.place(decisions, binding, packets);
        if self.refuses_all(bound, number, places) {
            return Selection::NONE;
        }
        let accepted = match self.known(&bound.accepted) {
            Some(accepted) => accepted,
            None => {
                self.settle(bound, places);
                self.union(&bound.accepted)
            }
        };
        accepted.and(packets)
    }

    /// Whether a filter accepts none of these packets, all of its link type, if that can be told without it.
    pub(super) fn refused(
        &mut self,
        filter: &Filter,
        binding: &mut Binding,
        places: Places<'_>,
        packets: Selection,
    ) -> bool {
        let Some(decisions) = filter.program.decisions() else {
            return false;
        };
        let (bound, number) = self.place(decisions, binding, packets);
        self.refuses_all(bound, number, places)
    }

    /// The number of these packets, if a filter is known to accept none of them.
    #[inline]
    pub fn refuses(&self, refusal: Refusal, packets: Selection) -> Option<u64> {
        let is_known = refusal.columns == self.id
            && packets == self.start
            && self.frames.is_only(refusal.link)
            && self.watches.get(refusal.watch as usize)?.epoch == self.epoch;
        let is_reached = || self.reached.get(refusal.number as usize) == Some(&self.epoch);
        (is_known && !is_reached()).then_some(self.asked)
    }

    /// A filter's places, and its number among them. It is asked of these packets.
    #[inline]
    fn place<'a>(
        &mut self,
        decisions: &Arc<Decisions>,
        binding: &'a mut Binding,
        packets: Selection,
    ) -> (&'a Bound, usize) {
        let is_here = |(bound, _): &(Arc<Bound>, usize)| bound.columns == self.id;
        if !binding.0.as_ref().is_some_and(is_here) {
            binding.0 = None;
        }
        let (bound, number) = binding.0.get_or_insert_with(|| self.bind(decisions));
        if packets != self.start && !packets.without(self.start).is_empty() {
            // What is found of more packets serves whoever asks for some of them.
            self.start = self.start.or(packets);
            self.asked = self.start.len() as u64;
            self.epoch += 1;
        }
        (bound, *number)
    }

    /// Whether no packet comes to where a filter accepts it, if it is watched.
    #[inline]
    fn refuses_all(&mut self, bound: &Bound, number: usize, places: Places<'_>) -> bool {
        let Some(watch) = bound.watch else {
            return false;
        };
        if self.watches[watch as usize].epoch != self.epoch {
            self.settle(bound, places);
            self.watches[watch as usize].epoch = self.epoch;
        }
        self.reached[number] != self.epoch
    }

    /// Finds what has to be known before a filter is decided.
    fn settle(&mut self, bound: &Bound, places: Places<'_>) {
        for &need in &bound.needs {
            match need {
                Need::Arrivals(number) => self.arrive(number as usize, places),
                Need::Rest(number) => self.leave_over(number as usize),
            }
        }
    }

    /// Packets that took any of these ways, if that is known.
    #[inline]
    fn known(&self, ways: &[Edge]) -> Option<Selection> {
        let mut all = Selection::NONE;
        for &way in ways {
            let epoch = match way {
                Edge::Start => self.epoch,
                Edge::Asked(number) | Edge::Passed(number, _) => {
                    self.arrivals[number as usize].epoch
                }
                Edge::Rest(number) => self.rests[number as usize].epoch,
            };
            if epoch != self.epoch {
                return None;
            }
            all = all.or(self.took(way));
        }
        Some(all)
    }

    #[inline]
    fn union(&self, ways: &[Edge]) -> Selection {
        let ways = ways.iter();
        ways.fold(Selection::NONE, |all, &way| all.or(self.took(way)))
    }

    /// Packets that took a way that is known.
    #[inline]
    fn took(&self, way: Edge) -> Selection {
        match way {
            Edge::Start => self.start,
            Edge::Asked(number) => {
                let arrivals = &self.arrivals[number as usize];
                match arrivals.packets.is_empty() {
                    true => Selection::NONE,
                    false => {
                        let missing = self.columns[arrivals.column].missing;
                        arrivals.packets.without(missing)
                    }
                }
            }
            Edge::Passed(number, test) => {
                let arrivals = &self.arrivals[number as usize];
                let passed = &self.columns[arrivals.column].passed;
                arrivals.packets.and(passed[test as usize])
            }
            Edge::Rest(number) => self.rests[number as usize].packets,
        }
    }

    /// Finds which packets come to tests of a value, and what is not known of it yet.
    #[inline]
    fn arrive(&mut self, number: usize, places: Places<'_>) {
        if self.arrivals[number].epoch == self.epoch {
            return;
        }
        let packets = self.union(&self.arrivals[number].from);
        let arrivals = &mut self.arrivals[number];
        arrivals.epoch = self.epoch;
        arrivals.packets = packets;
        if packets.is_empty() {
            return;
        }
        let column = &mut self.columns[arrivals.column];
        if column.batch != self.batch {
            column.begin(self.batch);
        }
        if !packets.without(column.known).is_empty() {
            let loaded = &mut self.loaded[column.loaded];
            column.look(loaded, self.frames.odd, places, packets, self.start);
        }
        // Whichever are fewer: tests that are watched here, or that any packets of the batch pass.
        let passes = |test: u32| !packets.and(column.passed[test as usize]).is_empty();
        let reached = &mut self.reached;
        if arrivals.watched.len() <= 2 * (column.hit.len() + column.open_tests().len()) {
            for &(test, number) in &arrivals.watched {
                if passes(test) {
                    reached[number as usize] = self.epoch;
                }
            }
            return;
        }
        for &test in column.hit.iter().chain(column.open_tests()) {
            let first = arrivals.watched.partition_point(|of| of.0 < test);
            let watched = arrivals.watched.iter().skip(first);
            let mut watched = watched.take_while(|of| of.0 == test).peekable();
            if watched.peek().is_some() && passes(test) {
                watched.for_each(|&(_, number)| reached[number as usize] = self.epoch);
            }
        }
    }

    #[inline]
    fn leave_over(&mut self, number: usize) {
        let rest = &self.rests[number];
        if rest.epoch == self.epoch {
            return;
        }
        let packets = self.union(&rest.from);
        let missing = match packets.is_empty() {
            true => Selection::NONE,
            false => self.columns[rest.column].missing,
        };
        let passed = self.took(rest.test);
        let rest = &mut self.rests[number];
        rest.epoch = self.epoch;
        rest.packets = packets.without(passed).without(missing);
    }

    /// Finds, or adds, what a filter asks for.
    #[cold]
    fn bind(&mut self, decisions: &Arc<Decisions>) -> (Arc<Bound>, usize) {
        self.release();
        let mut known = self.bound.iter();
        let is_it = |(_, bound): &(usize, &Arc<Bound>)| Arc::ptr_eq(&bound.decisions, decisions);
        if let Some((number, known)) = known.find(is_it) {
            return (Arc::clone(known), number);
        }
        // What is known of the batch under way is not known of new tests.
        self.epoch += 1;
        let ways = Ways::of(decisions);
        let mut bound = Bound {
            columns: self.id,
            decisions: Arc::clone(decisions),
            needs: Vec::new(),
            tests: Vec::new(),
            accepted: Vec::new(),
            watch: None,
        };
        let mut edges = vec![(Edge::Start, Edge::Start); decisions.tests.len()];
        for (at, test) in decisions.tests.iter().enumerate() {
            let (passes, fails) = ways.needed[at];
            if passes || fails {
                let from = ways.edges(at, &edges);
                let arrive = match ways.along_with[at] {
                    Some(before) => vec![asked(edges[before].0)],
                    None => from.clone(),
                };
                let rest = fails.then_some(from);
                edges[at] = self.add(test, arrive, rest, &mut bound);
            }
        }
        bound.accepted = ways.edges(decisions.accepted() as usize, &edges);
        let number = self.bound.vacant_key();
        self.reached.resize(self.reached.len().max(number + 1), 0);
        /// With more ways to be accepted a filter is rarely one that nothing is accepted by.
        const MOST_WATCHED: usize = 16;
        let accepted = bound.accepted.iter().take(MOST_WATCHED + 1);
        let passed = accepted.map(|way| match *way {
            Edge::Passed(arrivals, test) => Some((arrivals, test)),
            _ => None,
        });
        let passed = passed.collect::<Option<Vec<_>>>();
        if let Some(passed) = passed.filter(|passed| passed.len() <= MOST_WATCHED) {
            for &(arrivals, test) in &passed {
                let watched = &mut self.arrivals[arrivals as usize].watched;
                let at = (test, number as u32);
                watched.insert(watched.partition_point(|of| *of < at), at);
            }
            let mut arrivals: Vec<u32> = passed.iter().map(|of| of.0).collect();
            arrivals.sort_unstable();
            arrivals.dedup();
            let watch = match self.watch_numbers.entry(arrivals) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let watch = Watch {
                        arrivals: new.key().clone(),
                        users: 0,
                        epoch: 0,
                    };
                    *new.insert(self.watches.insert(watch) as u32)
                }
            };
            self.watches[watch as usize].users += 1;
            bound.watch = Some(watch);
        }
        let bound = Arc::new(bound);
        self.bound.insert(Arc::clone(&bound));
        (bound, number)
    }

    /// Adds a test, with the ways to tests of its value, and to itself where packets that do not pass it go on. Returns both
    /// ways on.
    fn add(
        &mut self,
        test: &Test,
        arrive: Vec<Edge>,
        rest: Option<Vec<Edge>>,
        bound: &mut Bound,
    ) -> (Edge, Edge) {
        let column = match self.places.entry(Arc::clone(&test.value)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let (value, mask) = without_mask(&test.value);
                let loaded = match self.loaded_places.entry(Arc::clone(value)) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => *new.insert(self.loaded.insert(Loaded::new(value))),
                };
                self.loaded[loaded].users += 1;
                *new.insert(self.columns.insert(Column::new(&test.value, loaded, mask)))
            }
        };
        let place = self.columns[column].add(test.is);
        bound.tests.push((column, place));
        let number = match self.arrival_numbers.entry((column, arrive)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let from = new.key().1.clone();
                let arrivals = Arrivals {
                    column,
                    from,
                    users: 0,
                    watched: Vec::new(),
                    epoch: 0,
                    packets: Selection::NONE,
                };
                *new.insert(self.arrivals.insert(arrivals) as u32)
            }
        };
        self.arrivals[number as usize].users += 1;
        bound.needs.push(Need::Arrivals(number));
        let passed = Edge::Passed(number, place);
        let Some(from) = rest else {
            return (passed, Edge::Start);
        };
        let number = match self.rest_numbers.entry((passed, from)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let rest = Rest {
                    column,
                    test: passed,
                    from: new.key().1.clone(),
                    users: 0,
                    epoch: 0,
                    packets: Selection::NONE,
                };
                *new.insert(self.rests.insert(rest) as u32)
            }
        };
        self.rests[number as usize].users += 1;
        bound.needs.push(Need::Rest(number));
        (passed, Edge::Rest(number))
    }

    /// Takes out what only this filter asked for.
    fn remove(&mut self, bound: &Bound, number: u32) {
        if let Some(watch) = bound.watch.map(|watch| watch as usize) {
            for &arrivals in &self.watches[watch].arrivals {
                let watched = &mut self.arrivals[arrivals as usize].watched;
                watched.retain(|of| of.1 != number);
            }
            self.watches[watch].users -= 1;
            if self.watches[watch].users == 0 {
                self.watch_numbers
                    .remove(&self.watches.remove(watch).arrivals);
            }
        }
        for &need in &bound.needs {
            match need {
                Need::Arrivals(number) => {
                    let arrivals = &mut self.arrivals[number as usize];
                    arrivals.users -= 1;
                    if arrivals.users == 0 {
                        let Arrivals { column, from, .. } = self.arrivals.remove(number as usize);
                        self.arrival_numbers.remove(&(column, from));
                    }
                }
                Need::Rest(number) => {
                    let rest = &mut self.rests[number as usize];
                    rest.users -= 1;
                    if rest.users == 0 {
                        let Rest { test, from, .. } = self.rests.remove(number as usize);
                        self.rest_numbers.remove(&(test, from));
                    }
                }
            }
        }
        for &(column, place) in &bound.tests {
            if self.columns[column].remove(place) {
                let Column { value, loaded, .. } = self.columns.remove(column);
                self.places.remove(&value);
                self.loaded[loaded].users -= 1;
                if self.loaded[loaded].users == 0 {
                    self.loaded_places.remove(&self.loaded.remove(loaded).value);
                }
            }
        }
    }
}

/// The way of all that were asked at a test that some pass.
fn asked(passed: Edge) -> Edge {
    match passed {
        Edge::Passed(number, _) => Edge::Asked(number),
        other => other,
    }
}

/// The ways through a filter's tests.
struct Ways {
    /// Those to each test, and to the two ends: from which test, and whether packets pass that; `None`: from the start.
    to: Vec<Vec<Option<(usize, bool)>>>,
    /// The test before each whose packets may all come to it: those that pass that one go on as if they passed this one, too.
    along_with: Vec<Option<usize>>,
    /// Whether anybody goes on from a test to be accepted: of packets that pass it, and of others.
    needed: Vec<(bool, bool)>,
}

impl Ways {
    fn of(decisions: &Decisions) -> Ways {
        let tests = &decisions.tests;
        let mut to = vec![Vec::new(); tests.len() + 2];
        to[decisions.start as usize].push(None);
        let mut along_with = vec![None; tests.len()];
        for (at, test) in tests.iter().enumerate() {
            to[test.when_true as usize].push(Some((at, true)));
            to[test.when_false as usize].push(Some((at, false)));
            if let [Some((before, false))] = to[at][..]
                && tests[before].when_true == test.when_true
            {
                along_with[at] = Some(before);
            }
        }
        let mut needed = vec![(false, false); tests.len()];
        let need = |ways: &[Option<(usize, bool)>], needed: &mut Vec<(bool, bool)>| {
            for &(from, passes) in ways.iter().flatten() {
                match passes {
                    true => needed[from].0 = true,
                    false => needed[from].1 = true,
                }
            }
        };
        need(&to[decisions.accepted() as usize], &mut needed);
        for at in (0..tests.len()).rev() {
            let (passes, fails) = needed[at];
            match along_with[at] {
                Some(before) if passes || fails => needed[before].0 = true,
                None if passes => need(&to[at], &mut needed),
                _ => {}
            }
            if fails {
                need(&to[at], &mut needed);
            }
        }
        Ways {
            to,
            along_with,
            needed,
        }
    }

    /// The ways to a test, or an end, where those on from each test before it are these.
    fn edges(&self, at: usize, edges: &[(Edge, Edge)]) -> Vec<Edge> {
        let ways = self.to[at].iter();
        let edges = ways.map(|way| match *way {
            None => Edge::Start,
            Some((from, true)) => edges[from].0,
            Some((from, false)) => edges[from].1,
        });
        edges.collect()
    }
}

#[cfg(test)]
mod tests;
