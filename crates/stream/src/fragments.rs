//! The defragmentation pass.

use flowgauge_reassembly::defragment::Totals;
use flowgauge_reassembly::{
    DefragmentConfig, DefragmentStatistics, Defragmenter, Fragment, GivenUp, HostPolicies,
    Incomplete, Outcome,
};
use flowgauge_wire::{
    Batch, DatagramOrigin, DecodeFlags, Decoded, DecodedBatch, Decoder, Nanos, TcpFlags,
};

use crate::checksums::Checksums;

/// How often a reassembled datagram may turn out to be a fragment of an inner one.
const DEPTH: usize = 4;

/// Frames that are not delivered, and where they are counted instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Fragments that make no sense.
    pub(crate) malformed: Amount,
    /// Those of datagrams whose memory was needed for others. Their flows count them: their headers
    /// are known.
    pub(crate) memory: Amount,
}

/// Frames, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, frames: u64, bytes: u64) {
        self.frames += frames;
        self.bytes += bytes;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fragments {
    defragmenter: Defragmenter<Decoded>,
    /// The batch's packets while they are sorted.
    unsorted: Vec<Decoded>,
    datagram: Vec<u8>,
    inner: Vec<u8>,
    headers: DecodedBatch,
    /// Fragments of the last pass that were odd, and what was.
    odd: Vec<(Decoded, DefragmentStatistics)>,
}

impl Fragments {
    pub(crate) fn new(config: DefragmentConfig) -> Fragments {
        Fragments {
            defragmenter: Defragmenter::new(config),
            unsorted: Vec::new(),
            datagram: Vec::new(),
            inner: Vec::new(),
            headers: DecodedBatch::new(),
            odd: Vec::new(),
        }
    }

    /// The receiving host's policy decides from now on.
    pub(crate) fn set_policies(&mut self, policies: HostPolicies) {
        self.defragmenter.set_policies(policies);
    }

    /// Fragments of the last pass that were odd, and what was.
    pub(crate) fn odd(&self) -> &[(Decoded, DefragmentStatistics)] {
        &self.odd
    }

    pub(crate) fn defragmenter(&self) -> &Defragmenter<Decoded> {
        &self.defragmenter
    }

