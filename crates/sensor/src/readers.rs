//! Who reads what a stack makes, in memory shared with them: the numbers of its components, and packets that reach `to_buffer`.
//!
//! Packets of a batch are copied once for each user, to the [`Pool`] of that user, whose mapping shows them to nobody else, and
//! each flow's ring gets an event that refers to them. Where there is no room they are lost for that flow and counted; a device
//! of files waits instead ([`Readers::settle`]), for as long as the flow's user goes on reading.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_sensor_client::layout::{self, Body, RECORD_HEADER, record_len};
use flowgauge_sensor_client::protocol::Results;
use flowgauge_stack::{PacketSink, Packets, ResultValue, Selection, SharedRows, SharedSink, Stack};
use flowgauge_sys::shared::{BODY_BYTES, EventWriter, Pool};
use flowgauge_wire::Nanos;
use parking_lot::Mutex;

use crate::results::{exact, now};

/// Batches that may wait in a ring.
const ENTRIES: u32 = 512;
/// The largest area, unless one packet is larger.
const MOST_AREA: usize = 1 << 20;
/// Bytes that a stack keeps for flows that have no room, while its device waits: what was on its way when it began to.
const MOST_PENDING: usize = 64 << 20;

/// How long a device of files waits for a user who does not read the rows of a full table. Not longer, as programs may apply
/// functions whose rows they never read.
const ROWS_PATIENCE: Duration = Duration::from_secs(10);

/// The component whose packets are shared.
pub(crate) const TO_BUFFER: &str = "to_buffer";

/// Items that came to a component, its result where that is a number, and else its rows.
pub(crate) type Number = (u64, Option<ResultValue>, usize);

/// What a user's flows share with the user.
pub(crate) struct UserMemory(Mutex<Memory>);

struct Memory {
    /// Bytes of packets that may wait.
    bytes: u64,
    pool: Option<Pool>,
    rings: BTreeMap<u64, Ring>,
}

struct Ring {
    events: EventWriter,
    /// The numbers beside the events.
    told: Vec<u64>,
    /// Components of the stack, the first ones, that the user does not see.
    hidden: usize,
    /// What the others had counted before the flow.
    base: Vec<(u64, i128)>,
    lost: u64,
    /// Since when there is no room, and how many events waited.
    refused: Option<(Instant, u32)>,
    /// It is not waited for until it reads again.
    is_late: bool,
    /// It says that it has read what was not there.
    has_lied: bool,
    /// Its flow has ended, whatever the stack does.
    is_over: bool,
}

/// A flow's ring; it is freed with this.
pub(crate) struct FlowRing {
    memory: Arc<UserMemory>,
    flow: u64,
}

impl Drop for FlowRing {
    fn drop(&mut self) {
        let memory = &mut *self.memory.0.lock();
        if let Some(ring) = memory.rings.remove(&self.flow)
            && let Some(pool) = &mut memory.pool
        {
            ring.events.close(pool);
        }
    }
}

impl UserMemory {
    pub(crate) fn new(bytes: u64) -> UserMemory {
        UserMemory(Mutex::new(Memory {
            bytes,
            pool: None,
            rings: BTreeMap::new(),
        }))
    }

