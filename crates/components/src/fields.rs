//! The fields of packets by name, as Wireshark calls them: what `protocol_field` and
//! `display_filter` know.
//!
//! Fields are those of the innermost IP datagram and its transport, as far as the headers were
//! captured; the outer addresses of a tunnel are `tunnel.src` and `tunnel.dst`. A fragment has no
//! fields of the transport.

use flowgauge_record::link::LinkHeader;
use flowgauge_stack::Packets;
use flowgauge_wire::{
    DecodeFlags, Decoded, LinkType, PacketDescriptor, TcpOption, TcpOptions, Tunnel,
};

use crate::layers;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number.
    Number,
    /// 0 or 1.
    Flag,
    /// A point in time, seconds since 1970.
    Time,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A hardware address.
    Mac,
    /// Bytes.
    Bytes,
    /// A protocol: its bytes, from its header to the end of what was captured of it.
    Protocol,
}

/// A value of a field, and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value<'a> {
    /// Of numbers, flags, times (in nanoseconds) and IP addresses.
    Number(u128),
    /// Of hardware addresses, bytes and protocols.
    Bytes(&'a [u8]),
}

/// The values of a field in a packet: some fields occur several times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    values: [Value<'a>; MAX_VALUES],
    count: usize,
}

/// Values of one field that are looked at.
const MAX_VALUES: usize = 4;

impl<'a> Found<'a> {
    fn new() -> Found<'a> {
        Found {
            values: [Value::Number(0); MAX_VALUES],
            count: 0,
        }
    }

    /// A value that is written.
    pub(crate) fn one(value: Value<'a>) -> Found<'a> {
        let mut found = Found::new();
        Some(value).read(&mut found);
        found
    }

    /// The values, in the order of the packet.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'_, 'a> {
        self.values.iter().take(self.count).copied()
    }
}

/// A packet of which fields are read.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    packets: &'a Packets<'a>,
    decoded: &'a Decoded,
    descriptor: Option<&'a PacketDescriptor>,
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(crate) fn new(packets: &'a Packets<'a>, decoded: &'a Decoded) -> Packet<'a> {
        let is_whole = decoded.flags.contains(DecodeFlags::REASSEMBLED);
        let descriptor = packets.batch.packets.get(usize::from(decoded.index));
        Packet {
            packets,
            decoded,
            // A datagram that was put together has no link layer.
            descriptor: descriptor.filter(|_| !is_whole),
            bytes: packets.bytes(decoded),
        }
    }

    fn link(&self) -> Option<LinkHeader<'a>> {
        LinkHeader::parse(self.descriptor?.link, self.bytes)
    }

    fn ethernet(&self) -> &'a [u8] {
        match self.descriptor {
            Some(descriptor) if descriptor.link == LinkType::ETHERNET => self.bytes,
            _ => &[],
        }
    }

    fn mac(&self, at: usize) -> Option<Value<'a>> {
        self.ethernet().get(at..at + 6).map(Value::Bytes)
    }

    /// What follows the link-layer header of a frame of this type.
    fn carried(&self, ether_type: u16) -> &'a [u8] {
        let header = self.link().filter(|header| header.ether_type == ether_type);
        header.map_or(&[], |header| header.payload)
    }

    /// The IP datagram of this version.
    fn ip(&self, version: u8) -> &'a [u8] {
        if self.decoded.key.version != version {
            return &[];
        }
        layers::datagram(self.packets, self.decoded)
    }

    /// The transport of this protocol.
    fn transport(&self, protocol: u8) -> &'a [u8] {
        if self.decoded.key.protocol != protocol
            || self.decoded.flags.contains(DecodeFlags::FRAGMENT)
        {
            return &[];
        }
        layers::transport(self.packets, self.decoded)
    }

    fn payload(&self, protocol: u8) -> &'a [u8] {
        if self.transport(protocol).is_empty() {
            return &[];
        }
        layers::payload(self.packets, self.decoded)
    }

    /// What is carried by the transport, by its header.
    fn payload_len(&self, protocol: u8) -> Option<u32> {
        let is_there = self.transport(protocol).len() >= 20;
        is_there.then_some(self.decoded.payload_len)
    }

    /// What options of TCP tell.
    fn option<V>(
        &self,
        read: impl FnMut(TcpOption<'a>) -> Option<V>,
    ) -> Each<impl Iterator<Item = V>> {
        Each(TcpOptions::of(self.bytes, self.decoded).filter_map(read))
    }

    fn tunnel(&self) -> Option<&'a Tunnel> {
        self.packets.decoded.tunnel(self.decoded)
    }
}

fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

fn ipv4<'a>(bytes: &'a [u8], at: usize) -> Option<Value<'a>> {
    long(bytes, at).map(Value::from)
}

fn ipv6<'a>(bytes: &'a [u8], at: usize) -> Option<Value<'a>> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(Value::Number(u128::from_be_bytes(*bytes)))
}

/// A bit of a byte.
fn bit(bytes: &[u8], at: usize, mask: u8) -> Option<u64> {
    byte(bytes, at).map(|byte| u64::from(byte & mask != 0))
}

/// A field that packets can have.
pub(crate) struct Field {
    /// As Wireshark calls it.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
    read: for<'a> fn(&Packet<'a>, &mut Found<'a>),
}

impl core::fmt::Debug for Field {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl Field {
    /// The field of a name, whatever its case.
    pub(crate) fn find(name: &str) -> Option<&'static Field> {
        FIELDS
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// Names that look like this one, or begin so.
    pub(crate) fn near(name: &str) -> Vec<&'static str> {
        let mut found = flowgauge_record::words::near(name, FIELDS.iter().map(|field| field.name));
        if found.is_empty() {
            let protocol = name.split('.').next().unwrap_or(name);
            let of_protocol = FIELDS.iter().map(|field| field.name).filter(|field| {
                field
                    .strip_prefix(protocol)
                    .is_some_and(|rest| rest.starts_with('.'))
            });
            found = of_protocol.take(3).collect();
        }
        found
    }

    /// Its values in a packet.
    pub(crate) fn of<'a>(&self, packet: &Packet<'a>) -> Found<'a> {
        let mut found = Found::new();
        (self.read)(packet, &mut found);
        found
    }
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const ARP: u16 = 0x0806;

/// What is read of a packet: one value, bytes that are there if they are not empty, or several values.
trait Read<'a> {
    fn read(self, found: &mut Found<'a>);
}

impl<'a, V: Into<Value<'a>>> Read<'a> for Option<V> {
    fn read(self, found: &mut Found<'a>) {
        if let (Some(value), Some(slot)) = (self, found.values.get_mut(found.count)) {
            *slot = value.into();
            found.count += 1;
        }
    }
}

impl<'a> Read<'a> for &'a [u8] {
    fn read(self, found: &mut Found<'a>) {
        Some(Value::Bytes(self))
            .filter(|_| !self.is_empty())
            .read(found);
    }
}

/// Of a field that occurs several times.
struct Each<I>(I);

impl<'a, I: Iterator<Item: Into<Value<'a>>>> Read<'a> for Each<I> {
    fn read(self, found: &mut Found<'a>) {
        self.0.for_each(|value| Some(value).read(found));
    }
}

macro_rules! numbers {
    ($($type:ty)*) => { $(
        impl From<$type> for Value<'_> {
            fn from(number: $type) -> Self {
                Value::Number(number.into())
            }
        }
    )* };
}
numbers!(u8 u16 u32 u64);

/// Declares the fields: name, kind, and what is read of a packet.
macro_rules! fields {
    ($packet:ident: $($name:literal $kind:ident $($value:expr),+;)*) => {
        /// All fields.
        pub(crate) static FIELDS: &[Field] = &[$(Field {
            name: $name,
            kind: Kind::$kind,
            read: |$packet, found| { $(Read::read($value, found);)+ },
        }),*];
    };
}

