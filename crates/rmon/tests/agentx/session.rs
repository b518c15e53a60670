//! The subagent under a master of our own, over its socket.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowgauge_rmon::agentx::{
    Address, Binding, Bound, Ended, Event, Identity, Message, Now, Options, Pdu, Range, Response,
    Session, error, run,
};
use flowgauge_rmon::{Missing, Notification, Oid, Ticks, Tree, Value};
use parking_lot::Mutex;

use crate::harness::{Shelf, first_message};

/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn now() -> Ticks {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap() / 10
}

pub(crate) fn root() -> Oid {
    Oid::new(&[1, 3, 6, 1, 2, 1, 16])
}

/// A subagent in a thread.
pub(crate) struct Agent<T> {
    pub(crate) tree: Arc<Mutex<T>>,
    pub(crate) events: Receiver<Event>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Tree + Send + 'static> Agent<T> {
    pub(crate) fn start(address: Address, priority: u8, context: Option<&str>, tree: T) -> Self {
        let tree = Arc::new(Mutex::new(tree));
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, events) = channel();
        let identity = Identity {
            description: "a subagent of tests".to_owned(),
            context: context.map(|context| context.as_bytes().to_vec()),
            priority,
        };
        let options = Options { address, identity };
        let thread = std::thread::spawn({
            let (tree, stop) = (Arc::clone(&tree), Arc::clone(&stop));
            // The test may have ended.
            move || {
                run(&options, &tree, &stop, now, |event| {
                    drop(sender.send(event))
                })
            }
        });
        Agent {
            tree,
            events,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn wait_until_registered(&self) {
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < end {
            match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Registered) => return,
                Ok(event) => last = format!("{event:?}"),
                Err(_) => {}
            }
        }
        panic!("not registered: {last}");
    }
}

impl<T> Drop for Agent<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A master with one subagent.
struct Master {
    stream: UnixStream,
    input: Vec<u8>,
    packet: u32,
    network: bool,
    registered: Vec<Oid>,
}

const SESSION: u32 = 77;

impl Master {
    /// Takes the next subagent and answers until all is registered.
    fn accept(listener: &UnixListener, network: bool, uptime: u32, roots: usize) -> Master {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut master = Master {
            stream,
            input: Vec::new(),
            packet: 0,
            network,
            registered: Vec::new(),
        };
        let open = master.receive();
        let Pdu::Open {
            id, description, ..
        } = &open.pdu
        else {
            panic!("{open:?}");
        };
        assert_eq!(
            (id.is_empty(), &description[..]),
            (true, &b"a subagent of tests"[..])
        );
        master.answer(
            &open,
            Response {
                uptime,
                ..Response::default()
            },
        );
        for _ in 0..roots {
            let register = master.receive();
            let Pdu::Register { region, .. } = &register.pdu else {
                panic!("{register:?}");
            };
            master.registered.push(region.subtree.clone());
            master.answer(
                &register,
                Response {
                    uptime,
                    ..Response::default()
                },
            );
        }
        master
    }

    fn receive(&mut self) -> Message {
        let mut buffer = [0; 1 << 16];
        loop {
            if let Some((message, length)) = first_message(&self.input) {
                self.input.drain(..length);
                return message;
            }
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the subagent hung up");
            self.input.extend(&buffer[..length]);
        }
    }

    fn answer(&mut self, to: &Message, response: Response) {
        let pdu = Pdu::Response(response);
        let message = Message {
            session: SESSION,
            context: None,
            pdu,
            ..to.clone()
        };
        self.write(&message);
    }

    fn write(&mut self, message: &Message) {
        let mut octets = Vec::new();
        message.write_ordered(self.network, &mut octets);
        self.stream.write_all(&octets).unwrap();
    }

    fn send(&mut self, transaction: u32, pdu: Pdu) -> u32 {
        self.packet += 1;
        let packet = self.packet;
        let session = SESSION;
        self.write(&Message {
            session,
            transaction,
            packet,
            flags: 0,
            context: None,
            pdu,
        });
        packet
    }

    fn ask(&mut self, transaction: u32, pdu: Pdu) -> Response {
        let packet = self.send(transaction, pdu);
        let answer = self.receive();
        assert_eq!(
            (answer.session, answer.transaction, answer.packet),
            (SESSION, transaction, packet)
        );
        match answer.pdu {
            Pdu::Response(response) => response,
            other => panic!("{other:?}"),
        }
    }

    /// The error and its index.
    fn error(&mut self, transaction: u32, pdu: Pdu) -> (u16, u16) {
        let response = self.ask(transaction, pdu);
        (response.error, response.index)
    }
}

struct Scene {
    _folder: tempfile::TempDir,
    listener: UnixListener,
    agent: Agent<Shelf>,
}

