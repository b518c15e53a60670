#![no_main]

#[path = "../harness/rmon.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::fuzz_master(data);
});
