//! A naive reader of a capture: what is in it, without a line of the engine.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// A packet over Ethernet and IPv4.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) nanos: u64,
    pub(crate) wire: u64,
    pub(crate) bytes: Vec<u8>,
}

fn be(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes[at..at + count]
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Packet {
    /// Seconds in 32.32 fixed point.
    pub(crate) fn ticks(&self) -> u64 {
        ticks(self.nanos)
    }

    fn ip(&self) -> &[u8] {
        assert_eq!(self.bytes[12..14], [8, 0], "only IPv4 is in this trace");
        &self.bytes[14..]
    }

    pub(crate) fn protocol(&self) -> u8 {
        self.ip()[9]
    }

    pub(crate) fn ttl(&self) -> u64 {
        self.ip()[8].into()
    }

    pub(crate) fn ip_len(&self) -> u64 {
        be(self.ip(), 2, 2)
    }

    pub(crate) fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(be(self.ip(), 12, 4) as u32)
    }

    pub(crate) fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(be(self.ip(), 16, 4) as u32)
    }

    fn transport(&self) -> &[u8] {
        &self.ip()[usize::from(self.ip()[0] & 15) * 4..]
    }

    pub(crate) fn ports(&self) -> (u64, u64) {
        (be(self.transport(), 0, 2), be(self.transport(), 2, 2))
    }

    pub(crate) fn sequence(&self) -> u64 {
        be(self.transport(), 4, 4)
    }

    pub(crate) fn flags(&self) -> u8 {
        match self.protocol() {
            6 => self.transport()[13],
            _ => 0,
        }
    }

    pub(crate) fn contains(&self, text: &[u8]) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text)
    }
}

/// Nanoseconds as seconds in 32.32 fixed point.
pub(crate) fn ticks(nanos: u64) -> u64 {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    (seconds << 32) + (rest << 32) / 1_000_000_000
}

/// The packets of a pcap file of this machine's byte order.
pub(crate) fn packets(file: &Path) -> Vec<Packet> {
    parse(&fs::read(file).unwrap()).unwrap()
}

/// Those of a file of any kind; nothing where it is another one, or damaged.
pub(crate) fn parse(bytes: &[u8]) -> Option<Vec<Packet>> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u64::from(u32::from_ne_bytes(word)))
    };
    let unit = match word(0)? {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        _ => return None,
    };
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let captured = word(at + 8)? as usize;
        packets.push(Packet {
            nanos: word(at)? * 1_000_000_000 + word(at + 4)? * unit,
            wire: word(at + 12)?,
            bytes: bytes.get(at + 16..at + 16 + captured)?.to_vec(),
        });
        at += 16 + captured;
    }
    Some(packets)
}

/// A trace of UDP datagrams on Ethernet to a port.
pub(crate) fn datagrams<'a>(all: impl Iterator<Item = &'a [u8]>, port: u16) -> Vec<u8> {
    let mut trace = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        trace.extend(word.to_ne_bytes());
    }
    for datagram in all {
        let (udp, ip) = (8 + datagram.len() as u16, 28 + datagram.len() as u16);
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(ip.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        frame.extend(port.to_be_bytes());
        frame.extend(port.to_be_bytes());
        frame.extend(udp.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(datagram);
        for word in [1, 0, frame.len() as u32, frame.len() as u32] {
            trace.extend(word.to_ne_bytes());
        }
        trace.extend(frame);
    }
    trace
}
