//! What a point tells of a flow's direction.

use core::fmt::Write as _;
use core::net::IpAddr;

use flowgauge_record::loss::ObservationRow;
use flowgauge_record::schema::Field;
use flowgauge_record::{FieldVisitor, ValueRef};
use flowgauge_wire::{Address, Direction, FlowKey, Nanos};

use crate::digest::METHOD;
use crate::sums::Spread;

/// Marks that one observation can have.
pub const MOST_MARKS: usize = 64;

/// Packets of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were not seen before.
    pub packets: u64,
    /// Packets equal to one shortly before them.
    pub repeats: u64,
    /// Bytes of all of them, by their IP headers.
    pub bytes: u64,
}

impl Counts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_add(other.packets),
            repeats: self.repeats.saturating_add(other.repeats),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// What came since then.
    #[must_use]
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(before.packets),
            repeats: self.repeats.saturating_sub(before.repeats),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    /// All packets.
    pub fn all(self) -> u64 {
        self.packets.saturating_add(self.repeats)
    }

    /// Whether none of the counts is smaller than before.
    pub(crate) fn continues(self, before: Counts) -> bool {
        self.packets >= before.packets
            && self.repeats >= before.repeats
            && self.bytes >= before.bytes
    }
}

/// A selected packet, and the flow's counts up to and including it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its identity.
    pub digest: u64,
    /// When it was captured.
    pub time: Nanos,
    /// The counts.
    pub counts: Counts,
    /// Which eight packets came last, it among them, in whatever order: equal at two points where none was lost or overtaken here.
    /// 0: there were not so many.
    pub recent: u32,
}

/// What a point saw of one direction of a flow, up to a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// From when on the point observes.
    pub began: Nanos,
    /// The flow.
    pub key: FlowKey,
    /// Which direction of it.
    pub direction: Direction,
    /// Time of the first packet.
    pub first: Nanos,
    /// Time of the last one.
    pub last: Nanos,
    /// Time to live of the first packet.
    pub ttl: u8,
    /// What came from the first packet to the last.
    pub counts: Counts,
    /// TCP segments with payload that begin behind the highest sequence number before them.
    pub late: u64,
    /// Round trips since the observation before, in nanoseconds: from the point to the receiver and back, by time stamps of TCP and
    /// QUIC's spin bit.
    pub trips: Spread,
    /// Packets that the point's capture has lost so far, of all traffic; 0 where somebody else tells it.
    pub dropped: u64,
    /// No packet came for the observer's idle timeout, or the observation ended.
    pub has_ended: bool,
    /// Packets selected since the observation before, by time.
    pub marks: Vec<Mark>,
}

impl Observation {
    /// As a record of a point with a name; `text` is memory that serves again.
    pub fn row<'a>(&self, point: Option<&'a str>, text: &'a mut String) -> ObservationRow<'a> {
        text.clear();
        for mark in &self.marks {
            let blank = if text.is_empty() { "" } else { " " };
            let Counts {
                packets,
                repeats,
                bytes,
            } = mark.counts;
            let after = mark.time.0.saturating_sub(self.first.0);
            let (digest, recent) = (mark.digest, mark.recent);
            let _ = write!(
                text,
                "{blank}{digest:x}@{after},{packets},{repeats},{bytes},{recent}"
            );
        }
        let (source, destination) = self.key.endpoints(self.direction);
        ObservationRow {
            point,
            began: self.began,
            time: self.last,
            first: self.first,
            source,
            destination,
            version: self.key.version,
            protocol: self.key.protocol,
            packets: self.counts.packets,
            repeats: self.counts.repeats,
            bytes: self.counts.bytes,
            late: self.late,
            trips: self.trips.parts(),
            dropped: self.dropped,
            ttl: self.ttl,
            has_ended: self.has_ended,
            marks: text,
            method: METHOD,
        }
    }
}

/// Reads an observation from the fields of a record, whichever way it came.
#[derive(Debug, Default)]
pub struct ObservationReader {
    observation: Observation,
    source: Option<(Address, u8)>,
    destination: Option<(Address, u8)>,
    ports: [u16; 2],
    protocol: Option<u8>,
    trips: (u64, u64, u64, u64),
    method: u64,
    has_counts: bool,
    point: Option<String>,
}

