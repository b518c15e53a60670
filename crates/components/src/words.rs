//! The words of expressions: display filters and conditions, and how they are gone through.

use core::cmp::Ordering;

use flowgauge_stack::SettingError;

/// A word, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// In characters, from 1.
    pub(crate) column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name, a number, an address.
    Word(String),
    /// In double quotes.
    Text(Vec<u8>),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Longest first.
const SYMBOLS: [&str; 26] = [
    "===", "!==", "==", "!=", ">=", "<=", "&&", "||", "^^", "~=", "..", ">", "<", "!", "~", "&",
    "(", ")", "[", "]", "{", "}", ",", ":", "-", "=",
];

/// Bytes of an expression.
const MAX_LENGTH: usize = 64 << 10;

/// What is wrong with an expression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Trouble {
    /// At a place, in characters from 1.
    pub(crate) fn at(column: usize, message: impl Into<String>) -> Trouble {
        Trouble {
            message: format!("character {column}: {}", message.into()),
            hint: None,
        }
    }

    /// With a range of values that begins at this place.
    pub(crate) fn empty_range(column: usize) -> Trouble {
        Trouble::at(column, "the range is empty: it ends before it begins")
    }

    /// As what is wrong with an option.
    pub(crate) fn of(self, option: &'static str) -> SettingError {
        SettingError {
            option: Some(option),
            message: self.message,
            hint: self.hint,
        }
    }
}

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    /// As C writes it.
    pub(crate) fn of(symbol: &str) -> Option<Order> {
        Some(match symbol {
            "==" => Order::Equal,
            "!=" => Order::NotEqual,
            "<" => Order::Less,
            "<=" => Order::LessOrEqual,
            ">" => Order::Greater,
            ">=" => Order::GreaterOrEqual,
            _ => return None,
        })
    }

    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Order::Equal => order.is_eq(),
            Order::NotEqual => order.is_ne(),
            Order::Less => order.is_lt(),
            Order::LessOrEqual => order.is_le(),
            Order::Greater => order.is_gt(),
            Order::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// The words of an expression, taken one after the other.
pub(crate) struct Words {
    tokens: Vec<Token>,
    next: usize,
}

impl Words {
    pub(crate) fn of(text: &str) -> Result<Words, Trouble> {
        if text.len() > MAX_LENGTH {
            return Err(Trouble {
                message: format!("is longer than {} KiB", MAX_LENGTH >> 10),
                hint: None,
            });
        }
        let tokens = tokens(text).map_err(|(column, message)| Trouble::at(column, message))?;
        Ok(Words { tokens, next: 0 })
    }

    pub(crate) fn peek(&self) -> &Token {
        // The last one is the end, which nothing goes beyond.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(crate) fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    /// Goes on to the next word.
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }

    pub(crate) fn here(&self, message: impl Into<String>) -> Trouble {
        Trouble::at(self.peek().column, message)
    }

    /// Takes one of these words or symbols, if it is next.
    pub(crate) fn accept(&mut self, words: &[&str]) -> bool {
        let is_next = match &self.peek().kind {
            TokenKind::Word(word) => words.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)),
            TokenKind::Symbol(symbol) => words.contains(symbol),
            TokenKind::Text(_) | TokenKind::End => false,
        };
        self.next += usize::from(is_next);
        is_next
    }

    /// Values and ranges in braces, each of which `value` reads.
    pub(crate) fn set<V: Clone>(
        &mut self,
        mut value: impl FnMut(&mut Words) -> Result<V, Trouble>,
        exceeds: impl Fn(&V, &V) -> bool,
    ) -> Result<Vec<(V, V)>, Trouble> {
        self.expect("{")?;
        let mut ranges = Vec::new();
        while !self.accept(&["}"]) {
            let column = self.peek().column;
            let low = value(self)?;
            let high = match self.accept(&[".."]) {
                true => value(self)?,
                false => low.clone(),
            };
            if exceeds(&low, &high) {
                return Err(Trouble::empty_range(column));
            }
            ranges.push((low, high));
            self.accept(&[","]);
        }
        match ranges.is_empty() {
            true => Err(self.here("the set is empty")),
            false => Ok(ranges),
        }
    }

    pub(crate) fn expect(&mut self, symbol: &str) -> Result<(), Trouble> {
        if self.accept(&[symbol]) {
            return Ok(());
        }
        let found = self.peek().kind.shown();
        Err(self.here(format!("'{symbol}' is expected, not {found}")))
    }
}

impl TokenKind {
    /// In messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            TokenKind::Word(word) => word.clone(),
            TokenKind::Text(_) => "a text in quotation marks".to_owned(),
            TokenKind::Symbol(symbol) => format!("'{symbol}'"),
            TokenKind::End => "the end".to_owned(),
        }
    }
}

