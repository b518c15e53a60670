//! Groups records by any of their fields and sums others: `--by dst_port --sum bytes`. Means, minima and maxima are
//! also available ([`Measure`]).
//!
//! A key is a field of the schema; an address may have a prefix length (`src_ip/24`). A sum is a field with whole
//! numbers or a duration, or a name for both directions: `bytes` is `src_bytes + dst_bytes`. The memory for groups is
//! bounded: when it is full, the smaller half is dropped, and counted.

mod collect;
mod measure;

use core::hash::Hash;
use std::collections::HashMap;
use std::fmt;

use flowgauge_wire::{Address, Nanos};

use collect::Collector;
pub use measure::Measure;

use crate::schema::{Field, FieldKind, FieldVisitor, MadeField, Record, Schema, Unit, kept};
use crate::value::{Numbers, Texts};
use crate::words::instead_of;

/// Bytes of memory for groups, unless set otherwise.
const DEFAULT_MEMORY: u64 = 256 << 20;

/// Why a specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AggregateError {
    /// A key is not the name of a field.
    UnknownKey {
        /// The given name.
        name: String,
        /// The valid names.
        known: Vec<&'static str>,
    },
    /// A sum, or another measure, is not the name of a field with amounts.
    UnknownSum {
        /// The measure.
        measure: Measure,
        /// The given name.
        name: String,
        /// The valid names.
        known: Vec<&'static str>,
    },
    /// A prefix length is out of range, or its field is not an address.
    BadPrefix {
        /// The given key.
        key: String,
    },
    /// A key or a sum is given twice, so that two fields of a record would have the same name.
    Repeated {
        /// The repeated name.
        name: String,
    },
}

impl fmt::Display for AggregateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AggregateError::UnknownKey { name, .. } => write!(f, "no field \"{name}\" to group by"),
            AggregateError::UnknownSum {
                measure: Measure::Sum,
                name,
                ..
            } => write!(f, "no field \"{name}\" to sum"),
            AggregateError::UnknownSum { measure, name, .. } => {
                write!(f, "no field \"{name}\" that has a {}", measure.name())
            }
            AggregateError::BadPrefix { key } => {
                write!(
                    f,
                    "\"{key}\": a prefix length needs an address and 0 to 128 bits"
                )
            }
            AggregateError::Repeated { name } => write!(f, "\"{name}\" is given twice"),
        }
    }
}

impl std::error::Error for AggregateError {}

impl AggregateError {
    /// What to specify instead.
    pub fn hint(&self) -> String {
        match self {
            AggregateError::UnknownKey { name, known }
            | AggregateError::UnknownSum { name, known, .. } => {
                let listed = "\"flowgauge fields\" lists the fields of records";
                instead_of(name, known.iter().copied(), listed)
            }
            AggregateError::BadPrefix { .. } => "for example src_ip/24".to_owned(),
            AggregateError::Repeated { .. } => "name each field once".to_owned(),
        }
    }
}

/// The keys, sums and number of groups to show.
#[derive(Clone, Debug)]
pub struct AggregateSpec {
    schema: Schema,
    keys: Vec<Key>,
    sums: Vec<Sum>,
    count: &'static Field,
    order: Order,
    /// Of which keys each value has largest groups of its own.
    within: Vec<u8>,
    memory_bytes: u64,
}

fn first_repeated(names: &[String]) -> Option<&str> {
    let mut seen = names.iter().enumerate();
    let (_, name) = seen.find(|(at, name)| names.iter().take(*at).any(|one| one == *name))?;
    Some(name)
}

#[derive(Clone, Debug)]
struct Key {
    field: &'static Field,
    prefix: Option<u8>,
}

#[derive(Clone, Debug)]
struct Sum {
    measure: Measure,
    field: &'static Field,
    of: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Count,
    Sum(usize),
}

