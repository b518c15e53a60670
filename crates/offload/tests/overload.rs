//! What is lost to overload is lost by priority, and counted, with nobody who takes packets meanwhile.

#![allow(clippy::unwrap_used)]

#[path = "../../capture/tests/support/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::time::Duration;

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::{LiveConfig, LiveSource};
use flowgauge_offload::{Offloaded, SocketFilter};
use flowgauge_stream::engine::Watermarks;
use flowgauge_stream::offload::{Offload, OffloadFlow, Overload, Standing, Verdict, Vlan, Wanted};
use flowgauge_wire::{
    Batch, DecodedBatch, Decoder, FlowKey, LinkType, PacketDescriptor, PacketFlags,
};
use lab::Lab;

/// Bytes of the ring, and of packets with payload.
const RING: u64 = 16 << 20;
const PAYLOAD: usize = 8000;

/// A segment of the connection from this port, in a VLAN if there is one.
fn segment(from: u16, flags: u8, payload: usize, vlan: Option<u16>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    frame.extend(from.to_be_bytes());
    frame.extend([0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    frame.resize(frame.len() + payload, 0);
    frame
}

const ACK: u8 = 0x10;
const SYN: u8 = 2;
const FIN: u8 = 0x11;

/// The key of a frame.
fn key(frame: &[u8]) -> FlowKey {
    let packet = PacketDescriptor {
        captured_len: frame.len() as u32,
        wire_len: frame.len() as u32,
        link: LinkType::ETHERNET,
        ..PacketDescriptor::default()
    };
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::default());
    decoder.decode_batch(&Batch::new(frame, &[packet]), &mut decoded);
    decoded.packets[0].key
}

/// A capture that nobody takes packets of unless he says so.
struct Capture<'a> {
    lab: &'a Lab,
    source: Offloaded,
    filter: SocketFilter,
    /// Packets that came, by source port, VLAN and TCP flags.
    came: BTreeMap<(u16, u16, u8), u64>,
    sent: u64,
}

