//! Options as in Snort's and Suricata's rules: `content:"GET |0d 0a|"; nocase; offset:4; depth:20`.
//!
//! Only what says something about one pattern is known. What relates several patterns to each other
//! (`distance`, `within`, further `content`s) or looks at parts of a message is refused rather than
//! left out, because matches would mean something else.

use crate::pattern::{Bounds, PatternKind, RegexFlags};

/// What is wrong, and what to write instead.
pub(crate) type Trouble = (String, String);

/// What the options of a line say.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) kind: Option<PatternKind>,
    pub(crate) name: Option<String>,
    pub(crate) sid: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) depth: Option<u64>,
    pub(crate) ignore_case: bool,
    starts: bool,
}

/// Options of rules that are none here: a line that begins with one is told so, and not taken for a text.
const OF_RULES: [&str; 12] = [
    "uricontent",
    "http_uri",
    "http_header",
    "flow",
    "flowbits",
    "reference",
    "classtype",
    "byte_test",
    "byte_jump",
    "dsize",
    "detection_filter",
    "threshold",
];

/// Whether a line is a list of options.
pub(crate) fn is_options(line: &[u8]) -> bool {
    [b"content:".as_slice(), b"pcre:", b"msg:\"", b"sid:"]
        .iter()
        .any(|start| line.starts_with(start))
        || {
            let (name, rest) = word(line);
            let is_list = line.contains(&b';') || line.ends_with(b"\"");
            OF_RULES.contains(&name.as_str()) && rest.starts_with(b":") && is_list
        }
}

/// Whether a line is a whole rule.
pub(crate) fn is_rule(line: &[u8]) -> bool {
    let actions = ["alert", "log", "pass", "drop", "reject", "sdrop", "block"];
    let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    actions.iter().any(|action| action.as_bytes() == word)
        && line.contains(&b'(')
        && line.windows(8).any(|window| window == b"content:")
}

/// Reads a line of options.
pub(crate) fn parse(line: &[u8]) -> Result<Content, Trouble> {
    let mut content = Content::default();
    let mut rest = line;
    loop {
        rest = trim(rest);
        if let Some(after) = rest.strip_prefix(b";") {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            break;
        }
        let (name, after) = word(rest);
        if name.is_empty() {
            return Err(trouble(
                format!(
                    "an option is expected at `{}`",
                    crate::pattern::readable(rest)
                ),
                "options are separated by semicolons; a quotation mark inside the text is \\\"",
            ));
        }
        rest = trim(after);
        let mut value = Value::default();
        if let Some(after) = rest.strip_prefix(b":") {
            (value, rest) = Value::read(trim(after))?;
        }
        content.option(&name, &value)?;
        let (modifiers, after) =
            rest.split_at(rest.iter().position(|&b| b == b';').unwrap_or(rest.len()));
        content.modifiers(modifiers)?;
        rest = after;
    }
    content.finish()
}

impl Content {
    fn option(&mut self, name: &str, value: &Value<'_>) -> Result<(), Trouble> {
        match name {
            "content" => self.set(PatternKind::Literal {
                bytes: text_bytes(value.quoted(name)?)?,
                ignore_case: false,
            }),
            "pcre" => {
                let quoted = value.quoted(name)?;
                let (text, flags) = split_regex(quoted).ok_or_else(|| {
                    trouble("pcre is not written \"/.../flags\"", "pcre:\"/ab+c/i\"")
                })?;
                let flags = regex_flags(flags)?;
                let text = text.to_vec();
                self.set(PatternKind::Regex { text, flags })
            }
            "msg" => {
                self.name = Some(crate::pattern::readable(&unescaped(value.quoted(name)?)?));
                Ok(())
            }
            "sid" => {
                self.sid = Some(value.number(name)?);
                Ok(())
            }
            // What they say is not about where and what to search.
            "rev" | "gid" | "classtype" | "reference" | "metadata" | "priority" => Ok(()),
            _ => self.modifier(name, value),
        }
    }

    /// Snort 3 writes modifiers behind the text, with commas: `content:"abc",nocase,offset 4`.
    fn modifiers(&mut self, list: &[u8]) -> Result<(), Trouble> {
        for part in list.split(|&byte| byte == b',') {
            let (name, value) = word(trim(part));
            let value = trim(value);
            if !name.is_empty() {
                self.modifier(
                    &name,
                    &Value {
                        plain: value,
                        ..Value::default()
                    },
                )?;
            } else if !value.is_empty() {
                return Err(trouble(
                    format!("`{}` is not a modifier", crate::pattern::readable(value)),
                    "modifiers: nocase, offset N, depth N, startswith",
                ));
            }
        }
        Ok(())
    }

