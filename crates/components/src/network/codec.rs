//! Items as bytes, for links between machines. `docs/links.md` has the same as tables.
//!
//! A payload begins with a byte that says what is in it and the time from which the first item's
//! differs. Numbers are LEB128 unless said otherwise, differences of times zigzag-coded. What items
//! refer to (interfaces, fields, schemas) is announced before them, once, and has the number of its
//! announcement.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use flowgauge_record::any::{AnyRecord, OwnedObject, Value, ValueRef, ValueVisitor};
use flowgauge_record::{Column, Field, FieldKind, JsonKey, OwnedRecord, Schema, Unit};
use flowgauge_stack::{StreamChunk, StreamEnd, StreamInfo};
use flowgauge_wire::{Address, LinkType, Nanos, PacketDescriptor, PacketFlags};

/// Chunks are cut into pieces of this length.
const MOST_CHUNK: usize = 1 << 20;
/// Objects within objects within records.
const MOST_DEPTH: usize = 8;
/// Fields of all records that other machines announced; their names are never forgotten.
const MOST_FIELDS: usize = 16_384;
/// Bytes of the texts that describe a field.
const MOST_TEXT: usize = 1024;

/// What a payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Packets,
    Chunks,
    Records,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Kind::Packets => 1,
            Kind::Chunks => 2,
            Kind::Records => 3,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Packets),
            2 => Some(Kind::Chunks),
            3 => Some(Kind::Records),
            _ => None,
        }
    }

    /// In messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Packets => "packets",
            Kind::Chunks => "chunks",
            Kind::Records => "records",
        }
    }
}

/// Packets: which of these follow the length.
const HAS_ORIGIN: u8 = 1;
const HAS_WIRE_LEN: u8 = 2;
const HAS_FLAGS: u8 = 4;
const HAS_VLAN: u8 = 8;

/// Streams: which of these times are known; the lowest bit says that the initiator sends.
const HAS_SYN: u8 = 2;
const HAS_ESTABLISHED: u8 = 4;

/// Announcements.
const ORIGIN: u8 = 1;
const FIELD: u8 = 2;
const SCHEMA: u8 = 3;

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

    /// What the payload holds, once something is in it.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    fn begin(&mut self, kind: Kind, time: Nanos) {
        if self.kind.is_none() {
            self.kind = Some(kind);
            self.payload.push(kind.code());
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
            self.payload.push(end.map_or(0, end_code));
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
            let mut bytes = vec![FIELD, kind_code(field.kind), unit_code(field.unit)];
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

impl ValueVisitor for Values<'_> {
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
                text(payload, value);
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
                for value in values {
                    number(payload, *value);
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

fn kind_code(kind: FieldKind) -> u8 {
    KINDS.iter().position(|other| *other == kind).unwrap_or(2) as u8
}

fn unit_code(unit: Unit) -> u8 {
    UNITS.iter().position(|other| *other == unit).unwrap_or(0) as u8
}

const KINDS: [FieldKind; 9] = [
    FieldKind::Unsigned,
    FieldKind::Float,
    FieldKind::Text,
    FieldKind::Address,
    FieldKind::Time,
    FieldKind::Duration,
    FieldKind::Hex,
    FieldKind::List,
    FieldKind::Object,
];
const UNITS: [Unit; 4] = [Unit::None, Unit::Bytes, Unit::Packets, Unit::Seconds];

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    number(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

/// What a sender has announced so far.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    all: Vec<Announcement>,
}

#[derive(Clone, Copy, Debug)]
enum Announcement {
    Origin(u16, LinkType),
    Field(&'static Field),
    Schema(Schema),
}

impl Announced {
    /// Takes the next one. False: it makes no sense.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let read = self.read(&mut Bytes { bytes, at: 0 });
        let is_good = read.is_some();
        // What refers to it then finds nothing that it can use.
        let filler = Announcement::Origin(0, LinkType::default());
        self.all.push(read.unwrap_or(filler));
        is_good
    }

    fn read(&self, bytes: &mut Bytes<'_>) -> Option<Announcement> {
        let announcement = match bytes.byte()? {
            ORIGIN => Announcement::Origin(bytes.u16()?, LinkType(bytes.u16()?)),
            FIELD => {
                let kind = *KINDS.get(usize::from(bytes.byte()?))?;
                let unit = *UNITS.get(usize::from(bytes.byte()?))?;
                let (rank, exact) = (bytes.byte()?, bytes.byte()? != 0);
                let name = bytes.name()?;
                let (heading, help) = (bytes.words()?, bytes.words()?);
                Announcement::Field(intern(&Described {
                    name,
                    kind,
                    unit,
                    rank,
                    exact,
                    heading,
                    help,
                })?)
            }
            SCHEMA => {
                let count = bytes.count(1)?;
                let fields: Option<Vec<&'static Field>> =
                    (0..count).map(|_| self.field(bytes.number()?)).collect();
                Announcement::Schema(intern_schema(fields?)?)
            }
            _ => return None,
        };
        (bytes.at == bytes.bytes.len()).then_some(announcement)
    }

    fn field(&self, number: u64) -> Option<&'static Field> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Field(field) => Some(field),
            _ => None,
        }
    }

    fn origin(&self, number: u64) -> Option<(u16, LinkType)> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Origin(interface, link) => Some((*interface, *link)),
            _ => None,
        }
    }

    fn schema(&self, number: u64) -> Option<Schema> {
        match self.all.get(usize::try_from(number).ok()?)? {
            Announcement::Schema(schema) => Some(schema),
            _ => None,
        }
    }
}

