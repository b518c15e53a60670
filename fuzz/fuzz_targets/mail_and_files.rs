#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowgauge_proto::fuzz::mail_and_files(data));
