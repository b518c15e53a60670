//! A source of the beginnings of streams, as a time machine records them.
//!
//! Kornexl, Paxson, Dreger, Feldmann, Sommer: Building a Time Machine for Efficient Recording and Retrieval of
//! High-Volume Network Traffic, IMC 2005. Most bytes are in few streams, whose beginnings are the part worth keeping.

use flowgauge_capture::{Error, Interface, PacketSource, SharedMemory};
use flowgauge_flow::arena::Arena;
use flowgauge_record::words::count;
use flowgauge_stream::engine::{Cutoff, Cutoffs, FirstPacket};
use flowgauge_stream::{
    Admit, ChecksumPolicy, Handler, Needs, Shard, ShardConfig, Stream, StreamPacket,
};
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeFlags, DecodedBatch, Ledger, PacketDescriptor, Place, TcpFlags,
};

/// Passes packets of a source that carry the first bytes of their stream; others are counted as [`Place::Cutoff`].
///
/// A stream's cutoff is that of the first class that matches the first packet of its connection, else that of its
/// direction, else the default.
///
/// Streams are directions of flows of any IP protocol. A packet passes if its payload starts before the cutoff, or
/// repeats data that did. Packets with SYN, FIN or RST always pass; those without payload pass until a packet of
/// either direction was cut off, which includes the handshake. Fragments and non-IP packets always pass, as their
/// position in a stream is unknown.
pub struct Beginnings<S> {
    source: S,
    shard: Shard,
    judge: Judge,
    kept: Vec<PacketDescriptor>,
    refused: u64,
    refused_bytes: u64,
}

/// Bytes of memory for the two streams of a connection, beside those of its flow and of
/// [`ShardConfig::BYTES_PER_CONNECTION`].
const BYTES_PER_CONNECTION: u64 = 2 * size_of::<Beginning>() as u64;

impl Beginnings<()> {
    /// Its memory needs, for `config`.
    pub const NEEDS: Needs = Needs {
        // Of streams only the places are followed: nothing waits.
        streams: false,
        per_flow: ShardConfig::BYTES_PER_CONNECTION + BYTES_PER_CONNECTION,
        results: false,
    };
}

impl<S: PacketSource> Beginnings<S> {
    /// Wraps `source`. `config` bounds the number of flows and sets their timeouts; checksums are not verified. If a
    /// flow is evicted, its next packet starts a new one.
    pub fn new(source: S, cutoffs: Cutoffs, config: ShardConfig) -> Beginnings<S> {
        let directions = 2 * config.flow.max_flows as usize;
        Beginnings {
            source,
            shard: Shard::new(ShardConfig {
                checksums: ChecksumPolicy::Ignore,
                ..config
            }),
            judge: Judge {
                cutoffs,
                streams: Arena::new(directions),
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

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.source.notes();
        let evicted = self.shard.statistics().flow.evicted;
        if evicted > 0 {
            notes.push(format!(
                "{} evicted to make room, so later data of long ones was taken for beginnings too; hint: raise \
                --max-flows or --memory",
                count(evicted, "flow").were()
            ));
        }
        notes
    }

    fn share(&mut self) -> Option<SharedMemory> {
        self.source.share()
    }

    fn is_at_hand(&self) -> bool {
        self.source.is_at_hand()
    }

    fn is_exhausted(&self) -> bool {
        self.source.is_exhausted()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        ledger.refuse(Place::Cutoff, self.refused, self.refused_bytes);
        ledger
    }
}

/// Says which packets of a batch are not wanted.
struct Judge {
    cutoffs: Cutoffs,
    /// By [`Stream::id`].
    streams: Arena<Beginning>,
    /// By the packet's place in its batch.
    unwanted: [bool; BATCH_SIZE],
    any: bool,
    /// The place in the source's batch of the first packet of the part that is looked at.
    first: usize,
    /// Packets of the source's batch in parts so far.
    passed: usize,
}

/// What was seen of a stream.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// What comes from here on is not wanted.
    cutoff: Cutoff,
    /// Bytes of payload, for as long as their places are not known.
    bytes: u64,
    /// Some of its bytes were not wanted.
    cut: bool,
}

impl Judge {
    fn beginning(&mut self, id: u32) -> &mut Beginning {
        while id >= self.streams.len() {
            self.streams.push(Beginning {
                cutoff: self.cutoffs.default,
                bytes: 0,
                cut: false,
            });
        }
        self.streams.at(id)
    }

    /// The first packet of a connection says in which classes its streams are.
    #[cold]
    fn classify(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) {
        let packet = FirstPacket::new(packet, true);
        for (id, is_own) in [(stream.id, true), (stream.opposite, false)] {
            let from_initiator = stream.from_initiator == is_own;
            self.beginning(id).cutoff = self.cutoffs.of(&packet.of(is_own), from_initiator);
        }
    }

    fn is_wanted(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> bool {
        const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
        let decoded = packet.decoded;
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
        let wanted = place < beginning.cutoff.0 || decoded.tcp_flags.intersects(CONTROL);
        beginning.cut |= !wanted;
        wanted
    }
}

impl Handler for Judge {
    const STREAMS: bool = true;
    const PACKETS: bool = true;
    const FLOWS: bool = false;

    fn batch(&mut self, batch: &Batch<'_>, _: &DecodedBatch) {
        self.first = self.passed;
        self.passed += batch.len();
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        *self.beginning(stream.id) = Beginning {
            cutoff: self.cutoffs.of_direction(stream.from_initiator),
            bytes: 0,
            cut: false,
        };
    }

    fn stream_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
        if packet.begins && !self.cutoffs.classes.is_empty() {
            self.classify(stream, packet);
        }
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
