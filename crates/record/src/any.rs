//! Records whose kind is known only at run time.
//!
//! [`Record::visit`] is compiled once per kind and encoding, without decisions at run time. Where
//! kinds mix (components of a stack, links to other machines), a record is an [`AnyRecord`]:
//! encoding it is one indirect call for the whole record, and reading its values one per field. An
//! [`OwnedRecord`] is a copy.
//!
//! ```
//! use flowgauge_record::any::{AnyRecord, OwnedRecord, Value};
//! use flowgauge_record::{Encoder, Format, StreamRow};
//! use flowgauge_stream::StreamIdentity;
//! use flowgauge_wire::Address;
//!
//! let row = StreamRow {
//!     identity: StreamIdentity {
//!         flow_id: 0xfeed,
//!         source: (Address::v4([192, 0, 2, 1]), 50956),
//!         destination: (Address::v4([192, 0, 2, 7]), 80),
//!         version: 4,
//!         protocol: 6,
//!         ..StreamIdentity::default()
//!     },
//!     bytes: 517,
//!     state: "fin",
//!     ..StreamRow::default()
//! };
//! let any: &dyn AnyRecord = &row;
//! let kept = OwnedRecord::of(any);
//! assert_eq!(kept.get("bytes"), Some(&Value::Unsigned(517)));
//!
//! let (mut once, mut again) = (Vec::new(), Vec::new());
//! let mut encoder = Encoder::new(Format::Json);
//! any.encode(&mut encoder, &mut once);
//! kept.encode(&mut encoder, &mut again);
//! assert_eq!(once, again);
//! ```

use core::any::Any;
use core::cell::RefCell;

use flowgauge_wire::{Address, Nanos};

use crate::encoder::Encoder;
use crate::schema::{Field, FieldVisitor, Record, Schema};
use crate::text_list::TextList;
pub use crate::value::{Numbers, Texts, ValueRef};

/// A record with a static schema, which can be an [`AnyRecord`].
pub trait KnownRecord: Record {
    /// Its fields, in the order in which [`Record::visit`] gives them.
    fn schema(&self) -> Schema;

    /// Itself, if consumers that know its type should have direct access, without cost per field.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// A record of any kind.
pub trait AnyRecord: AnyObject {
    /// Its fields, in the order of its values.
    fn schema(&self) -> Schema;

    /// Itself, if its type is accessible to others ([`KnownRecord::as_any`]).
    fn as_any(&self) -> Option<&dyn Any>;

    /// Appends it to `out`, in the encoding of `encoder`.
    fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>);

    /// The same for the fields that are `wanted`, by index in its schema.
    fn encode_some(&self, wanted: &[bool], encoder: &mut Encoder, out: &mut Vec<u8>);
}

/// A collection of fields: a record, or an object within one.
pub trait AnyObject {
    /// Passes every value to `visitor`, in order.
    fn values(&self, visitor: &mut dyn FieldVisitor);
}

impl<R: Record> AnyObject for R {
    fn values(&self, mut visitor: &mut dyn FieldVisitor) {
        self.visit(&mut visitor);
    }
}

impl Record for &dyn AnyObject {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (**self).values(visitor);
    }
}

impl<R: KnownRecord> AnyRecord for R {
    fn schema(&self) -> Schema {
        KnownRecord::schema(self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        KnownRecord::as_any(self)
    }

    fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        encoder.encode(self, out);
    }

    fn encode_some(&self, wanted: &[bool], encoder: &mut Encoder, out: &mut Vec<u8>) {
        encoder.encode(&Part(self, wanted), out);
    }
}

/// A record with several consumers, which share its JSON encoding.
pub struct SharedRecord<'a> {
    record: &'a dyn AnyRecord,
    json: RefCell<Vec<u8>>,
}

impl SharedRecord<'_> {
    /// Shares a record, with reused memory.
    pub fn new(record: &dyn AnyRecord, mut memory: Vec<u8>) -> SharedRecord<'_> {
        memory.clear();
        SharedRecord {
            record,
            json: RefCell::new(memory),
        }
    }

    /// Returns the memory for reuse.
    pub fn into_memory(self) -> Vec<u8> {
        self.json.into_inner()
    }
}

impl AnyObject for SharedRecord<'_> {
    fn values(&self, visitor: &mut dyn FieldVisitor) {
        self.record.values(visitor);
    }
}

impl AnyRecord for SharedRecord<'_> {
    fn schema(&self) -> Schema {
        self.record.schema()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.record.as_any()
    }

    fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        let Encoder::Json(_) = encoder else {
            return self.record.encode(encoder, out);
        };
        let mut json = self.json.borrow_mut();
        if json.is_empty() {
            self.record.encode(encoder, &mut json);
        }
        out.extend_from_slice(&json);
    }

    fn encode_some(&self, wanted: &[bool], encoder: &mut Encoder, out: &mut Vec<u8>) {
        self.record.encode_some(wanted, encoder, out);
    }
}

