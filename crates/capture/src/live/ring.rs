//! The kernel's packet ring.

use std::io;

use flowgauge_sys::libpcap::Instruction;
use flowgauge_sys::packet::{RingPacket, RingSocket, Statistics, Waker, Wakeup, XdpRing};

use super::kernel_filter;

/// A ring of the kernel.
#[derive(Debug)]
pub(super) enum Ring {
    /// Copies of what the system has.
    Socket(RingSocket),
    /// What the system does not get.
    Mirror(XdpRing),
}

impl Ring {
    pub(super) fn socket(&self) -> Option<&RingSocket> {
        match self {
            Ring::Socket(ring) => Some(ring),
            Ring::Mirror(_) => None,
        }
    }

    pub(super) fn mirror(&self) -> Option<&XdpRing> {
        match self {
            Ring::Socket(_) => None,
            Ring::Mirror(ring) => Some(ring),
        }
    }

    pub(super) fn next_packets(&mut self, limit: usize, each: impl FnMut(RingPacket)) -> usize {
        match self {
            Ring::Socket(ring) => ring.next_packets(limit, each),
            Ring::Mirror(ring) => ring.next_packets(limit, each),
        }
    }

    pub(super) fn memory(&self) -> &[u8] {
        match self {
            Ring::Socket(ring) => ring.memory(),
            Ring::Mirror(ring) => ring.memory(),
        }
    }

    pub(super) fn wait(&mut self, limit_ms: u32, waker: Option<&Waker>) -> io::Result<Wakeup> {
        match self {
            Ring::Socket(ring) => ring.wait(limit_ms, waker),
            Ring::Mirror(ring) => ring.wait(limit_ms, waker),
        }
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        match self {
            Ring::Socket(ring) => ring.take_error(),
            Ring::Mirror(ring) => ring.take_error(),
        }
    }

    pub(super) fn statistics(&mut self) -> io::Result<Statistics> {
        match self {
            Ring::Socket(ring) => ring.statistics(),
            Ring::Mirror(ring) => ring.statistics(),
        }
    }

    /// A filter of packets before they are put there, which only a socket has.
    pub(super) fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        match self {
            Ring::Socket(ring) => ring.set_filter(program),
            Ring::Mirror(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn set_promiscuous(&self, interface: i32) -> io::Result<()> {
        match self {
            Ring::Socket(ring) => ring.set_promiscuous(interface),
            Ring::Mirror(ring) => ring.set_promiscuous(),
        }
    }

    /// Lets nothing in any more.
    pub(super) fn close(&mut self) {
        match self {
            // It cannot fail where a filter was attached before; without it draining ends by count.
            Ring::Socket(ring) => drop(ring.set_filter(&kernel_filter::reject_all())),
            Ring::Mirror(ring) => ring.close(),
        }
    }

    pub(super) fn is_half_full(&self) -> bool {
        match self {
            Ring::Socket(ring) => ring.is_half_full(),
            Ring::Mirror(ring) => ring.is_half_full(),
        }
    }

    /// How many of its blocks wait to be taken, with the one that is being read. Of a mirror port they are frames.
    pub(super) fn filled_blocks(&self) -> u32 {
        match self {
            Ring::Socket(ring) => ring.filled_blocks(),
            Ring::Mirror(ring) => ring.filled_frames(),
        }
    }

    /// Whether the next packets were there when the last ones were looked for.
    pub(super) fn is_within_block(&self) -> bool {
        match self {
            Ring::Socket(ring) => ring.left() != 0,
            Ring::Mirror(ring) => ring.is_within_look(),
        }
    }
}
