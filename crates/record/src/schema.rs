//! What a record is made of.

use flowgauge_wire::{Address, Nanos};

/// What kind of value a field holds, and so how encodings write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldKind {
    /// A whole number.
    Unsigned,
    /// A number with a fraction.
    Float,
    /// Text.
    Text,
    /// An IPv4 or IPv6 address.
    Address,
    /// A point in time: RFC 3339, UTC, nine decimals.
    Time,
    /// A span of time: seconds with nine decimals.
    Duration,
    /// A 64-bit identifier as 16 hexadecimal digits.
    Hex,
    /// A list of whole numbers.
    List,
    /// A list of texts.
    Texts,
    /// A record inside the record.
    Object,
}

/// What a number counts, for people and for encodings that know units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// No unit.
    None,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// The unit's name in documentation; empty when there is none.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Packets => "packets",
            Unit::Seconds => "seconds",
        }
    }
}

/// How a field appears in a table on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub heading: &'static str,
    /// 1 is always shown; larger ranks go, the largest first, when the terminal is narrow; 0 is
    /// never shown.
    pub rank: u8,
    /// Whether bytes are written to the last one rather than scaled (`19.1M`).
    pub exact: bool,
}

/// `,"name":"`, so that it is copied in one piece of constant width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonKey {
    bytes: [u8; JsonKey::WIDTH],
    len: u8,
}

impl JsonKey {
    const WIDTH: usize = 32;

    /// The key of a field; of a name longer than 27 bytes the end is cut off.
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

    /// The key with the comma in front: `,"name":`.
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

/// One field of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in every encoding that has names.
    pub name: &'static str,
    /// The name as the JSON encoder writes it.
    pub json_key: JsonKey,
    /// What it holds.
    pub kind: FieldKind,
    /// What it counts.
    pub unit: Unit,
    /// How tables show it.
    pub column: Column,
    /// What it means, in a line.
    pub help: &'static str,
}

impl Field {
    /// Whether a sum of its values means something: of numbers that are names, places or settings
    /// (`seq`, `ttl`, `offset`) it does not.
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

/// One record: names and types are in a [`Schema`], values are handed to a visitor.
pub trait Record {
    /// Hands every value to `visitor`, each field exactly once, in the order of the schema.
    fn visit<V: FieldVisitor>(&self, visitor: &mut V);
}

/// Receives the values of a record.
pub trait FieldVisitor {
    /// The value is not known or does not apply.
    fn null(&mut self, field: &'static Field);
    /// A whole number.
    fn unsigned(&mut self, field: &'static Field, value: u64);
    /// A number with a fraction.
    fn float(&mut self, field: &'static Field, value: f64);
    /// Any text.
    fn text(&mut self, field: &'static Field, value: &str);
    /// Text that needs escaping in no encoding: printable ASCII without quotation mark, backslash
    /// and comma.
    fn symbol(&mut self, field: &'static Field, value: &[u8]);
    /// The same, the first `len` of a constant number of bytes, up to 64: they can be copied as they
    /// are.
    #[inline(always)]
    fn wide_symbol<const N: usize>(&mut self, field: &'static Field, value: &[u8; N], len: usize) {
        self.symbol(field, value.get(..len).unwrap_or(value));
    }
    /// A 64-bit identifier.
    fn hex(&mut self, field: &'static Field, value: u64);
    /// An address; `version` 4 means that it is a mapped IPv4 address.
    fn address(&mut self, field: &'static Field, value: Address, version: u8);
    /// A point in time.
    fn time(&mut self, field: &'static Field, value: Nanos);
    /// A span of time.
    fn duration(&mut self, field: &'static Field, value: Nanos);
    /// A list of whole numbers.
    fn list<N: Copy + Into<u64>>(&mut self, field: &'static Field, values: &[N]);
    /// A list of texts.
    fn texts<S: AsRef<str>>(&mut self, field: &'static Field, values: &[S]);
    /// A record inside the record.
    fn object<R: Record>(&mut self, field: &'static Field, value: Option<&R>);
}

/// Defines the fields of a kind of record: a struct with one [`Field`] per name, one `static` of
/// it, and the [`Schema`].
macro_rules! fields {
    (
        $(#[$doc:meta])* $struct_name:ident, $static_name:ident, $schema:ident:
        $( $name:ident $kind:ident $unit:ident $heading:literal $rank:literal $($exact:ident)? $help:literal; )*
    ) => {
        #[derive(Debug)]
        struct $struct_name { $( $name: $crate::schema::Field, )* }
        static $static_name: $struct_name = $struct_name { $(
            $name: $crate::schema::Field {
                name: stringify!($name),
                json_key: $crate::schema::JsonKey::new(stringify!($name)),
                kind: $crate::schema::FieldKind::$kind,
                unit: $crate::schema::Unit::$unit,
                column: $crate::schema::Column {
                    heading: $heading,
                    rank: $rank,
                    exact: !stringify!($($exact)?).is_empty(),
                },
                help: $help,
            },
        )* };
        $(#[$doc])*
        #[allow(unreachable_pub)] // used in test modules, too
        pub static $schema: $crate::schema::Schema = &[ $( &$static_name.$name, )* ];
    };
}
pub(crate) use fields;
