//! Elements with sensors and agents, asked by curl: what they measure beside what tshark counts, and what they refuse.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../tests/shared/skipped.rs"]
mod skipped;
mod world;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use flowgauge_credential::{Credential, Holder, IssuerKey, Limits};
use serde_json::{Value, json};
use world::{Asked, World, issuer, until};

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

#[test]
fn metrics_are_what_tshark_counts() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    let dropped = world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "lab", &["two"], json!([]));
    let metrics = [
        "loss",
        "delay",
        "bandwidth",
        "throughput",
        "application_rtt",
        "shares",
    ];
    let ids = metrics.map(|metric| {
        let mut order = one_shot(metric, "campus", "lab");
        if matches!(metric, "loss" | "delay" | "application_rtt" | "throughput") {
            order["filters"] = json!(["tcp"]);
        }
        world.open("element-a", &order)
    });
    // Loss and delay observe at both.
    world.until_flows("one", 6);
    world.until_flows("two", 2);
    world.start(&["one", "two"]);
    let answers = ids.map(|id| world.ended("element-a", &id));
    let [loss, delay, bandwidth, throughput, rtt, shares] = &answers;
    let seen = world.tshark("one.pcap", "tcp || udp || !tcp");
    assert_eq!(
        sum(rows(loss), "lost") + sum(rows(loss), "one_sided"),
        dropped,
        "{loss:#}"
    );
    assert!(sum(rows(loss), "lost") > dropped * 9 / 10);
    for row in rows(delay) {
        // 5 ms there and 3 ms back by clocks that are 1 ms apart: 4 ms each.
        let error = row["offset_error"].as_f64().unwrap();
        let mean = row["delay_mean"].as_f64().unwrap();
        assert!((mean - 0.004).abs() <= error + 1e-6, "{row}");
        assert!((error - 0.004).abs() < 1e-3, "{row}");
    }
    assert_eq!(rows(delay).len(), 2);
    let [row] = &rows(bandwidth)[..] else {
        panic!("{bandwidth:#}")
    };
    assert_eq!(row["sensor"], "campus/one");
    assert_eq!(row["packets"], seen.len() as u64);
    assert_eq!(
        row["bytes"],
        seen.iter().map(|packet| packet.frame).sum::<u64>()
    );
    let seconds = row["seconds"].as_f64().unwrap();
    let rate = row["bytes"].as_f64().unwrap() * 8.0 / seconds;
    assert!((row["bits_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);

    let mut flows = std::collections::BTreeMap::new();
    for packet in seen.iter().filter(|packet| packet.protocol == "tcp") {
        let entry = flows
            .entry(packet.ends.clone())
            .or_insert((0, packet.time, packet.time));
        *entry = (entry.0 + packet.bytes, entry.1, packet.time);
    }
    let most = flows.values().map(|flow| flow.0).max().unwrap();
    let first = &rows(throughput)[0];
    assert_eq!(rows(throughput).len(), 10);
    assert_eq!(first["bytes"], most, "{first}");
    let port = |name: &str| first[name].as_u64().unwrap();
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    let ends = (
        (text("source"), port("source_port")),
        (text("destination"), port("destination_port")),
    );
    let (bytes, begin, end) = flows[&ends];
    let rate = bytes as f64 * 8.0 / (end - begin);
    assert!(
        (first["bits_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-3,
        "{first} {rate}"
    );

    let all: u64 = seen.iter().map(|packet| packet.bytes).sum();
    let share = |row: &Value| {
        let (protocol, port) = row["application"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap();
        let port: u64 = port.parse().unwrap();
        let its = seen
            .iter()
            .filter(|it| it.protocol == protocol && it.ends.0.1.min(it.ends.1.1) == port);
        its.map(|packet| packet.bytes).sum::<u64>()
    };
    for row in rows(shares) {
        assert_eq!(row["bytes"], share(row), "{row}");
        let expected = share(row) as f64 / all as f64;
        assert!(
            (row["share"].as_f64().unwrap() - expected).abs() < 1e-9,
            "{row}"
        );
    }

    let mut asked = std::collections::BTreeMap::new();
    let mut trips = Vec::new();
    for packet in seen.iter().filter(|packet| packet.is_syn) {
        let (from, to) = packet.ends.clone();
        match asked.remove(&(to.clone(), from.clone())) {
            Some(begin) if packet.is_ack => trips.push(packet.time - begin),
            _ => drop(asked.entry((from, to)).or_insert(packet.time)),
        }
    }
    let [row] = &rows(rtt)[..] else {
        panic!("{rtt:#}")
    };
    assert_eq!(row["handshakes"], trips.len() as u64, "{row}");
    let mean = trips.iter().sum::<f64>() / trips.len() as f64;
    assert!(
        (row["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-3,
        "{row} {mean}"
    );
    world.check_document("element-a");
}

#[test]
fn elements_measure_for_each_other() {
    let Some(mut world) = World::new() else {
        return;
    };
    let dropped = world.two_captures();
    for name in ["element-a", "element-b"] {
        world.element(name);
    }
    world.domain("element-a", "campus", &["one", "three"], json!([]));
    world.domain("element-b", "lab", &["two", "four"], json!([]));
    world.domain("element-a", "idle", &["five"], json!([]));
    world.peer("element-a", "element-b", &["lab", "nowhere"]);
    world.peer("element-b", "element-a", &["campus", "nowhere"]);
    let mut order = one_shot("loss", "campus", "lab");
    order["filters"] = json!(["tcp"]);
    let loss = world.open("element-a", &order);
    // The source is the other's: it is asked to measure.
    let bandwidth = world.open("element-a", &one_shot("bandwidth", "lab", "campus"));
    let nowhere = world.open("element-a", &one_shot("bandwidth", "nowhere", "campus"));
    for (sensor, flows) in [("one", 1), ("three", 1), ("two", 2), ("four", 2)] {
        world.until_flows(sensor, flows);
    }
    world.start(&["one", "two", "three", "four"]);
    let loss = world.ended("element-a", &loss);
    let pairs: Vec<&Value> = rows(&loss).iter().collect();
    // Two by two sensors, both ways: one and three see all, two and four what was left.
    assert_eq!(pairs.len(), 8, "{loss:#}");
    assert_eq!(
        sum(rows(&loss), "lost") + sum(rows(&loss), "one_sided"),
        4 * dropped,
        "{loss:#}"
    );
    let bandwidth = world.ended("element-a", &bandwidth);
    let counted: Vec<_> = rows(&bandwidth)
        .iter()
        .map(|row| {
            (
                row["sensor"].as_str().unwrap(),
                row["packets"].as_u64().unwrap(),
            )
        })
        .collect();
    let packets = world.tshark("two.pcap", "tcp || udp || !tcp").len() as u64;
    assert_eq!(counted, [("lab/four", packets), ("lab/two", packets)]);
    let nowhere = world.ended("element-a", &nowhere);
    assert_eq!(nowhere["state"], "failed");
    assert!(
        nowhere["error"]
            .as_str()
            .unwrap()
            .contains("has been here before"),
        "{nowhere}"
    );

    // A peer that is down keeps nobody waiting who does not need it.
    world.stop_element("element-b");
    let there = world.open("element-a", &one_shot("bandwidth", "lab", "campus"));
    let here = world.open("element-a", &quick("bandwidth", "idle"));
    assert_eq!(world.ended("element-a", &here)["state"], "done");
    let there = world.ended("element-a", &there);
    assert_eq!(
        (&there["state"], there["error"].as_str().unwrap()),
        (&json!("failed"), "the element element-b does not answer")
    );
    // Nothing of where the peer and the sensors are is told.
    assert!(!there.to_string().contains("127.0.0.1"), "{there}");
}

#[test]
fn what_is_not_there_looks_like_what_is_forbidden() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "secret", &["two"], json!([]));
    world.domain("element-a", "empty", &[], json!([]));
    let open = |source: &str, destination: &str| {
        let order = one_shot("bandwidth", source, destination).to_string();
        world.ask(
            "element-a",
            "bob",
            "POST",
            "/v1/sessions",
            &[],
            Some(&order),
        )
    };
    let refused = open("nowhere", "campus");
    assert_eq!(
        (refused.status, refused.body["error"].as_str().unwrap()),
        (404, "resource not available")
    );
    for (source, destination) in [
        ("secret", "campus"),
        ("campus", "secret"),
        ("nowhere", "nowhere"),
        ("secret", "secret"),
    ] {
        assert_eq!(open(source, destination), refused, "{source} {destination}");
    }
    let metric = one_shot("shares", "campus", "campus").to_string();
    let id = world.open("element-a", &one_shot("bandwidth", "campus", "campus"));
    for (method, path, body) in [
        ("POST", "/v1/sessions", Some(metric.as_str())),
        ("GET", "/v1/domains/secret", None),
        ("GET", "/v1/domains/nowhere", None),
        ("PUT", "/v1/domains/campus", Some("{}")),
        ("DELETE", "/v1/domains/campus", None),
        ("DELETE", "/v1/domains/nowhere", None),
        (
            "PUT",
            "/v1/peers/x",
            Some("{\"address\": \"x:1\", \"domains\": []}"),
        ),
        ("GET", "/v1/peers", None),
        ("GET", "/v1/sessions/0123456789abcdef0123456789abcdef", None),
        ("GET", &format!("/v1/sessions/{id}"), None),
        ("DELETE", &format!("/v1/sessions/{id}"), None),
        ("GET", "/v1/anything", None),
    ] {
        let answer = world.ask("element-a", "bob", method, path, &[], body);
        assert_eq!(answer, refused, "{method} {path}");
    }
    let seen = world
        .ask("element-a", "bob", "GET", "/v1/domains", &[], None)
        .body;
    assert_eq!(
        seen,
        json!([{"name": "campus", "networks": [], "sensors": []}])
    );
    // What is there and may be used, but has nothing to measure with, is told by the session alone.
    let empty = world.open("element-a", &one_shot("bandwidth", "empty", "campus"));
    assert_eq!(
        world.ended("element-a", &empty)["error"],
        "resource not available"
    );
    world.cancel("element-a", &id);
    assert_eq!(world.ended("element-a", &id)["state"], "cancelled");
    world.check_document("element-a");
}

#[test]
fn credentials_allow_what_all_of_their_blocks_do() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "lab", &["two"], json!([]));
    let ask = |credential: &str, metric: &str, source: &str, seconds: u32| {
        let order = json!({"source": source, "destination": source, "metric": metric,
                           "period": {"most_recent": {"max_age": 1, "seconds": seconds}}});
        let bearer = format!("Authorization: Bearer {credential}");
        world.ask(
            "element-a",
            "",
            "POST",
            "/v1/sessions",
            &[&bearer],
            Some(&order.to_string()),
        )
    };
    let wide = Credential::issue(&issuer(), &Limits::default()).unwrap();
    assert_eq!(ask(&wide.text(), "throughput", "lab", 1).status, 200);
    let limits = Limits::default()
        .devices(["campus"])
        .function("bandwidth(seconds<=5)")
        .unwrap();
    let narrow = wide.attenuate(&limits).unwrap();
    let answer = ask(&narrow.text(), "bandwidth", "campus", 2);
    assert_eq!(answer.status, 200, "{}", answer.body);
    for (metric, source, seconds) in [
        ("bandwidth", "lab", 2),
        ("bandwidth", "campus", 6),
        ("throughput", "campus", 2),
    ] {
        assert_eq!(
            ask(&narrow.text(), metric, source, seconds).status,
            404,
            "{metric} {source} {seconds}"
        );
    }
    // Who has a narrower one does not see the sessions of the wider one.
    let id = answer.body["id"].as_str().unwrap();
    let path = format!("/v1/sessions/{id}");
    let narrower = narrow
        .attenuate(&Limits::default().devices(["campus"]))
        .unwrap();
    for (credential, status) in [(&narrow, 200), (&wide, 404), (&narrower, 404)] {
        let bearer = format!("Authorization: Bearer {}", credential.text());
        assert_eq!(
            world
                .ask("element-a", "", "GET", &path, &[&bearer], None)
                .status,
            status
        );
    }
    let forged = Credential::issue(&IssuerKey::generate(), &Limits::default()).unwrap();
    let expired = wide
        .attenuate(&Limits {
            expires: Some(1_000_000),
            ..Limits::default()
        })
        .unwrap();
    let of_other = wide
        .attenuate(&Limits {
            holders: vec![Holder::Certificate("alice".to_owned())],
            ..Limits::default()
        })
        .unwrap();
    // What an element cannot do before a measurement is refused, not ignored.
    let anonymized = wide
        .attenuate(&Limits {
            anonymize: Some("strict".to_owned()),
            ..Limits::default()
        })
        .unwrap();
    let mut damaged = wide.text();
    damaged.replace_range(40..41, if &damaged[40..41] == "A" { "B" } else { "A" });
    for (credential, status) in [
        (forged.text(), 401),
        (expired.text(), 401),
        (of_other.text(), 401),
        (damaged, 401),
        ("x".to_owned(), 401),
        ("x".repeat(20_000), 401),
        (anonymized.text(), 404),
    ] {
        let answer = ask(&credential, "bandwidth", "campus", 2);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(!answer.body.to_string().contains(&credential));
    }
    // With the certificate that it is for.
    let bearer = format!("Authorization: Bearer {}", of_other.text());
    assert_eq!(
        world
            .ask("element-a", "alice", "GET", "/v1/domains", &[&bearer], None)
            .status,
        200
    );
    let line = format!("{}\n", narrow.ids().last().unwrap());
    fs::write(world.path("revoked"), line).unwrap();
    assert_eq!(ask(&narrow.text(), "bandwidth", "campus", 2).status, 401);
    assert_eq!(ask(&wide.text(), "bandwidth", "campus", 2).status, 200);
    world.check_document("element-a");
    // Nobody, and who has no rights.
    for user in ["", "stranger"] {
        assert_eq!(
            world
                .ask("element-a", user, "GET", "/v1/domains", &[], None)
                .status,
            401,
            "{user}"
        );
    }
}

#[test]
fn equal_sessions_share_a_measurement_and_results_are_published() {
    let Some(mut world) = World::new() else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    world.push = format!("http://{}/results?a=b", listener.local_addr().unwrap());
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "idle", &["five"], json!([]));
    let pushed = thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"}}") {
            let len = tcp.read(&mut part).unwrap();
            request.extend_from_slice(&part[..len]);
        }
        tcp.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        String::from_utf8(request).unwrap()
    });
    let mut order = one_shot("bandwidth", "campus", "campus");
    order["publish"] = json!(["prometheus", "file:campus.json", "push:collector"]);
    let ids = [
        world.open("element-a", &order),
        world.open("element-a", &one_shot("bandwidth", "campus", "campus")),
    ];
    world.until_flows("one", 1);
    world.start(&["one"]);
    let [one, other] = ids.map(|id| world.ended("element-a", &id));
    assert_eq!(one["results"], other["results"]);
    let packets = rows(&one)[0]["packets"].as_u64().unwrap();
    let request = pushed.join().unwrap();
    assert!(
        request.starts_with("POST /results?a=b HTTP/1.1\r\n"),
        "{request}"
    );
    let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let line: Value =
        serde_json::from_str(&fs::read_to_string(world.path("results/campus.json")).unwrap())
            .unwrap();
    for published in [&body, &line] {
        assert_eq!(published["result"], one["results"][0]);
    }
    let scrape = |user| {
        world
            .ask("element-a", user, "GET", "/v1/metrics", &[], None)
            .text
    };
    let expected = format!(
        "flowgauge_bandwidth_packets{{source_domain=\"campus\",destination_domain=\"campus\",sensor=\"campus/one\"}} {packets} "
    );
    assert!(scrape("alice").contains(&expected), "{}", scrape("alice"));
    assert_eq!(scrape("bob"), "");
    assert!(scrape("prometheus").contains(&expected));
    // From what is stored: the last one, and those of a time. No flow is opened for them.
    let answer = |period: Value| {
        let mut order = one_shot("bandwidth", "campus", "campus");
        order["period"] = period;
        let id = world.open("element-a", &order);
        let answer = world.ended("element-a", &id);
        assert_eq!(answer["state"], "done", "{answer:#}");
        answer["results"].clone()
    };
    assert_eq!(
        answer(json!({"most_recent": {"max_age": 600}})),
        one["results"]
    );
    assert_eq!(answer(json!({"historical": {"from": 0}})), one["results"]);
    assert_eq!(
        answer(json!({"historical": {"from": 0, "until": 1}})),
        json!([])
    );
    // Combined: what there was, and what comes.
    let id = world.open("element-a", &quick("bandwidth", "idle"));
    let first = world.ended("element-a", &id)["results"].clone();
    let mut both = quick("bandwidth", "idle");
    both["period"] = json!({"historical": {"from": 0}, "periodic": {"every": 1, "times": 2}});
    let id = world.open("element-a", &both);
    let answer = world.ended("element-a", &id);
    assert_eq!(
        (results(&answer).len(), &answer["made"]),
        (3, &json!(2)),
        "{answer:#}"
    );
    assert_eq!(results(&answer)[0], first[0]);
    let began = |at: usize| results(&answer)[at]["began"].as_f64().unwrap();
    assert!(began(2).floor() > began(1).floor());
    for wrong in [
        "file:../x",
        "file:.x",
        "file:",
        "push:elsewhere",
        "push:http://127.0.0.1/",
        "mail",
    ] {
        order["publish"] = json!([wrong]);
        let answer = world.ask(
            "element-a",
            "alice",
            "POST",
            "/v1/sessions",
            &[],
            Some(&order.to_string()),
        );
        assert_eq!(
            (answer.status, answer.body["place"].as_str()),
            (422, Some("publish")),
            "{wrong}"
        );
    }
    world.check_document("element-a");
}

