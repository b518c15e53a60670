//! What of packets rules can name.

use core::fmt;

/// The part of a packet that a field belongs to.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Protocol {
    /// What is known of a packet beside its bytes.
    Packet,
    /// Ethernet and other link layers.
    Ethernet,
    /// IPv4 and IPv6.
    Ip,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// HTTP/1 within one TCP segment.
    Http,
    /// FTP's control connection, within one TCP segment.
    Ftp,
}

impl Protocol {
    /// All of them.
    pub const ALL: &[Protocol] = <Protocol as strum::VariantArray>::VARIANTS;

    /// As rules name it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The one of a name, in any case.
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL
            .iter()
            .copied()
            .find(|it| it.name().eq_ignore_ascii_case(name))
    }
}

/// What can be done with a field depends on what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An Ethernet address.
    Mac,
    /// An IP address.
    Address,
    /// A number of so many bits. Fields with the same name here are mapped in the same way, as a port is
    /// whether it is the source or the destination.
    Number(u32, &'static str),
    /// Without it nothing behind it can be found.
    Fixed,
    /// Options of a header.
    Options,
    /// Bytes behind a header.
    Payload,
    /// A checksum.
    Checksum,
    /// Capture time.
    Time,
    /// Text of an application protocol.
    Text,
}

/// What happens to a field that a policy does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It stays: it says where other fields are, or what kind of packet it is.
    Kept,
    /// It becomes zero.
    Zero,
    /// It is mapped: zero would mix up what belongs apart.
    Mapped,
    /// It is taken out, or overwritten where that would move what follows.
    Stripped,
    /// It fits what was made of the rest.
    Adjusted,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $protocol:ident $mapi:literal $class:expr, $otherwise:ident;)*) => {
        /// A field of packets' headers, or their payload.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Field { $($(#[$doc])* $name,)* }

        impl Field {
            /// All of them.
            pub const ALL: &'static [Field] = &[$(Field::$name,)*];

            /// What it belongs to.
            pub const fn protocol(self) -> Protocol {
                match self { $(Field::$name => Protocol::$protocol,)* }
            }

            /// Its name in rules, which is that of MAPI where that has one.
            pub fn name(self) -> &'static str {
                match self { $(Field::$name => $mapi,)* }
            }

            /// What it holds.
            pub const fn class(self) -> Class {
                match self { $(Field::$name => $class,)* }
            }

            /// What happens to it where a policy does not name it.
            pub const fn otherwise(self) -> Otherwise {
                match self { $(Field::$name => Otherwise::$otherwise,)* }
            }
        }
    };
}

fields! {
    Time: Packet "TIME" Class::Time, Kept;
    SourceMac: Ethernet "SRC_MAC" Class::Mac, Zero;
    DestinationMac: Ethernet "DST_MAC" Class::Mac, Zero;
    VlanId: Ethernet "VLAN_ID" Class::Number(16, "vlan"), Zero;
    SourceIp: Ip "SRC_IP" Class::Address, Zero;
    DestinationIp: Ip "DST_IP" Class::Address, Zero;
    Ttl: Ip "TTL" Class::Number(8, "ttl"), Zero;
    Tos: Ip "TOS" Class::Number(8, "tos"), Zero;
    Id: Ip "ID" Class::Number(16, "id"), Mapped;
    FlowLabel: Ip "FLOW_LABEL" Class::Number(20, "flow label"), Zero;
    Version: Ip "VERSION" Class::Fixed, Kept;
    Ihl: Ip "IHL" Class::Fixed, Kept;
    PacketLength: Ip "PACKET_LENGTH" Class::Number(16, "length"), Kept;
    IpProto: Ip "IP_PROTO" Class::Number(8, "protocol"), Kept;
    FragmentOffset: Ip "FRAGMENT_OFFSET" Class::Number(16, "fragment"), Kept;
    IpOptions: Ip "OPTIONS" Class::Options, Stripped;
    IpChecksum: Ip "CHECKSUM" Class::Checksum, Adjusted;
    IpPayload: Ip "PAYLOAD" Class::Payload, Stripped;
    TcpSourcePort: Tcp "SRC_PORT" Class::Number(16, "port"), Zero;
    TcpDestinationPort: Tcp "DST_PORT" Class::Number(16, "port"), Zero;
    SequenceNumber: Tcp "SEQUENCE_NUMBER" Class::Number(32, "sequence"), Zero;
    AckNumber: Tcp "ACK_NUMBER" Class::Number(32, "sequence"), Zero;
    OffsetAndReserved: Tcp "OFFSET_AND_RESERVED" Class::Number(8, "offset"), Kept;
    Flags: Tcp "FLAGS" Class::Number(8, "flags"), Kept;
    Window: Tcp "WINDOW" Class::Number(16, "window"), Zero;
    UrgentPointer: Tcp "URGENT_POINTER" Class::Number(16, "urgent"), Zero;
    TcpOptions: Tcp "TCP_OPTIONS" Class::Options, Stripped;
    TcpChecksum: Tcp "CHECKSUM" Class::Checksum, Adjusted;
    TcpPayload: Tcp "PAYLOAD" Class::Payload, Stripped;
    UdpSourcePort: Udp "SRC_PORT" Class::Number(16, "port"), Zero;
    UdpDestinationPort: Udp "DST_PORT" Class::Number(16, "port"), Zero;
    UdpLength: Udp "LENGTH" Class::Number(16, "length"), Kept;
    UdpChecksum: Udp "CHECKSUM" Class::Checksum, Adjusted;
    UdpPayload: Udp "PAYLOAD" Class::Payload, Stripped;
    IcmpType: Icmp "TYPE" Class::Number(8, "type"), Kept;
    IcmpCode: Icmp "CODE" Class::Number(8, "code"), Kept;
    IcmpId: Icmp "ID" Class::Number(16, "icmp id"), Zero;
    IcmpSequence: Icmp "SEQUENCE_NUMBER" Class::Number(16, "icmp sequence"), Zero;
    IcmpChecksum: Icmp "CHECKSUM" Class::Checksum, Adjusted;
    IcmpPayload: Icmp "PAYLOAD" Class::Payload, Stripped;
}

