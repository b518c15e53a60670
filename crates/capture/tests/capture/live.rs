//! Live capture on virtual interfaces in network namespaces of our own. Needs root; otherwise
//! each test says that it is skipped.

use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::support::lab::Lab;
use crate::support::{self, Frame, collect, collect_all, udp_frames, whole_frame};
use flowgauge_capture::live::{LiveConfig, LiveSource, MergedSource};
use flowgauge_capture::{Error, PacketSource};
use flowgauge_sys::own::{self, Own};
use flowgauge_wire::{LinkType, Nanos, PacketFlags, Place};

/// How many packets came before the error.
fn until_error(source: &mut impl PacketSource) -> (usize, Error) {
    let mut got = 0;
    loop {
        match source.next_batch() {
            Ok(Some(batch)) => got += batch.len(),
            Ok(None) => panic!("ended without an error"),
            Err(error) => return (got, error),
        }
    }
}

#[test]
fn what_arrives_is_what_was_sent() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut frames: Vec<Frame> = udp_frames(20_000, 1400);
    for (index, frame) in frames.iter_mut().enumerate() {
        match index % 10 {
            3 => frame.tag(0x8100, 100 + (index % 7) as u16),
            5 => frame.tag(0x88a8, 0x6000 + 9),
            7 => {
                frame.tag(0x8100, 12);
                frame.tag(0x88a8, 13);
            }
            _ => {}
        }
    }
    let mut source = lab.run(|| LiveSource::open(&LiveConfig::new("fg1")).unwrap());
    // In portions that are read between, so that nothing is dropped for want of room.
    let sender = lab.sender("fg0");
    for portion in frames.chunks(4_000) {
        support::send(&sender, portion);
        let got = collect(&mut source, portion.len());
        assert_eq!(got.len(), portion.len());
        for (got, sent) in got.iter().zip(portion) {
            assert_eq!(whole_frame(got), sent.bytes);
            assert_eq!(got.descriptor.wire_len as usize, sent.bytes.len());
            assert_eq!(got.descriptor.link, LinkType::ETHERNET);
            assert!(!got.descriptor.flags.contains(PacketFlags::OUTGOING));
            assert_eq!(
                got.descriptor.flags.contains(PacketFlags::VLAN),
                sent.tags > 0
            );
        }
        assert!(got.is_sorted_by_key(|packet| packet.descriptor.time));
    }
    let ledger = source.ledger();
    assert!(ledger.is_balanced());
    assert_eq!(ledger.received(), 20_000);
    assert_eq!(ledger.delivered(), 20_000);
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    assert_eq!(ledger.delivered_bytes(), bytes as u64);

    // Nothing left: a tick with the time, and the end when stopped.
    let tick = source.next_batch().unwrap().unwrap();
    assert!(tick.is_empty());
    assert!(tick.now.unwrap() > support::a_time_in_the_past());
    source.stop_handle().stop();
    assert!(source.next_batch().unwrap().is_none());
    assert!(source.next_batch().unwrap().is_none());
}

#[test]
fn stopping_delivers_what_is_in_the_ring() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut source = lab.run(|| LiveSource::open(&LiveConfig::new("fg1")).unwrap());
    support::send(&lab.sender("fg0"), &udp_frames(3_001, 200));
    source.stop_handle().stop();
    let mut got = 0;
    while let Some(batch) = source.next_batch().unwrap() {
        got += batch.len();
    }
    assert_eq!(got, 3_001);
    let ledger = source.ledger();
    assert!(ledger.is_balanced());
    assert_eq!((ledger.received(), ledger.delivered()), (3_001, 3_001));
}