impl ObservationReader {
    /// Takes a field.
    pub fn set(&mut self, name: &str, value: ValueRef<'_>) {
        let observation = &mut self.observation;
        let number = match value {
            ValueRef::Unsigned(number) => Some(number),
            ValueRef::Time(time) | ValueRef::Duration(time) => Some(time.0),
            _ => None,
        };
        let address = match value {
            ValueRef::Address(address, version) => Some((address, version)),
            ValueRef::Text(text) | ValueRef::Symbol(text) => text.parse().ok().map(address_of),
            _ => None,
        };
        match (name, number) {
            ("time", Some(time)) => observation.last = Nanos(time),
            ("began", Some(time)) => observation.began = Nanos(time),
            ("first", Some(time)) => observation.first = Nanos(time),
            ("src_port", Some(port)) => self.ports[0] = port as u16,
            ("dst_port", Some(port)) => self.ports[1] = port as u16,
            ("protocol", Some(protocol)) => self.protocol = u8::try_from(protocol).ok(),
            ("packets", Some(packets)) => {
                observation.counts.packets = packets;
                self.has_counts = true;
            }
            ("repeats", Some(repeats)) => observation.counts.repeats = repeats,
            ("bytes", Some(bytes)) => observation.counts.bytes = bytes,
            ("late", Some(late)) => observation.late = late,
            ("dropped", Some(dropped)) => observation.dropped = dropped,
            ("trips", Some(count)) => self.trips.0 = count,
            ("trips_sum", Some(sum)) => self.trips.1 = sum,
            ("trip_least", Some(least)) => self.trips.2 = least,
            ("trip_most", Some(most)) => self.trips.3 = most,
            ("method", Some(method)) => self.method = method,
            ("ttl", Some(ttl)) => observation.ttl = ttl as u8,
            ("ended", Some(ended)) => observation.has_ended = ended > 0,
            ("src_ip", _) => self.source = address,
            ("dst_ip", _) => self.destination = address,
            ("marks", _) => {
                let text = value.as_text().unwrap_or_default();
                observation.marks.clear();
                let marks = text.split(' ').filter_map(read_mark).take(MOST_MARKS);
                observation.marks.extend(marks);
            }
            ("point", _) => self.point = value.as_text().map(str::to_owned),
            _ => {}
        }
    }

    /// By which method marks were selected ([`METHOD`]), as the record says.
    pub fn method(&self) -> u64 {
        self.method
    }

    /// The observation and the name of its point, if the record had one; `None` of a record that is no observation.
    pub fn finish(mut self) -> Option<(Observation, Option<String>)> {
        let ((source, version), (destination, other)) = (self.source?, self.destination?);
        let protocol = self.protocol?;
        if !self.has_counts || version != other {
            return None;
        }
        let [source_port, destination_port] = self.ports;
        let (source, destination) = ((source, source_port), (destination, destination_port));
        let observation = &mut self.observation;
        (observation.key, observation.direction) =
            FlowKey::new(version, protocol, source, destination);
        observation.trips = Spread::of_parts(self.trips);
        let first = observation.first.0;
        for mark in &mut observation.marks {
            mark.time = Nanos(first.saturating_add(mark.time.0));
        }
        Some((self.observation, self.point))
    }
}

impl FieldVisitor for ObservationReader {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        self.set(field.name, value);
    }
}

fn address_of(address: IpAddr) -> (Address, u8) {
    match address {
        IpAddr::V4(address) => (Address::v4(address.octets()), 4),
        IpAddr::V6(address) => (Address(address.octets()), 6),
    }
}

/// A mark, its time counted from the flow's first packet.
fn read_mark(text: &str) -> Option<Mark> {
    let (digest, rest) = text.split_once('@')?;
    let mut numbers = rest.split(',').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Mark {
        digest: u64::from_str_radix(digest, 16).ok()?,
        time: Nanos(next()?),
        counts: Counts {
            packets: next()?,
            repeats: next()?,
            bytes: next()?,
        },
        recent: next()? as u32,
    })
}
