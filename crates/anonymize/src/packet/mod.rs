//! Packets: a copy of each, header by header.
//!
//! The walk reads from the packet as it was captured and writes into a copy. What it does not know is not given out:
//! it is cut off where the packet ends with it, and overwritten where something follows. Lengths in headers and
//! the length on the wire stay, as with a snap length.

mod checksum;
mod icmp;
mod ip;
mod link;
mod text;
mod transport;

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor, PacketFlags};

use crate::bytes::{self, Left};
use crate::compiled::Compiled;
use crate::field::Field;
use crate::rule::Function;

/// Tunnels and quotations within one another.
const DEPTH: u8 = 8;

impl Compiled {
    /// Appends what a packet becomes to `out`, and tells what is known of it then.
    pub(crate) fn packet(
        &mut self,
        descriptor: &PacketDescriptor,
        frame: &[u8],
        out: &mut Vec<u8>,
    ) -> PacketDescriptor {
        let start = out.len();
        out.extend_from_slice(frame);
        let mut walk = Walk {
            it: self,
            frame,
            out: out.get_mut(start..).unwrap_or_default(),
            cut: frame.len(),
            depth: 0,
        };
        walk.link(descriptor.link);
        let kept = walk.cut.min(frame.len());
        out.truncate(start + kept);
        let mut becomes = PacketDescriptor {
            time: self.time(descriptor.time),
            offset: start as u32,
            captured_len: kept as u32,
            ..*descriptor
        };
        if descriptor.flags.contains(PacketFlags::VLAN) {
            becomes.vlan_tci = self.number(Field::VlanId, descriptor.vlan_tci.into(), 16) as u16;
        }
        becomes
    }

    /// What a capture time becomes.
    pub(crate) fn time(&self, time: Nanos) -> Nanos {
        match self.function(Field::Time) {
            Function::Zero => Nanos(0),
            Function::Round(span) => Nanos(time.0 - time.0 % (*span).max(1)),
            _ => time,
        }
    }
}

/// A packet on its way.
struct Walk<'a> {
    it: &'a mut Compiled,
    /// As it was captured.
    frame: &'a [u8],
    /// What becomes of it.
    out: &'a mut [u8],
    /// From here on nothing is given out; checksums take it for zeros.
    cut: usize,
    depth: u8,
}

impl Walk<'_> {
    /// Nothing from here on is given out.
    fn strip(&mut self, at: usize) {
        self.cut = self.cut.min(at);
    }

    /// Bytes of the packet as it was captured.
    fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.frame.get(at..)?.first_chunk().copied()
    }

    /// The same as a number.
    fn two(&self, at: usize) -> Option<u16> {
        self.get(at).map(u16::from_be_bytes)
    }

    /// Writes over bytes, as far as they were captured.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let to = self.out.get_mut(at..).unwrap_or_default();
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// Writes the same byte over a part, as far as it was captured.
    fn fill(&mut self, from: usize, to: usize, byte: u8) {
        let to = to.min(self.out.len());
        if let Some(part) = self.out.get_mut(from..to) {
            part.fill(byte);
        }
    }

    /// A number of a header, of so many bytes (up to 4). Where it was not captured whole, nothing is given out from
    /// here on.
    fn number(&mut self, field: Field, at: usize, bytes: usize, end: usize) {
        let end = end.min(self.frame.len());
        let Some(from) = self.frame.get(at..at + bytes).filter(|_| at + bytes <= end) else {
            return self.strip(at.min(end));
        };
        let number = from
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let becomes = self.it.number(field, number, bytes as u32 * 8);
        if becomes != number {
            let becomes = becomes.to_be_bytes();
            self.put(at, becomes.get(8 - bytes..).unwrap_or_default());
        }
    }

    /// An address of so many bytes; the same where it was not captured whole.
    fn address(&mut self, field: Field, at: usize, bytes: usize) {
        let Some(part) = self.out.get_mut(at..at + bytes) else {
            return self.strip(at);
        };
        self.it.address(field, part);
    }

    /// What is behind a header. Whether all of it stays as it is.
    fn payload(&mut self, field: Field, at: usize, end: usize) -> bool {
        let end = end.min(self.frame.len());
        if at >= end {
            return true;
        }
        let Some(part) = self.out.get_mut(at..end) else {
            return true;
        };
        let (function, key, random) = self.it.payload_function(field);
        let is_kept = matches!(function, Function::Unchanged);
        if let Left::Only(kept) = bytes::payload(function, key, random, part) {
            self.strip(at + kept);
        }
        is_kept
    }

    /// Goes one deeper, unless that is too deep.
    fn enter(&mut self, at: usize, within: impl FnOnce(&mut Self)) {
        if self.depth >= DEPTH {
            return self.strip(at);
        }
        self.depth += 1;
        within(self);
        self.depth -= 1;
    }
}

/// Link types that are known; of others no byte is given out.
pub(crate) fn knows_link(link: LinkType) -> bool {
    matches!(
        link,
        LinkType::ETHERNET
            | LinkType::RAW
            | LinkType::IPV4
            | LinkType::IPV6
            | LinkType::NULL
            | LinkType::LOOP
            | LinkType::LINUX_SLL
            | LinkType::LINUX_SLL2
    )
}
