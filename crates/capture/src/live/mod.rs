//! Live capture from `AF_PACKET` sockets (`TPACKET_V3`), and of mirror ports from `AF_XDP` sockets.
//!
//! Batches borrow the kernel's ring; a block of it goes back to the kernel when its last packet
//! is done with. The filter runs in the kernel where it can. What its program refuses is not
//! counted by the kernel, so [`Ledger::received`] of a live source means: packets that passed the
//! filter in the kernel, whether there was room for them or not.
//!
//! [`Ledger::received`]: flowgauge_wire::Ledger::received

mod assembler;
mod fanout;
mod kernel_filter;
mod merged;
mod own;
mod ring;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_sys::interfaces;
pub use flowgauge_sys::interfaces::NetworkInterface;
use flowgauge_sys::packet::{HEADROOM, RingOptions, XdpOptions, hardware};
use flowgauge_wire::LinkType;

pub use merged::MergedSource;
pub use source::LiveSource;

use crate::error::Error;
use crate::filter::DEFAULT_SNAP_LEN;

/// The name that stands for all interfaces.
pub const ANY: &str = "any";

/// What to capture live, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveConfig {
    /// Name of the interface, or [`ANY`].
    pub interface: String,
    /// Filter in pcap-filter syntax; none when empty.
    pub filter: String,
    /// Bytes of each packet that are captured at most.
    pub snap_len: u32,
    /// Bytes of the ring of each socket; rounded to whole blocks, at least two.
    pub buffer_bytes: u64,
    /// Whether to receive what is not for this host, too.
    pub promiscuous: bool,
    /// Whether to keep packets of this process's own connections (`flowgauge_sys::own`): who sends what is captured
    /// elsewhere would capture that, and send it, without end.
    pub own_traffic: bool,
    /// Milliseconds without packets after which an empty batch is returned.
    pub tick_ms: u32,
    /// Milliseconds after which packets are handed over although their block is not full.
    pub retire_ms: u32,
}

impl LiveConfig {
    /// The usual settings: no filter, whole packets, 64 MiB, promiscuous.
    pub fn new(interface: &str) -> LiveConfig {
        LiveConfig {
            interface: interface.to_owned(),
            filter: String::new(),
            snap_len: DEFAULT_SNAP_LEN,
            buffer_bytes: 64 << 20,
            promiscuous: true,
            own_traffic: false,
            tick_ms: 100,
            retire_ms: 8,
        }
    }

    /// Blocks of 128 KiB: large enough for any frame, small enough that a few of them stay in the cache. A block is handed
    /// over after `retire_ms`, however little is in it: the ring holds what comes in that time by its blocks (4 seconds of the
    /// usual settings), or as many bytes as it has.
    fn ring(&self) -> RingOptions {
        const BLOCK: u64 = 1 << 17;

        RingOptions {
            block_bytes: BLOCK as u32,
            blocks: (self.buffer_bytes / BLOCK).clamp(2, 1 << 15) as u32,
            retire_ms: self.retire_ms,
        }
    }

    /// Of a mirror port with so many receive queues: frames that a packet fits into with two VLAN tags, if any do, as many as the
    /// buffer has.
    fn xdp(&self, queues: u32, mtu: u32, workers: usize) -> XdpOptions {
        const HEADERS: u32 = 14 + 2 * 4;
        const SIZES: [u32; 2] = [2048, 4096];

        let fits = |bytes: &u32| mtu + HEADERS <= bytes - HEADROOM;
        let frame = SIZES.into_iter().find(fits);
        let frame_bytes = frame.unwrap_or(4096);
        let frames = self.buffer_bytes / u64::from(frame_bytes) / u64::from(queues.max(1));
        let frames = frames.clamp(64, 1 << 16) as u32;
        let mut options = XdpOptions {
            queues: queues.max(1),
            workers: workers.max(1) as u32,
            frames: 1 << frames.ilog2(),
            frame_bytes,
            long: frame.is_none(),
            snap_len: self.snap_len,
        };
        // Places in it have 32 bits.
        while options.bytes() > u32::MAX.into() && options.frames > 64 {
            options.frames /= 2;
        }
        options
    }
}

/// Stops live sources from anywhere, a signal handler included. What is in the ring is still
/// delivered, then the source ends.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl From<Arc<AtomicBool>> for StopHandle {
    /// A handle that is triggered by setting `flag`, as signal handlers do.
    fn from(flag: Arc<AtomicBool>) -> StopHandle {
        StopHandle(flag)
    }
}

impl StopHandle {
    /// Asks the source to end. It notices within its tick.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was asked to.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The interfaces that can be captured on, by index.
///
/// # Errors
/// [`Error::Interface`] when the system does not tell.
pub fn list_interfaces() -> Result<Vec<NetworkInterface>, Error> {
    interfaces::list().map_err(|error| Error::Interface {
        name: ANY.to_owned(),
        reason: format!("the system does not list its interfaces: {error}"),
        hint: "check that netlink sockets are allowed here".to_owned(),
    })
}

/// The link type of frames from an interface of an ARP hardware type; `None` where the frames
/// are taken from their network header on, because their link header is unknown or has none of
/// the known types.
pub fn link_type_of(hardware_type: u16) -> Option<LinkType> {
    match hardware_type {
        hardware::ETHERNET | hardware::LOOPBACK => Some(LinkType::ETHERNET),
        hardware::IEEE80211 => Some(LinkType::IEEE802_11),
        hardware::IEEE80211_RADIOTAP => Some(LinkType::IEEE802_11_RADIOTAP),
        hardware::RAW_IP
        | hardware::TUNNEL
        | hardware::TUNNEL6
        | hardware::SIT
        | hardware::NONE => Some(LinkType::RAW),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
