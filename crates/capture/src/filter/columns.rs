//! What filters know of a batch.
//!
//! A filter goes through its tests once per batch, with all packets that have come to a test as a set of bits. What a test
//! says of each packet is a set, too; it is found for a value once per packet, whichever filters test the value, and whatever
//! they compare it with:
//!
//! ```text
//!  value               packets that pass, by test
//!  half at 12          = 0x800: 11101111   = 0x86dd: 00010000
//!  half at 4*IHL + 16  = 80:    10000001   = 443:    01100000   >= 1024: 00001100
//! ```
//!
//! So a further filter costs what its tests are per batch, and what is new in it per packet. Nothing depends on which packets
//! came before, so nothing has to be bounded but the number of values, which is that of the filters' tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeFlags, Decoded, DecodedBatch, LinkType, PacketDescriptor, PacketFlags,
    Selection,
};

use super::Filter;
use super::decisions::{Decisions, Is, Value, load};
use super::lists::Table;
use super::program::Operation;
use super::view::{Plain, Tagged};

/// What filters of one thread know of the packets of a batch. Filters that are given the same one share what they find.
#[derive(Debug)]
pub struct Columns {
    /// No other's.
    id: u64,
    columns: Vec<Column>,
    /// The places of values in `columns`.
    places: HashMap<Arc<Value>, u32>,
    /// Tests of filters; those that begin in the same way have the same.
    nodes: Vec<Node>,
    numbers: HashMap<(u32, u32, Vec<Edge>), u32>,
    /// The packets that left each node by each edge, and at [`START`] those that came.
    left: Vec<Selection>,
    /// Counts what `left` is of.
    epoch: u64,
    /// Counts batches.
    batch: u64,
    frames: Frames,
    /// Memory for a value of each packet.
    values: Box<[u32; BATCH_SIZE]>,
}

/// Packets of a batch as filters see them.
#[derive(Debug, Default)]
struct Frames {
    is_known: bool,
    /// By link type.
    links: Vec<(LinkType, Selection)>,
    /// Those that are not in the batch's memory as they are to be seen.
    odd: Selection,
}

/// A batch, and what was made of its packets; a place means one of these, if there are any.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) batch: &'a Batch<'a>,
    pub(super) decoded: Option<&'a DecodedBatch>,
}

/// A way out of a node: two for each, of packets that passed and of others.
type Edge = u32;
/// The way to the first test.
const START: Edge = 0;

/// A test of one filter or several.
#[derive(Clone, Debug)]
struct Node {
    column: u32,
    /// Place in [`Column::passed`].
    test: u32,
    /// The ways to it.
    from: Vec<Edge>,
    /// Which packets have left it is known of this [`Columns::epoch`].
    epoch: u64,
}

/// A filter's tests in the columns that it used last.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    columns: u64,
    nodes: Vec<u32>,
    accepted: Vec<Edge>,
}

/// What is known of a value.
#[derive(Debug)]
struct Column {
    value: Arc<Value>,
    /// The same, of most.
    field: Option<Field>,
    /// Numbers that it is compared with, and tests; those that ask for more than equality in order.
    equal: Vec<(u32, u32)>,
    at_least: Vec<(u32, u32)>,
    /// The same as `equal`: numbers, and the test of each by its place among them.
    table: Table,
    tests: Vec<u32>,
    /// Packets that pass each test. The first is never passed.
    passed: Vec<Selection>,
    /// Which batch that is of.
    batch: u64,
    /// Packets that were looked at.
    known: Selection,
    /// Packets that have no such value.
    missing: Selection,
}

impl Default for Columns {
    fn default() -> Columns {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Columns {
            id: NUMBERS.fetch_add(1, Ordering::Relaxed),
            columns: Vec::new(),
            places: HashMap::new(),
            // The first stands for no test: its way out is [`START`].
            nodes: vec![Node {
                column: 0,
                test: 0,
                from: Vec::new(),
                epoch: 0,
            }],
            numbers: HashMap::new(),
            left: vec![Selection::NONE; 2],
            epoch: 1,
            batch: 1,
            frames: Frames::default(),
            values: Box::new([0; BATCH_SIZE]),
        }
    }
}

