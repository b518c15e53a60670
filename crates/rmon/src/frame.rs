//! A packet as it came, and what etherStats counts of it.

use flowgauge_wire::{Batch, Decoded, LinkType, PacketDescriptor, PacketFlags};

/// A packet as it came.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) decoded: &'a Decoded,
    pub(crate) about: &'a PacketDescriptor,
    /// The number of what it speaks, or 0.
    pub(crate) content: u16,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(batch: &Batch<'a>, decoded: &'a Decoded, content: u16) -> Option<Frame<'a>> {
        let about = batch.packets.get(usize::from(decoded.index))?;
        Some(Frame {
            bytes: batch.bytes_of(about),
            decoded,
            about,
            content,
        })
    }

    /// With the check sequence.
    pub(crate) fn octets(&self) -> u64 {
        u64::from(self.decoded.wire_len.max(SHORTEST)) + FCS
    }

    /// The same of each of the frames that a card or the kernel has merged into this one (GRO, TSO), where it is longer than
    /// `mtu`: all but the last are as long as that allows, as TCP sends them.
    #[cold]
    pub(crate) fn parts(&self, mtu: u32) -> impl Iterator<Item = u64> {
        let packet = self.decoded;
        let link = match packet.tunnel {
            0 => packet.wire_len.saturating_sub(packet.ip_len),
            _ => 14,
        };
        let headers = packet.wire_len.saturating_sub(packet.payload_len);
        // Where no payload fits, it is one frame.
        let room = (mtu + link).checked_sub(headers).filter(|room| *room > 0);
        let room = room.unwrap_or(u32::MAX);
        let payload = packet.payload_len;
        let starts = (0..payload.max(1)).step_by(room as usize);
        starts.map(move |start| {
            let length = headers + room.min(payload - start);
            u64::from(length.max(SHORTEST)) + FCS
        })
    }

    /// Whether a VLAN tag was taken out of it.
    pub(crate) fn is_stripped(&self) -> bool {
        self.about.flags.contains(PacketFlags::VLAN)
    }

    /// Destination and source.
    pub(crate) fn macs(&self) -> Option<&'a [u8; 12]> {
        let is_ethernet = self.about.link == LinkType::ETHERNET;
        self.bytes.first_chunk().filter(|_| is_ethernet)
    }

    /// The control information of the outermost VLAN tag.
    pub(crate) fn tag(&self) -> Option<u16> {
        if self.is_stripped() {
            return Some(self.about.vlan_tci);
        }
        match *self.bytes.get(12..16)? {
            [0x81, 0, high, low] | [0x88, 0xa8, high, low]
                if self.about.link == LinkType::ETHERNET =>
            {
                Some(u16::from_be_bytes([high, low]))
            }
            _ => None,
        }
    }

    /// The type of the outermost VLAN tag, or of what an Ethernet frame carries.
    pub(crate) fn ethertype(&self) -> Option<u16> {
        if self.is_stripped() {
            let tag = self.about.vlan_tpid;
            return Some(if tag == 0 { 0x8100 } else { tag });
        }
        let octets = self.bytes.get(12..14)?.try_into().ok()?;
        Some(u16::from_be_bytes(octets))
    }
}

/// Shortest frame that Ethernet sends, without its check sequence: shorter ones were padded.
const SHORTEST: u32 = 60;

/// Octets of the frame check sequence.
const FCS: u64 = 4;

/// What etherStats counts of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ether {
    pub(crate) drop_events: u64,
    /// Frames with a wrong check sequence, and collisions: what the interface tells.
    pub(crate) errors: [u64; 2],
    pub(crate) octets: u64,
    pub(crate) broadcasts: u64,
    pub(crate) multicasts: u64,
    /// By length: 64 octets, up to 127, 255, 511, 1023, 1518, and more.
    pub(crate) sizes: [u64; 7],
}

impl Ether {
    #[inline(always)]
    pub(crate) fn count(&mut self, octets: u64, macs: Option<&[u8; 12]>) {
        self.octets += octets;
        let size = match octets {
            0..=64 => 0,
            65..=1518 => octets.ilog2() as usize - 5,
            _ => 6,
        };
        self.sizes[size] += 1;
        if let Some(macs) = macs.filter(|macs| macs[0] & 1 == 1) {
            let is_broadcast = macs[..6] == [0xff; 6];
            self.broadcasts += u64::from(is_broadcast);
            self.multicasts += u64::from(!is_broadcast);
        }
    }

    pub(crate) fn packets(&self) -> u64 {
        self.sizes.iter().sum()
    }
}
