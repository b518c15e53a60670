//! The parts of stacks: for threads that process packets, and for separate threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_stack::{Graph, SettingError, Stack, Stage};

use super::{
    Behind, Bell, Common, Crossing, Entry, Kind, LEAST_ON_A_WAY, Lane, MOST_ON_THE_WAY, Member,
    Next, Order, Part, Runner, WAITING, Waiting, Work, crossing,
};
use crate::stacks::plan::{First, groups, parts};

/// Stacks that were made, and do not run yet.
#[derive(Default)]
pub(super) struct Made {
    /// Of stacks that share their packets, by worker.
    workers: Vec<Vec<Part>>,
    /// Of stacks that do not: each with all packets, and the name of its thread, where it is to have one.
    pub(super) alone: Vec<(String, Vec<Part>)>,
    /// Their further threads.
    waiting: Vec<Waiting>,
    /// Batches may go to the workers together.
    gathers: bool,
}

/// The stages of a stack behind its first, and the ways to them, while they are being made.
struct Making {
    stages: Vec<Stage>,
    /// The way into the second stage, from each thread of the first.
    entries: Vec<Entry>,
    bell: Arc<Bell>,
    entrance: Entrance,
}

/// Bytes that may be on each way from a thread to the next: of all of them together, a part of what components may keep.
fn on_a_way(stacks: &[Stack], workers: usize) -> usize {
    let nodes = stacks.iter().flat_map(Stack::iter);
    let memory = nodes.filter_map(|(_, node)| node.settings.size("memory"));
    let all = match memory.reduce(u64::saturating_add) {
        Some(memory) => (memory / 4).min(MOST_ON_THE_WAY),
        None => MOST_ON_THE_WAY,
    };
    let ways = (stacks.len() * workers).max(1) as u64;
    usize::try_from((all / ways).max(LEAST_ON_A_WAY)).unwrap_or(usize::MAX)
}

/// The name of a worker's thread.
pub(super) fn name_of(worker: usize) -> String {
    format!("fg-stack-{worker}")
}

/// What the queue in front of a stage is.
#[derive(Clone)]
struct Entrance {
    /// Messages, or groups of them, that may wait.
    waiting: usize,
    gathers: bool,
    drops: Option<Arc<AtomicU64>>,
}

impl Entrance {
    fn of(stack: &Stack, stage: &Stage) -> Entrance {
        let settings = stage.thread.map(|id| &stack.node(id).settings);
        let waiting = settings.and_then(|settings| settings.integer("queue"));
        let drops = settings.is_some_and(|settings| settings.text("when_full") == Some("drop"));
        Entrance {
            waiting: waiting.map_or(WAITING, |waiting| waiting.max(1) as usize),
            gathers: waiting.is_none(),
            drops: drops.then(Arc::default),
        }
    }

    fn crossing(&self, limit: usize, bell: &Arc<Bell>) -> (Crossing, Entry) {
        crossing(self.waiting, self.gathers, self.drops.clone(), limit, bell)
    }
}

