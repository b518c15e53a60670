//! Merges parts of stacks with the same leading components, or the same engine.

use std::sync::Arc;

use flowgauge_stack::engine::Engine;
use flowgauge_stack::{Graph, NodeId, Passed};
use flowgauge_wire::Nanos;

use super::{Next, Part};
use crate::stacks::plan::Row;
use crate::stacks::subscribers::Subscribers;

impl Part {
    /// Adds it to others on its thread: as a further subscriber to the engine of one of them where that does for it, or behind
    /// what it begins with as one of them. Where they run already, the clock is at `now`, and it sees flows from before as they
    /// are.
    pub(in crate::stacks) fn join(mut self, others: &mut Vec<Part>, now: Option<Nanos>) {
        let does = |other: &&mut Part| other.does_for(&self, now.is_some());
        if let Some(other) = others.iter_mut().find(does) {
            return other.take_in(self, now);
        }
        // Stacks that begin together are divided by what they begin with before.
        let shared = |other: &Part| match now {
            Some(_) => other.begins_as(&self),
            None => 0,
        };
        let most = others.iter_mut().map(|other| (shared(other), other));
        match most.max_by_key(|(shared, _)| *shared) {
            Some((shared, other)) if shared > 0 => other.take_in_behind(self, shared, now),
            _ => {
                self.begin_at(now);
                others.push(self);
            }
        }
    }

    /// How many components it begins with that do for a new part, too.
    fn begins_as(&self, new: &Part) -> usize {
        let rows = self.row.as_ref().zip(new.row.as_ref());
        match self.wants_input() && !self.is_over && !self.is_ending {
            true => rows.map_or(0, |(mine, new)| mine.begins_as(new)),
            false => 0,
        }
    }

    /// Takes in another one, which begins with as many components as it does itself.
    fn take_in_behind(&mut self, mut other: Part, shared: usize, now: Option<Nanos>) {
        self.cut(shared);
        other.cut(shared);
        let row = self.row.as_ref();
        let last = row.and_then(|row| row.at(row.components.end.checked_sub(1)?));
        let ids = (0..last.map_or(0, |last| last.0 + 1)).map(NodeId);
        let passed: Vec<Passed> = ids.map(|id| self.graph.passed(id)).collect();
        for member in &other.members {
            self.before.insert(member.number, passed.clone());
        }
        self.members.append(&mut other.members);
        let Next::Parts(parts, _) = self.graph.tail_mut() else {
            return;
        };
        if let Next::Parts(new, _) = other.graph.tail_mut() {
            for part in core::mem::take(new) {
                part.join(parts, now);
            }
        }
    }

    /// Makes a part of its own of what comes behind its first components.
    fn cut(&mut self, components: usize) {
        let Some(row) = self.row.as_mut() else {
            return;
        };
        let place = row.components.start + components;
        let at = row.at(place);
        if at.is_none() && matches!(self.graph.tail(), Next::Parts(..)) {
            return;
        }
        let rest = Row {
            components: place..row.components.end,
            ..row.clone()
        };
        row.components.end = place;
        let graph = self
            .graph
            .split_off(at, Next::Parts(Vec::new(), Vec::new()));
        let part = Part {
            members: self.members.clone(),
            graph,
            row: Some(rest),
            before: self.before.clone(),
            common: Arc::clone(&self.common),
            interests: Vec::new(),
            ..*self
        };
        if let Next::Parts(parts, _) = self.graph.tail_mut() {
            parts.push(part);
        }
    }

    /// Whether its engine does for a new part; where it `runs`, it has had all packets.
    pub(in crate::stacks) fn does_for(&self, new: &Part, runs: bool) -> bool {
        let engines = self.engine().zip(new.engine());
        self.is_by_group == new.is_by_group
            && (!runs || self.has_nobody() || self.wants_input())
            && engines.is_some_and(|(mine, other)| mine.does_for(other, runs))
    }

    /// The engine that its first component subscribes to, or that all of its parts do.
    fn engine(&self) -> Option<&Engine> {
        match self.graph.tail() {
            Next::Subscribers(subscribers) if self.graph.is_empty() => Some(subscribers.engine()),
            _ => self.graph.engine(),
        }
    }

    /// Takes in another one, whose engine its own does for.
    fn take_in(&mut self, mut other: Part, now: Option<Nanos>) {
        self.share_engine();
        let Next::Subscribers(subscribers) = self.graph.tail_mut() else {
            return;
        };
        self.members.append(&mut other.members.clone());
        match other.graph.share_engine() {
            Some(engine) => subscribers.join(other, &engine, now),
            None => {
                if let Next::Subscribers(others) = other.graph.tail_mut() {
                    subscribers.join_all(others, now);
                }
            }
        }
    }

    /// Has the engine that its first component subscribes to for several parts, of which that is the only one so far.
    pub(super) fn share_engine(&mut self) {
        if let Some(engine) = self.graph.share_engine() {
            let graph = Graph::of_tail(Next::Nothing);
            let members = self.members.clone();
            let own = Part::new(members, graph, &self.common).with_groups(self.is_by_group);
            let alone = core::mem::replace(self, own);
            let subscribers = Box::new(Subscribers::new(engine, alone));
            *self.graph.tail_mut() = Next::Subscribers(subscribers);
        }
    }
}
