//! What several points saw, compared.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use flowgauge_record::loss::{LossFlow, LossRow};
use flowgauge_wire::{Direction, FlowKey, FoldedState, Nanos};
use lru::LruCache;

use crate::observation::Observation;
use crate::pair::{Pair, Verdict};
use crate::pairing::{Pairing, Side};
use crate::sums::{Offset, Spread, Sums};

/// What is compared, and how long is waited.
#[derive(Clone, Debug)]
pub struct ComparisonOptions {
    /// How many points there are.
    pub points: usize,
    /// Which of them are compared: the first and second of each.
    pub pairs: Vec<(usize, usize)>,
    /// The length of the intervals that are told of.
    pub interval: Nanos,
    /// How long another point's observation of a flow is waited for, on the points' clocks, once all that saw it have said that it
    /// ended. Nothing: until the end, as with files, whose clocks may be far apart.
    pub patience: Option<Nanos>,
    /// How long it takes points to say that a flow has ended: their intervals and idle timeout.
    pub lag: Nanos,
    /// Maximum number of flows at once, both directions of each; with more the one that was told of longest ago is over.
    pub max_flows: usize,
    /// Whether each flow is told of.
    pub flows: bool,
    /// Whether packets of both directions pass the points in the same order, as where copies of both are carried on.
    pub one_way: bool,
}

/// Which of so many points are compared: each with the next one, of more than two also the first with the last; or each with each.
pub fn pairs(points: usize, matrix: bool) -> Vec<(usize, usize)> {
    let all = (0..points).flat_map(|first| (first + 1..points).map(move |second| (first, second)));
    let is_of_path = |&(first, second): &(usize, usize)| {
        second == first + 1 || (first == 0 && second + 1 == points)
    };
    all.filter(|pair| matrix || is_of_path(pair)).collect()
}

/// Of what the numbers of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All flows in an interval.
    Interval,
    /// One direction of a flow.
    Flow {
        /// The flow.
        key: FlowKey,
        /// Which direction of it.
        direction: Direction,
        /// What became of it.
        verdict: Verdict,
    },
    /// An application: IP protocol, and the smaller of the ports.
    Application(u8, u16),
    /// All flows of the run, or since a point began anew.
    Total,
}

/// What was found of one direction between two points.
#[derive(Clone, Debug)]
pub struct Row {
    /// Of what.
    pub of: Of,
    /// From when on: an interval, a flow, or what applications and totals are of, by the clock of the pair's first point; a flow's by
    /// that of the first that saw it.
    pub begin: Nanos,
    /// The point where packets come first.
    pub from: usize,
    /// The point where they come last.
    pub to: usize,
    /// The numbers.
    pub sums: Sums,
    /// What the capture at these points itself lost meanwhile, at most, of all traffic; of a flow in the whole run.
    pub dropped: [u64; 2],
    /// One-way delays in nanoseconds, where the clocks' offset is known.
    pub delay: Spread,
    /// The clock of `to` against that of `from`.
    pub offset: Option<Offset>,
}

/// An observation point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// From when on it observes.
    pub(crate) begin: Option<Nanos>,
    /// From when on it is compared, where another comparison has what was before.
    since: Nanos,
    /// Until when.
    pub(crate) end: Option<Nanos>,
    pub(crate) clock: Nanos,
    /// Packets that its capture has lost, all together, at times of its clock.
    drops: VecDeque<(Nanos, u64)>,
    /// How many of them before it was compared.
    dropped_before: u64,
    /// Whether it ever told of a flow.
    has_told: bool,
}

/// Readings of drops that are kept of a point.
const READINGS: usize = 4096;

impl Point {
    /// What was lost from one time to another, at most.
    fn dropped(&self, from: Nanos, to: Nanos) -> u64 {
        let after = self.drops.iter().find(|(time, _)| *time >= to);
        let after = after.or(self.drops.back());
        let after = after.map_or(0, |(_, drops)| *drops);
        after.saturating_sub(self.dropped_until(from))
    }