impl Made {
    /// Makes the components of those of the stacks that are `new`, for so many workers, each of which has a source of its own if
    /// they `fan_out`. `members` says who each stack is.
    ///
    /// # Errors
    /// A component that cannot be made of its settings.
    pub(super) fn new(
        stacks: &[Stack],
        members: &[Member],
        is_new: &dyn Fn(usize) -> bool,
        (workers, fan_out): (usize, bool),
        common: &Arc<Common>,
    ) -> Result<Made, SettingError> {
        let mut made = Made {
            gathers: true,
            ..Made::default()
        };
        let mut making: BTreeMap<usize, Making> = BTreeMap::new();
        let (mut shared, mut alone, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        let all = || stacks.iter().zip(members);
        for (_, (stack, member)) in all().enumerate().filter(|(index, _)| is_new(*index)) {
            let mut stages = stack.stages(workers > 1);
            let takes_all = stages.first().is_some_and(|first| !first.is_parallel);
            if fan_out && takes_all && !stack.has_source() {
                // Nobody has all packets: it stands behind all workers.
                stages.insert(0, Stage::nothing(true));
            }
            let Some(stage) = stages.first().copied() else {
                continue;
            };
            let first = First::new(member.clone(), stack, &stage);
            if stack.has_source() {
                sources.push(first);
            } else if stage.is_parallel {
                shared.push(first);
            } else {
                alone.push(first);
            }
            stages.remove(0);
            let Some(&second) = stages.first() else {
                continue;
            };
            let mut entrance = Entrance::of(stack, &second);
            if stage.is_parallel && entrance.drops.is_some() {
                // Of several threads all messages are needed to put a batch together: what is to be
                // dropped is dropped behind that.
                stages.insert(0, Stage::nothing(false));
                entrance = Entrance {
                    waiting: WAITING,
                    gathers: true,
                    drops: None,
                };
            }
            // Where the first worker waits for room, the others have to have what it has.
            made.gathers &= !stage.is_parallel || entrance.gathers;
            let stage = Making {
                stages,
                entries: Vec::new(),
                bell: Bell::new(),
                entrance,
            };
            making.insert(member.number, stage);
        }
        let limit = on_a_way(stacks, workers);
        let mut tail = |member: &Member| match making.get_mut(&member.number) {
            None => Next::Nothing,
            Some(making) => {
                let (crossing, entry) = making.entrance.crossing(limit, &making.bell);
                making.entries.push(entry);
                Next::Crossing(Box::new(crossing))
            }
        };
        if !shared.is_empty() {
            for _ in 0..workers {
                let parts = parts(shared.clone(), 0, common, &mut tail)?;
                made.workers.push(parts);
            }
        }
        let alone = match workers {
            1 => vec![alone],
            _ => groups(alone, 0),
        };
        for group in alone {
            let number = group.first().map_or(0, First::number);
            let parts = parts(group, 0, common, &mut tail)?;
            made.alone.push((format!("fg-stack-s{number}"), parts));
        }
        for first in sources {
            let name = format!("fg-source-{}", first.number());
            for part in parts(vec![first], 0, common, &mut tail)? {
                let work = Work::Source(part);
                made.waiting
                    .push(Waiting::new(name.clone(), Kind::OfSource, work));
            }
        }
        for (stack, member) in all() {
            if let Some(making) = making.remove(&member.number) {
                made.behind(member, stack, making, limit, common)?;
            }
        }
        Ok(made)
    }

    /// The threads of the stages behind the first.
    fn behind(
        &mut self,
        member: &Member,
        stack: &Stack,
        making: Making,
        limit: usize,
        common: &Arc<Common>,
    ) -> Result<(), SettingError> {
        let Making {
            stages,
            mut entries,
            mut bell,
            mut entrance,
        } = making;
        let kind = match stack.has_source() {
            true => Kind::OfSource,
            false => Kind::Behind,
        };
        let mut stages = stages.into_iter().peekable();
        let mut number = 1;
        while let Some(stage) = stages.next() {
            let (mut next, mut tail) = (None, Next::Nothing);
            if let Some(behind) = stages.peek() {
                let entrance = Entrance::of(stack, behind);
                let bell = Bell::new();
                let (crossing, entry) = entrance.crossing(limit, &bell);
                tail = Next::Crossing(Box::new(crossing));
                next = Some((vec![entry], bell, entrance));
            }
            let graph = Graph::part(stack, stage.from, stage.until, tail)?;
            let thread = stage.thread.map(|thread| {
                let drops = entrance.drops.clone();
                (thread, drops.unwrap_or_default())
            });
            let part = Part::new(vec![member.clone()], graph, common);
            let behind = Behind::new(part, thread);
            let name = format!("fg-stack-{}.{number}", member.number);
            let work = Work::Behind(behind, core::mem::take(&mut entries), Order::ByBatch);
            self.waiting.push(Waiting {
                bell: Arc::clone(&bell),
                ..Waiting::new(name, kind, work)
            });
            number += 1;
            if let Some(next) = next {
                (entries, bell, entrance) = next;
            }
        }
        Ok(())
    }

    fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        let alone = self.alone.iter_mut().flat_map(|(_, parts)| parts);
        let behind = self.waiting.iter_mut().flat_map(|it| it.work.parts());
        self.workers.iter_mut().flatten().chain(alone).chain(behind)
    }

