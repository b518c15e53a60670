//! Link-layer information of packets.

use core::fmt;
use core::net::Ipv4Addr;

use flowgauge_wire::LinkType;

/// VLAN tags looked behind.
const MAX_TAGS: usize = 8;

/// Labels looked at.
const MAX_LABELS: usize = 16;

/// An entry of an MPLS label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MplsLabel {
    /// The label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    pub traffic_class: u8,
    /// Time to live.
    pub ttl: u8,
}

/// An address field of which `len` bytes count.
fn mac(len: usize, address: &[u8]) -> Option<Mac> {
    let bytes = address.first_chunk().filter(|_| len == 6)?;
    Some(Mac(*bytes))
}

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Direction of a cooked packet, from the capturing host's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Way {
    /// To this host.
    In,
    /// Broadcast.
    Broadcast,
    /// Multicast.
    Multicast,
    /// From another host to another host.
    Other,
    /// From this host.
    Out,
}

impl Way {
    fn new(packet_type: u16) -> Option<Way> {
        [
            Way::In,
            Way::Broadcast,
            Way::Multicast,
            Way::Other,
            Way::Out,
        ]
        .get(usize::from(packet_type))
        .copied()
    }

    /// Its name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The link-layer header of a frame: Ethernet, or Linux cooked mode, which only has the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader<'a> {
    /// Sender, if its address has six bytes.
    pub source: Option<Mac>,
    /// Receiver.
    pub destination: Option<Mac>,
    /// Direction (cooked mode).
    pub way: Option<Way>,
    /// Interface index on the capturing host (cooked mode, version 2).
    pub interface_index: Option<u32>,
    /// Type after the VLAN tags; values below 1536 are the length of an 802.3 frame, or one of
    /// Linux's own numbers for frames without a type.
    pub ether_type: u16,
    /// Bytes after the header.
    pub payload: &'a [u8],
}

