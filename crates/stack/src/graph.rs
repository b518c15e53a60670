//! A running stack on one core.
//!
//! Items pass through the components of a sequence one after the other; filtering a batch of packets shrinks the
//! selection of the same batch. A switch distributes the selection to its branches and continues with the packets
//! that the branches pass on and those in no branch. A demultiplexer adds a column of key numbers to the packets, and
//! passes the whole batch through the components inside, which exist once. Items created by a component pass through
//! the rest of its sequence, and from its end to the component after the container.
//!
//! ```text
//!   tcpscan - tcpcnxdemux < tcpreseq - search > output
//!
//!   packets   0 1 2 3 4 5 6 7      selected          0 . 2 3 . 5 . 7     (tcpscan)
//!   keys      . . . . . . . .      column of keys    9 . 4 9 . 4 . 1     (tcpcnxdemux)
//!                                  chunks            9 4 9 ...           (tcpreseq, to search)
//!                                  keys removed      . . . .             (to output)
//! ```

mod by_key;
mod clock;
mod exit;
mod parts;
mod results;
mod subscription;

use core::any::Any;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;

use flowgauge_capture::filter::Refusal;
use flowgauge_wire::{BATCH_SIZE, Batch, DecodedBatch, Nanos, Selection};

use self::by_key::ByKey;
use self::exit::Exit;
use crate::account::Account;
use crate::component::{
    Branches, Component, ComponentKind, Failure, Items, Outlet, Packets, Received, RecordItem,
    ResultValue, SettingError, Settled, StreamChunk,
};
use crate::engine::{self, Engine, Step};
use crate::program::{Inner, NodeId, Stack};

/// The interval of ticks of the capture clock: 2^26 ns, about fifteen per second.
pub const TICK: Nanos = Nanos(1 << 26);

/// The receiver of a graph's output: the next part of a stack that is split.
pub trait Tail: Send {
    /// Receives items at capture time `now`. `maker` is the component that created them, or `None` if they are the
    /// rest of a batch.
    fn take(&mut self, now: Nanos, maker: Option<NodeId>, items: Items<'_>);

    /// A tick: the clock advanced to `now`.
    fn begin_tick(&mut self, _now: Nanos) {}

    /// A tick of the components is complete; the next part follows.
    fn end_tick(&mut self, _now: Nanos) {}

    /// Stores the received items outside of the process.
    fn settle(&mut self) -> Settled {
        Settled::Yes
    }

    /// The current results that later components use.
    fn results(&mut self, _results: &[(NodeId, ResultValue)]) {}
}

/// No receiver: the output is discarded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTail;

impl Tail for NoTail {
    fn take(&mut self, _: Nanos, _: Option<NodeId>, _: Items<'_>) {}
}

/// The running components of a stack, or of a part of one.
pub struct Graph<T = NoTail> {
    nodes: Vec<Running>,
    /// `None`: it has no components.
    entry: Option<NodeId>,
    tail: T,
    /// Demultiplexers, and components that wait for a time.
    timed: Vec<NodeId>,
    /// The lengths of their intervals.
    intervals: Vec<Nanos>,
    /// At the ends of which intervals a source of its own lets components look at the clock.
    looks: Vec<Nanos>,
    /// Whose results are used behind this part.
    exports: Vec<NodeId>,
    now: Nanos,
    /// Packets of the source so far, where whole batches are taken.
    before: u64,
    /// Counts batches, and parts of them.
    batch: u64,
    /// Memory for the keys that have ended.
    ended: Vec<u32>,
    stopwatch: Option<Stopwatch>,
    /// The component at work, to name it should it fail.
    current: NodeId,
    failure: Option<ComponentFailure>,
    /// With the batch.
    is_ending: bool,
    has_enough: bool,
    is_over: bool,
}

struct Running {
    /// Not here while it is at work.
    component: Option<Box<dyn Component>>,
    /// Where it is said that it refuses packets.
    refusal: Option<Refusal>,
    inner: Inner,
    /// Of a switch: what goes to its branches goes on, too.
    copies: bool,
    next: Option<NodeId>,
    parent: Option<NodeId>,
    /// Whose results its options name.
    references: Vec<(&'static str, NodeId)>,
    /// Of one that is in another part, or could not be copied: its result.
    elsewhere: Option<ResultValue>,
    /// It could not be copied: what is known of it is told all the same.
    is_left: bool,
    label: String,
    /// Its result is a number.
    is_number: bool,
    passed: Passed,
    /// Of a demultiplexer: keys that have ended.
    keys_ended: u64,
    /// What the clock of [`Graph::measure`] went on while it worked itself.
    spent: u64,
    /// Its result key by key, where that is wanted.
    by_key: Option<Box<ByKey>>,
    /// Of one that subscribes to an engine.
    subscription: Option<Subscription>,
}

impl Running {
    /// A copy that goes on from here, if there can be one.
    fn fork(&self) -> Option<Running> {
        let component = match &self.component {
            Some(component) => Some(component.fork()?),
            None => None,
        };
        let by_key = match &self.by_key {
            Some(by_key) => Some(Box::new(by_key.fork()?)),
            None => None,
        };
        Some(Running {
            component,
            subscription: self.subscription.clone(),
            by_key,
            ..self.without_component()
        })
    }

