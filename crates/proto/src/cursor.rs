//! Reading numbers and pieces off the front of bytes.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes; `None`, and nothing taken, if there are fewer.
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Option<usize> {
        let taken = self.take(3)?;
        Some(
            taken
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte)),
        )
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Bytes behind their length, of one byte.
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    /// Bytes behind their length, of two bytes.
    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// Bytes behind their length, of four bytes.
    pub(crate) fn vector32(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Bytes behind their length, of three bytes.
    pub(crate) fn vector24(&mut self) -> Option<&'a [u8]> {
        let length = self.u24()?;
        self.take(length)
    }
}

/// The numbers of two bytes each that stand here; an odd last byte is none.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + Clone + '_ {
    bytes
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}
