//! `tcpscan`: TCP segments.

use flowgauge_stack::{ComponentInfo, ItemType, Output};

use crate::scan::scan;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpscan",
    aliases: &["scantcp"],
    summary: "lets TCP segments through whose header was captured",
    help: "Fragments are none: they come through once they were put together (ipreass).",
    output: Output::Of(ItemType::Segment),
    make: |_| Ok(scan(&[6])),
    ..flowgauge_kit::OF_PACKETS
};
