//! One direction of a flow as two points saw it, put side by side.

use std::collections::VecDeque;

use flowgauge_wire::Nanos;

use crate::observation::{Counts, Mark, Observation};
use crate::observer::RECENT;
use crate::sums::Spread;

/// Marks that wait for another point's.
const WAITING: usize = 1024;
/// Steps kept until it is known which way a flow goes.
const UNDECIDED: usize = 64;
/// By how much the delays of a flow's packets may differ: equal digests farther apart are of different packets, as in flows that
/// repeat themselves.
const MOST_JITTER: u64 = 1_000_000_000;

/// What a point saw of one direction: all its runs, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// What is of an earlier comparison, and late segments of it.
    base: (Counts, u64),
    /// Of runs before this one.
    before: Counts,
    now: Counts,
    late: [u64; 2],
    /// Round trips that it told of last.
    pub(crate) trips: Spread,
    /// When this run began: the next one begins at another time.
    run: Nanos,
    pub(crate) first: Nanos,
    pub(crate) last: Nanos,
    pub(crate) ttl: u8,
    pub(crate) is_open: bool,
    /// With their numbers, and counts from the first run on.
    marks: VecDeque<(u64, Mark)>,
    /// The number of its next mark.
    pub(crate) next: u64,
}

impl Side {
    /// Takes what its point tells.
    pub(crate) fn observe(&mut self, told: &Observation) {
        let is_new = !self.has_counted();
        if is_new {
            (self.first, self.ttl) = (told.first, told.ttl);
        }
        if told.first != self.run || !told.counts.continues(self.now) {
            self.before = self.before.plus(self.now);
            self.late = [self.late[0].saturating_add(self.late[1]), 0];
            self.run = told.first;
        }
        self.now = told.counts;
        self.late[1] = told.late;
        self.trips = told.trips;
        self.last = if is_new {
            told.last
        } else {
            self.last.max(told.last)
        };
        self.is_open = !told.has_ended;
        for mark in &told.marks {
            if self.marks.len() == WAITING {
                self.marks.pop_front();
            }
            let counts = self.before.plus(mark.counts).since(self.base.0);
            self.marks.push_back((self.next, Mark { counts, ..*mark }));
            self.next += 1;
        }
    }

    /// All that it counted.
    pub(crate) fn counts(&self) -> Counts {
        self.before.plus(self.now).since(self.base.0)
    }

    /// Whether it counted anything.
    pub(crate) fn has_counted(&self) -> bool {
        self.counts() != Counts::default()
    }

    /// Segments that came late.
    pub(crate) fn late(&self) -> u64 {
        let all = self.late[0].saturating_add(self.late[1]);
        all.saturating_sub(self.base.1)
    }

    /// What comes from now on, for another comparison.
    pub(crate) fn rest(&self) -> Side {
        Side {
            base: (
                self.before.plus(self.now),
                self.late[0].saturating_add(self.late[1]),
            ),
            before: self.before,
            now: self.now,
            late: self.late,
            run: self.run,
            is_open: true,
            ..Side::default()
        }
    }

    /// Forgets marks that all pairs have passed.
    pub(crate) fn forget(&mut self, before: u64) {
        while self.marks.front().is_some_and(|(at, _)| *at < before) {
            self.marks.pop_front();
        }
    }

    /// The mark with a digest, from a number on, if there is one only.
    fn find(&self, from: u64, digest: u64) -> Option<(u64, Mark)> {
        let marks = self.marks.iter();
        let mut found = marks.filter(|(at, mark)| *at >= from && mark.digest == digest);
        let one = found.next()?;
        found.next().is_none().then_some(*one)
    }
}

/// What changed from one common mark to the next, or to the end of the flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    /// When, by the first point's clock.
    pub(crate) time: Nanos,
    /// What came to each point since.
    pub(crate) counts: [Counts; 2],
    /// When packets turned out to be missing, or to be repeated, by the first point's clock.
    pub(crate) changed: Nanos,
    /// What is missing at the second point; at the first one. What was only late is taken back.
    pub(crate) missing: [i64; 2],
    /// What was repeated between the points, as the second one saw it; as the first one did.
    pub(crate) repeated: [i64; 2],
    /// The second clock's time of the packet less the first one's; how much more than at the mark before.
    pub(crate) difference: Option<i64>,
    pub(crate) change: Option<i64>,
}

/// Marks that have to agree on how many packets are missing. A packet that a mark overtakes looks lost there, and turns up later.
const AGREEING: usize = 3;

/// So many packets are not counted by any point; sums of a few such numbers are within 64 bits.
const MOST_MISSING: i128 = 1 << 60;