#[test]
fn both_ends_see_outgoing_and_incoming() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut source = lab.run(|| LiveSource::open(&LiveConfig::new("fg0")).unwrap());
    support::send(&lab.sender("fg0"), &udp_frames(10, 100));
    support::send(&lab.sender("fg1"), &udp_frames(20, 100));
    let got = collect(&mut source, 30);
    let outgoing = got
        .iter()
        .filter(|packet| packet.descriptor.flags.contains(PacketFlags::OUTGOING));
    assert_eq!((got.len(), outgoing.count()), (30, 10));
}

#[test]
fn a_stalled_reader_loses_packets_and_says_how_many() {
    let Some(lab) = Lab::new(1500) else { return };
    let config = LiveConfig {
        buffer_bytes: 1 << 18,
        ..LiveConfig::new("fg1")
    };
    let mut source = lab.run(|| LiveSource::open(&config).unwrap());
    support::send(&lab.sender("fg0"), &udp_frames(5_000, 1_000));
    let got = collect_all(&mut source);
    let ledger = source.ledger();
    assert!(ledger.is_balanced());
    assert_eq!(ledger.received(), 5_000);
    assert_eq!(ledger.delivered(), got.len() as u64);
    assert_eq!(ledger.at(Place::KernelRing), 5_000 - got.len() as u64);
    assert!(ledger.at(Place::KernelRing) > 4_000, "{ledger:?}");
    assert_eq!(ledger.dropped(), ledger.at(Place::KernelRing));
}

#[test]
fn filters_select_the_same_live_as_from_a_file() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut frames = udp_frames(400, 200);
    for (index, frame) in frames.iter_mut().enumerate() {
        if index % 4 == 0 {
            frame.tag(0x8100, 5 + (index % 8) as u16);
        }
    }
    for expression in [
        "udp port 2003",
        "vlan",
        "vlan 5",
        "vlan and udp port 2004",
        "not vlan",
        "ip",
        "vlan 9 and ip[8] = 64",
        "ip6 protochain 17 or udp port 2001",
        "greater 246",
        "ether[12:2] = 0x8100",
    ] {
        let filter =
            flowgauge_capture::Filter::compile(expression, LinkType::ETHERNET, 65_535).unwrap();
        let wanted: Vec<_> = frames
            .iter()
            .filter(|frame| filter.matches(&frame.bytes, frame.bytes.len() as u32))
            .map(|frame| frame.bytes.clone())
            .collect();
        let config = LiveConfig {
            filter: expression.to_owned(),
            ..LiveConfig::new("fg1")
        };
        let mut source = lab.run(|| LiveSource::open(&config).unwrap());
        support::send(&lab.sender("fg0"), &frames);
        let got: Vec<_> = collect_all(&mut source).iter().map(whole_frame).collect();
        assert_eq!(got.len(), wanted.len(), "{expression}");
        assert_eq!(got, wanted, "{expression}");
        let ledger = source.ledger();
        assert!(ledger.is_balanced(), "{expression}: {ledger:?}");
        assert_eq!(ledger.delivered(), wanted.len() as u64);
        assert_eq!(ledger.dropped(), 0);
    }
}

#[test]
fn a_bad_filter_is_refused_before_capturing() {
    let config = LiveConfig {
        filter: "udp prot 5".to_owned(),
        ..LiveConfig::new("lo")
    };
    let error = LiveSource::open(&config).unwrap_err();
    assert!(matches!(error, Error::Filter { .. }), "{error}");
}

#[test]
fn snap_length_cuts_the_copy_not_the_length() {
    let Some(lab) = Lab::new(1500) else { return };
    let config = LiveConfig {
        snap_len: 60,
        ..LiveConfig::new("fg1")
    };
    let mut source = lab.run(|| LiveSource::open(&config).unwrap());
    let frames = udp_frames(50, 900);
    support::send(&lab.sender("fg0"), &frames);
    for (got, sent) in collect(&mut source, 50).iter().zip(&frames) {
        assert_eq!(got.bytes, sent.bytes[..60.min(sent.bytes.len())]);
        assert_eq!(got.descriptor.wire_len as usize, sent.bytes.len());
    }
    assert_eq!(source.interfaces()[0].snap_len, 60);
    assert_eq!(source.interfaces()[0].name.as_deref(), Some("fg1"));
}

