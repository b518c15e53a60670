//! Packets that match filters, and buffers of them (RFC 2819, groups 7 and 8: filter and capture).
//!
//! A channel takes the packets of an interface that one of its filters matches, or none of them. It counts them, and
//! while it is on it generates events and fills the buffers that name it.

use std::collections::{BTreeMap, VecDeque};

use flowgauge_wire::Nanos;
use smallvec::SmallVec;

use crate::Value;
use crate::control::{Control, ControlRow};
use crate::directory::Directory;
use crate::effects::integer;
use crate::frame::Frame;
use crate::layers::Layers;
use crate::mib::AUGMENTING;
use crate::observe::Shared;
use crate::paths::Paths;
use crate::probe::Probe;
use crate::rows::{Found, least, within};

/// Octets of all buffers at most, and of one.
const MOST_OCTETS: usize = 64 << 20;
const MOST_OF_BUFFER: i32 = 16 << 20;
/// Octets of a packet in a buffer beside its own.
const OVERHEAD: usize = 64;
/// Filters of all channels at most.
const MOST_FILTERS: usize = 1024;

/// channelDataControl: on.
const ON: i32 = 1;
/// channelEventStatus.
const READY: i32 = 1;
const FIRED: i32 = 2;
/// bufferControlFullAction.
const WRAP: i32 = 2;

/// filterPktStatus: of the errors a frame could have only its length is seen.
fn status(frame: &Frame<'_>) -> u32 {
    u32::from(frame.octets() > 1518)
}

/// A row of filterTable.
#[derive(Clone, Debug)]
struct Filter {
    offset: usize,
    /// Value, mask and inversion mask of each octet.
    data: Vec<[u8; 3]>,
    /// The same of the status.
    status: [u32; 3],
    /// LocalIndexes of the protocol whose beginning is that of the packet, and of one that it must be of, too; 0 is none.
    protocols: [u32; 2],
}

impl Filter {
    fn new(row: &ControlRow) -> Filter {
        let octets = |column| match Control::Filter.table().and_then(|it| row.value(it, column)) {
            Some(Value::Octets(octets)) => octets.as_slice(),
            _ => &[],
        };
        let (mask, not_mask) = (octets(5), octets(6));
        let data = octets(4).iter().enumerate().map(|(at, octet)| {
            let mask = mask.get(at).copied().unwrap_or(0xff);
            [*octet, mask, not_mask.get(at).copied().unwrap_or(0)]
        });
        let number = |column| integer(Control::Filter, row, column);
        Filter {
            offset: number(3) as usize,
            data: data.collect(),
            status: [7, 8, 9].map(|column| number(column).cast_unsigned()),
            protocols: [1, 2].map(|column| number(AUGMENTING + column).cast_unsigned()),
        }
    }

    /// Where what it looks at begins in a packet with these layers, if that is of its protocols.
    fn start(
        &self,
        layers: Option<&Layers>,
        paths: &Paths,
        directory: &Directory,
    ) -> Option<usize> {
        let mut begins = 0;
        for (at, protocol) in self
            .protocols
            .iter()
            .enumerate()
            .filter(|(_, it)| **it != 0)
        {
            let layers = layers?;
            let is_there = paths.state(layers.state).nodes.contains(protocol);
            let depth = directory.get(*protocol).filter(|_| is_there)?.id.len() / 4;
            if at == 0 {
                begins = *layers.starts.get(depth - 1)?;
            }
        }
        Some(begins)
    }

    fn matches(&self, frame: &Frame<'_>, begins: usize) -> bool {
        let start = self.offset.saturating_add(begins);
        let end = start.saturating_add(self.data.len());
        let Some(bytes) = frame.bytes.get(start..end) else {
            return self.data.is_empty() && self.matches_status(frame);
        };
        let octets = bytes.iter().zip(&self.data);
        let octets = octets.map(|(octet, filter)| (u32::from(*octet), filter.map(u32::from)));
        match_bits(octets) && self.matches_status(frame)
    }

    fn matches_status(&self, frame: &Frame<'_>) -> bool {
        match_bits(core::iter::once((status(frame), self.status)))
    }
}

/// Whether all relevant bits are as in the value, but for those of the inversion mask, of which one at least is not, if
/// there are any.
fn match_bits(parts: impl Iterator<Item = (u32, [u32; 3])>) -> bool {
    let (mut inverted, mut differs) = (0, 0);
    for (seen, [value, mask, not_mask]) in parts {
        let difference = (seen ^ value) & mask;
        if difference & !not_mask != 0 {
            return false;
        }
        inverted |= mask & not_mask;
        differs |= difference;
    }
    inverted == 0 || differs != 0
}

