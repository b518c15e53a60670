//! SYNs within ongoing connections.
//!
//! Anyone who can send packets with a forged address can put a SYN into a connection. A receiver answers it with a
//! challenge ACK (RFC 5961, section 4) and continues; a monitor that took it for the start of another connection would
//! lose the rest of this one. On the other hand, a host may have forgotten a connection whose end was not captured.
//! Such a SYN therefore changes nothing until the other side answers it: with a SYN-ACK, or with a RST because it knows
//! no connection. If only one side of a connection was captured, the sender's next packet decides. The previous
//! connection then ends at the SYN, which is the first packet of the new one.

use std::collections::HashMap;

use flowgauge_wire::{Decoded, FoldedState, Nanos, TcpFlags};

use crate::flow::Flow;
use crate::tcp_state::Endpoint;

/// The most that are held; one more is refused, and counted.
const MOST: usize = 4096;

/// A SYN that may be the first packet of another connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSyn {
    pub(crate) syn: Decoded,
    /// Time of its side's last packet before it.
    pub(crate) last: Nanos,
}

/// By flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldSyns {
    by_flow: HashMap<u32, HeldSyn, FoldedState>,
    /// There was no room for so many.
    pub(crate) refused: u64,
}

impl HeldSyns {
    /// Remembers the last one of a flow.
    #[cold]
    pub(crate) fn note(&mut self, id: u32, held: HeldSyn) {
        if self.by_flow.len() < MOST || self.by_flow.contains_key(&id) {
            self.by_flow.insert(id, held);
        } else {
            self.refused += 1;
        }
    }

    /// That of a flow, taken out, if `packet` says that it began another connection.
    #[inline]
    pub(crate) fn confirmed(&mut self, id: u32, flow: &Flow, packet: &Decoded) -> Option<HeldSyn> {
        if self.by_flow.is_empty() {
            return None;
        }
        let held = self.by_flow.get(&id)?;
        let first = held.syn.seq.wrapping_add(1);
        // Behind its data or not (RFC 7413).
        let goes_on = |seq: u32| seq.wrapping_sub(first) <= held.syn.payload_len;
        let flags = packet.tcp_flags;
        let is_answer = packet.direction != held.syn.direction
            && flags.contains(TcpFlags::ACK)
            && flags.intersects(TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0))
            && goes_on(packet.ack);
        let is_next = packet.direction == held.syn.direction
            && flow.hot.tcp.of(1 - packet.direction.index()) == Endpoint::INACTIVE
            && flags.contains(TcpFlags::ACK)
            && !flags.contains(TcpFlags::SYN)
            && goes_on(packet.seq);
        match is_answer || is_next {
            true => self.by_flow.remove(&id),
            false => None,
        }
    }

    /// The flow is over.
    #[inline]
    pub(crate) fn forget(&mut self, id: u32) {
        if !self.by_flow.is_empty() {
            self.by_flow.remove(&id);
        }
    }

    /// All flows are over.
    pub(crate) fn clear(&mut self) {
        self.by_flow.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut syns = HeldSyns::default();
        let held = HeldSyn {
            syn: Decoded::default(),
            last: Nanos::ZERO,
        };
        for id in 0..MOST as u32 + 3 {
            syns.note(id, held);
        }
        syns.note(0, held);
        assert_eq!((syns.by_flow.len(), syns.refused), (MOST, 3));
        syns.forget(0);
        syns.note(u32::MAX, held);
        assert_eq!((syns.by_flow.len(), syns.refused), (MOST, 3));
    }
}
