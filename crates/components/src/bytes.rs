//! `bytes`: how many bytes came.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, ResultInfo, ResultValue, forked,
    options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "bytes",
    aliases: &["byte_counter"],
    summary: "counts the bytes that pass",
    help: "BYTE_COUNTER of MAPI counts captured bytes, which a snap length makes fewer than the frames had: \
           that is `of = captured`.",
    input: Input::Of(&[ItemType::Packet, ItemType::Chunk]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("bytes so far", "bytes")),
    make: |settings| {
        let of = match Options::read(settings).of {
            "captured" => Of::Captured,
            "ip" => Of::Ip,
            "payload" => Of::Payload,
            _ => Of::Wire,
        };
        Ok(Box::new(Bytes { of, sum: 0 }))
    },
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    of: Choice("wire", "captured", "ip", "payload") = "wire",
        "of packets: frames on the wire, what was captured of them, IP datagrams, or what the transport \
         carries";
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
}

impl Component for Bytes {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        self.sum += match items {
            Items::Packets(packets) => {
                let decoded = packets.iter().map(|(_, packet)| packet);
                match self.of {
                    Of::Wire => decoded.map(|packet| u64::from(packet.wire_len)).sum(),
                    Of::Ip => decoded.map(|packet| u64::from(packet.ip_len)).sum(),
                    Of::Payload => decoded.map(|packet| u64::from(packet.payload_len)).sum(),
                    Of::Captured => decoded
                        .map(|packet| packets.bytes(packet).len() as u64)
                        .sum(),
                }
            }
            Items::Chunks(chunks) => chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum(),
            _ => 0,
        };
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.sum))
    }

    fn reset(&mut self) {
        self.sum = 0;
    }
}
