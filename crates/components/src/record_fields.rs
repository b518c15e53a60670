//! Fields of records by their names.

use core::ops::Range;

use flowgauge_record::any::AnyRecord;
use flowgauge_record::picked::{field_instead_of, of_kinds};
use flowgauge_record::schema::{Field, FieldKind, Schema};
use flowgauge_record::{FieldVisitor, ValueRef};
use flowgauge_stack::{SettingError, Settings};

/// Values of several fields, one after the other.
pub(crate) type Key = Box<[u8]>;

/// The names in an option, with commas between them; none where it is not set.
pub(crate) fn read_names(
    settings: &Settings,
    option: &'static str,
) -> Result<Vec<String>, SettingError> {
    let Some(text) = settings.text(option) else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(SettingError::of(option, "names no field")
            .with_hint("write names of fields with commas between them"));
    }
    Ok(names)
}

/// Whether a record of some kind can have each of these fields. Of no kinds nothing is known.
pub(crate) fn check(
    names: &[String],
    settings: &Settings,
    option: &'static str,
    fits: fn(&Field) -> bool,
) -> Result<(), SettingError> {
    let fields = || of_kinds(settings.kinds());
    let fitting = || fields().filter(|field| fits(field));
    let unknown = names
        .iter()
        .find(|name| fitting().all(|field| field.name != **name));
    let Some(name) = unknown.filter(|_| fields().next().is_some()) else {
        return Ok(());
    };
    let message = match fields().any(|field| field.name == *name) {
        true => format!("the field {name} cannot be used here"),
        false => format!("the records have no field {name}"),
    };
    Err(SettingError::of(option, message).with_hint(field_instead_of(name, fitting(), |_| false)))
}

/// Objects have no value that could be compared.
fn has_value(field: &Field) -> bool {
    field.kind != FieldKind::Object
}

/// Fields whose values are wanted, and those of the record that was read last, as text.
pub(crate) struct Fields {
    names: Vec<String>,
    /// Of the kind of record that came last: where these fields are, if it has them.
    places: Vec<Option<usize>>,
    schema: Option<Schema>,
    values: Values,
}

impl Fields {
    /// Nothing was read. Where it is known which records come, the names are checked. A record that lacks a field holds
    /// no value of it.
    pub(crate) fn of(
        names: Vec<String>,
        settings: &Settings,
        option: &'static str,
    ) -> Result<Fields, SettingError> {
        check(&names, settings, option, has_value)?;
        Ok(Fields {
            names,
            places: Vec::new(),
            schema: None,
            values: Values::default(),
        })
    }

    /// Reads a record.
    pub(crate) fn read(&mut self, record: &dyn AnyRecord) {
        let schema = record.schema();
        if !self
            .schema
            .is_some_and(|known| core::ptr::eq(known, schema))
        {
            self.find(schema);
        }
        self.values.read(record);
    }

    #[cold]
    fn find(&mut self, schema: Schema) {
        let place = |name: &String| {
            let is_it = |field: &&Field| field.name == name && has_value(field);
            schema.iter().position(is_it)
        };
        self.places = self.names.iter().map(place).collect();
        self.schema = Some(schema);
    }

    /// The value of one of the fields; null is empty.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let place = self.places.get(index).copied().flatten();
        place.map_or(&[], |place| self.values.get(place))
    }

    /// Values of several of them, each with its length before it, so that no two keys look the same by
    /// chance.
    pub(crate) fn key(&self, range: Range<usize>) -> Key {
        let mut key = Vec::new();
        self.write_key(range, &mut key);
        key.into()
    }

    /// The same into memory that serves again.
    pub(crate) fn write_key(&self, range: Range<usize>, key: &mut Vec<u8>) {
        key.clear();
        for index in range {
            let value = self.get(index);
            key.extend_from_slice(&(value.len() as u32).to_le_bytes());
            key.extend_from_slice(value);
        }
    }
}

/// The values of one record as bytes, one after the other.
#[derive(Default)]
struct Values {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl FieldVisitor for Values {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        let bytes = &mut self.bytes;
        match value {
            ValueRef::Null => {}
            ValueRef::Unsigned(value) | ValueRef::Hex(value) => {
                let _ = std::io::Write::write_fmt(bytes, format_args!("{value}"));
            }
            ValueRef::Float(value) => {
                let _ = std::io::Write::write_fmt(bytes, format_args!("{value}"));
            }
            ValueRef::Text(text) | ValueRef::Symbol(text) => {
                bytes.extend_from_slice(text.as_bytes());
            }
            ValueRef::Address(address, version) => {
                let address = address.to_ip(version);
                let _ = std::io::Write::write_fmt(bytes, format_args!("{address}"));
            }
            ValueRef::Time(time) | ValueRef::Duration(time) => {
                let _ = std::io::Write::write_fmt(bytes, format_args!("{}", time.0));
            }
            ValueRef::List(list) => {
                let list: Vec<u64> = list.iter().collect();
                let _ = std::io::Write::write_fmt(bytes, format_args!("{list:?}"));
            }
            ValueRef::Texts(list) => {
                for text in list.iter() {
                    bytes.extend_from_slice(text.as_bytes());
                    bytes.push(0);
                }
            }
            // Objects are no part of keys.
            _ => {}
        }
        self.ends.push(bytes.len());
    }
}

impl Values {
    fn read(&mut self, record: &dyn AnyRecord) {
        self.bytes.clear();
        self.ends.clear();
        record.values(self);
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let start = start.copied().unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.bytes.get(start..end).unwrap_or_default()
    }
}
