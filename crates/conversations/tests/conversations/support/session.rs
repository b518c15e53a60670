//! TCP connections that tests make up, as raw IPv4 packets.

#![allow(missing_docs, unreachable_pub)]

use serde_json::Value;

use crate::support::Run;

pub const CLIENT: [u8; 4] = [192, 0, 2, 1];
pub const SERVER: [u8; 4] = [192, 0, 2, 2];

/// A connection from this port of the client's to that one of the server's.
pub struct Session {
    ports: [u16; 2],
    /// What comes next, of the server, of the client.
    next: [u32; 2],
    pub packets: Vec<Vec<u8>>,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const PSH: u8 = 8;

impl Session {
    pub fn new(port: u16, service: u16) -> Session {
        let mut session = Session {
            ports: [service, port],
            next: [5000, 1000],
            packets: Vec::new(),
        };
        session.packet(true, SYN, b"");
        session.packet(false, SYN | ACK, b"");
        session.packet(true, ACK, b"");
        session
    }

    /// A connection that the server opens, to this port of the client's.
    pub fn opened_by_server(port: u16, service: u16) -> Session {
        let mut session = Session {
            ports: [service, port],
            next: [5000, 1000],
            packets: Vec::new(),
        };
        session.packet(false, SYN, b"");
        session.packet(true, SYN | ACK, b"");
        session.packet(false, ACK, b"");
        session
    }

    pub fn packet(&mut self, from_client: bool, flags: u8, bytes: &[u8]) {
        let (mine, other) = (usize::from(from_client), usize::from(!from_client));
        let (from, to) = match from_client {
            true => (CLIENT, SERVER),
            false => (SERVER, CLIENT),
        };
        let mut packet = vec![0x45, 0];
        packet.extend((40 + bytes.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend(from);
        packet.extend(to);
        packet.extend(self.ports[mine].to_be_bytes());
        packet.extend(self.ports[other].to_be_bytes());
        packet.extend(self.next[mine].to_be_bytes());
        let acked = if flags & ACK == 0 {
            0
        } else {
            self.next[other]
        };
        packet.extend(acked.to_be_bytes());
        packet.extend([0x50, flags, 0x40, 0, 0, 0, 0, 0]);
        packet.extend(bytes);
        let control = u32::from(flags & (SYN | FIN) != 0);
        self.next[mine] += bytes.len() as u32 + control;
        self.packets.push(packet);
    }

    /// One says something, in segments.
    pub fn say(&mut self, from_client: bool, bytes: &[u8]) -> &mut Session {
        for part in bytes.chunks(1400) {
            self.packet(from_client, ACK | PSH, part);
        }
        self.packet(!from_client, ACK, b"");
        self
    }

    pub fn close(mut self) -> Vec<Vec<u8>> {
        self.packet(true, FIN | ACK, b"");
        self.packet(false, FIN | ACK, b"");
        self.packet(true, ACK, b"");
        self.packets
    }
}

/// A dialogue on a port of the server's, from its beginning to its end.
pub fn dialogue(service: u16, said: &[(bool, &[u8])]) -> Vec<Vec<u8>> {
    let mut session = Session::new(40_000, service);
    for (from_client, bytes) in said {
        session.say(*from_client, bytes);
    }
    session.close()
}

/// What `transactions` with these options gives for packets.
pub fn records(options: &str, packets: &[Vec<u8>]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let stack = format!(
        "[stack] transactions {{ checksums = ignore, {options} }} output {{ {} }}",
        out.display()
    );
    let mut run = Run::new(&stack);
    run.packets(packets, 16);
    run.finish();
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Those of a kind.
pub fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records
        .iter()
        .filter(|it| it["event_type"] == kind)
        .collect()
}
