//! Traffic meant to hurt whoever watches: floods, contradictions and broken packets.
//!
//! It comes in episodes of one kind each, from addresses that no clean flow has. Its frames are
//! counted by kind in [`Truth::attacks`](super::Truth::attacks).

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::{Config, Preset};
use super::frame::{Part, Path, Prefix, Tunnel, finish, put16, sum};
use super::output::Output;
use super::plan::EPOCH;
use super::random::{Random, mix};
use super::truth::Truth;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// The kinds, in the order in which they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Kind {
    /// SYNs from ever new addresses; one in fifty is answered.
    SynFlood,
    /// The same sequence numbers again with other bytes.
    InconsistentOverlap,
    /// Segments of one byte, in order.
    TinySegments,
    /// Segments with a hole before each that nobody ever fills.
    GapFlood,
    /// Fragments that overlap, contradict each other or never end.
    OverlappingFragments,
    /// Wrong checksums of IPv4, TCP and UDP between right ones.
    BadChecksums,
    /// Resets and SYNs outside of the window, after which the connection goes on.
    ResetOutOfWindow,
    /// A dozen tunnels in each other.
    DeepTunnel,
    /// Chains of IPv6 extension headers, some too long for their packet.
    ExtensionChain,
    /// Headers that contradict their packet.
    Malformed,
    /// Packets no stack sends: all flags, no flags, source equals destination, port 0.
    OddFlags,
}

impl Kind {
    const ALL: &[Kind] = <Kind as strum::VariantArray>::VARIANTS;

    fn name(self) -> &'static str {
        self.into()
    }
}

/// Emits episodes until the configured number of frames is reached.
pub(super) struct Attacks {
    random: Random,
    only_flood: bool,
    left: u64,
    /// Nanoseconds per frame.
    pace: u64,
    at: u64,
    frames: [u64; Kind::ALL.len()],
    /// Numbers the flood's sources.
    source: u32,
    scramble: u32,
    flows: u64,
}

/// An attacker's connection.
struct Target {
    forth: Path,
    back: Path,
    ports: (u16, u16),
    isn: u32,
    peer_isn: u32,
}

impl Attacks {
    pub(super) fn new(config: &Config) -> Self {
        let mut random = Random::new(config.seed ^ 0x6861_726d, 0);
        let duration = config.duration.as_nanos() as u64;
        Attacks {
            only_flood: config.preset == Preset::Syn,
            left: config.hostile_packets,
            pace: duration / config.hostile_packets.max(1),
            at: EPOCH + random.below(1_000_000),
            frames: [0; Kind::ALL.len()],
            source: 0,
            scramble: random.bits() as u32 | 1,
            flows: 0,
            random,
        }
    }

    /// When the next episode begins.
    pub(super) fn next_time(&self) -> Option<u64> {
        (self.left > 0).then_some(self.at)
    }

