//! Records of any kind, stored in sequence.
//!
//! An [`crate::OwnedRecord`] has its own memory. If many records are stored for a short time, as on
//! their way to another thread, they are put into a store, whose memory is reused for the next batch.

use core::ops::Range;

use flowgauge_wire::{Address, Nanos};

use crate::any::{AnyObject, AnyRecord, KnownRecord};
use crate::schema::{Field, FieldVisitor, Record, Schema};
use crate::value::{Numbers, Texts, ValueRef};

/// Copies of records.
#[derive(Clone, Debug, Default)]
pub struct RecordStore {
    records: Vec<Entry>,
    values: Vec<StoredValue>,
    /// Of objects within records: a field and its value each.
    members: Vec<Member>,
    text: String,
    lists: Vec<u64>,
    /// Of lists of texts: where in the text the first one begins, and where each ends.
    ends: Vec<usize>,
}

/// A field of an object, and its value.
type Member = (&'static Field, StoredValue);

#[derive(Clone, Debug)]
struct Entry {
    schema: Schema,
    values: Range<usize>,
}

/// A part of one of the store's columns.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: usize,
    end: usize,
}

impl Part {
    fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum StoredValue {
    #[default]
    Null,
    Unsigned(u64),
    Float(f64),
    Text(Part),
    Symbol(Part),
    Hex(u64),
    Address(Address, u8),
    Time(Nanos),
    Duration(Nanos),
    List(Part),
    Texts(Part),
    Object(Option<Part>),
}

impl RecordStore {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.records.len() * size_of::<Entry>()
            + self.values.len() * size_of::<StoredValue>()
            + self.members.len() * size_of::<Member>()
            + self.text.len()
            + self.lists.len() * size_of::<u64>()
            + self.ends.len() * size_of::<usize>()
    }

    /// Stores a copy of a record.
    pub fn push(&mut self, record: &dyn AnyRecord) {
        let start = self.values.len();
        record.values(&mut Filling(self));
        self.records.push(Entry {
            schema: record.schema(),
            values: start..self.values.len(),
        });
    }

    /// A record, by its index in the order of arrival.
    pub fn get(&self, index: usize) -> Option<StoredRecord<'_>> {
        let kept = self.records.get(index)?;
        Some(StoredRecord { store: self, kept })
    }

    /// Removes all records; their memory is reused.
    pub fn clear(&mut self) {
        self.records.clear();
        self.values.clear();
        self.members.clear();
        self.text.clear();
        self.lists.clear();
        self.ends.clear();
    }

    fn keep(&mut self, value: ValueRef<'_>) -> StoredValue {
        match value {
            ValueRef::Null => StoredValue::Null,
            ValueRef::Unsigned(value) => StoredValue::Unsigned(value),
            ValueRef::Float(value) => StoredValue::Float(value),
            ValueRef::Text(text) => StoredValue::Text(self.text(text)),
            ValueRef::Symbol(text) => StoredValue::Symbol(self.text(text)),
            ValueRef::Hex(value) => StoredValue::Hex(value),
            ValueRef::Address(address, version) => StoredValue::Address(address, version),
            ValueRef::Time(time) => StoredValue::Time(time),
            ValueRef::Duration(span) => StoredValue::Duration(span),
            ValueRef::List(list) => {
                let start = self.lists.len();
                self.lists.extend(list.iter());
                let end = self.lists.len();
                StoredValue::List(Part { start, end })
            }
            ValueRef::Texts(list) => {
                let start = self.ends.len();
                self.ends.push(self.text.len());
                for text in list.iter() {
                    let end = self.text(text).end;
                    self.ends.push(end);
                }
                let end = self.ends.len();
                StoredValue::Texts(Part { start, end })
            }
            ValueRef::Object(object) => {
                StoredValue::Object(object.map(|object| self.object(object)))
            }
        }
    }

    fn text(&mut self, text: &str) -> Part {
        let start = self.text.len();
        self.text.push_str(text);
        let end = self.text.len();
        Part { start, end }
    }

    fn object(&mut self, object: &dyn AnyObject) -> Part {
        let mut all = Members(self, Vec::new());
        object.values(&mut all);
        // Objects within it stand in front of it.
        let Members(_, all) = all;
        let start = self.members.len();
        self.members.extend(all);
        let end = self.members.len();
        Part { start, end }
    }

    /// Hands a value to `take`, which may not keep it: objects are made for it.
    fn with(&self, value: StoredValue, take: impl FnOnce(ValueRef<'_>)) {
        match value {
            StoredValue::Object(Some(at)) => {
                take(ValueRef::Object(Some(&StoredObject { store: self, at })));
            }
            value => take(self.value(value)),
        }
    }

    #[inline]
    fn value(&self, value: StoredValue) -> ValueRef<'_> {
        let text = |at: Part| self.text.get(at.range()).unwrap_or_default();
        match value {
            StoredValue::Null => ValueRef::Null,
            StoredValue::Unsigned(value) => ValueRef::Unsigned(value),
            StoredValue::Float(value) => ValueRef::Float(value),
            StoredValue::Text(at) => ValueRef::Text(text(at)),
            StoredValue::Symbol(at) => ValueRef::Symbol(text(at)),
            StoredValue::Hex(value) => ValueRef::Hex(value),
            StoredValue::Address(address, version) => ValueRef::Address(address, version),
            StoredValue::Time(time) => ValueRef::Time(time),
            StoredValue::Duration(span) => ValueRef::Duration(span),
            StoredValue::List(at) => {
                ValueRef::List(Numbers::U64(self.lists.get(at.range()).unwrap_or_default()))
            }
            StoredValue::Texts(at) => {
                let (&start, ends) = (self.ends.get(at.range()))
                    .and_then(<[usize]>::split_first)
                    .unwrap_or((&0, &[]));
                let text = &self.text;
                ValueRef::Texts(Texts::Joined { text, start, ends })
            }
            StoredValue::Object(_) => ValueRef::Object(None),
        }
    }
}

