//! Decoded packets, as flat columns for later stages.

use crate::key::{Address, Direction, FlowKey};
use crate::packet::Batch;
use crate::time::Nanos;

/// A decoded packet (or a datagram reassembled from fragments): the innermost IP datagram and its transport.
/// Two cache lines; all lengths are those of the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Decoded {
    /// Five-tuple in canonical order; `version` is 0 without IP.
    pub key: FlowKey,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgement number.
    pub ack: u32,
    /// Length of the IP datagram according to its header, without link layer and padding.
    pub ip_len: u32,
    /// Transport payload length according to the headers, regardless of how much was captured.
    pub payload_len: u32,
    /// Hash of `key`, set by the hash pass; 0 before.
    pub hash: u64,
    /// Capture time.
    pub time: Nanos,
    /// Frame length on the wire; for a reassembled datagram, the sum over its fragments.
    pub wire_len: u32,
    /// Offset of the payload in the bytes returned by [`DecodedBatch::bytes`].
    pub payload_offset: u32,
    /// Number of captured bytes among the `payload_len`.
    pub payload_captured: u32,
    /// TCP window as sent (unscaled).
    pub window: u16,
    /// Index of the packet in its batch (for a reassembled datagram, of the last fragment).
    pub index: u16,
    // What is the same for most packets stands together, so that it is written in a few words.
    /// Offset of the innermost IP header.
    pub ip_offset: u16,
    /// Offset of the transport header.
    pub transport_offset: u16,
    /// Number of frames it represents: 1, or the number of fragments.
    pub frames: u16,
    /// Index + 1 into [`DecodedBatch::tunnels`] of the innermost tunnel; 0 if not tunnelled.
    pub tunnel: u16,
    /// The two outermost VLAN ids (12 bits), `vlan_count` of them valid.
    pub vlan: [u16; 2],
    /// ICMP type, for ICMP and ICMPv6 (also in the ports, see [`FlowKey`]).
    pub icmp_type: u8,
    /// ICMP code.
    pub icmp_code: u8,
    /// Number of VLAN tags, at most 255 (only two ids are stored).
    pub vlan_count: u8,
    /// Why decoding stopped early, if it did.
    pub problem: Problem,
    /// Properties found during decoding.
    pub flags: DecodeFlags,
    /// TCP flags, the low eight bits.
    pub tcp_flags: TcpFlags,
    /// Time to live or hop limit of the innermost IP header.
    pub ttl: u8,
    /// Direction of the packet relative to `key`.
    pub direction: Direction,
}

impl Decoded {
    /// Whether it is a TCP segment with SYN, FIN or RST.
    #[inline(always)]
    pub fn begins_or_ends(&self) -> bool {
        const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
        self.tcp_flags.intersects(CONTROL)
    }

    /// The captured part of the transport payload, in the bytes to which the offsets refer.
    #[inline]
    pub fn payload_of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = self.payload_offset as usize;
        frame
            .get(start..start + self.payload_captured as usize)
            .unwrap_or(&[])
    }

    /// Source address and port of this packet.
    #[inline]
    pub fn source(&self) -> (Address, u16) {
        self.key.endpoints(self.direction).0
    }

    /// Destination address and port of this packet.
    #[inline]
    pub fn destination(&self) -> (Address, u16) {
        self.key.endpoints(self.direction).1
    }

    /// Its two outermost VLANs as one number; 0 if there are none. A tag with VLAN 0 only has a priority
    /// (IEEE 802.1Q, section 9.6).
    #[inline]
    pub fn vlan_number(&self) -> u32 {
        match self.vlan.map(u32::from) {
            [0, only] => only,
            [first, second] => first | second << 12,
        }
    }

    /// Whether an IP header was found.
    #[inline]
    pub fn has_ip(&self) -> bool {
        self.key.version != 0
    }
}

/// Bits of [`Decoded::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeFlags(pub u16);

