//! Transfer codings (RFC 2045, section 6).

/// Decodes one part, in any pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    /// Bytes are what they are.
    #[default]
    None,
    Base64(Base64),
    Quoted(Quoted),
}

/// Digits that have not come to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Base64 {
    bits: u32,
    digits: u8,
}

/// What stands before the next byte, and may belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quoted {
    /// `=`, and the digit behind it.
    escape: Option<Option<u8>>,
    /// Blanks, which do not count at the end of a line.
    blanks: Blanks,
}

/// Blanks that wait for the end of the line, or what else follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Blanks {
    /// Which of them are tabs.
    tabs: u64,
    count: u8,
}

impl Coding {
    /// The coding of this name; others than base64 and quoted-printable change nothing.
    pub(super) fn named(name: &[u8]) -> Coding {
        match name.trim_ascii() {
            name if name.eq_ignore_ascii_case(b"base64") => Coding::Base64(Base64::default()),
            name if name.eq_ignore_ascii_case(b"quoted-printable") => {
                Coding::Quoted(Quoted::default())
            }
            _ => Coding::None,
        }
    }

    /// Appends what bytes come to.
    pub(super) fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Coding::None => out.extend_from_slice(bytes),
            Coding::Base64(base64) => bytes.iter().for_each(|&byte| base64.byte(byte, out)),
            Coding::Quoted(quoted) => bytes.iter().for_each(|&byte| quoted.byte(byte, out)),
        }
    }

    /// The part is over: appends what waited.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Coding::None => {}
            Coding::Base64(base64) => base64.finish(out),
            Coding::Quoted(quoted) => quoted.finish(out),
        }
    }

    /// Bytes are missing.
    pub(super) fn gap(&mut self) {
        match self {
            Coding::None => {}
            Coding::Base64(base64) => *base64 = Base64::default(),
            Coding::Quoted(quoted) => *quoted = Quoted::default(),
        }
    }
}

impl Base64 {
    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            // What was encoded is over; it may go on with something else.
            b'=' => return self.finish(out),
            // Others do not count.
            _ => return,
        };
        self.bits = self.bits << 6 | u32::from(value);
        self.digits += 1;
        if self.digits == 4 {
            let [_, bytes @ ..] = self.bits.to_be_bytes();
            out.extend_from_slice(&bytes);
            *self = Base64::default();
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        // Twelve bits are a byte and four of no meaning, eighteen two bytes and two.
        match self.digits {
            2 => out.push((self.bits >> 4) as u8),
            3 => out.extend_from_slice(&((self.bits >> 2) as u16).to_be_bytes()),
            _ => {}
        }
        *self = Base64::default();
    }
}

impl Quoted {
    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if let Some(first) = self.escape {
            let is_digit = byte.is_ascii_hexdigit();
            match (first, byte) {
                // The line goes on: a line end, and blanks before it, are none.
                (None, b'\n') => self.escape = None,
                (None, b'\r' | b' ' | b'\t') => {}
                (None, _) if is_digit => self.escape = Some(Some(byte)),
                (Some(first), _) if is_digit => {
                    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
                    out.push(digit(first) << 4 | digit(byte));
                    self.escape = None;
                }
                // No escape: it stands for itself.
                (first, _) => {
                    out.push(b'=');
                    out.extend(first);
                    self.escape = None;
                    self.byte(byte, out);
                }
            }
            return;
        }
        match byte {
            b' ' | b'\t' => {
                if self.blanks.count == 64 {
                    self.blanks.give(out);
                }
                let is_tab = u64::from(byte == b'\t');
                self.blanks.tabs |= is_tab << self.blanks.count;
                self.blanks.count += 1;
            }
            b'\r' | b'\n' => {
                self.blanks = Blanks::default();
                out.push(byte);
            }
            b'=' => {
                self.blanks.give(out);
                self.escape = Some(None);
            }
            _ => {
                self.blanks.give(out);
                out.push(byte);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(Some(first)) = self.escape.take() {
            out.extend_from_slice(&[b'=', first]);
        }
        self.blanks = Blanks::default();
    }
}

impl Blanks {
    fn give(&mut self, out: &mut Vec<u8>) {
        for place in 0..self.count {
            let is_tab = self.tabs >> place & 1 == 1;
            out.push(if is_tab { b'\t' } else { b' ' });
        }
        *self = Blanks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(name: &str, text: &str) -> String {
        let whole = |cut: usize| {
            let mut coding = Coding::named(name.as_bytes());
            let mut out = Vec::new();
            let (first, rest) = text.as_bytes().split_at(cut);
            coding.decode(first, &mut out);
            coding.decode(rest, &mut out);
            coding.finish(&mut out);
            out
        };
        let all: Vec<Vec<u8>> = (0..=text.len()).map(whole).collect();
        assert!(all.iter().all(|one| *one == all[0]), "{text}");
        String::from_utf8_lossy(&all[0]).into_owned()
    }

    /// RFC 4648, section 10, and what lenient decoders take.
    #[test]
    fn base64() {
        for (text, wanted) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
            ("Zm9v\r\nYmFy\r\n", "foobar"),
            ("Zm9vYg", "foob"),
            ("Z m9*v", "foo"),
            ("Zg==Zm8=", "ffo"),
            ("Z", ""),
        ] {
            assert_eq!(decoded("Base64", text), wanted, "{text}");
        }
    }

    /// RFC 2045, section 6.7.
    #[test]
    fn quoted_printable() {
        for (text, wanted) in [
            ("a=3Db", "a=b"),
            ("a =20 \t\r\nb", "a  \r\nb"),
            ("one=\r\ntwo= \t\r\n", "onetwo"),
            ("=C3=BC", "\u{fc}"),
            ("=c3=bc=", "\u{fc}"),
            ("a=zb=3", "a=zb=3"),
            ("==41", "=A"),
        ] {
            assert_eq!(decoded("quoted-printable", text), wanted, "{text}");
        }
        let blanks = format!("{}x", " \t".repeat(100));
        assert_eq!(decoded("quoted-printable", &blanks), blanks);
        assert_eq!(decoded("8bit", "=41"), "=41");
    }
}