#[test]
fn networks_of_domains_tell_directions() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!(["10.0.0.0/9"]));
    world.domain(
        "element-a",
        "lab",
        &["two"],
        json!(["10.128.0.0/9", "0.0.0.0/5"]),
    );
    let id = world.open("element-a", &one_shot("bandwidth", "campus", "lab"));
    world.until_flows("one", 1);
    world.start(&["one"]);
    let answer = world.ended("element-a", &id);
    let filter = "ip.src == 10.0.0.0/9 && (ip.dst == 10.128.0.0/9 || ip.dst == 0.0.0.0/5)";
    assert_eq!(
        rows(&answer)[0]["packets"],
        world.tshark("one.pcap", filter).len() as u64
    );
    for wrong in [
        "10.0.0.1/8",
        "10.0.0.0",
        "10.0.0.0/33",
        "x/8",
        "10.0.0.0/8) or (udp",
    ] {
        let body = json!({"networks": [wrong]}).to_string();
        let answer = world.ask(
            "element-a",
            "alice",
            "PUT",
            "/v1/domains/x",
            &[],
            Some(&body),
        );
        assert_eq!(
            (answer.status, answer.body["place"].as_str()),
            (422, Some("networks")),
            "{wrong}"
        );
    }
}

#[test]
fn probes_are_between_elements_that_agreed() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.more = "[probes]\npeers = [\"element-a\", \"element-b\"]\nper_second = 50\n".to_owned();
    world.element("element-a");
    world.element("element-b");
    world.domain("element-a", "campus", &[], json!([]));
    world.domain("element-b", "lab", &[], json!([]));
    world.peer("element-a", "element-b", &["lab"]);
    world.peer("element-b", "element-a", &["campus"]);
    let probe = |world: &World, metric: &str, source: &str, destination: &str| {
        let mut order = one_shot(metric, source, destination);
        order["period"] = json!({"one_shot": {"seconds": 1}});
        let id = world.open("element-a", &order);
        world.ended("element-a", &id)
    };
    // There, and, by the other one, back.
    for (metric, source, destination) in [
        ("ping", "campus", "lab"),
        ("connect", "campus", "lab"),
        ("one_way", "campus", "lab"),
        ("one_way", "lab", "campus"),
    ] {
        let answer = probe(&world, metric, source, destination);
        if answer["error"]
            .as_str()
            .is_some_and(|it| it.contains("may not send ICMP"))
        {
            skipped::skipped(&answer["error"]);
            continue;
        }
        let [row] = &rows(&answer)[..] else {
            panic!("{answer:#}")
        };
        assert_eq!(
            (&row["source"], &row["destination"]),
            (&json!(source), &json!(destination))
        );
        assert_eq!(
            (&row["sent"], &row["answered"]),
            (&json!(50), &json!(50)),
            "{row}"
        );
        let [least, mean, most] = ["least", "mean", "most"].map(|it| row[it].as_f64().unwrap());
        assert!(0.0 < least && least <= mean && mean <= most, "{row}");
    }
    // Within an element there is no other one to agree.
    let within = probe(&world, "connect", "campus", "campus");
    assert!(
        within["error"]
            .as_str()
            .unwrap()
            .starts_with("probes are between elements")
    );
    // Whoever is not named may not have probes answered, nor know what came of others'.
    let order = json!({"metric": "one_way", "seconds": 1}).to_string();
    let refused = world.ask(
        "element-b",
        "alice",
        "POST",
        "/v1/probes",
        &[],
        Some(&order),
    );
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (404, &json!("resource not available"))
    );
    let granted = world
        .ask(
            "element-b",
            "element-a",
            "POST",
            "/v1/probes",
            &[],
            Some(&order),
        )
        .body;
    let path = format!("/v1/probes/{}", granted["token"].as_str().unwrap());
    let port = granted["port"].as_u64().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = u128::from_str_radix(granted["token"].as_str().unwrap(), 16).unwrap();
    let send = |token: u128, number: u64, more: usize| {
        let mut datagram = [&token.to_be_bytes()[..], &number.to_be_bytes(), &[0; 8]].concat();
        datagram.resize(32 + more, 0);
        socket
            .send_to(&datagram, ("127.0.0.1", port as u16))
            .unwrap();
    };
    // Forged, too long, with numbers that are none; twice; good ones last.
    send(token ^ 1, 1, 0);
    send(token, 2, 1);
    send(token, 10_000, 0);
    for number in [3, 3, 4] {
        send(token, number, 0);
    }
    let came = |user: &str| world.ask("element-b", user, "GET", &path, &[], None);
    until("the last one came", || {
        came("element-a").body.as_array().unwrap().len() == 2
    });
    let numbers = came("element-a").body.clone();
    assert_eq!(
        (&numbers[0]["number"], &numbers[1]["number"]),
        (&json!(3), &json!(4))
    );
    assert_eq!(came("element-b").status, 404);
    // One that does not name the other does not answer it, and does not probe it.
    world.more = "[probes]\npeers = [\"element-c\"]\n".to_owned();
    world.stop_element("element-b");
    world.element("element-b");
    world.peer("element-a", "element-b", &["lab"]);
    let refused = probe(&world, "one_way", "campus", "lab");
    let error = refused["error"].as_str().unwrap();
    assert_eq!(error, "element-b: resource not available");
    world.peer("element-b", "element-a", &["campus"]);
    let refused = probe(&world, "one_way", "lab", "campus");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("are not agreed"),
        "{refused}"
    );
    world.check_document("element-a");
    // Capturing is passive: nothing is sent where this machine's sensor captures.
    match world.capture_loopback() {
        Err(error) => skipped::skipped(error),
        Ok(()) => {
            let refused = probe(&world, "one_way", "campus", "lab");
            let error = refused["error"].as_str().unwrap();
            assert_eq!(
                error,
                "the way to the peer is an interface that is captured"
            );
        }
    }
    world.check_document("element-b");
}

