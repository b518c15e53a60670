#![no_main]

#[path = "../harness/sensor.rs"]
#[allow(dead_code, reason = "requests need a sensor, which tests have")]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let name = format!("flowgauge-answers-{}", std::process::id());
    harness::fuzz_answers(&std::env::temp_dir().join(name), data);
});