impl Columns {
    /// Another batch comes.
    pub fn begin(&mut self) {
        self.batch += 1;
        self.epoch += 1;
        self.frames.is_known = false;
    }

    /// The packets of each link type.
    #[inline]
    pub(super) fn links(&mut self, places: Places<'_>) -> usize {
        if !self.frames.is_known {
            self.frames.look(places);
        }
        self.frames.links.len()
    }

    /// One of those.
    #[inline]
    pub(super) fn link(&self, number: usize) -> (LinkType, Selection) {
        self.frames.links[number]
    }

    /// Which of these packets a filter accepts, all of its link type.
    pub(super) fn accepted(
        &mut self,
        filter: &Filter,
        binding: &mut Binding,
        places: Places<'_>,
        packets: Selection,
    ) -> Selection {
        let Some(decisions) = filter.program.decisions() else {
            let mut accepted = packets;
            accepted.retain(|place| places.verdict(filter, place) != 0);
            return accepted;
        };
        if binding.columns != self.id {
            *binding = self.bind(decisions);
        }
        if self.left[START as usize] != packets {
            self.left[START as usize] = packets;
            self.epoch += 1;
        }
        for &number in &binding.nodes {
            let node = &mut self.nodes[number as usize];
            if node.epoch == self.epoch {
                continue;
            }
            node.epoch = self.epoch;
            let here = union(&self.left, &node.from);
            let (mut yes, mut no) = (here, here);
            if !here.is_empty() {
                let column = &mut self.columns[node.column as usize];
                if column.batch != self.batch {
                    column.begin(self.batch);
                }
                let unknown = here.without(column.known);
                if !unknown.is_empty() {
                    column.look(self.frames.odd, places, unknown, &mut self.values);
                }
                yes = here.and(column.passed[node.test as usize]);
                no = here.without(yes).without(column.missing);
            }
            if let [when_true, when_false] = &mut self.left[2 * number as usize..][..2] {
                (*when_true, *when_false) = (yes, no);
            }
        }
        union(&self.left, &binding.accepted)
    }

    /// Finds, or adds, what a filter asks for.
    #[cold]
    fn bind(&mut self, decisions: &Decisions) -> Binding {
        // The ways to each test, and to the two ends.
        let mut ways: Vec<Vec<Edge>> = vec![Vec::new(); decisions.tests.len() + 2];
        ways[decisions.start as usize].push(START);
        let mut nodes = Vec::with_capacity(decisions.tests.len());
        for (at, test) in decisions.tests.iter().enumerate() {
            let next = self.columns.len() as u32;
            let column = *self.places.entry(Arc::clone(&test.value)).or_insert(next);
            if column == next {
                self.columns.push(Column::new(&test.value));
            }
            let number = self.columns[column as usize].add(test.is);
            let from = core::mem::take(&mut ways[at]);
            let next = self.nodes.len() as u32;
            let node = *self
                .numbers
                .entry((column, number, from.clone()))
                .or_insert(next);
            if node == next {
                self.nodes.push(Node {
                    column,
                    test: number,
                    from,
                    epoch: 0,
                });
                self.left.extend([Selection::NONE; 2]);
            }
            nodes.push(node);
            ways[test.when_true as usize].push(2 * node);
            ways[test.when_false as usize].push(2 * node + 1);
        }
        Binding {
            columns: self.id,
            nodes,
            accepted: ways.swap_remove(decisions.accepted() as usize),
        }
    }
}

/// Packets that took any of these ways.
#[inline]
fn union(left: &[Selection], ways: &[Edge]) -> Selection {
    let ways = ways.iter().filter_map(|&way| left.get(way as usize));
    ways.fold(Selection::NONE, |all, &way| all.or(way))
}

impl Column {
    fn new(value: &Arc<Value>) -> Column {
        Column {
            value: Arc::clone(value),
            field: Field::of(value),
            equal: Vec::new(),
            at_least: Vec::new(),
            table: Table::new(&[]),
            tests: Vec::new(),
            passed: vec![Selection::NONE],
            batch: 0,
            known: Selection::NONE,
            missing: Selection::NONE,
        }
    }

