//! Parts of stacks whose first components subscribe to one engine.

use std::collections::VecDeque;

use flowgauge_stack::NodeId;
use flowgauge_stack::engine::{Engine, Event, Events, Feed, Step, Wants};
use flowgauge_stream::{BadPayload, Skip, Want};

use super::part::{Count, Member, Part};

/// An engine, and the parts that what comes of it goes to.
pub(super) struct Subscribers {
    engine: Box<Engine>,
    parts: Vec<Part>,
    /// What each part wants of the step at hand; `None`: it has had enough, and gets nothing any more.
    wants: Vec<Option<Wants>>,
    /// Which parts have wanted streams.
    reads: Vec<bool>,
    /// What was bad of the payload that each was to read.
    bad: Vec<BadPayload>,
    /// What any of them has wanted.
    all: Wants,
    shares: Shares,
}

/// What each part wants of streams, by their numbers, as soon as any wants less than all.
#[derive(Default)]
struct Shares(Vec<Vec<Share>>);

/// What a part wants of a stream.
#[derive(Clone, Copy, Default)]
struct Share {
    skip: Skip,
    /// Neither bytes nor lengths.
    wants_nothing: bool,
}

impl Shares {
    #[inline]
    fn of(&mut self, stream: u32, part: usize) -> Option<&mut Share> {
        self.0.get_mut(stream as usize)?.get_mut(part)
    }

    /// Whether a part wants nothing of a stream and the opposite one.
    fn are_unwanted(&mut self, stream: u32, part: usize) -> bool {
        let mut both = [stream, stream ^ 1].into_iter();
        both.all(|stream| {
            self.of(stream, part)
                .is_some_and(|share| share.wants_nothing)
        })
    }

    /// Those of the parts with these numbers, under new ones.
    fn of_parts(&self, numbers: &[usize]) -> Shares {
        let of_stream = |shares: &Vec<Share>| {
            let of = |&number: &usize| shares.get(number).copied().unwrap_or_default();
            numbers.iter().map(of).collect()
        };
        Shares(self.0.iter().map(of_stream).collect())
    }

    /// A stream begins.
    fn clear(&mut self, stream: u32) {
        if let Some(shares) = self.0.get_mut(stream as usize) {
            shares.fill(Share::default());
        }
    }

    /// One of several parts, those that read streams, wants this. Returns what they want together.
    fn want(&mut self, want: Want, part: usize, reads: &[bool]) -> Option<Want> {
        let (stream, from) = match want {
            Want::From(stream, from) => (stream, from),
            Want::Nothing(stream) => (stream, u64::MAX),
            Want::Policy(..) => return Some(want),
        };
        let at = stream as usize;
        if at >= self.0.len() {
            self.0.resize((at + 1).next_power_of_two(), Vec::new());
        }
        let shares = &mut self.0[at];
        shares.resize(reads.len(), Share::default());
        if let Some(share) = shares.get_mut(part) {
            share.skip.from = from;
            share.wants_nothing = matches!(want, Want::Nothing(_));
        }
        let all = shares.iter().zip(reads).filter(|(_, reads)| **reads);
        if all.clone().all(|(share, _)| share.wants_nothing) {
            return Some(Want::Nothing(stream));
        }
        let from = all.map(|(share, _)| share.skip.from).min()?;
        Some(Want::From(stream, from))
    }
}

/// Gives an event of the engine to a part, as far as that wants it.
fn give(event: Event<'_>, part: &mut Part, share: Option<&mut Share>, asked: &mut Vec<Want>) {
    let mut take = |event: Event<'_>| part.event(Feed::Event(event, asked));
    let Some(share) = share else {
        return take(event);
    };
    match event {
        Event::Data(..) | Event::Remark(..) if share.wants_nothing => {}
        Event::Data(stream, chunk) => {
            if let Some(rest) = share.skip.rest(chunk) {
                take(Event::Data(stream, &rest));
            }
        }
        Event::Terminated(stream, _) if share.wants_nothing => take(Event::Terminated(stream, 0)),
        Event::Terminated(stream, _) => {
            if let Some(last) = share.skip.last(stream) {
                take(Event::Data(stream, &last));
            }
            take(event);
        }
        _ => take(event),
    }
}

impl Subscribers {
    pub(super) fn new(engine: Box<Engine>, parts: Vec<Part>) -> Subscribers {
        Subscribers {
            engine,
            wants: vec![Some(Wants::default()); parts.len()],
            reads: vec![false; parts.len()],
            bad: vec![BadPayload::default(); parts.len()],
            parts,
            all: Wants::default(),
            shares: Shares::default(),
        }
    }

    /// Takes out the parts of stacks that leave, with a copy of the engine, which goes on from here.
    pub(super) fn split(&mut self, leaves: &dyn Fn(&Member) -> bool) -> Subscribers {
        let (mut left, mut numbers) = (Vec::new(), Vec::new());
        let (mut stay, mut stay_numbers) = (Vec::new(), Vec::new());
        for (number, mut part) in core::mem::take(&mut self.parts).into_iter().enumerate() {
            if part.members().iter().all(leaves) {
                left.push(part);
                numbers.push(number);
                continue;
            }
            if let Some(copy) = part.copy(leaves) {
                left.push(copy);
                numbers.push(number);
            }
            stay.push(part);
            stay_numbers.push(number);
        }
        let wants = |numbers: &[usize]| numbers.iter().map(|&it| self.wants[it]).collect();
        let reads = |numbers: &[usize]| numbers.iter().map(|&it| self.reads[it]).collect();
        let bad = |numbers: &[usize]| numbers.iter().map(|&it| self.bad[it].clone()).collect();
        let copy = Subscribers {
            engine: self.engine.clone(),
            parts: left,
            wants: wants(&numbers),
            reads: reads(&numbers),
            bad: bad(&numbers),
            all: self.all,
            shares: self.shares.of_parts(&numbers),
        };
        let shares = self.shares.of_parts(&stay_numbers);
        (self.wants, self.reads, self.bad) = (
            wants(&stay_numbers),
            reads(&stay_numbers),
            bad(&stay_numbers),
        );
        (self.parts, self.shares) = (stay, shares);
        copy
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
        let (shares, bad) = (&mut self.shares, &mut self.bad);
        let mut asked = Vec::new();
        let each = |event: Event<'_>, wanted: &mut VecDeque<Want>| {
            if let Event::Created(stream) = event {
                shares.clear(stream.id);
            }
            let stream = event.stream();
            let states = wants.iter().zip(&mut *bad);
            for (number, (part, (wants, bad))) in parts.iter_mut().zip(states).enumerate() {
                if !wants.is_some_and(|wants| event.is_wanted(wants)) {
                    continue;
                }
                if let Event::BadPayload(_, packet, is_taken) = event {
                    if !stream.is_some_and(|stream| shares.are_unwanted(stream, number)) {
                        bad.note(packet, is_taken);
                    }
                    continue;
                }
                let share = stream.and_then(|stream| shares.of(stream, number));
                give(event, part, share, &mut asked);
                for want in asked.drain(..) {
                    wanted.extend(shares.want(want, number, reads));
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
        let states = self.reads.iter().zip(&self.bad);
        for (part, (reads, bad)) in self.parts.iter().zip(states) {
            let subscriber: Option<NodeId> = part.subscriber();
            part.counts(&mut |mut count| {
                if Some(count.id) == subscriber {
                    let mut account = Box::new(self.engine.account(*reads, bad));
                    account.merge(&count.account.take().unwrap_or_default());
                    count.account = Some(account);
                }
                give(count);
            });
        }
    }
}
