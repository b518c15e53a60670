//! Results: reading them, deriving them from others, and passing them to components on another
//! thread.
//!
//! A component after a component `thread` sees the results of preceding ones as they were after the
//! same packets and times: they are sent with the items to the other thread.

use flowgauge_record::results::Table;

use super::{Graph, Running, Tail};
use crate::component::ResultValue;
use crate::program::{NodeId, Stack};

/// The components before `until` whose results those from there on use.
pub(super) fn exports(stack: &Stack, until: NodeId) -> Vec<NodeId> {
    let behind = stack.iter().filter(|(id, _)| *id >= until);
    let used = behind.flat_map(|(_, node)| node.references.iter().map(|(_, id)| *id));
    let mut exports: Vec<NodeId> = used.filter(|id| *id < until).collect();
    exports.sort_unstable();
    exports.dedup();
    exports
}

impl<T: Tail> Graph<T> {
    /// A component's result.
    pub fn result(&self, id: NodeId) -> Option<ResultValue> {
        result_of(&self.nodes, id, 0)
    }

    /// A component's result for each key of the enclosing demultiplexer, if that has
    /// [`crate::RESULTS_OPTION`]: the largest ones.
    pub fn result_by_key(&self, id: NodeId) -> Option<Table> {
        self.by_key(id)
    }

    /// Sets the current result of a component that precedes this part.
    pub fn set_result(&mut self, id: NodeId, result: ResultValue) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            node.elsewhere = Some(result);
        }
    }

    /// Tells what stands behind of the results that it uses.
    #[inline]
    pub(super) fn export(&mut self) {
        if !self.exports.is_empty() {
            self.export_all();
        }
    }

    #[cold]
    fn export_all(&mut self) {
        let exports = self.exports.iter();
        let results: Vec<(NodeId, ResultValue)> = exports
            .filter_map(|&id| Some((id, self.result(id)?)))
            .collect();
        self.tail.results(&results);
    }
}

/// How many results are made of others in a row, which ends those that are made of themselves.
const MAX_DERIVED: usize = 16;

/// A component's result: its own, or what it makes of those that its options name.
fn result_of(nodes: &[Running], id: NodeId, depth: usize) -> Option<ResultValue> {
    let node = nodes.get(id.index()).filter(|_| depth < MAX_DERIVED)?;
    let Some(component) = node.component.as_ref() else {
        return node.elsewhere.clone();
    };
    component.result().or_else(|| {
        component.derived(&|option| {
            let (_, id) = node.references.iter().find(|(name, _)| *name == option)?;
            result_of(nodes, *id, depth + 1)
        })
    })
}
