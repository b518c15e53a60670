//! The fields of packets by name, as Wireshark calls them: what `protocol_field` and
//! `display_filter` know.
//!
//! Fields are those of the innermost IP datagram and its transport, as far as the headers were
//! captured; the outer addresses of a tunnel are `tunnel.src` and `tunnel.dst`. A fragment has no
//! fields of the transport.

use flowgauge_record::link::LinkHeader;
use flowgauge_stack::Packets;
use flowgauge_wire::{
    DecodeFlags, Decoded, LinkType, Nanos, PacketDescriptor, TcpOption, TcpOptions,
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

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Of numbers and flags.
    Number(u64),
    /// Of times.
    Time(Nanos),
    /// Of IPv4 addresses.
    Ipv4(u32),
    /// Of IPv6 addresses.
    Ipv6(u128),
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
        found.push(Some(value));
        found
    }

    fn push(&mut self, value: Option<Value<'a>>) {
        if let (Some(value), Some(slot)) = (value, self.values.get_mut(self.count)) {
            *slot = value;
            self.count += 1;
        }
    }

    fn number(&mut self, value: Option<impl Into<u64>>) {
        self.push(value.map(|value| Value::Number(value.into())));
    }

    fn bytes(&mut self, value: &'a [u8]) {
        if !value.is_empty() {
            self.push(Some(Value::Bytes(value)));
        }
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

    fn options(&self) -> TcpOptions<'a> {
        TcpOptions::of(self.bytes, self.decoded)
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
    long(bytes, at).map(Value::Ipv4)
}

fn ipv6<'a>(bytes: &'a [u8], at: usize) -> Option<Value<'a>> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(Value::Ipv6(u128::from_be_bytes(*bytes)))
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
        let mut found = flowgauge_stack::near(name, FIELDS.iter().map(|field| field.name));
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

const fn field(
    name: &'static str,
    kind: Kind,
    read: for<'a> fn(&Packet<'a>, &mut Found<'a>),
) -> Field {
    Field { name, kind, read }
}

use Kind::{Bytes, Flag, Ipv4, Ipv6, Mac, Number, Protocol, Time};