impl Scene {
    fn new(shelf: Shelf) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master");
        let listener = UnixListener::bind(&path).unwrap();
        let agent = Agent::start(Address::Unix(path), 127, None, shelf);
        Scene {
            _folder: folder,
            listener,
            agent,
        }
    }
}

fn range(start: &Oid, include: bool, end: &Oid) -> Range {
    Range {
        start: start.clone(),
        include,
        end: end.clone(),
    }
}

fn set(name: Oid, value: i32) -> Binding {
    Binding {
        name,
        bound: Bound::Value(Value::Integer(value)),
    }
}

/// Who stands still, as a program that was stopped, is given up: at the beginning, and while there is a session.
#[test]
fn a_master_that_stands_still_is_given_up() {
    let at = |seconds: u64| Now {
        ticks: 1 << 40,
        elapsed: Duration::from_secs(seconds),
    };
    let mut shelf = Shelf::new(&root(), 3);
    let identity = Identity {
        description: "a subagent of tests".to_owned(),
        context: None,
        priority: 127,
    };
    let mut session = Session::new(identity, &shelf, at(0));
    assert_eq!(session.tick(at(10)), Ok(()));
    assert_eq!(session.tick(at(11)), Err(Ended::Silent));
    let mut answer = |session: &mut Session<Shelf>, seconds: u64| {
        let octets = std::mem::take(session.output());
        let (asked, length) = first_message(&octets).expect("it asks for something");
        assert_eq!(length, octets.len());
        let mut octets = Vec::new();
        let pdu = Pdu::Response(Response::default());
        let answer = Message {
            session: SESSION,
            pdu,
            ..asked.clone()
        };
        answer.write(&mut octets);
        assert_eq!(session.receive(&octets, &mut shelf, at(seconds)), Ok(()));
        asked.pdu
    };
    assert!(matches!(answer(&mut session, 1), Pdu::Open { .. }));
    assert!(matches!(answer(&mut session, 2), Pdu::Register { .. }));
    assert!(session.is_ready());
    // Asked after silence, it answers; asked again, it does not.
    for (seconds, wanted) in [(17, 0), (18, 1)] {
        assert_eq!(session.tick(at(seconds)), Ok(()));
        assert_eq!(
            usize::from(!session.output().is_empty()),
            wanted,
            "{seconds}"
        );
    }
    assert_eq!(answer(&mut session, 19), Pdu::Ping);
    assert_eq!(session.tick(at(35)), Ok(()));
    assert!(!session.output().is_empty());
    assert_eq!(session.tick(at(45)), Ok(()));
    assert_eq!(session.tick(at(46)), Err(Ended::Silent));
}

#[test]
fn objects_are_got_and_walked_in_both_orders_of_octets() {
    for network in [false, true] {
        let scene = Scene::new(Shelf::new(&root(), 3));
        let mut master = Master::accept(&scene.listener, network, 500, 1);
        assert_eq!(master.registered, [root()]);
        let end = root().child(&[2]);
        let null = Oid::default();
        let names = [root().child(&[1, 2]), root().child(&[1, 3])];
        let got = master.ask(
            1,
            Pdu::Get(names.iter().map(|name| range(name, false, &null)).collect()),
        );
        let found: Vec<_> = got.bindings.iter().map(|binding| &binding.bound).collect();
        let expected = [
            Bound::Value(Value::Counter32(2)),
            Bound::Missing(Missing::Instance),
        ];
        assert_eq!(found, expected.iter().collect::<Vec<_>>());
        let mut next = |start: &Oid, include, end: &Oid| {
            let answer = master.ask(2, Pdu::GetNext(vec![range(start, include, end)]));
            assert_eq!(answer.error, 0);
            let [Binding { name, bound }] = <[_; 1]>::try_from(answer.bindings).unwrap();
            (name, bound)
        };
        assert_eq!(next(&names[0], true, &end).0, names[0]);
        // The end is outside.
        assert_eq!(next(&names[0], false, &end), (names[0].clone(), Bound::End));
        assert_eq!(next(&names[0], false, &null).0, root().child(&[2, 0]));
    }
}

