//! One TCP connection as a passive observer sees it.
//!
//! The observer sits somewhere between the two endpoints. An endpoint's `delay` is the time from a
//! segment towards it passing the observer until its answer passes; the two delays add up to the
//! round-trip time. The sender has a congestion window in slow start up to a limit, the receiver
//! acknowledges every second segment or after a while, answers holes with duplicate
//! acknowledgements and SACK blocks, and losses are repaired an RTT later.

mod segment;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::IpAddr;

use super::application::Application;
use super::config::{Config, Detail};
use super::frame::Path;
use super::output::Output;
use super::payload::{Library, Message};
use super::random::Random;
use super::truth::{HttpTotals, Tracker, Truth};

const MILLISECOND: u64 = 1_000_000;
const NEVER: u64 = u64::MAX;
const TCP: u8 = 6;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// What a connection is made of; the rest follows from its random numbers.
pub(super) struct Setup {
    pub(super) addresses: [(IpAddr, u16); 2],
    pub(super) paths: [Path; 2],
    /// From a segment towards the endpoint until its answer, nanoseconds.
    pub(super) delays: [u64; 2],
    /// Between two segments of a burst, nanoseconds.
    pub(super) gap: u64,
    /// Payload bytes of a full segment.
    pub(super) segment_size: usize,
    /// Largest congestion window, in segments.
    pub(super) window_limit: u64,
    pub(super) timestamps: bool,
    pub(super) mid_stream: bool,
    pub(super) wrapped: bool,
}

/// One endpoint.
struct Side {
    tracker: Tracker,
    /// Initial sequence number; the stream's first byte has the next one.
    isn: u32,
    /// Stream offset of the next byte to send.
    next: u64,
    /// Bytes this side knows to be acknowledged, and those selectively.
    acknowledged: u64,
    selective: u64,
    /// Bytes of the peer received in order, and runs beyond.
    received: u64,
    beyond: Vec<(u64, u64)>,
    peer_finished: bool,
    /// Segments received but not acknowledged, and when they must be.
    unacknowledged: u8,
    acknowledge_at: u64,
    window: u64,
    id: u16,
    clock: u32,
    echo: u32,
}

/// The handshake, the pauses and the end; data goes on beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Syn,
    SynAck,
    HandshakeAck,
    /// The next message begins.
    Message,
    /// One side closes.
    Fin(usize),
    /// The other side acknowledges that, and closes at once or later.
    FinAck(usize),
    LateFin(usize),
    LastAck(usize),
    Rst(usize),
    Done,
}

/// A segment that comes later than its place in the stream.
struct Displaced {
    due: u64,
    from: u64,
    payload: Vec<u8>,
    tail: Tail,
    clock: Option<u32>,
}

/// How a displaced segment is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    AsItWas,
    /// To be sent in two overlapping pieces, with so many bytes of the segment after it.
    Recut(usize),
}

/// What becomes of a new data segment; kinds exclude each other, so that the truth stays simple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Normal,
    /// Behind some later segments.
    Reordered,
    /// Lost before the observer.
    LostUpstream,
    /// Lost behind the observer.
    LostDownstream,
    /// Lost behind the observer and sent again in other boundaries.
    Recut,
    /// Not in the capture though it arrived.
    Missing,
}

pub(super) struct Connection {
    random: Random,
    setup: Setup,
    sides: [Side; 2],
    application: Application,
    step: Step,
    step_at: u64,
    message: Option<Message>,
    sender: usize,
    send_at: u64,
    /// Segments on their way to the receiver: when its answer passes, and their bytes.
    arrivals: VecDeque<(u64, u64, u64)>,
    /// Acknowledgements on their way to the sender: when its answer passes, in-order bytes,
    /// selectively acknowledged bytes.
    openings: VecDeque<(u64, u64, u64)>,
    displaced: Vec<Displaced>,
    /// The payload of the segment sent last; who sent it and where it ends, if its fate was normal.
    scratch: Vec<u8>,
    previous: (usize, u64),
}

