//! Who may have what, and what strangers can do.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use flowgauge_credential::{Credential, Holder, IssuerKey, Limits};
use serde_json::json;

use crate::one_shot;
use crate::world::{self, Asked, World, issuer, until};

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

/// Asks with a credential, for a measurement within a domain.
fn ask_with(world: &World, credential: &str, metric: &str, source: &str, seconds: u32) -> Asked {
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
        ask_with(&world, credential, metric, source, seconds)
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
}

#[test]
fn what_is_made_of_a_credential_is_bounded_together() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    let order = json!({"source": "campus", "destination": "campus", "metric": "bandwidth",
                       "period": {"periodic": {"every": 3600, "times": 2}}})
    .to_string();
    let open = |credential: &Credential| {
        let bearer = format!("Authorization: Bearer {}", credential.text());
        let path = "/v1/sessions";
        world.ask("element-a", "", "POST", path, &[&bearer], Some(&order))
    };
    let flows = |most| Limits {
        most_flows: Some(most),
        ..Limits::default()
    };
    let wide = Credential::issue(&issuer(), &Limits::default()).unwrap();
    // A block bounds all that have it; asking for more than the table has gives nothing.
    let two = wide.attenuate(&flows(2)).unwrap();
    let copies = (0..4).map(|it| two.attenuate(&flows(1000 + it)).unwrap());
    let answers: Vec<u16> = copies.map(|copy| open(&copy).status).collect();
    assert_eq!(answers, [200, 200, 503, 503]);
    assert_eq!(open(&two).status, 503);
    let copies = (0..18).map(|it| wide.attenuate(&flows(2000 + it)).unwrap());
    let answers: Vec<u16> = copies.map(|copy| open(&copy).status).collect();
    assert_eq!(answers, [vec![200; 14], vec![503; 4]].concat());
    let refused = open(&wide);
    let error = refused.body["error"].as_str().unwrap();
    assert!(
        error.contains("16 running sessions") && error.contains("issuers.ops"),
        "{error}"
    );
    // Another credential of the issuer has its own.
    let other = Credential::issue(&issuer(), &Limits::default()).unwrap();
    assert_eq!(open(&other).status, 200);
}

#[test]
fn credentials_that_do_not_count_are_refused() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    let ask = |credential: &str| ask_with(&world, credential, "bandwidth", "campus", 2);
    let wide = Credential::issue(&issuer(), &Limits::default()).unwrap();
    let narrow = wide
        .attenuate(&Limits::default().devices(["campus"]))
        .unwrap();
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
        let answer = ask(&credential);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(!answer.body.to_string().contains(&credential));
    }
    // The scheme is the same in small letters; which of two counts would be a guess.
    for (headers, status) in [
        (&[("authorization: bearer", wide.text())][..], 200),
        (&[("Authorization: BEARER ", wide.text())], 200),
        (&[("Authorization: Bearer", "".to_owned())], 401),
        (&[("Authorization: Bearers", wide.text())], 401),
        (
            &[
                ("Authorization: Bearer", wide.text()),
                ("authorization: bearer", narrow.text()),
            ],
            401,
        ),
    ] {
        let headers = headers.iter().map(|(name, text)| format!("{name} {text}"));
        let headers: Vec<String> = headers.collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let answer = world.ask("element-a", "", "GET", "/v1/domains", &headers, None);
        assert_eq!(answer.status, status, "{headers:?}");
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
    assert_eq!(ask(&narrow.text()).status, 401);
    assert_eq!(ask(&wide.text()).status, 200);
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

/// What was measured meanwhile is not delivered, and nothing further is measured.
#[test]
fn a_credential_that_is_revoked_meanwhile_gets_nothing() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    let credential = Credential::issue(&issuer(), &Limits::default()).unwrap();
    let bearer = format!("Authorization: Bearer {}", credential.text());
    let mut once = one_shot("bandwidth", "campus", "campus");
    once["publish"] = json!(["prometheus"]);
    let mut again = once.clone();
    again["period"] = json!({"periodic": {"every": 1, "seconds": 1, "times": 1000}});
    let ids = [&once, &again].map(|order| {
        let (path, order) = ("/v1/sessions", order.to_string());
        let answer = world.ask("element-a", "", "POST", path, &[&bearer], Some(&order));
        answer.body["id"].as_str().unwrap().to_owned()
    });
    let shown = |id: &str| {
        let path = format!("/v1/sessions/{id}");
        world
            .ask("element-a", "alice", "GET", &path, &[], None)
            .body
    };
    until("one is made", || shown(&ids[1])["made"].as_u64() >= Some(1));
    let id = credential.ids().last().unwrap();
    fs::write(world.path("revoked"), format!("{id}\n")).unwrap();
    world.start(&["one"]);
    let [once, again] = ids.map(|id| world.ended("element-a", &id));
    for session in [&once, &again] {
        assert_eq!(session["state"], "failed", "{session:#}");
        let error = session["error"].as_str().unwrap();
        assert!(error.contains("was revoked"), "{error}");
    }
    assert_eq!(once["results"], json!([]));
    assert!(again["made"].as_u64() < Some(1000));
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
