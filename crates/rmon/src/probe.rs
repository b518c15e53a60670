//! All of it: interfaces, the directory, control rows and what was seen.

use core::mem;
use std::sync::Weak;

use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, LinkType, Nanos, PacketFlags};

use crate::Notification;
use crate::captured::{Captured, Frame};
use crate::control::{Control, ControlRow, Controls};
use crate::directory::{Directory, index};
use crate::effects::Consequence;
use crate::jobs::Jobs;
use crate::keys::IF_INDEX;
use crate::observe::{Interface, Placed, Seen, Shared, octets};
use crate::paths::Paths;
use crate::saved::Untaken;
use crate::tables::Tables;
use crate::{Oid, Value};

/// Interfaces, the directory and the tables. Packets go in, [`Tree`](crate::Tree) shows what was seen of them.
///
/// It does no I/O and has no clock: time comes with the packets, and with [`Probe::tick`] where there are none.
#[derive(Debug)]
pub struct Probe {
    pub(crate) directory: Directory,
    /// When the directory was changed last, as a stamp.
    pub(crate) directory_changed: u32,
    paths: Paths,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) tables: Tables,
    pub(crate) controls: Controls,
    /// Control rows that were there before any set.
    pub(crate) initial: Controls,
    pub(crate) consequences: Vec<(Weak<()>, Consequence)>,
    pub(crate) notifications: Vec<Notification>,
    /// What the packets of a batch count for, and at which interface.
    seen: Vec<Option<(usize, Seen)>>,
    /// And the conversations that they belong to.
    placed: Vec<Option<(usize, Placed)>>,
    /// When something is to be done next, in [`Probe::run_due`].
    pub(crate) due: Nanos,
    pub(crate) jobs: Jobs,
    pub(crate) captured: Captured,
    /// Counts sets that changed control rows.
    pub(crate) changes: u64,
    /// Control rows of a file that were not taken, as what they name is not there yet for instance.
    pub(crate) waiting: Vec<Untaken>,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe::new()
    }
}

/// Who owns the rows that are there from the start.
const OWNER: &str = "monitor";

impl Probe {
    /// A probe without interfaces, whose directory has all protocols that are known.
    pub fn new() -> Probe {
        let mut probe = Probe {
            directory: Directory::default(),
            directory_changed: 0,
            paths: Paths::default(),
            interfaces: Vec::new(),
            tables: Tables::default(),
            controls: Controls::new(),
            initial: Controls::new(),
            consequences: Vec::new(),
            notifications: Vec::new(),
            seen: Vec::with_capacity(flowgauge_wire::BATCH_SIZE),
            placed: Vec::with_capacity(flowgauge_wire::BATCH_SIZE),
            due: Nanos(u64::MAX),
            jobs: Jobs::default(),
            captured: Captured::default(),
            changes: 0,
            waiting: Vec::new(),
        };
        let known = probe.directory.iter();
        let known: Vec<_> = known
            .map(|(local, entry)| (local, index(&entry.id, &entry.parameters)))
            .collect();
        for (local, index) in known {
            probe.own(Control::Directory, index.clone(), &[]);
            probe.note_protocol(&index, local);
            let key = (Control::Directory, index);
            if let Some(row) = probe.controls.get(&key).cloned() {
                probe.initial.insert(key, row);
            }
        }
        probe
    }

    /// Adds an interface by its ifIndex and its speed in bits per second, with the tables of all groups, and tells its
    /// place in the list of interfaces.
    pub fn add_interface(&mut self, number: u32, speed: u64) -> usize {
        self.interfaces.push(Interface::new(number, speed));
        let source = Value::Oid(Oid::new(&IF_INDEX).child(&[number]));
        let tables = [
            Control::Ether,
            Control::Stations,
            Control::StationPairs,
            Control::Vlans,
            Control::Priorities,
            Control::Dist,
            Control::Map,
            Control::Hosts,
            Control::Matrix,
        ];
        for control in tables {
            let free = (1..).find(|row| !self.controls.contains_key(&(control, vec![*row])));
            let index = vec![free.unwrap_or(1)];
            self.own(control, index.clone(), &[(2, source.clone())]);
            let started = self.start(control, &index);
            debug_assert_eq!(started, Ok(()));
        }
        self.interfaces.len() - 1
    }

    /// Puts in an active row of this probe's own.
    fn own(&mut self, control: Control, index: Vec<u32>, values: &[(u32, Value)]) {
        let Some(table) = control.table() else {
            return;
        };
        let mut row = ControlRow::new(table);
        for (column, place) in table.columns.iter().zip(&mut row.values) {
            if column.name.ends_with("Owner") {
                *place = Some(Value::Octets(OWNER.into()));
            }
            let given = values.iter().find(|(number, _)| *number == column.number);
            if let Some((_, value)) = given {
                *place = Some(value.clone());
            }
        }
        row.active = true;
        self.initial.insert((control, index.clone()), row.clone());
        self.controls.insert((control, index), row);
    }

