use core::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use crate::local::Connection;

use super::*;

fn pair(entries: u32, bytes: u64) -> (Pool, EventWriter, EventReader) {
    let pool = Pool::new(bytes).unwrap();
    let writer = EventWriter::new(entries).unwrap();
    let reader = reader_of(&pool, &writer);
    (pool, writer, reader)
}

fn reader_of(pool: &Pool, writer: &EventWriter) -> EventReader {
    let (connection, _) = Connection::pair().unwrap();
    connected_reader_of(pool, writer, connection)
}

fn connected_reader_of(pool: &Pool, writer: &EventWriter, connection: Connection) -> EventReader {
    let file = pool.file().try_clone_to_owned().unwrap();
    let view = PoolView::open(file, Arc::new(connection)).unwrap();
    let [ring, page] = writer
        .files()
        .map(|file| file.try_clone_to_owned().unwrap());
    EventReader::open(ring, page, view).unwrap()
}

fn body(number: u8) -> [u8; BODY_BYTES] {
    [number; BODY_BYTES]
}

fn push(writer: &mut EventWriter, pool: &mut Pool, number: u8, data: &[u8]) -> bool {
    let area = pool.store(&[data]).unwrap();
    let pushed = writer.push(&body(number), pool, Some(&area));
    pool.release(area);
    pushed
}

/// A value by which a client lies about how far it has read.
fn claim(reader: &EventReader, value: u64) {
    let read = word(&reader.page, page::READ).unwrap();
    read.store(value, Ordering::Release);
}

#[test]
fn events_arrive_in_order_with_their_bytes() {
    let (mut pool, mut writer, mut reader) = pair(4, 1 << 20);
    assert!(reader.next_event().unwrap().is_none());
    for round in 0..100_u8 {
        assert!(push(&mut writer, &mut pool, round, &[round; 300]));
        assert!(writer.push(&body(round), &mut pool, None));
        assert!(reader.next_event().unwrap().is_none(), "not published yet");
        assert!(!writer.publish(), "nobody sleeps");
        let event = reader.next_event().unwrap().unwrap();
        assert_eq!((event.body, event.data), (body(round), &[round; 300][..]));
        let event = reader.next_event().unwrap().unwrap();
        assert_eq!((event.body, event.data), (body(round), &[][..]));
        assert!(reader.next_event().unwrap().is_none());
        assert!(writer.collect(&mut pool));
        assert_eq!((writer.room(), writer.held(), pool.in_use()), (4, 0, 0));
    }
    assert_eq!(pool.touched(), 4096, "the page of one area did for all");
}

#[test]
fn events_that_were_taken_out_end_in_their_order() {
    let (mut pool, mut writer, mut reader) = pair(4, 1 << 20);
    for round in 0..50_u8 {
        for number in 0..4 {
            assert!(push(&mut writer, &mut pool, number, &[round; 300]));
        }
        let _ = writer.publish();
        let mut taken = Vec::new();
        for number in 0..3 {
            let (is, bytes) = reader.take_event().unwrap().unwrap();
            assert_eq!(is, body(number));
            taken.push(bytes);
        }
        // The last of the four is in hand, and so done with at the next call.
        assert_eq!(reader.next_event().unwrap().unwrap().body, body(3));
        reader.done();
        let waiting = |writer: &mut EventWriter, pool: &mut Pool| {
            assert!(writer.collect(pool));
            (writer.waiting(), pool.in_use())
        };
        assert_eq!(waiting(&mut writer, &mut pool), (4, 2048));
        let last = taken.pop().unwrap();
        let other = thread::spawn(move || assert_eq!(last.bytes(), [round; 300]));
        other.join().unwrap();
        assert_eq!(waiting(&mut writer, &mut pool), (4, 2048));
        drop(taken.remove(0));
        assert_eq!(waiting(&mut writer, &mut pool), (3, 1536));
        assert_eq!(taken[0].bytes(), [round; 300]);
        drop(taken);
        assert_eq!(waiting(&mut writer, &mut pool), (0, 0));
    }
}

