//! Whose a datagram in fragments is.

use flowgauge_flow::FlowRecord;
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, HostPolicies,
    StreamRef,
};
use flowgauge_stream::{ChecksumPolicy, Handler, Shard, ShardConfig};
use flowgauge_wire::{Batch, LinkType, PacketDescriptor};

/// Addresses of the initiator, protocol, frames and fragments of each flow.
#[derive(Default)]
struct Flows(Vec<(String, u8, u64, u64)>);

impl Handler for Flows {
    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.0.push((
            (record.source.address).to_ip(record.version).to_string(),
            record.protocol,
            record.source.packets + record.destination.packets,
            record.fragments,
        ));
    }
}

fn ipv4(source: [u8; 4], protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(source);
    packet.extend([10, 0, 0, 9]);
    packet.extend(payload);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [port.to_be_bytes(), port.to_be_bytes()].concat();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

fn flows(packets: &[Vec<u8>]) -> Vec<(String, u8, u64, u64)> {
    let mut shard = Shard::new(ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        ..ShardConfig::default()
    });
    let mut flows = Flows::default();
    for packet in packets {
        let ether_type = if packet[0] >> 4 == 4 {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        let frame = [&[2; 12][..], &ether_type, packet].concat();
        let descriptor = PacketDescriptor {
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            ..PacketDescriptor::default()
        };
        shard.process(&Batch::new(&frame, &[descriptor]), &mut flows);
    }
    shard.finish(&mut flows);
    flows.0.sort();
    flows.0
}

/// How a piece of UDP is sent: its identification, its place and whether more follow as in IPv4's header, bytes.
type Fragment = fn(u16, u16, &[u8]) -> Vec<u8>;

fn in_ipv4(id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    ipv4([10, 1, 1, 1], 17, id, fragment, payload)
}

fn in_ipv6(id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    ipv6(44, &[&fragment_header(id, fragment), payload].concat())
}

/// With a hop-by-hop header of padding in front of the one that says what fragment it is.
fn in_ipv6_with_options(id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let options = [44, 0, 1, 4, 0, 0, 0, 0];
    ipv6(
        0,
        &[&options, &fragment_header(id, fragment)[..], payload].concat(),
    )
}

fn fragment_header(id: u16, fragment: u16) -> [u8; 8] {
    // The place comes first here, the flags last.
    let [high, low] = fragment.rotate_left(3).to_be_bytes();
    let [id_high, id_low] = id.to_be_bytes();
    [17, 0, high, low, 0, 0, id_high, id_low]
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    for host in [1, 9] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend(payload);
    packet
}

#[test]
fn what_never_becomes_complete_of_a_tunnel_is_of_the_flow_inside() {
    check("10.1.1.1", in_ipv4);
    check("fd00::1", in_ipv6);
    check("fd00::1", in_ipv6_with_options);
}

fn check(sender: &str, fragment: Fragment) {
    // GTP-U: version 1, user data, a length, a tunnel endpoint.
    let inner = ipv4([10, 7, 7, 7], 17, 1, 0, &udp(4000, &[b'x'; 100]));
    let mut gtp = vec![0x30, 0xff, 0, inner.len() as u8, 0, 0, 0, 5];
    gtp.extend(&inner);
    let outer = udp(2152, &gtp);
    let (first, rest) = outer.split_at(88);
    let packets = |id| [fragment(id, 0x2000, first), fragment(id, 11, rest)];
    let [whole, lost] = [packets(1), packets(2)];
    let expected = |frames| ("10.7.7.7".to_owned(), 17, frames, frames);
    assert_eq!(flows(&whole), [expected(2)]);
    // The first fragment says whose it is, wherever it comes.
    assert_eq!(flows(&lost[..1]), [expected(1)]);
    assert_eq!(flows(&[&whole[..], &lost[..1]].concat()), [expected(3)]);
    let outer = |frames| (sender.to_owned(), 17, frames, frames);
    // Behind another one it was sent with that to whoever has the outer flow.
    let far = fragment(2, 0x2000 | 20, rest);
    assert_eq!(flows(&[far, lost[0].clone()]), [outer(2)]);
    // Without it nobody knows, and of what is no tunnel the addresses are its own.
    assert_eq!(flows(&lost[1..]), [outer(1)]);
    let plain = fragment(3, 0x2000, &udp(53, &gtp)[..88]);
    assert_eq!(flows(&[plain]), [outer(1)]);
}

/// What was delivered, by the receiver's last byte.
#[derive(Default)]
struct Delivered(Vec<(u8, String)>);

impl Events for Delivered {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let receiver = stream.identity().destination.0;
        let text = String::from_utf8_lossy(chunk.new_bytes()).into_owned();
        self.0.push((receiver.0[15], text));
    }
}

#[test]
fn the_receiving_host_decides_which_copy_of_a_fragment_counts() {
    let mut policies = HostPolicies::new(OverlapPolicy::First);
    policies.insert("10.0.0.8".parse().unwrap(), 32, OverlapPolicy::Last);
    let run = |change: Option<HostPolicies>| {
        let mut config = EngineConfig {
            policies: policies.clone(),
            ..EngineConfig::default()
        };
        config.shard.checksums = ChecksumPolicy::Ignore;
        let mut engine = Engine::new(config);
        engine.add(ApplicationConfig::default()).unwrap();
        if let Some(policies) = change {
            engine.set_policies(policies);
        }
        let mut delivered = Delivered::default();
        let [a, b] = [b'a', b'b'].map(|byte| udp(53, &[byte; 40]));
        for host in [8, 9] {
            for (place, bytes) in [(0x2000, &a[..32]), (2, &b[16..])] {
                let mut packet = in_ipv4(1, place, bytes);
                packet[19] = host;
                let descriptor = PacketDescriptor {
                    captured_len: packet.len() as u32,
                    wire_len: packet.len() as u32,
                    link: LinkType::RAW,
                    ..PacketDescriptor::default()
                };
                engine.process(
                    &Batch::new(&packet, &[descriptor]),
                    &mut delivered as &mut dyn Events,
                );
            }
        }
        engine.finish(&mut delivered as &mut dyn Events);
        delivered.0.sort();
        delivered.0
    };
    let (last, first) = (
        "a".repeat(8) + &"b".repeat(32),
        "a".repeat(24) + &"b".repeat(16),
    );
    assert_eq!(run(None), [(8, last), (9, first.clone())]);
    // Another word of it later.
    let both = run(Some(HostPolicies::new(OverlapPolicy::First)));
    assert_eq!(both, [(8, first.clone()), (9, first)]);
}
