//! ICMP and ICMPv6, with what they quote and whom they name.

use super::Walk;
use super::checksum::Covered;
use super::ip::Datagram;
use crate::field::Field;

impl Walk<'_> {
    pub(super) fn icmp(&mut self, at: usize, datagram: &Datagram) {
        let end = datagram.end;
        let (Some([kind, code]), true) = (self.get(at), at + 4 <= end) else {
            return self.strip(at);
        };
        let is_kept = match self.get::<8>(at).filter(|_| at + 8 <= end) {
            None => {
                self.strip(at + 4);
                false
            }
            Some(header) if datagram.version == 4 => self.icmp4(kind, code, &header, at, end),
            Some(header) => self.icmp6(kind, &header, at, end),
        };
        self.number(Field::IcmpType, at, 1, end);
        self.number(Field::IcmpCode, at + 1, 1, end);
        let protocol = if datagram.version == 4 { 1 } else { 58 };
        let covered = Covered {
            protocol,
            at,
            end,
            checksum: at + 2,
        };
        self.transport_checksum(Field::IcmpChecksum, datagram, &covered, is_kept);
    }

    /// RFC 792. Whether the payload stays as it is.
    fn icmp4(&mut self, kind: u8, code: u8, header: &[u8; 8], at: usize, end: usize) -> bool {
        match kind {
            // Echo, time stamps.
            0 | 8 | 13 | 14 => self.asked(at, end),
            3 | 4 | 5 | 11 | 12 => {
                if kind == 5 {
                    self.address(Field::DestinationIp, at + 4, 4);
                } else {
                    // A pointer, the length of the quotation (RFC 4884), the size of packets that fit.
                    let mut rest = [0, header[5], 0, 0];
                    if kind == 12 {
                        rest[0] = header[4];
                    }
                    if kind == 3 && code == 4 {
                        rest[2..].copy_from_slice(&header[6..]);
                    }
                    self.put(at + 4, &rest);
                    if header[5] > 0 {
                        self.strip(at + 8 + usize::from(header[5]) * 4);
                    }
                }
                self.quoted(at + 8);
                false
            }
            _ => {
                self.strip(at + 4);
                false
            }
        }
    }

    /// RFC 4443, RFC 4861, RFC 2710.
    fn icmp6(&mut self, kind: u8, header: &[u8; 8], at: usize, end: usize) -> bool {
        match kind {
            128 | 129 => return self.asked(at, end),
            1..=4 => {
                match kind {
                    // The size of packets that fit; a pointer.
                    2 | 4 => {}
                    _ => self.put(at + 4, &[header[4], 0, 0, 0]),
                }
                if matches!(kind, 1 | 3) && header[4] > 0 {
                    self.strip(at + 8 + usize::from(header[4]) * 8);
                }
                self.quoted(at + 8);
            }
            // Listeners.
            130..=132 => {
                self.fill(at + 4, at + 8, 0);
                self.address(Field::DestinationIp, at + 8, 16);
                self.strip(at + 24);
            }
            // Neighbours and routers.
            133 => {
                self.fill(at + 4, at + 8, 0);
                self.neighbour_options(at + 8, end);
            }
            134 => {
                self.fill(at + 4, at + 16, 0);
                self.neighbour_options(at + 16, end);
            }
            135 | 136 => {
                self.put(at + 4, &[header[4] & 0xe0, 0, 0, 0]);
                self.address(Field::DestinationIp, at + 8, 16);
                self.neighbour_options(at + 24, end);
            }
            137 => {
                self.fill(at + 4, at + 8, 0);
                self.address(Field::DestinationIp, at + 8, 16);
                self.address(Field::DestinationIp, at + 24, 16);
                self.neighbour_options(at + 40, end);
            }
            _ => self.strip(at + 4),
        }
        false
    }

    /// A question or its answer: number, sequence number, payload.
    fn asked(&mut self, at: usize, end: usize) -> bool {
        self.number(Field::IcmpId, at + 4, 2, end);
        self.number(Field::IcmpSequence, at + 6, 2, end);
        self.payload(Field::IcmpPayload, at + 8, end)
    }

    fn neighbour_options(&mut self, at: usize, end: usize) {
        let end = end.min(self.frame.len());
        let mut at = at;
        while at + 8 <= end {
            let Some([kind, length]) = self.get(at) else {
                break;
            };
            let next = at + usize::from(length) * 8;
            if length == 0 || next > end {
                break;
            }
            match (kind, length) {
                (1, 1) => self.address(Field::SourceMac, at + 2, 6),
                (2, 1) => self.address(Field::DestinationMac, at + 2, 6),
                (3, 4) => {
                    self.fill(at + 4, at + 16, 0);
                    self.address(Field::SourceIp, at + 16, 16);
                }
                // The size of packets on the link.
                (5, 1) => {}
                _ => self.fill(at + 2, next, 0),
            }
            at = next;
        }
        self.strip(at.min(end));
    }
}
