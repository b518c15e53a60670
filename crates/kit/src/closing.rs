//! Detection of closed TCP connections.

use std::collections::HashMap;

use flowgauge_wire::{Decoded, Direction, TcpFlags};

/// Connections with a FIN or RST, by key number.
///
/// A connection is closed when both FINs were acknowledged, or it was reset. For open connections, only a bit is
/// checked.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// A bit by number.
    marked: Vec<u64>,
    states: HashMap<u32, State>,
    /// Those that have closed and have not ended yet.
    pub(crate) closed: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// By direction: the sequence number behind the FIN.
    fin: [Option<u32>; 2],
    is_acknowledged: [bool; 2],
    has_closed: bool,
}

impl Closing {
    /// Processes a packet of a connection. Returns false if it does not belong to it, because the connection was
    /// closed and the packet opens a new one.
    #[inline]
    pub(crate) fn goes_on(&mut self, number: u32, packet: &Decoded) -> bool {
        const ENDS: TcpFlags = TcpFlags::FIN.with(TcpFlags::RST);
        let word = self.marked.get(number as usize / 64).copied().unwrap_or(0);
        if word >> (number % 64) & 1 == 0 && !packet.tcp_flags.intersects(ENDS) {
            return true;
        }
        self.look(number, packet)
    }

    #[cold]
    fn look(&mut self, number: u32, packet: &Decoded) -> bool {
        let word = number as usize / 64;
        if self.marked.len() <= word {
            self.marked.resize(word + 1, 0);
        }
        self.marked[word] |= 1 << (number % 64);
        let flags = packet.tcp_flags;
        let state = self.states.entry(number).or_default();
        if state.has_closed {
            return !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::ACK);
        }
        let (mine, theirs) = match packet.direction {
            Direction::LowToHigh => (0, 1),
            Direction::HighToLow => (1, 0),
        };
        if flags.contains(TcpFlags::FIN) {
            state.fin[mine] = Some(packet.seq.wrapping_add(packet.payload_len).wrapping_add(1));
        }
        if flags.contains(TcpFlags::ACK)
            && let Some(end) = state.fin[theirs]
        {
            state.is_acknowledged[theirs] |= packet.ack.wrapping_sub(end) < 1 << 31;
        }
        if flags.contains(TcpFlags::RST) || state.is_acknowledged == [true; 2] {
            state.has_closed = true;
            self.closed.push(number);
        }
        true
    }

    /// Frees these numbers for reuse.
    pub(crate) fn forget(&mut self, ended: &[u32]) {
        for number in ended {
            if let Some(word) = self.marked.get_mut(*number as usize / 64)
                && *word >> (number % 64) & 1 != 0
            {
                *word &= !(1 << (number % 64));
                self.states.remove(number);
            }
        }
    }
}
