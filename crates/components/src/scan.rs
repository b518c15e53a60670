//! `tcpscan`, `udpscan`, `icmpscan`: packets whose transport header was captured.

use flowgauge_stack::{Component, ComponentInfo, ItemType, Output};
use flowgauge_wire::DecodeFlags;

use crate::per_packet::only;

/// What they have in common.
const SCAN: ComponentInfo = ComponentInfo {
    help: "Fragments do not pass until they are reassembled (ipreass).",
    output: Output::Of(ItemType::Datagram),
    ..ComponentInfo::OF_PACKETS
};

pub(crate) static TCP: ComponentInfo = ComponentInfo {
    name: "tcpscan",
    aliases: &["scantcp"],
    summary: "selects TCP segments whose header was captured",
    output: Output::Of(ItemType::Segment),
    make: |_| Ok(scan(&[6])),
    ..SCAN
};

pub(crate) static UDP: ComponentInfo = ComponentInfo {
    name: "udpscan",
    aliases: &["scanudp"],
    summary: "selects UDP datagrams whose header was captured",
    make: |_| Ok(scan(&[17])),
    ..SCAN
};

pub(crate) static ICMP: ComponentInfo = ComponentInfo {
    name: "icmpscan",
    aliases: &["scanicmp"],
    summary: "selects ICMP and ICMPv6 messages whose header was captured",
    make: |_| Ok(scan(&[1, 58])),
    ..SCAN
};

/// Lets packets of these IP protocols through, whole datagrams only.
fn scan(protocols: &'static [u8]) -> Box<dyn Component> {
    only(move |_, packet| {
        protocols.contains(&packet.key.protocol)
            && packet.flags.contains(DecodeFlags::TRANSPORT)
            && !packet.flags.contains(DecodeFlags::FRAGMENT)
    })
}
