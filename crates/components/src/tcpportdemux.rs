//! `tcpportdemux`: an instance per server port.

use core::hash::BuildHasher;

use flowgauge_kit::keyed::{DEMULTIPLEXER, KEYS, RESULTS, TIMEOUT, by};
use flowgauge_stack::{ComponentInfo, Input, ItemType, Parallel, options};
use flowgauge_wire::{Decoded, FoldedState};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpportdemux",
    summary: "an instance per TCP port",
    help: "The lower port of a connection is taken as the server's.",
    input: Input::Of(&[ItemType::Segment]),
    options: Options::ALL,
    parallel: Parallel::Never("connections on several cores have the same port"),
    make: |settings| {
        Ok(match Options::read(settings).port {
            "source" => by(settings, |packet| hashed(packet.source().1)),
            "destination" => by(settings, |packet| hashed(packet.destination().1)),
            _ => by(settings, |packet| hashed(lower(packet))),
        })
    },
    ..DEMULTIPLEXER
};

options! {
    struct Options;
    [TIMEOUT, KEYS, RESULTS];
    port: Choice("lower", "source", "destination") = "lower", "the port of a segment to use";
}

fn lower(packet: &Decoded) -> u16 {
    packet.key.low_port.min(packet.key.high_port)
}

#[inline]
fn hashed(port: u16) -> Option<(u16, u64)> {
    Some((port, FoldedState::default().hash_one(port)))
}
