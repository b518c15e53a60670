//! Packet records.

use core::fmt::Write as _;

use flowgauge_wire::checksum::ChecksumVerdict;
use flowgauge_wire::{
    DecodeFlags, Decoded, FragmentInfo, PacketDescriptor, Problem, TcpOption, TcpOptions, Tunnel,
    fragment_info,
};

use crate::any::KnownRecord;
use crate::flow::TunnelRow;
use crate::link::{LinkHeader, MplsLabel};
use crate::schema::{Schema, record};
use crate::text::{protocol_name, tcp_flag_letters};
use crate::value::{Object, Symbol};

record! {
    /// Fields of a [`PacketRow`] with its bytes. What a packet does not have is null.
    PACKET, PACKET_BYTES_SCHEMA for PacketRow<'_> as it, own_schema {
        let (packet, decoded) = (it.packet, it.decoded);
        let link = it.link();
        let vlans = usize::from(decoded.vlan_count).min(decoded.vlan.len());
        let (has_ip, version) = (decoded.has_ip(), decoded.key.version);
        let has_ports = has_ip && it.has_ports();
        let (source, destination) = (decoded.source(), decoded.destination());
        let is_tcp = has_ip && decoded.key.protocol == 6 && decoded.flags.contains(DecodeFlags::TRANSPORT);
        let (ip, fragment) = (it.ip(), it.fragment());
    }:
    number Unsigned "NO" 3 = it.number, "position in the input, from 1";
    time Time "TIME" 1 = packet.time, "capture time";
    interface Text = it.interface, "interface it was captured on";
    length Unsigned Bytes "LENGTH" 2 = packet.wire_len, "bytes on the wire";
    captured Unsigned Bytes = packet.captured_len, "bytes captured";
    src_mac Text = link.and_then(|it| it.source).map(|mac| mac.to_string()), "Ethernet address of the sender";
    dst_mac Text = link.and_then(|it| it.destination).map(|mac| mac.to_string()), "Ethernet address of the receiver";
    way Text = link.and_then(|it| it.way).map(|way| Symbol(way.name())), "for cooked packets: in, broadcast, multicast, other (between other hosts) or out";
    interface_index Unsigned = link.and_then(|it| it.interface_index), "for cooked packets, version 2: number of the interface";
    ether_type Text = link.map(|it| it.ether_type_name()), "payload of the frame: ipv4, ipv6, arp, ... or its number";
    arp Text = link.and_then(|it| it.arp()), "ARP request or reply, as in tcpdump";
    vlan List "VLAN" 8 = &decoded.vlan[..vlans], "VLAN ids, outermost first";
    mpls List = &it.mpls().map(|entry| entry.label).collect::<Vec<u32>>(), "MPLS labels, outermost first";
    src_ip Address "SOURCE" 1 = has_ip.then_some((source.0, version)), "source address";
    src_port Unsigned "PORT" 2 = has_ports.then_some(source.1), "source port; for ICMP the type";
    dst_ip Address "DESTINATION" 1 = has_ip.then_some((destination.0, version)), "destination address";
    dst_port Unsigned "PORT" 2 = has_ports.then_some(destination.1), "destination port; for ICMP the code or the reply's type";
    proto Text "PROTO" 1 = has_ip.then(|| Symbol(protocol_name(decoded.key.protocol))), "tcp, udp, icmp or the IP protocol's number; null without IP";
    tcp_flags Text "FLAGS" 3 = is_tcp.then(|| Symbol(tcp_flag_letters(decoded.tcp_flags))), "TCP flags in the order SAPFRUEC";
    seq Unsigned "SEQ" 5 = is_tcp.then_some(decoded.seq), "TCP sequence number";
    ack Unsigned "ACK" 5 = is_tcp.then_some(decoded.ack), "TCP acknowledgement number";
    window Unsigned "WIN" 6 = is_tcp.then_some(decoded.window), "TCP window, unscaled";
    tcp_options Text = is_tcp.then(|| it.tcp_options()), "TCP options, as in tcpdump";
    checksum Text = verdict(it.checksum).map(Symbol), "transport checksum: good, bad, or null if unknown";
    payload_bytes Unsigned "PAYLOAD" 3 = has_ip.then_some(decoded.payload_len), "transport payload by the headers";
    ttl Unsigned = has_ip.then_some(decoded.ttl), "time to live or hop limit";
    tos Unsigned = ip.map(|ip| ip.tos), "type of service or traffic class: DSCP and ECN";
    ip_id Unsigned = ip.and_then(|ip| ip.id), "identification of an IPv4 datagram";
    ip_flags Text = ip.and_then(|ip| ip.flags()).map(Symbol), "DF (not to be fragmented), MF (more fragments) or both, with a plus sign";
    ip_length Unsigned Bytes = has_ip.then_some(decoded.ip_len), "length of the IP datagram by its header";
    fragment Text = decoded.flags.contains(DecodeFlags::FRAGMENT).then_some(Symbol("fragment")), "fragment, or null";
    fragment_id Unsigned = fragment.map(|it| it.id), "identification of the fragmented datagram";
    fragment_offset Unsigned Bytes = fragment.map(|it| it.offset), "offset of the fragment in the datagram";
    tunnel Object = Object(it.tunnel.map(|tunnel| TunnelRow(*tunnel))), "the innermost tunnel: kind, src_ip, dst_ip, id, depth";
    note Text "NOTE" 4 = it.note().map(Symbol), "anomaly or special property of the packet, or null";
    bytes Text = it.bytes.map(Symbol), "the captured bytes in hexadecimal (with -X)" if it.bytes.is_some();
}

