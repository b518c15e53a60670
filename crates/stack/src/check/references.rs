//! Labels of components, and options that refer to other components.

use std::collections::{BTreeMap, BTreeSet};

use super::{Building, Checker, Draft};
use flowgauge_record::words::near;

use crate::component::ComponentKind;
use crate::program::NodeId;
use crate::source::Span;
use crate::value::OptionKind;

impl Checker<'_> {
    /// A label for each component.
    pub(super) fn labels(&mut self, building: &Building) -> Vec<String> {
        let drafts = &building.drafts;
        let name = |draft: &Draft| {
            draft
                .info
                .map_or(draft.name.clone(), |info| info.name.to_owned())
        };
        let mut totals: BTreeMap<String, u32> = BTreeMap::new();
        for draft in drafts {
            *totals.entry(name(draft)).or_insert(0) += 1;
        }
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut labels: Vec<String> = Vec::with_capacity(drafts.len());
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for draft in drafts {
            let name = name(draft);
            let count = counts.entry(name.clone()).or_insert(0);
            let made = if totals[&name] > 1 {
                format!("{name}({count})")
            } else {
                name
            };
            *count += 1;
            let label = draft.label.clone().unwrap_or(made);
            let is_taken = !taken.insert(label.to_ascii_lowercase());
            if is_taken && draft.label.is_some() {
                self.error(
                    draft.span,
                    format!("there is a component called {label} already"),
                );
            }
            labels.push(label);
        }
        labels
    }

    /// The components that options name.
    pub(super) fn references(
        &mut self,
        building: &Building,
        labels: &[String],
    ) -> Vec<Vec<(&'static str, NodeId)>> {
        let mut all = Vec::with_capacity(building.drafts.len());
        for (own, draft) in building.drafts.iter().enumerate() {
            let mut references = Vec::new();
            for setting in draft.settings.iter() {
                let (kind, option) = (setting.option.kind, setting.option.name);
                if !kind.is_reference() {
                    continue;
                }
                let text = draft.settings.text(option).unwrap_or_default();
                let span = setting.span.unwrap_or(draft.span);
                let several = |c: char| c.is_whitespace() || c == ',';
                let names: Vec<&str> = match kind {
                    OptionKind::References => text.split(several).collect(),
                    _ => vec![text],
                };
                for name in names.into_iter().filter(|name| !name.is_empty()) {
                    let place = (option, kind, span);
                    let found = self.reference(name, place, own, building, labels);
                    references.extend(found.map(|id| (option, id)));
                }
            }
            all.push(references);
        }
        all
    }

    /// The component that an option names.
    fn reference(
        &mut self,
        name: &str,
        (option, kind, span): (&str, OptionKind, Span),
        own: usize,
        building: &Building,
        labels: &[String],
    ) -> Option<NodeId> {
        let mut found = labels.iter();
        let found = found.position(|label| label.eq_ignore_ascii_case(name));
        let Some(index) = found else {
            let names = near(name, labels.iter().map(String::as_str));
            let hint = match names.as_slice() {
                [] => format!(
                    "give it a name: {{ {} = {name} }}",
                    crate::options::LABEL_OPTION
                ),
                names => format!("did you mean {}?", names.join(" or ")),
            };
            let message = format!("{option}: unknown component {name}");
            self.error_with_hint(span, message, hint);
            return None;
        };
        let result = building.drafts[index].info.map(|info| info.result);
        match result {
            _ if index > own && is_on_another_thread(building, own, index) => self.error_with_hint(
                span,
                format!("{option}: {name} is on another thread, after this component"),
                "move the component thread before or after both",
            ),
            Some(Some(result))
                if kind == OptionKind::Measure
                    && result.is_per_packet
                    && is_on_another_thread(building, own, index) =>
            {
                self.error_with_hint(
                    span,
                    format!(
                        "{option}: {name} is on another thread, and has a value for each packet"
                    ),
                    "move the component thread before or after both",
                );
            }
            _ if index == own => self.error(span, format!("{option}: {name} is this component")),
            Some(None) => self.error(span, format!("{option}: {name} has no result")),
            Some(Some(result)) if kind == OptionKind::Measure && !result.columns.is_empty() => {
                let message = format!("{option}: the result of {name} is a table, not a number");
                self.error(span, message);
            }
            _ => {}
        }
        Some(NodeId(index as u32))
    }
}

/// Whether a component `thread` stands between two components.
fn is_on_another_thread(building: &Building, one: usize, other: usize) -> bool {
    // A thread stands in the outermost row, and begins what is behind it.
    let between = one.min(other) + 1..one.max(other) + 1;
    let between = building.drafts.get(between).unwrap_or_default();
    between.iter().any(|draft| {
        let kind = draft.info.map(|info| info.kind);
        kind == Some(ComponentKind::Thread)
    })
}
