//! From a display filter's text to its test.

use ipnet::IpNet;
use memchr::memmem::Finder;

use super::{Function, Literal, Operand, Pairs, Slice, Test};
use crate::boolean::{self, Tree};
use crate::fields::{Field, Kind};
use crate::protocol_field::unknown;
use crate::regexp::compile;
use crate::words::{Order, TokenKind, Trouble, Words};

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Tree<Test>, Trouble> {
    let mut words = Words::of(text)?;
    if words.peek().kind == TokenKind::End {
        // As in Wireshark: all packets.
        return Ok(Tree::All(Vec::new()));
    }
    boolean::parse(&mut words, &mut |words| Parser { words }.test())
}

struct Parser<'a> {
    words: &'a mut Words,
}

impl Parser<'_> {
    fn test(&mut self) -> Result<Tree<Test>, Trouble> {
        let (left, kind) = self.operand()?;
        let relation = match &self.words.peek().kind {
            TokenKind::Symbol(symbol) => relation(symbol),
            TokenKind::Word(word) => relation(&word.to_ascii_lowercase()),
            TokenKind::Text(_) | TokenKind::End => None,
        };
        if let Some((relation, pairs)) = relation {
            self.words.skip();
            let right = self.right(kind)?;
            let has_prefix =
                matches!(&right, Operand::Literal(Literal::Number(_, mask)) if *mask != u128::MAX);
            let is_order = !matches!(relation, Order::Equal | Order::NotEqual);
            if has_prefix && is_order {
                return Err(self
                    .words
                    .here("networks are equal to addresses or not, nothing else"));
            }
            return Ok(Tree::Test(Test::Compare(left, relation, pairs, right)));
        }
        if self.words.accept(&["contains"]) {
            self.bytes_wanted(kind, "contains")?;
            let bytes = self.bytes()?;
            let finder = Finder::new(&bytes).into_owned();
            return Ok(Tree::Test(Test::Contains(left, Box::new(finder))));
        }
        if self.words.accept(&["matches", "~"]) {
            self.bytes_wanted(kind, "matches")?;
            let column = self.words.peek().column;
            let TokenKind::Text(text) = self.words.take().kind else {
                return Err(Trouble::at(
                    column,
                    "matches takes an expression in quotation marks".to_owned(),
                ));
            };
            let text = String::from_utf8_lossy(&text);
            let regex = compile(&text, true).map_err(|message| Trouble::at(column, message))?;
            return Ok(Tree::Test(Test::Matches(left, regex)));
        }
        let is_negated = self.words.accept(&["not"]);
        if self.words.accept(&["in"]) {
            let test = Tree::Test(Test::In(left, self.set(kind)?));
            return Ok(if is_negated {
                Tree::Not(Box::new(test))
            } else {
                test
            });
        }
        if is_negated {
            return Err(self.words.here("not stands before a test, or before in"));
        }
        Ok(Tree::Test(Test::Exists(left)))
    }

    fn bytes_wanted(&self, kind: Kind, what: &str) -> Result<(), Trouble> {
        match kind {
            Kind::Mac | Kind::Bytes | Kind::Protocol => Ok(()),
            _ => Err(self.words.here(format!(
                "{what} takes a field of bytes, as tcp.payload, or a protocol"
            ))),
        }
    }

    /// A field with what is done with it, and what its values are.
    fn operand(&mut self) -> Result<(Operand, Kind), Trouble> {
        let column = self.words.peek().column;
        let TokenKind::Word(name) = self.words.peek().kind.clone() else {
            let found = self.words.peek().kind.shown();
            return Err(self.words.here(format!("a field is expected, not {found}")));
        };
        self.words.skip();
        let function = match name.to_ascii_lowercase().as_str() {
            "len" => Some(Function::Len),
            "count" => Some(Function::Count),
            _ => None,
        };
        if let Some(function) = function {
            self.words.expect("(")?;
            let (operand, kind) = self.operand()?;
            self.words.expect(")")?;
            let Operand::Field {
                field,
                slice,
                mask: None,
                function: None,
            } = operand
            else {
                return Err(Trouble::at(column, format!("{name} takes a field")));
            };
            if function == Function::Len {
                self.bytes_wanted(kind, "len")?;
            }
            let function = Some(function);
            return Ok((
                Operand::Field {
                    field,
                    slice,
                    mask: None,
                    function,
                },
                Kind::Number,
            ));
        }
        let Some(field) = Field::find(&name) else {
            let (message, hint) = unknown(&name);
            return Err(Trouble {
                hint: Some(hint),
                ..Trouble::at(column, message)
            });
        };
        let mut kind = field.kind;
        let slice = if self.words.accept(&["["]) {
            self.bytes_wanted(kind, "a slice")?;
            kind = Kind::Bytes;
            Some(self.slice()?)
        } else {
            None
        };
        let mask = if self.words.accept(&["&"]) {
            if !matches!(kind, Kind::Number | Kind::Flag) {
                return Err(self.words.here("& takes a field that is a number"));
            }
            Some(self.number()?)
        } else {
            None
        };
        Ok((
            Operand::Field {
                field,
                slice,
                mask,
                function: None,
            },
            kind,
        ))
    }

    /// `[start:length]`, `[start-end]`, `[start]`, `[start:]`, `[:length]`; the bracket is taken.
    fn slice(&mut self) -> Result<Slice, Trouble> {
        let start = if matches!(self.words.peek().kind, TokenKind::Symbol(":")) {
            0
        } else {
            let is_negative = self.words.accept(&["-"]);
            let start = self.small()?;
            if is_negative { -start } else { start }
        };
        let is_open =
            |parser: &Parser<'_>| matches!(parser.words.peek().kind, TokenKind::Symbol("]"));
        let length = if self.words.accept(&[":"]) {
            if is_open(self) {
                None
            } else {
                Some(self.small()? as u64)
            }
        } else if self.words.accept(&["-"]) {
            let end = self.small()?;
            let length = end
                .checked_sub(start)
                .filter(|length| *length >= 0 && start >= 0);
            let length =
                length.ok_or_else(|| self.words.here("the end of a slice is before its start"))?;
            Some(length as u64 + 1)
        } else {
            Some(1)
        };
        if length == Some(0) {
            return Err(self.words.here("a slice without bytes"));
        }
        self.words.expect("]")?;
        Ok(Slice { start, length })
    }

    fn small(&mut self) -> Result<i64, Trouble> {
        let column = self.words.peek().column;
        let number = self.number()?;
        let number = i64::try_from(number)
            .ok()
            .filter(|number| *number <= 1 << 20);
        number.ok_or_else(|| Trouble::at(column, "no packet is so long".to_owned()))
    }

    fn number(&mut self) -> Result<u64, Trouble> {
        let column = self.words.peek().column;
        match self.words.take().kind {
            TokenKind::Word(word) => number(&word)
                .ok_or_else(|| Trouble::at(column, format!("a number is expected, not {word}"))),
            other => Err(Trouble::at(
                column,
                format!("a number is expected, not {}", other.shown()),
            )),
        }
    }

    /// What a field of this kind is compared with: another field, or a value.
    fn right(&mut self, kind: Kind) -> Result<Operand, Trouble> {
        if let TokenKind::Word(word) = &self.words.peek().kind {
            let is_function = ["len", "count"].contains(&word.to_ascii_lowercase().as_str());
            if is_function || Field::find(word).is_some() {
                let column = self.words.peek().column;
                let (operand, other) = self.operand()?;
                if class(kind) != class(other) {
                    return Err(Trouble::at(column, "the two cannot be compared".to_owned()));
                }
                return Ok(operand);
            }
        }
        self.literal(kind).map(Operand::Literal)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Trouble> {
        match self.literal(Kind::Bytes)? {
            Literal::Bytes(bytes) if !bytes.is_empty() => Ok(bytes),
            _ => Err(self.words.here("there is nothing to look for")),
        }
    }

    fn set(&mut self, kind: Kind) -> Result<Vec<(Literal, Literal)>, Trouble> {
        let value = |words: &mut Words| Parser { words }.literal(kind);
        let exceeds = |low: &Literal, high: &Literal| low.value() > high.value();
        self.words.set(value, exceeds)
    }

    /// A value for a field of this kind.
    fn literal(&mut self, kind: Kind) -> Result<Literal, Trouble> {
        let column = self.words.peek().column;
        let (word, text) = match self.words.take().kind {
            TokenKind::Word(word) => (word, None),
            TokenKind::Text(text) => (String::from_utf8_lossy(&text).into_owned(), Some(text)),
            other => {
                return Err(Trouble::at(
                    column,
                    format!("a value is expected, not {}", other.shown()),
                ));
            }
        };
        let whole = |number: u64| Literal::Number(number.into(), u128::MAX);
        let (value, wanted) = match kind {
            Kind::Number => (number(&word).map(whole), "a number"),
            Kind::Flag => (flag(&word).map(whole), "a flag (1 or 0)"),
            Kind::Time => (seconds(&word).map(whole), "a time in seconds since 1970"),
            Kind::Ipv4 => (network(&word, 32), "an IPv4 address"),
            Kind::Ipv6 => (network(&word, 128), "an IPv6 address"),
            Kind::Mac => {
                let bytes = hexadecimal(&word).filter(|bytes| bytes.len() == 6);
                (bytes.map(Literal::Bytes), "a hardware address")
            }
            Kind::Bytes | Kind::Protocol => {
                let bytes = text.or_else(|| hexadecimal(&word));
                (
                    bytes.map(Literal::Bytes),
                    "a list of bytes, such as 0d:0a, or text in double quotes",
                )
            }
        };
        value.ok_or_else(|| Trouble::at(column, format!("\"{word}\" is not {wanted}")))
    }
}