fields! {
    p:
    "frame" Protocol p.bytes;
    "frame.len" Number Some(p.decoded.wire_len);
    "frame.cap_len" Number Some(p.bytes.len() as u64);
    "frame.time_epoch" Time Some(p.decoded.time.0);
    "frame.interface_id" Number p.descriptor.map(|descriptor| descriptor.interface);
    "eth" Protocol p.ethernet();
    "eth.dst" Mac p.mac(0);
    "eth.src" Mac p.mac(6);
    "eth.addr" Mac p.mac(0), p.mac(6);
    "eth.type" Number short(p.ethernet(), 12).filter(|value| *value >= 1536);
    "vlan.id" Number Each(p.decoded.vlan.iter().copied().take(p.decoded.vlan_count.into()));
    "mpls.label" Number Each(p.link().into_iter().flat_map(|link| link.mpls()).map(|entry| entry.label));
    "arp" Protocol p.carried(ARP);
    "arp.opcode" Number short(p.carried(ARP), 6);
    "arp.src.hw_mac" Mac p.carried(ARP).get(8..14).map(Value::Bytes);
    "arp.src.proto_ipv4" Ipv4 ipv4(p.carried(ARP), 14);
    "arp.dst.hw_mac" Mac p.carried(ARP).get(18..24).map(Value::Bytes);
    "arp.dst.proto_ipv4" Ipv4 ipv4(p.carried(ARP), 24);
    "ip" Protocol p.ip(4);
    "ip.version" Number byte(p.ip(4), 0).map(|byte| byte >> 4);
    "ip.hdr_len" Number byte(p.ip(4), 0).map(|byte| (byte & 15) * 4);
    "ip.dsfield" Number byte(p.ip(4), 1);
    "ip.dsfield.dscp" Number byte(p.ip(4), 1).map(|byte| byte >> 2);
    "ip.dsfield.ecn" Number byte(p.ip(4), 1).map(|byte| byte & 3);
    "ip.len" Number short(p.ip(4), 2);
    "ip.id" Number short(p.ip(4), 4);
    "ip.flags.df" Flag bit(p.ip(4), 6, 0x40);
    "ip.flags.mf" Flag bit(p.ip(4), 6, 0x20);
    "ip.frag_offset" Number short(p.ip(4), 6).map(|value| u32::from(value & 0x1fff) * 8);
    "ip.ttl" Number byte(p.ip(4), 8);
    "ip.proto" Number byte(p.ip(4), 9);
    "ip.checksum" Number short(p.ip(4), 10);
    "ip.src" Ipv4 ipv4(p.ip(4), 12);
    "ip.dst" Ipv4 ipv4(p.ip(4), 16);
    "ip.addr" Ipv4 ipv4(p.ip(4), 12), ipv4(p.ip(4), 16);
    "ipv6" Protocol p.ip(6);
    "ipv6.version" Number byte(p.ip(6), 0).map(|byte| byte >> 4);
    "ipv6.tclass" Number short(p.ip(6), 0).map(|value| value >> 4 & 0xff);
    "ipv6.flow" Number long(p.ip(6), 0).map(|value| value & 0xf_ffff);
    "ipv6.plen" Number short(p.ip(6), 4);
    "ipv6.nxt" Number byte(p.ip(6), 6);
    "ipv6.hlim" Number byte(p.ip(6), 7);
    "ipv6.src" Ipv6 ipv6(p.ip(6), 8);
    "ipv6.dst" Ipv6 ipv6(p.ip(6), 24);
    "ipv6.addr" Ipv6 ipv6(p.ip(6), 8), ipv6(p.ip(6), 24);
    "tcp" Protocol p.transport(TCP);
    "tcp.srcport" Number short(p.transport(TCP), 0);
    "tcp.dstport" Number short(p.transport(TCP), 2);
    "tcp.port" Number short(p.transport(TCP), 0), short(p.transport(TCP), 2);
    "tcp.seq_raw" Number long(p.transport(TCP), 4);
    "tcp.ack_raw" Number long(p.transport(TCP), 8);
    "tcp.hdr_len" Number byte(p.transport(TCP), 12).map(|byte| (byte >> 4) * 4);
    "tcp.len" Number p.payload_len(TCP);
    "tcp.flags" Number short(p.transport(TCP), 12).map(|value| value & 0x0fff);
    "tcp.flags.fin" Flag bit(p.transport(TCP), 13, 1);
    "tcp.flags.syn" Flag bit(p.transport(TCP), 13, 2);
    "tcp.flags.reset" Flag bit(p.transport(TCP), 13, 4);
    "tcp.flags.push" Flag bit(p.transport(TCP), 13, 8);
    "tcp.flags.ack" Flag bit(p.transport(TCP), 13, 16);
    "tcp.flags.urg" Flag bit(p.transport(TCP), 13, 32);
    "tcp.flags.ece" Flag bit(p.transport(TCP), 13, 64);
    "tcp.flags.cwr" Flag bit(p.transport(TCP), 13, 128);
    "tcp.window_size_value" Number short(p.transport(TCP), 14);
    "tcp.checksum" Number short(p.transport(TCP), 16);
    "tcp.urgent_pointer" Number short(p.transport(TCP), 18);
    "tcp.options.mss_val" Number
        p.option(|option| match option { TcpOption::MaximumSegmentSize(size) => Some(size), _ => None });
    "tcp.options.wscale.shift" Number
        p.option(|option| match option { TcpOption::WindowScale(shift) => Some(shift), _ => None });
    "tcp.options.timestamp.tsval" Number
        p.option(|option| match option { TcpOption::Timestamps(value, _) => Some(value), _ => None });
    "tcp.options.timestamp.tsecr" Number
        p.option(|option| match option { TcpOption::Timestamps(_, echo) => Some(echo), _ => None });
    "tcp.payload" Bytes p.payload(TCP);
    "udp" Protocol p.transport(UDP);
    "udp.srcport" Number short(p.transport(UDP), 0);
    "udp.dstport" Number short(p.transport(UDP), 2);
    "udp.port" Number short(p.transport(UDP), 0), short(p.transport(UDP), 2);
    "udp.length" Number short(p.transport(UDP), 4);
    "udp.checksum" Number short(p.transport(UDP), 6);
    "udp.payload" Bytes p.payload(UDP);
    "sctp" Protocol p.transport(SCTP);
    "sctp.srcport" Number short(p.transport(SCTP), 0);
    "sctp.dstport" Number short(p.transport(SCTP), 2);
    "sctp.port" Number short(p.transport(SCTP), 0), short(p.transport(SCTP), 2);
    "icmp" Protocol p.transport(ICMP);
    "icmp.type" Number byte(p.transport(ICMP), 0);
    "icmp.code" Number byte(p.transport(ICMP), 1);
    "icmp.checksum" Number short(p.transport(ICMP), 2);
    "icmp.ident" Number echo(p.transport(ICMP), [0, 8], 4);
    "icmp.seq" Number echo(p.transport(ICMP), [0, 8], 6);
    "icmpv6" Protocol p.transport(ICMPV6);
    "icmpv6.type" Number byte(p.transport(ICMPV6), 0);
    "icmpv6.code" Number byte(p.transport(ICMPV6), 1);
    "icmpv6.checksum" Number short(p.transport(ICMPV6), 2);
    "icmpv6.echo.identifier" Number echo(p.transport(ICMPV6), [128, 129], 4);
    "icmpv6.echo.sequence_number" Number echo(p.transport(ICMPV6), [128, 129], 6);
    "tunnel.depth" Number p.tunnel().map(|tunnel| tunnel.depth);
    "tunnel.id" Number p.tunnel().and_then(|tunnel| tunnel.id);
    "tunnel.src" Ipv4 p.tunnel().and_then(|tunnel| ipv4_of(tunnel.version, &tunnel.source.0));
    "tunnel.dst" Ipv4 p.tunnel().and_then(|tunnel| ipv4_of(tunnel.version, &tunnel.destination.0));
}

/// A number in an echo request or reply.
fn echo(message: &[u8], types: [u8; 2], at: usize) -> Option<u16> {
    byte(message, 0).filter(|kind| types.contains(kind))?;
    short(message, at)
}

/// The IPv4 address in its mapped form.
fn ipv4_of<'a>(version: u8, mapped: &'a [u8; 16]) -> Option<Value<'a>> {
    ipv4(mapped, 12).filter(|_| version == 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_their_case_and_likely_ones_are_named() {
        assert_eq!(
            Field::find("TCP.SrcPort").map(|field| field.name),
            Some("tcp.srcport")
        );
        assert!(Field::find("tcp.seq").is_none());
        assert_eq!(Field::near("tcp.scrport"), ["tcp.srcport"]);
        assert_eq!(
            Field::near("icmp.nonsense"),
            ["icmp.type", "icmp.code", "icmp.checksum"]
        );
        assert_eq!(Field::near("http.host"), [""; 0]);
        let mut names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIELDS.len());
    }

    #[test]
    fn all_fields_are_in_the_manual() {
        let manual = include_str!("../../../docs/display-filter.md");
        for field in FIELDS {
            assert!(
                manual.contains(&format!("`{}`", field.name)),
                "{}",
                field.name
            );
        }
    }
}
