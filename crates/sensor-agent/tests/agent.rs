//! A sensor asked by its agent, over TLS on loopback, beside the same sensor asked on its socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_credential::{Credential, Holder, IssuerKey, Limits};
use flowgauge_generate::{Config as Trace, Preset, generate};
use flowgauge_link::{Identity, KeyFolder};
use flowgauge_sensor::Sensor;
use flowgauge_sensor_agent::Agent;
use flowgauge_sensor_client::protocol::Results;
use flowgauge_sensor_client::protocol::Secret;
use flowgauge_sensor_client::scope::{self, Member};
use flowgauge_sensor_client::{Client, ClientError, Flow, Packet, Readings, ScopeFlow, Sensors};

const LONG: Duration = Duration::from_secs(60);
const STACKS: [&str; 5] = [
    "count bytes",
    "filter { tcp port 80 } count bytes",
    "search { pattern = \"GET\" } count",
    "top { by = ip.src, count = 10 }",
    "expired_flows",
];

/// A sensor of a file that waits, and its agent.
struct Running {
    folder: tempfile::TempDir,
    sensor: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    agent: Option<Agent>,
    user: Identity,
}

impl Running {
    fn start() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let trace = Trace::new(Preset::Mix).with_packets(20_000);
        generate(&trace, File::create(path.join("mix.pcap")).unwrap()).unwrap();
        let config = format!(
            "socket = \"{0}/sock\"\nuser = \"root\"\n[devices.mix]\nfiles = [\"{0}/mix.pcap\"]\nhold = true\n\
             [remotes.user]\npackets = \"payload\"\n[remotes.counter]\nmost_flows = 1\n\
             [issuers.ops]\nkey = \"{1}\"\n",
            path.display(),
            issuer().public()
        );
        fs::write(path.join("sensor.toml"), config).unwrap();
        let keys = KeyFolder::new(path.join("keys"));
        keys.create_authority().unwrap();
        keys.add("sensor", &["127.0.0.1".to_owned()], 1).unwrap();
        for name in ["user", "counter", "stranger"] {
            keys.add(name, &[], 1).unwrap();
        }
        let mut running = Running {
            sensor: None,
            agent: None,
            user: keys.identity(Some("user")).unwrap(),
            folder,
        };
        running.start_sensor();
        let identity = keys.identity(Some("sensor")).unwrap();
        let agent = Agent::start(&identity, "127.0.0.1:0", Vec::new(), running.socket());
        running.agent = Some(agent.unwrap());
        running
    }

    fn start_sensor(&mut self) {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let config = self.folder.path().join("sensor.toml");
        let sensor = Sensor::start(&config, Arc::clone(&is_stopped));
        let sensor = Arc::new(sensor.unwrap_or_else(|error| panic!("{error}")));
        let serving = thread::spawn(move || assert!(sensor.run(|_| {}).is_balanced()));
        self.sensor = Some((is_stopped, serving));
    }

    fn stop_sensor(&mut self) {
        if let Some((is_stopped, serving)) = self.sensor.take() {
            is_stopped.store(true, Ordering::Relaxed);
            serving.join().unwrap();
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    fn local(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    fn remote(&self) -> Client {
        self.remote_of(&self.user)
    }

    fn remote_of(&self, user: &Identity) -> Client {
        let address = self.agent.as_ref().unwrap().local_address().to_string();
        Client::connect_to(user, &address, None, LONG).unwrap()
    }

    fn identity(&self, name: &str) -> Identity {
        let keys = KeyFolder::new(self.folder.path().join("keys"));
        keys.identity(Some(name)).unwrap()
    }

    /// Flows that the sensor has.
    fn flows(&self) -> usize {
        let status = self.local().status().unwrap();
        let stacks = status.devices.iter().flat_map(|device| &device.stacks);
        stacks.map(|stack| stack.flows.len()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_sensor();
    }
}

/// Who issues credentials.
fn issuer() -> IssuerKey {
    IssuerKey::parse(&format!("ed25519-private/{}", "5a".repeat(32))).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Packets of two traces come by capture time, none lost or twice.
#[test]
fn packets_of_several_sensors_come_by_capture_time() {
    let all = running(3);
    let (sensors, members) = scope_of(&all);
    let stack = "filter { tcp } to_buffer";
    let mut flow = ScopeFlow::open(&sensors, members, stack, &[], Duration::ZERO).unwrap();
    flow.by_time(Some(Duration::from_secs(1)));
    assert!(flow.start().iter().all(Result::is_ok));
    let (mut last, mut taken) = (0, vec![0; flow.size()]);
    let mut take = |member: usize, packet: Packet<'_>| {
        assert!(packet.time() >= last);
        last = packet.time();
        taken[member] += 1;
    };
    while flow.next(LONG, &mut take).is_some() {}
    let counted = flow.read("to_buffer").into_iter();
    let counted: Vec<u64> = counted.map(|reading| reading.unwrap().items).collect();
    assert_eq!(counted, taken);
    assert!(taken.iter().all(|taken| *taken > 1000));
}

/// A network between a user and an agent that passes 4 MB per second on, and how much it has.
fn narrow(target: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let count = Arc::<AtomicU64>::default();
    let passed = Arc::clone(&count);
    let address = between(target, move |len| {
        passed.fetch_add(len as u64, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(16) * len as u32 / (64 << 10));
    });
    (address, count)
}

/// A network between a user and an agent that waits for `pass` with as many bytes as come to the user at once.
fn between(
    target: std::net::SocketAddr,
    pass: impl Fn(usize) + Send + 'static,
) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let user = listener.accept().unwrap().0;
        let agent = TcpStream::connect(target).unwrap();
        let back = (user.try_clone().unwrap(), agent.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
        let mut bytes = vec![0; 64 << 10];
        while let Ok(len @ 1..) = (&agent).read(&mut bytes) {
            pass(len);
            if (&user).write_all(&bytes[..len]).is_err() {
                break;
            }
        }
    });
    address
}

/// Rows of an answer that came late are there for who asks next, or with the last results.
#[test]
fn rows_that_come_late_are_not_lost() {
    let running = Running::start();
    let is_held = Arc::<AtomicBool>::default();
    let holds = Arc::clone(&is_held);
    let address = between(running.agent.as_ref().unwrap().local_address(), move |_| {
        while holds.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let sensors = Sensors::new(running.socket(), Some(running.user.clone()));
    let sensors = Arc::new(sensors);
    let members = scope::members(&format!("{address}:mix")).unwrap();
    let open = || {
        let (members, stack) = (
            members.clone(),
            "expired_flows { timeout = 1s, warmup = no }",
        );
        ScopeFlow::open(&sensors, members, stack, &[], Duration::ZERO).unwrap()
    };
    let mut flows = [open(), open()];
    let local = running
        .local()
        .open("mix", "expired_flows { timeout = 1s, warmup = no }", &[])
        .unwrap();
    running.local().start("mix").unwrap();
    until("all is read", || local.readings().read(0).is_last);
    // Each table begins with its counts.
    let rows = |results: &Results| {
        let all = results.components[0].rows.clone().unwrap_or_default();
        let flows = all.into_iter().filter(|row| row.contains_key("source"));
        flows.collect::<Vec<_>>()
    };
    let expected = rows(&local.close().unwrap());
    assert!(expected.len() > 100, "{}", expected.len());
    is_held.store(true, Ordering::Relaxed);
    for flow in &flows {
        let late = flow.take("expired_flows").remove(0).unwrap_err();
        assert_eq!(late, "it does not answer");
        assert_eq!(flow.states()[0].state, "late");
    }
    is_held.store(false, Ordering::Relaxed);
    let mut taken = Vec::new();
    until("what was late is there", || {
        let came = flows[0].take("expired_flows").remove(0);
        taken.extend(came.iter().flat_map(&rows));
        taken.len() >= expected.len()
    });
    assert!(taken == expected);
    until("it answers", || flows[1].results()[0].is_ok());
    assert!(rows(flows[1].close()[0].as_ref().unwrap()) == expected);
}

/// At the end of a sensor users elsewhere have their last results, too, without asking in time by chance.
#[test]
fn last_results_come_from_a_sensor_that_ends() {
    let mut running = Running::start();
    let (sensors, members) = scope_of(core::slice::from_ref(&running));
    let mut flow = ScopeFlow::open(&sensors, members, "count", &[], Duration::ZERO).unwrap();
    let local = running.local().open("mix", "count", &[]).unwrap();
    assert!(flow.start().iter().any(Result::is_ok));
    until("packets come", || local.readings().read(0).value > Some(0));
    local.close().unwrap();
    let stopping = thread::spawn(move || {
        running.stop_sensor();
        running
    });
    until("the end is told", || flow.is_over());
    let last = flow.close();
    let is_good = |results: &Results| results.is_last && results.failure.is_none();
    assert!(last.iter().flatten().any(is_good), "{last:?}");
    drop(stopping.join().unwrap());
}

/// Packets that wait for a network come compressed, and are the same.
#[test]
fn packets_are_compressed_where_the_network_is_slow() {
    let running = Running::start();
    let (address, passed) = narrow(running.agent.as_ref().unwrap().local_address());
    let near = running.local();
    let far = Client::connect_to(&running.user, &address.to_string(), None, LONG).unwrap();
    let mut flows = [&near, &far].map(|client| client.open("mix", "to_buffer", &[]).unwrap());
    flows[1].set_prefetch(400_000);
    near.start("mix").unwrap();
    let [one, other] = &mut flows;
    let (here, there) = thread::scope(|scope| {
        let here = scope.spawn(|| packets(one));
        (packets(other), here.join().unwrap())
    });
    assert!(here.len() > 10_000);
    assert!(here == there);
    let bytes: usize = here.iter().map(Vec::len).sum();
    let passed = passed.load(Ordering::Relaxed) as usize;
    assert!(passed < bytes * 9 / 10, "{passed} of {bytes}");
}

fn packets(flow: &mut Flow) -> Vec<Vec<u8>> {
    let (mut packets, readings) = (Vec::new(), flow.readings());
    loop {
        match flow.next(Duration::from_millis(200)).unwrap() {
            Some(packet) => {
                assert_eq!(packet.record.as_ptr().align_offset(8), 0);
                packets.push(packet.record.to_vec());
            }
            None if readings.read(0).is_last => return packets,
            None => {}
        }
    }
}

fn numbers(readings: &Readings, components: usize) -> Vec<(u64, Option<i128>, u64)> {
    let read = (0..components).map(|at| readings.read(at));
    read.map(|reading| (reading.items, reading.value, reading.rows))
        .collect()
}

#[test]
fn flows_are_the_same_here_and_elsewhere() {
    let running = Running::start();
    let (local, remote) = (running.local(), running.remote());
    let flows: Vec<[Flow; 2]> = (STACKS.iter())
        .map(|stack| [&local, &remote].map(|client| client.open("mix", stack, &[]).unwrap()))
        .collect();
    flows[1][1].push(Duration::from_millis(20)).unwrap();
    let mut buffers = [&local, &remote].map(|client| {
        let stack = "filter { udp } to_buffer count to_buffer";
        client.open("mix", stack, &[]).unwrap()
    });
    // Many times over what may be under way at once.
    buffers[1].set_prefetch(20_000);
    remote.start("mix").unwrap();
    let taken = thread::scope(|scope| {
        let taken = buffers.each_mut().map(|flow| scope.spawn(|| packets(flow)));
        taken.map(|thread| thread.join().unwrap())
    });
    assert!(taken[0].len() > 500, "{}", taken[0].len());
    assert!(taken[0] == taken[1]);
    for (stack, [here, there]) in STACKS.iter().zip(&flows) {
        until(stack, || here.results().unwrap().is_last);
        let [mut of_here, mut of_there] = [here, there].map(|flow| flow.results().unwrap());
        (of_here.time, of_there.time) = (0, 0);
        assert_eq!(of_here, of_there, "{stack}");
        let components = of_here.components.len();
        let expected = numbers(&here.readings(), components);
        assert!(expected[0].0 > 0);
        until(stack, || there.readings().read(0).is_last);
        assert_eq!(numbers(&there.readings(), components), expected, "{stack}");
    }
}

#[test]
fn what_a_user_elsewhere_cannot_have_is_refused_with_the_reason() {
    let running = Running::start();
    let remote = running.remote();
    let no_device = remote.open("eth9", "count", &[]).unwrap_err();
    assert!(no_device.to_string().contains("eth9"), "{no_device}");
    let wrong = remote.open("mix", "count count2", &[]).unwrap_err();
    assert!(wrong.to_string().contains("count2"), "{wrong}");
    let trace = File::open(running.folder.path().join("mix.pcap")).unwrap();
    let file = std::os::fd::AsFd::as_fd(&trace);
    for refused in [
        remote.create_device(file).unwrap_err(),
        remote.open("mix", "count", &[file]).unwrap_err(),
    ] {
        assert!(matches!(refused, ClientError::Refused(_)), "{refused}");
    }
    assert_eq!(remote.status().unwrap().devices.len(), 1);
    assert_eq!(running.flows(), 0);
}

#[test]
fn users_elsewhere_have_the_rights_of_their_certificates_names() {
    let running = Running::start();
    let stranger = running.remote_of(&running.identity("stranger"));
    let refused = stranger.status().unwrap_err();
    assert!(refused.to_string().contains("no rights"), "{refused}");
    let counter = running.remote_of(&running.identity("counter"));
    let refused = counter.open("mix", "to_buffer", &[]).unwrap_err();
    assert!(refused.to_string().contains("not allowed"), "{refused}");
    let flow = counter.open("mix", "count", &[]).unwrap();
    let refused = counter.open("mix", "bytes", &[]).unwrap_err();
    assert!(refused.to_string().contains('1'), "{refused}");
    let user = running.remote();
    assert!(user.results(flow.number()).is_err());
    let _other = user.open("mix", "count", &[]).unwrap();
    for refused in [user.reload(), user.stop().map(|()| Vec::new())] {
        assert!(matches!(refused, Err(ClientError::Refused(_))));
    }
    for client in [&user, &counter] {
        let refused = client.speak_for("user", None).unwrap_err();
        assert!(matches!(refused, ClientError::Refused(_)), "{refused}");
    }
    let names = |client: &Client| {
        let devices = client.status().unwrap().devices;
        let stacks = devices.into_iter().flat_map(|device| device.stacks);
        let flows = stacks.flat_map(|stack| stack.flows);
        let mut names: Vec<_> = flows.map(|flow| flow.name.unwrap_or_default()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&running.local()), ["counter", "user"]);
    assert_eq!(names(&counter), ["counter"]);
    // Who has flows cannot become somebody else.
    let local = running.local();
    let _own = local.open("mix", "count", &[]).unwrap();
    assert!(local.speak_for("counter", None).is_err());
}

#[test]
fn a_reload_judges_users_elsewhere_by_their_own_rights() {
    let running = Running::start();
    let (user, counter) = (
        running.remote(),
        running.remote_of(&running.identity("counter")),
    );
    let _flows = [&user, &counter].map(|client| client.open("mix", "count", &[]).unwrap());
    let all = [running];
    let (sensors, members) = scope_of(&all);
    let scope = ScopeFlow::open(&sensors, members, "count", &[], Duration::ZERO).unwrap();
    let running = &all[0];
    let local = running.local();
    local.reload().unwrap();
    assert_eq!(running.flows(), 4);
    let file = running.folder.path().join("sensor.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[remotes.user]", "[remotes.other]")).unwrap();
    let said = local.reload().unwrap();
    assert!(
        said.iter().any(|line| line.contains("rights have changed")),
        "{said:?}"
    );
    until("the user's flows have ended", || running.flows() == 2);
    let refused = |it: &Result<Results, String>| it.as_ref().err().cloned();
    let why = refused(&scope.results()[0]).unwrap();
    assert_eq!(why, "you have no rights here");
    let states = scope.states();
    assert_eq!([states[0].state, states[1].state], ["refused", "ok"]);
    assert_eq!(states[0].trouble.as_ref().unwrap().what, why);
    assert_eq!(refused(&scope.results()[0]), Some(why));
    assert!(user.open("mix", "count", &[]).is_err());
    counter.status().unwrap();
}

#[test]
fn flows_end_with_their_connection() {
    let running = Running::start();
    let (one, other) = (running.remote(), running.remote());
    let mut flows = vec![
        one.open("mix", "count", &[]).unwrap(),
        one.open("mix", "to_buffer", &[]).unwrap(),
        other.open("mix", "bytes", &[]).unwrap(),
    ];
    assert!(flows[1].next(Duration::from_millis(10)).unwrap().is_none());
    assert!(other.results(flows[0].number()).is_err());
    assert_eq!(running.flows(), 3);
    let last = flows.pop().unwrap();
    drop((one, flows));
    until("the connection's flows end", || running.flows() == 1);
    last.close().unwrap();
    assert_eq!(running.flows(), 0);
}

#[test]
fn a_sensor_that_goes_is_told_and_its_agent_finds_the_next() {
    let mut running = Running::start();
    let remote = running.remote();
    let pushed = remote.open("mix", "count", &[]).unwrap();
    pushed.push(Duration::from_millis(10)).unwrap();
    running.stop_sensor();
    until("it is told", || remote.is_gone());
    assert!(remote.status().is_err());
    let remote = running.remote();
    let refused = remote.status().unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(_)), "{refused}");
    running.start_sensor();
    // The same connection.
    let flow = remote.open("mix", "count", &[]).unwrap();
    remote.start("mix").unwrap();
    until("it counts", || flow.readings().read(0).is_last);
    let packets = running.local().status().unwrap().devices[0].packets;
    assert!(packets > 10_000);
    assert_eq!(flow.readings().read(0).value, Some(packets.into()));
    running.agent = None;
    until("the agent has gone", || remote.is_gone());
    until("and what it had", || running.flows() == 0);
}

