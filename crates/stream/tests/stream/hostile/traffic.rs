//! What hosts send, and a note of every byte of it.

use std::collections::HashMap;

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use super::Random;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The client's port, and whether it sends.
pub(crate) type Direction = (u16, bool);

/// By position in its stream: which of the variants of a byte were sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    positions: HashMap<u64, u8>,
    /// UDP: bytes so far.
    len: u64,
    /// When the packet was sent that says where the stream begins; only a flow that began with it
    /// knows.
    pub(crate) begins: Option<Nanos>,
}

impl Sent {
    pub(crate) fn has(&self, position: u64, byte: u8) -> bool {
        let position = position & u64::from(u32::MAX);
        let variants = self.positions.get(&position).copied().unwrap_or(0);
        (0..3).any(|variant| variants & 1 << variant != 0 && truth(position, variant) == byte)
    }
}

/// The byte at a position of every stream, in one of three variants.
fn truth(position: u64, variant: u8) -> u8 {
    let byte = (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8;
    byte ^ [0, 0x55, 0xff][usize::from(variant)]
}

pub(crate) struct Traffic {
    pub(crate) memory: Vec<u8>,
    pub(crate) packets: Vec<PacketDescriptor>,
    pub(crate) now: Nanos,
    pub(crate) sent: HashMap<Direction, Sent>,
    pub(crate) sent_packets: u64,
    connections: Vec<Connection>,
    next_port: u16,
    differs: bool,
    at_most: usize,
}

#[derive(Clone)]
struct Connection {
    port: u16,
    is_udp: bool,
    /// Of client and server: sequence number of the first byte, and how far it has got.
    starts: [u32; 2],
    ends: [u64; 2],
    handshake: u8,
}

impl Traffic {
    pub(crate) fn new(random: &mut Random) -> Traffic {
        Traffic {
            memory: Vec::new(),
            packets: Vec::new(),
            now: Nanos::from_secs(1000),
            sent: HashMap::new(),
            sent_packets: 0,
            connections: Vec::new(),
            next_port: 1000,
            differs: random.once_in(2),
            at_most: random.of(&[1, 3, 10]),
        }
    }

    /// One packet more, or two.
    pub(crate) fn step(&mut self, random: &mut Random) {
        self.now = self.now + Nanos::from_micros(random.below(3000));
        if random.once_in(200) {
            self.now = self.now + Nanos::from_secs(random.below(20));
        }
        if self.connections.is_empty()
            || self.connections.len() < self.at_most && random.once_in(10)
            || random.once_in(100)
        {
            return self.open(random);
        }
        let at = random.below(self.connections.len() as u64) as usize;
        if self.connections[at].is_udp {
            return self.datagram(random, at);
        }
        let connection = self.connections[at].clone();
        if connection.handshake < 3 {
            self.connections[at].handshake += 1;
            if !random.once_in(12) {
                return self.greet(&connection);
            }
        }
        let sender = usize::from(random.once_in(4));
        match random.below(60) {
            0 => self.control(random, at, sender, RST),
            1 => self.control(random, at, sender, FIN),
            2..=9 => self.control(random, at, sender, 0),
            10 => {
                let len = random.below(50) as usize;
                self.other(random.below(3) as u16, len);
            }
            _ => self.segment(random, at, sender),
        }
    }

    fn open(&mut self, random: &mut Random) {
        if self.connections.len() >= self.at_most {
            let at = random.below(self.connections.len() as u64) as usize;
            self.connections.swap_remove(at);
        }
        self.next_port += 1;
        let start = |random: &mut Random| random.of(&[1000, 0xffff_fe00, 0x7fff_ff00]);
        let connection = Connection {
            port: self.next_port,
            is_udp: random.once_in(8),
            starts: [start(random), start(random)],
            ends: [0; 2],
            handshake: 1,
        };
        if !connection.is_udp {
            let now = self.now;
            self.sent.entry((connection.port, true)).or_default().begins = Some(now);
            let seq = connection.starts[0].wrapping_sub(1);
            self.tcp(connection.port, 0, seq, 0, SYN, &[]);
        }
        self.connections.push(connection);
    }

    fn greet(&mut self, connection: &Connection) {
        let [client, server] = connection.starts;
        if connection.handshake == 1 {
            let opened = self
                .sent
                .get(&(connection.port, true))
                .and_then(|sent| sent.begins);
            self.sent
                .entry((connection.port, false))
                .or_default()
                .begins = opened;
            let seq = server.wrapping_sub(1);
            self.tcp(connection.port, 1, seq, client, SYN | ACK, &[]);
        } else {
            self.tcp(connection.port, 0, client, server, ACK, &[]);
        }
    }

    /// What a side acknowledges: some of what the other has sent, or more than that.
    fn ack(&self, random: &mut Random, at: usize, sender: usize) -> u32 {
        let connection = &self.connections[at];
        let end = connection.ends[1 - sender];
        let acked = match random.below(12) {
            0..=5 => end.saturating_sub(random.below(3000)),
            6..=10 => end,
            _ => end + random.below(500),
        };
        connection.starts[1 - sender].wrapping_add(acked as u32)
    }

    fn control(&mut self, random: &mut Random, at: usize, sender: usize, flags: u8) {
        let ack = self.ack(random, at, sender);
        let connection = &self.connections[at];
        let moved = random.of(&[0, 0, 0, 1, 200, u32::MAX, 0x4000_0000]);
        let seq = connection.starts[sender].wrapping_add(connection.ends[sender] as u32);
        let port = connection.port;
        let data = match flags {
            FIN => random.of(&[0, 0, 30]),
            _ => 0,
        };
        let seq = seq.wrapping_add(moved);
        let at = i64::from(seq.wrapping_sub(connection.starts[sender]) as i32);
        let payload = self.payload((port, sender == 0), at, data, 0);
        self.tcp(port, sender, seq, ack, flags | ACK, &payload);
    }

    fn segment(&mut self, random: &mut Random, at: usize, sender: usize) {
        let ack = self.ack(random, at, sender);
        let end = self.connections[at].ends[sender];
        let len = random.of(&[1, 2, 17, 100, 333, 1000, 1448]);
        let from = match random.below(24) {
            // Before, over, right behind, behind a hole, far off.
            0 => end as i64 - 2000 + random.below(2000) as i64,
            1..=5 => end as i64 - random.below(1500) as i64,
            6..=9 => (end + random.below(2500)) as i64,
            10 if random.once_in(6) => {
                random.of(&[900_000_000, 900_000_010, 1 << 31, (1 << 31) - 300])
            }
            11 if random.once_in(4) => end as i64 + 70_000,
            _ => end as i64,
        };
        let variant = match self.differs {
            true if random.once_in(3) => random.below(3) as u8,
            _ => 0,
        };
        let connection = &mut self.connections[at];
        if from < 1 << 20 {
            connection.ends[sender] = end.max((from + len as i64).max(0) as u64);
        }
        let (port, start) = (connection.port, connection.starts[sender]);
        let payload = self.payload((port, sender == 0), from, len, variant);
        let mut flags = ACK;
        if random.once_in(150) {
            flags |= FIN;
        }
        self.tcp(
            port,
            sender,
            start.wrapping_add(from as u32),
            ack,
            flags,
            &payload,
        );
    }

    /// Bytes for positions from `from` on, noted as sent.
    fn payload(&mut self, direction: Direction, from: i64, len: usize, variant: u8) -> Vec<u8> {
        let sent = self.sent.entry(direction).or_default();
        let mut payload = Vec::with_capacity(len);
        for at in 0..len as i64 {
            // Sequence numbers have 32 bits: half the space away before is behind.
            let position = (from + at) as u64 & u64::from(u32::MAX);
            payload.push(truth(position, variant));
            *sent.positions.entry(position).or_default() |= 1 << variant;
        }
        payload
    }

    fn datagram(&mut self, random: &mut Random, at: usize) {
        let port = self.connections[at].port;
        let sender = usize::from(random.once_in(3));
        for to_server in [true, false] {
            let sent = self.sent.entry((port, to_server)).or_default();
            sent.begins = sent.begins.or(Some(self.now));
        }
        let sent = self.sent.entry((port, sender == 0)).or_default();
        let len = random.of(&[0, 1, 50, 1200]);
        let from = sent.len as i64;
        sent.len += len as u64;
        let payload = self.payload((port, sender == 0), from, len, 0);
        let mut transport = ports(port, sender);
        transport.extend((8 + payload.len() as u16).to_be_bytes());
        transport.extend([0, 0]);
        transport.extend(&payload);
        self.datagram_of(17, sender, &transport);
    }

    fn tcp(&mut self, port: u16, sender: usize, seq: u32, ack: u32, flags: u8, payload: &[u8]) {
        let mut transport = ports(port, sender);
        transport.extend(seq.to_be_bytes());
        transport.extend(ack.to_be_bytes());
        transport.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        transport.extend(payload);
        self.datagram_of(6, sender, &transport);
    }

    /// A packet of a protocol without streams.
    fn other(&mut self, sender: u16, len: usize) {
        self.datagram_of(200, usize::from(sender % 2), &vec![7; len]);
    }

    fn datagram_of(&mut self, protocol: u8, sender: usize, transport: &[u8]) {
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let offset = self.memory.len() as u32;
        self.memory.extend([0x45, 0]);
        self.memory
            .extend((20 + transport.len() as u16).to_be_bytes());
        self.memory.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        self.memory.extend(hosts[sender]);
        self.memory.extend(hosts[1 - sender]);
        self.memory.extend(transport);
        let len = self.memory.len() as u32 - offset;
        self.packets.push(PacketDescriptor {
            time: self.now,
            offset,
            captured_len: len,
            wire_len: len,
            link: LinkType::RAW,
            ..PacketDescriptor::default()
        });
    }
}

fn ports(port: u16, sender: usize) -> Vec<u8> {
    let ports = [port.to_be_bytes(), 80_u16.to_be_bytes()];
    [ports[sender], ports[1 - sender]].concat()
}