impl AggregateSpec {
    /// Groups of records of `schema` by `keys`, with `sums`, ordered by the first sum. `count_name` is the name of the
    /// field that counts the records of a group; a sum with that name orders by it.
    ///
    /// # Errors
    /// A name is not in the schema, or given twice.
    pub fn new(
        schema: Schema,
        keys: &[String],
        sums: &[String],
        count_name: &'static str,
    ) -> Result<AggregateSpec, AggregateError> {
        if let Some(name) = first_repeated(keys).or_else(|| first_repeated(sums)) {
            return Err(AggregateError::Repeated {
                name: name.to_owned(),
            });
        }
        let keys = keys
            .iter()
            .map(|key| Key::parse(schema, key))
            .collect::<Result<Vec<Key>, AggregateError>>()?;
        let mut order = None;
        let mut parsed = Vec::new();
        for name in sums {
            if name == count_name {
                order.get_or_insert(Order::Count);
                continue;
            }
            order.get_or_insert(Order::Sum(parsed.len()));
            parsed.push(Sum::parse(schema, Measure::Sum, name)?);
        }
        Ok(AggregateSpec {
            schema,
            keys,
            sums: parsed,
            count: made(count_name, FieldKind::Unsigned, Unit::None, count_name, 3),
            order: order.unwrap_or(Order::Count),
            within: Vec::new(),
            memory_bytes: DEFAULT_MEMORY,
        })
    }

    /// The schema of records.
    pub fn input(&self) -> Schema {
        self.schema
    }

    /// The fields of the rows: keys, the count, sums.
    fn output(&self) -> Schema {
        let keys = self.keys.iter().map(|key| key.field);
        let sums = self.sums.iter().map(|sum| sum.field);
        kept(keys.chain([self.count]).chain(sums))
    }

    /// What each field of the schema does, by position.
    fn actions(&self) -> Vec<Action> {
        let action = |field: &&'static Field| Action {
            keys: (0..)
                .zip(&self.keys)
                .filter(|(_, key)| key.source_name() == field.name)
                .map(|(slot, key)| (slot, key.prefix))
                .collect(),
            sums: (0..)
                .zip(&self.sums)
                .filter(|(_, sum)| sum.of.contains(&field.name))
                .map(|(slot, _)| slot)
                .collect(),
        };
        self.schema.iter().map(action).collect()
    }

    /// Adds measures other than sums.
    ///
    /// # Errors
    /// A name is not in the schema, or given twice.
    pub fn measured(
        mut self,
        measure: Measure,
        names: &[String],
    ) -> Result<AggregateSpec, AggregateError> {
        if let Some(name) = first_repeated(names) {
            return Err(AggregateError::Repeated {
                name: name.to_owned(),
            });
        }
        for name in names {
            self.sums.push(Sum::parse(self.schema, measure, name)?);
        }
        Ok(self)
    }

    /// Selects the largest groups for each value of these keys.
    ///
    /// # Errors
    /// A name is not one of the keys, or given twice.
    pub fn within(mut self, names: &[String]) -> Result<AggregateSpec, AggregateError> {
        if let Some(name) = first_repeated(names) {
            return Err(AggregateError::Repeated {
                name: name.to_owned(),
            });
        }
        for name in names {
            let mut keys = (0..).zip(&self.keys);
            let Some((slot, _)) = keys.find(|(_, key)| key.field.name == name) else {
                return Err(AggregateError::UnknownKey {
                    name: name.clone(),
                    known: self.keys.iter().map(|key| key.field.name).collect(),
                });
            };
            self.within.push(slot);
        }
        Ok(self)
    }

    /// Bounds the memory for groups during counting.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> AggregateSpec {
        self.memory_bytes = bytes;
        self
    }
}

