//! `rate_limit`: no more than so many packets in a second.

use flowgauge_stack::{Component, ComponentInfo, Parallel, SettingError, Settings, options};

use crate::per_packet::only;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "rate_limit",
    summary: "passes at most a number of packets per second",
    help: "Seconds are whole seconds of packet time. Packets up to a second late count in the second of the preceding \
       ones.",
    options: Options::ALL,
    parallel: Parallel::Never("it counts all packets"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    packets: Integer(1, i64::MAX) as u64 = required, "in a second";
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let most = Options::read(settings).packets;
    let (mut second, mut passed) = (0, 0);
    Ok(only(move |_, packet| {
        let now = packet.time.0 / SECOND;
        if now > second || now + 1 < second {
            (second, passed) = (now, 0);
        }
        passed += 1;
        passed <= most
    }))
}
