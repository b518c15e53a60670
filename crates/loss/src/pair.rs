//! Two points, and what is known of all flows between them.

use std::collections::{BTreeMap, HashMap};

use flowgauge_wire::{Address, Direction, FlowKey, FoldedState, Nanos};

use crate::comparison::{ComparisonOptions, Flow, Of, Paired, Point, Row, shifted};
use crate::pairing::{Side, Step, difference};
use crate::sums::{Offset, Spread, Sums};

/// How long after a sensor's point says that it begins, and before it says that it ends, packets may be missing: its capture is
/// opened and closed, or gets another filter, beside its clock, and delays change meanwhile.
const EDGE: i64 = 100_000_000;
/// Files have all between their first and last packet: by so much delays may change there.
const MARGIN: i64 = 1_000_000;
/// Intervals that wait to be told, applications, and pairs of addresses that are kept.
const MOST_INTERVALS: usize = 1 << 18;
const MOST_APPLICATIONS: usize = 4096;
const MOST_ROUTES: usize = 1 << 18;
/// A flow that one point never saw was lost if that is at least so probable at the loss of the others ...
const IMPROBABLE: f64 = 1e-6;
/// ... and there are not many more flows of as many packets than can be expected to be lost as a whole.
const EXCESS: f64 = 3.0;
const FEW: f64 = 5.0;
/// Flows with so many packets or more are counted together.
const SIZES: usize = 16;

/// What became of one direction of a flow between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// Both points saw it.
    Compared,
    /// One point saw it, and the other one all of its packets would have passed is likely to have missed them for loss.
    Lost,
    /// One point saw it, and it does not pass the other.
    OneSided,
    /// The other point did not observe then.
    Unobserved,
}

impl Verdict {
    /// In records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Two points.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) points: [usize; 2],
    one_way: bool,
    interval: u64,
    /// What is so near to where a point begins or ends is not compared; less than 0: what is not so far outside of it is.
    edge: i64,
    /// Of intervals that were not told of yet: both directions.
    intervals: BTreeMap<u64, [Sums; 2]>,
    /// Intervals before this one were.
    told: u64,
    /// The interval that the first point's clock is in.
    now: u64,
    /// The last offset that is known.
    pub(crate) offset: Option<Offset>,
    pub(crate) applications: BTreeMap<(u8, u16), [Sums; 2]>,
    pub(crate) total: [Sums; 2],
    /// Delays of all intervals, each by its own offset, and the largest error of these.
    pub(crate) delays: [Spread; 2],
    pub(crate) error: Option<u64>,
    /// By direction: what was told as lost, or as repeated, and was not.
    late: [[i64; 2]; 2],
    /// To which address packets passed both points, and whether from the first to the second.
    routes: HashMap<Address, bool, FoldedState>,
    /// By number of packets: flows that were compared, and flows that may have been lost as a whole.
    sizes: [[u64; 2]; SIZES],
    /// Flows were ended early: what one point alone says of one is not all that it saw.
    pub(crate) is_cut: bool,
}

impl Pair {
    pub(crate) fn new((first, second): (usize, usize), options: &ComparisonOptions) -> Pair {
        Pair {
            points: [first, second],
            one_way: options.one_way,
            interval: options.interval.0.max(1),
            edge: options.patience.map_or(-MARGIN, |_| EDGE),
            intervals: BTreeMap::new(),
            told: 0,
            now: 0,
            offset: None,
            applications: BTreeMap::new(),
            total: Default::default(),
            delays: Default::default(),
            error: None,
            late: Default::default(),
            routes: HashMap::default(),
            sizes: Default::default(),
            is_cut: false,
        }
    }

    /// The interval that has begun by the first point's clock, if it is another one than before.
    pub(crate) fn interval_ended(&mut self, clock: Nanos) -> Option<u64> {
        let now = clock.0 / self.interval;
        (now > self.now).then(|| {
            self.now = now;
            now
        })
    }

    /// The intervals before one, with what is known of the clocks in each.
    pub(crate) fn take_intervals(&mut self, before: u64) -> Vec<(u64, [Sums; 2], Option<Offset>)> {
        self.told = self.told.max(before);
        let later = self.intervals.split_off(&before);
        let taken = core::mem::replace(&mut self.intervals, later);
        let taken = taken.into_iter().map(|(number, mut both)| {
            for (sums, late) in both.iter_mut().zip(&mut self.late) {
                sums.take_back(late);
            }
            let offset = Offset::of(&both);
            if let Some(offset) = offset {
                let way = |at: usize| both[at].delay.less(offset.seen(at == 0).nanos);
                self.delays[0].merge(&way(0));
                self.delays[1].merge(&way(1));
                let error = self
                    .error
                    .map_or(offset.error, |most| most.max(offset.error));
                self.error = Some(error);
            }
            (number, both, offset)
        });
        taken.collect()
    }

