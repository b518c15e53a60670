//! Sharing without an interface: the service on a thread, its packets from a trace, portion by
//! portion. What clients get is compared with what an engine of their own gives them.
//!
//! Nothing here needs root. Processes that die are in `shared_live.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowgauge_capture::Error as CaptureError;
use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{Application, Client, EventKind, Next};
use flowgauge_runtime::{Chunk, Control, Handlers, StreamHandle};
use flowgauge_stream::engine::{ChunkFlags, Cutoff, Mode, Parameter};
use flowgauge_wire::Nanos;

use crate::shared_support::feed::{ServiceConfig, Shared, everything};
use crate::shared_support::{
    LIMIT, Stories, Story, alone, alone_from, each_event, listen, listen_into, packets_of, same,
    smaller, trace,
};

#[test]
fn each_client_gets_what_it_would_get_alone() {
    let portions = trace(Preset::Mix, 0.002);
    let applications = [
        everything(),
        Application {
            filter: "tcp port 80".to_owned(),
            chunk_bytes: 1000,
            overlap_bytes: 100,
            ..everything()
        },
        Application {
            filter: "udp".to_owned(),
            mode: Mode::Fast,
            ..everything()
        },
        Application {
            filter: "src net 10.0.0.0/8".to_owned(),
            cutoff: Cutoff(500),
            chunk_bytes: 16_000,
            ..everything()
        },
        Application {
            cutoff: Cutoff::STATISTICS_ONLY,
            ..everything()
        },
        Application {
            cutoff: Cutoff(5000),
            from_responder: Some(Cutoff(100)),
            cutoff_classes: vec![("port 443".to_owned(), Cutoff(1))],
            chunk_bytes: 0,
            ..everything()
        },
    ];
    let mut shared = Shared::start();
    let clients: Vec<Client> = applications.iter().map(|one| shared.join(one)).collect();
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let stories = listen(&mut client);
                (stories, client.statistics())
            })
        })
        .collect();
    shared.feed(&portions);
    shared.end();
    for (application, thread) in applications.iter().zip(threads) {
        let (stories, (statistics, ledger)) = thread.join().unwrap();
        let expected = alone(application, &portions);
        same(&stories, &expected);
        assert!(expected.len() > 20, "{}", expected.len());
        assert!(statistics.is_complete(), "{statistics:?}");
        let total = |of: fn(&Story) -> u64| stories.values().map(of).sum::<u64>();
        assert_eq!(statistics.created, total(|story| story.created.into()));
        assert_eq!(
            statistics.terminated,
            total(|story| story.terminated.into())
        );
        assert_eq!(statistics.data.events, total(|story| story.chunks));
        assert_eq!(ledger.received(), packets_of(&portions));
        assert!(ledger.is_balanced());
    }
    assert_eq!(shared.ledger().received(), packets_of(&portions));
}

#[test]
fn chunks_that_several_want_are_in_memory_once() {
    let portions = trace(Preset::Mix, 0.001);
    let (one, two) = (Shared::start(), Shared::start());
    let mut alone = [one.join(&everything())];
    let mut together = [0; 3].map(|_| two.join(&everything()));
    for shared in [&one, &two] {
        shared.feed_through(&portions, packets_of(&portions));
    }
    // Nobody has read anything yet.
    let (first, second) = (one.status(), two.status());
    assert!(first.pool_in_use > 1 << 20, "{first:?}");
    assert_eq!(first.pool_in_use, second.pool_in_use);
    for client in &second.clients {
        assert_eq!(client.held, first.pool_in_use);
    }
    // Each gives back what it has read; memory is free with the last.
    for client in alone.iter_mut().chain(&mut together) {
        client.leave();
        listen(client);
    }
    for shared in [one, two] {
        shared.wait_until("all is read", |status| status.pool_in_use == 0);
        shared.ledger();
    }
}

#[test]
fn who_comes_late_gets_the_streams_that_begin_then() {
    let portions = trace(Preset::Mix, 0.002);
    let from = portions.len() / 2;
    let shared = Shared::start();
    let mut early = shared.join(&everything());
    let before = packets_of(&portions[..from]);
    shared.feed_through(&portions[..from], before);
    let mut late = shared.join(&everything());
    shared.feed(&portions[from..]);
    let ledger = shared.ledger();
    assert_eq!(ledger.received(), packets_of(&portions));
    let expected = alone_from(&everything(), &portions, from, false);
    assert!(expected.len() > 20);
    same(&listen(&mut late), &expected);
    same(&listen(&mut early), &alone(&everything(), &portions));
}

