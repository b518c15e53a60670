//! What nDPI's library takes flows for.
//!
//! The library wants packets. It gets what was sent as reassembly delivers it, in packets of its own: in
//! order and once, behind headers made for it. It sees no more of a flow than [`MOST_PIECES`] of them, and
//! no more than [`MOST_OPEN`] flows at a time.

use std::collections::HashMap;

use flowgauge_kit::headers::{ACK, Headers, PUSH};
use flowgauge_stack::SettingError;
use flowgauge_stream::{Chunk, Stream, StreamIdentity};
use flowgauge_sys::ndpi::{Detector, Protocol};

/// Pieces of a flow that are looked at.
const MOST_PIECES: u8 = 24;
/// Bytes of a piece of a TCP stream; what is longer is cut into several.
const PIECE: usize = 1_460;
/// Bytes of a datagram that are looked at.
const DATAGRAM: usize = 8_192;
/// Flows that are looked at at the same time, by each core: another one ends what is known of the first.
/// A state takes about a kilobyte, and at worst the pieces that the library keeps.
const MOST_OPEN: usize = 4_096;
/// Flows of which the outcome is kept; a full table is emptied.
const MOST_FLOWS: usize = 1 << 22;

/// TCP's flag that begins a connection.
const SYN: u8 = 2;

/// The library, and the flows that it looks at.
pub(super) struct Ndpi {
    detector: Detector,
    flows: HashMap<u64, Examined>,
    /// By number of the state.
    open: Vec<Open>,
    /// The state that is ended next.
    hand: usize,
    /// The packet at hand.
    packet: Vec<u8>,
    /// By number of the protocol, as far as they were asked for: as a protocol, and as an application.
    names: HashMap<u16, (Box<str>, Box<str>)>,
}

#[derive(Clone, Copy, Debug)]
enum Examined {
    Open(u32),
    Done(Protocol),
}

/// A flow that is looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    flow_id: u64,
    pieces: u8,
    found: Protocol,
    /// Where the two directions are; the initiator's second.
    next: [u32; 2],
}

impl Ndpi {
    /// # Errors
    /// When the library is not installed, or not of the version that is known.
    pub(super) fn new() -> Result<Ndpi, SettingError> {
        let detector = Detector::new().map_err(|error| {
            SettingError::of("ndpi", error.to_string()).with_hint("apt install libndpi4.2")
        })?;
        Ok(Ndpi {
            detector,
            flows: HashMap::new(),
            open: Vec::new(),
            hand: 0,
            packet: Vec::new(),
            names: HashMap::new(),
        })
    }