impl Connection {
    /// A connection that begins at `start`.
    pub(super) fn new(
        config: &Config,
        mut random: Random,
        setup: Setup,
        application: Application,
        start: u64,
    ) -> Self {
        let hashed = config.detail == Detail::Full;
        let sides = [0, 1].map(|_| {
            let isn = match setup.wrapped {
                // A few kilobytes below the end of the sequence space.
                true => u32::MAX - random.below(4_000) as u32,
                false => random.bits() as u32,
            };
            Side {
                tracker: Tracker::new(hashed),
                isn,
                next: 0,
                acknowledged: 0,
                selective: 0,
                received: 0,
                beyond: Vec::new(),
                peer_finished: false,
                unacknowledged: 0,
                acknowledge_at: NEVER,
                window: 10,
                id: random.bits() as u16,
                clock: random.bits() as u32,
                echo: 0,
            }
        });
        let mut connection = Connection {
            random,
            sides,
            application,
            step: if setup.mid_stream {
                Step::Message
            } else {
                Step::Syn
            },
            step_at: start,
            setup,
            message: None,
            sender: 0,
            send_at: NEVER,
            arrivals: VecDeque::new(),
            openings: VecDeque::new(),
            displaced: Vec::new(),
            scratch: Vec::new(),
            previous: (0, NEVER),
        };
        if connection.setup.mid_stream {
            for side in 0..2 {
                connection.sides[side].echo = connection.sides[1 - side].clock;
            }
        }
        connection
    }

    /// When something happens next; `None` when the connection is over.
    pub(super) fn next_time(&self) -> Option<u64> {
        let mut next = self.step_at.min(self.send_at);
        next = next.min(self.sides[0].acknowledge_at);
        next = next.min(self.sides[1].acknowledge_at);
        if let Some(arrival) = self.arrivals.front() {
            next = next.min(arrival.0);
        }
        if let Some(opening) = self.openings.front() {
            next = next.min(opening.0);
        }
        for segment in &self.displaced {
            next = next.min(segment.due);
        }
        (next != NEVER).then_some(next)
    }

    /// Does what happens at `now`, which [`Connection::next_time`] returned.
    pub(super) fn advance<W: Write>(
        &mut self,
        now: u64,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        if let Some(index) = self.displaced.iter().position(|it| it.due <= now) {
            return self.send_displaced(now, index, context);
        }
        if self.openings.front().is_some_and(|it| it.0 <= now)
            && let Some((_, in_order, selective)) = self.openings.pop_front()
        {
            self.open(now, in_order, selective);
            return Ok(());
        }
        if self.arrivals.front().is_some_and(|it| it.0 <= now)
            && let Some((_, from, to)) = self.arrivals.pop_front()
        {
            return self.arrive(now, from, to, context);
        }
        if self.step_at <= now {
            return self.take_step(now, context);
        }
        if self.send_at <= now {
            return self.send_next(now, context);
        }
        for side in 0..2 {
            if self.sides[side].acknowledge_at <= now {
                return self.acknowledge(now, side, context);
            }
        }
        Ok(())
    }

    /// Adds what is known of the connection to the truth.
    pub(super) fn finish(self, truth: &mut Truth, detail: Detail) {
        let addresses = self.setup.addresses;
        if self.sides.iter().all(|side| side.tracker.packets == 0) {
            return;
        }
        truth.flows.tcp += 1;
        if self.sides.iter().all(|side| side.tracker.syn) {
            truth.totals.handshakes += 1;
        }
        truth.totals.mid_stream += u64::from(self.setup.mid_stream);
        for (index, side) in self.sides.into_iter().enumerate() {
            let totals = &mut truth.totals;
            totals.tcp_stream_bytes += side.tracker.sent();
            totals.bytes_beyond_10k += side.tracker.sent().saturating_sub(10_240);
            totals.tcp_missing_bytes += side.tracker.missing();
            totals.tcp_holes += side.tracker.holes();
            if detail == Detail::Full {
                let (from, to) = (addresses[index], addresses[1 - index]);
                truth
                    .streams
                    .push(side.tracker.finish(from, to, "tcp", index == 0));
            }
        }
    }

