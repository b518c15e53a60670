//! The subagent under `snmpd`, asked by Net-SNMP's managers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use flowgauge_rmon::agentx::{
    Address, Binding, Bound, Message, Pdu, Range, Region, Response, flag,
};
use flowgauge_rmon::{Notification, Oid, SetError, Tree, Value};

use crate::harness::{Shelf, first_message};
use crate::net_snmp::{READER, Snmpd, V3, WRITER, is_there};
use crate::session::{Agent, root};

const ROOT: &str = ".1.3.6.1.2.1.16";

fn start<T: Tree + Send + 'static>(snmpd: &Snmpd, tree: T) -> Agent<T> {
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, tree);
    agent.wait_until_registered();
    agent
}

/// Does something, while nobody is served, once it is time.
fn wait(agent: &Agent<Shelf>, time: impl Fn(&Shelf) -> bool, act: impl FnOnce()) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let tree = agent.tree.lock();
        if time(&tree) {
            return act();
        }
        assert!(Instant::now() < end, "{:?} {}", tree.sets, tree.asked);
        parking_lot::MutexGuard::unlock_fair(tree);
    }
}

/// What a walk shows of a shelf.
pub(crate) fn lines_of(shelf: &Shelf) -> Vec<String> {
    let line = |(name, value): (&Oid, &Value)| match value {
        Value::Counter32(number) => format!(".{name} = Counter32: {number}"),
        Value::Integer(number) => format!(".{name} = INTEGER: {number}"),
        other => panic!("{other:?}"),
    };
    shelf.objects.iter().map(line).collect()
}

#[test]
fn managers_read_over_both_kinds_of_sockets_by_both_versions() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let shelf = Shelf::new(&root(), 300);
    let expected = lines_of(&shelf);
    for address in [Address::Unix(snmpd.socket()), Address::Tcp(snmpd.tcp())] {
        let agent = Agent::start(address, 127, None, shelf.clone());
        agent.wait_until_registered();
        for access in [READER, V3] {
            assert_eq!(snmpd.lines("snmpwalk", access, &["-Cc", ROOT]), expected);
            assert_eq!(
                snmpd.lines("snmpbulkwalk", access, &["-Cr50", ROOT]),
                expected
            );
        }
        let missing = format!("{ROOT}.1.300");
        let got = snmpd.lines("snmpget", READER, &[&format!("{ROOT}.1.299"), &missing]);
        assert_eq!(got[0], format!("{ROOT}.1.299 = Counter32: 299"));
        assert!(
            got[1].starts_with(&format!("{missing} = No Such Instance")),
            "{}",
            got[1]
        );
        drop(agent);
        // The master was told.
        let gone = snmpd.lines("snmpget", READER, &[&missing]);
        assert!(gone[0].contains("No Such Object"), "{gone:?}");
    }
}

#[test]
fn every_type_arrives_as_it_is() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let values = [
        (Value::Integer(i32::MIN), "INTEGER: -2147483648"),
        (Value::Octets(vec![0, 255, 16]), "Hex-STRING: 00 FF 10"),
        (Value::Octets(Vec::new()), "\"\""),
        (
            Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 4_294_967_295])),
            "OID: .1.3.6.1.2.1.2.2.1.1.4294967295",
        ),
        (Value::Oid(Oid::new(&[0, 0])), "OID: .0.0"),
        (Value::IpAddress([10, 0, 0, 255]), "IpAddress: 10.0.0.255"),
        (Value::Counter32(u32::MAX), "Counter32: 4294967295"),
        (Value::Gauge32(u32::MAX), "Gauge32: 4294967295"),
        (
            Value::TimeTicks(u32::MAX),
            "Timeticks: (4294967295) 497 days, 2:27:52.95",
        ),
        (
            Value::Counter64(u64::MAX),
            "Counter64: 18446744073709551615",
        ),
    ];
    let mut shelf = Shelf {
        roots: vec![root()],
        ..Shelf::default()
    };
    let mut expected = Vec::new();
    for (row, (value, text)) in (0..).zip(values) {
        // A long name, too.
        let name = root().child(&[9; 100]).child(&[row]);
        expected.push(format!(".{name} = {text}"));
        shelf.objects.insert(name, value);
    }
    let _agent = start(&snmpd, shelf);
    let lines = snmpd.lines("snmpwalk", READER, &[ROOT]);
    let trimmed: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    assert_eq!(trimmed, expected);
}

