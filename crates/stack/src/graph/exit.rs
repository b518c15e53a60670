//! The outlet of a component that is processing items.

use flowgauge_wire::Nanos;

use super::clock::end_of_interval;
use super::{Graph, Inner, Tail};
use crate::component::{Failure, Items, Outlet, ResultValue, Settled};
use crate::program::NodeId;
use crate::values::PacketValues;

/// The way out of a component.
pub(super) struct Exit<'a, T> {
    pub(super) graph: &'a mut Graph<T>,
    pub(super) id: NodeId,
}

impl<T> Exit<'_, T> {
    /// The components that an option names.
    fn named<'a>(&'a self, option: &'a str) -> impl Iterator<Item = NodeId> + 'a {
        let references = self.graph.nodes[self.id.index()].references.iter();
        let named = references.filter(move |(name, _)| *name == option);
        named.map(|(_, id)| *id)
    }
}

impl<T: Tail> Outlet for Exit<'_, T> {
    fn emit(&mut self, items: Items<'_>) {
        self.graph.leave(self.id, items);
    }

    fn fail(&mut self, failure: Failure) {
        self.graph.fail(failure);
    }

    fn end(&mut self) {
        self.graph.is_ending = true;
    }

    fn enough(&mut self) {
        self.graph.has_enough = true;
    }

    fn next_look(&self) -> Nanos {
        let graph = &*self.graph;
        let ends = graph.looks.iter();
        let ends = ends.map(|&length| end_of_interval(graph.now, length));
        ends.min().unwrap_or(Nanos(u64::MAX))
    }

    fn advance(&mut self, now: Nanos) {
        self.graph.now = self.graph.now.max(now);
        self.graph.tick();
    }

    fn settle(&mut self) -> Settled {
        self.graph.settle_all()
    }

    fn end_key(&mut self, key: u32) {
        let mut around = self.graph.nodes[self.id.index()].parent;
        while let Some(id) = around {
            let node = &mut self.graph.nodes[id.index()];
            if let (Inner::PerKey(_), Some(demux)) = (&node.inner, &mut node.component) {
                return demux.end_key(key);
            }
            around = node.parent;
        }
    }

    fn key_names(&self, key: u32) -> Vec<String> {
        self.graph.key_names(self.id, key)
    }

    fn result(&self, option: &str) -> Option<ResultValue> {
        self.graph.result(self.named(option).next()?)
    }

    fn results(&self, option: &str) -> Vec<(String, ResultValue)> {
        let named = self.named(option);
        named
            .filter_map(|id| {
                let node = self.graph.nodes.get(id.index())?;
                Some((node.label.clone(), self.graph.result(id)?))
            })
            .collect()
    }

    fn values(&self, option: &str) -> Option<&PacketValues> {
        let id = self.named(option).next()?;
        let node = self.graph.nodes.get(id.index())?;
        node.component.as_ref()?.values()
    }

    fn all_values(&self, option: &str) -> Vec<Option<&PacketValues>> {
        let nodes = self
            .named(option)
            .filter_map(|id| self.graph.nodes.get(id.index()));
        let values = nodes.map(|node| node.component.as_ref()?.values());
        values.collect()
    }

    fn batch(&self) -> u64 {
        self.graph.batch
    }
}
