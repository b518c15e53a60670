//! Stacks that run over packets that the tests make.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test uses a part

use std::io::Cursor;

use flowgauge_capture::{PacketSource, open_reader};
use flowgauge_registry::registry;
use flowgauge_stack::{Graph, Program, Registry, ResultValue, Sources, Stack, Table, check, parse};
use flowgauge_wire::{
    Batch, DecodeOptions, DecodedBatch, Decoder, LinkType, Nanos, PacketDescriptor, hash_batch,
};

/// The program of a text, or what is wrong with it.
pub fn program(text: &str) -> Result<Program, String> {
    program_of(text, registry())
}

fn program_of(text: &str, components: &Registry) -> Result<Program, String> {
    let mut sources = Sources::default();
    let file = sources.add("test", text).expect("room");
    let document = parse(&sources, file).map_err(|error| error.show(&sources).to_string())?;
    let checked = check(&document, components);
    let said = checked.diagnostics.iter();
    let said: Vec<String> = said.map(|found| found.show(&sources).to_string()).collect();
    checked.program.ok_or_else(|| said.join("\n"))
}

/// A stack that runs, fed by hand.
pub struct Run {
    pub stack: Stack,
    pub graph: Graph,
    pub decoder: Decoder,
    pub decoded: DecodedBatch,
    pub now: Nanos,
}

impl Run {
    pub fn new(text: &str) -> Run {
        Run::with(text, registry())
    }

    /// With other components than those of the program.
    pub fn with(text: &str, components: &Registry) -> Run {
        let program = program_of(text, components).unwrap_or_else(|error| panic!("{error}"));
        let stack = program.stacks.into_iter().next().expect("one stack");
        let mut graph = Graph::new(&stack).expect("the checker made one, too");
        graph.start().expect("it can begin");
        Run {
            stack,
            graph,
            decoder: Decoder::new(DecodeOptions::default()),
            decoded: DecodedBatch::new(),
            now: Nanos(0),
        }
    }

    pub fn batch(&mut self, batch: &Batch<'_>) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        hash_batch(&mut self.decoded.packets);
        let last = batch.packets.iter().map(|packet| packet.time).max();
        self.now = self.now.max(last.unwrap_or_default());
        let result = self.graph.process(batch, &self.decoded, self.now);
        result.expect("no component fails");
    }

    /// Raw IP packets, a second apart, in batches of `size`.
    pub fn packets(&mut self, packets: &[Vec<u8>], size: usize) {
        for packets in packets.chunks(size) {
            let mut memory = Vec::new();
            let mut descriptors = Vec::new();
            for packet in packets {
                self.now = Nanos(self.now.0 + 1_000_000_000);
                descriptors.push(PacketDescriptor {
                    time: self.now,
                    offset: memory.len() as u32,
                    captured_len: packet.len() as u32,
                    wire_len: packet.len() as u32,
                    link: LinkType::RAW,
                    ..PacketDescriptor::default()
                });
                memory.extend_from_slice(packet);
            }
            self.batch(&Batch::new(&memory, &descriptors));
        }
    }

    pub fn source(&mut self, source: &mut dyn PacketSource) {
        while let Some(batch) = source.next_batch().expect("it is whole") {
            self.batch(&batch);
        }
    }

    /// A trace as it lies in a file, to its end.
    pub fn trace(&mut self, trace: &[u8]) {
        let mut source = open_reader(Cursor::new(trace.to_vec()), "test").expect("a trace");
        self.source(&mut *source);
        self.finish();
    }

    pub fn finish(&mut self) {
        self.graph.finish().expect("no component fails");
    }

    pub fn result(&self, label: &str) -> u64 {
        let id = self
            .stack
            .find(label)
            .unwrap_or_else(|| panic!("no {label}"));
        match self.graph.result(id) {
            Some(ResultValue::Sum(value) | ResultValue::Last(value)) => value,
            other => panic!("{label}: {other:?}"),
        }
    }

    pub fn difference(&self, label: &str) -> i64 {
        let id = self.stack.find(label).expect("it is there");
        match self.graph.result(id) {
            Some(ResultValue::Difference(value)) => value,
            other => panic!("{label}: {other:?}"),
        }
    }

    pub fn table(&self, label: &str) -> Table {
        let id = self.stack.find(label).expect("it is there");
        match self.graph.result(id) {
            Some(ResultValue::Table(table)) => table,
            other => panic!("{label}: {other:?}"),
        }
    }