/// Who held bytes longer than the connection would see others written over them.
#[test]
fn the_connection_is_open_as_long_as_bytes_are_held() {
    let mut pool = Pool::new(1 << 20).unwrap();
    let mut writer = EventWriter::new(4).unwrap();
    let (connection, peer) = Connection::pair().unwrap();
    let mut reader = connected_reader_of(&pool, &writer, connection);
    assert!(push(&mut writer, &mut pool, 1, b"held"));
    let _ = writer.publish();
    let (_, held) = reader.take_event().unwrap().unwrap();
    drop(reader);
    let mut message = [0; 8];
    let silent = peer.receive(&mut message).unwrap_err();
    assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(held.bytes(), b"held");
    drop(held);
    let gone = peer.receive(&mut message).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn events_are_given_back_from_any_thread() {
    let (mut pool, mut writer, mut reader) = pair(64, 1 << 20);
    let (to, from) = std::sync::mpsc::channel::<HeldBytes>();
    let from = std::sync::Mutex::new(from);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Ok(bytes) = { from.lock().unwrap().recv() } {
                    assert_eq!(bytes.bytes().len(), 30);
                }
            });
        }
        for number in 0..20_000_u64 {
            while writer.room() == 0 {
                assert!(writer.collect(&mut pool));
                thread::yield_now();
            }
            assert!(push(&mut writer, &mut pool, number as u8, &[1; 30]));
            let _ = writer.publish();
            to.send(reader.take_event().unwrap().unwrap().1).unwrap();
        }
        drop(to);
    });
    assert!(writer.collect(&mut pool));
    assert_eq!((writer.waiting(), pool.in_use()), (0, 0));
}

