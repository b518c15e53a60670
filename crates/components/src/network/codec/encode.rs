//! Items to bytes.

use std::collections::HashMap;

use flowgauge_record::any::AnyRecord;
use flowgauge_record::{Field, FieldVisitor, ValueRef};
use flowgauge_stack::{StreamChunk, StreamEnd, StreamInfo};
use flowgauge_wire::{Address, LinkType, Nanos, PacketDescriptor, PacketFlags};

use super::bytes::{number, text, zigzag};
use super::{
    FIELD, HAS_ESTABLISHED, HAS_FLAGS, HAS_ORIGIN, HAS_SYN, HAS_VLAN, HAS_WIRE_LEN, IS_EARLY, Kind,
    MOST_CHUNK, ORIGIN, SCHEMA,
};

/// Makes payloads.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    payload: Vec<u8>,
    kind: Option<Kind>,
    count: u32,
    /// The time of the item before.
    last: u64,
    /// The origin of the packet before.
    origin: Option<(u16, LinkType)>,
    origins: HashMap<(u16, LinkType), u32>,
    /// By where they are: fields and schemas live as long as the program.
    fields: HashMap<usize, u32>,
    schemas: HashMap<usize, u32>,
    /// Streams of this payload, by what is known of them.
    streams: HashMap<Vec<u8>, u32>,
    described: Vec<u8>,
}

/// Where what is announced goes; returns its number.
pub(crate) type Announce<'a> = &'a mut dyn FnMut(Vec<u8>) -> u32;

impl Encoder {
    /// Items since the last payload was taken.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Their bytes.
    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Takes the payload out; the next one begins with room for as many bytes.
    pub(crate) fn take(&mut self) -> (Vec<u8>, u32) {
        let room = self.payload.len() + self.payload.len() / 8;
        let payload = core::mem::replace(&mut self.payload, Vec::with_capacity(room));
        let count = core::mem::take(&mut self.count);
        self.kind = None;
        self.streams.clear();
        (payload, count)
    }

    /// The same for one that is read without those before it: with what it refers to, which `announced` are, in their order.
    pub(crate) fn take_whole(&mut self, announced: &mut Vec<Vec<u8>>) -> (Vec<u8>, u32) {
        let before: usize = announced.iter().map(|text| text.len() + 4).sum();
        let mut whole = Vec::with_capacity(self.payload.len() + before + 4);
        number(&mut whole, announced.len() as u64);
        for one in announced.drain(..) {
            text(&mut whole, &one);
        }
        whole.extend_from_slice(&self.payload);
        self.payload.clear();
        let count = core::mem::take(&mut self.count);
        self.kind = None;
        self.streams.clear();
        self.origins.clear();
        self.fields.clear();
        self.schemas.clear();
        (whole, count)
    }