    /// One packet of a link type, cut to `captured` bytes.
    pub fn frame(&mut self, link: LinkType, frame: &[u8], captured: usize) {
        self.now = Nanos(self.now.0 + 1_000_000_000);
        let bytes = &frame[..captured.min(frame.len())];
        let descriptor = PacketDescriptor {
            time: self.now,
            captured_len: bytes.len() as u32,
            wire_len: frame.len() as u32,
            link,
            ..PacketDescriptor::default()
        };
        self.batch(&Batch::new(bytes, &[descriptor]));
    }

    /// Raw IP packets at these times, in one batch.
    pub fn at(&mut self, packets: &[(u64, Vec<u8>)]) {
        self.of_link_at(LinkType::RAW, packets);
    }

    /// Raw IP packets at these times, with the clock at `now`.
    pub fn graph_at(&mut self, packets: &[(u64, Vec<u8>)], now: u64) {
        for (time, packet) in packets {
            let descriptor = PacketDescriptor {
                time: Nanos(*time),
                captured_len: packet.len() as u32,
                wire_len: packet.len() as u32,
                link: LinkType::RAW,
                ..PacketDescriptor::default()
            };
            let descriptors = [descriptor];
            let batch = Batch::new(packet, &descriptors);
            self.decoder.decode_batch(&batch, &mut self.decoded);
            hash_batch(&mut self.decoded.packets);
            let result = self.graph.process(&batch, &self.decoded, Nanos(now));
            result.expect("no component fails");
        }
    }

    /// Ethernet frames at these times, in one batch.
    pub fn ethernet_at(&mut self, frames: &[(u64, Vec<u8>)]) {
        self.of_link_at(LinkType::ETHERNET, frames);
    }

    fn of_link_at(&mut self, link: LinkType, packets: &[(u64, Vec<u8>)]) {
        let mut memory = Vec::new();
        let mut descriptors = Vec::new();
        for (time, packet) in packets {
            descriptors.push(PacketDescriptor {
                time: Nanos(*time),
                offset: memory.len() as u32,
                captured_len: packet.len() as u32,
                wire_len: packet.len() as u32,
                link,
                ..PacketDescriptor::default()
            });
            memory.extend_from_slice(packet);
        }
        self.batch(&Batch::new(&memory, &descriptors));
    }
}

/// An IPv4 packet of a second host that answers the first.
pub fn answer(mut packet: Vec<u8>) -> Vec<u8> {
    let addresses: Vec<u8> = packet[12..20].to_vec();
    packet[12..16].copy_from_slice(&addresses[4..]);
    packet[16..20].copy_from_slice(&addresses[..4]);
    packet
}

/// An IPv6 packet without extension headers.
pub fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend_from_slice(payload);
    packet
}

/// An Ethernet frame, with a VLAN tag where there is an id.
pub fn ethernet(vlan: Option<u16>, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    let ether_type: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    frame.extend(ether_type.to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

/// An IPv4 packet, or a piece of one: offset in bytes, whether more follow.
pub fn ipv4(protocol: u8, id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    packet.extend([64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    packet.extend_from_slice(payload);
    packet
}

pub fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(from.to_be_bytes());
    datagram.extend(to.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend_from_slice(payload);
    datagram
}

pub fn tcp(from: u16, to: u16) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(from.to_be_bytes());
    segment.extend(to.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    segment
}

/// A segment of a connection from 192.0.2.1:`from` to 198.51.100.7:`to`, or of the answers.
pub fn segment(from: u16, to: u16, position: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = tcp(from, to);
    segment[4..8].copy_from_slice(&(1000 + position).to_be_bytes());
    segment[13] = flags;
    segment.extend_from_slice(payload);
    ipv4(6, 1, 0, false, &segment)
}

/// The records that a stack in front of an `output` gives for a trace.
pub fn records_of(text: &str, trace: &[u8]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let stack = format!("[stack] {text} output {{ {} }}", path.display());
    Run::new(&stack).trace(trace);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

/// The records of a stack for raw IP packets at these times.
pub fn records(stack: &str, packets: &[(u64, Vec<u8>)]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let mut run = Run::new(&format!("[stack] {stack} output {{ {} }}", path.display()));
    packets.chunks(100).for_each(|batch| run.at(batch));
    run.finish();
    let text = std::fs::read_to_string(&path).expect("records");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}
