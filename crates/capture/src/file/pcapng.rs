//! pcapng (draft-ietf-opsawg-pcapng): a sequence of blocks.
//!
//! ```text
//!  type (4) | total length (4) | body ..., padded to 4 | total length (4)
//! ```
//!
//! Blocks with packets or descriptions of interfaces are read; all others are skipped. A section header starts a new
//! byte order and new interface numbers. Identical interfaces of several sections become one.

use std::collections::HashMap;

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor, PacketFlags};

use crate::file::order::{Big, Little, Order};
use crate::file::pcap::max_packet_bytes;
use crate::file::source::{Format, Memory, Next, Parsed, each_record};
use crate::source::Interface;

/// Type of a section header block; reads the same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// The byte-order magic of a section header.
pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// The longest section header or interface description that is read: libpcap's limit for a block.
const MAX_DESCRIPTION_BYTES: u32 = 16 << 20;
/// A packet block may hold this many bytes of options beside its packet.
const MAX_OPTION_BYTES: u32 = 16 << 20;
/// More of a name or filter expression is not kept.
const MAX_TEXT_BYTES: usize = 1024;

/// State of reading a pcapng file.
#[derive(Default)]
pub(crate) struct PcapNg {
    interfaces: Vec<Interface>,
    known: HashMap<(Interface, Clock), Alike>,
    /// Interfaces of this section, by their number in the file.
    section: Vec<SectionInterface>,
    /// Sections so far.
    sections: u64,
    big_endian: bool,
    /// Whether a section header was seen.
    started: bool,
    /// Interfaces are told before their packets: one was added since the last call.
    added: bool,
    /// Packets that the captures of sections before this one lost.
    lost_before: u64,
}

/// Interfaces that are described in the same words. Within a section they are several; another section's are the same again.
#[derive(Default)]
struct Alike {
    indexes: Vec<u16>,
    /// The section in which one was seen last, and how many were there.
    section: u64,
    seen: usize,
}

#[derive(Clone, Copy, Debug)]
struct SectionInterface {
    index: u16,
    link: LinkType,
    snap_len: u32,
    max_packet: u32,
    clock: Clock,
    /// Packets that its capture lost, by the last statistics.
    lost: u64,
}

/// How an interface's time stamps become nanoseconds (`if_tsresol`, `if_tsoffset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Clock {
    unit: Unit,
    offset_seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    /// This many nanoseconds.
    Nanoseconds(u64),
    /// So many of them are a nanosecond.
    PerNanosecond(u64),
    /// This power of two of them is a second.
    Binary(u8),
}

impl Clock {
    const MICROSECONDS: Clock = Clock {
        unit: Unit::Nanoseconds(1000),
        offset_seconds: 0,
    };

