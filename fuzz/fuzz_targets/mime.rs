#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowgauge_proto::fuzz::mime(data));
