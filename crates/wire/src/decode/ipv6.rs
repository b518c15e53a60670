//! IPv6 and its extension headers (RFC 8200).

use super::ipv4::set_datagram;
use super::transport;
use super::walk::{Next, Walk};
use crate::decoded::Problem;
use crate::key::Address;

/// More extension headers than any sender has reason to use.
const MAX_EXTENSIONS: usize = 32;

/// Hop-by-hop options.
pub(super) const HOP_BY_HOP: u8 = 0;
/// Routing header.
pub(super) const ROUTING: u8 = 43;
/// Fragment header.
pub(super) const FRAGMENT: u8 = 44;
/// Authentication header.
pub(super) const AUTHENTICATION: u8 = 51;
/// No next header.
pub(super) const NONE: u8 = 59;
/// Destination options.
pub(super) const DESTINATION: u8 = 60;
/// Mobility (RFC 6275).
pub(super) const MOBILITY: u8 = 135;
/// Host identity protocol (RFC 7401).
pub(super) const HIP: u8 = 139;
/// Shim6 (RFC 5533).
pub(super) const SHIM6: u8 = 140;

pub(super) fn ipv6(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let start = walk.at;
    let header = walk.take::<40>()?;
    if header[0] >> 4 != 6 {
        return walk.stop(Problem::BadIpHeader);
    }
    let mut next = header[6];
    let in_frame = walk.end - walk.at;
    let payload = match u16::from_be_bytes([header[4], header[5]]) {
        // A jumbogram says its length in a hop-by-hop option (RFC 2675); some segmentation
        // offload leaves 0 and says nothing.
        0 => match next {
            // One that claims more than the frame is wrong by one byte as by four thousand million.
            HOP_BY_HOP => jumbo_length(walk).map_or(in_frame, |length| length.min(in_frame + 1)),
            6 | 17 => in_frame,
            _ => 0,
        },
        length => usize::from(length),
    };
    walk.version = 6;
    walk.source = address(header, 8);
    walk.destination = address(header, 24);
    walk.packet.ttl = header[7];
    set_datagram(walk, start, 40 + payload);
    walk.set_key(next, 0, 0);
    walk.set_payload(0, payload);
    for _ in 0..MAX_EXTENSIONS {
        let begin = walk.at;
        let (following, length) = match next {
            HOP_BY_HOP | DESTINATION | ROUTING | MOBILITY | HIP | SHIM6 => {
                let head = walk.take::<4>()?;
                let length = (usize::from(head[1]) + 1) * 8;
                match (next, head[2]) {
                    (ROUTING, kind) => final_destination(walk, kind, head[3], begin, length),
                    (DESTINATION, _) => home_address(walk, begin, length),
                    _ => {}
                }
                (head[0], length)
            }
            AUTHENTICATION => {
                let head = walk.take::<4>()?;
                (head[0], (usize::from(head[1]) + 2) * 4)
            }
            FRAGMENT => {
                let head = walk.take::<8>()?;
                let value = u16::from_be_bytes([head[2], head[3]]);
                if value & 0xfff9 != 0 {
                    let rest = walk.end.saturating_sub(walk.at);
                    walk.set_key(head[0], 0, 0);
                    walk.set_payload(0, rest);
                    transport::fragment(walk, head[0], value & 0xfff8 == 0);
                    return None;
                }
                // An atomic fragment (RFC 6946) is the whole datagram.
                (head[0], 8)
            }
            _ => return transport::transport(walk, next),
        };
        if begin + length > walk.end {
            return walk.stop(Problem::BadExtension);
        }
        walk.at = begin;
        walk.skip(length)?;
        // Headers that are messages of their own keep their number when nothing follows.
        if following == NONE && matches!(next, MOBILITY | HIP | SHIM6) {
            walk.at = begin;
            return transport::other(walk, next);
        }
        next = following;
        let rest = walk.end - walk.at;
        walk.set_key(next, 0, 0);
        walk.set_payload(0, rest);
    }
    walk.stop(Problem::BadExtension)
}

fn address(bytes: &[u8], at: usize) -> Address {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>());
    Address(chunk.copied().unwrap_or_default())
}

/// The jumbo payload option of the hop-by-hop header that begins here.
fn jumbo_length(walk: &Walk<'_, '_>) -> Option<usize> {
    let rest = walk.bytes.get(walk.at..)?;
    let length = (usize::from(*rest.get(1)?) + 1) * 8;
    let options = rest.get(2..length.min(rest.len()))?;
    let value = option(options, 0xc2)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*value) as usize)
}

/// The value of option `kind` among hop-by-hop or destination options.
fn option(mut options: &[u8], kind: u8) -> Option<&[u8]> {
    loop {
        match *options {
            [0, ref rest @ ..] => options = rest,
            [found, length, ref rest @ ..] => {
                let (value, rest) = rest.split_at_checked(usize::from(length))?;
                if found == kind {
                    return Some(value);
                }
                options = rest;
            }
            _ => return None,
        }
    }
}

/// With a source route not yet done, the flow's destination is where the route ends: that is what
/// the transport checksum covers (RFC 8200 section 8.1) and what both directions agree on.
fn final_destination(
    walk: &mut Walk<'_, '_>,
    kind: u8,
    segments_left: u8,
    begin: usize,
    length: usize,
) {
    if segments_left == 0 {
        return;
    }
    let at = match kind {
        // Type 0 (RFC 5095) and 2 (RFC 6275): addresses in order of travel.
        0 | 2 if length >= 24 => begin + 8 + (length - 24) / 16 * 16,
        // Segment routing (RFC 8754): addresses in reverse.
        4 if length >= 24 => begin + 8,
        _ => return,
    };
    let chunk = walk
        .bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<16>());
    if let Some(&last) = chunk {
        walk.destination = Address(last);
    }
}

/// The home address option (RFC 6275 section 6.3) names the sender that the transport knows.
fn home_address(walk: &mut Walk<'_, '_>, begin: usize, length: usize) {
    let end = (begin + length).min(walk.bytes.len());
    let options = walk.bytes.get(begin + 2..end).unwrap_or(&[]);
    let value = option(options, 0xc9).and_then(|value| value.first_chunk::<16>());
    if let Some(&home) = value {
        walk.source = Address(home);
    }
}
