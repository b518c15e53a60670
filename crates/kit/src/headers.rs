//! IP, TCP and UDP headers for packets made from stream data.

use flowgauge_stream::StreamIdentity;
use flowgauge_wire::checksum::Checksum;

/// Bytes of an IPv6 header and a TCP header.
pub const MOST: usize = 60;
/// TCP's flag PSH.
pub const PUSH: u8 = 8;
/// TCP's flag ACK.
pub const ACK: u8 = 16;

/// The headers of a packet, from the IP header on. Checksums are 0.
pub struct Headers {
    bytes: [u8; MOST],
    length: usize,
}

impl Headers {
    /// Headers of a packet with this length of payload, sequence number and acknowledgement number.
    pub fn new(
        of: &StreamIdentity,
        (sequence, acknowledged): (u32, u32),
        flags: u8,
        payload: usize,
    ) -> Headers {
        let mut headers = Headers {
            bytes: [0; MOST],
            length: 0,
        };
        let is_udp = of.protocol == 17;
        let transport = (if is_udp { 8 } else { 20 } + payload) as u16;
        let ((source, from), (destination, to)) = (of.source, of.destination);
        if of.version == 4 {
            headers.push(&[0x45, 0]);
            headers.push(&transport.wrapping_add(20).to_be_bytes());
            headers.push(&[0, 0, 0, 0, 64, of.protocol, 0, 0]);
            headers.push(&source.0[12..]);
            headers.push(&destination.0[12..]);
        } else {
            headers.push(&[0x60, 0, 0, 0]);
            headers.push(&transport.to_be_bytes());
            headers.push(&[of.protocol, 64]);
            headers.push(&source.0);
            headers.push(&destination.0);
        }
        headers.push(&from.to_be_bytes());
        headers.push(&to.to_be_bytes());
        if is_udp {
            headers.push(&transport.to_be_bytes());
            headers.push(&[0, 0]);
        } else {
            headers.push(&sequence.to_be_bytes());
            headers.push(&acknowledged.to_be_bytes());
            headers.push(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        }
        headers
    }

    /// Sets the IP and TCP checksums for this payload.
    #[must_use]
    pub fn with_checksums(mut self, payload: &[u8]) -> Headers {
        let sum = |parts: &[&[u8]]| {
            let mut checksum = Checksum::default();
            parts.iter().for_each(|part| checksum.add(part));
            checksum.finish().to_be_bytes()
        };
        let is_v4 = self.bytes[0] >> 4 == 4;
        let (addresses, start) = if is_v4 { (12, 20) } else { (8, 40) };
        if is_v4 {
            let header = sum(&[&self.bytes[..start]]);
            self.bytes[10..12].copy_from_slice(&header);
        }
        let tcp = &self.bytes[start..start + 20];
        let length = (tcp.len() + payload.len()) as u16;
        let [high, low] = length.to_be_bytes();
        let transport = sum(&[
            &self.bytes[addresses..start],
            &[0, 6, high, low],
            tcp,
            payload,
        ]);
        self.bytes[start + 16..start + 18].copy_from_slice(&transport);
        self
    }

    /// The bytes, from the IP header on.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(part);
            self.length = end;
        }
    }
}
