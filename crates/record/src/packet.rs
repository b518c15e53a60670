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
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};
use crate::text::{protocol_name, tcp_flag_letters};

fields! {
    /// Fields of a [`PacketRow`] with its bytes. What a packet does not have is null.
    PacketFields, PACKET, PACKET_BYTES_SCHEMA:
    number Unsigned None "NO" 3 "position in the input, from 1";
    time Time None "TIME" 1 "capture time";
    interface Text None "" 0 "interface it was captured on";
    length Unsigned Bytes "LENGTH" 2 "bytes on the wire";
    captured Unsigned Bytes "" 0 "bytes captured";
    src_mac Text None "" 0 "Ethernet address of the sender";
    dst_mac Text None "" 0 "Ethernet address of the receiver";
    way Text None "" 0 "of cooked packets: in, broadcast, multicast, other (between others) or out";
    interface_index Unsigned None "" 0 "of cooked packets, version 2: number of the interface where it was captured";
    ether_type Text None "" 0 "what the frame carries: ipv4, ipv6, arp, ... or its number";
    arp Text None "" 0 "ARP request or reply, as tcpdump words it";
    vlan List None "VLAN" 8 "VLAN ids, outermost first";
    mpls List None "" 0 "MPLS labels, outermost first";
    src_ip Address None "SOURCE" 1 "source address";
    src_port Unsigned None "PORT" 2 "source port; for ICMP the type";
    dst_ip Address None "DESTINATION" 1 "destination address";
    dst_port Unsigned None "PORT" 2 "destination port; for ICMP the code or the answer's type";
    proto Text None "PROTO" 1 "tcp, udp, icmp or the IP protocol's number; null without IP";
    tcp_flags Text None "FLAGS" 3 "TCP flags in the order SAPFRUEC";
    seq Unsigned None "SEQ" 5 "TCP sequence number";
    ack Unsigned None "ACK" 5 "TCP acknowledgement number";
    window Unsigned None "WIN" 6 "TCP window, unscaled";
    tcp_options Text None "" 0 "TCP options, as tcpdump words them";
    checksum Text None "" 0 "transport checksum: good, bad, or null where that cannot be said";
    payload_bytes Unsigned None "PAYLOAD" 3 "transport payload by the headers";
    ttl Unsigned None "" 0 "time to live or hop limit";
    tos Unsigned None "" 0 "type of service or traffic class: DSCP and ECN";
    ip_id Unsigned None "" 0 "identification of an IPv4 datagram";
    ip_flags Text None "" 0 "DF (not to be fragmented), MF (more fragments) or both, with a plus sign";
    ip_length Unsigned Bytes "" 0 "length of the IP datagram by its header";
    fragment Text None "" 0 "fragment, or null";
    fragment_id Unsigned None "" 0 "identification of the fragmented datagram";
    fragment_offset Unsigned Bytes "" 0 "where the fragment belongs in the datagram";
    tunnel Object None "" 0 "the innermost tunnel: kind, src_ip, dst_ip, id, depth";
    note Text None "NOTE" 4 "what is wrong or special with the packet, or null";
    bytes Text None "" 0 "the captured bytes in hexadecimal (with -X)";
}

/// Fields of a [`PacketRow`] without its bytes.
pub static PACKET_SCHEMA: Schema = PACKET_BYTES_SCHEMA
    .split_at(PACKET_BYTES_SCHEMA.len() - 1)
    .0;

/// What an IP header says of its datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpDetails {
    /// Type of service or traffic class: six bits DSCP, two ECN.
    pub tos: u8,
    /// Identification (IPv4).
    pub id: Option<u16>,
    /// Must not be fragmented (IPv4).
    pub dont_fragment: bool,
    /// More fragments follow (IPv4).
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
    /// What the source said of it.
    pub packet: &'a PacketDescriptor,
    /// Name of its interface.
    pub interface: Option<&'a str>,
    /// What decoding found.
    pub decoded: &'a Decoded,
    /// The innermost tunnel around it.
    pub tunnel: Option<&'a Tunnel>,
    /// What its transport checksum says.
    pub checksum: ChecksumVerdict,
    /// Its captured bytes.
    pub frame: &'a [u8],
    /// Its captured bytes in hexadecimal, where asked for.
    pub bytes: Option<&'a str>,
}