    /// What is known of it, without what it does.
    fn without_component(&self) -> Running {
        Running {
            component: None,
            refusal: None,
            inner: self.inner.clone(),
            copies: self.copies,
            next: self.next,
            parent: self.parent,
            references: self.references.clone(),
            elsewhere: self.elsewhere.clone(),
            is_left: false,
            label: self.label.clone(),
            is_number: self.is_number,
            passed: self.passed,
            keys_ended: self.keys_ended,
            spent: self.spent,
            by_key: None,
            subscription: None,
        }
    }
}

/// Whose engine a component subscribes to.
#[derive(Clone)]
enum Subscription {
    /// The graph's; not here while it is at work.
    Own(Option<Box<Engine>>),
    /// One that it shares with other graphs, whose owner drives it.
    Shared,
    /// One of another kind, which the component has itself.
    Inside,
}

/// Where time is measured.
struct Stopwatch {
    clock: fn() -> u64,
    /// What the clock went on in components that the one at work gave something.
    within: u64,
}

/// Input counters of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Number of items.
    pub items: u64,
    /// Number of batches.
    pub batches: u64,
}

/// The failure of a component, which ends its stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the component {label} failed: {}", .failure.message)]
pub struct ComponentFailure {
    /// Its label.
    pub label: String,
    /// The failure.
    pub failure: Failure,
}

impl Graph {
    /// Creates the components of a checked stack.
    ///
    /// # Errors
    /// A component that cannot be made of its settings.
    pub fn new(stack: &Stack) -> Result<Graph, SettingError> {
        Graph::part(stack, Some(stack.entry), None, NoTail)
    }
}

impl<T: Tail> Graph<T> {
    /// Creates the components of a part of a checked stack: those of its outermost sequence from `from` up to, but
    /// excluding, `until`, with their contents. The output goes to `tail`.
    ///
    /// # Errors
    /// A component that cannot be made of its settings.
    pub fn part(
        stack: &Stack,
        from: Option<NodeId>,
        until: Option<NodeId>,
        tail: T,
    ) -> Result<Graph<T>, SettingError> {
        let mut nodes = Vec::with_capacity(stack.nodes.len());
        let mut timed = Vec::new();
        let mut intervals = Vec::new();
        let first = from.map_or(u32::MAX, |id| id.0);
        let range = first..until.map_or(u32::MAX, |id| id.0);
        for (id, node) in stack.iter() {
            let (mut component, mut subscription) = (None, None);
            // Containers come before what is in them, and that before what follows.
            if range.contains(&id.0) {
                let made = match node.settings.take_spare() {
                    Some(made) => made,
                    None => (node.info.make)(&node.settings)?,
                };
                subscription = match node.info.engine {
                    None => None,
                    Some(engine) => Some(match engine(&node.settings)? {
                        Some(required) => Subscription::Own(Some(Box::new(Engine::new(required)))),
                        None => Subscription::Inside,
                    }),
                };
                let is_driven = subscription.is_some() || matches!(node.inner, Inner::PerKey(_));
                if made.has_timer() || is_driven {
                    timed.push(id);
                }
                intervals.extend(made.interval());
                component = Some(made);
            }
            nodes.push(Running {
                component,
                refusal: None,
                inner: node.inner.clone(),
                copies: node.info.kind == ComponentKind::Switch(Branches::Copies),
                next: node.next.filter(|next| range.contains(&next.0)),
                parent: node.parent,
                references: node.references.clone(),
                elsewhere: None,
                is_left: false,
                label: node.label.clone(),
                is_number: node.info.result.is_some_and(|it| it.columns.is_empty()),
                passed: Passed::default(),
                keys_ended: 0,
                spent: 0,
                by_key: stack
                    .shown_keys(id)
                    .map(|most| Box::new(ByKey::new(node, most))),
                subscription,
            });
        }
        intervals.sort_unstable();
        intervals.dedup();
        let mut looks = intervals.clone();
        looks.extend((!timed.is_empty()).then_some(TICK));
        Ok(Graph {
            nodes,
            entry: from.filter(|_| !range.is_empty()),
            timed,
            intervals,
            looks,
            exports: until.map_or(Vec::new(), |until| results::exports(stack, until)),
            current: from.unwrap_or(stack.entry),
            ..Graph::of_tail(tail)
        })
    }

