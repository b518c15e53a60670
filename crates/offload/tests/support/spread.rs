//! Several workers: each flow is at one, whatever is around its packets.

use std::collections::{HashMap, HashSet};

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::{LiveConfig, LiveSource};
use flowgauge_offload::{Fanout, SocketFilter};
use flowgauge_wire::{
    Address, CARRIERS, DecodeFlags, DecodedBatch, Decoder, FragmentInfo, fragment_info,
};

use crate::lab::Lab;
use crate::{MTU, PORTION, batches, mirror, segment, traces};

const WORKERS: usize = 4;

/// A fragment of a datagram that may be a tunnel's: from where, to where.
type Carried = (Address, Address, FragmentInfo);

/// The addresses of the flow that a frame counts to, and the fragment that it is.
pub(crate) fn flow_of(frame: &[u8]) -> Option<([Address; 2], Option<Carried>)> {
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::default());
    let (mut flow, mut scratch) = (None, DecodedBatch::default());
    batches(&[frame.to_vec()], |batch| {
        decoder.decode_batch(batch, &mut decoded);
        let packet = decoded.packets[0];
        if !packet.has_ip() {
            return;
        }
        let mut pair = [packet.key.low, packet.key.high];
        let mut datagram = None;
        let is_fragment = packet.flags.contains(DecodeFlags::FRAGMENT);
        if is_fragment && CARRIERS.contains(&packet.key.protocol) {
            let info = fragment_info(frame, packet.ip_offset.into());
            datagram = info.map(|info| (packet.source().0, packet.destination().0, info));
            if let Some(inner) = decoder.decode_first_fragment(frame, &packet, &mut scratch) {
                pair = [inner.key.low, inner.key.high];
            }
        }
        pair.sort();
        flow = Some((pair, datagram));
    });
    flow
}

/// Packets that are at another worker than the first of their flow, or of their datagram.
#[derive(Default)]
struct Wrong {
    owners: HashMap<[Address; 2], usize>,
    datagrams: HashMap<(Address, Address, u32), usize>,
    wrong: Vec<Vec<u8>>,
}

impl Wrong {
    fn see(&mut self, worker: usize, frame: &[u8]) {
        let Some((pair, datagram)) = flow_of(frame) else {
            return;
        };
        let owner = match datagram {
            Some((from, to, info)) => {
                let owners = self.datagrams.entry((from, to, info.id));
                let owner = *owners.or_insert(worker);
                if info.offset == 0 && owner == worker {
                    *self.owners.entry(pair).or_insert(worker)
                } else {
                    owner
                }
            }
            None => *self.owners.entry(pair).or_insert(worker),
        };
        if owner != worker {
            self.wrong.push(frame.to_vec());
        }
    }
}

/// Sources that share what comes.
type Sources = Vec<Box<dyn PacketSource>>;
type Open = fn(&Lab, &LiveConfig) -> Sources;

fn by_fanout(lab: &Lab, config: &LiveConfig) -> Sources {
    let fanout = Fanout::load().unwrap();
    let group = lab.run(|| LiveSource::open_group_by(config, WORKERS, fanout.by()).unwrap());
    group.into_iter().map(|it| Box::new(it) as _).collect()
}

fn by_mirror(lab: &Lab, config: &LiveConfig) -> Sources {
    let filters: Vec<SocketFilter> = (0..WORKERS)
        .map(|_| SocketFilter::load_for_mirror(64).unwrap())
        .collect();
    let all = mirror::open(lab, config, &filters.iter().collect::<Vec<_>>());
    all.into_iter().map(|it| Box::new(it) as _).collect()
}

fn begin(lab: &Lab, open: Open) -> Sources {
    let config = LiveConfig {
        own_traffic: true,
        tick_ms: 5,
        retire_ms: 4,
        ..LiveConfig::new("fg1")
    };
    open(lab, &config)
}

/// Sends frames, and returns those of each worker.
fn sent(lab: &Lab, sources: &mut Sources, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let sender = lab.sender("fg0");
    let mut got = vec![Vec::new(); WORKERS];
    for portion in frames.chunks(PORTION) {
        let all: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
        sender.send_all(&all).unwrap();
        let before: usize = got.iter().map(Vec::len).sum();
        for _ in 0..500 {
            for (source, got) in sources.iter_mut().zip(&mut got) {
                let batch = source.next_batch().unwrap().unwrap();
                got.extend((0..batch.len()).map(|at| batch.bytes(at).to_vec()));
            }
            if got.iter().map(Vec::len).sum::<usize>() == before + portion.len() {
                break;
            }
        }
    }
    assert_eq!(got.iter().map(Vec::len).sum::<usize>(), frames.len());
    got
}

