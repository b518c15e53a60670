//! What a user of the engine implements.

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

/// How a stream stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum StreamStatus {
    /// Still open.
    Active,
    /// This side closed with FIN and everything before it was delivered or given up.
    Fin,
    /// Reset.
    Rst,
    /// Idle timeout, or the flow's record was cut by another limit.
    Timeout,
    /// The input ended.
    EndOfInput,
    /// Evicted because the table or the memory was full.
    Evicted,
}

impl StreamStatus {
    /// Name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One direction of a connection, as its events show it.
///
/// It is made for the call from what the engine keeps; what a handler does not look at costs
/// nothing. Who talks with whom says [`Stream::identity`], looked up when asked for.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Number of this stream while it lives: small, dense, reused after `stream_terminated`; a
    /// handler may index its own state by it.
    pub id: u32,
    /// The opposite direction's `id`.
    pub opposite: u32,
    /// Bytes delivered so far, holes not counted.
    pub bytes: u64,
    /// Bytes known to be missing (holes that were given up, before the last byte delivered).
    pub missing_bytes: u64,
    /// Number of holes so far.
    pub gaps: u32,
    /// How it stands.
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

/// Whose bytes a stream has: what travels from `source` to `destination`.
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
    /// A new stream of which nothing was delivered, outside of any engine: to test handlers with.
    /// Even ids are the initiator's.
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

    /// Who talks with whom. To be asked when a stream is created or ends, or for its first bytes,
    /// rather than for every chunk: the flow table is read for it.
    pub fn identity(&self) -> StreamIdentity {
        self.flow.identity(self.id)
    }

    /// The IP protocol and the responder's port: what [`Stream::identity`] says of them, for less.
    pub fn service(&self) -> (u8, u16) {
        self.flow.service(self.id & 1 != 0, self.from_initiator)
    }

    /// Reads the record of its flow as it stands; not of a [`Stream::detached`] one. What it counts may
    /// include later packets of the batch.
    pub fn record<R>(&self, read: impl FnOnce(&FlowRecord<'_>) -> R) -> Option<R> {
        match self.flow {
            StreamFlow::Tracked(tracker, id) => tracker.with_record(id, read),
            StreamFlow::Ended(flow) => Some(flow.with_record(read)),
            StreamFlow::Record(record) => Some(read(record)),
            StreamFlow::Known(_) => None,
        }
    }

    /// Whether the whole three-way handshake of its TCP connection was seen. (Of a
    /// [`Stream::detached`] one: yes.)
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
    /// The bytes, borrowed for the call. Empty only where others were [skipped](Chunk::skipped).
    pub bytes: &'a [u8],
    /// Position of the first byte in the stream, holes counted.
    pub offset: u64,
    /// Bytes missing since the chunk before: right before this one, or between bytes that were skipped.
    pub gap_before: u64,
    /// Bytes since the chunk before that were captured and not asked for ([`Want::From`]).
    pub skipped: u64,
    /// Capture time of the packet that made it deliverable.
    pub time: Nanos,
    /// When its bytes were there: the same, but of bytes behind a hole that was given up, or before which a
    /// stream's beginning was waited for, when the first of them were captured.
    pub captured: Nanos,
}

/// A packet of a stream, before its payload is reassembled.
#[derive(Clone, Copy, Debug)]
pub struct StreamPacket<'a> {
    /// Its headers. Of a datagram reassembled from fragments there is one, for all its frames.
    pub decoded: &'a Decoded,
    /// The captured frame; of a reassembled datagram its bytes from the IP header on. Empty where
    /// the packet stands for fragments of a datagram that never became complete.
    pub frame: &'a [u8],
    /// The captured transport payload.
    pub payload: &'a [u8],
    /// Position of the first payload byte in the stream, holes counted, once the start is known
    /// (negative: before it, old data). Of UDP: behind all datagrams before. Of other protocols:
    /// nothing.
    pub offset: Option<i64>,
    /// Whether the start is known from a SYN or a handshake rather than taken for it.
    pub start_known: bool,
    /// Whether its sequence numbers are where the connection can be by what the receiver allowed.
    /// Reassembly does not believe others until a second one confirms them.
    pub expected: bool,
    /// Whether segments of this direction wait behind a hole.
    pub waiting: bool,
    /// Whether it is the first one of its connection: its streams were created for it.
    pub begins: bool,
    /// Its flow, and what the packet means for it.
    pub flow: PacketFlow,
    pub(crate) batch: &'a Batch<'a>,
    /// Its direction and the opposite one.
    pub(crate) halves: [&'a Half; 2],
    pub(crate) reassembler: &'a Reassembler,
}

impl StreamPacket<'_> {
    /// What its source says of it; of a reassembled datagram, of its last fragment.
    pub fn descriptor(&self) -> PacketDescriptor {
        let descriptor = self.batch.packets.get(usize::from(self.decoded.index));
        descriptor.copied().unwrap_or_default()
    }

