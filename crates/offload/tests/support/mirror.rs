//! Mirror ports: packets by sockets of AF_XDP.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowgauge_capture::PacketSource as _;
use flowgauge_capture::live::{LiveConfig, LiveSource};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_offload::{Attacher, Offloaded, SocketFilter};
use flowgauge_wire::{Address, Ledger, Place};

use crate::lab::Lab;
use crate::spread::flow_of;
use crate::{MTU, PORTION, frames, segment, take};

/// Captures a mirror port for as many workers.
pub(crate) fn open(lab: &Lab, config: &LiveConfig, filters: &[&SocketFilter]) -> Vec<Offloaded> {
    let attachers: Vec<Attacher> = filters.iter().map(|it| it.attacher().unwrap()).collect();
    lab.run(|| {
        let sources = LiveSource::open_mirror(config, filters.len()).unwrap();
        Attacher::attach_to_mirror(&attachers.iter().collect::<Vec<_>>(), sources).unwrap()
    })
}

/// A cable with so many queues.
fn cable(mtu: u32, queues: u32) -> Option<Lab> {
    let lab = Lab::new(mtu)?;
    lab.ip("link del fg0");
    let of = format!("numtxqueues {queues} numrxqueues {queues}");
    lab.ip(&format!("link add fg0 {of} type veth peer name fg1 {of}"));
    for end in ["fg0", "fg1"] {
        lab.ip(&format!("link set {end} mtu {mtu} up"));
    }
    Some(lab)
}

/// The pair of addresses that says which worker a frame is for; of a tunnel's datagram in fragments no frame alone says that.
fn pair_of(frame: &[u8]) -> Option<[Address; 2]> {
    match flow_of(frame)? {
        (pair, None) => Some(pair),
        _ => None,
    }
}

#[test]
fn packets_of_a_mirror_port_are_those_of_a_packet_socket() {
    for (mtu, queues, workers) in [(1500, 1, 1), (3800, 2, 1), (MTU, 1, 3), (MTU, 2, 2)] {
        let Some(lab) = cable(mtu, queues) else {
            return;
        };
        let sender = lab.sender("fg0");
        let mut sent: Vec<Vec<u8>> = Vec::new();
        for preset in [Preset::Mix, Preset::Zoo] {
            let mut capture = Vec::new();
            generate(&Config::new(preset).with_packets(2000), &mut capture).unwrap();
            sent.extend(frames(capture));
        }
        sent.retain(|frame| frame.len() <= mtu as usize);
        sent.push([&[2; 12][..], &[0x88, 0xb5], &vec![7; mtu as usize]].concat());
        let config = LiveConfig {
            own_traffic: true,
            tick_ms: 5,
            retire_ms: 4,
            ..LiveConfig::new("fg1")
        };
        let nobody = SocketFilter::load(64).unwrap();
        let source = lab.run(|| LiveSource::open(&config)).unwrap();
        let attached = nobody.attacher().unwrap().attach(source);
        let mut source = attached.unwrap_or_else(|refused| panic!("{}", refused.1));
        let mut expected = Vec::new();
        let send = |sources: &mut [Offloaded], passed: &mut [Vec<(Vec<u8>, u32)>]| {
            for portion in sent.chunks(PORTION) {
                let all: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
                sender.send_all(&all).unwrap();
                for (source, passed) in sources.iter_mut().zip(&mut *passed) {
                    take(source, passed, 4);
                }
            }
        };
        send(
            core::slice::from_mut(&mut source),
            core::slice::from_mut(&mut expected),
        );
        drop(source);
        let filters: Vec<SocketFilter> = (0..workers)
            .map(|_| SocketFilter::load_for_mirror(64).unwrap())
            .collect();
        let mut sources = open(&lab, &config, &filters.iter().collect::<Vec<_>>());
        let mut passed = vec![Vec::new(); workers];
        send(&mut sources, &mut passed);
        let name = format!("MTU {mtu}, {queues} queues, {workers} workers");
        let mut owners = HashMap::new();
        for (worker, packets) in passed.iter().enumerate() {
            assert!(packets.len() > sent.len() / 10, "{name}");
            for pair in packets.iter().filter_map(|(frame, _)| pair_of(frame)) {
                assert_eq!(*owners.entry(pair).or_insert(worker), worker, "{name}");
            }
        }
        // Of a pair of addresses they come in order, whichever queue they take.
        let by_pair = |packets: Vec<(Vec<u8>, u32)>| {
            let mut all: BTreeMap<_, Vec<(Vec<u8>, u32)>> = BTreeMap::new();
            for packet in packets {
                let pair = pair_of(&packet.0);
                // (Each queue takes some of those that are not IP, or fragments.)
                all.entry(pair).or_default().push(packet);
            }
            for (pair, packets) in &mut all {
                if queues > 1 || pair.is_none() {
                    packets.sort();
                }
            }
            all
        };
        assert_eq!(expected.len(), sent.len(), "{name}");
        assert!(by_pair(passed.concat()) == by_pair(expected), "{name}");
        let mut ledger = Ledger::default();
        for source in &mut sources {
            ledger.merge(&source.ledger());
        }
        let bytes: usize = sent.iter().map(Vec::len).sum();
        assert_eq!(ledger.delivered(), sent.len() as u64, "{name}");
        assert_eq!(ledger.received(), ledger.delivered(), "{name}");
        assert_eq!(ledger.delivered_bytes(), bytes as u64, "{name}");
    }
}

