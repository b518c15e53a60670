//! Graphs whose first component subscribes to an engine: its own, or one shared by several graphs.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use flowgauge_stream::offload::Verdicts;
use flowgauge_wire::Nanos;

use super::{ComponentFailure, Graph, Subscription, Tail};
use crate::engine::{Engine, Feed, Step, Wants};
use crate::program::NodeId;

impl<T: Tail> Graph<T> {
    /// Takes a step through the engine that a component subscribes to. Where that is shared its owner does.
    pub(super) fn drive(&mut self, id: NodeId, step: &Step<'_, '_>) {
        let Some(subscription) = &mut self.nodes[id.index()].subscription else {
            return;
        };
        let mut engine = match subscription {
            Subscription::Own(engine) => engine.take(),
            Subscription::Inside => None,
            Subscription::Shared => return,
        };
        self.with(id, |component, exit| {
            let clock = engine
                .as_ref()
                .map_or(Nanos(0), |it| it.shard().tracker().clock());
            component.begin_step(step, clock);
            component.take(Feed::Step(engine.as_deref_mut(), *step), exit);
            component.end_step(step, engine.as_ref().map(|it| it.shard()), exit);
        });
        if let Some(Subscription::Own(place)) = &mut self.nodes[id.index()].subscription {
            *place = engine;
        }
    }

    /// The engine of its first component, if that has its own.
    pub fn engine(&self) -> Option<&Engine> {
        match &self.nodes[self.entry?.index()].subscription {
            Some(Subscription::Own(engine)) => engine.as_deref(),
            _ => None,
        }
    }

    /// The engine of its first component, if that shares it with no other.
    pub fn engine_mut(&mut self) -> Option<&mut Engine> {
        match self.nodes[self.entry?.index()].subscription.as_mut()? {
            Subscription::Own(engine) => engine.as_deref_mut(),
            _ => None,
        }
    }

    /// Makes its engine, or its first component, report what it wants of flows. Returns whether one does.
    pub fn set_offload(&mut self, verdicts: &Verdicts) -> bool {
        if let Some(engine) = self.engine_mut() {
            engine.set_offload(verdicts);
            return true;
        }
        let first = self.entry.map(|entry| &mut self.nodes[entry.index()]);
        let first = first.and_then(|node| node.component.as_mut());
        first.is_some_and(|component| component.set_offload(verdicts))
    }

    /// Whether its first component counts packets itself.
    pub fn counts_packets(&self) -> bool {
        let first = self.entry.map(|entry| &self.nodes[entry.index()]);
        let first = first.and_then(|node| node.component.as_ref());
        first.is_some_and(|component| component.counts_packets())
    }

    /// Takes the engine of its first component out, to be driven by the caller, which passes the engine's events to the
    /// graph.
    pub fn share_engine(&mut self) -> Option<Box<Engine>> {
        match &mut self.nodes[self.entry?.index()].subscription {
            Some(subscription @ Subscription::Own(_)) => {
                match core::mem::replace(subscription, Subscription::Shared) {
                    Subscription::Own(engine) => engine,
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Its first component, if that subscribes to a shared engine.
    pub fn subscriber(&self) -> Option<NodeId> {
        let entry = self.entry?;
        let subscription = &self.nodes[entry.index()].subscription;
        matches!(subscription, Some(Subscription::Shared)).then_some(entry)
    }

    /// Starts a step of the shared engine. Returns the kinds of events that the first component wants.
    pub fn begin_step(&mut self, step: &Step<'_, '_>, clock: Nanos) -> Wants {
        let Some(entry) = self.entry.filter(|_| !self.is_over) else {
            return Wants::default();
        };
        match step {
            Step::Packets(packets) => {
                let passed = &mut self.nodes[entry.index()].passed;
                passed.items += packets.selected.len() as u64;
                passed.batches += 1;
                self.batch += 1;
            }
            Step::Tick(now) => {
                self.now = self.now.max(*now);
                self.begin_tick();
            }
            Step::Finish => {}
        }
        self.with(entry, |component, _| component.begin_step(step, clock));
        self.wants()
    }

    /// The kinds of events of the shared engine that its first component wants.
    pub fn wants(&mut self) -> Wants {
        let mut wants = Wants::default();
        if let Some(entry) = self.entry.filter(|_| !self.is_over) {
            self.with(entry, |component, exit| {
                component.take(Feed::Wants(&mut wants), exit);
            });
        }
        wants
    }

    /// Passes an event of the shared engine to its first component.
    #[inline]
    pub fn event(&mut self, feed: Feed<'_, '_>) {
        let Some(entry) = self.entry.filter(|_| self.failure.is_none()) else {
            return;
        };
        let work =
            AssertUnwindSafe(|| self.with(entry, |component, exit| component.take(feed, exit)));
        if let Err(panic) = catch_unwind(work) {
            self.panicked(&*panic);
        }
    }

    /// Ends the step: its first component emits pending items, and timers of the others are checked.
    ///
    /// # Errors
    /// A component failed or panicked. The graph does nothing any more.
    pub fn end_step(
        &mut self,
        step: &Step<'_, '_>,
        engine: &Engine,
    ) -> Result<(), ComponentFailure> {
        if self.failure.is_some() {
            return self.settle();
        }
        self.guarded(|graph| {
            let Some(entry) = graph.entry else {
                return;
            };
            graph.with(entry, |component, exit| {
                component.end_step(step, Some(engine.shard()), exit);
            });
            match step {
                Step::Packets(_) => {}
                Step::Tick(_) => graph.end_tick(),
                Step::Finish => graph.finish_row(entry),
            }
        })
    }
}
