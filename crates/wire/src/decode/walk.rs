//! The general path: a loop over layers.

use super::{DecodeOptions, PortFilter, ethernet, ipv4, ipv6, link, ppp};
use crate::decoded::{DecodeFlags, Decoded, Problem, Tunnel, TunnelKind};
use crate::key::{Address, Direction, FlowKey, HashSeed};
use crate::link::LinkType;

/// The layer that begins at [`Walk::at`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Link(LinkType),
    Ethernet,
    EtherType(u16),
    /// IPv4 or IPv6 by the first nibble.
    Ip,
    Ipv4,
    Ipv6,
    Ppp,
}

/// One packet on its way through the layers. A layer function consumes its header and says what
/// follows; `None` ends the walk, with the problem or the transport already in `packet`.
pub(super) struct Walk<'a, 'b> {
    /// The captured bytes.
    pub(super) bytes: &'a [u8],
    /// Where the next header begins.
    pub(super) at: usize,
    /// Where the present layer ends on the wire, by its headers; may lie beyond `bytes`.
    pub(super) end: usize,
    /// Where the whole frame, or the datagram around this one, ends. Lengths between the link
    /// layer and IP only narrow `end`: some senders get them wrong.
    pub(super) outer_end: usize,
    /// The result so far.
    pub(super) packet: Decoded,
    /// Addresses of the IP header last seen.
    pub(super) source: Address,
    pub(super) destination: Address,
    /// Its version.
    pub(super) version: u8,
    pub(super) options: &'b DecodeOptions,
    pub(super) ports: &'b PortFilter,
    tunnels: &'b mut Vec<Tunnel>,
    /// The packet as a packet of the outer flow, while inside a tunnel.
    outer: Option<Decoded>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(
        bytes: &'a [u8],
        end: usize,
        options: &'b DecodeOptions,
        ports: &'b PortFilter,
        tunnels: &'b mut Vec<Tunnel>,
    ) -> Walk<'a, 'b> {
        Walk {
            bytes,
            at: 0,
            end,
            outer_end: end,
            packet: Decoded::default(),
            source: Address::default(),
            destination: Address::default(),
            version: 0,
            options,
            ports,
            tunnels,
            outer: None,
        }
    }

    /// Decodes from layer `first` to the innermost transport. Ends because every layer consumes
    /// at least one byte or is followed by one that does.
    pub(super) fn run(&mut self, first: Next) {
        let mut next = Some(first);
        while let Some(layer) = next {
            next = match layer {
                Next::Link(link) => link::link(self, link),
                Next::Ethernet => ethernet::ethernet(self),
                Next::EtherType(ethertype) => ethernet::ethertype(self, ethertype),
                Next::Ip => ip(self),
                Next::Ipv4 => ipv4::ipv4(self),
                Next::Ipv6 => ipv6::ipv6(self),
                Next::Ppp => ppp::ppp(self),
            };
        }
    }

    /// The result: the inner packet, or the outer one where no inner datagram was found.
    pub(super) fn finish(mut self) -> Decoded {
        if let Some(outer) = self.outer
            && self.packet.key.version == 0
        {
            self.packet = outer;
            self.tunnels.truncate(self.tunnels_kept());
        }
        self.packet.key.context = self.context();
        self.packet
    }

