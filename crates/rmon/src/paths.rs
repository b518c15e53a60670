//! From the layers of a packet to the protocols of the directory that it counts for.
//!
//! A packet may count for several encapsulations at once: its own, the one over any base layer, those with parameters.
//! All of them are followed together, as the states of an automaton that is built as packets need it: a state is the
//! set of protocols reached, a step the number of the next layer. Numbers that nothing in the directory has lead
//! nowhere and are not remembered, so that there are only as many states as the directory allows.

use std::collections::HashMap;

use flowgauge_wire::FoldedState;

use crate::directory::{Config, Directory, Entry, HOST, Kind, MAP, MATRIX, TFTP};
use crate::protocols::CONTENT;

/// The state before the first layer.
pub(crate) const START: u32 = 0;

/// Steps that are found without looking them up.
const RECENT: usize = 256;

/// The step at a later fragment, and that of a session.
const FRAGMENT: u32 = u32::MAX;
const SESSION: u32 = u32::MAX - 1;

/// What a packet counts for at one of its network layers, by one of its encapsulations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// LocalIndex of the network layer.
    pub(crate) network: u32,
    pub(crate) is_v4: bool,
    /// Whether addresses are mapped, hosts and pairs counted.
    pub(crate) map: bool,
    pub(crate) host: bool,
    pub(crate) matrix: bool,
    /// LocalIndexes of the protocols counted from the network layer up, in order.
    pub(crate) host_applications: Vec<u32>,
    pub(crate) matrix_applications: Vec<u32>,
}

/// Where a packet is in the directory after some of its layers.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// LocalIndexes of the last layers reached, by those encapsulations that may go on and by those that ended.
    active: Vec<u32>,
    ended: Vec<u32>,
    pub(crate) kind: Kind,
    /// All protocols on the way, each once.
    pub(crate) nodes: Vec<u32>,
    /// By network layer of the packet, the outermost first.
    pub(crate) levels: Vec<Vec<Group>>,
}

/// The states reached so far.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    version: u64,
    states: Vec<State>,
    steps: HashMap<(u32, u32), u32, FoldedState>,
    /// Steps taken lately: from, by, to.
    recent: Box<[(u32, u32, u32); RECENT]>,
    /// Ports that some protocol has, a bit each.
    ports: Box<[u64; 1024]>,
    /// Whether some protocol has later fragments counted for those above it.
    pub(crate) fragments: bool,
    /// Whether some protocol has the sessions that it begins.
    pub(crate) sessions: bool,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            version: 0,
            states: Vec::new(),
            steps: HashMap::default(),
            recent: Box::new([(u32::MAX, 0, 0); RECENT]),
            ports: Box::new([0; 1024]),
            fragments: false,
            sessions: false,
        }
    }
}

impl Paths {
    /// Whether the directory is what it was when this was made.
    pub(crate) fn is_current(&self, directory: &Directory) -> bool {
        self.version == directory.version
    }

