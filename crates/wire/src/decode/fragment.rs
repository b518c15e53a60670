//! Information about a fragment for defragmentation.

use super::ipv6::{
    AUTHENTICATION, DESTINATION, FRAGMENT, HIP, HOP_BY_HOP, MOBILITY, ROUTING, SHIM6,
};

/// The position of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// 4 or 6.
    pub version: u8,
    /// Protocol of the datagram: IPv4's field, or the next header of the IPv6 fragment header.
    pub protocol: u8,
    /// Identification (16 bits in IPv4).
    pub id: u32,
    /// Offset of the fragment's data in the datagram's payload, in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
    /// Length of the header before the data, from the IP header's first byte: in IPv4 including
    /// options; in IPv6 up to the fragment header, excluding it.
    pub header_len: u16,
    /// Offset of the fragment's data in the bytes.
    pub data_offset: u32,
    /// Length of the fragment's data according to the headers.
    pub data_len: u32,
    /// IPv6: offset, from the IP header's first byte, of the next header value 44 that
    /// announces the fragment header; a rebuilt header has `protocol` there. IPv4: 9.
    pub next_header_at: u16,
}

/// Protocols that can carry IP: IP in IP, UDP, 6in4, GRE.
pub const CARRIERS: [u8; 4] = [4, 17, 41, 47];

/// Parses the fragment whose IP header is at `ip_offset`. `None` if it is not a fragment (nor
/// is an IPv6 atomic fragment), or its headers are incomplete.
pub fn fragment_info(bytes: &[u8], ip_offset: usize) -> Option<FragmentInfo> {
    let datagram = bytes.get(ip_offset..)?;
    match datagram.first()? >> 4 {
        4 => ipv4(datagram, ip_offset),
        6 => ipv6(datagram, ip_offset),
        _ => None,
    }
}

fn ipv4(datagram: &[u8], ip_offset: usize) -> Option<FragmentInfo> {
    let header = datagram.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if header_len < 20 || total < header_len || fragment & 0x3fff == 0 {
        return None;
    }
    Some(FragmentInfo {
        version: 4,
        protocol: header[9],
        id: u32::from(u16::from_be_bytes([header[4], header[5]])),
        offset: u32::from(fragment & 0x1fff) * 8,
        more: fragment & 0x2000 != 0,
        header_len: header_len as u16,
        data_offset: (ip_offset + header_len) as u32,
        data_len: (total - header_len) as u32,
        next_header_at: 9,
    })
}

fn ipv6(datagram: &[u8], ip_offset: usize) -> Option<FragmentInfo> {
    let header = datagram.first_chunk::<40>()?;
    let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut next_header_at = 6;
    let mut at = 40;
    // Each extension header is at least eight bytes long, so the loop ends with the bytes.
    loop {
        let next = *datagram.get(next_header_at)?;
        let rest = datagram.get(at..)?;
        match next {
            HOP_BY_HOP | DESTINATION | ROUTING | MOBILITY | HIP | SHIM6 => {
                next_header_at = at;
                at += (usize::from(*rest.get(1)?) + 1) * 8;
            }
            AUTHENTICATION => {
                next_header_at = at;
                at += (usize::from(*rest.get(1)?) + 2) * 4;
            }
            FRAGMENT => {
                let head = rest.first_chunk::<8>()?;
                let value = u16::from_be_bytes([head[2], head[3]]);
                let data = at + 8;
                if value & 0xfff9 == 0 {
                    next_header_at = at;
                    at = data;
                    continue;
                }
                return Some(FragmentInfo {
                    version: 6,
                    protocol: head[0],
                    id: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
                    offset: u32::from(value & 0xfff8),
                    more: value & 1 != 0,
                    header_len: u16::try_from(at).ok()?,
                    data_offset: (ip_offset + data) as u32,
                    data_len: end.checked_sub(data)? as u32,
                    next_header_at: next_header_at as u16,
                });
            }
            _ => return None,
        }
    }
}