fn relation(word: &str) -> Option<(Order, Pairs)> {
    let order = match word {
        "eq" | "any_eq" | "===" | "all_eq" => Order::Equal,
        "ne" | "all_ne" | "!==" | "~=" | "any_ne" => Order::NotEqual,
        "gt" => Order::Greater,
        "lt" => Order::Less,
        "ge" => Order::GreaterOrEqual,
        "le" => Order::LessOrEqual,
        symbol => Order::of(symbol)?,
    };
    Some(match word {
        "!=" | "ne" | "all_ne" | "===" | "all_eq" => (order, Pairs::All),
        _ => (order, Pairs::Any),
    })
}

/// Which kinds can be compared with each other.
fn class(kind: Kind) -> u8 {
    match kind {
        Kind::Number | Kind::Flag => 0,
        Kind::Time => 1,
        Kind::Ipv4 => 2,
        Kind::Ipv6 => 3,
        Kind::Mac | Kind::Bytes | Kind::Protocol => 4,
    }
}

/// As C writes numbers.
fn number(word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    match word.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => word.parse().ok(),
    }
}

fn flag(word: &str) -> Option<u64> {
    match word.to_ascii_lowercase().as_str() {
        "true" => Some(1),
        "false" => Some(0),
        other => number(other).map(|number| u64::from(number != 0)),
    }
}

