//! Live capture from `AF_PACKET` sockets (`TPACKET_V3`), and of mirror ports from `AF_XDP` sockets.
//!
//! Batches borrow the kernel's ring; a block is returned to the kernel when its last packet has been processed. The
//! filter runs in the kernel if possible. The kernel does not count the packets its program refuses, so
//! [`Ledger::received`] of a live source means: packets that passed the filter in the kernel, whether there was room
//! for them or not.
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

/// The name for all interfaces.
pub const ANY: &str = "any";

/// The interface and settings of a live capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveConfig {
    /// Name of the interface, or [`ANY`].
    pub interface: String,
    /// Filter in pcap-filter syntax; empty: none.
    pub filter: String,
    /// Maximum number of bytes captured per packet.
    pub snap_len: u32,
    /// Size of each socket's ring in bytes; rounded to whole blocks, at least two.
    pub buffer_bytes: u64,
    /// Whether to receive packets for other hosts as well.
    pub promiscuous: bool,
    /// Whether to capture packets of this process's own connections (`flowgauge_sys::own`). A process that sends its
    /// captured packets elsewhere would otherwise capture and send those again, without end.
    pub own_traffic: bool,
    /// Milliseconds without packets until an empty batch is returned.
    pub tick_ms: u32,
    /// Milliseconds until packets of a block that is not full are delivered.
    pub retire_ms: u32,
}

impl LiveConfig {
    /// The default settings: no filter, whole packets, 64 MiB, promiscuous.
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

/// Stops live sources from anywhere, including signal handlers. Packets in the ring are still delivered, then the
/// source ends.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl From<Arc<AtomicBool>> for StopHandle {
    /// A handle that is triggered by setting `flag`, as signal handlers do.
    fn from(flag: Arc<AtomicBool>) -> StopHandle {
        StopHandle(flag)
    }
}

impl StopHandle {
    /// Asks the source to end, which it does within a tick.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`StopHandle::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The interfaces that can be captured, by index.
///
/// # Errors
/// [`Error::Interface`] if the system does not list them.
pub fn list_interfaces() -> Result<Vec<NetworkInterface>, Error> {
    interfaces::list().map_err(|error| Error::Interface {
        name: ANY.to_owned(),
        reason: format!("the system does not list its interfaces: {error}"),
        hint: "check that netlink sockets are allowed here".to_owned(),
    })
}

/// The link type for an ARP hardware type; `None` if frames are captured from their network header on, because their
/// link header is unknown or none of the known types.
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
