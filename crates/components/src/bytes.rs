//! `bytes`: how many bytes came.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, PacketValues, Packets, ResultInfo,
    ResultValue, Settings, forked, options,
};
use flowgauge_wire::{Decoded, PacketDescriptor};

use crate::per_packet::values::{self, VALUES};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "bytes",
    aliases: &["byte_counter"],
    summary: "counts the bytes that pass",
    input: Input::Of(&[ItemType::Packet, ItemType::Chunk]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("bytes so far", "bytes")),
    sequential: values::sequential,
    decodes: |settings| {
        matches!(Of::new(settings), Of::Wire | Of::Captured) && values::of(settings).is_none()
    },
    make: |settings| {
        Ok(Box::new(Bytes {
            of: Of::new(settings),
            sum: 0,
            values: values::of(settings),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    of: Choice("wire", "captured", "ip", "payload") = "wire",
        "which bytes of packets: frames on the wire, captured bytes, IP datagrams, or transport payload";
    [VALUES];
}

#[derive(Clone, Copy)]
enum Of {
    Wire,
    Captured,
    Ip,
    Payload,
}

#[derive(Clone)]
struct Bytes {
    of: Of,
    sum: u64,
    /// After each packet.
    values: Option<PacketValues>,
}

impl Of {
    fn new(settings: &Settings) -> Of {
        match Options::read(settings).of {
            "captured" => Of::Captured,
            "ip" => Of::Ip,
            "payload" => Of::Payload,
            _ => Of::Wire,
        }
    }

    /// Of a packet that nobody has decoded.
    fn frame(self, packet: &PacketDescriptor) -> u64 {
        match self {
            Of::Captured => packet.captured_len.into(),
            _ => packet.wire_len.max(packet.captured_len).into(),
        }
    }

    #[inline]
    fn packet(self, packets: &Packets<'_>, packet: &Decoded) -> u64 {
        match self {
            Of::Wire => packet.wire_len.into(),
            Of::Ip => packet.ip_len.into(),
            Of::Payload => packet.payload_len.into(),
            Of::Captured => packets.bytes(packet).len() as u64,
        }
    }
}

impl Component for Bytes {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let of = self.of;
        self.sum += match items {
            Items::Packets(packets) => {
                if let Some(values) = &mut self.values {
                    let bytes = |packet: &Decoded| of.packet(packets, packet);
                    values::fill(values, packets, out, self.sum, bytes);
                }
                let decoded = packets.iter().map(|(_, packet)| packet);
                match of {
                    _ if packets.decoded.packets.is_empty() => {
                        let frames = packets.selected.iter();
                        let frames = frames.filter_map(|at| packets.batch.packets.get(at));
                        frames.map(|frame| of.frame(frame)).sum()
                    }
                    // Each in a loop of its own.
                    Of::Wire => decoded.map(|it| Of::Wire.packet(packets, it)).sum(),
                    Of::Ip => decoded.map(|it| Of::Ip.packet(packets, it)).sum(),
                    Of::Payload => decoded.map(|it| Of::Payload.packet(packets, it)).sum(),
                    Of::Captured => decoded.map(|it| Of::Captured.packet(packets, it)).sum(),
                }
            }
            Items::Chunks(chunks) => chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum(),
            _ => 0,
        };
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.sum))
    }

    fn values(&self) -> Option<&PacketValues> {
        self.values.as_ref()
    }

    fn reset(&mut self) {
        self.sum = 0;
    }
}