#[test]
fn managers_set_all_of_a_request_or_nothing() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let agent = start(&snmpd, Shelf::new(&root(), 3));
    let [first, second, counter] = ["2.0", "2.1", "1.0"].map(|end| format!("{ROOT}.{end}"));
    for access in [WRITER, V3] {
        let set = ["-Oq", &first, "i", "7", &second, "i", "8"];
        assert_eq!(
            snmpd.lines("snmpset", access, &set),
            [format!("{first} 7"), format!("{second} 8")]
        );
        let back = ["-Oq", &first, "i", "1", &second, "i", "1"];
        snmpd.lines("snmpset", access, &back);
    }
    let before = agent.tree.lock().objects.clone();
    let refused = [
        (&["i", "-1"], &second, "wrongValue"),
        (&["s", "x"], &second, "wrongType"),
        (&["i", "13"], &second, "commitFailed"),
        (&["u", "1"], &counter, "notWritable"),
    ];
    for ([kind, value], name, expected) in refused {
        let (done, text) = snmpd.tool("snmpset", WRITER, &[&first, "i", "9", name, kind, value]);
        assert!(!done && text.contains(expected), "{text}");
        assert_eq!(agent.tree.lock().objects, before, "{expected}");
    }
    // Who may only read reaches nobody.
    let tests = agent.tree.lock().sets[0];
    let (done, text) = snmpd.tool("snmpset", READER, &[&first, "i", "9"]);
    assert!(!done && text.contains("noAccess"), "{text}");
    assert_eq!(agent.tree.lock().sets[0], tests);
}

#[test]
fn a_set_that_fails_in_another_subagent_leaves_nothing_behind() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let other_root = Oid::new(&[1, 3, 6, 1, 2, 1, 17]);
    let one = start(&snmpd, Shelf::new(&root(), 3));
    let other = start(&snmpd, Shelf::new(&other_root, 3));
    let ours = format!("{ROOT}.2.0");
    let theirs = ".1.3.6.1.2.1.17.2.0";
    let before = one.tree.lock().objects.clone();
    for (value, expected) in [("13", "commitFailed"), ("-1", "wrongValue")] {
        for order in [
            [&ours[..], "i", "9", theirs, "i", value],
            [theirs, "i", value, &ours, "i", "9"],
        ] {
            let (done, text) = snmpd.tool("snmpset", WRITER, &order);
            assert!(!done && text.contains(expected), "{text}");
            assert_eq!(one.tree.lock().objects, before);
        }
    }
    // Once at least it was done already, as one of the orders has it first.
    let [_, commits, undone] = one.tree.lock().sets;
    assert!(undone >= 1 && undone == commits, "{undone} of {commits}");
    assert_eq!(
        other.tree.lock().objects[&other_root.child(&[2, 0])],
        Value::Integer(1)
    );
    snmpd.lines("snmpset", WRITER, &[&ours, "i", "9", theirs, "i", "8"]);
    assert_eq!(
        one.tree.lock().objects[&root().child(&[2, 0])],
        Value::Integer(9)
    );
}

#[test]
fn of_two_subagents_the_lower_priority_is_asked() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let shelf = |value| {
        let mut shelf = Shelf::new(&root(), 1);
        shelf
            .objects
            .insert(root().child(&[2, 0]), Value::Integer(value));
        shelf
    };
    let first = start(&snmpd, shelf(1));
    let name = format!("{ROOT}.2.0");
    let seen = || snmpd.lines("snmpget", READER, &["-Oqv", &name])[0].clone();
    let second = Agent::start(Address::Unix(snmpd.socket()), 20, None, shelf(2));
    second.wait_until_registered();
    assert_eq!(seen(), "2");
    drop(second);
    assert_eq!(seen(), "1");
    drop(first);
    let context = Agent::start(Address::Unix(snmpd.socket()), 127, Some("west"), shelf(3));
    context.wait_until_registered();
    let west = [V3, &["-n", "west"]].concat();
    assert_eq!(snmpd.lines("snmpget", &west, &["-Oqv", &name]), ["3"]);
    assert!(seen().contains("No Such Object"));
}

#[test]
fn notifications_reach_trap_receivers_with_their_objects() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let traps = snmpd.traps();
    let agent = start(&snmpd, Shelf::new(&root(), 3));
    agent.tree.lock().told.push(Notification {
        kind: root().child(&[0, 1]),
        objects: vec![
            (root().child(&[1, 2]), Value::Counter32(2)),
            (root().child(&[2, 1]), Value::Integer(1)),
        ],
    });
    let all = traps.wait_for(".1.3.6.1.2.1.16.2.1 = INTEGER: 1");
    for part in [
        ".1.3.6.1.6.3.1.1.4.1.0 = OID: .1.3.6.1.2.1.16.0.1",
        ".1.3.6.1.2.1.16.1.2 = Counter32: 2",
        ".1.3.6.1.2.1.1.3.0 = Timeticks:",
    ] {
        assert!(all.contains(part), "no {part:?} in {all}");
    }
}