    /// What was sent in a flow. Returns whether more may be of use.
    pub(super) fn data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) -> bool {
        let identity = stream.identity();
        let state = match self.flows.get(&identity.flow_id) {
            Some(Examined::Done(_)) => return false,
            Some(Examined::Open(state)) => *state,
            None => self.begin(stream, &identity, chunk),
        };
        let is_udp = identity.protocol == 17;
        let milliseconds = chunk.time.0 / 1_000_000;
        let side = usize::from(stream.from_initiator);
        let pieces = match is_udp {
            true => chunk
                .bytes
                .get(..DATAGRAM)
                .unwrap_or(chunk.bytes)
                .chunks(DATAGRAM),
            false => chunk.bytes.chunks(PIECE),
        };
        let mut offset = chunk.offset as u32;
        for bytes in pieces {
            let Some(open) = self.open.get_mut(state as usize) else {
                return false;
            };
            let positions = (1_u32.wrapping_add(offset), open.next[1 - side].max(1));
            offset = offset.wrapping_add(bytes.len() as u32);
            open.next[side] = 1_u32.wrapping_add(offset);
            frame(&mut self.packet, &identity, positions, ACK | PUSH, bytes);
            open.pieces += 1;
            open.found = self.detector.packet(state, &self.packet, milliseconds);
            let is_told = open.found.is_known() && !self.detector.has_more(state);
            if is_told || open.pieces >= MOST_PIECES {
                self.end(state);
                return false;
            }
        }
        true
    }

    /// A flow of which nothing was looked at.
    fn begin(&mut self, stream: &Stream<'_>, identity: &StreamIdentity, chunk: &Chunk<'_>) -> u32 {
        if self.detector.open_states() >= MOST_OPEN {
            self.hand = (self.hand + 1) % MOST_OPEN;
            self.end(self.hand as u32);
        }
        if self.flows.len() >= MOST_FLOWS {
            let open = |_: &u64, it: &mut Examined| matches!(it, Examined::Open(_));
            self.flows.retain(open);
        }
        let state = self.detector.open();
        if self.open.len() <= state as usize {
            self.open.resize(state as usize + 1, Open::default());
        }
        if let Some(open) = self.open.get_mut(state as usize) {
            *open = Open {
                flow_id: identity.flow_id,
                ..Open::default()
            };
        }
        self.flows.insert(identity.flow_id, Examined::Open(state));
        let is_opened = identity.protocol == 6
            && stream
                .record(|record| record.history.starts_with('S'))
                .unwrap_or(false);
        if is_opened {
            let mut there = *identity;
            if !stream.from_initiator {
                core::mem::swap(&mut there.source, &mut there.destination);
            }
            let back = StreamIdentity {
                source: there.destination,
                destination: there.source,
                ..there
            };
            for (identity, positions, flags) in [
                (&there, (0, 0), SYN),
                (&back, (0, 1), SYN | ACK),
                (&there, (1, 1), ACK),
            ] {
                frame(&mut self.packet, identity, positions, flags, &[]);
                let milliseconds = chunk.time.0 / 1_000_000;
                self.detector.packet(state, &self.packet, milliseconds);
            }
        }
        state
    }

    /// Ends what is known of a flow that goes on, perhaps.
    fn end(&mut self, state: u32) {
        let Some(open) = self.open.get(state as usize).copied() else {
            return;
        };
        let last = self.detector.close(state);
        let found = if last.is_known() { last } else { open.found };
        if let Some(examined) = self.flows.get_mut(&open.flow_id)
            && matches!(examined, Examined::Open(number) if *number == state)
        {
            *examined = Examined::Done(found);
        }
    }

    /// The protocol of a flow and its application, where they are known.
    pub(super) fn of(&mut self, flow_id: u64, is_over: bool) -> (Option<&str>, Option<&str>) {
        if is_over && let Some(Examined::Open(state)) = self.flows.get(&flow_id) {
            self.end(*state);
        }
        let examined = match is_over {
            true => self.flows.remove(&flow_id),
            false => self.flows.get(&flow_id).copied(),
        };
        let found = match examined {
            None => Protocol::default(),
            Some(Examined::Done(found)) => found,
            Some(Examined::Open(state)) => {
                let open = self.open.get(state as usize);
                open.map_or(Protocol::default(), |open| open.found)
            }
        };
        let (protocol, application) = match (found.master, found.application) {
            (0, protocol) => (protocol, 0),
            (protocol, application) if protocol == application => (protocol, 0),
            both => both,
        };
        for number in [protocol, application] {
            let detector = &self.detector;
            self.names.entry(number).or_insert_with(|| {
                let theirs = detector.name(number).unwrap_or_else(|| number.to_string());
                (ours(&theirs).into(), theirs.into())
            });
        }
        let names = |number: u16| self.names.get(&number).filter(|_| number != 0);
        (
            names(protocol).map(|(protocol, _)| &**protocol),
            names(application).map(|(_, application)| &**application),
        )
    }
}

/// Makes a packet of what was sent, from its IP header on.
fn frame(
    packet: &mut Vec<u8>,
    identity: &StreamIdentity,
    positions: (u32, u32),
    flags: u8,
    payload: &[u8],
) {
    packet.clear();
    let headers = Headers::new(identity, positions, flags, payload.len());
    packet.extend_from_slice(headers.bytes());
    packet.extend_from_slice(payload);
}

