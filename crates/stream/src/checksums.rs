//! The checksum pass: detects damaged packets, and packets whose checksums were merely not computed.

use std::collections::HashMap;

use flowgauge_flow::{FlowTracker, PacketFlow, PacketFlowFlags};
use flowgauge_sys::checksum::{Kernel, Work, with_fastest};
use flowgauge_wire::{
    Address, Batch, ChecksumVerdict, DecodeFlags, Decoded, DecodedBatch, FoldedState, PacketFlags,
    TcpFlags, verify_transport, verify_transport_with,
};

use crate::config::ChecksumPolicy;
use crate::fragments::Amount;
use crate::known_pairs::KnownPairs;
use crate::statistics::ChecksumStatistics;

/// What a source says of checksums.
const TOLD: u16 = PacketFlags::CHECKSUM_NOT_READY.0 | PacketFlags::CHECKSUM_VALID.0;
/// The most senders of each kind listed.
const LISTED: usize = 4096;

/// A sender of packets with wrong checksums that were accepted: most likely a host that leaves checksums to its network
/// card, or one whose address was rewritten in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadingSender {
    /// Its address.
    pub address: Address,
    /// 4 or 6.
    pub version: u8,
    /// IP protocol whose checksums were wrong; `None` for IPv4 header checksums.
    pub protocol: Option<u8>,
    /// Packets accepted with a wrong or uncomputed checksum.
    pub packets: u64,
}

/// A sender of packets that were left out because of wrong checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedSender {
    /// Its address, according to the packets.
    pub address: Address,
    /// 4 or 6.
    pub version: u8,
    /// Packets left out.
    pub packets: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Checksums {
    policy: ChecksumPolicy,
    good: KnownPairs,
    /// So many packets of the batch at hand were [judged early](Checksums::learn).
    judged: usize,
    /// Of so many packets of the batch at hand the right checksums are noted.
    noted: usize,
    /// Wrong checksums of packets that are left out of their flows for them, or would be.
    of_packets: Wrong,
    /// Wrong checksums of payload that was to be read.
    of_payload: BadPayload,
}

/// Packets with a wrong checksum whose payload was needed, of an engine or of one of its subscribers.
#[derive(Clone, Debug, Default)]
pub struct BadPayload {
    wrong: Wrong,
    /// Those that were refused.
    pub(crate) refused: Amount,
}

impl BadPayload {
    /// Adds a packet, whose payload was accepted in spite of it, or refused.
    pub fn note(&mut self, packet: &Decoded, is_taken: bool) {
        self.wrong.transport(packet, is_taken);
        if !is_taken {
            let (frames, bytes) = (u64::from(packet.frames), u64::from(packet.wire_len));
            self.refused.add(frames, bytes);
        }
    }
}

/// Wrong checksums that were seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wrong {
    /// By version, address and, where it is not about IP headers, protocol.
    offloading: HashMap<(u8, Address, Option<u8>), OffloadingSender, FoldedState>,
    damaged: HashMap<(u8, Address), u64, FoldedState>,
    pub(crate) statistics: ChecksumStatistics,
}

impl Checksums {
    /// What is remembered of senders is bounded by the number of flows at once.
    pub(crate) fn new(policy: ChecksumPolicy, max_flows: u32) -> Checksums {
        Checksums {
            policy,
            good: KnownPairs::new(max_flows),
            judged: 0,
            noted: 0,
            of_packets: Wrong::default(),
            of_payload: BadPayload::default(),
        }
    }

    /// Pairs of sender and receiver that were forgotten to make room for others.
    pub(crate) fn pairs_forgotten(&self) -> u64 {
        self.good.forgotten
    }

    /// Whether the IPv4 header checksum of a packet rules it out. With `auto` it does only for a
    /// sender that is known to compute checksums: captures with rewritten addresses, and headers
    /// left to the network card (a field of zero), are wrong throughout.
    #[inline]
    pub(crate) fn rules_out(&mut self, bytes: &[u8], packet: &Decoded) -> bool {
        packet.flags.contains(DecodeFlags::BAD_IP_CHECKSUM)
            && match self.policy {
                ChecksumPolicy::Verify => true,
                ChecksumPolicy::Ignore => false,
                ChecksumPolicy::Auto => {
                    let at = usize::from(packet.ip_offset) + 10;
                    bytes.get(at..at + 2) != Some(&[0, 0]) && self.good.knows(packet)
                }
            }
    }

