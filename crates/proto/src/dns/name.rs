//! Domain names (RFC 1035, sections 3.1 and 4.1.4).

use core::fmt::Write as _;

use super::message::Fault;

/// Bytes of a name as it is sent, without compression.
const MAX_NAME: usize = 255;
/// Pointers of a name. Each leads towards the beginning of the message, so that no name is endless; what senders write
/// has one, or a few.
const MAX_POINTERS: usize = 64;

/// A domain name within a message. It was read to its end.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    message: &'a [u8],
    at: usize,
}

/// What stands at a place in a name.
enum Step<'a> {
    /// The name is over.
    Root,
    Label(&'a [u8]),
    /// It goes on there.
    Pointer(usize),
}

fn step(message: &[u8], at: usize) -> Result<Step<'_>, Fault> {
    let &length = message.get(at).ok_or(Fault::Short)?;
    match length >> 6 {
        0 if length == 0 => Ok(Step::Root),
        0 => {
            let label = message.get(at + 1..at + 1 + usize::from(length));
            Ok(Step::Label(label.ok_or(Fault::Short)?))
        }
        3 => {
            let &low = message.get(at + 1).ok_or(Fault::Short)?;
            Ok(Step::Pointer(
                usize::from(length & 0x3f) << 8 | usize::from(low),
            ))
        }
        _ => Err(Fault::BadLabel),
    }
}

impl<'a> Name<'a> {
    /// Reads the name at a place. Returns it and where the message goes on behind it.
    pub(super) fn read(message: &'a [u8], at: usize) -> Result<(Name<'a>, usize), Fault> {
        let (mut here, mut length, mut pointers) = (at, 1, 0);
        // Where this part of the name began: pointers lead before it.
        let mut begin = at;
        let mut end = None;
        loop {
            match step(message, here)? {
                Step::Root => {
                    let name = Name { message, at };
                    return Ok((name, end.unwrap_or(here + 1)));
                }
                Step::Label(label) => {
                    length += label.len() + 1;
                    here += label.len() + 1;
                    if length > MAX_NAME {
                        return Err(Fault::LongName);
                    }
                }
                Step::Pointer(to) => {
                    end = end.or(Some(here + 2));
                    pointers += 1;
                    if to >= begin || pointers > MAX_POINTERS {
                        return Err(Fault::BadPointer);
                    }
                    (here, begin) = (to, to);
                }
            }
        }
    }

    /// Its labels, without the empty one at the end.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Name { message, mut at } = *self;
        core::iter::from_fn(move || {
            loop {
                match step(message, at) {
                    Ok(Step::Label(label)) => {
                        at += label.len() + 1;
                        return Some(label);
                    }
                    Ok(Step::Pointer(to)) => at = to,
                    Ok(Step::Root) | Err(_) => return None,
                }
            }
        })
    }

    /// Appends it in the form of zone files (RFC 1035, section 5.1): labels with dots between, `.` for
    /// the root; within a label dots and backslashes behind a backslash, what cannot be printed as
    /// `\DDD`. UTF-8, as multicast DNS uses it, stays.
    pub fn write(&self, out: &mut String) {
        let start = out.len();
        for label in self.labels() {
            if out.len() > start {
                out.push('.');
            }
            write_escaped(label, |byte| matches!(byte, b'.' | b'\\'), out);
        }
        if out.len() == start {
            out.push('.');
        }
    }

    /// Whether both are the same name, upper and lower case taken for the same.
    pub fn is(&self, other: &Name<'_>) -> bool {
        let (mut mine, mut others) = (self.labels(), other.labels());
        loop {
            match (mine.next(), others.next()) {
                (None, None) => return true,
                (Some(one), Some(other)) if one.eq_ignore_ascii_case(other) => {}
                _ => return false,
            }
        }
    }

    /// The name of a NetBIOS service (RFC 1001, section 14.1): 15 characters, blanks at
    /// the end, and the byte that says what kind of service it is.
    pub fn netbios(&self) -> Option<([u8; 15], u8)> {
        let label: &[u8; 32] = self.labels().next()?.try_into().ok()?;
        let mut name = [0; 16];
        for (place, pair) in name.iter_mut().zip(label.chunks_exact(2)) {
            let &[high, low] = pair else { return None };
            let half = |byte: u8| matches!(byte, b'A'..=b'P').then(|| byte - b'A');
            *place = half(high)? << 4 | half(low)?;
        }
        let [text @ .., kind] = name;
        Some((text, kind))
    }

    /// Appends the name of a NetBIOS service as text, `FILES<20>`: without the blanks or zeros behind
    /// it, and what kind of service it is. Any other name as [`Name::write`].
    pub fn write_netbios(&self, out: &mut String) {
        let Some((name, kind)) = self.netbios() else {
            return self.write(out);
        };
        let end = name.iter().rposition(|byte| !matches!(byte, b' ' | 0));
        let name = name.get(..end.map_or(0, |end| end + 1)).unwrap_or(&name);
        write_escaped(name, |byte| byte == b'\\', out);
        // Into a string nothing fails.
        let _ = write!(out, "<{kind:02x}>");
    }
}

