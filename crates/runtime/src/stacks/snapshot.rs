//! Snapshots of running stacks.

use flowgauge_stack::{Account, NodeId, Passed, ResultValue, Stack, Table};

use super::part::Count;

/// The state of running stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// In the order of the program.
    pub stacks: Vec<StackState>,
}

/// The state of a running stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackState {
    /// By [`NodeId`].
    pub components: Vec<ComponentState>,
}

/// The state of a running component, over all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComponentState {
    /// Its input so far.
    pub passed: Passed,
    /// Its result, if it has one.
    pub result: Option<ResultValue>,
    /// Its results for keys of the enclosing demultiplexer, if requested: the largest ones.
    pub by_key: Option<Table>,
    /// Its account, if it has one.
    pub account: Option<Box<Account>>,
}

impl StackState {
    pub(super) fn of(stack: &Stack) -> StackState {
        StackState {
            components: vec![ComponentState::default(); stack.nodes.len()],
        }
    }

    pub(super) fn add(&mut self, count: &Count) {
        let Some(state) = self.components.get_mut(count.id.index()) else {
            return;
        };
        state.passed.items += count.passed.items;
        state.passed.batches += count.passed.batches;
        if let Some(account) = &count.account {
            state.account.get_or_insert_default().merge(account);
        }
        match (&mut state.by_key, &count.by_key) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
        match (&mut state.result, &count.result) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
    }

    /// The state of a component.
    pub fn component(&self, id: NodeId) -> Option<&ComponentState> {
        self.components.get(id.index())
    }
}

/// Components computed once for several stacks, and those that follow them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The stacks, by number.
    pub stacks: Vec<usize>,
    /// The components, by their ids in each stack.
    pub components: Vec<NodeId>,
    /// Whether the following components share an engine.
    pub is_engine: bool,
    /// The following components.
    pub next: Vec<Shared>,
}

impl Shared {
    /// The same with other stack numbers: each number is replaced by any number of others.
    #[must_use]
    pub fn renumbered(self, numbers: &dyn Fn(usize) -> Vec<usize>) -> Shared {
        let next = self.next.into_iter();
        Shared {
            stacks: self.stacks.into_iter().flat_map(numbers).collect(),
            next: next.map(|next| next.renumbered(numbers)).collect(),
            ..self
        }
    }
}
