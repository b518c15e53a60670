//! Parts of stacks whose first components subscribe to one engine.

use flowgauge_stack::NodeId;
use flowgauge_stack::engine::{Engine, Event, Events, Feed, Step, Wants};
use flowgauge_stream::Request;

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
    passed: Passed,
}

/// Parts that want no more of a stream, as bits, by the stream's number.
#[derive(Default)]
struct Passed(Vec<u64>);

impl Passed {
    fn of(&self, stream: u32) -> u64 {
        self.0.get(stream as usize).copied().unwrap_or(0)
    }

    /// Part number `part` wants no more of a stream. Returns all that do not. (Parts beyond the bits want all.)
    fn add(&mut self, stream: u32, part: usize) -> u64 {
        let at = stream as usize;
        if at >= self.0.len() {
            self.0.resize((at + 1).next_power_of_two(), 0);
        }
        self.0[at] |= 1_u64.checked_shl(part as u32).unwrap_or(0);
        self.0[at]
    }

    /// A stream begins.
    fn clear(&mut self, stream: u32) {
        if let Some(bits) = self.0.get_mut(stream as usize) {
            *bits = 0;
        }
    }
}

impl Subscribers {
    pub(super) fn new(engine: Box<Engine>, parts: Vec<Part>) -> Subscribers {
        Subscribers {
            engine,
            wants: vec![Some(Wants::default()); parts.len()],
            reads: vec![false; parts.len()],
            parts,
            all: Wants::default(),
            passed: Passed::default(),
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
        let (parts, wants, reads) = (&mut self.parts, &self.wants, &self.reads);
        let passed = &mut self.passed;
        let mut asked = Vec::new();
        let each = |event: Event<'_>, requests: &mut Vec<Request>| {
            if let Event::Created(stream) = event {
                passed.clear(stream.id);
            }
            let over = event.data_of().map_or(0, |stream| passed.of(stream));
            for (number, (part, wants)) in parts.iter_mut().zip(wants).enumerate() {
                let is_over = over.checked_shr(number as u32).unwrap_or(0) & 1 != 0;
                if is_over || !wants.is_some_and(|wants| event.is_wanted(wants)) {
                    continue;
                }
                part.event(Feed::Event(event, &mut asked));
                if asked.is_empty() {
                    continue;
                }
                for request in asked.drain(..) {
                    let Request::Abandon(stream) = request else {
                        requests.push(request);
                        continue;
                    };
                    let over = passed.add(stream, number);
                    let mut all = reads.iter().enumerate();
                    if all.all(|(at, reads)| {
                        !reads || over.checked_shr(at as u32).unwrap_or(0) & 1 != 0
                    }) {
                        requests.push(request);
                    }
                }
            }
        };
        let engine = &mut self.engine;
        match (self.all.streams, self.all.remarks) {
            (false, _) => engine.take(step, &mut Events::<_, false, false>::new(each)),
            (true, false) => engine.take(step, &mut Events::<_, true, false>::new(each)),
            (true, true) => engine.take(step, &mut Events::<_, true, true>::new(each)),
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
