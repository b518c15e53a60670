#![no_main]

#[path = "../harness/file.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| { harness::fuzz_file(data); });