    #[inline]
    fn nanos(self, stamp: u64) -> Nanos {
        let time = match self.unit {
            Unit::Nanoseconds(unit) => stamp.saturating_mul(unit),
            Unit::PerNanosecond(count) => stamp / count,
            Unit::Binary(bits) => {
                let scaled = (u128::from(stamp) * 1_000_000_000) >> bits;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        };
        if self.offset_seconds == 0 {
            return Nanos(time);
        }
        let shifted = i128::from(time) + i128::from(self.offset_seconds) * 1_000_000_000;
        Nanos(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }

    fn set_resolution(&mut self, value: u8) {
        let exponent = value & 0x7f;
        self.unit = if value & 0x80 != 0 {
            Unit::Binary(exponent)
        } else if exponent <= 9 {
            Unit::Nanoseconds(10u64.pow(9 - u32::from(exponent)))
        } else {
            // Beyond 10^-28 seconds every stamp is less than a nanosecond anyway.
            let count = 10u64.checked_pow(u32::from(exponent) - 9);
            Unit::PerNanosecond(count.unwrap_or(u64::MAX))
        };
    }
}

impl PcapNg {
    /// Whether a file that begins like this is pcapng.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        let magic = bytes.get(8..12).unwrap_or(&[]);
        bytes.starts_with(&SECTION_HEADER.to_be_bytes())
            && (magic == BYTE_ORDER_MAGIC.to_be_bytes() || magic == BYTE_ORDER_MAGIC.to_le_bytes())
    }

    /// Reads blocks in one byte order until the batch ends or another order begins.
    #[inline(always)]
    fn blocks<O: Order>(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed {
        each_record(memory, start, packets, |at, packets| {
            let rest = memory.bytes.get(at..).unwrap_or(&[]);
            let Some(head) = rest.first_chunk::<12>() else {
                return Err(Next::Need(12));
            };
            let kind = O::u32(head, 0);
            if kind == SECTION_HEADER {
                let end = at + self.section_header(rest, packets.is_empty())?;
                if self.big_endian != (O::u16(&[0, 1], 0) == 1) {
                    // Go on in the other byte order, from this header on.
                    return Err(Next::Need(0));
                }
                return Ok(end);
            }
            let length = O::u32(head, 4);
            if length < 12 || length % 4 != 0 {
                return Err(Next::Damaged(format!(
                    "a block of type {kind:#x} claims an impossible length of {length} bytes"
                )));
            }
            let bound = match kind {
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => {
                    if self.added {
                        // Let the consumer ask for the interfaces before it sees their packets.
                        self.added = false;
                        return Err(Next::Deliver);
                    }
                    (128 << 20) + MAX_OPTION_BYTES
                }
                INTERFACE_DESCRIPTION => {
                    if !packets.is_empty() {
                        return Err(Next::Deliver);
                    }
                    MAX_DESCRIPTION_BYTES
                }
                _ => {
                    // Need not be in memory as a whole: custom blocks and secrets can be large.
                    if (length as usize) <= rest.len() {
                        closed::<O>(rest, kind, length)?;
                        if kind == INTERFACE_STATISTICS {
                            self.statistics::<O>(rest.get(..length as usize).unwrap_or(&[]));
                        }
                        return Ok(at + length as usize);
                    }
                    if length as usize <= crate::file::input::READ_BYTES / 4 {
                        return Err(Next::Need(length as usize));
                    }
                    return Err(Next::Skip(u64::from(length)));
                }
            };
            if length > bound {
                return Err(Next::Damaged(format!(
                    "a block of type {kind:#x} claims {length} bytes, more than the {bound} possible"
                )));
            }
            let Some(block) = rest.get(..length as usize) else {
                // A packet block that lies about its packet is refused before it is waited for.
                if let Some(reason) = self.implausible::<O>(kind, length, rest) {
                    return Err(Next::Damaged(reason));
                }
                return Err(Next::Need(length as usize));
            };
            closed::<O>(block, kind, length)?;
            let result = match kind {
                ENHANCED_PACKET => self.enhanced_packet::<O>(block, at, packets),
                INTERFACE_DESCRIPTION => self.interface_description::<O>(block),
                SIMPLE_PACKET => self.simple_packet::<O>(block, at, packets),
                _ => self.obsolete_packet::<O>(block, at, packets),
            };
            result.map_err(Next::Damaged)?;
            Ok(at + length as usize)
        })
    }

    /// Starts a section; returns the length of the block.
    fn section_header(&mut self, rest: &[u8], batch_is_empty: bool) -> Result<usize, Next> {
        if !batch_is_empty {
            return Err(Next::Deliver);
        }
        let magic = rest.get(8..12).unwrap_or(&[]);
        let big_endian = magic == BYTE_ORDER_MAGIC.to_be_bytes();
        if !big_endian && magic != BYTE_ORDER_MAGIC.to_le_bytes() {
            return Err(Next::Damaged(
                "a section header has no valid byte-order magic".to_owned(),
            ));
        }
        let length = if big_endian {
            section_length::<Big>(rest)?
        } else {
            section_length::<Little>(rest)?
        };
        self.big_endian = big_endian;
        self.started = true;
        self.lost_before = self.lost();
        self.section.clear();
        self.sections += 1;
        Ok(length)
    }

    fn interface_description<O: Order>(&mut self, block: &[u8]) -> Result<(), String> {
        if block.len() < 20 {
            return Err("an interface description is too short".to_owned());
        }
        let link = LinkType::from_file(O::u16(block, 8));
        let snap_len = O::u32(block, 12);
        let mut interface = Interface {
            link,
            snap_len,
            ..Interface::default()
        };
        let mut clock = Clock::MICROSECONDS;
        for (code, value) in options::<O>(block, 16)? {
            match (code, value) {
                (2, name) => interface.name = Some(text(name)),
                (3, description) => interface.description = Some(text(description)),
                (9, [resolution]) => clock.set_resolution(*resolution),
                // The first byte says that the filter is text (0) or BPF instructions (1).
                (11, [0, filter @ ..]) => interface.filter = Some(text(filter)),
                (14, offset) if offset.len() == 8 => {
                    clock.offset_seconds = long::<O>(offset, self.big_endian) as i64;
                }
                _ => {}
            }
        }
        if self.section.len() > usize::from(u16::MAX) {
            return Err("a section describes more than 65536 interfaces".to_owned());
        }
        let alike = self.known.entry((interface.clone(), clock)).or_default();
        if alike.section != self.sections {
            (alike.section, alike.seen) = (self.sections, 0);
        }
        let index = match alike.indexes.get(alike.seen) {
            Some(index) => *index,
            None => {
                let index = u16::try_from(self.interfaces.len())
                    .map_err(|_| "the file describes more than 65536 interfaces".to_owned())?;
                self.interfaces.push(interface);
                alike.indexes.push(index);
                self.added = true;
                index
            }
        };
        alike.seen += 1;
        self.section.push(SectionInterface {
            index,
            link,
            snap_len,
            max_packet: max_packet_bytes(link, snap_len),
            clock,
            lost: 0,
        });
        Ok(())
    }

    /// Statistics of an interface: what its card (`isb_ifdrop`) and the system (`isb_osdrop`) lost since the capture began. Those that
    /// make no sense say nothing.
    #[cold]
    fn statistics<O: Order>(&mut self, block: &[u8]) {
        if block.len() < 24 {
            return;
        }
        let interface = self.section.get_mut(O::u32(block, 8) as usize);
        let (Some(interface), Ok(options)) = (interface, options::<O>(block, 20)) else {
            return;
        };
        let drops = options.filter(|(code, value)| matches!(code, 5 | 7) && value.len() == 8);
        let drops = drops.map(|(_, value)| long::<O>(value, self.big_endian));
        interface.lost = drops.fold(0, u64::saturating_add).max(interface.lost);
    }

    fn lost(&self) -> u64 {
        let lost = self.section.iter().map(|interface| interface.lost);
        lost.fold(self.lost_before, u64::saturating_add)
    }

    #[inline(always)]
    fn enhanced_packet<O: Order>(
        &mut self,
        block: &[u8],
        at: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Result<(), String> {
        let Some(head) = block.first_chunk::<28>() else {
            return Err("an enhanced packet block is too short".to_owned());
        };
        let interface = self.interface(O::u32(head, 8))?;
        packets.push(interface.timed::<O>(block, head, at)?);
        Ok(())
    }

    /// The packet block of the first drafts: a 16-bit interface number and a drop count.
    fn obsolete_packet<O: Order>(
        &mut self,
        block: &[u8],
        at: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Result<(), String> {
        let Some(head) = block.first_chunk::<28>() else {
            return Err("a packet block is too short".to_owned());
        };
        let interface = self.interface(u32::from(O::u16(head, 8)))?;
        packets.push(interface.timed::<O>(block, head, at)?);
        Ok(())
    }

    /// A packet of the first interface without a time: it gets time zero, as in libpcap. How much
    /// was captured follows from the snap length.
    fn simple_packet<O: Order>(
        &mut self,
        block: &[u8],
        at: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Result<(), String> {
        if block.len() < 16 {
            return Err("a simple packet block is too short".to_owned());
        }
        let interface = self.interface(0)?;
        let wire_len = O::u32(block, 8);
        let mut captured_len = wire_len;
        if interface.snap_len != 0 {
            captured_len = captured_len.min(interface.snap_len);
        }
        packet_end(block, 12, captured_len, interface.max_packet)?;
        packets.push(PacketDescriptor {
            offset: (at + 12) as u32,
            captured_len,
            wire_len,
            interface: interface.index,
            link: interface.link,
            ..PacketDescriptor::default()
        });
        Ok(())
    }

    #[inline(always)]
    fn interface(&self, number: u32) -> Result<SectionInterface, String> {
        match self.section.get(number as usize) {
            Some(interface) => Ok(*interface),
            None => Err(self.unknown_interface(number)),
        }
    }

    #[cold]
    fn unknown_interface(&self, number: u32) -> String {
        format!(
            "a packet is of interface {number}, but the section describes only {}",
            self.section.len()
        )
    }

    /// Why a packet block that is not wholly in memory yet cannot be right.
    #[cold]
    fn implausible<O: Order>(&self, kind: u32, length: u32, rest: &[u8]) -> Option<String> {
        if kind == INTERFACE_DESCRIPTION || rest.len() < 28 {
            return None;
        }
        let (captured_len, head, number) = match kind {
            ENHANCED_PACKET => (O::u32(rest, 20), 28, O::u32(rest, 8)),
            OBSOLETE_PACKET => (O::u32(rest, 20), 28, u32::from(O::u16(rest, 8))),
            _ => (0, 12, 0),
        };
        let Some(interface) = self.section.get(number as usize) else {
            return Some(self.unknown_interface(number));
        };
        let bound = u64::from(interface.max_packet) + u64::from(MAX_OPTION_BYTES);
        if u64::from(length) > bound {
            return Some(format!(
                "a packet block claims {length} bytes, more than the {bound} possible"
            ));
        }
        check_packet_length(length as usize, head, captured_len, interface.max_packet).err()
    }
}

impl Format for PcapNg {
    fn parse(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed {
        let mut at = start;
        loop {
            let before = self.big_endian;
            let parsed = if self.big_endian {
                self.blocks::<Big>(memory, at, packets)
            } else {
                self.blocks::<Little>(memory, at, packets)
            };
            at += parsed.consumed;
            if self.big_endian == before {
                if packets.is_empty() && matches!(parsed.next, Next::Deliver) {
                    // An empty batch tells of interfaces; without a section there are none.
                    debug_assert!(self.started);
                }
                return Parsed {
                    consumed: at - start,
                    next: parsed.next,
                };
            }
        }
    }

    fn capture_lost(&self) -> u64 {
        self.lost()
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
}

impl SectionInterface {
    /// What a block says of a packet with a time: the first 28 bytes of enhanced and obsolete packet
    /// blocks differ in the interface's number only.
    #[inline(always)]
    fn timed<O: Order>(
        &self,
        block: &[u8],
        head: &[u8; 28],
        at: usize,
    ) -> Result<PacketDescriptor, String> {
        let captured_len = O::u32(head, 20);
        let end = packet_end(block, 28, captured_len, self.max_packet)?;
        let stamp = u64::from(O::u32(head, 12)) << 32 | u64::from(O::u32(head, 16));
        let mut flags = PacketFlags::default();
        if block.len() > end + 4 {
            flags = packet_flags::<O>(block, end)?;
        }
        Ok(PacketDescriptor {
            time: self.clock.nanos(stamp),
            offset: (at + 28) as u32,
            captured_len,
            wire_len: O::u32(head, 24).max(captured_len),
            interface: self.index,
            link: self.link,
            flags,
            ..PacketDescriptor::default()
        })
    }
}

/// Checks a section header block and returns its length.
fn section_length<O: Order>(rest: &[u8]) -> Result<usize, Next> {
    let length = O::u32(rest, 4);
    if length < 28 || length % 4 != 0 || length > MAX_DESCRIPTION_BYTES {
        return Err(Next::Damaged(format!(
            "a section header claims an impossible length of {length} bytes"
        )));
    }
    let Some(block) = rest.get(..length as usize) else {
        return Err(Next::Need(length as usize));
    };
    closed::<O>(block, SECTION_HEADER, length)?;
    let (major, minor) = (O::u16(block, 12), O::u16(block, 14));
    // 1.2 was written by some programs and means the same as 1.0.
    if major != 1 || !matches!(minor, 0 | 2) {
        return Err(Next::Damaged(format!(
            "pcapng version {major}.{minor} is not supported (1.0 is)"
        )));
    }
    Ok(length as usize)
}

/// Checks that a block ends with the length it began with.
#[inline(always)]
fn closed<O: Order>(block: &[u8], kind: u32, length: u32) -> Result<(), Next> {
    let trailer = O::u32(block, length as usize - 4);
    if trailer != length {
        return Err(Next::Damaged(not_closed(kind, length, trailer)));
    }
    Ok(())
}

#[cold]
fn not_closed(kind: u32, length: u32, trailer: u32) -> String {
    format!(
        "a block of type {kind:#x} says {length} bytes at its beginning and {trailer} at its end"
    )
}

/// Where the padded packet ends in its block.
#[inline(always)]
fn packet_end(block: &[u8], head: usize, captured: u32, max: u32) -> Result<usize, String> {
    check_packet_length(block.len(), head, captured, max)
}

#[inline(always)]
fn check_packet_length(
    block: usize,
    head: usize,
    captured: u32,
    max: u32,
) -> Result<usize, String> {
    let end = head + (captured as usize).next_multiple_of(4);
    if captured > max || end + 4 > block {
        return Err(impossible_packet(block, captured, max));
    }
    Ok(end)
}

#[cold]
fn impossible_packet(block: usize, captured: u32, max: u32) -> String {
    if captured > max {
        format!("a packet claims {captured} captured bytes, more than the {max} possible")
    } else {
        format!("a packet claims {captured} captured bytes in a block of {block}")
    }
}

/// Reads `epb_flags`. Options that do not add up are damage, as for Wireshark.
fn packet_flags<O: Order>(block: &[u8], at: usize) -> Result<PacketFlags, String> {
    let mut flags = PacketFlags::default();
    for (code, value) in options::<O>(block, at)? {
        if code == 2 && value.len() == 4 && O::u32(value, 0) & 3 == 2 {
            flags = flags.with(PacketFlags::OUTGOING);
        }
    }
    Ok(flags)
}

/// The number in eight bytes.
fn long<O: Order>(bytes: &[u8], big_endian: bool) -> u64 {
    let halves = (O::u32(bytes, 0), O::u32(bytes, 4));
    let (high, low) = if big_endian {
        halves
    } else {
        (halves.1, halves.0)
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Iterates over options from `at` to the block's trailer.
fn options<O: Order>(
    block: &[u8],
    at: usize,
) -> Result<impl Iterator<Item = (u16, &[u8])>, String> {
    let area = block.get(at..block.len() - 4).unwrap_or(&[]);
    // One pass that checks, one that reads: the reading one cannot fail.
    let mut check = Options::<O>::new(area);
    for _ in check.by_ref() {}
    if check.broken {
        return Err("an option is longer than its block".to_owned());
    }
    Ok(Options::<O>::new(area))
}

struct Options<'a, O> {
    rest: &'a [u8],
    broken: bool,
    order: std::marker::PhantomData<O>,
}

impl<'a, O> Options<'a, O> {
    fn new(rest: &'a [u8]) -> Options<'a, O> {
        Options {
            rest,
            broken: false,
            order: std::marker::PhantomData,
        }
    }
}

impl<'a, O: Order> Iterator for Options<'a, O> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        // Some writers leave out the end-of-options option, or its four bytes.
        if self.rest.len() < 4 {
            return None;
        }
        let code = O::u16(self.rest, 0);
        let length = usize::from(O::u16(self.rest, 2));
        if code == 0 {
            self.rest = &[];
            return None;
        }
        let Some(value) = self.rest.get(4..4 + length) else {
            self.broken = true;
            self.rest = &[];
            return None;
        };
        let padded = 4 + length.next_multiple_of(4);
        self.rest = self.rest.get(padded..).unwrap_or(&[]);
        Some((code, value))
    }
}

/// Text of an option: up to a NUL, bounded.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    let kept = bytes.get(..MAX_TEXT_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions() {
        let mut clock = Clock::MICROSECONDS;
        assert_eq!(clock.nanos(5), Nanos(5_000));
        clock.set_resolution(9);
        assert_eq!(clock.nanos(5), Nanos(5));
        clock.set_resolution(12);
        assert_eq!(clock.nanos(5_999), Nanos(5));
        clock.set_resolution(0);
        assert_eq!(clock.nanos(5), Nanos(5_000_000_000));
        clock.set_resolution(0x80 | 10);
        assert_eq!(clock.nanos(1536), Nanos(1_500_000_000));
        clock.set_resolution(0x80 | 127);
        assert_eq!(clock.nanos(u64::MAX), Nanos(0));
        clock.set_resolution(0x7f);
        assert_eq!(clock.nanos(u64::MAX), Nanos(1));
        clock.set_resolution(6);
        clock.offset_seconds = -3;
        assert_eq!(clock.nanos(3_000_001), Nanos(1_000));
        assert_eq!(clock.nanos(1), Nanos(0));
        clock.offset_seconds = i64::MAX;
        assert_eq!(clock.nanos(1), Nanos(u64::MAX));
    }
    /// However many are alike: each is looked for once.
    #[test]
    fn interfaces_that_are_alike_are_several_in_a_section_and_the_same_in_the_next() {
        let mut file = PcapNg::default();
        let mut section = |links: &[u16]| -> Vec<u16> {
            file.section.clear();
            file.sections += 1;
            for link in links {
                let mut block = [0; 20];
                block[8..10].copy_from_slice(&link.to_le_bytes());
                file.interface_description::<Little>(&block).unwrap();
            }
            file.section.iter().map(|one| one.index).collect()
        };
        assert_eq!(section(&[1, 1, 101, 1]), [0, 1, 2, 3]);
        assert_eq!(section(&[101, 1, 1]), [2, 0, 1]);
        assert_eq!(section(&[1, 1, 1, 1, 101, 101]), [0, 1, 3, 4, 2, 5]);
        let many = section(&[1; 60_000]).len();
        assert_eq!(many, 60_000);
    }
}