impl Field {
    /// The one of a protocol with this name, in any case.
    pub fn named(protocol: Protocol, name: &str) -> Option<Field> {
        let name = match (protocol, name.to_ascii_uppercase().as_str()) {
            (Protocol::Tcp, "OPTIONS") => "TCP_OPTIONS".to_owned(),
            (Protocol::Ip, "HOP_LIMIT") => "TTL".to_owned(),
            (Protocol::Ip, "TRAFFIC_CLASS") => "TOS".to_owned(),
            (Protocol::Udp, "UDP_DATAGRAM_LENGTH") => "LENGTH".to_owned(),
            (_, name) => name.to_owned(),
        };
        let mut all = Field::ALL.iter().copied();
        all.find(|it| it.protocol() == protocol && it.name() == name)
    }

    /// Its place among all.
    #[inline]
    pub(crate) const fn place(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.protocol().name(), self.name())
    }
}

/// Commands of FTP (RFC 959, RFC 2428), which rules name to mean their arguments, and the two parts of a reply.
pub(crate) const FTP: [&str; 38] = [
    "USER",
    "PASS",
    "ACCT",
    "TYPE",
    "STRU",
    "MODE",
    "CWD",
    "XCWD",
    "PWD",
    "CDUP",
    "PASV",
    "EPSV",
    "PORT",
    "EPRT",
    "RETR",
    "REST",
    "LIST",
    "NLST",
    "QUIT",
    "SYST",
    "STAT",
    "HELP",
    "NOOP",
    "STOR",
    "APPE",
    "STOU",
    "ALLO",
    "MKD",
    "RMD",
    "DELE",
    "RNFR",
    "RNTO",
    "SITE",
    "SIZE",
    "MDTM",
    "FEAT",
    "RESPONSE_CODE",
    "RESPONSE_ARG",
];

/// Parts of HTTP's first lines, and the body. All other names are those of header fields.
pub(crate) const HTTP_PARTS: [&str; 6] =
    ["METHOD", "URI", "VERSION", "STATUS", "REASON", "PAYLOAD"];

/// The name of a field of HTTP as it is kept: of header fields in small letters with `-`.
pub(crate) fn http_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    let part = match upper.as_str() {
        "HTTP_VERSION" => "VERSION",
        "RESPONSE_CODE" => "STATUS",
        "RESP_DESCRIPTION" => "REASON",
        "BODY" | "HTTP_PAYLOAD" => "PAYLOAD",
        other => other,
    };
    if HTTP_PARTS.contains(&part) {
        return part.to_owned();
    }
    match part {
        "REFERRER" => "referer".to_owned(),
        "CONTENT_MD_5" => "content-md5".to_owned(),
        "CONNECTION_TYPE" => "connection".to_owned(),
        other => other.to_ascii_lowercase().replace('_', "-"),
    }
}

/// The name of a field of FTP as it is kept, if there is one.
pub(crate) fn ftp_name(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let upper = upper.strip_prefix("FTP_").unwrap_or(&upper);
    FTP.into_iter().find(|it| *it == upper)
}
