//! `bytes`: how many bytes came.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, PacketValues, Packets, ResultInfo,
    ResultValue, forked, options,
};
use flowgauge_wire::Decoded;

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
    make: |settings| {
        let of = match Options::read(settings).of {
            "captured" => Of::Captured,
            "ip" => Of::Ip,
            "payload" => Of::Payload,
            _ => Of::Wire,
        };
        Ok(Box::new(Bytes {
            of,
            sum: 0,
            values: values::of(settings),
        }))
    },
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    of: Choice("wire", "captured", "ip", "payload") = "wire",
        "of packets: frames on the wire, what was captured of them, IP datagrams, or what the transport \
         carries";
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