    /// What was lost until a time, at least.
    fn dropped_until(&self, time: Nanos) -> u64 {
        let before = self.drops.iter().rev().find(|(at, _)| *at <= time);
        before.map_or(self.dropped_before, |(_, drops)| *drops)
    }

    /// Whether so much time has passed since the clock stood there, or since the point began.
    fn has_passed(&self, clock: Nanos, patience: Nanos) -> bool {
        let since = self.begin.map(|begin| begin.max(clock));
        self.end.is_some() || since.is_some_and(|since| self.clock >= since + patience)
    }

    pub(crate) fn all_dropped(&self) -> u64 {
        let all = self.drops.back().map_or(0, |(_, drops)| *drops);
        all.saturating_sub(self.dropped_before)
    }
}

/// A flow as all points saw it.
#[derive(Debug)]
pub(crate) struct Flow {
    /// By point and direction.
    pub(crate) sides: Box<[[Option<Box<Side>>; 2]]>,
    /// By pair and direction.
    pub(crate) pairs: Box<[[Option<Box<Paired>>; 2]]>,
    /// Changes with each observation.
    stamp: u32,
}

/// A direction at two points.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    pub(crate) pairing: Pairing,
    pub(crate) sums: Sums,
    /// Round trips seen at each point that are in no sums yet.
    pub(crate) trips: [Spread; 2],
}

/// What is done once the points' clocks have gone on.
#[derive(Debug)]
enum Due {
    Flow(FlowKey, u32),
    /// Intervals of a pair before this one.
    Intervals(usize, u64),
}

/// Compares what points tell.
#[derive(Debug)]
pub struct Comparison {
    options: ComparisonOptions,
    points: Vec<Point>,
    pairs: Vec<Pair>,
    flows: LruCache<FlowKey, Flow, FoldedState>,
    /// With the points' clocks as they were then.
    due: [VecDeque<(Vec<Nanos>, Due)>; 2],
    evicted: u64,
    rows: Vec<Row>,
}

impl Comparison {
    /// Nothing was told of yet.
    pub fn new(options: ComparisonOptions) -> Comparison {
        let most = NonZeroUsize::new(options.max_flows).unwrap_or(NonZeroUsize::MIN);
        let pair = |&points: &(usize, usize)| Pair::new(points, &options);
        Comparison {
            points: vec![Point::default(); options.points],
            pairs: options.pairs.iter().map(pair).collect(),
            // It grows as flows come.
            flows: LruCache::unbounded_with_hasher(FoldedState::default()),
            due: Default::default(),
            evicted: 0,
            rows: Vec::new(),
            options: ComparisonOptions {
                max_flows: most.get(),
                ..options
            },
        }
    }

    /// A point observes from a time on, by its clock.
    pub fn begin(&mut self, point: usize, time: Nanos) {
        if let Some(point) = self.points.get_mut(point) {
            point.begin.get_or_insert(time);
            point.clock = point.clock.max(time);
        }
    }

    /// A point's clock stands at `clock`, and its capture has lost so many packets so far.
    pub fn advance(&mut self, point: usize, clock: Nanos, dropped: u64) {
        let Some(point) = self.points.get_mut(point) else {
            return;
        };
        point.clock = point.clock.max(clock);
        if clock > Nanos(0) {
            point.begin.get_or_insert(clock);
        }
        if point.drops.back().is_none_or(|(_, last)| *last != dropped) {
            if point.drops.len() == READINGS {
                point.drops.pop_front();
            }
            point.drops.push_back((point.clock, dropped));
        }
        self.settle();
    }

    /// A point has gone, and what it counted in the interval that its clock is in was never told.
    pub fn broken(&mut self, point: usize) {
        let interval = self.options.interval.0.max(1);
        if let Some(point) = self.points.get_mut(point) {
            let clock = point.clock.0;
            point.end.get_or_insert(Nanos(clock - clock % interval));
        }
    }