    /// Emits one episode.
    pub(super) fn advance<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let before = output.packets;
        let turn = if self.only_flood {
            0
        } else {
            // The kind that has had the fewest frames, so that all get about the same.
            let least = self.frames.iter().min().copied().unwrap_or(0);
            self.frames
                .iter()
                .position(|&count| count == least)
                .unwrap_or(0)
        };
        let kind = Kind::ALL[turn];
        match kind {
            Kind::SynFlood => self.syn_flood(output)?,
            Kind::InconsistentOverlap => self.inconsistent_overlap(output)?,
            Kind::TinySegments => self.tiny_segments(output)?,
            Kind::GapFlood => self.gap_flood(output)?,
            Kind::OverlappingFragments => self.overlapping_fragments(output)?,
            Kind::BadChecksums => self.bad_checksums(output)?,
            Kind::ResetOutOfWindow => self.reset_out_of_window(output)?,
            Kind::DeepTunnel => self.deep_tunnel(output)?,
            Kind::ExtensionChain => self.extension_chain(output)?,
            Kind::Malformed => self.malformed(output)?,
            Kind::OddFlags => self.odd_flags(output)?,
        }
        let count = output.packets - before;
        self.frames[turn] += count;
        self.left = self.left.saturating_sub(count);
        let pause = self.pace * count;
        self.at += pause / 2 + self.random.below(pause + 1);
        Ok(())
    }

    /// Adds the counts to the truth.
    pub(super) fn finish(self, truth: &mut Truth) {
        truth.flows.hostile = self.flows;
        for (kind, &count) in Kind::ALL.iter().zip(&self.frames) {
            if count > 0 {
                truth.attacks.insert(kind.name().to_owned(), count);
            }
        }
    }

    fn syn_flood<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        for step in 0..16 {
            let address = self.flood_source();
            let mut target = self.target(IpAddr::V4(address), 80);
            target.forth.destination = IpAddr::from([198, 19, 255, self.random.below(4) as u8]);
            target.back.source = target.forth.destination;
            let at = self.at + step * self.pace;
            let isn = target.isn;
            target.send(output, at, SYN, isn, &[])?;
            if self.random.chance(0.02) {
                let flags = if self.random.chance(0.9) {
                    SYN | ACK
                } else {
                    RST | ACK
                };
                target.answer(output, at + 300_000, flags)?;
            }
        }
        Ok(())
    }

    /// An address that came up neither before nor in a clean flow.
    fn flood_source(&mut self) -> Ipv4Addr {
        loop {
            self.source = self.source.wrapping_add(1);
            // Multiplication by an odd number and a rotation permute all 32-bit numbers.
            let address = self
                .source
                .wrapping_mul(self.scramble)
                .rotate_left(16)
                .wrapping_mul(0x9e37_79b1);
            let address = Ipv4Addr::from(address);
            if !matches!(address.octets()[0], 0 | 10 | 127 | 172 | 198 | 203 | 224..) {
                return address;
            }
        }
    }

    fn inconsistent_overlap<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.connect(output)?;
        let mut next = target.isn.wrapping_add(1);
        for step in 0..8u64 {
            let at = self.at + 4_000_000 + step * 900_000;
            let first = [b'A' + step as u8; 100];
            let second = [b'a' + step as u8; 140];
            let shift = self.random.below(60) as u32;
            match step % 4 {
                // The same range, a longer one, one that begins earlier, and one before its turn.
                0 => {
                    target.data(output, at, next, &first)?;
                    target.data(output, at + 1_000, next, &second[..100])?;
                }
                1 => {
                    target.data(output, at, next, &first)?;
                    target.data(output, at + 1_000, next, &second)?;
                }
                2 => {
                    let early = next.wrapping_sub(shift);
                    target.data(output, at, early, &second)?;
                    target.data(output, at + 1_000, next, &first)?;
                }
                _ => {
                    let late = next.wrapping_add(40);
                    target.data(output, at, late, &second[..60])?;
                    target.data(output, at + 1_000, next, &first)?;
                }
            }
            next = next.wrapping_add(140);
            // Fills what the shorter variants left open.
            let fill = next.wrapping_sub(60);
            target.data(output, at + 2_000, fill, &first[..60])?;
        }
        target.send(output, self.at + 20_000_000, FIN | ACK, next, &[])
    }

    fn tiny_segments<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.connect(output)?;
        for step in 0..200u32 {
            let at = self.at + 4_000_000 + u64::from(step) * 20_000;
            let seq = target.isn.wrapping_add(1 + step);
            let byte = [b'0' + (step % 10) as u8];
            target.data(output, at, seq, &byte)?;
        }
        Ok(())
    }

    fn gap_flood<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.connect(output)?;
        let stride = *self.random.pick(&[2, 101, 4_000]);
        for step in 0..150u32 {
            let at = self.at + 4_000_000 + u64::from(step) * 15_000;
            let seq = target.isn.wrapping_add(2 + step * stride);
            target.data(output, at, seq, &[b'g'; 1])?;
        }
        Ok(())
    }

    fn overlapping_fragments<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let ipv6 = self.random.chance(0.3);
        let target = self.any_target(ipv6);
        let id = self.random.bits() as u32;
        // Offset, size and whether more come: teardrop, contradiction, a hole, no end, beyond 65535.
        let patterns: [&[(usize, usize, bool)]; 5] = [
            &[(0, 40, true), (24, 16, false)],
            &[
                (0, 64, true),
                (0, 64, true),
                (32, 64, true),
                (64, 40, false),
            ],
            &[(0, 48, true), (96, 48, false), (56, 8, true)],
            &[(0, 1_000, true), (1_000, 1_000, true), (3_000, 1_000, true)],
            &[(0, 8, true), (65_528, 400, false)],
        ];
        let pattern = *self.random.pick(&patterns);
        for (step, &(offset, size, more)) in pattern.iter().enumerate() {
            let bytes = vec![b'A' + step as u8; size];
            let part = Part::Fragment { offset, more };
            output.put_built(self.at + step as u64 * 10_000, |frame| {
                target.forth.build(frame, UDP, id, part, (&bytes, &[]));
            })?;
        }
        Ok(())
    }

    fn bad_checksums<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.connect(output)?;
        for step in 0..12u32 {
            let at = self.at + 4_000_000 + u64::from(step) * 100_000;
            let seq = target.isn.wrapping_add(1 + 50 * (step / 2));
            // A segment with a wrong checksum and other bytes goes before each right one.
            output.put_built(at, |frame| {
                target.segment(frame, ACK | PSH, seq, &[b'x' - (step % 2) as u8; 50]);
                if step % 2 == 0 {
                    let at_checksum = if step % 4 == 0 { 14 + 20 + 16 } else { 14 + 10 };
                    frame[at_checksum] ^= 0x5a;
                }
            })?;
        }
        Ok(())
    }

    fn reset_out_of_window<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.connect(output)?;
        let start = target.isn.wrapping_add(1);
        for step in 0..6u32 {
            let at = self.at + 4_000_000 + u64::from(step) * 500_000;
            let next = start.wrapping_add(step * 80);
            target.data(output, at, next, &[b'r'; 80])?;
            let far = next.wrapping_add(0x4000_0000 + self.random.below(0x8000_0000) as u32);
            let flags = *self.random.pick(&[RST, RST | ACK, SYN, FIN | ACK]);
            target.send(output, at + 200_000, flags, far, &[])?;
        }
        Ok(())
    }

    fn deep_tunnel<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let mut target = self.any_target(false);
        let (near, far) = (Ipv4Addr::new(172, 20, 0, 1), Ipv4Addr::new(172, 20, 0, 2));
        let depth = self.random.between(3, 24);
        let mut prefix = Prefix::new([2; 6], [4; 6], &[], Some((Tunnel::Ip, near, far)), false);
        for level in 0..depth {
            let tunnel = match self.random.below(5) {
                0 => Tunnel::Gre,
                1 => Tunnel::Vxlan(level as u32),
                2 => Tunnel::Geneve(level as u32),
                3 => Tunnel::Gtp(level as u32),
                _ => Tunnel::Ip,
            };
            prefix.tunnel(tunnel, near, far, 0x0800);
        }
        target.forth.prefix = prefix;
        for step in 0..4 {
            target.data(output, self.at + step * 50_000, 1, b"deep")?;
        }
        Ok(())
    }

    fn extension_chain<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let target = self.any_target(true);
        let count = self.random.between(1, 40) as usize;
        let kinds = [60u8, 43, 60, 135, 60, 139];
        let mut chain = Vec::new();
        for index in 0..count {
            let next = if index + 1 == count {
                UDP
            } else {
                kinds[(index + 1) % kinds.len()]
            };
            // Padding options only; a routing header without segments left.
            let fifth = if index % kinds.len() == 1 { 0 } else { 4 };
            chain.extend([next, 0, 1, fifth, 0, 0, 0, 0]);
        }
        if self.random.chance(0.2) {
            // The last header claims to be longer than the packet.
            chain[count * 8 - 7] = 200;
        }
        chain.extend([0x13, 0x88, 0, 53, 0, 12, 0, 0]);
        chain.extend(b"tail");
        let parts = (&chain[..], &[][..]);
        for step in 0..4 {
            output.put_built(self.at + step * 40_000, |frame| {
                let path = &target.forth;
                path.build(frame, kinds[0], 0, Part::Whole, parts);
            })?;
        }
        Ok(())
    }

    fn malformed<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        let ipv6 = self.random.chance(0.3);
        let target = self.any_target(ipv6);
        let data_offset = if ipv6 { 66 } else { 46 };
        for step in 0..8 {
            let random = &mut self.random;
            output.put_built(self.at + step * 30_000, |frame| {
                target.segment(frame, ACK, 1, &[b'm'; 30]);
                let last = frame.len() as u64;
                match step {
                    0 => frame.truncate(random.between(1, last - 1) as usize),
                    1 => frame[14] = (frame[14] & 0x0f) | 0x70,
                    2 => frame[14] &= 0xf0,
                    3 => put16(frame, 16, 0xffff),
                    4 => put16(frame, 16, 3),
                    5 => frame[data_offset] = 0x10,
                    6 => frame[data_offset] = 0xf0,
                    _ => {
                        let at = 14 + random.below(last - 14) as usize;
                        frame[at] ^= 1 << random.below(8);
                    }
                }
            })?;
        }
        Ok(())
    }

    fn odd_flags<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<()> {
        for (step, flags) in [0u8, 0xff, FIN | PSH | 0x20, SYN | FIN, SYN | RST]
            .into_iter()
            .enumerate()
        {
            let mut target = self.any_target(false);
            match step {
                3 => {
                    target.forth.source = target.forth.destination;
                    target.ports.0 = target.ports.1;
                }
                4 => target.ports = (0, 0),
                _ => {}
            }
            let at = self.at + step as u64 * 70_000;
            target.send(output, at, flags, 7, b"odd")?;
        }
        Ok(())
    }

    /// A connection after its handshake.
    fn connect<W: Write>(&mut self, output: &mut Output<W>) -> io::Result<Target> {
        let target = self.any_target(false);
        let (at, isn) = (self.at, target.isn);
        target.send(output, at, SYN, isn, &[])?;
        target.answer(output, at + 1_000_000, SYN | ACK)?;
        let next = isn.wrapping_add(1);
        target.send(output, at + 2_000_000, ACK, next, &[])?;
        Ok(target)
    }

    fn any_target(&mut self, ipv6: bool) -> Target {
        let host = self.random.below(250) as u8 + 1;
        let source: IpAddr = if ipv6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, u16::from(host)).into()
        } else {
            Ipv4Addr::new(203, 0, 113, host).into()
        };
        self.target(source, 8_080)
    }

    fn target(&mut self, source: IpAddr, port: u16) -> Target {
        self.flows += 1;
        let destination: IpAddr = match source {
            IpAddr::V4(_) => Ipv4Addr::new(198, 19, 254, 1 + self.random.below(8) as u8).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0x443, 0, 0, 0, 2, 1).into(),
        };
        let (near, far) = (
            [0, 0x1b, 0x21, 0x3c, 0x9d, 9],
            [0, 0x25, 0x90, 0x5a, 0x11, 1],
        );
        let path = |from: IpAddr, to: IpAddr, macs: ([u8; 6], [u8; 6])| Path {
            prefix: Prefix::new(macs.0, macs.1, &[], None, from.is_ipv6()),
            source: from,
            destination: to,
            ttl: 49,
            tagged: false,
        };
        let isn = mix(self.flows ^ u64::from(self.scramble)) as u32;
        Target {
            forth: path(source, destination, (near, far)),
            back: path(destination, source, (far, near)),
            // Numbered, so that episodes are flows of their own.
            ports: ((1_024 + self.flows % 64_000) as u16, port),
            isn,
            peer_isn: isn.rotate_left(7),
        }
    }
}