    /// Bytes of packets that wait, once for all flows that they wait for, and that may.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let memory = &mut *self.0.lock();
        let Some(pool) = &mut memory.pool else {
            return (0, memory.bytes);
        };
        let rings = memory.rings.values_mut();
        rings.for_each(|ring| ring.collect(pool));
        (pool.in_use(), memory.bytes)
    }

    /// A ring for a flow of this stack, of which the first components are `hidden`, and what the user maps of it: the ring, and
    /// if there are packets to come the user's page and the pool.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn ring(
        self: &Arc<UserMemory>,
        flow: u64,
        stack: &Stack,
        hidden: usize,
    ) -> io::Result<(FlowRing, Vec<OwnedFd>)> {
        let has_packets = stack.nodes.iter().any(|node| node.info.name == TO_BUFFER);
        let memory = &mut *self.0.lock();
        let mut events = EventWriter::new(if has_packets { ENTRIES } else { 2 })?;
        let [ring, page] = events.files();
        let mut files = vec![ring.try_clone_to_owned()?];
        if has_packets {
            let pool = match &memory.pool {
                Some(pool) => pool,
                None => memory.pool.insert(Pool::new(memory.bytes)?),
            };
            files.push(page.try_clone_to_owned()?);
            files.push(pool.file().try_clone_to_owned()?);
        }
        let told = vec![now(), 0, 0];
        events.set_counters(told.iter().copied());
        let ring = Ring {
            events,
            told,
            hidden,
            base: Vec::new(),
            lost: 0,
            refused: None,
            is_late: false,
            has_lied: false,
            is_over: false,
        };
        memory.rings.insert(flow, ring);
        let memory = Arc::clone(self);
        Ok((FlowRing { memory, flow }, files))
    }

    /// Gives rings of its flows an event with packets. Calls `lacks` for those that have no room.
    fn give(
        &self,
        flows: &[Arc<FlowRing>],
        event: &Event,
        write: &dyn Fn(&mut [u8]),
        mut lacks: impl FnMut(&Arc<FlowRing>),
    ) {
        let memory = &mut *self.0.lock();
        let most = memory.bytes / 4;
        let Some(pool) = &mut memory.pool else {
            return;
        };
        let mut has_room = false;
        for flow in flows {
            if let Some(ring) = memory.rings.get_mut(&flow.flow) {
                ring.collect(pool);
                has_room |= ring.events.room() > 0;
            }
        }
        let mut area = None;
        if has_room {
            area = pool.store_by(event.bytes, write);
            if area.is_none() {
                memory.rings.values_mut().for_each(|it| it.collect(pool));
                area = pool.store_by(event.bytes, write);
            }
        }
        for flow in flows {
            let Some(ring) = memory.rings.get_mut(&flow.flow) else {
                continue;
            };
            let area = area.as_ref();
            let area = area.filter(|area| ring.events.held() + area.size() <= most);
            match area {
                Some(area) if ring.events.push(&ring.body(event), pool, Some(area)) => {
                    (ring.refused, ring.is_late) = (None, false);
                    if ring.events.publish() {
                        ring.events.wake_up();
                    }
                }
                _ => lacks(flow),
            }
        }
        if let Some(area) = area {
            pool.release(area);
        }
    }
}

impl Ring {
    /// What an event says to this ring's user.
    fn body(&self, event: &Event) -> [u8; BODY_BYTES] {
        let component = event.body.component.saturating_sub(self.hidden as u32);
        Body {
            component,
            ..event.body
        }
        .encoded()
    }

    /// Takes back what was read. Of who lies about it nothing is believed any more.
    fn collect(&mut self, pool: &mut Pool) {
        self.has_lied = self.has_lied || !self.events.collect(pool);
    }

    /// There is no room for it. Whether it is worth to wait for some.
    fn waits(&mut self, patience: Duration) -> bool {
        let waiting = self.events.waiting();
        match self.refused {
            Some((since, before)) if waiting >= before => {
                self.is_late |= since.elapsed() > patience;
            }
            _ => self.refused = Some((Instant::now(), waiting)),
        }
        !self.is_late && !self.has_lied
    }

    /// Tells what components have counted since the flow began.
    fn tell(&mut self, time: u64, flags: u64, numbers: &[Number]) {
        if self.is_over {
            return;
        }
        self.told.clear();
        self.told.extend([time, flags, self.lost]);
        for (at, (items, value, rows)) in numbers.iter().skip(self.hidden).enumerate() {
            let (before, value_before) = self.base.get(at).copied().unwrap_or_default();
            let value = value.as_ref().and_then(|value| {
                let since = value.number()? - value_before;
                // What other threads tell may be older than the flow.
                let is_difference = matches!(value, ResultValue::Difference(_));
                Some(if is_difference { since } else { since.max(0) })
            });
            let kind = match value {
                None => 0,
                Some(0..) => layout::UNSIGNED,
                Some(_) => layout::SIGNED,
            };
            let items = items.saturating_sub(before);
            let value = value.map_or(*rows as u64, |value| value as u64);
            self.told.extend([items, value, kind]);
        }
        self.show();
    }

    fn show(&mut self) {
        self.events.set_counters(self.told.iter().copied());
        if self.told.get(layout::FLAGS) != Some(&0) {
            self.events.wake();
        }
    }
}

impl FlowRing {
    fn with(&self, act: impl FnOnce(&mut Ring) -> bool) -> bool {
        let memory = &mut *self.memory.0.lock();
        memory.rings.get_mut(&self.flow).is_some_and(act)
    }

    /// The stack has counted this already.
    pub(crate) fn set_base(&self, base: &Results) {
        self.with(|ring| {
            let flags = u64::from(base.is_last) * layout::IS_LAST;
            ring.told = vec![now(), flags, ring.lost];
            let base = base.components.iter().map(|it| {
                let value = it.value.as_ref().and_then(exact);
                ring.told
                    .extend([0, 0, value.map_or(0, |_| layout::UNSIGNED)]);
                (it.items, value.unwrap_or(0))
            });
            ring.base = base.collect();
            ring.events.set_counters(ring.told.iter().copied());
            true
        });
    }

