//! Results of components inside demultiplexers, key by key.
//!
//! A component has one result for all keys. If results per key are requested, it gets its items one by
//! one, and the change of its result belongs to the key of the item; a result that is a last value
//! becomes that of the key. Results must not depend on batches, so nothing else changes.
//!
//! This applies to numbers; for tables see [`tables`].

mod tables;

use core::cmp::Reverse;

use flowgauge_record::results::{Cell, Merge, Table, TableColumn};
use flowgauge_record::schema::FieldKind;

use self::tables::Tables;
use super::{Graph, Inner, Tail};
use flowgauge_wire::Selection;

use crate::component::{Component, Items, Packets, PerKey, ResultValue};
use crate::program::{Node, NodeId};

static COLUMNS: [TableColumn; 2] = [
    TableColumn::new(
        "key",
        FieldKind::Text,
        Merge::Max,
        "key of the demultiplexer; of several in one another the outermost first",
    ),
    TableColumn::new("value", FieldKind::Unsigned, Merge::Max, "the key's result"),
];

static HEAD: [TableColumn; 2] = [
    TableColumn::new(
        "instances",
        FieldKind::Unsigned,
        Merge::Sum,
        "keys that have a result; one that ended and came again counts twice",
    ),
    TableColumn::new(
        "shown",
        FieldKind::Unsigned,
        Merge::Max,
        "maximum instances shown: those with the largest results, for tables those with the most items",
    ),
];

/// The results of one component by key.
pub(super) enum ByKey {
    Numbers(Numbers),
    Tables(Tables),
}

impl ByKey {
    /// A copy, where there can be one.
    pub(super) fn fork(&self) -> Option<ByKey> {
        match self {
            ByKey::Numbers(numbers) => Some(ByKey::Numbers(numbers.clone())),
            ByKey::Tables(_) => None,
        }
    }

    pub(super) fn new(node: &Node, most: usize) -> ByKey {
        match node.info.result {
            Some(result) if !result.columns.is_empty() => {
                ByKey::Tables(Tables::new(node, result.columns, most))
            }
            _ => ByKey::Numbers(Numbers::new(most)),
        }
    }

    pub(super) fn reset(&mut self) {
        match self {
            ByKey::Numbers(numbers) => *numbers = Numbers::new(numbers.most),
            ByKey::Tables(tables) => tables.reset(),
        }
    }
}

/// Numbers by key.
#[derive(Clone)]
pub(super) struct Numbers {
    /// How many are kept of keys that have ended, and shown.
    most: usize,
    live: PerKey<i128>,
    /// The largest of keys that have ended, with the keys' names; sorted when there are twice as many
    /// as are kept.
    ended: Vec<(Reverse<i128>, String)>,
    /// What a key that has ended must have at least to be among them.
    least: Option<i128>,
    /// Keys that have ended.
    instances: u64,
}

impl Numbers {
    fn new(most: usize) -> Numbers {
        Numbers {
            most,
            live: PerKey::default(),
            ended: Vec::new(),
            least: None,
            instances: 0,
        }
    }

    /// The result went from one value to another because of a key.
    fn note(&mut self, key: u32, before: Option<ResultValue>, after: Option<ResultValue>) {
        let number = |value: &Option<ResultValue>| value.as_ref().and_then(ResultValue::number);
        let Some(now) = number(&after) else {
            return;
        };
        match after {
            Some(ResultValue::Last(_)) => *self.live.of(key) = now,
            _ => {
                let gained = now.saturating_sub(number(&before).unwrap_or(0));
                if gained != 0 {
                    let value = self.live.of(key);
                    *value = value.saturating_add(gained);
                }
            }
        }
    }

    fn end(&mut self, key: u32, name: impl FnOnce() -> String) {
        let Some(value) = self.live.take(key) else {
            return;
        };
        self.instances += 1;
        if self.least.is_some_and(|least| value < least) {
            return;
        }
        self.ended.push((Reverse(value), name()));
        if self.ended.len() >= 2 * self.most {
            self.ended.sort_unstable();
            self.ended.truncate(self.most);
            self.least = self.ended.last().map(|last| last.0.0);
        }
    }

    fn table(&self, name: impl Fn(u32) -> String) -> Table {
        let mut rows = self.ended.clone();
        let mut live: Vec<(i128, u32)> = self.live.iter().map(|(key, it)| (*it, key)).collect();
        let instances = self.instances + live.len() as u64;
        // Names are made of those that may be among the largest only.
        live.sort_unstable_by_key(|(value, _)| Reverse(*value));
        if let Some(&(least, _)) = live.get(self.most.saturating_sub(1)) {
            live.retain(|(value, _)| *value >= least);
        }
        for (value, key) in live {
            rows.push((Reverse(value), name(key)));
            // Very many may have the same.
            if rows.len() > 4 * self.most {
                rows.sort_unstable();
                rows.truncate(self.most);
            }
        }
        rows.sort_unstable();
        rows.truncate(self.most);
        let mut table = Table::new(&COLUMNS, self.most);
        table.largest_of = Some(1);
        let rows = rows.into_iter();
        table.rows = rows
            .map(|(Reverse(value), name)| vec![Cell::Text(name), cell(value)])
            .collect();
        table.head = Some(head(instances, self.most));
        table
    }
}

