//! Round trips as packets of a connection show them: TCP's time stamps (RFC 7323), QUIC's spin bit (RFC 9000, section 17.4).

use flowgauge_wire::{Decoded, Nanos, TcpFlags, TcpOption, TcpOptions};

use crate::sums::Spread;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Versions of QUIC whose short headers have a spin bit: RFC 9000 and RFC 9369.
const QUIC: [[u8; 4]; 2] = [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf]];
/// A share of edges out of turn that packets out of order explain; endpoints that set the bit at random have more.
const OUT_OF_TURN: u32 = 4;

/// What a packet says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// A segment's time stamp, and the one that it echoes; whether it is answered at once.
    Stamp {
        value: u32,
        echo: Option<u32>,
        asks: bool,
    },
    /// A packet of a handshake of QUIC.
    Quic,
    /// What may be a packet of QUIC after the handshake, with its spin bit.
    Spin(bool),
}

impl Signal {
    #[inline]
    pub(crate) fn of(packet: &Decoded, frame: &[u8]) -> Option<Signal> {
        match packet.key.protocol {
            TCP => {
                let mut options = TcpOptions::of(frame, packet);
                let stamps = options.find_map(|option| match option {
                    TcpOption::Timestamps(value, echo) => Some((value, echo)),
                    _ => None,
                });
                let (value, echo) = stamps?;
                let flags = packet.tcp_flags;
                Some(Signal::Stamp {
                    value,
                    echo: flags.contains(TcpFlags::ACK).then_some(echo),
                    asks: packet.payload_len > 0 || flags.intersects(TcpFlags::SYN),
                })
            }
            UDP => match *packet.payload_of(frame) {
                // The second bit, once fixed, may be anything (RFC 9287).
                [first, a, b, c, d, ..] if first & 0x80 > 0 && QUIC.contains(&[a, b, c, d]) => {
                    Some(Signal::Quic)
                }
                [first, ..] if first & 0x80 == 0 => Some(Signal::Spin(first & 0x20 != 0)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What one direction waits for of the other.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    /// The time stamp whose echo is waited for (of QUIC any edge), and when it passed.
    asked: Option<(u32, Nanos)>,
    /// The latest time stamp.
    latest: Option<u32>,
    is_quic: bool,
    spin: Option<bool>,
    /// Edges of the spin bit that came in turn with those of the other direction, and others.
    edges: [u32; 2],
    found: Spread,
}

impl RoundTrips {
    /// Takes what a packet of this direction says; `other` is the other direction, whose trips end with it.
    #[inline]
    pub(crate) fn packet(&mut self, signal: Signal, time: Nanos, other: Option<&mut RoundTrips>) {
        match signal {
            Signal::Stamp { value, echo, asks } => {
                if let (Some(other), Some(echo)) = (other, echo) {
                    other.echoed(echo, time);
                }
                let is_new = self.latest.is_none_or(|latest| is_after(value, latest));
                if is_new {
                    self.latest = Some(value);
                }
                // Of segments with the same stamp the first one is answered.
                if is_new && asks && self.asked.is_none() {
                    self.asked = Some((value, time));
                }
            }
            Signal::Quic => self.is_quic = true,
            Signal::Spin(spin) => {
                let Some(other) = other.filter(|other| self.is_quic || other.is_quic) else {
                    return;
                };
                if self.spin.replace(spin).is_none_or(|before| before == spin) {
                    return;
                }
                // Each end turns the bit once it has seen the other one's: a second edge before that is of a packet that came late.
                if self.asked.is_some() {
                    self.edges[1] = self.edges[1].saturating_add(1);
                    return;
                }
                self.edges[0] = self.edges[0].saturating_add(1);
                self.asked = Some((0, time));
                other.echoed(0, time);
            }
        }
    }

    /// The other direction answers what had this stamp.
    fn echoed(&mut self, echo: u32, time: Nanos) {
        let Some((value, asked)) = self.asked else {
            return;
        };
        if echo == value {
            let trip = time.0.saturating_sub(asked.0);
            self.found.add(i64::try_from(trip).unwrap_or(i64::MAX));
        }
        // One that was lost is answered with a later one.
        if echo == value || is_after(echo, value) {
            self.asked = None;
        }
    }

    /// Those since this was asked last: from the point to the receiver of this direction, and back.
    pub(crate) fn take(&mut self) -> Spread {
        let found = core::mem::take(&mut self.found);
        let [in_turn, others] = self.edges;
        match others.saturating_mul(OUT_OF_TURN) <= in_turn {
            true => found,
            false => Spread::default(),
        }
    }
}

/// In serial number arithmetic (RFC 1982).
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// What is found of the first direction, of packets with their direction, their time in milliseconds and what they say.
    fn found(packets: &[(usize, u64, Signal)]) -> Vec<u64> {
        let (mut one, mut other) = (RoundTrips::default(), RoundTrips::default());
        let mut found = Vec::new();
        for (direction, time, signal) in packets {
            let time = Nanos(time * MILLI);
            match direction {
                0 => one.packet(*signal, time, Some(&mut other)),
                _ => other.packet(*signal, time, Some(&mut one)),
            }
            found.extend(one.take().least().map(|trip| trip as u64 / MILLI));
        }
        found
    }

    fn stamp(value: u32, echo: u32, asks: bool) -> Signal {
        let echo = Some(echo);
        Signal::Stamp { value, echo, asks }
    }

    #[test]
    fn the_first_segment_with_a_stamp_is_timed() {
        let last = u32::MAX;
        let packets = [
            (0, 0, stamp(last, 7, true)),
            (0, 5, stamp(last, 7, true)),
            (1, 30, stamp(8, last, false)),
            (1, 31, stamp(8, last, true)),
            // An acknowledgement is not answered, a segment that is sent again has been there.
            (0, 40, stamp(1, 8, false)),
            (0, 41, stamp(last, 7, true)),
            (1, 50, stamp(9, 1, false)),
            // This one is lost: the next one is answered.
            (0, 60, stamp(2, 9, true)),
            (0, 70, stamp(3, 9, true)),
            (1, 100, stamp(10, 3, false)),
            (0, 110, stamp(4, 10, true)),
            (1, 120, stamp(11, 3, false)),
            (1, 135, stamp(12, 4, false)),
        ];
        assert_eq!(found(&packets), [30, 25]);
    }

    #[test]
    fn edges_of_the_spin_bit_are_answered_by_edges() {
        let mut packets = vec![(0, 0, Signal::Quic)];
        let mut value = false;
        for round in 0..20 {
            let from = round * 100;
            // A packet that comes late looks like two edges more.
            let late = (round == 12).then_some((0, from + 12, Signal::Spin(!value)));
            packets.push((0, from + 10, Signal::Spin(value)));
            packets.extend(late);
            packets.push((0, from + 13, Signal::Spin(value)));
            packets.push((1, from + 50, Signal::Spin(value)));
            packets.push((1, from + 51, Signal::Spin(value)));
            value = !value;
        }
        // The first bits are no edges.
        assert_eq!(found(&packets), [40; 19]);
        // Nobody said that it is QUIC.
        assert!(found(&packets[1..]).is_empty());
    }

    #[test]
    fn random_bits_are_no_round_trips() {
        let mut packets = vec![(0, 0, Signal::Quic)];
        let mut state = 1_u64;
        for time in 0..1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            packets.push((
                (state >> 62) as usize & 1,
                time,
                Signal::Spin(state >> 63 > 0),
            ));
        }
        assert!(
            found(&packets).len() < 10,
            "before there were enough of them"
        );
    }
}