/// A client that takes the place of one that has left is not given the streams of that one.
#[test]
fn who_follows_another_gets_nothing_of_its_streams() {
    let portions = trace(Preset::Mix, 0.002);
    let from = portions.len() / 2;
    let shared = Shared::start();
    let _stays = shared.join(&everything());
    let first = shared.join(&everything());
    shared.feed_through(&portions[..from], packets_of(&portions[..from]));
    drop(first);
    shared.wait_until("it is gone", |status| status.clients.len() == 1);
    let mut second = shared.join(&everything());
    shared.feed(&portions[from..]);
    shared.ledger();
    let mut got = listen(&mut second);
    // An engine where the first had stayed.
    let expected = alone_from(&everything(), &portions, from, false);
    got.retain(|who, _| !expected.contains_key(who));
    assert!(got.is_empty(), "{:?}", got.keys());
}

/// While nobody is there streams are nobody's: who comes then gets what a capture that begins gives.
#[test]
fn who_comes_when_all_have_gone_begins_anew() {
    let portions = trace(Preset::Mix, 0.002);
    let from = portions.len() / 2;
    let shared = Shared::start();
    drop(shared.join(&everything()));
    shared.wait_until("it is gone", |status| status.clients.is_empty());
    shared.feed_through(&portions[..from], packets_of(&portions[..from]));
    let mut client = shared.join(&everything());
    shared.feed(&portions[from..]);
    let ledger = shared.ledger();
    assert_eq!(ledger.received(), packets_of(&portions));
    same(
        &listen(&mut client),
        &alone(&everything(), &portions[from..]),
    );
}

#[test]
fn a_slow_client_loses_its_own_events_only() {
    let portions = trace(Preset::Mix, 0.004);
    let mut shared = Shared::start();
    let mut quick = shared.join(&everything());
    let mut slow = shared.join(&Application {
        memory_bytes: 1 << 20,
        name: "slow".to_owned(),
        ..everything()
    });
    let reader = std::thread::spawn(move || (listen(&mut quick), quick.statistics().0));
    shared.feed_through(&portions, packets_of(&portions));
    let status = shared.status();
    let named = status
        .clients
        .iter()
        .find(|one| one.name == "slow")
        .unwrap();
    assert!(named.held <= 1 << 20 && named.held > 1 << 18, "{named:?}");
    assert!(!named.statistics.is_complete());
    // At the end the service waits for it for a while, so from here on it reads.
    shared.end();
    let mut stories = Stories::default();
    listen_into(&mut slow, &mut stories);
    let (got, lost) = (stories.finish(), slow.statistics().0);
    let (complete, nothing_lost) = reader.join().unwrap();
    same(&complete, &alone(&everything(), &portions));
    assert!(nothing_lost.is_complete(), "{nothing_lost:?}");
    // What it lost is exactly what it did not get, and it has a name.
    let chunks =
        |stories: &BTreeMap<String, Story>| stories.values().map(|one| one.chunks).sum::<u64>();
    let bytes =
        |stories: &BTreeMap<String, Story>| stories.values().map(|one| one.bytes).sum::<u64>();
    assert_eq!(lost.data.events, chunks(&got));
    assert_eq!(
        lost.data.events + lost.lost_data().events,
        chunks(&complete)
    );
    assert_eq!(lost.data.bytes + lost.lost_data().bytes, bytes(&complete));
    let created = complete.len() as u64;
    assert_eq!(lost.created + lost.lost_created, created);
    assert_eq!(lost.terminated + lost.lost_terminated, created);
    assert!(lost.lost_to_priority.events > 0, "{lost:?}");
    shared.ledger();
}

#[test]
fn what_was_lost_shows_in_the_stream() {
    let portions = trace(Preset::Elephants, 0.01);
    let mut shared = Shared::start();
    let mut client = shared.join(&Application {
        memory_bytes: 1 << 20,
        ..everything()
    });
    shared.feed_through(&portions, packets_of(&portions));
    shared.end();
    // Between chunks: the gap that the next one tells of is what was lost there.
    let (mut positions, mut gaps, mut dropped) = (BTreeMap::<u64, u64>::new(), 0, 0);
    each_event(&mut client, |event| {
        let stream = event.stream.snapshot();
        if let EventKind::Data(chunk) = &event.kind {
            let info = chunk.info();
            let position = positions.entry(stream.uid).or_default();
            assert_eq!(*position + info.gap_before, info.offset);
            gaps += info.gap_before;
            *position = info.offset + chunk.bytes().len() as u64;
        }
        if let EventKind::Terminated = event.kind {
            dropped += stream.statistics.dropped.bytes;
        }
    });
    let (lost, _) = client.statistics();
    assert!(
        gaps > 1 << 19 && gaps <= lost.lost_data().bytes,
        "{gaps} {lost:?}"
    );
    assert_eq!(lost.lost_terminated, 0, "{lost:?}");
    assert_eq!(dropped, lost.lost_data().bytes);
    shared.ledger();
}