    /// Judges the packets of `decoded` before the [pass](Checksums::pass) does, and notes the right
    /// checksums: what the next packet of the batch is judged by must not depend on where batches begin.
    #[cold]
    pub(crate) fn learn(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch) {
        if self.policy != ChecksumPolicy::Auto {
            return;
        }
        let count = decoded.packets.len();
        self.judge(batch, decoded);
        self.note_some(batch, decoded, count);
        self.judged = count;
    }

    /// Marks the packets of `decoded` that are damaged, those that are not, and those that are to be
    /// [verified](Checksums::takes_payload) before their payload is read.
    pub(crate) fn pass(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch) {
        if self.policy == ChecksumPolicy::Ignore {
            return;
        }
        self.judge(batch, decoded);
        self.judged = 0;
    }

    /// The [pass](Checksums::pass) over what was not judged yet.
    fn judge(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch) {
        self.noted = self.judged;
        with_fastest(PassWork {
            checksums: self,
            batch,
            decoded,
        });
    }

    #[inline(always)]
    fn pass_with(&mut self, kernel: impl Kernel, batch: &Batch<'_>, decoded: &mut DecodedBatch) {
        let defers = self.policy == ChecksumPolicy::Auto;
        for index in self.judged..decoded.packets.len() {
            let Some(packet) = decoded.packets.get_mut(index) else {
                return;
            };
            let unusual = DecodeFlags::BAD_IP_CHECKSUM.0
                | DecodeFlags::EXCLUDED.0
                | DecodeFlags::REASSEMBLED.0;
            if packet.flags.0 & (unusual | DecodeFlags::TRANSPORT.0) != DecodeFlags::TRANSPORT.0 {
                if packet.flags.0 & unusual != 0 {
                    self.note_some(batch, decoded, index);
                    self.unusual(batch, decoded, index);
                }
                continue;
            }
            let Some(descriptor) = batch.packets.get(usize::from(packet.index)) else {
                continue;
            };
            if descriptor.flags.0 & TOLD != 0 {
                if descriptor.flags.contains(PacketFlags::CHECKSUM_NOT_READY) {
                    unknown(decoded, index);
                }
                continue;
            }
            if defers && only_carries(packet) {
                packet.flags.insert(DecodeFlags::UNVERIFIED);
                continue;
            }
            match verify_transport_with(kernel, batch.bytes_of(descriptor), packet) {
                ChecksumVerdict::Good => packet.flags.insert(DecodeFlags::RIGHT_CHECKSUM),
                ChecksumVerdict::Bad => {
                    self.note_some(batch, decoded, index);
                    self.bad_transport(batch, decoded, index);
                }
                ChecksumVerdict::Unknown => unknown(decoded, index),
            }
        }
    }

    /// Notes the right checksums up to that of packet `end`, which is judged by them, and judges what is unverified so far:
    /// what comes later says nothing of it. What later ones say is noted when it is known whether they are the
    /// [first](Checksums::note_good) of their flows to say it.
    #[cold]
    #[inline(never)]
    fn note_some(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch, end: usize) {
        for index in self.noted..end {
            let Some(&packet) = decoded.packets.get(index) else {
                break;
            };
            let mut flag = DecodeFlags(0);
            if packet.flags.contains(DecodeFlags::UNVERIFIED) {
                flag = match verify_transport(decoded.bytes(batch, &packet), &packet) {
                    ChecksumVerdict::Good => DecodeFlags::RIGHT_CHECKSUM,
                    ChecksumVerdict::Bad if !self.is_offloaded(batch, decoded, &packet) => {
                        DecodeFlags::BAD_PAYLOAD
                    }
                    _ => DecodeFlags::CHECKSUM_UNKNOWN,
                };
                decoded.packets[index].flags.insert(flag);
            }
            if DecodeFlags(packet.flags.0 | flag.0).contains(DecodeFlags::RIGHT_CHECKSUM) {
                self.note_good(&packet);
            }
        }
        self.noted = self.noted.max(end);
    }

    /// Whether a packet's wrong checksum is its sender's way.
    fn is_offloaded(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
    ) -> bool {
        !self.good.knows(packet) || is_partial(decoded.bytes(batch, packet), packet)
    }

