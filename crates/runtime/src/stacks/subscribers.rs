//! Parts of stacks whose first components subscribe to the same engine.

use std::collections::VecDeque;

use flowgauge_stack::NodeId;
use flowgauge_stack::engine::{Engine, Event, Events, Feed, Step, Wants};
use flowgauge_stream::{BadPayload, Chunk, Handler, Skip, Stream, Want};
use flowgauge_wire::{Ledger, Nanos};

use super::board::Counts;
use super::part::{Count, Leaving, Part};

/// An engine, and the parts that what comes of it goes to.
pub(super) struct Subscribers {
    engine: Box<Engine>,
    all: Subscribed,
}

/// Parts that what comes of an engine goes to.
#[derive(Default)]
struct Subscribed {
    parts: Vec<Part>,
    /// What each part wants of the step at hand; `None`: it has had enough, and gets nothing any more.
    wants: Vec<Option<Wants>>,
    /// Which parts have wanted streams.
    reads: Vec<bool>,
    /// What was bad of the payload that each was to read.
    bad: Vec<BadPayload>,
    /// Which parts began when the engine ran already.
    late: Vec<Option<Late>>,
    /// What any of them has wanted.
    any: Wants,
    shares: Shares,
    /// Others have left, who may have wanted more.
    has_lost: bool,
}

/// What an engine is to do.
enum Work<'a, 'b> {
    Step(&'a Step<'a, 'b>),
    /// What has timed out is to end.
    EndDue,
    /// What is open is shown as if the input was over.
    ShowOpen,
}

impl Work<'_, '_> {
    fn of<H: Handler>(&self, engine: &mut Engine, handler: &mut H) {
        match self {
            Work::Step(step) => engine.take_for_all(step, true, handler),
            Work::EndDue => engine.end_due(handler),
            Work::ShowOpen => engine.show_open(handler),
        }
    }
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
    /// It wanted nothing, and goes on with the next bytes.
    resumes: bool,
}

/// A part that began when the engine ran already. Of streams that had begun it is told with the first thing that it gets of
/// them, and what was before counts as skipped.
#[derive(Clone)]
struct Late {
    /// What the engine told then.
    before: Ledger,
    /// The numbers of streams that the part has been told of, a bit for each.
    told: Vec<u64>,
}

impl Late {
    /// Notes that the part is told of a stream. Returns whether it was not.
    #[inline]
    fn tell(&mut self, stream: u32) -> bool {
        let (at, bit) = (stream as usize / 64, 1 << (stream % 64));
        if at >= self.told.len() {
            self.told.resize((at + 1).next_power_of_two(), 0);
        }
        let is_new = self.told[at] & bit == 0;
        self.told[at] |= bit;
        is_new
    }
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

    /// Takes over that of a part of others, under a new number.
    fn take_from(&mut self, others: &Shares, number: usize, at: usize) {
        self.0.resize(others.0.len(), Vec::new());
        let rows = self.0.iter_mut().zip(&others.0);
        for (mine, theirs) in rows.filter(|(_, theirs)| !theirs.is_empty()) {
            mine.resize(at, Share::default());
            mine.push(theirs.get(number).copied().unwrap_or_default());
        }
    }

    /// The only part wants this of a stream.
    fn set(&mut self, want: Want) {
        self.want(want, 0, &[true]);
    }

    /// Another part joins, which wants all. Returns of which streams others want less.
    fn join(&mut self, number: usize) -> Vec<u32> {
        let mut less = Vec::new();
        for (stream, shares) in (0..).zip(&mut self.0) {
            if !shares.is_empty() {
                shares.resize(number + 1, Share::default());
                less.push(stream);
            }
        }
        less
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
            Want::Policy(..) | Want::Standing(..) => return Some(want),
        };
        let at = stream as usize;
        if at >= self.0.len() {
            self.0.resize((at + 1).next_power_of_two(), Vec::new());
        }
        let shares = &mut self.0[at];
        shares.resize(reads.len(), Share::default());
        if let Some(share) = shares.get_mut(part) {
            let wants_nothing = matches!(want, Want::Nothing(_));
            share.resumes = !wants_nothing && (share.resumes || share.wants_nothing);
            if wants_nothing && !share.wants_nothing {
                share.skip = Skip::default();
            }
            share.skip.from = from;
            share.wants_nothing = wants_nothing;
        }
        Shares::together(stream, shares, reads)
    }

    /// What those that read streams want of one together.
    fn together(stream: u32, shares: &[Share], reads: &[bool]) -> Option<Want> {
        let all = shares.iter().zip(reads).filter(|(_, reads)| **reads);
        if all.clone().all(|(share, _)| share.wants_nothing) {
            return Some(Want::Nothing(stream));
        }
        let from = all.map(|(share, _)| share.skip.from).min()?;
        Some(Want::From(stream, from))
    }

    /// The same of all streams of which any has wanted less.
    fn all<'a>(&'a self, reads: &'a [bool]) -> impl Iterator<Item = Want> + 'a {
        let streams = (0..).zip(&self.0).filter(|(_, shares)| !shares.is_empty());
        streams.filter_map(|(stream, shares)| Shares::together(stream, shares, reads))
    }
}

