//! Network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Moves the calling thread into the network namespace that `ip netns add NAME` made. Sockets
/// stay in the namespace they were opened in.
///
/// # Errors
/// `NotFound` when there is no such namespace, `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(Path::new("/run/netns").join(name))?;
    // SAFETY: an open descriptor and a flag; affects the calling thread only.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