impl Key {
    fn parse(schema: Schema, text: &str) -> Result<Key, AggregateError> {
        let (name, prefix) = match text.split_once('/') {
            Some((name, bits)) => (name, Some(bits)),
            None => (text, None),
        };
        let Some(field) = schema.iter().find(|field| field.name == name) else {
            return Err(AggregateError::UnknownKey {
                name: name.to_owned(),
                known: schema.iter().map(|field| field.name).collect(),
            });
        };
        let heading = match field.column.heading {
            "" => field.name,
            heading => heading,
        };
        let Some(bits) = prefix else {
            return Ok(Key {
                field: made(text, field.kind, field.unit, heading, KEY_RANK),
                prefix: None,
            });
        };
        match bits.parse() {
            Ok(bits @ 0..=128) if field.kind == FieldKind::Address => Ok(Key {
                field: made(text, FieldKind::Text, Unit::None, heading, KEY_RANK),
                prefix: Some(bits),
            }),
            _ => Err(AggregateError::BadPrefix {
                key: text.to_owned(),
            }),
        }
    }

    fn source_name(&self) -> &'static str {
        match self.field.name.split_once('/') {
            Some((name, _)) => name,
            None => self.field.name,
        }
    }
}

impl Sum {
    fn new(measure: Measure, name: &str, amount: &Field, of: Vec<&'static str>) -> Sum {
        let name = measure.field_name(name);
        let kind = measure.kind(amount.kind);
        Sum {
            measure,
            field: made(&name, kind, amount.unit, &name, 2),
            of,
        }
    }

    fn parse(schema: Schema, measure: Measure, name: &str) -> Result<Sum, AggregateError> {
        let summable = |wanted: &str| {
            let mut amounts = schema.iter().filter(|field| field.is_amount());
            amounts.find(|field| field.name == wanted)
        };
        if let Some(field) = summable(name) {
            return Ok(Sum::new(measure, name, field, vec![field.name]));
        }
        if let Some((source, destination)) = halves(schema, name)
            && source.is_amount()
        {
            let both = vec![source.name, destination.name];
            return Ok(Sum::new(measure, name, source, both));
        }
        let mut known: Vec<&'static str> = Vec::new();
        for field in schema.iter() {
            if field.is_amount() {
                known.push(field.name);
                if let Some(half) = field.name.strip_prefix("src_") {
                    known.push(half);
                }
            }
        }
        Err(AggregateError::UnknownSum {
            measure,
            name: name.to_owned(),
            known,
        })
    }
}

/// The fields of both directions, `src_` and `dst_`, for a common name: those for `bytes` are `src_bytes` and
/// `dst_bytes`.
pub fn halves(schema: Schema, name: &str) -> Option<(&'static Field, &'static Field)> {
    let find = |side: &str| {
        let mut fields = schema.iter();
        fields.find(|field| field.name.strip_prefix(side) == Some(name))
    };
    Some((find("src_")?, find("dst_")?))
}

/// Keys are in every table: without them groups look alike.
const KEY_RANK: u8 = 1;

/// A field of the rows.
fn made(name: &str, kind: FieldKind, unit: Unit, heading: &str, rank: u8) -> &'static Field {
    let made = MadeField {
        name: name.to_owned(),
        kind,
        unit,
        heading: heading.to_uppercase(),
        rank,
        exact: true,
        help: String::new(),
    };
    made.kept()
}

/// Groups records according to a specification.
#[derive(Clone, Debug)]
pub struct Aggregator {
    spec: AggregateSpec,
    /// The schemas of records, and what each field does, by position.
    kinds: Vec<(Schema, Vec<Action>)>,
    /// Which of them the next record has.
    kind: usize,
    groups: HashMap<Box<[u8]>, Group>,
    key: Vec<u8>,
    /// Of the record at hand, by place in the specification's.
    amounts: Vec<Option<u64>>,
    /// Bytes of memory that the groups take.
    bytes: u64,
    pruned: u64,
}

#[derive(Clone, Debug, Default)]
struct Action {
    keys: Vec<(u8, Option<u8>)>,
    sums: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Group {
    records: u64,
    /// Those of the first sum, or other measure, first.
    cells: Box<[u64]>,
}

impl Group {
    /// The numbers of each sum or other measure.
    fn measures<'a>(
        cells: &'a [u64],
        sums: &'a [Sum],
    ) -> impl Iterator<Item = (&'a Sum, &'a [u64])> {
        let mut rest = cells;
        sums.iter().map(move |sum| {
            let (cells, behind) = rest.split_at(sum.measure.cells().min(rest.len()));
            rest = behind;
            (sum, cells)
        })
    }

