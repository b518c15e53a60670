//! IPv4 and IPv6.

use super::Walk;
use super::checksum::{self, Verdict};
use crate::field::Field;

/// Extension headers of one datagram.
const EXTENSIONS: usize = 16;

/// What transports need of the IP header before them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub(super) version: u8,
    /// Where the addresses are; the destination's right behind the source's.
    pub(super) addresses: usize,
    /// Where the datagram ends, by its header.
    pub(super) end: usize,
    /// One of several fragments.
    pub(super) is_fragment: bool,
    /// A quotation: not all that its checksum is over need be there.
    pub(super) is_quoted: bool,
    /// Its checksum is over other addresses, which are not given out: those of a source route.
    pub(super) is_routed: bool,
}

impl Datagram {
    /// Bytes of both addresses.
    pub(super) const fn address_bytes(&self) -> usize {
        match self.version {
            4 => 8,
            _ => 32,
        }
    }
}

impl Walk<'_> {
    /// A datagram of either version.
    pub(super) fn ip(&mut self, at: usize) {
        self.enter(at, |walk| walk.datagram(at, false));
    }

    /// The beginning of one, as errors quote it.
    pub(super) fn quoted(&mut self, at: usize) {
        self.enter(at, |walk| walk.datagram(at, true));
    }

    fn datagram(&mut self, at: usize, is_quoted: bool) {
        match self.get::<1>(at).map(|[first]| first >> 4) {
            Some(4) => self.ipv4(at, is_quoted),
            Some(6) => self.ipv6(at, is_quoted),
            _ => self.strip(at),
        }
    }

    fn ipv4(&mut self, at: usize, is_quoted: bool) {
        let Some(header) = self.get::<20>(at) else {
            return self.strip(at);
        };
        let length = usize::from(header[0] & 15) * 4;
        let body = at + length;
        let Some(original) = self.frame.get(at..body).filter(|_| length >= 20) else {
            return self.strip(at);
        };
        let is_right = checksum::of(original) == 0;
        let end = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
            // The interface was to divide it.
            0 => self.frame.len(),
            total if total < length => return self.strip(at),
            total => at + total,
        };
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let datagram = Datagram {
            version: 4,
            addresses: at + 12,
            end,
            is_fragment: fragment & 0x3fff != 0,
            is_quoted,
            is_routed: self.has_source_route(at + 20, body),
        };
        self.number(Field::Tos, at + 1, 1, usize::MAX);
        self.number(Field::Id, at + 4, 2, usize::MAX);
        self.number(Field::Ttl, at + 8, 1, usize::MAX);
        self.address(Field::SourceIp, at + 12, 4);
        self.address(Field::DestinationIp, at + 16, 4);
        if length > 20 {
            self.options(Field::IpOptions, at + 20, body);
        }
        self.fill(end, usize::MAX, 0);
        if fragment & 0x1fff == 0 {
            self.transport(header[9], body, &datagram);
        } else {
            self.later_fragment(header[9], body, &datagram);
        }
        self.number(Field::PacketLength, at + 2, 2, usize::MAX);
        self.number(Field::FragmentOffset, at + 6, 2, usize::MAX);
        self.number(Field::IpProto, at + 9, 1, usize::MAX);
        let verdict = if is_right {
            Verdict::Right
        } else {
            Verdict::Wrong
        };
        self.header_checksum(at, body, verdict);
    }

    /// Whether the destination is that of the way, and checksums are over another one.
    fn has_source_route(&self, at: usize, end: usize) -> bool {
        let mut at = at;
        while at < end {
            match self.get(at) {
                Some([131 | 137, _]) => return true,
                Some([1, _]) => at += 1,
                Some([kind, length]) if kind > 1 && length > 1 => at += usize::from(length),
                _ => return false,
            }
        }
        false
    }

    fn ipv6(&mut self, at: usize, is_quoted: bool) {
        let Some(header) = self.get::<40>(at) else {
            return self.strip(at);
        };
        let end = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
            0 if header[6] != 59 => self.frame.len(),
            length => at + 40 + length,
        };
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let class = self.it.number(Field::Tos, (first >> 20 & 0xff).into(), 8) as u32;
        let label = self
            .it
            .number(Field::FlowLabel, (first & 0xf_ffff).into(), 20) as u32;
        self.put(at, &(6 << 28 | class << 20 | label).to_be_bytes());
        self.number(Field::Ttl, at + 7, 1, usize::MAX);
        self.address(Field::SourceIp, at + 8, 16);
        self.address(Field::DestinationIp, at + 24, 16);
        self.fill(end, usize::MAX, 0);
        let mut datagram = Datagram {
            version: 6,
            addresses: at + 8,
            end,
            is_fragment: false,
            is_quoted,
            is_routed: false,
        };
        self.extensions(header[6], at + 40, &mut datagram);
        self.number(Field::PacketLength, at + 4, 2, usize::MAX);
        self.number(Field::IpProto, at + 6, 1, usize::MAX);
    }

    /// Extension headers (RFC 8200), and the transport behind them.
    fn extensions(&mut self, first: u8, at: usize, datagram: &mut Datagram) {
        let (mut next, mut at) = (first, at);
        for _ in 0..EXTENSIONS {
            if !matches!(next, 0 | 43 | 44 | 51 | 60) {
                return self.transport(next, at, datagram);
            }
            let Some([following, length]) = self.get(at) else {
                return self.strip(at);
            };
            let behind = at
                + match next {
                    44 => 8,
                    51 => (usize::from(length) + 2) * 4,
                    _ => (usize::from(length) + 1) * 8,
                };
            if behind > datagram.end.min(self.frame.len()) {
                return self.strip(at);
            }
            match next {
                0 | 60 => {
                    datagram.is_routed |= next == 60 && self.has_home_address(at + 2, behind);
                    self.options(Field::IpOptions, at + 2, behind);
                }
                43 => {
                    // Addresses of the way; none is left to go.
                    self.fill(at + 3, behind, 0);
                    datagram.is_routed = true;
                }
                44 => {
                    let fragment = self.two(at + 2).unwrap_or(0);
                    self.number(Field::FragmentOffset, at + 2, 2, usize::MAX);
                    self.number(Field::Id, at + 4, 2, usize::MAX);
                    self.number(Field::Id, at + 6, 2, usize::MAX);
                    datagram.is_fragment |= fragment & 0xfff9 != 0;
                    if fragment & 0xfff8 != 0 {
                        return self.later_fragment(following, behind, datagram);
                    }
                }
                // What an authentication header proves is not true any more.
                _ => self.fill(at + 4, behind, 0),
            }
            (next, at) = (following, behind);
        }
        self.strip(at);
    }

    /// Whether the source is that of the way, and checksums are over another one (RFC 6275).
    fn has_home_address(&self, at: usize, end: usize) -> bool {
        let mut at = at;
        while at < end {
            match self.get(at) {
                Some([0, _]) => at += 1,
                Some([0xc9, length]) => return length >= 16,
                Some([_, length]) => at += usize::from(length) + 2,
                None => return false,
            }
        }
        false
    }

    /// A fragment without the transport's header.
    fn later_fragment(&mut self, protocol: u8, at: usize, datagram: &Datagram) {
        let field = match protocol {
            6 => Field::TcpPayload,
            17 => Field::UdpPayload,
            // Quotations and addresses go on in it.
            1 | 58 => return self.strip(at),
            _ => Field::IpPayload,
        };
        // What a tunnel carries, or text, cannot be told from other payload here.
        match self.it.has_text() && protocol == 6 {
            true => self.strip(at),
            false => _ = self.payload(field, at, datagram.end),
        }
    }
}
