//! Checked stacks: components and their connections.

use core::ops::Range;
use std::sync::Arc;

use flowgauge_wire::LinkType;

use crate::component::{ComponentInfo, ComponentKind, Input, Parallel, ResultInfo, SettingError};
use crate::items::{ItemType, Port};
use crate::options::RESULTS_OPTION;
use crate::settings::Settings;
use crate::source::Span;

/// The stacks of a file, ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// In the order of the file.
    pub stacks: Vec<Stack>,
}

/// One stack.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its components, containers before their contents; shared by copies of a stack.
    pub nodes: Arc<[Node]>,
    /// Its first component.
    pub entry: NodeId,
}

/// Index of a component in [`Stack::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A component in a stack.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its description.
    pub info: &'static ComponentInfo,
    /// Its label in this stack: given with `as`, or derived from the component's name, such as `output(1)` if there
    /// are several.
    pub label: String,
    /// Its options.
    pub settings: Settings,
    /// Options that name other components.
    pub references: Vec<(&'static str, NodeId)>,
    /// Its input.
    pub input: Port,
    /// Its output.
    pub output: Port,
    /// Its contents.
    pub inner: Inner,
    /// The next component. `None` for the last one, whose output is that of the enclosing switch or demultiplexer.
    pub next: Option<NodeId>,
    /// The enclosing switch or demultiplexer.
    pub parent: Option<NodeId>,
    /// Its position in the source text.
    pub span: Span,
}

/// A part of a stack that runs on its own thread: consecutive components of the outermost sequence, with their
/// contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The first component; `None` for a stage that only merges the output of several threads.
    pub from: Option<NodeId>,
    /// The component after the last one.
    pub until: Option<NodeId>,
    /// Whether it can run several times, each with a share of the packets.
    pub is_parallel: bool,
    /// The first component, if the stage was split off because of it.
    pub thread: Option<NodeId>,
}

impl Stage {
    /// A stage without components.
    pub const fn nothing(is_parallel: bool) -> Stage {
        Stage {
            from: None,
            until: None,
            is_parallel,
            thread: None,
        }
    }
}

/// The reason why a stack, from a component on, cannot run on several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequential {
    /// The component in the outermost sequence.
    pub from: NodeId,
    /// The component that is the cause: that one, or one inside it.
    pub reason: NodeId,
    /// The reason.
    pub because: &'static str,
}

impl Node {
    /// Whether it is the same component as another, with equal options and equally structured contents.
    pub fn does_as(&self, other: &Node) -> bool {
        let settings = self.settings.iter().zip(other.settings.iter());
        core::ptr::eq(self.info, other.info)
            && self.inner == other.inner
            && self.settings.iter().count() == other.settings.iter().count()
            && settings.into_iter().all(|(one, other)| {
                one.option.name == other.option.name && one.value == other.value
            })
    }
}

/// The contents of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inner {
    /// Nothing.
    Nothing,
    /// The first component of each branch.
    Branches(Vec<NodeId>),
    /// The first component of the stack of each key.
    PerKey(NodeId),
}

