//! Decoding: from captured bytes to [`Decoded`], once per packet, in batches.
//!
//! Two paths have the same result. Frames with an unfragmented IPv4 (no options) or IPv6 (no extension headers)
//! datagram with TCP or UDP after a common link header take straight-line code in `fast`; all others go through a
//! `Walk`: a loop over layers, each a function in the file of its family, which ends at the innermost IP datagram's
//! transport.
//!
//! Lengths are those of the headers. The *end* of a layer is its end on the wire according to its headers; how much of
//! it was captured is stored separately. A packet cut by the snap length thus counts with its real size
//! ([`DecodeFlags::CUT`]), and padding is never payload.
//!
//! # Tunnels
//! With [`DecodeOptions::decapsulate`], a tunnel is removed and the inner datagram determines the flow. A tunnel whose
//! content is not IP, is cut or is malformed is not removed: the packet then belongs to the outer flow. UDP tunnels are
//! recognised by port *and* by a plausible header.

mod ethernet;
mod fast;
mod fragment;
mod frame_relay;
mod ipv4;
mod ipv6;
mod link;
mod ppp;
mod shim;
#[cfg(test)]
mod tests;
mod transport;
mod tunnel;
mod udp_tunnel;
mod walk;
mod wireless;

use fast::Frame;
use flowgauge_sys::prefetch::prefetch_address_for_later;
pub use fragment::{CARRIERS, FragmentInfo, fragment_info};
#[doc(hidden)]
pub use transport::icmp_counterpart;

use crate::decoded::{DecodeFlags, Decoded, DecodedBatch, Summary};
use crate::key::HashSeed;
use crate::packet::{Batch, PacketDescriptor, PacketFlags};
use crate::time::Nanos;
use walk::{Next, Walk};

/// What the decoder decapsulates, and what distinguishes flows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Whether tunnels are removed.
    pub decapsulate: bool,
    /// Maximum number of tunnels to remove; packets with more are too deep.
    pub tunnel_depth: u8,
    /// UDP ports of VXLAN and VXLAN-GPE.
    pub vxlan_ports: Vec<u16>,
    /// UDP ports of Geneve.
    pub geneve_ports: Vec<u16>,
    /// UDP ports of GTP-U.
    pub gtpu_ports: Vec<u16>,
    /// UDP ports of Teredo servers and relays.
    pub teredo_ports: Vec<u16>,
    /// UDP ports of AYIYA.
    pub ayiya_ports: Vec<u16>,
    /// Whether equal five-tuples in different VLANs belong to different flows.
    pub separate_vlans: bool,
    /// Whether equal five-tuples in different tunnels (outer addresses, kind, id) belong to different flows.
    pub separate_tunnels: bool,
}

impl DecodeOptions {
    /// The ports of tunnels over UDP.
    fn tunnel_ports(&self) -> [&Vec<u16>; 5] {
        [
            &self.vxlan_ports,
            &self.geneve_ports,
            &self.gtpu_ports,
            &self.teredo_ports,
            &self.ayiya_ports,
        ]
    }

    /// Whether datagrams between these ports can contain a tunnel that is removed.
    pub fn is_tunnel(&self, low: u16, high: u16) -> bool {
        let has = |ports: &Vec<u16>| ports.contains(&low) || ports.contains(&high);
        self.decapsulate && self.tunnel_ports().into_iter().any(has)
    }
}

impl Default for DecodeOptions {
    fn default() -> DecodeOptions {
        DecodeOptions {
            decapsulate: true,
            tunnel_depth: 8,
            vxlan_ports: vec![4789, 8472, 4790],
            geneve_ports: vec![6081],
            gtpu_ports: vec![2152],
            teredo_ports: vec![3544],
            ayiya_ports: vec![5072],
            separate_vlans: false,
            separate_tunnels: false,
        }
    }
}

/// Cache lines of the next batch that are asked for per packet of this one.
const LINES_AHEAD: usize = 2;

/// Decodes batches. Its only state is configuration: packets do not affect each other.
#[derive(Clone, Debug)]
pub struct Decoder {
    options: DecodeOptions,
    ports: PortFilter,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new(DecodeOptions::default())
    }
}