#[test]
fn low_priority_is_lost_first() {
    let portions = trace(Preset::Mix, 0.004);
    let mut shared = Shared::start();
    let mut client = shared.join(&Application {
        memory_bytes: 1 << 20,
        priority_classes: vec![("udp".to_owned(), 5)],
        ..everything()
    });
    let expected = alone(&everything(), &portions);
    let udp = |stories: &BTreeMap<String, Story>| -> (u64, u64) {
        let (mut udp, mut others) = (0, 0);
        for (who, story) in stories {
            match who.contains(" 17 ") {
                true => udp += story.bytes,
                false => others += story.bytes,
            }
        }
        (udp, others)
    };
    shared.feed_through(&portions, packets_of(&portions));
    shared.end();
    let got = udp(&listen(&mut client));
    let whole = udp(&expected);
    assert!(got.1 < whole.1 / 2, "{got:?} of {whole:?}");
    let share = |got: u64, whole: u64| got as f64 / whole as f64;
    assert!(
        share(got.0, whole.0) > 2.0 * share(got.1, whole.1),
        "{got:?} of {whole:?}"
    );
    let (lost, _) = client.statistics();
    assert!(lost.lost_to_priority.events > 0);
    shared.ledger();
}

#[test]
fn a_client_changes_what_it_loses_first() {
    let portions = trace(Preset::Elephants, 0.01);
    let shared = Shared::start();
    let small = Application {
        memory_bytes: 1 << 20,
        ..everything()
    };
    let plain = shared.join(&small);
    let mut changed = shared.join(&small);
    changed.set_base_threshold(0.01);
    changed.set_overload_cutoff(Some(1000));
    // The service answers behind what it was told before.
    shared.status();
    shared.feed_through(&portions, packets_of(&portions));
    let (plain, changed) = (plain.statistics().0, changed.statistics().0);
    assert!(plain.lost_to_priority.events > 0, "{plain:?}");
    assert_eq!(plain.lost_to_overload_cutoff.events, 0);
    assert!(changed.lost_to_overload_cutoff.events > 0, "{changed:?}");
    shared.ledger();
}

#[test]
fn what_would_hold_for_others_cannot_be_set() {
    let portions = trace(Preset::Mix, 0.002);
    let shared = Shared::start();
    let mut client = shared.join(&everything());
    shared.feed_through(&portions, packets_of(&portions));
    let mut chunks = 0_u32;
    while let Next::Event(event) = client.next_event(Some(Duration::ZERO)).unwrap() {
        if let EventKind::Data(_) = event.kind {
            chunks += 1;
            let policy = Parameter::Policy(flowgauge_reassembly::OverlapPolicy::First);
            let error = event.stream.set_parameter(policy).unwrap_err();
            assert!(error.to_string().contains("overlap"), "{error}");
            event.stream.set_priority(chunks as u8);
        }
    }
    assert!(chunks > 100, "{chunks}");
    client.leave();
    listen_into(&mut client, &mut Stories::default());
    assert_eq!(client.statistics().0.refused_commands, 0);
    shared.ledger();
}

/// The engine keeps combinations of values, so those are what there may be 64 of.
#[test]
fn the_streams_of_a_client_have_so_many_sets_of_parameters() {
    let portions = trace(Preset::Web, 0.0005);
    let shared = Shared::start();
    let mut client = shared.join(&everything());
    // The first packet, so that its stream lasts.
    shared.feed_one(&smaller(&portions, 1)[0]);
    let Next::Event(event) = client.next_event(Some(LIMIT)).unwrap() else {
        panic!("nothing happens");
    };
    assert!(matches!(event.kind, EventKind::Created));
    let set = |parameter| event.stream.set_parameter(parameter).unwrap();
    for value in 1..=40 {
        set(Parameter::ChunkBytes(1000 + value));
        set(Parameter::FlushTimeout(Some(Nanos::from_secs(
            value.into(),
        ))));
    }
    // Again what there was is no other set.
    for _ in 0..20 {
        set(Parameter::Mode(Mode::Wait));
    }
    // That of its joining is the first of 64, each of these is another.
    shared.wait_until("all commands are heard", |status| {
        status.clients[0].statistics.refused_commands == 80 - 63
    });
    shared.status();
    assert_eq!(shared.status().clients[0].statistics.refused_commands, 17);
    // What all streams are to have is no exception.
    client.change(|wanted| wanted.chunk_bytes = 77).unwrap();
    shared.wait_until("the change is refused", |status| {
        status.clients[0].statistics.refused_commands == 18
    });
    shared.ledger();
}

