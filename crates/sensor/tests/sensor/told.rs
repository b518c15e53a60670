//! What a sensor tells of its flows, of its end, and to who runs it.

use std::collections::BTreeSet;

use flowgauge_sensor_client::protocol::SharedStatus;

use super::users::{MANY, ONE, as_user, for_all, may_be_others};
use super::*;

/// All components of a tree with the flows that they are computed for, each once.
fn all(shared: &[SharedStatus]) -> Vec<(String, Vec<u64>, u64)> {
    let mut found = Vec::new();
    for one in shared {
        for component in &one.components {
            found.push((component.clone(), one.flows.clone(), one.others));
        }
        found.extend(all(&one.next));
    }
    found
}

#[test]
fn what_flows_share_is_shown_and_computed_once() {
    let running = Running::start(1, "[stacks.always]\nstack = \"filter { tcp } count\"\n");
    let client = running.client();
    let open = |stack: &str| client.open("mix", stack, &[]).unwrap();
    let equal = "filter { tcp } bytes";
    let flows = [
        open(equal),
        open(equal),
        open("filter { tcp } sample { value = 2 } count"),
        open("transactions count"),
        open("flows count"),
    ];
    let [a, b, sampled, transactions, flows_of] = flows.each_ref().map(Flow::number);
    let status = client.status_with(true).unwrap();
    let shared = &status.devices[0].shared;
    let filter = shared
        .iter()
        .find(|it| it.components == ["filter"])
        .unwrap();
    assert_eq!(filter.flows, [a, b, sampled], "{shared:#?}");
    assert_eq!(
        (&filter.stacks[..], filter.others),
        (&["always".to_owned()][..], 0)
    );
    let engine = shared.iter().find(|it| it.is_engine);
    let engine = engine.unwrap_or_else(|| panic!("{shared:#?}"));
    assert_eq!(engine.flows, [transactions, flows_of], "{shared:#?}");
    assert!(engine.components.is_empty() && engine.next.len() == 2);
    let mut computed = all(shared);
    computed.sort();
    let of = |component: &str, flows: &[u64]| (component.to_owned(), flows.to_vec(), 0);
    let mut expected = vec![
        of("filter", &[a, b, sampled]),
        of("bytes", &[a, b]),
        of("count", &[]),
        of("sample", &[sampled]),
        of("count", &[sampled]),
        of("flows", &[flows_of]),
        of("count", &[flows_of]),
        of("transactions", &[transactions]),
        of("count", &[transactions]),
    ];
    expected.sort();
    assert_eq!(computed, expected);
    // Nobody else is told of it who did not ask.
    assert!(client.status().unwrap().devices[0].shared.is_empty());
    // With several workers it is the same for each of them.
    let running = Running::start(2, "");
    let client = running.client();
    let (one, other) = (
        client.open("mix", "filter { tcp } count", &[]).unwrap(),
        client.open("mix", "filter { tcp } bytes", &[]).unwrap(),
    );
    let status = client.status_with(true).unwrap();
    let computed = all(&status.devices[0].shared);
    let both = vec![one.number(), other.number()];
    let filters = computed.iter().filter(|it| it.0 == "filter");
    assert_eq!(filters.map(|it| &it.1).collect::<Vec<_>>(), [&both]);
    assert_eq!(computed.len(), 3);
}

#[test]
fn of_others_only_their_number_is_shown() {
    if !may_be_others("of_others_only_their_number_is_shown") {
        return;
    }
    let running = for_all(&format!(
        "[stacks.always]\nstack = \"filter {{ udp }} count\"\n\
         [users.{MANY}]\nfilter = \"ip\"\n[users.{ONE}]\npackets = \"payload\"\n"
    ));
    let open = |user: u32, stack: &str| {
        as_user(&running, user, |client| {
            let flow = client.open("mix", stack, &[]).unwrap();
            (client, flow)
        })
    };
    let mine = open(ONE, "filter { udp } count bytes");
    let own = open(ONE, "count");
    let _theirs = [
        open(MANY, "filter { udp } count"),
        open(MANY, "count"),
        open(MANY, "bytes"),
    ];
    let status = mine.0.status_with(true).unwrap();
    let seen = all(&status.devices[0].shared);
    let numbers = BTreeSet::from([mine.1.number(), own.1.number()]);
    assert!(
        seen.iter()
            .all(|it| it.1.iter().all(|flow| numbers.contains(flow)) && !it.1.is_empty())
    );
    let filter = seen.iter().find(|it| it.0 == "filter").unwrap();
    assert_eq!(
        (filter.1.as_slice(), filter.2),
        (&[mine.1.number()][..], 1),
        "{status:#?}"
    );
    assert!(
        status.devices[0]
            .shared
            .iter()
            .all(|it| it.stacks.is_empty())
    );
    // Nor what is put before one's own flows.
    as_user(&running, MANY, |client| {
        let flows = [
            client.open("mix", "filter { udp } count", &[]).unwrap(),
            client.open("mix", "bytes", &[]).unwrap(),
        ];
        let status = client.status_with(true).unwrap();
        let seen = all(&status.devices[0].shared);
        assert!(seen.iter().all(|it| !it.0.contains("forced")), "{seen:?}");
        assert_eq!(
            seen.iter()
                .filter(|it| it.1.contains(&flows[1].number()))
                .count(),
            1
        );
    });
}