/// What stands above results by key.
fn head(instances: u64, most: usize) -> Box<Table> {
    let mut head = Table::new(&HEAD, 1);
    let shown = Cell::Unsigned(most as u64);
    head.rows.push(vec![Cell::Unsigned(instances), shown]);
    Box::new(head)
}

fn cell(value: i128) -> Cell {
    match u64::try_from(value) {
        Ok(value) => Cell::Unsigned(value),
        Err(_) => Cell::Signed(i64::try_from(value).unwrap_or(i64::MIN)),
    }
}

impl<T: Tail> Graph<T> {
    /// As [`Component::process`], and notes for each key what that did to the result.
    #[cold]
    pub(super) fn one_by_one(&mut self, id: NodeId, items: &mut Items<'_>) {
        if let Some(ByKey::Tables(_)) = self.nodes[id.index()].by_key.as_deref() {
            self.observe(id, items);
            self.with(id, |component, exit| component.process(items, exit));
            return;
        }
        match items {
            Items::Packets(packets) => {
                let mut left = Selection::NONE;
                for index in packets.selected.iter() {
                    let mut selected = Selection::NONE;
                    selected.insert(index);
                    let mut one = Items::Packets(Packets {
                        selected,
                        ..*packets
                    });
                    self.noted(id, packets.key(index), |component, exit| {
                        component.process(&mut one, exit);
                    });
                    if let Items::Packets(one) = one {
                        left = left.or(one.selected);
                    }
                }
                packets.selected = left;
            }
            Items::Chunks(chunks) => {
                for chunk in *chunks {
                    let mut one = Items::Chunks(core::slice::from_ref(chunk));
                    self.noted(id, chunk.key, |component, exit| {
                        component.process(&mut one, exit);
                    });
                    self.leave(id, one);
                }
                *chunks = &[];
            }
            Items::Records(records) => {
                for record in *records {
                    let mut one = Items::Records(core::slice::from_ref(record));
                    self.noted(id, record.key, |component, exit| {
                        component.process(&mut one, exit);
                    });
                    self.leave(id, one);
                }
                *records = &[];
            }
        }
    }

    /// As [`Component::close_all`], and notes for each key what that did to the result.
    pub(super) fn close_one_by_one(&mut self, id: NodeId, keys: &[u32]) {
        if let Some(ByKey::Tables(_)) = self.nodes[id.index()].by_key.as_deref() {
            self.with(id, |component, exit| component.close_all(keys, exit));
            return;
        }
        for &key in keys {
            self.noted(id, key, |component, exit| component.close(key, exit));
        }
    }

    fn noted(
        &mut self,
        id: NodeId,
        key: u32,
        work: impl FnOnce(&mut dyn Component, &mut super::Exit<'_, T>),
    ) {
        let results = self.with(id, |component, exit| {
            let before = component.result();
            work(component, exit);
            (before, component.result())
        });
        let by_key = self.nodes[id.index()].by_key.as_deref_mut();
        if let (Some((before, after)), Some(ByKey::Numbers(numbers))) = (results, by_key) {
            numbers.note(key, before, after);
        }
    }

    /// Keys of the demultiplexer around a row have ended, and what components kept for them came out.
    pub(super) fn keys_have_ended(&mut self, first: NodeId, keys: &[u32]) {
        let mut at = Some(first);
        while let Some(id) = at {
            if let Some(mut by_key) = self.nodes[id.index()].by_key.take() {
                for &key in keys {
                    match &mut *by_key {
                        ByKey::Numbers(numbers) => numbers.end(key, || self.key_name(id, key)),
                        ByKey::Tables(tables) => tables.end(key, id, self),
                    }
                }
                self.nodes[id.index()].by_key = Some(by_key);
            }
            let mut branch = 0;
            while let Some(first) = self.branch(id, branch) {
                self.keys_have_ended(first, keys);
                branch += 1;
            }
            at = self.nodes[id.index()].next;
        }
    }

    pub(super) fn by_key(&self, id: NodeId) -> Option<Table> {
        let by_key = self.nodes.get(id.index())?.by_key.as_ref()?;
        let name = |key| self.key_name(id, key);
        Some(match &**by_key {
            ByKey::Numbers(numbers) => numbers.table(name),
            ByKey::Tables(tables) => tables.table(name),
        })
    }

    fn key_name(&self, id: NodeId, key: u32) -> String {
        self.key_names(id, key).join(", ")
    }

    /// What the key of an item at a component is, in words: the keys of all demultiplexers around it.
    pub(super) fn key_names(&self, id: NodeId, key: u32) -> Vec<String> {
        let mut names = Vec::new();
        let (mut at, mut key) = (self.nodes[id.index()].parent, key);
        while let Some(around) = at {
            let node = &self.nodes[around.index()];
            if let (Inner::PerKey(_), Some(demux)) = (&node.inner, &node.component) {
                names.extend(demux.key_name(key));
                key = demux.outer(key);
            }
            at = node.parent;
        }
        names.reverse();
        names
    }
}
