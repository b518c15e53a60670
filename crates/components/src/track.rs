//! `track_...`: packets of an application, found by what they carry and by ports, MAPI's trackflib.
//!
//! A flow is an application's when a packet of it has the application's signature, or one of its
//! well-known ports; all its later packets are then, in both directions. What a packet announces (FTP's
//! data connections) is expected, and the flow that comes is the application's, too.

use core::hash::Hash;

use flowgauge_proto::ftp;
use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, Parallel, ResultInfo, ResultValue, Settings, options,
};
use flowgauge_wire::{Address, Decoded, FlowKey, Nanos, TunnelKind};
use hashbrown::HashTable;
use memchr::memmem;

use crate::layers;

/// What applications have in common.
const OF_FLOWS: ComponentInfo = ComponentInfo {
    help: "A flow is recognised by the content of a packet, or by its ports; from that packet on all its packets \
       pass, both directions. Data connections announced by FTP are recognised too, if they are between the same two \
       hosts.",
    options: Options::ALL,
    result: Some(ResultInfo::number("flows found", "flows")),
    parallel: Parallel::ByFlow,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    timeout: Duration as u64 = "300s",
        "a flow is forgotten when idle for this long, on the capture clock";
    flows: Integer(1, 100_000_000) as usize = "1M",
        "flows remembered at once; further ones are checked packet by packet";
    ports: Flag = "yes", "whether well-known ports count, or only content";
}

/// Declares the components: names, summary, and by what the application is known.
macro_rules! applications {
    ($($info:ident $name:literal $(($alias:literal))? $summary:literal { $($signs:tt)* })*) => { $(
        pub(crate) static $info: ComponentInfo = ComponentInfo {
            name: $name,
            aliases: &[$($alias)?],
            summary: $summary,
            make: |settings| {
                static SIGNS: Signs = Signs { $($signs)* ..NONE };
                Ok(Track::of(settings, &SIGNS))
            },
            ..OF_FLOWS
        };
    )* };
}

/// By what an application is known.
struct Signs {
    tcp: &'static [u16],
    udp: &'static [u16],
    /// Whether a payload is the application's beyond doubt: the IP protocol, the payload.
    payload: fn(u8, &[u8]) -> bool,
    /// Packets within an IP tunnel are, each for itself.
    are_tunnels: bool,
    /// Whether its packets announce connections.
    announces: bool,
}

/// A packet that is looked at.
struct Packet<'a> {
    decoded: &'a Decoded,
    tunnel: Option<TunnelKind>,
}

const NONE: Signs = Signs {
    tcp: &[],
    udp: &[],
    payload: |_, _| false,
    are_tunnels: false,
    announces: false,
};

const TCP: u8 = 6;
const UDP: u8 = 17;

