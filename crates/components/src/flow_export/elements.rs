//! What is told of a flow: information elements of IPFIX (RFC 7012) with the numbers that NetFlow version 9 has for them.

use flowgauge_record::{Field, FieldVisitor, ValueRef};
use flowgauge_wire::{Address, Nanos};

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Direction {
    /// 4 or 6.
    pub(crate) version: u8,
    pub(crate) source: Address,
    pub(crate) destination: Address,
    pub(crate) ports: (u16, u16),
    pub(crate) protocol: u8,
    pub(crate) packets: u64,
    /// IP bytes.
    pub(crate) bytes: u64,
    pub(crate) tcp_flags: u8,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) vlan: u16,
    /// As `flowEndReason` has it.
    pub(crate) reason: u8,
    pub(crate) flow_id: u64,
}

/// Where numbers go, and the moment that NetFlow's times count from.
pub(crate) struct Target<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    /// NetFlow's start of the exporter.
    pub(crate) boot: Nanos,
    pub(crate) is_netflow: bool,
}

/// Milliseconds since the exporter started, as NetFlow counts them.
pub(crate) fn uptime(time: Nanos, boot: Nanos) -> u32 {
    (time.0.saturating_sub(boot.0) / 1_000_000) as u32
}

impl Target<'_> {
    fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn address(&mut self, address: Address, version: u8) {
        let from = if version == 4 { 12 } else { 0 };
        self.bytes.extend(&address.0[from..]);
    }

    fn time(&mut self, time: Nanos) {
        match self.is_netflow {
            true => self.bytes.extend(uptime(time, self.boot).to_be_bytes()),
            false => self.u64(time.0 / 1_000_000),
        }
    }
}

/// The number and length of an element.
type Form = (u16, u16);

/// An information element.
pub(crate) struct Element {
    /// IANA's name; of two that differ by the version of IP, without it.
    pub(crate) name: &'static str,
    /// In IPFIX, of IPv4 and of IPv6.
    forms: [Form; 2],
    /// In NetFlow, where that differs.
    netflow: Option<Form>,
    give: fn(&Direction, &mut Target<'_>),
}

impl Element {
    /// Its number and length in a template.
    pub(crate) fn form(&self, version: u8, is_netflow: bool) -> Form {
        match self.netflow {
            Some(form) if is_netflow => form,
            _ => self.forms[usize::from(version != 4)],
        }
    }

    pub(crate) fn give(&self, of: &Direction, to: &mut Target<'_>) {
        (self.give)(of, to);
    }
}

macro_rules! elements {
    ($($name:literal $four:expr, $six:expr, $netflow:expr => |$of:ident, $to:ident| $give:expr;)*) => {
        pub(crate) static ELEMENTS: &[Element] = &[$(Element {
            name: $name,
            forms: [$four, $six],
            netflow: $netflow,
            give: |$of, $to| $give,
        }),*];
    };
}

elements! {
    "sourceAddress" (8, 4), (27, 16), None => |of, to| to.address(of.source, of.version);
    "destinationAddress" (12, 4), (28, 16), None => |of, to| to.address(of.destination, of.version);
    "sourceTransportPort" (7, 2), (7, 2), None => |of, to| to.u16(of.ports.0);
    "destinationTransportPort" (11, 2), (11, 2), None => |of, to| to.u16(of.ports.1);
    "protocolIdentifier" (4, 1), (4, 1), None => |of, to| to.u8(of.protocol);
    "packetDeltaCount" (2, 8), (2, 8), None => |of, to| to.u64(of.packets);
    "octetDeltaCount" (1, 8), (1, 8), None => |of, to| to.u64(of.bytes);
    "flowStartMilliseconds" (152, 8), (152, 8), Some((22, 4)) => |of, to| to.time(of.start);
    "flowEndMilliseconds" (153, 8), (153, 8), Some((21, 4)) => |of, to| to.time(of.end);
    "tcpControlBits" (6, 2), (6, 2), Some((6, 1)) => |of, to| match to.is_netflow {
        true => to.u8(of.tcp_flags),
        false => to.u16(of.tcp_flags.into()),
    };
    "flowEndReason" (136, 1), (136, 1), None => |of, to| to.u8(of.reason);
    "vlanId" (58, 2), (58, 2), None => |of, to| to.u16(of.vlan);
    "ipVersion" (60, 1), (60, 1), None => |of, to| to.u8(of.version);
    "icmpTypeCode" (32, 2), (139, 2), None => |of, to| to.u16(match of.protocol {
        1 | 58 => of.ports.1,
        _ => 0,
    });
    "flowId" (148, 8), (148, 8), None => |of, to| to.u64(of.flow_id);
}

/// The element of a name, as IANA writes it.
pub(crate) fn find(name: &str) -> Option<&'static Element> {
    let plain = name.replace("IPv4", "").replace("IPv6", "");
    let mut elements = ELEMENTS.iter();
    elements.find(|element| element.name.eq_ignore_ascii_case(&plain))
}

