//! TCP, UDP, tunnels, and options of headers.

use super::Walk;
use super::checksum::Covered;
use super::ip::Datagram;
use crate::bytes::{self, Left};
use crate::field::Field;
use crate::rule::Function;

/// Ports of tunnels over UDP.
const VXLAN: [u16; 3] = [4789, 4790, 8472];
const GENEVE: u16 = 6081;
const GTPU: u16 = 2152;
const TEREDO: u16 = 3544;
/// What carries packets over UDP in ways that are not read here: AYIYA, L2TP, GRE and MPLS over UDP.
const OTHER_TUNNELS: [u16; 4] = [5072, 1701, 4754, 6635];
/// Transparent Ethernet bridging, within GRE and Geneve.
const BRIDGED: u16 = 0x6558;

impl Walk<'_> {
    pub(super) fn transport(&mut self, protocol: u8, at: usize, datagram: &Datagram) {
        match (protocol, datagram.version) {
            (6, _) => self.tcp(at, datagram),
            (17, _) => self.udp(at, datagram),
            (1, 4) | (58, 6) => self.icmp(at, datagram),
            (4 | 41, _) => self.ip(at),
            (47, _) => self.gre(at, datagram),
            (51, 4) => self.authenticated(at, datagram),
            (59, 6) => self.strip(at),
            _ => _ = self.payload(Field::IpPayload, at, datagram.end),
        }
    }

    /// RFC 4302, in IPv4: what it proves is not true any more.
    fn authenticated(&mut self, at: usize, datagram: &Datagram) {
        let behind = |length: u8| at + (usize::from(length) + 2) * 4;
        match self.get(at) {
            Some([next, length]) if behind(length) <= datagram.end.min(self.frame.len()) => {
                self.fill(at + 4, behind(length), 0);
                self.enter(at, |walk| walk.transport(next, behind(length), datagram));
            }
            _ => self.strip(at),
        }
    }

    fn tcp(&mut self, at: usize, datagram: &Datagram) {
        let end = datagram.end;
        self.number(Field::TcpSourcePort, at, 2, end);
        self.number(Field::TcpDestinationPort, at + 2, 2, end);
        self.number(Field::SequenceNumber, at + 4, 4, end);
        self.number(Field::AckNumber, at + 8, 4, end);
        let Some([offset]) = self.get(at + 12) else {
            return self.strip(at + 12);
        };
        self.number(Field::OffsetAndReserved, at + 12, 1, end);
        self.number(Field::Flags, at + 13, 1, end);
        self.number(Field::Window, at + 14, 2, end);
        if at + 20 > end.min(self.frame.len()) {
            return self.strip((at + 16).min(end));
        }
        self.number(Field::UrgentPointer, at + 18, 2, end);
        let length = usize::from(offset >> 4) * 4;
        let body = at + length;
        let is_kept = if length < 20 || body > end.min(self.frame.len()) {
            self.strip(at + 20);
            false
        } else {
            if length > 20 {
                self.options(Field::TcpOptions, at + 20, body);
            }
            self.segment(at, body, end)
        };
        let covered = Covered {
            protocol: 6,
            at,
            end,
            checksum: at + 16,
        };
        self.transport_checksum(Field::TcpChecksum, datagram, &covered, is_kept);
    }

    /// What a segment carries. Whether all of it stays as it is.
    fn segment(&mut self, at: usize, body: usize, end: usize) -> bool {
        if self.it.has_text() {
            let ports = [self.two(at).unwrap_or(0), self.two(at + 2).unwrap_or(0)];
            if self.text(ports, body, end) {
                return false;
            }
        }
        self.payload(Field::TcpPayload, body, end)
    }

    fn udp(&mut self, at: usize, datagram: &Datagram) {
        let end = datagram.end;
        self.number(Field::UdpSourcePort, at, 2, end);
        self.number(Field::UdpDestinationPort, at + 2, 2, end);
        if at + 8 > end.min(self.frame.len()) {
            return self.strip((at + 4).min(end));
        }
        let (source, destination) = (self.two(at).unwrap_or(0), self.two(at + 2).unwrap_or(0));
        let length = usize::from(self.two(at + 4).unwrap_or(0));
        let until = if (8..=end - at).contains(&length) {
            at + length
        } else {
            end
        };
        self.fill(until, usize::MAX, 0);
        let body = at + 8;
        let is_kept = match destination {
            _ if body >= until => true,
            _ if VXLAN.contains(&destination) => self.vxlan(body),
            GENEVE => self.geneve(body),
            _ if source == GTPU || destination == GTPU => self.gtp(body),
            _ if source == TEREDO || destination == TEREDO => {
                self.ip(body);
                false
            }
            _ if OTHER_TUNNELS
                .iter()
                .any(|it| *it == source || *it == destination) =>
            {
                self.strip(body);
                false
            }
            _ => self.payload(Field::UdpPayload, body, until),
        };
        self.number(Field::UdpLength, at + 4, 2, end);
        let covered = Covered {
            protocol: 17,
            at,
            end: until,
            checksum: at + 6,
        };
        self.transport_checksum(Field::UdpChecksum, datagram, &covered, is_kept);
    }

    /// RFC 7348: of the header only the flags stay, and with the extension for other protocols which one it is.
    fn vxlan(&mut self, at: usize) -> bool {
        let Some([flags, _, _, protocol, ..]) = self.get::<8>(at) else {
            self.strip(at);
            return false;
        };
        self.fill(at + 1, at + 8, 0);
        let body = at + 8;
        let protocol = if flags & 4 == 0 { 3 } else { protocol };
        if flags & 4 != 0 {
            self.put(at + 3, &[protocol]);
        }
        match protocol {
            1 | 2 => self.ip(body),
            3 => self.enter(body, |walk| walk.ethernet(body)),
            _ => self.strip(body),
        }
        false
    }

    /// RFC 8926: of the header the length of options and the protocol stay.
    fn geneve(&mut self, at: usize) -> bool {
        let Some([first, _, high, low, ..]) = self.get::<8>(at) else {
            self.strip(at);
            return false;
        };
        let body = at + 8 + usize::from(first & 0x3f) * 4;
        self.fill(at + 4, body, 0);
        match u16::from_be_bytes([high, low]) {
            BRIDGED => self.enter(body, |walk| walk.ethernet(body)),
            0x0800 | 0x86dd => self.ip(body),
            _ => self.strip(body),
        }
        false
    }

    /// 3GPP TS 29.281: the tunnel's number goes, and so do control messages.
    fn gtp(&mut self, at: usize) -> bool {
        let Some([flags, kind, ..]) = self.get::<8>(at) else {
            self.strip(at);
            return false;
        };
        if flags >> 4 != 3 || kind != 255 {
            self.strip(at);
            return false;
        }
        self.fill(at + 4, at + 8, 0);
        let mut body = at + 8;
        if flags & 7 != 0 {
            let extension = self.get::<1>(at + 11).map_or(0, |[next]| next);
            if flags & 4 != 0 && extension != 0 {
                self.strip(at + 8);
                return false;
            }
            self.fill(at + 8, at + 12, 0);
            body += 4;
        }
        self.ip(body);
        false
    }

    /// RFC 2784 and 2890: the key goes, a checksum is computed anew.
    fn gre(&mut self, at: usize, datagram: &Datagram) {
        let Some([flags, version, high, low]) = self.get(at) else {
            return self.strip(at);
        };
        // Routing and PPTP's version are not read.
        if version & 7 != 0 || flags & 0x40 != 0 {
            return self.strip(at);
        }
        let mut body = at + 4;
        let has_checksum = flags & 0x80 != 0;
        if has_checksum {
            self.fill(body, body + 4, 0);
            body += 4;
        }
        if flags & 0x20 != 0 {
            self.fill(body, body + 4, 0);
            body += 4;
        }
        if flags & 0x10 != 0 {
            body += 4;
        }
        if body > datagram.end.min(self.frame.len()) {
            return self.strip(at);
        }
        match u16::from_be_bytes([high, low]) {
            BRIDGED => self.enter(body, |walk| walk.ethernet(body)),
            0x0800 | 0x86dd => self.ip(body),
            _ => self.strip(body),
        }
        if has_checksum {
            let sum = self.sum(at, datagram.end).finish();
            self.put(at + 4, &sum.to_be_bytes());
        }
    }

    /// Options of a header: they keep their place, as otherwise all behind them would move.
    pub(super) fn options(&mut self, field: Field, at: usize, end: usize) {
        let has_addresses = self.it.replaces_addresses();
        let is_tcp = field == Field::TcpOptions;
        // IPv6 has a byte of padding that is 0, and longer padding of type 1.
        let is_ipv6 = field == Field::IpOptions && end.saturating_sub(at) % 8 == 6;
        let kept = match self.it.function(field) {
            Function::Unchanged => usize::MAX,
            Function::Strip(kept) => *kept as usize,
            _ => {
                let (function, key, random) = self.it.payload_function(field);
                if let Some(part) = self.out.get_mut(at..end)
                    && let Left::Only(kept) = bytes::payload(function, key, random, part)
                {
                    self.fill(at + kept, end, 0);
                }
                return;
            }
        };
        if is_ipv6 {
            return self.options6(at, end, kept, has_addresses);
        }
        // Whole ones within what is kept, without those with addresses in them.
        let mut place = at;
        while place < end {
            let Some([kind]) = self.get(place) else { break };
            if kind == 0 {
                break;
            }
            if kind == 1 {
                place += 1;
                continue;
            }
            let length = self
                .get::<1>(place + 1)
                .map_or(0, |[length]| usize::from(length));
            if length < 2 || place + length > end {
                break;
            }
            let tells_addresses = match is_tcp {
                // Multipath TCP, as it announces addresses.
                true => kind == 30,
                // Routes and stamps of those who forwarded it.
                false => matches!(kind, 7 | 68 | 82 | 131 | 137),
            };
            if place + length - at > kept || (tells_addresses && has_addresses) {
                self.fill(place, place + length, 1);
            }
            place += length;
        }
        self.fill(place, end, 0);
    }

    /// Those of IPv6: what goes becomes padding.
    fn options6(&mut self, at: usize, end: usize, kept: usize, has_addresses: bool) {
        let mut place = at;
        while place < end {
            let Some([kind]) = self.get(place) else { break };
            if kind == 0 {
                place += 1;
                continue;
            }
            let length = self
                .get::<1>(place + 1)
                .map_or(0, |[length]| usize::from(length) + 2);
            if length < 2 || place + length > end {
                break;
            }
            // Home addresses (RFC 6275), and what is not known.
            let is_plain = matches!(kind, 1 | 5 | 0xc2);
            if place + length - at > kept || (!is_plain && has_addresses) {
                self.put(place, &[1]);
                self.fill(place + 2, place + length, 0);
            } else if kind == 1 {
                self.fill(place + 2, place + length, 0);
            }
            place += length;
        }
        self.fill(place, end, 0);
    }
}
