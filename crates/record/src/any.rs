//! Records whose kind is known only when the program runs.
//!
//! [`Record::visit`] is made once per kind and encoding, so that nothing is asked at run time. Where
//! kinds mix (components of a stack, links to other machines) a record is an [`AnyRecord`]: encoding
//! it is one indirect call for the whole record, and looking at its values one per field. What has
//! to be kept is an [`OwnedRecord`].
//!
//! ```
//! use flowgauge_record::any::{AnyRecord, OwnedRecord, Value};
//! use flowgauge_record::{Encoder, Format, StreamRow};
//! use flowgauge_wire::Address;
//!
//! let row = StreamRow {
//!     version: 4,
//!     protocol: 6,
//!     source: (Address::v4([192, 0, 2, 1]), 50956),
//!     destination: (Address::v4([192, 0, 2, 7]), 80),
//!     bytes: 517,
//!     missing_bytes: 0,
//!     gaps: 0,
//!     state: "fin",
//!     flow_id: 0xfeed,
//!     with_gaps: false,
//!     counters: None,
//!     sha256: None,
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

use flowgauge_wire::{Address, Nanos};

use crate::encoder::Encoder;
use crate::schema::{Field, FieldVisitor, Record, Schema};

/// A record that tells its schema: one that can go where kinds mix.
pub trait KnownRecord: Record {
    /// Its fields, in the order in which [`Record::visit`] gives them.
    fn schema(&self) -> Schema;

    /// Itself, where those who know its type may want it: looking at a field then costs nothing.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// A record of any kind.
pub trait AnyRecord: AnyObject {
    /// Its fields, in the order of its values.
    fn schema(&self) -> Schema;

    /// Itself, of a type that others may know ([`KnownRecord::as_any`]).
    fn as_any(&self) -> Option<&dyn Any>;

    /// Appends it to `out`, as `encoder` writes it.
    fn encode(&self, encoder: &mut Encoder, out: &mut Vec<u8>);

    /// The same of those of its fields that `wanted` says, by their place in its schema.
    fn encode_some(&self, wanted: &[bool], encoder: &mut Encoder, out: &mut Vec<u8>);
}

/// What has fields: a record, or an object within one.
pub trait AnyObject {
    /// Hands every value to `visitor`, in order.
    fn values(&self, visitor: &mut dyn ValueVisitor);
}

/// Receives the values of a record.
pub trait ValueVisitor {
    /// The value of a field.
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>);
}

/// A value of a record.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ValueRef<'a> {
    /// Not known, or it does not apply.
    Null,
    /// A whole number.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Any text.
    Text(&'a str),
    /// Text that needs escaping in no encoding ([`FieldVisitor::symbol`]).
    Symbol(&'a [u8]),
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
    Texts(&'a [&'a str]),
    /// A record inside the record, if there is one.
    Object(Option<&'a dyn AnyObject>),
}

impl<R: Record> AnyObject for R {
    fn values(&self, visitor: &mut dyn ValueVisitor) {
        self.visit(&mut Bridge(visitor));
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

impl<V> Only<'_, V> {
    #[inline(always)]
    fn is_next(&mut self) -> bool {
        self.wanted.next().copied().unwrap_or(false)
    }
}

impl<V: FieldVisitor> FieldVisitor for Only<'_, V> {
    fn null(&mut self, field: &'static Field) {
        if self.is_next() {
            self.visitor.null(field);
        }
    }
    fn unsigned(&mut self, field: &'static Field, value: u64) {
        if self.is_next() {
            self.visitor.unsigned(field, value);
        }
    }
    fn float(&mut self, field: &'static Field, value: f64) {
        if self.is_next() {
            self.visitor.float(field, value);
        }
    }
    fn text(&mut self, field: &'static Field, value: &str) {
        if self.is_next() {
            self.visitor.text(field, value);
        }
    }
    fn symbol(&mut self, field: &'static Field, value: &[u8]) {
        if self.is_next() {
            self.visitor.symbol(field, value);
        }
    }
    fn hex(&mut self, field: &'static Field, value: u64) {
        if self.is_next() {
            self.visitor.hex(field, value);
        }
    }
    fn address(&mut self, field: &'static Field, value: Address, version: u8) {
        if self.is_next() {
            self.visitor.address(field, value, version);
        }
    }
    fn time(&mut self, field: &'static Field, value: Nanos) {
        if self.is_next() {
            self.visitor.time(field, value);
        }
    }
    fn duration(&mut self, field: &'static Field, value: Nanos) {
        if self.is_next() {
            self.visitor.duration(field, value);
        }
    }
    fn list<N: Copy + Into<u64>>(&mut self, field: &'static Field, values: &[N]) {
        if self.is_next() {
            self.visitor.list(field, values);
        }
    }
    fn texts<S: AsRef<str>>(&mut self, field: &'static Field, values: &[S]) {
        if self.is_next() {
            self.visitor.texts(field, values);
        }
    }
    fn object<R: Record>(&mut self, field: &'static Field, value: Option<&R>) {
        if self.is_next() {
            self.visitor.object(field, value);
        }
    }
}

/// Hands typed values on as [`ValueRef`]s.
struct Bridge<'a>(&'a mut dyn ValueVisitor);