fn is_at_one_worker(open: Open) {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    let (mut all, mut sources) = (0, begin(&lab, open));
    for (name, frames, _) in traces() {
        let mut wrong = Wrong::default();
        for (worker, frames) in sent(&lab, &mut sources, &frames).iter().enumerate() {
            frames.iter().for_each(|frame| wrong.see(worker, frame));
        }
        all += wrong.owners.len();
        let count = wrong.wrong.len();
        assert_eq!(count, 0, "{name}: {:02x?}", wrong.wrong.first());
    }
    assert!(all > 500, "{all} pairs");
}

#[test]
fn each_flow_is_at_one_socket_of_a_group() {
    is_at_one_worker(by_fanout);
}

#[test]
fn each_flow_of_a_mirror_port_is_at_one_worker() {
    is_at_one_worker(by_mirror);
}

/// A frame from one host to another in this tunnel between two others.
fn in_tunnel(number: u16, host: u8, is_back: bool) -> Vec<u8> {
    let mut inner = segment(16, b"x");
    inner[29] = host;
    if is_back {
        let (from, to) = inner[26..34].split_at_mut(4);
        from.swap_with_slice(to);
    }
    let ip = &inner[14..];
    let (protocol, header): (u8, Vec<u8>) = match number {
        // 4in4, GRE with a key, VXLAN, Geneve with an option, GTP-U with a sequence number.
        0 => (4, ip.to_vec()),
        1 => (47, [&[0x20, 0, 8, 0, 0, 0, 0, 9], ip].concat()),
        2 => (
            17,
            udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat()),
        ),
        3 => (
            17,
            udp(6081, &[&[1, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0], ip].concat()),
        ),
        _ => {
            let len = (ip.len() as u16 + 4).to_be_bytes();
            let header = [0x32, 0xff, len[0], len[1], 0, 0, 0, 5, 0, 1, 0, 0];
            (17, udp(2152, &[&header, ip].concat()))
        }
    };
    let total = (20 + header.len() as u16).to_be_bytes();
    let mut outer = vec![
        0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ];
    outer.extend([203, 0, 113, 1, 203, 0, 113, 2]);
    // Behind a tag and a label.
    let tags = [0x81, 0, 0, 5, 0x88, 0x47, 0, 1, 1, 64];
    [&inner[..12], &tags, &outer, &header].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = port.to_be_bytes();
    let [c, d] = (8 + payload.len() as u16).to_be_bytes();
    [&[200, 200, a, b, c, d, 0, 0], payload].concat()
}

#[test]
fn flows_within_a_tunnel_are_spread() {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    for open in [by_fanout as Open, by_mirror] {
        let mut sources = begin(&lab, open);
        for tunnel in 0..5 {
            let hosts = 0..100_u8;
            let frames: Vec<Vec<u8>> = hosts
                .flat_map(|host| [false, true].map(|is_back| in_tunnel(tunnel, host, is_back)))
                .collect();
            let got = sent(&lab, &mut sources, &frames);
            let mut wrong = Wrong::default();
            for (worker, frames) in got.iter().enumerate() {
                frames.iter().for_each(|frame| wrong.see(worker, frame));
            }
            assert_eq!(
                wrong.owners.len(),
                100,
                "tunnel {tunnel}: the decoder finds the flows"
            );
            assert_eq!(wrong.wrong.len(), 0, "tunnel {tunnel}");
            let used: HashSet<usize> = wrong.owners.values().copied().collect();
            assert_eq!(used.len(), WORKERS, "tunnel {tunnel}");
        }
    }
}

/// The fragments of a tunnel's datagram go where what it carries goes.
#[test]
fn fragments_of_a_tunnel_go_where_its_flow_goes() {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    for open in [by_fanout as Open, by_mirror] {
        let (mut sources, mut frames) = (begin(&lab, open), Vec::new());
        for host in 0..100 {
            let whole = in_tunnel(2, host, false);
            frames.push(whole.clone());
            // Behind Ethernet alone, with the inner addresses in the first.
            let (header, rest) = whole[22..].split_at(20);
            for (offset, more, part) in [(0, 0x20, &rest[..56]), (7, 0, &rest[56..])] {
                let mut header = header.to_vec();
                let [a, b] = (20 + part.len() as u16).to_be_bytes();
                (header[2], header[3], header[5], header[6], header[7]) =
                    (a, b, host, more, offset);
                frames.push([&whole[..12], &[8, 0], &header, part].concat());
            }
        }
        let mut wrong = Wrong::default();
        for (worker, frames) in sent(&lab, &mut sources, &frames).iter().enumerate() {
            frames.iter().for_each(|frame| wrong.see(worker, frame));
        }
        assert_eq!((wrong.owners.len(), wrong.datagrams.len()), (100, 100));
        assert_eq!(wrong.wrong.len(), 0);
    }
}