    /// A packet with a wrong IP header checksum, or one that was reassembled.
    #[cold]
    fn unusual(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch, index: usize) {
        let packet = decoded.packets[index];
        if !packet.flags.contains(DecodeFlags::REASSEMBLED)
            || packet.flags.0 & (DecodeFlags::BAD_IP_CHECKSUM.0 | DecodeFlags::EXCLUDED.0) != 0
        {
            self.bad_header(batch, decoded, index);
        } else if packet.flags.contains(DecodeFlags::TRANSPORT) {
            if self.policy == ChecksumPolicy::Auto && only_carries(&packet) {
                (decoded.packets[index].flags).insert(DecodeFlags::UNVERIFIED);
                return;
            }
            match verify_transport(decoded.bytes(batch, &packet), &packet) {
                ChecksumVerdict::Good => {
                    decoded.packets[index]
                        .flags
                        .insert(DecodeFlags::RIGHT_CHECKSUM);
                }
                ChecksumVerdict::Bad => self.bad_transport(batch, decoded, index),
                ChecksumVerdict::Unknown => unknown(decoded, index),
            }
        }
    }

    /// The wrong checksums that who reads payload sees, of which `of_payload` were bad.
    pub(crate) fn wrong(&self, of_payload: &BadPayload) -> Wrong {
        let mut wrong = self.of_packets.clone();
        wrong.merge(&of_payload.wrong);
        wrong
    }

    /// Bad payload that was to be read.
    pub(crate) fn of_payload(&self) -> &BadPayload {
        &self.of_payload
    }

    /// Counters.
    pub(crate) fn statistics(&self) -> ChecksumStatistics {
        let mut statistics = self.of_packets.statistics;
        statistics.merge(&self.of_payload.wrong.statistics);
        statistics
    }

    /// How many packets were left out until now.
    pub(crate) fn left_out(&self) -> u64 {
        self.of_packets.statistics.left_out
    }

    #[cold]
    fn bad_header(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch, index: usize) {
        let packet = decoded.packets[index];
        if packet.flags.contains(DecodeFlags::EXCLUDED) {
            return;
        }
        let flag = match self.takes_header(decoded.bytes(batch, &packet), &packet) {
            true => DecodeFlags::CHECKSUM_UNKNOWN,
            false => DecodeFlags::EXCLUDED,
        };
        decoded.packets[index].flags.insert(flag);
    }

    /// Whether a packet with a wrong IP header checksum counts all the same.
    fn takes_header(&mut self, bytes: &[u8], packet: &Decoded) -> bool {
        let is_taken = !self.rules_out(bytes, packet);
        if is_taken {
            self.of_packets.list(packet, true);
        } else {
            self.of_packets.statistics.bad_ip += 1;
            self.of_packets.leave_out(packet);
        }
        is_taken
    }

    /// Whether a packet with a wrong transport checksum counts all the same.
    fn takes_transport(&mut self, bytes: &[u8], packet: &Decoded) -> bool {
        let is_taken = self.policy == ChecksumPolicy::Auto
            && (!self.good.knows(packet) || is_partial(bytes, packet));
        self.of_packets.transport(packet, is_taken);
        is_taken
    }

    /// Whether the payload of an [unverified](DecodeFlags::UNVERIFIED) packet has no wrong checksum.
    #[inline]
    pub(crate) fn is_good(
        &self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
    ) -> bool {
        verify_transport(decoded.bytes(batch, packet), packet) != ChecksumVerdict::Bad
    }

    /// Whether payload may be read that has a wrong checksum.
    #[cold]
    pub(crate) fn takes_bad_payload(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
    ) -> bool {
        let is_taken = if packet.flags.contains(DecodeFlags::BAD_PAYLOAD) {
            false
        } else if packet.flags.contains(DecodeFlags::CHECKSUM_UNKNOWN) {
            true
        } else {
            let before = (decoded.packets.iter()).position(|other| core::ptr::eq(other, packet));
            let before = before.unwrap_or(decoded.packets.len());
            for packet in decoded.packets.get(self.noted..before).unwrap_or(&[]) {
                if packet.flags.contains(DecodeFlags::RIGHT_CHECKSUM)
                    || is_right(batch, decoded, packet)
                {
                    self.note_good(packet);
                }
            }
            self.noted = self.noted.max(before);
            self.is_offloaded(batch, decoded, packet)
        };
        self.of_payload.note(packet, is_taken);
        is_taken
    }

