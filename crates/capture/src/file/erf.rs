//! Endace's extensible record format: records without a file header, recognised heuristically.
//!
//! ```text
//!  time (8, 32.32 fixed point, little endian) | type | flags | rlen (2) | colour or loss (2)
//!  | wlen (2) | extension headers (8 each) | 2 bytes of pad for Ethernet | packet
//! ```

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use crate::file::order::{Big, Order};
use crate::file::source::{Format, Memory, Next, Parsed, each_record};
use crate::source::Interface;

const RECORD_BYTES: usize = 16;
/// Bit of the type that says that extension headers follow, and of each that says that another does.
const MORE_HEADERS: u8 = 0x80;
/// The type of records with metadata of the capture (provenance).
const METADATA: u8 = 27;
/// `LINKTYPE_ERF`: packets that keep their record header, for types without a link type of their own.
const LINK_ERF: u16 = 197;

/// State of reading an ERF file.
#[derive(Default)]
pub(crate) struct Erf {
    interfaces: Vec<Interface>,
    /// Index + 1 of the interface for each of the card's four ports and each kind of link.
    known: Vec<(u8, LinkType, u16)>,
    added: bool,
    /// Records that hold no packet but say something of the capture.
    metadata: u64,
}

/// A record taken apart.
struct Record {
    time: Nanos,
    length: usize,
    /// Where the packet begins in the record, and how many bytes of it there are.
    start: usize,
    captured_len: usize,
    wire_len: u32,
    port: u8,
    /// `None` for padding and metadata.
    link: Option<LinkType>,
    /// Whether it says something of the capture rather than holding a packet.
    is_metadata: bool,
}

impl Erf {
    /// Whether these bytes look like ERF: every record that is wholly in them must, and the times
    /// of the first few must lie within a day of each other.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        let mut at = 0;
        let mut first = None;
        for count in 0..16 {
            let rest = bytes.get(at..).unwrap_or(&[]);
            if rest.is_empty() {
                return count > 0;
            }
            match Record::read(rest) {
                Ok(record) => {
                    let time = record.time.0;
                    let day = 86_400_000_000_000;
                    if record.link.is_some() && time.abs_diff(*first.get_or_insert(time)) > day {
                        return false;
                    }
                    at += record.length;
                }
                Err(Next::Need(_)) => return count > 0,
                Err(_) => return false,
            }
        }
        true
    }

    fn interface(&mut self, port: u8, link: LinkType) -> u16 {
        let found = self.known.iter().find(|one| one.0 == port && one.1 == link);
        if let Some((_, _, index)) = found {
            return *index;
        }
        // Four ports and a handful of link types: cannot overflow.
        let index = self.interfaces.len() as u16;
        self.interfaces.push(Interface {
            name: Some(format!("port{port}")),
            link,
            ..Interface::default()
        });
        self.known.push((port, link, index));
        self.added = true;
        index
    }
}

impl Record {
    /// Takes the record at the beginning of `rest` apart.
    fn read(rest: &[u8]) -> Result<Record, Next> {
        let Some(header) = rest.first_chunk::<RECORD_BYTES>() else {
            return Err(Next::Need(RECORD_BYTES));
        };
        let length = usize::from(Big::u16(header, 10));
        let kind = header[8] & !MORE_HEADERS;
        if !(matches!(kind, 1..=25 | 27..=29 | 48) && length >= RECORD_BYTES) {
            return Err(Next::Damaged(format!(
                "a record of type {kind} and {length} bytes is impossible"
            )));
        }
        if rest.len() < length {
            return Err(Next::Need(length));
        }
        let mut start = RECORD_BYTES;
        let mut more = header[8] & MORE_HEADERS != 0;
        while more {
            let first = rest.get(..length).and_then(|record| record.get(start));
            let Some(first) = first.filter(|_| start + 8 <= length) else {
                return Err(Next::Damaged(
                    "a record's extension headers are longer than the record".to_owned(),
                ));
            };
            more = first & MORE_HEADERS != 0;
            start += 8;
        }
        let after_headers = start;
        // What stands between the headers and the packet, by type: the offset and pad bytes of
        // Ethernet, the channel header of the MC types, the counters of the IP types.
        start += match kind {
            2 | 11 | 16 | 20 => 2,
            5 | 6 | 7 | 8 | 9 | 12 | 17 | 18 => 4,
            _ => 0,
        };
        if start > length {
            return Err(Next::Damaged(format!(
                "a record of type {kind} has no room for its header in {length} bytes"
            )));
        }
        let first = rest.get(start).copied();
        let link = match kind {
            2 | 11 | 16 | 20 => Some(LinkType::ETHERNET),
            // PPP and Cisco HDLC share the type: the address byte tells.
            1 | 5 | 10 | 15 | 17 | 19 if matches!(first, Some(0x0f | 0x8f)) => {
                Some(LinkType::C_HDLC)
            }
            1 | 5 | 10 | 15 | 17 | 19 => Some(LinkType::PPP_HDLC),
            22 => Some(LinkType::IPV4),
            23 => Some(LinkType::IPV6),
            13 | 14 | METADATA | 48 => None,
            _ => Some(LinkType(LINK_ERF)),
        };
        let wire_len = u32::from(Big::u16(header, 14));
        let (start, captured_len, wire_len) = if link == Some(LinkType(LINK_ERF)) {
            let headers = after_headers as u32;
            (0, length, wire_len.saturating_add(headers))
        } else {
            (start, (length - start).min(wire_len as usize), wire_len)
        };
        let stamp = u64::from_le_bytes(*header.first_chunk().unwrap_or(&[0; 8]));
        let fraction = (stamp & 0xffff_ffff) * 1_000_000_000;
        Ok(Record {
            // Rounded, as the card's own tools do: 2^-32 s is a quarter of a nanosecond.
            time: Nanos((stamp >> 32) * 1_000_000_000 + ((fraction + (1 << 31)) >> 32)),
            length,
            start,
            captured_len,
            wire_len: wire_len.max(captured_len as u32),
            port: header[9] & 3,
            link,
            is_metadata: kind == METADATA,
        })
    }
}

impl Format for Erf {
    fn parse(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed {
        each_record(memory, start, packets, |at, packets| {
            let record = Record::read(memory.bytes.get(at..).unwrap_or(&[]))?;
            if let Some(link) = record.link {
                let interface = self.interface(record.port, link);
                if self.added {
                    // Let the consumer ask for the interfaces before it sees their packets.
                    self.added = false;
                    return Err(Next::Deliver);
                }
                packets.push(PacketDescriptor {
                    time: record.time,
                    offset: (at + record.start) as u32,
                    captured_len: record.captured_len as u32,
                    wire_len: record.wire_len,
                    interface,
                    link,
                    ..PacketDescriptor::default()
                });
            }
            self.metadata += u64::from(record.is_metadata);
            Ok(at + record.length)
        })
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn passed_over(&self) -> Option<String> {
        match self.metadata {
            0 => None,
            1 => Some("1 metadata record (ERF type 27) was passed over".to_owned()),
            count => Some(format!(
                "{count} metadata records (ERF type 27) were passed over"
            )),
        }
    }
}
