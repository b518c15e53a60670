#![no_main]

#[path = "../harness/credential.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::fuzz_credential(data);
    harness::fuzz_damaged(data);
});
