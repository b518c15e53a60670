//! The schema of a record.

use core::ptr;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use flowgauge_wire::{Address, Nanos};

use crate::any::AnyObject;
use crate::text::lossy;
use crate::value::{Numbers, Texts, ValueRef};

/// The kind of a field's values, which determines their encoding. Its numbers are sent to other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr)]
#[non_exhaustive]
#[repr(u8)]
pub enum FieldKind {
    /// A whole number.
    Unsigned = 0,
    /// A number with a fraction.
    Float,
    /// Text.
    Text,
    /// An IPv4 or IPv6 address.
    Address,
    /// A point in time: RFC 3339, UTC, nine decimals.
    Time,
    /// A duration: seconds with nine decimals.
    Duration,
    /// A 64-bit identifier as 16 hexadecimal digits.
    Hex,
    /// A list of whole numbers.
    List,
    /// A record within the record.
    Object,
    /// A list of texts.
    Texts,
}

impl FieldKind {
    /// Its name in documentation.
    pub fn name(self) -> &'static str {
        match self {
            FieldKind::Unsigned | FieldKind::Float => "number",
            FieldKind::Text => "text",
            FieldKind::Address => "address",
            FieldKind::Time => "time",
            FieldKind::Duration => "duration",
            FieldKind::Hex => "identifier",
            FieldKind::List => "numbers",
            FieldKind::Object => "object",
            FieldKind::Texts => "texts",
        }
    }
}

/// The unit of a number, for humans and for encodings with units. Its numbers are sent to other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr, strum::IntoStaticStr)]
#[non_exhaustive]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Unit {
    /// No unit.
    #[strum(serialize = "")]
    None = 0,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// The unit's name in documentation; empty when there is none.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a field appears in a table on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub heading: &'static str,
    /// 1 is always shown; columns with larger ranks are omitted, the largest first, if the terminal is too narrow; 0 is
    /// never shown.
    pub rank: u8,
    /// Whether bytes are shown exactly instead of scaled (`19.1M`).
    pub exact: bool,
}

/// `,"name":"`, so that it is copied as one piece of constant width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonKey {
    bytes: [u8; JsonKey::WIDTH],
    len: u8,
}

impl JsonKey {
    const WIDTH: usize = 32;

    /// The key of a field; names longer than 27 bytes are truncated.
    pub const fn new(name: &str) -> JsonKey {
        let name = name.as_bytes();
        let mut bytes = [0; JsonKey::WIDTH];
        bytes[0] = b',';
        bytes[1] = b'"';
        let mut n = 0;
        while n < name.len() && n < JsonKey::WIDTH - 5 {
            bytes[n + 2] = name[n];
            n += 1;
        }
        bytes[n + 2] = b'"';
        bytes[n + 3] = b':';
        bytes[n + 4] = b'"';
        JsonKey {
            bytes,
            len: n as u8 + 4,
        }
    }

    /// The field's name.
    pub fn name(&self) -> &str {
        let key = self.with_comma();
        let name = key.get(2..key.len().saturating_sub(2)).unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }

    /// The key with the preceding comma: `,"name":`.
    #[inline]
    pub fn with_comma(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// All bytes, and how many of them come before a value without quotation marks. One more is
    /// the opening mark of a value that has them.
    #[inline]
    pub(crate) const fn parts(&self) -> (&[u8; JsonKey::WIDTH], usize) {
        (&self.bytes, self.len as usize)
    }
}

/// What is made at run time. There is little: each is made once, and lives as long as the process.
#[derive(Default)]
struct Kept {
    fields: HashMap<MadeField, &'static Field>,
    /// By the addresses of their fields.
    schemas: HashMap<Vec<usize>, Schema>,
}

fn all_kept() -> MutexGuard<'static, Kept> {
    static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A schema created at run time.
pub fn kept(fields: impl Iterator<Item = &'static Field>) -> Schema {
    kept_within(fields.collect(), usize::MAX).unwrap_or_default()
}

/// The same for others; `None` if schemas would have more than `most` fields in total.
pub fn kept_within(fields: Vec<&'static Field>, most: usize) -> Option<Schema> {
    let addresses = fields.iter().map(|field| ptr::from_ref(*field).addr());
    let addresses: Vec<usize> = addresses.collect();
    let mut all = all_kept();
    let schemas = &mut all.schemas;
    if let Some(known) = schemas.get(&addresses) {
        return Some(known);
    }
    let used: usize = schemas.keys().map(Vec::len).sum();
    if fields.len() > most.saturating_sub(used) {
        return None;
    }
    let schema: Schema = fields.leak();
    schemas.insert(addresses, schema);
    Some(schema)
}

/// A field created at run time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MadeField {
    /// As [`Field::name`].
    pub name: String,
    /// As [`Field::kind`].
    pub kind: FieldKind,
    /// As [`Field::unit`].
    pub unit: Unit,
    /// As [`Column::heading`].
    pub heading: String,
    /// As [`Column::rank`].
    pub rank: u8,
    /// As [`Column::exact`].
    pub exact: bool,
    /// As [`Field::help`].
    pub help: String,
}

