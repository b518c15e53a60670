//! Checks branches and ends: every branch is reachable, and the last component uses its items.

use std::collections::BTreeMap;

use super::{Building, Checker};
use crate::component::{Branches, ComponentInfo, ComponentKind};
use crate::diagnostic::Diagnostic;
use crate::items::Port;
use crate::program::{Inner, NodeId};
use crate::settings::Settings;
use crate::source::Span;
use crate::syntax::Body;
use crate::value::OptionKind;

impl Checker<'_> {
    /// Whether every branch of a switch can be reached, and those that options name exist.
    pub(super) fn branches(&mut self, info: &ComponentInfo, bodies: &[Body], settings: Settings) {
        let ComponentKind::Switch(branches) = info.kind else {
            return;
        };
        let place = |body: &Body| body.nodes.first().map_or(Span::default(), |node| node.span);
        match branches {
            Branches::Any | Branches::Copies => {}
            Branches::Fixed(names) => {
                if let Some(body) = bodies.get(names.len()) {
                    let message = format!(
                        "{} never chooses this branch: it has {} ({})",
                        info.name,
                        names.len(),
                        names.join(", ")
                    );
                    self.error(place(body), message);
                }
            }
            Branches::ByOptions => {
                let chosen = settings
                    .iter()
                    .filter(|setting| setting.option.kind == OptionKind::Branch);
                let mut numbers = Vec::new();
                for setting in chosen {
                    let number = settings.integer(setting.option.name).unwrap_or(0) as usize;
                    numbers.push(number);
                    if let Some(span) = setting.span.filter(|_| number >= bodies.len()) {
                        let message = format!(
                            "{}: there is no branch {number}: the last is {}",
                            setting.option.name,
                            bodies.len().saturating_sub(1)
                        );
                        self.error_with_hint(span, message, "branches are counted from 0");
                    }
                }
                for (number, body) in bodies.iter().enumerate() {
                    if !numbers.contains(&number) {
                        let options = info.options.iter();
                        let options = options.filter(|option| option.kind == OptionKind::Branch);
                        let names: Vec<&str> = options.map(|option| option.name).collect();
                        let message = format!("{} never chooses branch {number}", info.name);
                        let hint = format!("set one of {} to {number}", names.join(", "));
                        self.error_with_hint(place(body), message, hint);
                    }
                }
            }
        }
    }

    /// Whether what comes last uses what it gets.
    pub(super) fn ends(&mut self, row: &[NodeId], building: &Building) {
        let Some(&last) = row.last() else {
            return;
        };
        let draft = &building.drafts[last.index()];
        let rows: Vec<NodeId> = match &draft.inner {
            Inner::Nothing => {
                let is_end = draft.info.is_none_or(|info| info.is_end);
                if !is_end
                    && draft
                        .output
                        .is_some_and(|output| output.port != Port::Nothing)
                {
                    let message = format!("what {} gives on goes nowhere", draft.name);
                    let found = Diagnostic::warning(draft.span, message)
                        .with_hint("a stack ends with output, discard, or what counts or keeps");
                    self.diagnostics.push(found);
                }
                return;
            }
            Inner::PerKey(first) => vec![*first],
            Inner::Branches(firsts) => firsts.clone(),
        };
        for first in rows {
            let next = |id: &NodeId| building.drafts[id.index()].next;
            let row: Vec<NodeId> = core::iter::successors(Some(first), next).collect();
            self.ends(&row, building);
        }
    }

    /// Whether two components want to write a file, or one reads what another writes.
    pub(super) fn files(&mut self, building: &Building) {
        let mut wanted: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
        for draft in &building.drafts {
            for setting in draft.settings.iter() {
                let writes = match setting.option.kind {
                    OptionKind::OutputFile => true,
                    OptionKind::InputFile => false,
                    _ => continue,
                };
                let (Some(file), Some(span)) =
                    (draft.settings.text(setting.option.name), setting.span)
                else {
                    continue;
                };
                if file == "-" {
                    continue;
                }
                match wanted.get(file) {
                    Some((other, other_writes)) if writes || *other_writes => {
                        let verb = if *other_writes { "written" } else { "read" };
                        let message = format!("{file} is also {verb} by {other}");
                        self.diagnostics.push(Diagnostic::error(span, message));
                    }
                    _ => {
                        wanted.insert(file, (&draft.name, writes));
                    }
                }
            }
        }
    }
}