/// Packets of all queues come in the order of their times, which are those of the clock.
#[test]
fn packets_of_a_mirror_port_have_the_time_at_which_they_came() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let Some(lab) = cable(1500, 2) else {
        return;
    };
    let sender = lab.sender("fg0");
    let filter = SocketFilter::load_for_mirror(64).unwrap();
    let mut source = open(&lab, &LiveConfig::new("fg1"), &[&filter]).remove(0);
    let frames: Vec<Vec<u8>> = (0..200).map(|port| of_port(1024 + port)).collect();
    let (mut times, mut limits) = (Vec::new(), vec![now()]);
    for frame in &frames {
        sender.send_all(&[frame]).unwrap();
        limits.push(now());
    }
    while times.len() < frames.len() {
        let batch = source.next_batch().unwrap().unwrap();
        times.extend(batch.packets.iter().map(|packet| packet.time));
    }
    assert!(times.is_sorted());
    // The two clocks are not read at once.
    let slack = Duration::from_millis(2);
    for (number, time) in times.iter().enumerate() {
        let time = Duration::from_nanos(time.0);
        assert!(time + slack > limits[number], "{number}");
        assert!(
            time < limits[frames.len()] + Duration::from_secs(1),
            "{number}"
        );
    }
}

/// What comes while all frames are taken is lost, and counted; what comes then is not.
#[test]
fn a_mirror_port_counts_what_finds_no_frame() {
    let Some(lab) = Lab::new(1500) else {
        return;
    };
    let sender = lab.sender("fg0");
    let config = LiveConfig {
        buffer_bytes: 1,
        tick_ms: 5,
        ..LiveConfig::new("fg1")
    };
    let filters = [(); 2].map(|()| SocketFilter::load_for_mirror(64).unwrap());
    let mut sources = open(&lab, &config, &[&filters[0], &filters[1]]);
    let frames: Vec<Vec<u8>> = (0..=255).map(of_host).collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut sent = 0;
    for round in 1..=3 {
        sender.send_all(&frames).unwrap();
        sent += frames.len() as u64;
        let (mut came, mut lost) = (0, 0);
        for source in &mut sources {
            take(source, &mut Vec::new(), 4);
            let ledger = source.ledger();
            assert!(ledger.is_balanced());
            // 64 frames each.
            assert_eq!(ledger.delivered(), 64 * round);
            assert_eq!(ledger.at(Place::KernelRing), ledger.dropped());
            came += ledger.delivered();
            lost += ledger.dropped();
        }
        assert_eq!(came + lost, sent);
        assert!(lost > 0);
    }
}

/// A datagram of one connection, as a frame.
fn of_port(port: u16) -> Vec<u8> {
    let mut frame = segment(16, b"x");
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

/// One of another host.
fn of_host(host: u8) -> Vec<u8> {
    let mut frame = segment(16, b"x");
    frame[29] = host;
    frame
}
