//! The checker: from syntax to a program, and all that is wrong with it.
//!
//! Everything is looked at before anything runs: whether components and options exist and make sense,
//! whether each component can take what the one before it gives, whether every branch can be
//! reached and every stack ends in something that uses what it gets, and whether two components want
//! the same file. All that is found is reported, not only the first.

use std::collections::{BTreeMap, BTreeSet};

use crate::component::{Branches, ComponentInfo, ComponentKind, Input, Output};
use crate::diagnostic::{Diagnostic, Severity};
use crate::items::{Coming, ItemType, Port};
use crate::options::{Given, Level, complete};
use crate::parse::MAX_COMPONENTS;
use crate::program::{Inner, Node, NodeId, Program, Stack};
use crate::registry::{Registry, near};
use crate::settings::Settings;
use crate::source::Span;
use crate::syntax::{self, Body, Document, Item, OptionSection, Shape, StackKind, StackSection};
use crate::value::OptionKind;

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The stacks, where there is no error.
    pub program: Option<Program>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a file whose includes were taken in ([`crate::parse_all`]).
pub fn check(document: &Document, registry: &Registry) -> Checked {
    let mut checker = Checker::new(document, registry);
    let mut stacks = Vec::new();
    for scope in 0..checker.scopes.len() {
        if checker.scopes[scope].section.kind == StackKind::Stack {
            stacks.push(checker.stack(scope));
        }
    }
    if stacks.is_empty() {
        checker.nothing_to_run(document);
    }
    checker.unused();
    let mut diagnostics = checker.diagnostics;
    diagnostics.sort_by_key(|found| (found.span.file, found.span.start));
    diagnostics.dedup();
    let has_error = diagnostics
        .iter()
        .any(|found| found.severity == Severity::Error);
    let stacks: Option<Vec<Stack>> = stacks.into_iter().collect();
    Checked {
        program: stacks
            .filter(|_| !has_error)
            .map(|stacks| Program { stacks }),
        diagnostics,
    }
}

/// A stack's section and the options below it.
struct Scope<'a> {
    section: &'a StackSection,
    options: Vec<&'a OptionSection>,
    is_used: bool,
    /// How many components of each name it has.
    instances: BTreeMap<String, u32>,
}

struct Checker<'a> {
    registry: &'a Registry,
    scopes: Vec<Scope<'a>>,
    /// Sub-stacks by name.
    substacks: BTreeMap<String, usize>,
    /// Options before the first stack, for all of them.
    common: Vec<&'a OptionSection>,
    /// The headers of the sections that were for a component.
    used: Vec<Span>,
    diagnostics: Vec<Diagnostic>,
}

/// What is known of what comes along; `None`: a mistake before it makes it unknown.
type Flow = Option<Coming>;

/// A component of which not all may be known.
struct Draft {
    info: Option<&'static ComponentInfo>,
    label: Option<String>,
    settings: Settings,
    input: Flow,
    output: Flow,
    inner: Inner,
    next: Option<NodeId>,
    parent: Option<NodeId>,
    name: String,
    span: Span,
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

/// The stack that is being built.
#[derive(Default)]
struct Building {
    drafts: Vec<Draft>,
    /// The sub-stacks that are being expanded, the innermost last.
    expanding: Vec<usize>,
}

/// Where a row of components stands.
#[derive(Clone, Copy)]
struct Place {
    scope: usize,
    parent: Option<NodeId>,
    flow: Flow,
    /// Whether the stack begins here.
    begins: bool,
}

impl<'a> Checker<'a> {
    fn new(document: &'a Document, registry: &'a Registry) -> Checker<'a> {
        let mut checker = Checker {
            registry,
            scopes: Vec::new(),
            substacks: BTreeMap::new(),
            common: Vec::new(),
            used: Vec::new(),
            diagnostics: Vec::new(),
        };
        for item in &document.items {
            match item {
                Item::Include(_) => {}
                Item::Stack(section) => checker.open(section),
                Item::Options(section) => match checker.scopes.last_mut() {
                    Some(scope) => scope.options.push(section),
                    None => checker.common.push(section),
                },
            }
        }
        checker
    }

