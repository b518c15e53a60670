//! Tables by key.
//!
//! A table for all keys does not tell which rows belong to which key, so there is an additional instance
//! of the component for each key. These instances get the items of their key, and their output is
//! discarded: the run is the same as without them. Their memory is bounded by the number of the
//! demultiplexer's keys and by the limits in their options.

use core::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

use flowgauge_record::results::{Cell, Merge, Table, TableColumn};
use flowgauge_record::schema::FieldKind;
use flowgauge_wire::{Nanos, Selection};

use super::super::{Exit, Graph, Tail};
use super::{ByKey, head};
use crate::component::{
    Component, Failure, Items, Outlet, Packets, PerKey, RecordItem, ResultValue, SettingError,
    StreamChunk,
};
use crate::program::{Node, NodeId};
use crate::settings::Settings;
use crate::values::PacketValues;

/// The tables of one component by key.
pub(in super::super) struct Tables {
    /// How many are kept of keys that have ended, and shown.
    most: usize,
    make: fn(&Settings) -> Result<Box<dyn Component>, SettingError>,
    settings: Settings,
    columns: &'static [TableColumn],
    live: PerKey<Instance>,
    /// Those with the most items of keys that have ended; sorted when there are twice as many as are
    /// kept.
    ended: Vec<Shown>,
    /// Keys that have ended.
    instances: u64,
}

/// What there is for a key.
#[derive(Default)]
struct Instance {
    items: u64,
    component: Option<Box<dyn Component>>,
}

/// A key's table.
#[derive(Clone)]
struct Shown {
    items: u64,
    name: String,
    rows: Vec<Vec<Cell>>,
}

impl Tables {
    pub(super) fn new(node: &Node, columns: &'static [TableColumn], most: usize) -> Tables {
        Tables {
            most,
            make: node.info.make,
            settings: node.settings.clone(),
            columns: with_key(columns),
            live: PerKey::default(),
            ended: Vec::new(),
            instances: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        self.ended.clear();
        self.instances = 0;
        for (_, instance) in self.live.iter_mut() {
            instance.items = 0;
            if let Some(component) = &mut instance.component {
                component.reset();
            }
        }
    }

    /// Takes items of a key.
    fn take(&mut self, key: u32, mut items: Items<'_>, out: &mut Observer<'_, impl Tail>) {
        let instance = self.live.of(key);
        instance.items += items.len() as u64;
        out.key = key;
        if instance.component.is_none() {
            match (self.make)(&self.settings) {
                Ok(component) => instance.component = Some(component),
                // The one that is for all keys could be made.
                Err(error) => return out.fail(Failure::new(error.message)),
            }
            instance.tick(out.exit.graph.now(), out);
        }
        if let Some(component) = &mut instance.component {
            component.process(&mut items, out);
        }
    }

    pub(super) fn end(&mut self, key: u32, id: NodeId, graph: &mut Graph<impl Tail>) {
        let Some(mut instance) = self.live.take(key) else {
            return;
        };
        self.instances += 1;
        let name = graph.key_name(id, key);
        let mut out = Observer::new(graph, id);
        out.key = key;
        if let Some(component) = &mut instance.component {
            component.close(0, &mut out);
            component.finish(&mut out);
        }
        self.ended.push(instance.shown(name));
        if self.ended.len() >= 2 * self.most {
            cut(&mut self.ended, self.most);
        }
    }

    pub(super) fn table(&self, name: impl Fn(u32) -> String) -> Table {
        let mut live: Vec<(u32, &Instance)> = self.live.iter().collect();
        let instances = self.instances + live.len() as u64;
        // Tables are made of those that may be among the largest only.
        live.sort_unstable_by_key(|(_, instance)| Reverse(instance.items));
        if let Some(&(_, least)) = live.get(self.most.saturating_sub(1)) {
            live.retain(|(_, instance)| instance.items >= least.items);
        }
        let mut shown = self.ended.clone();
        for (key, instance) in live {
            shown.push(instance.shown(name(key)));
            // Very many may have the same number.
            if shown.len() > 4 * self.most {
                cut(&mut shown, self.most);
            }
        }
        cut(&mut shown, self.most);
        let mut table = Table::new(self.columns, self.most);
        table.largest_of = Some(1);
        table.is_grouped = true;
        for Shown { items, name, rows } in shown {
            let rows = rows.into_iter().map(|cells| {
                let key = [Cell::Text(name.clone()), Cell::Unsigned(items)];
                key.into_iter().chain(cells).collect()
            });
            table.rows.extend(rows);
        }
        table.head = Some(head(instances, self.most));
        table
    }
}

impl Instance {
    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        let component = self.component.as_mut();
        if let Some(component) = component.filter(|component| component.has_timer()) {
            component.tick(now, out);
        }
    }

