//! `sample`: some of the packets.

use flowgauge_stack::{Component, ComponentInfo, Parallel, SettingError, Settings, options};

use crate::per_packet::only;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "sample",
    summary: "samples packets: one in N, or a percentage",
    help: "`deterministic` passes every value-th packet, beginning with the value-th; `probabilistic` passes \
           each with a probability of value per cent. The choice is the same in each run with the same seed.",
    options: Options::ALL,
    parallel: Parallel::Never("it counts all packets"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    value: Integer(1, i64::MAX) as u64 = required, "N (one packet in N), or the percentage";
    mode: Choice("deterministic", "periodic", "probabilistic", "2", "3") = "deterministic",
        "how they are chosen; the numbers are MAPI's";
    seed: Integer(0, i64::MAX) as u64 = "1", "of the probabilistic choice";
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let value = options.value;
    if !matches!(options.mode, "probabilistic" | "3") {
        let mut count = 0;
        return Ok(only(move |_, _| {
            count = (count + 1) % value;
            count == 0
        }));
    }
    if value > 100 {
        return Err(SettingError::of(
            "value",
            format!("{value} is more than 100 per cent"),
        ));
    }
    // Of all numbers of 64 bits the share that is below.
    let below = (u128::from(value) << 64) / 100;
    let mut state = options.seed;
    Ok(only(move |_, _| u128::from(next(&mut state)) < below))
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