    fn modifier(&mut self, name: &str, value: &Value<'_>) -> Result<(), Trouble> {
        match name {
            "nocase" => self.ignore_case = true,
            "offset" => self.offset = Some(value.number(name)?),
            "depth" => self.depth = Some(value.number(name)?),
            "startswith" => self.starts = true,
            // How a rule engine searches, not what for.
            "fast_pattern" | "rawbytes" | "fast_pattern_offset" | "fast_pattern_length" => {}
            "distance" | "within" => {
                return Err(trouble(
                    format!(
                        "{name} relates a content to the one before it; each line here is one pattern"
                    ),
                    "write a regular expression: /first.{0,20}second/s",
                ));
            }
            "endswith" | "isdataat" | "bsize" => {
                return Err(trouble(
                    format!(
                        "{name} asks where the data ends, which a stream does not say before it ends"
                    ),
                    "write a regular expression that ends with $: /text$/",
                ));
            }
            _ => {
                return Err(trouble(
                    format!(
                        "{name} is not known here, and leaving it out would change what matches"
                    ),
                    "known: content, pcre, nocase, offset, depth, startswith, msg, sid",
                ));
            }
        }
        Ok(())
    }

    fn set(&mut self, kind: PatternKind) -> Result<(), Trouble> {
        if self.kind.is_some() {
            return Err(trouble(
                "several contents in one line: a rule needs all of them, a pattern is one",
                "give each its own line, or write a regular expression: /first.*second/s",
            ));
        }
        self.kind = Some(kind);
        Ok(())
    }

    fn finish(mut self) -> Result<Content, Trouble> {
        match &mut self.kind {
            None => Err(trouble(
                "the line has no content",
                "content:\"text\"; nocase; sid:1",
            )),
            Some(PatternKind::Regex { .. })
                if self.starts || self.offset.is_some() || self.depth.is_some() =>
            {
                Err(trouble(
                    "offset, depth and startswith belong to a content, not to an expression",
                    "say it in the expression: pcre:\"/^.{4,16}text/s\"",
                ))
            }
            Some(PatternKind::Regex { flags, .. }) => {
                flags.ignore_case |= self.ignore_case;
                Ok(self)
            }
            Some(PatternKind::Literal { bytes, ignore_case }) => {
                *ignore_case |= self.ignore_case;
                let len = bytes.len() as u64;
                if self.starts {
                    self.offset = Some(0);
                    self.depth = Some(len);
                }
                match self.depth {
                    Some(depth) if depth < len => Err(trouble(
                        format!(
                            "depth {depth} is less than the content's {len} bytes: it could never match"
                        ),
                        "depth counts from offset and includes the content",
                    )),
                    _ => Ok(self),
                }
            }
        }
    }

    /// Where matches may lie.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        if self.offset.is_none() && self.depth.is_none() {
            return None;
        }
        let first = self.offset.unwrap_or(0);
        Some(Bounds {
            first,
            end: self
                .depth
                .map_or(u64::MAX, |depth| first.saturating_add(depth)),
        })
    }
}

/// What comes behind an option's colon.
#[derive(Debug, Default)]
struct Value<'a> {
    /// Between quotation marks, escapes as they are.
    text: Option<&'a [u8]>,
    negated: bool,
    plain: &'a [u8],
}

impl<'a> Value<'a> {
    fn read(from: &'a [u8]) -> Result<(Value<'a>, &'a [u8]), Trouble> {
        let (negated, from) = match from.strip_prefix(b"!") {
            Some(after) => (true, trim(after)),
            None => (false, from),
        };
        let Some(text) = from.strip_prefix(b"\"") else {
            let end = from.iter().position(|&b| b == b';').unwrap_or(from.len());
            let (plain, rest) = from.split_at(end);
            let value = Value {
                text: None,
                negated,
                plain: trim(plain),
            };
            return Ok((value, rest));
        };
        let end = closing_mark(text).ok_or_else(|| {
            trouble(
                "the closing quotation mark is missing",
                "a quotation mark inside the text is written \\\" or |22|",
            )
        })?;
        let value = Value {
            text: text.get(..end),
            negated,
            plain: &[],
        };
        Ok((value, text.get(end + 1..).unwrap_or_default()))
    }