    /// Whether it has a wrong checksum.
    pub fn is_damaged(&self) -> bool {
        const DAMAGED: u16 = DecodeFlags::EXCLUDED.0 | DecodeFlags::BAD_PAYLOAD.0;
        self.decoded.flags.0 & DAMAGED != 0
    }

    /// Bytes of its payload that its headers claim, and its frames cannot have had on the wire.
    pub fn claimed(&self) -> u32 {
        claimed(self.decoded)
    }

    /// Whether all of its payload waits already, in another segment or several: a copy.
    pub fn is_waiting_copy(&self) -> bool {
        self.waiting
            && self.payload.len() == self.decoded.payload_len as usize
            && self
                .reassembler
                .holds(self.halves[0], self.seq(), self.payload)
    }

    /// How many bytes from the first of its payload the stream ends (negative: before it), once its
    /// FIN was seen (RFC 9293, section 3.10.7.4) and nothing beyond it was acknowledged.
    pub fn stream_ends_after(&self) -> Option<i64> {
        let [half, peer] = self.halves;
        half.distance_to_fin(peer, self.seq()).map(i64::from)
    }

    /// Whether its payload, where it begins where the stream has got to, is in order at once if it is
    /// taken: it does not have to be believed first, nothing waits, and all of it is before a FIN.
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

    /// Position up to which its stream is in order, holes that were given up counted, once the start is known.
    pub fn position(&self) -> Option<i64> {
        let ahead = match self.decoded.key.protocol {
            6 => i64::from(self.halves[0].distance_to(self.seq()).unwrap_or(0)),
            _ => 0,
        };
        self.offset.map(|offset| offset - ahead)
    }

    /// Whether it would leave a hole and begins beyond the window that its receiver offered last, as far as
    /// that is known.
    #[cold]
    #[inline(never)]
    pub fn is_beyond_window(&self) -> bool {
        self.decoded.key.protocol == 6
            && self.halves[0].is_beyond_window(self.halves[1], self.seq())
    }

    /// Whether its receiver refuses it, of a connection both of whose sides are known (RFC 9293, section
    /// 3.10.7.4): it has data without acknowledging anything, or acknowledges what cannot have been sent.
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

    /// What the receiver does with overlapping copies.
    pub fn overlap_policy(&self) -> OverlapPolicy {
        self.halves[0].policy()
    }
}

/// Bytes that are next in a stream, and that the snap length cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Position of the first in the stream, holes counted.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// Packets that begin with the first: those of which nothing was captured.
    pub packets: u64,
}

/// What a segment that does not simply go on told of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Capture time of the packet.
    pub time: Nanos,
    /// Bytes of it that had come, or had been given up, before.
    pub repeated: u64,
    /// Of these, bytes other than those that wait for the same places.
    pub conflicting: u64,
    /// Bytes of it behind the stream's FIN.
    pub after_fin: u64,
    /// It was not taken: its sequence number is far from where the stream can be.
    pub implausible: bool,
}

/// What a handler did with a packet that goes on where its direction has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it has to know more of the stream. [`Handler::next_packet_of`] follows.
    Unseen,
    /// It has seen it: [`Handler::stream_data`] follows, where there is payload.
    Seen,
    /// It has taken its payload, too.
    Taken,
}

/// What becomes of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It goes on to reassembly.
    Take,
    /// The handler has dealt with it: sequence numbers, acknowledgements and FINs are followed as
    /// ever, but holes are not waited for, and nothing is queued or delivered. The payload counts
    /// as delivered. What waited before is delivered first, holes reported.
    Consumed,
    /// It is not wanted, or lost: the packet's frames are counted at this place of the shard's
    /// ledger instead of as delivered, and its payload is missing in the stream. Sequence numbers,
    /// acknowledgements and FINs are followed as ever.
    ///
    /// With [`Place::Cutoff`] and [`Place::Strict`] nothing of this direction is wanted any more: what waits is
    /// forgotten, and nothing delivered from here on, whatever is answered later
    /// ([`Want::Nothing`]).
    Refuse(Place),
    /// The receiver refuses it: counted at this place as with [`Admit::Refuse`], if at any, but nothing that it says
    /// is followed.
    Reject(Option<Place>),
    /// It goes on to reassembly, but is not believed yet: with its sequence number beyond the window of the
    /// receiver it waits there until the stream gets to it, a packet behind it is captured, or its receiver
    /// acknowledges what is before it. What else is taken or consumed meanwhile does not give up the hole.
    Doubt,
}

/// Receives what the engine finds. Every method has an empty default.
///
/// Calls for one batch come in this order: `batch` once, then stream events in packet order (of one
/// packet: `stream_created`, `stream_packet`, `stream_data`), then flow records of flows that ended.
pub trait Handler {
    /// Whether stream events are wanted; without them nothing is reassembled.
    const STREAMS: bool = false;

