//! An observation point: counts packets by flow and direction, and selects some by their identity.

use flowgauge_stack::KeyTable;
use flowgauge_wire::{Decoded, Direction, FlowKey, HashSeed, Nanos};

use crate::digest::digest;
use crate::observation::{Counts, Mark, Observation};
use crate::round_trips::{RoundTrips, Signal};

const TCP: u8 = 6;
/// The last packets of a direction: among those before it a packet's repetition is looked for, and marks say which they are.
pub(crate) const RECENT: usize = 8;

/// How a point observes.
#[derive(Clone, Debug)]
pub struct ObserverOptions {
    /// How often flows are told of.
    pub interval: Nanos,
    /// Packets that are selected of each direction of a flow in an interval.
    pub marks: usize,
    /// The longest pause of a flow.
    pub timeout: Nanos,
    /// Directions of flows at once; with more the longest idle one ends.
    pub max_flows: usize,
    /// The key of the selection; the same at all points.
    pub key: HashSeed,
}

/// Counts the packets of a point.
///
/// Of each direction the packets with the least digests of each interval are selected (a bottom-k sketch, Cohen and Kaplan, PODC
/// 2007): few of a fast flow, all of a slow one, and where two points' intervals overlap mostly the same ones, whatever their
/// clocks say.
#[derive(Debug)]
pub struct Observer {
    options: ObserverOptions,
    table: KeyTable<FlowKey>,
    /// By number in the table.
    runs: Vec<Option<Run>>,
    /// Numbers of those with packets in this interval, in the order of these.
    active: Vec<u32>,
    ended: Vec<u32>,
    /// When the interval ends; nothing before the first packet.
    until: Option<u64>,
    told: Observation,
}

/// One direction of a flow, from its first packet to a pause.
#[derive(Debug)]
struct Run {
    key: FlowKey,
    direction: Direction,
    first: Nanos,
    last: Nanos,
    ttl: u8,
    is_active: bool,
    counts: Counts,
    late: u64,
    /// Where the sequence space seen so far ends; nothing before the first payload.
    end: Option<u32>,
    /// Halves of the digests of the last packets, a ring.
    recent: [u32; RECENT],
    /// All of them, combined whatever their order.
    all_recent: u32,
    next: u8,
    marks: Vec<Mark>,
    /// The number of the other direction, if there is one.
    other: Option<u32>,
    trips: RoundTrips,
}

impl Observer {
    /// Has seen nothing yet.
    pub fn new(options: ObserverOptions) -> Observer {
        Observer {
            table: KeyTable::new(options.timeout, options.max_flows),
            options,
            runs: Vec::new(),
            active: Vec::new(),
            ended: Vec::new(),
            until: None,
            told: Observation::default(),
        }
    }

    /// Directions that ended because there were too many.
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// Takes a packet with the captured bytes that its offsets refer to. Others than IP are left out.
    #[inline]
    pub fn packet(&mut self, packet: &Decoded, frame: &[u8]) {
        if !packet.has_ip() {
            return;
        }
        // One entry for each direction.
        let key = FlowKey {
            reserved: packet.direction as u16,
            ..packet.key
        };
        let number = self.table.number(0, key, packet.time);
        let place = number as usize;
        if place >= self.runs.len() {
            self.runs.resize_with(place + 1, || None);
        }
        if self.runs[place].is_none() {
            self.begin(number, packet);
        }
        let Some(run) = &mut self.runs[place] else {
            return;
        };
        if !run.is_active {
            run.is_active = true;
            self.active.push(number);
        }
        run.packet(
            digest(&self.options.key, packet, frame),
            packet,
            self.options.marks,
        );
        if let Some(signal) = Signal::of(packet, frame) {
            let other = run.other.map_or(usize::MAX, |other| other as usize);
            match self.runs.get_disjoint_mut([place, other]) {
                Ok([Some(run), Some(other)]) if run.is_other(other) => {
                    run.trips
                        .packet(signal, packet.time, Some(&mut other.trips));
                }
                _ => {
                    if let Some(run) = &mut self.runs[place] {
                        run.trips.packet(signal, packet.time, None);
                    }
                }
            }
        }
    }

    /// A direction begins with a packet.
    #[cold]
    fn begin(&mut self, number: u32, packet: &Decoded) {
        let back = FlowKey {
            reserved: packet.direction.reversed() as u16,
            ..packet.key
        };
        let mut run = Run::new(packet);
        run.other = self.table.find(0, back);
        let other = run.other.and_then(|at| self.runs.get_mut(at as usize));
        if let Some(other) = other.and_then(Option::as_mut) {
            other.other = Some(number);
        }
        self.runs[number as usize] = Some(run);
    }

    /// When [`Observer::tick`] has something to do at the latest.
    pub fn next_tick(&self) -> Nanos {
        Nanos(self.until.unwrap_or(0))
    }

    /// The clock of the capture stands at `now`: tells of the flows that ended, and at the end of an interval (a multiple of its
    /// length) of all that had packets in it.
    pub fn tick(&mut self, now: Nanos, give: &mut dyn FnMut(&Observation)) {
        let length = self.options.interval.0.max(1);
        let end = now.0.saturating_add(length - now.0 % length);
        if self.until.is_none() {
            self.told.began = now;
        }
        let until = *self.until.get_or_insert(end);
        self.tell_ended(now, give);
        if now.0 < until {
            return;
        }
        self.until = Some(end);
        let mut active = core::mem::take(&mut self.active);
        for number in active.drain(..) {
            let run = self.runs.get_mut(number as usize).and_then(Option::as_mut);
            if let Some(run) = run.filter(|run| run.is_active) {
                run.is_active = false;
                run.tell(false, &mut self.told);
                give(&self.told);
            }
        }
        self.active = active;
    }