    /// Takes the fragments out of `decoded` and puts the datagrams they complete in the place of
    /// the last of each.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        batch: &Batch<'_>,
        decoder: &mut Decoder,
        decoded: &mut DecodedBatch,
        checksums: &mut Checksums,
    ) -> Refused {
        self.odd.clear();
        let seen = decoded.summary.flags;
        if !seen.contains(DecodeFlags::FRAGMENT) && self.defragmenter.is_empty() {
            return Refused::default();
        }
        self.sort(batch, decoder, decoded, checksums)
    }

    /// Gives up everything that is incomplete.
    pub(crate) fn finish(&mut self, decoded: &mut DecodedBatch) {
        self.defragmenter.finish();
        decoded
            .packets
            .extend(self.defragmenter.take_incomplete().map(stand_in));
    }

    /// Gives up what has timed out: its flows count the frames, without payload.
    pub(crate) fn expire(&mut self, now: Nanos, decoded: &mut DecodedBatch) {
        if self.defragmenter.is_empty() {
            return;
        }
        self.defragmenter.expire(now);
        decoded
            .packets
            .extend(self.defragmenter.take_incomplete().map(stand_in));
    }

    #[cold]
    fn sort(
        &mut self,
        batch: &Batch<'_>,
        decoder: &mut Decoder,
        decoded: &mut DecodedBatch,
        checksums: &mut Checksums,
    ) -> Refused {
        // What comes before the first change stays where it is.
        let packets = decoded.packets.iter();
        let unchanged = packets.take_while(|packet| !is_fragment(packet)).count();
        self.unsorted.clear();
        self.unsorted
            .extend_from_slice(decoded.packets.get(unchanged..).unwrap_or_default());
        decoded.packets.truncate(unchanged);
        let mut refused = Refused::default();
        for at in 0..self.unsorted.len() {
            let packet = &self.unsorted[at];
            if !is_fragment(packet) {
                decoded.packets.push(*packet);
                continue;
            }
            let packet = *packet;
            let bytes = batch.bytes(usize::from(packet.index));
            if packet.flags.contains(DecodeFlags::BAD_IP_CHECKSUM) {
                checksums.learn(batch, decoded);
            }
            if checksums.rules_out(bytes, &packet) {
                decoded.packets.push(packet);
                continue;
            }
            match self.insert(decoder, bytes, &packet, packet.wire_len.into()) {
                Outcome::Held => {}
                Outcome::Refused => refused.malformed.add(1, packet.wire_len.into()),
                Outcome::Complete(totals) => self.complete(decoder, decoded, &packet, totals),
            }
            for given_up in self.defragmenter.take_incomplete() {
                if given_up.cause == GivenUp::Memory {
                    let totals = given_up.totals;
                    refused.memory.add(totals.frames.into(), totals.wire_len);
                }
                decoded.packets.push(stand_in(given_up));
            }
        }
        refused
    }

    fn insert(
        &mut self,
        decoder: &mut Decoder,
        bytes: &[u8],
        packet: &Decoded,
        wire_len: u64,
    ) -> Outcome {
        let Some(mut fragment) = Fragment::of(bytes, packet) else {
            return Outcome::Refused;
        };
        fragment.wire_len = wire_len.min(u64::from(u32::MAX)) as u32;
        // If the rest of it never comes it counts to the flow that it would have been of. (Behind others the
        // first fragment was sent to their shard, by the outer addresses.)
        let mut tag = *packet;
        if let Some(inner) = decoder.decode_first_fragment(bytes, packet, &mut self.headers)
            && !self.defragmenter.holds(&fragment)
        {
            (tag.key, tag.direction) = (inner.key, inner.direction);
        }
        let before = self.defragmenter.statistics();
        let outcome = self.defragmenter.insert(&fragment, tag, &mut self.datagram);
        let odd = self.defragmenter.statistics().odd_since(&before);
        self.odd.extend(odd.map(|odd| (*packet, odd)));
        outcome
    }

    /// Decodes the datagram that `last` completed; when it is itself a fragment, takes that in turn.
    fn complete(
        &mut self,
        decoder: &mut Decoder,
        decoded: &mut DecodedBatch,
        last: &Decoded,
        totals: Totals,
    ) {
        let mut last = *last;
        let mut totals = totals;
        for _ in 0..DEPTH {
            let frames = totals.frames.min(u32::from(u16::MAX)) as u16;
            let wire_len = totals.wire_len.min(u64::from(u32::MAX)) as u32;
            let origin = DatagramOrigin::of(&last, wire_len, frames);
            decoder.decode_datagram(&self.datagram, &origin, decoded);
            let Some(packet) = decoded.packets.last_mut() else {
                return;
            };
            packet.ip_len = totals.ip_len.min(u64::from(u32::MAX)) as u32;
            if !packet.flags.contains(DecodeFlags::FRAGMENT) {
                return;
            }
            last = *packet;
            decoded.packets.pop();
            core::mem::swap(&mut self.inner, &mut self.datagram);
            let inner = core::mem::take(&mut self.inner);
            let outcome = self.insert(decoder, &inner, &last, totals.wire_len);
            self.inner = inner;
            match outcome {
                Outcome::Complete(more) => totals = more,
                Outcome::Held => return,
                Outcome::Refused => {
                    decoded.packets.push(last);
                    return;
                }
            }
        }
    }
}

/// Whether the packet waits to be put together.
#[inline]
fn is_fragment(packet: &Decoded) -> bool {
    let both = DecodeFlags::FRAGMENT.0 | DecodeFlags::EXCLUDED.0;
    packet.flags.0 & both == DecodeFlags::FRAGMENT.0
}

/// What stands for a datagram that never completed: its first fragment, or what that says of a tunnel's inner
/// flow, without payload.
fn stand_in(incomplete: Incomplete<Decoded>) -> Decoded {
    let totals = incomplete.totals;
    let mut packet = incomplete.tag;
    packet.time = incomplete.last;
    packet.frames = totals.frames.min(u32::from(u16::MAX)) as u16;
    packet.wire_len = totals.wire_len.min(u64::from(u32::MAX)) as u32;
    packet.ip_len = totals.ip_len.min(u64::from(u32::MAX)) as u32;
    packet.payload_len = 0;
    packet.payload_captured = 0;
    packet.tcp_flags = TcpFlags(0);
    packet.tunnel = 0;
    // No packet of the batch it appears in.
    packet.index = u16::MAX;
    // Its headers were judged when it came.
    let gone =
        DecodeFlags::TRANSPORT.0 | DecodeFlags::REASSEMBLED.0 | DecodeFlags::BAD_IP_CHECKSUM.0;
    packet.flags = DecodeFlags(packet.flags.0 & !gone | DecodeFlags::FRAGMENT.0);
    packet
}
