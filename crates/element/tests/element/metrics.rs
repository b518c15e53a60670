//! What is measured, beside what tshark counts in the same packets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::{Packet, World};
use crate::{one_shot, quick, rows, sum};

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
    // Loss and delay observe at both; round trips are those of TCP and of what is said.
    world.until_flows("one", 7);
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
        assert!((mean - 0.004).abs() < 2e-5, "{row}");
        assert!((error - 0.004).abs() < 2e-5, "{row}");
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

    throughput_is(throughput, &seen);
    shares_are(shares, &seen);
    round_trips_are(rtt, &seen);
    world.check_document("element-a");
}

/// The fastest flow is the one with the most bytes of TCP.
fn throughput_is(throughput: &Value, seen: &[Packet]) {
    let mut flows = BTreeMap::new();
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
}

/// What is said in a flow, else its transport protocol and smaller port.
fn applications(seen: &[Packet]) -> BTreeMap<String, Vec<&Packet>> {
    let ends = |packet: &Packet| {
        let (one, other) = packet.ends.clone();
        (
            packet.protocol,
            one.clone().min(other.clone()),
            one.max(other),
        )
    };
    let mut flows: BTreeMap<_, Vec<&Packet>> = BTreeMap::new();
    for packet in seen {
        flows.entry(ends(packet)).or_default().push(packet);
    }
    let mut applications: BTreeMap<String, Vec<&Packet>> = BTreeMap::new();
    for ((protocol, one, other), packets) in flows {
        let mut spoken = packets.iter().rev().map(|it| it.spoken.as_str());
        let spoken = spoken.find(|it| ["http", "dns", "tls"].contains(it));
        let port = || format!("{protocol}/{}", one.1.min(other.1));
        let name = spoken.map_or_else(port, str::to_owned);
        applications.entry(name).or_default().extend(packets);
    }
    applications
}

fn shares_are(shares: &Value, seen: &[Packet]) {
    let all: u64 = seen.iter().map(|packet| packet.bytes).sum();
    let expected = applications(seen);
    assert_eq!(
        rows(shares).len(),
        expected.len().min(10),
        "{:?}",
        expected.keys()
    );
    for row in rows(shares) {
        let its = &expected[row["application"].as_str().unwrap()];
        let bytes: u64 = its.iter().map(|packet| packet.bytes).sum();
        assert_eq!(row["bytes"], bytes, "{row}");
        assert_eq!(row["packets"], its.len() as u64, "{row}");
        let expected = bytes as f64 / all as f64;
        assert!(
            (row["share"].as_f64().unwrap() - expected).abs() < 1e-9,
            "{row}"
        );
    }
}

/// From each SYN to the SYN+ACK that answers it.
fn round_trips_are(rtt: &Value, seen: &[Packet]) {
    let mut asked = BTreeMap::new();
    let mut trips = Vec::new();
    for packet in seen.iter().filter(|packet| packet.is_syn) {
        let (from, to) = packet.ends.clone();
        match asked.remove(&(to.clone(), from.clone())) {
            Some(begin) if packet.is_ack => trips.push(packet.time - begin),
            _ => drop(asked.entry((from, to)).or_insert(packet.time)),
        }
    }
    let [row, others @ ..] = &rows(rtt)[..] else {
        panic!("{rtt:#}")
    };
    assert_eq!(row["answered"], trips.len() as u64, "{row}");
    let mean = trips.iter().sum::<f64>() / trips.len() as f64;
    assert!(
        (row["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-3,
        "{row} {mean}"
    );
    let answered = |row: &Value| {
        let name = row["application"].as_str().unwrap();
        let answers = seen
            .iter()
            .filter(|it| it.protocol == "tcp" && it.spoken == name);
        answers.filter_map(|it| it.answered).collect::<Vec<f64>>()
    };
    assert!(!others.is_empty(), "{rtt:#}");
    for row in others {
        let times = answered(row);
        assert_eq!(row["answered"], times.len() as u64, "{row}");
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        // An answer begins before it has come.
        assert!(
            row["least"].as_f64().unwrap() <= least + 1e-9,
            "{row} {least}"
        );
        assert!(row["most"].as_f64() >= row["mean"].as_f64(), "{row}");
    }
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
            .contains("has already passed this element"),
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
        (&json!("failed"), "a peer element does not answer")
    );
    // Nothing of who and where the peer and the sensors are is told.
    assert!(!there.to_string().contains("127.0.0.1"), "{there}");
    assert!(!there.to_string().contains("element-"), "{there}");
    let domains = |user: &str| {
        ["/v1/domains", "/v1/domains/lab", "/v1/domains/nowhere"]
            .map(|path| world.ask("element-a", user, "GET", path, &[], None).text)
            .concat()
    };
    let seen = domains("element-b");
    assert!(
        seen.contains("\"lab\"") && !seen.contains("element-"),
        "{seen}"
    );
    assert_eq!(domains("alice").matches("element-b").count(), 4);
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