/// All fields.
pub(crate) static FIELDS: &[Field] = &[
    field("frame", Protocol, |p, out| out.bytes(p.bytes)),
    field("frame.len", Number, |p, out| {
        out.number(Some(p.decoded.wire_len))
    }),
    field("frame.cap_len", Number, |p, out| {
        out.number(Some(p.bytes.len() as u64))
    }),
    field("frame.time_epoch", Time, |p, out| {
        out.push(Some(Value::Time(p.decoded.time)))
    }),
    field("frame.interface_id", Number, |p, out| {
        out.number(p.descriptor.map(|descriptor| descriptor.interface));
    }),
    field("eth", Protocol, |p, out| out.bytes(p.ethernet())),
    field("eth.dst", Mac, |p, out| out.push(p.mac(0))),
    field("eth.src", Mac, |p, out| out.push(p.mac(6))),
    field("eth.addr", Mac, |p, out| {
        out.push(p.mac(0));
        out.push(p.mac(6));
    }),
    field("eth.type", Number, |p, out| {
        out.number(short(p.ethernet(), 12).filter(|value| *value >= 1536));
    }),
    field("vlan.id", Number, |p, out| {
        let count = usize::from(p.decoded.vlan_count);
        p.decoded
            .vlan
            .iter()
            .take(count)
            .for_each(|id| out.number(Some(*id)));
    }),
    field("mpls.label", Number, |p, out| {
        let labels = p.link().into_iter().flat_map(|link| link.mpls());
        labels.for_each(|entry| out.number(Some(entry.label)));
    }),
    field("arp", Protocol, |p, out| out.bytes(p.carried(ARP))),
    field("arp.opcode", Number, |p, out| {
        out.number(short(p.carried(ARP), 6))
    }),
    field("arp.src.hw_mac", Mac, |p, out| {
        out.push(p.carried(ARP).get(8..14).map(Value::Bytes))
    }),
    field("arp.src.proto_ipv4", Ipv4, |p, out| {
        out.push(ipv4(p.carried(ARP), 14))
    }),
    field("arp.dst.hw_mac", Mac, |p, out| {
        out.push(p.carried(ARP).get(18..24).map(Value::Bytes))
    }),
    field("arp.dst.proto_ipv4", Ipv4, |p, out| {
        out.push(ipv4(p.carried(ARP), 24))
    }),
    field("ip", Protocol, |p, out| out.bytes(p.ip(4))),
    field("ip.version", Number, |p, out| {
        out.number(byte(p.ip(4), 0).map(|byte| byte >> 4))
    }),
    field("ip.hdr_len", Number, |p, out| {
        out.number(byte(p.ip(4), 0).map(|byte| (byte & 15) * 4))
    }),
    field("ip.dsfield", Number, |p, out| out.number(byte(p.ip(4), 1))),
    field("ip.dsfield.dscp", Number, |p, out| {
        out.number(byte(p.ip(4), 1).map(|byte| byte >> 2))
    }),
    field("ip.dsfield.ecn", Number, |p, out| {
        out.number(byte(p.ip(4), 1).map(|byte| byte & 3))
    }),
    field("ip.len", Number, |p, out| out.number(short(p.ip(4), 2))),
    field("ip.id", Number, |p, out| out.number(short(p.ip(4), 4))),
    field("ip.flags.df", Flag, |p, out| {
        out.number(bit(p.ip(4), 6, 0x40))
    }),
    field("ip.flags.mf", Flag, |p, out| {
        out.number(bit(p.ip(4), 6, 0x20))
    }),
    field("ip.frag_offset", Number, |p, out| {
        out.number(short(p.ip(4), 6).map(|value| u32::from(value & 0x1fff) * 8));
    }),
    field("ip.ttl", Number, |p, out| out.number(byte(p.ip(4), 8))),
    field("ip.proto", Number, |p, out| out.number(byte(p.ip(4), 9))),
    field("ip.checksum", Number, |p, out| {
        out.number(short(p.ip(4), 10))
    }),
    field("ip.src", Ipv4, |p, out| out.push(ipv4(p.ip(4), 12))),
    field("ip.dst", Ipv4, |p, out| out.push(ipv4(p.ip(4), 16))),
    field("ip.addr", Ipv4, |p, out| {
        out.push(ipv4(p.ip(4), 12));
        out.push(ipv4(p.ip(4), 16));
    }),
    field("ipv6", Protocol, |p, out| out.bytes(p.ip(6))),
    field("ipv6.version", Number, |p, out| {
        out.number(byte(p.ip(6), 0).map(|byte| byte >> 4))
    }),
    field("ipv6.tclass", Number, |p, out| {
        out.number(short(p.ip(6), 0).map(|value| value >> 4 & 0xff));
    }),
    field("ipv6.flow", Number, |p, out| {
        out.number(long(p.ip(6), 0).map(|value| value & 0xf_ffff))
    }),
    field("ipv6.plen", Number, |p, out| out.number(short(p.ip(6), 4))),
    field("ipv6.nxt", Number, |p, out| out.number(byte(p.ip(6), 6))),
    field("ipv6.hlim", Number, |p, out| out.number(byte(p.ip(6), 7))),
    field("ipv6.src", Ipv6, |p, out| out.push(ipv6(p.ip(6), 8))),
    field("ipv6.dst", Ipv6, |p, out| out.push(ipv6(p.ip(6), 24))),
    field("ipv6.addr", Ipv6, |p, out| {
        out.push(ipv6(p.ip(6), 8));
        out.push(ipv6(p.ip(6), 24));
    }),
    field("tcp", Protocol, |p, out| out.bytes(p.transport(TCP))),
    field("tcp.srcport", Number, |p, out| {
        out.number(short(p.transport(TCP), 0))
    }),
    field("tcp.dstport", Number, |p, out| {
        out.number(short(p.transport(TCP), 2))
    }),
    field("tcp.port", Number, |p, out| {
        out.number(short(p.transport(TCP), 0));
        out.number(short(p.transport(TCP), 2));
    }),
    field("tcp.seq_raw", Number, |p, out| {
        out.number(long(p.transport(TCP), 4))
    }),
    field("tcp.ack_raw", Number, |p, out| {
        out.number(long(p.transport(TCP), 8))
    }),
    field("tcp.hdr_len", Number, |p, out| {
        out.number(byte(p.transport(TCP), 12).map(|byte| (byte >> 4) * 4));
    }),
    field("tcp.len", Number, |p, out| out.number(p.payload_len(TCP))),
    field("tcp.flags", Number, |p, out| {
        out.number(short(p.transport(TCP), 12).map(|value| value & 0x0fff));
    }),
    field("tcp.flags.fin", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 1))
    }),
    field("tcp.flags.syn", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 2))
    }),
    field("tcp.flags.reset", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 4))
    }),
    field("tcp.flags.push", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 8))
    }),
    field("tcp.flags.ack", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 16))
    }),
    field("tcp.flags.urg", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 32))
    }),
    field("tcp.flags.ece", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 64))
    }),
    field("tcp.flags.cwr", Flag, |p, out| {
        out.number(bit(p.transport(TCP), 13, 128))
    }),
    field("tcp.window_size_value", Number, |p, out| {
        out.number(short(p.transport(TCP), 14))
    }),
    field("tcp.checksum", Number, |p, out| {
        out.number(short(p.transport(TCP), 16))
    }),
    field("tcp.urgent_pointer", Number, |p, out| {
        out.number(short(p.transport(TCP), 18))
    }),
    field("tcp.options.mss_val", Number, |p, out| {
        p.options().for_each(|option| {
            if let TcpOption::MaximumSegmentSize(size) = option {
                out.number(Some(size));
            }
        });
    }),
    field("tcp.options.wscale.shift", Number, |p, out| {
        p.options().for_each(|option| {
            if let TcpOption::WindowScale(shift) = option {
                out.number(Some(shift));
            }
        });
    }),
    field("tcp.options.timestamp.tsval", Number, |p, out| {
        p.options().for_each(|option| {
            if let TcpOption::Timestamps(value, _) = option {
                out.number(Some(value));
            }
        });
    }),
    field("tcp.options.timestamp.tsecr", Number, |p, out| {
        p.options().for_each(|option| {
            if let TcpOption::Timestamps(_, echo) = option {
                out.number(Some(echo));
            }
        });
    }),
    field("tcp.payload", Bytes, |p, out| out.bytes(p.payload(TCP))),
    field("udp", Protocol, |p, out| out.bytes(p.transport(UDP))),
    field("udp.srcport", Number, |p, out| {
        out.number(short(p.transport(UDP), 0))
    }),
    field("udp.dstport", Number, |p, out| {
        out.number(short(p.transport(UDP), 2))
    }),
    field("udp.port", Number, |p, out| {
        out.number(short(p.transport(UDP), 0));
        out.number(short(p.transport(UDP), 2));
    }),
    field("udp.length", Number, |p, out| {
        out.number(short(p.transport(UDP), 4))
    }),
    field("udp.checksum", Number, |p, out| {
        out.number(short(p.transport(UDP), 6))
    }),
    field("udp.payload", Bytes, |p, out| out.bytes(p.payload(UDP))),
    field("sctp", Protocol, |p, out| out.bytes(p.transport(SCTP))),
    field("sctp.srcport", Number, |p, out| {
        out.number(short(p.transport(SCTP), 0))
    }),
    field("sctp.dstport", Number, |p, out| {
        out.number(short(p.transport(SCTP), 2))
    }),
    field("sctp.port", Number, |p, out| {
        out.number(short(p.transport(SCTP), 0));
        out.number(short(p.transport(SCTP), 2));
    }),
    field("icmp", Protocol, |p, out| out.bytes(p.transport(ICMP))),
    field("icmp.type", Number, |p, out| {
        out.number(byte(p.transport(ICMP), 0))
    }),
    field("icmp.code", Number, |p, out| {
        out.number(byte(p.transport(ICMP), 1))
    }),
    field("icmp.checksum", Number, |p, out| {
        out.number(short(p.transport(ICMP), 2))
    }),
    field("icmp.ident", Number, |p, out| {
        out.number(echo(p.transport(ICMP), [0, 8], 4))
    }),
    field("icmp.seq", Number, |p, out| {
        out.number(echo(p.transport(ICMP), [0, 8], 6))
    }),
    field("icmpv6", Protocol, |p, out| out.bytes(p.transport(ICMPV6))),
    field("icmpv6.type", Number, |p, out| {
        out.number(byte(p.transport(ICMPV6), 0))
    }),
    field("icmpv6.code", Number, |p, out| {
        out.number(byte(p.transport(ICMPV6), 1))
    }),
    field("icmpv6.checksum", Number, |p, out| {
        out.number(short(p.transport(ICMPV6), 2))
    }),
    field("icmpv6.echo.identifier", Number, |p, out| {
        out.number(echo(p.transport(ICMPV6), [128, 129], 4));
    }),
    field("icmpv6.echo.sequence_number", Number, |p, out| {
        out.number(echo(p.transport(ICMPV6), [128, 129], 6));
    }),
    field("tunnel.depth", Number, |p, out| {
        out.number(
            p.packets
                .decoded
                .tunnel(p.decoded)
                .map(|tunnel| tunnel.depth),
        );
    }),
    field("tunnel.id", Number, |p, out| {
        out.number(
            p.packets
                .decoded
                .tunnel(p.decoded)
                .and_then(|tunnel| tunnel.id),
        );
    }),
    field("tunnel.src", Ipv4, |p, out| {
        let tunnel = p.packets.decoded.tunnel(p.decoded);
        let tunnel = tunnel.filter(|tunnel| tunnel.version == 4);
        out.push(tunnel.and_then(|tunnel| ipv4_of(&tunnel.source.0)));
    }),
    field("tunnel.dst", Ipv4, |p, out| {
        let tunnel = p.packets.decoded.tunnel(p.decoded);
        let tunnel = tunnel.filter(|tunnel| tunnel.version == 4);
        out.push(tunnel.and_then(|tunnel| ipv4_of(&tunnel.destination.0)));
    }),
];

/// A number in an echo request or reply.
fn echo(message: &[u8], types: [u8; 2], at: usize) -> Option<u16> {
    byte(message, 0).filter(|kind| types.contains(kind))?;
    short(message, at)
}

/// The IPv4 address in its mapped form.
fn ipv4_of<'a>(mapped: &[u8; 16]) -> Option<Value<'a>> {
    long(mapped, 12).map(Value::Ipv4)
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
