//! From a flow's number to the flow: addresses, path, speed, application, time of its start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::application::Application;
use super::config::{Config, Preset};
use super::frame::{Path, Prefix, Tunnel};
use super::payload::host;
use super::random::{Random, mix, pareto, stratified};
use super::tcp::{Connection, Setup};
use super::udp::{Script, UdpFlow};

const MILLISECOND: u64 = 1_000_000;
/// 2023-11-14 22:13:20 UTC.
pub(super) const EPOCH: u64 = 1_700_000_000_000_000_000;
/// Client addresses; a client's flows differ in their port.
const CLIENTS: u64 = 4_096;
const SERVERS: u64 = 20_000;
/// Longest Ethernet frame without check sequence.
const FRAME: usize = 1_514;

/// A flow under way.
pub(super) enum Flow {
    Tcp(Box<Connection>),
    Udp(Box<UdpFlow>),
}

/// When flow `index` starts; those below `config.tcp_flows` are TCP, the others UDP.
pub(super) fn start(config: &Config, index: u64) -> u64 {
    let mut random = Random::new(config.seed, index);
    let duration = config.duration.as_nanos() as u64;
    let needed = if index < config.tcp_flows {
        let basics = Basics::new(config, index, &mut random);
        let (size, transactions) = tcp_size(config, index, &mut random);
        let bytes_per_trip = basics.window_limit(config, size) * 1_448;
        let transfer = size / bytes_per_trip.max(1) * basics.round_trip;
        transfer + transfer / 4 + (transactions + 3) * (basics.round_trip * 3 + 50 * MILLISECOND)
    } else {
        2_000 * MILLISECOND
    };
    let mut random = Random::new(config.seed ^ 0x5354_4152, index);
    EPOCH + random.below(duration.saturating_sub(needed).max(MILLISECOND))
}

/// Flow `index`, which begins at `start`.
pub(super) fn flow(config: &Config, index: u64, start: u64) -> Flow {
    let mut random = Random::new(config.seed, index);
    if index < config.tcp_flows {
        Flow::Tcp(Box::new(tcp(config, index, &mut random, start)))
    } else {
        Flow::Udp(Box::new(udp(config, index, &mut random, start)))
    }
}

fn tcp(config: &Config, index: u64, random: &mut Random, start: u64) -> Connection {
    let basics = Basics::new(config, index, random);
    let (size, transactions) = tcp_size(config, index, random);
    let per_transaction = (size / transactions.max(1)).max(1);
    let (application, port) = application(config.preset, random, transactions, per_transaction);
    let addresses = basics.addresses(index, port);
    let paths = basics.paths(config, &addresses, random);
    let overhead = paths[0].header_len().max(paths[1].header_len()) + 32;
    let window_limit = basics.window_limit(config, size);
    let timestamps = match config.preset {
        Preset::Web | Preset::Zoo | Preset::Hostile => random.chance(0.7),
        _ => true,
    };
    let setup = Setup {
        addresses,
        delays: basics.delays(),
        // A window must fit into a round trip.
        gap: basics
            .gap
            .min(basics.round_trip / (2 * window_limit))
            .max(1_000),
        segment_size: FRAME - overhead + if timestamps { 0 } else { 12 },
        window_limit,
        timestamps,
        mid_stream: random.chance(config.mid_stream),
        wrapped: random.chance(config.wrapped),
        paths,
    };
    Connection::new(config, random.clone(), setup, application, start)
}

/// Response bytes of a connection, and in how many transactions.
fn tcp_size(config: &Config, index: u64, random: &mut Random) -> (u64, u64) {
    let (low, cap) = (config.minimum_size, config.maximum_size);
    let more = |random: &mut Random, share: f64| {
        let mut count = 1;
        while count < 200 && random.chance(share) {
            count += 1;
        }
        count
    };
    match config.preset {
        Preset::Small => (0, 4),
        Preset::Elephants => {
            // Every sixth is an elephant.
            let u = stratified(random, index / 6, config.tcp_flows.div_ceil(6));
            if index.is_multiple_of(6) {
                (pareto(u, low, cap), 1)
            } else {
                (random.between(2_000, 12_000), more(random, 0.5))
            }
        }
        preset => {
            let u = stratified(random, index, config.tcp_flows);
            let size = pareto(u, low, cap);
            let share = if preset == Preset::Web { 0.74 } else { 0.605 };
            (size, more(random, share))
        }
    }
}

/// What is said on a connection, and the server's port.
fn application(
    preset: Preset,
    random: &mut Random,
    transactions: u64,
    size: u64,
) -> (Application, u16) {
    let http = |random: &mut Random| Application::Http {
        left: transactions,
        size,
        host: host(random),
        response: None,
    };
    let kind = random.below(100);
    match preset {
        Preset::Small => (
            Application::Chat {
                left: transactions,
                sender: 0,
            },
            *random.pick(&[1883, 7000, 9092, 6667]),
        ),
        Preset::Web | Preset::Syn => (http(random), if kind < 90 { 80 } else { 8080 }),
        _ if kind < 60 => (http(random), if kind < 55 { 80 } else { 8080 }),
        _ if kind < 90 => {
            let host = host(random);
            let tls = Application::Tls {
                stage: 0,
                left: transactions,
                size,
                host,
            };
            (tls, 443)
        }
        _ => {
            let bulk = Application::Bulk {
                stage: 0,
                upload: kind >= 97,
                size: size * transactions,
            };
            (bulk, *random.pick(&[20_100, 20_200, 20_300]))
        }
    }
}

