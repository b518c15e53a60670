//! What to generate.

use std::time::Duration;

/// A kind of trace; the table in the [module's documentation](super) describes each.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Preset {
    /// Everyday traffic with Pareto sizes, slight reordering and retransmission.
    Mix,
    /// Segments lost upstream of the capture point and sent again an RTT later.
    Late,
    /// Frames missing from the capture.
    Loss,
    /// HTTP/1.1 transactions.
    Web,
    /// Very many flows of ten tiny packets.
    Small,
    /// A SYN flood.
    Syn,
    /// Few flows that hold nearly all bytes.
    Elephants,
    /// Attacks on flow tables, defragmentation and reassembly.
    Hostile,
    /// A little of everything, for correctness tests.
    Zoo,
}

impl Preset {
    /// All presets.
    pub const ALL: &[Preset] = <Preset as strum::VariantArray>::VARIANTS;

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            Preset::Mix => "TCP and UDP with Pareto sizes, 1 % reordered, 0.5 % retransmitted",
            Preset::Late => "as mix; 0.3 % of the segments lost upstream, there an RTT later",
            Preset::Loss => "as mix; 0.05 % of the frames missing from the capture",
            Preset::Web => "persistent HTTP/1.1 connections, 10 % of the bodies chunked",
            Preset::Small => "500,000 flows of ten packets with a few bytes each",
            Preset::Syn => "a SYN flood from random addresses, a few answered",
            Preset::Elephants => "few flows; 97.6 % of the bytes beyond the first 10 KB",
            Preset::Hostile => "floods, inconsistent overlaps, broken packets, clean flows between",
            Preset::Zoo => "small, with every kind of encapsulation and trouble",
        }
    }

    /// Mean frames per flow at the preset's defaults, to turn a number of packets into flows.
    fn packets_per_flow(self) -> f64 {
        match self {
            Preset::Mix | Preset::Late | Preset::Loss => 24.4,
            Preset::Web => 26.0,
            Preset::Small => 10.0,
            Preset::Syn => 1.1,
            Preset::Elephants => 450.0,
            Preset::Hostile => 10.0,
            Preset::Zoo => 30.0,
        }
    }
}

/// How much truth to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Totals only; nothing is hashed and memory does not grow with the number of flows that ended.
    Summary,
    /// Also every stream with its hashes.
    Full,
}

/// Resolution of the capture's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Microseconds: every program reads it.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// What to generate: a preset's parameters, each of which can be changed. Shares are between 0
/// and 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The preset the parameters come from; decides what the applications say.
    pub preset: Preset,
    /// Seed: the same seed and parameters give the same bytes on every machine.
    pub seed: u64,
    /// TCP connections.
    pub tcp_flows: u64,
    /// UDP flows.
    pub udp_flows: u64,
    /// Hostile frames, about; split evenly between the kinds of attack.
    pub hostile_packets: u64,
    /// Time within which flows begin and, but for the slowest, end.
    pub duration: Duration,
    /// Smallest size of a TCP connection's payload in bytes; the Pareto distribution's minimum.
    pub minimum_size: u64,
    /// Largest size of a TCP connection's payload in bytes.
    pub maximum_size: u64,
    /// Share of the data segments that arrive behind later ones.
    pub reordered: f64,
    /// Share of the data segments lost behind the capture point, hence captured twice.
    pub retransmitted: f64,
    /// Share of the data segments sent again in other boundaries, partly overlapping.
    pub overlapped: f64,
    /// Share of the data segments lost before the capture point, hence captured an RTT late.
    pub lost_upstream: f64,
    /// Share of the frames missing from the capture though they were delivered.
    pub missing: f64,
    /// Share of the TCP frames that the capture holds twice.
    pub duplicated: f64,
    /// Share of the flows over IPv6.
    pub ipv6: f64,
    /// Share of the flows with one VLAN tag.
    pub vlan: f64,
    /// Share of the flows with two VLAN tags (802.1ad).
    pub qinq: f64,
    /// Share of the flows inside a tunnel: GRE, VXLAN, Geneve, GTP-U, IP in IP, 6in4.
    pub tunnel: f64,
    /// Share of the datagrams and data segments sent as IP fragments.
    pub fragments: f64,
    /// Share of the connections that are under way when the capture begins.
    pub mid_stream: f64,
    /// Share of the connections whose sequence numbers wrap around 2^32.
    pub wrapped: f64,
    /// How much truth to keep.
    pub detail: Detail,
    /// Resolution of the times.
    pub resolution: Resolution,
    /// Whether the file is pcapng rather than pcap.
    pub pcapng: bool,
}