    fn shown(&self, name: String) -> Shown {
        let result = self.component.as_ref().and_then(|it| it.result());
        let rows = match result {
            Some(ResultValue::Table(table)) => table.rows,
            _ => Vec::new(),
        };
        Shown {
            items: self.items,
            name,
            rows,
        }
    }
}

/// Leaves those with the most items.
fn cut(shown: &mut Vec<Shown>, most: usize) {
    shown.sort_by(|a, b| b.items.cmp(&a.items).then_with(|| a.name.cmp(&b.name)));
    shown.truncate(most);
}

/// The columns of a component's table with those of its key before them. They are made once for each
/// component that a program knows, and stay.
fn with_key(columns: &'static [TableColumn]) -> &'static [TableColumn] {
    type Columns = &'static [TableColumn];
    static KNOWN: Mutex<Vec<(Columns, Columns)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|(of, _)| core::ptr::eq(*of, columns));
    if let Some((_, made)) = found {
        return made;
    }
    let mut made = vec![
        TableColumn::new(
            "key",
            FieldKind::Text,
            Merge::Max,
            "key of the demultiplexer; of several in one another the outermost first",
        ),
        TableColumn::new(
            "items",
            FieldKind::Unsigned,
            Merge::Max,
            "items of the key that came to the component",
        ),
    ];
    // Rows of different keys do not meet.
    made.extend(columns.iter().map(|column| {
        let field = &column.field;
        TableColumn::new(field.name, field.kind, Merge::Max, field.help)
    }));
    let made: Columns = made.leak();
    known.push((columns, made));
    made
}

/// The way out of a component that is there for the table of a key: nothing goes on.
struct Observer<'a, T> {
    exit: Exit<'a, T>,
    key: u32,
}

impl<'a, T> Observer<'a, T> {
    fn new(graph: &'a mut Graph<T>, id: NodeId) -> Observer<'a, T> {
        let exit = Exit { graph, id };
        Observer { exit, key: 0 }
    }
}

impl<T: Tail> Outlet for Observer<'_, T> {
    fn emit(&mut self, _: Items<'_>) {}

    fn fail(&mut self, failure: Failure) {
        self.exit.fail(failure);
    }

    fn end(&mut self) {}

    fn key_names(&self, _: u32) -> Vec<String> {
        self.exit.key_names(self.key)
    }

    fn result(&self, option: &str) -> Option<ResultValue> {
        self.exit.result(option)
    }

    fn results(&self, option: &str) -> Vec<(String, ResultValue)> {
        self.exit.results(option)
    }

    fn values(&self, option: &str) -> Option<&PacketValues> {
        self.exit.values(option)
    }

    fn batch(&self) -> u64 {
        self.exit.batch()
    }
}

impl<T: Tail> Graph<T> {
    /// Gives items to the components that are there for the tables of their keys.
    pub(super) fn observe(&mut self, id: NodeId, items: &Items<'_>) {
        self.with_tables(id, |tables, out| match items {
            Items::Packets(packets) => {
                packets.by_key(&mut Vec::new(), |key, places| {
                    let mut selected = Selection::NONE;
                    places.iter().for_each(|&at| selected.insert(at as usize));
                    let keys = &[];
                    let packets = Packets {
                        selected,
                        keys,
                        ..*packets
                    };
                    tables.take(key, Items::Packets(packets), out);
                });
            }
            Items::Chunks(chunks) => {
                for chunk in *chunks {
                    let one = [StreamChunk { key: 0, ..*chunk }];
                    tables.take(chunk.key, Items::Chunks(&one), out);
                }
            }
            Items::Records(records) => {
                for record in *records {
                    let one = [RecordItem { key: 0, ..*record }];
                    tables.take(record.key, Items::Records(&one), out);
                }
            }
        });
    }

    /// Those that wait for a time look at the clock.
    pub(in super::super) fn tick_by_key(&mut self, id: NodeId) {
        if self.nodes[id.index()].by_key.is_some() {
            let now = self.now;
            self.with_tables(id, |tables, out| {
                for (key, instance) in tables.live.iter_mut() {
                    out.key = key;
                    instance.tick(now, out);
                }
            });
        }
    }

    fn with_tables(&mut self, id: NodeId, work: impl FnOnce(&mut Tables, &mut Observer<'_, T>)) {
        let Some(mut by_key) = self.nodes[id.index()].by_key.take() else {
            return;
        };
        if let ByKey::Tables(tables) = &mut *by_key {
            let before = core::mem::replace(&mut self.current, id);
            work(tables, &mut Observer::new(self, id));
            self.current = before;
        }
        self.nodes[id.index()].by_key = Some(by_key);
    }
}