    /// Whether a packet counts, for callers that look at packets one by one and may not mark them.
    pub(crate) fn takes(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
    ) -> bool {
        if self.policy == ChecksumPolicy::Ignore || packet.flags.contains(DecodeFlags::EXCLUDED) {
            return !packet.flags.contains(DecodeFlags::EXCLUDED);
        }
        let bytes = decoded.bytes(batch, packet);
        if packet.flags.contains(DecodeFlags::BAD_IP_CHECKSUM) {
            return self.takes_header(bytes, packet);
        }
        let is_told = !packet.flags.contains(DecodeFlags::REASSEMBLED)
            && (batch.packets.get(usize::from(packet.index)))
                .is_none_or(|descriptor| descriptor.flags.0 & TOLD != 0);
        if is_told || !packet.flags.contains(DecodeFlags::TRANSPORT) {
            return true;
        }
        match verify_transport(bytes, packet) {
            ChecksumVerdict::Good => {
                self.note_good(packet);
                true
            }
            ChecksumVerdict::Bad => self.takes_transport(bytes, packet),
            ChecksumVerdict::Unknown => true,
        }
    }

    /// The packet's checksum is right. After the [pass](Checksums::pass) only of the first such packet
    /// of a flow's direction: it says what the others would.
    #[inline]
    pub(crate) fn note_good(&mut self, packet: &Decoded) {
        if self.policy == ChecksumPolicy::Auto {
            let print = self.good.expect(packet);
            self.good.note(print);
        }
    }

    /// The flows of a batch's packets are known. Of those whose sender has not shown a right checksum in its flow yet,
    /// payload is verified, too.
    pub(crate) fn follow(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        flows: &[PacketFlow],
        tracker: &mut FlowTracker,
    ) {
        const EVEN: u32 = 0x5555_5555;
        if self.policy != ChecksumPolicy::Auto {
            return;
        }
        let mut prints = [0; 16];
        for (packets, flows) in decoded.packets.chunks(16).zip(flows.chunks(16)) {
            // Of a constant number of flows the loop is a straight line.
            let told = match flows.first_chunk::<16>() {
                Some(flows) => told(flows),
                None => told(flows),
            };
            if told == 0 {
                continue;
            }
            let (mut firsts, mut unverified) = (told & EVEN, told >> 1 & EVEN);
            while unverified != 0 {
                let at = unverified.trailing_zeros();
                unverified &= unverified - 1;
                let place = at as usize / 2;
                let at_hand = packets.get(place).zip(flows.get(place));
                if let Some((packet, flow)) = at_hand
                    && is_right(batch, decoded, packet)
                {
                    firsts |= u32::from(tracker.note_right(flow.id, packet.direction)) << at;
                }
            }
            let count = firsts.count_ones() as usize;
            for print in prints.iter_mut().take(count) {
                if let Some(packet) = packets.get(firsts.trailing_zeros() as usize / 2) {
                    *print = self.good.expect(packet);
                }
                firsts &= firsts.wrapping_sub(1);
            }
            for &print in prints.iter().take(count) {
                self.good.note(print);
            }
        }
    }

    #[cold]
    fn bad_transport(&mut self, batch: &Batch<'_>, decoded: &mut DecodedBatch, index: usize) {
        let packet = decoded.packets[index];
        let is_taken = self.takes_transport(decoded.bytes(batch, &packet), &packet);
        let flags = &mut decoded.packets[index].flags;
        if is_taken {
            flags.insert(DecodeFlags::CHECKSUM_UNKNOWN);
        } else {
            flags.insert(DecodeFlags::BAD_CHECKSUM);
            flags.insert(DecodeFlags::EXCLUDED);
        }
    }
}

impl Wrong {
    /// Adds what was seen of other packets.
    fn merge(&mut self, other: &Wrong) {
        self.statistics.merge(&other.statistics);
        for (&key, sender) in &other.offloading {
            let mine = self.offloading.entry(key);
            mine.and_modify(|mine| mine.packets += sender.packets)
                .or_insert(*sender);
        }
        for (&key, packets) in &other.damaged {
            *self.damaged.entry(key).or_default() += packets;
        }
    }

    /// The sender of the most packets that were left out; of very many senders, of those that came
    /// first.
    pub(crate) fn most_damaged(&self) -> Option<DamagedSender> {
        let senders = self.damaged.iter();
        let most = senders.max_by_key(|(sender, packets)| (**packets, std::cmp::Reverse(**sender)));
        most.map(|(&(version, address), &packets)| DamagedSender {
            address,
            version,
            packets,
        })
    }

    /// The senders whose wrong checksums were accepted, most packets first.
    pub(crate) fn offloading(&self) -> Vec<OffloadingSender> {
        let mut senders: Vec<_> = self.offloading.values().copied().collect();
        senders.sort_by(|a, b| {
            b.packets
                .cmp(&a.packets)
                .then(a.address.cmp(&b.address))
                .then(a.protocol.cmp(&b.protocol))
        });
        senders
    }