    /// Adds a record with these amounts, or another group's numbers.
    fn add(&mut self, sums: &[Sum], mut more: impl FnMut(usize, usize) -> [u64; 2]) {
        let (mut rest, mut first) = (&mut *self.cells, 0);
        for (place, sum) in sums.iter().enumerate() {
            let length = sum.measure.cells();
            let Some((cells, behind)) = rest.split_at_mut_checked(length) else {
                return;
            };
            let [value, count] = more(place, first);
            match length {
                1 => sum.measure.add(cells, &[value]),
                _ => sum.measure.add(cells, &[value, count]),
            }
            rest = behind;
            first += length;
        }
    }
}

/// Bytes of memory of a group: the key, the sums, and their places in a table that may be half
/// empty and in the list that sorts them.
fn cost(key: &[u8], sums: usize) -> u64 {
    const PLACES: usize = 2 * size_of::<(Box<[u8]>, Group)>() + size_of::<(&[u8], &Group)>();
    (key.len() + sums * size_of::<u64>() + PLACES) as u64
}

impl Aggregator {
    /// An aggregator without groups.
    pub fn new(spec: AggregateSpec) -> Aggregator {
        Aggregator {
            amounts: vec![None; spec.sums.len()],
            kinds: vec![(spec.schema, spec.actions())],
            kind: 0,
            spec,
            groups: HashMap::new(),
            key: Vec::new(),
            bytes: 0,
            pruned: 0,
        }
    }

    /// Changes to the schema of another specification for the following records. Returns whether the groups stay the
    /// same.
    pub fn turn_to(&mut self, spec: &AggregateSpec) -> bool {
        let mut kinds = self.kinds.iter();
        let known = kinds.position(|(schema, _)| core::ptr::eq(*schema, spec.schema));
        if known.is_none() {
            if !core::ptr::eq(spec.output(), self.spec.output()) {
                return false;
            }
            self.kinds.push((spec.schema, spec.actions()));
        }
        self.kind = known.unwrap_or(self.kinds.len() - 1);
        true
    }

    /// Adds one record.
    pub fn add<R: Record>(&mut self, record: &R) {
        self.key.clear();
        self.amounts.fill(None);
        let Some((_, actions)) = self.kinds.get(self.kind) else {
            return;
        };
        record.visit(&mut Collector {
            actions: actions.iter(),
            key: &mut self.key,
            amounts: &mut self.amounts,
        });
        let (sums, amounts) = (&self.spec.sums, &self.amounts);
        let amount = |place: usize, _| {
            let amount = amounts.get(place).copied().flatten();
            [amount.unwrap_or(0), u64::from(amount.is_some())]
        };
        if let Some(group) = self.groups.get_mut(self.key.as_slice()) {
            group.records += 1;
            return group.add(sums, amount);
        }
        let mut group = Group {
            records: 1,
            cells: vec![0; sums.iter().map(|sum| sum.measure.cells()).sum()].into(),
        };
        group.add(sums, amount);
        self.insert(self.key.as_slice().into(), group);
    }

    /// Number of groups dropped because memory was full.
    pub fn pruned(&self) -> u64 {
        self.pruned
    }

    /// The fields of the rows: keys, count, sums.
    pub fn schema(&self) -> Schema {
        self.spec.output()
    }

    /// Adds the groups and the memory bound of another aggregator; both must have been created from the same
    /// specification.
    pub fn merge(&mut self, other: Aggregator) {
        let memory = other.spec.memory_bytes;
        self.spec.memory_bytes = self.spec.memory_bytes.saturating_add(memory);
        for (key, group) in in_order(other.groups) {
            match self.groups.get_mut(&key) {
                Some(mine) => {
                    mine.records += group.records;
                    let cell = |place| group.cells.get(place).copied().unwrap_or(0);
                    mine.add(&self.spec.sums, |_, first| [cell(first), cell(first + 1)]);
                }
                None => self.insert(key, group),
            }
        }
        self.pruned += other.pruned;
    }

