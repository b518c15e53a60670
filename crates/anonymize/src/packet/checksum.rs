//! Checksums of what was made.
//!
//! What was right is right afterwards, what was wrong is wrong, and neither tells anything of what was taken out:
//! bytes that are not given out count as zeros. Where it cannot be said (a packet that was cut, a fragment) the
//! checksum is one that fits; only where the payload stays as it is the old one is changed by what changed
//! (RFC 1624), because it covers bytes that are not here.

use flowgauge_wire::checksum::Checksum;

use super::Walk;
use super::ip::Datagram;
use crate::field::Field;
use crate::rule::Function;

/// What was found of the checksum before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Wrong,
    Unknown,
}

/// What a transport's checksum covers beside the pseudo header.
pub(super) struct Covered {
    pub(super) protocol: u8,
    pub(super) at: usize,
    /// By the headers; not all of it need be captured.
    pub(super) end: usize,
    /// Where the checksum is.
    pub(super) checksum: usize,
}

/// The checksum of bytes: 0 where one is in them and right.
pub(super) fn of(bytes: &[u8]) -> u16 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish()
}

impl Walk<'_> {
    /// The sum of what is given out between two places.
    pub(super) fn sum(&self, at: usize, end: usize) -> Checksum {
        let end = end.min(self.cut).min(self.out.len());
        let mut sum = Checksum::default();
        sum.add(self.out.get(at..end).unwrap_or_default());
        sum
    }

    pub(super) fn header_checksum(&mut self, at: usize, end: usize, verdict: Verdict) {
        self.put(at + 10, &[0, 0]);
        let right = self.sum(at, end).finish();
        self.put_checksum(Field::IpChecksum, at + 10, right, verdict, false);
    }

    /// `is_kept`: the payload stays as it is.
    pub(super) fn transport_checksum(
        &mut self,
        field: Field,
        datagram: &Datagram,
        covered: &Covered,
        is_kept: bool,
    ) {
        let Some(old) = self
            .two(covered.checksum)
            .filter(|_| covered.checksum + 2 <= covered.end)
        else {
            return;
        };
        let is_udp = covered.protocol == 17;
        if is_udp && old == 0 {
            return;
        }
        // That of a TCP or UDP header is not in ICMP for IPv4.
        let pseudo = |of: &[u8]| {
            let mut sum = Checksum::default();
            if covered.protocol != 1 {
                let addresses = datagram.addresses..datagram.addresses + datagram.address_bytes();
                sum.add(of.get(addresses).unwrap_or_default());
                sum.add(&((covered.end - covered.at) as u32).to_be_bytes());
                sum.add(&[0, covered.protocol]);
            }
            sum
        };
        let is_whole = covered.end <= self.frame.len();
        let can_tell =
            is_whole && !datagram.is_fragment && !datagram.is_quoted && !datagram.is_routed;
        if !can_tell && is_kept && !datagram.is_routed {
            let mut change = Checksum::default();
            // The old sum is taken off by adding its complement, which is what finish gives.
            change.add(&(!old).to_be_bytes());
            let captured = covered.end.min(self.frame.len());
            for (of, is_old) in [(self.frame, true), (&*self.out, false)] {
                let mut sum = pseudo(of);
                sum.add(of.get(covered.at..covered.checksum).unwrap_or_default());
                sum.add(of.get(covered.checksum + 2..captured).unwrap_or_default());
                let complement = sum.finish();
                change.add(&if is_old { complement } else { !complement }.to_be_bytes());
            }
            let new = change.finish();
            return self.put_checksum(field, covered.checksum, new, Verdict::Right, is_udp);
        }
        let verdict = if can_tell {
            let mut sum = pseudo(self.frame);
            sum.add(self.frame.get(covered.at..covered.end).unwrap_or_default());
            if sum.finish() == 0 {
                Verdict::Right
            } else {
                Verdict::Wrong
            }
        } else {
            Verdict::Unknown
        };
        self.put(covered.checksum, &[0, 0]);
        let mut sum = pseudo(self.out);
        let end = covered.end.min(self.cut).min(self.out.len());
        sum.add(self.out.get(covered.at..end).unwrap_or_default());
        self.put_checksum(field, covered.checksum, sum.finish(), verdict, is_udp);
    }

    fn put_checksum(
        &mut self,
        field: Field,
        at: usize,
        right: u16,
        verdict: Verdict,
        is_udp: bool,
    ) {
        let (function, _, random) = self.it.payload_function(field);
        let value = match function {
            Function::Zero => 0,
            Function::Random => {
                let mut bytes = [0; 2];
                random.fill(&mut bytes);
                u16::from_be_bytes(bytes)
            }
            Function::PatternFill(pattern) => {
                let mut bytes = pattern.iter().cycle().copied();
                u16::from_be_bytes([bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)])
            }
            _ => {
                // Of UDP 0 means that there is none.
                let right = if is_udp && right == 0 { 0xffff } else { right };
                match verdict {
                    Verdict::Wrong => match right ^ 1 {
                        0 => 3,
                        wrong => wrong,
                    },
                    _ => right,
                }
            }
        };
        self.put(at, &value.to_be_bytes());
    }
}