    /// The observation is over: tells of all flows.
    pub fn finish(&mut self, give: &mut dyn FnMut(&Observation)) {
        self.table.end_all();
        self.tell_ended(Nanos(0), give);
    }

    fn tell_ended(&mut self, now: Nanos, give: &mut dyn FnMut(&Observation)) {
        let mut numbers = core::mem::take(&mut self.ended);
        self.table.take_ended(now, &mut numbers);
        // In the order in which they began, however the table keeps them.
        let runs = &self.runs;
        numbers.sort_unstable_by_key(|number| {
            let run = runs.get(*number as usize).and_then(Option::as_ref);
            run.map(|run| (run.first, run.key, run.direction.index()))
        });
        for number in numbers.drain(..) {
            if let Some(mut run) = self.runs.get_mut(number as usize).and_then(Option::take) {
                run.tell(true, &mut self.told);
                give(&self.told);
            }
        }
        self.ended = numbers;
    }
}

impl Run {
    fn new(packet: &Decoded) -> Run {
        Run {
            key: packet.key,
            direction: packet.direction,
            first: packet.time,
            last: packet.time,
            ttl: packet.ttl,
            is_active: false,
            counts: Counts::default(),
            late: 0,
            end: None,
            recent: [0; RECENT],
            all_recent: 0,
            next: 0,
            marks: Vec::new(),
            other: None,
            trips: RoundTrips::default(),
        }
    }

    /// Numbers are used again.
    fn is_other(&self, other: &Run) -> bool {
        self.key == other.key && self.direction != other.direction
    }

    #[inline]
    fn packet(&mut self, digest: u64, packet: &Decoded, most: usize) {
        self.last = self.last.max(packet.time);
        self.counts.bytes += u64::from(packet.ip_len);
        if packet.key.protocol == TCP && packet.payload_len > 0 {
            self.segment(packet.seq, packet.payload_len);
        }
        // Zero stands for no packet.
        let short = (digest >> 32) as u32 | 1;
        if self.recent.contains(&short) {
            self.counts.repeats += 1;
            return;
        }
        let place = &mut self.recent[usize::from(self.next) % RECENT];
        self.all_recent ^= core::mem::replace(place, short) ^ short;
        self.next = self.next.wrapping_add(1);
        self.counts.packets += 1;
        let mark = Mark {
            digest,
            time: packet.time,
            counts: self.counts,
            recent: match self.counts.packets >= RECENT as u64 {
                true => self.all_recent | 1,
                false => 0,
            },
        };
        if self.marks.len() < most {
            self.marks.push(mark);
            return;
        }
        let largest = self.marks.iter_mut().max_by_key(|mark| mark.digest);
        if let Some(largest) = largest.filter(|largest| digest < largest.digest) {
            *largest = mark;
        }
    }

    fn segment(&mut self, sequence: u32, bytes: u32) {
        let end = sequence.wrapping_add(bytes);
        // Sequence numbers are compared as in RFC 9293, section 3.4.
        let is_before = |one: u32, other: u32| one.wrapping_sub(other).cast_signed() < 0;
        match self.end {
            Some(known) if is_before(sequence, known) => {
                self.late += 1;
                self.end = Some(if is_before(known, end) { end } else { known });
            }
            _ => self.end = Some(end),
        }
    }

    /// Tells what is known of it, and begins with new marks.
    fn tell(&mut self, has_ended: bool, told: &mut Observation) {
        told.key = self.key;
        told.direction = self.direction;
        (told.first, told.last, told.ttl) = (self.first, self.last, self.ttl);
        (told.counts, told.late) = (self.counts, self.late);
        told.has_ended = has_ended;
        told.trips = self.trips.take();
        core::mem::swap(&mut told.marks, &mut self.marks);
        self.marks.clear();
        told.marks.sort_unstable_by_key(|mark| mark.counts.packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of segments of 100 bytes, across the end of the sequence space.
    #[test]
    fn segments_behind_later_ones_are_late() {
        let mut observer = Observer::new(ObserverOptions {
            interval: Nanos::from_secs(1),
            marks: 4,
            timeout: Nanos::from_secs(2),
            max_flows: 10,
            key: HashSeed::PUBLIC,
        });
        let base = u32::MAX - 250;
        for (number, place) in (0..).zip([0, 1, 3, 2, 4, 4, 0, 5]) {
            let side = |octet, port| (flowgauge_wire::Address::v4([192, 0, 2, octet]), port);
            let (key, direction) = FlowKey::new(4, TCP, side(1, 1000), side(2, 80));
            let packet = Decoded {
                key,
                direction,
                time: Nanos::from_secs(1) + Nanos(number),
                seq: base.wrapping_add(place * 100),
                payload_len: 100,
                ip_len: 140,
                ..Decoded::default()
            };
            observer.packet(&packet, &number.to_be_bytes());
        }
        let mut late = Vec::new();
        observer.finish(&mut |told| late.push(told.late));
        assert_eq!(late, [3]);
    }
}
