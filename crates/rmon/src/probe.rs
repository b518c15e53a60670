//! All of it: interfaces, the directory, control rows and what was seen.

use core::mem;
use std::sync::Weak;

use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, Nanos};

use crate::Notification;
use crate::captured::Captured;
use crate::control::{Control, ControlRow, Controls};
use crate::directory::{Directory, index};
use crate::effects::{self, Consequence};
use crate::frame::Frame;
use crate::jobs::Jobs;
use crate::keys::IF_INDEX;
use crate::observe::{Interface, Placed, Seen, Shared};
use crate::others::Questions;
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
    pub(crate) paths: Paths,
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
    pub(crate) questions: Questions,
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

/// An active row of a probe's own.
fn own_row(control: Control, values: &[(u32, Value)]) -> ControlRow {
    let columns = control.table().map_or(&[][..], |table| table.columns);
    let mut row = ControlRow::new(columns);
    for (column, place) in columns.iter().zip(&mut row.values) {
        if column.name.ends_with("Owner") {
            *place = Some(Value::Octets(OWNER.into()));
        }
        let given = values.iter().find(|(number, _)| *number == column.number);
        if let Some((_, value)) = given {
            *place = Some(value.clone());
        }
    }
    row.active = true;
    row
}

impl Probe {
    /// A probe without interfaces, whose directory has all protocols that are known.
    pub fn new() -> Probe {
        Probe::with(Directory::default())
    }

    /// One whose directory has these protocols.
    pub fn with(directory: Directory) -> Probe {
        let mut probe = Probe {
            directory,
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
            due: Nanos(0),
            jobs: Jobs::default(),
            captured: Captured::default(),
            changes: 0,
            questions: Questions::default(),
            waiting: Vec::new(),
        };
        let protocols = probe.directory.iter();
        let rows = protocols.map(|(local, entry)| {
            let mut row = own_row(Control::Directory, &[]);
            effects::note_protocol(&mut row, local, entry);
            let index = index(&entry.id, &entry.parameters);
            ((Control::Directory, index), row)
        });
        // All at once: there are thousands.
        probe.initial = rows.collect();
        probe.controls = probe.initial.clone();
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
        let row = own_row(control, values);
        self.initial.insert((control, index.clone()), row.clone());
        self.controls.insert((control, index), row);
    }

    /// Counts sets that changed control rows: another number means that [`Probe::save`] may have something new.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The interface of this name, a new one if there is none, and rows that waited for it. Where it has another ifIndex by
    /// now, its rows follow. Without one, as it is not there, it keeps the last one, or has one that no other has.
    pub fn take_interface(
        &mut self,
        name: &str,
        number: impl Into<Option<u32>>,
        speed: u64,
    ) -> usize {
        let number = number.into();
        let place = match (self.interface_of(name), number) {
            (Some(place), None) => place,
            (Some(place), Some(number)) => {
                self.renumber(self.interfaces[place].number, number);
                place
            }
            (None, number) => {
                let free = self.free_number();
                if let Some(number) = number.filter(|number| self.has_number(*number)) {
                    self.renumber(number, free);
                }
                self.add_interface(number.unwrap_or(free), speed)
            }
        };
        self.interfaces[place].name = name.to_owned();
        self.load_waiting();
        place
    }

    /// Adds an interface of which nothing is known.
    pub fn add_nameless(&mut self) -> usize {
        self.add_interface(self.free_number(), 0)
    }

    /// Whether packets may count by what they speak, too.
    pub fn has_contents(&self) -> bool {
        self.directory.has_contents
    }

    fn has_number(&self, number: u32) -> bool {
        self.interfaces.iter().any(|it| it.number == number)
    }

    /// An ifIndex that no interface has.
    fn free_number(&self) -> u32 {
        let mut numbers = (1..=65_535).rev();
        numbers
            .find(|number| !self.has_number(*number))
            .unwrap_or(1)
    }

