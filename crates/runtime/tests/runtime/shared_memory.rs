//! What memory the clients of a shared capture get, and what they get when others have gone.

use std::thread;
use std::time::Duration;

use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{Application, Client, Next};
use flowgauge_runtime::{Chunk, Control, Handlers, StreamHandle};

use crate::shared_support::feed::{ServiceConfig, Shared, everything};
use crate::shared_support::{Stories, alone, listen_into, packets_of, same, trace};

const MIB: u64 = 1 << 20;

fn with_pool(pool_bytes: u64) -> Shared {
    Shared::start_with(ServiceConfig {
        grace: None,
        pool_bytes,
    })
}

fn wanting(memory_bytes: u64, least: Option<u64>) -> Application {
    Application {
        memory_bytes,
        least_memory_bytes: least,
        ..everything()
    }
}

/// What each client has.
fn memories(shared: &Shared) -> Vec<u64> {
    let status = shared.status();
    status.clients.iter().map(|one| one.memory).collect()
}

/// What a client with so much memory takes of the pool: its events, of 384 bytes and a place of 8, one for
/// 2 KiB of memory, 400 bytes for each eighth of them to wait behind that, and two pages.
fn cost_of(memory: u64) -> u64 {
    let events = (memory / 2048).clamp(1024, 65_536).next_power_of_two();
    memory + events * 442 + 8192
}

#[test]
fn what_the_service_cannot_give_is_refused() {
    let shared = with_pool(12 * MIB);
    let small = wanting(4 * MIB, None);
    let _one = shared.join(&small);
    let left = 12 * MIB - cost_of(4 * MIB);
    let refused = shared.connect(&small).unwrap_err().to_string();
    assert!(refused.contains(&format!("{left} are left")), "{refused}");
    assert!(refused.contains("and 913408 for events"), "{refused}");
    // Or makes do with less.
    let modest = wanting(6 * MIB, Some(2 * MIB));
    let two = shared.join(&modest);
    let memory = memories(&shared)[1];
    assert!(memory >= 2 * MIB && cost_of(memory) <= left / 2, "{memory}");
    let refused = shared.connect(&modest).unwrap_err().to_string();
    assert!(refused.contains("2097152 bytes of memory"), "{refused}");
    drop(two);
    shared.wait_until("one is gone", |status| status.clients.len() == 1);
    let _two = shared.join(&modest);
    shared.ledger();
}

/// However much the first want, there is something for those who come after.
#[test]
fn nobody_gets_all_the_memory_that_is_left() {
    let shared = with_pool(64 * MIB);
    let greedy = wanting(1 << 30, Some(0));
    let _clients: Vec<Client> = (0..5).map(|_| shared.join(&greedy)).collect();
    let mut left = 64 * MIB;
    for memory in memories(&shared) {
        assert!(cost_of(memory) <= left / 2, "{memory} of {left}");
        assert!(memory > left / 4, "{memory} of {left}");
        left -= cost_of(memory);
    }
    assert!(shared.connect(&greedy).is_err());
    shared.ledger();
}

#[test]
fn a_client_knows_what_it_was_granted() {
    let shared = with_pool(10 * MIB);
    let client = shared.join(&wanting(64 * MIB, Some(MIB)));
    let granted = client.memory_bytes();
    assert_eq!(memories(&shared), [granted]);
    // Half of what was left, with its events.
    assert!(
        granted > 3 * MIB && cost_of(granted) <= 5 * MIB,
        "{granted}"
    );
    // Chunks need four times their size.
    let refused = shared.connect(&Application {
        chunk_bytes: 1 << 20,
        ..wanting(64 * MIB, Some(MIB))
    });
    assert!(refused.unwrap_err().to_string().contains("4194304 bytes"));
    drop(client);
    shared.ledger();
}