impl<'a> LinkHeader<'a> {
    /// The header of `frame`; `None` for other link types, or if it is not complete.
    pub fn parse(link: LinkType, frame: &'a [u8]) -> Option<LinkHeader<'a>> {
        let mut header = match link {
            LinkType::ETHERNET => LinkHeader::ethernet(frame)?,
            LinkType::LINUX_SLL => LinkHeader::cooked(frame)?,
            LinkType::LINUX_SLL2 => LinkHeader::cooked_2(frame)?,
            _ => return None,
        };
        for _ in 0..MAX_TAGS {
            if !matches!(header.ether_type, 0x8100 | 0x88a8 | 0x9100) {
                break;
            }
            let (ether_type, payload) = header.payload.get(2..)?.split_first_chunk::<2>()?;
            header.ether_type = u16::from_be_bytes(*ether_type);
            header.payload = payload;
        }
        Some(header)
    }

    fn ethernet(frame: &'a [u8]) -> Option<LinkHeader<'a>> {
        let (destination, rest) = frame.split_first_chunk::<6>()?;
        let (source, rest) = rest.split_first_chunk::<6>()?;
        let (ether_type, payload) = rest.split_first_chunk::<2>()?;
        Some(LinkHeader {
            source: Some(Mac(*source)),
            destination: Some(Mac(*destination)),
            way: None,
            interface_index: None,
            ether_type: u16::from_be_bytes(*ether_type),
            payload,
        })
    }

    /// `LINKTYPE_LINUX_SLL`: packet type, kind of hardware, length of the address, address,
    /// protocol.
    fn cooked(frame: &'a [u8]) -> Option<LinkHeader<'a>> {
        let (header, payload) = frame.split_first_chunk::<16>()?;
        Some(LinkHeader {
            source: mac(header[5].into(), &header[6..14]),
            destination: None,
            way: Way::new(u16::from_be_bytes([header[0], header[1]])),
            interface_index: None,
            ether_type: u16::from_be_bytes([header[14], header[15]]),
            payload,
        })
    }

    /// `LINKTYPE_LINUX_SLL2`: protocol, reserved, interface, kind of hardware, packet type, length
    /// of the address, address.
    fn cooked_2(frame: &'a [u8]) -> Option<LinkHeader<'a>> {
        let (header, payload) = frame.split_first_chunk::<20>()?;
        Some(LinkHeader {
            source: mac(header[11].into(), &header[12..20]),
            destination: None,
            way: Way::new(header[10].into()),
            interface_index: Some(u32::from_be_bytes([
                header[4], header[5], header[6], header[7],
            ])),
            ether_type: u16::from_be_bytes([header[0], header[1]]),
            payload,
        })
    }

    /// The MPLS label stack (RFC 3032), outermost first.
    pub fn mpls(&self) -> impl Iterator<Item = MplsLabel> + use<'a> {
        let is_mpls = matches!(self.ether_type, 0x8847 | 0x8848);
        let (entries, _) = self.payload.as_chunks::<4>();
        let mut entries = entries.iter().take(if is_mpls { MAX_LABELS } else { 0 });
        let mut ended = false;
        core::iter::from_fn(move || {
            let entry = u32::from_be_bytes(*entries.next().filter(|_| !ended)?);
            ended = entry & 0x100 != 0;
            Some(MplsLabel {
                label: entry >> 12,
                traffic_class: (entry >> 9 & 7) as u8,
                ttl: entry as u8,
            })
        })
    }

    /// `ipv4`, `arp` etc., or the number in hexadecimal.
    pub fn ether_type_name(&self) -> String {
        let name = match self.ether_type {
            // Linux' own numbers, for what has no type.
            0..1536 if self.destination.is_none() => return format!("0x{:04x}", self.ether_type),
            0..1536 => "802.3",
            0x0800 => "ipv4",
            0x0806 => "arp",
            0x8035 => "rarp",
            0x86dd => "ipv6",
            0x8847 | 0x8848 => "mpls",
            0x8863 | 0x8864 => "pppoe",
            0x888e => "eapol",
            0x88cc => "lldp",
            0x88f7 => "ptp",
            other => return format!("0x{other:04x}"),
        };
        name.to_owned()
    }

    /// An ARP request or reply for IPv4 addresses (RFC 826), in tcpdump's format.
    pub fn arp(&self) -> Option<String> {
        // Hardware Ethernet, protocol IPv4, addresses of 6 and 4 bytes.
        let body = self.payload.strip_prefix(&[0, 1, 8, 0, 6, 4])?;
        if self.ether_type != 0x0806 {
            return None;
        }
        let (operation, body) = body.split_first_chunk::<2>()?;
        let (sender_mac, body) = body.split_first_chunk::<6>()?;
        let (sender, body) = body.split_first_chunk::<4>()?;
        let target = *body.get(6..)?.first_chunk::<4>()?;
        let (sender, target) = (Ipv4Addr::from(*sender), Ipv4Addr::from(target));
        match u16::from_be_bytes(*operation) {
            1 => Some(format!("Request who-has {target} tell {sender}")),
            2 => Some(format!("Reply {sender} is-at {}", Mac(*sender_mac))),
            other => Some(format!("operation {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(operation: u8) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 6]);
        frame.extend([
            0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1,
        ]);
        frame.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
        frame
    }

    #[test]
    fn arp_is_worded_as_by_tcpdump() {
        let text = |operation| {
            let frame = frame(operation);
            let header = LinkHeader::parse(LinkType::ETHERNET, &frame).unwrap();
            assert_eq!(header.ether_type_name(), "arp");
            assert_eq!(header.source, Some(Mac([2, 0, 0, 0, 0, 1])));
            assert_eq!(header.mpls().count(), 0);
            header.arp().unwrap()
        };
        assert_eq!(text(1), "Request who-has 192.0.2.9 tell 192.0.2.1");
        assert_eq!(text(2), "Reply 192.0.2.1 is-at 02:00:00:00:00:01");
    }

    /// Behind a cooked header of either version: two labels, then what is no label.
    #[test]
    fn cooked_headers_have_a_sender_and_a_way() {
        let labels = [0, 0x01, 0x02, 64, 0, 0x01, 0xdb, 255, 0x45, 0, 0, 20];
        let address = [2, 0, 0, 0, 0, 9, 0, 0];
        let first = [&[0, 4, 0, 1, 0, 6][..], &address, &[0x88, 0x47], &labels].concat();
        let second = [
            &[0x88, 0x47, 0, 0, 0, 0, 1, 2, 0, 1, 3, 6][..],
            &address,
            &labels,
        ]
        .concat();
        for (link, frame, way, index) in [
            (LinkType::LINUX_SLL, first, Way::Out, None),
            (LinkType::LINUX_SLL2, second, Way::Other, Some(258)),
        ] {
            let header = LinkHeader::parse(link, &frame).unwrap();
            assert_eq!(header.source, Some(Mac([2, 0, 0, 0, 0, 9])));
            assert_eq!((header.destination, header.way), (None, Some(way)));
            assert_eq!(header.interface_index, index);
            assert_eq!(header.ether_type_name(), "mpls");
            let found: Vec<_> = header.mpls().collect();
            let entry = |label, traffic_class, ttl| MplsLabel {
                label,
                traffic_class,
                ttl,
            };
            assert_eq!(found, [entry(16, 1, 64), entry(29, 5, 255)]);
            for len in 0..frame.len() {
                let header = LinkHeader::parse(link, &frame[..len]);
                assert!(header.is_none_or(|header| header.mpls().count() <= 2));
            }
        }
    }

    #[test]
    fn cut_frames_have_no_header_or_no_arp() {
        let frame = frame(1);
        for len in 0..frame.len() {
            let header = LinkHeader::parse(LinkType::ETHERNET, &frame[..len]);
            assert!(header.is_none_or(|header| header.arp().is_none()));
        }
        assert_eq!(LinkHeader::parse(LinkType::RAW, &frame), None);
    }
}
