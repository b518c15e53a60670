//! A flow as its user has it.

use core::array;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_sys::shared::{COUNTERS, Counters, EventReader, PoolView};

use crate::client::{Client, ClientError};
use crate::layout::{self, Body, RECORD_HEADER};
use crate::protocol::{OpenedFlow, Results};
use crate::remote::message::Page;
use crate::remote::{self, News, RemoteFlow};

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
    source: Source,
    /// What of the batch in hand was not given out yet: component, packets, where.
    component: usize,
    left: u32,
    at: usize,
}

/// Where packets come from.
#[derive(Debug)]
enum Source {
    /// Memory that the sensor shares.
    Events(EventReader),
    /// The agent of a sensor elsewhere; the batch in hand.
    Remote(Arc<RemoteFlow>, Option<remote::Batch>),
}

/// Packets that reached a `to_buffer`, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The component, by its place in the stack.
    pub component: usize,
    /// How many there are.
    pub count: u32,
    /// Their records ([`layout`]).
    pub records: &'a [u8],
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
        layout::time_of(self.record)
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

impl Reading {
    /// Nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.is_last || self.has_failed
    }
}

/// What a flow's components have counted, for any thread: read from memory that the sensor shares, without asking it. Those of a
/// sensor elsewhere are asked for, or come by themselves ([`Flow::push`]).
#[derive(Clone, Debug)]
pub struct Readings(Numbers);

#[derive(Clone, Debug)]
enum Numbers {
    Shared(Counters),
    Remote(Arc<RemoteFlow>),
}

impl Readings {
    /// What a component has counted, by its place in the stack; nothing of those from [`layout::MOST_COMPONENTS`] on.
    #[inline]
    pub fn read(&self, component: usize) -> Reading {
        match &self.0 {
            Numbers::Shared(counters) => Reading::of(counters.read(Reading::places(component))),
            Numbers::Remote(flow) => Reading::of_page(&flow.page(), component),
        }
    }

    /// All numbers of a moment, as they stand in memory ([`layout`]).
    pub fn page(&self) -> Page {
        match &self.0 {
            Numbers::Shared(counters) => counters.read(array::from_fn::<_, COUNTERS, _>(|at| at)),
            Numbers::Remote(flow) => flow.page(),
        }
    }

    /// The same as it came last, without asking.
    pub fn latest(&self, component: usize) -> Reading {
        match &self.0 {
            Numbers::Shared(_) => self.read(component),
            Numbers::Remote(flow) => Reading::of_page(&flow.latest(), component),
        }
    }

    /// Asks for the numbers of many flows at the same time, for those of them that are elsewhere and do not send them by
    /// themselves. Whose answer did not come within `patience` is not waited for again before it is there. Returns of each whether
    /// its numbers are of now.
    pub fn refresh<'a>(all: impl Iterator<Item = &'a Readings>, patience: Duration) -> Vec<bool> {
        let round = Arc::default();
        let asked = all.map(|readings| match &readings.0 {
            Numbers::Shared(_) => None,
            Numbers::Remote(flow) => Some((flow, flow.begin_refresh(&round, patience))),
        });
        let asked: Vec<_> = asked.collect();
        let until = Instant::now() + patience;
        let ended = asked.into_iter().map(|asked| match asked {
            Some((flow, Some(id))) => flow.end_refresh(id, &round, until),
            Some((_, None)) => false,
            None => true,
        });
        ended.collect()
    }
}

impl Reading {
    fn places(component: usize) -> [usize; 6] {
        let [items, value, kind] = layout::of_component(component);
        [
            layout::TIME,
            layout::FLAGS,
            layout::LOST,
            items,
            value,
            kind,
        ]
    }

    fn of_page(page: &Page, component: usize) -> Reading {
        let places = Reading::places(component);
        Reading::of(places.map(|place| page.get(place).copied().unwrap_or(0)))
    }

    fn of([time, flags, lost, items, value, kind]: [u64; 6]) -> Reading {
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
}

impl Flow {
    /// Maps what came with an answer: the ring, and of a flow with packets its page and the pool.
    pub(crate) fn local(
        client: &Client,
        opened: OpenedFlow,
        files: Vec<OwnedFd>,
        pool_of: impl FnOnce(OwnedFd) -> io::Result<Arc<PoolView>>,
    ) -> Result<Flow, ClientError> {
        let mut files = files.into_iter();
        let (ring, page, pool) = (files.next(), files.next(), files.next());
        let (numbers, packets) = match (ring, page, pool) {
            (Some(ring), None, None) => (Numbers::Shared(Counters::open(ring)?), None),
            (Some(ring), Some(page), Some(pool)) => {
                let events = EventReader::open(ring, page, pool_of(pool)?)?;
                let numbers = Numbers::Shared(events.counters());
                (numbers, Some(Packets::of(Source::Events(events))))
            }
            _ => return Err(ClientError::Confused),
        };
        Ok(Flow {
            client: client.clone(),
            opened,
            readings: Readings(numbers),
            packets,
        })
    }

    pub(crate) fn remote(client: &Client, opened: OpenedFlow, flow: Arc<RemoteFlow>) -> Flow {
        Flow {
            client: client.clone(),
            opened,
            readings: Readings(Numbers::Remote(Arc::clone(&flow))),
            packets: Some(Packets::of(Source::Remote(flow, None))),
        }
    }