#[test]
fn a_stream_has_its_own_cutoff_and_chunk_size() {
    let portions = trace(Preset::Elephants, 0.01);
    let mut shared = Shared::start();
    let mut client = shared.join(&Application {
        chunk_bytes: 1000,
        ..everything()
    });
    let mut cut = 0;
    let mut sizes = BTreeMap::<usize, u32>::new();
    let mut hear = |client: &mut Client, limit| {
        loop {
            match client.next_event(Some(limit)).unwrap() {
                Next::Event(event) => {
                    let stream = event.stream.snapshot();
                    match &event.kind {
                        EventKind::Created => {
                            event.stream.set_cutoff(Cutoff(2500));
                            let size = Parameter::ChunkBytes(1500);
                            event.stream.set_parameter(size).unwrap();
                        }
                        EventKind::Data(chunk) => {
                            *sizes.entry(chunk.bytes().len()).or_default() += 1;
                        }
                        EventKind::Terminated => cut += u32::from(stream.is_cut),
                    }
                }
                Next::Idle => break true,
                Next::End(_) => break false,
            }
        }
    };
    for portion in &smaller(&portions, 16) {
        shared.feed_one(portion);
        hear(&mut client, Duration::ZERO);
        // The service answers behind what it was told before.
        shared.status();
    }
    shared.end();
    assert!(!hear(&mut client, LIMIT));
    assert!(cut > 10, "{cut}");
    let whole = sizes.get(&1500).copied().unwrap_or_default();
    assert!(whole > 5, "{sizes:?}");
    shared.ledger();
}

#[test]
fn a_client_changes_what_it_wants() {
    let portions = trace(Preset::Mix, 0.002);
    let half = portions.len() / 2;
    let shared = Shared::start();
    let mut client = shared.join(&everything());
    let mut other = shared.join(&everything());
    let hear = |client: &mut Client, limit| {
        let mut seen = BTreeMap::<(Cutoff, u32), u32>::new();
        loop {
            match client.next_event(Some(limit)).unwrap() {
                Next::Event(event) => {
                    let stream = event.stream.snapshot();
                    if matches!(event.kind, EventKind::Created) {
                        let key = (stream.cutoff, stream.chunk_bytes);
                        *seen.entry(key).or_default() += 1;
                    }
                }
                Next::Idle | Next::End(_) => break seen,
            }
        }
    };
    let before = (everything().cutoff, everything().chunk_bytes);
    shared.feed_through(&portions[..half], packets_of(&portions[..half]));
    client
        .change(|wanted| {
            wanted.cutoff.default = Cutoff(77);
            wanted.chunk_bytes = 4000;
            wanted.inactivity_timeout = Some(Nanos::from_secs(2));
        })
        .unwrap();
    let refused = client.change(|wanted| wanted.chunk_bytes = 1 << 30);
    assert!(refused.is_err());
    shared.status();
    let seen = hear(&mut client, Duration::ZERO);
    assert!(seen.len() == 1 && seen[&before] > 20, "{seen:?}");
    shared.feed(&portions[half..]);
    shared.ledger();
    let seen = hear(&mut client, LIMIT);
    assert!(
        seen.len() == 1 && seen[&(Cutoff(77), 4000)] > 20,
        "{seen:?}"
    );
    // Nobody else notices.
    same(&listen(&mut other), &alone(&everything(), &portions));
}

