//! A minimal reader of pcap and pcapng files, so that these tests need no other crate's.

#[path = "../../../../../tests/shared/corpora.rs"]
mod corpora;

use flowgauge_wire::{Batch, Decoded, DecodedBatch, Decoder, LinkType, PacketDescriptor};
use std::path::{Path, PathBuf};

pub(crate) use corpora::corpora;

/// One packet of a capture.
pub(crate) struct Packet {
    pub(crate) link: LinkType,
    pub(crate) wire_len: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Every capture file below `folder`.
pub(crate) fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| {
                ["pcap", "pcapng", "cap", "trace", "ntar"]
                    .iter()
                    .any(|known| extension == *known)
            }) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The packets of a file; empty when it is neither pcap nor pcapng, fewer when it is damaged.
pub(crate) fn read(path: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut packets = Vec::new();
    let magic = bytes.first_chunk::<4>().map(|m| u32::from_le_bytes(*m));
    let _ = match magic {
        Some(0xa1b2_c3d4 | 0xa1b2_3c4d) => pcap(&bytes, u32::from_le_bytes, &mut packets),
        Some(0xd4c3_b2a1 | 0x4d3c_b2a1) => pcap(&bytes, u32::from_be_bytes, &mut packets),
        Some(0x0a0d_0d0a) => pcapng(&bytes, &mut packets),
        _ => None,
    };
    packets
}

fn pcap(bytes: &[u8], number: fn([u8; 4]) -> u32, packets: &mut Vec<Packet>) -> Option<()> {
    let field = |at: usize| Some(number(*bytes.get(at..)?.first_chunk()?));
    let link = LinkType::from_file(field(20)? as u16);
    let mut at = 24;
    loop {
        let (captured, wire_len) = (field(at + 8)?, field(at + 12)?);
        at += 16;
        let data = bytes.get(at..at + captured as usize)?;
        packets.push(Packet {
            link,
            wire_len: wire_len.max(captured),
            bytes: data.to_vec(),
        });
        at += captured as usize;
    }
}

fn pcapng(bytes: &[u8], packets: &mut Vec<Packet>) -> Option<()> {
    let mut little = true;
    let mut links = Vec::new();
    let mut at = 0;
    loop {
        let kind = bytes.get(at..)?.first_chunk::<4>()?;
        if kind == &[0x0a, 0x0d, 0x0d, 0x0a] {
            little = bytes.get(at + 8)? == &0x4d;
            links.clear();
        }
        let field = |at: usize| {
            let four = *bytes.get(at..)?.first_chunk::<4>()?;
            Some(if little {
                u32::from_le_bytes(four)
            } else {
                u32::from_be_bytes(four)
            })
        };
        let half = |at: usize| {
            let two = *bytes.get(at..)?.first_chunk::<2>()?;
            Some(if little {
                u16::from_le_bytes(two)
            } else {
                u16::from_be_bytes(two)
            })
        };
        let length = field(at + 4)? as usize;
        if length < 12 {
            return None;
        }
        let packet = match field(at)? {
            1 => {
                links.push(LinkType::from_file(half(at + 8)?));
                None
            }
            3 => Some((0, length - 16, field(at + 8)?, at + 12)),
            6 => Some((
                field(at + 8)? as usize,
                field(at + 20)? as usize,
                field(at + 24)?,
                at + 28,
            )),
            _ => None,
        };
        if let Some((interface, captured, wire_len, start)) = packet
            && let Some(&link) = links.get(interface)
        {
            let captured = captured.min(wire_len as usize);
            packets.push(Packet {
                link,
                wire_len,
                bytes: bytes.get(start..start + captured)?.to_vec(),
            });
        }
        at += length;
    }
}

/// Decodes one packet.
pub(crate) fn decode(
    decoder: &mut Decoder,
    link: LinkType,
    bytes: &[u8],
    wire_len: u32,
    out: &mut DecodedBatch,
) -> Decoded {
    let descriptor = PacketDescriptor {
        captured_len: bytes.len() as u32,
        wire_len,
        link,
        ..PacketDescriptor::default()
    };
    decoder.decode_batch(&Batch::new(bytes, &[descriptor]), out);
    assert_eq!(out.packets.len(), 1);
    out.packets[0]
}
