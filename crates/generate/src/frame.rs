//! Frames: link header, tunnels, IP, fragments and checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of an Ethernet frame without its check sequence, at least and at most.
const MINIMUM_FRAME: usize = 60;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// A tunnel around a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    Gre,
    GreKey(u32),
    Vxlan(u32),
    Geneve(u32),
    Gtp(u32),
    /// The inner packet directly in an IPv4 packet: IP in IP or 6in4.
    Ip,
}

/// A length or checksum that depends on the frame, at an offset in the prefix.
#[derive(Clone, Copy, Debug)]
enum Fixup {
    /// IPv4 header: total length and header checksum.
    Ipv4(usize),
    /// UDP header: length; the checksum stays 0, as tunnels over IPv4 send it.
    Udp(usize),
    /// GTP-U header: length of what follows its eight bytes.
    Gtp(usize),
}

/// Everything in front of the innermost IP header, for one direction of a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
}

impl Prefix {
    /// An Ethernet header with VLAN tags (outermost first) and perhaps a tunnel.
    pub(super) fn new(
        source: [u8; 6],
        destination: [u8; 6],
        vlans: &[u16],
        tunnel: Option<(Tunnel, Ipv4Addr, Ipv4Addr)>,
        ipv6: bool,
    ) -> Self {
        let mut prefix = Prefix::default();
        let inner = if ipv6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        let outer = if tunnel.is_some() {
            ETHERTYPE_IPV4
        } else {
            inner
        };
        prefix.ethernet(source, destination, vlans, outer);
        if let Some((tunnel, from, to)) = tunnel {
            prefix.tunnel(tunnel, from, to, inner);
        }
        prefix
    }

    /// Adds another tunnel inside those already there.
    pub(super) fn tunnel(&mut self, tunnel: Tunnel, from: Ipv4Addr, to: Ipv4Addr, inner: u16) {
        let protocol = match tunnel {
            Tunnel::Gre | Tunnel::GreKey(_) => 47,
            Tunnel::Ip if inner == ETHERTYPE_IPV6 => 41,
            Tunnel::Ip => 4,
            Tunnel::Vxlan(_) | Tunnel::Geneve(_) | Tunnel::Gtp(_) => 17,
        };
        self.fixups.push(Fixup::Ipv4(self.bytes.len()));
        self.bytes
            .extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        self.bytes.extend(from.octets());
        self.bytes.extend(to.octets());
        match tunnel {
            Tunnel::Ip => {}
            Tunnel::Gre => {
                self.bytes.extend([0, 0]);
                self.bytes.extend(inner.to_be_bytes());
            }
            Tunnel::GreKey(key) => {
                self.bytes.extend([0x20, 0]);
                self.bytes.extend(inner.to_be_bytes());
                self.bytes.extend(key.to_be_bytes());
            }
            Tunnel::Vxlan(vni) => {
                self.udp(49_152 + (vni & 0x3ff) as u16, 4789);
                self.bytes.extend([0x08, 0, 0, 0]);
                self.bytes.extend((vni << 8).to_be_bytes());
                self.inner_ethernet(vni, inner);
            }
            Tunnel::Geneve(vni) => {
                self.udp(49_152 + (vni & 0x3ff) as u16, 6081);
                self.bytes.extend([0, 0, 0x65, 0x58]);
                self.bytes.extend((vni << 8).to_be_bytes());
                self.inner_ethernet(vni, inner);
            }
            Tunnel::Gtp(teid) => {
                self.udp(2152, 2152);
                self.fixups.push(Fixup::Gtp(self.bytes.len()));
                self.bytes.extend([0x30, 0xff, 0, 0]);
                self.bytes.extend(teid.to_be_bytes());
            }
        }
    }

    fn ethernet(&mut self, source: [u8; 6], destination: [u8; 6], vlans: &[u16], inner: u16) {
        self.bytes.extend(destination);
        self.bytes.extend(source);
        for (index, vlan) in vlans.iter().enumerate() {
            let outer_of_two = vlans.len() > 1 && index == 0;
            let ethertype: u16 = if outer_of_two { 0x88a8 } else { 0x8100 };
            self.bytes.extend(ethertype.to_be_bytes());
            self.bytes.extend(vlan.to_be_bytes());
        }
        self.bytes.extend(inner.to_be_bytes());
    }