/// A field as another machine describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Described {
    name: String,
    kind: FieldKind,
    unit: Unit,
    rank: u8,
    exact: bool,
    heading: String,
    help: String,
}

/// Fields live as long as the program: each that other machines announce is made once.
#[derive(Default)]
struct Interned {
    fields: HashMap<Described, &'static Field>,
    schemas: HashMap<Vec<usize>, Schema>,
}

fn interned() -> &'static Mutex<Interned> {
    static INTERNED: OnceLock<Mutex<Interned>> = OnceLock::new();
    INTERNED.get_or_init(Mutex::default)
}

fn intern(described: &Described) -> Option<&'static Field> {
    let mut interned = interned().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(field) = interned.fields.get(described) {
        return Some(field);
    }
    if interned.fields.len() >= MOST_FIELDS {
        return None;
    }
    let name: &'static str = described.name.clone().leak();
    let field: &'static Field = Box::leak(Box::new(Field {
        name,
        json_key: JsonKey::new(name),
        kind: described.kind,
        unit: described.unit,
        column: Column {
            heading: described.heading.clone().leak(),
            rank: described.rank,
            exact: described.exact,
        },
        help: described.help.clone().leak(),
    }));
    interned.fields.insert(described.clone(), field);
    Some(field)
}

fn intern_schema(fields: Vec<&'static Field>) -> Option<Schema> {
    let key: Vec<usize> = fields
        .iter()
        .map(|field| core::ptr::from_ref(*field).addr())
        .collect();
    let mut interned = interned().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = interned.schemas.get(&key) {
        return Some(schema);
    }
    // Each is at least as long as the number of its fields.
    let most = MOST_FIELDS.checked_sub(interned.schemas.keys().map(Vec::len).sum())?;
    if fields.is_empty() || fields.len() > most {
        return None;
    }
    let schema: Schema = fields.leak();
    interned.schemas.insert(key, schema);
    Some(schema)
}

/// Bytes that are read from the front.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// How many things of at least `least` bytes follow.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        let room = (self.bytes.len() - self.at) / least;
        (count <= room).then_some(count)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.count(1)?;
        core::str::from_utf8(self.take(length)?).ok()
    }

    /// The name of a field: it stands in JSON and CSV as it is.
    fn name(&mut self) -> Option<String> {
        let text = self.text()?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let is_name = (1..=27).contains(&text.len()) && text.chars().all(is_good);
        is_name.then(|| text.to_owned())
    }

    /// What people read.
    fn words(&mut self) -> Option<String> {
        let text = self.text()?;
        let is_good = text.len() <= MOST_TEXT && !text.chars().any(char::is_control);
        is_good.then(|| text.to_owned())
    }
}

/// Reads a payload, some items at a time.
#[derive(Debug)]
pub(crate) struct Decoder {
    kind: Kind,
    at: usize,
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
            end: self.end,
        })
    }
}

