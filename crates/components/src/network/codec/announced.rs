//! What items refer to: origins of packets, fields and schemas of records.

use std::collections::HashMap;
use std::sync::OnceLock;

use flowgauge_record::{Column, Field, FieldKind, JsonKey, Schema, Unit};
use flowgauge_wire::LinkType;
use parking_lot::Mutex;

use super::bytes::Bytes;
use super::{FIELD, MOST_FIELDS, ORIGIN, SCHEMA};

pub(super) fn kind_code(kind: FieldKind) -> u8 {
    KINDS.iter().position(|other| *other == kind).unwrap_or(2) as u8
}

pub(super) fn unit_code(unit: Unit) -> u8 {
    UNITS.iter().position(|other| *other == unit).unwrap_or(0) as u8
}

const KINDS: [FieldKind; 10] = [
    FieldKind::Unsigned,
    FieldKind::Float,
    FieldKind::Text,
    FieldKind::Address,
    FieldKind::Time,
    FieldKind::Duration,
    FieldKind::Hex,
    FieldKind::List,
    FieldKind::Object,
    FieldKind::Texts,
];
const UNITS: [Unit; 4] = [Unit::None, Unit::Bytes, Unit::Packets, Unit::Seconds];

/// What a sender has announced so far.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    all: Vec<Announcement>,
}

#[derive(Clone, Copy, Debug)]
enum Announcement {
    Origin(u16, LinkType),
    Field(&'static Field),
    Schema(Schema),
}

impl Announced {
    /// Takes the next one. False: it makes no sense.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let read = self.read(&mut Bytes { bytes, at: 0 });
        let is_good = read.is_some();
        // What refers to it then finds nothing that it can use.
        let filler = Announcement::Origin(0, LinkType::default());
        self.all.push(read.unwrap_or(filler));
        is_good
    }

    fn read(&self, bytes: &mut Bytes<'_>) -> Option<Announcement> {
        let announcement = match bytes.byte()? {
            ORIGIN => Announcement::Origin(bytes.u16()?, LinkType(bytes.u16()?)),
            FIELD => {
                let kind = *KINDS.get(usize::from(bytes.byte()?))?;
                let unit = *UNITS.get(usize::from(bytes.byte()?))?;
                let (rank, exact) = (bytes.byte()?, bytes.byte()? != 0);
                let name = bytes.name()?;
                let (heading, help) = (bytes.words()?, bytes.words()?);
                Announcement::Field(intern(&Described {
                    name,
                    kind,
                    unit,
                    rank,
                    exact,
                    heading,
                    help,
                })?)
            }
            SCHEMA => {
                let count = bytes.count(1)?;
                let fields: Option<Vec<&'static Field>> =
                    (0..count).map(|_| self.field(bytes.number()?)).collect();
                Announcement::Schema(intern_schema(fields?)?)
            }
            _ => return None,
        };
        (bytes.at == bytes.bytes.len()).then_some(announcement)
    }

    pub(super) fn field(&self, number: u64) -> Option<&'static Field> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Field(field) => Some(field),
            _ => None,
        }
    }

    pub(super) fn origin(&self, number: u64) -> Option<(u16, LinkType)> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Origin(interface, link) => Some((*interface, *link)),
            _ => None,
        }
    }

    pub(super) fn schema(&self, number: u64) -> Option<Schema> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Schema(schema) => Some(schema),
            _ => None,
        }
    }
}

/// A field as another machine describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Described {
    name: String,
    kind: FieldKind,
    unit: Unit,
    rank: u8,
    exact: bool,
    heading: String,
    help: String,
}

/// Fields live as long as the program: each that other machines announce is made once.
#[derive(Default)]
struct Interned {
    fields: HashMap<Described, &'static Field>,
    schemas: HashMap<Vec<usize>, Schema>,
}

fn interned() -> &'static Mutex<Interned> {
    static INTERNED: OnceLock<Mutex<Interned>> = OnceLock::new();
    INTERNED.get_or_init(Mutex::default)
}

fn intern(described: &Described) -> Option<&'static Field> {
    let mut interned = interned().lock();
    if let Some(field) = interned.fields.get(described) {
        return Some(field);
    }
    if interned.fields.len() >= MOST_FIELDS {
        return None;
    }
    let name: &'static str = described.name.clone().leak();
    let field: &'static Field = Box::leak(Box::new(Field {
        name,
        json_key: JsonKey::new(name),
        kind: described.kind,
        unit: described.unit,
        column: Column {
            heading: described.heading.clone().leak(),
            rank: described.rank,
            exact: described.exact,
        },
        help: described.help.clone().leak(),
    }));
    interned.fields.insert(described.clone(), field);
    Some(field)
}

fn intern_schema(fields: Vec<&'static Field>) -> Option<Schema> {
    let key: Vec<usize> = fields
        .iter()
        .map(|field| core::ptr::from_ref(*field).addr())
        .collect();
    let mut interned = interned().lock();
    if let Some(schema) = interned.schemas.get(&key) {
        return Some(schema);
    }
    // Each is at least as long as the number of its fields.
    let most = MOST_FIELDS.checked_sub(interned.schemas.keys().map(Vec::len).sum())?;
    if fields.is_empty() || fields.len() > most {
        return None;
    }
    let schema: Schema = fields.leak();
    interned.schemas.insert(key, schema);
    Some(schema)
}