/// Fields of a [`PacketRow`] without its bytes.
pub static PACKET_SCHEMA: Schema = PACKET_BYTES_SCHEMA
    .split_at(PACKET_BYTES_SCHEMA.len() - 1)
    .0;

/// Details of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpDetails {
    /// Type of service or traffic class: six bits DSCP, two ECN.
    pub tos: u8,
    /// Identification (IPv4).
    pub id: Option<u16>,
    /// The DF flag (IPv4).
    pub dont_fragment: bool,
    /// The MF flag (IPv4).
    pub more_fragments: bool,
    /// Flow label (IPv6).
    pub flow_label: Option<u32>,
    /// Whether there are options (IPv4).
    pub options: bool,
}

impl IpDetails {
    /// `DF`, `MF`, `DF+MF`, or `None`.
    pub const fn flags(&self) -> Option<&'static str> {
        match (self.dont_fragment, self.more_fragments) {
            (false, false) => None,
            (true, false) => Some("DF"),
            (false, true) => Some("MF"),
            (true, true) => Some("DF+MF"),
        }
    }
}

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow<'a> {
    /// Position in the input, from 1.
    pub number: u64,
    /// Its descriptor.
    pub packet: &'a PacketDescriptor,
    /// Name of its interface.
    pub interface: Option<&'a str>,
    /// Its decoded headers.
    pub decoded: &'a Decoded,
    /// The innermost tunnel around it.
    pub tunnel: Option<&'a Tunnel>,
    /// The verdict on its transport checksum.
    pub checksum: ChecksumVerdict,
    /// Its captured bytes.
    pub frame: &'a [u8],
    /// Its captured bytes in hexadecimal, if requested.
    pub bytes: Option<&'a str>,
}

impl<'a> PacketRow<'a> {
    /// Whether its ports are known; fragments have those of the first one, if it has them.
    pub fn has_ports(&self) -> bool {
        let flags = self.decoded.flags;
        let is_known = self.decoded.source().1 != 0 || self.decoded.destination().1 != 0;
        flags.contains(DecodeFlags::TRANSPORT)
            || (flags.contains(DecodeFlags::FRAGMENT) && is_known)
    }

