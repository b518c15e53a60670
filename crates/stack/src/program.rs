//! A stack that was checked: components and how they hang together.

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
    /// Its components, containers before what is in them; copies of a stack have the same.
    pub nodes: Arc<[Node]>,
    /// Where it begins.
    pub entry: NodeId,
}

/// A component's place in [`Stack::nodes`].
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
    /// What it is.
    pub info: &'static ComponentInfo,
    /// Its name in this stack: given with `as`, or made of its component's name, as `output(1)` where
    /// there are several.
    pub label: String,
    /// Its options.
    pub settings: Settings,
    /// Options that name other components.
    pub references: Vec<(&'static str, NodeId)>,
    /// What comes in.
    pub input: Port,
    /// What it gives on.
    pub output: Port,
    /// What is in it.
    pub inner: Inner,
    /// What follows. `None`: it is the last, and what it gives on comes out of the switch or
    /// demultiplexer that it is in.
    pub next: Option<NodeId>,
    /// The switch or demultiplexer that it is in.
    pub parent: Option<NodeId>,
    /// Where it is written.
    pub span: Span,
}

/// A part of a stack that runs on a thread of its own: some of its outermost row, with all that is in
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The first component; `None`: there is none, it only puts together what several threads made.
    pub from: Option<NodeId>,
    /// The one behind the last.
    pub until: Option<NodeId>,
    /// Whether there may be several of it, each with its share of the packets.
    pub is_parallel: bool,
    /// The component that the stage was cut for, which is its first.
    pub thread: Option<NodeId>,
}

impl Stage {
    /// One without components.
    pub const fn nothing(is_parallel: bool) -> Stage {
        Stage {
            from: None,
            until: None,
            is_parallel,
            thread: None,
        }
    }
}

/// Why a stack, from a component on, does not run on several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequential {
    /// The component of the outermost row.
    pub from: NodeId,
    /// The component that is the reason: that one, or one in it.
    pub reason: NodeId,
    /// What the reason is.
    pub because: &'static str,
}

impl Node {
    /// Whether it is another one's component, with the same options and the same places in it.
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

/// What is in a component.
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

    /// All components with their places.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(self.nodes.iter())
    }

    /// A component by its label.
    pub fn find(&self, label: &str) -> Option<NodeId> {
        self.iter()
            .find(|(_, node)| node.label.eq_ignore_ascii_case(label))
            .map(|(id, _)| id)
    }

    /// The components of a row that begins with this one.
    pub fn row(&self, first: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        core::iter::successors(Some(first), |&id| self.node(id).next)
    }

    /// A component of a row and all that is in it.
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

    /// Whether another one has the same name, the same components and the same options.
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

    /// Whether it begins with a component that is its own source.
    pub fn has_source(&self) -> bool {
        self.node(self.entry).info.input == Input::Nothing
    }

    /// Whether that captures on an interface.
    pub fn captures(&self) -> bool {
        self.has_source() && self.node(self.entry).settings.text("interface").is_some()
    }

    /// From where on it cannot run on several cores; `None`: all of it can.
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

    /// Whether another component uses a component's result.
    pub fn is_referenced(&self, id: NodeId) -> bool {
        let mut references = self.nodes.iter().flat_map(|node| &node.references);
        references.any(|(_, used)| *used == id)
    }

    /// Of how many keys the results of a component are wanted, where it is inside a demultiplexer that
    /// says so ([`RESULTS_OPTION`]). What packets have each is no result of a key, and of a component that
    /// reads or writes something outside there is one only.
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

    /// Whether what of it can run on several cores needs the packets of a connection on one of them.
    pub fn is_by_flow(&self) -> bool {
        let until = self.sequential().map_or(u32::MAX, |found| found.from.0);
        let before = self.iter().take_while(|(id, _)| id.0 < until);
        let mut parallel = before.into_iter().map(|(_, node)| node.info.parallel);
        parallel.any(|parallel| parallel != Parallel::Anyhow)
    }

    /// The parts that it runs in, on one core or on `several`. Each gives what comes out of it to
    /// the next.
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

    /// Tells the components that run on each of several cores that there are so many of each, and all whether their packets come
    /// from a source that cannot wait, as that of the run is if it `is_live`.
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

    /// Makes its components now, where it does not matter how long that takes, for the run that it is [placed](Stack::place) for,
    /// of packets of these link types. They are for the first run of this stack or of a copy.
    ///
    /// # Errors
    /// A component that cannot be made of its settings.
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

    /// Whether it needs the headers of packets, or decodes those it wants itself.
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