/// Keeps the values of a record.
struct Filling<'a>(&'a mut RecordStore);

impl FieldVisitor for Filling<'_> {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        let kept = self.0.keep(value);
        self.0.values.push(kept);
    }
}

/// Keeps the values of an object.
struct Members<'a>(&'a mut RecordStore, Vec<Member>);

impl FieldVisitor for Members<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let kept = self.0.keep(value);
        self.1.push((field, kept));
    }
}

/// A record of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoredRecord<'a> {
    store: &'a RecordStore,
    kept: &'a Entry,
}

impl Record for StoredRecord<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let values = self.store.values.get(self.kept.values.clone());
        let values = values.unwrap_or_default().iter().copied();
        let missing = core::iter::repeat(StoredValue::Null);
        for (field, value) in self.kept.schema.iter().copied().zip(values.chain(missing)) {
            (self.store).with(value, |value| visitor.value(field, value));
        }
    }
}

impl KnownRecord for StoredRecord<'_> {
    fn schema(&self) -> Schema {
        self.kept.schema
    }
}

impl<'a> StoredRecord<'a> {
    /// The value of a field, by index in the schema; null for an object.
    #[inline]
    pub fn value(&self, place: usize) -> ValueRef<'a> {
        self.store.value(self.stored(place))
    }

    /// The value of a field of the object at this index of the record.
    pub fn value_within(&self, place: usize, name: &str) -> ValueRef<'a> {
        let StoredValue::Object(Some(at)) = self.stored(place) else {
            return ValueRef::Null;
        };
        let mut members = self.store.members.get(at.range()).into_iter().flatten();
        let found = members.find(|(field, _)| field.name == name);
        self.store.value(found.map(|it| it.1).unwrap_or_default())
    }

    #[inline]
    fn stored(&self, place: usize) -> StoredValue {
        let at = self.kept.values.start + place;
        match at < self.kept.values.end {
            true => self.store.values.get(at).copied().unwrap_or_default(),
            false => StoredValue::Null,
        }
    }
}

struct StoredObject<'a> {
    store: &'a RecordStore,
    at: Part,
}

impl Record for StoredObject<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let members = self.store.members.get(self.at.range()).unwrap_or_default();
        for (field, value) in members {
            (self.store).with(*value, |value| visitor.value(field, value));
        }
    }
}
