//! The handler of a shard's events, and their types.

use flowgauge_flow::{
    EndedFlow, FlowId, FlowIdentity, FlowRecord, FlowTracker, PacketFlow, PacketFlowFlags, Withheld,
};
use flowgauge_reassembly::tcp::HalfFlags;
use flowgauge_reassembly::{
    DefragmentStatistics, Forgotten, Half, OverlapPolicy, Reassembler, Unplaced,
};
use flowgauge_wire::{
    Address, Batch, DecodeFlags, Decoded, DecodedBatch, Direction, FlowKey, Nanos,
    PacketDescriptor, Place, TcpFlags,
};

use crate::streams::claimed;
use crate::wants::Want;

/// Whether a stream is open, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum StreamStatus {
    /// Still open.
    Active,
    /// This side closed with FIN, and everything before it was delivered or given up.
    Fin,
    /// Reset.
    Rst,
    /// Idle timeout, or another limit of the flow's record.
    Timeout,
    /// The input ended.
    EndOfInput,
    /// Evicted because the table or the memory was full.
    Evicted,
}

impl StreamStatus {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One direction of a connection, in its events.
///
/// It is created for the call from the engine's state; unused parts cost nothing. The endpoints are looked up on
/// request ([`Stream::identity`]).
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Number of this stream during its life: small, dense, reused after `stream_terminated`. Handlers may use it as an
    /// index into their own state.
    pub id: u32,
    /// The opposite direction's `id`.
    pub opposite: u32,
    /// Bytes delivered so far, without holes.
    pub bytes: u64,
    /// Bytes known to be missing (in holes that were given up, before the last byte delivered).
    pub missing_bytes: u64,
    /// Number of holes so far.
    pub gaps: u32,
    /// Whether it is open, or how it ended.
    pub status: StreamStatus,
    /// Whether this is the initiator's direction.
    pub from_initiator: bool,
    pub(crate) flow: StreamFlow<'a>,
}

/// Where a stream's identity can be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamFlow<'a> {
    /// In the flow table.
    Tracked(&'a FlowTracker, FlowId),
    /// In a flow that ends.
    Ended(&'a EndedFlow<'a>),
    /// In its record.
    Record(&'a FlowRecord<'a>),
    /// It is known.
    Known(&'a StreamIdentity),
}

/// The flow and endpoints of a stream, which consists of the bytes from `source` to `destination`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamIdentity {
    /// [`FlowRecord::flow_id`] of the flow.
    pub flow_id: u64,
    /// First packet of the flow.
    pub start: Nanos,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub version: u8,
    /// IP protocol: TCP (6) or UDP (17).
    pub protocol: u8,
    /// Outermost VLAN id of the flow's packets.
    pub vlan: Option<u16>,
}