    /// What the payload holds, once something is in it.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    fn begin(&mut self, kind: Kind, time: Nanos) {
        if self.kind.is_none() {
            self.kind = Some(kind);
            self.payload.push(kind as u8);
            self.payload.extend_from_slice(&time.0.to_le_bytes());
            self.last = time.0;
            self.origin = None;
        }
        self.count += 1;
        let difference = time.0.wrapping_sub(self.last) as i64;
        self.last = time.0;
        number(&mut self.payload, zigzag(difference));
    }

    /// Adds a packet.
    pub(crate) fn packet(
        &mut self,
        packet: &PacketDescriptor,
        bytes: &[u8],
        announce: Announce<'_>,
    ) {
        self.begin(Kind::Packets, packet.time);
        let origin = (packet.interface, packet.link);
        let extra = packet.wire_len.saturating_sub(bytes.len() as u32);
        let mut bits = 0;
        bits |= HAS_ORIGIN * u8::from(self.origin != Some(origin));
        bits |= HAS_WIRE_LEN * u8::from(extra > 0);
        bits |= HAS_FLAGS * u8::from(packet.flags != PacketFlags::default());
        let has_vlan = packet.flags.contains(PacketFlags::VLAN);
        bits |= HAS_VLAN * u8::from(has_vlan);
        self.payload.push(bits);
        number(&mut self.payload, bytes.len() as u64);
        if bits & HAS_ORIGIN != 0 {
            self.origin = Some(origin);
            let known = self.origins.entry(origin).or_insert_with(|| {
                let mut text = vec![ORIGIN];
                text.extend_from_slice(&origin.0.to_le_bytes());
                text.extend_from_slice(&origin.1.0.to_le_bytes());
                announce(text)
            });
            number(&mut self.payload, u64::from(*known));
        }
        if bits & HAS_WIRE_LEN != 0 {
            number(&mut self.payload, u64::from(extra));
        }
        if bits & HAS_FLAGS != 0 {
            self.payload
                .extend_from_slice(&packet.flags.0.to_le_bytes());
        }
        if has_vlan {
            self.payload
                .extend_from_slice(&packet.vlan_tpid.to_le_bytes());
            self.payload
                .extend_from_slice(&packet.vlan_tci.to_le_bytes());
        }
        self.payload.extend_from_slice(bytes);
    }

    /// Adds a chunk; a long one as several.
    pub(crate) fn chunk(&mut self, chunk: &StreamChunk<'_>) {
        let mut offset = chunk.offset;
        let mut gap = chunk.gap_before;
        let mut rest = chunk.bytes;
        loop {
            let (bytes, more) = rest.split_at(rest.len().min(MOST_CHUNK));
            rest = more;
            self.begin(Kind::Chunks, chunk.time);
            self.stream(chunk.stream);
            let end = chunk.end.filter(|_| rest.is_empty());
            let early = chunk.time.0.saturating_sub(chunk.captured.0);
            let bit = if early > 0 { IS_EARLY } else { 0 };
            self.payload.push(bit | end.map_or(0, end_code));
            if early > 0 {
                number(&mut self.payload, early);
            }
            number(&mut self.payload, offset);
            number(&mut self.payload, gap);
            text(&mut self.payload, bytes);
            offset += bytes.len() as u64;
            gap = 0;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Which stream: 0 and what is known of it, or its number in this payload, from 1.
    fn stream(&mut self, stream: &StreamInfo) {
        let described = &mut self.described;
        described.clear();
        described.push(stream.version);
        let mut bits = u8::from(stream.from_initiator);
        bits |= HAS_SYN * u8::from(stream.syn.is_some());
        bits |= HAS_ESTABLISHED * u8::from(stream.established.is_some());
        described.push(bits);
        let from = if stream.version == 4 { 12 } else { 0 };
        for (address, port) in [stream.source, stream.destination] {
            described.extend_from_slice(&address.0[from..]);
            described.extend_from_slice(&port.to_le_bytes());
        }
        let times = [Some(stream.start), stream.syn, stream.established];
        for time in times.into_iter().flatten() {
            described.extend_from_slice(&time.0.to_le_bytes());
        }
        number(described, stream.retransmitted);
        if let Some(known) = self.streams.get(described.as_slice()) {
            return number(&mut self.payload, u64::from(*known));
        }
        let next = self.streams.len() as u32 + 1;
        self.streams.insert(described.clone(), next);
        self.payload.push(0);
        self.payload.extend_from_slice(described);
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, time: Nanos, record: &dyn AnyRecord, announce: Announce<'_>) {
        self.begin(Kind::Records, time);
        let schema = record.schema();
        let place = schema.as_ptr().addr();
        let known = match self.schemas.get(&place) {
            Some(known) => *known,
            None => {
                let mut text = vec![SCHEMA];
                number(&mut text, schema.len() as u64);
                for field in schema {
                    let field = announced(&mut self.fields, field, announce);
                    number(&mut text, u64::from(field));
                }
                let known = announce(text);
                self.schemas.insert(place, known);
                known
            }
        };
        number(&mut self.payload, u64::from(known));
        record.values(&mut Values {
            payload: &mut self.payload,
            fields: &mut self.fields,
            announce,
            in_object: false,
            count: 0,
        });
    }
}

/// The number of a field, which is announced if it is new.
fn announced(
    fields: &mut HashMap<usize, u32>,
    field: &'static Field,
    announce: Announce<'_>,
) -> u32 {
    *fields
        .entry(core::ptr::from_ref(field).addr())
        .or_insert_with(|| {
            let mut bytes = vec![FIELD, field.kind as u8, field.unit as u8];
            bytes.extend_from_slice(&[field.column.rank, u8::from(field.column.exact)]);
            for part in [field.name, field.column.heading, field.help] {
                text(&mut bytes, part.as_bytes());
            }
            announce(bytes)
        })
}

/// Writes the values of a record, or of an object in it.
struct Values<'a> {
    payload: &'a mut Vec<u8>,
    fields: &'a mut HashMap<usize, u32>,
    announce: Announce<'a>,
    in_object: bool,
    count: usize,
}

impl FieldVisitor for Values<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        self.count += 1;
        if self.in_object {
            let field = announced(self.fields, field, self.announce);
            number(self.payload, u64::from(field));
        }
        let payload = &mut *self.payload;
        match value {
            ValueRef::Null => payload.push(0),
            ValueRef::Unsigned(value) => {
                payload.push(1);
                number(payload, value);
            }
            ValueRef::Float(value) => {
                payload.push(2);
                payload.extend_from_slice(&value.to_le_bytes());
            }
            ValueRef::Text(value) => {
                payload.push(3);
                text(payload, value.as_bytes());
            }
            ValueRef::Symbol(value) => {
                payload.push(4);
                text(payload, value.as_bytes());
            }
            ValueRef::Hex(value) => {
                payload.push(5);
                payload.extend_from_slice(&value.to_le_bytes());
            }
            ValueRef::Address(Address(bytes), version) => {
                payload.push(if version == 4 { 6 } else { 7 });
                payload.extend_from_slice(&bytes[if version == 4 { 12 } else { 0 }..]);
            }
            ValueRef::Time(Nanos(value)) => {
                payload.push(8);
                payload.extend_from_slice(&value.to_le_bytes());
            }
            ValueRef::Duration(Nanos(value)) => {
                payload.push(9);
                number(payload, value);
            }
            ValueRef::List(values) => {
                payload.push(10);
                number(payload, values.len() as u64);
                for value in values.iter() {
                    number(payload, value);
                }
            }
            ValueRef::Texts(values) => {
                payload.push(13);
                number(payload, values.len() as u64);
                for value in values.iter() {
                    text(payload, value.as_bytes());
                }
            }
            ValueRef::Object(None) => payload.push(11),
            ValueRef::Object(Some(object)) => {
                payload.push(12);
                // How many are in it is known behind them.
                let mut inside = Vec::new();
                let mut values = Values {
                    payload: &mut inside,
                    fields: self.fields,
                    announce: self.announce,
                    in_object: true,
                    count: 0,
                };
                object.values(&mut values);
                let count = values.count;
                number(self.payload, count as u64);
                self.payload.extend_from_slice(&inside);
            }
            _ => payload.push(0),
        }
    }
}

const fn end_code(end: StreamEnd) -> u8 {
    match end {
        StreamEnd::Fin => 1,
        StreamEnd::Rst => 2,
        StreamEnd::Timeout => 3,
    }
}
