//! Records of RMON's tables.

use flowgauge_wire::Address;

use crate::schema::record;

record! {
    /// Fields of an [`RmonProtocolRow`].
    RMON_PROTOCOL, RMON_PROTOCOL_SCHEMA for RmonProtocolRow<'_> as it:
    protocol Text "PROTOCOL" 1 = it.protocol, "names of the protocol's layers, from the link layer on";
    interface Unsigned "IF" 3 = it.interface, "ifIndex of the interface; 1 for files";
    packets Unsigned Packets "PACKETS" 1 = it.packets, "packets of the protocol, those of protocols above it included";
    octets Unsigned Bytes "OCTETS" 1 = it.octets, "their octets, with headers and checksum of the link layer";
}

/// Packets and octets of a protocol.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct RmonProtocolRow<'a> {
    pub protocol: &'a str,
    pub interface: u32,
    pub packets: u64,
    pub octets: u64,
}

record! {
    /// Fields of an [`RmonHostRow`].
    RMON_HOST, RMON_HOST_SCHEMA for RmonHostRow<'_> as it:
    address Address "ADDRESS" 1 = (it.address, it.version), "network address";
    protocol Text "PROTOCOL" 2 = it.protocol, "network layer, or protocol above it: names of its layers, from the link layer on";
    interface Unsigned "IF" 3 = it.interface, "ifIndex of the interface; 1 for files";
    in_packets Unsigned Packets "IN PKTS" 1 = it.in_packets, "packets to the address";
    out_packets Unsigned Packets "OUT PKTS" 1 = it.out_packets, "packets from the address";
    in_octets Unsigned Bytes "IN OCTETS" 1 = it.in_octets, "octets to the address, with headers and checksum of the link layer";
    out_octets Unsigned Bytes "OUT OCTETS" 1 = it.out_octets, "octets from the address";
}

/// Packets and octets to and from a network address.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct RmonHostRow<'a> {
    pub address: Address,
    pub version: u8,
    pub protocol: &'a str,
    pub interface: u32,
    pub in_packets: u64,
    pub out_packets: u64,
    pub in_octets: u64,
    pub out_octets: u64,
}

record! {
    /// Fields of an [`RmonPairRow`].
    RMON_PAIR, RMON_PAIR_SCHEMA for RmonPairRow<'_> as it:
    source Address "SOURCE" 1 = (it.source, it.version), "source network address";
    destination Address "DESTINATION" 1 = (it.destination, it.version), "destination network address";
    protocol Text "PROTOCOL" 2 = it.protocol, "network layer, or protocol above it: names of its layers, from the link layer on";
    interface Unsigned "IF" 3 = it.interface, "ifIndex of the interface; 1 for files";
    packets Unsigned Packets "PACKETS" 1 = it.packets, "packets";
    reverse_packets Unsigned Packets "REV PKTS" 2 = it.reverse_packets, "packets of the other direction";
    octets Unsigned Bytes "OCTETS" 1 = it.octets, "octets, with headers and checksum of the link layer";
    reverse_octets Unsigned Bytes "REV OCTETS" 2 = it.reverse_octets, "octets of the other direction";
}

/// Packets and octets between two network addresses.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct RmonPairRow<'a> {
    pub source: Address,
    pub destination: Address,
    pub version: u8,
    pub protocol: &'a str,
    pub interface: u32,
    pub packets: u64,
    pub reverse_packets: u64,
    pub octets: u64,
    pub reverse_octets: u64,
}
