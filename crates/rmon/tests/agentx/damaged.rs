//! Octets that are damaged on their way between the subagent and `snmpd`, in either direction.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use flowgauge_rmon::Value;
use flowgauge_rmon::agentx::{Address, Identity, Now, Session};

use crate::harness::Shelf;
use crate::net_snmp::{Snmpd, WRITER, is_there};
use crate::session::{Agent, root};
use crate::snmpd::lines_of;

/// Sessions that are damaged.
const ROUNDS: u64 = 80;
/// Looks without an answer after which nothing more comes.
const MOST_LOOKS: u32 = 4;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % bound.max(1)
    }

    /// Changes, takes out or puts in some octets, more often than not.
    fn damage(&mut self, octets: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if octets.is_empty() {
                return;
            }
            let at = self.below(octets.len());
            match self.below(8) {
                0 => drop(octets.remove(at)),
                1 => octets.insert(at, self.below(256) as u8),
                2 => octets.truncate(at),
                3 => octets[at] ^= 1 << self.below(8),
                _ => octets[at] = self.below(256) as u8,
            }
        }
    }
}

/// A session that begins whole; what comes later is damaged, on its way to the master or from it.
fn session(snmpd: &Snmpd, random: &mut Random, to_master: bool) -> Shelf {
    let mut shelf = Shelf::new(&root(), 20);
    let mut stream = UnixStream::connect(snmpd.socket()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let now = Now {
        ticks: 1 << 40,
        elapsed: Duration::ZERO,
    };
    let identity = Identity {
        description: "damaged".to_owned(),
        context: None,
        priority: 127,
    };
    let mut session = Session::new(identity, &shelf, now);
    // From which message on, so that each kind of them is damaged in some session.
    let mut whole = random.below(6);
    let mut managers = Vec::new();
    let mut looks = 0;
    while looks < MOST_LOOKS {
        let mut octets = std::mem::take(session.output());
        if to_master && whole == 0 {
            random.damage(&mut octets);
        }
        if stream.write_all(&octets).is_err() {
            break;
        }
        let mut buffer = [0; 4096];
        let mut octets = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => buffer[..length].to_vec(),
            Err(_) => {
                looks += 1;
                continue;
            }
        };
        if !to_master && whole == 0 {
            random.damage(&mut octets);
        }
        whole = whole.saturating_sub(1);
        if session.receive(&octets, &mut shelf, now).is_err() {
            // It says goodbye, or what was wrong.
            let _ = stream.write_all(session.output());
            break;
        }
        if session.is_ready() && managers.is_empty() {
            let (one, other) = (root().child(&[2, 3]), root().child(&[2, 7]));
            let [root, one, other] = [root(), one, other].map(|name| format!(".{name}"));
            let set = [one.as_str(), "i", "5", other.as_str(), "i", "6"];
            managers.push(snmpd.start_tool("snmpset", WRITER, &set));
            managers.push(snmpd.start_tool("snmpbulkwalk", WRITER, &[&root]));
        }
    }
    for mut manager in managers {
        let _ = manager.kill();
        let _ = manager.wait();
    }
    shelf
}

#[test]
fn damage_in_either_direction_harms_neither_side() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let whole = Shelf::new(&root(), 20);
    let mut random = Random(2741);
    for round in 0..ROUNDS {
        let shelf = session(&snmpd, &mut random, round % 2 == 0);
        // Sets are done as they came, within what an object can be.
        for ((name, value), (known, before)) in shelf.objects.iter().zip(&whole.objects) {
            let is_good = match (value, before) {
                (Value::Integer(number), Value::Integer(_)) => *number >= 0,
                (value, before) => value == before,
            };
            assert!(name == known && is_good, "{round}: {name} {value:?}");
        }
    }
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, whole.clone());
    agent.wait_until_registered();
    let root = format!(".{}", root());
    assert_eq!(
        snmpd.lines("snmpwalk", WRITER, &["-Cc", &root]),
        lines_of(&whole)
    );
}
