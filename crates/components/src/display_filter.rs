//! `display_filter`: packets that an expression of Wireshark's display filter language selects.
//!
//! Which part of the language there is says `docs/display-filter.md`. An expression is read once, into
//! a tree of tests over the fields of `fields`; a packet walks the tree and allocates nothing.

mod parse;

pub(crate) use parse::seconds;

use flowgauge_stack::{Component, ComponentInfo, Packets, SettingError, Settings, options};
use flowgauge_wire::Decoded;
use memchr::memmem::Finder;
use regex::bytes::Regex;

use crate::boolean::Tree;
use crate::fields::{Field, Found, Packet, Value};
use crate::per_packet::only;
use crate::words::Order;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "display_filter",
    aliases: &["ethereal", "etherreal"],
    summary: "selects packets by a display filter",
    help: "A part of Wireshark's display filter language: comparisons, and/or/not, in {..}, contains, matches, \
           slices, CIDR, as in `ip.addr == 10.0.0.0/8 and tcp.port in {80, 8000..8080}`; \
           docs/display-filter.md lists that part and the fields.",
    options: Options::ALL,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    expression: Text = required, "which packets";
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let filter = DisplayFilter::read(&Options::read(settings).expression)?;
    Ok(only(move |packets, decoded| filter.holds(packets, decoded)))
}

/// A display filter.
#[derive(Clone)]
pub struct DisplayFilter(Tree<Test>);

impl DisplayFilter {
    /// From an expression.
    ///
    /// # Errors
    /// It is not one, or of a part of the language that is not known here.
    pub fn read(expression: &str) -> Result<DisplayFilter, SettingError> {
        let tree = parse::parse(expression).map_err(|trouble| trouble.of("expression"))?;
        Ok(DisplayFilter(tree))
    }

    /// Whether it selects a packet.
    pub fn holds(&self, packets: &Packets<'_>, decoded: &Decoded) -> bool {
        let packet = Packet::new(packets, decoded);
        self.0.holds(&|test: &Test| test.holds(&packet))
    }
}

/// What is asked of a packet.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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
    /// A number, a time or an address, and which of its bits count.
    Number(u128, u128),
    Bytes(Vec<u8>),
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
        (Value::Number(number), Some(mask)) => Some(Value::Number(number & u128::from(mask))),
        (Value::Bytes(bytes), _) if is_len => Some(Value::Number(bytes.len() as u128)),
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
            } => Values::one(Value::Number(field.of(packet).iter().count() as u128)),
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
            Literal::Number(number, _) => Value::Number(*number),
            Literal::Bytes(bytes) => Value::Bytes(bytes),
        }
    }

    /// The value as far as this literal's prefix compares it.
    fn masked<'a>(&self, value: Value<'a>) -> Value<'a> {
        match (self, value) {
            (Literal::Number(_, mask), Value::Number(number)) => Value::Number(number & mask),
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
    (low.value()..=high.value()).contains(&value)
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
            holding += u32::from(relation.holds(masked(value).cmp(&other)));
        }
    }
    match wanted {
        Pairs::All => pairs > 0 && holding == pairs,
        Pairs::Any => holding > 0,
    }
}
