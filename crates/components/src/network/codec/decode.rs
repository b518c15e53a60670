//! Bytes to items.

use flowgauge_record::OwnedRecord;
use flowgauge_record::any::{OwnedObject, Value};
use flowgauge_record::text_list::TextList;
use flowgauge_stack::{StreamChunk, StreamEnd, StreamInfo};
use flowgauge_wire::{Address, LinkType, Nanos, PacketDescriptor, PacketFlags};

use super::announced::Announced;
use super::bytes::{Bytes, unzigzag};
use super::{
    HAS_ESTABLISHED, HAS_FLAGS, HAS_ORIGIN, HAS_SYN, HAS_VLAN, HAS_WIRE_LEN, IS_EARLY, Kind,
    MOST_DEPTH,
};

/// Reads a payload, some items at a time.
#[derive(Debug)]
pub(crate) struct Decoder {
    kind: Kind,
    pub(super) at: usize,
    last: u64,
    origin: Option<(u16, LinkType)>,
    /// Of chunks: the streams so far.
    streams: Vec<StreamInfo>,
}

/// A chunk in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) time: Nanos,
    pub(crate) offset: u64,
    pub(crate) gap_before: u64,
    pub(crate) captured: Nanos,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) end: Option<StreamEnd>,
    /// Its place among the streams of the payload.
    pub(crate) stream: usize,
}

impl ChunkPlace {
    pub(crate) fn chunk<'a>(
        &self,
        payload: &'a [u8],
        streams: &'a [StreamInfo],
    ) -> Option<StreamChunk<'a>> {
        Some(StreamChunk {
            key: 0,
            stream: streams.get(self.stream)?,
            bytes: payload
                .get(self.start..self.start + self.len)
                .unwrap_or_default(),
            offset: self.offset,
            gap_before: self.gap_before,
            time: self.time,
            captured: self.captured,
            end: self.end,
        })
    }
}

impl Decoder {
    /// At the beginning of a payload; `None`: it is none.
    pub(crate) fn new(payload: &[u8]) -> Option<Decoder> {
        Decoder::behind(payload, 0)
    }