/// Seconds with up to nine decimals, in nanoseconds.
pub(crate) fn seconds(word: &str) -> Option<u64> {
    let (whole, decimals) = word.split_once('.').unwrap_or((word, "0"));
    if decimals.len() > 9 || !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = format!("{decimals:0<9}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// An address or a network of addresses of so many bits.
fn network(word: &str, bits: u8) -> Option<Literal> {
    let network = flowgauge_wire::network(word).filter(|it| it.max_prefix_len() == bits)?;
    let host_bits = u32::from(bits - network.prefix_len());
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    let address = match network {
        IpNet::V4(network) => network.addr().to_bits().into(),
        IpNet::V6(network) => network.addr().to_bits(),
    };
    Some(Literal::Number(address & mask, mask))
}

/// Bytes of two digits each, separated by colons, points or hyphens; or one number.
fn hexadecimal(word: &str) -> Option<Vec<u8>> {
    if let Some(digits) = word.strip_prefix("0x") {
        return u8::from_str_radix(digits, 16).ok().map(|byte| vec![byte]);
    }
    let parts = word.split([':', '.', '-']);
    let read = |part: &str| match part.len() {
        1 | 2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    };
    parts.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let trouble = parse(text).expect_err(text);
        let hint = trouble
            .hint
            .map_or(String::new(), |hint| format!(" ({hint})"));
        format!("{}{hint}", trouble.message)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, expected) in [
            (
                "tcp.prot == 80",
                "character 1: there is no field tcp.prot (did you mean tcp.port?)",
            ),
            (
                "ip.src == 1.2.3",
                "character 11: \"1.2.3\" is not an IPv4 address",
            ),
            (
                "ip.src == 1.2.3.4/33",
                "character 11: \"1.2.3.4/33\" is not an IPv4 address",
            ),
            ("tcp.port == http", "character 13: \"http\" is not a number"),
            (
                "tcp.port ==",
                "character 12: a value is expected, not the end",
            ),
            ("tcp and", "character 8: a field is expected, not the end"),
            ("(tcp", "character 5: ')' is expected, not the end"),
            (
                "tcp udp",
                "character 5: and, or or the end is expected, not udp",
            ),
            ("tcp.port in {}", "character 15: the set is empty"),
            (
                "tcp.port in {443, 80..70}",
                "character 19: the range is empty: it ends before it begins",
            ),
            (
                "ip.addr in {10.0.0.9..10.0.0.1}",
                "character 13: the range is empty: it ends before it begins",
            ),
            (
                "ip.ttl[0] == 1",
                "character 8: a slice takes a field of bytes, as tcp.payload, or a protocol",
            ),
            (
                "tcp[3-1] == 1",
                "character 8: the end of a slice is before its start",
            ),
            ("tcp.payload matches \"(\"", "character 21: unclosed group"),
            (
                "frame contains \"a",
                "character 16: the text has no closing quotation mark",
            ),
            (
                "ip.src == tcp.port",
                "character 11: the two cannot be compared",
            ),
            (
                "ip.src > 10.0.0.0/8",
                "character 20: networks are equal to addresses or not, nothing else",
            ),
            ("tcp;", "character 4: ';' means nothing here"),
        ] {
            assert_eq!(refused(text), expected, "{text}");
        }
        let deep = format!("{}tcp", "(".repeat(100));
        assert!(refused(&deep).contains("more than 64 brackets"));
        assert!(refused(&"!".repeat(1000)).contains("more than 64 brackets"));
    }

    #[test]
    fn long_expressions_do_not_nest() {
        let text = vec!["tcp.port == 1"; 3000].join(" or ");
        assert!(matches!(parse(&text), Ok(Tree::Any(tests)) if tests.len() == 3000));
    }

    #[test]
    fn values_are_read_as_wireshark_reads_them() {
        assert_eq!(number("010"), Some(8));
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(hexadecimal("00:0d.a-ff"), Some(vec![0, 13, 10, 255]));
        assert_eq!(seconds("1.5"), Some(1_500_000_000));
        assert_eq!(
            network("10.1.2.3/8", 32),
            Some(Literal::Number(10 << 24, u128::MAX << 24))
        );
        assert_eq!(
            network("1.2.3.4/0", 32),
            Some(Literal::Number(0, u128::MAX << 32))
        );
    }
}