/// What this process sends and gets by connections that are its own, also by one that it made later, is not captured, unless
/// that is asked for; the ledger says how many packets that were. Others' packets come.
#[test]
fn own_connections_are_left_out_and_counted() {
    for own_traffic in [false, true] {
        let Some(lab) = Lab::new(1500) else { return };
        let config = LiveConfig {
            own_traffic,
            ..LiveConfig::new("lo")
        };
        let mut source = lab.run(|| LiveSource::open(&config).unwrap());
        let stop = source.stop_handle();
        let other = lab.run(|| {
            let address = "127.0.0.1:0";
            let listener = TcpListener::bind(address).unwrap();
            let at = listener.local_addr().unwrap();
            for _ in 0..2 {
                let (mut stream, _own) = own::connect(&at, Duration::from_secs(10)).unwrap();
                stream.write_all(&[7; 10_000]).unwrap();
                drop(stream);
                let mut all = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            }
            let listens = TcpListener::bind(address).unwrap();
            let _own = Own::listener(listens.local_addr().unwrap());
            let stream = TcpStream::connect(listens.local_addr().unwrap()).unwrap();
            drop((stream, listens.accept().unwrap()));
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(b"others'").unwrap();
            let port = stream.local_addr().unwrap().port();
            drop((stream, listener.accept().unwrap()));
            port
        });
        stop.stop();
        let (mut of_other, mut others) = (0, 0);
        while let Some(batch) = source.next_batch().unwrap() {
            for (place, _) in batch.packets.iter().enumerate() {
                let tcp = &batch.bytes(place)[34..38];
                match tcp.chunks(2).any(|port| port == other.to_be_bytes()) {
                    true => of_other += 1,
                    false => others += 1,
                }
            }
        }
        let ledger = source.ledger();
        assert!(ledger.is_balanced(), "{ledger:?}");
        assert!(of_other >= 6, "{of_other}");
        let own = ledger.at(Place::Own);
        // Handshakes and ends of three connections at least.
        assert!(own + others >= 3 * 6, "{ledger:?}");
        assert_eq!(
            (own > 0, others > 0),
            (!own_traffic, own_traffic),
            "{ledger:?}"
        );
    }
}

/// Reads `count` packets with a reader that asks for the time again and again, and `send` before each time. No packet is
/// of a time before one that an idle tick told.
fn ticks_hold(source: &mut impl PacketSource, count: usize, mut send: impl FnMut()) {
    let (mut told, mut last, mut got) = (Nanos::ZERO, Nanos::ZERO, 0);
    // Until a tick has gone past the last packet: ticks go on.
    while got < count || told <= last {
        if got < count {
            send();
        }
        let batch = source.next_batch().unwrap().unwrap();
        for packet in batch.packets {
            assert!(packet.time >= told, "{:?} behind {told:?}", packet.time);
            last = last.max(packet.time);
        }
        got += batch.len();
        told = told.max(batch.now.unwrap_or(told));
    }
}

#[test]
fn an_idle_tick_tells_no_time_that_something_can_still_come_before() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames = udp_frames(1, 100);
    let sender = lab.sender("fg0");
    // Ticks are more frequent than blocks are retired.
    let config = |name| LiveConfig {
        tick_ms: 1,
        ..LiveConfig::new(name)
    };
    let mut one = lab.run(|| LiveSource::open(&config("fg1")).unwrap());
    ticks_hold(&mut one, 50, || support::send(&sender, &frames));
    let configs = ["fg1", "lo"].map(config);
    let mut merged = lab.run(|| MergedSource::open_group(&configs, 1).unwrap());
    ticks_hold(&mut merged[0], 50, || support::send(&sender, &frames));
}

