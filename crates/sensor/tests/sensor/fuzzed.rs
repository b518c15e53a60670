//! Any bytes on the socket, from users and from a sensor.

use super::harness::{fuzz_answers, fuzz_requests};
use super::*;

/// Rounds of each test: more where somebody has time.
fn rounds() -> u64 {
    let rounds = std::env::var("FLOWGAUGE_FUZZ_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Bytes that are the same in each run.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    core::iter::repeat_with(next).take(len).collect()
}

#[test]
fn a_sensor_answers_any_requests() {
    let running = Running::start(1, "");
    let socket = running.folder.path().join("sock");
    let mut done = 0;
    for round in 0..rounds() {
        done += fuzz_requests(&socket, &bytes(round, 200));
    }
    assert!(done > rounds(), "{done}: some were requests");
    let patience = Instant::now() + Duration::from_secs(60);
    while running.flows() > 0 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.flows(), 0);
    running.client().check("mix", "count").unwrap();
}

#[test]
fn a_client_takes_any_answers() {
    let folder = tempfile::tempdir().unwrap();
    let answers = [
        &br#".{"done":[]}"#[..],
        br#".{"device":"x"}"#,
        br#".{"flow":{"number":1,"components":["count"]}}"#,
        br#".{"results":{"time":1,"is_last":true,"failure":null,"components":[]}}"#,
        br#".{"refused":{"error":"no","hint":null}}"#,
        br#"+{"done":"#,
        b".[]}",
        b"+",
        b"",
        b".",
        b"?",
        br#".{"status":{"version":"1","process":1,"seconds":1,"memory":1,"connections":1,"devices":[]}}"#,
    ];
    for round in 0..rounds() {
        let mut random = bytes(round, 400);
        let mut data = Vec::new();
        for choice in random.split_off(380) {
            let mut part = answers[usize::from(choice) % answers.len()].to_vec();
            if choice >= 160 && !part.is_empty() {
                let at = usize::from(random[1]) % part.len();
                part[at] ^= random.pop().unwrap();
            }
            data.push(part.len() as u8);
            data.extend(part);
        }
        data.extend(random);
        fuzz_answers(&folder.path().join(format!("{round}")), &data);
    }
}
