//! How a filter sees a packet's bytes.

use flowgauge_wire::LinkType;

/// Bytes of a packet as the interpreter loads them. Offsets are at most twice `u32::MAX`.
pub(super) trait View {
    /// Captured bytes.
    fn len(&self) -> usize;
    /// The byte at `offset`.
    fn byte(&self, offset: usize) -> Option<u32>;
    /// Two bytes in network order.
    fn half(&self, offset: usize) -> Option<u32>;
    /// Four bytes in network order.
    fn word(&self, offset: usize) -> Option<u32>;
    /// Whether the kernel took a tag out, its TCI and TPID; `None` where nobody knows.
    fn vlan(&self) -> Option<(u32, u32, u32)>;
}

/// The bytes as they are.
pub(super) struct Plain<'a>(pub(super) &'a [u8]);

impl View for Plain<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn byte(&self, offset: usize) -> Option<u32> {
        self.0.get(offset).map(|&byte| u32::from(byte))
    }

    #[inline(always)]
    fn half(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk::<2>()?;
        Some(u32::from(u16::from_be_bytes(*bytes)))
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    }

    #[inline(always)]
    fn vlan(&self) -> Option<(u32, u32, u32)> {
        None
    }
}

/// The bytes as they are, with what the kernel says of the VLAN tag beside them.
pub(super) struct WithMetadata<'a> {
    pub(super) bytes: Plain<'a>,
    /// TPID and TCI of the tag that was taken out.
    pub(super) tag: Option<(u16, u16)>,
}

impl View for WithMetadata<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn byte(&self, offset: usize) -> Option<u32> {
        self.bytes.byte(offset)
    }

    fn half(&self, offset: usize) -> Option<u32> {
        self.bytes.half(offset)
    }

    fn word(&self, offset: usize) -> Option<u32> {
        self.bytes.word(offset)
    }

    fn vlan(&self) -> Option<(u32, u32, u32)> {
        let (tpid, tci) = self.tag.unwrap_or_default();
        Some((
            u32::from(self.tag.is_some()),
            u32::from(tci),
            u32::from(tpid),
        ))
    }
}

/// Longest link header that a tag can be put behind (SLL2), and the tag.
const FRONT: usize = 24;

/// The frame as it was on the wire, the tag that the kernel took out back in its place, without
/// moving the packet:
///
/// ```text
///  bytes     [ link header .. type ][ payload ...
///  seen as   [ link header .. TPID | TCI | type ][ payload ...
///            '---------- front ---------------'
/// ```
pub(super) struct Tagged<'a> {
    front: [u8; FRONT],
    front_len: usize,
    rest: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// `None` when frames of this link type have no place for a tag, or the packet is too short.
    pub(super) fn new(bytes: &'a [u8], link: LinkType, tpid: u16, tci: u16) -> Option<Tagged<'a>> {
        let (header, type_at) = match link {
            LinkType::ETHERNET => (14, 12),
            LinkType::LINUX_SLL => (16, 14),
            LinkType::LINUX_SLL2 => (20, 0),
            _ => return None,
        };
        let (link_header, rest) = bytes.split_at_checked(header)?;
        let mut front = [0; FRONT];
        front[..header].copy_from_slice(link_header);
        front[type_at..type_at + 2].copy_from_slice(&tpid.to_be_bytes());
        front[header..header + 2].copy_from_slice(&tci.to_be_bytes());
        front[header + 2..header + 4].copy_from_slice(&link_header[type_at..type_at + 2]);
        Some(Tagged {
            front,
            front_len: header + 4,
            rest,
        })
    }

    #[inline]
    fn at(&self, offset: usize) -> Option<u8> {
        match offset.checked_sub(self.front_len) {
            Some(behind) => self.rest.get(behind).copied(),
            None => self.front.get(offset).copied(),
        }
    }
}

impl View for Tagged<'_> {
    fn len(&self) -> usize {
        self.front_len + self.rest.len()
    }

    fn byte(&self, offset: usize) -> Option<u32> {
        self.at(offset).map(u32::from)
    }

    fn half(&self, offset: usize) -> Option<u32> {
        Some(self.byte(offset)? << 8 | self.byte(offset + 1)?)
    }

    fn word(&self, offset: usize) -> Option<u32> {
        Some(self.half(offset)? << 16 | self.half(offset + 2)?)
    }

    fn vlan(&self) -> Option<(u32, u32, u32)> {
        None
    }
}
