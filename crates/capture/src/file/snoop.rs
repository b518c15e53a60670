//! Snoop, the capture format of Solaris (RFC 1761). Always big endian.

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use crate::file::order::{Big, Order};
use crate::file::pcap::max_packet_bytes;
use crate::file::source::{Format, Memory, Next, Parsed, each_record};
use crate::source::Interface;

/// What a snoop file begins with.
pub(crate) const MAGIC: &[u8; 8] = b"snoop\0\0\0";
/// Length of the file header.
pub(crate) const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 24;
/// Records are padded; no writer adds more than this.
const MAX_PADDING: u32 = 4096;

/// A snoop file's records.
pub(crate) struct Snoop {
    interfaces: [Interface; 1],
    link: LinkType,
    max_packet: u32,
}

impl Snoop {
    /// From the file header.
    pub(crate) fn new(header: &[u8]) -> Result<Snoop, String> {
        // 3 to 5 are Shomiti's and Finisar's hardware; their records are the same.
        let version = Big::u32(header, 8);
        if !(2..=5).contains(&version) {
            return Err(format!(
                "snoop version {version} is not supported (2 is usual)"
            ));
        }
        let datalink = Big::u32(header, 12);
        let link = link_type(datalink)
            .ok_or_else(|| format!("snoop data link type {datalink} is not supported"))?;
        Ok(Snoop {
            interfaces: [Interface {
                link,
                ..Interface::default()
            }],
            link,
            max_packet: max_packet_bytes(link, 0),
        })
    }
}

/// The registry's number for a data link type of RFC 1761 or `<sys/dlpi.h>`.
fn link_type(datalink: u32) -> Option<LinkType> {
    Some(LinkType(match datalink {
        // IEEE 802.3, Ethernet, 100BaseT.
        0 | 4 | 0x17 | 0x18 | 0x19 => 1,
        // Token ring.
        2 => 6,
        // FDDI.
        8 => 10,
        // ATM as Sun's drivers hand it up.
        0x12 => 123,
        // IP over InfiniBand.
        0x1a => 242,
        // Raw IPv4 and IPv6.
        0x8000_0001 => 228,
        0x8000_0002 => 229,
        // IP observability devices.
        0x8000_0003 | 0x8000_0004 => 226,
        _ => return None,
    }))
}

impl Format for Snoop {
    fn parse(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed {
        each_record(memory, start, packets, |at, packets| {
            let rest = memory.bytes.get(at..).unwrap_or(&[]);
            let Some(header) = rest.first_chunk::<RECORD_BYTES>() else {
                return Err(Next::Need(RECORD_BYTES));
            };
            let wire_len = Big::u32(header, 0);
            let captured_len = Big::u32(header, 4);
            let record_len = Big::u32(header, 8);
            if captured_len > self.max_packet {
                return Err(Next::Damaged(format!(
                    "a packet claims {captured_len} captured bytes, more than the {} possible",
                    self.max_packet
                )));
            }
            let least = captured_len + RECORD_BYTES as u32;
            if record_len < least || record_len - least > MAX_PADDING {
                return Err(Next::Damaged(format!(
                    "a record of {record_len} bytes claims a packet of {captured_len}"
                )));
            }
            if record_len as usize > rest.len() {
                return Err(Next::Need(record_len as usize));
            }
            packets.push(PacketDescriptor {
                time: Nanos(
                    u64::from(Big::u32(header, 16)) * 1_000_000_000
                        + u64::from(Big::u32(header, 20)) * 1000,
                ),
                offset: (at + RECORD_BYTES) as u32,
                captured_len,
                wire_len: wire_len.max(captured_len),
                link: self.link,
                ..PacketDescriptor::default()
            });
            Ok(at + record_len as usize)
        })
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
}