    /// Flows were ended early, here or at a point: from now on only what lies between two marks is compared.
    pub fn cut(&mut self) {
        self.pairs.iter_mut().for_each(|pair| pair.is_cut = true);
    }

    /// Flows that ended because there were too many at once.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Points that told of no flow.
    pub fn silent(&self) -> impl Iterator<Item = usize> {
        let silent = self.points.iter().enumerate();
        silent.filter_map(|(number, point)| (!point.has_told).then_some(number))
    }

    /// Takes what a point tells of a flow.
    pub fn observe(&mut self, point: usize, told: &Observation) {
        if point >= self.points.len() {
            return;
        }
        self.begin(point, told.began);
        self.points[point].has_told = true;
        self.points[point].clock = self.points[point].clock.max(told.last);
        if self.flows.len() >= self.options.max_flows
            && !self.flows.contains(&told.key)
            && let Some((key, flow)) = self.flows.pop_lru()
        {
            self.evicted += 1;
            self.cut();
            self.conclude(&key, flow);
        }
        let (points, pairs) = (self.points.len(), self.pairs.len());
        let flow = self.flows.get_or_insert_mut(told.key, || Flow {
            sides: (0..points).map(|_| [None, None]).collect(),
            pairs: (0..pairs).map(|_| [None, None]).collect(),
            stamp: 0,
        });
        flow.stamp = flow.stamp.wrapping_add(1);
        let direction = told.direction.index();
        let side = flow.sides[point][direction].get_or_insert_default();
        let from = side.next;
        side.observe(told);
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            let teller = match point {
                point if point == pair.points[0] => 0,
                point if point == pair.points[1] => 1,
                _ => continue,
            };
            pair.told(flow, number, direction, (teller, from), &self.points);
        }
        flow.forget(point, direction, &self.pairs);
        let mut sides = flow.sides.iter().flatten().flatten();
        if self.options.patience.is_some() && sides.all(|side| !side.is_open) {
            let due = Due::Flow(told.key, flow.stamp);
            self.wait_for(0, due);
        }
    }

    /// Does something once all clocks have gone on.
    fn wait_for(&mut self, queue: usize, what: Due) {
        if self.options.patience.is_some() {
            let clocks = self.points.iter().map(|point| point.clock);
            self.due[queue].push_back((clocks.collect(), what));
        }
    }

    fn settle(&mut self) {
        for pair in 0..self.pairs.len() {
            let clock = self.points[self.pairs[pair].points[0]].clock;
            if let Some(ended) = self.pairs[pair].interval_ended(clock) {
                self.wait_for(1, Due::Intervals(pair, ended));
            }
        }
        for queue in 0..self.due.len() {
            let lag = if queue == 0 {
                Nanos(0)
            } else {
                self.options.lag
            };
            let patience = self.options.patience.unwrap_or_default() + lag;
            while let Some((clocks, _)) = self.due[queue].front() {
                let mut clocks = clocks.iter().zip(&self.points);
                if !clocks.all(|(clock, point)| point.has_passed(*clock, patience)) {
                    break;
                }
                match self.due[queue].pop_front() {
                    Some((_, Due::Flow(key, stamp))) => {
                        let flow = self.flows.peek(&key);
                        if flow.is_some_and(|flow| flow.stamp == stamp)
                            && let Some(flow) = self.flows.pop(&key)
                        {
                            self.conclude(&key, flow);
                        }
                    }
                    Some((_, Due::Intervals(pair, before))) => self.tell_intervals(pair, before),
                    None => {}
                }
            }
        }
    }

    /// A flow is over.
    fn conclude(&mut self, key: &FlowKey, mut flow: Flow) {
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            for direction in [Direction::LowToHigh, Direction::HighToLow] {
                let concluded = pair.conclude(key, direction, &mut flow, number, &self.points);
                if let Some(row) = concluded.filter(|_| self.options.flows) {
                    self.rows.push(row);
                }
            }
        }
    }

    fn tell_intervals(&mut self, pair: usize, before: u64) {
        let interval = self.options.interval.0.max(1);
        let pair = &mut self.pairs[pair];
        let points = pair.points;
        for (number, both, offset) in pair.take_intervals(before) {
            let start = Nanos(number.saturating_mul(interval));
            // Drops of neighbours may be counted here: the capture tells of them before or after the packets around them.
            let from = Nanos(start.0.saturating_sub(interval));
            let to = Nanos(start.0.saturating_add(interval.saturating_mul(2)));
            let shift = offset.map_or(0, |offset| offset.nanos);
            let dropped = [
                self.points[points[0]].dropped(from, to),
                self.points[points[1]].dropped(shifted(from, shift), shifted(to, shift)),
            ];
            let rows = rows((Of::Interval, start), points, &both, dropped, offset);
            self.rows.extend(rows);
        }
    }

    /// All points have ended: tells of what is left, and of all together.
    pub fn finish(&mut self) {
        for point in &mut self.points {
            point.end.get_or_insert(point.clock);
        }
        let mut left: Vec<(FlowKey, Flow)> = Vec::new();
        while let Some(entry) = self.flows.pop_lru() {
            left.push(entry);
        }
        // Those that two points saw say what one point alone cannot.
        let all = |flow: &Flow| flow.pairs.iter().flatten().flatten().count();
        left.sort_by_key(|(_, flow)| core::cmp::Reverse(all(flow)));
        for (key, flow) in left {
            self.conclude(&key, flow);
        }
        for number in 0..self.pairs.len() {
            self.tell_intervals(number, u64::MAX);
            let pair = &self.pairs[number];
            let dropped = pair.points.map(|point| self.points[point].all_dropped());
            let first = &self.points[pair.points[0]];
            let begin = first.since.max(first.begin.unwrap_or_default());
            for ((protocol, port), both) in &pair.applications {
                let of = Of::Application(*protocol, *port);
                let rows = rows((of, begin), pair.points, both, dropped, None);
                self.rows.extend(rows);
            }
            let offset = pair.offset.zip(pair.error);
            let offset = offset.map(|(offset, error)| Offset { error, ..offset });
            let rows = rows(
                (Of::Total, begin),
                pair.points,
                &pair.total,
                dropped,
                offset,
            );
            let way = |row: &Row| usize::from(row.from != pair.points[0]);
            self.rows.extend(rows.map(|row| Row {
                delay: pair.delays[way(&row)],
                ..row
            }));
        }
    }

    /// A point has begun anew: what was told so far is over, and compared with nothing that comes. Of flows that go on at other
    /// points what comes from now on counts.
    pub fn begin_anew(&mut self) {
        (0..self.points.len()).for_each(|point| self.broken(point));
        let rest = |flow: &Flow| {
            let sides = flow.sides.iter().map(|both| {
                let rest = |side: &Option<Box<Side>>| {
                    let side = side.as_ref().filter(|side| side.is_open)?;
                    Some(Box::new(side.rest()))
                };
                both.each_ref().map(rest)
            });
            sides.collect::<Box<[_]>>()
        };
        let flows = self.flows.iter().rev();
        let flows: Vec<_> = flows.map(|(key, flow)| (*key, rest(flow))).collect();
        self.finish();
        let interval = self.options.interval.0;
        let points = self.points.iter().map(|point| {
            let since = point.end.unwrap_or_default();
            Point {
                since,
                // Of the interval before, too: drops are told of before or after the packets around them.
                dropped_before: point.dropped_until(Nanos(since.0.saturating_sub(interval))),
                has_told: point.has_told,
                ..Point::default()
            }
        });
        *self = Comparison {
            points: points.collect(),
            rows: self.take_rows(),
            evicted: self.evicted,
            ..Comparison::new(self.options.clone())
        };
        let pairs = self.pairs.len();
        for (key, sides) in flows {
            let flow = Flow {
                sides,
                pairs: (0..pairs).map(|_| [None, None]).collect(),
                stamp: 0,
            };
            self.flows.put(key, flow);
        }
    }

    /// What was found since this was asked last.
    pub fn take_rows(&mut self) -> Vec<Row> {
        core::mem::take(&mut self.rows)
    }
}