impl Config {
    /// The preset at full size with seed 1.
    pub fn new(preset: Preset) -> Self {
        let mix = Config {
            preset,
            seed: 1,
            tcp_flows: 50_000,
            udp_flows: 50_000,
            hostile_packets: 0,
            duration: Duration::from_secs(60),
            minimum_size: 4_500,
            maximum_size: 40 << 20,
            reordered: 0.01,
            retransmitted: 0.005,
            overlapped: 0.001,
            lost_upstream: 0.0,
            missing: 0.0,
            duplicated: 0.0,
            ipv6: 0.0,
            vlan: 0.0,
            qinq: 0.0,
            tunnel: 0.0,
            fragments: 0.0,
            mid_stream: 0.0,
            wrapped: 0.0,
            detail: Detail::Full,
            resolution: Resolution::Micros,
            pcapng: false,
        };
        let clean = Config {
            reordered: 0.0,
            retransmitted: 0.0,
            overlapped: 0.0,
            ..mix.clone()
        };
        match preset {
            Preset::Mix => mix,
            Preset::Late => Config {
                lost_upstream: 0.003,
                ..mix
            },
            Preset::Loss => Config {
                missing: 0.0005,
                ..mix
            },
            Preset::Web => Config {
                tcp_flows: 40_000,
                udp_flows: 0,
                minimum_size: 1_430,
                maximum_size: 4 << 20,
                ..clean
            },
            Preset::Small => Config {
                tcp_flows: 400_000,
                udp_flows: 100_000,
                ..clean
            },
            Preset::Syn => Config {
                tcp_flows: 2_000,
                udp_flows: 0,
                hostile_packets: 1_000_000,
                duration: Duration::from_secs(20),
                maximum_size: 1 << 20,
                ..clean
            },
            Preset::Elephants => Config {
                tcp_flows: 2_400,
                udp_flows: 0,
                minimum_size: 500_000,
                maximum_size: 64 << 20,
                ..clean
            },
            Preset::Hostile => Config {
                tcp_flows: 1_000,
                udp_flows: 1_000,
                hostile_packets: 200_000,
                duration: Duration::from_secs(20),
                maximum_size: 1 << 20,
                ipv6: 0.2,
                wrapped: 0.1,
                fragments: 0.01,
                ..mix
            },
            Preset::Zoo => Config {
                tcp_flows: 500,
                udp_flows: 300,
                duration: Duration::from_secs(20),
                maximum_size: 512 << 10,
                lost_upstream: 0.003,
                missing: 0.002,
                duplicated: 0.002,
                ipv6: 0.3,
                vlan: 0.15,
                qinq: 0.1,
                tunnel: 0.3,
                fragments: 0.03,
                mid_stream: 0.1,
                wrapped: 0.1,
                ..mix
            },
        }
    }

    /// Multiplies the numbers of flows and hostile packets; at least one flow of a kind that the
    /// preset has remains.
    pub fn scaled(mut self, factor: f64) -> Self {
        let scale = |count: u64| match count {
            0 => 0,
            _ => ((count as f64 * factor.max(0.0)).round() as u64).max(1),
        };
        self.tcp_flows = scale(self.tcp_flows);
        self.udp_flows = scale(self.udp_flows);
        self.hostile_packets = scale(self.hostile_packets);
        self
    }

    /// As many flows, TCP and UDP (and hostile packets) in the preset's proportion.
    pub fn with_flows(self, flows: u64) -> Self {
        // Each packet of a SYN flood is a flow.
        let flood = match self.preset {
            Preset::Syn => self.hostile_packets,
            _ => 0,
        };
        let now = (self.tcp_flows + self.udp_flows + flood).max(1);
        self.scaled(flows as f64 / now as f64)
    }

    /// About as many packets.
    pub fn with_packets(self, packets: u64) -> Self {
        let flows = (self.tcp_flows + self.udp_flows + self.hostile_packets).max(1) as f64;
        let now = match self.preset {
            Preset::Hostile => self.hostile_packets as f64 + 40_000.0,
            preset => flows * preset.packets_per_flow(),
        };
        self.scaled(packets as f64 / now)
    }
}