impl<'a> Stream<'a> {
    /// A new stream without delivered bytes, outside of any engine, to test handlers. Even ids are the initiator's.
    pub fn detached(id: u32, identity: &'a StreamIdentity) -> Stream<'a> {
        Stream {
            id,
            opposite: id ^ 1,
            bytes: 0,
            missing_bytes: 0,
            gaps: 0,
            status: StreamStatus::Active,
            from_initiator: id & 1 == 0,
            flow: StreamFlow::Known(identity),
        }
    }

    /// The flow and endpoints. Reads the flow table, so call it when a stream is created or ends, or for its first
    /// bytes, rather than for every chunk.
    pub fn identity(&self) -> StreamIdentity {
        self.flow.identity(self.id)
    }

    /// The IP protocol and the responder's port, cheaper than [`Stream::identity`].
    pub fn service(&self) -> (u8, u16) {
        self.flow.service(self.id & 1 != 0, self.from_initiator)
    }

    /// Reads the current record of its flow, except for a [`Stream::detached`] one. Its counts may include later
    /// packets of the batch.
    pub fn record<R>(&self, read: impl FnOnce(&FlowRecord<'_>) -> R) -> Option<R> {
        match self.flow {
            StreamFlow::Tracked(tracker, id) => tracker.with_record(id, read),
            StreamFlow::Ended(flow) => Some(flow.with_record(read)),
            StreamFlow::Record(record) => Some(read(record)),
            StreamFlow::Known(_) => None,
        }
    }

    /// Whether the whole three-way handshake of its TCP connection was seen. (True for a [`Stream::detached`] one.)
    pub fn is_handshake_complete(&self) -> bool {
        match self.flow {
            StreamFlow::Tracked(tracker, id) => tracker.is_handshake_complete(id),
            StreamFlow::Ended(flow) => flow.is_handshake_complete(),
            StreamFlow::Record(record) => record.handshake_rtt.is_some(),
            StreamFlow::Known(_) => true,
        }
    }
}

impl StreamFlow<'_> {
    /// Who talks with whom in the stream with this number.
    pub(crate) fn identity(&self, id: u32) -> StreamIdentity {
        let of_flow = |flow: FlowIdentity| StreamIdentity::of(&flow, id & 1 != 0);
        match *self {
            StreamFlow::Tracked(tracker, flow) => {
                tracker.identity(flow).map(of_flow).unwrap_or_default()
            }
            StreamFlow::Ended(flow) => of_flow(flow.identity()),
            StreamFlow::Record(record) => of_flow(record.identity()),
            StreamFlow::Known(identity) => *identity,
        }
    }

    fn service(&self, from_high: bool, from_initiator: bool) -> (u8, u16) {
        let of_key = |key: &FlowKey| match from_high == from_initiator {
            true => (key.protocol, key.low_port),
            false => (key.protocol, key.high_port),
        };
        match *self {
            StreamFlow::Tracked(tracker, flow) => tracker.key(flow).map(of_key).unwrap_or_default(),
            StreamFlow::Ended(flow) => of_key(flow.key()),
            StreamFlow::Record(record) => of_key(record.key),
            StreamFlow::Known(identity) => match from_initiator {
                true => (identity.protocol, identity.destination.1),
                false => (identity.protocol, identity.source.1),
            },
        }
    }
}

impl StreamIdentity {
    pub(crate) fn of(flow: &FlowIdentity, from_high: bool) -> StreamIdentity {
        let direction = if from_high {
            Direction::HighToLow
        } else {
            Direction::LowToHigh
        };
        let (source, destination) = flow.key.endpoints(direction);
        StreamIdentity {
            flow_id: flow.flow_id,
            start: flow.start,
            source,
            destination,
            version: flow.key.version,
            protocol: flow.key.protocol,
            vlan: flow.vlan,
        }
    }
}

/// Contiguous bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The bytes, borrowed for the call. Only empty if others were [skipped](Chunk::skipped).
    pub bytes: &'a [u8],
    /// Stream offset of the first byte, including holes.
    pub offset: u64,
    /// Bytes missing since the previous chunk: right before this one, or between skipped bytes.
    pub gap_before: u64,
    /// Bytes since the previous chunk that were captured but not requested ([`Want::From`]).
    pub skipped: u64,
    /// Capture time of the packet that made it deliverable.
    pub time: Nanos,
    /// Capture time of its first byte, if it had to wait for a hole to be given up, or for the stream's beginning;
    /// otherwise the same as `time`.
    pub captured: Nanos,
}

/// A packet of a stream, before its payload is reassembled.
#[derive(Clone, Copy, Debug)]
pub struct StreamPacket<'a> {
    /// Its headers. A datagram reassembled from fragments has one set of headers for all its frames.
    pub decoded: &'a Decoded,
    /// The captured frame; for a reassembled datagram, its bytes from the IP header on. Empty if the packet stands for
    /// fragments of a datagram that never became complete.
    pub frame: &'a [u8],
    /// The captured transport payload.
    pub payload: &'a [u8],
    /// Stream offset of the first payload byte, including holes, once the start is known (negative: old data before
    /// it). For UDP, the offset after all previous datagrams; `None` for other protocols.
    pub offset: Option<i64>,
    /// Whether the start is known from a SYN or a handshake, rather than assumed.
    pub start_known: bool,
    /// Whether its sequence numbers are plausible for the connection, given what the receiver allowed. Reassembly
    /// accepts others only if a second packet confirms them.
    pub expected: bool,
    /// Whether segments of this direction wait after a hole.
    pub waiting: bool,
    /// Whether it is the first packet of its connection, for which its streams were created.
    pub begins: bool,
    /// Its flow, and the effects of the packet on it.
    pub flow: PacketFlow,
    pub(crate) batch: &'a Batch<'a>,
    /// Its direction and the opposite one.
    pub(crate) halves: [&'a Half; 2],
    pub(crate) reassembler: &'a Reassembler,
}

