//! Values in conditions.

use core::cmp::Ordering;

use flowgauge_record::any::ValueRef;
use flowgauge_record::schema::{Field, FieldKind, Unit};
use flowgauge_stack::{OptionKind, OptionValue};
use flowgauge_wire::network;
use ipnet::IpNet;

use crate::display_filter::seconds;
use crate::start_stop::date;
use crate::words::Trouble;

/// A value as it is written, and what it is to fields of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Literal {
    pub(super) column: usize,
    pub(super) text: String,
    pub(super) number: Option<u64>,
    size: Option<u64>,
    float: Option<f64>,
    duration: Option<u64>,
    time: Option<u64>,
    hex: Option<u64>,
    network: Option<IpNet>,
}

impl Literal {
    pub(super) fn new(column: usize, text: String) -> Literal {
        let whole = OptionKind::Integer {
            min: 0,
            max: i64::MAX,
        };
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let number = match whole.read(&text) {
            Ok(OptionValue::Integer(number)) => u64::try_from(number).ok(),
            _ => text.strip_prefix("0x").and_then(hex).or(text.parse().ok()),
        };
        Literal {
            column,
            number,
            size: match OptionKind::Size.read(&text) {
                Ok(OptionValue::Size(size)) => Some(size),
                _ => number,
            },
            float: text.parse().ok(),
            duration: match OptionKind::Duration.read(&text) {
                Ok(OptionValue::Duration(span)) => Some(span),
                _ => None,
            },
            time: time(&text),
            hex: hex(&text).filter(|_| text.len() == 16),
            network: network(&text),
            text,
        }
    }

    /// How a value of a field compares with it; `None`: not at all.
    pub(super) fn compare(&self, field: &Field, value: ValueRef<'_>) -> Option<Ordering> {
        Some(match value {
            ValueRef::Unsigned(value) if field.unit == Unit::Bytes => value.cmp(&self.size?),
            ValueRef::Unsigned(value) => value.cmp(&self.number?),
            ValueRef::Float(value) => value.partial_cmp(&self.float?)?,
            ValueRef::Duration(value) => value.0.cmp(&self.duration?),
            ValueRef::Time(value) => value.0.cmp(&self.time?),
            ValueRef::Hex(value) => value.cmp(&self.hex?),
            ValueRef::Text(value) | ValueRef::Symbol(value) => value.cmp(&self.text),
            ValueRef::Address(address, version) => {
                match self.network?.contains(&address.to_ip(version)) {
                    true => Ordering::Equal,
                    false => Ordering::Less,
                }
            }
            _ => return None,
        })
    }

    /// Whether it is more than another one, to a field of this kind.
    pub(super) fn exceeds(&self, other: &Literal, field: &Field) -> bool {
        match field.kind {
            FieldKind::Unsigned if field.unit == Unit::Bytes => self.size > other.size,
            FieldKind::Unsigned | FieldKind::List => self.number > other.number,
            FieldKind::Float => self.float > other.float,
            FieldKind::Duration => self.duration > other.duration,
            FieldKind::Time => self.time > other.time,
            _ => false,
        }
    }

    /// Whether it is something to a field of this kind.
    pub(super) fn check(&self, field: &Field) -> Result<(), Trouble> {
        let (is_right, wanted) = match field.kind {
            FieldKind::Unsigned if field.unit == Unit::Bytes => {
                (self.size.is_some(), "a number of bytes, such as 1500 or 1M")
            }
            FieldKind::Unsigned | FieldKind::List => (self.number.is_some(), "a whole number"),
            FieldKind::Float => (self.float.is_some(), "a number"),
            FieldKind::Duration => (self.duration.is_some(), "a duration, such as 250ms"),
            FieldKind::Time => (
                self.time.is_some(),
                "a time, such as \"2026-11-22 10:30:00\"",
            ),
            FieldKind::Hex => (self.hex.is_some(), "an identifier of 16 hexadecimal digits"),
            FieldKind::Address => (
                self.network.is_some(),
                "an address or network, such as 10.0.0.0/8",
            ),
            _ => (true, ""),
        };
        if is_right {
            return Ok(());
        }
        let message = format!("\"{}\" is not {wanted} (field {})", self.text, field.name);
        Err(Trouble::at(self.column, message))
    }
}

/// Nanoseconds since 1970 of a time in UTC: `2026-11-22 10:30:00.5`, with a T or a Z as in RFC 3339, without the seconds
/// or the time of day; or seconds since 1970.
pub fn time(text: &str) -> Option<u64> {
    let bare = text.trim_end_matches('Z');
    let (whole, decimals) = bare.split_once('.').unwrap_or((bare, ""));
    match date(whole) {
        Some(time) if decimals.is_empty() => Some(time),
        Some(time) => time.checked_add(seconds(&format!("0.{decimals}"))?),
        None => seconds(text),
    }
}