    fn quoted(&self, name: &str) -> Result<&'a [u8], Trouble> {
        if self.negated {
            return Err(trouble(
                format!(
                    "{name}:! asks for what is not there, which cannot be found in a stream that goes on"
                ),
                "leave it out, and look for streams without a match in the output",
            ));
        }
        self.text.ok_or_else(|| {
            trouble(
                format!("the value of {name} is not in quotation marks"),
                "content:\"text\"",
            )
        })
    }

    fn number(&self, name: &str) -> Result<u64, Trouble> {
        core::str::from_utf8(self.plain)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| {
                trouble(
                    format!(
                        "{name} needs a whole number, not `{}`",
                        crate::pattern::readable(self.plain)
                    ),
                    match name {
                        "sid" => "sid is the pattern's number in the output",
                        _ => "offset and depth count bytes from the beginning of the stream",
                    },
                )
            })
    }
}

/// Position of the quotation mark that is not escaped.
pub(crate) fn closing_mark(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// The bytes of a content's text: escapes, and hexadecimal between bars.
pub(crate) fn text_bytes(text: &[u8]) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = Bars::new(text);
    while let Some((part, is_hex)) = parts.next()? {
        if is_hex {
            hexadecimal(part, &mut bytes)?;
        } else {
            bytes.extend(unescaped(part)?);
        }
    }
    if bytes.is_empty() {
        return Err(trouble("the content is empty", "content:\"text\""));
    }
    Ok(bytes)
}

/// The parts of a text that bars divide; every second one is hexadecimal.
struct Bars<'a> {
    rest: Option<&'a [u8]>,
    is_hex: bool,
}

impl<'a> Bars<'a> {
    fn new(text: &'a [u8]) -> Bars<'a> {
        Bars {
            rest: Some(text),
            is_hex: false,
        }
    }

    fn next(&mut self) -> Result<Option<(&'a [u8], bool)>, Trouble> {
        let Some(text) = self.rest else {
            return Ok(None);
        };
        let is_hex = self.is_hex;
        let mut escaped = false;
        let bar = text.iter().position(|&byte| {
            let bar = byte == b'|' && !escaped;
            escaped = byte == b'\\' && !escaped && !is_hex;
            bar
        });
        match bar {
            Some(bar) => {
                self.rest = text.get(bar + 1..);
                self.is_hex = !is_hex;
                Ok(Some((text.get(..bar).unwrap_or_default(), is_hex)))
            }
            None if is_hex => Err(trouble(
                "the bar that ends the hexadecimal part is missing",
                "content:\"GET |0d 0a|\"; a bar itself is |7c|",
            )),
            None => {
                self.rest = None;
                Ok(Some((text, false)))
            }
        }
    }
}

fn hexadecimal(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), Trouble> {
    let wrong = || {
        trouble(
            format!("|{}| is not hexadecimal", crate::pattern::readable(text)),
            "two digits for each byte: |0d 0a ff|",
        )
    };
    let mut high = None;
    for &byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = char::from(byte).to_digit(16).ok_or_else(wrong)? as u8;
        match high.take() {
            Some(high) => bytes.push(high << 4 | digit),
            None => high = Some(digit),
        }
    }
    if high.is_some() { Err(wrong()) } else { Ok(()) }
}

/// A text without its backslashes.
fn unescaped(text: &[u8]) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut from = text.iter();
    while let Some(&byte) = from.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match from.next() {
            Some(&next) if !next.is_ascii_alphanumeric() => bytes.push(next),
            next => {
                let next = next.map_or(String::new(), |&next| char::from(next).to_string());
                return Err(trouble(
                    format!("\\{next} is not an escape of this syntax"),
                    "bytes are written in hexadecimal between bars: |0d 0a|; a backslash is \\\\",
                ));
            }
        }
    }
    Ok(bytes)
}

/// `/text/flags` in its parts; `None` for anything else.
pub(crate) fn split_regex(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = line.strip_prefix(b"/")?;
    let slash = inner.iter().rposition(|&byte| byte == b'/')?;
    let (text, flags) = (inner.get(..slash)?, inner.get(slash + 1..)?);
    let is_flags = flags.iter().all(u8::is_ascii_alphabetic);
    is_flags.then_some((text, flags))
}