/// Appends bytes as text: those that are neither `special` nor unprintable, and UTF-8, as they are.
pub(super) fn write_escaped(bytes: &[u8], special: impl Fn(u8) -> bool, out: &mut String) {
    let is_plain = |&byte: &u8| matches!(byte, b' '..=b'~') && !special(byte);
    if bytes.iter().all(is_plain)
        && let Ok(text) = str::from_utf8(bytes)
    {
        return out.push_str(text);
    }
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_ascii() && special(letter as u8) {
                out.push('\\');
                out.push(letter);
            } else if letter.is_control() {
                let mut utf8 = [0; 4];
                for &byte in letter.encode_utf8(&mut utf8).as_bytes() {
                    write_decimal(byte, out);
                }
            } else {
                out.push(letter);
            }
        }
        for &byte in chunk.invalid() {
            write_decimal(byte, out);
        }
    }
}

fn write_decimal(byte: u8, out: &mut String) {
    // Into a string nothing fails.
    let _ = write!(out, "\\{byte:03}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &[u8], at: usize) -> Result<(String, usize), Fault> {
        let (name, end) = Name::read(message, at)?;
        let mut out = String::new();
        name.write(&mut out);
        Ok((out, end))
    }

    /// RFC 1035, section 4.1.4.
    #[test]
    fn names_share_their_endings() {
        let mut message = vec![0; 20];
        message.extend_from_slice(b"\x01F\x03ISI\x04ARPA\x00");
        message.resize(40, 0);
        message.extend_from_slice(b"\x03FOO\xc0\x14");
        message.resize(64, 0);
        message.extend_from_slice(b"\xc0\x1a");
        message.resize(92, 0);
        assert_eq!(text(&message, 20), Ok(("F.ISI.ARPA".to_owned(), 32)));
        assert_eq!(text(&message, 40), Ok(("FOO.F.ISI.ARPA".to_owned(), 46)));
        assert_eq!(text(&message, 64), Ok(("ARPA".to_owned(), 66)));
        assert_eq!(text(&message, 91), Ok((".".to_owned(), 92)));
    }

    #[test]
    fn pointers_lead_back_and_names_have_a_bound() {
        assert_eq!(text(b"\xc0\x00", 0), Err(Fault::BadPointer));
        assert_eq!(text(b"\x01a\xc0\x00", 0), Err(Fault::BadPointer));
        assert_eq!(text(b"\xc0\x02\x01a\x00", 0), Err(Fault::BadPointer));
        assert_eq!(text(b"\x01a\xc0", 0), Err(Fault::Short));
        assert_eq!(text(b"\x05abc", 0), Err(Fault::Short));
        assert_eq!(text(b"\x41abc", 0), Err(Fault::BadLabel));
        let mut long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(4);
        long.push(0);
        assert_eq!(text(&long, 0), Err(Fault::LongName));
        assert_eq!(text(&long, 64).map(|it| it.1), Ok(257));
        // Pointers to pointers, each before the last.
        let mut chain = vec![0, 0];
        for at in 1..100_u16 {
            chain.extend_from_slice(&(0xc000 | (at * 2 - 2)).to_be_bytes());
        }
        assert_eq!(text(&chain, 20), Ok((".".to_owned(), 22)));
        assert_eq!(text(&chain, 190), Err(Fault::BadPointer));
    }

    #[test]
    fn what_is_odd_in_a_label_is_escaped() {
        let (name, _) = text(b"\x05a.b\\c\x04\xc3\xa4\x01\xff\x00", 0).unwrap();
        assert_eq!(name, "a\\.b\\\\c.\u{e4}\\001\\255");
    }

    /// RFC 1001, section 14.1: "The NetBIOS name".
    #[test]
    fn netbios_names_are_halves_of_bytes() {
        let (name, _) = Name::read(b"\x20FEEFFDFEFDEFFCFGEFFCCACACACACACA\x00", 0).unwrap();
        assert_eq!(name.netbios(), Some((*b"TESTSERVER     ", 0x20)));
        let mut text = String::new();
        name.write_netbios(&mut text);
        assert_eq!(text, "TESTSERVER<20>");
        let (name, _) = Name::read(b"\x03abc\x00", 0).unwrap();
        assert_eq!(name.netbios(), None);
    }
}