#[test]
fn hostile_requests_are_answered_or_cut_off() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    let ask = |method, path: &str, headers: &[&str], body: &str| {
        world.ask("element-a", "alice", method, path, headers, Some(body))
    };
    let is_problem = |answer: &Asked, status: u16| {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(
            answer.body["error"].is_string() && answer.body["hint"].is_string(),
            "{}",
            answer.text
        );
    };
    is_problem(&ask("POST", "/v1/sessions", &[], "{\"source\": "), 400);
    is_problem(&ask("POST", "/v1/sessions", &[], "{\"source\": 1}"), 422);
    is_problem(&ask("POST", "/v1/sessions", &[], &"[".repeat(50_000)), 422);
    is_problem(
        &ask("POST", "/v1/sessions", &["Content-Type: text/plain"], "{}"),
        415,
    );
    is_problem(&ask("POST", "/v1/sessions?wait=-1", &[], "{}"), 400);
    is_problem(&ask("PATCH", "/v1/sessions", &[], "{}"), 405);
    is_problem(&ask("PUT", "/v1/domains/..%2f..%2fx", &[], "{}"), 422);
    is_problem(
        &ask(
            "PUT",
            "/v1/domains/x/sensors/y",
            &[],
            "{\"device\": \"campus/*\"}",
        ),
        422,
    );
    is_problem(&ask("PUT", "/v1/domains/x", &[], &"x".repeat(1 << 20)), 413);
    let many = json!({"sensors": (0..600).map(|it| json!({"name": format!("s{it}"), "device": "h:e"})).collect::<Vec<_>>()});
    assert_eq!(
        ask("PUT", "/v1/domains/x", &[], &many.to_string()).status,
        200
    );
    is_problem(
        &ask("POST", "/v1/sessions", &["Authorization: Basic eDp5"], "{}"),
        401,
    );

    // More connections than are taken: each that is too many is closed, and who comes later is served.
    let address = world.address("element-a");
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..10_000 {
        let mut tcp = TcpStream::connect(&address).unwrap();
        if held.len() < 120 {
            held.push(tcp);
        } else {
            // Nothing is waited for: the file limit would be reached else.
            let _ = tcp.write_all(&[0x16, 3, 1]);
            refused += 1;
        }
    }
    assert_eq!(refused, 9_880);
    // Slow ones are cut off in the end, and hold up nobody meanwhile.
    let slow = thread::spawn(move || {
        let mut ends = held.into_iter().map(|mut tcp| {
            let _ = tcp.set_read_timeout(Some(world::LONG));
            tcp.read(&mut [0; 16])
        });
        // Closed or reset, never a time-out.
        ends.all(
            |end| !matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
        )
    });
    until("others are served", || {
        world
            .ask("element-a", "alice", "GET", "/v1/modules", &[], None)
            .status
            == 200
    });
    assert!(slow.join().unwrap());
}