impl FieldVisitor for Bridge<'_> {
    fn null(&mut self, field: &'static Field) {
        self.0.value(field, ValueRef::Null);
    }
    fn unsigned(&mut self, field: &'static Field, value: u64) {
        self.0.value(field, ValueRef::Unsigned(value));
    }
    fn float(&mut self, field: &'static Field, value: f64) {
        self.0.value(field, ValueRef::Float(value));
    }
    fn text(&mut self, field: &'static Field, value: &str) {
        self.0.value(field, ValueRef::Text(value));
    }
    fn symbol(&mut self, field: &'static Field, value: &[u8]) {
        self.0.value(field, ValueRef::Symbol(value));
    }
    fn hex(&mut self, field: &'static Field, value: u64) {
        self.0.value(field, ValueRef::Hex(value));
    }
    fn address(&mut self, field: &'static Field, value: Address, version: u8) {
        self.0.value(field, ValueRef::Address(value, version));
    }
    fn time(&mut self, field: &'static Field, value: Nanos) {
        self.0.value(field, ValueRef::Time(value));
    }
    fn duration(&mut self, field: &'static Field, value: Nanos) {
        self.0.value(field, ValueRef::Duration(value));
    }
    fn list<N: Copy + Into<u64>>(&mut self, field: &'static Field, values: &[N]) {
        let mut few = [0; 16];
        match few.get_mut(..values.len()) {
            Some(list) => {
                for (place, &value) in list.iter_mut().zip(values) {
                    *place = value.into();
                }
                self.0.value(field, ValueRef::List(list));
            }
            None => {
                let many: Vec<u64> = values.iter().map(|&value| value.into()).collect();
                self.0.value(field, ValueRef::List(&many));
            }
        }
    }
    fn texts<S: AsRef<str>>(&mut self, field: &'static Field, values: &[S]) {
        let mut few = [""; 16];
        match few.get_mut(..values.len()) {
            Some(list) => {
                for (place, value) in list.iter_mut().zip(values) {
                    *place = value.as_ref();
                }
                self.0.value(field, ValueRef::Texts(list));
            }
            None => {
                let many: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
                self.0.value(field, ValueRef::Texts(&many));
            }
        }
    }
    fn object<R: Record>(&mut self, field: &'static Field, value: Option<&R>) {
        let value = value.map(|value| value as &dyn AnyObject);
        self.0.value(field, ValueRef::Object(value));
    }
}

/// A record of any kind where one of a known kind is wanted.
#[derive(Clone, Copy)]
pub struct AsRecord<'a>(pub &'a dyn AnyRecord);

impl core::fmt::Debug for AsRecord<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        OwnedRecord::of(self.0).fmt(f)
    }
}

impl Record for AsRecord<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        self.0.values(&mut Back(visitor));
    }
}

struct AsObject<'a>(&'a dyn AnyObject);

impl Record for AsObject<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        self.0.values(&mut Back(visitor));
    }
}

/// Hands [`ValueRef`]s on as typed values.
struct Back<'a, V>(&'a mut V);

impl<V: FieldVisitor> ValueVisitor for Back<'_, V> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.0.null(field),
            ValueRef::Unsigned(value) => self.0.unsigned(field, value),
            ValueRef::Float(value) => self.0.float(field, value),
            ValueRef::Text(text) => self.0.text(field, text),
            ValueRef::Symbol(text) => self.0.symbol(field, text),
            ValueRef::Hex(value) => self.0.hex(field, value),
            ValueRef::Address(address, version) => self.0.address(field, address, version),
            ValueRef::Time(time) => self.0.time(field, time),
            ValueRef::Duration(span) => self.0.duration(field, span),
            ValueRef::List(list) => self.0.list(field, list),
            ValueRef::Texts(list) => self.0.texts(field, list),
            ValueRef::Object(object) => {
                let object = object.map(AsObject);
                self.0.object(field, object.as_ref());
            }
        }
    }
}

/// A value that is kept.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Not known, or it does not apply.
    Null,
    /// A whole number.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Any text.
    Text(Box<str>),
    /// Text that needs escaping in no encoding.
    Symbol(Box<[u8]>),
    /// A 64-bit identifier.
    Hex(u64),
    /// An address and its version, 4 or 6.
    Address(Address, u8),
    /// A point in time.
    Time(Nanos),
    /// A span of time.
    Duration(Nanos),
    /// A list of whole numbers.
    List(Box<[u64]>),
    /// A list of texts.
    Texts(Box<[Box<str>]>),
    /// A record inside the record, if there is one.
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
            ValueRef::List(list) => Value::List(list.into()),
            ValueRef::Texts(list) => Value::Texts(list.iter().map(|&text| text.into()).collect()),
            ValueRef::Object(object) => Value::Object(object.map(OwnedObject::of)),
        }
    }
}