/// Some fields of a record.
struct Part<'a, R>(&'a R, &'a [bool]);

impl<R: Record> Record for Part<'_, R> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let wanted = self.1.iter();
        self.0.visit(&mut Only { visitor, wanted });
    }
}

/// Hands on the values of some fields.
struct Only<'a, V> {
    visitor: &'a mut V,
    /// Of the next field, and those behind it.
    wanted: core::slice::Iter<'a, bool>,
}

impl<V: FieldVisitor> FieldVisitor for Only<'_, V> {
    #[inline]
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        if self.wanted.next() == Some(&true) {
            self.visitor.value(field, value);
        }
    }
}

/// An owned value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Unknown, or not applicable.
    Null,
    /// A whole number.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Arbitrary text.
    Text(Box<str>),
    /// Text that needs no escaping in any encoding.
    Symbol(Box<str>),
    /// A 64-bit identifier.
    Hex(u64),
    /// An address and its IP version, 4 or 6.
    Address(Address, u8),
    /// A point in time.
    Time(Nanos),
    /// A duration.
    Duration(Nanos),
    /// A list of whole numbers.
    List(Box<[u64]>),
    /// A list of texts.
    Texts(TextList),
    /// An object within the record, if there is one.
    Object(Option<OwnedObject>),
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::Null => Value::Null,
            ValueRef::Unsigned(value) => Value::Unsigned(value),
            ValueRef::Float(value) => Value::Float(value),
            ValueRef::Text(text) => Value::Text(text.into()),
            ValueRef::Symbol(text) => Value::Symbol(text.into()),
            ValueRef::Hex(value) => Value::Hex(value),
            ValueRef::Address(address, version) => Value::Address(address, version),
            ValueRef::Time(time) => Value::Time(time),
            ValueRef::Duration(span) => Value::Duration(span),
            ValueRef::List(list) => Value::List(list.iter().collect()),
            ValueRef::Texts(list) => Value::Texts(list.iter().collect()),
            ValueRef::Object(object) => Value::Object(object.map(OwnedObject::of)),
        }
    }
}

impl Value {
    /// The same, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Unsigned(value) => ValueRef::Unsigned(*value),
            Value::Float(value) => ValueRef::Float(*value),
            Value::Text(text) => ValueRef::Text(text),
            Value::Symbol(text) => ValueRef::Symbol(text),
            Value::Hex(value) => ValueRef::Hex(*value),
            Value::Address(address, version) => ValueRef::Address(*address, *version),
            Value::Time(time) => ValueRef::Time(*time),
            Value::Duration(span) => ValueRef::Duration(*span),
            Value::List(list) => ValueRef::List(Numbers::U64(list)),
            Value::Texts(list) => ValueRef::Texts(list.as_texts()),
            Value::Object(object) => {
                ValueRef::Object(object.as_ref().map(|object| object as &dyn AnyObject))
            }
        }
    }
}

/// An owned object within a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedObject(Vec<(&'static Field, Value)>);

impl OwnedObject {
    /// A copy of an object.
    pub fn of(object: &dyn AnyObject) -> OwnedObject {
        let mut owned = OwnedObject::default();
        object.values(&mut owned);
        owned
    }

    /// An object with these fields and values.
    pub fn new(values: Vec<(&'static Field, Value)>) -> OwnedObject {
        OwnedObject(values)
    }

    /// Its fields and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Field, &Value)> {
        self.0.iter().map(|(field, value)| (*field, value))
    }
}

impl FieldVisitor for OwnedObject {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        self.0.push((field, value.into()));
    }
}

impl Record for OwnedObject {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (field, value) in &self.0 {
            visitor.value(field, value.as_ref());
        }
    }
}

/// An owned record of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedRecord {
    schema: Schema,
    values: Vec<Value>,
}

impl OwnedRecord {
    /// A copy of a record.
    pub fn of(record: &dyn AnyRecord) -> OwnedRecord {
        let schema = record.schema();
        let mut values = Values(Vec::with_capacity(schema.len()));
        record.values(&mut values);
        OwnedRecord::new(schema, values.0)
    }

    /// A record with these values; those missing at the end are null, those beyond the number of
    /// fields are ignored.
    pub fn new(schema: Schema, mut values: Vec<Value>) -> OwnedRecord {
        values.resize(schema.len(), Value::Null);
        OwnedRecord { schema, values }
    }

    /// Its values, in the order of its schema.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Field, &Value)> {
        self.schema.iter().copied().zip(&self.values)
    }

    /// The value of a field, by name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter()
            .find_map(|(field, value)| (field.name == name).then_some(value))
    }
}

