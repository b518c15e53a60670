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
        let taken = self.take(2)?;
        Some(u16::from_be_bytes(taken.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let taken = self.take(4)?;
        Some(u32::from_be_bytes(taken.try_into().ok()?))
    }

    /// Bytes behind their length, of one byte.
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }
}
