//! Parts of stacks whose first components subscribe to one engine.

use flowgauge_stack::NodeId;
use flowgauge_stack::engine::{Engine, Event, Events, Feed, Step, Wants};

use super::part::{Count, Part};

/// An engine, and the parts that what comes of it goes to.
pub(super) struct Subscribers {
    engine: Box<Engine>,
    parts: Vec<Part>,
    /// What each part wants of the step at hand; `None`: it has had enough, and gets nothing any more.
    wants: Vec<Option<Wants>>,
    /// Which parts have wanted streams.
    reads: Vec<bool>,
    /// What any of them has wanted.
    all: Wants,
}

impl Subscribers {
    pub(super) fn new(engine: Box<Engine>, parts: Vec<Part>) -> Subscribers {
        Subscribers {
            engine,
            wants: vec![Some(Wants::default()); parts.len()],
            reads: vec![false; parts.len()],
            parts,
            all: Wants::default(),
        }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    /// Takes a step through the engine, and what comes of it to all parts.
    pub(super) fn step(&mut self, step: &Step<'_, '_>) {
        let clock = self.engine.shard().tracker().clock();
        let states = self.wants.iter_mut().zip(&mut self.reads);
        for (part, (wants, reads)) in self.parts.iter_mut().zip(states) {
            let wanted = part.begin_step(step, clock);
            *wants = wants.and(wanted);
            let wanted = wanted.unwrap_or_default();
            *reads |= wanted.streams;
            self.all = self.all.or(wanted);
        }
        let (parts, wants) = (&mut self.parts, &self.wants);
        let each = |event: Event<'_>| {
            for (part, wants) in parts.iter_mut().zip(wants) {
                if wants.is_some_and(|wants| event.is_wanted(wants)) {
                    part.event(Feed::Event(event));
                }
            }
        };
        let engine = &mut self.engine;
        match (self.all.streams, self.all.remarks) {
            (false, _) => engine.take(step, &mut Events::<_, false, false>(each)),
            (true, false) => engine.take(step, &mut Events::<_, true, false>(each)),
            (true, true) => engine.take(step, &mut Events::<_, true, true>(each)),
        }
        for part in &mut self.parts {
            part.end_step(step, engine);
        }
    }

    /// What is known of all components; what is told of the engine is told of each that subscribes to it.
    pub(super) fn counts(&self, give: &mut dyn FnMut(Count)) {
        for (part, reads) in self.parts.iter().zip(&self.reads) {
            let subscriber: Option<NodeId> = part.subscriber();
            part.counts(&mut |mut count| {
                if Some(count.id) == subscriber {
                    let mut account = Box::new(self.engine.account(*reads));
                    account.merge(&count.account.take().unwrap_or_default());
                    count.account = Some(account);
                }
                give(count);
            });
        }
    }
}
