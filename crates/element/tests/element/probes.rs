//! Active probes.

use std::net::UdpSocket;

use serde_json::json;

use crate::skipped;
use crate::world::{World, until};
use crate::{one_shot, rows};

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
    // One that does not name the other does not answer it, and does not probe it.
    world.more = "[probes]\npeers = [\"element-c\"]\n".to_owned();
    world.stop_element("element-b");
    world.element("element-b");
    world.peer("element-a", "element-b", &["lab"]);
    let refused = probe(&world, "one_way", "campus", "lab");
    let error = refused["error"].as_str().unwrap();
    assert_eq!(error, "a peer element: resource not available");
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
                "the route to the peer is through a captured interface"
            );
            // Those of others get there no answer either.
            let order = json!({"metric": "connect", "seconds": 1}).to_string();
            let path = "/v1/probes";
            let refused = world.ask("element-a", "element-b", "POST", path, &[], Some(&order));
            assert_eq!(
                (refused.status, refused.body["error"].as_str()),
                (409, Some(error))
            );
        }
    }
    world.check_document("element-b");
}

#[test]
fn datagrams_count_by_their_token() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.more = "[probes]\npeers = [\"element-a\"]\n".to_owned();
    world.element("element-b");
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
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
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
    world.check_document("element-b");
}