/// How the difference of two counts grows: what one point lacks.
#[derive(Debug, Default)]
struct Growth {
    last: [i128; AGREEING],
    told: i128,
    /// At the last mark at which no packet was overtaken, or what is certain since.
    clean: i128,
}

impl Growth {
    /// What is missing by now and was not told of.
    fn step(&mut self, value: i128, is_clean: bool) -> i64 {
        self.last.rotate_left(1);
        self.last[AGREEING - 1] = value.clamp(-MOST_MISSING, MOST_MISSING);
        let certain = self.last.iter().min().map_or(0, |least| *least);
        self.clean = match is_clean {
            true => self.last[AGREEING - 1],
            // So many packets can be under way still.
            false => self.clean.max(certain - RECENT as i128),
        };
        self.tell(certain.max(self.told))
    }

    /// Nothing comes any more. Less than 0: what was told of came late.
    fn finish(&mut self) -> i64 {
        self.tell(self.clean.max(0))
    }

    fn tell(&mut self, all: i128) -> i64 {
        let more = all - core::mem::replace(&mut self.told, all);
        more.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// Of one kind of packets, what the second point lacks and what the first one does.
#[derive(Debug, Default)]
struct Lacking {
    /// The difference where the comparison begins.
    from: i128,
    growth: [Growth; 2],
}

impl Lacking {
    fn step(&mut self, first: u64, second: u64, is_clean: bool) -> [i64; 2] {
        let difference = i128::from(first) - i128::from(second) - self.from;
        let [second, first] = &mut self.growth;
        [
            second.step(difference, is_clean),
            first.step(-difference, is_clean),
        ]
    }

    fn finish(&mut self) -> [i64; 2] {
        self.growth.each_mut().map(Growth::finish)
    }

    fn all(&self) -> [i64; 2] {
        let told = self.growth.each_ref().map(|growth| growth.told);
        told.map(|all| all.clamp(0, i64::MAX.into()) as i64)
    }
}

/// Two points' views of one direction.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    /// From which of each point's marks on common ones are looked for.
    pub(crate) next: [u64; 2],
    /// The last common mark, as each point has it.
    common: Option<[Mark; 2]>,
    packets: Lacking,
    repeats: Lacking,
    /// When the last marks were, by the first point's clock, that have to agree.
    times: [Nanos; AGREEING],
    /// Packets that were left out, as only one of the points observed when they came.
    uncompared: u64,
    /// Whether it goes from the first point to the second; not known at first.
    goes_on: Option<bool>,
    is_guessed: bool,
    is_blind: bool,
    steps: Vec<Step>,
}

impl Pairing {
    /// Looks for the partners of the marks that a point has told of last, from the number `from` on. `is_whole` says of a
    /// difference of clocks whether both points saw the flow from its beginning.
    pub(crate) fn match_marks(
        &mut self,
        sides: [&Side; 2],
        teller: usize,
        from: u64,
        is_whole: impl Fn(i64) -> bool,
    ) {
        let other = 1 - teller;
        let told = sides[teller].marks.iter().rev();
        let told: Vec<(u64, Mark)> = told.take_while(|(at, _)| *at >= from).copied().collect();
        for &(number, mark) in told.iter().rev() {
            let is_one = |found: &(u64, Mark)| found.0 == number;
            let own = sides[teller].find(self.next[teller], mark.digest);
            let partner = sides[other].find(self.next[other], mark.digest);
            let (Some(_), Some((at, found))) = (own.filter(is_one), partner) else {
                continue;
            };
            let (both, numbers) = match teller {
                0 => ([mark, found], [number, at]),
                _ => ([found, mark], [at, number]),
            };
            if self.common(both, &is_whole) {
                self.next = numbers.map(|number| number + 1);
            }
        }
    }

    /// Takes a common mark. Returns whether it can be one.
    fn common(&mut self, both: [Mark; 2], is_whole: &impl Fn(i64) -> bool) -> bool {
        let difference = difference(both[1].time, both[0].time);
        let mut step = Step {
            time: both[0].time,
            difference: Some(difference),
            ..Step::default()
        };
        let counts = both.map(|mark| mark.counts);
        let is_clean = both[0].recent == both[1].recent && both[0].recent > 0;
        match self.common {
            Some(before) => {
                let change =
                    difference.saturating_sub(self::difference(before[1].time, before[0].time));
                let grows = [0, 1].map(|at| counts[at].continues(before[at].counts));
                if change.unsigned_abs() > MOST_JITTER || grows != [true; 2] {
                    return false;
                }
                step.change = Some(change);
                self.advance(&mut step, counts, is_clean);
            }
            None if is_whole(difference) => self.advance(&mut step, counts, is_clean),
            // A packet that it overtook, or was overtaken by, would look lost, or copied, for ever.
            None if !is_clean => return false,
            // What is compared begins here.
            None => {
                let [first, second] = counts;
                self.packets.from = i128::from(first.packets) - i128::from(second.packets);
                self.repeats.from = i128::from(first.repeats) - i128::from(second.repeats);
                self.uncompared = first.all().saturating_add(second.all());
            }
        }
        self.common = Some(both);
        self.steps.push(step);
        true
    }