    fn take_step<W: Write>(&mut self, now: u64, context: &mut Context<'_, W>) -> io::Result<()> {
        let delays = self.setup.delays;
        match self.step {
            Step::Syn => {
                self.emit(now, 0, SYN, 0, &[], false, context)?;
                self.then(Step::SynAck, now + delays[1]);
            }
            Step::SynAck => {
                self.emit(now, 1, SYN | ACK, 0, &[], false, context)?;
                self.then(Step::HandshakeAck, now + delays[0]);
            }
            Step::HandshakeAck => {
                self.emit(now, 0, ACK, 0, &[], false, context)?;
                let pause = self.random.between(20_000, 200_000);
                self.then(Step::Message, now + pause);
            }
            Step::Message => self.begin_message(now, context),
            Step::Fin(side) => {
                let next = self.sides[side].next;
                self.emit(now, side, FIN | ACK, next, &[], false, context)?;
                self.sides[1 - side].peer_finished = true;
                self.then(Step::FinAck(1 - side), now + delays[1 - side]);
            }
            Step::FinAck(side) => {
                let next = self.sides[side].next;
                if self.random.chance(0.3) {
                    // The application closes a little later than the stack acknowledges.
                    self.emit(now, side, ACK, next, &[], false, context)?;
                    let pause = self.random.between(50_000, 30 * MILLISECOND);
                    self.then(Step::LateFin(side), now + pause);
                } else {
                    self.then(Step::LateFin(side), now);
                }
            }
            Step::LateFin(side) => {
                let next = self.sides[side].next;
                self.emit(now, side, FIN | ACK, next, &[], false, context)?;
                self.sides[1 - side].peer_finished = true;
                self.then(Step::LastAck(1 - side), now + delays[1 - side]);
            }
            Step::LastAck(side) => {
                let next = self.sides[side].next;
                self.emit(now, side, ACK, next, &[], false, context)?;
                self.then(Step::Done, NEVER);
            }
            Step::Rst(side) => {
                let next = self.sides[side].next;
                self.emit(now, side, RST | ACK, next, &[], false, context)?;
                self.sides[1 - side].acknowledge_at = NEVER;
                self.then(Step::Done, NEVER);
            }
            Step::Done => self.step_at = NEVER,
        }
        Ok(())
    }

    fn then(&mut self, step: Step, at: u64) {
        self.step = step;
        self.step_at = at;
    }

    /// The application's next message, or the end.
    fn begin_message<W: Write>(&mut self, now: u64, context: &mut Context<'_, W>) {
        let http = &mut context.http;
        if let Some((sender, message)) = self.application.next(&mut self.random, http) {
            if sender != self.sender {
                self.openings.clear();
                let (old, new) = (self.sender, sender);
                self.sides[old].acknowledged = self.sides[old].next;
                self.sides[old].selective = 0;
                self.sides[new].acknowledged = self.sides[new].next;
            }
            self.sender = sender;
            self.message = Some(message);
            self.then(Step::Done, NEVER);
            self.send_at = now;
            return;
        }
        let closer = if self.random.chance(0.35) { 1 } else { 0 };
        let step = match self.random.below(100) {
            0..4 => Step::Rst(0),
            4..6 => Step::Rst(1),
            // Left open.
            6..8 => Step::Done,
            _ => Step::Fin(closer),
        };
        let at = if step == Step::Done { NEVER } else { now };
        self.then(step, at);
    }

