//! HTTP in stacks against the truth that the trace generator tells.

mod support;

use std::collections::BTreeMap;

use flowgauge_capture::generate::{Config, Preset, generate};
use support::records_of as run;

const TOGETHER: &str = "tcpscan tcpcnxdemux { timeout = 1h } < tcpreseq http >";
/// The paper's figure 5 but for anonymize.
const APART: &str =
    "tcpscan - tcpcnxdemux { timeout = 1h } < tcpdirdemux < tcpreseq - httpscan > httpmatch >";

#[test]
fn all_transactions_of_a_trace_are_found_and_are_what_they_were() {
    let mut trace = Vec::new();
    let truth = generate(&Config::new(Preset::Web).scaled(0.01), &mut trace).expect("memory");
    assert!(truth.http.transactions > 500, "{}", truth.http.transactions);
    for stack in [TOGETHER, APART] {
        let rows = run(stack, &trace);
        assert_eq!(rows.len() as u64, truth.http.transactions, "{stack}");
        let mut methods = BTreeMap::new();
        let mut statuses = BTreeMap::new();
        let (mut sent, mut received) = (0, 0);
        let mut depths: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for row in &rows {
            assert_eq!(
                (&row["state"], &row["whole"]),
                (&"matched".into(), &"yes".into()),
                "{row}"
            );
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            let number = |name: &str| row[name].as_u64().expect("a number");
            *methods.entry(text("method")).or_insert(0) += 1;
            *statuses.entry(number("status") as u16).or_insert(0) += 1;
            sent += number("request_body_bytes");
            received += number("response_body_bytes");
            let depth = depths
                .entry((text("src_ip"), number("src_port")))
                .or_insert(0);
            *depth += 1;
            assert_eq!(number("depth"), *depth, "{row}");
            assert!(row["latency"].as_f64().is_some_and(|it| it >= 0.0), "{row}");
            assert!(
                row["handshake_rtt"].as_f64().is_some_and(|it| it > 0.0),
                "{row}"
            );
            assert!(
                text("uri").starts_with('/') && !text("host").is_empty(),
                "{row}"
            );
        }
        assert_eq!(methods, truth.http.methods, "{stack}");
        assert_eq!(statuses, truth.http.statuses, "{stack}");
        assert_eq!(sent, truth.http.request_body_bytes, "{stack}");
        assert_eq!(received, truth.http.response_body_bytes, "{stack}");
    }
}

#[test]
fn losses_leave_messages_alone_but_lose_none_that_was_captured() {
    let mut trace = Vec::new();
    let mut config = Config::new(Preset::Web).scaled(0.01);
    config.missing = 0.01;
    let truth = generate(&config, &mut trace).expect("memory");
    let rows = run(TOGETHER, &trace);
    let count =
        |name: &str, value: &str| rows.iter().filter(|row| row[name] == value).count() as u64;
    let all = truth.http.transactions;
    assert!(count("whole", "no") > 0);
    let with_holes = rows.iter().filter(|row| row["missing_bytes"] != 0).count() as u64;
    assert!(with_holes > 0 && with_holes < all / 5, "{with_holes} {all}");
    // A hundredth of the frames is missing: of most transactions nothing, or bytes of the body only.
    assert!(
        count("state", "matched") > all * 9 / 10,
        "{} {all}",
        count("state", "matched")
    );
    assert!(rows.len() as u64 <= all + all / 20, "{} {all}", rows.len());
    for row in rows.iter().filter(|row| row["state"] == "matched") {
        let method = row["method"].as_str().unwrap_or_default();
        assert!(truth.http.methods.contains_key(method), "{row}");
        let status = row["status"].as_u64().unwrap_or_default() as u16;
        assert!(truth.http.statuses.contains_key(&status), "{row}");
    }
}

#[test]
fn one_direction_alone_has_its_messages() {
    let mut trace = Vec::new();
    let truth = generate(&Config::new(Preset::Web).scaled(0.005), &mut trace).expect("memory");
    let all = truth.http.transactions as usize;
    for (filter, state) in [("dst port 80", "no_reply"), ("src port 80", "no_request")] {
        let rows = run(&format!("filter {{ \"{filter}\" }} {TOGETHER}"), &trace);
        let alone = rows.iter().filter(|row| row["state"] == state).count();
        assert_eq!(alone, rows.len(), "{filter}");
        assert!(
            alone * 10 >= all * 9 && alone <= all,
            "{filter}: {alone} of {all}"
        );
    }
}