    fn advance(&mut self, step: &mut Step, counts: [Counts; 2], is_clean: bool) {
        let before = self.common.map(|both| both.map(|mark| mark.counts));
        let before = before.unwrap_or_default();
        step.counts = [0, 1].map(|at| counts[at].since(before[at]));
        self.times.rotate_left(1);
        self.times[AGREEING - 1] = step.time;
        // What they agree on happened by the first of them.
        step.changed = match self.times[0] {
            Nanos(0) => step.time,
            first => first,
        };
        let [first, second] = counts;
        let packets = (self.packets).step(first.packets, second.packets, is_clean);
        let repeats = (self.repeats).step(first.repeats, second.repeats, is_clean);
        step.missing = sums(packets, repeats);
        step.repeated = [repeats[1], repeats[0]];
    }

    /// The flow is over: what came after the last common mark. Without any common mark the points' counts are compared as they
    /// are. `is_whole` says whether both points saw its end, and without a common mark also its beginning.
    pub(crate) fn finish(&mut self, sides: [&Side; 2], is_whole: impl Fn(Option<i64>) -> bool) {
        let last = self.common.map(|both| both.map(|mark| mark.time));
        let last = last.map(|[one, other]| difference(other, one));
        let counts = sides.map(Side::counts);
        let mut step = Step {
            time: sides[0].last,
            ..Step::default()
        };
        if is_whole(last) {
            self.advance(&mut step, counts, true);
        } else {
            let before = self.common.map(|both| both.map(|mark| mark.counts));
            let before = before.unwrap_or_default();
            let after = [0, 1].map(|at| counts[at].since(before[at]).all());
            self.uncompared = self
                .uncompared
                .saturating_add(after[0].saturating_add(after[1]));
        }
        self.steps.push(step);
        // The end itself needs nothing to agree with. More packets at the last point than at the first are copies.
        let packets = self.packets.finish();
        let repeats = self.repeats.finish();
        let all = self.packets.all();
        self.steps.push(Step {
            time: step.time,
            changed: step.time,
            missing: sums(packets, repeats),
            repeated: sums([repeats[1], repeats[0]], [all[1], all[0]]),
            ..Step::default()
        });
    }

    /// Packets that were not compared, since it was asked last.
    pub(crate) fn take_uncompared(&mut self) -> u64 {
        core::mem::take(&mut self.uncompared)
    }

    /// The last difference of clocks.
    pub(crate) fn difference(&self) -> Option<i64> {
        self.common
            .map(|both| difference(both[1].time, both[0].time))
    }

    /// Which way it goes, if that is known.
    pub(crate) fn goes_on(&self) -> Option<bool> {
        self.goes_on
    }

    /// Which way it goes is known now.
    pub(crate) fn decide(&mut self, goes_on: bool) {
        self.goes_on.get_or_insert(goes_on);
    }

    /// Which way it goes is likely, but delays must not rely on it; without a guess nothing says so, and no other flow must either.
    pub(crate) fn guess(&mut self, goes_on: Option<bool>) {
        self.decide(goes_on.unwrap_or(true));
        self.is_guessed = true;
        self.is_blind = goes_on.is_none();
    }

    /// Whether nothing has told which way it goes.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Whether so many steps wait for that that it has to be guessed.
    pub(crate) fn is_full(&self) -> bool {
        self.steps.len() > UNDECIDED
    }

    /// The steps since this was asked last, once it is known which way it goes.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        if self.goes_on.is_none() {
            return Vec::new();
        }
        let mut steps = core::mem::take(&mut self.steps);
        if self.is_guessed {
            steps.iter_mut().for_each(|step| step.difference = None);
        }
        steps
    }
}

fn sums(one: [i64; 2], other: [i64; 2]) -> [i64; 2] {
    [0, 1].map(|at| one[at].saturating_add(other[at]))
}

/// Of two times, in nanoseconds; as far apart as can be where they are farther.
pub(crate) fn difference(time: Nanos, from: Nanos) -> i64 {
    let nanos = i128::from(time.0) - i128::from(from.0);
    // Half of the range, so that a difference of differences is within it.
    nanos.clamp(-(1 << 62), 1 << 62) as i64
}