applications! {
    FTP "track_ftp" "selects FTP: control and data connections" {
        tcp: &[20, 21],
        payload: |protocol, bytes| {
            protocol == TCP && bytes.starts_with(b"220") && {
                let line = bytes.get(..bytes.len().min(120)).unwrap_or(bytes);
                memmem::find(line, b"FTP").is_some()
            }
        },
        announces: true,
    }
    GRID_FTP "track_grid_ftp" ("track_gridftp") "selects GridFTP: control and data connections" {
        tcp: &[2811],
        payload: |protocol, bytes| {
            protocol == TCP && bytes.starts_with(b"220") && {
                let line = bytes.get(..bytes.len().min(120)).unwrap_or(bytes);
                memmem::find(line, b"GridFTP").is_some()
            }
        },
        announces: true,
    }
    DC "track_dc" "selects Direct Connect" {
        tcp: &[411, 412],
        payload: |_, bytes| {
            const WORDS: [&[u8]; 9] = [
                b"$Lock ",
                b"$MyNick ",
                b"$Direction ",
                b"$ValidateNick ",
                b"$ConnectToMe ",
                b"$RevConnectToMe ",
                b"$Supports ",
                b"$SR ",
                b"$Search ",
            ];
            let is_whole = bytes.ends_with(b"|") || bytes.len() > 1000;
            is_whole && begins(bytes, &WORDS)
        },
    }
    GNUTELLA "track_gnutella" "selects Gnutella" {
        tcp: &[6346, 6347],
        udp: &[6346, 6347],
        payload: |protocol, bytes| {
            if protocol == UDP {
                return begins(bytes, &[b"GND\x01", b"GND\x02"]);
            }
            begins(
                bytes,
                &[
                    b"GNUTELLA CONNECT/",
                    b"GNUTELLA/0.",
                    b"GIV ",
                    b"GET /uri-res/N2R?urn:",
                    b"GNUTELLA OK",
                ],
            )
        },
    }
    EDONKEY "track_edonkey" "selects eDonkey and eMule" {
        tcp: &[4661, 4662],
        udp: &[4665, 4672],
        payload: |protocol, bytes| match *bytes {
            // eDonkey, eMule, compressed: a marker and the length of what follows.
            [0xe3 | 0xc5 | 0xd4, a, b, c, d, _, ..] if protocol == TCP => {
                let length = u32::from_le_bytes([a, b, c, d]);
                (1..1 << 20).contains(&length) && length as usize + 5 == bytes.len()
            }
            // Of servers, and of Kademlia.
            [0xe3, 0x96..=0xa3, ..] | [0xe4, 0x00..=0x62, ..] => protocol == UDP && bytes.len() >= 6,
            _ => false,
        },
    }
    TORRENT "track_torrent" "selects BitTorrent: peers, trackers, DHT" {
        tcp: &[6881, 6882, 6883, 6884, 6885, 6886, 6887, 6888, 6889, 6969],
        udp: &[6881, 6882, 6883, 6884, 6885, 6886, 6887, 6888, 6889],
        payload: |protocol, bytes| {
            if protocol == UDP {
                return begins(
                    bytes,
                    &[
                        b"d1:ad2:id20:",
                        b"d1:rd2:id20:",
                        b"d1:eli20",
                        b"\x00\x00\x04\x17\x27\x10\x19\x80",
                    ],
                );
            }
            begins(bytes, &[b"\x13BitTorrent protocol"])
                || (begins(bytes, &[b"GET /announce", b"GET /scrape"])
                    && memmem::find(bytes, b"info_hash=").is_some())
        },
    }
    SKYPE "track_skype" "selects the classic Skype protocol, by a guess at its datagrams" {
        tcp: &[33_033],
        udp: &[33_033],
        payload: |protocol, bytes| {
            // A number, and a function: 2 of requests, 13 in the low half of short answers.
            protocol == UDP
                && match *bytes {
                    [_, _, function] => function & 0x0f == 0x0d,
                    [first, _, 0x02, ..] => bytes.len() >= 16 && first != 0x30,
                    _ => false,
                }
        },
    }
    IPOVERIP "track_ipoverip" "selects packets within an IP tunnel: IP in IP, 6in4" {
        are_tunnels: true,
    }
    IRC "track_irc" "selects IRC" {
        tcp: &[
            194, 6660, 6661, 6662, 6663, 6664, 6665, 6666, 6667, 6668, 6669, 6697,
        ],
        payload: |protocol, bytes| {
            if protocol != TCP {
                return false;
            }
            let line = bytes.get(..bytes.len().min(512)).unwrap_or(bytes);
            let is_line = memchr::memchr(b'\n', line).is_some();
            let prefixed = || {
                line.starts_with(b":")
                    && [b" PRIVMSG ".as_slice(), b" NOTICE ", b" 001 ", b" JOIN "]
                        .iter()
                        .any(|word| memmem::find(line, word).is_some())
            };
            let registers =
                || line.starts_with(b"NICK ") || (line.starts_with(b"USER ") && line.contains(&b':'));
            is_line
                && (registers()
                    || begins(line, &[b"PRIVMSG ", b"JOIN #", b"NOTICE AUTH"])
                    || prefixed())
        },
    }
    WEB "track_web" "selects HTTP and HTTPS" {
        tcp: &[80, 443, 3128, 8000, 8008, 8080, 8443],
        payload: |protocol, bytes| {
            const METHODS: [&[u8]; 8] = [
                b"GET ",
                b"POST ",
                b"HEAD ",
                b"PUT ",
                b"DELETE ",
                b"OPTIONS ",
                b"CONNECT ",
                b"PATCH ",
            ];
            let line = bytes.get(..bytes.len().min(2048)).unwrap_or(bytes);
            protocol == TCP
                && (begins(bytes, &[b"HTTP/1.0 ", b"HTTP/1.1 ", b"PRI * HTTP/2.0\r\n"])
                    || (begins(bytes, &METHODS) && memmem::find(line, b" HTTP/1.").is_some()))
        },
    }
    MAPI "track_mapi" "selects the traffic of MAPI's own agents" {
        tcp: &[2233],
    }
}

