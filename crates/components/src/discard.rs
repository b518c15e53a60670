//! `discard`: the end of what is not wanted.

use flowgauge_stack::{Component, ComponentInfo, Input, Items, Outlet, Output, forked};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "discard",
    summary: "discards everything",
    input: Input::Any,
    output: Output::Nothing,
    is_end: true,
    decodes: |_| true,
    make: |_| Ok(Box::new(Discard)),
    ..ComponentInfo::OF_PACKETS
};

#[derive(Clone)]
struct Discard;

impl Component for Discard {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        items.clear();
    }
}
