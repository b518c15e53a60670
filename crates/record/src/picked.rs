//! Selected fields of records of any kind, in a given order.

use std::collections::BTreeSet;

use flowgauge_wire::Nanos;

use crate::aggregate::halves;
use crate::any::{AnyRecord, KnownRecord};
use crate::schema::{Field, FieldKind, FieldVisitor, MadeField, Record, Schema, Unit, kept};
use crate::value::ValueRef;
use crate::words::instead_of;

/// The selected fields, and their positions in the latest kind of record.
#[derive(Clone, Debug)]
pub struct Picker {
    schema: Schema,
    /// First and last place of each field: both sides of one that is the sum of two.
    places: Vec<Option<[usize; 2]>>,
    of: Option<Schema>,
}

/// Fields that cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PickError {
    message: String,
    /// What to specify instead.
    pub hint: String,
}

impl Picker {
    /// Parses comma-separated field names, for records of these kinds. If no kinds are given, nothing is known about
    /// the fields.
    ///
    /// # Errors
    /// A name that is not a field, or is given twice.
    pub fn read(text: &str, kinds: &[Schema]) -> Result<Picker, PickError> {
        let mut fields: Vec<&'static Field> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let places = |schema: &Schema| Some((*schema, places(schema, name)?));
            let found = kinds.iter().find_map(places);
            let found = found.map(|(schema, [first, _])| schema[first]);
            let refused = |message: String, hint: String| Err(PickError { message, hint });
            if name.is_empty() || (found.is_none() && !kinds.is_empty()) {
                let message = format!("the records have no field \"{name}\"");
                return refused(
                    message,
                    field_instead_of(name, of_kinds(kinds), Field::is_amount),
                );
            }
            if fields.iter().any(|field| field.name == name) {
                return refused(
                    format!("{name} is given twice"),
                    "name each field once".into(),
                );
            }
            fields.push(picked(name, found));
        }
        Ok(Picker {
            schema: kept(fields.into_iter()),
            places: Vec::new(),
            of: None,
        })
    }

    /// The selected fields.
    pub fn schema(&self) -> Schema {
        self.schema
    }

    /// The selected fields of a record; those that it does not have are null.
    pub fn pick<'a>(&'a mut self, record: &'a dyn AnyRecord) -> Picked<'a> {
        let schema = record.schema();
        if !self.of.is_some_and(|of| core::ptr::eq(of, schema)) {
            let fields = self.schema.iter();
            self.places = fields.map(|it| places(schema, it.name)).collect();
            self.of = Some(schema);
        }
        Picked {
            schema: self.schema,
            places: &self.places,
            record,
        }
    }
}

/// Where a field is in records with this schema, or the two that it is the sum of: `bytes` of `src_bytes` and `dst_bytes`.
fn places(schema: Schema, name: &str) -> Option<[usize; 2]> {
    let place = |name: &str| schema.iter().position(|field| field.name == name);
    if let Some(place) = place(name) {
        return Some([place; 2]);
    }
    let (one, other) = halves(schema, name).filter(|(one, _)| one.is_amount())?;
    let (one, other) = (place(one.name)?, place(other.name)?);
    Some([one.min(other), one.max(other)])
}

/// A field that is in every table; one of which nothing is known is text.
fn picked(name: &str, known: Option<&Field>) -> &'static Field {
    let own = known.filter(|field| field.name == name);
    let heading = own.map_or("", |field| field.column.heading);
    let made = MadeField {
        name: name.to_owned(),
        kind: known.map_or(FieldKind::Text, |field| field.kind),
        unit: known.map_or(Unit::None, |field| field.unit),
        heading: match heading {
            "" => name.to_uppercase(),
            heading => heading.to_owned(),
        },
        rank: 1,
        exact: known.is_some_and(|field| field.column.exact),
        help: own.map_or("", |field| field.help).to_owned(),
    };
    made.kept()
}

/// The fields of these kinds of records.
pub fn of_kinds(kinds: &[Schema]) -> impl Iterator<Item = &'static Field> {
    kinds.iter().copied().flatten().copied()
}

/// What to specify instead of an unknown field name. Fields of both directions for which `is_one` is true also exist
/// once without `src_`.
pub fn field_instead_of(
    name: &str,
    fields: impl Iterator<Item = &'static Field>,
    is_one: fn(&Field) -> bool,
) -> String {
    let names = fields.flat_map(|field| {
        let both = field.name.strip_prefix("src_").filter(|_| is_one(field));
        [Some(field.name), both]
    });
    let names: BTreeSet<&str> = names.flatten().collect();
    instead_of(
        name,
        names,
        "\"flowgauge fields\" lists the fields of records",
    )
}

