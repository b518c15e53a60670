//! Users beside each other: none harms or delays another, and what each costs is told.

use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicUsize;

use flowgauge_sys::testing::become_on_this_thread;

use super::*;

/// Users that need not exist.
pub(crate) const MANY: u32 = 64_001;
pub(crate) const ONE: u32 = 64_002;

/// Whether this process may be other users; says so where it may not.
pub(crate) fn may_be_others(test: &str) -> bool {
    let is_root = flowgauge_sys::process::user() == 0;
    if !is_root {
        eprintln!("SKIPPED {test}: needs root");
    }
    is_root
}

/// A sensor whose socket others reach.
pub(crate) fn for_all(tables: &str) -> Running {
    let running = Running::start(1, tables);
    for path in [running.folder.path(), &running.folder.path().join("sock")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    running
}

/// Does something as another user.
pub(crate) fn as_user<T: Send>(
    running: &Running,
    user: u32,
    work: impl FnOnce(Client) -> T + Send,
) -> T {
    let socket = running.folder.path().join("sock");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            become_on_this_thread(user).unwrap();
            work(Client::connect(&socket).unwrap())
        });
        other.join().unwrap()
    })
}

/// A filter that takes long to compile, and is none that was compiled before.
fn costly(number: usize) -> String {
    let mut filter = format!("ip[0] = {}", number % 256);
    for port in 0.. {
        let term = format!(" or port {}", 1000 + (number * 37 + port) % 60_000);
        if filter.len() + term.len() > 2500 {
            break;
        }
        filter += &term;
    }
    format!("filter {{ \"{filter}\" }} count")
}

