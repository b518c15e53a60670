//! Records of any kind, kept one behind the other.
//!
//! An [`crate::OwnedRecord`] has memory of its own. Where many records are kept for a short time, as on
//! their way to another thread, a store takes them all: what a batch of records needed serves the next.

use core::ops::Range;

use flowgauge_wire::{Address, Nanos};

use crate::any::{AnyObject, AnyRecord, KnownRecord, ValueRef, ValueVisitor};
use crate::schema::{Field, FieldVisitor, Record, Schema};

/// Copies of records.
#[derive(Clone, Debug, Default)]
pub struct RecordStore {
    records: Vec<Entry>,
    values: Vec<StoredValue>,
    /// Of objects within records: a field and its value each.
    members: Vec<(Option<&'static Field>, StoredValue)>,
    text: String,
    bytes: Vec<u8>,
    lists: Vec<u64>,
    /// Of lists of texts: where each text is.
    pieces: Vec<Part>,
}

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
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of memory that the records take.
    pub fn bytes(&self) -> usize {
        self.records.len() * size_of::<Entry>()
            + self.values.len() * size_of::<StoredValue>()
            + self.members.len() * size_of::<(Option<&'static Field>, StoredValue)>()
            + self.text.len()
            + self.bytes.len()
            + self.lists.len() * size_of::<u64>()
            + self.pieces.len() * size_of::<Part>()
    }

    /// Keeps a copy of a record.
    pub fn push(&mut self, record: &dyn AnyRecord) {
        let start = self.values.len();
        record.values(&mut Filling(self));
        self.records.push(Entry {
            schema: record.schema(),
            values: start..self.values.len(),
        });
    }

    /// A record, in the order in which they came.
    pub fn get(&self, index: usize) -> Option<StoredRecord<'_>> {
        let kept = self.records.get(index)?;
        Some(StoredRecord { store: self, kept })
    }

    /// Forgets all of them; their memory serves the next ones.
    pub fn clear(&mut self) {
        self.records.clear();
        self.values.clear();
        self.members.clear();
        self.text.clear();
        self.bytes.clear();
        self.lists.clear();
        self.pieces.clear();
    }

    fn keep(&mut self, value: ValueRef<'_>) -> StoredValue {
        match value {
            ValueRef::Null => StoredValue::Null,
            ValueRef::Unsigned(value) => StoredValue::Unsigned(value),
            ValueRef::Float(value) => StoredValue::Float(value),
            ValueRef::Text(text) => StoredValue::Text(self.text(text)),
            ValueRef::Symbol(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                let end = self.bytes.len();
                StoredValue::Symbol(Part { start, end })
            }
            ValueRef::Hex(value) => StoredValue::Hex(value),
            ValueRef::Address(address, version) => StoredValue::Address(address, version),
            ValueRef::Time(time) => StoredValue::Time(time),
            ValueRef::Duration(span) => StoredValue::Duration(span),
            ValueRef::List(list) => {
                let start = self.lists.len();
                self.lists.extend_from_slice(list);
                let end = self.lists.len();
                StoredValue::List(Part { start, end })
            }
            ValueRef::Texts(list) => {
                let start = self.pieces.len();
                for text in list {
                    let piece = self.text(text);
                    self.pieces.push(piece);
                }
                let end = self.pieces.len();
                StoredValue::Texts(Part { start, end })
            }
            ValueRef::Object(object) => {
                StoredValue::Object(object.map(|object| self.object(object)))
            }
        }
    }

    fn text_at(&self, at: Part) -> &str {
        self.text.get(at.range()).unwrap_or_default()
    }

    fn text(&mut self, text: &str) -> Part {
        let start = self.text.len();
        self.text.push_str(text);
        let end = self.text.len();
        Part { start, end }
    }

    fn object(&mut self, object: &dyn AnyObject) -> Part {
        // Objects within it stand behind it.
        let mut members = Counting(0);
        object.values(&mut members);
        let start = self.members.len();
        let end = start + members.0;
        self.members.resize(end, (None, StoredValue::Null));
        object.values(&mut FillingObject { store: self, start });
        Part { start, end }
    }