impl Capture<'_> {
    fn send(&mut self, frames: &[Vec<u8>]) {
        let sender = self.lab.sender("fg0");
        for portion in frames.chunks(256) {
            let before = self.seen();
            let all: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
            sender.send_all(&all).unwrap();
            for _ in 0..1000 {
                if self.seen() >= before + all.len() as u64 {
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.sent += frames.len() as u64;
    }

    /// Frames that have come to the interface.
    fn seen(&self) -> u64 {
        let path = "/sys/class/net/fg1/statistics/rx_packets";
        let output = self.lab.inside("cat").arg(path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().unwrap_or(u64::MAX)
    }

    /// Takes what is there.
    fn take(&mut self) {
        let mut fruitless = 0;
        while fruitless < 3 {
            let batch = self.source.next_batch().unwrap().unwrap();
            fruitless = if batch.packets.is_empty() {
                fruitless + 1
            } else {
                0
            };
            for packet in batch.packets {
                let bytes = &batch.memory[packet.offset as usize..];
                let port = u16::from_be_bytes([bytes[34], bytes[35]]);
                let vlan = match packet.flags.contains(PacketFlags::VLAN) {
                    true => packet.vlan_tci,
                    false => 0,
                };
                *self.came.entry((port, vlan, bytes[47])).or_default() += 1;
            }
        }
    }

    fn came(&self, port: u16, vlan: u16, flags: u8) -> u64 {
        self.came.get(&(port, vlan, flags)).copied().unwrap_or(0)
    }

    /// What was lost since the last call, by smaller port and VLAN.
    fn lost(&mut self) -> BTreeMap<(u16, u32), u64> {
        self.filter.poll(&mut |_, _| {});
        let mut lost = BTreeMap::new();
        for (loser, both) in self.filter.lost() {
            let loser = loser.expect("there are slots for all");
            let port = loser.key.low_port.max(loser.key.high_port);
            let packets = both[0].packets + both[1].packets;
            let payload = both[0].payload_bytes + both[1].payload_bytes;
            assert_eq!(payload, packets * PAYLOAD as u64);
            *lost.entry((port, loser.vlan)).or_default() += packets;
        }
        lost
    }
}

#[test]
fn data_are_lost_by_priority_while_nobody_takes_them() {
    let Some(lab) = Lab::new(9000) else {
        return;
    };
    let config = LiveConfig {
        own_traffic: true,
        buffer_bytes: RING,
        tick_ms: 5,
        ..LiveConfig::new("fg1")
    };
    let source = lab.run(|| LiveSource::open(&config)).unwrap();
    let filter = SocketFilter::load(64).unwrap();
    let attached = filter.attacher().unwrap().attach(source);
    let source = attached.unwrap_or_else(|refused| panic!("{}", refused.1));
    let mut capture = Capture {
        lab: &lab,
        source,
        filter,
        came: BTreeMap::new(),
        sent: 0,
    };
    // Half of it is anybody's, from three quarters on only what is important comes.
    let mut watermarks = Watermarks::new(1 << 20, 0.5, Some(1));
    watermarks.set_priorities(|priority| [0, 5].contains(&priority));
    let tell = |capture: &mut Capture<'_>, used: u64| {
        let overload = Overload {
            watermarks: &watermarks,
            used,
        };
        capture.filter.overload(Some(&overload));
    };
    tell(&mut capture, 0);
    let (usual, important, long) = (1000, 2000, 3000);
    let told = |uid: u64, port: u16, standing: Standing| {
        let flow = OffloadFlow {
            key: key(&segment(port, ACK, 0, None)),
            vlans: [Vlan::Only(0); 2],
            uid,
        };
        let wanted = Wanted {
            standing,
            ..Wanted::ALL
        };
        (flow, Verdict::Less([wanted; 2]))
    };
    let [of_others, of_importance] = [0, 5].map(|priority| Standing {
        priority,
        ..Standing::OTHERS
    });
    let beyond = Standing {
        is_beginning: false,
        ..of_others
    };
    for (uid, port, standing) in [
        (1, important, of_importance),
        (2, long, beyond),
        (3, usual, of_others),
    ] {
        let (flow, verdict) = told(uid, port, standing);
        capture.filter.verdict(&flow, verdict);
    }
    let statistics = capture.filter.statistics();
    for _ in 0..500 {
        capture.take();
        capture.filter.poll(&mut |_, _| {});
        if statistics.read().flows == 3 {
            break;
        }
    }
    assert_eq!(statistics.read().flows, 3);
    let data =
        |port: u16, vlan: Option<u16>, count: usize| vec![segment(port, ACK, PAYLOAD, vlan); count];
    // Nobody takes anything from here on: some 1,350 packets are three quarters, 900 the half.
    capture.send(&data(usual, None, 1100));
    assert_eq!(statistics.read().lost, 0);
    capture.send(&data(long, None, 50));
    capture.send(&data(important, None, 20));
    assert_eq!(statistics.read().lost, 50);
    capture.send(&data(usual, None, 2500));
    // Of the same ports, but in another VLAN, they are of flows of which nothing was said.
    capture.send(&data(usual, Some(7), 20));
    capture.send(&data(important, Some(7), 30));
    capture.send(&data(important, None, 180));
    let ends: Vec<Vec<u8>> = [usual, important, long]
        .into_iter()
        .flat_map(|port| [segment(port, ACK, 0, None), segment(port, FIN, 0, None)])
        .chain((0..50).map(|port| segment(5000 + port, SYN, 0, None)))
        .collect();
    capture.send(&ends);
    capture.take();
    let lost = capture.lost();
    assert_eq!(capture.came(important, 0, ACK), 200 + 1);
    assert_eq!(capture.came(long, 0, ACK), 1);
    for port in [usual, important, long] {
        assert_eq!(capture.came(port, 0, FIN), 1);
    }
    assert!((5000..5050).all(|port| capture.came(port, 0, SYN) == 1));
    let came = capture.came(usual, 0, ACK) - 1;
    assert!((1200..1500).contains(&came), "{came}");
    assert_eq!(
        lost,
        BTreeMap::from([((usual, 0), 3600 - came), ((long, 0), 50)])
    );
    assert_eq!(
        [usual, important].map(|port| capture.came(port, 7, ACK)),
        [20, 30]
    );
    // It is empty again, and memory is full, for longer than a moment: who is important may have all of it.
    tell(&mut capture, 900 << 10);
    capture.send(&data(usual, None, 10));
    assert_eq!(capture.lost(), BTreeMap::new());
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(110));
        tell(&mut capture, 900 << 10);
    }
    capture.send(&data(usual, None, 10));
    capture.send(&data(important, None, 10));
    tell(&mut capture, 0);
    capture.send(&data(usual, None, 10));
    capture.take();
    assert_eq!(capture.lost(), BTreeMap::from([((usual, 0), 10)]));
    assert_eq!(capture.came(important, 0, ACK), 210 + 1);
    assert_eq!(capture.came(usual, 0, ACK), came + 1 + 20);
    // Without priorities all comes.
    tell(&mut capture, 2 << 20);
    capture.filter.overload(None);
    capture.send(&data(usual, None, 10));
    capture.take();
    assert_eq!(capture.came(usual, 0, ACK), came + 1 + 30);
    let ledger = capture.source.ledger();
    assert_eq!(ledger.dropped(), 0, "the ring lost nothing");
    assert_eq!(ledger.received(), capture.sent);
    let counted = statistics.read();
    let came: u64 = capture.came.values().sum();
    assert_eq!(came + counted.lost, capture.sent);
}
