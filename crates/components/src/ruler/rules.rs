//! Rules: parsed from text, and applied to packets.

use std::collections::BTreeMap;

use super::layouts::LAYOUTS;

/// Bytes of an item.
const MOST: u64 = 65_535;

/// Bytes at the place of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    len: usize,
    /// What they must be.
    value: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Item {
    /// Any bytes.
    Any,
    Fields(Vec<Field>),
}

/// Of a packet that is made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// What an item is, with other bytes at some places.
    Copy(usize, Vec<(usize, Vec<u8>)>),
}

impl Part {
    pub(super) fn write(&self, bytes: &[u8], spans: &[(usize, usize)], to: &mut Vec<u8>) {
        match self {
            Part::Bytes(value) => to.extend_from_slice(value),
            Part::Copy(item, changes) => {
                let (from, end) = spans.get(*item).copied().unwrap_or_default();
                let begin = to.len();
                to.extend_from_slice(bytes.get(from..end).unwrap_or_default());
                for (at, value) in changes {
                    let at = begin + at;
                    if let Some(place) = to.get_mut(at..at + value.len()) {
                        place.copy_from_slice(value);
                    }
                }
            }
        }
    }
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Accept,
    Reject,
    Parts(Vec<Part>),
}

#[derive(Debug)]
struct Rule {
    items: Vec<Item>,
    outcome: Outcome,
}

/// Rules, of which the first that fits decides.
#[derive(Debug)]
pub(super) struct Filter(Vec<Rule>);

impl Filter {
    /// Of a text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Filter, String> {
        let mut parser = Parser::new(LAYOUTS)?;
        parser.layouts()?;
        parser.tokens = tokens(text)?;
        parser.at = 0;
        parser.filter()
    }

    pub(super) fn rewrites(&self) -> bool {
        self.0
            .iter()
            .any(|rule| matches!(rule.outcome, Outcome::Parts(_)))
    }

    /// What becomes of a packet; `spans` are where the items of the rule are.
    pub(super) fn apply(&self, bytes: &[u8], spans: &mut Vec<(usize, usize)>) -> &Outcome {
        let mut rules = self.0.iter();
        let found = rules.find(|rule| {
            spans.clear();
            fits(&rule.items, bytes, 0, spans)
        });
        found.map_or(&Outcome::Reject, |rule| &rule.outcome)
    }
}

