//! The known results for one value of the packets of a batch.

use std::sync::Arc;

use flowgauge_wire::{BATCH_SIZE, Batch, PacketDescriptor, Selection};

use super::Places;
use crate::filter::decisions::{Is, Value, load};
use crate::filter::lists::Table;
use crate::filter::program::Operation;
use crate::filter::view::Plain;

/// What is known of a value.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) value: Arc<Value>,
    /// Which [`Loaded`] has it, and what of that it is.
    pub(super) loaded: usize,
    mask: u32,
    /// Numbers that it is compared with, and tests; those that ask for more than equality in order.
    equal: Vec<(u32, u32)>,
    at_least: Vec<(u32, u32)>,
    /// The same as `equal`: numbers, and the test of each by its place among them; nothing while that is to be made.
    table: Table,
    tests: Vec<u32>,
    /// Of each test what it is and how many ask for it, and the places of tests that nobody asks for any more.
    users: Vec<(Is, u32)>,
    free: Vec<u32>,
    all_users: usize,
    /// Packets that pass each test. The first is never passed.
    pub(super) passed: Vec<Selection>,
    /// Tests for equality that any packet passes.
    pub(super) hit: Vec<u32>,
    /// Which batch that is of.
    pub(super) batch: u64,
    /// Packets that were looked at, and how often some were.
    pub(super) known: Selection,
    looks: u32,
    /// Packets that have no such value.
    pub(super) missing: Selection,
    /// Of the batch before the value was asked for of most packets, and not at once.
    is_wanted_of_all: bool,
}

impl Column {
    /// Of a value that is a part of one that is loaded: see [`without_mask`].
    pub(super) fn new(value: &Arc<Value>, loaded: usize, mask: u32) -> Column {
        Column {
            value: Arc::clone(value),
            loaded,
            mask,
            equal: Vec::new(),
            at_least: Vec::new(),
            table: Table::new(&[]),
            tests: Vec::new(),
            users: vec![(Is::There, 0)],
            free: Vec::new(),
            all_users: 0,
            passed: vec![Selection::NONE],
            hit: Vec::new(),
            batch: 0,
            known: Selection::NONE,
            looks: 0,
            missing: Selection::NONE,
            is_wanted_of_all: false,
        }
    }

    /// The place of a test, for one more who asks for it.
    pub(super) fn add(&mut self, is: Is) -> u32 {
        self.all_users += 1;
        let (list, number) = match is {
            Is::There => return 0,
            Is::Equal(number) => (&mut self.equal, number),
            Is::AtLeast(number) => (&mut self.at_least, number),
        };
        let place = match list.binary_search_by_key(&number, |known| known.0) {
            Ok(known) => list[known].1,
            Err(at) => {
                let place = self.free.pop().unwrap_or(self.passed.len() as u32);
                list.insert(at, (number, place));
                if place as usize == self.passed.len() {
                    self.passed.push(Selection::NONE);
                    self.users.push((is, 0));
                }
                self.users[place as usize] = (is, 0);
                // What is known of the batch under way is not known of this.
                self.batch = 0;
                self.tests.clear();
                place
            }
        };
        self.users[place as usize].1 += 1;
        place
    }

    /// Tests for more than equality: any packets may pass these.
    pub(super) fn open_tests(&self) -> impl ExactSizeIterator<Item = &u32> {
        self.at_least.iter().map(|(_, test)| test)
    }

    /// One who asked for a test does so no more. Whether it was the last.
    pub(super) fn remove(&mut self, place: u32) -> bool {
        self.all_users -= 1;
        let (is, users) = &mut self.users[place as usize];
        *users = users.saturating_sub(1);
        let list = match is {
            Is::There => None,
            Is::Equal(number) => Some((&mut self.equal, *number)),
            Is::AtLeast(number) => Some((&mut self.at_least, *number)),
        };
        if let Some((list, number)) = list.filter(|_| *users == 0) {
            if let Ok(at) = list.binary_search_by_key(&number, |known| known.0) {
                list.remove(at);
            }
            self.passed[place as usize] = Selection::NONE;
            self.hit.retain(|hit| *hit != place);
            self.free.push(place);
            self.batch = 0;
            self.tests.clear();
        }
        self.all_users == 0
    }

