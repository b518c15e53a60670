//! Numbers and texts as bytes, little-endian, and back.

use flowgauge_record::text::harmless;

/// Appends to a message.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn u8(&mut self, value: u8) -> &mut Encoder {
        self.0.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Encoder {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Encoder {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Encoder {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A value that may be missing; `u64::MAX` must not be one.
    pub(super) fn optional(&mut self, value: Option<u64>) -> &mut Encoder {
        self.u64(value.unwrap_or(u64::MAX))
    }

    /// Its length, and at most 1024 bytes of a text.
    pub(super) fn text(&mut self, text: &str) -> &mut Encoder {
        let mut end = text.len().min(LONGEST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16).bytes(&text.as_bytes()[..end])
    }
}

/// Bytes of a text at most.
const LONGEST_TEXT: usize = 1024;

/// Takes a message apart. What is not there is `None`, and what is wrong is, too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn optional(&mut self) -> Option<Option<u64>> {
        self.u64().map(|value| (value != u64::MAX).then_some(value))
    }

    /// A text, without what a terminal would obey.
    pub(super) fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        if len > LONGEST_TEXT {
            return None;
        }
        let text = core::str::from_utf8(self.bytes(len)?).ok()?;
        Some(text.replace(|letter| harmless(letter) != letter, "?"))
    }

    /// That nothing is left.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_back() {
        let mut encoder = Encoder::default();
        encoder.u8(1).u16(0x0203).u32(4).u64(5).optional(None);
        encoder.optional(Some(6)).text("caf\u{e9}").u8(1);
        let mut decoder = Decoder(&encoder.0);
        assert_eq!(decoder.u8(), Some(1));
        assert_eq!(decoder.u16(), Some(0x0203));
        assert_eq!((decoder.u32(), decoder.u64()), (Some(4), Some(5)));
        assert_eq!(decoder.optional(), Some(None));
        assert_eq!(decoder.optional(), Some(Some(6)));
        assert_eq!(decoder.text().as_deref(), Some("caf\u{e9}"));
        assert_eq!(decoder.end(), None);
        assert_eq!(decoder.flag(), Some(true));
        assert_eq!(decoder.end(), Some(()));
        assert_eq!(decoder.u8(), None);
    }

    #[test]
    fn texts_are_short_and_harmless() {
        let mut encoder = Encoder::default();
        encoder.text(&"\u{e9}".repeat(1000)).text("a\x1b[2Jb\n");
        let mut decoder = Decoder(&encoder.0);
        assert_eq!(decoder.text().unwrap().len(), LONGEST_TEXT);
        assert_eq!(decoder.text().unwrap(), "a?[2Jb?");
        assert_eq!(Decoder(&[1, 0, 0xff]).text(), None, "not UTF-8");
        assert_eq!(Decoder(&[0xff, 0xff, 0]).text(), None, "too long");
        assert_eq!(Decoder(&[2]).flag(), None);
    }
}