#[test]
fn sessions_are_bounded_and_go_on_after_a_restart() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "lab", &["two"], json!([]));
    let order = json!({"source": "campus", "destination": "campus", "metric": "bandwidth",
                       "period": {"periodic": {"every": 2, "seconds": 1, "times": 3}}});
    let periodic = world.open("element-a", &order);
    let made = |world: &World| {
        let path = format!("/v1/sessions/{periodic}");
        world
            .ask("element-a", "alice", "GET", &path, &[], None)
            .body["made"]
            .as_u64()
    };
    until("one is made", || made(&world) >= Some(1));
    let one_shot = world.open("element-a", &one_shot("bandwidth", "lab", "lab"));
    world.stop_element("element-a");
    world.element("element-a");
    assert!(made(&world) >= Some(1));
    world.until_flows("two", 1);
    world.start(&["two"]);
    assert_eq!(rows(&world.ended("element-a", &one_shot)).len(), 1);
    let periodic = world.ended("element-a", &periodic);
    assert_eq!(
        (&periodic["made"], results(&periodic).len()),
        (&json!(3), 3),
        "{periodic:#}"
    );
    // Bob may have two at once.
    let order = json!({"source": "campus", "destination": "campus", "metric": "bandwidth",
                       "period": {"periodic": {"every": 3600, "times": 2}}})
    .to_string();
    let open = || {
        world.ask(
            "element-a",
            "bob",
            "POST",
            "/v1/sessions",
            &[],
            Some(&order),
        )
    };
    let ids = [open(), open()].map(|answer| answer.body["id"].as_str().unwrap().to_owned());
    assert_eq!(open().status, 503);
    let cancelled = world.ask(
        "element-a",
        "bob",
        "DELETE",
        &format!("/v1/sessions/{}", ids[0]),
        &[],
        None,
    );
    assert_eq!(cancelled.body["state"], "cancelled");
    assert_eq!(open().status, 200);
    let listed = world
        .ask("element-a", "bob", "GET", "/v1/sessions", &[], None)
        .body;
    assert_eq!(listed.as_array().unwrap().len(), 3);
}
