#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowgauge_reassembly::fuzz::fuzz_defragment(data));
