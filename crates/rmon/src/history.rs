//! Histories: of an interface (etherHistory), and of any objects (usrHistory).

use std::collections::VecDeque;

use crate::frame::Ether;
use crate::jobs::{Jobs, Timer};
use crate::others::{self, Asker};
use crate::probe::Probe;
use crate::{Oid, Tree, Value};

/// Buckets of a history at most, and of all of them (50 MB).
const MOST_BUCKETS: u32 = 10_000;
const MOST_BUCKETS_OF_ALL: u32 = 500_000;

/// Values of all user histories at most (64 MB).
const MOST_VALUES: u32 = 2_000_000;

/// The values that a sample of so many objects takes the room of.
fn width(objects: usize) -> u32 {
    objects as u32 + 2
}

/// A history of an interface.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) interface: u32,
    pub(crate) granted: u32,
    /// Bits per second of the interface.
    pub(crate) speed: u64,
    pub(crate) timer: Timer,
    before: Option<Ether>,
    /// The number of the next sample, from 1.
    next: u32,
    pub(crate) buckets: VecDeque<Bucket>,
}

/// What an interface carried in an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) number: u32,
    /// Its start, as a stamp.
    pub(crate) start: u32,
    pub(crate) ether: Ether,
}

/// A history of objects.
#[derive(Debug)]
pub(crate) struct UserHistory {
    pub(crate) granted: u32,
    pub(crate) timer: Timer,
    /// Variables, whether differences are wanted, and the value before.
    pub(crate) objects: Vec<(Oid, bool, Option<i128>)>,
    next: u32,
    pub(crate) samples: VecDeque<Sample>,
}

/// Values of objects at the end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) number: u32,
    /// Its start and end, as stamps.
    pub(crate) interval: (u32, u32),
    /// By place of the object; nothing if there was no value.
    pub(crate) values: Vec<Option<i128>>,
}

impl Ether {
    fn since(&self, before: &Ether) -> Ether {
        Ether {
            drop_events: self.drop_events.saturating_sub(before.drop_events),
            errors: core::array::from_fn(|kind| self.errors[kind] - before.errors[kind]),
            octets: self.octets - before.octets,
            broadcasts: self.broadcasts - before.broadcasts,
            multicasts: self.multicasts - before.multicasts,
            sizes: core::array::from_fn(|size| self.sizes[size] - before.sizes[size]),
        }
    }
}

impl History {
    pub(crate) fn new(interface: u32, granted: u32, timer: Timer, now: Ether) -> History {
        History {
            interface,
            granted,
            speed: 0,
            timer,
            before: Some(now),
            next: 1,
            buckets: VecDeque::new(),
        }
    }
}

impl UserHistory {
    pub(crate) fn new(timer: Timer) -> UserHistory {
        UserHistory {
            granted: 1,
            timer,
            objects: Vec::new(),
            next: 1,
            samples: VecDeque::new(),
        }
    }
}

impl Jobs {
    /// Buckets that a history has beside the others: as many as it requests, as far as there is room.
    pub(crate) fn buckets(&self, row: u32, requested: u32) -> u32 {
        let others = self.histories.iter().filter(|(other, _)| **other != row);
        let others: u32 = others.map(|(_, history)| history.granted).sum();
        let left = MOST_BUCKETS_OF_ALL.saturating_sub(others).max(1);
        requested.min(left).min(MOST_BUCKETS)
    }

    /// The same of a history of so many objects.
    pub(crate) fn samples(&self, row: u32, objects: usize, requested: u32) -> u32 {
        let others = self.user_histories.iter().filter(|it| *it.0 != row);
        let others = others.map(|(_, it)| it.granted * width(it.objects.len()));
        let left = MOST_VALUES.saturating_sub(others.sum());
        let left = (left / width(objects)).max(1);
        requested.min(left).min(MOST_BUCKETS)
    }

