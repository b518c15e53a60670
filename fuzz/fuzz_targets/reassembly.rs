#![no_main]

#[path = "../harness/reassembly.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::fuzz_reassembly(data));