struct Values(Vec<Value>);

impl FieldVisitor for Values {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        self.0.push(value.into());
    }
}

impl Record for OwnedRecord {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (field, value) in self.iter() {
            visitor.value(field, value.as_ref());
        }
    }
}

impl KnownRecord for OwnedRecord {
    fn schema(&self) -> Schema {
        self.schema
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Tunnel, TunnelKind};

    use super::*;
    use crate::RecordStore;
    use crate::encoder::Format;
    use crate::flow::TunnelRow;
    use crate::schema::record;
    use crate::value::{Object, Symbol};

    struct Each;

    record! {
        /// One field of each kind.
        EACH, EACH_SCHEMA for Each as it {
            let Each = it;
            let tunnel = Tunnel {
                kind: TunnelKind::Vxlan,
                source: Address::v4([10, 0, 0, 1]),
                destination: Address::v4([10, 0, 0, 2]),
                version: 4,
                depth: 1,
                id: None,
            };
        }:
        unsigned Unsigned "" 1 = u64::MAX, "";
        float Float "" 1 = 0.5, "";
        text Text "" 1 = "a \"b\"\n", "";
        symbol Text "" 1 = Symbol("SF"), "";
        hex Hex "" 1 = 0xfeed, "";
        address Address "" 1 = (Address([0x20; 16]), 6), "";
        time Time "" 1 = Nanos(1_709_164_800_000_000_001), "";
        duration Duration "" 1 = Nanos(1), "";
        list List "" 1 = [1_u16, 2].as_slice(), "";
        long List "" 1 = [7_u32; 40].as_slice(), "";
        texts Texts "" 1 = ["a", "b,\"c\""].as_slice(), "";
        words Texts "" 1 = ["w"; 20].as_slice(), "";
        object Object "" 1 = Object(Some(TunnelRow(tunnel))), "";
        none Object "" 1 = Object(None::<TunnelRow>), "";
        null Unsigned "" 1 = None::<u64>, "";
    }

    #[test]
    fn what_is_kept_is_encoded_as_what_it_was_made_of() {
        for format in [Format::Json, Format::Csv, Format::Table] {
            let mut encoder = Encoder::new(format);
            let (mut typed, mut any, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            encoder.encode(&Each, &mut typed);
            AnyRecord::encode(&Each, &mut encoder, &mut any);
            let owned = OwnedRecord::of(&Each);
            owned.encode(&mut encoder, &mut kept);
            let mut back = Vec::new();
            encoder.encode(&(&Each as &dyn AnyObject), &mut back);
            assert_eq!(typed, back);
            assert_eq!(typed, any);
            assert_eq!(
                String::from_utf8_lossy(&typed),
                String::from_utf8_lossy(&kept)
            );
            assert_eq!(OwnedRecord::of(&owned), owned);
            let shared = SharedRecord::new(&owned, b"before".to_vec());
            for _ in 0..2 {
                let mut again = Vec::new();
                shared.encode(&mut encoder, &mut again);
                assert_eq!(typed, again);
            }
            let mut store = RecordStore::default();
            for _ in 0..2 {
                store.clear();
                store.push(&owned);
                store.push(&Each);
            }
            let mut stored = Vec::new();
            let record = store.get(1).expect("two were kept");
            record.encode(&mut encoder, &mut stored);
            assert_eq!(typed, stored);
            assert!(store.get(2).is_none());
        }
    }

    #[test]
    fn some_fields_are_encoded_as_they_are_among_all() {
        let wanted: Vec<bool> = EACH_SCHEMA
            .iter()
            .map(|field| matches!(field.name, "text" | "texts" | "object" | "null"))
            .collect();
        let mut out = Vec::new();
        Each.encode_some(&wanted, &mut Encoder::new(Format::Json), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"{"text":"a \"b\"\n","texts":["a","b,\"c\""],"object":{"kind":"vxlan","src_ip":"10.0.0.1","#,
                r#""dst_ip":"10.0.0.2","id":null,"depth":1},"null":null}"#,
                "\n"
            )
        );
        let mut out = Vec::new();
        Each.encode_some(&wanted, &mut Encoder::new(Format::Csv), &mut out);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
    }

    #[test]
    fn values_are_found_by_name_and_missing_ones_are_null() {
        let owned = OwnedRecord::of(&Each);
        assert_eq!(owned.get("hex"), Some(&Value::Hex(0xfeed)));
        assert_eq!(owned.get("none"), Some(&Value::Object(None)));
        assert_eq!(owned.get("nothing"), None);
        let short = OwnedRecord::new(EACH_SCHEMA, vec![Value::Unsigned(1)]);
        assert_eq!(short.iter().count(), EACH_SCHEMA.len());
        assert_eq!(short.get("null"), Some(&Value::Null));
    }
}