impl Row {
    /// As a record, with the names of the points.
    pub fn record<'a>(&self, names: &'a [String]) -> LossRow<'a> {
        let name = |point: usize| names.get(point).map_or("", String::as_str);
        let sums = &self.sums;
        let lost = sums.lost.max(0).unsigned_abs();
        let (least, most) = sums.bounds(self.dropped[0], self.dropped[1]);
        // Less than nothing is within the error.
        let span = |nanos: Option<i64>| nanos.map(|nanos| Nanos(nanos.max(0).unsigned_abs()));
        let spans = |of: &Spread| (span(of.least()), span(of.mean()), span(of.most()));
        let (of, protocol, port) = match self.of {
            Of::Interval => ("interval", None, None),
            Of::Flow { key, .. } => ("flow", Some(key.protocol), None),
            Of::Application(protocol, port) => ("application", Some(protocol), Some(port)),
            Of::Total => ("total", None, None),
        };
        let flow = match self.of {
            Of::Flow {
                key,
                direction,
                verdict,
                ..
            } => {
                let (source, destination) = key.endpoints(direction);
                Some(LossFlow {
                    source,
                    destination,
                    version: key.version,
                    verdict: verdict.name(),
                })
            }
            _ => None,
        };
        LossRow {
            of,
            time: self.begin,
            from: name(self.from),
            to: name(self.to),
            flow,
            protocol,
            port,
            flows: sums.flows,
            sent: sums.sent,
            received: sums.received,
            sent_bytes: sums.sent_bytes,
            received_bytes: sums.received_bytes,
            lost,
            ratio: (sums.sent > 0).then(|| lost as f64 / sums.sent as f64),
            least,
            most,
            dropped: (self.dropped[0], self.dropped[1]),
            duplicates: sums.duplicates.max(0).unsigned_abs(),
            late: (sums.late[0], sums.late[1]),
            one_sided: sums.one_sided,
            one_sided_flows: sums.one_sided_flows,
            uncompared: sums.uncompared,
            delay: spans(&self.delay),
            rtt: spans(&sums.trips),
            jitter: span(sums.jitter.mean()),
            response: span(sums.response.mean()),
            offset: self.offset.map(|offset| offset.nanos as f64 * 1e-9),
            offset_error: self.offset.map(|offset| Nanos(offset.error)),
        }
    }
}