    /// Has the sensor send what the components of a flow elsewhere have counted every so often, without being asked; zero ends
    /// that. Readings are those that came last, then. Numbers of this machine's sensor are always there.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn push(&self, every: Duration) -> Result<(), ClientError> {
        match &self.readings.0 {
            Numbers::Shared(_) => Ok(()),
            Numbers::Remote(flow) => flow.push(every),
        }
    }

    /// How many bytes of packets a sensor elsewhere may send before they are asked for.
    pub fn set_prefetch(&self, bytes: u64) {
        if let Numbers::Remote(flow) = &self.readings.0 {
            flow.set_prefetch(bytes);
        }
    }

    /// Has somebody woken who waits for packets of several flows. False: those of this machine's sensor have to be looked for.
    pub fn tell_to(&self, news: &Arc<News>) -> bool {
        match &self.readings.0 {
            Numbers::Shared(_) => false,
            Numbers::Remote(flow) => {
                flow.tell_to(news);
                true
            }
        }
    }

    /// Whether it has packets in memory that the sensor shares.
    pub fn has_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// Its number, for requests of other threads.
    pub fn number(&self) -> u64 {
        self.opened.number
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What the sensor said of it when it was opened.
    pub fn opened(&self) -> &OpenedFlow {
        &self.opened
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
        match self.packets_within(limit)? {
            Some(packets) => packets.take().map(Some),
            None => Ok(None),
        }
    }

    /// The component of the next packet, and when it was captured, as [`Packet::time`] has it, if one is there within `limit`.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn peek(&mut self, limit: Duration) -> Result<Option<(usize, u64)>, ClientError> {
        let packets = self.packets_within(limit)?;
        Ok(packets.map(|it| (it.component, layout::time_of(it.rest(it.at)))))
    }

    /// The next packets all at once: what is left of a batch, or the next one.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn next_batch(&mut self, limit: Duration) -> Result<Option<Batch<'_>>, ClientError> {
        Ok(self.packets_within(limit)?.map(Packets::take_all))
    }

    /// Its packets, if there are any.
    fn packets_within(&mut self, limit: Duration) -> Result<Option<&mut Packets>, ClientError> {
        let Some(packets) = &mut self.packets else {
            return Ok(None);
        };
        let is_there = packets.left > 0 || packets.wait(limit, &self.readings, &self.client)?;
        Ok(is_there.then_some(packets))
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
    fn of(source: Source) -> Packets {
        Packets {
            source,
            component: 0,
            left: 0,
            at: 0,
        }
    }

    /// Waits for the next batch. Whether there is one.
    fn wait(
        &mut self,
        limit: Duration,
        readings: &Readings,
        client: &Client,
    ) -> Result<bool, ClientError> {
        self.at = 0;
        match &mut self.source {
            Source::Events(events) => {
                let body = event(events, limit, readings, client)?;
                let body = body.unwrap_or(Body {
                    component: 0,
                    packets: 0,
                });
                (self.component, self.left) = (body.component as usize, body.packets);
            }
            Source::Remote(flow, batch) => {
                *batch = flow.next(limit)?;
                let batch = batch.as_ref();
                self.left = batch.map_or(0, |batch| batch.count);
                self.component = batch.map_or(0, |batch| batch.component);
            }
        }
        Ok(self.left > 0)
    }

    /// What of the batch in hand was not given out before.
    fn rest(&self, from: usize) -> &[u8] {
        let bytes = match &self.source {
            Source::Events(events) => events.current(),
            Source::Remote(_, batch) => batch.as_ref().map_or(&[][..], remote::Batch::bytes),
        };
        bytes.get(from..).unwrap_or_default()
    }

    /// The next packet of the batch in hand.
    fn take(&mut self) -> Result<Packet<'_>, ClientError> {
        let from = self.at;
        let captured = number(self.rest(from), 12) as usize;
        self.left -= 1;
        self.at += layout::record_len(captured);
        let record = self.rest(from).get(..RECORD_HEADER + captured);
        Ok(Packet {
            component: self.component,
            record: record.ok_or(ClientError::Confused)?,
        })
    }

    /// All that is left of the batch in hand.
    fn take_all(&mut self) -> Batch<'_> {
        let count = core::mem::take(&mut self.left);
        Batch {
            component: self.component,
            count,
            records: self.rest(self.at),
        }
    }
}

/// Waits for the next event with packets, if one comes.
fn event(
    events: &mut EventReader,
    limit: Duration,
    readings: &Readings,
    client: &Client,
) -> Result<Option<Body>, ClientError> {
    let mut until = None;
    loop {
        // In this order: what came before the end is taken.
        let is_over = readings.read(0).is_over();
        if let Some(event) = events.next_event()? {
            let body = Body::of(&event.body);
            if body.packets > 0 {
                return Ok(Some(body));
            }
            continue;
        }
        let now = Instant::now();
        let until = *until.get_or_insert_with(|| now.checked_add(limit));
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(now));
        if is_over || left.is_zero() {
            return Ok(None);
        }
        if client.is_gone() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        events.sleep(left.min(LOOK));
    }
}

fn number(record: &[u8], at: usize) -> u32 {
    let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
