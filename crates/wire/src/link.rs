//! Link types (`LINKTYPE_` values of the tcpdump registry).

/// A link-layer header type, by its number in the tcpdump.org registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: address family in the byte order of the capturing host.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// PPP without framing, or with HDLC-like framing.
    pub const PPP: LinkType = LinkType(9);
    /// PPP in HDLC-like framing.
    pub const PPP_HDLC: LinkType = LinkType(50);
    /// PPPoE session frames without Ethernet.
    pub const PPP_ETHER: LinkType = LinkType(51);
    /// Raw IP, with the version in the first nibble.
    pub const RAW: LinkType = LinkType(101);
    /// Cisco HDLC.
    pub const C_HDLC: LinkType = LinkType(104);
    /// IEEE 802.11 without radio header.
    pub const IEEE802_11: LinkType = LinkType(105);
    /// Frame relay.
    pub const FRAME_RELAY: LinkType = LinkType(107);
    /// OpenBSD loopback: address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture v1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// IEEE 802.11 after a radiotap header.
    pub const IEEE802_11_RADIOTAP: LinkType = LinkType(127);
    /// PPP with a direction byte in front.
    pub const PPP_WITH_DIR: LinkType = LinkType(204);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux netfilter log messages.
    pub const NFLOG: LinkType = LinkType(239);
    /// Linux cooked capture v2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// The link type for a value in a capture file: some platforms' raw-IP DLT values (12, 14)
    /// are mapped to [`LinkType::RAW`].
    pub fn from_file(value: u16) -> LinkType {
        match value {
            12 | 14 => LinkType::RAW,
            other => LinkType(other),
        }
    }
}

impl Default for LinkType {
    fn default() -> LinkType {
        LinkType::ETHERNET
    }
}