/// A scope of the agents' devices and of this machine's.
fn scope_of(all: &[Running]) -> (Arc<Sensors>, Vec<Member>) {
    let mut members: Vec<Member> = (all.iter())
        .map(|running| {
            let address = running.agent.as_ref().unwrap().local_address().to_string();
            scope::members(&format!("{address}:mix")).unwrap().remove(0)
        })
        .collect();
    members.push(scope::members("mix").unwrap().remove(0));
    // Every agent has an authority of its own here.
    let sensors = Sensors::new(all[0].socket(), Some(all[0].user.clone()));
    (Arc::new(sensors), members)
}

/// Sensors whose agents are of one authority.
fn running(count: usize) -> Vec<Running> {
    let mut all = vec![Running::start()];
    for _ in 1..count {
        let mut other = Running::start();
        let keys = KeyFolder::new(all[0].folder.path().join("keys"));
        let identity = keys.identity(Some("sensor")).unwrap();
        let agent = Agent::start(&identity, "127.0.0.1:0", Vec::new(), other.socket());
        other.agent = Some(agent.unwrap());
        all.push(other);
    }
    all
}

#[test]
fn one_flow_on_many_sensors_goes_on_where_one_of_them_fails() {
    let mut all = running(3);
    let (sensors, mut members) = scope_of(&all);
    members.push(scope::members("127.0.0.1:1:mix").unwrap().remove(0));
    members[0].device = "other".to_owned();
    let open =
        |stack, every| ScopeFlow::open(&sensors, members.clone(), stack, &[], every).unwrap();
    let mut flow = open("count to_buffer", Duration::ZERO);
    let pushed = open("count", Duration::from_millis(10));
    let states = |flow: &ScopeFlow| flow.states().iter().map(|it| it.state).collect::<Vec<_>>();
    assert_eq!(states(&flow), ["refused", "ok", "ok", "ok", "down"]);
    assert_eq!(flow.read("count").iter().flatten().count(), 3);
    let started = flow.start();
    let started: Vec<bool> = started.iter().map(Result::is_ok).collect();
    assert_eq!(started, [false, true, true, true, false]);
    let mut taken = [0_u64; 5];
    let take = |member: usize, packet: Packet<'_>| {
        assert_eq!(packet.component, 1);
        assert!(packet.record.len() > 20);
        taken[member] += 1;
    };
    let mut take = take;
    while flow.next(Duration::from_secs(5), &mut take).is_some() {}
    let counted = |flow: &ScopeFlow| {
        let read = flow.read("count").into_iter();
        read.map(|reading| reading.map(|it| it.value.unwrap() as u64))
            .collect::<Vec<_>>()
    };
    let expected = [None, Some(taken[1]), Some(taken[2]), Some(taken[3]), None];
    assert!(taken[1] > 10_000);
    assert_eq!(counted(&flow), expected);
    until("numbers come by themselves", || {
        counted(&pushed) == expected
    });
    let results = flow.results();
    let results = results.iter().map(|it| it.as_ref().ok());
    let results: Vec<Option<u64>> = results
        .map(|it| it?.components[0].value.as_ref()?.as_u64())
        .collect();
    assert_eq!(results, expected);
    // One fails.
    all[1].stop_sensor();
    until("its end is seen", || {
        counted(&flow) == [None, None, expected[2], expected[3], None]
            && states(&flow) == ["refused", "down", "ok", "ok", "down"]
    });
    // It is tried again, and its agent says that there is no sensor.
    until("its agent answers", || {
        let error = flow.states()[1].trouble.clone();
        error.is_some_and(|it| it.what.contains("its agent runs"))
    });
    assert_eq!(states(&flow), ["refused", "down", "ok", "ok", "down"]);
    all[1].start_sensor();
    until("it is taken again", || {
        counted(&flow) == [None, Some(0), expected[2], expected[3], None]
    });
    assert_eq!(flow.states()[1].generation, 2);
    assert_eq!(flow.states()[2].generation, 1);
    drop(pushed);
    assert_eq!(flow.close().iter().filter(|it| it.is_ok()).count(), 3);
    until("nothing is left", || all[1].flows() + all[2].flows() == 0);
}

