//! Object identifiers, and the parts of instances behind them.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

/// An object identifier: at most [`Oid::MAX`] numbers, in the order of SNMP (lexicographic).
///
/// Those of RMON's rows have room inline; longer ones (two IPv6 addresses) are on the heap.
///
/// ```
/// use flowgauge_rmon::Oid;
///
/// let hosts: Oid = "1.3.6.1.2.1.16.14.2.1".parse()?;
/// let row = hosts.child(&[4, 1, 0, 17]).octets(&[10, 0, 0, 1]);
/// assert_eq!(row.to_string(), "1.3.6.1.2.1.16.14.2.1.4.1.0.17.4.10.0.0.1");
/// assert!(row > hosts && row.starts_with(&hosts));
/// # Ok::<(), flowgauge_rmon::BadOid>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(SmallVec<[u32; 32]>);

/// Text that is no object identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an object identifier (at most 128 numbers with dots between, as 1.3.6.1.2.1.16)"
)]
pub struct BadOid(String);

impl Oid {
    /// Numbers that an identifier has at most (RFC 2578, 3.5).
    pub const MAX: usize = 128;

    /// The identifier with these numbers; those behind the 128th are left out.
    pub fn new(numbers: &[u32]) -> Self {
        Self(SmallVec::from_slice(
            &numbers[..numbers.len().min(Self::MAX)],
        ))
    }

    /// Its numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// Whether it has no number: AgentX's null identifier.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `prefix` is its beginning, or all of it.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// The numbers behind `prefix`, if it begins with that.
    pub fn below(&self, prefix: &Self) -> Option<Parts<'_>> {
        self.0.strip_prefix(prefix.numbers()).map(Parts)
    }

    /// Appends a number. Nothing is appended to an identifier of [`Oid::MAX`] numbers.
    pub fn push(&mut self, number: u32) {
        if self.0.len() < Self::MAX {
            self.0.push(number);
        }
    }

    /// With `numbers` behind it.
    #[must_use]
    pub fn child(&self, numbers: &[u32]) -> Self {
        let mut whole = self.clone();
        numbers.iter().for_each(|number| whole.push(*number));
        whole
    }

    /// With an octet string as a part of an index behind it: its length, then each octet (RFC 2578, 7.7).
    #[must_use]
    pub fn octets(mut self, octets: &[u8]) -> Self {
        self.push(octets.len() as u32);
        octets.iter().for_each(|octet| self.push(u32::from(*octet)));
        self
    }

    /// With an identifier as a part of an index behind it: its length, then each number.
    #[must_use]
    pub fn identifier(mut self, identifier: &Self) -> Self {
        self.push(identifier.0.len() as u32);
        identifier.0.iter().for_each(|number| self.push(*number));
        self
    }
}

impl From<&[u32]> for Oid {
    fn from(numbers: &[u32]) -> Self {
        Self::new(numbers)
    }
}

impl FromStr for Oid {
    type Err = BadOid;

    fn from_str(text: &str) -> Result<Self, BadOid> {
        let bad = || BadOid(text.to_owned());
        let dotted = text.strip_prefix('.').unwrap_or(text);
        let numbers = dotted.split('.').map(str::parse);
        let numbers: SmallVec<_> = numbers.collect::<Result<_, _>>().map_err(|_| bad())?;
        (numbers.len() <= Self::MAX)
            .then_some(Self(numbers))
            .ok_or_else(bad)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, number) in self.0.iter().enumerate() {
            let dot = if position == 0 { "" } else { "." };
            write!(formatter, "{dot}{number}")?;
        }
        Ok(())
    }
}

/// The parts of an index that are still to be read, from the left. Each way of reading is [`None`] where
/// the numbers left are no such part.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a>(pub &'a [u32]);

impl<'a> Parts<'a> {
    /// A number.
    pub fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Numbers with their length before.
    pub fn counted(&mut self) -> Option<&'a [u32]> {
        let (length, rest) = self.0.split_first()?;
        let (numbers, rest) = rest.split_at_checked(usize::try_from(*length).ok()?)?;
        self.0 = rest;
        Some(numbers)
    }

    /// An octet string with its length before. [`None`] if a number is none of 0 to 255, too.
    pub fn octets(&mut self) -> Option<SmallVec<[u8; 16]>> {
        let mut rest = *self;
        let octets = rest.counted()?.iter().map(|number| u8::try_from(*number));
        let octets = octets.collect::<Result<_, _>>().ok()?;
        *self = rest;
        Some(octets)
    }

    /// An identifier with its length before.
    pub fn identifier(&mut self) -> Option<Oid> {
        self.counted().map(Oid::new)
    }

    /// Whether all were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_lexicographic() {
        let mut sorted: Vec<Oid> = ["1.3", "1.3.6", "1.3.6.0", "1.3.7", "1.10", "2"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let expected = sorted.clone();
        sorted.reverse();
        sorted.sort();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn parts_of_an_index_are_read_as_they_were_written() {
        let prefix = Oid::new(&[1, 3]);
        let source = Oid::new(&[1, 3, 6, 1]);
        let whole = prefix
            .child(&[7])
            .octets(&[10, 0, 0, 255])
            .identifier(&source);
        let mut parts = whole.below(&prefix).unwrap();
        assert_eq!(parts.number(), Some(7));
        assert_eq!(parts.octets().unwrap().as_slice(), [10, 0, 0, 255]);
        assert_eq!(parts.identifier(), Some(source));
        assert!(parts.is_empty());
        assert_eq!(parts.number(), None);
    }

    #[test]
    fn parts_that_are_none_leave_what_is_left() {
        let mut short = Parts(&[4, 10, 0]);
        assert_eq!(short.octets(), None);
        assert_eq!(short.0, [4, 10, 0]);
        let mut large = Parts(&[1, 256]);
        assert_eq!(large.octets(), None);
        assert_eq!(large.0, [1, 256]);
        let mut far = Parts(&[u32::MAX]);
        assert_eq!(far.counted(), None);
    }

    #[test]
    fn texts_that_are_none_are_refused_and_lengths_are_bounded() {
        for text in ["", ".", "1..3", "1.x", "1.4294967296", "-1", "sysUpTime"] {
            assert_eq!(text.parse::<Oid>(), Err(BadOid(text.to_owned())));
        }
        assert_eq!(".1.3".parse(), Ok(Oid::new(&[1, 3])));
        let longest = vec!["1"; 128].join(".");
        assert!(longest.parse::<Oid>().is_ok());
        assert!(format!("{longest}.1").parse::<Oid>().is_err());
        assert_eq!(Oid::new(&[1; 200]).child(&[2]).numbers().len(), 128);
    }
}