    /// Counts sets that changed control rows: another number means that [`Probe::save`] may have something new.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The interface of this name, or where that has another ifIndex by now, a new one; and rows that waited for it.
    pub fn take_interface(&mut self, name: &str, number: u32, speed: u64) -> usize {
        let place = match self.interface_of(name) {
            Some(place) if self.interfaces[place].number == number => place,
            _ => self.add_interface(number, speed),
        };
        self.interfaces[place].name = name.to_owned();
        self.load_waiting();
        place
    }

    /// The place of the interface of this name: the last one, as nothing comes of its older numbers any more.
    pub fn interface_of(&self, name: &str) -> Option<usize> {
        let mut interfaces = self.interfaces.iter();
        interfaces.rposition(|interface| interface.name == name)
    }

    /// Counts the packets of a batch: those of the first interface if there is only one, else each by the place that its
    /// descriptor says.
    pub fn observe(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        let only = self.interfaces.len() == 1;
        self.count(batch, decoded, |index| {
            let frame = batch.packets.get(index);
            let place = frame.map_or(0, |frame| usize::from(frame.interface));
            Some(if only { 0 } else { place })
        });
    }

    /// Counts packets of a batch of an interface.
    pub fn observe_of(
        &mut self,
        place: usize,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        is_selected: impl Fn(usize) -> bool,
    ) {
        self.count(batch, decoded, |index| is_selected(index).then_some(place));
    }

    fn count(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        place_of: impl Fn(usize) -> Option<usize>,
    ) {
        self.keep_up();
        let mut shared = Shared {
            directory: &self.directory,
            paths: &mut self.paths,
            tables: &mut self.tables,
        };
        for interface in &mut self.interfaces {
            interface.make_room_for(batch.len(), &mut shared);
        }
        let mut seen = mem::take(&mut self.seen);
        seen.clear();
        // Datagrams reassembled from fragments are no packets.
        let is_frame = |packet: &&Decoded| !packet.flags.contains(DecodeFlags::REASSEMBLED);
        for packet in decoded.packets.iter().filter(is_frame) {
            let place = place_of(usize::from(packet.index));
            seen.push(place.and_then(|place| {
                let interface = self.interfaces.get_mut(place)?;
                Some((place, interface.see(&mut shared, batch, packet)))
            }));
        }
        let mut placed = mem::take(&mut self.placed);
        placed.clear();
        placed.extend(seen.iter().map(|seen| {
            let (place, seen) = seen.as_ref()?;
            Some((*place, self.interfaces[*place].look_up(seen)))
        }));
        for &(place, placed) in placed.iter().flatten() {
            self.interfaces[place].prefetch_rows(&shared, placed);
        }
        for (packet, placed) in decoded.packets.iter().filter(is_frame).zip(&placed) {
            let Some((place, placed)) = *placed else {
                continue;
            };
            if packet.time >= self.due {
                self.run_due(packet.time);
            }
            let index = usize::from(packet.index);
            let frame = batch.packets.get(index);
            let is_ethernet = frame.is_some_and(|frame| frame.link == LinkType::ETHERNET);
            let bytes = batch.bytes(index);
            let macs = bytes.first_chunk().filter(|_| is_ethernet);
            let stripped = frame.filter(|frame| frame.flags.contains(PacketFlags::VLAN));
            let tag = match (stripped, bytes.get(12..16)) {
                (Some(frame), _) => Some(frame.vlan_tci),
                (_, Some(&[0x81, 0, high, low] | &[0x88, 0xa8, high, low])) if is_ethernet => {
                    Some(u16::from_be_bytes([high, low]))
                }
                _ => None,
            };
            self.tables.clock.advance(packet.time);
            let mut shared = Shared {
                directory: &self.directory,
                paths: &mut self.paths,
                tables: &mut self.tables,
            };
            self.interfaces[place].count(&mut shared, placed, packet.wire_len, (macs, tag));
            if !self.captured.channels.is_empty() {
                let frame = Frame {
                    bytes,
                    octets: octets(packet.wire_len),
                    time: packet.time,
                };
                self.capture(place, &frame);
            }
        }
        (self.seen, self.placed) = (seen, placed);
        if let Some(now) = batch.now {
            self.tick(now);
        }
    }

    /// Goes on to a time without packets.
    pub fn tick(&mut self, now: Nanos) {
        if now >= self.due {
            self.run_due(now);
        }
        self.tables.clock.advance(now);
    }

    /// Tells how many packets an interface has lost so far.
    pub fn note_drops(&mut self, place: usize, packets: u64) {
        if let Some(interface) = self.interfaces.get_mut(place) {
            interface.ether.drop_events = packets;
        }
    }

    /// Lets all rows have what was counted, and follow what sets have asked for.
    pub(crate) fn settle(&mut self) {
        for interface in &mut self.interfaces {
            interface.flush(&self.paths, &mut self.tables);
            interface.distribute(&self.paths, &mut self.tables);
        }
        self.follow_up();
    }

    /// Follows changes of the directory and of control rows.
    fn keep_up(&mut self) {
        if !self.consequences.is_empty() {
            self.settle();
        }
        if self.captured.is_stale {
            self.refresh_filters();
        }
        if !self.paths.is_current(&self.directory) {
            self.settle();
            self.paths.follow(&self.directory);
            self.interfaces.iter_mut().for_each(Interface::forget);
            self.tables.epoch += 1;
        }
    }
}
