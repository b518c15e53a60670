//! Packet records.

use flowgauge_wire::{
    DecodeFlags, Decoded, FragmentInfo, PacketDescriptor, Problem, Tunnel, fragment_info,
};

use crate::flow::TunnelRow;
use crate::link::EthernetHeader;
use crate::schema::{FieldVisitor, Record, Schema, fields};
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
    ether_type Text None "" 0 "what the Ethernet frame carries: ipv4, ipv6, arp, ... or its number";
    arp Text None "" 0 "ARP request or reply, as tcpdump words it";
    vlan List None "VLAN" 8 "VLAN ids, outermost first";
    src_ip Address None "SOURCE" 1 "source address";
    src_port Unsigned None "PORT" 2 "source port; for ICMP the type";
    dst_ip Address None "DESTINATION" 1 "destination address";
    dst_port Unsigned None "PORT" 2 "destination port; for ICMP the code or the answer's type";
    proto Text None "PROTO" 1 "tcp, udp, icmp or the IP protocol's number; null without IP";
    tcp_flags Text None "FLAGS" 3 "TCP flags in the order SAPFRUEC";
    seq Unsigned None "SEQ" 5 "TCP sequence number";
    ack Unsigned None "ACK" 5 "TCP acknowledgement number";
    window Unsigned None "WIN" 6 "TCP window, unscaled";
    payload_bytes Unsigned None "PAYLOAD" 3 "transport payload by the headers";
    ttl Unsigned None "" 0 "time to live or hop limit";
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
    /// Its captured bytes.
    pub frame: &'a [u8],
    /// Its captured bytes in hexadecimal, where asked for.
    pub bytes: Option<&'a str>,
}

impl<'a> PacketRow<'a> {
    /// Its Ethernet header, if it has one.
    pub fn ethernet(&self) -> Option<EthernetHeader<'a>> {
        EthernetHeader::parse(self.packet.link, self.frame)
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
        self.visit_network(visitor);
        self.visit_transport(visitor);
        if decoded.has_ip() {
            visitor.unsigned(&PACKET.payload_bytes, u64::from(decoded.payload_len));
            visitor.unsigned(&PACKET.ttl, u64::from(decoded.ttl));
        } else {
            visitor.null(&PACKET.payload_bytes);
            visitor.null(&PACKET.ttl);
        }
        if decoded.flags.contains(DecodeFlags::FRAGMENT) {
            visitor.symbol(&PACKET.fragment, b"fragment");
        } else {
            visitor.null(&PACKET.fragment);
        }
        match self.fragment() {
            Some(info) => {
                visitor.unsigned(&PACKET.fragment_id, u64::from(info.id));
                visitor.unsigned(&PACKET.fragment_offset, u64::from(info.offset));
            }
            None => {
                visitor.null(&PACKET.fragment_id);
                visitor.null(&PACKET.fragment_offset);
            }
        }
        visitor.object(
            &PACKET.tunnel,
            self.tunnel.map(|tunnel| TunnelRow(*tunnel)).as_ref(),
        );
        match self.note() {
            Some(note) => visitor.symbol(&PACKET.note, note.as_bytes()),
            None => visitor.null(&PACKET.note),
        }
        if let Some(bytes) = self.bytes {
            visitor.symbol(&PACKET.bytes, bytes.as_bytes());
        }
    }
}

impl PacketRow<'_> {
    fn visit_link<V: FieldVisitor>(&self, visitor: &mut V) {
        let Some(header) = self.ethernet() else {
            visitor.null(&PACKET.src_mac);
            visitor.null(&PACKET.dst_mac);
            visitor.null(&PACKET.ether_type);
            return visitor.null(&PACKET.arp);
        };
        visitor.text(&PACKET.src_mac, &header.source.to_string());
        visitor.text(&PACKET.dst_mac, &header.destination.to_string());
        visitor.text(&PACKET.ether_type, &header.ether_type_name());
        match header.arp() {
            Some(text) => visitor.text(&PACKET.arp, &text),
            None => visitor.null(&PACKET.arp),
        }
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
        let has_ports = decoded.flags.contains(DecodeFlags::TRANSPORT);
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
            return visitor.null(&PACKET.window);
        }
        visitor.symbol(
            &PACKET.tcp_flags,
            tcp_flag_letters(decoded.tcp_flags).as_bytes(),
        );
        visitor.unsigned(&PACKET.seq, u64::from(decoded.seq));
        visitor.unsigned(&PACKET.ack, u64::from(decoded.ack));
        visitor.unsigned(&PACKET.window, u64::from(decoded.window));
    }
}
