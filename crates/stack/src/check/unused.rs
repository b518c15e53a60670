//! Warns of sub-stacks and options that no stack uses.

use super::{Checker, Scope};
use flowgauge_record::words::near;

use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::syntax::{Document, Item, OptionSection};

impl Checker<'_> {
    pub(super) fn nothing_to_run(&mut self, document: &Document) {
        let span = match document.items.first() {
            Some(Item::Stack(section)) => section.span,
            Some(Item::Options(section)) => section.span,
            _ => Span::default(),
        };
        self.error_with_hint(
            span,
            "this file has no stack".to_owned(),
            "components stand below a line [stack]",
        );
    }

    /// Sub-stacks and options that no stack uses.
    pub(super) fn unused(&mut self) {
        let mut found = Vec::new();
        for scope in &self.scopes {
            if !scope.is_used {
                let name = scope.section.name.as_ref();
                let name = name.map_or("", |name| name.text.as_str());
                let message = format!("no stack uses the sub-stack {name}");
                found.push(Diagnostic::warning(scope.section.span, message));
                continue;
            }
            let unused = scope.options.iter();
            for section in unused.filter(|section| !self.used.contains(&section.span)) {
                found.push(self.unused_section(scope, section));
            }
        }
        for section in &self.common {
            if !self.used.contains(&section.span) {
                let message = format!("no stack has a component {}", section.component.text);
                found.push(Diagnostic::warning(section.span, message));
            }
        }
        self.diagnostics.extend(found);
    }

    fn unused_section(&self, scope: &Scope<'_>, section: &OptionSection) -> Diagnostic {
        let name = &section.component;
        let info = self.registry.find(&name.text);
        let key = info.map_or_else(|| name.key(), |info| info.name.to_owned());
        match (scope.instances.get(&key), section.instance) {
            (Some(count), Some((number, span))) => {
                let message = format!("there is no {}({number}) in this stack", name.text);
                let hint = match count {
                    1 => format!("there is one: {}(0)", name.text),
                    count => format!("there are {count}, counted from 0"),
                };
                Diagnostic::error(span, message).with_hint(hint)
            }
            _ => {
                let message = format!("unknown component {} in this stack", name.text);
                let mut found = Diagnostic::error(name.span, message);
                let names = near(&name.text, scope.instances.keys().map(String::as_str));
                if !names.is_empty() {
                    found.hint = Some(format!("did you mean {}?", names.join(" or ")));
                }
                found
            }
        }
    }
}