impl<'a> PacketRow<'a> {
    /// Whether its ports are known: of a fragment those of the first one, which has them.
    pub fn has_ports(&self) -> bool {
        let flags = self.decoded.flags;
        let is_known = self.decoded.source().1 != 0 || self.decoded.destination().1 != 0;
        flags.contains(DecodeFlags::TRANSPORT)
            || (flags.contains(DecodeFlags::FRAGMENT) && is_known)
    }

    /// Its link-layer header, if it has one that is known.
    pub fn link(&self) -> Option<LinkHeader<'a>> {
        LinkHeader::parse(self.packet.link, self.frame)
    }

    /// MPLS labels behind its link-layer header.
    pub fn mpls(&self) -> impl Iterator<Item = MplsLabel> + use<'a> {
        self.link().into_iter().flat_map(|header| header.mpls())
    }

    /// What its innermost IP header says beside addresses and lengths, if it was captured.
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

    /// The checksum that its transport header has.
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

    /// Its TCP options in tcpdump's words, without padding; empty where there are none.
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

    /// What its fragment header says, if it is a fragment.
    pub fn fragment(&self) -> Option<FragmentInfo> {
        if !self.decoded.flags.contains(DecodeFlags::FRAGMENT) {
            return None;
        }
        fragment_info(self.frame, usize::from(self.decoded.ip_offset))
    }

    /// What is wrong or special with it.
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

/// What a [`Problem`] means, for people.
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

impl Record for PacketRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let (packet, decoded) = (self.packet, self.decoded);
        visitor.unsigned(&PACKET.number, self.number);
        visitor.time(&PACKET.time, packet.time);
        match self.interface {
            Some(name) => visitor.text(&PACKET.interface, name),
            None => visitor.null(&PACKET.interface),
        }
        visitor.unsigned(&PACKET.length, u64::from(packet.wire_len));
        visitor.unsigned(&PACKET.captured, u64::from(packet.captured_len));
        self.visit_link(visitor);
        let vlans = usize::from(decoded.vlan_count).min(decoded.vlan.len());
        visitor.list(&PACKET.vlan, &decoded.vlan[..vlans]);
        let labels: Vec<u32> = self.mpls().map(|entry| entry.label).collect();
        visitor.list(&PACKET.mpls, &labels);
        self.visit_network(visitor);
        self.visit_transport(visitor);
        let verdict = match self.checksum {
            ChecksumVerdict::Good => Some("good"),
            ChecksumVerdict::Bad => Some("bad"),
            ChecksumVerdict::Unknown => None,
        };
        symbol_or_null(visitor, &PACKET.checksum, verdict);
        let of_ip = |value: u32| decoded.has_ip().then_some(u64::from(value));
        unsigned_or_null(visitor, &PACKET.payload_bytes, of_ip(decoded.payload_len));
        unsigned_or_null(visitor, &PACKET.ttl, of_ip(decoded.ttl.into()));
        let ip = self.ip();
        unsigned_or_null(visitor, &PACKET.tos, ip.map(|ip| ip.tos.into()));
        let id = ip.and_then(|ip| ip.id);
        unsigned_or_null(visitor, &PACKET.ip_id, id.map(u64::from));
        symbol_or_null(visitor, &PACKET.ip_flags, ip.and_then(|ip| ip.flags()));
        unsigned_or_null(visitor, &PACKET.ip_length, of_ip(decoded.ip_len));
        let is_fragment = decoded.flags.contains(DecodeFlags::FRAGMENT);
        symbol_or_null(visitor, &PACKET.fragment, is_fragment.then_some("fragment"));
        let info = self.fragment();
        let id = info.map(|info| info.id.into());
        unsigned_or_null(visitor, &PACKET.fragment_id, id);
        let offset = info.map(|info| info.offset.into());
        unsigned_or_null(visitor, &PACKET.fragment_offset, offset);
        visitor.object(
            &PACKET.tunnel,
            self.tunnel.map(|tunnel| TunnelRow(*tunnel)).as_ref(),
        );
        symbol_or_null(visitor, &PACKET.note, self.note());
        if let Some(bytes) = self.bytes {
            visitor.symbol(&PACKET.bytes, bytes.as_bytes());
        }
    }
}