    /// The number of a test.
    fn add(&mut self, is: Is) -> u32 {
        let (list, number) = match is {
            Is::There => return 0,
            Is::Equal(number) => (&mut self.equal, number),
            Is::AtLeast(number) => (&mut self.at_least, number),
        };
        let test = self.passed.len() as u32;
        match list.binary_search_by_key(&number, |known| known.0) {
            Ok(known) => return list[known].1,
            Err(place) => list.insert(place, (number, test)),
        }
        self.passed.push(Selection::NONE);
        // What is known of the batch under way is not known of this.
        self.batch = 0;
        self.tests.clear();
        test
    }

    /// Nothing is known of a batch yet.
    #[inline(never)]
    fn begin(&mut self, batch: u64) {
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
        self.passed.fill(Selection::NONE);
        self.known = Selection::NONE;
        self.missing = Selection::NONE;
        self.batch = batch;
    }

    /// Looks at these packets, some of which are `odd`. `values` is memory. (Not inlined: the tests would have fewer registers.)
    #[inline(never)]
    fn look(
        &mut self,
        odd: Selection,
        places: Places<'_>,
        packets: Selection,
        values: &mut [u32; BATCH_SIZE],
    ) {
        /// What it costs to look a value up, in comparisons of one value with a number in a row of all.
        const LOOK_UP: usize = 12;
        self.known = self.known.or(packets);
        let (value, batch) = (&self.value, places.batch);
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
        let there = packets.without(missing);
        let tests = self.equal.len() + self.at_least.len();
        if tests * (BATCH_SIZE / LOOK_UP) > there.len() {
            there
                .iter()
                .for_each(|place| self.note(place, values[place]));
            return self.add_up();
        }
        for &(number, test) in &self.equal {
            let passed = &mut self.passed[test as usize];
            *passed = passed.or(there.and(Selection::of(values, |value| value == number)));
        }
        for &(number, test) in &self.at_least {
            let passed = &mut self.passed[test as usize];
            *passed = passed.or(there.and(Selection::of(values, |value| value >= number)));
        }
    }

    /// Who is above one number is above those below it.
    fn add_up(&mut self) {
        let mut above = Selection::NONE;
        for &(_, test) in self.at_least.iter().rev() {
            let passed = &mut self.passed[test as usize];
            *passed = passed.or(above);
            above = *passed;
        }
    }

    /// Which tests a packet's value passes.
    #[inline]
    fn note(&mut self, place: usize, number: u32) {
        if let Some(found) = self.table.find(number)
            && let Some(&test) = self.tests.get(found)
        {
            self.passed[test as usize].insert(place);
        }
        let below = self.at_least.partition_point(|known| known.0 <= number);
        if let Some(&(_, test)) = below.checked_sub(1).and_then(|at| self.at_least.get(at)) {
            self.passed[test as usize].insert(place);
        }
    }
}

/// A value that is a masked field of the packet.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// Where an IPv4 header is that is before it.
    header: Option<u32>,
    size: Operation,
    at: u32,
    /// What of a word there is no part of it.
    shift: u32,
    mask: u32,
}

