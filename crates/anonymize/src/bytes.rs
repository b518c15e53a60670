//! Functions of payload and of text.

use crate::keyed::{Random, hash};
use crate::rule::{Digest, Expression, Function, Rest};
use data_encoding::HEXLOWER;

/// The longest ending of a file's name that `FILENAME_RANDOM` keeps.
const ENDING: usize = 5;

/// What payload became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it is there.
    All,
    /// So many bytes; the rest is to be cut off.
    Only(usize),
}

/// Replaces payload where it stands.
pub(crate) fn payload(
    function: &Function,
    key: &[u8; 32],
    random: &mut Random,
    bytes: &mut [u8],
) -> Left {
    match function {
        Function::Unchanged => return Left::All,
        Function::Strip(kept) => return Left::Only((*kept as usize).min(bytes.len())),
        Function::Random => random.fill(bytes),
        Function::PatternFill(pattern) => repeat(pattern, bytes),
        Function::Replace(text) => {
            let length = text.len().min(bytes.len());
            bytes
                .iter_mut()
                .zip(text)
                .for_each(|(to, from)| *to = *from);
            return Left::Only(length);
        }
        Function::Hashed(digest, rest) => {
            let hash = hash(*digest, key, bytes);
            let length = hash.len().min(bytes.len());
            bytes
                .iter_mut()
                .zip(&hash)
                .for_each(|(to, from)| *to = *from);
            match rest {
                Rest::PadWithZero => bytes.get_mut(length..).unwrap_or_default().fill(0),
                Rest::StripRest => return Left::Only(length),
                Rest::Unchanged => {}
            }
        }
        Function::FilenameRandom => filename(random, bytes),
        Function::Regexp(expression) => {
            let replaced = expression.replaced_in_place(bytes);
            bytes.copy_from_slice(&replaced);
        }
        // All others are refused for payload, or are zero.
        _ => bytes.fill(0),
    }
    Left::All
}

/// What a text becomes, of whatever length, at the end of `out`.
pub(crate) fn text(
    function: &Function,
    key: &[u8; 32],
    random: &mut Random,
    value: &[u8],
    out: &mut Vec<u8>,
) {
    match function {
        Function::Unchanged => out.extend_from_slice(value),
        Function::Strip(kept) => {
            // Not within a character.
            let mut end = (*kept as usize).min(value.len());
            while end > 0 && value.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
                end -= 1;
            }
            out.extend_from_slice(value.get(..end).unwrap_or_default());
        }
        Function::Random => {
            for _ in value {
                out.push(letter(random, false));
            }
        }
        Function::FilenameRandom => {
            let start = out.len();
            out.extend_from_slice(value);
            filename(random, out.get_mut(start..).unwrap_or_default());
        }
        Function::PatternFill(pattern) => {
            let start = out.len();
            out.resize(start + value.len(), 0);
            repeat(pattern, out.get_mut(start..).unwrap_or_default());
        }
        Function::Replace(text) => out.extend_from_slice(text),
        Function::Hashed(digest, rest) => {
            let start = out.len();
            out.extend(
                HEXLOWER
                    .encode(&hash_text(*digest, key, value))
                    .into_bytes(),
            );
            let length = out.len() - start;
            match rest {
                Rest::Unchanged => out.extend_from_slice(value.get(length..).unwrap_or_default()),
                Rest::PadWithZero | Rest::StripRest => {}
            }
        }
        Function::Regexp(expression) => expression.replace(value, out),
        // Zero, and what is refused for text.
        _ => {}
    }
}

/// Text is the same whatever case names have that ignore it: not done here, as URIs do not.
fn hash_text(digest: Digest, key: &[u8; 32], value: &[u8]) -> Vec<u8> {
    let mut hash = hash(digest, key, value);
    // 128 bits tell apart whatever there is, and fit on a line.
    hash.truncate(16);
    hash
}

