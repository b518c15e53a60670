//! The checker, from syntax to a program or errors.
//!
//! All checks are done before a stack runs: whether components and options exist and are valid, whether each
//! component accepts the output of the preceding one, whether every branch is reachable and every stack ends with a
//! component that uses its items, and whether two components use the same file. All errors are reported, not only the
//! first.

mod ends;
mod references;
mod unused;

use std::collections::BTreeMap;

use flowgauge_record::words::near;

use crate::component::{ComponentInfo, ComponentKind, Input, Output};
use crate::diagnostic::{Diagnostic, Severity};
use crate::items::{Coming, ItemType, Port};
use crate::options::{Given, Level, complete};
use crate::parse::MAX_COMPONENTS;
use crate::program::{Inner, Node, NodeId, Program, Stack};
use crate::registry::Registry;
use crate::settings::Settings;
use crate::source::Span;
use crate::syntax::{self, Body, Document, Item, OptionSection, Shape, StackKind, StackSection};

/// The result of the checker.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The stacks, if there are no errors.
    pub program: Option<Program>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a file with its includes ([`crate::parse_all`]).
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
            nodes: nodes?.into(),
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
        let takes_chunks = |info: &ComponentInfo| {
            info.input == Input::Of(&[ItemType::Chunk]) && info.kind != ComponentKind::Demux
        };
        let before = building.drafts.last().and_then(|draft| draft.info);
        let is_of_one = before.is_some_and(|info| info.is_of_one);
        if around.is_empty() && info.is_some_and(takes_chunks) && input.is_some() && !is_of_one {
            let message = format!("chunks of several streams come mixed to {}", name.text);
            let hint = "inside streamdemux < ... > each connection has its own";
            self.diagnostics
                .push(Diagnostic::warning(name.span, message).with_hint(hint));
        }
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
                    kinds: info.and_then(|info| info.kinds),
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
            let hint = format!("put it before or after {around}");
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
        let message = format!("unknown component {}", name.text);
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
            kinds: None,
        },
        _ => Port::Mixed.into(),
    })
}
