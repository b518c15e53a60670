//! `tcpcnxdemux`: an instance per TCP connection.

use flowgauge_kit::Closing;
use flowgauge_kit::keyed::{DEMULTIPLEXER, KEYS, RESULTS, TIMEOUT, until_closed};
use flowgauge_stack::{ComponentInfo, Input, ItemType, options};
use flowgauge_wire::{Decoded, FlowKey};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpcnxdemux",
    summary: "an instance per TCP connection, both directions",
    help: "An instance ends when it was idle for `timeout`. With `end = closed` it also ends after the \
           current packets when the connection was reset, or both directions were closed and acknowledged; \
           later packets then start a new instance.",
    input: Input::Of(&[ItemType::Segment]),
    options: Options::ALL,
    make: |settings| {
        let closes = Options::read(settings).end == "closed";
        Ok(until_closed(
            settings,
            closes.then(Closing::default),
            connection,
        ))
    },
    ..DEMULTIPLEXER
};

options! {
    struct Options;
    [TIMEOUT, KEYS, RESULTS];
    end: Choice("timeout", "closed") = "timeout",
        "whether an instance ends only by timeout, or also when its connection has closed";
}

#[inline]
fn connection(packet: &Decoded) -> Option<(FlowKey, u64)> {
    Some((packet.key, packet.hash))
}
