//! Values of fields, and the Rust types that provide them.

use core::net::IpAddr;
use std::borrow::Cow;

use flowgauge_wire::{Address, CommunityId, Nanos};

use crate::any::AnyObject;
use crate::schema::{Field, FieldVisitor, Record};
use crate::text::date_text;
use crate::text_list::TextList;

/// A value of a record.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ValueRef<'a> {
    /// Unknown, or not applicable.
    Null,
    /// A whole number.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Arbitrary text.
    Text(&'a str),
    /// Text that needs no escaping in any encoding: printable ASCII without quotation marks, backslashes and
    /// commas.
    Symbol(&'a str),
    /// A 64-bit identifier.
    Hex(u64),
    /// An address; version 4 means that it is a mapped IPv4 address.
    Address(Address, u8),
    /// A point in time.
    Time(Nanos),
    /// A duration.
    Duration(Nanos),
    /// A list of whole numbers.
    List(Numbers<'a>),
    /// A list of texts.
    Texts(Texts<'a>),
    /// A record within the record, if there is one.
    Object(Option<&'a dyn AnyObject>),
}

impl<'a> ValueRef<'a> {
    /// Its text, including symbols.
    pub const fn as_text(self) -> Option<&'a str> {
        match self {
            ValueRef::Text(text) | ValueRef::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// Calls the visitor's method for this kind of value.
    pub fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        match self {
            ValueRef::Null => visitor.null(field),
            ValueRef::Unsigned(value) => visitor.unsigned(field, value),
            ValueRef::Float(value) => visitor.float(field, value),
            ValueRef::Text(text) => visitor.text(field, text),
            ValueRef::Symbol(text) => visitor.symbol(field, text),
            ValueRef::Hex(value) => visitor.hex(field, value),
            ValueRef::Address(address, version) => visitor.address(field, address, version),
            ValueRef::Time(time) => visitor.time(field, time),
            ValueRef::Duration(span) => visitor.duration(field, span),
            ValueRef::List(list) => visitor.list(field, list),
            ValueRef::Texts(texts) => visitor.texts(field, texts),
            ValueRef::Object(object) => visitor.object(field, object),
        }
    }
}

/// A list of whole numbers, of any width.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Of 8 bits.
    U8(&'a [u8]),
    /// Of 16 bits.
    U16(&'a [u16]),
    /// Of 32 bits.
    U32(&'a [u32]),
    /// Of 64 bits.
    U64(&'a [u64]),
}

impl<'a> Numbers<'a> {
    /// Number of values.
    #[inline]
    pub const fn len(self) -> usize {
        match self {
            Numbers::U8(list) => list.len(),
            Numbers::U16(list) => list.len(),
            Numbers::U32(list) => list.len(),
            Numbers::U64(list) => list.len(),
        }
    }

    /// Whether there are no values.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The numbers, in order.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        (0..self.len()).map(move |place| match self {
            Numbers::U8(list) => list[place].into(),
            Numbers::U16(list) => list[place].into(),
            Numbers::U32(list) => list[place].into(),
            Numbers::U64(list) => list[place],
        })
    }
}

/// A list of texts, in any storage.
#[derive(Clone, Copy, Debug)]
pub enum Texts<'a> {
    /// Separate slices.
    Slices(&'a [&'a str]),
    /// Separate strings.
    Strings(&'a [String]),
    /// In sequence in one text, from `start` on.
    Joined {
        /// All texts.
        text: &'a str,
        /// Start of the first one.
        start: usize,
        /// End of each one.
        ends: &'a [usize],
    },
}

impl<'a> Texts<'a> {
    /// Number of texts.
    pub const fn len(self) -> usize {
        match self {
            Texts::Slices(list) => list.len(),
            Texts::Strings(list) => list.len(),
            Texts::Joined { ends, .. } => ends.len(),
        }
    }

    /// Whether there are no texts.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The texts, in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        (0..self.len()).map(move |place| match self {
            Texts::Slices(list) => list[place],
            Texts::Strings(list) => &list[place],
            Texts::Joined { text, start, ends } => {
                let start = place.checked_sub(1).map_or(start, |before| ends[before]);
                text.get(start..ends[place]).unwrap_or_default()
            }
        })
    }

    /// All texts, joined with `between`.
    pub fn join(self, between: &str) -> String {
        self.iter().collect::<Vec<_>>().join(between)
    }
}