#[test]
fn flows_have_their_last_results_when_the_sensor_is_stopped() {
    let running = Running::start(1, "[stacks.always]\nstack = \"count\"\n");
    let clients = [running.client(), running.client()];
    let counts = clients[0].open("mix", "filter { tcp } count", &[]).unwrap();
    let expired = clients[1].open("mix", "expired_flows", &[]).unwrap();
    clients[0].start("mix").unwrap();
    let readings = counts.readings();
    let patience = Instant::now() + Duration::from_secs(60);
    while readings.read(1).value == Some(0) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    running.is_stopped.store(true, Ordering::Relaxed);
    while !readings.read(1).is_last && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    let number = |results: &Results| {
        let value = results.components[1].value.as_ref();
        value.and_then(serde_json::Value::as_u64).map(i128::from)
    };
    let last = counts.close().unwrap();
    assert!(last.is_last && last.failure.is_none(), "{last:?}");
    let shown = readings.read(1);
    assert_eq!((shown.value, shown.is_last), (number(&last), true));
    // Tables come, too, and no new flows.
    let refused = clients[1].open("mix", "bytes", &[]);
    assert!(
        matches!(refused, Err(ClientError::Refused(_))),
        "{refused:?}"
    );
    let table = expired.close().unwrap();
    assert!(
        table.is_last
            && table.components[0]
                .rows
                .as_ref()
                .is_some_and(|rows| !rows.is_empty())
    );
    // Once nobody has a flow the sensor does not wait.
    let ended = Instant::now();
    let patience = ended + Duration::from_secs(60);
    while !clients.iter().all(Client::is_gone) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(clients.iter().all(Client::is_gone));
    // What it shared stays readable.
    assert_eq!(readings.read(1).value, number(&last));
}

#[test]
fn memory_that_equal_flows_share_counts_once() {
    let running = Running::start(1, "");
    let client = running.client();
    let stack = "filter { udp } to_buffer";
    let flows = [0, 1].map(|_| client.open("mix", stack, &[]).unwrap());
    client.start("mix").unwrap();
    last(&flows[0]);
    let status = client.status().unwrap();
    let waiting = status.devices[0].stacks[0].flows.iter();
    let waiting: Vec<u64> = waiting.map(|flow| flow.waiting).collect();
    assert!(waiting.len() == 2 && waiting[0] > 0, "{waiting:?}");
    assert_eq!(waiting, [status.users[0].memory; 2]);
}

#[test]
fn who_runs_a_sensor_is_told_what_happens() {
    let running = Running::start(1, "");
    let client = running.client();
    let damaged = running.folder.path().join("cut.pcap");
    let whole = fs::read(running.trace()).unwrap();
    fs::write(&damaged, &whole[..5000]).unwrap();
    let file = running.folder.path().join("sensor.toml");
    let write = |tables: &str| {
        fs::write(&file, config_text(running.folder.path(), 1, tables)).unwrap();
    };
    let (mut told, patience) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    let mut is_told = |what: &str| {
        while Instant::now() < patience {
            told.extend(running.sensor.news());
            if told.iter().any(|line: &String| line.contains(what)) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{what}: {told:?}");
    };
    write(&format!(
        "[devices.cut]\nfiles = [\"{}\"]\n",
        damaged.display()
    ));
    client.reload().unwrap();
    assert!(is_told("reloaded by user 0: device cut started"));
    assert!(is_told("device cut: ") && is_told("cut.pcap"));
    write("[devices.cut]\nfiles = []\nworkers = 0\n");
    assert!(client.reload().is_err());
    assert!(is_told(
        "not reloaded by user 0, the sensor continues as it was: "
    ));
    // Of a user's own file only the user is told.
    let own = client
        .create_device(File::open(&damaged).unwrap().as_fd())
        .unwrap();
    client.start(&own).unwrap();
    let device = || {
        let devices = client.status().unwrap().devices;
        devices.into_iter().find(|it| it.device == own).unwrap()
    };
    while device().state != "ended" && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!device().errors.is_empty());
    assert!(
        running
            .sensor
            .news()
            .iter()
            .all(|line| !line.contains(&own))
    );
}

#[test]
fn a_pipe_keeps_no_device_waiting() {
    let running = Running::start(1, "");
    let pipe = running.folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let client = running.client();
    let tables = format!(
        "[stacks.pipe]\nstack = \"flows - output {{ file = {0} }}\"\n\
         [stacks.packets]\nstack = \"output {{ file = {0} }}\"\n",
        pipe.display()
    );
    let text = config_text(running.folder.path(), 1, &tables);
    fs::write(running.folder.path().join("sensor.toml"), text).unwrap();
    let said = client.reload().unwrap();
    let failed = said
        .iter()
        .filter(|line| line.contains("it is a named pipe"));
    assert_eq!(failed.count(), 2, "{said:?}");
    let flow = client.open("mix", "count", &[]).unwrap();
    client.start("mix").unwrap();
    assert!(last(&flow).failure.is_none());
}