    /// So many packets did not come to it.
    pub(crate) fn lose(&self, packets: u64) {
        self.with(|ring| {
            ring.lost += packets;
            true
        });
    }

    /// Whether its flow has ended.
    pub(crate) fn is_over(&self) -> bool {
        let memory = &*self.memory.0.lock();
        memory.rings.get(&self.flow).is_none_or(|ring| ring.is_over)
    }

    /// Packets that it has lost, and bytes that wait in it.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let memory = &mut *self.memory.0.lock();
        let ring = memory.rings.get(&self.flow);
        ring.map_or((0, 0), |ring| (ring.lost, ring.events.held()))
    }

    /// The stack counts from zero.
    pub(crate) fn begin_anew(&self) {
        self.with(|ring| {
            ring.base.clear();
            true
        });
    }

    /// Tells the user that nothing more comes, because it may not or its device is gone.
    pub(crate) fn end(&self) {
        self.with(|ring| {
            ring.is_over = true;
            if let Some(flags) = ring.told.get_mut(layout::FLAGS) {
                *flags = layout::IS_LAST | layout::HAS_FAILED;
            }
            ring.show();
            true
        });
    }

    /// Counts packets that it does not get, unless it is worth to wait for room.
    fn waits(&self, patience: Option<Duration>, packets: u32) -> bool {
        self.with(|ring| {
            let waits = patience.is_some_and(|patience| ring.waits(patience));
            ring.lost += if waits { 0 } else { u64::from(packets) };
            waits
        })
    }
}

/// Packets for readers.
#[derive(Clone, Copy)]
struct Event {
    body: Body,
    bytes: usize,
}

/// Those who read what a stack makes.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Reading>);

#[derive(Default)]
struct Reading {
    /// How long a flow that does not read is waited for; `None`: it is not.
    patience: Option<Duration>,
    /// Those of a user stand together.
    flows: Vec<Arc<FlowRing>>,
    /// What came when some had no room: which do not have it yet.
    pending: VecDeque<(Event, Vec<u8>, Vec<Arc<FlowRing>>)>,
    pending_bytes: usize,
    /// Tables whose rows are taken.
    tables: Vec<TakenTable>,
}

/// A component's table whose rows are taken.
struct TakenTable {
    label: String,
    rows: SharedRows,
    /// Since when it is full, or a sign came that its rows are read.
    since: Option<Instant>,
}

