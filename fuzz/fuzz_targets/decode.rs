#![no_main]

#[path = "../harness/decode.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::fuzz_decode(data));