/// The words of a text.
fn tokens(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    // In square brackets, ':' and '-' separate numbers; elsewhere they are part of addresses.
    let mut in_slice = false;
    while let Some(&first) = characters.get(at) {
        let column = at + 1;
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        let is_raw = matches!(first, 'r' | 'R') && characters.get(at + 1) == Some(&'"');
        if first == '"' || is_raw {
            let (text, end) = quoted(&characters, at + usize::from(is_raw), is_raw)?;
            tokens.push(Token {
                kind: TokenKind::Text(text),
                column,
            });
            at = end;
            continue;
        }
        if first == '\'' {
            let (number, end) = character(&characters, at)?;
            tokens.push(Token {
                kind: TokenKind::Word(number.to_string()),
                column,
            });
            at = end;
            continue;
        }
        let length = word(&characters[at..], in_slice);
        if length > 0 {
            let text = characters[at..at + length].iter().collect();
            tokens.push(Token {
                kind: TokenKind::Word(text),
                column,
            });
            at += length;
            continue;
        }
        let matches = |symbol: &&&str| {
            let mut characters = characters[at..].iter();
            symbol
                .chars()
                .all(|wanted| characters.next() == Some(&wanted))
        };
        let Some(symbol) = SYMBOLS.iter().find(matches) else {
            return Err((column, format!("'{first}' means nothing here")));
        };
        in_slice = match *symbol {
            "[" => true,
            "]" => false,
            _ => in_slice,
        };
        tokens.push(Token {
            kind: TokenKind::Symbol(symbol),
            column,
        });
        at += symbol.len();
    }
    tokens.push(Token {
        kind: TokenKind::End,
        column: characters.len() + 1,
    });
    Ok(tokens)
}

/// Length of the word that begins here.
fn word(characters: &[char], in_slice: bool) -> usize {
    let mut length = 0;
    while let Some(character) = characters.get(length) {
        let next = characters.get(length + 1);
        let is_part = match character {
            // Two dots make a range.
            '.' => next != Some(&'.') && length > 0,
            '_' | '/' | '+' => true,
            ':' => !in_slice,
            '-' => !in_slice && length > 0 && next.is_some_and(char::is_ascii_hexdigit),
            other => other.is_ascii_alphanumeric(),
        };
        if !is_part {
            break;
        }
        length += 1;
    }
    length
}

type Quoted = (Vec<u8>, usize);

fn quoted(characters: &[char], start: usize, is_raw: bool) -> Result<Quoted, (usize, String)> {
    let mut text = Vec::new();
    let mut at = start + 1;
    loop {
        let next = characters.get(at + 1);
        match characters.get(at) {
            None => {
                return Err((
                    start + 1,
                    "the text has no closing quotation mark".to_owned(),
                ));
            }
            Some('"') => return Ok((text, at + 1)),
            Some('\\') if is_raw && next == Some(&'"') => {
                text.push(b'"');
                at += 2;
            }
            Some('\\') if !is_raw => {
                let (byte, end) = escaped(characters, at)?;
                text.push(byte);
                at = end;
            }
            Some(other) => {
                let mut buffer = [0; 4];
                text.extend_from_slice(other.encode_utf8(&mut buffer).as_bytes());
                at += 1;
            }
        }
    }
}

/// A character in single quotes, as a number.
fn character(characters: &[char], start: usize) -> Result<(u8, usize), (usize, String)> {
    let (byte, end) = match characters.get(start + 1) {
        Some('\\') => escaped(characters, start + 1)?,
        Some(other) if other.is_ascii() => (*other as u8, start + 2),
        _ => {
            return Err((
                start + 1,
                "one character is in single quotes, a text in double quotes".to_owned(),
            ));
        }
    };
    match characters.get(end) {
        Some('\'') => Ok((byte, end + 1)),
        _ => Err((
            start + 1,
            "one character is in single quotes, a text in double quotes".to_owned(),
        )),
    }
}

/// What stands behind a backslash.
fn escaped(characters: &[char], start: usize) -> Result<(u8, usize), (usize, String)> {
    let wrong = || {
        (
            start + 1,
            "a backslash is followed by one of \\ \" ' n r t 0 xHH".to_owned(),
        )
    };
    let byte = match characters.get(start + 1) {
        Some('n') => b'\n',
        Some('r') => b'\r',
        Some('t') => b'\t',
        Some('0') => 0,
        Some('\\') => b'\\',
        Some('"') => b'"',
        Some('\'') => b'\'',
        Some('x') => {
            let digit = |at: usize| characters.get(at).and_then(|digit| digit.to_digit(16));
            let high = digit(start + 2).ok_or_else(wrong)?;
            let low = digit(start + 3).ok_or_else(wrong)?;
            return Ok(((high * 16 + low) as u8, start + 4));
        }
        // As of a regular expression: it stays.
        Some(_) => return Ok((b'\\', start + 1)),
        None => return Err(wrong()),
    };
    Ok((byte, start + 2))
}
