//! `count`: how many packets, or other items, came.

use flowgauge_stack::{
    Component, ComponentInfo, Input, Items, Outlet, ResultInfo, ResultValue, forked,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "count",
    aliases: &["pkt_counter"],
    summary: "counts the items that pass",
    help: "A datagram that was put together from fragments counts once.",
    input: Input::Any,
    is_end: true,
    decodes: true,
    result: Some(ResultInfo::number("items so far", "items")),
    make: |_| Ok(Box::new(Count(0))),
    ..flowgauge_kit::OF_PACKETS
};

#[derive(Clone)]
struct Count(u64);

impl Component for Count {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        self.0 += items.len() as u64;
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.0))
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}
