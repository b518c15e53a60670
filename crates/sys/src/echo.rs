//! Echoes of ICMP (RFC 792) and ICMPv6 (RFC 4443): what `ping` sends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with,
};

/// Type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;

/// A socket for echoes of one host.
#[derive(Debug)]
pub struct Echo {
    socket: OwnedFd,
    is_v4: bool,
    /// The kernel tells our answers from those of others, and there are no IP headers.
    is_own: bool,
    identifier: [u8; 2],
}

impl Echo {
    /// Asks nothing yet. Without `CAP_NET_RAW`, the process's group has to be in `net.ipv4.ping_group_range`.
    ///
    /// # Errors
    /// The system's: neither is so.
    pub fn new(target: IpAddr) -> io::Result<Echo> {
        let (family, protocol) = match target {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = |kind| socket_with(family, kind, flags, Some(protocol));
        let own = open(SocketType::DGRAM);
        let is_own = own.is_ok();
        let socket = own.or_else(|_| open(SocketType::RAW))?;
        connect(&socket, &SocketAddr::new(target, 0))?;
        Ok(Echo {
            socket,
            is_v4: target.is_ipv4(),
            is_own,
            identifier: (std::process::id() as u16).to_be_bytes(),
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The system's.
    pub fn ask(&self, sequence: u16) -> io::Result<()> {
        let mut message = [0; HEADER];
        message[0] = if self.is_v4 { 8 } else { 128 };
        message[4..6].copy_from_slice(&self.identifier);
        message[6..].copy_from_slice(&sequence.to_be_bytes());
        if self.is_v4 {
            // Of ICMPv6 the kernel computes it.
            let words = message
                .chunks_exact(2)
                .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// The sequence number of an answer, if one comes in time.
    ///
    /// # Errors
    /// The system's.
    pub fn answer(&self, time: Duration) -> io::Result<Option<u16>> {
        let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time))? == 0 {
            return Ok(None);
        }
        let mut packet = [0; 128];
        let (len, _) = recv(&self.socket, &mut packet, RecvFlags::empty())?;
        let packet = &packet[..len.min(packet.len())];
        let header = match packet.first() {
            Some(first) if self.is_v4 && !self.is_own => usize::from(first & 15) * 4,
            _ => 0,
        };
        let message = packet.get(header..header + HEADER);
        let is_ours = |it: &&[u8]| {
            let kind = if self.is_v4 { 0 } else { 129 };
            it[0] == kind && (self.is_own || it[4..6] == self.identifier)
        };
        let message = message.filter(is_ours);
        Ok(message.map(|it| u16::from_be_bytes([it[6], it[7]])))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn this_machine_answers() {
        for target in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let echo = match Echo::new(target) {
                Ok(echo) => echo,
                Err(error) => {
                    println!("not tested: {target}: {error}");
                    continue;
                }
            };
            for sequence in [1, 0x1234, 0xffff] {
                echo.ask(sequence).unwrap();
                // Raw sockets see requests on loopback, too.
                let mut answers =
                    (0..100).filter_map(|_| echo.answer(Duration::from_secs(1)).unwrap());
                assert_eq!(answers.next(), Some(sequence), "{target}");
            }
        }
    }
}
