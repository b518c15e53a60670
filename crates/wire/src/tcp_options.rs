//! TCP options (RFC 9293 section 3.2, RFC 2018, RFC 7323).

use crate::decoded::{DecodeFlags, Decoded};

/// One TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption<'a> {
    /// Maximum segment size, bytes.
    MaximumSegmentSize(u16),
    /// Window scale: the window is shifted left by this (more than 14 counts as 14).
    WindowScale(u8),
    /// Selective acknowledgement is permitted.
    SackPermitted,
    /// Selective acknowledgements: pairs of left and right edge.
    Sack(SackBlocks<'a>),
    /// Timestamp value and echo reply.
    Timestamps(u32, u32),
    /// Any other kind, or one with a wrong length for its kind, with its data.
    Other(u8, &'a [u8]),
}

/// The blocks of a SACK option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl SackBlocks<'_> {
    /// Left and right edge of each block.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|&[a, b, c, d, e, f, g, h]| {
            (
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            )
        })
    }
}

/// The options of a TCP header, in order. Ends at the end-of-list option, at the end of the
/// header or of the captured bytes, and at an invalid length; at most forty items.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// The options in `bytes`, which follow the first twenty bytes of a TCP header.
    pub fn new(bytes: &'a [u8]) -> TcpOptions<'a> {
        TcpOptions {
            rest: bytes.get(..40).unwrap_or(bytes),
        }
    }

    /// The options of `packet`, whose offsets refer to `bytes`; none if it is not a complete
    /// TCP header.
    pub fn of(bytes: &'a [u8], packet: &Decoded) -> TcpOptions<'a> {
        if packet.key.protocol != 6
            || !packet.flags.contains(DecodeFlags::TRANSPORT)
            || packet.flags.contains(DecodeFlags::FRAGMENT)
        {
            return TcpOptions { rest: &[] };
        }
        let start = usize::from(packet.transport_offset) + 20;
        let end = (packet.payload_offset as usize).min(bytes.len());
        TcpOptions::new(bytes.get(start..end).unwrap_or(&[]))
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        loop {
            match *self.rest {
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ref rest @ ..] if kind >= 2 && length >= 2 => {
                    let Some((data, rest)) = rest.split_at_checked(usize::from(length) - 2) else {
                        self.rest = &[];
                        return None;
                    };
                    self.rest = rest;
                    return Some(option(kind, data));
                }
                _ => {
                    self.rest = &[];
                    return None;
                }
            }
        }
    }
}

fn option(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data) {
        (2, &[a, b]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([a, b])),
        (3, &[shift]) => TcpOption::WindowScale(shift.min(14)),
        (4, []) => TcpOption::SackPermitted,
        (5, _) if !data.is_empty() && data.len().is_multiple_of(8) => {
            TcpOption::Sack(SackBlocks(data.as_chunks().0))
        }
        (8, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps(
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
        ),
        _ => TcpOption::Other(kind, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_syn() {
        let bytes = [
            2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7, 0, 9, 9,
        ];
        let found: Vec<_> = TcpOptions::new(&bytes).collect();
        assert_eq!(
            found,
            [
                TcpOption::MaximumSegmentSize(1460),
                TcpOption::SackPermitted,
                TcpOption::Timestamps(1, 2),
                TcpOption::WindowScale(7),
            ]
        );
    }

    #[test]
    fn blocks_of_a_sack() {
        let bytes = [5, 10, 0, 0, 0, 5, 0, 0, 0, 9];
        let Some(TcpOption::Sack(blocks)) = TcpOptions::new(&bytes).next() else {
            panic!("no SACK");
        };
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [(5, 9)]);
    }

    #[test]
    fn lengths_that_make_no_sense_end_the_options() {
        for bytes in [&[2u8, 0, 1, 1][..], &[2, 1], &[3, 200, 1], &[8], &[]] {
            assert_eq!(TcpOptions::new(bytes).next(), None);
        }
        assert_eq!(
            TcpOptions::new(&[2, 3, 9]).next(),
            Some(TcpOption::Other(2, &[9]))
        );
    }
}
