//! Header fields of a part: values and their parameters (RFC 2045 section 5.1, RFC 2231), names in other
//! alphabets than ASCII (RFC 2047).

use super::coding::Coding;

/// The value of a field without its parameters, and these: names in lower case, with values as they are meant.
pub(super) fn parameters(value: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = value.iter().position(|&byte| byte == b';');
    let (first, rest) = value.split_at(end.unwrap_or(value.len()));
    (first.trim_ascii(), Parameters(rest))
}

/// Those of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters<'a>(&'a [u8]);

impl Parameters<'_> {
    /// The value of one, put together of its pieces where there are any.
    pub(super) fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut plain = None;
        let mut pieces: Vec<(usize, bool, Vec<u8>)> = Vec::new();
        self.each(|key, value| {
            let Some(behind) = key.get(name.len()..) else {
                return;
            };
            if !key.iter().zip(name).all(|(a, b)| a.eq_ignore_ascii_case(b)) {
                return;
            }
            let (section, is_extended) = match behind.strip_suffix(b"*") {
                Some(section) => (section, true),
                None => (behind, false),
            };
            let number = match section {
                [] if !is_extended => {
                    plain.get_or_insert(value);
                    return;
                }
                [] => Some(0),
                [b'*', digits @ ..] => core::str::from_utf8(digits)
                    .ok()
                    .and_then(|it| it.parse().ok()),
                _ => None,
            };
            if let Some(number) = number {
                pieces.push((number, is_extended, value));
            }
        });
        if pieces.is_empty() {
            return plain;
        }
        pieces.sort_by_key(|piece| piece.0);
        let mut whole = Vec::new();
        let mut is_latin = false;
        for (place, (_, is_extended, value)) in pieces.into_iter().enumerate() {
            let mut value = value.as_slice();
            if place == 0 && is_extended {
                // The character set, the language, the text.
                let mut parts = value.splitn(3, |&byte| byte == b'\'');
                if let (Some(set), Some(_), Some(text)) = (parts.next(), parts.next(), parts.next())
                {
                    is_latin = is_latin_1(set);
                    value = text;
                }
            }
            match is_extended {
                true => unescape(value, b'%', &mut whole),
                false => whole.extend_from_slice(value),
            }
        }
        Some(if is_latin {
            from_latin_1(&whole)
        } else {
            whole
        })
    }

    fn each(&self, mut take: impl FnMut(&[u8], Vec<u8>)) {
        let mut rest = self.0;
        while let Some((_, behind)) = rest.split_first() {
            let end = behind.iter().position(|byte| matches!(byte, b'=' | b';'));
            let Some(end) = end else { return };
            let (key, behind) = behind.split_at(end);
            if behind.first() == Some(&b';') {
                rest = behind;
                continue;
            }
            let behind = behind.get(1..).unwrap_or_default().trim_ascii_start();
            let mut value = Vec::new();
            let taken = match behind.strip_prefix(b"\"") {
                Some(quoted) => 1 + quoted_string(quoted, &mut value),
                None => {
                    let end = behind.iter().position(|&byte| byte == b';');
                    let text = behind.get(..end.unwrap_or(behind.len()));
                    value.extend_from_slice(text.unwrap_or_default().trim_ascii());
                    end.unwrap_or(behind.len())
                }
            };
            take(key.trim_ascii(), value);
            let behind = behind.get(taken..).unwrap_or_default();
            let next = behind.iter().position(|&byte| byte == b';');
            rest = next.and_then(|next| behind.get(next..)).unwrap_or_default();
        }
    }
}

/// Appends what stands in quotation marks. Returns how many bytes that were, with the last mark.
fn quoted_string(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut is_escaped = false;
    for (place, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => {
                out.push(byte);
                is_escaped = false;
            }
            b'\\' => is_escaped = true,
            b'"' => return place + 1,
            _ => out.push(byte),
        }
    }
    bytes.len()
}

/// Appends bytes, those behind an escape in hexadecimal digits.
fn unescape(bytes: &[u8], escape: u8, out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == escape);
        let digits = digits.and_then(|it| core::str::from_utf8(it).ok());
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
}

fn is_latin_1(set: &[u8]) -> bool {
    set.eq_ignore_ascii_case(b"iso-8859-1") || set.eq_ignore_ascii_case(b"windows-1252")
}