    /// Another number of buckets is requested.
    pub(crate) fn grant_buckets(&mut self, row: u32, requested: u32) {
        let granted = self.buckets(row, requested);
        if let Some(history) = self.histories.get_mut(&row) {
            history.granted = granted;
            trim(&mut history.buckets, granted);
        }
    }

    /// The same of a history of objects.
    pub(crate) fn grant_samples(&mut self, row: u32, requested: u32) {
        let objects = self.user_histories.get(&row).map(|it| it.objects.len());
        let granted = self.samples(row, objects.unwrap_or(0), requested);
        if let Some(history) = self.user_histories.get_mut(&row) {
            history.granted = granted;
            trim(&mut history.samples, granted);
        }
    }
}

impl UserHistory {
    /// The value of an object of another agent has come, for a bucket, or for the first difference.
    pub(crate) fn fill(&mut self, place: usize, name: &Oid, bucket: u32, value: Option<i128>) {
        let object = self.objects.get_mut(place);
        let Some((_, wants_difference, before)) = object.filter(|(it, ..)| it == name) else {
            return;
        };
        let value = sampled(value, *wants_difference, before);
        let mut samples = self.samples.iter_mut().rev();
        let sample = samples.find(|sample| sample.number == bucket);
        if let Some(filled) = sample.and_then(|sample| sample.values.get_mut(place)) {
            *filled = value;
        }
    }
}

/// What a bucket has of a value, which is kept for the next difference.
fn sampled(value: Option<i128>, wants_difference: bool, before: &mut Option<i128>) -> Option<i128> {
    let before = core::mem::replace(before, value);
    match wants_difference {
        false => value,
        true => Some(value? - before?),
    }
}

fn trim<T>(buckets: &mut VecDeque<T>, most: u32) {
    while buckets.len() > most as usize {
        buckets.pop_front();
    }
}

/// The number that a value is, if it is one.
pub(crate) fn number(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Integer(number) => (*number).into(),
        Value::Counter32(number) | Value::Gauge32(number) | Value::TimeTicks(number) => {
            (*number).into()
        }
        Value::Counter64(number) => (*number).into(),
        _ => return None,
    })
}

impl Probe {
    /// A bucket of an interface's history is full.
    pub(crate) fn end_bucket(&mut self, row: u32, now: u64) {
        let Some(history) = self.jobs.histories.get_mut(&row) else {
            return;
        };
        let number = history.interface;
        let interface = self
            .interfaces
            .iter()
            .find(|interface| interface.number == number);
        let ether = interface.map_or_else(Ether::default, |interface| interface.ether);
        let start = self.tables.clock.stamp_at(history.timer.began);
        let before = history.before.replace(ether).unwrap_or(ether);
        history.buckets.push_back(Bucket {
            number: history.next,
            start,
            ether: ether.since(&before),
        });
        trim(&mut history.buckets, history.granted);
        let left_out = history.timer.go_on(now, history.granted.into());
        history.next = history.next.wrapping_add(1 + left_out as u32);
    }

    /// A sample of objects is due.
    pub(crate) fn sample_user_history(&mut self, row: u32, now: u64) {
        let Some(mut history) = self.jobs.user_histories.remove(&row) else {
            return;
        };
        let clock = &self.tables.clock;
        let interval = (clock.stamp_at(history.timer.began), clock.stamp);
        let mut values = Vec::with_capacity(history.objects.len());
        for (place, (variable, wants_difference, before)) in history.objects.iter_mut().enumerate()
        {
            if others::is_of_others(variable) {
                let asker = Asker::History(row, place);
                self.questions.ask(asker, variable, history.next);
                values.push(None);
                continue;
            }
            let value = self.get(variable).ok().as_ref().and_then(number);
            values.push(sampled(value, *wants_difference, before));
        }
        history.samples.push_back(Sample {
            number: history.next,
            interval,
            values,
        });
        trim(&mut history.samples, history.granted);
        let left_out = history.timer.go_on(now, history.granted.into());
        history.next = history.next.wrapping_add(1 + left_out as u32);
        self.jobs.user_histories.insert(row, history);
    }
}