#[test]
fn a_scope_that_nobody_serves_is_an_error() {
    let all = running(1);
    let (sensors, mut members) = scope_of(&all);
    for member in &mut members {
        member.device = "other".to_owned();
    }
    let refused = ScopeFlow::open(&sensors, members, "count", &[], Duration::ZERO).unwrap_err();
    assert!(refused.to_string().contains("other"), "{refused}");
    let nobody = Arc::new(Sensors::new(all[0].socket(), None));
    let members = scope::members("127.0.0.1:mix").unwrap();
    let refused = ScopeFlow::open(&nobody, members, "count", &[], Duration::ZERO).unwrap_err();
    assert!(refused.hint().unwrap().contains("keys"), "{refused}");
}

/// An agent that does not take a name refuses: nobody tries again. What goes wrong is told with the member's name.
#[test]
fn members_whose_agents_do_not_allow_a_user_are_refused() {
    let all = running(1);
    let identity = all[0].identity("sensor");
    let allowed = vec!["other".to_owned()];
    let strict = Agent::start(&identity, "127.0.0.1:0", allowed, all[0].socket()).unwrap();
    let sensors = Arc::new(Sensors::new(all[0].socket(), Some(all[0].user.clone())));
    let open = |text: &str| {
        let members = scope::members(text).unwrap();
        ScopeFlow::open(&sensors, members, "count", &[], Duration::ZERO)
    };
    let strict = format!("{}:mix", strict.local_address());
    let flow = open(&format!("mix, {strict}")).unwrap();
    let states = flow.states();
    assert_eq!(states[0].state, "ok");
    assert_eq!(states[1].state, "refused");
    let trouble = states[1].trouble.clone().unwrap();
    assert!(trouble.what.contains("not allowed"), "{trouble:?}");
    let error = open(&format!("{strict}, none")).unwrap_err();
    assert!(error.to_string().starts_with(&strict), "{error}");
}

