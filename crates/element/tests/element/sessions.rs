//! Sessions: shared, stored, published, bounded, and taken up again.

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use crate::world::{World, until};
use crate::{one_shot, quick, results, rows};

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
        serde_json::from_str(&fs::read_to_string(world.path("results/alice/campus.json")).unwrap())
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
fn stored_results_are_answered() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "idle", &["five"], json!([]));
    let id = world.open("element-a", &one_shot("bandwidth", "campus", "campus"));
    world.until_flows("one", 1);
    world.start(&["one"]);
    let one = world.ended("element-a", &id);
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
    world.check_document("element-a");
}

#[test]
fn nobody_takes_all_measurements() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.more = "most_measurements = 2\n".to_owned();
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "lab", &["two"], json!([]));
    let first = world.open("element-a", &one_shot("bandwidth", "campus", "campus"));
    world.until_flows("one", 1);
    // Equal ones share it; another one waits in vain, and holds up nobody else meanwhile.
    let equal = world.open("element-a", &one_shot("bandwidth", "campus", "campus"));
    let second = world.open("element-a", &one_shot("bandwidth", "lab", "lab"));
    let order = quick("bandwidth", "campus").to_string();
    let path = "/v1/sessions?wait=60";
    let of_other = world.ask("element-a", "bob", "POST", path, &[], Some(&order));
    assert_eq!(of_other.body["state"], "done", "{}", of_other.text);
    let second = world.ended("element-a", &second);
    assert_eq!(second["error"], "too many measurements are running");
    for id in [first, equal] {
        world.cancel("element-a", &id);
    }
}

/// Periodic measurements that were ordered at any time begin at the same times, and are made once for all.
#[test]
fn periodic_sessions_meet() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "idle", &["five"], json!([]));
    let mut order = quick("bandwidth", "idle");
    order["period"] = json!({"periodic": {"every": 2, "seconds": 1, "times": 3}});
    let first = world.open("element-a", &order);
    thread::sleep(std::time::Duration::from_millis(700));
    let second = world.open("element-a", &order);
    let [first, second] = [first, second].map(|id| world.ended("element-a", &id));
    let began = |answer: &Value| {
        let began = results(answer).iter().map(|it| it["began"].to_string());
        began.collect::<std::collections::BTreeSet<String>>()
    };
    let (first, second) = (began(&first), began(&second));
    assert!(
        first.intersection(&second).count() > 0,
        "{first:?} {second:?}"
    );
}

/// A target whose certificate another authority signed.
#[test]
fn results_are_pushed_to_targets_of_other_authorities() {
    let Some(mut world) = World::new() else {
        return;
    };
    let keys = flowgauge_link::KeyFolder::new(world.path("others"));
    keys.create_authority().unwrap();
    keys.add("target", &["127.0.0.1".to_owned()], 1).unwrap();
    let folder = world.path("others").display().to_string();
    let script = "import http.server, ssl, sys\n\
                  class Target(http.server.BaseHTTPRequestHandler):\n\
                  \tdef do_POST(self):\n\
                  \t\tbody = self.rfile.read(int(self.headers['Content-Length']))\n\
                  \t\tself.send_response(204)\n\
                  \t\tself.end_headers()\n\
                  \t\tprint(body.decode(), flush=True)\n\
                  server = http.server.HTTPServer(('127.0.0.1', 0), Target)\n\
                  tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
                  tls.load_cert_chain(sys.argv[1] + '/target.crt', sys.argv[1] + '/target.key')\n\
                  server.socket = tls.wrap_socket(server.socket, server_side=True)\n\
                  print(server.server_port, flush=True)\n\
                  server.serve_forever()";
    let target = std::process::Command::new("python3")
        .args(["-c", script, &folder])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    let Ok(mut target) = target else {
        return crate::skipped::skipped("no python3");
    };
    let mut said = std::io::BufReader::new(target.stdout.take().unwrap()).lines();
    let port = said.next().unwrap().unwrap();
    world.push = format!("https://127.0.0.1:{port}/");
    let mut order = quick("bandwidth", "idle");
    order["publish"] = json!(["push:collector"]);
    world.two_captures();
    for (more, is_trusted) in [
        (String::new(), false),
        (
            format!("push_authority = \"{folder}/authority.crt\"\n"),
            true,
        ),
    ] {
        world.stop_element("element-a");
        world.more = more;
        world.element("element-a");
        world.domain("element-a", "idle", &["five"], json!([]));
        let id = world.open("element-a", &order);
        let ended = world.ended("element-a", &id);
        assert_eq!(ended["error"].is_null(), is_trusted, "{ended:#}");
    }
    // Once only.
    let body: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    assert_eq!(body["order"]["metric"], "bandwidth");
    target.kill().unwrap();
    target.wait().unwrap();
}

#[test]
fn filters_are_as_long_as_sensors_take() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    world.two_captures();
    world.domain("element-a", "campus", &["one"], json!([]));
    world.domain("element-a", "lab", &["two"], json!(["10.0.0.0/8"]));
    let order = |metric: &str, source: &str, filters: usize, bytes: usize| {
        let mut order = quick(metric, source);
        order["filters"] = json!(vec![format!("{:bytes$}", "ip"); filters]);
        order
    };
    // As many as there may be reach sensors, with what is longest behind them.
    for metric in ["application_rtt", "shares", "bandwidth"] {
        let id = world.open("element-a", &order(metric, "campus", 16, 226));
        let ended = world.ended("element-a", &id);
        assert_eq!(ended["state"], "done", "{metric}: {ended}");
    }
    for (source, filters, bytes, sum) in [
        ("campus", 16, 227, "3856 bytes"),
        ("campus", 4, 1024, "4152 bytes"),
        // (src net 10.0.0.0/8) and (dst net 10.0.0.0/8), in brackets.
        ("lab", 16, 226, "3901 bytes"),
        ("campus", 17, 2, "16 filters"),
    ] {
        let body = order("bandwidth", source, filters, bytes).to_string();
        let path = "/v1/sessions";
        let answer = world.ask("element-a", "alice", "POST", path, &[], Some(&body));
        assert_eq!(answer.status, 422, "{}", answer.text);
        assert_eq!(answer.body["place"], "filters");
        let error = answer.body["error"].as_str().unwrap();
        assert!(error.contains(sum), "{error}");
    }
    world.check_document("element-a");
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

/// Why sensors cannot be reached is told to those who may know them.
#[test]
fn an_admin_is_told_why_sensors_are_not_there() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.element("element-a");
    // Nobody listens on the port of discard.
    let body = json!({"sensors": [{"name": "gone", "device": "127.0.0.1:9:eth0"}]}).to_string();
    let put = |path| world.ask("element-a", "alice", "PUT", path, &[], Some(&body));
    assert_eq!(put("/v1/domains/campus").status, 200);
    let order = json!({"source": "campus", "destination": "campus", "metric": "application_rtt",
                       "period": {"one_shot": {"seconds": 1}}})
    .to_string();
    let error = |user: &str| {
        let path = "/v1/sessions?wait=60";
        let answer = world.ask("element-a", user, "POST", path, &[], Some(&order));
        answer.body["error"].as_str().unwrap().to_owned()
    };
    let (told, known) = (error("bob"), error("alice"));
    assert_eq!(
        told,
        "its sensors cannot be reached, or refuse the measurement"
    );
    let reason = known.strip_prefix(&format!("{told}: "));
    assert!(reason.is_some_and(|it| !it.is_empty()), "{known}");
}