fn begins(bytes: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| bytes.starts_with(word))
}

struct Track {
    signs: &'static Signs,
    by_ports: bool,
    flows: Recent<FlowKey>,
    /// Where connections were announced to go to.
    expected: Recent<Endpoint>,
    found: u64,
}

type Endpoint = (Address, u16);

impl Track {
    fn of(settings: &Settings, signs: &'static Signs) -> Box<dyn Component> {
        let Options {
            timeout,
            flows,
            ports,
        } = Options::read(settings);
        Box::new(Track {
            signs,
            by_ports: ports,
            flows: Recent::new(flows, timeout),
            expected: Recent::new(flows.min(1 << 16), timeout),
            found: 0,
        })
    }

    fn is_its(&mut self, packet: &Packet<'_>, payload: &[u8]) -> bool {
        let decoded = packet.decoded;
        let (hash, time) = (decoded.hash, decoded.time);
        if self.signs.are_tunnels
            && !matches!(
                packet.tunnel,
                Some(TunnelKind::IpInIp | TunnelKind::SixInFour)
            )
        {
            return false;
        }
        let is_known = self.flows.touch(hash, &decoded.key, time);
        if !is_known {
            let is_new = self.is_by_ports(decoded)
                || self.signs.are_tunnels
                || (!payload.is_empty() && (self.signs.payload)(decoded.key.protocol, payload))
                || self.is_expected(decoded);
            if !is_new {
                return false;
            }
            self.found += u64::from(self.flows.insert(hash, decoded.key, time));
        }
        if self.signs.announces
            && !payload.is_empty()
            && let Some(endpoint) = announced(payload, decoded)
        {
            self.expected.insert(hash_of(&endpoint), endpoint, time);
        }
        true
    }

    fn is_by_ports(&self, decoded: &Decoded) -> bool {
        let ports = match decoded.key.protocol {
            TCP => self.signs.tcp,
            UDP => self.signs.udp,
            _ => return false,
        };
        let (from, to) = (decoded.source().1, decoded.destination().1);
        self.by_ports && ports.iter().any(|port| *port == from || *port == to)
    }

    fn is_expected(&mut self, decoded: &Decoded) -> bool {
        self.signs.announces
            && !self.expected.table.is_empty()
            && decoded.key.protocol == TCP
            && [decoded.source(), decoded.destination()]
                .iter()
                .any(|endpoint| {
                    self.expected
                        .touch(hash_of(endpoint), endpoint, decoded.time)
                })
    }
}

/// Where a line of FTP's control connection says that data will go to.
fn announced(payload: &[u8], packet: &Decoded) -> Option<Endpoint> {
    let mut lines = payload.split(|byte| matches!(byte, b'\r' | b'\n'));
    let (verb, said) = lines.next()?.split_at_checked(5)?;
    let endpoint = match verb {
        b"PORT " => ftp::Endpoint::numbers(said),
        b"EPRT " => ftp::Endpoint::extended(said),
        [b'2', b'2', b'7', b' ', _] => ftp::Endpoint::numbers(said),
        [b'2', b'2', b'9', b' ', _] => ftp::Endpoint::extended(said),
        _ => None,
    }?;
    // Without an address it is the host that says so.
    let address = endpoint.address.map(Address::from);
    Some((address.unwrap_or(packet.source().0), endpoint.port))
}

