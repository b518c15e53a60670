//! A stack that was checked: components and how they hang together.

use crate::component::{ComponentInfo, Parallel};
use crate::items::Port;
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
    /// Its components, containers before what is in them.
    pub nodes: Vec<Node>,
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
        (0..).map(NodeId).zip(&self.nodes)
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

    /// How it can run on several cores: what the most demanding of its components allows, and which
    /// one that is.
    pub fn parallel(&self) -> (Parallel, Option<NodeId>) {
        let rank = |parallel: Parallel| match parallel {
            Parallel::Anyhow => 0,
            Parallel::ByFlow => 1,
            Parallel::Never(_) => 2,
        };
        let mut strictest = (Parallel::Anyhow, None);
        for (id, node) in self.iter() {
            if rank(node.info.parallel) > rank(strictest.0) {
                strictest = (node.info.parallel, Some(id));
            }
        }
        strictest
    }
}