impl Decoder {
    /// A decoder with these options.
    pub fn new(options: DecodeOptions) -> Decoder {
        let mut ports = PortFilter::default();
        if options.decapsulate {
            let all = options.tunnel_ports().into_iter().flatten();
            all.for_each(|&port| ports.insert(port));
        }
        Decoder { options, ports }
    }

    /// Its options.
    pub fn options(&self) -> &DecodeOptions {
        &self.options
    }

    /// Decodes every packet of `batch`: clears `out`, then fills [`DecodedBatch::packets`] with
    /// one [`Decoded`] per packet, in order. Hashes are left 0, see [`hash_batch`].
    pub fn decode_batch(&mut self, batch: &Batch<'_>, out: &mut DecodedBatch) {
        out.tunnels.clear();
        out.memory.clear();
        out.datagrams.clear();
        // Slots left from the last batch are overwritten whole, so they are not zeroed first.
        out.packets.resize(batch.packets.len(), Decoded::default());
        let mut summary = Summary::default();
        let (memory, span) = (batch.memory.as_ptr(), batch.span());
        let slots = out.packets.iter_mut();
        for (index, (descriptor, slot)) in batch.packets.iter().zip(slots).enumerate() {
            let start = descriptor.offset as usize;
            // The next batch of a mapped file comes from main memory. What it takes to wait for that
            // is spread over this pass, which waits for nothing else.
            for line in 0..LINES_AHEAD {
                prefetch_address_for_later(memory.wrapping_add(start + span + 64 * line));
            }
            let bytes = batch
                .memory
                .get(start..start + descriptor.captured_len as usize)
                .unwrap_or(&[]);
            let index = index as u16;
            let frame = Frame {
                descriptor,
                bytes,
                index,
            };
            if !fast::frame(self, frame, slot) {
                self.decode_slow(descriptor, bytes, index, slot, &mut out.tunnels);
                summary.unusual = true;
            }
            summary.flags.insert(slot.flags);
            summary.wire_bytes += u64::from(slot.wire_len);
        }
        out.summary = summary;
    }

    /// Decodes a datagram reassembled from fragments and appends the result to `out`: the bytes to
    /// [`DecodedBatch::memory`], a [`Decoded`] with [`DecodeFlags::REASSEMBLED`] to [`DecodedBatch::packets`].
    /// `datagram` starts with the IP header, whose length fields must be those of the whole datagram, without any sign
    /// of a fragment. The result can itself be a fragment, of an inner datagram.
    pub fn decode_datagram(
        &mut self,
        datagram: &[u8],
        origin: &DatagramOrigin,
        out: &mut DecodedBatch,
    ) {
        let start = out.memory.len();
        out.memory.extend_from_slice(datagram);
        out.datagrams
            .push((origin.index, start as u32, datagram.len() as u32));
        let mut walk = Walk::new(
            datagram,
            datagram.len(),
            &self.options,
            &self.ports,
            &mut out.tunnels,
        );
        walk.packet.time = origin.time;
        walk.packet.wire_len = origin.wire_len;
        walk.packet.index = origin.index;
        walk.packet.frames = origin.frames;
        walk.packet.vlan = origin.vlan;
        walk.packet.vlan_count = origin.vlan_count;
        walk.packet.tunnel = origin.tunnel;
        walk.packet.flags.insert(DecodeFlags::REASSEMBLED);
        walk.run(Next::Ip);
        let decoded = walk.finish();
        out.packets.push(decoded);
    }