fn hash_of(endpoint: &Endpoint) -> u64 {
    use core::hash::BuildHasher as _;
    endpoint_hasher().hash_one(endpoint)
}

/// One for the whole process: endpoints are announced by who may wish them to collide.
fn endpoint_hasher() -> &'static std::hash::RandomState {
    static HASHER: std::sync::OnceLock<std::hash::RandomState> = std::sync::OnceLock::new();
    HASHER.get_or_init(std::hash::RandomState::new)
}

/// What was seen within the timeout.
struct Recent<K> {
    table: HashTable<(u64, K, Nanos)>,
    most: usize,
    timeout: u64,
    /// When the table was last gone through.
    swept: Nanos,
}

impl<K: Copy + Eq + Hash> Recent<K> {
    fn new(most: usize, timeout: u64) -> Recent<K> {
        Recent {
            table: HashTable::new(),
            most,
            timeout,
            swept: Nanos(0),
        }
    }

    /// Whether it is remembered; if so, it was seen now.
    #[inline]
    fn touch(&mut self, hash: u64, key: &K, now: Nanos) -> bool {
        let found = self.table.find_mut(hash, |(_, known, _)| known == key);
        let Some((_, _, last)) = found else {
            return false;
        };
        let is_recent = now.0 <= last.0.saturating_add(self.timeout);
        if is_recent {
            *last = now.max(*last);
        }
        is_recent
    }

    /// Remembers it, unless there are too many. Returns whether it was unknown.
    fn insert(&mut self, hash: u64, key: K, now: Nanos) -> bool {
        if let Some((_, _, last)) = self.table.find_mut(hash, |(_, known, _)| *known == key) {
            *last = now.max(*last);
            return true;
        }
        if self.table.len() < self.most {
            self.table
                .insert_unique(hash, (hash, key, now), |(hash, _, _)| *hash);
        }
        true
    }

    /// Forgets those that are over.
    fn sweep(&mut self, now: Nanos) {
        if now.0 < self.swept.0.saturating_add(self.timeout / 2) {
            return;
        }
        self.swept = now;
        let timeout = self.timeout;
        self.table
            .retain(|(_, _, last)| now.0 <= last.0.saturating_add(timeout));
    }
}

impl Component for Track {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, decoded) in all.iter() {
            let tunnel = usize::from(decoded.tunnel).checked_sub(1);
            let tunnel = tunnel.and_then(|at| all.decoded.tunnels.get(at));
            let packet = Packet {
                decoded,
                tunnel: tunnel.map(|tunnel| tunnel.kind),
            };
            let is_its = decoded.has_ip() && self.is_its(&packet, layers::payload(&all, decoded));
            if !is_its {
                packets.selected.remove(index);
            }
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        self.flows.sweep(now);
        self.expected.sweep(now);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.found))
    }

    fn reset(&mut self) {
        self.found = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_endpoints_are_read() {
        let packet = Decoded::default();
        let v4 = |a, b, c, d, port| Some((Address::v4([a, b, c, d]), port));
        for (line, expected) in [
            ("PORT 192,0,2,1,4,1\r\n", v4(192, 0, 2, 1, 1025)),
            (
                "227 Entering Passive Mode (192,0,2,9,255,255).\r\n",
                v4(192, 0, 2, 9, 65535),
            ),
            ("227 =10,1,2,3,0,21", v4(10, 1, 2, 3, 21)),
            ("EPRT |1|132.235.1.2|6275|\r\n", v4(132, 235, 1, 2, 6275)),
            (
                "229 Entering Extended Passive Mode (|||6446|)\r\n",
                Some((packet.source().0, 6446)),
            ),
            ("PORT 192,0,2,256,4,1", None),
            ("PORT 1,2,3", None),
            ("227 nothing", None),
            ("EPRT |1|here|6275|", None),
            ("229 (|||70000|)", None),
            ("229 (", None),
            ("EPRT ", None),
            ("LIST", None),
        ] {
            assert_eq!(announced(line.as_bytes(), &packet), expected, "{line}");
        }
        assert_eq!(announced(b"PORT \xff", &packet), None);
    }
}
