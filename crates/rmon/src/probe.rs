//! All of it: interfaces, the directory, control rows and what was seen.

use std::sync::Weak;

use flowgauge_wire::{Batch, DecodedBatch, Nanos};

use crate::Notification;
use crate::control::{Control, ControlRow, Controls};
use crate::directory::{Directory, index};
use crate::effects::Consequence;
use crate::keys::IF_INDEX;
use crate::observe::{Interface, Shared};
use crate::paths::Paths;
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
    pub(crate) consequences: Vec<(Weak<()>, Consequence)>,
    pub(crate) notifications: Vec<Notification>,
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
            consequences: Vec::new(),
            notifications: Vec::new(),
        };
        let known = probe.directory.iter();
        let known: Vec<_> = known
            .map(|(local, entry)| (local, index(&entry.id, &entry.parameters)))
            .collect();
        for (local, index) in known {
            probe.own(Control::Directory, index.clone(), &[]);
            probe.note_protocol(&index, local);
        }
        probe
    }

    /// Adds an interface by its ifIndex, with the tables of all groups, and tells its place in the list of interfaces.
    pub fn add_interface(&mut self, number: u32) -> usize {
        self.interfaces.push(Interface::new(number));
        let source = Value::Oid(Oid::new(&IF_INDEX).child(&[number]));
        for control in [Control::Dist, Control::Map, Control::Hosts, Control::Matrix] {
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
        self.controls.insert((control, index), row);
    }

    /// Counts the packets of a batch from an interface.
    pub fn observe(&mut self, interface: usize, batch: &Batch<'_>, decoded: &DecodedBatch) {
        self.keep_up();
        let mut shared = Shared {
            directory: &self.directory,
            paths: &mut self.paths,
            tables: &mut self.tables,
        };
        if let Some(interface) = self.interfaces.get_mut(interface) {
            interface.observe(&mut shared, batch, decoded);
        }
        if let Some(now) = batch.now {
            self.tick(now);
        }
    }

    /// Goes on to a time without packets.
    pub fn tick(&mut self, now: Nanos) {
        self.tables.clock.advance(now);
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
        if !self.paths.is_current(&self.directory) {
            self.settle();
            self.paths.follow(&self.directory);
            self.interfaces.iter_mut().for_each(Interface::forget);
            self.tables.epoch += 1;
        }
    }
}