#[test]
fn streams_that_are_discarded_say_nothing_more() {
    let portions = trace(Preset::Elephants, 0.01);
    let expected = alone(&everything(), &portions);
    let mut shared = Shared::start();
    let mut client = shared.join(&everything());
    let mut other = shared.join(&everything());
    let mut bytes = BTreeMap::<u64, u64>::new();
    let mut discarded = 0;
    for portion in &smaller(&portions, 16) {
        shared.feed_one(portion);
        while let Next::Event(event) = client.next_event(Some(Duration::ZERO)).unwrap() {
            let stream = event.stream.snapshot();
            match &event.kind {
                EventKind::Data(chunk) => {
                    *bytes.entry(stream.uid).or_default() += chunk.bytes().len() as u64;
                    event.stream.discard();
                }
                EventKind::Terminated => discarded += u64::from(stream.is_discarded),
                EventKind::Created => {}
            }
        }
        // The service answers behind what it was told before.
        shared.status();
    }
    shared.end();
    each_event(&mut client, |event| {
        let stream = event.stream.snapshot();
        if let EventKind::Terminated = event.kind {
            discarded += u64::from(stream.is_discarded);
        }
    });
    let all: u64 = expected.values().map(|story| story.bytes).sum();
    let got: u64 = bytes.values().sum();
    assert!(discarded > 5, "{discarded}");
    assert!(got < all / 2, "{got} of {all}");
    // The other application still gets everything.
    same(&listen(&mut other), &expected);
    shared.ledger();
}

#[test]
fn kept_chunks_are_joined() {
    let portions = trace(Preset::Elephants, 0.005);
    let mut shared = Shared::start();
    let mut client = shared.join(&Application {
        chunk_bytes: 1000,
        overlap_bytes: 10,
        ..everything()
    });
    shared.feed(&portions);
    shared.end();
    let whole = alone(
        &Application {
            chunk_bytes: 0,
            ..everything()
        },
        &portions,
    );
    let mut bytes = BTreeMap::<u64, Vec<u8>>::new();
    let (mut joined, mut longest) = (0, 0);
    each_event(&mut client, |event| {
        let uid = event.stream.snapshot().uid;
        if let EventKind::Data(chunk) = &event.kind {
            let own = bytes.entry(uid).or_default();
            let info = chunk.info();
            let before = own.len() - info.repeated as usize;
            assert_eq!(&own[before..], &chunk.bytes()[..info.repeated as usize]);
            own.extend_from_slice(chunk.new_bytes());
            if info.flags.contains(ChunkFlags::KEPT) {
                joined += 1;
                assert!(!chunk.is_shared());
            }
            longest = longest.max(chunk.bytes().len());
            // Up to four chunks in one.
            if chunk.bytes().len() < 3500 {
                event.stream.keep_chunk();
            }
        }
    });
    assert!(joined > 10, "{joined}");
    assert!((3900..=4000).contains(&longest), "{longest}");
    let got: u64 = bytes.values().map(|one| one.len() as u64).sum();
    assert_eq!(got, whole.values().map(|story| story.bytes).sum::<u64>());
    shared.ledger();
}

#[test]
fn what_a_client_keeps_of_a_stream_comes_back() {
    let portions = trace(Preset::Mix, 0.0005);
    let mut shared = Shared::start();
    let mut client = shared.join(&everything());
    shared.feed(&portions);
    shared.end();
    let (mut seen, mut timed) = (0, 0);
    each_event(&mut client, |event| {
        let stream = event.stream.snapshot();
        match event.kind {
            EventKind::Created => event.stream.set_user_state(stream.uid + 1),
            _ => {
                // So long that every clock notices it.
                let began = Instant::now();
                while began.elapsed().is_zero() {}
                assert_eq!(stream.user_state, stream.uid + 1);
                seen += 1;
            }
        }
        if let (EventKind::Terminated, 1..) = (&event.kind, stream.chunks) {
            assert!(stream.processing_time > 0);
            timed += 1;
        }
    });
    assert!(seen > 20 && timed > 10, "{seen} {timed}");
    shared.ledger();
}

#[test]
fn leaving_ends_the_events_and_the_service_ends_with_the_last() {
    let portions = trace(Preset::Mix, 0.001);
    let shared = Shared::start_with(ServiceConfig {
        grace: Some(Duration::ZERO),
        pool_bytes: 2 << 30,
    });
    let mut client = shared.join(&everything());
    shared.feed(&portions[..2]);
    let leaver = client.leaver();
    leaver.leave().unwrap();
    let mut stories = Stories::default();
    assert_eq!(listen_into(&mut client, &mut stories), "as asked");
    drop(client);
    // It ends although its source does not.
    let ledger = shared.thread.join().unwrap();
    assert!(ledger.is_balanced());
}