    /// Nothing is known of a batch yet.
    #[inline(never)]
    pub(super) fn begin(&mut self, batch: u64) {
        if self.tests.is_empty() && !self.equal.is_empty() {
            let numbers: Vec<u32> = self.equal.iter().map(|known| known.0).collect();
            self.table = Table::new(&numbers);
            self.tests = vec![0; self.table.places()];
            for &(number, test) in &self.equal {
                if let Some(place) = self.table.find(number) {
                    self.tests[place] = test;
                }
            }
        }
        for test in self.hit.drain(..) {
            self.passed[test as usize] = Selection::NONE;
        }
        for &(_, test) in &self.at_least {
            self.passed[test as usize] = Selection::NONE;
        }
        self.is_wanted_of_all = self.looks > 1 && self.known.len() > BATCH_SIZE / 2;
        self.known = Selection::NONE;
        self.looks = 0;
        self.missing = Selection::NONE;
        self.batch = batch;
    }

    /// Looks at these packets of `all`, some of which are `odd`. (Not inlined: the tests would have fewer registers.)
    #[inline(never)]
    pub(super) fn look(
        &mut self,
        loaded: &mut Loaded,
        odd: Selection,
        places: Places<'_>,
        packets: Selection,
        all: Selection,
    ) {
        /// What it costs to look a value up, in comparisons of one value with a number in a row of all.
        const LOOK_UP: usize = 12;
        let packets = match self.is_wanted_of_all {
            true => all.or(packets),
            false => packets,
        };
        let packets = packets.without(self.known);
        self.looks += 1;
        self.known = self.known.or(packets);
        loaded.load(self.batch, odd, places, packets);
        let missing = packets.and(loaded.missing);
        self.missing = self.missing.or(missing);
        let there = packets.without(missing);
        let tests = self.equal.len() + self.at_least.len();
        if tests * (BATCH_SIZE / LOOK_UP) > there.len() {
            return self.look_up(there, &loaded.values);
        }
        let (values, mask) = (&*loaded.values, self.mask);
        for &(number, test) in &self.equal {
            let equal = there.and(Selection::of(values, |value| value & mask == number));
            pass(&mut self.passed[test as usize], equal, test, &mut self.hit);
        }
        for &(number, test) in &self.at_least {
            let passed = &mut self.passed[test as usize];
            *passed = passed.or(there.and(Selection::of(values, |value| value & mask >= number)));
        }
    }

    /// Which tests these packets' values pass, one by one.
    fn look_up(&mut self, packets: Selection, values: &[u32; BATCH_SIZE]) {
        let mask = self.mask;
        if let (Some(&(least, _)), Some(&(most, _))) = (self.equal.first(), self.equal.last()) {
            let mut packets = packets;
            if packets.len() > BATCH_SIZE / 4 {
                // Most numbers are of another kind: ports of clients, addresses of other networks.
                let is_near = |value: u32| (value & mask).wrapping_sub(least) <= most - least;
                packets = packets.and(Selection::of(values, is_near));
            }
            packets.iter().for_each(|place| {
                if let Some(found) = self.table.find(values[place] & mask)
                    && let Some(&test) = self.tests.get(found)
                {
                    let passed = &mut self.passed[test as usize];
                    if passed.is_empty() {
                        self.hit.push(test);
                    }
                    passed.insert(place);
                }
            });
        }
        if self.at_least.is_empty() {
            return;
        }
        packets.iter().for_each(|place| {
            let number = values[place] & mask;
            let below = self.at_least.partition_point(|known| known.0 <= number);
            if let Some(&(_, test)) = below.checked_sub(1).and_then(|at| self.at_least.get(at)) {
                self.passed[test as usize].insert(place);
            }
        });
        // Who is above one number is above those below it.
        let mut above = Selection::NONE;
        for &(_, test) in self.at_least.iter().rev() {
            let passed = &mut self.passed[test as usize];
            *passed = passed.or(above);
            above = *passed;
        }
    }
}

/// More packets pass a test.
#[inline]
fn pass(passed: &mut Selection, more: Selection, test: u32, hit: &mut Vec<u32>) {
    if passed.is_empty() && !more.is_empty() {
        hit.push(test);
    }
    *passed = passed.or(more);
}

/// A value of each packet of a batch, of which columns look at parts: networks at those of an address.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) value: Arc<Value>,
    /// The same, of most.
    field: Option<Field>,
    /// Columns that look at it.
    pub(super) users: usize,
    /// Which batch it is of.
    batch: u64,
    /// Packets that were looked at, and those of them that have no such value.
    known: Selection,
    missing: Selection,
    values: Box<[u32; BATCH_SIZE]>,
}

