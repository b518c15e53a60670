//! `display_filter`: packets that an expression of Wireshark's display filter language selects.
//!
//! Which part of the language there is says `docs/display-filter.md`. An expression is read once, into
//! a tree of tests over the fields of `fields`; a packet walks the tree and allocates nothing.

mod parse;

pub(crate) use parse::seconds;

use flowgauge_stack::{Component, ComponentInfo, SettingError, Settings, options};
use memchr::memmem::Finder;
use regex::bytes::Regex;

use crate::fields::{Field, Found, Packet, Value};
use crate::per_packet::only;
use crate::words::Order;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "display_filter",
    aliases: &["ethereal", "etherreal"],
    summary: "lets packets through that a display filter selects",
    help: "A part of Wireshark's display filter language: comparisons, and/or/not, in {..}, contains, \
           matches, slices, CIDR, as in `ip.addr == 10.0.0.0/8 and tcp.port in {80, 8000..8080}`; \
           docs/display-filter.md says which part, and which fields there are.",
    options: Options::ALL,
    make,
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    expression: Text = required, "which packets";
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let tree = parse::parse(&Options::read(settings).expression)
        .map_err(|trouble| trouble.of("expression"))?;
    Ok(only(move |packets, decoded| {
        let packet = Packet::new(packets, decoded);
        tree.holds(&|test: &Test| test.holds(&packet))
    }))
}

/// What is asked of a packet.
#[derive(Debug)]
enum Test {
    /// It has the field; with a mask, a value with one of its bits.
    Exists(Operand),
    /// Of any pair of their values, or of all of them.
    Compare(Operand, Order, Pairs, Operand),
    /// A value lies in one of the ranges.
    In(Operand, Vec<(Literal, Literal)>),
    Contains(Operand, Box<Finder<'static>>),
    Matches(Operand, Regex),
}

/// Of how many pairs of values a comparison must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    Any,
    All,
}

/// Something that has values.
#[derive(Debug)]
enum Operand {
    Field {
        field: &'static Field,
        slice: Option<Slice>,
        mask: Option<u64>,
        function: Option<Function>,
    },
    Literal(Literal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// Bytes of a value.
    Len,
    /// How many values there are.
    Count,
}

/// A part of a value; a negative start counts from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: i64,
    /// `None`: to the end.
    length: Option<u64>,
}

/// A value that is written in the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Literal {
    Number(u64),
    Time(u64),
    /// An address and which of its bits count.
    Ipv4(u32, u32),
    Ipv6(u128, u128),
    Bytes(Vec<u8>),
}

impl Literal {
    /// Whether it is more than another one of its kind.
    fn exceeds(&self, other: &Literal) -> bool {
        match (self, other) {
            (Literal::Number(one), Literal::Number(other)) => one > other,
            (Literal::Time(one), Literal::Time(other)) => one > other,
            (Literal::Ipv4(one, mask), Literal::Ipv4(other, _)) => one & mask > *other,
            (Literal::Ipv6(one, mask), Literal::Ipv6(other, _)) => one & mask > *other,
            (Literal::Bytes(one), Literal::Bytes(other)) => one > other,
            _ => false,
        }
    }
}

/// Values of an operand: few, on the stack.
#[derive(Clone, Copy)]
struct Values<'a> {
    found: Found<'a>,
    slice: Option<Slice>,
    mask: Option<u64>,
    is_len: bool,
}

impl<'a> Values<'a> {
    fn one(value: Value<'a>) -> Values<'a> {
        Values {
            found: Found::one(value),
            slice: None,
            mask: None,
            is_len: false,
        }
    }

    fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'_, 'a> {
        let values = self.found.iter();
        values.filter_map(|value| part(value, self.slice, self.mask, self.is_len))
    }
}

/// A value, or what a slice, a mask or a function leaves of it.
fn part(
    value: Value<'_>,
    slice: Option<Slice>,
    mask: Option<u64>,
    is_len: bool,
) -> Option<Value<'_>> {
    let value = match (slice, value) {
        (None, value) => value,
        (Some(slice), Value::Bytes(bytes)) => Value::Bytes(slice.of(bytes)?),
        (Some(_), _) => return None,
    };
    match (value, mask) {
        (Value::Number(number), Some(mask)) => Some(Value::Number(number & mask)),
        (Value::Bytes(bytes), _) if is_len => Some(Value::Number(bytes.len() as u64)),
        (value, _) => Some(value),
    }
}

