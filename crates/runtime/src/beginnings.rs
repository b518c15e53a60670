//! The beginnings of streams as a source: what a time machine records.
//!
//! (Kornexl, Paxson, Dreger, Feldmann, Sommer: Building a Time Machine for Efficient Recording and
//! Retrieval of High-Volume Network Traffic, IMC 2005: most bytes are in few streams, and what is worth
//! keeping of those is at their beginning.)

use flowgauge_capture::{Error, PacketSource, as_source_within};
use flowgauge_stream::{Admit, ChecksumPolicy, Handler, Shard, ShardConfig, Stream, StreamPacket};
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeFlags, DecodedBatch, Ledger, PacketDescriptor, Place, TcpFlags,
};

/// A source's packets as far as they belong to the first bytes of their stream; the others are counted
/// as [`Place::Cutoff`].
///
/// Streams are directions of flows of any IP protocol. A packet passes when its payload begins before
/// the cutoff, or repeats what did. Packets with SYN, FIN or RST always pass, those without payload
/// as long as neither direction has lost any, so the handshake does. Fragments and what is not IP
/// pass, too: nobody can say where in a stream they are.
pub struct Beginnings<S> {
    source: S,
    shard: Shard,
    judge: Judge,
    kept: Vec<PacketDescriptor>,
    refused: u64,
    refused_bytes: u64,
}

impl<S: PacketSource> Beginnings<S> {
    /// Packets of `source` within the first `cutoff` bytes of each direction. `config` bounds the
    /// flows that are followed, and says when one is over; checksums are not looked at.
    pub fn new(source: S, cutoff: u64, config: ShardConfig) -> Beginnings<S> {
        Beginnings {
            source,
            shard: Shard::new(ShardConfig {
                checksums: ChecksumPolicy::Ignore,
                ..config
            }),
            judge: Judge {
                cutoff,
                streams: Vec::new(),
                unwanted: [false; BATCH_SIZE],
                any: false,
                first: 0,
                passed: 0,
            },
            kept: Vec::with_capacity(BATCH_SIZE),
            refused: 0,
            refused_bytes: 0,
        }
    }
}

impl<S: PacketSource> PacketSource for Beginnings<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let Some(mut batch) = self.source.next_batch()? else {
            return Ok(None);
        };
        (self.judge.any, self.judge.passed) = (false, 0);
        self.shard.process(&batch, &mut self.judge);
        if !self.judge.any {
            return Ok(Some(batch));
        }
        self.kept.clear();
        let unwanted = self.judge.unwanted.iter_mut().map(core::mem::take);
        for (packet, unwanted) in batch.packets.iter().zip(unwanted) {
            if unwanted {
                self.refused += 1;
                self.refused_bytes += u64::from(packet.wire_len);
            } else {
                self.kept.push(*packet);
            }
        }
        batch.packets = &self.kept;
        Ok(Some(batch))
    }

    as_source_within!(source);

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        ledger.refuse(Place::Cutoff, self.refused, self.refused_bytes);
        ledger
    }
}

/// Says which packets of a batch are not wanted.
struct Judge {
    cutoff: u64,
    /// By [`Stream::id`].
    streams: Vec<Beginning>,
    /// By the packet's place in its batch.
    unwanted: [bool; BATCH_SIZE],
    any: bool,
    /// The place in the source's batch of the first packet of the part that is looked at.
    first: usize,
    /// Packets of the source's batch in parts so far.
    passed: usize,
}

/// What was seen of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Beginning {
    /// Bytes of payload, for as long as their places are not known.
    bytes: u64,
    /// Some of its bytes were not wanted.
    cut: bool,
}

impl Judge {
    fn beginning(&mut self, id: u32) -> &mut Beginning {
        let at = id as usize;
        if at >= self.streams.len() {
            self.streams.resize(at + 1, Beginning::default());
        }
        &mut self.streams[at]
    }

    fn is_wanted(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> bool {
        const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
        let decoded = packet.decoded;
        let cutoff = self.cutoff;
        if decoded.payload_len == 0 {
            let cut = self.beginning(stream.id).cut || self.beginning(stream.opposite).cut;
            return !cut || decoded.tcp_flags.intersects(CONTROL);
        }
        let beginning = self.beginning(stream.id);
        let place = match packet.offset {
            Some(offset) => u64::try_from(offset).unwrap_or(0),
            None => beginning.bytes,
        };
        beginning.bytes += u64::from(decoded.payload_len);
        let wanted = place < cutoff || decoded.tcp_flags.intersects(CONTROL);
        beginning.cut |= !wanted;
        wanted
    }
}

impl Handler for Judge {
    const STREAMS: bool = true;
    const PACKETS: bool = true;

    fn batch(&mut self, batch: &Batch<'_>, _: &DecodedBatch) {
        self.first = self.passed;
        self.passed += batch.len();
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        *self.beginning(stream.id) = Beginning::default();
    }

    fn stream_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
        let unusual = DecodeFlags::FRAGMENT.0 | DecodeFlags::REASSEMBLED.0;
        if packet.decoded.flags.0 & unusual == 0
            && !self.is_wanted(stream, packet)
            && let place = self.first + usize::from(packet.decoded.index)
            && let Some(place) = self.unwanted.get_mut(place)
        {
            *place = true;
            self.any = true;
        }
        // Nobody wants the payload in order.
        Admit::Consumed
    }
}
