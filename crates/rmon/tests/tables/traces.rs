//! Captures to count.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use flowgauge_generate::{Config, Preset, generate};
use flowgauge_rmon::{Oid, Probe, Tree, Value};
use flowgauge_wire::{
    Batch, DecodedBatch, Decoder, LinkType, Nanos, PacketDescriptor, PacketFlags,
};

use crate::corpora::corpora;

/// A packet as it was captured.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) time: Nanos,
    pub(crate) length: u32,
    pub(crate) link: LinkType,
    pub(crate) tag: Option<u16>,
    pub(crate) bytes: Vec<u8>,
}

/// Generated traces, and some real ones.
pub(crate) fn traces() -> Vec<(String, Vec<u8>)> {
    let presets = [Preset::Mix, Preset::Small, Preset::Zoo];
    let mut traces: Vec<(String, Vec<u8>)> = Vec::new();
    for preset in presets {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(3_000), &mut file).unwrap();
        traces.push((format!("{preset:?}"), file));
    }
    let stride = std::env::var("FLOWGAUGE_STRIDE").map_or(41, |text| text.parse().unwrap());
    for path in captures().into_iter().step_by(stride) {
        if let Some(file) = readable(&path).filter(|file| file.len() < 1 << 20) {
            traces.push((path.display().to_string(), file));
        }
    }
    traces
}

/// A file, if it is a capture.
pub(crate) fn readable(path: &Path) -> Option<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    let opened = flowgauge_capture::open_reader(Cursor::new(file.clone()), "");
    opened.is_ok().then_some(file)
}

/// All captures of the corpora, by their names.
pub(crate) fn captures() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = corpora().into_iter().collect();
    let mut captures = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let is_capture = matches!(extension, Some("pcap" | "pcapng" | "cap" | "trace"));
            match path.is_dir() {
                true => folders.push(path),
                false => captures.extend(Some(path).filter(|_| is_capture)),
            }
        }
    }
    captures.sort();
    captures
}

/// Counts a trace, batch by batch; `between` may look at the probe after each. Tells the packets.
pub(crate) fn count(
    probe: &mut Probe,
    file: &[u8],
    mut between: impl FnMut(&mut Probe, &[Packet]),
) -> Vec<Packet> {
    let mut source = flowgauge_capture::open_reader(Cursor::new(file.to_vec()), "").unwrap();
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    let mut packets = Vec::new();
    // What is damaged ends the trace.
    while let Ok(Some(batch)) = source.next_batch() {
        for (index, frame) in batch.packets.iter().enumerate() {
            packets.push(Packet {
                time: frame.time,
                length: frame.wire_len.max(frame.captured_len),
                link: frame.link,
                tag: frame
                    .flags
                    .contains(PacketFlags::VLAN)
                    .then_some(match frame.vlan_tpid {
                        0 => 0x8100,
                        tag => tag,
                    }),
                bytes: batch.bytes(index).to_vec(),
            });
        }
        decoder.decode_batch(&batch, &mut decoded);
        probe.observe(&batch, &decoded);
        between(probe, &packets);
    }
    packets
}

/// Counts packets as one batch.
pub(crate) fn observe(probe: &mut Probe, packets: &[Packet]) {
    let (mut memory, mut all) = (Vec::new(), Vec::new());
    for packet in packets {
        let flags = PacketFlags::default();
        all.push(PacketDescriptor {
            time: packet.time,
            offset: memory.len() as u32,
            captured_len: packet.bytes.len() as u32,
            wire_len: packet.length,
            link: packet.link,
            vlan_tpid: packet.tag.unwrap_or(0),
            flags: match packet.tag {
                Some(_) => flags.with(PacketFlags::VLAN),
                None => flags,
            },
            ..PacketDescriptor::default()
        });
        memory.extend(&packet.bytes);
    }
    let mut decoded = DecodedBatch::new();
    let batch = Batch::new(&memory, &all);
    Decoder::default().decode_batch(&batch, &mut decoded);
    probe.observe(&batch, &decoded);
}

/// All objects below a name, as a manager walks them.
pub(crate) fn walk(probe: &mut Probe, below: &str) -> Vec<(Oid, Value)> {
    let root: Oid = format!("1.3.6.1.2.1.16.{below}").parse().unwrap();
    let (mut at, mut found) = (root.clone(), Vec::new());
    while let Some((name, value)) = probe.next(&at, false, None) {
        assert!(name > at, "{name} after {at}");
        if !name.starts_with(&root) {
            break;
        }
        at = name.clone();
        found.push((name, value));
    }
    found
}