impl Field {
    fn of(value: &Value) -> Option<Field> {
        let (load, mask) = match value {
            Value::Arithmetic(Operation::And, load, mask) => match **mask {
                Value::Constant(mask) => (&**load, mask),
                _ => return None,
            },
            load => (load, u32::MAX),
        };
        let &Value::Load(size, ref base, at) = load else {
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
            mask,
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
        let field = match batch.memory.get(start..start + 4) {
            Some(&[a, b, c, d]) if at + 4 <= packet.captured_len as usize => {
                u32::from_be_bytes([a, b, c, d]) >> self.shift
            }
            _ => load(&Plain(batch.bytes_of(packet)), self.size, base, self.at)?,
        };
        Some(field & self.mask)
    }
}

/// Whether this was decoded of the packet at a place of the batch.
#[inline]
fn is_at(packet: &Decoded, place: usize) -> bool {
    usize::from(packet.index) == place && !packet.flags.contains(DecodeFlags::REASSEMBLED)
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

impl Frames {
    #[inline(never)]
    fn look(&mut self, places: Places<'_>) {
        self.is_known = true;
        self.links.clear();
        self.odd = Selection::NONE;
        if let Some(link) = places.only_link() {
            let all = Selection::first(places.batch.len());
            return self.links.push((link, all));
        }
        let mut current = (LinkType::default(), Selection::NONE);
        let count = places
            .decoded
            .map_or(places.batch.len(), |it| it.packets.len());
        for place in 0..count {
            let link = match places.plain(place) {
                Some(descriptor) => descriptor.link,
                None => {
                    self.odd.insert(place);
                    places.packet(place).1.map_or(LinkType::RAW, |it| it.link)
                }
            };
            if link != current.0 {
                self.put(current);
                current = (link, Selection::NONE);
            }
            current.1.insert(place);
        }
        self.put(current);
    }

    /// Adds packets of a link type.
    fn put(&mut self, (link, packets): (LinkType, Selection)) {
        match self.links.iter_mut().find(|known| known.0 == link) {
            Some(known) => known.1 = known.1.or(packets),
            None if packets.is_empty() => {}
            None => self.links.push((link, packets)),
        }
    }
}

impl<'a> Places<'a> {
    /// The link type of all packets, if that is one, and all are plain.
    fn only_link(&self) -> Option<LinkType> {
        let packets = self.batch.packets;
        let link = packets.first()?.link;
        let has_tag = |packet: &PacketDescriptor| packet.flags.contains(PacketFlags::VLAN);
        let is_of_it = packets.iter().all(|it| it.link == link && !has_tag(it));
        let are_its = self.decoded.is_none_or(|decoded| {
            let mut all = decoded.packets.iter().enumerate();
            decoded.packets.len() == packets.len()
                && all.all(|(place, packet)| is_at(packet, place))
        });
        (is_of_it && are_its).then_some(link)
    }

    /// A packet that is in the batch's memory as it is to be seen.
    fn plain(&self, place: usize) -> Option<&'a PacketDescriptor> {
        let descriptor = self.batch.packets.get(place)?;
        let is_its = self.decoded.is_none_or(|decoded| {
            let packet = decoded.packets.get(place);
            packet.is_some_and(|packet| is_at(packet, place))
        });
        (is_its && !descriptor.flags.contains(PacketFlags::VLAN)).then_some(descriptor)
    }

    /// The bytes of a packet, what the source says of it, and its length on the wire. The source says nothing of a datagram
    /// that was put together.
    #[inline]
    fn packet(&self, place: usize) -> (&'a [u8], Option<&'a PacketDescriptor>, u32) {
        let decoded = self.decoded.and_then(|decoded| decoded.packets.get(place));
        if let Some(packet) = decoded.filter(|it| it.flags.contains(DecodeFlags::REASSEMBLED)) {
            let bytes = self
                .decoded
                .map_or(&[][..], |decoded| decoded.bytes(self.batch, packet));
            return (bytes, None, packet.ip_len);
        }
        let index = decoded.map_or(place, |packet| usize::from(packet.index));
        match self.batch.packets.get(index) {
            Some(descriptor) => (
                self.batch.bytes_of(descriptor),
                Some(descriptor),
                descriptor.wire_len,
            ),
            None => (&[], None, 0),
        }
    }

    /// A value of a packet that is not in the batch's memory as it is to be seen.
    #[cold]
    fn value(&self, value: &Value, place: usize) -> Option<u32> {
        let (bytes, descriptor, wire_len) = self.packet(place);
        let tagged = descriptor.and_then(|of| {
            let has_tag = of.flags.contains(PacketFlags::VLAN);
            has_tag.then(|| Tagged::new(bytes, of.link, of.vlan_tpid, of.vlan_tci))?
        });
        match tagged {
            Some(view) => value.of(&view, wire_len),
            None => value.of(&Plain(bytes), wire_len),
        }
    }

    /// What a filter says of a packet that it looks at alone.
    fn verdict(&self, filter: &Filter, place: usize) -> u32 {
        let (bytes, descriptor, wire_len) = self.packet(place);
        match descriptor {
            Some(descriptor) => filter.verdict_on(bytes, descriptor),
            None => filter.verdict(bytes, wire_len),
        }
    }
}

#[cfg(test)]
mod tests;