#[test]
fn a_master_that_dies_under_a_walk_is_found_again() {
    if !is_there() {
        return;
    }
    let mut snmpd = Snmpd::start();
    let shelf = Shelf::new(&root(), 1000);
    let expected = lines_of(&shelf);
    let agent = start(&snmpd, shelf);
    let first_zero = agent.tree.lock().zero;
    for _ in 0..3 {
        let before = agent.tree.lock().asked;
        let mut walk = snmpd.start_tool("snmpwalk", READER, &["-t1", ROOT]);
        // It stands still while the tree is locked.
        wait(&agent, |tree| tree.asked > before + 100, || snmpd.kill());
        assert!(!walk.wait().unwrap().success());
        snmpd.restart();
        agent.wait_until_registered();
        assert_eq!(snmpd.lines("snmpwalk", READER, &[ROOT]), expected);
    }
    // Its sysUpTime began anew.
    assert!(agent.tree.lock().zero > first_zero);
}

#[test]
fn a_master_that_dies_between_test_and_commit_leaves_nothing_behind() {
    if !is_there() {
        return;
    }
    let mut snmpd = Snmpd::start();
    let agent = start(&snmpd, Shelf::new(&root(), 3));
    let [first, second] = ["2.0", "2.1"].map(|end| format!("{ROOT}.{end}"));
    let set = |snmpd: &Snmpd, value: &str| {
        snmpd.start_tool(
            "snmpset",
            WRITER,
            &["-t1", &first, "i", value, &second, "i", value],
        )
    };
    let gate = Arc::new(Barrier::new(2));
    agent.tree.lock().gate = Some(Arc::clone(&gate));
    let mut manager = set(&snmpd, "5");
    gate.wait();
    snmpd.kill();
    gate.wait();
    assert!(!manager.wait().unwrap().success());
    agent.tree.lock().gate = None;
    snmpd.restart();
    agent.wait_until_registered();
    let of = |name: &str| snmpd.lines("snmpget", READER, &["-Oqv", name]);
    assert_eq!([of(&first), of(&second)], [["1"], ["1"]]);
    assert_eq!(agent.tree.lock().sets, [1, 0, 0]);
    assert!(set(&snmpd, "6").wait().unwrap().success());
    assert_eq!([of(&first), of(&second)], [["6"], ["6"]]);
}

#[test]
fn the_documented_configuration_gives_each_user_a_view() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start_as_documented();
    let agent = start(&snmpd, Shelf::new(&root(), 3));
    let user = |name, password, secret| {
        let all = [
            "-v3", "-l", "authPriv", "-u", name, "-a", "SHA-256", "-A", password, "-x", "AES",
            "-X", secret,
        ];
        all.map(str::to_owned)
    };
    let reader = user("reader", "reading password", "reading secret");
    let writer = user("writer", "writing password", "writing secret");
    let reader: Vec<&str> = reader.iter().map(String::as_str).collect();
    let writer: Vec<&str> = writer.iter().map(String::as_str).collect();
    let name = format!("{ROOT}.2.0");
    for access in [&reader, &writer] {
        let lines = snmpd.lines("snmpwalk", access, &[ROOT]);
        let (last, lines) = lines.split_last().unwrap();
        assert_eq!(lines, lines_of(&agent.tree.lock()));
        assert!(last.contains("No more variables left"), "{last}");
        // Interfaces are in no view.
        let (_, text) = snmpd.tool("snmpwalk", access, &[".1.3.6.1.2.1.2"]);
        assert!(
            text.contains("No Such Object") || text.contains("No more variables"),
            "{text}"
        );
    }
    let (done, text) = snmpd.tool("snmpset", &reader, &[&name, "i", "5"]);
    assert!(!done && text.contains("noAccess"), "{text}");
    let (done, text) = snmpd.tool("snmpset", &writer, &[".1.3.6.1.2.1.1.6.0", "s", "here"]);
    assert!(!done && text.contains("noAccess"), "{text}");
    assert_eq!(agent.tree.lock().sets, [0; 3]);
    assert_eq!(
        snmpd.lines("snmpset", &writer, &["-Oqv", &name, "i", "5"]),
        ["5"]
    );
    let (done, _) = snmpd.tool("snmpget", READER, &["-t1", &name]);
    assert!(!done, "a community is none of the users");
}

/// A session at the master that asks for what it likes.
struct Raw {
    stream: UnixStream,
    input: Vec<u8>,
    session: u32,
    packet: u32,
}

