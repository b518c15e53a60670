//! IEEE 802.11 data frames, alone or after radiotap, PPI, AVS and Prism headers.

use super::ethernet;
use super::walk::{Next, Walk};
use crate::decoded::Problem;

/// Radiotap: a header of stated length; its flags say whether a checksum follows the frame and
/// whether the 802.11 header is padded.
pub(super) fn radiotap(walk: &mut Walk<'_, '_>) -> Option<Next> {
    const CHECKSUM_AT_END: u8 = 0x10;
    const PADDED: u8 = 0x20;
    let Some(header) = walk.peek::<8>() else {
        return walk.missing(8);
    };
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    if length < 8 {
        return walk.stop(Problem::ShortHeader);
    }
    let flags = radiotap_flags(walk, length).unwrap_or(0);
    walk.skip(length)?;
    if flags & CHECKSUM_AT_END != 0 {
        walk.end = walk.end.saturating_sub(4).max(walk.at);
    }
    frame(walk, flags & PADDED != 0)
}

/// The flags field: second of the fields, after an optional time stamp aligned to eight bytes.
fn radiotap_flags(walk: &Walk<'_, '_>, length: usize) -> Option<u8> {
    const TIME_STAMP: u32 = 1;
    const FLAGS: u32 = 2;
    const MORE: u32 = 1 << 31;
    let header = walk.bytes.get(walk.at..walk.at + length)?;
    let (words, _) = header.get(4..)?.as_chunks::<4>();
    let first = u32::from_le_bytes(*words.first()?);
    let bitmaps = 1 + words
        .iter()
        .take_while(|&&word| u32::from_le_bytes(word) & MORE != 0)
        .count();
    let mut at = 4 + bitmaps * 4;
    if first & FLAGS == 0 {
        return None;
    }
    if first & TIME_STAMP != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    header.get(at).copied()
}

/// A header that only states its length, in the given byte order, at the given place.
pub(super) fn capture_header(walk: &mut Walk<'_, '_>, length: usize) -> Option<Next> {
    walk.skip(length.max(8))?;
    frame(walk, false)
}

/// An 802.11 frame: data goes on with LLC, everything else carries no IP.
pub(super) fn frame(walk: &mut Walk<'_, '_>, padded: bool) -> Option<Next> {
    let begin = walk.at;
    let control = walk.take::<2>()?;
    let is_data = control[0] & 0x0f == 0x08;
    let has_no_body = control[0] & 0x40 != 0;
    let is_encrypted = control[1] & 0x40 != 0;
    if !is_data || has_no_body || is_encrypted {
        return walk.stop(Problem::NotIp);
    }
    let mut length = if control[1] & 0x03 == 0x03 { 30 } else { 24 };
    let mut aggregated = false;
    if control[0] & 0x80 != 0 {
        let quality = walk.bytes.get(begin + length).copied().unwrap_or(0);
        aggregated = quality & 0x80 != 0;
        length += 2;
        // High-throughput control.
        if control[1] & 0x80 != 0 {
            length += 4;
        }
    }
    if padded {
        length = length.next_multiple_of(4);
    }
    walk.at = begin;
    walk.skip(length)?;
    if aggregated {
        // Several frames in one: the first counts.
        let header = walk.take::<14>()?;
        walk.limit(usize::from(u16::from_be_bytes([header[12], header[13]])));
    }
    ethernet::llc(walk)
}