impl PacketRow<'_> {
    fn visit_link<V: FieldVisitor>(&self, visitor: &mut V) {
        let header = self.link();
        let source = header.and_then(|header| header.source);
        text_or_null(visitor, &PACKET.src_mac, source.map(|mac| mac.to_string()));
        let destination = header.and_then(|header| header.destination);
        let text = destination.map(|mac| mac.to_string());
        text_or_null(visitor, &PACKET.dst_mac, text);
        let way = header.and_then(|header| header.way);
        symbol_or_null(visitor, &PACKET.way, way.map(|way| way.name()));
        let index = header.and_then(|header| header.interface_index);
        unsigned_or_null(visitor, &PACKET.interface_index, index.map(u64::from));
        let name = header.map(|header| header.ether_type_name());
        text_or_null(visitor, &PACKET.ether_type, name);
        text_or_null(visitor, &PACKET.arp, header.and_then(|header| header.arp()));
    }

    fn visit_network<V: FieldVisitor>(&self, visitor: &mut V) {
        let decoded = self.decoded;
        if !decoded.has_ip() {
            visitor.null(&PACKET.src_ip);
            visitor.null(&PACKET.src_port);
            visitor.null(&PACKET.dst_ip);
            visitor.null(&PACKET.dst_port);
            return visitor.null(&PACKET.proto);
        }
        let version = decoded.key.version;
        let has_ports = self.has_ports();
        let (source, destination) = (decoded.source(), decoded.destination());
        visitor.address(&PACKET.src_ip, source.0, version);
        if has_ports {
            visitor.unsigned(&PACKET.src_port, u64::from(source.1));
        } else {
            visitor.null(&PACKET.src_port);
        }
        visitor.address(&PACKET.dst_ip, destination.0, version);
        if has_ports {
            visitor.unsigned(&PACKET.dst_port, u64::from(destination.1));
        } else {
            visitor.null(&PACKET.dst_port);
        }
        visitor.symbol(
            &PACKET.proto,
            protocol_name(decoded.key.protocol).as_bytes(),
        );
    }

    fn visit_transport<V: FieldVisitor>(&self, visitor: &mut V) {
        let decoded = self.decoded;
        let is_tcp = decoded.has_ip()
            && decoded.key.protocol == 6
            && decoded.flags.contains(DecodeFlags::TRANSPORT);
        if !is_tcp {
            visitor.null(&PACKET.tcp_flags);
            visitor.null(&PACKET.seq);
            visitor.null(&PACKET.ack);
            visitor.null(&PACKET.window);
            return visitor.null(&PACKET.tcp_options);
        }
        visitor.symbol(
            &PACKET.tcp_flags,
            tcp_flag_letters(decoded.tcp_flags).as_bytes(),
        );
        visitor.unsigned(&PACKET.seq, u64::from(decoded.seq));
        visitor.unsigned(&PACKET.ack, u64::from(decoded.ack));
        visitor.unsigned(&PACKET.window, u64::from(decoded.window));
        visitor.text(&PACKET.tcp_options, &self.tcp_options());
    }
}

fn unsigned_or_null<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<u64>) {
    match value {
        Some(value) => visitor.unsigned(field, value),
        None => visitor.null(field),
    }
}

fn symbol_or_null<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<&str>) {
    match value {
        Some(value) => visitor.symbol(field, value.as_bytes()),
        None => visitor.null(field),
    }
}

fn text_or_null<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<String>) {
    match value {
        Some(value) => visitor.text(field, &value),
        None => visitor.null(field),
    }
}