impl DecodeFlags {
    /// A fragment of an IP datagram (but not the whole): `payload_*` describe the fragment's bytes after the
    /// IP header, the ports are those of the first fragment or 0.
    pub const FRAGMENT: DecodeFlags = DecodeFlags(1);
    /// A complete transport header (TCP, UDP, SCTP, ICMP, ICMPv6) was decoded.
    pub const TRANSPORT: DecodeFlags = DecodeFlags(2);
    /// The bytes are a reassembled datagram in [`DecodedBatch::memory`], starting at its IP header.
    pub const REASSEMBLED: DecodeFlags = DecodeFlags(4);
    /// The IPv4 header checksum is wrong.
    pub const BAD_IP_CHECKSUM: DecodeFlags = DecodeFlags(8);
    /// The transport checksum was computed over all captured bytes and is wrong.
    pub const BAD_CHECKSUM: DecodeFlags = DecodeFlags(16);
    /// The transport checksum cannot be verified, or need not be (cut packet, not ready, UDP 0).
    pub const CHECKSUM_UNKNOWN: DecodeFlags = DecodeFlags(32);
    /// Fewer bytes were captured than the datagram has according to its headers.
    pub const CUT: DecodeFlags = DecodeFlags(64);
    /// Bytes follow the IP datagram in the frame (padding or trailer).
    pub const TRAILER: DecodeFlags = DecodeFlags(128);
    /// Must not be counted or delivered: it was removed because of a checksum or filter.
    pub const EXCLUDED: DecodeFlags = DecodeFlags(256);
    /// The transport checksum was verified and is right.
    pub const RIGHT_CHECKSUM: DecodeFlags = DecodeFlags(512);
    /// The transport checksum has to be verified before the payload is read.
    pub const UNVERIFIED: DecodeFlags = DecodeFlags(1024);
    /// The transport checksum is wrong; the only effect is that the payload is not read.
    pub const BAD_PAYLOAD: DecodeFlags = DecodeFlags(2048);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: DecodeFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    #[inline]
    pub fn insert(&mut self, other: DecodeFlags) {
        self.0 |= other.0;
    }
}

/// TCP flag bits as in the header's byte 13.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// FIN.
    pub const FIN: TcpFlags = TcpFlags(1);
    /// SYN.
    pub const SYN: TcpFlags = TcpFlags(2);
    /// RST.
    pub const RST: TcpFlags = TcpFlags(4);
    /// PSH.
    pub const PSH: TcpFlags = TcpFlags(8);
    /// ACK.
    pub const ACK: TcpFlags = TcpFlags(16);
    /// URG.
    pub const URG: TcpFlags = TcpFlags(32);
    /// ECE.
    pub const ECE: TcpFlags = TcpFlags(64);
    /// CWR.
    pub const CWR: TcpFlags = TcpFlags(128);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits and those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

/// Why decoding stopped before the transport payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Problem {
    /// Nothing went wrong.
    #[default]
    None = 0,
    /// The link type is not supported.
    UnknownLink,
    /// The frame carries something other than IP (ARP, LLDP, IS-IS, ...). Not an error.
    NotIp,
    /// The captured bytes end inside a header, because the snap length cut the frame.
    CutHeader,
    /// The frame itself ends inside a header.
    ShortHeader,
    /// IP version, header length or total length are contradictory.
    BadIpHeader,
    /// An IPv6 extension header chain is malformed or too long.
    BadExtension,
    /// Length or other fields of the transport header are contradictory.
    BadTransport,
    /// There are more nested tunnels than the limit; the outermost decoded one counts.
    TooDeep,
}

impl Problem {
    /// Whether the packet is malformed (rather than of another protocol, or cut by the snap length).
    pub const fn is_malformed(self) -> bool {
        matches!(
            self,
            Problem::ShortHeader
                | Problem::BadIpHeader
                | Problem::BadExtension
                | Problem::BadTransport
                | Problem::TooDeep
        )
    }
}

/// Kinds of encapsulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[repr(u8)]
#[non_exhaustive]
#[strum(serialize_all = "lowercase")]
pub enum TunnelKind {
    /// IPv4 in IPv4, IPv6 in IPv6, IPv4 in IPv6 (protocols 4 and 41).
    #[default]
    #[strum(serialize = "ipip")]
    IpInIp,
    /// IPv6 in IPv4 (6in4, 6to4, ISATAP).
    #[strum(serialize = "6in4")]
    SixInFour,
    /// GRE; `id` is its key.
    Gre,
    /// VXLAN; `id` is the VNI.
    Vxlan,
    /// Geneve; `id` is the VNI.
    Geneve,
    /// GTP-U; `id` is the TEID.
    GtpU,
    /// Teredo.
    Teredo,
    /// ERSPAN over GRE; `id` is the session.
    Erspan,
    /// AYIYA.
    Ayiya,
}