/// A channel that is active.
#[derive(Debug)]
pub(crate) struct Channel {
    /// ifIndex.
    pub(crate) interface: u32,
    accepts_failed: bool,
    is_on: bool,
    /// Events that turn it on and off, and its own.
    events: [u32; 3],
    event_status: i32,
    pub(crate) matches: u64,
    filters: Vec<Filter>,
}

/// A buffer that is active.
#[derive(Debug)]
pub(crate) struct Buffer {
    channel: u32,
    wraps: bool,
    /// Octets of each packet that are kept; all if 0.
    slice: usize,
    pub(crate) granted: i32,
    pub(crate) is_full: bool,
    used: usize,
    next: u32,
    /// When it began, as a stamp and as a time, which is 0 until the clock runs.
    pub(crate) started: u32,
    began: Nanos,
    pub(crate) packets: VecDeque<Packet>,
}

/// A packet in a buffer.
#[derive(Debug)]
pub(crate) struct Packet {
    number: u32,
    id: u32,
    bytes: Vec<u8>,
    octets: u64,
    /// Since the buffer began.
    nanos: u64,
    status: u32,
}

/// All channels and buffers, by control row.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) channels: BTreeMap<u32, Channel>,
    pub(crate) buffers: BTreeMap<u32, Buffer>,
    /// Octets of all buffers.
    used: usize,
    /// Rows of filterTable have changed.
    pub(crate) is_stale: bool,
}

impl Channel {
    pub(crate) fn new(row: &ControlRow) -> Channel {
        let number = |column| integer(Control::Channel, row, column);
        Channel {
            interface: number(2) as u32,
            accepts_failed: number(3) == 2,
            is_on: number(4) == ON,
            events: [5, 6, 7].map(|column| number(column) as u32),
            event_status: number(8),
            matches: 0,
            filters: Vec::new(),
        }
    }

    /// Follows what may be set while it is active.
    pub(crate) fn follow(&mut self, row: &ControlRow) {
        self.is_on = integer(Control::Channel, row, 4) == ON;
        self.event_status = integer(Control::Channel, row, 8);
    }
}

impl Buffer {
    pub(crate) fn new(row: &ControlRow, started: u32, began: Nanos) -> Buffer {
        let number = |column| integer(Control::Buffer, row, column);
        Buffer {
            channel: number(2) as u32,
            wraps: number(4) == WRAP,
            slice: number(5).max(0) as usize,
            granted: granted(number(8)),
            is_full: false,
            used: 0,
            next: 1,
            started,
            began,
            packets: VecDeque::new(),
        }
    }

    /// Follows what may be set while it is active.
    pub(crate) fn follow(&mut self, row: &ControlRow) {
        let before = self.granted;
        self.wraps = integer(Control::Buffer, row, 4) == WRAP;
        self.granted = granted(integer(Control::Buffer, row, 8));
        if self.room() > room(before) {
            self.is_full = false;
        }
        while self.used > self.room() {
            self.drop_oldest();
        }
    }

    fn room(&self) -> usize {
        room(self.granted)
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.packets.pop_front() {
            self.used -= oldest.bytes.len() + OVERHEAD;
        }
    }

    /// Puts in a packet, where there is room or the oldest ones go. `left` is the room that all buffers have left.
    fn put(&mut self, frame: &Frame<'_>, id: u32, left: usize) {
        if self.is_full && !self.wraps {
            return;
        }
        let slice = match self.slice {
            0 => frame.bytes,
            slice => &frame.bytes[..frame.bytes.len().min(slice)],
        };
        if self.began == Nanos(0) {
            self.began = frame.decoded.time;
        }
        let needed = slice.len() + OVERHEAD;
        let room = self.room().min(self.used + left);
        if self.used + needed > room {
            self.is_full = true;
            if !self.wraps || needed > room {
                return;
            }
            while self.used + needed > room {
                self.drop_oldest();
            }
        }
        self.used += needed;
        self.packets.push_back(Packet {
            number: self.next,
            id,
            bytes: slice.to_vec(),
            octets: frame.octets(),
            nanos: frame.decoded.time.0.saturating_sub(self.began.0),
            status: status(frame),
        });
        self.next = self.next % i32::MAX as u32 + 1;
    }
}

