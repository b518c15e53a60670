//! What users read in memory that the sensor shares: numbers of flows, and packets.

use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use flowgauge_capture::{Filtered, PacketSource};
use flowgauge_sensor_client::Reading;

use super::*;

/// A sensor with a device `long`, whose packets do not fit in a ring.
fn with_long(workers: u16, packets: u64) -> (Running, PathBuf) {
    let folder = tempfile::tempdir().unwrap().keep();
    let path = folder.join("long.pcap");
    let config = Trace::new(Preset::Mix).with_packets(packets);
    generate(&config, File::create(&path).unwrap()).unwrap();
    let tables = format!(
        "[devices.long]\nfiles = [\"{}\"]\nhold = true\nworkers = {workers}\n",
        path.display()
    );
    (Running::start(1, &tables), path)
}

/// Packets of a file that are TCP, as records have them.
fn packets_of(path: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    let mut source = Filtered::new(open(path).unwrap(), "tcp").unwrap();
    let mut packets = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        for packet in batch.packets {
            let bytes = &batch.memory[packet.offset as usize..][..packet.captured_len as usize];
            packets.push((packet.time.0, packet.wire_len, bytes.to_vec()));
        }
    }
    packets
}

/// Takes packets to the end of the device, and compares each.
fn compare(flow: &mut Flow, expected: &[(u64, u32, Vec<u8>)]) {
    let component = flow.component("to_buffer").unwrap();
    let readings = flow.readings();
    for (place, (time, wire_len, bytes)) in expected.iter().enumerate() {
        let packet = flow.next(Duration::from_secs(60)).unwrap();
        let packet = packet.unwrap_or_else(|| panic!("{place}: {:?}", readings.read(0)));
        assert_eq!(packet.component, component);
        assert_eq!(packet.record.as_ptr().addr() % 8, 0);
        assert_eq!((packet.bytes(), packet.wire_len()), (&bytes[..], *wire_len));
        let seconds = packet.time() >> 32;
        let nanos = ((packet.time() & u64::from(u32::MAX)) * 1_000_000_000) >> 32;
        let difference = time - (seconds * 1_000_000_000 + nanos);
        assert!(difference <= 1, "{place}: {difference}");
    }
    assert!(flow.next(Duration::from_secs(60)).unwrap().is_none());
    let end: Reading = readings.read(component);
    assert!(end.is_last && !end.has_failed);
    assert_eq!((end.lost, end.items), (0, expected.len() as u64));
}

#[test]
fn numbers_are_those_of_the_results() {
    for workers in [1, 2] {
        let running = Running::start(workers, "");
        let client = running.client();
        let flows: Vec<_> = (STACKS.iter())
            .map(|stack| client.open("mix", stack, &[]).unwrap())
            .collect();
        let first = flows[0].readings();
        assert_eq!((first.read(0).value, first.read(0).items), (Some(0), 0));
        client.start("mix").unwrap();
        let mut before = 0;
        while !first.read(0).is_last {
            let reading = first.read(0);
            // Of one moment: what was counted is what came.
            assert_eq!(reading.value, Some(reading.items.into()));
            assert!(reading.items >= before);
            before = reading.items;
        }
        for flow in &flows {
            let results = last(flow);
            let readings = flow.readings();
            for (place, component) in results.components.iter().enumerate() {
                let value = component.value.as_ref();
                let value = value.and_then(serde_json::Value::as_u64).map(i128::from);
                let reading = readings.read(place);
                let label = &component.component;
                assert_eq!(flow.component(label), Some(place));
                assert_eq!(
                    (reading.value, reading.items),
                    (value, component.items),
                    "{label}"
                );
                assert!(reading.is_last && !reading.has_failed);
            }
            assert_eq!(readings.read(10_000).value, None);
        }
    }
}

#[test]
fn packets_are_those_of_the_file_for_each_flow() {
    for workers in [1, 2] {
        let (running, path) = with_long(workers, 60_000);
        let expected = packets_of(&path);
        let bytes: usize = expected.iter().map(|packet| packet.2.len()).sum();
        assert!(bytes > 16 << 20, "{bytes}: they would wait all at once");
        let clients = [running.client(), running.client()];
        let stack = "filter { tcp } to_buffer";
        let mut flows: Vec<Flow> = (clients.iter())
            .map(|client| client.open("long", stack, &[]).unwrap())
            .collect();
        let stacks = clients[0].status().unwrap().devices[0].stacks.clone();
        assert_eq!(stacks[0].flows.len(), 2, "one stack does for both");
        clients[0].start("long").unwrap();
        thread::scope(|scope| {
            for flow in &mut flows {
                scope.spawn(|| compare(flow, &expected));
            }
        });
        let [one, other] = [0, 1].map(|at| flows[at].results().unwrap());
        assert_eq!(one.components, other.components);
    }
}