/// The same within a packet: what is shorter than the value is filled up.
pub(crate) fn text_in_place(
    function: &Function,
    key: &[u8; 32],
    random: &mut Random,
    value: &mut [u8],
    filler: u8,
    memory: &mut Vec<u8>,
) {
    if let Function::Unchanged = function {
        return;
    }
    memory.clear();
    text(function, key, random, value, memory);
    let padding = match function {
        Function::Hashed(_, Rest::PadWithZero) => b'0',
        _ => filler,
    };
    let becomes = memory.iter().copied().chain(core::iter::repeat(padding));
    for (to, from) in value.iter_mut().zip(becomes) {
        // No line ends where none was.
        *to = if from.is_ascii_control() {
            filler
        } else {
            from
        };
    }
}

fn repeat(pattern: &[u8], bytes: &mut [u8]) {
    if pattern.is_empty() {
        return bytes.fill(0);
    }
    bytes
        .iter_mut()
        .zip(pattern.iter().cycle())
        .for_each(|(to, from)| *to = *from);
}

fn letter(random: &mut Random, upper: bool) -> u8 {
    let first = if upper { b'A' } else { b'a' };
    first + random.below(26)
}

/// Replaces letters and digits, all but separators and the ending of the last name.
fn filename(random: &mut Random, bytes: &mut [u8]) {
    let path = bytes
        .iter()
        .position(|it| *it == b'?')
        .unwrap_or(bytes.len());
    let name = bytes.get(..path).unwrap_or_default();
    let start = name
        .iter()
        .rposition(|it| *it == b'/')
        .map_or(0, |slash| slash + 1);
    let dot = name
        .iter()
        .rposition(|it| *it == b'.')
        .filter(|dot| *dot > start);
    let ending = dot.map_or(path..path, |dot| dot + 1..path);
    let is_ending = name
        .get(ending.clone())
        .is_some_and(|it| it.len() <= ENDING && it.iter().all(u8::is_ascii_alphabetic));
    for (place, byte) in bytes.iter_mut().enumerate() {
        if is_ending && ending.contains(&place) {
            continue;
        }
        *byte = match *byte {
            b'/' | b'.' | b'?' | b'&' | b'=' => continue,
            b'0'..=b'9' => b'0' + random.below(10),
            other => letter(random, other.is_ascii_uppercase()),
        };
    }
}

impl Expression {
    /// What of a text the expression matches, its groups replaced; nothing where it does not match.
    fn replace(&self, value: &[u8], out: &mut Vec<u8>) {
        let Some(found) = self.regex.captures(value) else {
            return;
        };
        let Some(whole) = found.get(0) else { return };
        let mut at = whole.start();
        for (group, becomes) in self.groups.iter().enumerate() {
            let (Some(part), Some(becomes)) = (found.get(group + 1), becomes) else {
                continue;
            };
            // A group within one that was replaced is gone.
            if part.start() < at {
                continue;
            }
            out.extend_from_slice(value.get(at..part.start()).unwrap_or_default());
            out.extend_from_slice(becomes);
            at = part.end();
        }
        out.extend_from_slice(value.get(at..whole.end()).unwrap_or_default());
    }