/// bufferControlMaxOctetsGranted.
fn granted(requested: i32) -> i32 {
    requested.clamp(-1, MOST_OF_BUFFER)
}

fn room(granted: i32) -> usize {
    usize::try_from(granted).unwrap_or(MOST_OF_BUFFER as usize)
}

impl Captured {
    /// The octets of buffers that have come or gone.
    pub(crate) fn account(&mut self) {
        self.used = self.buffers.values().map(|buffer| buffer.used).sum();
    }
}

impl Probe {
    /// Finds out anew which filters channels have.
    pub(crate) fn refresh_filters(&mut self) {
        self.captured.is_stale = false;
        let channels = self.captured.channels.values_mut();
        channels.for_each(|channel| channel.filters.clear());
        let rows = self.controls.range((Control::Filter, Vec::new())..);
        let rows = rows.take_while(|((control, _), _)| *control == Control::Filter);
        for (_, row) in rows.filter(|(_, row)| row.active) {
            let channel = integer(Control::Filter, row, 2) as u32;
            if let Some(channel) = self.captured.channels.get_mut(&channel) {
                channel.filters.push(Filter::new(row));
            }
        }
    }

    /// Whether there are as many filters as there may be.
    pub(crate) fn has_too_many_filters(&self) -> bool {
        let rows = self.controls.range((Control::Filter, Vec::new())..);
        let rows = rows.take_while(|((control, _), _)| *control == Control::Filter);
        rows.count() >= MOST_FILTERS
    }

    /// Has the channels of an interface take a frame.
    #[cold]
    pub(crate) fn capture(&mut self, place: usize, frame: &Frame<'_>) {
        let Captured { channels, .. } = &mut self.captured;
        let mut filters = channels.values().flat_map(|channel| &channel.filters);
        let interface = &mut self.interfaces[place];
        let layers = filters.any(|filter| filter.protocols != [0; 2]).then(|| {
            let mut shared = Shared {
                directory: &self.directory,
                paths: &mut self.paths,
                tables: &mut self.tables,
            };
            interface.layers(&mut shared, frame)
        });
        let (interface, id) = (interface.number, interface.ether.packets() & 0x7fff_ffff);
        let matches = |filter: &Filter| {
            let begins = filter.start(layers.as_ref(), &self.paths, &self.directory);
            begins.is_some_and(|begins| filter.matches(frame, begins))
        };
        let mut taken = SmallVec::<[u32; 8]>::new();
        for (number, channel) in channels.iter_mut() {
            if channel.interface == interface
                && channel.filters.iter().any(matches) != channel.accepts_failed
            {
                channel.matches += 1;
                taken.push(*number);
            }
        }
        for number in taken {
            self.take(number, frame, id as u32);
        }
    }

    /// A frame has come to a channel.
    fn take(&mut self, number: u32, frame: &Frame<'_>, id: u32) {
        let captured = &mut self.captured;
        let Some(channel) = captured.channels.get_mut(&number).filter(|it| it.is_on) else {
            return;
        };
        let event = Some(channel.events[2]).filter(|_| channel.event_status != FIRED);
        if event.is_some() && channel.event_status == READY {
            channel.event_status = FIRED;
            self.set_column(Control::Channel, number, 8, FIRED);
        }
        let captured = &mut self.captured;
        let buffers = captured.buffers.values_mut();
        for buffer in buffers.filter(|buffer| buffer.channel == number) {
            let before = buffer.used;
            buffer.put(frame, id, MOST_OCTETS.saturating_sub(captured.used));
            captured.used = captured.used + buffer.used - before;
        }
        if let Some(event) = event.filter(|event| *event != 0) {
            // RFC 2819 has no notification for it: an alarm of channelMatches tells managers.
            self.tell(event, None);
        }
    }

    /// An event turns channels on and off.
    pub(crate) fn switch_channels(&mut self, event: u32) {
        let channels = self.captured.channels.iter_mut();
        let mut switched = SmallVec::<[(u32, i32); 4]>::new();
        for (number, channel) in channels {
            let is_on = match channel.events {
                [on, ..] if on == event && !channel.is_on => true,
                [_, off, _] if off == event && channel.is_on => false,
                _ => continue,
            };
            channel.is_on = is_on;
            switched.push((*number, if is_on { ON } else { 2 }));
        }
        for (number, value) in switched {
            self.set_column(Control::Channel, number, 4, value);
        }
    }