    /// The same of a payload that begins there.
    pub(crate) fn behind(payload: &[u8], at: usize) -> Option<Decoder> {
        let mut bytes = Bytes { bytes: payload, at };
        Some(Decoder {
            kind: Kind::from_repr(bytes.byte()?)?,
            last: bytes.u64()?,
            at: bytes.at,
            origin: None,
            streams: Vec::new(),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether all was read.
    pub(crate) fn is_at_end(&self, payload: &[u8]) -> bool {
        self.at >= payload.len()
    }

    fn time(&mut self, bytes: &mut Bytes<'_>) -> Option<Nanos> {
        let difference = unzigzag(bytes.number()?);
        self.last = self.last.wrapping_add_signed(difference);
        Some(Nanos(self.last))
    }

    /// The next packet; its offset is in the payload.
    pub(crate) fn packet(
        &mut self,
        payload: &[u8],
        announced: &Announced,
    ) -> Option<PacketDescriptor> {
        let mut bytes = Bytes {
            bytes: payload,
            at: self.at,
        };
        let time = self.time(&mut bytes)?;
        let bits = bytes.byte()?;
        let captured_len = u32::try_from(bytes.number()?).ok()?;
        if bits & HAS_ORIGIN != 0 {
            self.origin = Some(announced.origin(bytes.number()?)?);
        }
        let (interface, link) = self.origin?;
        let mut packet = PacketDescriptor {
            time,
            offset: 0,
            captured_len,
            wire_len: captured_len,
            interface,
            link,
            ..PacketDescriptor::default()
        };
        if bits & HAS_WIRE_LEN != 0 {
            let extra = u32::try_from(bytes.number()?).ok()?;
            packet.wire_len = captured_len.checked_add(extra)?;
        }
        if bits & HAS_FLAGS != 0 {
            packet.flags = PacketFlags(bytes.u16()?);
        }
        if bits & HAS_VLAN != 0 {
            packet.vlan_tpid = bytes.u16()?;
            packet.vlan_tci = bytes.u16()?;
        }
        packet.offset = u32::try_from(bytes.at).ok()?;
        bytes.take(captured_len as usize)?;
        self.at = bytes.at;
        Some(packet)
    }

    /// The next chunk.
    pub(crate) fn chunk(&mut self, payload: &[u8]) -> Option<ChunkPlace> {
        let mut bytes = Bytes {
            bytes: payload,
            at: self.at,
        };
        let time = self.time(&mut bytes)?;
        let stream = match bytes.number()? {
            0 => {
                self.streams.push(stream(&mut bytes)?);
                self.streams.len() - 1
            }
            known => usize::try_from(known).ok()? - 1,
        };
        if stream >= self.streams.len() {
            return None;
        }
        let bits = bytes.byte()?;
        let early = match bits & IS_EARLY {
            0 => 0,
            _ => bytes.number()?,
        };
        let end = match bits & !IS_EARLY {
            0 => None,
            1 => Some(StreamEnd::Fin),
            2 => Some(StreamEnd::Rst),
            3 => Some(StreamEnd::Timeout),
            _ => return None,
        };
        let offset = bytes.number()?;
        let gap_before = bytes.number()?;
        let len = bytes.count(1).filter(|len| *len > 0 || end.is_some())?;
        let start = bytes.at;
        bytes.take(len)?;
        offset.checked_add(len as u64)?;
        self.at = bytes.at;
        Some(ChunkPlace {
            time,
            captured: Nanos(time.0.checked_sub(early)?),
            offset,
            gap_before,
            start,
            len,
            end,
            stream,
        })
    }

    /// The streams of the chunks that were read.
    pub(crate) fn streams(&self) -> &[StreamInfo] {
        &self.streams
    }

    /// The next record; with the number of its session and its own, where those become fields.
    pub(crate) fn record(
        &mut self,
        payload: &[u8],
        announced: &Announced,
        numbers: Option<(u64, u64)>,
    ) -> Option<(Nanos, OwnedRecord)> {
        let mut bytes = Bytes {
            bytes: payload,
            at: self.at,
        };
        let time = self.time(&mut bytes)?;
        let schema = announced.schema(bytes.number()?)?;
        let mut values = Vec::with_capacity(schema.len());
        let added = numbers.map_or(0, |_| 2);
        for _ in 0..schema.len().saturating_sub(added) {
            values.push(value(&mut bytes, announced, 0)?);
        }
        if let Some((session, number)) = numbers {
            values.extend([Value::Hex(session), Value::Unsigned(number)]);
        }
        self.at = bytes.at;
        Some((time, OwnedRecord::new(schema, values)))
    }
}

/// What is known of a stream.
fn stream(bytes: &mut Bytes<'_>) -> Option<StreamInfo> {
    let (version, bits) = (bytes.byte()?, bytes.byte()?);
    let mut endpoint = || {
        let address = match version {
            4 => Address::v4(bytes.take(4)?.try_into().ok()?),
            _ => Address(bytes.take(16)?.try_into().ok()?),
        };
        Some((address, bytes.u16()?))
    };
    let (source, destination) = (endpoint()?, endpoint()?);
    let mut time = |is_known: bool| match is_known {
        true => bytes.u64().map(|time| Some(Nanos(time))),
        false => Some(None),
    };
    Some(StreamInfo {
        source,
        destination,
        version,
        from_initiator: bits & 1 != 0,
        start: time(true)??,
        syn: time(bits & HAS_SYN != 0)?,
        established: time(bits & HAS_ESTABLISHED != 0)?,
        retransmitted: bytes.number()?,
    })
}

fn value(bytes: &mut Bytes<'_>, announced: &Announced, depth: usize) -> Option<Value> {
    Some(match bytes.byte()? {
        0 => Value::Null,
        1 => Value::Unsigned(bytes.number()?),
        2 => Value::Float(f64::from_bits(bytes.u64()?)),
        3 => Value::Text(bytes.text()?.into()),
        4 => symbol(bytes.text()?),
        5 => Value::Hex(bytes.u64()?),
        6 => Value::Address(Address::v4(bytes.take(4)?.try_into().ok()?), 4),
        7 => Value::Address(Address(bytes.take(16)?.try_into().ok()?), 6),
        8 => Value::Time(Nanos(bytes.u64()?)),
        9 => Value::Duration(Nanos(bytes.number()?)),
        10 => {
            let count = bytes.count(1)?;
            let values: Option<Vec<u64>> = (0..count).map(|_| bytes.number()).collect();
            Value::List(values?.into())
        }
        11 => Value::Object(None),
        12 if depth < MOST_DEPTH => {
            let count = bytes.count(2)?;
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                let field = announced.field(bytes.number()?)?;
                values.push((field, value(bytes, announced, depth + 1)?));
            }
            Value::Object(Some(OwnedObject::new(values)))
        }
        13 => {
            let count = bytes.count(1)?;
            let values: Option<TextList> = (0..count).map(|_| bytes.text()).collect();
            Value::Texts(values?)
        }
        _ => return None,
    })
}

/// Text that is written as it is, if it can be.
pub(super) fn symbol(text: &str) -> Value {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    if text.bytes().all(is_plain) {
        Value::Symbol(text.into())
    } else {
        Value::Text(text.into())
    }
}