/// What is left out of many packets that wait is followed by others that were captured before now.
#[test]
fn a_batch_of_which_all_is_left_out_tells_no_later_time() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut frames = udp_frames(1_000, 1_400);
    let (left_out, wanted) = frames.split_at_mut(900);
    left_out.iter_mut().for_each(|frame| frame.tag(0x8100, 7));
    wanted.iter_mut().for_each(|frame| frame.tag(0x8100, 6));
    // Tags that the kernel has taken out are looked at here.
    let config = LiveConfig {
        filter: "vlan 6".to_owned(),
        ..LiveConfig::new("fg1")
    };
    let mut source = lab.run(|| LiveSource::open(&config).unwrap());
    support::send(&lab.sender("fg0"), &frames);
    ticks_hold(&mut source, 100, || {});
    assert_eq!(source.ledger().at(Place::Filter), 900);
}

#[test]
fn jumbo_frames() {
    let Some(lab) = Lab::new(9000) else { return };
    let mut source = lab.run(|| LiveSource::open(&LiveConfig::new("fg1")).unwrap());
    let frames = udp_frames(200, 8_950);
    support::send(&lab.sender("fg0"), &frames);
    let got = collect(&mut source, 200);
    assert_eq!(got.len(), 200);
    for (got, sent) in got.iter().zip(&frames) {
        assert_eq!(got.bytes, sent.bytes);
    }
}

#[test]
fn fanout_keeps_flows_and_fragments_together() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut sources = lab.run(|| LiveSource::open_group(&LiveConfig::new("fg1"), 4).unwrap());
    let mut frames = Vec::new();
    for flow in 0..500_u16 {
        let there = support::ip_frame(flow, false, flow % 3 == 0, flow % 5 == 0);
        let back = support::ip_frame(flow, true, flow % 3 == 0, flow % 5 == 0);
        frames.extend([there, back]);
    }
    let fragments = support::fragments(100);
    let count = frames.len() + fragments.len();
    let sender = lab.sender("fg0");
    support::send(&sender, &frames);
    support::send(&sender, &fragments);

    let mut member_of: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut seen = 0;
    let mut used = HashSet::new();
    for (member, source) in sources.iter_mut().enumerate() {
        for packet in collect_all(source) {
            seen += 1;
            used.insert(member);
            let flow = support::flow_id(&whole_frame(&packet));
            let first = *member_of.entry(flow.clone()).or_insert(member);
            assert_eq!(first, member, "flow {flow:?} is on two sockets");
        }
        assert!(source.ledger().is_balanced());
    }
    assert_eq!(seen, count);
    assert_eq!(member_of.len(), 600);
    assert_eq!(used.len(), 4);
    let largest = (0..4)
        .map(|member| member_of.values().filter(|&&of| of == member).count())
        .max();
    assert!(largest.unwrap() < 250, "a fair share is 150: {largest:?}");
}

