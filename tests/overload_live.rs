//! Overload of a live capture: who is important loses nothing, nor do handshakes and ends, nor does the ring (figure 9 of the Scap
//! paper). The program is stopped while three times of what its ring holds comes, so that it is sure to be overloaded.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use flowgauge_capture::live::LiveConfig;
use flowgauge_runtime::{Capture, Closures};
use flowgauge_stream::engine::{ApplicationConfig, StreamFilter, StreamStatistics};
use flowgauge_wire::Place;

use crate::frames::lab::Lab;
use crate::live_support::{Program, Signal, Trace, ledger, wait_until};
use crate::support::cases::checksum;

const SYN: u8 = 2;
const FIN: u8 = 0x11;
const DATA: u8 = 0x18;
/// Bytes of payload of a packet.
const PAYLOAD: u32 = 8000;
/// Packets with payload of a stream.
const EACH: u32 = 100;

/// The `number`th packet with payload of the stream from this port to another one, or its begin or end.
fn packet(from: u16, to: u16, flags: u8, number: u32) -> Vec<u8> {
    let hosts = [10, 0, 0, 1, 10, 0, 0, 2];
    let mut tcp = [from.to_be_bytes(), to.to_be_bytes()].concat();
    let (seq, data) = match flags {
        SYN => (0, 0),
        FIN => (1 + EACH * PAYLOAD, 0),
        _ => (1 + number * PAYLOAD, PAYLOAD),
    };
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, u8::from(flags != SYN), 0x50, flags, 0xff, 0xff]);
    tcp.extend([0; 4]);
    tcp.resize(20 + data as usize, b'x');
    let len = tcp.len() as u16;
    let pseudo = [&hosts[..], &[0, 6], &len.to_be_bytes(), &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut header = vec![0x45, 0];
    header.extend((20 + len).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    header.extend(hosts);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2; 12][..], &[8, 0], &header, &tcp].concat()
}

/// Streams to this port, from the first port on: how many.
struct Streams {
    to: u16,
    from: u16,
    count: u16,
}

impl Streams {
    fn each(&self, flags: u8, number: u32) -> impl Iterator<Item = Vec<u8>> + '_ {
        let ports = self.from..self.from + self.count;
        ports.map(move |from| packet(from, self.to, flags, number))
    }

    fn data(&self) -> Vec<Vec<u8>> {
        (0..EACH)
            .flat_map(|number| self.each(DATA, number))
            .collect()
    }
}

#[test]
fn overload_is_lost_by_priority() {
    let Some(lab) = Lab::new(9000) else { return };
    let high = Streams {
        to: 443,
        from: 1000,
        count: 2,
    };
    let low = Streams {
        to: 80,
        from: 2000,
        count: 60,
    };
    // The ring holds some 2,000 of 6,200 packets.
    let options = ["--priority", "5:port 443", "-B", "16384", "--memory", "64M"];
    let command = ["streams", "--json", "--counters", "-i", "fg1"];
    let program = Program::start(&lab, &[&command[..], &options].concat());
    let all = [&high, &low];
    let begins: Vec<Vec<u8>> = all.iter().flat_map(|it| it.each(SYN, 0)).collect();
    let mut sent = begins.len() as u64;
    Trace::of(begins).replay(&lab, "fg0");
    program.wait_for_packets(sent);
    // Nothing of the first is lost: whoever looks has told who is important.
    let first: Vec<Vec<u8>> = all.iter().flat_map(|it| it.each(DATA, 0)).collect();
    sent += first.len() as u64;
    Trace::of(first).replay(&lab, "fg0");
    program.wait_for_packets(sent);
    program.signal(Signal::SIGSTOP);
    // Half of what is important comes with the first others, half when these are lost. (The first of each came before.)
    let is_new = |packet: &Vec<u8>| packet[38..42] != 1_u32.to_be_bytes();
    let mut data: Vec<Vec<u8>> = low.data().into_iter().filter(is_new).collect();
    let mut important: Vec<Vec<u8>> = high.data().into_iter().filter(is_new).collect();
    let late = important.split_off(important.len() / 2);
    for (number, packet) in important.into_iter().enumerate() {
        data.insert(10 * number, packet);
    }
    data.extend(late);
    let ends: Vec<Vec<u8>> = all.iter().flat_map(|it| it.each(FIN, 0)).collect();
    sent += (data.len() + ends.len()) as u64;
    Trace::of(data).replay(&lab, "fg0");
    Trace::of(ends).replay(&lab, "fg0");
    program.signal(Signal::SIGCONT);
    program.wait_for_packets(sent);
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let total = ledger(&outcome.stderr);
    assert_eq!(total.received, sent, "{}", outcome.stderr);
    assert!(
        !outcome.stderr.contains("kernel_ring"),
        "{}",
        outcome.stderr
    );
    let dropped = format!("priority {}", total.dropped);
    assert!(outcome.stderr.contains(&dropped), "{}", outcome.stderr);
    let records = outcome.json_lines();
    let mut lost = 0;
    for streams in all {
        let of_port = records.iter().filter(|it| it["dst_port"] == streams.to);
        let mut count = 0;
        for record in of_port {
            let field = |name: &str| record[name].as_u64().unwrap();
            let packets = ["captured", "dropped", "discarded"];
            let [captured, dropped, discarded] =
                packets.map(|name| field(&format!("{name}_packets")));
            // Its begin and its end are there, and every packet has its place.
            assert_eq!(captured + dropped, u64::from(EACH) + 2, "{record}");
            assert_eq!(discarded, 0, "{record}");
            let bytes = field("dropped_bytes");
            assert_eq!(bytes, dropped * u64::from(PAYLOAD), "{record}");
            if streams.to == 443 {
                assert_eq!(dropped, 0, "{record}");
            }
            lost += dropped;
            count += 1;
        }
        assert_eq!(count, streams.count, "{}", outcome.stderr);
    }
    assert!(lost > 3000, "{lost}");
    assert_eq!(lost, total.dropped);
}