/// The flags behind a regular expression.
pub(crate) fn regex_flags(letters: &[u8]) -> Result<RegexFlags, Trouble> {
    let mut flags = RegexFlags::default();
    for &letter in letters {
        match letter {
            b'i' => flags.ignore_case = true,
            b'm' => flags.multi_line = true,
            b's' => flags.dot_all = true,
            b'x' => flags.extended = true,
            _ if letter.is_ascii_uppercase() => {
                return Err(trouble(
                    format!(
                        "the flag {} of a rule's expression is not known: it says in which part of a message, \
                         or where, to look",
                        char::from(letter)
                    ),
                    "leave it out: the whole stream is searched; for the text write it in quotation marks",
                ));
            }
            _ => {
                return Err(trouble(
                    format!(
                        "the flag {} of a regular expression is not known",
                        char::from(letter)
                    ),
                    "flags: i (ignore case), m (lines), s (a dot is any byte), x (spaces do not count)",
                ));
            }
        }
    }
    Ok(flags)
}

fn word(text: &[u8]) -> (String, &[u8]) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let end = text.iter().position(|byte| !is_part(byte));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    (String::from_utf8_lossy(word).into_owned(), rest)
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

pub(crate) fn trouble(message: impl Into<String>, hint: impl Into<String>) -> Trouble {
    (message.into(), hint.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(line: &str) -> (Vec<u8>, bool, Option<Bounds>) {
        let content = parse(line.as_bytes()).unwrap();
        let bounds = content.bounds();
        match content.kind {
            Some(PatternKind::Literal { bytes, ignore_case }) => (bytes, ignore_case, bounds),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_hexadecimal_and_escapes() {
        for (line, expected) in [
            (r#"content:"abc""#, b"abc".as_slice()),
            (r#"content:"|41 42|C|0D0a|";"#, b"ABC\r\n"),
            (r#"content:"a\"b\;\\\:\|""#, b"a\"b;\\:|"),
            (r#"content: "a;b" ; sid:5"#, b"a;b"),
            (r#"content:"|7c|""#, b"|"),
        ] {
            assert_eq!(literal(line), (expected.to_vec(), false, None), "{line}");
        }
    }

    #[test]
    fn modifiers_of_both_dialects() {
        let bounds = |first, end| Some(Bounds { first, end });
        for (line, expected) in [
            (
                r#"content:"abc"; nocase; offset:4; depth:20;"#,
                (true, bounds(4, 24)),
            ),
            (
                r#"content:"abc",nocase,offset 4,depth 20"#,
                (true, bounds(4, 24)),
            ),
            (r#"content:"abc"; depth: 3"#, (false, bounds(0, 3))),
            (
                r#"content:"abc"; offset:7; fast_pattern"#,
                (false, bounds(7, u64::MAX)),
            ),
            (r#"content:"abc"; startswith; nocase"#, (true, bounds(0, 3))),
        ] {
            let (bytes, ignore_case, bounds) = literal(line);
            assert_eq!(
                (bytes.as_slice(), (ignore_case, bounds)),
                (b"abc".as_slice(), expected),
                "{line}"
            );
        }
    }

    #[test]
    fn names_numbers_and_expressions() {
        let content =
            parse(br#"msg:"a \"name\""; pcre:"/a\/b+/is"; sid:42; rev:3; classtype:x;"#).unwrap();
        assert_eq!(content.name.as_deref(), Some("a \"name\""));
        assert_eq!(content.sid, Some(42));
        let Some(PatternKind::Regex { text, flags }) = content.kind else {
            panic!("no expression");
        };
        assert_eq!(text, br"a\/b+");
        assert!(flags.ignore_case && flags.dot_all && !flags.multi_line);
    }

    #[test]
    fn what_would_mean_something_else_is_refused() {
        for (line, part) in [
            (r#"content:"a"; distance:1"#, "distance"),
            (r#"content:"a"; content:"b""#, "several"),
            (r#"content:!"a""#, "not there"),
            (r#"content:"a"; http_uri"#, "http_uri"),
            (r#"content:"a",within 5"#, "within"),
            (r#"content:"a"; endswith"#, "ends"),
            (r#"content:"abc"; depth:2"#, "less"),
            (r#"content:"a"; depth:0"#, "less"),
            (r#"content:"a"; offset:-1"#, "whole number"),
            (r#"content:"|4|""#, "hexadecimal"),
            (r#"content:"|4g|""#, "hexadecimal"),
            (r#"content:"|41"#, "quotation"),
            (r#"content:"|41""#, "bar"),
            (r#"content:"\x41""#, "escape"),
            (r#"content:"""#, "empty"),
            (r#"content:abc"#, "quotation"),
            (r#"sid:5"#, "no content"),
            (r#"pcre:"/a/U""#, "flag U"),
            (r#"content:"a" b"#, "b is not known"),
        ] {
            let (message, hint) = parse(line.as_bytes()).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
            assert!(!hint.is_empty());
        }
    }
}