#[test]
fn several_interfaces_are_merged_by_time() {
    let Some(lab) = Lab::new(1500) else { return };
    // One is idle: the others do not wait for it for ever.
    let configs = ["fg0", "fg1", "lo"].map(LiveConfig::new);
    let mut sources = lab.run(|| MergedSource::open_group(&configs, 1).unwrap());
    let source = &mut sources[0];
    let frames = udp_frames(3_000, 600);
    let (there, back) = (lab.sender("fg0"), lab.sender("fg1"));
    let mut got = Vec::new();
    for portion in frames.chunks(1_000) {
        // Each is seen on both: as sent, and as received. Long runs, and short ones.
        support::send(&there, &portion[..500]);
        for frames in portion[500..].chunks(2) {
            support::send(&there, &frames[..1]);
            support::send(&back, &frames[1..]);
        }
        got.extend(collect(source, 2 * portion.len()));
    }
    assert_eq!(got.len(), 6_000);
    assert!(got.is_sorted_by_key(|packet| packet.descriptor.time));
    let names: Vec<_> = source
        .interfaces()
        .iter()
        .map(|one| one.name.clone())
        .collect();
    let expected = ["fg0", "fg1", "lo"].map(|name| Some(name.to_owned()));
    assert_eq!(names, expected);
    let mut seen: HashMap<(u16, bool), Vec<Vec<u8>>> = HashMap::new();
    for packet in &got {
        let outgoing = packet.descriptor.flags.contains(PacketFlags::OUTGOING);
        let of = seen
            .entry((packet.descriptor.interface, outgoing))
            .or_default();
        of.push(whole_frame(packet));
    }
    let sent = |is_back: bool| -> Vec<Vec<u8>> {
        let places = frames.iter().enumerate();
        let is_back_at = |place: usize| place % 1_000 >= 500 && place % 2 == 1;
        let wanted = places.filter(|(place, _)| is_back_at(*place) == is_back);
        wanted.map(|(_, frame)| frame.bytes.clone()).collect()
    };
    for (number, outgoing, is_back) in [
        (0, true, false),
        (1, false, false),
        (1, true, true),
        (0, false, true),
    ] {
        assert!(
            seen[&(number, outgoing)] == sent(is_back),
            "interface {number}"
        );
    }
    let ledger = source.ledger();
    assert!(ledger.is_balanced());
    assert_eq!((ledger.received(), ledger.delivered()), (6_000, 6_000));

    // Nothing left: a tick, and the end when stopped, with what came before.
    assert!(source.next_batch().unwrap().unwrap().now.is_some());
    support::send(&there, &frames[..10]);
    source.stop_handle().stop();
    let mut last = 0;
    while let Some(batch) = source.next_batch().unwrap() {
        last += batch.len();
    }
    assert_eq!(last, 20);
    assert_eq!(source.ledger().delivered(), 6_020);
}

#[test]
fn a_flow_is_on_one_source_whichever_interface_it_is_seen_on() {
    let Some(lab) = Lab::new(1500) else { return };
    let configs = ["fg0", "fg1"].map(LiveConfig::new);
    let mut sources = lab.run(|| MergedSource::open_group(&configs, 3).unwrap());
    let flows = 0..300_u16;
    let there: Vec<_> = flows
        .clone()
        .map(|flow| support::ip_frame(flow, false, flow % 3 == 0, false))
        .collect();
    let back: Vec<_> = flows
        .map(|flow| support::ip_frame(flow, true, flow % 3 == 0, false))
        .collect();
    support::send(&lab.sender("fg0"), &there);
    support::send(&lab.sender("fg1"), &back);
    let mut member_of: HashMap<Vec<u8>, (usize, usize)> = HashMap::new();
    for (member, source) in sources.iter_mut().enumerate() {
        for packet in collect_all(source) {
            let flow = support::flow_id(&whole_frame(&packet));
            let (first, packets) = member_of.entry(flow).or_insert((member, 0));
            assert_eq!(*first, member);
            *packets += 1;
        }
    }
    assert_eq!(member_of.len(), 300);
    assert!(member_of.values().all(|(_, packets)| *packets == 4));
    let used: HashSet<_> = member_of.values().map(|(member, _)| member).collect();
    assert_eq!(used.len(), 3);
}

#[test]
fn an_interface_that_goes_away_ends_all_with_what_they_have() {
    let Some(lab) = Lab::new(1500) else { return };
    let configs = ["lo", "fg1"].map(LiveConfig::new);
    let mut sources = lab.run(|| MergedSource::open_group(&configs, 1).unwrap());
    let frames = udp_frames(50, 100);
    support::send(&lab.sender("fg0"), &frames);
    lab.ip("link del fg0");
    let (got, error) = until_error(&mut sources[0]);
    assert_eq!(got, 50);
    assert!(error.to_string().contains("fg1"), "{error}");
    assert!(sources[0].next_batch().unwrap().is_none());
}