    fn inner_ethernet(&mut self, vni: u32, inner: u16) {
        let [_, high, middle, low] = vni.to_be_bytes();
        let source = [0x02, 0x50, 0x56, high, middle, low];
        let destination = [0x02, 0x50, 0x57, high, middle, low];
        self.ethernet(source, destination, &[], inner);
    }

    fn udp(&mut self, source: u16, destination: u16) {
        self.fixups.push(Fixup::Udp(self.bytes.len()));
        self.bytes.extend(source.to_be_bytes());
        self.bytes.extend(destination.to_be_bytes());
        self.bytes.extend([0, 0, 0, 0]);
    }

    /// Whether a tunnel is in it.
    pub(super) fn is_tunnel(&self) -> bool {
        !self.fixups.is_empty()
    }

    /// Sets the outer lengths and checksums of a frame that begins with this prefix.
    fn complete(&self, frame: &mut [u8], id: u16) {
        let length = frame.len();
        for fixup in &self.fixups {
            match *fixup {
                Fixup::Ipv4(at) => {
                    put16(frame, at + 2, (length - at) as u16);
                    put16(frame, at + 4, id);
                    let sum = finish(sum(&frame[at..at + 20]));
                    put16(frame, at + 10, sum);
                }
                Fixup::Udp(at) => put16(frame, at + 4, (length - at) as u16),
                Fixup::Gtp(at) => put16(frame, at + 2, (length - at - 8) as u16),
            }
        }
    }
}

/// The way of one direction of a flow: what its frames have in common.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) prefix: Prefix,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ttl: u8,
    /// VLAN tags, to count frames.
    pub(super) tagged: bool,
}

/// Which part of a datagram a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Fragment { offset: usize, more: bool },
}

impl Path {
    /// Whether the innermost packet is IPv6.
    pub(super) fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Bytes in front of the transport header.
    pub(super) fn header_len(&self) -> usize {
        self.prefix.bytes.len() + if self.is_ipv6() { 40 } else { 20 }
    }

    /// Sum of the pseudo header, for a transport checksum.
    pub(super) fn pseudo_sum(&self, protocol: u8, length: usize) -> u64 {
        let addresses = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                sum(&source.octets()) + sum(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                sum(&source.octets()) + sum(&destination.octets())
            }
            _ => 0,
        };
        let mut rest = [0; 8];
        rest[..4].copy_from_slice(&(length as u32).to_be_bytes());
        rest[7] = protocol;
        addresses + sum(&rest)
    }

    /// Replaces `frame` by one that carries `head` and `payload` (a transport header with its
    /// checksum and what follows) in an IP packet, padded as Ethernet demands.
    pub(super) fn build(
        &self,
        frame: &mut Vec<u8>,
        protocol: u8,
        id: u32,
        part: Part,
        (head, payload): (&[u8], &[u8]),
    ) {
        frame.clear();
        frame.extend_from_slice(&self.prefix.bytes);
        let start = frame.len();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let flags = match part {
                    Part::Whole => 0x4000,
                    Part::Fragment { offset, more } => {
                        (offset / 8) as u16 | if more { 0x2000 } else { 0 }
                    }
                };
                let length = (20 + head.len() + payload.len()) as u16;
                frame.extend_from_slice(&[0x45, 0]);
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(&(id as u16).to_be_bytes());
                frame.extend_from_slice(&flags.to_be_bytes());
                frame.extend_from_slice(&[self.ttl, protocol, 0, 0]);
                frame.extend_from_slice(&source.octets());
                frame.extend_from_slice(&destination.octets());
                let checksum = finish(sum(&frame[start..]));
                put16(frame, start + 10, checksum);
            }
            (source, destination) => self.ipv6_header(
                frame,
                protocol,
                id,
                part,
                head.len() + payload.len(),
                (source, destination),
            ),
        }
        frame.extend_from_slice(head);
        frame.extend_from_slice(payload);
        if self.prefix.is_tunnel() {
            self.prefix.complete(frame, id as u16);
        }
        if frame.len() < MINIMUM_FRAME {
            frame.resize(MINIMUM_FRAME, 0);
        }
    }

    fn ipv6_header(
        &self,
        frame: &mut Vec<u8>,
        protocol: u8,
        id: u32,
        part: Part,
        length: usize,
        (source, destination): (IpAddr, IpAddr),
    ) {
        let (next, extension) = match part {
            Part::Whole => (protocol, 0),
            Part::Fragment { .. } => (44, 8),
        };
        frame.extend_from_slice(&[0x60, 0, 0, 0]);
        frame.extend_from_slice(&((length + extension) as u16).to_be_bytes());
        frame.extend_from_slice(&[next, self.ttl]);
        for address in [source, destination] {
            match address {
                IpAddr::V6(address) => frame.extend_from_slice(&address.octets()),
                IpAddr::V4(address) => {
                    frame.extend_from_slice(&Ipv6Addr::octets(&address.to_ipv6_mapped()));
                }
            }
        }
        if let Part::Fragment { offset, more } = part {
            frame.extend_from_slice(&[protocol, 0]);
            frame.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
            frame.extend_from_slice(&id.to_be_bytes());
        }
    }
}