impl Decoder {
    /// At the beginning of a payload; `None`: it is none.
    pub(crate) fn new(payload: &[u8]) -> Option<Decoder> {
        let mut bytes = Bytes {
            bytes: payload,
            at: 0,
        };
        Some(Decoder {
            kind: Kind::of(bytes.byte()?)?,
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
        let end = match bytes.byte()? {
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

    /// The next record.
    pub(crate) fn record(
        &mut self,
        payload: &[u8],
        announced: &Announced,
    ) -> Option<(Nanos, OwnedRecord)> {
        let mut bytes = Bytes {
            bytes: payload,
            at: self.at,
        };
        let time = self.time(&mut bytes)?;
        let schema = announced.schema(bytes.number()?)?;
        let mut values = Vec::with_capacity(schema.len());
        for _ in schema {
            values.push(value(&mut bytes, announced, 0)?);
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
            let values: Option<Vec<u32>> = (0..count)
                .map(|_| u32::try_from(bytes.number()?).ok())
                .collect();
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
        _ => return None,
    })
}

/// Text that is written as it is, if it can be.
fn symbol(text: &str) -> Value {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    if text.bytes().all(is_plain) {
        Value::Symbol(text.as_bytes().into())
    } else {
        Value::Text(text.into())
    }
}

/// For the fuzzer: reads bytes as announcements and a payload. The first byte says how many of the
/// next pieces, each with its length in a byte before it, are announcements.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut input = Bytes { bytes, at: 0 };
    let mut announced = Announced::default();
    for _ in 0..input.byte().unwrap_or(0) {
        let length = usize::from(input.byte().unwrap_or(0));
        announced.add(input.take(length).unwrap_or_default());
    }
    let payload = bytes.get(input.at..).unwrap_or_default();
    let Some(mut decoder) = Decoder::new(payload) else {
        return;
    };
    while !decoder.is_at_end(payload) {
        let before = decoder.at;
        let is_read = match decoder.kind() {
            Kind::Packets => decoder.packet(payload, &announced).map(|packet| {
                let end = packet.offset as usize + packet.captured_len as usize;
                assert!(end <= payload.len() && packet.wire_len >= packet.captured_len);
            }),
            Kind::Chunks => decoder.chunk(payload).map(|place| {
                let chunk = place.chunk(payload, decoder.streams());
                assert_eq!(chunk.map(|chunk| chunk.bytes.len()), Some(place.len));
            }),
            Kind::Records => decoder.record(payload, &announced).map(drop),
        };
        if is_read.is_none() {
            return;
        }
        assert!(decoder.at > before);
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::stream::StreamRow;
    use proptest::prelude::*;

    use super::*;

    fn record() -> StreamRow<'static> {
        StreamRow {
            version: 6,
            protocol: 6,
            source: (Address([0x20; 16]), 50956),
            destination: (Address::v4([192, 0, 2, 7]), 80),
            bytes: 517,
            missing_bytes: 0,
            gaps: 0,
            state: "fin",
            flow_id: 0xfeed,
            with_gaps: true,
            counters: None,
            sha256: None,
        }
    }

    /// Announcements, and a payload that refers to them.
    fn records() -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut said = Vec::new();
        let mut encoder = Encoder::default();
        for time in [7, 5] {
            encoder.record(Nanos(time), &record(), &mut |text| {
                said.push(text);
                said.len() as u32 - 1
            });
        }
        (said, encoder.take().0)
    }

    #[test]
    fn records_come_as_they_went() {
        let (said, payload) = records();
        let mut announced = Announced::default();
        assert!(said.iter().all(|text| announced.add(text)));
        let mut decoder = Decoder::new(&payload).unwrap();
        let expected = OwnedRecord::of(&record());
        for time in [7, 5] {
            let (at, found) = decoder.record(&payload, &announced).unwrap();
            assert_eq!(at, Nanos(time));
            // The fields are others, of the same names.
            let pairs = |record: &OwnedRecord| -> Vec<(&str, Value)> {
                record
                    .iter()
                    .map(|(field, value)| (field.name, value.clone()))
                    .collect()
            };
            assert_eq!(pairs(&found), pairs(&expected));
        }
        assert!(decoder.is_at_end(&payload));
    }

    #[test]
    fn names_and_symbols_cannot_leave_their_quotes() {
        let mut announced = Announced::default();
        let mut field = vec![FIELD, 0, 0, 1, 0];
        for part in [&b"a\",\"b"[..], b"", b""] {
            text(&mut field, part);
        }
        assert!(!announced.add(&field));
        assert_eq!(symbol("SF"), Value::Symbol(b"SF"[..].into()));
        assert_eq!(symbol("a\"b"), Value::Text("a\"b".into()));
    }

    #[test]
    fn the_same_fields_are_kept_once() {
        let (said, _) = records();
        let schema = |said: &[Vec<u8>]| {
            let mut announced = Announced::default();
            said.iter().for_each(|text| assert!(announced.add(text)));
            announced
                .schema(said.len() as u64 - 1)
                .unwrap()
                .as_ptr()
                .addr()
        };
        assert_eq!(schema(&said), schema(&said));
    }

    fn packets() -> impl Strategy<Value = Vec<(PacketDescriptor, Vec<u8>)>> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..80);
        let packet = (
            any::<u64>(),
            0..3_u16,
            0..3_u16,
            0..5_u32,
            any::<[u16; 2]>(),
            0..16_u16,
            bytes,
        );
        let packet = packet.prop_map(|(time, interface, link, extra, vlan, flags, bytes)| {
            let flags = PacketFlags(flags);
            let has_vlan = flags.contains(PacketFlags::VLAN);
            let packet = PacketDescriptor {
                time: Nanos(time),
                offset: 0,
                captured_len: bytes.len() as u32,
                wire_len: bytes.len() as u32 + extra,
                interface,
                link: LinkType(link),
                vlan_tpid: if has_vlan { vlan[0] } else { 0 },
                vlan_tci: if has_vlan { vlan[1] } else { 0 },
                flags,
            };
            (packet, bytes)
        });
        proptest::collection::vec(packet, 1..40)
    }

