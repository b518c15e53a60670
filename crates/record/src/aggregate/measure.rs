//! Measures of a group's amounts.

use flowgauge_wire::Nanos;

use crate::schema::{Field, FieldKind, FieldVisitor};

/// A measure of the values of a field in a group. Null values are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Measure {
    /// Their sum.
    Sum,
    /// Their mean; sum and number are stored as whole numbers, so that it does not depend on the distribution to
    /// workers.
    Mean,
    /// Their minimum.
    Min,
    /// Their maximum.
    Max,
}

impl Measure {
    /// Its name, which is also that of the option and the prefix of the field's name (except for sums).
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What the field is called that has it.
    pub(super) fn field_name(self, field: &str) -> String {
        match self {
            Measure::Sum => field.to_owned(),
            _ => format!("{}_{field}", self.name()),
        }
    }

    /// Of what kind it is.
    pub(super) const fn kind(self, kind: FieldKind) -> FieldKind {
        match (self, kind) {
            (Measure::Mean, FieldKind::Unsigned) => FieldKind::Float,
            _ => kind,
        }
    }

    /// Numbers that are kept for it: the value, and but for sums how many there were.
    pub(super) const fn cells(self) -> usize {
        match self {
            Measure::Sum => 1,
            _ => 2,
        }
    }

    /// Adds what others came to, or one value.
    pub(super) fn add(self, cells: &mut [u64], more: &[u64]) {
        match (cells, more) {
            ([sum], [more, ..]) => *sum = sum.saturating_add(*more),
            ([value, count], [more, number]) if *number > 0 => {
                *value = match self {
                    Measure::Min if *count > 0 => (*value).min(*more),
                    Measure::Max => (*value).max(*more),
                    Measure::Min => *more,
                    Measure::Sum | Measure::Mean => value.saturating_add(*more),
                };
                *count += number;
            }
            _ => {}
        }
    }

    /// Hands it on.
    pub(super) fn visit<V: FieldVisitor>(
        self,
        field: &'static Field,
        cells: &[u64],
        visitor: &mut V,
    ) {
        let (value, count) = match *cells {
            [sum] => (sum, 1),
            [value, count] => (value, count),
            _ => (0, 0),
        };
        match (self, field.kind) {
            _ if count == 0 => visitor.null(field),
            (Measure::Mean, FieldKind::Duration) => {
                visitor.duration(field, Nanos(value.saturating_add(count / 2) / count));
            }
            (Measure::Mean, _) => visitor.float(field, value as f64 / count as f64),
            (_, FieldKind::Duration) => visitor.duration(field, Nanos(value)),
            _ => visitor.unsigned(field, value),
        }
    }
}
