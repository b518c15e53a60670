//! Link layers, and what they carry beside IP.

use flowgauge_wire::LinkType;

use super::{Walk, knows_link};
use crate::field::Field;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

impl Walk<'_> {
    pub(super) fn link(&mut self, link: LinkType) {
        if !knows_link(link) {
            return self.strip(0);
        }
        match link {
            LinkType::ETHERNET => self.ethernet(0),
            LinkType::NULL | LinkType::LOOP => self.ip(4),
            LinkType::LINUX_SLL => {
                let (Some(hardware), Some(length), Some(protocol)) =
                    (self.two(2), self.two(4), self.two(14))
                else {
                    return self.strip(0);
                };
                self.cooked_address(6, hardware, length);
                self.ethertype(protocol, 16);
            }
            LinkType::LINUX_SLL2 => {
                let (Some(protocol), Some(hardware), Some([length])) =
                    (self.two(0), self.two(8), self.get(11))
                else {
                    return self.strip(0);
                };
                // The number of the interface.
                self.fill(4, 8, 0);
                self.cooked_address(12, hardware, length.into());
                self.ethertype(protocol, 20);
            }
            _ => self.ip(0),
        }
    }

    /// Eight bytes for the sender's address, whatever is used of them.
    fn cooked_address(&mut self, at: usize, hardware: u16, length: u16) {
        let is_ethernet = matches!(hardware, 1 | 772) && length == 6;
        if is_ethernet {
            self.address(Field::SourceMac, at, 6);
            self.fill(at + 6, at + 8, 0);
        } else {
            self.fill(at, at + 8, 0);
        }
    }

    pub(super) fn ethernet(&mut self, at: usize) {
        let Some(kind) = self.two(at + 12) else {
            return self.strip(at);
        };
        self.address(Field::DestinationMac, at, 6);
        self.address(Field::SourceMac, at + 6, 6);
        let snap = [0xaa, 0xaa, 3, 0, 0, 0];
        match (kind, self.get::<6>(at + 14), self.two(at + 20)) {
            (..0x600, Some(header), Some(kind)) if header == snap => self.ethertype(kind, at + 22),
            (..0x600, ..) => self.strip(at + 14),
            (kind, ..) => self.ethertype(kind, at + 14),
        }
    }

    pub(super) fn ethertype(&mut self, kind: u16, at: usize) {
        let (mut kind, mut at) = (kind, at);
        while let 0x8100 | 0x88a8 | 0x9100 = kind {
            let Some(next) = self.two(at + 2) else {
                return self.strip(at);
            };
            self.number(Field::VlanId, at, 2, usize::MAX);
            kind = next;
            at += 4;
        }
        match kind {
            IPV4 | IPV6 => self.ip(at),
            ARP => self.arp(at),
            0x8847 | 0x8848 => self.labels(at),
            // PPPoE: the session goes.
            0x8864 => match self.two(at + 6) {
                Some(0x21 | 0x57) => {
                    self.fill(at + 2, at + 4, 0);
                    self.ip(at + 8);
                }
                _ => self.strip(at),
            },
            _ => self.strip(at),
        }
    }

    /// MPLS: of labels only which is the last one stays, and those with a meaning of their own (RFC 3032).
    fn labels(&mut self, at: usize) {
        let mut at = at;
        loop {
            let Some([first, second, third, _]) = self.get(at) else {
                return self.strip(at);
            };
            let is_reserved = first == 0 && second == 0;
            let label = if is_reserved {
                [0, 0, third & 0xf0]
            } else {
                [0, 1, 0]
            };
            self.put(at, &[label[0], label[1], label[2] | third & 1, 0]);
            at += 4;
            if third & 1 == 1 {
                return self.ip(at);
            }
        }
    }

    /// ARP of IPv4 over Ethernet.
    fn arp(&mut self, at: usize) {
        if self.get(at) != Some([0, 1, 8, 0, 6, 4]) {
            return self.strip(at);
        }
        self.address(Field::SourceMac, at + 8, 6);
        self.address(Field::SourceIp, at + 14, 4);
        self.address(Field::DestinationMac, at + 18, 6);
        self.address(Field::DestinationIp, at + 24, 4);
        self.fill(at + 28, usize::MAX, 0);
    }
}