    /// Sets a column that managers can set, too.
    fn set_column(&mut self, control: Control, number: u32, column: u32, value: i32) {
        let row = self.controls.get_mut(&(control, vec![number]));
        let (Some(row), Some(table)) = (row, control.table()) else {
            return;
        };
        let columns = table.columns.iter().zip(&mut row.values);
        for (_, place) in columns.filter(|(known, _)| known.number == column) {
            *place = Some(Value::Integer(value));
        }
    }

    /// What channels and buffers show that nobody sets.
    pub(crate) fn captured_value(
        &self,
        control: Control,
        number: u32,
        column: u32,
    ) -> Option<Value> {
        let Captured {
            channels, buffers, ..
        } = &self.captured;
        let buffer = buffers.get(&number);
        Some(match (control, column) {
            (Control::Channel, 9) => {
                let matches = channels.get(&number).map_or(0, |channel| channel.matches);
                Value::Counter32(matches as u32)
            }
            (Control::Buffer, 3) => {
                let is_full = buffer.is_some_and(|buffer| buffer.is_full);
                Value::Integer(if is_full { 2 } else { 1 })
            }
            (Control::Buffer, 9) => Value::Integer(buffer.map_or(0, |buffer| buffer.granted)),
            (Control::Buffer, 10) => {
                Value::Integer(buffer.map_or(0, |buffer| buffer.packets.len()) as i32)
            }
            (Control::Buffer, 11) => {
                let started = buffer.map_or(0, |it| self.tables.clock.up_time(it.started));
                Value::TimeTicks(started)
            }
            _ => return None,
        })
    }
}

fn packet(
    probe: &Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(u32, &Packet) -> Option<Value>,
) -> Found {
    let buffers = probe.captured.buffers.iter();
    let buffers = buffers.map(|(number, buffer)| (*number, buffer));
    within(buffers, index, include, |control, buffer, rest, include| {
        let least = least(rest, include);
        let first = buffer
            .packets
            .partition_point(|packet| packet.number < least);
        let packet = buffer.packets.get(first)?;
        Some((
            SmallVec::from_slice(&[packet.number]),
            value(control, packet)?,
        ))
    })
}

/// captureBufferTable.
pub(crate) fn packets(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let probe = &*probe;
    packet(probe, index, include, |control, packet| {
        Some(match column {
            1 => Value::Integer(control as i32),
            2 => Value::Integer(packet.number as i32),
            3 => Value::Integer(packet.id as i32),
            4 => {
                let row = probe.controls.get(&(Control::Buffer, vec![control]))?;
                let number = |column| integer(Control::Buffer, row, column).max(0) as usize;
                let (slice, offset) = (number(6), number(7));
                let bytes = packet.bytes.get(offset..).unwrap_or_default();
                Value::Octets(bytes[..bytes.len().min(slice)].to_vec())
            }
            5 => Value::Integer(packet.octets as i32),
            6 => Value::Integer((packet.nanos / 1_000_000) as i32),
            _ => Value::Integer(packet.status as i32),
        })
    })
}

/// captureBufferHighCapacityTable.
pub(crate) fn packets_hc(probe: &mut Probe, index: &[u32], include: bool, _: u32) -> Found {
    packet(probe, index, include, |_, packet| {
        Some(Value::Integer((packet.nanos % 1_000_000) as i32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2819, group 7: an octet by its bits, all combinations of small ones.
    #[test]
    fn bits_match_as_the_rules_say() {
        for word in 0..1_u32 << 12 {
            let [seen, value, mask, not_mask] = [0, 3, 6, 9].map(|at| word >> at & 7);
            let bits = |bit: &u32| [seen, value, mask, not_mask].map(|it| it >> bit & 1 == 1);
            let relevant = || (0..3).filter(|bit| bits(bit)[2]);
            let fails_second =
                relevant().any(|bit| !bits(&bit)[3] && bits(&bit)[0] != bits(&bit)[1]);
            let mut inverted = relevant().filter(|bit| bits(bit)[3]).peekable();
            let fails_third =
                inverted.peek().is_some() && inverted.all(|bit| bits(&bit)[0] == bits(&bit)[1]);
            let part = core::iter::once((seen, [value, mask, not_mask]));
            assert_eq!(match_bits(part), !fails_second && !fails_third, "{word:o}");
        }
    }
}