impl MadeField {
    /// The field as a static reference, as required by encodings; it lives as long as the process.
    pub fn kept(self) -> &'static Field {
        all_kept().field(self)
    }

    /// The same for others; `None` if there would be more than `most` fields.
    pub fn kept_within(self, most: usize) -> Option<&'static Field> {
        let mut all = all_kept();
        let has_room = all.fields.len() < most || all.fields.contains_key(&self);
        has_room.then(|| all.field(self))
    }
}

impl Kept {
    fn field(&mut self, made: MadeField) -> &'static Field {
        self.fields.entry(made).or_insert_with_key(|made| {
            let name: &'static str = made.name.clone().leak();
            Box::leak(Box::new(Field {
                name,
                json_key: JsonKey::new(name),
                kind: made.kind,
                unit: made.unit,
                column: Column {
                    heading: made.heading.clone().leak(),
                    rank: made.rank,
                    exact: made.exact,
                },
                help: made.help.clone().leak(),
            }))
        })
    }
}

/// One field of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in encodings with names.
    pub name: &'static str,
    /// The name for the JSON encoder.
    pub json_key: JsonKey,
    /// The kind of its values.
    pub kind: FieldKind,
    /// The unit of its values.
    pub unit: Unit,
    /// Its column in tables.
    pub column: Column,
    /// Its meaning, on one line.
    pub help: &'static str,
}

impl Field {
    /// Whether a sum of its values is meaningful, unlike for numbers that are names, positions or settings (`seq`,
    /// `ttl`, `offset`).
    pub fn is_amount(&self) -> bool {
        const COUNTS: [&str; 6] = [
            "gaps",
            "chunks",
            "matches",
            "repeats",
            "streams",
            "empty_streams",
        ];
        const PLACES: [&str; 3] = ["offset", "end", "fragment_offset"];
        match self.kind {
            FieldKind::Unsigned if PLACES.contains(&self.name) => false,
            FieldKind::Unsigned => {
                self.unit != Unit::None
                    || COUNTS.contains(&self.name)
                    || self.name.ends_with("_bytes")
                    || self.name.ends_with("_packets")
            }
            kind => kind == FieldKind::Duration,
        }
    }
}

/// The fields of one kind of record, in order.
pub type Schema = &'static [&'static Field];

/// The fields of several schemas, one behind the other, all of `N`.
pub(crate) const fn join<const N: usize>(parts: &[Schema]) -> [&'static Field; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut at, mut n) = (0, 0, 0);
    while n < N {
        if at == parts[part].len() {
            (part, at) = (part + 1, 0);
        }
        all[n] = parts[part][at];
        (at, n) = (at + 1, n + 1);
    }
    assert!(part + 1 == parts.len() && at == parts[part].len());
    all
}

/// A record: names and types are in a [`Schema`], values are passed to a visitor.
pub trait Record {
    /// Passes every value to `visitor`, each field exactly once, in the order of the schema.
    fn visit<V: FieldVisitor>(&self, visitor: &mut V);
}

impl<R: Record> Record for &R {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (**self).visit(visitor);
    }
}