    /// A graph without components.
    pub fn of_tail(tail: T) -> Graph<T> {
        Graph {
            nodes: Vec::new(),
            entry: None,
            tail,
            timed: Vec::new(),
            intervals: Vec::new(),
            looks: Vec::new(),
            exports: Vec::new(),
            now: Nanos(0),
            before: 0,
            batch: 0,
            ended: Vec::new(),
            stopwatch: None,
            current: NodeId(0),
            failure: None,
            is_ending: false,
            has_enough: false,
            is_over: false,
        }
    }

    /// Whether it has no components.
    pub fn is_empty(&self) -> bool {
        self.entry.is_none()
    }

    /// Starts the components, which open files and sockets. Must be called before anything else.
    ///
    /// # Errors
    /// A component cannot start.
    pub fn start(&mut self) -> Result<(), ComponentFailure> {
        self.guarded(|graph| {
            for id in (0..graph.nodes.len() as u32).map(NodeId) {
                graph.with(id, |component, exit| {
                    if let Err(failure) = component.start() {
                        exit.fail(failure);
                    }
                });
            }
        })
    }

    /// Processes a batch, and advances the capture clock to `now`.
    ///
    /// # Errors
    /// A component failed or panicked. The stack does nothing any more.
    pub fn process(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        now: Nanos,
    ) -> Result<(), ComponentFailure> {
        let packets = Packets {
            before: self.before,
            ..Packets::new(batch, decoded)
        };
        self.before += batch.len() as u64;
        if self.has_enough {
            return Ok(());
        }
        self.guarded(|graph| {
            let end = graph.now.max(now);
            let mut left = packets.selected;
            let mut done = 0;
            // Where an interval ends in the middle of the batch it goes in parts.
            while let Some((next, time)) = graph.cut(packets.batch, done, end) {
                let selected = left.and(Selection::first(next));
                left = left.without(selected);
                graph.enter(Items::Packets(Packets {
                    selected,
                    ..packets
                }));
                graph.now = graph.now.max(time);
                graph.tick();
                if graph.is_ending || graph.has_enough {
                    return;
                }
                done = next;
            }
            graph.now = end;
            graph.enter(Items::Packets(Packets {
                selected: left,
                ..packets
            }));
            graph.tick();
        })
    }

    /// Processes items, without advancing the capture clock; see [`Graph::advance`].
    ///
    /// # Errors
    /// A component failed or panicked. The stack does nothing any more.
    pub fn feed(&mut self, items: Items<'_>) -> Result<(), ComponentFailure> {
        self.guarded(|graph| graph.enter(items))
    }

    /// Lets the stack's source receive or wait for items, and advances the capture clock as it says.
    ///
    /// # Errors
    /// A component failed or panicked. The stack does nothing any more.
    pub fn receive(&mut self, wait: Duration) -> Result<Received, ComponentFailure> {
        let mut received = Received::End;
        self.guarded(|graph| {
            let entry = graph.entry;
            let given =
                entry.and_then(|id| graph.with(id, |source, exit| source.receive(exit, wait)));
            received = given.unwrap_or(Received::End);
            if let Received::Until(now) = received {
                graph.now = graph.now.max(now);
                graph.tick();
            }
        })?;
        Ok(received)
    }

