//! Finds components that several stacks share: equal prefixes.

use core::ops::Range;
use std::sync::Arc;

use flowgauge_stack::engine::Required;
use flowgauge_stack::{ComponentKind, Graph, Inner, Node, NodeId, SettingError, Stack, Stage};

use super::part::{Common, Member, Next, Part};

/// The first stage of a stack.
#[derive(Clone)]
pub(super) struct First {
    /// Which of the stacks it is.
    member: Member,
    pub(super) of: Stack,
    /// The components of its outermost row.
    row: Vec<NodeId>,
    until: Option<NodeId>,
    /// Whether what is of ports of groups is to be on one worker.
    is_by_group: bool,
}

impl First {
    pub(super) fn new(member: Member, of: &Stack, stage: &Stage) -> First {
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
            member,
            of: of.clone(),
            row,
            until: stage.until,
            is_by_group: stage.is_parallel && !has_keys,
        }
    }

    /// Which of the stacks it is.
    pub(super) fn number(&self) -> usize {
        self.member.number
    }

    /// The place of a component of the outermost row.
    fn at(&self, id: NodeId) -> Option<(First, usize)> {
        let place = self.row.iter().position(|&at| at == id)?;
        Some((self.clone(), place))
    }

    /// Whether one engine does for its component at `place` and for the other's.
    fn stands_with(&self, other: &First, place: usize) -> bool {
        let engine = |first: &First| required(first.of.node(*first.row.get(place)?));
        let engines = engine(self).zip(engine(other));
        self.is_by_group == other.is_by_group
            && (0..place).all(|before| self.shares(other, before))
            && engines.is_some_and(|(one, other)| one.is_shared_with(&other))
    }

    /// Whether the component of the outermost row at `place` is the other's, too.
    fn shares(&self, other: &First, place: usize) -> bool {
        let theirs_of = &other.of;
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
                one.does_as(other)
                    && one.settings.has_same_attached(&other.settings)
                    && !(one.info.effects)(&one.settings)
                    && one.info.kind != ComponentKind::Thread
                    && one.references.is_empty()
                    && other.references.is_empty()
                    && !self.of.is_referenced(id)
                    && !theirs_of.is_referenced(id)
                    && (id == mine || one.next == other.next)
            })
    }
}

/// The components of a part.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) first: First,
    /// Their places in the outermost row of its stack.
    pub(super) components: Range<usize>,
}

impl Row {
    /// Which component is at a place, if that is one of these.
    pub(super) fn at(&self, place: usize) -> Option<NodeId> {
        let is_of_it = self.components.contains(&place);
        is_of_it.then(|| self.first.row.get(place).copied())?
    }

    /// How many components it begins with that are those of another one, too, and remember nothing: who comes later has from
    /// them what it would have from its own.
    pub(super) fn begins_as(&self, other: &Row) -> usize {
        let (mine, theirs) = (&self.components, &other.components);
        let both = mine.clone().take_while(|place| theirs.contains(place));
        let same = both.take_while(|&place| {
            let id = self.first.row.get(place);
            id.is_some_and(|id| self.first.of.node(*id).info.keeps_nothing())
                && self.first.shares(&other.first, place)
        });
        match mine.start == theirs.start {
            true => same.count(),
            false => 0,
        }
    }
}

/// Divides stacks into those that begin with the same component.
pub(super) fn groups(firsts: Vec<First>, place: usize) -> Vec<Vec<First>> {
    let mut groups: Vec<Vec<First>> = Vec::new();
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

/// Makes the parts of stacks that go on from `place` with what comes there. Those that do so with subscribers to equal
/// engines share one.
///
/// # Errors
/// A component that cannot be made of its settings.
pub(super) fn parts(
    firsts: Vec<First>,
    place: usize,
    common: &Arc<Common>,
    tail: &mut dyn FnMut(&Member) -> Next,
) -> Result<Vec<Part>, SettingError> {
    let mut made = Vec::new();
    for group in groups(firsts, place) {
        if let Some(part) = part(group, place, common, tail)? {
            part.join(&mut made, None);
        }
    }
    Ok(made)
}

/// For each engine, the components that subscribe to it, as stack index and id, if the stacks run on the same cores.
pub fn engines(stacks: &[Stack]) -> Vec<Vec<(usize, NodeId)>> {
    let mut engines: Vec<Vec<(usize, NodeId)>> = Vec::new();
    let mut places: Vec<Option<(First, usize)>> = Vec::new();
    for (index, stack) in stacks.iter().enumerate() {
        let first = stack.stages(false).into_iter().next();
        let first = first.filter(|_| !stack.has_source());
        let first = first.map(|stage| First::new(Member::new(index), stack, &stage));
        for (id, _) in stack.iter().filter(|(_, node)| required(node).is_some()) {
            // In a container, on another thread and behind a source it stands where no other does.
            let place = first.as_ref().and_then(|first| first.at(id));
            let other = places.iter().position(|other| {
                let both = place.as_ref().zip(other.as_ref());
                both.is_some_and(|(one, other)| {
                    one.1 == other.1 && one.0.stands_with(&other.0, one.1)
                })
            });
            match other {
                Some(engine) => engines[engine].push((index, id)),
                None => {
                    engines.push(vec![(index, id)]);
                    places.push(place);
                }
            }
        }
    }
    engines
}

/// The engine that a component subscribes to, if it does.
fn required(node: &Node) -> Option<Required> {
    // What is wrong with its settings is found when it is made.
    (node.info.engine?)(&node.settings).ok().flatten()
}

/// How many components from `place` on all of a group begin with.
fn shared(group: &[First], place: usize) -> usize {
    let is_of_all = |&place: &usize| group.iter().all(|first| group[0].shares(first, place));
    (place..).take_while(is_of_all).count()
}

/// Makes the parts of stacks that begin with the same component at `place`. `tail` says what follows
/// the stage of a stack.
///
/// # Errors
/// A component that cannot be made of its settings.
fn part(
    group: Vec<First>,
    place: usize,
    common: &Arc<Common>,
    tail: &mut dyn FnMut(&Member) -> Next,
) -> Result<Option<Part>, SettingError> {
    let Some(leader) = group.first().cloned() else {
        return Ok(None);
    };
    let members = group.iter().map(|first| first.member.clone()).collect();
    let mut end = leader.row.len();
    let from = leader.row.get(place).copied();
    let (until, next) = if group.len() == 1 {
        (leader.until, tail(&leader.member))
    } else {
        end = place + shared(&group, place);
        let until = leader.row.get(end).copied().or(leader.until);
        (
            until,
            Next::Parts(parts(group, end, common, tail)?, Vec::new()),
        )
    };
    let graph = Graph::part(&leader.of, from, until, next)?;
    let is_by_group = leader.is_by_group;
    let part = Part::new(members, graph, common);
    let part = part.with_groups(is_by_group);
    Ok(Some(part.with_row(Row {
        first: leader,
        components: place..end,
    })))
}