/// An object within a record, kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedObject(Vec<(&'static Field, Value)>);

impl OwnedObject {
    /// A copy of an object.
    pub fn of(object: &dyn AnyObject) -> OwnedObject {
        let mut owned = OwnedObject::default();
        object.values(&mut owned);
        owned
    }

    /// One of these fields and values.
    pub fn new(values: Vec<(&'static Field, Value)>) -> OwnedObject {
        OwnedObject(values)
    }

    /// Its fields and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Field, &Value)> {
        self.0.iter().map(|(field, value)| (*field, value))
    }
}

impl ValueVisitor for OwnedObject {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        self.0.push((field, value.into()));
    }
}

impl Record for OwnedObject {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (field, value) in &self.0 {
            visit_value(visitor, field, value);
        }
    }
}

/// A record of any kind, kept.
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

    /// One of these values; those that are missing at the end are null, more than there are fields
    /// are left out.
    pub fn new(schema: Schema, mut values: Vec<Value>) -> OwnedRecord {
        values.resize(schema.len(), Value::Null);
        OwnedRecord { schema, values }
    }

    /// Its values, in the order of its schema.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Field, &Value)> {
        self.schema.iter().copied().zip(&self.values)
    }

    /// The value of a field by its name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter()
            .find_map(|(field, value)| (field.name == name).then_some(value))
    }
}

struct Values(Vec<Value>);

impl ValueVisitor for Values {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        self.0.push(value.into());
    }
}

impl Record for OwnedRecord {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (field, value) in self.iter() {
            visit_value(visitor, field, value);
        }
    }
}

impl KnownRecord for OwnedRecord {
    fn schema(&self) -> Schema {
        self.schema
    }
}

fn visit_value<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: &Value) {
    match value {
        Value::Null => visitor.null(field),
        Value::Unsigned(value) => visitor.unsigned(field, *value),
        Value::Float(value) => visitor.float(field, *value),
        Value::Text(text) => visitor.text(field, text),
        Value::Symbol(text) => visitor.symbol(field, text),
        Value::Hex(value) => visitor.hex(field, *value),
        Value::Address(address, version) => visitor.address(field, *address, *version),
        Value::Time(time) => visitor.time(field, *time),
        Value::Duration(span) => visitor.duration(field, *span),
        Value::List(list) => visitor.list(field, list),
        Value::Texts(list) => visitor.texts(field, list),
        Value::Object(object) => visitor.object(field, object.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Tunnel, TunnelKind};

    use super::*;
    use crate::RecordStore;
    use crate::encoder::Format;
    use crate::flow::TunnelRow;
    use crate::schema::fields;

    fields! {
        /// One field of each kind.
        EachFields, EACH, EACH_SCHEMA:
        unsigned Unsigned None "" 1 "";
        float Float None "" 1 "";
        text Text None "" 1 "";
        symbol Text None "" 1 "";
        hex Hex None "" 1 "";
        address Address None "" 1 "";
        time Time None "" 1 "";
        duration Duration None "" 1 "";
        list List None "" 1 "";
        long List None "" 1 "";
        texts Texts None "" 1 "";
        words Texts None "" 1 "";
        object Object None "" 1 "";
        none Object None "" 1 "";
        null Unsigned None "" 1 "";
    }

    struct Each;

    impl Record for Each {
        fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
            let tunnel = Tunnel {
                kind: TunnelKind::Vxlan,
                source: Address::v4([10, 0, 0, 1]),
                destination: Address::v4([10, 0, 0, 2]),
                version: 4,
                depth: 1,
                id: None,
            };
            visitor.unsigned(&EACH.unsigned, u64::MAX);
            visitor.float(&EACH.float, 0.5);
            visitor.text(&EACH.text, "a \"b\"\n");
            visitor.symbol(&EACH.symbol, b"SF");
            visitor.hex(&EACH.hex, 0xfeed);
            visitor.address(&EACH.address, Address([0x20; 16]), 6);
            visitor.time(&EACH.time, Nanos(1_709_164_800_000_000_001));
            visitor.duration(&EACH.duration, Nanos(1));
            visitor.list(&EACH.list, &[1_u16, 2]);
            visitor.list(&EACH.long, &[7_u32; 40]);
            visitor.texts(&EACH.texts, &["a", "b,\"c\""]);
            visitor.texts(&EACH.words, &["w"; 20]);
            visitor.object(&EACH.object, Some(&TunnelRow(tunnel)));
            visitor.object(&EACH.none, None::<&TunnelRow>);
            visitor.null(&EACH.null);
        }
    }

    impl KnownRecord for Each {
        fn schema(&self) -> Schema {
            EACH_SCHEMA
        }
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
            encoder.encode(&AsRecord(&Each), &mut back);
            assert_eq!(typed, back);
            assert_eq!(typed, any);
            assert_eq!(
                String::from_utf8_lossy(&typed),
                String::from_utf8_lossy(&kept)
            );
            assert_eq!(OwnedRecord::of(&owned), owned);
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