    /// The largest `top` groups (`None`: all), largest first; equal ones in the order of their keys. If they were
    /// selected for each value of some keys ([`AggregateSpec::within`]), those with one value are adjacent, and values
    /// are in the order of their largest groups.
    pub fn rows(&self, top: Option<usize>) -> Vec<AggregateRow<'_>> {
        let mut groups: Vec<(&[u8], &Group)> = self
            .groups
            .iter()
            .map(|(key, group)| (&**key, group))
            .collect();
        groups.sort_unstable_by(|(key, group), (other_key, other)| {
            weigh(self.spec.order, other)
                .cmp(&weigh(self.spec.order, group))
                .then_with(|| key.cmp(other_key))
        });
        let top = top.unwrap_or(usize::MAX);
        if self.spec.within.is_empty() {
            groups.truncate(top);
        } else {
            groups = self.largest_within(groups, top);
        }
        groups
            .into_iter()
            .map(|(key, group)| AggregateRow {
                spec: &self.spec,
                key,
                group,
            })
            .collect()
    }

    /// Of sorted groups the first of each value, value by value.
    fn largest_within<'a>(
        &self,
        groups: Vec<(&'a [u8], &'a Group)>,
        top: usize,
    ) -> Vec<(&'a [u8], &'a Group)> {
        // By the parts of their keys.
        let mut places: HashMap<Vec<&[u8]>, usize> = HashMap::new();
        let mut lists: Vec<Vec<(&[u8], &Group)>> = Vec::new();
        for (key, group) in groups {
            let parts = parts(key).filter(|part| {
                let slot = part.first();
                slot.is_some_and(|slot| self.spec.within.contains(slot))
            });
            let place = *places.entry(parts.collect()).or_insert(lists.len());
            if place == lists.len() {
                lists.push(Vec::new());
            }
            if let Some(list) = lists.get_mut(place).filter(|list| list.len() < top) {
                list.push((key, group));
            }
        }
        lists.into_iter().flatten().collect()
    }

    /// Adds a group that is not there yet.
    fn insert(&mut self, key: Box<[u8]>, group: Group) {
        let cost = cost(&key, group.cells.len());
        while self.bytes + cost > self.spec.memory_bytes && self.groups.len() > 1 {
            self.prune();
        }
        self.bytes += cost;
        self.groups.insert(key, group);
    }

    #[cold]
    fn prune(&mut self) {
        let (order, before) = (self.spec.order, self.groups.len());
        let bytes = &mut self.bytes;
        drop_smaller_half(
            &mut self.groups,
            |group| weigh(order, group),
            |key, group| *bytes -= cost(key, group.cells.len()),
        );
        self.pruned += (before - self.groups.len()) as u64;
    }
}

/// Removes the half of the entries with the smallest weights; of equal ones, those with the smallest keys, so that the
/// result does not depend on the table's hash. Calls `dropped` for each.
#[cold]
pub fn drop_smaller_half<K: Clone + Eq + Hash + Ord, V, S>(
    entries: &mut HashMap<K, V, S>,
    weight: impl Fn(&V) -> u64,
    mut dropped: impl FnMut(&K, &V),
) {
    let mut all: Vec<(u64, &K)> = entries.iter().map(|(key, it)| (weight(it), key)).collect();
    let middle = all.len() / 2;
    if middle == 0 {
        return;
    }
    let (_, &mut (least, key), _) = all.select_nth_unstable(middle);
    let first = key.clone();
    entries.retain(|key, entry| {
        let stays = (weight(entry), key) >= (least, &first);
        if !stays {
            dropped(key, entry);
        }
        stays
    });
}

