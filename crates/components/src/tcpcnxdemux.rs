//! `tcpcnxdemux`: an instance per TCP connection.

use flowgauge_stack::{ComponentInfo, Input, ItemType};
use flowgauge_wire::{Decoded, FlowKey};

use crate::keyed::{DEMULTIPLEXER, by};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpcnxdemux",
    summary: "an instance per TCP connection, both directions",
    input: Input::Of(&[ItemType::Segment]),
    make: |settings| Ok(by(settings, connection)),
    ..DEMULTIPLEXER
};

#[inline]
fn connection(packet: &Decoded) -> Option<(FlowKey, u64)> {
    Some((packet.key, packet.hash))
}