    /// Takes items through all components.
    fn enter(&mut self, mut items: Items<'_>) {
        self.batch += 1;
        self.row(self.entry, &mut items);
        if !items.is_empty() {
            self.tail.take(self.now, None, items);
        }
    }

    /// Processes packets, unless the first component is known to refuse all of them; then they are only counted.
    ///
    /// # Errors
    /// As [`Graph::feed`].
    pub fn packets(&mut self, packets: &Packets<'_>) -> Result<(), ComponentFailure> {
        if self.are_refused(packets) {
            return Ok(());
        }
        self.guarded(|graph| {
            if !graph.refuses(packets) {
                graph.enter(Items::Packets(*packets));
            }
        })
    }

    /// Whether it is known without the first component that it lets none of them through, which is then counted.
    #[inline]
    fn are_refused(&mut self, packets: &Packets<'_>) -> bool {
        let node = self
            .entry
            .and_then(|entry| self.nodes.get_mut(entry.index()));
        let Some((node, columns)) = node.zip(packets.columns) else {
            return false;
        };
        let is_at_work = node.component.is_some() && !self.is_over && !self.is_ending;
        let Some(refusal) = node.refusal.filter(|_| is_at_work) else {
            return false;
        };
        let refused = columns.borrow().refuses(refusal, packets.selected);
        if let Some(count) = refused {
            node.passed.items += count;
            node.passed.batches += 1;
        }
        refused.is_some()
    }

    #[inline]
    fn refuses(&mut self, packets: &Packets<'_>) -> bool {
        let node = self
            .entry
            .and_then(|entry| self.nodes.get_mut(entry.index()));
        let Some(node) = node.filter(|node| node.by_key.is_none()) else {
            return false;
        };
        let Some(component) = &mut node.component else {
            return false;
        };
        let refuses = component.refuses(packets);
        // It may have come to other columns.
        node.refusal = component.refusal();
        if refuses {
            node.passed.items += packets.selected.len() as u64;
            node.passed.batches += 1;
        }
        refuses
    }

    /// The input ended: items kept by components of this and preceding parts follow.
    pub fn begin_finish(&mut self) {
        let components = self.nodes.iter_mut();
        let components = components.filter_map(|node| node.component.as_mut());
        components.for_each(|component| component.begin_finish());
    }

    /// The input ended: components emit the items they keep.
    ///
    /// # Errors
    /// A component failed or panicked.
    pub fn finish(&mut self) -> Result<(), ComponentFailure> {
        self.guarded(|graph| {
            if let Some(entry) = graph.entry {
                graph.finish_row(entry);
            }
        })
    }

    /// The capture clock.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The receiver of the output.
    pub fn tail(&self) -> &T {
        &self.tail
    }

    /// The receiver of the output.
    pub fn tail_mut(&mut self) -> &mut T {
        &mut self.tail
    }

    /// Resets the results of all components.
    pub fn reset(&mut self) {
        for node in &mut self.nodes {
            node.passed = Passed::default();
            if let Some(by_key) = &mut node.by_key {
                by_key.reset();
            }
            if let Some(component) = &mut node.component {
                component.reset();
            }
        }
    }

    /// Whether the stack has ended, because a component failed, or its output is not needed any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a component needs no further input, so that the stack should be finished.
    pub fn has_enough(&self) -> bool {
        self.has_enough
    }

    /// The input counters of a component.
    pub fn passed(&self, id: NodeId) -> Passed {
        self.nodes
            .get(id.index())
            .map_or(Passed::default(), |node| node.passed)
    }

    /// Number of keys of a demultiplexer that have ended.
    pub fn keys_ended(&self, id: NodeId) -> u64 {
        self.nodes.get(id.index()).map_or(0, |it| it.keys_ended)
    }

    /// Measures, from now on, the time of each component by this clock, excluding components inside and after it.
    pub fn measure(&mut self, clock: fn() -> u64) {
        self.stopwatch = Some(Stopwatch { clock, within: 0 });
    }

    /// The time that a component took, by the clock of [`Graph::measure`].
    pub fn spent(&self, id: NodeId) -> u64 {
        self.nodes.get(id.index()).map_or(0, |node| node.spent)
    }