    /// The names of interfaces, as far as they have one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.interfaces.iter().map(|it| it.name.as_str());
        names.filter(|name| !name.is_empty())
    }

    /// The place of the interface of this name.
    pub fn interface_of(&self, name: &str) -> Option<usize> {
        let mut interfaces = self.interfaces.iter();
        interfaces.position(|interface| interface.name == name)
    }

    /// The interface `from` is `to` by now, and the one that was `to`, if there is one, has its number until it is taken itself.
    fn renumber(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.settle();
        let follow = |number: &mut u32| {
            *number = match *number {
                it if it == from => to,
                it if it == to => from,
                it => it,
            }
        };
        let interfaces = self.interfaces.iter_mut();
        interfaces.for_each(|it| follow(&mut it.number));
        self.tables.renumber(follow);
        self.jobs
            .histories
            .values_mut()
            .for_each(|it| follow(&mut it.interface));
        self.captured
            .channels
            .values_mut()
            .for_each(|it| follow(&mut it.interface));
        let rows = self.controls.iter_mut().chain(&mut self.initial);
        for ((control, _), row) in rows {
            let columns = control.table().map_or(&[][..], |table| table.columns);
            let values = columns.iter().zip(&mut row.values);
            for (_, value) in values.filter(|(column, _)| column.names_interface()) {
                match value {
                    Some(Value::Integer(number)) => {
                        let mut index = number.cast_unsigned();
                        follow(&mut index);
                        *number = index.cast_signed();
                    }
                    Some(Value::Oid(source)) => {
                        if let Some(&[mut index]) = source.numbers().strip_prefix(&IF_INDEX) {
                            follow(&mut index);
                            *source = Oid::new(&IF_INDEX).child(&[index]);
                        }
                    }
                    _ => {}
                }
            }
        }
        // What is known of addresses is of interfaces by their numbers.
        self.tables
            .map
            .delete_where(|key| [from, to].contains(&key.interface));
        self.tables.epoch += 1;
    }

    /// Counts the packets of a batch: those of the first interface if there is only one, else each by the place that its
    /// descriptor says.
    pub fn observe(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        let only = self.interfaces.len() == 1;
        self.count(batch, decoded, &[], |index| {
            let frame = batch.packets.get(index);
            let place = frame.map_or(0, |frame| usize::from(frame.interface));
            Some(if only { 0 } else { place })
        });
    }

    /// Counts packets of a source whose interfaces have these places; of files, without places, they are of the first. With the
    /// [numbers](crate::directory::content) of what packets speak, by their place in `decoded`.
    pub fn observe_at(
        &mut self,
        places: &[usize],
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        contents: &[u16],
    ) {
        self.count(batch, decoded, contents, |index| {
            let number = batch.packets.get(index)?.interface;
            match places {
                [] => Some(0),
                places => places.get(usize::from(number)).copied(),
            }
        });
    }

    /// Counts packets of a batch of an interface.
    pub fn observe_of(
        &mut self,
        place: usize,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        contents: &[u16],
        is_selected: impl Fn(usize) -> bool,
    ) {
        self.count(batch, decoded, contents, |index| {
            is_selected(index).then_some(place)
        });
    }

    fn count(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        contents: &[u16],
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
        for (at, packet) in decoded.packets.iter().enumerate() {
            if !is_frame(&packet) {
                continue;
            }
            let place = place_of(usize::from(packet.index));
            let content = contents.get(at).copied().unwrap_or(0);
            seen.push(place.and_then(|place| {
                let interface = self.interfaces.get_mut(place)?;
                let frame = Frame::new(batch, packet, content)?;
                Some((place, interface.see(&mut shared, &frame)))
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
            let Some(((place, placed), frame)) = placed.zip(Frame::new(batch, packet, 0)) else {
                continue;
            };
            if packet.time >= self.due {
                self.run_due(packet.time);
            }
            self.tables.clock.advance(packet.time);
            let mut shared = Shared {
                directory: &self.directory,
                paths: &mut self.paths,
                tables: &mut self.tables,
            };
            self.interfaces[place].count(&mut shared, placed, &frame);
            if !self.captured.channels.is_empty() {
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

    /// Tells the longest IP datagram that an interface carries: packets that are longer were merged of several (GRO, TSO), and
    /// count as so many. Where it is not told, each packet counts once.
    pub fn note_mtu(&mut self, place: usize, bytes: u32) {
        if let Some(interface) = self.interfaces.get_mut(place) {
            interface.mtu = if bytes == 0 { u32::MAX } else { bytes };
        }
    }

    /// Tells how many packets an interface has lost so far.
    pub fn note_drops(&mut self, place: usize, packets: u64) {
        if let Some(interface) = self.interfaces.get_mut(place) {
            interface.ether.drop_events = packets;
        }
    }

    /// Tells how many frames with a wrong check sequence, and how many collisions, an interface has counted so far: those
    /// after the first time count. Its counters begin anew when it is made again.
    pub fn note_errors(&mut self, place: usize, now: [u64; 2]) {
        if let Some(interface) = self.interfaces.get_mut(place) {
            let before = interface.errors.replace(now).unwrap_or(now);
            for ((counted, now), before) in interface.ether.errors.iter_mut().zip(now).zip(before) {
                *counted += now.checked_sub(before).unwrap_or(now);
            }
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