#[test]
fn who_does_not_read_is_not_waited_for_long() {
    let (running, path) = with_long(1, 60_000);
    let expected = packets_of(&path);
    let (idle, busy) = (running.client(), running.client());
    let mut stopped = idle.open("long", "filter { tcp } to_buffer", &[]).unwrap();
    let mut reading = busy
        .open("long", "filter { tcp } to_buffer count", &[])
        .unwrap();
    busy.start("long").unwrap();
    compare(&mut reading, &expected);
    // What it did not get is counted, and what it got is whole.
    let (mut got, mut rest) = (0, expected.iter());
    while let Some(packet) = stopped.next(Duration::from_secs(60)).unwrap() {
        assert!(rest.any(|(.., bytes)| packet.bytes() == bytes), "{got}");
        got += 1;
    }
    let end = stopped.readings().read(1);
    assert!(end.lost > 0);
    assert_eq!(end.lost + got as u64, expected.len() as u64);
}

#[test]
fn who_lies_about_what_it_has_read_harms_nobody_else() {
    let (running, path) = with_long(1, 30_000);
    let expected = packets_of(&path);
    let mut honest = running
        .client()
        .open("long", "filter { tcp } to_buffer", &[])
        .unwrap();
    let socket = running.folder.path().join("sock");
    let mut pages = Vec::new();
    let mut liars = Vec::new();
    for lie in [u64::MAX, 1 << 40, 7, 0] {
        let liar = Connection::connect(&socket.to_string_lossy()).unwrap();
        let open = Request::Open {
            device: "long".to_owned(),
            stack: "filter { tcp } to_buffer".to_owned(),
        };
        liar.send(&serde_json::to_vec(&open).unwrap()).unwrap();
        assert!(liar.wait(Some(Duration::from_secs(60))).unwrap());
        let mut answer = vec![0; 64 << 10];
        let (len, files) = liar.receive_files(&mut answer).unwrap();
        let answer: Answer = serde_json::from_slice(&answer[1..len]).unwrap();
        assert!(matches!(answer, Answer::Flow(_)), "{answer:?}");
        // The ring and the pool are not for it to write.
        let [ring, page, pool] = <[_; 3]>::try_from(files).unwrap().map(File::from);
        assert!(ring.write_at(b"x", 64).is_err() && pool.write_at(b"x", 0).is_err());
        assert!(ring.set_len(0).is_err() && page.set_len(0).is_err());
        page.write_at(&lie.to_le_bytes(), 0).unwrap();
        // It seems to sleep for ever.
        page.write_at(&1_u32.to_le_bytes(), 64).unwrap();
        pages.push(page.as_fd().try_clone_to_owned().unwrap());
        liars.push(liar);
    }
    running.client().start("long").unwrap();
    compare(&mut honest, &expected);
    drop(liars);
    let patience = Instant::now() + Duration::from_secs(60);
    while running.flows() > 1 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.flows(), 1);
}

#[test]
fn flows_that_end_without_their_users_say_so() {
    let running = Running::start(1, "");
    let client = running.client();
    let mut flow = client.open("mix", "to_buffer", &[]).unwrap();
    let waiting = thread::spawn(move || {
        let came = flow.next(Duration::from_secs(60)).unwrap().is_some();
        (came, flow.readings().read(0))
    });
    let file = running.folder.path().join("sensor.toml");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("devices.mix", "devices.other");
    fs::write(&file, text).unwrap();
    client.reload().unwrap();
    let (came, end) = waiting.join().unwrap();
    assert!(!came && end.is_last && end.has_failed);
    assert_eq!(running.flows(), 0);
}

#[test]
fn a_sensor_that_is_gone_ends_what_waits() {
    let running = Running::start(1, "");
    let client = running.client();
    let mut flow = client.open("mix", "to_buffer", &[]).unwrap();
    let waiting = thread::spawn(move || {
        flow.next(Duration::from_secs(60))
            .is_ok_and(|it| it.is_some())
    });
    drop(running);
    assert!(!waiting.join().unwrap());
    let patience = Instant::now() + Duration::from_secs(60);
    while !client.is_gone() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(client.is_gone());
}
