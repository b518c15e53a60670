#![no_main]

#[path = "../harness/proto.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::mime(data));
