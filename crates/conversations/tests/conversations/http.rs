//! HTTP in stacks against the truth that the trace generator tells.

use std::collections::BTreeMap;

use crate::support::{answer, records, records_of as run, segment};
use flowgauge_generate::{Config, Preset, generate};

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

/// Responses behind a hole come when it is given up, and are for the requests that were asked before they were captured.
#[test]
fn responses_behind_a_hole_are_not_younger_requests_responses() {
    const SECOND: u64 = 1_000_000_000;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let mut packets = vec![
        (SECOND, segment(1024, 80, 0, SYN, b"")),
        (SECOND, answer(segment(80, 1024, 0, SYN | ACK, b""))),
    ];
    let (mut asked, mut answered) = (1, 1);
    for number in 0..20 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = format!("HTTP/1.1 200 R{number}\r\nContent-Length: 0\r\n\r\n");
        let time = SECOND * (2 * number + 2);
        packets.push((time, segment(1024, 80, asked, ACK, request.as_bytes())));
        let response_packet = segment(80, 1024, answered, ACK, response.as_bytes());
        if number != 3 {
            packets.push((time + SECOND, answer(response_packet)));
        }
        asked += request.len() as u32;
        answered += response.len() as u32;
    }
    for stack in [TOGETHER, APART] {
        let stack = stack.replace("tcpreseq", "tcpreseq { checksums = ignore }");
        let rows = records(&stack, &packets);
        // What waited in one piece has the time of its first byte: later ones can be without a request, but none is another's.
        let matched: Vec<_> = rows
            .iter()
            .filter(|row| row["state"] == "matched")
            .collect();
        let reasons: Vec<_> = matched
            .iter()
            .filter_map(|row| row["reason"].as_str())
            .collect();
        assert_eq!(reasons[..4], ["R0", "R1", "R2", "R4"], "{stack}: {rows:#?}");
        for row in matched {
            let (uri, reason) = (row["uri"].as_str(), row["reason"].as_str());
            let number = |text: Option<&str>| text.map(|text| text[1..].to_owned());
            assert_eq!(number(uri), number(reason), "{stack}: {row}");
            assert_eq!(row["latency"], 1.0, "{row}");
        }
    }
}