    /// Its link-layer header, if of a known type.
    pub fn link(&self) -> Option<LinkHeader<'a>> {
        LinkHeader::parse(self.packet.link, self.frame)
    }

    /// MPLS labels after its link-layer header.
    pub fn mpls(&self) -> impl Iterator<Item = MplsLabel> + use<'a> {
        self.link().into_iter().flat_map(|header| header.mpls())
    }

    /// Details of its innermost IP header, other than addresses and lengths, if captured.
    pub fn ip(&self) -> Option<IpDetails> {
        let header = self
            .frame
            .get(usize::from(self.decoded.ip_offset)..)
            .filter(|_| self.decoded.has_ip())?;
        if self.decoded.key.version == 6 {
            let first = u32::from_be_bytes(*header.first_chunk()?);
            return Some(IpDetails {
                tos: (first >> 20) as u8,
                flow_label: Some(first & 0xf_ffff),
                ..IpDetails::default()
            });
        }
        let header = header.first_chunk::<12>()?;
        Some(IpDetails {
            tos: header[1],
            id: Some(u16::from_be_bytes([header[4], header[5]])),
            dont_fragment: header[6] & 0x40 != 0,
            more_fragments: header[6] & 0x20 != 0,
            flow_label: None,
            options: header[0] & 0x0f > 5,
        })
    }

    /// The checksum in its transport header.
    pub fn transport_checksum(&self) -> Option<u16> {
        let decoded = self.decoded;
        if !decoded.flags.contains(DecodeFlags::TRANSPORT) {
            return None;
        }
        let at = match decoded.key.protocol {
            1 | 58 => 2,
            6 => 16,
            17 => 6,
            _ => return None,
        };
        let start = usize::from(decoded.transport_offset) + at;
        let bytes = self.frame.get(start..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    /// Its TCP options in tcpdump's format, without padding; empty if there are none.
    pub fn tcp_options(&self) -> String {
        let mut text = String::new();
        for option in TcpOptions::of(self.frame, self.decoded) {
            if !text.is_empty() {
                text.push(',');
            }
            // Writing to a string cannot fail.
            let _ = match option {
                TcpOption::MaximumSegmentSize(bytes) => write!(text, "mss {bytes}"),
                TcpOption::WindowScale(shift) => write!(text, "wscale {shift}"),
                TcpOption::SackPermitted => write!(text, "sackOK"),
                TcpOption::Sack(blocks) => {
                    let _ = write!(text, "sack {} ", blocks.iter().count());
                    blocks
                        .iter()
                        .try_for_each(|(left, right)| write!(text, "{{{left}:{right}}}"))
                }
                TcpOption::Timestamps(value, echo) => write!(text, "TS val {value} ecr {echo}"),
                TcpOption::Other(kind, data) => {
                    let _ = write!(text, "unknown-{kind}");
                    data.iter().enumerate().try_for_each(|(n, byte)| {
                        let prefix = if n == 0 { " 0x" } else { "" };
                        write!(text, "{prefix}{byte:02x}")
                    })
                }
                _ => Ok(()),
            };
        }
        text
    }

    /// The contents of its fragment header, if it is a fragment.
    pub fn fragment(&self) -> Option<FragmentInfo> {
        if !self.decoded.flags.contains(DecodeFlags::FRAGMENT) {
            return None;
        }
        fragment_info(self.frame, usize::from(self.decoded.ip_offset))
    }

    /// Its error or peculiarity.
    pub fn note(&self) -> Option<&'static str> {
        let flags = self.decoded.flags;
        if self.decoded.problem != Problem::None {
            return Some(problem_text(self.decoded.problem));
        }
        if flags.contains(DecodeFlags::BAD_IP_CHECKSUM) {
            return Some("bad IP checksum");
        }
        if flags.contains(DecodeFlags::BAD_CHECKSUM) {
            return Some("bad checksum");
        }
        if flags.contains(DecodeFlags::CUT) {
            return Some("cut by the snap length");
        }
        None
    }
}

/// A [`Problem`] in words.
pub const fn problem_text(problem: Problem) -> &'static str {
    match problem {
        Problem::None => "none",
        Problem::UnknownLink => "unknown link type",
        Problem::NotIp => "not IP",
        Problem::CutHeader => "header cut by the snap length",
        Problem::ShortHeader => "frame ends inside a header",
        Problem::BadIpHeader => "bad IP header",
        Problem::BadExtension => "bad IPv6 extension header",
        Problem::BadTransport => "bad transport header",
        Problem::TooDeep => "too many tunnels",
        _ => "not decoded",
    }
}

impl KnownRecord for PacketRow<'_> {
    fn schema(&self) -> Schema {
        match self.bytes {
            Some(_) => PACKET_BYTES_SCHEMA,
            None => PACKET_SCHEMA,
        }
    }
}

/// What a checksum says, where it says something.
const fn verdict(verdict: ChecksumVerdict) -> Option<&'static str> {
    match verdict {
        ChecksumVerdict::Good => Some("good"),
        ChecksumVerdict::Bad => Some("bad"),
        ChecksumVerdict::Unknown => None,
    }
}
