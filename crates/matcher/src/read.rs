//! Patterns from text: one per line.
//!
//! | line | is |
//! |---|---|
//! | `/ab+c/i` | a regular expression with flags |
//! | `content:"GET \|0d 0a\|"; nocase; sid:7` | options as in Snort's rules |
//! | `"GET \|0d 0a\|"` | the same with the text alone |
//! | `# ...`, nothing | nothing |
//! | anything else | the bytes of the line |

use std::collections::HashMap;

use crate::content::{
    self, Trouble, closing_mark, is_options, is_rule, regex_flags, split_regex, text_bytes, trouble,
};
use crate::error::PatternError;
use crate::pattern::{Pattern, PatternKind, readable};

/// How patterns are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Every line that is not empty is a text as it stands.
    pub fixed: bool,
    /// Upper and lower case letters of ASCII are the same in all of them.
    pub ignore_case: bool,
    /// Number of the first pattern; those without a `sid` count on from it.
    pub first_id: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            fixed: false,
            ignore_case: false,
            first_id: 1,
        }
    }
}

/// Reads patterns, one per line.
///
/// # Errors
/// The first line that cannot be read.
pub fn read_patterns(text: &[u8]) -> Result<Vec<Pattern>, PatternError> {
    read_patterns_with(text, ReadOptions::default())
}

/// As [`read_patterns`], with options.
///
/// # Errors
/// The first line that cannot be read.
pub fn read_patterns_with(text: &[u8], options: ReadOptions) -> Result<Vec<Pattern>, PatternError> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut patterns = Vec::new();
    let mut lines_of_ids = HashMap::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let id = options.first_id + patterns.len() as u64;
        match read_line(line, id, options) {
            Ok(Some(mut pattern)) => {
                pattern.line = index + 1;
                // Its own, and not the next one's.
                if pattern.id != id
                    && let Some(other) = lines_of_ids.insert(pattern.id, pattern.line)
                {
                    return Err(PatternError::Line {
                        line: pattern.line,
                        message: format!("sid {} is that of line {other}, too", pattern.id),
                        hint: "give each pattern a number of its own, or leave sid out".to_owned(),
                    });
                }
                patterns.push(pattern);
            }
            Ok(None) => {}
            Err((message, hint)) => {
                return Err(PatternError::Line {
                    line: index + 1,
                    message,
                    hint,
                });
            }
        }
    }
    Ok(patterns)
}

fn read_line(line: &[u8], id: u64, options: ReadOptions) -> Result<Option<Pattern>, Trouble> {
    let plain = || Pattern::literal(id, line, options.ignore_case);
    if options.fixed {
        return Ok((!line.is_empty()).then(plain));
    }
    let trimmed = line.trim_ascii();
    if trimmed.is_empty() || trimmed.starts_with(b"#") {
        return Ok(None);
    }
    let mut pattern = plain();
    if is_options(trimmed) {
        let content = content::parse(trimmed)?;
        pattern.bounds = content.bounds();
        pattern.id = content.sid.unwrap_or(id);
        pattern.name = content.name;
        pattern.kind = content.kind.unwrap_or(pattern.kind);
    } else if is_rule(trimmed) {
        return Err(trouble(
            "whole rules (ports, directions, several contents) are not supported",
            "give the content that matters: content:\"...\"; msg:\"...\"; sid:...",
        ));
    } else if let Some(text) = trimmed.strip_prefix(b"\"") {
        let end = closing_mark(text).filter(|end| end + 1 == text.len());
        let text = end.and_then(|end| text.get(..end)).ok_or_else(|| {
            trouble(
                "a line that begins with a quotation mark has to end with it",
                "a text with a quotation mark: \"say |22|hello\", or --fixed-strings",
            )
        })?;
        pattern.kind = PatternKind::Literal {
            bytes: text_bytes(text)?,
            ignore_case: options.ignore_case,
        };
    } else if let Some(kind) = regex(trimmed)? {
        pattern.kind = kind;
    } else {
        return Ok(Some(pattern));
    }
    pattern.text = readable(trimmed);
    match &mut pattern.kind {
        PatternKind::Literal { ignore_case, .. } => *ignore_case |= options.ignore_case,
        PatternKind::Regex { flags, .. } => flags.ignore_case |= options.ignore_case,
    }
    Ok(Some(pattern))
}