/// As at the end of a capture, while the capture goes on for another.
#[test]
fn who_leaves_gets_what_its_streams_have() {
    let portions = trace(Preset::Mix, 0.002);
    let half = &portions[..portions.len() / 2];
    let mut shared = Shared::start();
    let mut leaving = shared.join(&everything());
    let mut staying = shared.join(&everything());
    let before = packets_of(half);
    shared.feed_through(half, before);
    leaving.leave();
    let mut stories = Stories::default();
    assert_eq!(listen_into(&mut leaving, &mut stories), "as asked");
    let (stories, expected) = (stories.finish(), alone(&everything(), half));
    let open = expected
        .values()
        .filter(|story| story.end.contains("EndOfInput"));
    assert!(open.count() > 10);
    same(&stories, &expected);
    shared.feed(&portions[half.len()..]);
    shared.end();
    same(&listen(&mut staying), &alone(&everything(), &portions));
    for client in [&leaving, &staying] {
        assert!(client.statistics().0.is_complete());
    }
    shared.ledger();
}

/// Handlers get the same, and counters of their own.
#[test]
fn handlers_get_what_they_would_get_alone() {
    struct Sums(Arc<Mutex<(u64, u64, u64)>>);
    impl Handlers for Sums {
        fn created(&mut self, _: &mut StreamHandle<'_>) {
            self.0.lock().unwrap().0 += 1;
        }
        fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
            assert!(!chunk.new_bytes().is_empty());
            self.0.lock().unwrap().1 += 1;
            stream.discard();
        }
        fn terminated(&mut self, _: &mut StreamHandle<'_>) {
            self.0.lock().unwrap().2 += 1;
        }
    }
    let portions = trace(Preset::Web, 0.002);
    let shared = Shared::start();
    let application = Application {
        chunk_bytes: 5000,
        ..everything()
    };
    let client = shared.join(&application);
    let sums = Arc::new(Mutex::default());
    let mut handlers = Sums(Arc::clone(&sums));
    let control = Control::default();
    let stop = control.clone();
    let running = std::thread::spawn(move || client.run(&mut handlers, &control));
    let packets = packets_of(&portions);
    shared.feed_through(&portions, packets);
    stop.stop();
    let (outcome, end) = running.join().unwrap();
    end.unwrap();
    let expected = alone(&application, &portions);
    // One chunk of each, though others were on their way when it was discarded.
    let with_bytes = expected.values().filter(|story| story.bytes > 0).count() as u64;
    assert!(expected.values().any(|story| story.chunks > 1));
    let streams = expected.len() as u64;
    assert_eq!(*sums.lock().unwrap(), (streams, with_bytes, streams));
    let total = outcome.total();
    assert_eq!((total.created, total.terminated), (streams, streams));
    assert_eq!(total.all.packets, packets);
    assert!(outcome.ledger.is_balanced());
    shared.ledger();
}

#[test]
fn without_data_streams_come_and_go() {
    let portions = trace(Preset::Web, 0.001);
    let mut shared = Shared::start();
    let statistics_only = Application {
        wants_data: false,
        ..everything()
    };
    let mut client = shared.join(&statistics_only);
    shared.feed(&portions);
    shared.end();
    let stories = listen(&mut client);
    assert_eq!(stories.len(), alone(&everything(), &portions).len());
    for story in stories.values() {
        assert_eq!((story.created, story.chunks, story.terminated), (1, 0, 1));
    }
    assert!(client.statistics().0.is_complete());
    shared.ledger();
}

#[test]
fn clients_hear_why_the_capture_is_over() {
    let shared = Shared::start();
    let mut client = shared.join(&everything());
    let failed = CaptureError::Interface {
        name: "eth9".to_owned(),
        reason: "it disappeared or went down".to_owned(),
        hint: String::new(),
    };
    shared.feed.as_ref().unwrap().send(Err(failed)).unwrap();
    let mut stories = Stories::default();
    let reason = listen_into(&mut client, &mut stories);
    assert!(
        reason.contains("eth9") && reason.contains("disappeared"),
        "{reason}"
    );
    shared.thread.join().unwrap();
}

#[test]
fn at_most_as_many_as_the_engine_takes() {
    let shared = Shared::start();
    let tiny = Application {
        memory_bytes: 1 << 20,
        ..everything()
    };
    let clients: Vec<Client> = (0..32).map(|_| shared.join(&tiny)).collect();
    let refused = shared.connect(&tiny).unwrap_err().to_string();
    assert!(refused.contains("32 clients"), "{refused}");
    drop(clients);
    shared.ledger();
}