    fn visit<V: FieldVisitor>(&self, visitor: &mut V, field: &'static Field, value: StoredValue) {
        match value {
            StoredValue::Null => visitor.null(field),
            StoredValue::Unsigned(value) => visitor.unsigned(field, value),
            StoredValue::Float(value) => visitor.float(field, value),
            StoredValue::Text(at) => {
                visitor.text(field, self.text_at(at));
            }
            StoredValue::Symbol(at) => {
                visitor.symbol(field, self.bytes.get(at.range()).unwrap_or_default());
            }
            StoredValue::Hex(value) => visitor.hex(field, value),
            StoredValue::Address(address, version) => visitor.address(field, address, version),
            StoredValue::Time(time) => visitor.time(field, time),
            StoredValue::Duration(span) => visitor.duration(field, span),
            StoredValue::List(at) => {
                visitor.list(field, self.lists.get(at.range()).unwrap_or_default());
            }
            StoredValue::Texts(at) => {
                let pieces = self.pieces.get(at.range()).unwrap_or_default();
                let texts: Vec<&str> = pieces.iter().map(|at| self.text_at(*at)).collect();
                visitor.texts(field, &texts);
            }
            StoredValue::Object(at) => {
                let object = at.map(|at| StoredObject { store: self, at });
                visitor.object(field, object.as_ref());
            }
        }
    }
}

/// Keeps the values of a record.
struct Filling<'a>(&'a mut RecordStore);

impl ValueVisitor for Filling<'_> {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        let kept = self.0.keep(value);
        self.0.values.push(kept);
    }
}

/// Counts the values of an object.
struct Counting(usize);

impl ValueVisitor for Counting {
    fn value(&mut self, _: &'static Field, _: ValueRef<'_>) {
        self.0 += 1;
    }
}

/// Keeps the values of an object.
struct FillingObject<'a> {
    store: &'a mut RecordStore,
    /// Where the next one goes.
    start: usize,
}

impl ValueVisitor for FillingObject<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let kept = self.store.keep(value);
        if let Some(member) = self.store.members.get_mut(self.start) {
            *member = (Some(field), kept);
        }
        self.start += 1;
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
            self.store.visit(visitor, field, value);
        }
    }
}

impl KnownRecord for StoredRecord<'_> {
    fn schema(&self) -> Schema {
        self.kept.schema
    }
}

impl<'a> StoredRecord<'a> {
    /// The value of a field, by its place in the schema.
    #[inline]
    pub fn value(&self, place: usize) -> Kept<'a> {
        self.store.kept(self.stored(place))
    }

    /// The value of a field of the record that is at this place within it.
    pub fn value_within(&self, place: usize, name: &str) -> Kept<'a> {
        let StoredValue::Object(Some(at)) = self.stored(place) else {
            return Kept::Null;
        };
        let mut members = self.store.members.get(at.range()).into_iter().flatten();
        let is_it = |field: Option<&'static Field>| field.is_some_and(|it| it.name == name);
        let found = members.find(|(field, _)| is_it(*field));
        self.store.kept(found.map(|it| it.1).unwrap_or_default())
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

impl RecordStore {
    #[inline]
    fn kept(&self, value: StoredValue) -> Kept<'_> {
        let store = self;
        match value {
            StoredValue::Null | StoredValue::Object(None) => Kept::Null,
            StoredValue::Unsigned(value) => Kept::Unsigned(value),
            StoredValue::Float(value) => Kept::Float(value),
            StoredValue::Text(at) => Kept::Text(store.text_at(at)),
            StoredValue::Symbol(at) => {
                let bytes = store.bytes.get(at.range()).unwrap_or_default();
                str::from_utf8(bytes).map_or(Kept::Null, Kept::Text)
            }
            StoredValue::Hex(value) => Kept::Hex(value),
            StoredValue::Address(address, version) => Kept::Address(address, version),
            StoredValue::Time(time) => Kept::Time(time),
            StoredValue::Duration(span) => Kept::Duration(span),
            StoredValue::List(at) => Kept::List(store.lists.get(at.range()).unwrap_or_default()),
            StoredValue::Texts(at) => Kept::Texts(KeptTexts {
                store,
                pieces: store.pieces.get(at.range()).unwrap_or_default(),
            }),
            StoredValue::Object(Some(_)) => Kept::Object,
        }
    }
}

/// A value of a [`StoredRecord`], where it is kept.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kept<'a> {
    /// Not known, or it does not apply.
    Null,
    /// A whole number.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Text, symbols among them.
    Text(&'a str),
    /// A 64-bit identifier.
    Hex(u64),
    /// An address and its version, 4 or 6.
    Address(Address, u8),
    /// A point in time.
    Time(Nanos),
    /// A span of time.
    Duration(Nanos),
    /// A list of whole numbers.
    List(&'a [u64]),
    /// A list of texts.
    Texts(KeptTexts<'a>),
    /// A record inside the record.
    Object,
}

/// A list of texts that is kept.
#[derive(Clone, Copy, Debug)]
pub struct KeptTexts<'a> {
    store: &'a RecordStore,
    pieces: &'a [Part],
}

impl<'a> KeptTexts<'a> {
    /// The texts, in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a str> {
        let store = self.store;
        self.pieces.iter().map(move |at| store.text_at(*at))
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
            if let Some(field) = field {
                self.store.visit(visitor, field, *value);
            }
        }
    }
}
