//! A flow as its user has it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use flowgauge_sys::shared::{Counters, EventReader};

use crate::client::{Client, ClientError};
use crate::layout::{self, Body, RECORD_HEADER};
use crate::protocol::{OpenedFlow, Results};

/// How often it is looked whether the sensor is still there.
const LOOK: Duration = Duration::from_millis(100);

/// A flow. It ends with [`Flow::close`], or with its connection; one that is dropped runs on until then.
#[derive(Debug)]
pub struct Flow {
    client: Client,
    opened: OpenedFlow,
    readings: Readings,
    packets: Option<Packets>,
}

/// The packets of a flow, as they come.
#[derive(Debug)]
struct Packets {
    events: EventReader,
    /// What of the event in hand was not given out yet: component, packets, where.
    component: usize,
    left: u32,
    at: usize,
}

/// A packet that reached a `to_buffer`, in memory that the sensor shares.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The component, by its place in the stack.
    pub component: usize,
    /// Its record: a `struct mapipkt` of MAPI with all bytes captured ([`layout`]), at an address that is a multiple of 8.
    pub record: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Its bytes, from the link-layer header.
    pub fn bytes(&self) -> &'a [u8] {
        self.record.get(RECORD_HEADER..).unwrap_or_default()
    }

    /// When it was captured, in seconds since 1970 as a fixed point of 32.32 bits.
    pub fn time(&self) -> u64 {
        let bytes = self.record.first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Its bytes on the wire.
    pub fn wire_len(&self) -> u32 {
        number(self.record, 16)
    }
}

/// What a component has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its result, where it is a number.
    pub value: Option<i128>,
    /// Items that came to it.
    pub items: u64,
    /// Rows of its result that wait to be [taken](Client::take): of `bucket`, `threshold`, `hash_sample`, `expired_flows`.
    pub rows: u64,
    /// When it was told, in nanoseconds since 1970: a millisecond ago while packets come.
    pub time: u64,
    /// The device has come to its end.
    pub is_last: bool,
    /// The flow has failed: [`Client::results`] says why.
    pub has_failed: bool,
    /// Packets of the flow that found no room in its ring.
    pub lost: u64,
}

/// What a flow's components have counted, for any thread: read from memory that the sensor shares, without asking it.
#[derive(Clone, Debug)]
pub struct Readings(Counters);

impl Readings {
    /// What a component has counted, by its place in the stack; nothing of those from [`layout::MOST_COMPONENTS`] on.
    #[inline]
    pub fn read(&self, component: usize) -> Reading {
        let [items, value, kind] = layout::of_component(component);
        let places = [
            layout::TIME,
            layout::FLAGS,
            layout::LOST,
            items,
            value,
            kind,
        ];
        let [time, flags, lost, items, value, kind] = self.0.read(places);
        Reading {
            value: match kind {
                layout::UNSIGNED => Some(value.into()),
                layout::SIGNED => Some(value.cast_signed().into()),
                _ => None,
            },
            items,
            rows: if kind == 0 { value } else { 0 },
            time,
            is_last: flags & layout::IS_LAST != 0,
            has_failed: flags & layout::HAS_FAILED != 0,
            lost,
        }
    }

    /// Whether nothing more comes.
    fn is_over(&self) -> bool {
        let [flags] = self.0.read([layout::FLAGS]);
        flags != 0
    }
}

impl Flow {
    /// Maps what came with an answer: the ring, and of a flow with packets its page and the pool.
    pub(crate) fn new(
        client: &Client,
        opened: OpenedFlow,
        files: Vec<OwnedFd>,
    ) -> Result<Flow, ClientError> {
        let mut files = files.into_iter();
        let (ring, page, pool) = (files.next(), files.next(), files.next());
        let (readings, packets) = match (ring, page, pool) {
            (Some(ring), None, None) => (Readings(Counters::open(ring)?), None),
            (Some(ring), Some(page), Some(pool)) => {
                let events = EventReader::open(ring, page, client.pool(pool)?)?;
                let readings = Readings(events.counters());
                let packets = Packets {
                    events,
                    component: 0,
                    left: 0,
                    at: 0,
                };
                (readings, Some(packets))
            }
            _ => return Err(ClientError::Confused),
        };
        Ok(Flow {
            client: client.clone(),
            opened,
            readings,
            packets,
        })
    }

    /// Its number, for requests of other threads.
    pub fn number(&self) -> u64 {
        self.opened.number
    }

    /// The place of the component with a label.
    pub fn component(&self, label: &str) -> Option<usize> {
        let mut components = self.opened.components.iter();
        components.position(|component| component == label)
    }

    /// What its components have counted.
    pub fn readings(&self) -> Readings {
        self.readings.clone()
    }

    /// The next packet that reached a `to_buffer`, which stays as it is until the next call. `None`: none came within `limit`, or
    /// none will, as [`Readings::read`] says, or the flow has no `to_buffer`.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn next(&mut self, limit: Duration) -> Result<Option<Packet<'_>>, ClientError> {
        let Some(packets) = &mut self.packets else {
            return Ok(None);
        };
        if packets.left == 0 && !packets.wait(limit, &self.readings, &self.client)? {
            return Ok(None);
        }
        packets.take().map(Some)
    }

    /// Its results so far.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn results(&self) -> Result<Results, ClientError> {
        self.client.results(self.opened.number)
    }

    /// Ends it. Returns its last results.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn close(self) -> Result<Results, ClientError> {
        self.client.close(self.opened.number)
    }
}

impl Packets {
    /// Waits for the next event. Whether there is one.
    fn wait(
        &mut self,
        limit: Duration,
        readings: &Readings,
        client: &Client,
    ) -> Result<bool, ClientError> {
        let mut until = None;
        loop {
            // In this order: what came before the end is taken.
            let is_over = readings.is_over();
            if let Some(event) = self.events.next_event()? {
                let body = Body::of(&event.body);
                self.component = body.component as usize;
                (self.left, self.at) = (body.packets, 0);
                if self.left > 0 {
                    return Ok(true);
                }
                continue;
            }
            let now = Instant::now();
            let until = *until.get_or_insert_with(|| now.checked_add(limit));
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(now));
            if is_over || left.is_zero() {
                return Ok(false);
            }
            if client.is_gone() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.events.sleep(left.min(LOOK));
        }
    }

    /// The next packet of the event in hand.
    fn take(&mut self) -> Result<Packet<'_>, ClientError> {
        let rest = self.events.current().get(self.at..).unwrap_or_default();
        let captured = number(rest, 12) as usize;
        let Some(record) = rest.get(..RECORD_HEADER + captured) else {
            return Err(ClientError::Confused);
        };
        self.left -= 1;
        self.at += layout::record_len(captured);
        Ok(Packet {
            component: self.component,
            record,
        })
    }
}

fn number(record: &[u8], at: usize) -> u32 {
    let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
