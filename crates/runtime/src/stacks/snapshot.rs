//! What is known of stacks that run.

use flowgauge_stack::{Account, NodeId, Passed, ResultValue, Stack, Table};

use super::part::Count;

/// What is known of running stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// In the order of the program.
    pub stacks: Vec<StackState>,
}

/// What is known of a running stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackState {
    /// By [`NodeId`].
    pub components: Vec<ComponentState>,
}

/// What is known of a running component, over all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComponentState {
    /// What came to it.
    pub passed: Passed,
    /// Its result, if it has one.
    pub result: Option<ResultValue>,
    /// Its result for each key of the demultiplexer that it is in, where that is wanted: the largest.
    pub by_key: Option<Table>,
    /// What it tells beside, if it does.
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

    /// A component's.
    pub fn component(&self, id: NodeId) -> Option<&ComponentState> {
        self.components.get(id.index())
    }
}

/// Components that are computed once for some stacks, and what these go on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Which of the stacks.
    pub stacks: Vec<usize>,
    /// The components, in each of them.
    pub components: Vec<NodeId>,
    /// Whether those that follow subscribe to one engine.
    pub is_engine: bool,
    /// What follows them.
    pub next: Vec<Shared>,
}

impl Shared {
    /// The same with other numbers of stacks, some with several; without those that have none.
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