    fn open(&mut self, section: &'a StackSection) {
        let index = self.scopes.len();
        self.scopes.push(Scope {
            section,
            options: Vec::new(),
            is_used: false,
            instances: BTreeMap::new(),
        });
        let Some(name) = &section.name else {
            return;
        };
        let is_taken = self.scopes[..index].iter().any(|other| {
            let other = other.section.name.as_ref();
            other.is_some_and(|other| other.key() == name.key())
        });
        if is_taken {
            self.error(name.span, format!("there is a stack {} already", name.text));
        }
        if section.kind == StackKind::Substack {
            if self.registry.find(&name.text).is_some() {
                self.error(
                    name.span,
                    format!("{} is the name of a component", name.text),
                );
            }
            self.substacks.entry(name.key()).or_insert(index);
        }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(span, message));
    }

    fn error_with_hint(&mut self, span: Span, message: String, hint: impl Into<String>) {
        self.diagnostics
            .push(Diagnostic::error(span, message).with_hint(hint));
    }

    fn stack(&mut self, scope: usize) -> Option<Stack> {
        let mut building = Building::default();
        self.scopes[scope].is_used = true;
        let section = self.scopes[scope].section;
        let place = Place {
            scope,
            parent: None,
            flow: Some(Port::Items(ItemType::Packet).into()),
            begins: true,
        };
        let (row, _) = self.row(&section.body, place, &mut building);
        self.ends(&row, &building);
        self.files(&building);
        let labels = self.labels(&building);
        let references = self.references(&building, &labels);
        let drafts = building.drafts.into_iter().zip(labels).zip(references);
        let nodes: Option<Vec<Node>> = drafts
            .map(|((draft, label), references)| draft.finish(label, references))
            .collect();
        Some(Stack {
            name: section.name.as_ref().map(|name| name.text.clone()),
            nodes: nodes?,
            entry: *row.first()?,
        })
    }

    /// The components of a row, and what comes out of it.
    fn row(
        &mut self,
        body: &'a Body,
        place: Place,
        building: &mut Building,
    ) -> (Vec<NodeId>, Flow) {
        let mut row: Vec<NodeId> = Vec::new();
        let mut flow = place.flow;
        for node in &body.nodes {
            if flow.is_some_and(|flow| flow.port == Port::Nothing) {
                let before = row.last().map(|id| &building.drafts[id.index()].name);
                let before = before.map_or("the one before it", String::as_str);
                let message = format!(
                    "{} is never reached: {before} gives nothing on",
                    node.name.text
                );
                self.error(node.name.span, message);
                flow = None;
            }
            let place = Place {
                flow,
                begins: place.begins && row.is_empty(),
                ..place
            };
            let (ids, out) = match self.substacks.get(&node.name.key()) {
                Some(&substack) => self.expand(node, substack, place, building),
                None => self.node(node, place, building),
            };
            if let (Some(last), Some(&first)) = (row.last(), ids.first()) {
                building.drafts[last.index()].next = Some(first);
            }
            row.extend(ids);
            flow = out;
        }
        (row, flow)
    }

    /// A sub-stack in place of its name.
    fn expand(
        &mut self,
        node: &'a syntax::Node,
        substack: usize,
        place: Place,
        building: &mut Building,
    ) -> (Vec<NodeId>, Flow) {
        let name = &node.name;
        if building.expanding.contains(&substack) {
            self.error(
                name.span,
                format!("the sub-stack {} contains itself", name.text),
            );
            return (Vec::new(), None);
        }
        if building.drafts.len() >= MAX_COMPONENTS {
            self.error(name.span, format!("more than {MAX_COMPONENTS} components"));
            return (Vec::new(), None);
        }
        if node.shape != Shape::Simple || !node.options.is_empty() {
            let message = format!(
                "{} is a sub-stack: it takes no options and no brackets",
                name.text
            );
            self.error_with_hint(
                node.span,
                message,
                "set options in sections below the sub-stack",
            );
        }
        building.expanding.push(substack);
        let section = self.scopes[substack].section;
        self.scopes[substack].is_used = true;
        // Each use counts its components anew.
        self.scopes[substack].instances.clear();
        let place = Place {
            scope: substack,
            ..place
        };
        let found = self.row(&section.body, place, building);
        building.expanding.pop();
        found
    }

    fn node(
        &mut self,
        node: &'a syntax::Node,
        place: Place,
        building: &mut Building,
    ) -> (Vec<NodeId>, Flow) {
        let name = &node.name;
        if building.drafts.len() >= MAX_COMPONENTS {
            self.error(name.span, format!("more than {MAX_COMPONENTS} components"));
            return (Vec::new(), None);
        }
        let info = self.registry.find(&name.text);
        if info.is_none() {
            self.unknown(name);
        }
        let key = info.map_or_else(|| name.key(), |info| info.name.to_owned());
        let instance = self.scopes[place.scope]
            .instances
            .entry(key.clone())
            .or_insert(0);
        let number = *instance;
        *instance += 1;
        let given = self.given(node, place.scope, &key, number);
        let around = demultiplexers(place, building);
        if let Some(because) = info.and_then(|info| info.outside)
            && let Some(around) = around.first()
        {
            let message = format!("{} cannot stand within {around}: {because}", name.text);
            self.error(name.span, message);
        }
        self.thread(node, info, place, building);
        let input = self.input(node, info, place);
        let (label, settings) = match info {
            Some(info) => {
                let place = (input, around.as_slice());
                complete(info, name.span, given, place, &mut self.diagnostics)
            }
            None => (None, Settings::default()),
        };
        let id = NodeId(building.drafts.len() as u32);
        building.drafts.push(Draft {
            info,
            label,
            settings,
            input,
            output: None,
            inner: Inner::Nothing,
            next: None,
            parent: place.parent,
            name: name.text.clone(),
            span: name.span,
        });
        let inside = Place {
            scope: place.scope,
            parent: Some(id),
            flow: input,
            begins: false,
        };
        let inside = self.inside(node, info, inside, building);
        let output = match info.map(|info| info.output) {
            None => None,
            Some(Output::Nothing) => Some(Port::Nothing.into()),
            Some(Output::Of(item)) => {
                let fields = info.map(|info| (info.fields)(&building.drafts[id.index()].settings));
                Some(Coming {
                    port: Port::Items(item),
                    schema: fields.flatten(),
                })
            }
            Some(Output::Option(option)) => {
                let named = building.drafts[id.index()].settings.text(option);
                let port = named.and_then(ItemType::named).map(Port::Items);
                port.map(Coming::from)
            }
            Some(Output::Same) => inside,
        };
        building.drafts[id.index()].output = output;
        (vec![id], output)
    }

    /// A stack is cut between components of its outermost row only.
    fn thread(
        &mut self,
        node: &syntax::Node,
        info: Option<&'static ComponentInfo>,
        place: Place,
        building: &Building,
    ) {
        if info.is_none_or(|info| info.kind != ComponentKind::Thread) {
            return;
        }
        if let Some(parent) = place.parent {
            let around = &building.drafts[parent.index()].name;
            let message = format!(
                "{} cannot stand in {around}: threads are not made for branches and keys",
                node.name.text
            );
            let hint = format!("put it before or behind {around}");
            self.error_with_hint(node.name.span, message, hint);
        }
    }

    fn unknown(&mut self, name: &syntax::Name) {
        let mut likely: Vec<String> = Vec::new();
        let substacks = self.substacks.keys().map(String::as_str);
        let components = self.registry.near(&name.text);
        for near in components.into_iter().chain(near(&name.text, substacks)) {
            likely.push(near.to_owned());
        }
        let hint = if likely.is_empty() {
            "\"flowgauge stack list\" shows all components".to_owned()
        } else {
            format!("did you mean {}?", likely.join(" or "))
        };
        let message = format!("there is no component {}", name.text);
        self.error_with_hint(name.span, message, hint);
    }

    /// All that is written about a component's options.
    fn given(
        &mut self,
        node: &'a syntax::Node,
        scope: usize,
        key: &str,
        number: u32,
    ) -> Vec<Given<'a>> {
        let mut given = Vec::new();
        let own = self.scopes[scope]
            .options
            .iter()
            .map(|section| (section, false));
        let common = self.common.iter().map(|section| (section, true));
        for (section, is_common) in common.chain(own) {
            let name = &section.component;
            let canonical = self.registry.find(&name.text);
            let is_meant = canonical.map_or(name.key() == key, |info| info.name == key);
            let level = match section.instance {
                None if is_common => Level::File,
                None => Level::Component,
                Some((instance, _)) if instance == number => Level::Instance,
                Some(_) => continue,
            };
            if !is_meant {
                continue;
            }
            self.used.push(section.span);
            given.extend(
                section
                    .assignments
                    .iter()
                    .map(|assignment| Given { assignment, level }),
            );
        }
        given.extend(node.options.iter().map(|assignment| Given {
            assignment,
            level: Level::Braces,
        }));
        given
    }

    /// What comes into a component, if it can take that.
    fn input(
        &mut self,
        node: &syntax::Node,
        info: Option<&'static ComponentInfo>,
        place: Place,
    ) -> Flow {
        let (info, name, flow) = (info?, &node.name, place.flow);
        let takes = match info.input {
            Input::Nothing if place.begins => return Some(Port::Nothing.into()),
            Input::Nothing => {
                let message = format!("{} takes nothing: it can only begin a stack", name.text);
                self.error(name.span, message);
                return None;
            }
            Input::Any => return flow,
            Input::Of(takes) => takes,
        };
        let wanted: Vec<String> = takes.iter().map(|item| format!("{item}s")).collect();
        let wanted = wanted.join(" or ");
        match flow?.port {
            Port::Nothing => None,
            Port::Items(item) if takes.iter().any(|taken| item.is_a(*taken)) => flow,
            Port::Items(item) => {
                let message = format!("{} takes {wanted}, and {item}s come", name.text);
                let mut found = Diagnostic::error(name.span, message);
                let between = self.between(item, takes);
                if !between.is_empty() {
                    found.hint = Some(format!("{} can stand between", between.join(" or ")));
                }
                self.diagnostics.push(found);
                None
            }
            Port::Mixed => {
                let message = format!(
                    "{} takes {wanted}, and items of several types come",
                    name.text
                );
                self.error(name.span, message);
                None
            }
        }
    }

    /// Components that make of `item` one of those wanted; three at most.
    fn between(&self, item: ItemType, wanted: &[ItemType]) -> Vec<&'static str> {
        let makes = |info: &&'static ComponentInfo| {
            let gives = matches!(info.output, Output::Of(gives) if wanted.iter().any(|wanted| gives.is_a(*wanted)));
            let takes = match info.input {
                Input::Of(takes) => takes.iter().any(|taken| item.is_a(*taken)),
                Input::Any | Input::Nothing => false,
            };
            gives && takes
        };
        let found = self.registry.iter().filter(makes);
        found.map(|info| info.name).take(3).collect()
    }

    /// What stands in a component. Returns what comes out of it.
    fn inside(
        &mut self,
        node: &'a syntax::Node,
        info: Option<&'static ComponentInfo>,
        place: Place,
        building: &mut Building,
    ) -> Flow {
        let name = &node.name;
        let (is_right, needs) = match info.map(|info| info.kind) {
            None => (true, ""),
            Some(ComponentKind::Simple | ComponentKind::Thread) => {
                (node.shape == Shape::Simple, "takes no brackets")
            }
            Some(ComponentKind::Switch(_)) => (
                matches!(node.shape, Shape::Switch(_)),
                "needs branches in round brackets: ( ... | ... )",
            ),
            Some(ComponentKind::Demux) => (
                matches!(node.shape, Shape::Demux(_)),
                "needs a stack in angle brackets: < ... >",
            ),
        };
        if !is_right {
            self.error(node.span, format!("{} {needs}", name.text));
        }
        let place = Place {
            flow: place.flow.filter(|_| is_right),
            ..place
        };
        let index = place.parent.map_or(0, NodeId::index);
        match &node.shape {
            Shape::Simple => place.flow,
            Shape::Demux(body) => {
                let (row, flow) = self.row(body, place, building);
                if let Some(&first) = row.first() {
                    building.drafts[index].inner = Inner::PerKey(first);
                }
                flow
            }
            Shape::Switch(bodies) => {
                let mut firsts = Vec::new();
                // What goes to no branch goes on.
                let mut flow = place.flow;
                for body in bodies {
                    let (row, out) = self.row(body, place, building);
                    firsts.extend(row.first());
                    flow = both(flow, out);
                }
                if let (Some(info), true) = (info, is_right) {
                    self.branches(info, bodies, building.drafts[index].settings.clone());
                }
                building.drafts[index].inner = Inner::Branches(firsts);
                flow
            }
        }
    }

    /// Whether every branch of a switch can be reached, and those that options name exist.
    fn branches(&mut self, info: &ComponentInfo, bodies: &[Body], settings: Settings) {
        let ComponentKind::Switch(branches) = info.kind else {
            return;
        };
        let place = |body: &Body| body.nodes.first().map_or(Span::default(), |node| node.span);
        match branches {
            Branches::Any => {}
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
    fn ends(&mut self, row: &[NodeId], building: &Building) {
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
    fn files(&mut self, building: &Building) {
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
                        let message = format!("{file} is {verb} by {other}, too");
                        self.diagnostics.push(Diagnostic::error(span, message));
                    }
                    _ => {
                        wanted.insert(file, (&draft.name, writes));
                    }
                }
            }
        }
    }

    /// A label for each component.
    fn labels(&mut self, building: &Building) -> Vec<String> {
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
    fn references(
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
            let message = format!("{option}: there is no component {name}");
            self.error_with_hint(span, message, hint);
            return None;
        };
        let result = building.drafts[index].info.map(|info| info.result);
        match result {
            _ if is_on_another_thread(building, own, index) => self.error_with_hint(
                span,
                format!("{option}: {name} is on another thread"),
                "move the component thread before or behind both",
            ),
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

    fn nothing_to_run(&mut self, document: &Document) {
        let span = match document.items.first() {
            Some(Item::Stack(section)) => section.span,
            Some(Item::Options(section)) => section.span,
            _ => Span::default(),
        };
        self.error_with_hint(
            span,
            "there is no stack in this file".to_owned(),
            "components stand below a line [stack]",
        );
    }

    /// Sub-stacks and options that no stack uses.
    fn unused(&mut self) {
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
                let message = format!("there is no component {} in this stack", name.text);
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

impl Draft {
    fn finish(self, label: String, references: Vec<(&'static str, NodeId)>) -> Option<Node> {
        Some(Node {
            info: self.info?,
            label,
            settings: self.settings,
            references,
            input: self.input?.port,
            output: self.output?.port,
            inner: self.inner,
            next: self.next,
            parent: self.parent,
            span: self.span,
        })
    }
}

/// The demultiplexers around a place, the innermost first.
fn demultiplexers(place: Place, building: &Building) -> Vec<&'static str> {
    let draft = |id: &NodeId| &building.drafts[id.index()];
    core::iter::successors(place.parent, |id| draft(id).parent)
        .filter_map(|id| draft(&id).info)
        .filter(|info| info.kind == ComponentKind::Demux)
        .map(|info| info.name)
        .collect()
}

/// What comes out where two rows meet.
fn both(one: Flow, other: Flow) -> Flow {
    let (one, other) = (one?, other?);
    Some(match (one.port, other.port) {
        (Port::Nothing, _) => other,
        (_, Port::Nothing) => one,
        (Port::Items(item), Port::Items(another)) => Coming {
            port: item.common(another).map_or(Port::Mixed, Port::Items),
            schema: one.schema.filter(|_| one.schema == other.schema),
        },
        _ => Port::Mixed.into(),
    })
}
