//! `tcpdirdemux`: an instance per direction.

use flowgauge_stack::{ComponentInfo, Input, ItemType};
use flowgauge_wire::{Decoded, Direction};

use crate::keyed::{DEMULTIPLEXER, by, mixed};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpdirdemux",
    summary: "an instance per direction of a connection",
    help: "To be used within tcpcnxdemux: alone it has two instances, which direction is which \
           follows from the order of addresses and ports.",
    input: Input::Of(&[ItemType::Segment]),
    make: |settings| Ok(by(settings, direction)),
    ..DEMULTIPLEXER
};

#[inline]
fn direction(packet: &Decoded) -> Option<(bool, u64)> {
    let is_up = packet.direction == Direction::LowToHigh;
    Some((is_up, mixed(u64::from(is_up) + 1)))
}
