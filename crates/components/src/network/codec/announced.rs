//! What items refer to: origins of packets, fields and schemas of records.

use std::sync::LazyLock;

use flowgauge_record::schema::{MadeField, kept_within};
use flowgauge_record::{Field, FieldKind, Schema, Unit};
use flowgauge_wire::LinkType;

use super::bytes::Bytes;
use super::{FIELD, MOST_FIELDS, ORIGIN, SCHEMA};

/// What a sender has announced so far.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    all: Vec<Announcement>,
    /// Records get fields more: who sent them, and their number there.
    numbers: bool,
}

/// What [`Announced::of_whole`] gives records.
static NUMBERS: LazyLock<[&'static Field; 2]> = LazyLock::new(|| {
    let made = |name: &str, kind, help: &str| MadeField {
        name: name.to_owned(),
        kind,
        unit: Unit::None,
        heading: String::new(),
        rank: 0,
        exact: true,
        help: help.to_owned(),
    };
    let session = "who sent the record: 16 hexadecimal digits for an output and partition";
    let number = "the record's number there: the same record has the same session and number";
    [
        made("session", FieldKind::Hex, session).kept(),
        made("number", FieldKind::Unsigned, number).kept(),
    ]
});

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

    /// What a payload that stands alone begins with, and where the rest begins.
    pub(crate) fn of_whole(payload: &[u8], numbers: bool) -> Option<(Announced, usize)> {
        let mut bytes = Bytes {
            bytes: payload,
            at: 0,
        };
        let mut announced = Announced {
            numbers,
            ..Announced::default()
        };
        for _ in 0..bytes.count(1)? {
            let length = bytes.count(1)?;
            if !announced.add(bytes.take(length)?) {
                return None;
            }
        }
        Some((announced, bytes.at))
    }

    fn read(&self, bytes: &mut Bytes<'_>) -> Option<Announcement> {
        let announcement = match bytes.byte()? {
            ORIGIN => Announcement::Origin(bytes.u16()?, LinkType(bytes.u16()?)),
            FIELD => {
                let kind = FieldKind::from_repr(bytes.byte()?)?;
                let unit = Unit::from_repr(bytes.byte()?)?;
                let (rank, exact) = (bytes.byte()?, bytes.byte()? != 0);
                let name = bytes.name()?;
                let (heading, help) = (bytes.words()?, bytes.words()?);
                let made = MadeField {
                    name,
                    kind,
                    unit,
                    rank,
                    exact,
                    heading,
                    help,
                };
                Announcement::Field(made.kept_within(MOST_FIELDS)?)
            }
            SCHEMA => {
                let count = bytes.count(1)?;
                let fields: Option<Vec<&'static Field>> =
                    (0..count).map(|_| self.field(bytes.number()?)).collect();
                let mut fields = fields.filter(|fields| !fields.is_empty())?;
                if self.numbers {
                    fields.extend(*NUMBERS);
                }
                Announcement::Schema(kept_within(fields, MOST_FIELDS)?)
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
