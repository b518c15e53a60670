//! What an Ethernet frame says before and instead of IP.

use core::fmt;
use core::net::Ipv4Addr;

use flowgauge_wire::LinkType;

/// VLAN tags looked behind.
const MAX_TAGS: usize = 8;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The header of an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader<'a> {
    /// Sender.
    pub source: Mac,
    /// Receiver.
    pub destination: Mac,
    /// What follows the VLAN tags; a number below 1536 is the length of an 802.3 frame.
    pub ether_type: u16,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> EthernetHeader<'a> {
    /// The header of `frame`; `None` unless it is Ethernet and there is a whole one.
    pub fn parse(link: LinkType, frame: &'a [u8]) -> Option<EthernetHeader<'a>> {
        if link != LinkType::ETHERNET {
            return None;
        }
        let (destination, rest) = frame.split_first_chunk::<6>()?;
        let (source, rest) = rest.split_first_chunk::<6>()?;
        let (mut ether_type, mut payload) = rest.split_first_chunk::<2>()?;
        for _ in 0..MAX_TAGS {
            if !matches!(u16::from_be_bytes(*ether_type), 0x8100 | 0x88a8 | 0x9100) {
                break;
            }
            (ether_type, payload) = payload.get(2..)?.split_first_chunk::<2>()?;
        }
        Some(EthernetHeader {
            source: Mac(*source),
            destination: Mac(*destination),
            ether_type: u16::from_be_bytes(*ether_type),
            payload,
        })
    }

    /// `ipv4`, `arp`..., or the number in hexadecimal.
    pub fn ether_type_name(&self) -> String {
        let name = match self.ether_type {
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

    /// An ARP request or reply for IPv4 addresses (RFC 826), as tcpdump words it.
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
            let header = EthernetHeader::parse(LinkType::ETHERNET, &frame).unwrap();
            assert_eq!(header.ether_type_name(), "arp");
            assert_eq!(header.source.to_string(), "02:00:00:00:00:01");
            header.arp().unwrap()
        };
        assert_eq!(text(1), "Request who-has 192.0.2.9 tell 192.0.2.1");
        assert_eq!(text(2), "Reply 192.0.2.1 is-at 02:00:00:00:00:01");
    }

    #[test]
    fn cut_frames_have_no_header_or_no_arp() {
        let frame = frame(1);
        for len in 0..frame.len() {
            let header = EthernetHeader::parse(LinkType::ETHERNET, &frame[..len]);
            assert!(header.is_none_or(|header| header.arp().is_none()));
        }
        assert_eq!(EthernetHeader::parse(LinkType::RAW, &frame), None);
    }
}