/// A table's entries in the order of their keys, for callers that may drop some while processing them.
pub fn in_order<K: Ord, V>(entries: HashMap<K, V>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = entries.into_iter().collect();
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

/// What groups are ordered by.
fn weigh(order: Order, group: &Group) -> u64 {
    match order {
        Order::Count => group.records,
        Order::Sum(slot) => group.cells.get(slot).copied().unwrap_or(0),
    }
}

/// Kinds of values in a key, in front of the value's bytes.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const UNSIGNED: u8 = 1;
    pub(super) const TEXT: u8 = 2;
    pub(super) const HEX: u8 = 3;
    pub(super) const ADDRESS: u8 = 4;
    pub(super) const TIME: u8 = 5;
    pub(super) const DURATION: u8 = 6;
    pub(super) const LIST: u8 = 7;
    pub(super) const PREFIX: u8 = 8;
    pub(super) const FLOAT: u8 = 9;
    pub(super) const TEXTS: u8 = 10;
}

/// One group: its keys, the number of its records, its sums and other measures.
#[derive(Clone, Copy, Debug)]
pub struct AggregateRow<'a> {
    spec: &'a AggregateSpec,
    key: &'a [u8],
    group: &'a Group,
}

impl Record for AggregateRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (slot, key) in (0..).zip(&self.spec.keys) {
            match values(self.key).find(|value| value.0 == slot) {
                Some((_, tag, bytes)) => visit_key(visitor, key.field, tag, bytes),
                None => visitor.null(key.field),
            }
        }
        visitor.unsigned(self.spec.count, self.group.records);
        for (sum, cells) in Group::measures(&self.group.cells, &self.spec.sums) {
            sum.measure.visit(sum.field, cells, visitor);
        }
    }
}

/// Takes a key apart again: slot, tag and bytes of each value.
fn values(key: &[u8]) -> impl Iterator<Item = (u8, u8, &[u8])> {
    parts(key).filter_map(|part| {
        let (&[slot, tag, ..], bytes) = part.split_first_chunk::<4>()?;
        Some((slot, tag, bytes))
    })
}

/// The parts of a key, each of a slot.
fn parts(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = key;
    core::iter::from_fn(move || {
        let (&[_, _, low, high], _) = rest.split_first_chunk()?;
        let length = 4 + usize::from(u16::from_le_bytes([low, high]));
        let (part, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(part)
    })
}

fn visit_key<V: FieldVisitor>(visitor: &mut V, field: &'static Field, tag: u8, bytes: &[u8]) {
    let number = || bytes.try_into().map_or(0, u64::from_be_bytes);
    match tag {
        tag::UNSIGNED => visitor.unsigned(field, number()),
        tag::FLOAT => visitor.float(field, f64::from_bits(number())),
        tag::HEX => visitor.hex(field, number()),
        tag::TIME => visitor.time(field, Nanos(number())),
        tag::DURATION => visitor.duration(field, Nanos(number())),
        tag::TEXT => visitor.text(field, core::str::from_utf8(bytes).unwrap_or("")),
        tag::ADDRESS | tag::PREFIX => {
            let Some((&version, rest)) = bytes.split_first() else {
                return visitor.null(field);
            };
            let Some((&address, rest)) = rest.split_first_chunk() else {
                return visitor.null(field);
            };
            match rest.first() {
                None => visitor.address(field, Address(address), version),
                Some(bits) => {
                    let network = Address(address).to_ip(version);
                    visitor.text(field, &format!("{network}/{bits}"));
                }
            }
        }
        tag::LIST => {
            let (values, _) = bytes.as_chunks::<4>();
            let list: Vec<u32> = values.iter().copied().map(u32::from_be_bytes).collect();
            visitor.list(field, Numbers::U32(&list));
        }
        tag::TEXTS => {
            let mut texts = Vec::new();
            let mut rest = bytes;
            while let Some((&length, behind)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(length)).min(behind.len());
                let (text, behind) = behind.split_at(length);
                texts.push(String::from_utf8_lossy(text).into_owned());
                rest = behind;
            }
            visitor.texts(field, Texts::Strings(&texts));
        }
        _ => visitor.null(field),
    }
}

#[cfg(test)]
mod tests;
