//! The classic pcap format (draft-ietf-opsawg-pcap) and its relatives.
//!
//! | magic | what |
//! |---|---|
//! | `a1b2c3d4` | microseconds |
//! | `a1b23c4d` | nanoseconds |
//! | `a1b2cd34` | "modified" (Kuznetzov): 24-byte record headers |
//! | `a12b3c4d` | Navtel, as microseconds |
//! | `1c0001ac`, `1c0001ab` | IXIA hardware and software: nanoseconds, 28-byte file header |
//!
//! each in both byte orders.

use std::marker::PhantomData;

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use crate::file::order::{Big, Little, Order};
use crate::file::source::{
    Format, MAX_PACKET_BYTES, MAX_SNAP_LEN, Memory, Next, Parsed, each_record,
};
use crate::source::Interface;

/// Length of the usual file header.
pub(crate) const HEADER_BYTES: usize = 24;

/// A pcap file's records in byte order `O`.
pub(crate) struct Pcap<O> {
    interfaces: [Interface; 1],
    link: LinkType,
    /// Nanoseconds per unit of the fraction.
    unit_ns: u64,
    record_bytes: usize,
    max_packet: u32,
    lengths: Lengths,
    order: PhantomData<O>,
}

/// Some old writers exchanged the two lengths of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    AsDocumented,
    Exchanged,
    /// Version 2.3: some did, some did not; the captured length is the smaller one.
    Either,
}

/// What the first bytes of a file say about it.
pub(crate) enum Opened {
    /// Not pcap.
    Other,
    /// pcap, in one of the orders; the second value is the length of the file header.
    Little(Pcap<Little>, usize),
    /// The same, most significant byte first.
    Big(Pcap<Big>, usize),
    /// pcap that is refused, and why.
    Refused(String),
    /// pcap that ends inside its header.
    Short,
}

/// Looks at the beginning of a file.
pub(crate) fn open(bytes: &[u8]) -> Opened {
    let Some(magic) = bytes.first_chunk::<4>() else {
        return Opened::Other;
    };
    let little = Variant::of(u32::from_le_bytes(*magic));
    let big = Variant::of(u32::from_be_bytes(*magic));
    let opened = match (little, big) {
        (Some(variant), _) => Pcap::new(bytes, variant).map(|pcap| {
            let length = variant.header_bytes();
            Opened::Little(pcap, length)
        }),
        (None, Some(variant)) => Pcap::new(bytes, variant).map(|pcap| {
            let length = variant.header_bytes();
            Opened::Big(pcap, length)
        }),
        (None, None) => return Opened::Other,
    };
    match opened {
        Ok(opened) => opened,
        Err(Some(reason)) => Opened::Refused(reason),
        Err(None) => Opened::Short,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Micro,
    Nano,
    Modified,
    Ixia,
}

impl Variant {
    fn of(magic: u32) -> Option<Variant> {
        match magic {
            0xa1b2_c3d4 | 0xa12b_3c4d => Some(Variant::Micro),
            0xa1b2_3c4d => Some(Variant::Nano),
            0xa1b2_cd34 => Some(Variant::Modified),
            0x1c00_01ac | 0x1c00_01ab => Some(Variant::Ixia),
            _ => None,
        }
    }

    fn header_bytes(self) -> usize {
        match self {
            Variant::Ixia => HEADER_BYTES + 4,
            _ => HEADER_BYTES,
        }
    }
}

impl<O: Order> Pcap<O> {
    /// From the file header; `Err(None)` when it is cut off.
    fn new(bytes: &[u8], variant: Variant) -> Result<Pcap<O>, Option<String>> {
        if bytes.len() < variant.header_bytes() {
            return Err(None);
        }
        let (major, minor) = (O::u16(bytes, 4), O::u16(bytes, 6));
        let lengths = match (major, minor) {
            // 543.0 is what DG/UX tcpdump wrote.
            (2, 0..=2) | (543, 0) => Lengths::Exchanged,
            (2, 3) => Lengths::Either,
            (2, 4) => Lengths::AsDocumented,
            _ => {
                return Err(Some(format!(
                    "pcap version {major}.{minor} is not supported (2.4 is usual)"
                )));
            }
        };
        let network = O::u32(bytes, 20);
        if network & 0x03ff_0000 != 0 {
            return Err(Some(format!(
                "reserved bits are set in the link type field {network:#010x}"
            )));
        }
        let link = LinkType::from_file(network as u16);
        let snap_len = O::u32(bytes, 16);
        let max_packet = max_packet_bytes(link, snap_len);
        Ok(Pcap {
            interfaces: [Interface {
                link,
                snap_len,
                ..Interface::default()
            }],
            link,
            unit_ns: match variant {
                Variant::Nano | Variant::Ixia => 1,
                Variant::Micro | Variant::Modified => 1000,
            },
            record_bytes: if variant == Variant::Modified { 24 } else { 16 },
            max_packet,
            lengths,
            order: PhantomData,
        })
    }

    #[cold]
    fn corrected(&self, first: u32, second: u32) -> (u32, u32) {
        match self.lengths {
            Lengths::AsDocumented => (first, second),
            Lengths::Exchanged => (second, first),
            Lengths::Either => (first.min(second), first.max(second)),
        }
    }
}

/// The longest packet believed of a file with this link type and snap length. USB and D-Bus
/// messages may be 128 MB long; the read buffer grows only as they really arrive.
pub(crate) fn max_packet_bytes(link: LinkType, snap_len: u32) -> u32 {
    match link.0 {
        // D-Bus, USB (Linux, Linux mapped, Darwin, pcap), EBHSCR.
        231 | 189 | 220 | 249 | 266 | 279 => 128 << 20,
        _ => snap_len.clamp(MAX_PACKET_BYTES, MAX_SNAP_LEN),
    }
}

impl<O: Order> Format for Pcap<O> {
    fn parse(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed {
        each_record(memory, start, packets, |at, packets| {
            let Some(header) = memory
                .bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk::<16>())
            else {
                return Err(Next::Need(self.record_bytes));
            };
            let seconds = O::u32(header, 0);
            let fraction = O::u32(header, 4);
            let mut captured_len = O::u32(header, 8);
            let mut wire_len = O::u32(header, 12);
            if self.lengths != Lengths::AsDocumented {
                (captured_len, wire_len) = self.corrected(captured_len, wire_len);
            }
            if captured_len > self.max_packet {
                return Err(Next::Damaged(format!(
                    "a packet claims {captured_len} captured bytes, more than the {} possible",
                    self.max_packet
                )));
            }
            let offset = at + self.record_bytes;
            let end = offset + captured_len as usize;
            if end > memory.bytes.len() {
                return Err(Next::Need(end - at));
            }
            packets.push(PacketDescriptor {
                time: Nanos(
                    u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
                ),
                offset: offset as u32,
                captured_len,
                wire_len: wire_len.max(captured_len),
                link: self.link,
                ..PacketDescriptor::default()
            });
            Ok(end)
        })
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
}