/// The selected fields of a record.
pub struct Picked<'a> {
    schema: Schema,
    places: &'a [Option<[usize; 2]>],
    record: &'a dyn AnyRecord,
}

impl Record for Picked<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let mut pass = Pass {
            wanted: self.schema.iter().zip(self.places),
            next: None,
            sum: 0,
            place: 0,
            visitor,
        };
        pass.advance();
        // Once over the record's values, as long as the fields come in its order.
        while let Some((field, _)) = pass.next {
            pass.place = 0;
            self.record.values(&mut pass);
            // A record with fewer values than its schema has.
            if pass
                .next
                .is_some_and(|(next, _)| core::ptr::eq(next, field))
            {
                pass.visitor.null(field);
                pass.advance();
            }
        }
    }
}

impl KnownRecord for Picked<'_> {
    fn schema(&self) -> Schema {
        self.schema
    }
}

/// A way through the values of a record.
struct Pass<'a, V> {
    wanted: core::iter::Zip<
        core::slice::Iter<'a, &'static Field>,
        core::slice::Iter<'a, Option<[usize; 2]>>,
    >,
    /// The field whose value is given next, and its places.
    next: Option<(&'static Field, [usize; 2])>,
    /// Of a field that is a sum: what the first place has.
    sum: u64,
    place: usize,
    visitor: &'a mut V,
}

impl<V: FieldVisitor> Pass<'_, V> {
    /// Goes on to the next field that the record has.
    fn advance(&mut self) {
        self.next = None;
        for (field, place) in self.wanted.by_ref() {
            match place {
                Some(places) => {
                    (self.next, self.sum) = (Some((*field, *places)), 0);
                    return;
                }
                None => self.visitor.null(field),
            }
        }
    }
}

impl<V: FieldVisitor> FieldVisitor for Pass<'_, V> {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        if let Some((field, [first, last])) = self.next {
            let sum = |sum: u64| match value {
                ValueRef::Unsigned(value) => ValueRef::Unsigned(sum.saturating_add(value)),
                ValueRef::Duration(value) => ValueRef::Duration(Nanos(sum.saturating_add(value.0))),
                _ => ValueRef::Unsigned(sum),
            };
            if self.place == last {
                let value = if first == last { value } else { sum(self.sum) };
                self.visitor.value(field, value);
                self.advance();
            } else if self.place == first
                && let ValueRef::Unsigned(one) | ValueRef::Duration(Nanos(one)) = value
            {
                self.sum = one;
            }
        }
        self.place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::{OwnedRecord, Value};
    use crate::flow::FLOW_SCHEMA;
    use crate::{Encoder, Format};

    #[test]
    fn fields_come_in_the_order_asked_for() {
        let values = FLOW_SCHEMA.iter().enumerate();
        let values = values.map(|(at, _)| Value::Unsigned(at as u64));
        let record = OwnedRecord::new(FLOW_SCHEMA, values.collect());
        let other: Schema = crate::check::CHECK_SCHEMA;
        let names = "dst_port, found,src_ip,dst_ip,bytes,end_reason";
        let mut picker = Picker::read(names, &[FLOW_SCHEMA, other]).unwrap();
        let mut text = Vec::new();
        let picked = picker.pick(&record);
        picked.encode(&mut Encoder::new(Format::Json), &mut text);
        let last = FLOW_SCHEMA.len() - 1;
        let expected = format!(
            "{{\"dst_port\":3,\"found\":null,\"src_ip\":0,\"dst_ip\":2,\"bytes\":21,\"end_reason\":{last}}}\n"
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert!(picker.schema().iter().all(|field| field.column.rank == 1));
        let refused = |names| Picker::read(names, &[FLOW_SCHEMA]).unwrap_err();
        assert_eq!(refused("src_ipp").hint, "did you mean src_ip?");
        assert_eq!(refused("bites").hint, "did you mean bytes?");
        assert_eq!(
            refused("src_ip,src_ip").to_string(),
            "src_ip is given twice"
        );
        assert!(
            refused("src_ip,,proto")
                .to_string()
                .contains("no field \"\"")
        );
    }
}