    /// Whether [`Handler::stream_packet`] is wanted, too. With it streams are created by the first
    /// packet of any kind (a SYN, too), and flows of protocols other than TCP and UDP have streams
    /// as well, of packets only: nothing is delivered of them.
    const PACKETS: bool = false;

    /// Whether [`Handler::stream_remark`] and [`Handler::fragment_remark`] are wanted.
    const REMARKS: bool = false;

    /// Whether [`Handler::flow`] is wanted: where it is not, records need not be made.
    const FLOWS: bool = true;

    /// The same, of a handler that finds out when it is made.
    #[inline(always)]
    fn wants_flows(&self) -> bool {
        Self::FLOWS
    }

    /// A batch was decoded.
    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {}

    /// An event of the stream with this number is likely soon (or of one that had this number): a
    /// handler with much state can bring it into the cache. Called for all packets of a batch, some
    /// packets before [`Handler::arrived`]; `has_payload` says whether the packet has any.
    #[inline(always)]
    fn prefetch(&mut self, _stream: u32, _has_payload: bool) {}

    /// Whether the packet that [`Handler::prefetch`] was just called for begins or ends its direction.
    #[inline(always)]
    fn prefetch_control(&mut self, _is_control: bool) {}

    /// The stream with this number is soon terminated. Called with steps from 0 to 2, so that a handler can bring closer what it
    /// finds by what the step before brought.
    #[inline(always)]
    fn prefetch_end(&mut self, stream: u32, step: usize) {
        if step == 0 {
            self.prefetch(stream, true);
        }
    }

    /// The next packet of the batch is up: its events follow. Called for all packets where
    /// [`Handler::PACKETS`] says that they are wanted.
    #[inline(always)]
    fn arrived(&mut self, _has_payload: bool) {}

    /// Whether [`Handler::stream_packet`] is wanted for every packet. Without it the ones that go on
    /// where their direction has got to (whole, with new payload or none, of streams that are known)
    /// are taken; [`Handler::next_packet`] is called for them where [`Handler::follows`] says so.
    #[inline(always)]
    fn attends(&self) -> bool {
        true
    }

    /// Whether packets without payload are taken that belong where they come, of streams that are known, although they begin
    /// or end a direction: [`Handler::stream_packet`] is not called for them.
    #[inline(always)]
    fn takes_empty(&self) -> bool {
        false
    }

    /// Whether [`Handler::next_packet`] is wanted.
    #[inline(always)]
    fn follows(&self) -> bool {
        false
    }

    /// A packet of stream `id` that goes on at `offset`, where its direction has got to, instead of
    /// [`Handler::stream_packet`]; the captured frame and payload as there.
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

    /// The packet that [`Handler::next_packet`] was just called for.
    fn next_packet_of(
        &mut self,
        _stream: &Stream<'_>,
        _packet: &Decoded,
        _offset: u64,
        _frame: &[u8],
        _payload: &[u8],
    ) {
    }

    /// What the handler wants of streams otherwise than before, one at a time: asked before each packet that it is shown
    /// ([`Handler::stream_packet`]), or behind each packet where it is shown none, so that what it decided by one packet
    /// holds for the next. (With [`Handler::PACKETS`] it gets all bytes of a stream or [none](Want::Nothing).)
    #[inline(always)]
    fn want(&mut self) -> Option<Want> {
        None
    }

    /// The capture clock has entered another tick (of about a second), or the input is over: before
    /// anything ends by that.
    fn tick(&mut self, _tracker: &FlowTracker) {}