/// Our name of a protocol of nDPI's: the same as elsewhere, or its own in small letters.
fn ours(theirs: &str) -> String {
    let same = SAME.iter().find(|(name, _)| *name == theirs);
    same.map_or_else(
        || theirs.to_ascii_lowercase(),
        |(_, ours)| (*ours).to_owned(),
    )
}

/// Protocols that go by other names than nDPI's.
const SAME: &[(&str, &str)] = &[
    ("FTP_CONTROL", "ftp"),
    ("FTP_DATA", "ftp_data"),
    ("Jabber", "xmpp"),
    ("MDNS", "dns"),
    ("LLMNR", "dns"),
    ("SMBv1", "smb"),
    ("SMBv23", "smb"),
];

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Address, Nanos};

    use super::*;
    use crate::skipped::skipped;

    fn ndpi() -> Option<Ndpi> {
        match Ndpi::new() {
            Ok(ndpi) => Some(ndpi),
            Err(error) => {
                skipped(format_args!("{error:?}"));
                None
            }
        }
    }

    fn identity(flow_id: u64, protocol: u8, version: u8) -> StreamIdentity {
        StreamIdentity {
            flow_id,
            source: (Address::v4([10, 0, 0, 1]), 4_000),
            destination: (Address::v4([10, 0, 0, 2]), 8_081),
            version,
            protocol,
            ..StreamIdentity::default()
        }
    }

    fn says(ndpi: &mut Ndpi, identity: &StreamIdentity, bytes: &[u8], offset: u64) -> bool {
        let chunk = Chunk {
            bytes,
            offset,
            gap_before: 0,
            skipped: 0,
            time: Nanos(1_000_000_000),
            captured: Nanos(1_000_000_000),
        };
        ndpi.data(&Stream::detached(0, identity), &chunk)
    }

    #[test]
    fn requests_are_known_in_pieces_and_over_both_versions_of_ip() {
        let Some(mut ndpi) = ndpi() else { return };
        let request = b"GET / HTTP/1.1\r\nHost: www.facebook.com\r\nUser-Agent: test\r\n\r\n";
        for version in [4, 6] {
            let flow = identity(u64::from(version), 6, version);
            says(&mut ndpi, &flow, &request[..30], 0);
            says(&mut ndpi, &flow, &request[30..], 30);
            // While it goes on, and when it ends; then it is forgotten.
            for is_over in [false, true] {
                let found = ndpi.of(flow.flow_id, is_over);
                assert_eq!(found.0, Some("http"), "{version} {is_over}");
            }
            assert_eq!(ndpi.of(flow.flow_id, true), (None, None));
        }
        assert_eq!(ndpi.detector.open_states(), 0);
        assert!(ndpi.flows.is_empty());
    }

    #[test]
    fn pieces_and_flows_are_bounded() {
        let Some(mut ndpi) = ndpi() else { return };
        let flow = identity(1, 17, 4);
        let mut pieces = 1;
        while says(&mut ndpi, &flow, &[0x91; 64], pieces * 64) {
            pieces += 1;
        }
        assert!(pieces <= u64::from(MOST_PIECES), "{pieces}");
        assert_eq!(ndpi.detector.open_states(), 0);
        // One long piece is several.
        says(&mut ndpi, &identity(2, 6, 4), &[0x91; 30 * PIECE], 0);
        assert_eq!(ndpi.detector.open_states(), 0);
        for flow_id in 0..MOST_OPEN as u64 + 100 {
            says(&mut ndpi, &identity(1_000 + flow_id, 17, 4), &[0x91; 64], 0);
        }
        assert_eq!(ndpi.detector.open_states(), MOST_OPEN);
        for flow_id in 0..MOST_OPEN as u64 + 100 {
            assert_eq!(ndpi.of(1_000 + flow_id, true), (None, None));
        }
        assert_eq!(ndpi.detector.open_states(), 0);
    }
}