    /// One of its points (`teller`, with its marks from a number on) has told more of a flow.
    pub(crate) fn told(
        &mut self,
        flow: &mut Flow,
        number: usize,
        direction: usize,
        (teller, from): (usize, u64),
        points: &[Point],
    ) {
        let Some(sides) = self.sides(&flow.sides, direction) else {
            return;
        };
        let mut paired = flow.pairs[number][direction].take();
        let mut from = from;
        let paired_now = paired.get_or_insert_with(|| {
            // What the other one told before waits.
            from = 0;
            let mut new = Box::<Paired>::default();
            new.trips[1 - teller] = sides[1 - teller].trips;
            new
        });
        paired_now.trips[teller].merge(&sides[teller].trips);
        let is_whole = |difference| self.saw_beginning(sides, difference, points);
        paired_now
            .pairing
            .match_marks(sides, teller, from, is_whole);
        let other = flow.pairs[number][1 - direction].as_deref();
        self.decide(paired_now, sides, other, (false, None));
        self.take(paired_now, sides[0].last);
        // What this one says may decide the other.
        if let Some(mut other) = flow.pairs[number][1 - direction].take() {
            if let Some(sides) = self.sides(&flow.sides, 1 - direction) {
                self.decide(&mut other, sides, paired.as_deref(), (false, None));
                self.take(&mut other, sides[0].last);
            }
            flow.pairs[number][1 - direction] = Some(other);
        }
        flow.pairs[number][direction] = paired;
    }