    /// With [`Handler::PACKETS`]: here one without has [`Handler::stream_created`].
    fn stream_opened(&mut self, _stream: &Stream<'_>) {}

    /// With [`Handler::PACKETS`]: here one without has [`Handler::stream_closed`].
    fn stream_passed(&mut self, _stream: &Stream<'_>) {}

    /// With [`Handler::PACKETS`]: here one without has [`Handler::stream_terminated`].
    fn stream_over(&mut self, _stream: &Stream<'_>, _trailing_gap: u64) {}

    /// Whether streams are wanted of connections that had begun before the handler came: with [`Handler::PACKETS`].
    #[inline(always)]
    fn joins_midway(&self) -> bool {
        true
    }

    /// A packet is refused ([`Admit`]): whether the handler has an account of its own for that, and the shard's ledger does not
    /// count it.
    fn counts_refused(&mut self, _place: Place, _packets: u64, _bytes: u64) -> bool {
        false
    }

    /// A stream was created (both directions of a connection are created together).
    fn stream_created(&mut self, _stream: &Stream<'_>) {}

    /// How the receiver of a new stream treats overlapping segments, where that is known better than
    /// by [`ShardConfig::overlap_policy`](crate::ShardConfig::overlap_policy). Asked right after
    /// [`Handler::stream_created`].
    fn overlap_policy(&mut self, _stream: &Stream<'_>) -> Option<OverlapPolicy> {
        None
    }

    /// A packet of a stream, before its payload is reassembled, where [`Handler::PACKETS`] says that
    /// they are wanted: every packet that its flow [counts](flowgauge_flow::is_counted) (SYN, ACK, FIN, RST and
    /// empty ones, too). What a [damaged](StreamPacket::is_damaged) one has is never delivered.
    fn stream_packet(&mut self, _stream: &Stream<'_>, _packet: &StreamPacket<'_>) -> Admit {
        Admit::Take
    }

    /// Of what [`Handler::stream_data`] is called for next packets [begin](flowgauge_reassembly::Account)
    /// so many bytes behind `base`; `None`: from now on one begins with the first byte again.
    #[inline(always)]
    fn stream_begins(&mut self, _base: u64, _begin: Option<&[u32]>) {}

    /// A SYN that was offered as a packet of this stream begins another connection: it is offered as the first one of
    /// that next.
    fn stream_left(&mut self, _stream: u32, _syn: &Decoded) {}

    /// The snap length cut off what is next of packets that were [taken](Admit::Take), where
    /// [`Handler::PACKETS`] says that packets are wanted: their captured bytes come, or came, as
    /// [`Handler::stream_data`].
    fn stream_cut(&mut self, _stream: &Stream<'_>, _cut: &Cut) {}

    /// Some bytes of a packet that was [taken](Admit::Take), or all, came a second time or have no place in the
    /// stream, where [`Handler::PACKETS`] says that packets are wanted.
    fn stream_unplaced(&mut self, _stream: u32, _packet: &Decoded, _unplaced: &Unplaced) {}

    /// What waited for its turn in the stream will not be delivered: the stream began or ended elsewhere, or
    /// was given up.
    fn stream_forgotten(&mut self, _stream: u32, _forgotten: Forgotten) {}

    /// A segment of the stream has other bytes than one that waits for the same place.
    fn stream_conflict(&mut self, _stream: u32) {}

    /// The payload of a packet was to be read and has a wrong checksum, but is taken all the same, or is not. (The
    /// packet may be the first of its flow: it has no streams then.)
    fn bad_payload(&mut self, _stream: Option<u32>, _packet: &Decoded, _is_taken: bool) {}

    /// Packets were kept away before they came here ([`Offload`](crate::offload::Offload)), of a stream if that lives.
    /// Says at which place of the ledger those with payload end, if they are not delivered.
    fn withheld(&mut self, _stream: Option<u32>, _packets: &Withheld) -> Option<Place> {
        None
    }

    /// Packets were lost to overload before they came here ([`Overload`](crate::offload::Overload)), of a stream if that lives.
    fn lost(&mut self, _stream: Option<u32>, _packets: &Withheld) {}

    /// A segment of the stream that told something, where [`Handler::REMARKS`] says that this is wanted: behind
    /// what the segment made deliverable.
    fn stream_remark(&mut self, _stream: &Stream<'_>, _remark: &Remark) {}

    /// There was something odd about a fragment, where [`Handler::REMARKS`] says that this is wanted: what is counted of it.
    /// Of a batch these come first.
    fn fragment_remark(&mut self, _packet: &Decoded, _odd: &DefragmentStatistics) {}

    /// How many bytes of a budget that reassembly shares
    /// ([`Shard::set_budget`](crate::Shard::set_budget)) may be in use while segments of a stream wait; without one
    /// the least that any stream may have in use.
    fn waiting_ceiling(&self, _stream: Option<u32>) -> u64 {
        u64::MAX
    }

    /// Bytes in order.
    fn stream_data(&mut self, _stream: &Stream<'_>, _chunk: &Chunk<'_>) {}

    /// The stream's bytes are over, though its connection is not: all up to its FIN were delivered
    /// ([`StreamStatus::Fin`]; the last ones may have been delivered with that status already), or
    /// the connection was reset ([`StreamStatus::Rst`]; what waits is still to come).
    fn stream_closed(&mut self, _stream: &Stream<'_>) {}

    /// The stream has ended, when the capture clock was `at`: what waits is still to come, before
    /// [`Handler::stream_terminated`].
    #[inline(always)]
    fn stream_ends(&mut self, _stream: &Stream<'_>, _at: Nanos) {}

    /// The stream ended. `trailing_gap` bytes are known to be missing at its end.
    fn stream_terminated(&mut self, _stream: &Stream<'_>, _trailing_gap: u64) {}

    /// A flow's record is complete, where [`Handler::FLOWS`] says that they are wanted.
    fn flow(&mut self, _record: &FlowRecord<'_>) {}
}
