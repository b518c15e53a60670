//! Packet delivery: the packets of a chunk as they were captured (section 5.7 of the paper).
//!
//! A packet is a record of its headers, kept aside, and a place in the chunk's bytes: the payload is
//! not kept twice. Only where the chunk does not have it (a copy of what an earlier chunk had, the
//! part that the next chunk has, bytes that lost against others) it is kept aside, too.

use flowgauge_wire::Nanos;

use crate::handler::StreamPacket;

/// One captured packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPacket<'a> {
    /// Capture time.
    pub time: Nanos,
    /// Length on the wire.
    pub wire_len: u32,
    /// The captured frame up to its transport payload.
    pub header: &'a [u8],
    /// Captured payload.
    pub payload: &'a [u8],
    /// Payload length by the headers.
    pub payload_len: u32,
    /// Where its payload begins in the stream, where that is known.
    pub offset: Option<i64>,
}

/// Where a packet's parts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketRecord {
    pub(super) time: Nanos,
    /// Stream offset; `i64::MIN` where it is not known.
    pub(super) offset: i64,
    pub(super) wire_len: u32,
    pub(super) payload_len: u32,
    pub(super) captured: u32,
    /// Where the payload begins, in the chunk or aside.
    pub(super) payload_at: u32,
    /// Where the headers begin aside.
    pub(super) header_at: u32,
    pub(super) header_len: u16,
    /// Whether the payload is in the chunk.
    pub(super) in_chunk: bool,
}

/// A packet on its way into a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewPacket<'a> {
    pub(super) time: Nanos,
    pub(super) wire_len: u32,
    pub(super) header: &'a [u8],
    pub(super) payload: &'a [u8],
    pub(super) payload_len: u32,
    pub(super) offset: Option<i64>,
}

impl<'a> NewPacket<'a> {
    pub(super) fn of(packet: &StreamPacket<'a>) -> NewPacket<'a> {
        let decoded = packet.decoded;
        let header_len = packet.frame.len().min(decoded.payload_offset as usize);
        NewPacket {
            time: decoded.time,
            wire_len: decoded.wire_len,
            header: packet
                .frame
                .get(..header_len.min(usize::from(u16::MAX)))
                .unwrap_or(&[]),
            payload: packet.payload,
            payload_len: decoded.payload_len,
            offset: packet.offset,
        }
    }
}

/// Room for `more`, in steps that [`PacketList::memory_with`] foretells.
fn reserve<T>(list: &mut Vec<T>, more: usize, least: usize) {
    let len = list.len() + more;
    if len > list.capacity() {
        let capacity = len.max(2 * list.capacity()).max(least);
        list.reserve_exact(capacity - list.len());
    }
}

/// The packets of a chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketList {
    pub(super) records: Vec<PacketRecord>,
    pub(super) aside: Vec<u8>,
}

impl PacketList {
    /// Forgets the packets, keeps the room for them.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.aside.clear();
    }

    /// A copy without spare room.
    pub(super) fn trimmed(&self) -> PacketList {
        PacketList {
            records: self.records.to_vec(),
            aside: self.aside.to_vec(),
        }
    }

    /// Bytes it will take with another packet that has `aside` bytes kept aside.
    pub(super) fn memory_with(&self, aside: usize) -> u64 {
        let grown = |len: usize, capacity: usize, least: usize| {
            if len <= capacity {
                capacity
            } else {
                len.max(2 * capacity).max(least)
            }
        };
        let records = grown(self.records.len() + 1, self.records.capacity(), 4);
        let aside = grown(self.aside.len() + aside, self.aside.capacity(), 256);
        (size_of::<PacketList>() + records * size_of::<PacketRecord>() + aside) as u64
    }

    /// Adds a packet. Its payload is at `payload_at` in the chunk, or is kept aside.
    pub(super) fn push(&mut self, packet: &NewPacket<'_>, payload_at: Option<u32>) {
        let header_at = self.aside.len() as u32;
        let at = payload_at.unwrap_or(header_at + packet.header.len() as u32);
        let aside = match payload_at {
            Some(_) => &[],
            None => packet.payload,
        };
        reserve(&mut self.aside, packet.header.len() + aside.len(), 256);
        reserve(&mut self.records, 1, 4);
        self.aside.extend_from_slice(packet.header);
        self.aside.extend_from_slice(aside);
        self.records.push(PacketRecord {
            time: packet.time,
            offset: packet.offset.unwrap_or(i64::MIN),
            wire_len: packet.wire_len,
            payload_len: packet.payload_len,
            captured: packet.payload.len() as u32,
            payload_at: at,
            header_at,
            header_len: packet.header.len() as u16,
            in_chunk: payload_at.is_some(),
        });
    }

    /// Bytes of memory it takes.
    pub(super) fn memory(&self) -> u64 {
        let records = self.records.capacity() * size_of::<PacketRecord>();
        (size_of::<PacketList>() + records + self.aside.capacity()) as u64
    }
}

/// The packets of a chunk in the order they were captured.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    records: core::slice::Iter<'a, PacketRecord>,
    aside: &'a [u8],
    chunk: &'a [u8],
}

impl<'a> Packets<'a> {
    pub(super) fn new(list: Option<&'a PacketList>, chunk: &'a [u8]) -> Packets<'a> {
        match list {
            Some(list) => Packets {
                records: list.records.iter(),
                aside: &list.aside,
                chunk,
            },
            None => Packets {
                records: [].iter(),
                aside: &[],
                chunk,
            },
        }
    }
}

impl Default for Packets<'_> {
    /// No packets.
    fn default() -> Self {
        Packets::new(None, &[])
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = ChunkPacket<'a>;

    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        let record = self.records.next()?;
        let part = |memory: &'a [u8], at: u32, len: usize| {
            let at = at as usize;
            memory.get(at..at + len).unwrap_or(&[])
        };
        let memory = if record.in_chunk {
            self.chunk
        } else {
            self.aside
        };
        Some(ChunkPacket {
            time: record.time,
            wire_len: record.wire_len,
            header: part(self.aside, record.header_at, usize::from(record.header_len)),
            payload: part(memory, record.payload_at, record.captured as usize),
            payload_len: record.payload_len,
            offset: (record.offset != i64::MIN).then_some(record.offset),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl ExactSizeIterator for Packets<'_> {}