    /// Whether any is to join the engine of a part that runs on the thread with this name, or on the calling one.
    pub(super) fn join(&self, workers: usize, thread: Option<&str>, runs: &Part) -> bool {
        let joins = |parts: &Vec<Part>| parts.iter().any(|part| runs.does_for(part, true));
        if workers == 1 {
            return self.alone.iter().any(|(_, parts)| joins(parts));
        }
        // Who is alone there gets another thread.
        let mut parts = self.workers.iter().enumerate();
        parts.any(|(worker, parts)| {
            let is_its = thread.map_or(worker == 0, |name| name == name_of(worker));
            is_its && joins(parts)
        })
    }

    /// Opens what components need, until one cannot begin if `stops` says so.
    pub(super) fn start(&mut self, stops: &dyn Fn() -> bool) {
        for part in self.parts() {
            part.start();
            if stops() {
                return;
            }
        }
    }
}

impl Runner {
    /// Lets stacks take part in what comes next, of a run that has begun if it `runs`. No thread of those that take packets of
    /// the source does.
    pub(super) fn install(&mut self, made: Made, runs: bool) {
        if !made.gathers {
            self.pool.go_singly();
        }
        let fans_out = self.fans_out();
        for (worker, parts) in made.workers.into_iter().enumerate() {
            self.join(name_of(worker), Some(worker), parts, runs);
        }
        for (name, parts) in made.alone {
            self.join(name, None, parts, runs);
        }
        for mut waiting in made.waiting {
            match &mut waiting.work {
                Work::Source(_) => {
                    self.common.sources.fetch_add(1, Ordering::Relaxed);
                }
                Work::Behind(_, entries, order) if fans_out && entries.len() > 1 => {
                    *order = Order::AsItComes;
                }
                _ => {}
            }
            self.starts_later(waiting);
        }
    }

    /// Adds parts to those of a thread.
    fn join(&mut self, name: String, worker: Option<usize>, mut parts: Vec<Part>, runs: bool) {
        if parts.is_empty() {
            return;
        }
        let own = worker.or((self.workers == 1).then_some(0));
        for part in &mut parts {
            part.set_offload(&self.offload, own);
        }
        let is_inline = match worker {
            Some(worker) => worker == 0 && !self.fans_out(),
            None => self.workers == 1,
        };
        let lane = if is_inline {
            self.inline.worker = worker;
            &mut self.inline
        } else {
            if !self.waiting.iter().any(|waiting| waiting.name == name) {
                let work = Work::Lane(Lane::new(worker, self.inline.now));
                let waiting = Waiting::new(name.clone(), Kind::OfPackets, work);
                self.starts_later(waiting);
            }
            let mut waiting = self.waiting.iter_mut();
            let found = waiting.find(|waiting| waiting.name == name);
            match found.and_then(|waiting| waiting.work.lane()) {
                Some(lane) => lane,
                None => return,
            }
        };
        let now = runs.then_some(lane.now);
        for part in parts {
            part.join(&mut lane.parts, now);
        }
        lane.parts.retain(|part| !part.has_nobody());
    }

    pub(super) fn starts_later(&mut self, waiting: Waiting) {
        let number = self.numbered;
        self.numbered += 1;
        self.waiting.push(Waiting { number, ..waiting });
    }
}