    /// What both points counted of a direction, if both did.
    fn sides<'a>(
        &self,
        all: &'a [[Option<Box<Side>>; 2]],
        direction: usize,
    ) -> Option<[&'a Side; 2]> {
        let side = |point: usize| {
            let side = all[point][direction].as_deref();
            side.filter(|side| side.has_counted())
        };
        Some([side(self.points[0])?, side(self.points[1])?])
    }

    /// Whether both observed when the flow began, the clocks differing by so much.
    fn saw_beginning(&self, sides: [&Side; 2], difference: i64, points: &[Point]) -> bool {
        (0..2).all(|at| {
            let first = on_clock(at, sides.map(|side| side.first), difference);
            let begin = points[self.points[at]].begin;
            begin.is_none_or(|begin| first.0.min(first.1) >= shifted(begin, self.edge))
        })
    }

    /// Whether both still observed when the flow ended.
    fn saw_end(&self, sides: [&Side; 2], difference: i64, points: &[Point]) -> bool {
        (0..2).all(|at| {
            let last = on_clock(at, sides.map(|side| side.last), difference);
            let end = points[self.points[at]].end;
            end.is_none_or(|end| shifted(last.0.max(last.1), self.edge) <= end)
        })
    }

    /// Finds out which way a flow goes: to where its TTL is less; where both directions passed, the way in which the second clock's
    /// time is later by more (a round trip takes time); where the clocks' offset is known, by that. If it must be decided (`last`):
    /// against the other direction, else as others to the same address went of which that is known, else from the point that saw more.
    fn decide(
        &self,
        paired: &mut Paired,
        sides: [&Side; 2],
        other: Option<&Paired>,
        last: (bool, Option<bool>),
    ) {
        let (must, route) = last;
        let pairing = &mut paired.pairing;
        if pairing.goes_on().is_some() {
            return;
        }
        let one_way = self.one_way.then_some(true);
        let ttl = (sides[0].ttl != sides[1].ttl).then(|| sides[0].ttl > sides[1].ttl);
        let difference = pairing.difference();
        let later = |than: Option<i64>| {
            let (difference, than) = (difference?, than?);
            (difference != than).then_some(difference > than)
        };
        let both_ways = || later(other.and_then(|other| other.pairing.difference()));
        let by_offset = || {
            let (offset, difference) = (self.offset?, difference?);
            let (nanos, error) = (i128::from(offset.nanos), i128::from(offset.error));
            let is_far = (i128::from(difference) - nanos).abs() >= error.max(1);
            is_far.then_some(difference > offset.nanos)
        };
        let at_last = || {
            let back = other.and_then(|other| other.pairing.goes_on());
            let [first, second] = sides.map(|side| side.counts().all());
            let by_loss = (first != second).then_some(first > second);
            back.map(|back| !back).or(route).or(by_loss)
        };
        let must = must || pairing.is_full();
        let found = one_way.or(ttl).or_else(both_ways).or_else(by_offset);
        if let Some(goes_on) = found {
            pairing.decide(goes_on);
        } else if must {
            pairing.guess(at_last());
        }
    }

    /// Adds up what is known of a flow now, whose last packet was then.
    fn take(&mut self, paired: &mut Paired, last: Nanos) {
        let Some(goes_on) = paired.pairing.goes_on() else {
            return;
        };
        let way = usize::from(!goes_on);
        let [first, second] = core::mem::take(&mut paired.trips);
        let trips = if goes_on { first } else { second };
        if trips.count() > 0 {
            paired.sums.trips.merge(&trips);
            self.at(last)[way].trips.merge(&trips);
        }
        for step in paired.pairing.take_steps() {
            self.step(&step, goes_on, &mut paired.sums);
        }
    }

    fn step(&mut self, step: &Step, goes_on: bool, of_flow: &mut Sums) {
        let (from, to, way) = if goes_on { (0, 1, 0) } else { (1, 0, 1) };
        let mut sums = Sums {
            sent: step.counts[from].all(),
            received: step.counts[to].all(),
            sent_bytes: step.counts[from].bytes,
            received_bytes: step.counts[to].bytes,
            ..Sums::default()
        };
        if let Some(difference) = step.difference {
            sums.delay
                .add(if goes_on { difference } else { -difference });
        }
        if let Some(change) = step.change {
            sums.jitter.add(change.saturating_abs());
        }
        let missing = Sums {
            lost: step.missing[way],
            duplicates: step.repeated[way],
            ..Sums::default()
        };
        of_flow.merge(&sums);
        of_flow.merge(&missing);
        self.at(step.changed)[way].merge(&missing);
        let both = self.at(step.time);
        both[way].merge(&sums);
        if step.difference.is_some()
            && let Some(offset) = Offset::of(both)
        {
            self.offset = Some(offset);
        }
    }

    /// The sums of the interval of a time; of the first one that was not told of, if that was.
    fn at(&mut self, time: Nanos) -> &mut [Sums; 2] {
        let mut number = (time.0 / self.interval).max(self.told);
        if self.intervals.len() >= MOST_INTERVALS && !self.intervals.contains_key(&number) {
            let last = self.intervals.last_key_value();
            number = last.map_or(number, |(last, _)| *last);
        }
        self.intervals.entry(number).or_default()
    }

    /// A flow is over. Returns what is to be said of it.
    pub(crate) fn conclude(
        &mut self,
        key: &FlowKey,
        direction: Direction,
        flow: &mut Flow,
        number: usize,
        points: &[Point],
    ) -> Option<Row> {
        let at = direction.index();
        let to = key.endpoints(direction).1.0;
        let back = flow.pairs[number][1 - at].as_deref();
        let back = back.and_then(|paired| paired.pairing.goes_on());
        let side = |point: usize, at: usize| {
            let side = flow.sides[point][at].as_deref();
            side.filter(|side| side.has_counted())
        };
        let [first, second] = self.points.map(|point| side(point, at));
        let answers = self.points.map(|point| side(point, 1 - at));
        let answers = answers.map(|side| side.map(|side| side.first));
        let (goes_on, sums, verdict, began) = match (first, second) {
            (None, None) => return None,
            (Some(first), Some(second)) => {
                let mut paired = flow.pairs[number][at].take().unwrap_or_default();
                let other = flow.pairs[number][1 - at].as_deref();
                let route = self.routes.get(&to).copied();
                let sides = [first, second];
                let goes_on = self.compared(&mut paired, sides, other, route, answers, points);
                if !paired.pairing.is_blind() && self.routes.len() < MOST_ROUTES {
                    self.routes.insert(to, goes_on);
                }
                self.sizes[size(paired.sums.sent)][0] += 1;
                let began = if goes_on { first.first } else { second.first };
                let sums = paired.sums;
                flow.pairs[number][at] = Some(paired);
                (goes_on, sums, Verdict::Compared, began)
            }
            (Some(side), None) => self.alone(to, back, (side, 0), points),
            (None, Some(side)) => self.alone(to, back, (side, 1), points),
        };
        let way = usize::from(!goes_on);
        self.total[way].merge(&sums);
        let application = match key.protocol {
            6 | 17 | 132 => (key.protocol, key.low_port.min(key.high_port)),
            protocol => (protocol, 0),
        };
        let is_known = self.applications.contains_key(&application);
        if is_known || self.applications.len() < MOST_APPLICATIONS {
            self.applications.entry(application).or_default()[way].merge(&sums);
        }
        let offset = self.offset.map(|offset| offset.seen(goes_on));
        Some(Row {
            of: Of::Flow {
                key: *key,
                direction,
                verdict,
            },
            begin: began,
            from: self.points[way],
            to: self.points[1 - way],
            delay: offset.map_or_else(Spread::default, |offset| sums.delay.less(offset.nanos)),
            sums,
            dropped: [way, 1 - way].map(|at| points[self.points[at]].all_dropped()),
            offset,
        })
    }

    /// Ends what both points saw; `answers` is when the other direction began at each. Returns which way it went.
    fn compared(
        &mut self,
        paired: &mut Paired,
        sides: [&Side; 2],
        other: Option<&Paired>,
        route: Option<bool>,
        answers: [Option<Nanos>; 2],
        points: &[Point],
    ) -> bool {
        let is_whole = |difference: Option<i64>| match difference {
            _ if self.is_cut => false,
            Some(difference) => self.saw_end(sides, difference, points),
            None => {
                let difference = self.offset.map_or(0, |offset| offset.nanos);
                self.saw_beginning(sides, difference, points)
                    && self.saw_end(sides, difference, points)
            }
        };
        paired.pairing.finish(sides, is_whole);
        self.decide(paired, sides, other, (true, route));
        let goes_on = paired.pairing.goes_on().unwrap_or(true);
        self.take(paired, sides[0].last);
        let (from, to) = if goes_on { (0, 1) } else { (1, 0) };
        let mut more = Sums {
            flows: 1,
            late: [sides[from].late(), sides[to].late()],
            uncompared: paired.pairing.take_uncompared(),
            ..Sums::default()
        };
        let answer = answers[from].map(|answer| difference(answer, sides[from].first));
        if let Some(time) = answer.filter(|time| *time > 0) {
            more.response.add(time);
        }
        paired.sums.merge(&more);
        self.at(sides[0].last)[usize::from(!goes_on)].merge(&more);
        goes_on
    }

    /// Ends what one point saw of packets to an address; `back` is which way those of the other direction went, if they passed both.
    fn alone(
        &mut self,
        to: Address,
        back: Option<bool>,
        (side, seen): (&Side, usize),
        points: &[Point],
    ) -> (bool, Sums, Verdict, Nanos) {
        let offset = self.offset.map_or(0, |offset| offset.nanos);
        let to_other = if seen == 0 { offset } else { -offset };
        let other = &points[self.points[1 - seen]];
        let is_before = |begin: Nanos| shifted(side.last, to_other) < shifted(begin, self.edge);
        let is_after = |end: Nanos| shifted(shifted(side.first, to_other), self.edge) > end;
        let is_outside = other.begin.is_none_or(is_before) || other.end.is_some_and(is_after);
        let route = back.map(|back| back == self.one_way);
        let route = route.or_else(|| self.routes.get(&to).copied());
        // Unless something is known of it, it goes on from where it was seen.
        let goes_on = route.unwrap_or(seen == 0 || self.one_way);
        let packets = side.counts().all();
        let is_upstream = goes_on == (seen == 0);
        let verdict = if is_outside || self.is_cut {
            Verdict::Unobserved
        } else if route.is_some() && is_upstream && self.is_likely(goes_on, packets) {
            Verdict::Lost
        } else {
            Verdict::OneSided
        };
        let mut sums = Sums::default();
        match verdict {
            Verdict::Lost => {
                (sums.sent, sums.flows) = (packets, 1);
                sums.lost = i64::try_from(packets).unwrap_or(i64::MAX);
                sums.sent_bytes = side.counts().bytes;
            }
            Verdict::OneSided => (sums.one_sided, sums.one_sided_flows) = (packets, 1),
            _ => sums.uncompared = packets,
        }
        let time = if seen == 0 {
            side.last
        } else {
            shifted(side.last, to_other)
        };
        self.at(time)[usize::from(!goes_on)].merge(&sums);
        (goes_on, sums, verdict, side.first)
    }

    /// Whether flows of so many packets are lost as a whole so often, at the loss of flows that both points saw.
    fn is_likely(&mut self, goes_on: bool, packets: u64) -> bool {
        let total = &self.total[usize::from(!goes_on)];
        // Laplace's rule of succession.
        let rate = (total.lost as f64 + 1.0) / (total.sent as f64 + 2.0);
        let probability = rate.min(1.0).powf(packets as f64);
        let [compared, alone] = &mut self.sizes[size(packets)];
        *alone += 1;
        let expected = probability * (*compared + *alone) as f64;
        probability >= IMPROBABLE && *alone as f64 <= EXCESS * expected + FEW
    }
}

/// Times of both points, by the clock of one of them; `difference` is what the second clock shows more.
fn on_clock(at: usize, [first, second]: [Nanos; 2], difference: i64) -> (Nanos, Nanos) {
    match at {
        0 => (first, shifted(second, difference.saturating_neg())),
        _ => (shifted(first, difference), second),
    }
}

fn size(packets: u64) -> usize {
    usize::try_from(packets).map_or(SIZES - 1, |packets| packets.min(SIZES - 1))
}
