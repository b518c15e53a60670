//! `AF_PACKET` sockets (packet(7)): a memory-mapped receive ring, and sockets that another library has opened; `AF_XDP` sockets.

mod borrowed;
pub(crate) mod raw;
mod ring;
mod xdp;

pub use borrowed::BorrowedSocket;
pub use ring::{
    Fanout, RingOptions, RingPacket, RingSocket, Statistics, Waker, Wakeup, statistics, wait_any,
};
pub use xdp::{HEADROOM, XdpOptions, XdpRing};

/// `sll_hatype` values (ARP hardware types) that matter for capturing.
pub mod hardware {
    /// Ethernet.
    pub const ETHERNET: u16 = 1;
    /// PPP.
    pub const PPP: u16 = 512;
    /// Raw IP without link header (`ARPHRD_RAWIP`).
    pub const RAW_IP: u16 = 519;
    /// IP in IP tunnel.
    pub const TUNNEL: u16 = 768;
    /// IP in IPv6 tunnel.
    pub const TUNNEL6: u16 = 769;
    /// The loopback interface; its frames have an Ethernet header.
    pub const LOOPBACK: u16 = 772;
    /// IPv6 in IPv4 tunnel.
    pub const SIT: u16 = 776;
    /// IEEE 802.11 without radio header.
    pub const IEEE80211: u16 = 801;
    /// IEEE 802.11 behind a radiotap header.
    pub const IEEE80211_RADIOTAP: u16 = 803;
    /// No link header (tun).
    pub const NONE: u16 = 0xfffe;
}
