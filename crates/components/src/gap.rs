//! `gap`: the time between packets.

use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, PacketValues, Parallel, ResultInfo, ResultValue,
    options,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "gap",
    summary: "measures the time between the last two packets",
    help: "0 before the second packet, and if time went backwards.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::per_packet(
        "time between the last two packets",
        "ns",
    )),
    parallel: Parallel::Never("packets on other cores lie between"),
    make: |settings| {
        Ok(Box::new(Gap {
            in_ticks: Options::read(settings).unit == "ticks",
            ..Gap::default()
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    unit: Choice("ns", "ticks") = "ns", "nanoseconds, or 2^-32 seconds as in MAPI";
}

#[derive(Default)]
struct Gap {
    in_ticks: bool,
    last: Option<Nanos>,
    gap: u64,
    values: PacketValues,
}

impl Component for Gap {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            self.values.begin(packets, out);
            for (index, packet) in packets.iter() {
                let before = self.last.replace(packet.time).unwrap_or(packet.time);
                self.gap = match self.in_ticks {
                    true => packet.time.ticks().saturating_sub(before.ticks()),
                    false => packet.time.0.saturating_sub(before.0),
                };
                self.values.set(index, self.gap);
            }
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Last(self.gap))
    }

    fn values(&self) -> Option<&PacketValues> {
        Some(&self.values)
    }

    fn reset(&mut self) {
        self.last = None;
        self.gap = 0;
    }
}