#[test]
fn loopback_is_seen_once() {
    let Some(lab) = Lab::new(1500) else { return };
    for (name, members) in [("lo", 1), ("any", 1), ("lo", 3), ("any", 2)] {
        let mut sources =
            lab.run(|| LiveSource::open_group(&LiveConfig::new(name), members).unwrap());
        lab.run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let target = UdpSocket::bind("127.0.0.1:0").unwrap();
            for number in 0..50_u8 {
                let sent = socket.send_to(&[number; 100], target.local_addr().unwrap());
                assert_eq!(sent.unwrap(), 100);
            }
        });
        let mut got = Vec::new();
        for source in &mut sources {
            got.extend(collect_all(source));
            assert!(source.ledger().is_balanced());
            for interface in source.interfaces() {
                assert_eq!(interface.name.as_deref(), Some("lo"));
            }
        }
        assert_eq!(got.len(), 50, "{name}, {members} sockets");
        assert!(
            got.iter()
                .all(|packet| packet.descriptor.link == LinkType::ETHERNET)
        );
    }
}

/// It has no link-layer address, and frames without a link header.
#[test]
fn a_tun_interface_is_captured_on() {
    let Some(lab) = Lab::new(1500) else { return };
    lab.ip("tuntap add tun0 mode tun");
    lab.ip("link set tun0 up");
    let source = lab
        .run(|| LiveSource::open(&LiveConfig::new("tun0")))
        .unwrap();
    assert_eq!(source.interfaces()[0].link, LinkType::RAW);
}

#[test]
fn any_tells_interfaces_apart() {
    let Some(lab) = Lab::new(1500) else { return };
    let config = LiveConfig {
        filter: "udp port 2003 or vlan 6".to_owned(),
        ..LiveConfig::new("any")
    };
    let mut source = lab.run(|| LiveSource::open(&config).unwrap());
    let mut frames = udp_frames(20, 100);
    frames[0].tag(0x8100, 6);
    frames[1].tag(0x8100, 7);
    support::send(&lab.sender("fg0"), &frames);
    support::send(&lab.sender("fg1"), &frames[..10]);
    let mut seen = HashMap::new();
    for packet in collect_all(&mut source) {
        let number = usize::from(packet.descriptor.interface);
        let name = source.interfaces()[number].name.clone().unwrap();
        let outgoing = packet.descriptor.flags.contains(PacketFlags::OUTGOING);
        *seen.entry((name, outgoing)).or_insert(0) += 1;
    }
    // Port 2003 comes twice in twenty and once in ten frames, VLAN 6 once in each.
    let expected = [
        (("fg0".to_owned(), true), 3),
        (("fg1".to_owned(), false), 3),
        (("fg1".to_owned(), true), 2),
        (("fg0".to_owned(), false), 2),
    ];
    assert_eq!(seen, HashMap::from(expected));
    assert!(source.ledger().is_balanced());
}

#[test]
fn an_interface_that_goes_away_ends_the_capture_with_an_error() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut source = lab.run(|| LiveSource::open(&LiveConfig::new("fg1")).unwrap());
    support::send(&lab.sender("fg0"), &udp_frames(7, 100));
    lab.ip("link del fg0");
    let (got, error) = until_error(&mut source);
    assert_eq!(got, 7);
    assert!(error.to_string().contains("fg1"), "{error}");
    assert!(source.next_batch().unwrap().is_none());
    assert!(source.ledger().is_balanced());
}

#[test]
fn an_interface_that_is_down_is_refused() {
    let Some(lab) = Lab::new(1500) else { return };
    lab.ip("link set fg1 down");
    let error = lab.run(|| LiveSource::open(&LiveConfig::new("fg1")).unwrap_err());
    let hint = lab.run(|| error.hint().unwrap());
    assert!(hint.contains("ip link set fg1 up"), "{hint}");
}