/// Who had to make do with less gets more when others go, first who has least, and is told.
#[test]
fn grants_grow_when_others_go() {
    let shared = with_pool(64 * MIB);
    let greedy = wanting(1 << 30, Some(0));
    let mut clients: Vec<Client> = (0..4).map(|_| shared.join(&greedy)).collect();
    let content = shared.join(&wanting(MIB, None));
    let before = memories(&shared);
    // The first had most.
    drop(clients.remove(0));
    shared.wait_until("it is gone", |status| status.clients.len() == 4);
    let after = memories(&shared);
    let told: Vec<u64> = clients.iter().map(Client::memory_bytes).collect();
    assert_eq!(told, after[..3]);
    assert!(after[2] > before[3], "{after:?} {before:?}");
    for (now, then) in after.iter().zip(&before[1..]) {
        assert!(now >= then, "{after:?} {before:?}");
    }
    // Who has what it wanted gets no more.
    assert_eq!((after[3], content.memory_bytes()), (MIB, MIB));
    let all: u64 = after.iter().map(|&memory| cost_of(memory)).sum();
    let (left, least) = (64 * MIB - all, after[0].min(after[1]).min(after[2]));
    assert!(all < 64 * MIB && least > 8 * MIB, "{after:?}");
    // There still is some for the next.
    let next = shared.join(&greedy);
    assert!(next.memory_bytes() > left / 4, "{left}");
    drop(next);
    // The last one that is left has as if it were the first.
    clients.truncate(1);
    drop(content);
    shared.wait_until("the others are gone", |status| status.clients.len() == 1);
    let first = before[0];
    assert_eq!(clients[0].memory_bytes(), first);
    shared.ledger();
}

/// More memory holds more chunks and more events at once, and what comes is what came before.
#[test]
fn more_memory_holds_more_events() {
    let portions = trace(Preset::Mix, 0.004);
    let mut shared = with_pool(64 * MIB);
    // Many small chunks.
    let application = |memory_bytes, least| Application {
        chunk_bytes: 0,
        ..wanting(memory_bytes, least)
    };
    let first = shared.join(&application(24 * MIB, None));
    let mut second = shared.join(&application(60 * MIB, Some(2 * MIB)));
    let little = second.memory_bytes();
    shared.feed_through(&portions[..1], packets_of(&portions[..1]));
    drop(first);
    let gone = |status: &flowgauge_runtime::shared::Status| status.clients.len() == 1;
    shared.wait_until("one is gone", gone);
    let more = second.memory_bytes();
    assert!(more > little, "{more}");
    // What was written before is read, so that the ring can grow.
    let mut stories = Stories::default();
    while let Next::Event(event) = second.next_event(Some(Duration::ZERO)).unwrap() {
        stories.told(&event);
    }
    shared.wait_until("all is read", |status| status.clients[0].waiting == 0);
    let all = packets_of(&portions);
    thread::scope(|scope| {
        let reader = scope.spawn(|| listen_into(&mut second, &mut stories));
        shared.feed_through(&portions[1..], all);
        shared.end();
        reader.join().unwrap()
    });
    let got = stories.finish();
    let lost = second.statistics().0;
    assert!(lost.is_complete(), "{lost:?}");
    same(&got, &alone(&application(24 * MIB, None), &portions));
    shared.ledger();
}

struct Nothing;

impl Handlers for Nothing {
    fn data(&mut self, _: &mut StreamHandle<'_>, _: &mut Chunk<'_>) {}
}

/// Whoever has the control of a program sees it, too.
#[test]
fn a_control_tells_what_is_granted() {
    let shared = with_pool(64 * MIB);
    let first = shared.join(&wanting(24 * MIB, None));
    let second = shared.join(&wanting(60 * MIB, Some(2 * MIB)));
    let (little, control) = (second.memory_bytes(), Control::default());
    assert_eq!(control.granted_memory(), None);
    thread::scope(|scope| {
        let running = scope.spawn(|| second.run(&mut Nothing, &control));
        shared.wait_until("it runs", |_| control.granted_memory() == Some(little));
        drop(first);
        shared.wait_until("it is told", |_| control.granted_memory() > Some(little));
        control.stop();
        running.join().unwrap().1.unwrap();
    });
    shared.ledger();
}