/// Many members at an address where nobody answers wait for it once: all fail with the first. Whoever asks later tries again.
#[test]
fn members_of_a_sensor_that_does_not_answer_wait_once() {
    let all = running(1);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sensors = Sensors::new(all[0].socket(), Some(all[0].user.clone()));
    let text = format!("{}:mix", silent.local_addr().unwrap());
    let member = scope::members(&text).unwrap().remove(0);
    let ask = || sensors.client(&member).unwrap_err();
    let failed = || match ask() {
        ClientError::NotReached(error) => error,
        other => panic!("{other}"),
    };
    let errors: Vec<Arc<ClientError>> = thread::scope(|scope| {
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(failed)).collect();
        let errors = asking.into_iter().map(|asking| asking.join().unwrap());
        errors.collect()
    });
    // As many connections as were tried.
    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.incoming().take_while(Result::is_ok).count(), 1);
    let is_first = |error: &Arc<ClientError>| Arc::ptr_eq(error, &errors[0]);
    assert!(errors.iter().all(is_first));
    drop(silent);
    assert!(!is_first(&failed()));
}

#[test]
fn a_credential_is_of_who_has_the_key_of_the_certificate() {
    let running = Running::start();
    let keys = KeyFolder::new(running.folder.path().join("keys"));
    let key = keys.certificate_of("stranger").unwrap().key;
    let bound = |holder| {
        let limits = Limits {
            holders: vec![holder],
            ..Limits::default()
        };
        Secret::new(Credential::issue(&issuer(), &limits).unwrap().text())
    };
    let credential = bound(Holder::Key(key));
    let stranger = running.remote_of(&running.identity("stranger"));
    let refused = stranger.open("mix", "count", &[]).unwrap_err();
    assert_eq!(refused.to_string(), "you have no rights here");
    stranger.bring(&credential).unwrap();
    let flow = stranger.open("mix", "count", &[]).unwrap();
    assert_eq!(running.flows(), 1);
    assert!(stranger.open("mix", "to_buffer", &[]).is_err());
    flow.close().unwrap();
    // Another certificate; and one of the same name, with a key of its own.
    let other = running.remote_of(&running.identity("counter"));
    let refused = other.bring(&credential).unwrap_err().to_string();
    assert!(
        refused.starts_with("another holder is not allowed: only for key "),
        "{refused}"
    );
    fs::remove_file(keys.path().join("stranger.key")).unwrap();
    fs::remove_file(keys.path().join("stranger.crt")).unwrap();
    keys.add("stranger", &[], 1).unwrap();
    let again = running.remote_of(&running.identity("stranger"));
    assert!(again.bring(&credential).is_err());
    again
        .bring(&bound(Holder::Certificate("stranger".to_owned())))
        .unwrap();
    again.open("mix", "count", &[]).unwrap();
    // A local user is nobody elsewhere.
    let local = bound(Holder::User("stranger".to_owned()));
    assert!(
        running
            .remote_of(&running.identity("stranger"))
            .bring(&local)
            .is_err()
    );
    // Every sensor of a scope is asked with it.
    let address = running.agent.as_ref().unwrap().local_address().to_string();
    let sensors = Sensors::new(running.socket(), Some(running.identity("stranger")));
    let sensors =
        Arc::new(sensors.with_credential(Some(bound(Holder::Certificate("stranger".to_owned())))));
    let members = vec![Member {
        address: Some(address),
        device: "mix".to_owned(),
    }];
    let scope = ScopeFlow::open(&sensors, members, "count", &[], Duration::ZERO).unwrap();
    assert_eq!(scope.states()[0].state, "ok");
}
