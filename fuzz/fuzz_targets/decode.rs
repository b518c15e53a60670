#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowgauge_wire::fuzz_decode(data));
