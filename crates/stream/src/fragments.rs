//! The defragmentation pass.

use flowgauge_reassembly::defragment::Totals;
use flowgauge_reassembly::{DefragmentConfig, Defragmenter, Fragment, Incomplete, Outcome};
use flowgauge_wire::{
    Batch, DatagramOrigin, DecodeFlags, Decoded, DecodedBatch, Decoder, Nanos, TcpFlags,
    fragment_info,
};

use crate::checksums::Checksums;

/// How often a reassembled datagram may turn out to be a fragment of an inner one.
const DEPTH: usize = 4;

#[derive(Debug)]
pub(crate) struct Fragments {
    defragmenter: Defragmenter<Decoded>,
    /// The batch's packets while they are sorted.
    unsorted: Vec<Decoded>,
    datagram: Vec<u8>,
    inner: Vec<u8>,
}

impl Fragments {
    pub(crate) fn new(config: DefragmentConfig) -> Fragments {
        Fragments {
            defragmenter: Defragmenter::new(config),
            unsorted: Vec::new(),
            datagram: Vec::new(),
            inner: Vec::new(),
        }
    }

    pub(crate) fn defragmenter(&self) -> &Defragmenter<Decoded> {
        &self.defragmenter
    }

    /// Takes the fragments out of `decoded` and puts the datagrams they complete in the place of
    /// the last of each. Datagrams that were given up meanwhile come first, without payload, so
    /// that their flows count the frames; `now` is the capture clock. Returns frames and bytes refused.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        batch: &Batch<'_>,
        decoder: &mut Decoder,
        decoded: &mut DecodedBatch,
        checksums: &Checksums,
        now: Nanos,
    ) -> (u64, u64) {
        let seen = decoded
            .packets
            .iter()
            .fold(0, |seen, packet| seen | packet.flags.0);
        if seen & DecodeFlags::FRAGMENT.0 == 0 && self.defragmenter.is_empty() {
            return (0, 0);
        }
        self.sort(batch, decoder, decoded, checksums, now)
    }

    /// Gives up everything that is incomplete.
    pub(crate) fn finish(&mut self, decoded: &mut DecodedBatch) {
        self.defragmenter.finish();
        decoded
            .packets
            .extend(self.defragmenter.take_incomplete().map(stand_in));
    }

    /// Gives up what has timed out while nothing came.
    pub(crate) fn expire(&mut self, now: Nanos, decoded: &mut DecodedBatch) {
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
        checksums: &Checksums,
        now: Nanos,
    ) -> (u64, u64) {
        core::mem::swap(&mut self.unsorted, &mut decoded.packets);
        decoded.packets.clear();
        self.expire(now, decoded);
        let mut refused = (0, 0);
        for at in 0..self.unsorted.len() {
            let packet = self.unsorted[at];
            let excluded = packet.flags.contains(DecodeFlags::EXCLUDED);
            if !packet.flags.contains(DecodeFlags::FRAGMENT) || excluded {
                decoded.packets.push(packet);
                continue;
            }
            let bytes = batch.bytes(usize::from(packet.index));
            if checksums.rules_out(bytes, &packet) {
                decoded.packets.push(packet);
                continue;
            }
            match self.insert(bytes, &packet, packet.wire_len.into()) {
                Outcome::Held => {}
                Outcome::Refused => {
                    refused.0 += 1;
                    refused.1 += u64::from(packet.wire_len);
                }
                Outcome::Complete(totals) => self.complete(decoder, decoded, &packet, totals),
            }
            decoded
                .packets
                .extend(self.defragmenter.take_incomplete().map(stand_in));
        }
        refused
    }

    fn insert(&mut self, bytes: &[u8], packet: &Decoded, wire_len: u64) -> Outcome {
        let Some(info) = fragment_info(bytes, usize::from(packet.ip_offset)) else {
            return Outcome::Refused;
        };
        let header_start = usize::from(packet.ip_offset);
        let header = bytes.get(header_start..header_start + usize::from(info.header_len));
        let data_start = (info.data_offset as usize).min(bytes.len());
        let data_end = (data_start + info.data_len as usize).min(bytes.len());
        let fragment = Fragment {
            version: info.version,
            source: packet.source().0,
            destination: packet.destination().0,
            protocol: info.protocol,
            id: info.id,
            context: packet.key.context,
            offset: info.offset,
            more: info.more,
            header: header.unwrap_or(&[]),
            next_header_at: info.next_header_at,
            data: &bytes[data_start..data_end],
            data_len: info.data_len,
            time: packet.time,
            wire_len: wire_len.min(u64::from(u32::MAX)) as u32,
            ip_len: packet.ip_len,
            frames: packet.frames,
        };
        self.defragmenter
            .insert(&fragment, *packet, &mut self.datagram)
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
            let outcome = self.insert(&inner, &last, totals.wire_len);
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

/// What stands for a datagram that never completed: its first fragment, without payload.
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
    packet.flags = DecodeFlags(
        packet.flags.0 & !(DecodeFlags::TRANSPORT.0 | DecodeFlags::REASSEMBLED.0)
            | DecodeFlags::FRAGMENT.0,
    );
    packet
}