/// Gives an event of the engine to a part, as far as that wants it.
fn give(event: Event<'_>, part: &mut Part, share: Option<&mut Share>, asked: &mut Vec<Want>) {
    let mut take = |event: Event<'_>| part.event(Feed::Event(event, asked));
    let Some(share) = share else {
        return take(event);
    };
    match event {
        Event::Remark(..) if share.wants_nothing => {}
        Event::Data(stream, chunk) if share.resumes || share.wants_nothing => {
            share.skip.pass(chunk.skipped + chunk.gap_before);
            if share.wants_nothing {
                return share.skip.pass(chunk.bytes.len() as u64);
            }
            share.resumes = false;
            let chunk = Chunk {
                gap_before: 0,
                skipped: 0,
                ..*chunk
            };
            share.skip.from = share.skip.from.max(chunk.offset);
            give(Event::Data(stream, &chunk), part, Some(share), asked);
        }
        Event::Data(stream, chunk) => {
            if let Some(rest) = share.skip.rest(chunk) {
                take(Event::Data(stream, &rest));
            }
        }
        Event::Terminated(stream, _) if share.resumes || share.wants_nothing => {
            take(Event::Terminated(stream, 0))
        }
        Event::Terminated(stream, _) => {
            if let Some(last) = share.skip.last(stream) {
                take(Event::Data(stream, &last));
            }
            take(event);
        }
        _ => take(event),
    }
}

/// The same of the first event of a stream that it gets.
#[cold]
fn give_first(
    event: Event<'_>,
    stream: &Stream<'_>,
    part: &mut Part,
    share: Option<&mut Share>,
    asked: &mut Vec<Want>,
) {
    match event {
        Event::Created(_) => give(event, part, share, asked),
        Event::Data(_, chunk) => {
            part.event(Feed::Event(Event::Created(stream), asked));
            let skipped = chunk.offset - chunk.gap_before;
            let chunk = Chunk { skipped, ..*chunk };
            give(Event::Data(stream, &chunk), part, share, asked);
        }
        _ => {
            part.event(Feed::Event(Event::Created(stream), asked));
            give(event, part, share, asked);
        }
    }
}

impl Subscribers {
    /// Of a part that had the engine for itself.
    pub(super) fn new(engine: Box<Engine>, part: Part) -> Subscribers {
        let mut all = Subscribed::default();
        all.add(part, None);
        all.bad[0].clone_from(engine.shard().bad_payload());
        engine.wanted().for_each(|want| all.shares.set(want));
        Subscribers { engine, all }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Another part subscribes, instead of to an engine of its own that has not begun. Where this one runs, the clock is at `now`.
    pub(super) fn join(&mut self, mut part: Part, own: &Engine, now: Option<Nanos>) {
        self.engine.take_over(own);
        part.begin_at(now);
        let late = now.map(|_| Late {
            before: self.engine.account(true, &BadPayload::default()).ledger,
            told: Vec::new(),
        });
        for stream in self.all.add(part, late) {
            self.engine.want(Want::From(stream, 0));
        }
    }

    /// The parts of another engine that has not begun subscribe.
    pub(super) fn join_all(&mut self, others: &mut Subscribers, now: Option<Nanos>) {
        for part in others.all.parts.drain(..) {
            self.join(part, &others.engine, now);
        }
    }

    /// Ends the parts of stacks that leave with what is open in the engine, which goes on.
    pub(super) fn leave(&mut self, leaving: &mut Leaving<'_>) {
        self.all.hand(&mut self.engine, &Work::EndDue);
        let (mut left, mut stay) = (Subscribed::default(), Subscribed::default());
        for (number, mut part) in core::mem::take(&mut self.all.parts).into_iter().enumerate() {
            if part.members().iter().all(leaving.who) {
                left.take_from(&self.all, number, part);
            } else {
                if let Some(copy) = part.copy(leaving) {
                    left.take_from(&self.all, number, copy);
                }
                stay.take_from(&self.all, number, part);
            }
        }
        self.all = stay;
        self.all.has_lost = true;
        let engine = &mut self.engine;
        let tick = Step::Tick(leaving.now);
        left.begin_step(&tick, engine);
        left.end_step(&tick, engine);
        left.parts.iter_mut().for_each(Part::begin_finish);
        left.begin_step(&Step::Finish, engine);
        left.hand(engine, &Work::ShowOpen);
        left.end_step(&Step::Finish, engine);
        left.parts.iter_mut().for_each(Part::end_finish);
        left.counts(engine, &mut |count| leaving.counts.push(count));
    }

    pub(super) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.all.parts
    }

    pub(super) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.all.parts
    }

    /// Takes a step through the engine, and what comes of it to all parts.
    pub(super) fn step(&mut self, step: &Step<'_, '_>) {
        self.all.begin_step(step, &self.engine);
        if core::mem::take(&mut self.all.has_lost) {
            self.all.want_less(&mut self.engine);
        }
        self.all.hand(&mut self.engine, &Work::Step(step));
        self.all.end_step(step, &self.engine);
    }

    /// What is known of all components; what is told of the engine is told of each that subscribes to it.
    pub(super) fn counts(&self, give: &mut dyn FnMut(Count)) {
        self.all.counts(&self.engine, give);
    }
}