    /// Reads the input counters and the result of each component.
    pub fn read(&self, give: &mut dyn FnMut(NodeId, Passed, Option<ResultValue>)) {
        for (id, node) in (0..).map(NodeId).zip(&self.nodes) {
            if node.component.is_some() || node.is_left {
                give(id, node.passed, self.result(id));
            }
        }
    }

    /// Reads, cheaply, the number of items of each component, and its result if that is a number, or else its number
    /// of rows, if known.
    pub fn numbers(&self, give: &mut dyn FnMut(NodeId, u64, Option<ResultValue>, usize)) {
        for (id, node) in (0..).map(NodeId).zip(&self.nodes) {
            if node.component.is_some() || node.is_left {
                let number = node.is_number.then(|| self.result(id)).flatten();
                let rows = node
                    .component
                    .as_ref()
                    .and_then(|component| component.rows());
                give(id, node.passed.items, number, rows.unwrap_or(0));
            }
        }
    }

    /// Takes the result of a component, which is then reset. `None` if the component is not in this graph, or has no
    /// result.
    pub fn take(&mut self, id: NodeId) -> Option<ResultValue> {
        let result = self.result(id)?;
        let component = self.nodes.get_mut(id.index())?.component.as_mut()?;
        component.reset();
        Some(result)
    }

    /// The account of a component, including that of its engine.
    pub fn account(&self, id: NodeId) -> Option<Box<Account>> {
        let node = self.nodes.get(id.index())?;
        let own = node.component.as_ref()?.account();
        let Some(Subscription::Own(Some(engine))) = &node.subscription else {
            return own;
        };
        let mut account = engine::account(engine.shard());
        account.merge(&own.unwrap_or_default());
        Some(Box::new(account))
    }

    /// Does something with the components; one that fails or panics ends it all.
    fn guarded(&mut self, work: impl FnOnce(&mut Graph<T>)) -> Result<(), ComponentFailure> {
        if self.is_over {
            return Ok(());
        }
        let worked = catch_unwind(AssertUnwindSafe(|| {
            work(self);
            // It ends before its input does: what components keep comes out all the same.
            if self.is_ending
                && self.failure.is_none()
                && !core::mem::replace(&mut self.is_over, true)
                && let Some(entry) = self.entry
            {
                self.begin_finish();
                self.finish_row(entry);
            }
            self.export();
        }));
        if let Err(panic) = worked {
            self.panicked(&*panic);
        }
        self.settle()
    }

    /// Whether a component has failed.
    fn settle(&mut self) -> Result<(), ComponentFailure> {
        self.is_over |= self.is_ending;
        match self.failure.take() {
            None => Ok(()),
            Some(failure) => {
                self.is_over = true;
                Err(failure)
            }
        }
    }

    /// The component at work has panicked.
    #[cold]
    fn panicked(&mut self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        self.fail(Failure::new(
            text.unwrap_or_else(|| "it panicked".to_owned()),
        ));
    }

    /// The component at work has failed; the first failure counts.
    fn fail(&mut self, failure: Failure) {
        let node = self.nodes.get(self.current.index());
        let label = node.map_or("runtime", |node| &node.label).to_owned();
        self.failure
            .get_or_insert(ComponentFailure { label, failure });
    }

