//! Elements with sensors and agents, asked by curl: what they measure beside what tshark counts, and what they refuse.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod access;
mod metrics;
mod probes;
mod sessions;
#[path = "../../../../tests/shared/skipped.rs"]
mod skipped;
mod world;

use serde_json::{Value, json};

fn one_shot(metric: &str, source: &str, destination: &str) -> Value {
    json!({"source": source, "destination": destination, "metric": metric,
           "period": {"one_shot": {"seconds": 60}}})
}

/// The same in a second, within a domain.
fn quick(metric: &str, domain: &str) -> Value {
    let mut order = one_shot(metric, domain, domain);
    order["period"] = json!({"one_shot": {"seconds": 1}});
    order
}

/// The results of a session that has ended.
fn results(answer: &Value) -> &Vec<Value> {
    assert_eq!(answer["state"], "done", "{answer:#}");
    answer["results"].as_array().unwrap()
}

fn rows(answer: &Value) -> &Vec<Value> {
    results(answer).last().unwrap()["rows"].as_array().unwrap()
}

fn sum(rows: &[Value], field: &str) -> u64 {
    rows.iter().map(|row| row[field].as_u64().unwrap()).sum()
}