impl StreamPacket<'_> {
    /// Its descriptor; for a reassembled datagram, that of its last fragment.
    pub fn descriptor(&self) -> PacketDescriptor {
        let descriptor = self.batch.packets.get(usize::from(self.decoded.index));
        descriptor.copied().unwrap_or_default()
    }

    /// Whether it has a wrong checksum.
    pub fn is_damaged(&self) -> bool {
        const DAMAGED: u16 = DecodeFlags::EXCLUDED.0 | DecodeFlags::BAD_PAYLOAD.0;
        self.decoded.flags.0 & DAMAGED != 0
    }

    /// Bytes of its payload that its headers claim, but its frames cannot have had on the wire.
    pub fn claimed(&self) -> u32 {
        claimed(self.decoded)
    }

    /// Whether all of its payload is already waiting, in one or several other segments: a copy.
    pub fn is_waiting_copy(&self) -> bool {
        self.waiting
            && self.payload.len() == self.decoded.payload_len as usize
            && self
                .reassembler
                .holds(self.halves[0], self.seq(), self.payload)
    }

    /// Distance from its first payload byte to the end of the stream (negative: the end is before it), if its FIN was
    /// seen (RFC 9293, section 3.10.7.4) and nothing beyond it was acknowledged.
    pub fn stream_ends_after(&self) -> Option<i64> {
        let [half, peer] = self.halves;
        half.distance_to_fin(peer, self.seq()).map(i64::from)
    }

    /// Whether its payload, if it starts at the stream's current position, can be delivered immediately: its sequence
    /// number needs no confirmation, nothing waits, and all of it is before a FIN.
    pub fn is_deliverable(&self) -> bool {
        if self.decoded.key.protocol != 6 {
            return true;
        }
        let half = self.halves[0];
        let len = self.payload.len() as i64;
        self.expected
            && !self.waiting
            && !self.decoded.tcp_flags.contains(TcpFlags::RST)
            && !self.flow.flags.contains(PacketFlowFlags::HELD_SYN)
            && !half.is_passed()
            && !half.flags().contains(HalfFlags::CLOSED)
            && self.stream_ends_after().is_none_or(|rest| rest >= len)
    }

    /// Stream position up to which its stream is in order, including holes that were given up, once the start is known.
    pub fn position(&self) -> Option<i64> {
        let ahead = match self.decoded.key.protocol {
            6 => i64::from(self.halves[0].distance_to(self.seq()).unwrap_or(0)),
            _ => 0,
        };
        self.offset.map(|offset| offset - ahead)
    }

    /// Whether it would leave a hole and starts beyond the window that its receiver last offered, as far as known.
    #[cold]
    #[inline(never)]
    pub fn is_beyond_window(&self) -> bool {
        self.decoded.key.protocol == 6
            && self.halves[0].is_beyond_window(self.halves[1], self.seq())
    }

    /// Whether its receiver refuses it, if both sides of the connection are known (RFC 9293, section 3.10.7.4): it has
    /// data but no acknowledgement, or acknowledges data that cannot have been sent.
    #[cold]
    #[inline(never)]
    pub fn is_unacceptable(&self) -> bool {
        let flags = self.decoded.tcp_flags;
        let [half, peer] = self.halves;
        let known = half.is_start_known() && peer.is_start_known() && peer.ack().is_some();
        if self.decoded.key.protocol != 6
            || !known
            || flags.intersects(TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0))
        {
            return false;
        }
        match flags.contains(TcpFlags::ACK) {
            true => half.doubts_ack(peer, self.decoded.ack),
            false => self.decoded.payload_len != 0,
        }
    }

    /// Sequence number of the first payload byte.
    fn seq(&self) -> u32 {
        let syn = self.decoded.tcp_flags.contains(TcpFlags::SYN);
        self.decoded.seq.wrapping_add(u32::from(syn))
    }

    /// The receiver's policy for overlapping segments.
    pub fn overlap_policy(&self) -> OverlapPolicy {
        self.halves[0].policy()
    }
}

