//! `udpscan`: UDP datagrams.

use flowgauge_stack::{ComponentInfo, ItemType, Output};

use crate::scan::scan;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "udpscan",
    aliases: &["scanudp"],
    summary: "lets UDP datagrams through whose header was captured",
    help: "Fragments are none: they come through once they were put together (ipreass).",
    output: Output::Of(ItemType::Datagram),
    make: |_| Ok(scan(&[17])),
    ..flowgauge_kit::OF_PACKETS
};
