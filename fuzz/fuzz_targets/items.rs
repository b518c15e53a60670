#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowgauge_components::fuzz_items(data));