/// The fields of a flow's record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    forth: Direction,
    back: Direction,
    /// What is a flow's record and no other has them.
    seen: u8,
}

impl Flow {
    /// The directions in which there were packets; `None` where it is no flow's record.
    pub(crate) fn directions(mut self) -> Option<impl Iterator<Item = Direction>> {
        if self.seen < 4 {
            return None;
        }
        // The message's type and code stand in the place of the destination's port.
        if matches!(self.forth.protocol, 1 | 58) {
            let (kind, other) = self.forth.ports;
            let (code, reply) = match self.back.packets {
                0 => (other, 0),
                _ => (0, other),
            };
            self.forth.ports = (0, kind << 8 | code & 0xff);
            self.back.ports = (0, reply << 8);
        } else {
            self.back.ports = (self.forth.ports.1, self.forth.ports.0);
        }
        let back = Direction {
            source: self.forth.destination,
            destination: self.forth.source,
            packets: self.back.packets,
            bytes: self.back.bytes,
            tcp_flags: self.back.tcp_flags,
            ports: self.back.ports,
            ..self.forth
        };
        Some([self.forth, back].into_iter().filter(|it| it.packets > 0))
    }
}

fn protocol(name: &str, version: u8) -> u8 {
    match name {
        "tcp" => 6,
        "udp" => 17,
        "icmp" if version == 4 => 1,
        "icmp" => 58,
        number => number.parse().unwrap_or(0),
    }
}

fn flags(letters: &str) -> u8 {
    letters.bytes().fold(0, |flags, letter| {
        let bit = b"FSRPAUEC".iter().position(|known| *known == letter);
        flags | bit.map_or(0, |bit| 1 << bit)
    })
}

impl FieldVisitor for Flow {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let (forth, back) = (&mut self.forth, &mut self.back);
        match (field.name, value) {
            ("src_ip", ValueRef::Address(address, version)) => {
                (forth.source, forth.version) = (address, version);
                self.seen += 1;
            }
            ("dst_ip", ValueRef::Address(address, _)) => {
                forth.destination = address;
                self.seen += 1;
            }
            ("src_port", ValueRef::Unsigned(port)) => forth.ports.0 = port as u16,
            ("dst_port", ValueRef::Unsigned(port)) => forth.ports.1 = port as u16,
            ("proto", ValueRef::Text(name) | ValueRef::Symbol(name)) => {
                forth.protocol = protocol(name, forth.version);
            }
            ("start", ValueRef::Time(time)) => forth.start = time,
            ("end", ValueRef::Time(time)) => forth.end = time,
            ("src_packets", ValueRef::Unsigned(count)) => {
                forth.packets = count;
                self.seen += 1;
            }
            ("dst_packets", ValueRef::Unsigned(count)) => {
                back.packets = count;
                self.seen += 1;
            }
            ("src_ip_bytes", ValueRef::Unsigned(count)) => forth.bytes = count,
            ("dst_ip_bytes", ValueRef::Unsigned(count)) => back.bytes = count,
            ("src_tcp_flags", ValueRef::Text(text) | ValueRef::Symbol(text)) => {
                forth.tcp_flags = flags(text);
            }
            ("dst_tcp_flags", ValueRef::Text(text) | ValueRef::Symbol(text)) => {
                back.tcp_flags = flags(text);
            }
            ("vlan", ValueRef::List(list)) => {
                forth.vlan = list.iter().next().unwrap_or(0) as u16;
            }
            ("flow_id", ValueRef::Hex(id)) => forth.flow_id = id,
            ("end_reason", ValueRef::Text(text) | ValueRef::Symbol(text)) => {
                forth.reason = match text {
                    "idle" => 1,
                    "active" => 2,
                    "fin" | "rst" => 3,
                    "evicted" => 5,
                    _ => 4,
                };
            }
            _ => {}
        }
    }
}