#[test]
fn bulk_repeats_what_is_to_be_repeated_and_ends_at_the_ends() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut master = Master::accept(&scene.listener, true, 500, 1);
    let [first, second] = [root().child(&[1]), root().child(&[2])];
    let ranges = vec![
        range(&second, false, &Oid::default()),
        range(&first, false, &second),
        range(&second.child(&[0]), true, &Oid::default()),
    ];
    let bulk = Pdu::GetBulk {
        non_repeaters: 1,
        max_repetitions: 50,
        ranges,
    };
    let answer = master.ask(1, bulk);
    let names: Vec<_> = answer
        .bindings
        .iter()
        .map(|it| (it.name.to_string(), it.bound == Bound::End))
        .collect();
    let under = |text: &str, over| (format!("1.3.6.1.2.1.16.{text}"), over);
    let expected = [
        under("2.0", false),
        under("1.0", false),
        under("2.0", false),
        under("1.1", false),
        under("2.1", false),
        under("1.2", false),
        under("2.2", false),
        under("1.2", true),
        under("2.2", true),
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_bulk_of_everything_is_cut_and_many_of_them_wait() {
    let scene = Scene::new(Shelf::new(&root(), 10_000));
    let mut master = Master::accept(&scene.listener, true, 500, 1);
    let ranges = vec![range(&root(), false, &Oid::default())];
    let bulk = Pdu::GetBulk {
        non_repeaters: 0,
        max_repetitions: u16::MAX,
        ranges,
    };
    for packet in 1..=64 {
        assert_eq!(master.send(packet, bulk.clone()), packet);
    }
    for packet in 1..=64 {
        let answer = master.receive();
        assert_eq!(answer.packet, packet);
        let Pdu::Response(response) = answer.pdu else {
            panic!("no response");
        };
        let count = response.bindings.len();
        assert!((1000..20_000).contains(&count), "{count}");
    }
}

#[test]
fn a_set_is_tested_committed_and_undone() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut master = Master::accept(&scene.listener, true, 500, 1);
    let number = |row| root().child(&[2, row]);
    let before = scene.agent.tree.lock().objects.clone();
    let test = Pdu::TestSet(vec![set(number(0), 5), set(number(1), 6)]);
    assert_eq!(master.error(1, test.clone()), (0, 0));
    assert_eq!(scene.agent.tree.lock().objects, before);
    assert_eq!(master.error(1, Pdu::CommitSet), (0, 0));
    assert_eq!(
        scene.agent.tree.lock().objects[&number(1)],
        Value::Integer(6)
    );
    assert_eq!(master.error(1, Pdu::UndoSet), (0, 0));
    assert_eq!(scene.agent.tree.lock().objects, before);
    // Once only, and only what was tested.
    assert_eq!(master.error(1, Pdu::UndoSet), (15, 0));
    assert_eq!(master.error(1, Pdu::CommitSet), (14, 0));

    let refused = Pdu::TestSet(vec![set(number(0), 5), set(number(1), -1)]);
    assert_eq!(master.error(2, refused), (10, 2));
    assert_eq!(master.error(2, Pdu::CommitSet), (14, 0));

    // A commit that fails leaves nothing, and undoing it is no error.
    assert_eq!(
        master.error(3, Pdu::TestSet(vec![set(number(0), 5), set(number(1), 13)])),
        (0, 0)
    );
    assert_eq!(master.error(3, Pdu::CommitSet), (14, 2));
    assert_eq!(master.error(3, Pdu::UndoSet), (0, 0));
    assert_eq!(scene.agent.tree.lock().objects, before);

    // A later test drops an earlier one; a clean-up is not answered.
    assert_eq!(master.error(4, test.clone()), (0, 0));
    assert_eq!(master.error(5, test), (0, 0));
    assert_eq!(master.error(4, Pdu::CommitSet), (14, 0));
    master.send(5, Pdu::CleanupSet);
    assert_eq!(master.error(5, Pdu::CommitSet), (14, 0));
    assert_eq!(scene.agent.tree.lock().objects, before);
    assert_eq!(scene.agent.tree.lock().sets, [5, 2, 1]);
}

#[test]
fn what_a_master_must_not_send_is_refused_and_the_session_stays() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut master = Master::accept(&scene.listener, true, 500, 1);
    assert_eq!(master.error(1, Pdu::Ping).0, error::PARSE);
    let get = Pdu::Get(vec![range(&root(), false, &Oid::default())]);
    let message = |session, context: Option<Vec<u8>>| Message {
        session,
        transaction: 1,
        packet: 9,
        flags: 0,
        context,
        pdu: get.clone(),
    };
    let cases = [
        (message(SESSION + 1, None), error::NOT_OPEN),
        (
            message(SESSION, Some(b"other".to_vec())),
            error::UNSUPPORTED_CONTEXT,
        ),
    ];
    for (message, expected) in cases {
        master.write(&message);
        let answer = master.receive();
        assert!(
            matches!(&answer.pdu, Pdu::Response(it) if it.error == expected),
            "{answer:?}"
        );
    }
    // A type that there is not.
    let garbage = [
        1, 99, 16, 0, 0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 4, 1, 2, 3, 4,
    ];
    master.stream.write_all(&garbage).unwrap();
    let answer = master.receive();
    assert!(
        matches!(&answer.pdu, Pdu::Response(it) if it.error == error::PARSE),
        "{answer:?}"
    );
    assert_eq!(master.ask(2, get).error, 0);
}

