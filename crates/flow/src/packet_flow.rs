//! The tracker's result for each packet.

use flowgauge_wire::{DecodeFlags, Decoded};

use crate::flow::UDP;

/// Index of a flow in the table: small and dense, so that callers may use it as an index into vectors of their own.
/// Reused only after [`crate::FlowTracker::drain_ended`] has delivered its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FlowId(pub u32);

impl FlowId {
    /// No flow.
    pub const NONE: FlowId = FlowId(u32::MAX);

    /// As an index into a vector.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is a flow.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// Whether a packet counts for its flow. Damaged packets are treated like in Zeek: segments do not count, datagrams do.
#[inline(always)]
pub fn is_counted(packet: &Decoded) -> bool {
    const LEFT_OUT: u16 = DecodeFlags::EXCLUDED.0 | DecodeFlags::BAD_CHECKSUM.0;
    packet.has_ip() && (packet.flags.0 & LEFT_OUT == 0 || is_damaged_datagram(packet))
}

fn is_damaged_datagram(packet: &Decoded) -> bool {
    packet.flags.contains(DecodeFlags::BAD_CHECKSUM) && packet.key.protocol == UDP
}

/// One packet's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFlow {
    /// The flow; [`FlowId::NONE`] for packets without IP and excluded ones.
    pub id: FlowId,
    /// The effects of the packet on it.
    pub flags: PacketFlowFlags,
}

impl PacketFlow {
    /// A packet that belongs to no flow.
    pub const NONE: PacketFlow = PacketFlow {
        id: FlowId::NONE,
        flags: PacketFlowFlags(0),
    };

    /// Whether the flow's initiator sent it. The roles of a flow can change once, if a SYN-ACK was captured before its
    /// SYN, so index lasting state by `Decoded::direction` instead.
    #[inline]
    pub const fn from_initiator(self) -> bool {
        self.flags.contains(PacketFlowFlags::FROM_INITIATOR)
    }

    /// Whether it is the first packet of its flow.
    #[inline]
    pub const fn is_new(self) -> bool {
        self.flags.contains(PacketFlowFlags::NEW)
    }
}

/// Bits of [`PacketFlow::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlowFlags(pub u16);

impl PacketFlowFlags {
    /// Sent by the initiator.
    pub const FROM_INITIATOR: PacketFlowFlags = PacketFlowFlags(1);
    /// First packet of a new flow.
    pub const NEW: PacketFlowFlags = PacketFlowFlags(2);
    /// The packet has a RST that is valid for the connection (RFC 5961: at the next expected byte or inside the peer's
    /// window), or too little is known to reject it.
    pub const RST_VALID: PacketFlowFlags = PacketFlowFlags(4);
    /// Both sides had closed, or one was reset, before this packet.
    pub const AFTER_CLOSE: PacketFlowFlags = PacketFlowFlags(8);
    /// With this packet, the connection is closed on both sides, or reset. The flow stays in the table for its linger
    /// time.
    pub const CLOSES: PacketFlowFlags = PacketFlowFlags(16);
    /// Counted, but not analysed: its transport checksum is wrong.
    pub const NOT_ANALYSED: PacketFlowFlags = PacketFlowFlags(32);
    /// The first packet of its direction that is known to have a right checksum
    /// ([`DecodeFlags::RIGHT_CHECKSUM`](flowgauge_wire::DecodeFlags::RIGHT_CHECKSUM)).
    pub const FIRST_RIGHT: PacketFlowFlags = PacketFlowFlags(64);
    /// The packet is not [verified](flowgauge_wire::DecodeFlags::UNVERIFIED) yet, and no packet of its direction is
    /// known to have a right checksum.
    pub const FIRST_UNVERIFIED: PacketFlowFlags = PacketFlowFlags(128);
    /// A SYN within an ongoing connection, which is probably forged unless it is answered (RFC 5961, section 4). It
    /// counts, and changes nothing.
    pub const HELD_SYN: PacketFlowFlags = PacketFlowFlags(256);
    /// The packet confirms that the last such SYN started a connection: its flow is new, with the SYN as first packet,
    /// which was counted in the [previous one](crate::FlowTracker::reopened) until now.
    pub const REOPENED: PacketFlowFlags = PacketFlowFlags(512);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: PacketFlowFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    #[inline]
    pub const fn insert(&mut self, other: PacketFlowFlags) {
        self.0 |= other.0;
    }
}
