//! `packet_info`: size or time of each packet.

use flowgauge_stack::{ComponentInfo, ResultInfo, options};

use crate::per_packet::{OF_EACH_PACKET, each};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "packet_info",
    aliases: &["pktinfo"],
    summary: "reports the size or the time of each packet",
    options: Options::ALL,
    result: Some(ResultInfo::per_packet("of the last packet", "bytes or ns")),
    make: |settings| {
        Ok(match Options::read(settings).info {
            "captured" => each(|packets, packet| Some(packets.bytes(packet).len() as u64)),
            "time" => each(|_, packet| Some(packet.time.0)),
            "ticks" | "0" => each(|_, packet| Some(packet.time.ticks())),
            _ => each(|_, packet| Some(u64::from(packet.wire_len))),
        })
    },
    ..OF_EACH_PACKET
};

options! {
    struct Options;
    info: Choice("size", "captured", "time", "ticks", "0", "1") = "size",
        "size on the wire, bytes captured, or capture time since 1970 in nanoseconds or 2^-32 seconds (ticks); \
         MAPI's numbers: 0 is ticks, 1 is size";
}