impl TunnelKind {
    /// Name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The innermost tunnel around a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// Kind of encapsulation.
    pub kind: TunnelKind,
    /// Outer source address.
    pub source: Address,
    /// Outer destination address.
    pub destination: Address,
    /// IP version of the outer addresses.
    pub version: u8,
    /// Number of tunnels removed, including this one.
    pub depth: u8,
    /// VNI, TEID, GRE key or session, if there is one.
    pub id: Option<u32>,
}

/// The decoded packets of one batch, reused from batch to batch.
#[derive(Clone, Debug, Default)]
pub struct DecodedBatch {
    /// One per packet or reassembled datagram, in order.
    pub packets: Vec<Decoded>,
    /// Tunnels that [`Decoded::tunnel`] refers to.
    pub tunnels: Vec<Tunnel>,
    /// Bytes of reassembled datagrams; see [`DecodeFlags::REASSEMBLED`].
    pub memory: Vec<u8>,
    /// Start and length in `memory` of each reassembled datagram, found by [`Decoded::index`] (few entries,
    /// as fragments are rare).
    pub datagrams: Vec<(u16, u32, u32)>,
    /// Common properties of all packets of the batch, so that later passes can skip checks.
    pub summary: Summary,
}

/// Summary of a batch as decoded, before packets were removed or added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The union of all packets' flags.
    pub flags: DecodeFlags,
    /// Sum of the lengths on the wire.
    pub wire_bytes: u64,
    /// Whether any packet was unusual. If not, none has a [`Problem`] or a tunnel, or is a fragment.
    pub unusual: bool,
}

impl DecodedBatch {
    /// An empty batch with room for [`crate::BATCH_SIZE`] packets.
    pub fn new() -> DecodedBatch {
        DecodedBatch {
            packets: Vec::with_capacity(crate::BATCH_SIZE),
            tunnels: Vec::with_capacity(crate::BATCH_SIZE),
            memory: Vec::new(),
            datagrams: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Clears the last batch, but keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.tunnels.clear();
        self.memory.clear();
        self.datagrams.clear();
        self.summary = Summary::default();
    }

    /// The bytes to which `packet`'s offsets refer: the captured frame, or the reassembled datagram.
    #[inline]
    pub fn bytes<'a>(&'a self, batch: &Batch<'a>, packet: &Decoded) -> &'a [u8] {
        if packet.flags.contains(DecodeFlags::REASSEMBLED) {
            return self.reassembled(packet.index);
        }
        batch.bytes(packet.index as usize)
    }

    /// The captured part of `packet`'s transport payload.
    #[inline]
    pub fn payload<'a>(&'a self, batch: &Batch<'a>, packet: &Decoded) -> &'a [u8] {
        packet.payload_of(self.bytes(batch, packet))
    }

    /// The innermost tunnel around `packet`.
    #[inline]
    pub fn tunnel(&self, packet: &Decoded) -> Option<&Tunnel> {
        self.tunnels.get(usize::from(packet.tunnel).checked_sub(1)?)
    }

    #[cold]
    fn reassembled(&self, index: u16) -> &[u8] {
        // From the end: an inner datagram follows the outer one that the same packet completed.
        let found = self.datagrams.iter().rev().find(|(of, _, _)| *of == index);
        let Some(&(_, start, len)) = found else {
            return &[];
        };
        self.memory
            .get(start as usize..(start + len) as usize)
            .unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_is_two_cache_lines() {
        assert_eq!(size_of::<Decoded>(), 128);
    }

    #[test]
    fn a_tag_with_a_priority_alone_is_no_vlan() {
        for (vlan, number) in [([0, 0], 0), ([5, 0], 5), ([0, 5], 5), ([5, 6], 6 << 12 | 5)] {
            let packet = Decoded {
                vlan,
                ..Decoded::default()
            };
            assert_eq!(packet.vlan_number(), number);
        }
    }
}
