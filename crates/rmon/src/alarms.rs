//! Alarms, which compare objects with thresholds, and events, which tell of it (RFC 2819, groups 3 and 9).

use std::collections::VecDeque;

use crate::control::Control;
use crate::history::number;
use crate::jobs::Timer;
use crate::mib::RMON;
use crate::others::{self, Asker};
use crate::probe::Probe;
use crate::{Notification, Oid, Tree, Value};

/// Entries of an event's log at most; the oldest goes. With many events each has fewer, but for the least.
const MOST_ENTRIES: usize = 1000;
const MOST_ENTRIES_OF_ALL: usize = 100_000;
const LEAST_ENTRIES: usize = 10;

/// Notifications that wait to be sent at most; later ones are lost.
const MOST_NOTIFICATIONS: usize = 1000;

/// An alarm that is active.
#[derive(Debug)]
pub(crate) struct Alarm {
    pub(crate) timer: Timer,
    pub(crate) variable: Oid,
    pub(crate) wants_difference: bool,
    /// Rising and falling.
    pub(crate) thresholds: [i32; 2],
    pub(crate) events: [u32; 2],
    /// Which of both may come next; at first as alarmStartupAlarm says.
    pub(crate) armed: [bool; 2],
    pub(crate) before: Option<i128>,
    pub(crate) value: i32,
}

/// What an event has told.
#[derive(Debug, Default)]
pub(crate) struct Event {
    /// As a stamp; 0 if never.
    pub(crate) last: u32,
    next: u32,
    pub(crate) log: VecDeque<Entry>,
}

/// An entry of a log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    pub(crate) stamp: u32,
    pub(crate) text: Vec<u8>,
}

impl Alarm {
    /// Takes a sample, and says which threshold was crossed: 0 rising, 1 falling. After one of both, only the other one
    /// may come.
    fn sample(&mut self, now: Option<i128>) -> Option<usize> {
        let value = match (self.wants_difference, now, self.before) {
            (false, now, _) => now,
            (true, Some(now), Some(before)) => Some(now - before),
            (true, ..) => None,
        };
        self.before = now;
        let value = value?.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        self.value = value;
        let crossed = [value >= self.thresholds[0], value <= self.thresholds[1]];
        let which = crossed.iter().position(|crossed| *crossed)?;
        let is_told = self.armed[which];
        self.armed = [which != 0, which != 1];
        is_told.then_some(which)
    }
}

impl Probe {
    /// An alarm's interval is over.
    pub(crate) fn sample_alarm(&mut self, row: u32, now: u64) {
        let Some(variable) = self
            .jobs
            .alarms
            .get(&row)
            .map(|alarm| alarm.variable.clone())
        else {
            return;
        };
        let is_of_others = others::is_of_others(&variable);
        if let Some(alarm) = self.jobs.alarms.get_mut(&row) {
            // What changes without packets changes once more at most.
            alarm.timer.go_on(now, if is_of_others { 0 } else { 2 });
        }
        if is_of_others {
            return self.questions.ask(Asker::Alarm(row), &variable, 0);
        }
        let value = self.get(&variable).ok().as_ref().and_then(number);
        self.finish_alarm(row, &variable, value);
    }

    /// The value that an alarm's sample is of is known.
    pub(crate) fn finish_alarm(&mut self, row: u32, variable: &Oid, value: Option<i128>) {
        let alarm = self.jobs.alarms.get_mut(&row);
        let Some(alarm) = alarm.filter(|alarm| alarm.variable == *variable) else {
            return;
        };
        let Some(which) = alarm.sample(value) else {
            return;
        };
        let kind = if alarm.wants_difference { 2 } else { 1 };
        let name = |column: u32| Oid::new(&RMON).child(&[3, 1, 1, column, row]);
        let objects = vec![
            (name(1), Value::Integer(row as i32)),
            (name(3), Value::Oid(alarm.variable.clone())),
            (name(4), Value::Integer(kind)),
            (name(5), Value::Integer(alarm.value)),
            (
                name(7 + which as u32),
                Value::Integer(alarm.thresholds[which]),
            ),
        ];
        let event = alarm.events[which];
        let notification = Notification {
            kind: Oid::new(&RMON).child(&[0, 1 + which as u32]),
            objects,
        };
        self.tell(event, Some(notification));
    }

    /// Tells what an event's row says: to its log, to managers, or to nobody. Channels follow it.
    pub(crate) fn tell(&mut self, event: u32, notification: Option<Notification>) {
        let row = self.controls.get(&(Control::Event, vec![event]));
        let Some((row, table)) = row.filter(|row| row.active).zip(Control::Event.table()) else {
            return;
        };
        let (text, kind) = (row.value(table, 2).cloned(), row.value(table, 3).cloned());
        let stamp = self.tables.clock.stamp;
        let events = self.jobs.events.len().max(1);
        let most = (MOST_ENTRIES_OF_ALL / events).clamp(LEAST_ENTRIES, MOST_ENTRIES);
        let told = self.jobs.events.entry(event).or_default();
        told.last = stamp;
        if let (Some(Value::Octets(text)), Some(Value::Integer(2 | 4))) = (text, &kind) {
            told.next += 1;
            let number = told.next;
            told.log.push_back(Entry {
                number,
                stamp,
                text,
            });
            while told.log.len() > most {
                told.log.pop_front();
            }
        }
        let is_sent = matches!(kind, Some(Value::Integer(3 | 4)));
        if is_sent && self.notifications.len() < MOST_NOTIFICATIONS {
            self.notifications.extend(notification);
        }
        self.switch_channels(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2819, alarmRisingThreshold and alarmStartupAlarm: hysteresis.
    #[test]
    fn one_alarm_for_each_crossing() {
        let alarm = |armed: [bool; 2]| Alarm {
            timer: Timer {
                began: 1,
                interval: 100,
            },
            variable: Oid::default(),
            wants_difference: false,
            thresholds: [10, 3],
            events: [1, 2],
            armed,
            before: None,
            value: 0,
        };
        let values = [12, 15, 9, 11, 3, 2, 5, 3, 10, 4, 10, 0];
        let told = |mut alarm: Alarm| values.map(|value| alarm.sample(Some(value)));
        let (rising, falling) = (Some(0), Some(1));
        let rest = [
            None, None, None, falling, None, None, None, rising, None, None, falling,
        ];
        let either = told(alarm([true, true]));
        assert_eq!((either[0], &either[1..]), (rising, &rest[..]));
        let falling_only = told(alarm([false, true]));
        assert_eq!((falling_only[0], &falling_only[1..]), (None, &rest[..]));
        assert_eq!(alarm([true, true]).sample(None), None);
    }
}
