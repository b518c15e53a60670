//! Which components of which stacks are one: equal beginnings of several stacks.

use std::sync::Arc;

use flowgauge_stack::{ComponentKind, Graph, Inner, NodeId, SettingError, Stack, Stage};

use super::part::{Common, Next, Part};

/// The first stage of a stack.
#[derive(Clone)]
pub(super) struct First<'a> {
    /// Which of the stacks it is.
    stack: usize,
    of: &'a Stack,
    /// The components of its outermost row.
    row: Vec<NodeId>,
    until: Option<NodeId>,
    /// Whether what is of ports of groups is to be on one worker.
    is_by_group: bool,
}

impl<'a> First<'a> {
    pub(super) fn new(stack: usize, of: &'a Stack, stage: &Stage) -> First<'a> {
        let row = stage.from.map_or(Vec::new(), |from| {
            of.row(from)
                .take_while(|&id| Some(id) != stage.until)
                .collect()
        });
        // Two hosts that are a key would then be on two.
        let has_keys = of
            .iter()
            .any(|(_, node)| matches!(node.inner, Inner::PerKey(_)));
        First {
            stack,
            of,
            row,
            until: stage.until,
            is_by_group: stage.is_parallel && !has_keys,
        }
    }

    /// Which of the stacks it is.
    pub(super) fn stack(&self) -> usize {
        self.stack
    }

    /// Whether the component of the outermost row at `place` is the other's, too.
    fn shares(&self, other: &First<'_>, place: usize) -> bool {
        let theirs_of = other.of;
        if self.is_by_group != other.is_by_group {
            return false;
        }
        let (Some(&mine), Some(&theirs)) = (self.row.get(place), other.row.get(place)) else {
            return false;
        };
        let range = self.of.subtree(mine);
        range == other.of.subtree(theirs)
            && range.map(NodeId).all(|id| {
                let (one, other) = (self.of.node(id), other.of.node(id));
                let settings = one.settings.iter().zip(other.settings.iter());
                core::ptr::eq(one.info, other.info)
                    && !one.info.effects
                    && one.info.kind != ComponentKind::Thread
                    && one.references.is_empty()
                    && other.references.is_empty()
                    && !self.of.is_referenced(id)
                    && !theirs_of.is_referenced(id)
                    && one.inner == other.inner
                    && (id == mine || one.next == other.next)
                    && one.settings.iter().count() == other.settings.iter().count()
                    && settings.into_iter().all(|(one, other)| {
                        one.option.name == other.option.name && one.value == other.value
                    })
            })
    }
}

/// Divides stacks into those that begin with the same component.
pub(super) fn groups<'a>(firsts: Vec<First<'a>>, place: usize) -> Vec<Vec<First<'a>>> {
    let mut groups: Vec<Vec<First<'a>>> = Vec::new();
    for first in firsts {
        let known = groups
            .iter_mut()
            .find(|group| group[0].shares(&first, place));
        match known {
            Some(group) => group.push(first),
            None => groups.push(vec![first]),
        }
    }
    groups
}

/// Makes the parts of stacks that begin with the same component at `place`. `tail` says what follows
/// the stage of a stack.
///
/// # Errors
/// A component that cannot be made of its settings.
pub(super) fn part(
    group: Vec<First<'_>>,
    place: usize,
    common: &Arc<Common>,
    tail: &mut dyn FnMut(usize) -> Next,
) -> Result<Option<Part>, SettingError> {
    let Some(leader) = group.first().cloned() else {
        return Ok(None);
    };
    let stacks: Vec<usize> = group.iter().map(|first| first.stack).collect();
    let from = leader.row.get(place).copied();
    let (until, next) = if group.len() == 1 {
        (leader.until, tail(leader.stack))
    } else {
        let is_of_all = |&place: &usize| group.iter().all(|first| leader.shares(first, place));
        let shared = (place..).take_while(is_of_all).count();
        let end = place + shared;
        let mut parts = Vec::new();
        for group in groups(group, end) {
            parts.extend(part(group, end, common, tail)?);
        }
        (
            leader.row.get(end).copied().or(leader.until),
            Next::Parts(parts),
        )
    };
    let graph = Graph::part(leader.of, from, until, next)?;
    let part = Part::new(stacks, graph, common);
    Ok(Some(part.with_groups(leader.is_by_group)))
}
