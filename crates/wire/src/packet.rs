//! Batches of captured packets, borrowed from their source.
//!
//! A [`Batch`] is one region of memory (a ring block, a window of a file) and descriptors that
//! point into it, so no packet is copied and no vector of references is rebuilt per batch:
//!
//! ```text
//!  memory      [..header|packet 0 bytes..|header|packet 1 bytes.....|header|...]
//!                       ^ offset                ^ offset
//!  packets     [ descriptor 0 ][ descriptor 1 ] ...        (at most BATCH_SIZE)
//! ```

use crate::link::LinkType;
use crate::time::Nanos;

/// Maximum number of packets in a batch.
pub const BATCH_SIZE: usize = 256;

/// The source's information about one packet, other than its bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PacketDescriptor {
    /// Capture time.
    pub time: Nanos,
    /// Offset of the packet's bytes in [`Batch::memory`].
    pub offset: u32,
    /// Number of bytes captured, from `offset` on.
    pub captured_len: u32,
    /// Length on the wire, at least `captured_len`.
    pub wire_len: u32,
    /// Index into the source's list of interfaces.
    pub interface: u16,
    /// Link type of this packet.
    pub link: LinkType,
    /// TPID of a VLAN tag that the kernel stripped from the frame (valid with [`PacketFlags::VLAN`]);
    /// its four bytes count in `wire_len`.
    pub vlan_tpid: u16,
    /// TCI of that tag.
    pub vlan_tci: u16,
    /// Further information of the source.
    pub flags: PacketFlags,
}

/// Bits of [`PacketDescriptor::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(pub u16);

impl PacketFlags {
    /// The sender has not filled in the transport checksum yet (`TP_STATUS_CSUMNOTREADY`).
    pub const CHECKSUM_NOT_READY: PacketFlags = PacketFlags(1);
    /// The receiving hardware or kernel verified the transport checksum.
    pub const CHECKSUM_VALID: PacketFlags = PacketFlags(2);
    /// `vlan_tpid` and `vlan_tci` contain a tag that is not in the bytes.
    pub const VLAN: PacketFlags = PacketFlags(4);
    /// The packet was sent by this host.
    pub const OUTGOING: PacketFlags = PacketFlags(8);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: PacketFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: PacketFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits and those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: PacketFlags) -> PacketFlags {
        PacketFlags(self.0 | other.0)
    }
}

/// Up to [`BATCH_SIZE`] packets, borrowed from their source until its next batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The memory to which all descriptors' offsets refer.
    pub memory: &'a [u8],
    /// The packets, in capture order.
    pub packets: &'a [PacketDescriptor],
    /// Capture clock of a live source without packets (an idle tick).
    pub now: Option<Nanos>,
}

impl<'a> Batch<'a> {
    /// A batch of `packets` in `memory`.
    pub fn new(memory: &'a [u8], packets: &'a [PacketDescriptor]) -> Batch<'a> {
        Batch {
            memory,
            packets,
            now: None,
        }
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes from the first packet to the end of the last: if the source's memory is contiguous, bytes
    /// at this distance after a packet are most likely in the next batch.
    pub fn span(&self) -> usize {
        let (Some(first), Some(last)) = (self.packets.first(), self.packets.last()) else {
            return 0;
        };
        let end = last.offset as usize + last.captured_len as usize;
        end.saturating_sub(first.offset as usize)
    }

    /// Whether there are no packets (an idle tick of a live source).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The captured bytes of packet `index`; empty if its descriptor is outside the memory.
    #[inline]
    pub fn bytes(&self, index: usize) -> &'a [u8] {
        match self.packets.get(index) {
            Some(packet) => self.bytes_of(packet),
            None => &[],
        }
    }

    /// The captured bytes of a packet; empty if its descriptor is outside the memory.
    #[inline]
    pub fn bytes_of(&self, packet: &PacketDescriptor) -> &'a [u8] {
        let start = packet.offset as usize;
        self.memory
            .get(start..start + packet.captured_len as usize)
            .unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_goes_from_the_first_packet_to_the_end_of_the_last() {
        let packet = |offset, captured_len| PacketDescriptor {
            offset,
            captured_len,
            ..PacketDescriptor::default()
        };
        let memory = [0; 200];
        assert_eq!(Batch::new(&memory, &[]).span(), 0);
        assert_eq!(Batch::new(&memory, &[packet(40, 60)]).span(), 60);
        let packets = [packet(40, 20), packet(76, 60), packet(152, 10)];
        assert_eq!(Batch::new(&memory, &packets).span(), 122);
        // Of packets in another order it is of no use, but not wrong either.
        let packets = [packet(152, 10), packet(40, 20)];
        assert_eq!(Batch::new(&memory, &packets).span(), 0);
    }
}
