//! Numbers and texts.

use flowgauge_record::text::harmless;

use super::MOST_TEXT;

pub(super) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
pub(super) fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

pub(super) fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    number(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

/// Bytes that are read from the front.
pub(super) struct Bytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Bytes<'a> {
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// How many things of at least `least` bytes follow.
    pub(super) fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        let room = (self.bytes.len() - self.at) / least;
        (count <= room).then_some(count)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.count(1)?;
        core::str::from_utf8(self.take(length)?).ok()
    }

    /// The name of a field: it stands in JSON and CSV as it is.
    pub(super) fn name(&mut self) -> Option<String> {
        let text = self.text()?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let is_name = (1..=27).contains(&text.len()) && text.chars().all(is_good);
        is_name.then(|| text.to_owned())
    }

    /// What people read.
    pub(super) fn words(&mut self) -> Option<String> {
        let text = self.text()?;
        let is_good =
            text.len() <= MOST_TEXT && text.chars().all(|letter| harmless(letter) == letter);
        is_good.then(|| text.to_owned())
    }
}