/// Whether items are all of the bytes from `at` on.
fn fits(items: &[Item], bytes: &[u8], at: usize, spans: &mut Vec<(usize, usize)>) -> bool {
    let Some((first, rest)) = items.split_first() else {
        return at == bytes.len();
    };
    let held = spans.len();
    match first {
        Item::Any if rest.is_empty() => {
            spans.push((at, bytes.len()));
            true
        }
        Item::Any => (at..=bytes.len()).any(|end| {
            spans.truncate(held);
            spans.push((at, end));
            fits(rest, bytes, end, spans)
        }),
        Item::Fields(fields) => {
            let mut end = at;
            for field in fields {
                let Some(found) = bytes.get(end..end + field.len) else {
                    return false;
                };
                if field.value.as_deref().is_some_and(|value| value != found) {
                    return false;
                }
                end += field.len;
            }
            spans.push((at, end));
            fits(rest, bytes, end, spans)
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
    Text,
    Sign(&'static str),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    const SIGNS: [&str; 11] = ["=>", ":", ";", "[", "]", ",", "=", "~", "#", "*", "("];

    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = rest
            .find(|letter: char| !is_word(letter))
            .unwrap_or(rest.len());
        let sign = SIGNS
            .into_iter()
            .chain([")"])
            .find(|sign| rest.starts_with(sign));
        let (token, len) = match (sign, first) {
            (Some(sign), _) => (Token::Sign(sign), sign.len()),
            (None, '"') => {
                let end = rest[1..].find('"').ok_or("a text has no end")?;
                (Token::Text, end + 2)
            }
            _ if first.is_ascii_digit() => {
                let word = &rest[..end];
                let number = match word.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => word.parse(),
                };
                (
                    Token::Number(number.map_err(|_| format!("{word} is not a number"))?),
                    end,
                )
            }
            _ if end > 0 => (Token::Word(rest[..end].to_owned()), end),
            _ => return Err(format!("\"{first}\" has no meaning here")),
        };
        tokens.push(token);
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    layouts: BTreeMap<String, Vec<Field>>,
}

impl Parser {
    fn new(text: &str) -> Result<Parser, String> {
        Ok(Parser {
            tokens: tokens(text)?,
            at: 0,
            layouts: BTreeMap::new(),
        })
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn is(&mut self, sign: &'static str) -> bool {
        let found = self.peek(0) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn is_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(0), Some(Token::Word(found)) if found == word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), String> {
        let found = self.peek(0).cloned();
        match self.is(sign) {
            true => Ok(()),
            false => Err(format!(
                "{} stands where {sign} belongs",
                shown(found.as_ref())
            )),
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.peek(0).cloned() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            other => Err(format!(
                "{} stands where a name belongs",
                shown(other.as_ref())
            )),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        match self.peek(0).cloned() {
            Some(Token::Number(number)) => {
                self.at += 1;
                Ok(number)
            }
            other => Err(format!(
                "{} stands where a number belongs",
                shown(other.as_ref())
            )),
        }
    }

    fn length(&mut self) -> Result<usize, String> {
        match self.number()? {
            length @ 1..=MOST => Ok(length as usize),
            length => Err(format!("{length} bytes are none, or more than {MOST}")),
        }
    }

    /// `80~2`, `0#6`.
    fn value(&mut self) -> Result<Vec<u8>, String> {
        let number = self.number()?;
        if self.is("#") {
            let byte = u8::try_from(number).map_err(|_| format!("{number} is not a byte"))?;
            return Ok(vec![byte; self.length()?]);
        }
        self.expect("~")?;
        let length = self.length()?;
        if length < 8 && number >> (8 * length) > 0 {
            return Err(format!("{number} has more than {length} bytes"));
        }
        let mut value = vec![0; length.saturating_sub(8)];
        value.extend(&number.to_be_bytes()[8 - length.min(8)..]);
        Ok(value)
    }

    /// `byte#6`, or a value.
    fn bytes(&mut self, name: String) -> Result<Field, String> {
        if self.is_word("byte") {
            let len = if self.is("#") { self.length()? } else { 1 };
            return Ok(Field {
                name,
                len,
                value: None,
            });
        }
        let value = self.value()?;
        Ok(Field {
            name,
            len: value.len(),
            value: Some(value),
        })
    }

    /// A name before a colon; nothing without one.
    fn label(&mut self) -> String {
        match (self.peek(0).cloned(), self.peek(1)) {
            (Some(Token::Word(label)), Some(Token::Sign(":"))) => {
                self.at += 2;
                label
            }
            _ => String::new(),
        }
    }

    fn layouts(&mut self) -> Result<(), String> {
        loop {
            // What is included is known: there are no files.
            if self.is_word("include") {
                match self.peek(0) {
                    Some(Token::Text) => self.at += 1,
                    other => return Err(format!("{} is not a name of a file", shown(other))),
                }
                continue;
            }
            if !self.is_word("pattern") {
                return Ok(());
            }
            let name = self.word()?;
            self.expect(":")?;
            self.expect("(")?;
            let mut fields: Vec<Field> = Vec::new();
            while !self.is(")") {
                let label = self.label();
                let is_twice = fields.iter().any(|field| field.name == label);
                if is_twice && !label.is_empty() {
                    return Err(format!("{name} has two fields {label}"));
                }
                fields.push(self.bytes(label)?);
            }
            self.is(";");
            self.layouts.insert(name, fields);
        }
    }

    fn filter(&mut self) -> Result<Filter, String> {
        self.layouts()?;
        if !self.is_word("filter") {
            return Err("it has no \"filter NAME\"".to_owned());
        }
        self.word()?;
        let mut rules = Vec::new();
        while self.peek(0).is_some() {
            rules.push(self.rule()?);
        }
        match rules.is_empty() {
            true => Err("the filter has no rule".to_owned()),
            false => Ok(Filter(rules)),
        }
    }

    /// The values in `with [field=value, ...]`, by the places of fields.
    fn with(&mut self, fields: &[Field]) -> Result<Vec<(usize, Vec<u8>)>, String> {
        let mut found = Vec::new();
        if !self.is_word("with") {
            return Ok(found);
        }
        self.expect("[")?;
        loop {
            let name = self.word()?;
            let at = fields.iter().position(|field| field.name == name);
            let at = at.ok_or_else(|| format!("there is no field {name}"))?;
            self.expect("=")?;
            let value = self.value()?;
            if value.len() != fields[at].len {
                let (has, given) = (fields[at].len, value.len());
                return Err(format!("{name} has {has} bytes, not {given}"));
            }
            found.push((at, value));
            if !self.is(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(found)
    }

    fn rule(&mut self) -> Result<Rule, String> {
        let mut items: Vec<(String, Item)> = Vec::new();
        while !self.is("=>") {
            let label = self.label();
            if !label.is_empty() && items.iter().any(|(known, _)| *known == label) {
                return Err(format!("there are two items {label}"));
            }
            items.push((label, self.item()?));
        }
        let before = items.iter().rev().skip(1);
        if before.filter(|(_, item)| matches!(item, Item::Any)).count() > 1 {
            return Err("a * stands at the end, and once before it".to_owned());
        }
        let outcome = if self.is_word("accept") {
            Outcome::Accept
        } else if self.is_word("reject") {
            Outcome::Reject
        } else {
            let mut parts = Vec::new();
            while self.peek(0) != Some(&Token::Sign(";")) {
                parts.push(self.part(&items)?);
            }
            Outcome::Parts(parts)
        };
        self.expect(";")?;
        let items = items.into_iter().map(|(_, item)| item).collect();
        Ok(Rule { items, outcome })
    }

    fn item(&mut self) -> Result<Item, String> {
        if self.is("*") {
            return Ok(Item::Any);
        }
        let layout = match self.peek(0) {
            Some(Token::Word(name)) if name != "byte" => Some(name.clone()),
            _ => None,
        };
        let Some(name) = layout else {
            return Ok(Item::Fields(vec![self.bytes(String::new())?]));
        };
        self.at += 1;
        let fields = self.layouts.get(&name).cloned();
        let mut fields = fields.ok_or_else(|| {
            let known: Vec<&str> = self.layouts.keys().map(String::as_str).collect();
            format!("there is no layout {name}, but {}", known.join(", "))
        })?;
        for (at, value) in self.with(&fields)? {
            fields[at].value = Some(value);
        }
        Ok(Item::Fields(fields))
    }

    fn part(&mut self, items: &[(String, Item)]) -> Result<Part, String> {
        if matches!(self.peek(0), Some(Token::Number(_))) {
            return Ok(Part::Bytes(self.value()?));
        }
        let label = self.word()?;
        let at = items.iter().position(|(known, _)| *known == label);
        let at = at.ok_or_else(|| format!("there is no item {label}"))?;
        let fields: &[Field] = match &items[at].1 {
            Item::Any => &[],
            Item::Fields(fields) => fields,
        };
        let changes = self.with(fields)?.into_iter().map(|(field, value)| {
            let before = fields[..field].iter().map(|field| field.len);
            (before.sum(), value)
        });
        Ok(Part::Copy(at, changes.collect()))
    }
}

fn shown(token: Option<&Token>) -> String {
    match token {
        None => "the end".to_owned(),
        Some(Token::Word(word)) => word.clone(),
        Some(Token::Number(number)) => number.to_string(),
        Some(Token::Text) => "a text".to_owned(),
        Some(Token::Sign(sign)) => (*sign).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(filter: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let filter = Filter::parse(filter).unwrap();
        let mut spans = Vec::new();
        match filter.apply(bytes, &mut spans) {
            Outcome::Accept => Some(bytes.to_vec()),
            Outcome::Reject => None,
            Outcome::Parts(parts) => {
                let mut packet = Vec::new();
                parts
                    .iter()
                    .for_each(|part| part.write(bytes, &spans, &mut packet));
                Some(packet)
            }
        }
    }

    #[test]
    fn the_first_rule_that_fits_the_whole_decides() {
        let filter = "include \"layouts.rli\" filter f 1~1 * => accept; 2~1 byte#2 => reject; a:byte b:* => b a 0#2 258~2;";
        assert_eq!(applied(filter, &[1, 9, 9]), Some(vec![1, 9, 9]));
        assert_eq!(applied(filter, &[2, 9, 9]), None);
        assert_eq!(applied(filter, &[2, 9]), Some(vec![9, 2, 0, 0, 1, 2]));
        assert_eq!(applied(filter, &[3]), Some(vec![3, 0, 0, 1, 2]));
        assert_eq!(applied(filter, &[]), None);
    }

    #[test]
    fn fields_are_matched_and_changed_by_name() {
        let filter = "pattern Two : (first:byte#2 second:byte#1) filter f * t:Two with [second=7~1] => t with [first=0#2, second=8~1];";
        assert_eq!(applied(filter, &[5, 5, 1, 2, 7]), Some(vec![0, 0, 8]));
        assert_eq!(applied(filter, &[1, 2, 6]), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (filter, what) in [
            ("", "no \"filter"),
            ("filter f", "no rule"),
            ("filter f * => accept", "the end stands where ;"),
            ("filter f Nothing => accept;", "no layout Nothing"),
            ("filter f a:* a:* => accept;", "two items a"),
            ("filter f * * * => accept;", "once before"),
            ("filter f a:TCP with [port=1~2] => a;", "no field port"),
            ("filter f a:TCP with [dest=1~4] => a;", "dest has 2 bytes"),
            ("filter f * => b;", "no item b"),
            ("filter f 256#2 => accept;", "not a byte"),
            ("filter f 256~1 => accept;", "more than 1 bytes"),
            ("filter f byte#0 => accept;", "none, or more"),
            ("filter f 99999999999999999999~1 => accept;", "not a number"),
            ("filter f \"x => accept;", "has no end"),
            ("filter f ? => accept;", "no meaning"),
        ] {
            let error = Filter::parse(filter).unwrap_err();
            assert!(error.contains(what), "{filter}: {error}");
        }
    }
}
