//! `icmpscan`: ICMP messages.

use flowgauge_stack::{ComponentInfo, ItemType, Output};

use crate::scan::scan;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "icmpscan",
    aliases: &["scanicmp"],
    summary: "lets ICMP and ICMPv6 messages through whose header was captured",
    help: "Fragments are none: they come through once they were put together (ipreass).",
    output: Output::Of(ItemType::Datagram),
    make: |_| Ok(scan(&[1, 58])),
    ..flowgauge_kit::OF_PACKETS
};