#[test]
fn an_area_waits_for_its_last_reader() {
    let (mut pool, mut one, mut reader) = pair(4, 1 << 20);
    let mut two = EventWriter::new(4).unwrap();
    let area = pool.store(&[b"both"]).unwrap();
    assert!(one.push(&body(1), &mut pool, Some(&area)));
    assert!(two.push(&body(2), &mut pool, Some(&area)));
    pool.release(area);
    let _ = (one.publish(), two.publish());
    assert_eq!(reader.next_event().unwrap().unwrap().data, b"both");
    assert!(one.collect(&mut pool));
    assert_eq!(one.held(), 256, "the event in hand is not over");
    reader.done();
    assert!(one.collect(&mut pool));
    assert_eq!((one.held(), two.held(), pool.in_use()), (0, 256, 256));
    // The second reader dies without having read anything.
    two.close(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_full_ring_refuses() {
    let (mut pool, mut writer, mut reader) = pair(2, 1 << 20);
    assert!(push(&mut writer, &mut pool, 1, b"1"));
    assert!(push(&mut writer, &mut pool, 2, b"2"));
    assert!(!push(&mut writer, &mut pool, 3, b"3"));
    let _ = writer.publish();
    assert_eq!(reader.next_event().unwrap().unwrap().data, b"1");
    assert!(writer.collect(&mut pool));
    assert!(!push(&mut writer, &mut pool, 3, b"3"), "1 is still in hand");
    reader.done();
    assert!(writer.collect(&mut pool));
    assert!(push(&mut writer, &mut pool, 4, b"4"));
    let _ = writer.publish();
    assert_eq!(reader.next_event().unwrap().unwrap().data, b"2");
    assert_eq!(reader.next_event().unwrap().unwrap().data, b"4");
    assert_eq!(pool.in_use(), 512);
}

#[test]
fn a_sleeping_reader_is_woken_once() {
    let (mut pool, mut writer, mut reader) = pair(4, 1 << 20);
    assert!(reader.prepare_to_sleep());
    assert!(writer.push(&body(1), &mut pool, None));
    assert!(writer.publish());
    assert!(!writer.publish(), "nothing new");
    assert!(writer.push(&body(2), &mut pool, None));
    assert!(!writer.publish(), "woken already");
    assert!(!reader.prepare_to_sleep(), "there are events");
    assert!(reader.next_event().unwrap().is_some());
    assert!(writer.push(&body(3), &mut pool, None));
    assert!(!writer.publish(), "it is awake");
}

#[test]
fn claims_that_cannot_be_are_not_believed() {
    let (mut pool, mut writer, mut reader) = pair(8, 1 << 20);
    for number in 0..4 {
        assert!(push(&mut writer, &mut pool, number, &[number; 10]));
    }
    let _ = writer.publish();
    assert!(push(&mut writer, &mut pool, 4, b"not published"));
    for lie in [5, 6, u64::MAX, 1 << 63] {
        claim(&reader, lie);
        assert!(!writer.collect(&mut pool), "{lie}");
        assert_eq!((writer.waiting(), pool.in_use()), (5, 5 * 256));
    }
    claim(&reader, 3);
    assert!(writer.collect(&mut pool));
    claim(&reader, 2);
    assert!(!writer.collect(&mut pool), "backwards");
    assert_eq!((writer.waiting(), pool.in_use()), (2, 2 * 256));
    // Its own view is damaged by that, nothing else.
    let mut honest = reader_of(&pool, &writer);
    honest.position = 3;
    assert_eq!(honest.next_event().unwrap().unwrap().data, [3; 10]);
    reader.position = 3;
    assert!(reader.next_event().unwrap().is_some());
    writer.close(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

/// Writes garbage to everything a client can write to, between the operations of a writer
/// that serves another client from the same pool, and checks what that one gets.
#[test]
fn garbage_harms_nobody_else() {
    let (mut pool, mut hostile_writer, hostile) = pair(16, 1 << 20);
    let mut honest_writer = EventWriter::new(16).unwrap();
    let mut honest = reader_of(&pool, &honest_writer);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut lies, mut expected) = (0, VecDeque::new());
    for round in 0..20_000_u32 {
        let at = (random() as usize % PAGE) & !7;
        let value = match random() % 4 {
            0 => random(),
            1 => random() % 32,
            2 => hostile_writer.published,
            _ => hostile_writer.read.wrapping_add(random() % 3),
        };
        word(&hostile.page, at)
            .unwrap()
            .store(value, Ordering::Relaxed);
        claim(&hostile, value);
        let bytes = vec![round as u8; random() as usize % 3000];
        if let Some(area) = pool.store(&[&bytes]) {
            let _ = hostile_writer.push(&body(round as u8), &mut pool, Some(&area));
            if honest_writer.push(&body(round as u8), &mut pool, Some(&area)) {
                expected.push_back(bytes);
            }
            pool.release(area);
        }
        let _ = (hostile_writer.publish(), honest_writer.publish());
        lies += u32::from(!hostile_writer.collect(&mut pool));
        while random() % 3 != 0 {
            let Some(event) = honest.next_event().unwrap() else {
                break;
            };
            assert_eq!(event.data, expected.pop_front().unwrap());
        }
        assert!(honest_writer.collect(&mut pool));
    }
    assert!(lies > 1000, "{lies}");
    hostile_writer.close(&mut pool);
    honest_writer.close(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn two_threads_agree() {
    const EVENTS: u64 = 200_000;
    let (mut pool, mut writer, mut reader) = pair(64, 1 << 20);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..EVENTS {
                let event = loop {
                    if let Some(event) = reader.next_event().unwrap() {
                        break (
                            event.body,
                            u64::from_le_bytes(event.data.try_into().unwrap()),
                        );
                    }
                    thread::yield_now();
                };
                assert_eq!(event, (body(number as u8), number));
            }
            reader.done();
        });
        for number in 0..EVENTS {
            while writer.room() == 0 {
                let _ = writer.publish();
                assert!(writer.collect(&mut pool));
                thread::yield_now();
            }
            assert!(push(
                &mut writer,
                &mut pool,
                number as u8,
                &number.to_le_bytes()
            ));
            if number % 7 == 0 {
                let _ = writer.publish();
            }
        }
        let _ = writer.publish();
        while writer.waiting() > 0 {
            assert!(writer.collect(&mut pool));
            thread::yield_now();
        }
    });
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_ring_grows_when_all_is_read() {
    let mut pool = Pool::new(1 << 20).unwrap();
    let mut writer = EventWriter::growing(4, 9).unwrap();
    let mut reader = reader_of(&pool, &writer);
    // Where the places of old and new ring differ.
    for number in 0..6 {
        assert!(push(&mut writer, &mut pool, number, b"before"));
        let _ = writer.publish();
        assert_eq!(reader.next_event().unwrap().unwrap().body, body(number));
        reader.done();
        assert!(writer.collect(&mut pool));
    }
    assert!(push(&mut writer, &mut pool, 6, b"held"));
    let _ = writer.publish();
    let (is, held) = reader.take_event().unwrap().unwrap();
    assert_eq!(is, body(6));
    assert!(writer.collect(&mut pool));
    assert!(!writer.grow(16), "something is not read yet");
    assert_eq!((writer.entries(), held.bytes()), (4, &b"held"[..]));
    drop(held);
    assert!(!writer.grow(16), "nor seen to be read");
    assert!(writer.collect(&mut pool));
    assert!(writer.grow(16) && writer.grow(16) && writer.grow(2));
    assert_eq!((writer.entries(), writer.room()), (16, 16));
    assert!(reader.next_event().unwrap().is_none());
    for round in 0..5_u8 {
        for number in 0..16 {
            assert!(push(&mut writer, &mut pool, number, &[round]));
        }
        assert!(!writer.push(&body(0), &mut pool, None), "it is full");
        let _ = writer.publish();
        let mut taken = Vec::new();
        for number in 0..16 {
            let (is, bytes) = reader.take_event().unwrap().unwrap();
            assert_eq!((is, bytes.bytes()), (body(number), &[round][..]));
            taken.push(bytes);
        }
        assert!(reader.next_event().unwrap().is_none());
        taken.reverse();
        drop(taken);
        assert!(writer.collect(&mut pool));
        assert_eq!((writer.waiting(), pool.in_use()), (0, 0));
    }
}

#[test]
fn a_ring_grows_under_a_reader() {
    const EVENTS: u64 = 20_000;
    let mut pool = Pool::new(1 << 23).unwrap();
    let mut writer = EventWriter::growing(2, 1 << 14).unwrap();
    let mut reader = reader_of(&pool, &writer);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..EVENTS {
                // By turns with bytes that are borrowed and that are taken out.
                loop {
                    let found = if number % 3 == 0 {
                        let taken = reader.take_event().unwrap();
                        taken.map(|(body, bytes)| (body, bytes.bytes().to_vec()))
                    } else {
                        let event = reader.next_event().unwrap();
                        event.map(|event| (event.body, event.data.to_vec()))
                    };
                    if let Some((is, bytes)) = found {
                        assert_eq!(is, body(number as u8));
                        assert_eq!(bytes, number.to_le_bytes());
                        break;
                    }
                    thread::yield_now();
                }
            }
            reader.done();
        });
        for number in 0..EVENTS {
            while writer.room() == 0 {
                let _ = writer.publish();
                assert!(writer.collect(&mut pool));
                thread::yield_now();
            }
            let bytes = number.to_le_bytes();
            assert!(push(&mut writer, &mut pool, number as u8, &bytes));
            let _ = writer.publish();
            if number % 1000 == 0 {
                while !writer.grow(2 * writer.entries()) {
                    assert!(writer.collect(&mut pool));
                    thread::yield_now();
                }
            }
        }
        while writer.waiting() > 0 {
            assert!(writer.collect(&mut pool));
            thread::yield_now();
        }
    });
    assert_eq!((writer.entries(), pool.in_use()), (1 << 14, 0));
}