/// A regular expression, if the line is one: slashes around it and nothing but flags behind.
fn regex(line: &[u8]) -> Result<Option<PatternKind>, Trouble> {
    let Some((text, flags)) = split_regex(line) else {
        return Ok(None);
    };
    // `/etc/passwd` is a path; `g` and `u` are flags elsewhere, and capitals in rules.
    let is_flag = |flag: &u8| b"imsxguABCDEGHIKMOPQRSUVWY".contains(flag);
    if !flags.iter().all(is_flag) {
        return Ok(None);
    }
    let flags = regex_flags(flags)?;
    let shown = readable(line);
    if text.is_empty() {
        return Err(trouble(
            format!("`{shown}` is an empty regular expression"),
            format!("to search for the text: \"{shown}\", or --fixed-strings for all lines"),
        ));
    }
    let mut escaped = false;
    let bare = text.iter().any(|&byte| {
        let bare = byte == b'/' && !escaped;
        escaped = byte == b'\\' && !escaped;
        bare
    });
    if bare {
        return Err(trouble(
            format!("`{shown}` can be a path or a regular expression"),
            format!(
                "the text: \"{shown}\", or --fixed-strings for all lines; the expression: with \\/ \
                 for slashes in it"
            ),
        ));
    }
    Ok(Some(PatternKind::Regex {
        text: text.to_vec(),
        flags,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::RegexFlags;

    fn literal(bytes: &[u8]) -> PatternKind {
        PatternKind::Literal {
            bytes: bytes.to_vec(),
            ignore_case: false,
        }
    }

    #[test]
    fn each_kind_of_line() {
        let text = b"\xef\xbb\xbfplain text \r\n\n# comment\n/ab+c/i\n\"|41|b\"\n/etc/passwd\n\
                     content:\"x\"; sid:77; msg:\"name\"\n\xff\xfe\n";
        let patterns = read_patterns(text).unwrap();
        let kinds: Vec<&PatternKind> = patterns.iter().map(|pattern| &pattern.kind).collect();
        let flags = RegexFlags {
            ignore_case: true,
            ..RegexFlags::default()
        };
        let regex = PatternKind::Regex {
            text: b"ab+c".to_vec(),
            flags,
        };
        assert_eq!(
            kinds,
            [
                &literal(b"plain text "),
                &regex,
                &literal(b"Ab"),
                &literal(b"/etc/passwd"),
                &literal(b"x"),
                &literal(b"\xff\xfe"),
            ]
        );
        let numbers: Vec<(u64, usize)> = patterns.iter().map(|p| (p.id, p.line)).collect();
        assert_eq!(numbers, [(1, 1), (2, 4), (3, 5), (4, 6), (77, 7), (6, 8)]);
        assert_eq!(patterns[4].name.as_deref(), Some("name"));
        assert_eq!(patterns[5].text, "\\xff\\xfe");
    }

    #[test]
    fn fixed_strings_are_taken_as_they_stand() {
        let options = ReadOptions {
            fixed: true,
            ignore_case: true,
            first_id: 10,
        };
        let patterns = read_patterns_with(b"/a/\n#b\n\n \n", options).unwrap();
        let texts: Vec<&str> = patterns.iter().map(|p| p.text.as_str()).collect();
        assert_eq!(texts, ["/a/", "#b", " "]);
        assert_eq!(patterns[2].id, 12);
        for pattern in &patterns {
            let PatternKind::Literal { ignore_case, .. } = &pattern.kind else {
                panic!("{pattern:?}");
            };
            assert!(ignore_case);
        }
    }

    #[test]
    fn errors_have_the_line_and_a_hint() {
        for (text, line, part) in [
            ("a\n\n\"b", 3, "quotation"),
            ("/cgi-bin/test/", 1, "path or"),
            ("//", 1, "empty"),
            ("/a/g", 1, "flag g"),
            ("/GET/U", 1, "flag U"),
            ("uricontent:\"GET\"", 1, "uricontent is not known"),
            ("flow:established; content:\"GET\"", 1, "flow is not known"),
            (
                "content:\"a\"; sid:9\nb\ncontent:\"c\"; sid:9",
                3,
                "sid 9 is that of line 1",
            ),
            ("content:\"a\"; sid:x", 1, "sid needs a whole number"),
            ("a\ncontent:\"b\"; within:5", 2, "within"),
            (
                "alert tcp any any -> any 80 (content:\"x\"; sid:1;)",
                1,
                "whole rule",
            ),
        ] {
            let error = read_patterns(text.as_bytes()).unwrap_err();
            let PatternError::Line {
                line: at,
                message,
                hint,
            } = &error
            else {
                panic!("{error:?}");
            };
            assert_eq!(*at, line);
            assert!(message.contains(part), "{message}");
            assert!(!hint.is_empty());
        }
    }
}