/// Kinds of fields as types: what [`crate::FieldKind`] says at run time, for the compiler.
pub(crate) mod kind {
    macro_rules! kinds {
        ($($kind:ident)*) => { $(pub(crate) enum $kind {})* };
    }
    kinds!(Unsigned Float Text Address Time Duration Hex List Texts Object);
}

/// What can be the value of a field of kind `K`.
pub(crate) trait FieldValue<K> {
    /// Hands it to a visitor.
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V);
}

/// Types of values, with the visitor's method for each.
macro_rules! values {
    ($($kind:ident $type:ty, $it:ident: $method:ident($($value:expr),*);)*) => {
        $(impl FieldValue<kind::$kind> for $type {
            #[inline(always)]
            fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
                let $it = self;
                visitor.$method(field, $($value),*);
            }
        })*
    };
}

values! {
    Unsigned u8, it: unsigned(it.into());
    Unsigned u16, it: unsigned(it.into());
    Unsigned u32, it: unsigned(it.into());
    Unsigned u64, it: unsigned(it);
    Float f64, it: float(it);
    Text &str, it: text(it);
    Text &String, it: text(it);
    Text String, it: text(&it);
    Text Cow<'_, str>, it: text(&it);
    Text Lossy<'_>, it: lossy(it.0);
    Text Symbol<'_>, it: symbol(it.0);
    Text bool, it: symbol(if it { "yes" } else { "no" });
    Text CommunityId, it: wide_symbol(it.as_bytes(), it.as_bytes().len());
    Text (&[u8; 8], usize), it: wide_symbol(it.0, it.1);
    Address (Address, u8), it: address(it.0, it.1);
    Address IpAddr, it: value(address_of(it));
    Time Nanos, it: time(it);
    Duration Nanos, it: duration(it);
    Hex u64, it: hex(it);
    List &[u8], it: list(Numbers::U8(it));
    List &[u16], it: list(Numbers::U16(it));
    List &[u32], it: list(Numbers::U32(it));
    List &[u64], it: list(Numbers::U64(it));
    Texts &[&str], it: texts(Texts::Slices(it));
    Texts &[String], it: texts(Texts::Strings(it));
}

impl<'a, K, T> FieldValue<K> for &'a Vec<T>
where
    &'a [T]: FieldValue<K>,
{
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        self.as_slice().give(field, visitor);
    }
}

/// None is null.
impl FieldValue<kind::Texts> for &TextList {
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        match self.is_empty() {
            true => visitor.null(field),
            false => visitor.texts(field, self.as_texts()),
        }
    }
}

/// `None` is null.
impl<K, T: FieldValue<K>> FieldValue<K> for Option<T> {
    #[inline(always)]
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        match self {
            Some(value) => value.give(field, visitor),
            None => visitor.null(field),
        }
    }
}

impl<'a, K, T> FieldValue<K> for &'a Option<T>
where
    &'a T: FieldValue<K>,
{
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        self.as_ref().give(field, visitor);
    }
}

/// Text from outside, as it came: what is not UTF-8 in it becomes U+FFFD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lossy<'a>(pub(crate) &'a [u8]);

/// Text that is one of a few words ([`ValueRef::Symbol`]).
pub(crate) struct Symbol<'a>(pub(crate) &'a str);

/// An object within a record, if there is one.
pub(crate) struct Object<R>(pub(crate) Option<R>);

impl<R: Record> FieldValue<kind::Object> for Object<R> {
    #[inline(always)]
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        visitor.object(field, self.0.as_ref().map(|it| it as &dyn AnyObject));
    }
}

/// Seconds since 1970. What a capture's clock cannot tell, before 1970 and after 2554, is text of the same form.
pub(crate) struct Date(pub(crate) i64);

impl FieldValue<kind::Time> for Date {
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        let nanos = u64::try_from(self.0).ok();
        match nanos.and_then(|it| it.checked_mul(1_000_000_000)) {
            Some(nanos) => visitor.time(field, Nanos(nanos)),
            None => visitor.text(field, &date_text(self.0)),
        }
    }
}

/// An address of the standard library.
pub(crate) fn address_of<'a>(address: IpAddr) -> ValueRef<'a> {
    ValueRef::Address(address.into(), if address.is_ipv4() { 4 } else { 6 })
}

/// A text, unless it is empty.
pub(crate) fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A list, unless it is empty.
pub(crate) fn listed<T>(list: &[T]) -> Option<&[T]> {
    Some(list).filter(|list| !list.is_empty())
}