    /// Decodes the content of a datagram's first fragment if it is a tunnel's, as if `bytes` were the captured part of
    /// the longest possible datagram; `scratch` is only used for that. `None` for other fragments, and without IP
    /// inside.
    ///
    /// Flows, and the distribution of packets by flow, thus agree about datagrams that never become complete.
    pub fn decode_first_fragment(
        &mut self,
        bytes: &[u8],
        fragment: &Decoded,
        scratch: &mut DecodedBatch,
    ) -> Option<Decoded> {
        const LONGEST: usize = u16::MAX as usize;
        // Where the inner addresses are looked for.
        const LOOKED_AT: usize = 512;
        const UDP: u8 = 17;
        let start = usize::from(fragment.ip_offset);
        let info = fragment_info(bytes, start)?;
        let ports = [fragment.key.low_port, fragment.key.high_port];
        if info.offset != 0
            || !CARRIERS.contains(&info.protocol)
            || info.protocol == UDP && !ports.iter().any(|&port| self.ports.may_contain(port))
        {
            return None;
        }
        let captured = bytes.get(start..)?;
        let captured = captured.get(..LOOKED_AT).unwrap_or(captured);
        scratch.clear();
        let (datagram, tunnels) = (&mut scratch.memory, &mut scratch.tunnels);
        datagram.extend_from_slice(captured);
        if info.version == 4 {
            let head = datagram.first_chunk_mut::<20>()?;
            (head[2], head[3]) = (0xff, 0xff);
            (head[6], head[7]) = (0, 0);
        } else {
            let payload = (LONGEST - 40) as u16;
            let head = datagram.first_chunk_mut::<40>()?;
            head[4..6].copy_from_slice(&payload.to_be_bytes());
            // The fragment header stands right before the data.
            let header = (info.data_offset as usize).checked_sub(start + 8)?;
            datagram.get_mut(header + 2..header + 4)?.fill(0);
        }
        let mut walk = Walk::new(datagram, LONGEST, &self.options, &self.ports, tunnels);
        walk.packet.vlan = fragment.vlan;
        walk.packet.vlan_count = fragment.vlan_count;
        walk.run(Next::Ip);
        let inner = walk.finish();
        (inner.has_ip() && inner.ip_offset != 0).then_some(inner)
    }

    #[cold]
    #[inline(never)]
    fn decode_slow(
        &self,
        descriptor: &PacketDescriptor,
        bytes: &[u8],
        index: u16,
        slot: &mut Decoded,
        tunnels: &mut Vec<crate::Tunnel>,
    ) {
        let wire_len = descriptor.wire_len.max(descriptor.captured_len);
        let mut walk = Walk::new(
            bytes,
            wire_len as usize,
            &self.options,
            &self.ports,
            tunnels,
        );
        walk.packet.time = descriptor.time;
        walk.packet.wire_len = wire_len;
        walk.packet.index = index;
        walk.packet.frames = 1;
        if descriptor.flags.contains(PacketFlags::VLAN) {
            walk.vlan_tag(descriptor.vlan_tci);
        }
        walk.run(Next::Link(descriptor.link));
        *slot = walk.finish();
    }
}

/// The properties that a reassembled datagram inherits from its fragments.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatagramOrigin {
    /// Capture time of the fragment that completed it.
    pub time: Nanos,
    /// Sum of the fragments' frame lengths on the wire.
    pub wire_len: u32,
    /// Index in the batch of the fragment that completed it.
    pub index: u16,
    /// Number of fragments.
    pub frames: u16,
    /// [`Decoded::vlan`] of the completing fragment.
    pub vlan: [u16; 2],
    /// [`Decoded::vlan_count`] of the completing fragment.
    pub vlan_count: u8,
    /// [`Decoded::tunnel`] of the completing fragment.
    pub tunnel: u16,
}

impl DatagramOrigin {
    /// The origin of a datagram completed by the fragment `last`, with totals over all fragments.
    pub fn of(last: &Decoded, wire_len: u32, frames: u16) -> DatagramOrigin {
        DatagramOrigin {
            time: last.time,
            wire_len,
            index: last.index,
            frames,
            vlan: last.vlan,
            vlan_count: last.vlan_count,
            tunnel: last.tunnel,
        }
    }
}

/// Fills [`Decoded::hash`] of each packet with an IP header, using the [seed of the process](HashSeed::of_process).
#[inline]
pub fn hash_batch(packets: &mut [Decoded]) {
    let seed = *HashSeed::of_process();
    for packet in packets {
        packet.hash = seed.hash(&packet.key);
    }
}

/// Ports that may be a tunnel's: a bitmap over the low twelve bits, 512 bytes, that the fast path
/// asks before it takes a UDP packet for an ordinary one. Wrong positives only cost time.
#[derive(Clone, Debug)]
struct PortFilter {
    bits: [u64; 64],
}

impl Default for PortFilter {
    fn default() -> PortFilter {
        PortFilter { bits: [0; 64] }
    }
}

impl PortFilter {
    fn insert(&mut self, port: u16) {
        self.bits[usize::from(port >> 6 & 63)] |= 1 << (port & 63);
    }

    #[inline(always)]
    fn may_contain(&self, port: u16) -> bool {
        self.bits[usize::from(port >> 6 & 63)] >> (port & 63) & 1 != 0
    }
}