/// A value without the mask that is all that is done with it in the end, and the mask.
pub(super) fn without_mask(value: &Arc<Value>) -> (&Arc<Value>, u32) {
    match &**value {
        Value::Arithmetic(Operation::And, inner, mask) => match **mask {
            Value::Constant(mask) => (inner, mask),
            _ => (value, u32::MAX),
        },
        _ => (value, u32::MAX),
    }
}

impl Loaded {
    pub(super) fn new(value: &Arc<Value>) -> Loaded {
        Loaded {
            value: Arc::clone(value),
            field: Field::of(value),
            users: 0,
            batch: 0,
            known: Selection::NONE,
            missing: Selection::NONE,
            values: Box::new([0; BATCH_SIZE]),
        }
    }

    /// Finds what is not known of these packets, some of which are `odd`.
    fn load(&mut self, batch: u64, odd: Selection, places: Places<'_>, packets: Selection) {
        if self.batch != batch {
            self.batch = batch;
            (self.known, self.missing) = (Selection::NONE, Selection::NONE);
        }
        let packets = packets.without(self.known);
        if packets.is_empty() {
            return;
        }
        self.known = self.known.or(packets);
        let (value, batch, values) = (&self.value, places.batch, &mut *self.values);
        let plain = packets.without(odd);
        let mut missing = match self.field {
            Some(field) => match field.header {
                None => each(batch, plain, values, |packet| field.find(batch, packet, 0)),
                Some(_) => each(batch, plain, values, |packet| {
                    field.find(batch, packet, field.base(batch, packet)?)
                }),
            },
            None => each(batch, plain, values, |packet| {
                value.of(&Plain(batch.bytes_of(packet)), packet.wire_len)
            }),
        };
        for place in packets.and(odd).iter() {
            match places.value(value, place) {
                Some(number) => values[place] = number,
                None => missing.insert(place),
            }
        }
        self.missing = self.missing.or(missing);
    }
}

/// A value that is a field of the packet.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// Where an IPv4 header is that is before it.
    header: Option<u32>,
    size: Operation,
    at: u32,
    /// What of a word there is no part of it.
    shift: u32,
}

impl Field {
    fn of(value: &Value) -> Option<Field> {
        let &Value::Load(size, ref base, at) = value else {
            return None;
        };
        Some(Field {
            header: match **base {
                Value::Constant(0) => None,
                Value::HeaderLength(header) => Some(header),
                _ => return None,
            },
            size,
            at,
            shift: match size {
                Operation::LoadWord => 0,
                Operation::LoadHalf => 16,
                _ => 24,
            },
        })
    }

    /// The length of the header that is before it.
    #[inline(always)]
    fn base(&self, batch: &Batch<'_>, packet: &PacketDescriptor) -> Option<u32> {
        let at = self.header?;
        if at >= packet.captured_len {
            return None;
        }
        let byte = batch.memory.get(packet.offset as usize + at as usize)?;
        Some(u32::from(byte & 15) << 2)
    }

    #[inline(always)]
    fn find(&self, batch: &Batch<'_>, packet: &PacketDescriptor, base: u32) -> Option<u32> {
        let at = base as usize + self.at as usize;
        let start = packet.offset as usize + at;
        match batch.memory.get(start..start + 4) {
            Some(&[a, b, c, d]) if at + 4 <= packet.captured_len as usize => {
                Some(u32::from_be_bytes([a, b, c, d]) >> self.shift)
            }
            _ => load(&Plain(batch.bytes_of(packet)), self.size, base, self.at),
        }
    }
}

/// Finds a value of each of these packets. Returns those that have none.
#[inline(always)]
fn each(
    batch: &Batch<'_>,
    packets: Selection,
    values: &mut [u32; BATCH_SIZE],
    find: impl Fn(&PacketDescriptor) -> Option<u32>,
) -> Selection {
    let mut missing = Selection::NONE;
    let mut keep = |place, found, value: &mut u32| match found {
        Some(number) => *value = number,
        None => missing.insert(place),
    };
    if packets.len() * 4 > batch.len() * 3 {
        // To go through the others, too, takes less.
        let all = batch.packets.iter().zip(values).enumerate();
        all.for_each(|(place, (packet, value))| keep(place, find(packet), value));
        return missing.and(packets);
    }
    for place in packets.iter() {
        if let (Some(packet), Some(value)) = (batch.packets.get(place), values.get_mut(place)) {
            keep(place, find(packet), value);
        }
    }
    missing
}
