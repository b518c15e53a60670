//! `count`: how many packets, or other items, came.

use flowgauge_stack::{
    Component, ComponentInfo, Input, Items, Outlet, PacketValues, ResultInfo, ResultValue, forked,
    options,
};

use crate::per_packet::values::{self, VALUES};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "count",
    aliases: &["pkt_counter"],
    summary: "counts the items that pass",
    help: "A reassembled datagram counts once.",
    input: Input::Any,
    is_end: true,
    decodes: |_| true,
    result: Some(ResultInfo::number("items so far", "items")),
    options: Options::ALL,
    sequential: values::sequential,
    make: |settings| {
        Ok(Box::new(Count {
            sum: 0,
            values: values::of(settings),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [VALUES];
}

#[derive(Clone)]
struct Count {
    sum: u64,
    /// After each packet.
    values: Option<PacketValues>,
}

impl Component for Count {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let (Some(values), Items::Packets(packets)) = (&mut self.values, &*items) {
            values::fill(values, packets, out, self.sum, |_| 1);
        }
        self.sum += items.len() as u64;
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