#[test]
fn after_garbage_and_hanging_up_there_is_a_new_session_with_its_own_uptime() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut zeros = Vec::new();
    for (round, uptime) in [900_000, 100_000, 100].into_iter().enumerate() {
        let mut master = Master::accept(&scene.listener, round % 2 == 0, uptime, 1);
        scene.agent.wait_until_registered();
        zeros.push(scene.agent.tree.lock().zero);
        if round == 0 {
            // No frame of AgentX: nothing behind it can be read.
            master
                .stream
                .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap();
            assert_eq!(master.stream.read(&mut [0; 64]).unwrap(), 0);
        }
    }
    assert!(
        zeros.is_sorted() && zeros[0] < now() - 900_000 + 60_00,
        "{zeros:?}"
    );
    assert!(zeros[2] > zeros[1] + 90_000, "{zeros:?}");
}

/// As the clock of a file does, which is read faster than it was captured.
#[test]
fn a_clock_of_the_tables_that_is_set_leaves_sys_up_time_as_it_is() {
    let mut shelf = Shelf::new(&root(), 3);
    let identity = Identity {
        description: String::new(),
        context: None,
        priority: 127,
    };
    let at = |ticks, seconds| Now {
        ticks,
        elapsed: Duration::from_secs(seconds),
    };
    let mut session = Session::new(identity, &shelf, at(1_000_000, 0));
    let mut opened = Vec::new();
    let uptime = 500;
    let response = Response {
        uptime,
        ..Response::default()
    };
    let open = Message {
        session: SESSION,
        transaction: 0,
        packet: 1,
        flags: 0,
        context: None,
        pdu: Pdu::Response(response),
    };
    open.write(&mut opened);
    session
        .receive(&opened, &mut shelf, at(1_000_000, 0))
        .unwrap();
    assert_eq!(shelf.zero, 1_000_000 - 500);
    // Both went on.
    session.receive(&[], &mut shelf, at(1_000_200, 2)).unwrap();
    assert_eq!(shelf.zero, 1_000_000 - 500);
    for ticks in [77_000_000, 2_000] {
        session.receive(&[], &mut shelf, at(ticks, 3)).unwrap();
        assert_eq!(shelf.zero, ticks - 300 - 500);
    }
}

#[test]
fn notifications_have_their_type_first() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut master = Master::accept(&scene.listener, true, 500, 1);
    let kind = root().child(&[0, 1]);
    let objects = vec![(root().child(&[1, 1]), Value::Counter32(1))];
    let told = Notification {
        kind: kind.clone(),
        objects,
    };
    scene.agent.tree.lock().told.push(told.clone());
    let message = master.receive();
    let Pdu::Notify(bindings) = &message.pdu else {
        panic!("{message:?}");
    };
    assert_eq!(bindings[0].name.to_string(), "1.3.6.1.6.3.1.1.4.1.0");
    assert_eq!(bindings[0].bound, Bound::Value(Value::Oid(kind)));
    assert_eq!(bindings[1].name, root().child(&[1, 1]));
    master.answer(&message, Response::default());
    scene.agent.wait_until_registered();
    let sent = scene.agent.events.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(&sent, Event::Notified(it, true) if *it == told),
        "{sent:?}"
    );
}

#[test]
fn a_refused_registration_is_told_with_its_reason() {
    let scene = Scene::new(Shelf::new(&root(), 3));
    let mut master = Master::accept(&scene.listener, true, 500, 0);
    let register = master.receive();
    let error = error::DUPLICATE_REGISTRATION;
    master.answer(
        &register,
        Response {
            error,
            ..Response::default()
        },
    );
    let event = scene.agent.events.recv_timeout(PATIENCE).unwrap();
    let Event::Lost(reason) = event else {
        panic!("{event:?}");
    };
    let expected = "the master refused the registration of 1.3.6.1.2.1.16: duplicateRegistration (error 263)\n\
                    hint: another subagent has these objects; take another priority or context";
    assert_eq!(reason, expected);
}

#[test]
fn addresses_are_paths_or_hosts_with_ports() {
    let unix = |path: &str| Ok(Address::Unix(path.into()));
    let tcp = |address: &str| Ok(Address::Tcp(address.to_owned()));
    assert_eq!("/var/agentx/master".parse(), unix("/var/agentx/master"));
    assert_eq!("unix:master".parse(), unix("master"));
    assert_eq!("tcp:localhost:705".parse(), tcp("localhost:705"));
    assert_eq!("[::1]:705".parse(), tcp("[::1]:705"));
    for text in [
        "",
        "unix:",
        "localhost",
        ":705",
        "localhost:",
        "localhost:0",
        "localhost:70500",
    ] {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}