    /// Sends the next new segment if the window allows.
    fn send_next<W: Write>(&mut self, now: u64, context: &mut Context<'_, W>) -> io::Result<()> {
        let (sender, receiver) = (self.sender, 1 - self.sender);
        let side = &self.sides[sender];
        let in_flight = (side.next - side.acknowledged).saturating_sub(side.selective);
        let size = self.setup.segment_size as u64;
        if in_flight + size > side.window * size && in_flight > 0 {
            self.send_at = NEVER;
            return Ok(());
        }
        let room = side.window * size > in_flight + 2 * size;
        let Some(message) = &mut self.message else {
            self.send_at = NEVER;
            return Ok(());
        };
        let mut payload = std::mem::take(&mut self.scratch);
        let from = side.next;
        // The end of the segment just sent goes out again in front of new bytes.
        let straddles =
            self.previous == (sender, from) && self.random.chance(context.config.overlapped / 2.0);
        let repeated = match straddles {
            true => payload[payload.len() - payload.len() / 3..].to_vec(),
            false => Vec::new(),
        };
        payload.clear();
        message.fill(
            context.library,
            &mut payload,
            self.setup.segment_size - repeated.len(),
        );
        let last = message.is_finished();
        if last {
            self.message = None;
            self.send_at = NEVER;
        } else {
            let jitter = self.random.below(self.setup.gap / 4 + 1);
            self.send_at = now + self.setup.gap + jitter;
        }
        let to = from + payload.len() as u64;
        self.sides[sender].next = to;
        let extended = self.extend_recut(from, &payload);
        let fate = match straddles {
            true => Fate::Normal,
            false => self.fate(context.config, last, room, extended),
        };
        self.previous = match fate {
            Fate::Normal => (sender, to),
            _ => (sender, NEVER),
        };
        let tracker = &mut self.sides[sender].tracker;
        tracker.send(&payload, fate != Fate::Missing);
        let clock = self.sides[sender]
            .clock
            .wrapping_add((now / MILLISECOND) as u32);
        let round_trip = self.setup.delays[0] + self.setup.delays[1];
        let flags = if last { ACK | PSH } else { ACK };
        let captured = matches!(fate, Fate::Normal | Fate::LostDownstream | Fate::Recut);
        if straddles {
            let mut both = repeated;
            let start = from - both.len() as u64;
            both.extend_from_slice(&payload);
            self.emit(now, sender, flags, start, &both, false, context)?;
        } else if captured || fate == Fate::Missing {
            let missing = fate == Fate::Missing;
            self.emit(now, sender, flags, from, &payload, missing, context)?;
        }
        match fate {
            Fate::Normal | Fate::Missing => {
                self.arrivals
                    .push_back((now + self.setup.delays[receiver], from, to));
            }
            Fate::Reordered => {
                let positions = self.random.between(1, 4);
                let due = now + positions * (self.setup.gap + self.setup.gap / 4) + 1_000;
                self.displace(due, from, &payload, Tail::AsItWas, Some(clock));
            }
            Fate::LostUpstream | Fate::LostDownstream | Fate::Recut => {
                if fate == Fate::LostUpstream {
                    context.output.totals.lost_upstream += 1;
                }
                // The third duplicate acknowledgement, or the tail loss probe, triggers it.
                let wait = if last { 2 * round_trip } else { round_trip };
                let due = now + wait + 3 * self.setup.gap + self.random.below(MILLISECOND);
                let tail = match fate {
                    Fate::Recut => Tail::Recut(self.setup.segment_size / 2),
                    _ => Tail::AsItWas,
                };
                self.displace(due, from, &payload, tail, None);
                let window = &mut self.sides[sender].window;
                *window = (*window * 7 / 10).max(4);
            }
        }
        self.scratch = payload;
        Ok(())
    }

    fn displace(&mut self, due: u64, from: u64, payload: &[u8], tail: Tail, clock: Option<u32>) {
        self.displaced.push(Displaced {
            due,
            from,
            payload: payload.to_vec(),
            tail,
            clock,
        });
    }

    /// Lets a recut segment that ends where this one begins have its first bytes.
    fn extend_recut(&mut self, from: u64, payload: &[u8]) -> bool {
        for segment in &mut self.displaced {
            if let Tail::Recut(count @ 1..) = segment.tail
                && segment.from + segment.payload.len() as u64 == from
            {
                segment
                    .payload
                    .extend_from_slice(&payload[..count.min(payload.len())]);
                segment.tail = Tail::Recut(0);
                return true;
            }
        }
        false
    }

    fn fate(&mut self, config: &Config, last: bool, room: bool, extended: bool) -> Fate {
        if extended {
            return Fate::Normal;
        }
        let mut chance = self.random.unit();
        let mut falls = |share: f64| {
            let hit = chance <= share;
            chance -= share;
            hit
        };
        if falls(config.missing) {
            Fate::Missing
        } else if falls(config.lost_upstream) {
            Fate::LostUpstream
        } else if falls(config.retransmitted) {
            Fate::LostDownstream
        } else if falls(config.overlapped / 2.0) && !last {
            Fate::Recut
        } else if falls(config.reordered * 1.9) && !last && room {
            Fate::Reordered
        } else {
            Fate::Normal
        }
    }