fn udp(config: &Config, index: u64, random: &mut Random, start: u64) -> UdpFlow {
    let basics = Basics::new(config, index, random);
    let (script, left, port) = match (config.preset, random.below(100)) {
        (Preset::Small, _) => (Script::Chat, 10, *random.pick(&[3478, 5683, 9999])),
        (_, 0..10) if config.fragments > 0.0 => (Script::Large, random.between(1, 12), 20_049),
        (_, 0..78) => {
            let answered = if random.chance(0.97) { 2 } else { 1 };
            (Script::Dns { response: None }, answered, 53)
        }
        (_, 78..84) => (Script::Ntp, 2, 123),
        (_, 84..98) => {
            let left = random.between(6, 30);
            (Script::Quic { sent: 0 }, left, 443)
        }
        _ => {
            let script = Script::Media {
                sequence: random.bits() as u16,
                source: random.bits() as u32,
            };
            (script, random.between(20, 90), 20_004)
        }
    };
    let addresses = basics.addresses(index, port);
    let paths = basics.paths(config, &addresses, random);
    UdpFlow::new(
        config,
        random.clone(),
        (addresses, paths),
        (script, left),
        (start, basics.round_trip),
    )
}

/// What all kinds of flow have.
struct Basics {
    client: u64,
    server: u64,
    ipv6: bool,
    round_trip: u64,
    /// Share of the round trip on the client's side, in percent.
    client_share: u64,
    gap: u64,
}

impl Basics {
    fn new(config: &Config, index: u64, random: &mut Random) -> Self {
        let ipv6 = random.chance(config.ipv6);
        let octave = random.below(6);
        // 2 to 100 ms, evenly over the octaves.
        let base = (2 * MILLISECOND) << octave;
        let round_trip = (base + random.below(base)).min(100 * MILLISECOND);
        Basics {
            client: index % CLIENTS,
            server: pareto(random.unit(), 1, SERVERS * 8) % SERVERS,
            ipv6,
            round_trip,
            client_share: random.between(5, 45),
            // A full segment at 1 Gbit/s down to 80 Mbit/s.
            gap: random.between(12_000, 150_000),
        }
    }

    /// The window that gets `size` bytes through in less than half of the trace's time.
    fn window_limit(&self, config: &Config, size: u64) -> u64 {
        let time = (config.duration.as_nanos() as u64 * 2 / 5).max(MILLISECOND);
        let needed = u128::from(size) * u128::from(self.round_trip) / u128::from(time) / 1_448;
        let usual = 16 + mix(self.client ^ self.gap) % 112;
        (needed as u64 * 2).clamp(usual, 4_000)
    }

    fn delays(&self) -> [u64; 2] {
        let client = self.round_trip * self.client_share / 100;
        [client, self.round_trip - client]
    }

    /// Client and server. The client's address and port are different for every flow, so that all
    /// five-tuples are.
    fn addresses(&self, index: u64, port: u16) -> [(IpAddr, u16); 2] {
        let client_port = (32_768 + (index / CLIENTS) % 28_000) as u16;
        let [high, low] = (self.client as u16).to_be_bytes();
        let host = ((self.client * 7) % 250 + 2) as u8;
        let [server_high, server_low] = (self.server as u16).to_be_bytes();
        if self.ipv6 {
            let client = Ipv6Addr::new(
                0x2001,
                0xdb8,
                0x16,
                self.client as u16,
                0x211,
                0x22ff,
                0xfe33,
                u16::from(host),
            );
            let server = Ipv6Addr::new(0x2001, 0xdb8, 0x443, 0, 0, 0, 1, self.server as u16);
            [(client.into(), client_port), (server.into(), port)]
        } else {
            let client = Ipv4Addr::new(10, 16 + high, low, host);
            let server = Ipv4Addr::new(198, 18, server_high, server_low);
            [(client.into(), client_port), (server.into(), port)]
        }
    }

    fn paths(
        &self,
        config: &Config,
        addresses: &[(IpAddr, u16); 2],
        random: &mut Random,
    ) -> [Path; 2] {
        let vlans: Vec<u16> = if random.chance(config.qinq) {
            vec![
                100 + random.below(8) as u16,
                1_000 + random.below(200) as u16,
            ]
        } else if random.chance(config.vlan) {
            vec![10 + random.below(40) as u16]
        } else {
            Vec::new()
        };
        let tunnel = random.chance(config.tunnel).then(|| {
            let id = 1 + random.below(4_000) as u32;
            let kind = match random.below(6) {
                0 => Tunnel::Gre,
                1 => Tunnel::GreKey(id),
                2 => Tunnel::Vxlan(id),
                3 => Tunnel::Geneve(id),
                4 => Tunnel::Gtp(id),
                _ => Tunnel::Ip,
            };
            let near = Ipv4Addr::new(172, 16, 1, 1 + random.below(20) as u8);
            let far = Ipv4Addr::new(172, 16, 2, 1 + random.below(20) as u8);
            (kind, near, far)
        });
        // A link between two routers: few hardware addresses.
        let near = [0x00, 0x1b, 0x21, 0x3c, 0x9d, (self.client % 4) as u8];
        let far = [0x00, 0x25, 0x90, 0x5a, 0x11, 0x01];
        let hops = 3 + self.client_share as u8 % 12;
        let client_ttl = if self.client.is_multiple_of(3) {
            128
        } else {
            64
        };
        let back = tunnel.map(|(kind, near, far)| (kind, far, near));
        [
            Path {
                prefix: Prefix::new(near, far, &vlans, tunnel, self.ipv6),
                source: addresses[0].0,
                destination: addresses[1].0,
                ttl: client_ttl - 1 - hops % 3,
                tagged: !vlans.is_empty(),
            },
            Path {
                prefix: Prefix::new(far, near, &vlans, back, self.ipv6),
                source: addresses[1].0,
                destination: addresses[0].0,
                ttl: 64 - hops,
                tagged: !vlans.is_empty(),
            },
        ]
    }
}