/// The next bytes of a stream, which the snap length cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Stream offset of the first byte, including holes.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Packets that start with the first byte: those without any captured payload.
    pub packets: u64,
}

/// Findings about a segment that does not simply continue its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Capture time of the packet.
    pub time: Nanos,
    /// Bytes of it that were already captured or given up.
    pub repeated: u64,
    /// The part of these that differs from the bytes waiting at the same positions.
    pub conflicting: u64,
    /// Bytes of it after the stream's FIN.
    pub after_fin: u64,
    /// It was refused because its sequence number is far from the stream's position.
    pub implausible: bool,
}

/// A handler's result for a packet that continues its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It did nothing, because it needs to know more of the stream. [`Handler::next_packet_of`] follows.
    Unseen,
    /// It has seen the packet; [`Handler::stream_data`] follows if there is payload.
    Seen,
    /// It has also accepted the payload.
    Taken,
}

/// A handler's decision on a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The payload is reassembled.
    Take,
    /// The handler has processed the payload itself: sequence numbers, acknowledgements and FINs are still followed,
    /// but there is no waiting for holes, and nothing is queued or delivered. The payload counts as delivered. Segments
    /// that were waiting are delivered first, with holes reported.
    Consumed,
    /// The payload is not wanted, or lost: the packet's frames are counted at this place of the shard's ledger instead
    /// of as delivered, and its payload is missing in the stream. Sequence numbers, acknowledgements and FINs are still
    /// followed.
    ///
    /// With [`Place::Cutoff`] and [`Place::Strict`], nothing more of this direction is wanted: waiting segments are
    /// discarded, and nothing is delivered from now on, regardless of later decisions ([`Want::Nothing`]).
    Refuse(Place),
    /// The receiver refuses the packet: it is counted at this place, if any, as with [`Admit::Refuse`], but its
    /// sequence numbers, acknowledgements and FIN are ignored.
    Reject(Option<Place>),
    /// The payload is reassembled once confirmed: if its sequence number is beyond the receiver's window, it waits
    /// until the stream reaches it, a packet after it is captured, or its receiver acknowledges the bytes before it.
    /// Other packets accepted or consumed meanwhile do not give up the hole.
    Doubt,
}

/// Receives the events of a shard. All methods have empty defaults.
///
/// The order of calls for a batch: `batch` once, then stream events in packet order (for one packet: `stream_created`,
/// `stream_packet`, `stream_data`), then flow records of flows that ended.
pub trait Handler {
    /// Whether stream events are wanted; otherwise, nothing is reassembled.
    const STREAMS: bool = false;

    /// Whether [`Handler::stream_packet`] is wanted as well. If so, streams are created by the first packet of any kind
    /// (including a SYN), and flows of protocols other than TCP and UDP also have streams, but only of packets: no data
    /// is delivered.
    const PACKETS: bool = false;

    /// Whether [`Handler::stream_remark`] and [`Handler::fragment_remark`] are wanted.
    const REMARKS: bool = false;

    /// Whether [`Handler::flow`] is wanted; otherwise, records need not be created.
    const FLOWS: bool = true;

    /// The same for handlers that decide when they are created.
    #[inline(always)]
    fn wants_flows(&self) -> bool {
        Self::FLOWS
    }

    /// A batch was decoded.
    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {}

    /// An event of the stream with this number is likely soon (or of one that had this number), so that a handler with
    /// much state can prefetch it. Called for all packets of a batch, some packets before [`Handler::arrived`];
    /// `has_payload` tells whether the packet has any.
    #[inline(always)]
    fn prefetch(&mut self, _stream: u32, _has_payload: bool) {}

    /// Whether the packet of the last [`Handler::prefetch`] call starts or ends its direction.
    #[inline(always)]
    fn prefetch_control(&mut self, _is_control: bool) {}