    fn send_displaced<W: Write>(
        &mut self,
        now: u64,
        index: usize,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        let (sender, receiver) = (self.sender, 1 - self.sender);
        let segment = self.displaced.swap_remove(index);
        let answered = now + self.setup.delays[receiver];
        let length = segment.payload.len();
        let cuts = match segment.tail {
            Tail::AsItWas => [(0, length), (0, 0)],
            Tail::Recut(_) if length < 8 => [(0, length), (0, 0)],
            Tail::Recut(_) => {
                // Two pieces that overlap each other and what was captured already.
                let original = length.min(self.setup.segment_size);
                let second = original / 3;
                [
                    (0, original * 2 / 3),
                    (second, length.min(second + self.setup.segment_size)),
                ]
            }
        };
        for (start, end) in cuts {
            if start == end {
                continue;
            }
            let from = segment.from + start as u64;
            let to = segment.from + end as u64;
            let payload = &segment.payload[start..end];
            let now_clock = self.sides[sender].clock;
            if let Some(clock) = segment.clock {
                // It was sent earlier and overtaken: its timestamp is the old one.
                self.sides[sender].clock = clock.wrapping_sub((now / MILLISECOND) as u32);
            }
            self.emit(now, sender, ACK, from, payload, false, context)?;
            self.sides[sender].clock = now_clock;
            self.arrivals.push_back((answered, from, to));
        }
        Ok(())
    }

    /// The sender learns what was received.
    fn open(&mut self, now: u64, in_order: u64, selective: u64) {
        let limit = self.setup.window_limit;
        let side = &mut self.sides[self.sender];
        if in_order > side.acknowledged {
            let segments = (in_order - side.acknowledged) / self.setup.segment_size as u64 + 1;
            side.acknowledged = in_order;
            side.window = (side.window + segments).min(limit.max(4));
        }
        side.selective = selective;
        if self.message.is_some() && self.send_at == NEVER {
            self.send_at = now;
        }
    }

    /// The receiver has got a segment; its answer, if any, passes now.
    fn arrive<W: Write>(
        &mut self,
        now: u64,
        from: u64,
        to: u64,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        let receiver = 1 - self.sender;
        let patience = self.random.between(4, 40) * MILLISECOND;
        let side = &mut self.sides[receiver];
        let had_holes = !side.beyond.is_empty();
        let in_order = from <= side.received && to > side.received;
        if in_order {
            side.received = to;
            side.beyond.sort_unstable();
            while let Some(&(start, end)) = side.beyond.first()
                && start <= side.received
            {
                side.received = side.received.max(end);
                side.beyond.remove(0);
            }
        } else if from > side.received {
            match side
                .beyond
                .iter_mut()
                .find(|(start, end)| *start <= to && *end >= from)
            {
                Some(run) => *run = (run.0.min(from), run.1.max(to)),
                None => side.beyond.push((from, to)),
            }
        }
        side.unacknowledged = side.unacknowledged.saturating_add(1);
        let at_once = side.unacknowledged >= 2 || had_holes || !in_order;
        let complete = self.message.is_none()
            && self.displaced.is_empty()
            && self.arrivals.is_empty()
            && side.received == self.sides[self.sender].next;
        if at_once {
            self.acknowledge(now, receiver, context)?;
        } else {
            let side = &mut self.sides[receiver];
            side.acknowledge_at = side.acknowledge_at.min(now + patience);
        }
        if complete && self.step == Step::Done {
            let think = self.application.pause(&mut self.random, receiver);
            self.then(Step::Message, now + think);
        }
        Ok(())
    }

    fn acknowledge<W: Write>(
        &mut self,
        now: u64,
        side: usize,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        let next = self.sides[side].next;
        self.emit(now, side, ACK, next, &[], false, context)?;
        if side != self.sender {
            let selective = self.sides[side]
                .beyond
                .iter()
                .map(|(start, end)| end - start)
                .sum();
            let answered = now + self.setup.delays[self.sender];
            self.openings
                .push_back((answered, self.sides[side].received, selective));
        }
        Ok(())
    }
}

/// What all flows write to and draw from.
pub(super) struct Context<'a, W> {
    pub(super) config: &'a Config,
    pub(super) library: &'a Library,
    pub(super) output: &'a mut Output<W>,
    pub(super) http: &'a mut HttpTotals,
}