#[test]
fn a_reader_believes_no_size_that_cannot_be() {
    let mut pool = Pool::new(1 << 20).unwrap();
    let mut writer = EventWriter::growing(4, 8).unwrap();
    let mut reader = reader_of(&pool, &writer);
    for size in [0, 2, 5, 16, u64::MAX] {
        let fact = word(&writer.ring, header::ENTRIES).unwrap();
        fact.store(size, Ordering::Relaxed);
        assert!(push(&mut writer, &mut pool, 1, b"there"));
        let _ = writer.publish();
        assert_eq!(reader.next_event().unwrap().unwrap().data, b"there");
        assert_eq!(reader.entries, 4, "{size}");
        reader.done();
        assert!(writer.collect(&mut pool));
    }
}

#[test]
fn counters_are_shown() {
    let (_, mut writer, reader) = pair(2, 4096);
    let counters = reader.counters();
    let places = [0, 1, COUNTERS - 1, COUNTERS, usize::MAX];
    assert_eq!(counters.read(places), [0; 5]);
    let all = (0..).map(|number| number + 7).take(2 * COUNTERS);
    writer.set_counters(all);
    let last = COUNTERS as u64 + 6;
    assert_eq!(counters.read(places), [7, 8, last, 0, 0]);
    let file = writer.files()[0].try_clone_to_owned().unwrap();
    let alone = Counters::open(file).unwrap();
    writer.set_counters([1]);
    assert_eq!(alone.read([0]), [1]);
    let page = writer.files()[1].try_clone_to_owned().unwrap();
    assert!(Counters::open(page).is_err());
}

