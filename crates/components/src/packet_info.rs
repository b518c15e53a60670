//! `packet_info`: size or time of each packet.

use flowgauge_stack::{
    Component, ComponentInfo, Items, OptionInfo, OptionKind, Outlet, PacketValues, Parallel,
    ResultInfo, ResultValue,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "packet_info",
    aliases: &["pktinfo"],
    summary: "tells the size or the time of each packet",
    is_end: true,
    options: &[OptionInfo::new(
        "info",
        OptionKind::Choice(&["size", "captured", "time", "0", "1"]),
        "size on the wire, bytes captured, or capture time in nanoseconds since 1970; MAPI's numbers: \
         0 is time, 1 is size",
    )
    .or("size")],
    result: Some(ResultInfo::per_packet("of the last packet", "bytes or ns")),
    parallel: Parallel::Never("its result is that of the last packet"),
    make: |settings| {
        Ok(Box::new(PacketInfo {
            info: match settings.text("info") {
                Some("captured") => Info::Captured,
                Some("time" | "0") => Info::Time,
                _ => Info::Size,
            },
            last: 0,
            values: PacketValues::default(),
        }))
    },
    ..crate::OF_PACKETS
};

#[derive(Clone, Copy)]
enum Info {
    Size,
    Captured,
    Time,
}

struct PacketInfo {
    info: Info,
    last: u64,
    values: PacketValues,
}

impl Component for PacketInfo {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        self.values.begin(packets, out);
        for (index, packet) in packets.iter() {
            self.last = match self.info {
                Info::Size => u64::from(packet.wire_len),
                Info::Captured => packets.bytes(packet).len() as u64,
                Info::Time => packet.time.0,
            };
            self.values.set(index, self.last);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Last(self.last))
    }

    fn values(&self) -> Option<&PacketValues> {
        Some(&self.values)
    }

    fn reset(&mut self) {
        self.last = 0;
    }
}