    /// The same of the same length: all that is not matched is zero, and each group is cut or filled up.
    fn replaced_in_place(&self, value: &[u8]) -> Vec<u8> {
        let mut kept = vec![0; value.len()];
        let Some(found) = self.regex.captures(value) else {
            return kept;
        };
        if let Some(whole) = found.get(0) {
            let range = whole.range();
            if let (Some(to), Some(from)) = (kept.get_mut(range.clone()), value.get(range)) {
                to.copy_from_slice(from);
            }
        }
        for (group, becomes) in self.groups.iter().enumerate() {
            let (Some(part), Some(becomes)) = (found.get(group + 1), becomes) else {
                continue;
            };
            let becomes = becomes.iter().copied().chain(core::iter::repeat(b' '));
            let part = kept.get_mut(part.range()).unwrap_or_default();
            part.iter_mut()
                .zip(becomes)
                .for_each(|(to, from)| *to = from);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    const KEY: [u8; 32] = [5; 32];

    fn function(rule: &str) -> Function {
        Rule::parse(rule).unwrap().function
    }

    fn of_payload(rule: &str, bytes: &[u8]) -> (Vec<u8>, Left) {
        let mut bytes = bytes.to_vec();
        let mut random = Random::seeded([2; 16]);
        let left = payload(&function(rule), &KEY, &mut random, &mut bytes);
        (bytes, left)
    }

    fn of_text(rule: &str, value: &str) -> String {
        let (mut out, mut random) = (Vec::new(), Random::seeded([2; 16]));
        text(
            &function(rule),
            &KEY,
            &mut random,
            value.as_bytes(),
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn functions_of_payload() {
        assert_eq!(of_payload("TCP,PAYLOAD,STRIP,2", b"abcd").1, Left::Only(2));
        assert_eq!(
            of_payload("TCP,PAYLOAD,ZERO", b"abcd"),
            (vec![0; 4], Left::All)
        );
        assert_eq!(
            of_payload("TCP,PAYLOAD,PATTERN_FILL,STR,xyz", b"abcd").0,
            b"xyzx"
        );
        let (bytes, left) = of_payload("TCP,PAYLOAD,REPLACE,no", b"abcd");
        assert_eq!((&bytes[..2], left), (&b"no"[..], Left::Only(2)));
        let (bytes, left) = of_payload("TCP,PAYLOAD,HASHED,MD5,UNCHANGED", &[b'a'; 20]);
        assert_eq!((&bytes[16..], left), (&b"aaaa"[..], Left::All));
        assert_eq!(
            of_payload("TCP,PAYLOAD,HASHED,MD5", &[b'a'; 20]).0[16..],
            [0; 4]
        );
        assert_eq!(
            of_payload("TCP,PAYLOAD,HASHED,SHA1,STRIP_REST", &[b'a'; 30]).1,
            Left::Only(20)
        );
        assert_ne!(of_payload("TCP,PAYLOAD,RANDOM", &[b'a'; 20]).0, [b'a'; 20]);
        let rule = r#"TCP,PAYLOAD,REGEXP,"user=(\w+) (on) ",2,x,NULL"#;
        assert_eq!(
            of_payload(rule, b"1 user=alice on 7").0,
            b"\0\0user=x     on \0"
        );
        assert_eq!(of_payload(rule, b"password=alice").0, [0; 14]);
    }

    #[test]
    fn functions_of_text() {
        assert_eq!(of_text("HTTP,URI,STRIP,3", "/secret"), "/se");
        assert_eq!(of_text("HTTP,URI,STRIP,2", "a\u{e9}"), "a");
        assert_eq!(of_text("HTTP,URI,ZERO", "/secret"), "");
        let hashed = of_text("HTTP,HOST,HASHED", "example.com");
        assert_eq!(hashed.len(), 32);
        assert_eq!(hashed, of_text("HTTP,HOST,HASHED,SHA256", "example.com"));
        assert_ne!(hashed, of_text("HTTP,HOST,HASHED,MD5", "example.com"));
        assert_eq!(
            of_text("HTTP,URI,REGEXP,\"id=(\\d+)\",1,0", "/a?id=7&x"),
            "id=0"
        );
        let name = of_text("HTTP,URI,FILENAME_RANDOM", "/Home/alice.html?u=a1");
        let shape = name.bytes().map(|it| match it {
            b'a'..=b'z' => 'a',
            b'A'..=b'Z' => 'A',
            b'0'..=b'9' => '0',
            other => char::from(other),
        });
        assert_eq!(shape.collect::<String>(), "/Aaaa/aaaaa.aaaa?a=a0");
        assert!(name.contains(".html?") && !name.contains("alice") && !name.contains("Home"));
        // An ending that is none goes, too.
        assert!(!of_text("HTTP,URI,FILENAME_RANDOM", "/x.secretname").contains("secretname"));
    }

    #[test]
    fn text_in_a_packet_keeps_its_length() {
        for (rule, expected) in [
            ("HTTP,URI,REPLACE,/x", "/x-----"),
            ("HTTP,URI,STRIP,1", "/------"),
            ("HTTP,URI,ZERO", "-------"),
            ("HTTP,URI,REPLACE,\"/a\r\nb\"", "/a--b--"),
        ] {
            let (mut value, mut memory) = (b"/secret".to_vec(), Vec::new());
            let mut random = Random::seeded([2; 16]);
            text_in_place(
                &function(rule),
                &KEY,
                &mut random,
                &mut value,
                b'-',
                &mut memory,
            );
            assert_eq!(String::from_utf8(value).unwrap(), expected, "{rule}");
        }
    }
}
