//! Where nobody listens until a test does. Tests of all crates take this file in as a module.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Systems give no port as low as this to who asks for any.
const FIRST_PORT: u16 = 2233;

/// An address of this machine that nobody else takes: its host is this process's, its port this call's. (A port
/// that the system gave, and got back, is soon given to another test.)
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    // A process's number has 22 bits; one more keeps away from 127.0.0.1, where others are.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high | 64, middle, low);
    (host, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}
