//! Fields of records by their names.

use core::ops::Range;

use flowgauge_record::any::{AnyRecord, ValueRef, ValueVisitor};
use flowgauge_record::schema::{Field, FieldKind, Schema};
use flowgauge_stack::{Failure, SettingError, Settings};

/// Values of several fields, one after the other.
pub(crate) type Key = Box<[u8]>;

/// The names in an option, with commas between them.
pub(crate) fn read_names(
    settings: &Settings,
    option: &'static str,
) -> Result<Vec<String>, SettingError> {
    let text = settings.text(option).unwrap_or_default();
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(SettingError::of(option, "names no field")
            .with_hint("write names of fields with commas between them"));
    }
    Ok(names)
}

/// Fields whose values are wanted, and those of the record that was read last, as text.
pub(crate) struct Fields {
    names: Vec<String>,
    /// Of the kind of record that came last: where these fields are.
    places: Vec<usize>,
    schema: Option<Schema>,
    values: Values,
}

impl Fields {
    /// Nothing was read. Where it is known which records come, the names are checked.
    pub(crate) fn of(
        names: Vec<String>,
        settings: &Settings,
        option: &'static str,
    ) -> Result<Fields, SettingError> {
        let mut fields = Fields {
            names,
            places: Vec::new(),
            schema: None,
            values: Values::default(),
        };
        if let Some(schema) = settings.schema() {
            fields.find(schema).map_err(|failure| SettingError {
                option: Some(option),
                message: failure.message,
                hint: failure.hint,
            })?;
        }
        Ok(fields)
    }

    /// Reads a record.
    pub(crate) fn read(&mut self, record: &dyn AnyRecord) -> Result<(), Failure> {
        let schema = record.schema();
        if !self
            .schema
            .is_some_and(|known| core::ptr::eq(known, schema))
        {
            self.find(schema)?;
        }
        self.values.read(record);
        Ok(())
    }

    #[cold]
    fn find(&mut self, schema: Schema) -> Result<(), Failure> {
        self.schema = None;
        self.places.clear();
        for name in &self.names {
            // Objects have no value that could be compared.
            let is_it = |field: &&Field| field.name == name && field.kind != FieldKind::Object;
            let place = schema.iter().position(is_it);
            self.places.push(place.ok_or_else(|| {
                let known = schema
                    .iter()
                    .filter(|field| field.kind != FieldKind::Object);
                let known: Vec<&str> = known.map(|field| field.name).collect();
                Failure {
                    message: format!("the records have no field {name}"),
                    hint: Some(format!("they have {}", known.join(", "))),
                }
            })?);
        }
        self.schema = Some(schema);
        Ok(())
    }

    /// The value of one of the fields; null is empty.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let place = self.places.get(index);
        place.map_or(&[], |&place| self.values.get(place))
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

impl ValueVisitor for Values {
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
            ValueRef::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            ValueRef::Symbol(text) => bytes.extend_from_slice(text),
            ValueRef::Address(address, version) => {
                let address = address.to_ip(version);
                let _ = std::io::Write::write_fmt(bytes, format_args!("{address}"));
            }
            ValueRef::Time(time) | ValueRef::Duration(time) => {
                let _ = std::io::Write::write_fmt(bytes, format_args!("{}", time.0));
            }
            ValueRef::List(list) => {
                let _ = std::io::Write::write_fmt(bytes, format_args!("{list:?}"));
            }
            ValueRef::Texts(list) => {
                for text in list {
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