impl Slice {
    fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        let start = if self.start < 0 {
            bytes
                .len()
                .checked_sub(self.start.unsigned_abs() as usize)?
        } else {
            self.start as usize
        };
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        match self.length {
            None => Some(rest),
            Some(length) => rest.get(..usize::try_from(length).ok()?),
        }
    }
}

impl Operand {
    fn values<'a>(&'a self, packet: &Packet<'a>) -> Values<'a> {
        match self {
            Operand::Field {
                field,
                function: Some(Function::Count),
                ..
            } => Values::one(Value::Number(field.of(packet).iter().count() as u64)),
            Operand::Field {
                field,
                slice,
                mask,
                function,
            } => Values {
                found: field.of(packet),
                slice: *slice,
                mask: *mask,
                is_len: function.is_some(),
            },
            Operand::Literal(literal) => Values::one(literal.value()),
        }
    }
}

impl Literal {
    fn value(&self) -> Value<'_> {
        match self {
            Literal::Number(number) => Value::Number(*number),
            Literal::Time(nanos) => Value::Time(flowgauge_wire::Nanos(*nanos)),
            Literal::Ipv4(address, _) => Value::Ipv4(*address),
            Literal::Ipv6(address, _) => Value::Ipv6(*address),
            Literal::Bytes(bytes) => Value::Bytes(bytes),
        }
    }

    /// The value as far as this literal's prefix compares it.
    fn masked<'a>(&self, value: Value<'a>) -> Value<'a> {
        match (self, value) {
            (Literal::Ipv4(_, mask), Value::Ipv4(address)) => Value::Ipv4(address & mask),
            (Literal::Ipv6(_, mask), Value::Ipv6(address)) => Value::Ipv6(address & mask),
            (_, value) => value,
        }
    }
}

impl Test {
    fn holds(&self, packet: &Packet<'_>) -> bool {
        match self {
            Test::Exists(operand) => {
                let is_masked = matches!(operand, Operand::Field { mask: Some(_), .. });
                let values = operand.values(packet);
                let mut values = values.iter();
                values.any(|value| !is_masked || value != Value::Number(0))
            }
            Test::Compare(left, relation, pairs, right) => {
                let (left, others) = (left.values(packet), right.values(packet));
                compare(&left, (*relation, *pairs), &others, right)
            }
            Test::In(operand, ranges) => {
                let values = operand.values(packet);
                let mut values = values.iter();
                values.any(|value| ranges.iter().any(|(low, high)| is_in(value, low, high)))
            }
            Test::Contains(operand, finder) => {
                let values = operand.values(packet);
                let mut values = values.iter();
                values.any(|value| match value {
                    Value::Bytes(value) => finder.find(value).is_some(),
                    _ => false,
                })
            }
            Test::Matches(operand, regex) => {
                let values = operand.values(packet);
                let mut values = values.iter();
                values.any(|value| match value {
                    Value::Bytes(value) => regex.is_match(value),
                    _ => false,
                })
            }
        }
    }
}

fn is_in(value: Value<'_>, low: &Literal, high: &Literal) -> bool {
    if low == high {
        return low.masked(value) == low.value();
    }
    order(value, low.value()).is_some_and(core::cmp::Ordering::is_ge)
        && order(value, high.value()).is_some_and(core::cmp::Ordering::is_le)
}

fn compare(
    left: &Values<'_>,
    (relation, wanted): (Order, Pairs),
    right: &Values<'_>,
    literal: &Operand,
) -> bool {
    let masked = |value| match literal {
        Operand::Literal(literal) => literal.masked(value),
        Operand::Field { .. } => value,
    };
    let mut pairs = 0_u32;
    let mut holding = 0_u32;
    for value in left.iter() {
        for other in right.iter() {
            pairs += 1;
            let order = order(masked(value), other);
            holding += u32::from(match relation {
                Order::NotEqual => order.is_none_or(|order| order.is_ne()),
                relation => order.is_some_and(|order| relation.holds(order)),
            });
        }
    }
    match wanted {
        Pairs::All => pairs > 0 && holding == pairs,
        Pairs::Any => holding > 0,
    }
}

fn order(one: Value<'_>, other: Value<'_>) -> Option<core::cmp::Ordering> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => Some(one.cmp(&other)),
        (Value::Time(one), Value::Time(other)) => Some(one.cmp(&other)),
        (Value::Ipv4(one), Value::Ipv4(other)) => Some(one.cmp(&other)),
        (Value::Ipv6(one), Value::Ipv6(other)) => Some(one.cmp(&other)),
        (Value::Bytes(one), Value::Bytes(other)) => Some(one.cmp(other)),
        _ => None,
    }
}