    /// Lets a component work, with a way out for what it makes.
    fn with<R>(
        &mut self,
        id: NodeId,
        work: impl FnOnce(&mut dyn Component, &mut Exit<'_, T>) -> R,
    ) -> Option<R> {
        let mut component = self.nodes[id.index()].component.take()?;
        let before = core::mem::replace(&mut self.current, id);
        let started = self.stopwatch.as_mut().map(|stopwatch| {
            let outside = core::mem::take(&mut stopwatch.within);
            ((stopwatch.clock)(), outside)
        });
        let result = work(&mut *component, &mut Exit { graph: self, id });
        if let (Some(started), Some(stopwatch)) = (started, &mut self.stopwatch) {
            let spent = (stopwatch.clock)().saturating_sub(started.0);
            self.nodes[id.index()].spent += spent.saturating_sub(stopwatch.within);
            stopwatch.within = started.1 + spent;
        }
        self.current = before;
        self.nodes[id.index()].component = Some(component);
        Some(result)
    }

    /// Takes items through a row; what is left of them comes out of its end.
    fn row(&mut self, first: Option<NodeId>, items: &mut Items<'_>) {
        let mut at = first;
        while let Some(id) = at {
            if items.is_empty() {
                return;
            }
            let node = &mut self.nodes[id.index()];
            node.passed.items += items.len() as u64;
            node.passed.batches += 1;
            at = node.next;
            match (&node.inner, &mut *items) {
                (Inner::Branches(_), Items::Packets(packets)) => self.switch(id, packets),
                (Inner::PerKey(_), Items::Packets(packets)) => self.demultiplex(id, packets),
                (Inner::PerKey(first), Items::Chunks(chunks)) => {
                    let first = *first;
                    self.demultiplex_chunks(id, first, chunks);
                }
                // The checker lets nothing else come here.
                (Inner::Branches(_) | Inner::PerKey(_), _) => {}
                (Inner::Nothing, Items::Packets(packets)) if node.subscription.is_some() => {
                    self.drive(id, &Step::Packets(packets));
                    items.clear();
                }
                (Inner::Nothing, items) if node.by_key.is_some() => self.one_by_one(id, items),
                (Inner::Nothing, items) => {
                    self.with(id, |component, exit| component.process(items, exit));
                }
            }
        }
    }

    fn switch(&mut self, id: NodeId, packets: &mut Packets<'_>) {
        let Inner::Branches(firsts) = &self.nodes[id.index()].inner else {
            return;
        };
        let count = firsts.len();
        let copies = self.nodes[id.index()].copies;
        let mut routes = [Selection::NONE; 8];
        let mut more = Vec::new();
        let branches = if count <= routes.len() {
            &mut routes[..count]
        } else {
            more.resize(count, Selection::NONE);
            &mut more[..]
        };
        self.with(id, |component, _| component.route(packets, branches));
        let all = packets.selected;
        let mut left = packets.selected;
        for (branch, selected) in branches.iter().enumerate() {
            let selected = selected.and(left);
            if selected.is_empty() {
                continue;
            }
            if !copies {
                left = left.without(selected);
            }
            packets.selected = packets.selected.without(selected);
            let first = self.branch(id, branch);
            let mut items = Items::Packets(Packets {
                selected,
                ..*packets
            });
            self.row(first, &mut items);
            if let Items::Packets(out) = items {
                packets.selected = packets.selected.or(out.selected);
            }
        }
        if copies {
            packets.selected = all;
        }
    }

    /// The first component of a branch of a switch.
    fn branch(&self, id: NodeId, number: usize) -> Option<NodeId> {
        match &self.nodes[id.index()].inner {
            Inner::Branches(firsts) => firsts.get(number).copied(),
            Inner::Nothing | Inner::PerKey(_) => None,
        }
    }

    fn demultiplex(&mut self, id: NodeId, packets: &mut Packets<'_>) {
        let mut keys = [0; BATCH_SIZE];
        let now = self.now;
        let keyed = self.with(id, |component, _| {
            component.demultiplex(packets, &mut keys, now)
        });
        let keyed = keyed.unwrap_or_default().and(packets.selected);
        if !keyed.is_empty() {
            let mut items = Items::Packets(Packets {
                selected: keyed,
                keys: &keys,
                ..*packets
            });
            let Inner::PerKey(first) = self.nodes[id.index()].inner else {
                return;
            };
            self.row(Some(first), &mut items);
            packets.selected = packets.selected.without(keyed);
            if let Items::Packets(out) = items {
                packets.selected = packets.selected.or(out.selected);
            }
        }
        self.collect(id);
    }

    /// Chunks are few and large: each goes through alone, and on from there.
    fn demultiplex_chunks(&mut self, id: NodeId, first: NodeId, chunks: &mut &[StreamChunk<'_>]) {
        for chunk in core::mem::take(chunks) {
            let key = self.with(id, |component, _| component.demultiplex_chunk(chunk));
            let Some(key) = key.flatten() else {
                self.leave(id, Items::Chunks(core::slice::from_ref(chunk)));
                continue;
            };
            let keyed = [StreamChunk { key, ..*chunk }];
            let mut inside = Items::Chunks(&keyed);
            self.row(Some(first), &mut inside);
            if let Items::Chunks(left) = inside {
                for left in left {
                    let key = chunk.key;
                    self.leave(id, Items::Chunks(&[StreamChunk { key, ..*left }]));
                }
            }
        }
        self.collect(id);
    }

    /// Ends what is inside a demultiplexer for the keys that have ended.
    fn collect(&mut self, id: NodeId) {
        let Inner::PerKey(first) = self.nodes[id.index()].inner else {
            return;
        };
        // Where one is inside another's, the inner one finds no memory to use again.
        let mut ended = core::mem::take(&mut self.ended);
        let now = self.now;
        self.with(id, |component, _| component.ended(now, &mut ended));
        if !ended.is_empty() {
            self.nodes[id.index()].keys_ended += ended.len() as u64;
            self.close_row(first, &ended);
            self.keys_have_ended(first, &ended);
            ended.clear();
        }
        self.ended = ended;
    }

    fn close_row(&mut self, first: NodeId, keys: &[u32]) {
        let mut at = Some(first);
        while let Some(id) = at {
            // What is before it may still give it something, so it comes after.
            if self.nodes[id.index()].by_key.is_some() {
                self.close_one_by_one(id, keys);
            } else {
                self.with(id, |component, exit| component.close_all(keys, exit));
            }
            self.collect(id);
            let mut branch = 0;
            while let Some(first) = self.branch(id, branch) {
                self.close_row(first, keys);
                branch += 1;
            }
            at = self.nodes[id.index()].next;
        }
    }

    /// Settles all components; see [`Component::settle`].
    pub fn settle_all(&mut self) -> Settled {
        let mut settled = self.tail.settle();
        for index in 0..self.nodes.len() {
            let id = NodeId(index as u32);
            let is_settled = self.with(id, |component, exit| component.settle(exit));
            if is_settled == Some(false) {
                settled = settled.max(Settled::Later);
            }
        }
        settled
    }

    fn finish_row(&mut self, first: NodeId) {
        let mut at = Some(first);
        while let Some(id) = at {
            if let Inner::PerKey(first) = self.nodes[id.index()].inner {
                self.with(id, |component, _| component.end_all());
                self.collect(id);
                self.finish_row(first);
            }
            let mut branch = 0;
            while let Some(first) = self.branch(id, branch) {
                self.finish_row(first);
                branch += 1;
            }
            self.drive(id, &Step::Finish);
            self.with(id, |component, exit| component.finish(exit));
            at = self.nodes[id.index()].next;
        }
    }

    /// Items that a component made go through the rest of its row, and on from there.
    fn leave(&mut self, from: NodeId, mut items: Items<'_>) {
        let node = &self.nodes[from.index()];
        let (next, parent) = (node.next, node.parent);
        self.row(next, &mut items);
        if items.is_empty() {
            return;
        }
        let Some(parent) = parent else {
            return self.tail.take(self.now, Some(self.current), items);
        };
        if !matches!(self.nodes[parent.index()].inner, Inner::PerKey(_)) {
            return self.leave(parent, items);
        }
        match items {
            Items::Packets(packets) => {
                let mut keys = [0; BATCH_SIZE];
                for index in packets.selected.iter() {
                    keys[index] = outer_of(&self.nodes, parent, packets.key(index));
                }
                let keys = &keys[..];
                self.leave(parent, Items::Packets(Packets { keys, ..packets }));
            }
            Items::Chunks(chunks) => {
                for chunk in chunks {
                    let key = outer_of(&self.nodes, parent, chunk.key);
                    self.leave(parent, Items::Chunks(&[StreamChunk { key, ..*chunk }]));
                }
            }
            Items::Records(records) => {
                for record in records {
                    let key = outer_of(&self.nodes, parent, record.key);
                    self.leave(parent, Items::Records(&[RecordItem { key, ..*record }]));
                }
            }
        }
    }
}

fn outer_of(nodes: &[Running], demux: NodeId, key: u32) -> u32 {
    let component = &nodes[demux.index()].component;
    component.as_ref().map_or(0, |demux| demux.outer(key))
}

impl<T> core::fmt::Debug for Graph<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let nodes = self.nodes.iter().map(|node| (&node.label, node.passed));
        f.debug_map().entries(nodes).finish()
    }
}