impl Raw {
    fn open(snmpd: &Snmpd) -> Raw {
        let stream = UnixStream::connect(snmpd.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut raw = Raw {
            stream,
            input: Vec::new(),
            session: 0,
            packet: 0,
        };
        let open = Pdu::Open {
            timeout: 5,
            id: Oid::default(),
            description: b"raw".to_vec(),
        };
        raw.session = raw.ask(0, open).0;
        raw
    }

    fn ask(&mut self, flags: u8, pdu: Pdu) -> (u32, Response) {
        self.packet += 1;
        let message = Message {
            session: self.session,
            transaction: self.packet,
            packet: self.packet,
            flags,
            context: None,
            pdu,
        };
        let mut octets = Vec::new();
        message.write(&mut octets);
        self.stream.write_all(&octets).unwrap();
        let answer = self.next();
        match answer.pdu {
            Pdu::Response(response) => (answer.session, response),
            other => panic!("{other:?}"),
        }
    }

    /// What the master says next.
    fn next(&mut self) -> Message {
        let mut buffer = [0; 4096];
        loop {
            if let Some((message, length)) = first_message(&self.input) {
                self.input.drain(..length);
                return message;
            }
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the master hung up");
            self.input.extend_from_slice(&buffer[..length]);
        }
    }

    /// The error, and the index that the master gave.
    fn allocate(&mut self, flags: u8, index: i32) -> (u16, Option<Value>) {
        let response = self.ask(flags, Pdu::IndexAllocate(vec![indexed(index)])).1;
        let given = response.bindings.into_iter().next().map(|it| it.bound);
        match given {
            Some(Bound::Value(value)) if response.error == 0 => (0, Some(value)),
            _ => (response.error, None),
        }
    }

    fn release(&mut self, index: i32) -> u16 {
        self.ask(0, Pdu::IndexDeallocate(vec![indexed(index)]))
            .1
            .error
    }
}

fn indexed(index: i32) -> Binding {
    Binding {
        name: root().child(&[14, 1, 1, 1]),
        bound: Bound::Value(Value::Integer(index)),
    }
}

/// RFC 2741, 7.1.4: what subagents share, the master gives.
#[test]
fn the_master_gives_each_index_to_one_session() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let (mut one, mut other) = (Raw::open(&snmpd), Raw::open(&snmpd));
    assert_eq!(one.allocate(0, 5), (0, Some(Value::Integer(5))));
    let (refused, given) = other.allocate(0, 5);
    assert!(refused >= 256 && given.is_none(), "{refused} {given:?}");
    let (error, given) = other.allocate(flag::NEW_INDEX, 0);
    assert_eq!(error, 0);
    assert!(
        !matches!(given, None | Some(Value::Integer(5))),
        "{given:?}"
    );
    // Only whose it is gives it back.
    assert_ne!(other.release(5), 0);
    assert_eq!(one.release(5), 0);
    assert_ne!(one.release(5), 0);
    assert_eq!(other.allocate(0, 5), (0, Some(Value::Integer(5))));
}

/// RFC 2741, 6.2.3: sub-trees side by side are registered at once.
#[test]
fn the_master_asks_for_all_of_a_range_of_sub_trees() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let mut raw = Raw::open(&snmpd);
    // The eighth number goes up to 32.
    let region = Region {
        subtree: root().child(&[30, 1]),
        range: Some((8, 32)),
    };
    let register = Pdu::Register {
        timeout: 5,
        priority: 127,
        region: region.clone(),
    };
    assert_eq!(raw.ask(0, register).1.error, 0);
    for number in 30..=32 {
        let name = root().child(&[number, 1, 4]);
        let text = format!(".{name}");
        let mut manager = snmpd.start_tool("snmpget", READER, &[&text]);
        let asked = raw.next();
        assert_eq!(
            asked.pdu,
            Pdu::Get(vec![Range {
                start: name,
                include: false,
                end: Oid::default(),
            }])
        );
        assert!(manager.kill().is_ok() && manager.wait().is_ok());
        let mut octets = Vec::new();
        let refused = Pdu::Response(Response {
            error: SetError::General as u16,
            index: 1,
            ..Response::default()
        });
        let answer = Message {
            pdu: refused,
            ..asked
        };
        answer.write(&mut octets);
        raw.stream.write_all(&octets).unwrap();
    }
    for outside in [root().child(&[33, 1, 4]), root().child(&[31, 2, 4])] {
        let lines = snmpd.lines("snmpget", READER, &[&format!(".{outside}")]);
        assert!(lines[0].contains("No Such Object"), "{lines:?}");
    }
    let priority = 127;
    let unregister = Pdu::Unregister { priority, region };
    assert_eq!(raw.ask(0, unregister).1.error, 0);
}