impl Readers {
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        let state = &mut *self.0.lock();
        if core::mem::replace(&mut state.patience, patience) == patience {
            return;
        }
        for table in &state.tables {
            table.rows.wait(patience.is_some());
        }
    }

    /// Whether no table would lose rows if packets came: it is waited for who reads them.
    pub(crate) fn has_room(&self) -> bool {
        let tables = &mut self.0.lock().tables;
        tables.iter_mut().all(|table| {
            if !table.rows.is_full() {
                table.since = None;
                return true;
            }
            let since = *table.since.get_or_insert_with(Instant::now);
            let is_late = since.elapsed() > ROWS_PATIENCE;
            if is_late {
                table.rows.wait(false);
            }
            is_late
        })
    }

    /// The rows of a table are taken, or those that were are read: whoever does that goes on being waited for.
    pub(crate) fn reads(&self, label: &str) {
        let state = &mut *self.0.lock();
        if let Some(table) = state.tables.iter_mut().find(|table| table.label == label) {
            table.rows.wait(state.patience.is_some());
            table.since = None;
        }
    }

    /// Has the packets that come to a stack's `to_buffer` go to them. Tables, which they may take, are no other stack's.
    pub(crate) fn attach(self: &Arc<Readers>, stack: &mut Stack) {
        for (place, node) in (0..).zip(Arc::make_mut(&mut stack.nodes)) {
            let mut result = node.info.result.iter();
            if result.any(|result| !result.columns.is_empty()) {
                let rows = SharedRows::default();
                node.settings.attach(Arc::clone(&rows));
                self.0.lock().tables.push(TakenTable {
                    label: node.label.clone(),
                    rows,
                    since: None,
                });
            }
            if node.info.name == TO_BUFFER {
                let sink: SharedSink = Arc::new(Sink {
                    readers: Arc::clone(self),
                    component: place,
                });
                node.settings.attach(sink);
            }
        }
    }

    pub(crate) fn add(&self, flow: Arc<FlowRing>) {
        let flows = &mut self.0.lock().flows;
        let is_its = |other: &Arc<FlowRing>| Arc::ptr_eq(&other.memory, &flow.memory);
        let at = flows.iter().position(is_its).unwrap_or(flows.len());
        flows.insert(at, flow);
    }

    pub(crate) fn remove(&self, flow: u64) {
        let state = &mut *self.0.lock();
        state.flows.retain(|other| other.flow != flow);
        for (_, _, flows) in &mut state.pending {
            flows.retain(|other| other.flow != flow);
        }
    }

    /// Tells all what components have counted.
    pub(crate) fn tell(&self, time: u64, flags: u64, numbers: &[Number]) {
        for flow in &self.0.lock().flows {
            flow.with(|ring| {
                ring.tell(time, flags, numbers);
                true
            });
        }
    }

    /// Gives on what waits for room. Whether all have what they are waited for.
    pub(crate) fn settle(&self) -> bool {
        let state = &mut *self.0.lock();
        while let Some((event, bytes, flows)) = state.pending.front_mut() {
            flows.retain(|flow| {
                let mut lacks = false;
                let write = |to: &mut [u8]| to.copy_from_slice(bytes);
                let one = core::slice::from_ref(flow);
                flow.memory.give(one, event, &write, |_| lacks = true);
                lacks && flow.waits(state.patience, event.body.packets)
            });
            if !flows.is_empty() {
                return false;
            }
            state.pending_bytes -= event.bytes;
            state.pending.pop_front();
        }
        true
    }

    fn give(&self, event: Event, write: &dyn Fn(&mut [u8])) {
        let state = &mut *self.0.lock();
        let mut lacking = Vec::new();
        if state.pending.is_empty() {
            let users = (state.flows).chunk_by(|one, next| Arc::ptr_eq(&one.memory, &next.memory));
            for flows in users {
                let lacks = |flow: &Arc<FlowRing>| lacking.push(Arc::clone(flow));
                flows[0].memory.give(flows, &event, write, lacks);
            }
        } else {
            lacking.clone_from(&state.flows);
        }
        let is_room = state.pending_bytes + event.bytes <= MOST_PENDING;
        let patience = state.patience.filter(|_| is_room);
        lacking.retain(|flow| flow.waits(patience, event.body.packets));
        if !lacking.is_empty() {
            let mut bytes = vec![0; event.bytes];
            write(&mut bytes);
            state.pending_bytes += event.bytes;
            state.pending.push_back((event, bytes, lacking));
        }
    }
}

/// What takes the packets of a component.
struct Sink {
    readers: Arc<Readers>,
    component: u32,
}

impl PacketSink for Sink {
    fn packets(&self, packets: &Packets<'_>, snap: usize) {
        let mut left = packets.selected;
        while !left.is_empty() {
            let (mut selected, mut bytes) = (Selection::NONE, 0);
            for (place, packet) in (Packets {
                selected: left,
                ..*packets
            })
            .iter()
            {
                let len = record_len(packets.bytes(packet).len().min(snap));
                if bytes > 0 && bytes + len > MOST_AREA {
                    break;
                }
                selected.insert(place);
                bytes += len;
            }
            if selected.is_empty() {
                return;
            }
            left = left.without(selected);
            let packets = Packets {
                selected,
                ..*packets
            };
            let body = Body {
                component: self.component,
                packets: selected.len() as u32,
            };
            let write = |to: &mut [u8]| write_records(&packets, snap, to);
            self.readers.give(Event { body, bytes }, &write);
        }
    }
}

fn write_records(packets: &Packets<'_>, snap: usize, mut to: &mut [u8]) {
    for (_, packet) in packets.iter() {
        let bytes = packets.bytes(packet);
        let bytes = bytes.get(..snap).unwrap_or(bytes);
        let descriptor = packets.batch.packets.get(usize::from(packet.index));
        let interface = descriptor.map_or(0, |descriptor| descriptor.interface);
        let left = core::mem::take(&mut to);
        let Some((record, rest)) = left.split_at_mut_checked(record_len(bytes.len())) else {
            return;
        };
        let mut header = [0; RECORD_HEADER];
        header[..8].copy_from_slice(&fixed_point(packet.time).to_le_bytes());
        header[8..10].copy_from_slice(&interface.to_le_bytes());
        header[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        header[16..20].copy_from_slice(&packet.wire_len.to_le_bytes());
        record[..RECORD_HEADER].copy_from_slice(&header);
        record[RECORD_HEADER..][..bytes.len()].copy_from_slice(bytes);
        to = rest;
    }
}

/// Seconds as a fixed point of 32.32 bits.
fn fixed_point(time: Nanos) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    ((time.0 / SECOND) << 32) | (((time.0 % SECOND) << 32) / SECOND)
}