#[test]
fn many_connections_of_one_user_do_not_delay_another() {
    const ATTACKERS: usize = 12;
    const ROUNDS: usize = 20;

    if !may_be_others("many_connections_of_one_user_do_not_delay_another") {
        return;
    }
    let running = for_all(&format!(
        "[users.{MANY}]\npackets = \"payload\"\ncpu = 1000\n[users.{ONE}]\n"
    ));
    let (stop, opened, started) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let (running, stop, opened, started) = (&running, &stop, &opened, &started);
    let (asked, meanwhile) = thread::scope(|scope| {
        for attacker in 0..ATTACKERS {
            scope.spawn(move || {
                as_user(running, MANY, |client| {
                    for round in 0.. {
                        started.fetch_add(1, Ordering::Relaxed);
                        let stack = costly(attacker * 1000 + round);
                        let flow = client.open("mix", &stack, &[]).unwrap();
                        opened.fetch_add(1, Ordering::Relaxed);
                        flow.close().unwrap();
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            });
        }
        // All of them wait by now, or are at work.
        let patience = Instant::now() + Duration::from_secs(60);
        while started.load(Ordering::Relaxed) < ATTACKERS || opened.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
            if Instant::now() > patience {
                stop.store(true, Ordering::Relaxed);
                panic!("they do not come");
            }
        }
        let before = opened.load(Ordering::Relaxed);
        as_user(running, ONE, |client| {
            for round in 0..ROUNDS {
                let stack = format!("filter {{ port {} }} count", 1 + round);
                let flow = client.open("mix", &stack, &[]).unwrap();
                assert_eq!(flow.results().unwrap().failure, None);
                assert_eq!(client.status().unwrap().devices.len(), 1);
                flow.close().unwrap();
            }
        });
        let meanwhile = opened.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        (4 * ROUNDS, meanwhile)
    });
    // In turns of connections there would be twelve for each flow that is opened.
    assert!(meanwhile <= asked, "{meanwhile} for {asked}");
}

#[test]
fn what_users_cost_is_told() {
    if !may_be_others("what_users_cost_is_told") {
        return;
    }
    let running = for_all(&format!(
        "[users.{MANY}]\npackets = \"payload\"\n[users.{ONE}]\ncpu = 0.25\n"
    ));
    let light = as_user(&running, ONE, |client| {
        let flow = client.open("mix", "count", &[]).unwrap();
        (client, flow)
    });
    let heavy = as_user(&running, MANY, |client| {
        let flow = client.open("mix", "flows count", &[]).unwrap();
        (client, flow)
    });
    running.client().start("mix").unwrap();
    last(&light.1);
    last(&heavy.1);
    let own = light.0.status().unwrap();
    assert_eq!(own.users.len(), 1, "of others nothing is told");
    assert_eq!(
        (own.users[0].user, own.users[0].cpu),
        (u64::from(ONE), Some(0.25))
    );
    let all = running.client().status().unwrap();
    let cost = |user: u32| {
        let user = all
            .users
            .iter()
            .find(|it| it.user == u64::from(user))
            .unwrap();
        assert_eq!(user.connections, 1);
        user.cpu_ns
    };
    assert!(cost(MANY) > cost(ONE), "{all:?}");
    let stacks = &all.devices[0].stacks;
    let of = |user: u32| {
        let mut flows = stacks.iter().flat_map(|stack| &stack.flows);
        flows
            .find(|flow| flow.user == u64::from(user))
            .unwrap()
            .cpu_ns
    };
    assert!(of(MANY) > of(ONE), "{stacks:?}");
    assert!(of(MANY) <= cost(MANY));
}

#[test]
fn what_is_put_before_flows_is_not_seen() {
    if !may_be_others("what_is_put_before_flows_is_not_seen") {
        return;
    }
    let running = for_all(&format!(
        "[users.{ONE}]\nfilter = \"tcp port 80\"\n[users.{MANY}]\nanonymize = \"/nowhere/policy.toml\"\n"
    ));
    unread_policies_are_not_told(&running);
    as_user(&running, ONE, |client| {
        let wrong = client.open("mix", "filter { tcp } cuont", &[]);
        let Err(ClientError::Refused(refusal)) = wrong else {
            panic!("{wrong:?}");
        };
        assert!(
            refusal.error.starts_with("flow:1:16: error: "),
            "{refusal:?}"
        );
        assert!(!refusal.error.contains("80"), "{refusal:?}");
        // So many components are its own.
        client.check("mix", &"count ".repeat(32)).unwrap();
        let flow = client.open("mix", "filter { tcp } count", &[]).unwrap();
        assert_eq!(flow.component("filter"), Some(0));
        client.start("mix").unwrap();
        let results = last(&flow);
        let expected = of_file("filter { tcp port 80 } count", &running.trace());
        let labels: Vec<&str> = results
            .components
            .iter()
            .map(|it| it.component.as_str())
            .collect();
        assert_eq!(labels, ["filter", "count"]);
        let value = results.components[1].value.as_ref();
        assert_eq!(value.and_then(serde_json::Value::as_u64), expected[1].1);
        // Not even how much there was before.
        assert_eq!(Some(results.components[0].items), expected[1].1);
        let reading = flow.readings().read(1);
        assert_eq!(reading.value, expected[1].1.map(i128::from));
        let status = client.status().unwrap();
        assert_eq!(
            status.devices[0].stacks[0].components,
            ["filter", "count"],
            "{status:?}"
        );
    });
}

fn unread_policies_are_not_told(running: &Running) {
    let admin = running.client();
    as_user(running, MANY, |client| {
        let flow = client.open("mix", "count", &[]).unwrap();
        let failure = flow.results().unwrap().failure.unwrap();
        assert!(!failure.contains("nowhere"), "{failure}");
        assert!(failure.contains("administrator"), "{failure}");
        let status = client.status().unwrap();
        assert_eq!(status.devices[0].stacks[0].failure, Some(failure));
        let status = admin.status().unwrap();
        let mut stacks = status.devices[0].stacks.iter();
        let told = stacks.find_map(|stack| stack.failure.clone()).unwrap();
        assert!(told.contains("/nowhere/policy.toml"), "{told}");
    });
}

#[test]
fn flows_that_write_files_end_with_the_device_that_is_replaced() {
    let running = Running::start(1, "");
    let client = running.client();
    let path = running.folder.path().join("out.pcap");
    let file = File::create(&path).unwrap();
    let stack = "output { file = fd:0 }";
    let writes = client.open("mix", stack, &[file.as_fd()]).unwrap();
    let counts = client.open("mix", "count", &[]).unwrap();
    let toml = running.folder.path().join("sensor.toml");
    let text = fs::read_to_string(&toml).unwrap();
    let text = text.replace("hold = true", "hold = true\nsnapshot_length = 200");
    fs::write(&toml, text).unwrap();
    assert_eq!(client.reload().unwrap(), ["device mix replaced"]);
    assert!(writes.readings().read(0).has_failed);
    let Err(ClientError::Refused(refusal)) = writes.results() else {
        panic!("it goes on");
    };
    assert!(refusal.error.contains("replaced"), "{refusal:?}");
    client.start("mix").unwrap();
    last(&counts);
    // What was written is whole: a header, and no packet behind it.
    let mut source = open(&path).unwrap();
    assert!(source.next_batch().unwrap().is_none());
    assert!(fs::metadata(&path).unwrap().len() <= 24);
}

/// A user has so many connections; one more is told what to do about it, and another user and one that leaves make no difference to that.
#[test]
fn a_user_with_too_many_connections_is_told() {
    const MOST: usize = 32;

    if !may_be_others("a_user_with_too_many_connections_is_told") {
        return;
    }
    let running = for_all(&format!("[users.{MANY}]\n[users.{ONE}]\n"));
    let connect = |user| as_user(&running, user, |client| client);
    let mut all: Vec<Client> = (0..MOST).map(|_| connect(MANY)).collect();
    for client in &all {
        client.status().unwrap();
    }
    let refused = connect(MANY).status().unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("you already have {MOST} connections, the maximum")
    );
    let hint = refused.hint().unwrap();
    assert_eq!(
        hint,
        "close others, or open several flows on one connection"
    );
    connect(ONE).status().unwrap();
    all.pop();
    // The sensor notes that it has gone a little later.
    let patience = Instant::now() + Duration::from_secs(60);
    while connect(MANY).status().is_err() {
        assert!(Instant::now() < patience);
        thread::sleep(Duration::from_millis(10));
    }
}