/// Methods of visitors for each kind of value, all of which call `value` unless the visitor overrides them.
macro_rules! by_kind {
    ($($(#[$about:meta])* $method:ident $kind:ident($($name:ident: $type:ty),*);)*) => {
        $(
            $(#[$about])*
            #[inline]
            fn $method(&mut self, field: &'static Field, $($name: $type),*) {
                self.value(field, ValueRef::$kind($($name),*));
            }
        )*
    };
}

/// Receives the values of a record.
///
/// A visitor that only reads values implements [`FieldVisitor::value`]. An encoding implements all methods, so that its
/// code for a kind of record has no branches on kinds of values; its `value` is [`ValueRef::give`].
pub trait FieldVisitor {
    /// The value of a field.
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>);

    /// The value is unknown or not applicable.
    #[inline]
    fn null(&mut self, field: &'static Field) {
        self.value(field, ValueRef::Null);
    }

    /// Text that needs no escaping in any encoding: the first `len` of a constant number of bytes, up to 64, which can
    /// be copied unchanged.
    #[inline]
    fn wide_symbol<const N: usize>(&mut self, field: &'static Field, value: &[u8; N], len: usize)
    where
        Self: Sized,
    {
        let text = value.get(..len).unwrap_or(value);
        self.symbol(field, str::from_utf8(text).unwrap_or_default());
    }

    /// Arbitrary text, as captured.
    #[inline]
    fn lossy(&mut self, field: &'static Field, value: &[u8]) {
        self.text(field, &lossy(value));
    }

    by_kind! {
        /// A whole number.
        unsigned Unsigned(value: u64);
        /// A number with a fraction.
        float Float(value: f64);
        /// Arbitrary text.
        text Text(value: &str);
        /// Text that needs no escaping in any encoding.
        symbol Symbol(value: &str);
        /// A 64-bit identifier.
        hex Hex(value: u64);
        /// An address; `version` 4 means that it is a mapped IPv4 address.
        address Address(value: Address, version: u8);
        /// A point in time.
        time Time(value: Nanos);
        /// A duration.
        duration Duration(value: Nanos);
        /// A list of whole numbers.
        list List(values: Numbers<'_>);
        /// A list of texts.
        texts Texts(values: Texts<'_>);
        /// A record within the record.
        object Object(value: Option<&dyn AnyObject>);
    }
}

impl FieldVisitor for &mut dyn FieldVisitor {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        (**self).value(field, value);
    }
}

/// Declares a kind of record: its fields, and the location of each one's value in a record.
///
/// The value of a field follows `=`; its type must fit the field's kind ([`crate::value::FieldValue`]). A field without
/// a heading is not in tables. A field with `if` is omitted from records for which the condition is false; such records
/// provide their schema themselves (`own_schema`). `..origin` stands for the fields of client and server.
///
/// The record's type may follow at the end, with its members other than fields: `name: Type, ...` or `name (member:
/// Type) ...` declares a field together with the member that has its value.
macro_rules! record {
    (
        $(#[$about:meta])*
        $fields:ident, $schema:ident for $type:ty as $it:ident $({ $($before:tt)* })?:
        ..$origin:expr, $time:literal, $proto:expr, $proto_help:literal;
        $($rest:tt)*
    ) => {
        $crate::schema::record! {
            $(#[$about])*
            $fields, $schema for $type as $it $({ $($before)* })?:
            time Time "TIME" 1 = $origin.time, $time;
            src_ip Address "CLIENT" 1 = $origin.parties.client_ip(), "address of the client";
            src_port Unsigned "PORT" 3 = $origin.parties.client.1, "port of the client";
            dst_ip Address "SERVER" 1 = $origin.parties.server_ip(), "address of the server";
            dst_port Unsigned "PORT" 2 = $origin.parties.server.1, "port of the server";
            proto Text = $proto, $proto_help;
            $($rest)*
        }
    };
    (
        $(#[$about:meta])*
        $fields:ident, $schema:ident for $type:ty as $it:ident $(, $own_schema:ident)? $({ $($before:tt)* })?:
        $(
            $name:ident $(: $same:ty,)? $(($member:ident: $other:ty))?
                $kind:ident $($unit:ident)? $($heading:literal $rank:literal $($exact:ident)?)? =
                $value:expr, $help:literal $(if $condition:expr)?;
        )*
        $(#[$about_row:meta])+
        pub struct $row:ident { $( $(#[$about_more:meta])* $sees:vis $more:ident: $of_more:ty, )* }
    ) => {
        $crate::held::held! {
            $(#[$about_row])+
            #[allow(rustdoc::invalid_html_tags, reason = "help is plain text")]
            pub struct $row {
                $( $( #[doc = $help] pub $name: $same, )? $( #[doc = $help] pub $member: $other, )? )*
                $( $(#[$about_more])* $sees $more: $of_more, )*
            }
        }

        $crate::schema::record! {
            $(#[$about])*
            $fields, $schema for $type as $it $(, $own_schema)? $({ $($before)* })?:
            $(
                $name $kind $($unit)? $($heading $rank $($exact)?)? = $value, $help $(if $condition)?;
            )*
        }
    };
    (
        $(#[$about:meta])*
        $fields:ident, $schema:ident for $type:ty as $it:ident
        $(, #[$inline:meta])? $(, $own_schema:ident)? $({ $($before:tt)* })?:
        $(
            $name:ident $kind:ident $($unit:ident)? $($heading:literal $rank:literal $($exact:ident)?)? =
                $value:expr, $help:literal $(if $condition:expr)?;
        )*
    ) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)] // called as the static
        struct $fields { $( $name: $crate::schema::Field, )* }

        static $fields: $fields = $fields { $(
            $name: $crate::schema::Field {
                name: stringify!($name),
                json_key: $crate::schema::JsonKey::new(stringify!($name)),
                kind: $crate::schema::FieldKind::$kind,
                unit: [$($crate::schema::Unit::$unit,)? $crate::schema::Unit::None][0],
                column: $crate::schema::Column {
                    heading: concat!($($heading)?),
                    rank: 0 $(+ $rank)?,
                    exact: !stringify!($($($exact)?)?).is_empty(),
                },
                help: $help,
            },
        )* };

        $(#[$about])*
        #[allow(unreachable_pub)] // used in test modules, too
        pub static $schema: $crate::schema::Schema = &[ $( &$fields.$name, )* ];

        impl $crate::schema::Record for $type {
            $(#[$inline])?
            fn visit<V: $crate::schema::FieldVisitor>(&self, visitor: &mut V) {
                let $it = self;
                $($($before)*)?
                $(
                    if true $(&& $condition)? {
                        $crate::value::FieldValue::<$crate::value::kind::$kind>::give($value, &$fields.$name, visitor);
                    }
                )*
            }
        }

        $crate::schema::record!(@known $type, $schema $(, $own_schema)?);
    };
    (@known $type:ty, $schema:ident) => {
        impl $crate::any::KnownRecord for $type {
            fn schema(&self) -> $crate::schema::Schema {
                $schema
            }
        }
    };
    (@known $type:ty, $schema:ident, own_schema) => {};
}
pub(crate) use record;
