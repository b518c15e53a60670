//! Tunnels over UDP: VXLAN (RFC 7348) and VXLAN-GPE, Geneve (RFC 8926), GTP-U (3GPP TS 29.281), Teredo (RFC 4380),
//! AYIYA. They are recognised only if both port and header match.

use super::walk::{Next, Walk};
use crate::decoded::TunnelKind;

/// What follows UDP between these ports, where it is a tunnel. `walk` stands at the UDP payload.
pub(super) fn content(walk: &mut Walk<'_, '_>, source: u16, destination: u16) -> Option<Next> {
    let options = walk.options;
    let either = |list: &[u16]| list.contains(&destination) || list.contains(&source);
    // VXLAN's and Geneve's source port is a hash of the inner flow.
    let found = if options.vxlan_ports.contains(&destination) {
        vxlan(walk, destination)?
    } else if options.geneve_ports.contains(&destination) {
        geneve(walk)?
    } else if either(&options.gtpu_ports) {
        gtpu(walk)?
    } else if either(&options.teredo_ports) {
        teredo(walk)?
    } else if either(&options.ayiya_ports) {
        ayiya(walk)?
    } else {
        return None;
    };
    walk.enter(found.kind, found.id)?;
    walk.at += found.header;
    Some(found.next)
}

/// A tunnel header that made sense.
struct Found {
    kind: TunnelKind,
    id: Option<u32>,
    header: usize,
    next: Next,
}

fn vxlan(walk: &Walk<'_, '_>, port: u16) -> Option<Found> {
    const VNI_VALID: u8 = 0x08;
    const NEXT_PROTOCOL: u8 = 0x04;
    let header = walk.peek::<8>()?;
    const GENERIC: u16 = 4790;
    // Reserved bits are ignored on receipt (RFC 7348 section 5), those of VXLAN-GPE, too, on ports that are not its.
    if header[0] & VNI_VALID == 0 {
        return None;
    }
    let next = if header[0] & NEXT_PROTOCOL == 0 {
        Next::Ethernet
    } else {
        match header[3] {
            1 => Next::Ipv4,
            2 => Next::Ipv6,
            3 => Next::Ethernet,
            4 => Next::EtherType(super::shim::NSH),
            5 => Next::EtherType(super::shim::MPLS),
            _ if port == GENERIC => return None,
            _ => Next::Ethernet,
        }
    };
    Some(Found {
        kind: TunnelKind::Vxlan,
        id: Some(vni(header[4], header[5], header[6])),
        header: 8,
        next,
    })
}

fn geneve(walk: &Walk<'_, '_>) -> Option<Found> {
    let header = walk.peek::<8>()?;
    // Reserved bits are ignored on receipt (RFC 8926 section 3.4); the version is 0.
    if header[0] >> 6 != 0 {
        return None;
    }
    Some(Found {
        kind: TunnelKind::Geneve,
        id: Some(vni(header[4], header[5], header[6])),
        header: 8 + usize::from(header[0] & 0x3f) * 4,
        next: Next::EtherType(u16::from_be_bytes([header[2], header[3]])),
    })
}

fn gtpu(walk: &Walk<'_, '_>) -> Option<Found> {
    const USER_DATA: u8 = 0xff;
    let header = walk.peek::<8>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Version 1, protocol type GTP.
    if header[0] >> 4 != 3 || header[1] != USER_DATA || walk.at + 8 + length > walk.end {
        return None;
    }
    let rest = walk.bytes.get(walk.at..)?;
    let mut at = 8;
    if header[0] & 0x07 != 0 {
        let mut extension = *rest.get(11)?;
        at = 12;
        // Extension headers: length in units of four bytes, the next one's type last.
        while header[0] & 0x04 != 0 && extension != 0 {
            let units = usize::from(*rest.get(at)?);
            if units == 0 {
                return None;
            }
            at += units * 4;
            extension = *rest.get(at - 1)?;
        }
    }
    let next = match rest.get(at)? >> 4 {
        4 => Next::Ipv4,
        6 => Next::Ipv6,
        _ => return None,
    };
    Some(Found {
        kind: TunnelKind::GtpU,
        id: Some(u32::from_be_bytes([
            header[4], header[5], header[6], header[7],
        ])),
        header: at,
        next,
    })
}

fn teredo(walk: &Walk<'_, '_>) -> Option<Found> {
    let rest = walk.bytes.get(walk.at..)?;
    let mut at = 0;
    // Authentication: two lengths, what they count, nonce and confirmation.
    if rest.get(..2)? == [0, 1] {
        at += 13 + usize::from(*rest.get(2)?) + usize::from(*rest.get(3)?);
    }
    // Origin indication.
    if rest.get(at..at + 2)? == [0, 0] {
        at += 8;
    }
    let inner = rest.get(at..)?.first_chunk::<40>()?;
    let length = usize::from(u16::from_be_bytes([inner[4], inner[5]]));
    if inner[0] >> 4 != 6 || walk.at + at + 40 + length > walk.end {
        return None;
    }
    Some(Found {
        kind: TunnelKind::Teredo,
        id: None,
        header: at,
        next: Next::Ipv6,
    })
}

fn ayiya(walk: &Walk<'_, '_>) -> Option<Found> {
    const FORWARD: u8 = 1;
    let header = walk.peek::<8>()?;
    let identity = 1usize << (header[0] >> 4);
    let signature = usize::from(header[1] >> 4) * 4;
    let next = match (header[2] & 0x0f, header[3]) {
        (FORWARD, 41) => Next::Ipv6,
        (FORWARD, 4) => Next::Ipv4,
        _ => return None,
    };
    Some(Found {
        kind: TunnelKind::Ayiya,
        id: None,
        header: 8 + identity + signature,
        next,
    })
}

fn vni(a: u8, b: u8, c: u8) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}