fn from_latin_1(bytes: &[u8]) -> Vec<u8> {
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    text.into_bytes()
}

/// A text with its encoded words (RFC 2047, section 2) as they are meant. Those in other sets of characters than
/// ISO 8859-1 are taken for UTF-8.
pub(super) fn unencoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    // Behind an encoded word: blanks before the next one do not count.
    let mut blanks = None;
    while !rest.is_empty() {
        if let Some((word, behind)) = encoded_word(rest) {
            out.extend(word);
            rest = behind;
            blanks = Some(0);
            continue;
        }
        let (first, behind) = rest.split_at(1);
        match &mut blanks {
            Some(count) if first == b" " || first == b"\t" => *count += 1,
            _ => {
                out.extend(core::iter::repeat_n(b' ', blanks.take().unwrap_or(0)));
                out.extend_from_slice(first);
            }
        }
        rest = behind;
    }
    out
}

/// The encoded word with which a text begins, and what follows.
fn encoded_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let behind = text.strip_prefix(b"=?")?;
    let mut parts = behind.splitn(3, |&byte| byte == b'?');
    let (set, coding, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let end = rest.windows(2).position(|it| it == b"?=")?;
    let (encoded, behind) = rest.split_at(end);
    // A language may follow the set (RFC 2231, section 5).
    let set = set.split(|&byte| byte == b'*').next()?;
    let mut word = Vec::new();
    match coding {
        b"B" | b"b" => {
            let mut coding = Coding::named(b"base64");
            coding.decode(encoded, &mut word);
            coding.finish(&mut word);
        }
        b"Q" | b"q" => {
            let blanks: Vec<u8> = encoded
                .iter()
                .map(|&it| if it == b'_' { b' ' } else { it })
                .collect();
            unescape(&blanks, b'=', &mut word);
        }
        _ => return None,
    }
    let word = if is_latin_1(set) {
        from_latin_1(&word)
    } else {
        word
    };
    Some((word, behind.get(2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(value: &str) -> Option<String> {
        let (_, parameters) = parameters(value.as_bytes());
        let name = parameters.get(b"filename")?;
        Some(String::from_utf8(unencoded(&name)).expect("UTF-8"))
    }

    #[test]
    fn names_are_put_together_and_decoded() {
        for (value, wanted) in [
            ("attachment", None),
            ("attachment; filename=a.txt", Some("a.txt")),
            (
                "attachment ; FileName = \"a; \\\"b\\\".txt\" ; size=1",
                Some("a; \"b\".txt"),
            ),
            ("attachment; name=x; filename=", Some("")),
            // RFC 2231, sections 3 and 4.
            (
                "attachment; filename*1=b.txt; filename*0=\"a \"",
                Some("a b.txt"),
            ),
            (
                "attachment; filename*=us-ascii'en-us'a%20%2a.txt",
                Some("a *.txt"),
            ),
            (
                "attachment; filename*0*=us-ascii'en'This%20is%20even%20more%20; filename*1*=%2A%2A%2Afun%2A%2A%2A%20; filename*2=\"isn't it!\"",
                Some("This is even more ***fun*** isn't it!"),
            ),
            (
                "attachment; filename*=iso-8859-1''%FC.txt; filename=u.txt",
                Some("\u{fc}.txt"),
            ),
            ("attachment; filename*=UTF-8''%C3%BC%zz", Some("\u{fc}%zz")),
            // RFC 2047, section 8, and as many send it.
            (
                "attachment; filename=\"=?ISO-8859-1?Q?a_=FC?= =?ISO-8859-1?Q?b?=.txt\"",
                Some("a \u{fc}b.txt"),
            ),
            (
                "attachment; filename=\"=?utf-8*en?B?w7wudHh0?=\"",
                Some("\u{fc}.txt"),
            ),
            (
                "attachment; filename=\"=?utf-8?X?a?= b\"",
                Some("=?utf-8?X?a?= b"),
            ),
            ("attachment; filename=\"open", Some("open")),
        ] {
            assert_eq!(name(value).as_deref(), wanted, "{value}");
        }
        let long: String = (0..100).map(|it| format!("; filename*{it}=x")).collect();
        let long = format!("attachment{long}");
        assert_eq!(
            parameters(long.as_bytes()).1.get(b"filename"),
            Some(vec![b'x'; 100])
        );
    }
}
