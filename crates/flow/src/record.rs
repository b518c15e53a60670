//! The record of a flow.

use flowgauge_wire::{Address, FlowKey, Nanos, TcpFlags, Tunnel};

/// Why a flow's record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum EndReason {
    /// Both sides closed with FIN.
    Fin,
    /// A valid RST closed it.
    Rst,
    /// No packets during the idle timeout.
    Idle,
    /// It lasted longer than the active timeout; the connection continues in a further record.
    Active,
    /// The input ended.
    EndOfInput,
    /// The table was full, and this flow was idle longest.
    Evicted,
}

impl EndReason {
    /// Name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Connection states, like Zeek's `conn_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum FlowState {
    /// Connection attempt seen, no reply.
    S0,
    /// Established, not terminated.
    S1,
    /// Established, close attempt by the originator seen, none by the responder.
    S2,
    /// Established, close attempt by the responder seen, none by the originator.
    S3,
    /// Normal establishment and termination.
    SF,
    /// Attempt rejected.
    Rej,
    /// Established, originator aborted with RST.
    Rsto,
    /// Responder sent RST.
    Rstr,
    /// Originator sent a SYN followed by a RST, no SYN-ACK seen.
    Rstos0,
    /// Responder sent SYN-ACK followed by RST, no SYN from the originator seen.
    Rstrh,
    /// Originator sent SYN followed by FIN, no SYN-ACK seen (half open).
    Sh,
    /// Responder sent SYN-ACK followed by FIN, no SYN from the originator seen.
    Shr,
    /// No SYN seen: mid-stream traffic.
    Oth,
}

impl FlowState {
    /// Name in records, Zeek's spelling.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSide {
    /// Address of the sender of this direction.
    pub address: Address,
    /// Port of the sender; for ICMP see `FlowKey`.
    pub port: u16,
    /// Frames.
    pub packets: u64,
    /// Frame bytes on the wire.
    pub bytes: u64,
    /// IP bytes according to the IP headers.
    pub ip_bytes: u64,
    /// Transport payload bytes according to the headers, including retransmissions.
    pub payload_bytes: u64,
    /// For TCP, bytes of the stream according to its sequence numbers: retransmissions count once, and bytes that
    /// were not captured also count. For other protocols, and for later records of a connection, `payload_bytes`.
    pub stream_bytes: u64,
    /// All TCP flags seen.
    pub tcp_flags: TcpFlags,
    /// Segments whose payload had been seen before.
    pub retransmitted: u64,
    /// Segments after one with a later sequence number that were not retransmissions.
    pub out_of_order: u64,
    /// Time of the first packet; zero if there was none.
    pub first: Nanos,
    /// Time of the last packet.
    pub last: Nanos,
}

/// The identity of a flow: the constant part of its record.
#[derive(Clone, Copy, Debug)]
pub struct FlowIdentity {
    /// [`FlowRecord::key`].
    pub key: FlowKey,
    /// [`FlowRecord::flow_id`].
    pub flow_id: u64,
    /// [`FlowRecord::flow_start`].
    pub start: Nanos,
    /// The first of [`FlowRecord::vlans`].
    pub vlan: Option<u16>,
}

/// A finished (or cut) flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowRecord<'a> {
    /// The flow's key: both ends in canonical order.
    pub key: &'a FlowKey,
    /// A hash of five-tuple, start time and first TCP sequence number: the same for all records of this flow, and
    /// in all runs over the same input. Written as 16 hexadecimal digits.
    pub flow_id: u64,
    /// 4 or 6.
    pub version: u8,
    /// IP protocol number.
    pub protocol: u8,
    /// The initiator's side.
    pub source: FlowSide,
    /// The responder's side.
    pub destination: FlowSide,
    /// First packet of the connection, in this record or in an earlier one.
    pub flow_start: Nanos,
    /// First packet.
    pub start: Nanos,
    /// Last packet.
    pub end: Nanos,
    /// Time from the SYN to the ACK that completes the handshake (both halves).
    pub handshake_rtt: Option<Nanos>,
    /// Fragments among the packets.
    pub fragments: u64,
    /// Zeek's `conn_state`.
    pub state: FlowState,
    /// Zeek's `history`.
    pub history: &'a str,
    /// VLAN ids, outermost first, of the first packet that had any.
    pub vlans: &'a [u16],
    /// The innermost tunnel around its first packet.
    pub tunnel: Option<&'a Tunnel>,
    /// Why the record was written.
    pub end_reason: EndReason,
}

impl FlowRecord<'_> {
    /// The identity of its flow.
    pub fn identity(&self) -> FlowIdentity {
        FlowIdentity {
            key: *self.key,
            flow_id: self.flow_id,
            start: self.flow_start,
            vlan: self.vlans.first().copied(),
        }
    }
}
