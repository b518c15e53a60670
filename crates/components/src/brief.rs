//! `brief`: any record as a line for people.

use flowgauge_record::brief::{BRIEF_SCHEMA, Brief};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, RecordItem,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "brief",
    summary: "reduces records of any kind to a few common fields",
    help: "Time, addresses, ports, kind, latency, and a text with what tables show of the other fields: \
           records of many kinds fit in one table.",
    input: Input::Of(&[ItemType::Record]),
    output: Output::Of(ItemType::Record),
    fields: |_| Some(BRIEF_SCHEMA),
    make: |_| Ok(Box::new(Shorten::default())),
    ..flowgauge_kit::OF_PACKETS
};

#[derive(Default)]
struct Shorten {
    /// Used again for each record.
    brief: Brief,
}

impl Component for Shorten {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                self.brief.assign(item.record);
                out.emit(Items::Records(&[RecordItem {
                    record: &self.brief,
                    ..*item
                }]));
            }
        }
        items.clear();
    }
}
