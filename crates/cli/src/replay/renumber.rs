//! Frames of other hosts that are the same otherwise.

/// Exclusive-ors the last 16 bits of both IP addresses of an Ethernet frame, and keeps its checksums as right or wrong as they
/// were. What is no IP, and what tunnels carry, stays.
pub(super) fn renumber(frame: &mut [u8], mask: u16) {
    let mut at = 12;
    let mut kind = word(frame, at);
    while matches!(kind, Some(0x8100 | 0x88a8 | 0x9100)) {
        at += 4;
        kind = word(frame, at);
    }
    let ip = at + 2;
    match kind {
        Some(0x0800) => of_v4(frame, ip, mask),
        Some(0x86dd) => of_v6(frame, ip, mask),
        _ => None,
    };
}

fn of_v4(frame: &mut [u8], ip: usize, mask: u16) -> Option<()> {
    let header = usize::from(frame.get(ip)? & 15) * 4;
    let is_later = word(frame, ip + 6)? & 0x1fff != 0;
    let protocol = *frame.get(ip + 9)?;
    let words = [ip + 14, ip + 18];
    // All or nothing.
    word(frame, words[1])?;
    let change = words.map(|at| flip(frame, at, mask));
    fix(frame, ip + 10, &change);
    if !is_later {
        fix_transport(frame, ip + header, protocol, &change);
    }
    Some(())
}

fn of_v6(frame: &mut [u8], ip: usize, mask: u16) -> Option<()> {
    const FRAGMENT: u8 = 44;
    let words = [ip + 22, ip + 38];
    word(frame, words[1])?;
    let change = words.map(|at| flip(frame, at, mask));
    let (mut next, mut at) = (*frame.get(ip + 6)?, ip + 40);
    // Hop-by-hop options, routing, fragments, destination options.
    while matches!(next, 0 | 43 | FRAGMENT | 60) {
        if next == FRAGMENT && word(frame, at + 2)? >> 3 != 0 {
            return Some(());
        }
        let len = match next {
            FRAGMENT => 8,
            _ => (usize::from(*frame.get(at + 1)?) + 1) * 8,
        };
        next = *frame.get(at)?;
        at += len;
    }
    fix_transport(frame, at, next, &change);
    Some(())
}

/// Changes a word, and returns what it was and is.
fn flip(frame: &mut [u8], at: usize, mask: u16) -> (u16, u16) {
    let before = word(frame, at).unwrap_or_default();
    set(frame, at, before ^ mask);
    (before, before ^ mask)
}

fn fix_transport(frame: &mut [u8], at: usize, protocol: u8, change: &[(u16, u16)]) {
    match protocol {
        6 => fix(frame, at + 16, change),
        // None was computed.
        17 if word(frame, at + 6) == Some(0) => {}
        17 => fix(frame, at + 6, change),
        58 => fix(frame, at + 2, change),
        _ => {}
    }
}

/// RFC 1624, equation 3.
fn fix(frame: &mut [u8], at: usize, change: &[(u16, u16)]) {
    let Some(sum) = word(frame, at) else {
        return;
    };
    let each = change
        .iter()
        .map(|&(before, now)| u32::from(!before) + u32::from(now));
    let mut sum = u32::from(!sum) + each.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    set(frame, at, !(sum as u16));
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn set(frame: &mut [u8], at: usize, value: u16) {
    if let Some(bytes) = frame.get_mut(at..at + 2) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
}