impl Subscribed {
    /// Adds a part that has been told of nothing yet. Returns of which streams others want less than all.
    fn add(&mut self, mut part: Part, late: Option<Late>) -> Vec<u32> {
        let wants = part.wants();
        self.any = self.any.or(wants);
        self.wants.push(Some(wants));
        self.reads.push(wants.streams);
        self.parts.push(part);
        self.bad.push(BadPayload::default());
        self.late.push(late);
        self.shares.join(self.parts.len() - 1)
    }

    /// Takes over what others have of the part with this number, or of what that is a copy of.
    fn take_from(&mut self, others: &Subscribed, number: usize, part: Part) {
        self.shares
            .take_from(&others.shares, number, self.parts.len());
        self.parts.push(part);
        self.wants.push(others.wants[number]);
        self.reads.push(others.reads[number]);
        self.bad.push(others.bad[number].clone());
        self.late.push(others.late[number].clone());
        self.any = others.any;
    }

    /// The engine does no more than those want who are left.
    #[cold]
    fn want_less(&mut self, engine: &mut Engine) {
        let wants = self.wants.iter().flatten();
        self.any = wants.fold(Wants::default(), |any, wants| any.or(*wants));
        self.any.streams |= self.reads.contains(&true);
        if self.any.streams {
            self.shares
                .all(&self.reads)
                .for_each(|want| engine.want(want));
        } else {
            self.shares = Shares::default();
            engine.forget_streams();
        }
    }

    /// A step begins.
    fn begin_step(&mut self, step: &Step<'_, '_>, engine: &Engine) {
        let clock = engine.shard().tracker().clock();
        let states = self.wants.iter_mut().zip(&mut self.reads);
        for (part, (wants, reads)) in self.parts.iter_mut().zip(states) {
            let wanted = part.begin_step(step, clock);
            *wants = wants.and(wanted);
            let wanted = wanted.unwrap_or_default();
            *reads |= wanted.streams;
            self.any = self.any.or(wanted);
        }
    }

    /// Hands what comes of the engine to all parts.
    fn hand(&mut self, engine: &mut Engine, work: &Work<'_, '_>) {
        let (parts, wants, reads) = (&mut self.parts, &self.wants, &self.reads);
        let (bad, late, shares) = (&mut self.bad, &mut self.late, &mut self.shares);
        let mut asked = Vec::new();
        let each = |event: Event<'_>, wanted: &mut VecDeque<Want>| {
            if let Event::Created(stream) = event {
                shares.clear(stream.id);
            }
            let (stream, id) = (event.stream(), event.stream_id());
            let states = wants.iter().zip(&mut *bad).zip(&mut *late);
            for (number, (part, ((wants, bad), late))) in parts.iter_mut().zip(states).enumerate() {
                if !wants.is_some_and(|wants| event.is_wanted(wants)) {
                    continue;
                }
                if let Event::BadPayload(_, packet, is_taken) = event {
                    if !id.is_some_and(|id| shares.are_unwanted(id, number)) {
                        bad.note(packet, is_taken);
                    }
                    continue;
                }
                let share = id.and_then(|id| shares.of(id, number));
                let is_first = |stream: &&Stream<'_>| {
                    let late = late.as_mut();
                    late.is_some_and(|late| late.tell(stream.id))
                };
                match stream.filter(is_first) {
                    Some(stream) => give_first(event, stream, part, share, &mut asked),
                    None => give(event, part, share, &mut asked),
                }
                for want in asked.drain(..) {
                    wanted.extend(shares.want(want, number, reads));
                }
            }
        };
        let flows = self.any.flows;
        match (self.any.streams, self.any.remarks) {
            (false, _) => work.of(engine, &mut Events::<_, false, false>::new(flows, each)),
            (true, false) => work.of(engine, &mut Events::<_, true, false>::new(flows, each)),
            (true, true) => work.of(engine, &mut Events::<_, true, true>::new(flows, each)),
        }
    }

    /// The step is over.
    fn end_step(&mut self, step: &Step<'_, '_>, engine: &Engine) {
        for part in &mut self.parts {
            part.end_step(step, engine);
        }
    }

    fn counts(&self, engine: &Engine, give: &mut dyn FnMut(Count)) {
        let states = self.reads.iter().zip(&self.bad).zip(&self.late);
        for (part, ((reads, bad), late)) in self.parts.iter().zip(states) {
            let subscriber: Option<NodeId> = part.subscriber();
            part.counts(&mut |mut count| {
                if Some(count.id) == subscriber {
                    let mut account = Box::new(engine.account(*reads, bad));
                    if let Some(late) = late {
                        account.ledger = account.ledger.since(&late.before);
                    }
                    account.merge(&count.account.take().unwrap_or_default());
                    count.account = Some(account);
                }
                give(count);
            });
        }
    }
}