    /// The stream with this number will end soon. Called with steps from 0 to 2, so that a handler can prefetch in each
    /// step what it finds through the previous one.
    #[inline(always)]
    fn prefetch_end(&mut self, stream: u32, step: usize) {
        if step == 0 {
            self.prefetch(stream, true);
        }
    }

    /// The next packet of the batch is processed; its events follow. Called for all packets, if [`Handler::PACKETS`].
    #[inline(always)]
    fn arrived(&mut self, _has_payload: bool) {}

    /// Whether [`Handler::stream_packet`] is wanted for every packet. Otherwise, packets that continue their direction
    /// (whole, with new payload or none, of known streams) are accepted; [`Handler::next_packet`] is called for them if
    /// [`Handler::follows`].
    #[inline(always)]
    fn attends(&self) -> bool {
        true
    }

    /// Whether in-order packets without payload, of known streams, are accepted without calling
    /// [`Handler::stream_packet`], even if they start or end a direction.
    #[inline(always)]
    fn takes_empty(&self) -> bool {
        false
    }

    /// Whether [`Handler::next_packet`] is wanted.
    #[inline(always)]
    fn follows(&self) -> bool {
        false
    }

    /// A packet of stream `id` continues its direction at `offset`. Called instead of [`Handler::stream_packet`]; the
    /// captured frame and payload are as there.
    #[inline(always)]
    fn next_packet(
        &mut self,
        _id: u32,
        _packet: &Decoded,
        _offset: u64,
        _frame: &[u8],
        _payload: &[u8],
    ) -> Next {
        Next::Seen
    }

    /// The packet of the last [`Handler::next_packet`] call.
    fn next_packet_of(
        &mut self,
        _stream: &Stream<'_>,
        _packet: &Decoded,
        _offset: u64,
        _frame: &[u8],
        _payload: &[u8],
    ) {
    }

    /// The handler's changed wants of streams, one per call. Called before each packet passed to
    /// [`Handler::stream_packet`], or after each packet otherwise, so that decisions made for one packet apply to the
    /// next. (With [`Handler::PACKETS`], the handler gets all bytes of a stream or [none](Want::Nothing).)
    #[inline(always)]
    fn want(&mut self) -> Option<Want> {
        None
    }

    /// The capture clock has entered another tick (of about a second), or the input is over; called before anything
    /// ends because of this.
    fn tick(&mut self, _tracker: &FlowTracker) {}