/// Unfolded ones'-complement sum (RFC 1071) of big-endian 16-bit words; an odd last byte is the
/// high half of a word. Sums of parts that begin at even offsets can be added.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Little-endian words of 32 bits, which the compiler adds many at a time; the byte order is
    // put right at the end, as RFC 1071 section 2 (B) allows.
    let mut total = 0u64;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        if let Ok(word) = <[u8; 4]>::try_from(word) {
            total += u64::from(u32::from_le_bytes(word));
        }
    }
    let mut last = [0; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_le_bytes(last));
    u64::from((fold(total)).swap_bytes())
}

/// The checksum that a sum comes to.
pub(super) fn finish(sum: u64) -> u16 {
    !fold(sum)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Writes a big-endian number.
pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tunnel {
        /// Bytes that the tunnel adds to a frame.
        fn overhead(self) -> usize {
            20 + match self {
                Tunnel::Ip => 0,
                Tunnel::Gre => 4,
                Tunnel::GreKey(_) => 8,
                Tunnel::Gtp(_) => 8 + 8,
                Tunnel::Vxlan(_) | Tunnel::Geneve(_) => 8 + 8 + 14,
            }
        }
    }

    #[test]
    fn checksum_of_the_example_in_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(finish(sum(&bytes)), !0xddf2);
        assert_eq!(fold(sum(&[0xab])), 0xab00);
    }

    #[test]
    fn a_frame_in_a_tunnel_has_consistent_lengths() {
        let outer = (Ipv4Addr::new(172, 16, 0, 1), Ipv4Addr::new(172, 16, 0, 2));
        for tunnel in [
            Tunnel::Gre,
            Tunnel::GreKey(7),
            Tunnel::Vxlan(7),
            Tunnel::Geneve(7),
            Tunnel::Gtp(7),
            Tunnel::Ip,
        ] {
            let path = Path {
                prefix: Prefix::new(
                    [2; 6],
                    [4; 6],
                    &[5],
                    Some((tunnel, outer.0, outer.1)),
                    false,
                ),
                source: IpAddr::from([10, 0, 0, 1]),
                destination: IpAddr::from([10, 0, 0, 2]),
                ttl: 64,
                tagged: true,
            };
            let mut frame = Vec::new();
            path.build(&mut frame, 17, 1, Part::Whole, (&[0; 8], &[1; 100]));
            assert_eq!(frame.len(), 18 + tunnel.overhead() + 20 + 108);
            assert_eq!(sum(&frame[18..38]) % 0xffff, 0, "{tunnel:?}");
            assert_eq!(
                usize::from(frame[20]) * 256 + usize::from(frame[21]),
                frame.len() - 18
            );
        }
    }
}