impl Stack {
    /// A component.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All components with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(self.nodes.iter())
    }

    /// Finds a component by label.
    pub fn find(&self, label: &str) -> Option<NodeId> {
        self.iter()
            .find(|(_, node)| node.label.eq_ignore_ascii_case(label))
            .map(|(id, _)| id)
    }

    /// The components of a sequence, starting with this one.
    pub fn row(&self, first: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        core::iter::successors(Some(first), |&id| self.node(id).next)
    }

    /// A component and all of its contents.
    pub fn subtree(&self, id: NodeId) -> Range<u32> {
        let mut ends = id;
        loop {
            let node = self.node(ends);
            let last = match &node.inner {
                Inner::Nothing => return id.0..ends.0 + 1,
                Inner::PerKey(first) => self.row(*first).last(),
                Inner::Branches(firsts) => firsts.last().and_then(|first| self.row(*first).last()),
            };
            match last {
                Some(last) => ends = last,
                None => return id.0..ends.0 + 1,
            }
        }
    }

    /// Whether another stack has the same name, components and options.
    pub fn does_as(&self, other: &Stack) -> bool {
        let mut nodes = self.nodes.iter().zip(other.nodes.iter());
        self.name == other.name
            && self.entry == other.entry
            && self.nodes.len() == other.nodes.len()
            && (Arc::ptr_eq(&self.nodes, &other.nodes)
                || nodes.all(|(one, other)| {
                    one.does_as(other)
                        && one.label == other.label
                        && (one.next, one.parent) == (other.next, other.parent)
                        && one.references == other.references
                }))
    }

    /// Whether it starts with a source component.
    pub fn has_source(&self) -> bool {
        self.node(self.entry).info.input == Input::Nothing
    }

    /// Whether that source captures on an interface.
    pub fn captures(&self) -> bool {
        self.has_source() && self.node(self.entry).settings.text("interface").is_some()
    }

    /// The component from which on it cannot run on several cores; `None` if all of it can.
    pub fn sequential(&self) -> Option<Sequential> {
        if self.has_source() {
            return Some(Sequential {
                from: self.entry,
                reason: self.entry,
                because: "it is a source",
            });
        }
        self.row(self.entry).find_map(|from| {
            self.subtree(from).map(NodeId).find_map(|reason| {
                Some(Sequential {
                    from,
                    reason,
                    because: self.never_parallel(reason)?,
                })
            })
        })
    }

    /// Why a component cannot run on several cores, if it cannot.
    fn never_parallel(&self, id: NodeId) -> Option<&'static str> {
        let node = self.node(id);
        if let Parallel::Never(because) = node.info.parallel {
            return Some(because);
        }
        if let Some(because) = (node.info.sequential)(&node.settings) {
            return Some(because);
        }
        if !node.references.is_empty() {
            return Some("it uses results of others");
        }
        self.is_referenced(id).then_some("others use its result")
    }

    /// Whether another component refers to this component's result.
    pub fn is_referenced(&self, id: NodeId) -> bool {
        let mut references = self.nodes.iter().flat_map(|node| &node.references);
        references.any(|(_, used)| *used == id)
    }

    /// Number of keys whose results are reported, for a component inside a demultiplexer with [`RESULTS_OPTION`].
    /// Values per packet are not results of keys, and a component with side effects has a single result.
    pub fn shown_keys(&self, id: NodeId) -> Option<usize> {
        let node = self.node(id);
        let is_wanted = |result: ResultInfo| match result.columns {
            [] => !result.is_per_packet,
            _ => !(node.info.effects)(&node.settings),
        };
        if node.inner != Inner::Nothing || !node.info.result.is_some_and(is_wanted) {
            return None;
        }
        let mut around = core::iter::successors(node.parent, |&id| self.node(id).parent);
        let demux = around.find(|&id| matches!(self.node(id).inner, Inner::PerKey(_)))?;
        let most = self.node(demux).settings.integer(RESULTS_OPTION)?;
        usize::try_from(most).ok().filter(|&most| most > 0)
    }

    /// Whether its parallel part needs all packets of a connection on the same core.
    pub fn is_by_flow(&self) -> bool {
        let until = self.sequential().map_or(u32::MAX, |found| found.from.0);
        let before = self.iter().take_while(|(id, _)| id.0 < until);
        let mut parallel = before.into_iter().map(|(_, node)| node.info.parallel);
        parallel.any(|parallel| parallel != Parallel::Anyhow)
    }

    /// Its stages, on one core or on `several`. The output of each is the input of the next.
    pub fn stages(&self, several: bool) -> Vec<Stage> {
        let mut stages = Vec::new();
        let mut from = Some(self.entry);
        let sequential = self.sequential();
        let mut stage = |from, until, is_parallel| {
            stages.push(Stage {
                from,
                until,
                is_parallel,
                thread: from.filter(|&from| self.node(from).info.kind == ComponentKind::Thread),
            });
        };
        let first = sequential.map(|found| found.from);
        if several && first != from {
            stage(from, first, true);
            from = first;
        }
        if let Some(mut begin) = from {
            for at in self.row(begin).skip(1).collect::<Vec<_>>() {
                if self.node(at).info.kind == ComponentKind::Thread {
                    stage(Some(begin), Some(at), false);
                    begin = at;
                }
            }
            stage(Some(begin), None, false);
        }
        stages
    }

    /// Tells parallel components the number of their copies, and all components whether their packets come from a
    /// source that cannot wait, like the run's source if it `is_live`.
    pub fn place(&mut self, workers: usize, is_live: bool) {
        let is_live = is_live && !self.has_source() || self.captures();
        let nodes = Arc::make_mut(&mut self.nodes).iter_mut();
        nodes.for_each(|node| node.settings.set_live(is_live));
        let first = self.stages(workers > 1).into_iter().next();
        let Some((from, until)) = first
            .filter(|first| first.is_parallel)
            .and_then(|first| Some((first.from?, first.until)))
        else {
            return;
        };
        let row = self.row(from).take_while(|&id| Some(id) != until);
        let ids: Vec<u32> = row.flat_map(|id| self.subtree(id)).collect();
        for id in ids {
            if let Some(node) = Arc::make_mut(&mut self.nodes).get_mut(id as usize) {
                node.settings.set_copies(workers);
            }
        }
    }

    /// Creates its components ahead of time, for the run it is [placed](Stack::place) for and packets of these link
    /// types. The first run of this stack or a copy uses them.
    ///
    /// # Errors
    /// The settings of a component are invalid.
    pub fn prepare(&mut self, links: &[LinkType]) -> Result<(), SettingError> {
        for node in Arc::make_mut(&mut self.nodes) {
            let made = (0..node.settings.copies()).map(|_| {
                let mut made = (node.info.make)(&node.settings)?;
                made.expect(links);
                Ok(made)
            });
            let made = made.collect::<Result<Vec<_>, SettingError>>()?;
            node.settings.keep(made);
        }
        Ok(())
    }

    /// Whether it needs decoded headers of packets.
    pub fn needs_decoded(&self) -> bool {
        let takes_packets = |port: Port| match port {
            Port::Items(item) => item.is_a(ItemType::Packet),
            Port::Nothing => false,
            _ => true,
        };
        let mut nodes = self.nodes.iter();
        nodes.any(|node| takes_packets(node.input) && !(node.info.decodes)(&node.settings))
    }
}