    /// The next `N` bytes without consuming them, if they were captured and belong to this layer.
    pub(super) fn peek<const N: usize>(&self) -> Option<&'a [u8; N]> {
        if self.at + N > self.end {
            return None;
        }
        self.bytes.get(self.at..)?.first_chunk()
    }

    /// Consumes the next `N` bytes, or ends the walk with the right problem.
    pub(super) fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let Some(header) = self.peek() else {
            return self.missing(N);
        };
        self.at += N;
        Some(header)
    }

    /// Consumes `count` bytes, or ends the walk with the right problem.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        if self.at + count > self.end || self.at + count > self.bytes.len() {
            return self.missing(count);
        }
        self.at += count;
        Some(())
    }

    /// Ends the walk because `count` bytes are not there: cut by the snap length, or never sent.
    pub(super) fn missing<T>(&mut self, count: usize) -> Option<T> {
        let problem = if self.at + count <= self.end {
            self.packet.flags.insert(DecodeFlags::CUT);
            Problem::CutHeader
        } else {
            Problem::ShortHeader
        };
        self.stop(problem)
    }

    /// Ends the walk with `problem`, unless an outer one was already noted.
    pub(super) fn stop<T>(&mut self, problem: Problem) -> Option<T> {
        if self.packet.problem == Problem::None {
            self.packet.problem = problem;
        }
        None
    }

    /// Narrows the present layer to `length` bytes from here; never widens it.
    pub(super) fn limit(&mut self, length: usize) {
        self.end = self.end.min(self.at + length);
    }

    /// Notes a VLAN tag; the first two ids are kept.
    pub(super) fn vlan_tag(&mut self, tci: u16) {
        if let Some(slot) = self
            .packet
            .vlan
            .get_mut(usize::from(self.packet.vlan_count))
        {
            *slot = tci & 0x0fff;
        }
        self.packet.vlan_count = self.packet.vlan_count.saturating_add(1);
    }

    /// Sets the key from the IP addresses and these ports.
    pub(super) fn set_key(&mut self, protocol: u8, source_port: u16, destination_port: u16) {
        let (key, direction) = FlowKey::new(
            self.version,
            protocol,
            (self.source, source_port),
            (self.destination, destination_port),
        );
        self.packet.key = key;
        self.packet.direction = direction;
    }

    /// Sets the key of a message that has no answer: source first, whatever the order.
    pub(super) fn set_one_way_key(&mut self, protocol: u8, first: u16, second: u16) {
        self.packet.key = FlowKey {
            low: self.source,
            high: self.destination,
            low_port: first,
            high_port: second,
            protocol,
            version: self.version,
            reserved: 0,
            context: 0,
        };
        self.packet.direction = Direction::LowToHigh;
    }

    /// Sets where the transport begins, and its payload `header` bytes later.
    pub(super) fn set_payload(&mut self, header: usize, length: usize) {
        self.packet.transport_offset = self.at.min(usize::from(u16::MAX)) as u16;
        let offset = self.at + header;
        self.packet.payload_offset = offset as u32;
        self.packet.payload_len = length as u32;
        let captured = self.bytes.len().min(self.end).saturating_sub(offset);
        self.packet.payload_captured = captured.min(length) as u32;
    }

    /// Enters a tunnel whose content begins at `at`. The packet so far is kept as that of the
    /// outer flow. `None` when the tunnels nest too deep.
    pub(super) fn enter(&mut self, kind: TunnelKind, id: Option<u32>) -> Option<()> {
        let depth = self.innermost().map_or(0, |tunnel| tunnel.depth);
        if depth >= self.options.tunnel_depth {
            return self.stop(Problem::TooDeep);
        }
        self.tunnels.push(Tunnel {
            kind,
            source: self.source,
            destination: self.destination,
            version: self.version,
            depth: depth + 1,
            id,
        });
        self.outer_end = self.end;
        let outer = self.packet;
        self.outer = Some(outer);
        self.packet = Decoded {
            time: outer.time,
            wire_len: outer.wire_len,
            index: outer.index,
            frames: outer.frames,
            vlan: outer.vlan,
            vlan_count: outer.vlan_count,
            tunnel: self.tunnels.len().min(usize::from(u16::MAX)) as u16,
            flags: DecodeFlags(
                outer.flags.0 & (DecodeFlags::REASSEMBLED.0 | DecodeFlags::TRAILER.0),
            ),
            ..Decoded::default()
        };
        Some(())
    }

    fn innermost(&self) -> Option<&Tunnel> {
        self.tunnels
            .get(usize::from(self.packet.tunnel).checked_sub(1)?)
    }

    /// How many tunnels stay when the last one entered is given up.
    fn tunnels_kept(&self) -> usize {
        self.tunnels.len() - 1
    }

    /// The number that keeps flows apart besides the five-tuple, as the options ask. Of VLAN ids
    /// alone it is exact; tunnels are mixed in by a 32-bit hash.
    fn context(&self) -> u32 {
        let mut context = 0;
        if self.options.separate_vlans {
            context = self.packet.vlan_number();
        }
        if self.options.separate_tunnels
            && let Some(tunnel) = self.innermost()
        {
            context = mix_tunnel(context, tunnel);
        }
        context
    }
}

/// IP of the version that the first nibble says.
fn ip(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let Some(first) = walk.peek::<1>() else {
        return walk.missing(1);
    };
    match first[0] >> 4 {
        4 => Some(Next::Ipv4),
        6 => Some(Next::Ipv6),
        _ => walk.stop(Problem::BadIpHeader),
    }
}

/// A hash of what identifies a tunnel, the same in each run, as names of keys show it; the outer endpoints in either order
/// give the same.
fn mix_tunnel(context: u32, tunnel: &Tunnel) -> u32 {
    let id = tunnel.id.unwrap_or(0);
    let key = FlowKey {
        low: tunnel.source.min(tunnel.destination),
        high: tunnel.source.max(tunnel.destination),
        low_port: id as u16,
        high_port: (id >> 16) as u16,
        protocol: tunnel.kind as u8,
        version: 6,
        reserved: 0,
        context,
    };
    (HashSeed::PUBLIC.hash(&key) >> 32) as u32
}