    proptest! {
        #[test]
        fn packets_come_as_they_went(packets in packets()) {
            let mut announced = Announced::default();
            let mut encoder = Encoder::default();
            let mut said = 0;
            for (packet, bytes) in &packets {
                encoder.packet(packet, bytes, &mut |text| {
                    assert!(announced.add(&text));
                    said += 1;
                    said - 1
                });
            }
            let (payload, count) = encoder.take();
            prop_assert_eq!(count as usize, packets.len());
            let mut decoder = Decoder::new(&payload).unwrap();
            for (packet, bytes) in &packets {
                let found = decoder.packet(&payload, &announced).unwrap();
                let at = found.offset as usize;
                prop_assert_eq!(&payload[at..at + bytes.len()], bytes.as_slice());
                let found = PacketDescriptor { offset: 0, ..found };
                prop_assert_eq!(format!("{found:?}"), format!("{packet:?}"));
            }
            prop_assert!(decoder.is_at_end(&payload));
        }

        #[test]
        fn chunks_come_as_they_went(
            chunks in proptest::collection::vec(
                (any::<u64>(), 0..u64::MAX / 2, any::<u64>(), proptest::collection::vec(any::<u8>(), 1..50), 0..4_usize),
                1..20,
            ),
        ) {
            let ends = [None, Some(StreamEnd::Fin), Some(StreamEnd::Rst), Some(StreamEnd::Timeout)];
            let streams = [4, 6, 4].map(|version| StreamInfo {
                source: (Address::v4([10, 0, 0, version]), 1000),
                destination: (Address::v4([10, 0, 0, 9]), 80),
                version,
                from_initiator: version == 4,
                start: Nanos(5),
                syn: (version == 4).then_some(Nanos(6)),
                established: None,
                retransmitted: 300,
            });
            let mut encoder = Encoder::default();
            for (time, offset, gap_before, bytes, which) in &chunks {
                encoder.chunk(&StreamChunk {
                    key: 9,
                    stream: &streams[which % 3],
                    bytes: if *which == 3 { &[] } else { bytes },
                    offset: *offset,
                    gap_before: *gap_before,
                    time: Nanos(*time),
                    end: ends[*which],
                });
            }
            let (payload, _) = encoder.take();
            let mut decoder = Decoder::new(&payload).unwrap();
            for (time, offset, gap_before, bytes, which) in &chunks {
                let found = decoder.chunk(&payload).unwrap();
                let chunk = found.chunk(&payload, decoder.streams()).unwrap();
                let bytes = if *which == 3 { &[][..] } else { bytes };
                prop_assert_eq!((chunk.bytes, chunk.time), (bytes, Nanos(*time)));
                prop_assert_eq!((chunk.offset, chunk.gap_before), (*offset, *gap_before));
                prop_assert_eq!((chunk.stream, chunk.end), (&streams[which % 3], ends[*which]));
            }
            prop_assert!(decoder.is_at_end(&payload));
        }

        #[test]
        fn any_bytes_can_come(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }

        #[test]
        fn any_damage_can_come(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (said, payload) = records();
            let mut bytes = vec![said.len() as u8];
            for text in &said {
                bytes.push(text.len() as u8);
                bytes.extend_from_slice(text);
            }
            bytes.extend_from_slice(&payload);
            *at.get_mut(&mut bytes) = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            fuzz(&bytes);
        }
    }
}