    /// Begins anew with a directory that has changed.
    pub(crate) fn follow(&mut self, directory: &Directory) {
        *self = Paths {
            version: directory.version,
            ..Paths::default()
        };
        for port in directory.ports() {
            self.ports[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        self.fragments = directory.iter().any(|(_, entry)| {
            matches!(entry.kind, Kind::Ipv4 | Kind::Ipv6) && entry.counts_fragments()
        });
        self.sessions = directory.iter().any(|(_, entry)| entry.tracks_sessions());
        self.states.push(State {
            active: vec![0],
            ended: Vec::new(),
            kind: Kind::Leaf,
            nodes: Vec::new(),
            levels: Vec::new(),
        });
    }

    pub(crate) fn state(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    /// How many states there are.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The base layer with this number, over which the wildcard counts, too.
    pub(crate) fn base(&mut self, directory: &Directory, layer: u32) -> Option<u32> {
        const WILDCARD: u32 = 0x0100_0001;
        const LLC: u32 = 2;
        if let Some(found) = self.steps.get(&(START, layer)) {
            return Some(*found);
        }
        let own = directory.below(0, layer);
        let wildcard = directory.below(0, WILDCARD).filter(|_| layer != LLC);
        let active = own.chain(wildcard).collect();
        self.enter(directory, START, layer, active)
    }

    /// One layer further, or `None` where no encapsulation has it.
    #[inline]
    pub(crate) fn step(&mut self, directory: &Directory, state: u32, layer: u32) -> Option<u32> {
        let recent = (layer ^ state.wrapping_mul(37)) as usize % RECENT;
        let (from, by, to) = self.recent[recent];
        if (from, by) == (state, layer) {
            return Some(to);
        }
        let found = self.find_step(directory, state, layer)?;
        self.recent[recent] = (state, layer, found);
        Some(found)
    }

    fn find_step(&mut self, directory: &Directory, state: u32, layer: u32) -> Option<u32> {
        self.find(directory, (state, layer), |last| {
            let below = last.iter().flat_map(|node| directory.below(*node, layer));
            below.collect()
        })
    }

    /// A step that was taken before, or one to what `next` finds behind those that may go on.
    fn find(
        &mut self,
        directory: &Directory,
        (state, layer): (u32, u32),
        next: impl FnOnce(&[u32]) -> Vec<u32>,
    ) -> Option<u32> {
        if let Some(found) = self.steps.get(&(state, layer)) {
            return Some(*found);
        }
        let active = next(&self.states[state as usize].active);
        self.enter(directory, state, layer, active)
    }

    /// The application by its ports: the lower one that is known, as servers' ports are low.
    #[inline]
    pub(crate) fn application(
        &mut self,
        directory: &Directory,
        state: u32,
        ports: (u16, u16),
    ) -> Option<u32> {
        let lower_first = [ports.0.min(ports.1), ports.0.max(ports.1)];
        for port in lower_first {
            if self.ports[usize::from(port >> 6)] >> (port & 63) & 1 != 0
                && let Some(found) = self.step(directory, state, u32::from(port))
            {
                return Some(found);
            }
        }
        None
    }

    /// What a packet that got there counts for by its content, too: by the number of that.
    #[inline]
    pub(crate) fn content(
        &mut self,
        directory: &Directory,
        state: u32,
        number: u16,
    ) -> Option<u32> {
        let layer = CONTENT | u32::from(number);
        let transport = |node: &u32| {
            let mut chain = directory.chain(*node).take(2);
            chain.find(|(_, entry)| entry.kind == Kind::Ports)
        };
        self.find(directory, (state, layer), |last| {
            let transports = last.iter().filter_map(transport);
            let below = transports.flat_map(|(transport, _)| directory.below(transport, layer));
            let mut active: Vec<u32> = below.collect();
            active.sort_unstable();
            active.dedup();
            active
        })
    }

    /// What goes on at a later fragment: encapsulations whose parameters say that it counts for what is above.
    pub(crate) fn fragment(&mut self, directory: &Directory, state: u32) -> Option<u32> {
        if !self.fragments {
            return None;
        }
        self.find(directory, (state, FRAGMENT), |last| {
            let counts = |node: &u32| directory.get(*node).is_some_and(Entry::counts_fragments);
            last.iter().copied().filter(counts).collect()
        })
    }

    /// Where a datagram of a session of TFTP gets to, whose ports say nothing: protocols whose parameters say that they
    /// have those.
    pub(crate) fn session(&mut self, directory: &Directory, state: u32) -> Option<u32> {
        self.find(directory, (state, SESSION), |last| {
            let tracks = |node: &u32| directory.get(*node).is_some_and(Entry::tracks_sessions);
            let tftp = u32::from(TFTP);
            let below = last.iter().flat_map(|node| directory.below(*node, tftp));
            below.filter(tracks).collect()
        })
    }

    fn enter(
        &mut self,
        directory: &Directory,
        from: u32,
        layer: u32,
        active: Vec<u32>,
    ) -> Option<u32> {
        let kind = directory.get(*active.first()?)?.kind;
        let before = &self.states[from as usize];
        // Those without a layer of this number are what the packet counts for, too.
        let above = |node: &u32| {
            active.contains(node)
                || active.iter().any(|active| {
                    directory
                        .get(*active)
                        .is_some_and(|active| active.parent == *node)
                })
        };
        let last = before
            .active
            .iter()
            .filter(|node| **node != 0 && !above(node));
        let ended: Vec<u32> = before.ended.iter().chain(last).copied().collect();
        let (mut nodes, mut levels) = (Vec::new(), Vec::new());
        for &end in ended.iter().chain(&active) {
            add_chain(directory, end, &mut nodes, &mut levels);
        }
        let state = self.states.len() as u32;
        self.states.push(State {
            active,
            ended,
            kind,
            nodes,
            levels,
        });
        self.steps.insert((from, layer), state);
        Some(state)
    }
}

/// Adds a protocol and those above it to what a packet counts for.
fn add_chain(directory: &Directory, end: u32, nodes: &mut Vec<u32>, levels: &mut Vec<Vec<Group>>) {
    let mut chain: Vec<_> = directory.chain(end).collect();
    chain.reverse();
    let mut level = 0;
    for (at, &(index, entry)) in chain.iter().enumerate() {
        if !nodes.contains(&index) {
            nodes.push(index);
        }
        let is_v4 = entry.kind == Kind::Ipv4;
        if !is_v4 && entry.kind != Kind::Ipv6 {
            continue;
        }
        if levels.len() == level {
            levels.push(Vec::new());
        }
        let applications = |table: usize| {
            let above = chain[at..].iter();
            let on = above.filter(|(_, entry)| entry.configs[table] == Config::On);
            let mut on: Vec<u32> = on.map(|(index, _)| *index).collect();
            on.sort_unstable();
            on
        };
        let is_on = |table: usize| entry.configs[table] == Config::On;
        let group = Group {
            network: index,
            is_v4,
            map: is_on(MAP),
            host: is_on(HOST),
            matrix: is_on(MATRIX),
            host_applications: applications(HOST),
            matrix_applications: applications(MATRIX),
        };
        // Encapsulations that ended share their network layer with others that went on. Where nothing is counted there is none.
        let mut others = levels[level].iter_mut();
        match others.find(|other| other.network == index) {
            None if !(group.map || group.host || group.matrix) => {}
            Some(other) => {
                merge(&mut other.host_applications, group.host_applications);
                merge(&mut other.matrix_applications, group.matrix_applications);
            }
            None => levels[level].push(group),
        }
        level += 1;
    }
}

fn merge(sorted: &mut Vec<u32>, more: Vec<u32>) {
    sorted.extend(more);
    sorted.sort_unstable();
    sorted.dedup();
}