    /// With [`Handler::PACKETS`]: called when a handler without packets gets [`Handler::stream_created`].
    fn stream_opened(&mut self, _stream: &Stream<'_>) {}

    /// With [`Handler::PACKETS`]: called when a handler without packets gets [`Handler::stream_closed`].
    fn stream_passed(&mut self, _stream: &Stream<'_>) {}

    /// With [`Handler::PACKETS`]: called when a handler without packets gets [`Handler::stream_terminated`].
    fn stream_over(&mut self, _stream: &Stream<'_>, _trailing_gap: u64) {}

    /// With [`Handler::PACKETS`]: whether streams of connections that started before the handler are wanted.
    #[inline(always)]
    fn joins_midway(&self) -> bool {
        true
    }

    /// Whether the handler itself counts a refused packet ([`Admit`]), so that the shard's ledger does not.
    fn counts_refused(&mut self, _place: Place, _packets: u64, _bytes: u64) -> bool {
        false
    }

    /// A stream was created (both directions of a connection are created together).
    fn stream_created(&mut self, _stream: &Stream<'_>) {}

    /// The receiver's policy for overlapping segments of a new stream, if it is known better than by
    /// [`ShardConfig::overlap_policy`](crate::ShardConfig::overlap_policy). Called right after
    /// [`Handler::stream_created`].
    fn overlap_policy(&mut self, _stream: &Stream<'_>) -> Option<OverlapPolicy> {
        None
    }

    /// A packet of a stream, before its payload is reassembled, if [`Handler::PACKETS`]: every packet that its flow
    /// [counts](flowgauge_flow::is_counted) (including SYN, ACK, FIN, RST and empty ones). The payload of a
    /// [damaged](StreamPacket::is_damaged) one is never delivered.
    fn stream_packet(&mut self, _stream: &Stream<'_>, _packet: &StreamPacket<'_>) -> Admit {
        Admit::Take
    }

    /// In the data of the following [`Handler::stream_data`] calls, packets [begin](flowgauge_reassembly::Account) at
    /// these offsets from `base`; `None`: from now on, a packet begins with the first byte again.
    #[inline(always)]
    fn stream_begins(&mut self, _base: u64, _begin: Option<&[u32]>) {}

    /// A SYN that was passed as a packet of this stream starts another connection; next, it is passed as the first
    /// packet of that one.
    fn stream_left(&mut self, _stream: u32, _syn: &Decoded) {}

    /// The snap length cut off the next bytes of packets that were [accepted](Admit::Take), if [`Handler::PACKETS`];
    /// their captured bytes are delivered before or after by [`Handler::stream_data`].
    fn stream_cut(&mut self, _stream: &Stream<'_>, _cut: &Cut) {}

    /// Some or all bytes of a packet that was [accepted](Admit::Take) are duplicates, or have no place in the stream,
    /// if [`Handler::PACKETS`].
    fn stream_unplaced(&mut self, _stream: u32, _packet: &Decoded, _unplaced: &Unplaced) {}

    /// Waiting segments will not be delivered: the stream started or ended elsewhere, or was given up.
    fn stream_forgotten(&mut self, _stream: u32, _forgotten: Forgotten) {}

    /// A segment of the stream conflicts with a waiting segment at the same position.
    fn stream_conflict(&mut self, _stream: u32) {}

    /// The payload of a packet was needed and has a wrong checksum; it is accepted in spite of it, or refused. (The
    /// packet may be the first of its flow, which then has no streams.)
    fn bad_payload(&mut self, _stream: Option<u32>, _packet: &Decoded, _is_taken: bool) {}

    /// Packets were withheld before they arrived here ([`Offload`](crate::offload::Offload)), of a stream if it is
    /// live. Returns the place in the ledger for those with payload, if they do not count as delivered.
    fn withheld(&mut self, _stream: Option<u32>, _packets: &Withheld) -> Option<Place> {
        None
    }

    /// Packets were lost to overload before they arrived here ([`Overload`](crate::offload::Overload)), of a stream if
    /// it is live.
    fn lost(&mut self, _stream: Option<u32>, _packets: &Withheld) {}

    /// Findings about a segment of the stream, if [`Handler::REMARKS`]; called after the data that the segment made
    /// deliverable.
    fn stream_remark(&mut self, _stream: &Stream<'_>, _remark: &Remark) {}

    /// An anomaly of a fragment, with its counts, if [`Handler::REMARKS`]. Called before all other events of a batch.
    fn fragment_remark(&mut self, _packet: &Decoded, _odd: &DefragmentStatistics) {}

    /// Number of bytes that may be in use in a budget shared by reassembly
    /// ([`Shard::set_budget`](crate::Shard::set_budget)) while segments of a stream wait; without a stream, the minimum
    /// for any stream.
    fn waiting_ceiling(&self, _stream: Option<u32>) -> u64 {
        u64::MAX
    }

    /// Bytes in order.
    fn stream_data(&mut self, _stream: &Stream<'_>, _chunk: &Chunk<'_>) {}

    /// The stream's bytes are complete, though its connection is not: all up to its FIN were delivered
    /// ([`StreamStatus::Fin`]; the last ones may have been delivered with that status already), or the connection was
    /// reset ([`StreamStatus::Rst`]; waiting data follows).
    fn stream_closed(&mut self, _stream: &Stream<'_>) {}

    /// The stream has ended, with the capture clock at `at`; waiting data follows before
    /// [`Handler::stream_terminated`].
    #[inline(always)]
    fn stream_ends(&mut self, _stream: &Stream<'_>, _at: Nanos) {}

    /// The stream ended. `trailing_gap` bytes are known to be missing at its end.
    fn stream_terminated(&mut self, _stream: &Stream<'_>, _trailing_gap: u64) {}

    /// A flow's record is complete, if [`Handler::FLOWS`].
    fn flow(&mut self, _record: &FlowRecord<'_>) {}
}