    /// A packet with a wrong transport checksum is taken, or left out.
    fn transport(&mut self, packet: &Decoded, is_taken: bool) {
        if is_taken {
            self.list(packet, false);
        } else {
            self.statistics.bad_transport += 1;
            self.leave_out(packet);
        }
    }

    /// A packet is taken in spite of its checksum, of its `header` or of its transport.
    fn list(&mut self, packet: &Decoded, header: bool) {
        self.statistics.offloaded += 1;
        let (address, version) = (packet.source().0, packet.key.version);
        let protocol = (!header).then_some(packet.key.protocol);
        let key = (version, address, protocol);
        let full = self.offloading.len() >= LISTED;
        if let Some(sender) = self.offloading.get_mut(&key) {
            sender.packets += 1;
        } else if !full {
            self.offloading.insert(
                key,
                OffloadingSender {
                    address,
                    version,
                    protocol,
                    packets: 1,
                },
            );
        }
    }

    fn leave_out(&mut self, packet: &Decoded) {
        let frames = u64::from(packet.frames.max(1));
        self.statistics.left_out += frames;
        let sender = (packet.key.version, packet.source().0);
        let full = self.damaged.len() >= LISTED;
        if let Some(packets) = self.damaged.get_mut(&sender) {
            *packets += frames;
        } else if !full {
            self.damaged.insert(sender, frames);
        }
    }
}

/// [`Checksums::pass`] of a batch.
struct PassWork<'a> {
    checksums: &'a mut Checksums,
    batch: &'a Batch<'a>,
    decoded: &'a mut DecodedBatch,
}

impl Work for PassWork<'_> {
    #[inline(always)]
    fn with(self, kernel: impl Kernel) {
        let (batch, decoded) = (self.batch, self.decoded);
        self.checksums.pass_with(kernel, batch, decoded);
    }
}

/// Whether the packet does nothing but carry payload.
#[inline]
fn only_carries(packet: &Decoded) -> bool {
    const CONTROL: TcpFlags = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);
    packet.payload_len > 0
        && matches!(packet.key.protocol, 6 | 17)
        && !packet.tcp_flags.intersects(CONTROL)
}

/// [`PacketFlowFlags::FIRST_RIGHT`] and [`PacketFlowFlags::FIRST_UNVERIFIED`] of up to 16 flows, the first one's lowest.
#[inline(always)]
fn told(flows: &[PacketFlow]) -> u32 {
    const SHIFT: u32 = PacketFlowFlags::FIRST_RIGHT.0.trailing_zeros();
    let flows = flows.iter().rev();
    flows.fold(0, |told, flow| {
        told << 2 | u32::from(flow.flags.0 >> SHIFT & 3)
    })
}

/// Whether a packet that is not verified yet has a right checksum.
fn is_right(batch: &Batch<'_>, decoded: &DecodedBatch, packet: &Decoded) -> bool {
    packet.flags.contains(DecodeFlags::UNVERIFIED)
        && verify_transport(decoded.bytes(batch, packet), packet) == ChecksumVerdict::Good
}

fn unknown(decoded: &mut DecodedBatch, index: usize) {
    if let Some(packet) = decoded.packets.get_mut(index) {
        packet.flags.insert(DecodeFlags::CHECKSUM_UNKNOWN);
    }
}

/// Whether the transport checksum field of `packet`, whose frame is `bytes`, has the value that Linux leaves for the
/// network card: the sum of the pseudo header, not complemented.
pub fn is_partial(bytes: &[u8], packet: &Decoded) -> bool {
    let field = match packet.key.protocol {
        6 => 16,
        17 => 6,
        58 => 2,
        _ => return false,
    };
    let start = usize::from(packet.transport_offset);
    let Some(&[high, low]) = bytes.get(start + field..start + field + 2) else {
        return false;
    };
    let skipped = if packet.key.version == 4 { 12 } else { 0 };
    let words = |address: &Address| -> u32 {
        address.0[skipped..]
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum()
    };
    let length = packet.payload_offset + packet.payload_len - u32::from(packet.transport_offset);
    let mut sum = words(&packet.key.low)
        + words(&packet.key.high)
        + u32::from(packet.key.protocol)
        + (length & 0xffff)
        + (length >> 16);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == u32::from(u16::from_be_bytes([high, low]))
}