impl Flow {
    /// Forgets marks that no pair needs any more.
    fn forget(&mut self, point: usize, direction: usize, pairs: &[Pair]) {
        let Some(side) = &mut self.sides[point][direction] else {
            return;
        };
        let of_pairs = pairs.iter().zip(&self.pairs).filter_map(|(pair, paired)| {
            let at = pair.points.iter().position(|of| *of == point)?;
            let paired = paired[direction].as_ref();
            Some(paired.map_or(0, |paired| paired.pairing.next[at]))
        });
        side.forget(of_pairs.min().unwrap_or(u64::MAX));
    }
}

/// A row for each direction in which there was something.
fn rows(
    (of, begin): (Of, Nanos),
    points: [usize; 2],
    both: &[Sums; 2],
    dropped: [u64; 2],
    offset: Option<Offset>,
) -> impl Iterator<Item = Row> {
    let both = *both;
    let there = (0..2).filter(move |at| both[*at] != Sums::default());
    there.map(move |at| {
        let offset = offset.map(|offset| offset.seen(at == 0));
        Row {
            of,
            begin,
            from: points[at],
            to: points[1 - at],
            sums: both[at],
            dropped: [dropped[at], dropped[1 - at]],
            delay: offset.map_or_else(Spread::default, |offset| both[at].delay.less(offset.nanos)),
            offset,
        }
    })
}

/// A time by another clock.
pub(crate) fn shifted(time: Nanos, nanos: i64) -> Nanos {
    Nanos(time.0.saturating_add_signed(nanos))
}