/// What libscap is made of, with a handler that stands still: chunks that wait for it fill the memory.
#[test]
fn a_handler_that_stands_still_loses_by_priority() {
    let Some(lab) = Lab::new(9000) else { return };
    let high = Streams {
        to: 443,
        from: 1000,
        count: 1,
    };
    let low = Streams {
        to: 80,
        from: 2000,
        count: 30,
    };
    let mut wanted = ApplicationConfig::default();
    let is_important = StreamFilter::new(|packet| {
        let key = &packet.decoded.key;
        key.low_port == 443 || key.high_port == 443
    });
    wanted.priority.classes.push((is_important, 5));
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = Arc::clone(&gate);
    let ended: Arc<Mutex<Vec<(u16, StreamStatistics)>>> = Arc::default();
    let ends = Arc::clone(&ended);
    let handlers = Closures::new()
        .on_data(move |_, _| {
            let (is_open, opened) = &*waits;
            let is_open = is_open.lock().unwrap();
            drop(opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        })
        .on_terminated(move |stream| {
            let port = stream.identity().destination.1;
            ends.lock().unwrap().push((port, stream.statistics()));
        });
    let config = LiveConfig {
        own_traffic: true,
        ..LiveConfig::new("fg1")
    };
    let capture = Capture::live(config)
        .memory(8 << 20)
        .keep_away(true)
        .application(wanted, move |_| handlers.clone());
    let running = lab.run(|| capture.start()).unwrap();
    let mut sent = 0;
    let mut send = |frames: Vec<Vec<u8>>| {
        sent += frames.len() as u64;
        Trace::of(frames).replay(&lab, "fg0");
        wait_until("all is taken, or lost", || {
            running.progress().ledger.received() >= sent
        });
        running.progress().statistics.withheld.packets
    };
    let all = [&high, &low];
    send(all.iter().flat_map(|it| it.each(SYN, 0)).collect());
    // Two and a half times of the memory, and some that is important; then what more there is of the others is lost where it comes.
    let mut data = low.data();
    let more = data.split_off(2500);
    send(data);
    send(high.data());
    // What is full for a moment only is not.
    std::thread::sleep(Duration::from_secs(1));
    let before = send(Vec::new());
    let late = more.len() as u64;
    let withheld = send(more) - before;
    assert_eq!(withheld, late, "the kernel knows how full the memory is");
    send(all.iter().flat_map(|it| it.each(FIN, 0)).collect());
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    running.stop();
    let outcome = running.join().unwrap();
    assert!(outcome.errors.is_empty() && outcome.failures.is_empty());
    let ledger = &outcome.ledger;
    assert!(ledger.is_balanced(), "{ledger:?}");
    assert_eq!((ledger.received(), ledger.at(Place::KernelRing)), (sent, 0));
    let ended = ended.lock().unwrap();
    let mut lost = 0;
    for (port, count) in all.map(|it| (it.to, it.count)) {
        let of_port = ended.iter().filter(|(to, _)| *to == port);
        let streams: Vec<&StreamStatistics> = of_port.map(|(_, statistics)| statistics).collect();
        assert_eq!(streams.len(), usize::from(count));
        for statistics in streams {
            assert_eq!(statistics.all.packets, u64::from(EACH) + 2);
            assert_eq!(statistics.discarded.packets, 0);
            assert!(port != 443 || statistics.dropped.packets == 0);
            lost += statistics.dropped.packets;
        }
    }
    assert_eq!(lost, ledger.dropped());
    assert!(lost > 1500, "{lost}");
}