impl Target {
    fn segment(&self, frame: &mut Vec<u8>, flags: u8, seq: u32, payload: &[u8]) {
        let ack = if flags & ACK != 0 {
            self.peer_isn.wrapping_add(1)
        } else {
            0
        };
        let header = header(self.ports, (seq, ack), flags, &self.forth, payload);
        self.forth
            .build(frame, TCP, seq, Part::Whole, (&header, payload));
    }

    fn send<W: Write>(
        &self,
        output: &mut Output<W>,
        at: u64,
        flags: u8,
        seq: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        output.put_built(at, |frame| self.segment(frame, flags, seq, payload))
    }

    fn data<W: Write>(
        &self,
        output: &mut Output<W>,
        at: u64,
        seq: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        self.send(output, at, ACK | PSH, seq, payload)
    }

    fn answer<W: Write>(&self, output: &mut Output<W>, at: u64, flags: u8) -> io::Result<()> {
        let numbers = (self.peer_isn, self.isn.wrapping_add(1));
        let ports = (self.ports.1, self.ports.0);
        let header = header(ports, numbers, flags, &self.back, &[]);
        let parts = (&header[..], &[][..]);
        output.put_built(at, |frame| {
            let path = &self.back;
            path.build(frame, TCP, self.isn, Part::Whole, parts);
        })
    }
}

/// A TCP header without options.
fn header(
    ports: (u16, u16),
    (seq, ack): (u32, u32),
    flags: u8,
    path: &Path,
    payload: &[u8],
) -> [u8; 20] {
    let mut header = [0; 20];
    header[..2].copy_from_slice(&ports.0.to_be_bytes());
    header[2..4].copy_from_slice(&ports.1.to_be_bytes());
    header[4..8].copy_from_slice(&seq.to_be_bytes());
    header[8..12].copy_from_slice(&ack.to_be_bytes());
    header[12] = 0x50;
    header[13] = flags;
    header[14..16].copy_from_slice(&0xffffu16.to_be_bytes());
    let total = path.pseudo_sum(TCP, 20 + payload.len()) + sum(&header) + sum(payload);
    header[16..18].copy_from_slice(&finish(total).to_be_bytes());
    header
}
