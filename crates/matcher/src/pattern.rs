//! A pattern.

/// What is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Number that its matches are reported with: Snort's `sid` where one was given.
    pub id: u64,
    /// What it is called: Snort's `msg` where one was given.
    pub name: Option<String>,
    /// As it was written; bytes that are no UTF-8 as `\xHH`.
    pub text: String,
    /// Line it was read from, from 1.
    pub line: usize,
    /// What it consists of.
    pub kind: PatternKind,
    /// Where in a stream it may lie.
    pub bounds: Option<Bounds>,
}

/// What a pattern consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternKind {
    /// These bytes, at least one.
    Literal {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether upper and lower case letters of ASCII are the same.
        ignore_case: bool,
    },
    /// A regular expression in PCRE's syntax, without what needs backtracking.
    Regex {
        /// Its text.
        text: Vec<u8>,
        /// Its flags.
        flags: RegexFlags,
    },
}

/// Flags of a regular expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegexFlags {
    /// `i`: upper and lower case letters of ASCII are the same.
    pub ignore_case: bool,
    /// `m`: `^` and `$` match at line feeds as well.
    pub multi_line: bool,
    /// `s`: a dot stands for line feeds as well.
    pub dot_all: bool,
    /// `x`: white space and comments in the expression do not count.
    pub extended: bool,
}

/// Where in a stream a match may lie, counted from the stream's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The match begins there or later.
    pub first: u64,
    /// The match ends there or earlier (the position behind its last byte).
    pub end: u64,
}

impl Pattern {
    /// A pattern of bytes.
    pub fn literal(id: u64, bytes: &[u8], ignore_case: bool) -> Pattern {
        Pattern {
            id,
            name: None,
            text: readable(bytes),
            line: 0,
            kind: PatternKind::Literal {
                bytes: bytes.to_vec(),
                ignore_case,
            },
            bounds: None,
        }
    }
}

/// Bytes as text: those that are no UTF-8 as `\xHH`.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

impl RegexFlags {
    /// Whether the expression's match may depend on what is before its first byte: it has `^`,
    /// `\A`, `\b`, `\B` or the like. Errs on the side of yes.
    pub(crate) fn looks_back(text: &[u8]) -> bool {
        let mut bytes = text.iter();
        let mut in_class = false;
        while let Some(&byte) = bytes.next() {
            match byte {
                b'\\' => {
                    let next = bytes.next();
                    if !in_class && matches!(next, Some(b'b' | b'B' | b'A' | b'G')) {
                        return true;
                    }
                }
                b'[' if !in_class => {
                    in_class = true;
                    // `[]...]` and `[^]...]`: the bracket is a member, and `^` no assertion.
                    let mut rest = bytes.clone();
                    let mut skip = 0;
                    let mut next = rest.next();
                    if next == Some(&b'^') {
                        skip += 1;
                        next = rest.next();
                    }
                    if next == Some(&b']') {
                        skip += 1;
                    }
                    for _ in 0..skip {
                        bytes.next();
                    }
                }
                b']' => in_class = false,
                b'^' if !in_class => return true,
                _ => {}
            }
        }
        false
    }
}

/// What a repeat without end counts for: with many of them a compiler takes long.
const UNBOUNDED: u64 = 32;

/// How many places in an expression a match can be at, each bounded repeat written out: what a compiler's time goes by (with
/// Vectorscan as its cube where all of them may be left out: 1.3 s for 800, 10 s for 1,600). Never less than there are.
pub fn positions(expression: &[u8]) -> u64 {
    // Of each group that is open what was before its last atom, and that atom.
    let mut groups = vec![(0_u64, 0_u64)];
    let mut rest = expression;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let atom = match byte {
            b'(' => {
                groups.push((0, 0));
                continue;
            }
            b'|' => 0,
            b')' if groups.len() > 1 => {
                let (before, last) = groups.pop().unwrap_or_default();
                before.saturating_add(last)
            }
            b'{' => match repeats(rest) {
                Some((times, is_open, after)) => {
                    rest = after;
                    if let Some((_, last)) = groups.last_mut() {
                        *last = last.saturating_mul(times);
                    }
                    match is_open {
                        true => UNBOUNDED,
                        false => continue,
                    }
                }
                None => 1,
            },
            b'[' => {
                rest = behind_class(rest);
                1
            }
            b'\\' => {
                rest = rest.get(1..).unwrap_or_default();
                1
            }
            b'*' | b'+' => UNBOUNDED,
            _ => 1,
        };
        if let Some((before, last)) = groups.last_mut() {
            *before = before.saturating_add(core::mem::replace(last, atom));
        }
    }
    let all = groups
        .iter()
        .map(|(before, last)| before.saturating_add(*last));
    all.fold(0, u64::saturating_add)
}

/// The most times that a repeat names, whether it allows more, and what is behind it: `3}`, `1,30}`, `2,}`.
fn repeats(text: &[u8]) -> Option<(u64, bool, &[u8])> {
    let end = text.iter().position(|byte| *byte == b'}')?;
    let (bounds, rest) = (core::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]);
    let is_open = bounds.trim_end().ends_with(',');
    let bounds = bounds.split(',').filter(|bound| !bound.trim().is_empty());
    let bounds = bounds.map(|bound| bound.trim().parse::<u64>());
    let bounds: Vec<u64> = bounds.collect::<Result<_, _>>().ok()?;
    Some(((*bounds.iter().max()?).max(1), is_open, rest))
}

/// What is behind a class whose bracket is open.
fn behind_class(text: &[u8]) -> &[u8] {
    let begins = text.strip_prefix(b"^").unwrap_or(text);
    // A bracket that comes first is one of its characters.
    let mut rest = begins.strip_prefix(b"]").unwrap_or(begins);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b']' => break,
            b'\\' => rest = rest.get(1..).unwrap_or_default(),
            _ => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_written_out() {
        for (text, expected) in [
            ("", 0),
            ("abc", 3),
            ("a{3}", 3),
            ("a{2,30}b", 31),
            ("a{7,}", 39),
            ("a.*b+", 67),
            ("(a*|b){2}", 68),
            ("(ab|c){10}d", 31),
            ("((ab){3}c{2}){4}", 32),
            ("a{2}{3}", 6),
            ("[a-z]{5}[]x]{2}[^]]{2}", 9),
            (r"\{{3}\d{4}", 7),
            ("a{x}", 4),
            ("(a{100", 5),
            ("a)b{3}", 5),
        ] {
            assert_eq!(positions(text.as_bytes()), expected, "{text}");
        }
        let nested = "(".repeat(40) + "a" + &"{99}){99}".repeat(40);
        assert_eq!(positions(nested.as_bytes()), u64::MAX);
    }

    #[test]
    fn expressions_that_look_back() {
        for text in ["^a", "a|^b", r"\Afoo", r"x\b", "(?m:^a)", "[^]]^", r"\\\Ba"] {
            assert!(RegexFlags::looks_back(text.as_bytes()), "{text}");
        }
        for text in ["a", "[^a]b", r"\^a", r"[\b]", r"\\b", "[]^]", r"a\]"] {
            assert!(!RegexFlags::looks_back(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!(readable(b"a\xffb"), "a\\xffb");
        assert_eq!(readable("é".as_bytes()), "é");
    }
}