/// Numbers of one moment are read together, however they change meanwhile.
#[test]
fn counters_are_of_one_moment() {
    let (_, mut writer, reader) = pair(2, 4096);
    let counters = reader.counters();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..200_000 {
                writer.set_counters([round; COUNTERS]);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut last = 0;
        while !is_over.load(Ordering::Relaxed) {
            let [one, other, far] = counters.read([0, 17, COUNTERS - 1]);
            assert!(one == other && other == far && far >= last);
            last = far;
        }
    });
    assert_eq!(counters.read([3]), [199_999]);
}

#[test]
fn who_sleeps_is_woken() {
    let (mut pool, mut writer, mut reader) = pair(4, 1 << 20);
    let began = Instant::now();
    reader.sleep(Duration::from_millis(1));
    assert!(began.elapsed() >= Duration::from_millis(1));
    let reading = thread::spawn(move || {
        // Woken without an event first, then for one.
        let mut wakes = 0;
        while !reader.has_next() {
            reader.sleep(Duration::from_secs(60));
            wakes += 1;
        }
        wakes
    });
    let asleep = half(&writer.page, page::SLEEPS).unwrap();
    let wait = || {
        while asleep.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
    };
    wait();
    writer.wake();
    wait();
    assert!(push(&mut writer, &mut pool, 1, b"there"));
    if writer.publish() {
        writer.wake_up();
    }
    assert!(reading.join().unwrap() >= 1);
}

#[test]
fn other_files_are_not_taken_for_a_ring() {
    let (pool, writer, _) = pair(2, 4096);
    let view = || {
        let file = pool.file().try_clone_to_owned().unwrap();
        PoolView::open(file, Arc::new(Connection::pair().unwrap().0)).unwrap()
    };
    let [ring, page] = writer.files();
    let clone = |file: BorrowedFd<'_>| file.try_clone_to_owned().unwrap();
    for (ring, page) in [
        (page, ring),
        (page, page),
        (ring, ring),
        (pool.file(), page),
    ] {
        let opened = EventReader::open(clone(ring), clone(page), view());
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
