//! Chunked transfer coding (RFC 9112, section 7.1).

use memchr::memchr;

use super::head::{read_number, trim};

/// Bytes of a chunk's line, or of all trailers together, that are not told as long.
const MAX_LINE: u32 = 16 << 10;

/// Where in a chunked body its reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    place: Place,
    /// Bytes of the line, or of the trailers, so far.
    seen: u32,
    /// The size as it is written: the line's first bytes.
    digits: [u8; LINE],
    /// How many of them came before the bytes at hand; of the first line only.
    before: u32,
    /// It is in the first line.
    is_first: bool,
    /// A line, or the trailers, was longer than any with a purpose.
    has_long_line: bool,
}

/// Bytes of a chunk's line that are kept.
const LINE: usize = 24;

/// The beginning of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line([u8; LINE], u8);

impl Line {
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.get(..usize::from(self.1)).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the line with the size.
    Size,
    /// In the data: so many bytes are left.
    Data(u64),
    /// Behind the data, before the end of their line.
    Behind,
    /// In a line of the trailers, which has so many bytes besides carriage returns.
    Trailer(u32),
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// All was taken, and more is wanted.
    More,
    /// These bytes belong to the body; so many were taken with what came before them.
    Data(&'a [u8], usize),
    /// The body is over; so many bytes were taken.
    Over(usize),
    /// It is no chunked body.
    Bad,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks {
            place: Place::Size,
            seen: 0,
            digits: [0; LINE],
            before: 0,
            is_first: true,
            has_long_line: false,
        }
    }
}

impl Chunks {
    /// Takes bytes up to the next data or the end.
    pub(super) fn step<'a>(&mut self, bytes: &'a [u8]) -> Step<'a> {
        let mut at = 0;
        if self.is_first {
            self.before = self.seen;
        }
        while let Some(&byte) = bytes.get(at) {
            match &mut self.place {
                Place::Size => {
                    let rest = &bytes[at..];
                    let end = memchr(b'\n', rest);
                    let part = &rest[..end.unwrap_or(rest.len())];
                    for &byte in part.iter().take(self.digits.len()) {
                        if let Some(place) = self.digits.get_mut(self.seen as usize) {
                            *place = byte;
                        }
                        self.seen = self.seen.saturating_add(1);
                    }
                    // Extensions are not kept, however long.
                    let rest = part.len().saturating_sub(self.digits.len());
                    self.seen = self
                        .seen
                        .saturating_add(u32::try_from(rest).unwrap_or(u32::MAX));
                    at += part.len();
                    self.has_long_line |= self.seen > MAX_LINE;
                    if end.is_none() {
                        if self.is_hopeless() {
                            return Step::Bad;
                        }
                        continue;
                    }
                    at += 1;
                    let Some(size) = self.size() else {
                        return Step::Bad;
                    };
                    self.seen = 0;
                    self.is_first = false;
                    self.place = match size {
                        0 => Place::Trailer(0),
                        size => Place::Data(size),
                    };
                }
                Place::Data(left) => {
                    let length = (*left).min((bytes.len() - at) as u64);
                    *left -= length;
                    let end = at + length as usize;
                    if *left == 0 {
                        self.place = Place::Behind;
                    }
                    return Step::Data(&bytes[at..end], end);
                }
                Place::Behind => {
                    at += 1;
                    match byte {
                        b'\r' if self.seen == 0 => self.seen = 1,
                        b'\n' => {
                            self.place = Place::Size;
                            self.seen = 0;
                        }
                        _ => return Step::Bad,
                    }
                }
                Place::Trailer(length) => {
                    at += 1;
                    self.seen = self.seen.saturating_add(1);
                    self.has_long_line |= self.seen > MAX_LINE;
                    match byte {
                        b'\n' if *length == 0 => return Step::Over(at),
                        b'\n' => *length = 0,
                        b'\r' => {}
                        _ => *length = length.saturating_add(1),
                    }
                }
            }
        }
        Step::More
    }

    /// Whether no chunk has begun.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether a line was longer than any with a purpose.
    pub(super) fn has_long_line(&self) -> bool {
        self.has_long_line
    }

    /// What came of the first line before the bytes at hand: of one that has no size all was kept.
    pub(super) fn before(&self) -> Line {
        Line(self.digits, self.before.min(LINE as u32) as u8)
    }

    /// Whether the line that has begun can be none with a size.
    fn is_hopeless(&self) -> bool {
        let kept = self.digits.get(..(self.seen as usize).min(LINE));
        let kept = kept.unwrap_or_default();
        if let Some(extension) = memchr(b';', kept) {
            return size_in(&kept[..extension]).is_none();
        }
        let can_be = |byte: &u8| byte.is_ascii_hexdigit() || b" \t\r".contains(byte);
        self.seen as usize > LINE || !kept.iter().all(can_be)
    }

    /// The size in the line that is over.
    fn size(&self) -> Option<u64> {
        let line = self
            .digits
            .get(..(self.seen as usize).min(self.digits.len()))?;
        let line = match memchr(b';', line) {
            Some(extension) => &line[..extension],
            // The digits go on behind what is kept.
            None if self.seen as usize > self.digits.len() => return None,
            None => line,
        };
        size_in(line)
    }

    /// Bytes that are left of a chunk's data.
    pub(super) const fn left(&self) -> u64 {
        match self.place {
            Place::Data(left) => left,
            _ => 0,
        }
    }

    /// Reads over a hole within a chunk's data; false if it is elsewhere or longer.
    pub(super) fn skip(&mut self, missing: u64) -> bool {
        match &mut self.place {
            Place::Data(left) if missing <= *left => {
                *left -= missing;
                if *left == 0 {
                    self.place = Place::Behind;
                }
                true
            }
            _ => false,
        }
    }
}

/// The size in a line, without extensions.
fn size_in(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    read_number(trim(line), 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], cut: usize) -> Option<(Vec<u8>, usize)> {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        let mut taken = 0;
        for piece in [&text[..cut], &text[cut..]] {
            let mut rest = piece;
            loop {
                match chunks.step(rest) {
                    Step::More => break taken += rest.len(),
                    Step::Data(data, used) => {
                        body.extend_from_slice(data);
                        rest = &rest[used..];
                        taken += used;
                    }
                    Step::Over(used) => return Some((body, taken + used)),
                    Step::Bad => return None,
                }
            }
        }
        None
    }

    #[test]
    fn chunks_extensions_and_trailers_are_read_at_any_cut() {
        let text = b"5\r\nhello\r\n06;name=\"value\"\r\n world\r\n 1a  \r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX: y\r\n\r\nNEXT";
        for cut in 0..text.len() {
            let (body, used) = read(text, cut).unwrap_or_else(|| panic!("{cut}"));
            assert_eq!(body, b"hello worldabcdefghijklmnopqrstuvwxyz");
            assert_eq!(&text[used..], b"NEXT");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for bad in [
            "g\r\n",
            "\r\n",
            "-1\r\n",
            "0x5\r\nhello\r\n",
            "11111111111111111\r\n",
            "000000000000000000000000005\r\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n",
            "5 5\r\n",
            "(()=>{var e;",
            ";5\r\n",
        ] {
            for cut in 0..bad.len() {
                assert_eq!(read(bad.as_bytes(), cut), None, "{bad:?} {cut}");
            }
        }
    }
}
