//! Graphs made from running graphs.

use super::{Graph, Running, Tail};
use crate::program::NodeId;

impl<T: Tail> Graph<T> {
    /// A copy that continues from the current state, with another tail. If a component cannot be copied, the copy has no
    /// components.
    pub fn fork<U: Tail>(&self, tail: U) -> Graph<U> {
        let copies: Option<Vec<Running>> = self.nodes.iter().map(Running::fork).collect();
        let is_whole = copies.is_some();
        let left = |(id, node): (NodeId, &Running)| Running {
            elsewhere: self.result(id),
            is_left: node.component.is_some(),
            ..node.without_component()
        };
        let without = || (0..).map(NodeId).zip(&self.nodes).map(left).collect();
        Graph {
            nodes: copies.unwrap_or_else(without),
            entry: self.entry.filter(|_| is_whole),
            tail,
            timed: self.timed.clone(),
            intervals: self.intervals.clone(),
            looks: self.looks.clone(),
            exports: self.exports.clone(),
            now: self.now,
            before: self.before,
            batch: self.batch,
            ended: Vec::new(),
            stopwatch: None,
            current: self.current,
            failure: None,
            is_ending: self.is_ending,
            has_enough: self.has_enough,
            is_over: self.is_over,
        }
    }

    /// Splits off the components of the outermost sequence from `at` on, if there are any, with their tail, which is
    /// replaced by `behind`. The remaining ones must not have timers or results that others use.
    pub fn split_off(&mut self, at: Option<NodeId>, behind: T) -> Graph<T> {
        let nodes = core::mem::take(&mut self.nodes);
        let mut rest = Graph {
            entry: at,
            timed: core::mem::take(&mut self.timed),
            intervals: core::mem::take(&mut self.intervals),
            looks: core::mem::take(&mut self.looks),
            exports: core::mem::take(&mut self.exports),
            now: self.now,
            before: self.before,
            batch: self.batch,
            current: at.unwrap_or(self.current),
            is_ending: self.is_ending,
            has_enough: self.has_enough,
            is_over: self.is_over,
            ..Graph::of_tail(core::mem::replace(&mut self.tail, behind))
        };
        for (id, node) in (0..).map(NodeId).zip(nodes) {
            let other = node.without_component();
            let stays = |id: NodeId| at.is_none_or(|at| id < at);
            let (mut here, there) = match stays(id) {
                true => (node, other),
                false => (other, node),
            };
            here.next = here.next.filter(|next| stays(*next));
            self.nodes.push(here);
            rest.nodes.push(there);
        }
        rest
    }
}
