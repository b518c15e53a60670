//! What the thread of a device does.

mod costs;
mod programs;
mod reading;
mod shown;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_capture::live::{LiveConfig, StopHandle};
use flowgauge_offload::Backends;
use flowgauge_runtime::stacks::{Ended, Number as StackNumber, Runner, StackState};
use flowgauge_sensor_client::layout;
use flowgauge_sensor_client::protocol::Results;
use flowgauge_stack::{ComponentFailure, NodeId, Program, RunEnd, Stack};
use flowgauge_sys::files::without_marks;
use flowgauge_sys::packet::Waker;
use flowgauge_sys::process;
use flowgauge_wire::Ledger;

use self::programs::Programs;
use super::{NewFlow, Opened, Order, Source, State};
use crate::accounts::{Account, Overload};
use crate::news::News;
use crate::orders::Orders;
use crate::readers::{FlowRing, Number, Readers};
use crate::results::{is_shared, now, results, since};
use crate::rings::Rings;
use crate::rmon;
use crate::sharing::Sharing;
use crate::text::FORCED_FAILS;

/// How often a device that reads nothing looks around.
const LOOK: Duration = Duration::from_secs(1);
/// ... and one whose readers have no room. Numbers are told as often.
const WAIT: Duration = Duration::from_millis(1);
/// ... and one whose workers read, while no packets come.
const TICK: Duration = Duration::from_millis(super::TICK_MS as u64);
/// While packets come what is asked takes a ninth of the time at most: who asks much does not keep packets waiting.
const PAUSES: u32 = 8;
/// How often it is looked what users cost.
const ACCOUNTING: Duration = Duration::from_millis(10);
/// Errors of a source that are kept.
const MOST_ERRORS: usize = 16;

/// What the thread of a device has.
pub(super) struct Work {
    name: String,
    news: Option<Arc<News>>,
    runner: Runner,
    source: Source,
    /// Where it is one: it is opened again when it has gone away.
    interface: Option<LiveConfig>,
    /// Where each worker reads one of its rings.
    rings: Option<Rings>,
    /// Packets that these had.
    seen: u64,
    backends: Backends,
    stop: StopHandle,
    orders: Arc<Orders<Order>>,
    /// Until when packets come first.
    busy_until: Instant,
    waker: Waker,
    /// What sources before this one had.
    earlier: Ledger,
    state: State,
    errors: Vec<String>,
    /// Stacks of the configuration.
    always: Vec<Stack>,
    /// Stacks of flows.
    served: Vec<Served>,
    /// Why stacks failed, by name.
    failures: BTreeMap<String, Failed>,
    /// Those of them that the runner has let go: what others change does not begin them anew, which would write over what they wrote.
    over: Vec<(Stack, StackState)>,
    /// Last results of flows that were cut off.
    cut: BTreeMap<u64, Results>,
    patience: Option<Duration>,
    /// Whether readers have what they are waited for.
    is_settled: bool,
    /// What was counted, as they were told last, and when; how often since there were no packets; whether that is the end.
    numbers: Vec<Vec<Number>>,
    told: Instant,
    /// How long packets come first after that.
    tell_pause: Duration,
    idle: u32,
    is_told: bool,
    /// When it was looked what users cost.
    accounted: Instant,
    overload: Overload,
    /// Whether the interface was behind by then.
    was_behind: bool,
    /// Programs with libscap, where the source is an interface that they may share.
    programs: Option<Programs>,
    sharing: Option<Sharing>,
}

/// A stack that runs for flows.
struct Served {
    stack: Stack,
    /// Components before those of its users.
    hidden: usize,
    readers: Arc<Readers>,
    flows: Vec<ServedFlow>,
    /// Which of the runner's stacks it is, if it runs.
    at: Option<usize>,
    /// What it had cost, and what it had missed, when it was looked last.
    cost: u64,
    missed: u64,
}

struct ServedFlow {
    number: u64,
    /// What the stack had counted before it.
    base: Option<Results>,
    ring: Arc<FlowRing>,
    account: Arc<Account>,
    process: u32,
    opened: Instant,
    /// Its part of the cost, in nanoseconds; of late.
    spent: u64,
    lately: f64,
}

impl ServedFlow {
    /// What its stack has counted since it began.
    fn of(&self, results: Results) -> Results {
        match &self.base {
            Some(base) => since(results, base),
            None => results,
        }
    }
}

/// Why a stack failed, and the component that did.
struct Failed {
    component: Option<String>,
    what: String,
}

impl Served {
    fn new(flow: NewFlow) -> Served {
        let NewFlow {
            stack,
            hidden,
            readers,
            ..
        } = flow.clone();
        let mut served = Served {
            stack,
            hidden,
            readers,
            flows: Vec::new(),
            at: None,
            cost: 0,
            missed: 0,
        };
        served.add(flow, None);
        served
    }

    fn add(&mut self, flow: NewFlow, base: Option<Results>) {
        if let Some(base) = &base {
            flow.ring.set_base(base);
        }
        self.readers.add(Arc::clone(&flow.ring));
        self.flows.push(ServedFlow {
            number: flow.number,
            base,
            ring: flow.ring,
            account: flow.account,
            process: flow.process,
            opened: Instant::now(),
            spent: 0,
            lately: 0.0,
        });
    }

    /// Why it failed, as its users may know it.
    fn explain(&self, failed: &Failed) -> String {
        let mut hidden = self.stack.nodes.iter().take(self.hidden);
        let is_hidden = hidden.any(|node| Some(&node.label) == failed.component.as_ref());
        match is_hidden {
            true => FORCED_FAILS.to_owned(),
            false => failed.what.clone(),
        }
    }
}

impl Work {
    pub(super) fn new(
        opened: Opened,
        name: &str,
        runner: Runner,
        always: Vec<Stack>,
        state: State,
        sharing: Option<Sharing>,
        news: Option<Arc<News>>,
    ) -> Work {
        let mut work = Work {
            name: name.to_owned(),
            news,
            runner,
            interface: opened.live,
            rings: opened.rings.map(|(rings, _)| rings),
            seen: 0,
            backends: opened.backends,
            source: opened.source,
            stop: opened.stop,
            waker: opened.orders.waker(),
            orders: opened.orders,
            busy_until: Instant::now(),
            earlier: Ledger::default(),
            state,
            errors: Vec::new(),
            always,
            served: Vec::new(),
            failures: BTreeMap::new(),
            over: Vec::new(),
            cut: BTreeMap::new(),
            patience: opened.patience,
            is_settled: true,
            numbers: Vec::new(),
            told: Instant::now(),
            tell_pause: WAIT,
            idle: 0,
            is_told: false,
            accounted: Instant::now(),
            overload: Overload::default(),
            was_behind: false,
            programs: None,
            sharing,
        };
        work.tell_of_backends();
        work.share();
        work
    }

    pub(super) fn run(&mut self) -> Ledger {
        let mut is_stopping = false;
        while !is_stopping || self.state == State::Reading {
            let order = match self.has_packets_first() {
                true => None,
                false => self.orders.next(self.may_wait()),
            };
            match order {
                Some(Order::Stop) => {
                    is_stopping = true;
                    self.finish();
                }
                Some(order) => {
                    let began = Instant::now();
                    self.obey(order);
                    self.busy_until = Instant::now() + PAUSES * began.elapsed();
                }
                None => {}
            }
            self.is_settled = true;
            for served in &self.served {
                self.is_settled &= served.readers.settle();
                self.is_settled &= self.state != State::Reading || served.readers.has_room();
            }
            match self.state {
                State::Reading if self.is_settled => self.read(),
                State::Reading => self.tell_now_and_then(false),
                State::Ended if self.is_settled && !self.is_told => {
                    self.tell();
                    self.is_told = true;
                }
                State::Away if !is_stopping => self.take_again(),
                _ => {}
            }
            // A small ring is full before the next look.
            let falls_behind = !self.was_behind && self.source.is_behind();
            if falls_behind || self.accounted.elapsed() >= ACCOUNTING {
                self.accounted = Instant::now();
                self.account();
                if let Some(live) = &self.interface {
                    let (earlier, source) = (&self.earlier, &mut self.source);
                    rmon::note_drops(&live.interface, || {
                        earlier.dropped() + source.ledger().dropped()
                    });
                    self.relieve();
                }
            }
        }
        self.orders.close();
        if !self.is_told {
            self.state = State::Ended;
            self.tell();
        }
        self.ledger()
    }

    /// Whether packets come before what is asked.
    fn has_packets_first(&self) -> bool {
        let reads = self.state == State::Reading && self.rings.is_none();
        reads && self.idle == 0 && Instant::now() < self.busy_until
    }

    /// How long it may wait for an order.
    fn may_wait(&self) -> Duration {
        if !self.is_settled || (self.state == State::Ended && !self.is_told) {
            WAIT
        } else if self.state != State::Reading {
            LOOK
        } else if self.rings.is_none() {
            Duration::ZERO
        } else if self.idle == 0 {
            WAIT
        } else {
            TICK
        }
    }

    /// What that costs is the user's who asks.
    fn obey(&mut self, order: Order) {
        let began = process::thread_time();
        let account = match order {
            Order::Open(flow, answer) => {
                let account = Arc::clone(&flow.account);
                // Whoever does not wait any more ends the flow.
                let _ = answer.send(self.open(*flow));
                Some(account)
            }
            Order::Close(flows, answer) => {
                let account = flows.first().and_then(|flow| self.find(*flow));
                let account = account.map(|(served, at)| Arc::clone(&served.flows[at].account));
                let _ = answer.send(self.close(&flows));
                account
            }
            Order::Results(flow, take, answer) => {
                let account = self.find(flow);
                let account = account.map(|(served, at)| Arc::clone(&served.flows[at].account));
                let _ = answer.send(self.results(flow, take.as_deref()));
                account
            }
            Order::Always {
                stacks,
                flows,
                anew,
                answer,
            } => {
                let _ = answer.send(self.change(stacks, flows, anew));
                None
            }
            Order::Show {
                account,
                shared,
                answer,
            } => {
                let _ = answer.send(self.shown(shared));
                account
            }
            Order::Join(number, program, account, answer) => {
                // Whoever does not wait any more ends it.
                let _ = answer.send(self.join(number, *program, &account));
                Some(account)
            }
            Order::Hear(number, said, answer) => {
                self.hear(number, said);
                let _ = answer.send(());
                let programs = self.programs.as_ref();
                programs.and_then(|it| it.account(number).map(Arc::clone))
            }
            Order::Finish | Order::Stop => {
                self.finish();
                None
            }
            Order::Start => {
                if self.state == State::Holding {
                    self.state = State::Reading;
                }
                None
            }
        };
        if let Some(account) = account {
            account.charge(process::thread_time().saturating_sub(began));
        }
    }

    /// The ledger of all sources.
    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.earlier.clone();
        ledger.merge(&self.source.ledger());
        ledger
    }

    fn note(&mut self, error: impl ToString) {
        let error = error.to_string();
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.tell_news(&error);
            self.errors.push(error);
        }
    }

    /// Tells who runs the sensor.
    fn tell_news(&self, what: &str) {
        if let Some(news) = &self.news {
            news.tell(format!("device {}: {what}", self.name));
        }
    }

    /// Comes to its end. What is in the ring of an interface is still taken.
    fn finish(&mut self) {
        if self.interface.is_none() || self.state != State::Reading {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        self.begin_end();
        let was_stopped = self.stop.is_stopped();
        // Workers with a ring each read until they are stopped.
        self.stop.stop();
        self.runner.finish();
        self.unshare(match was_stopped {
            true => "it was stopped",
            false => "the input is over",
        });
        self.take_failures();
        let snapshot = self.runner.snapshot();
        let stacks = self.runner.stacks().to_vec();
        for (stack, state) in stacks.iter().zip(&snapshot.stacks) {
            self.write_last(stack, state);
        }
    }

    /// Whether there are new ones.
    fn take_failures(&mut self) -> bool {
        let failures = self.runner.failures();
        let has_some = !failures.is_empty();
        for failed in failures {
            let name = self.runner.stacks().get(failed.stack).map(name_of);
            let failed = Failed::of(&failed.failure);
            self.failures
                .entry(name.unwrap_or_default())
                .or_insert(failed);
        }
        has_some
    }

    /// Tells readers what was counted, every millisecond while packets come, and for a while once none do: threads tell it late.
    fn tell_now_and_then(&mut self, comes: bool) {
        const IDLE: u32 = 20;
        self.idle = if comes { 0 } else { (self.idle + 1).min(IDLE) };
        let is_due = match comes {
            true => self.told.elapsed() >= self.tell_pause,
            false => self.idle < IDLE,
        };
        if is_due && !self.served.is_empty() {
            let began = Instant::now();
            self.tell();
            self.told = Instant::now();
            // Of thousands of flows that takes a hundredth of the time.
            self.tell_pause = (100 * (self.told - began)).clamp(WAIT, LOOK);
        }
    }

    /// Tells readers what was counted.
    fn tell(&mut self) {
        self.tell_of(None);
    }

    /// The same of one of the runner's stacks, or of all.
    fn tell_of(&mut self, one: Option<usize>) {
        let is_told = |at: usize| one.is_none_or(|one| one == at);
        let stacks = self.runner.stacks();
        self.numbers.resize_with(stacks.len(), Vec::new);
        let all = self.numbers.iter_mut().zip(stacks).enumerate();
        for (_, (numbers, stack)) in all.filter(|(at, _)| is_told(*at)) {
            numbers.clear();
            numbers.resize(stack.nodes.len(), (0, None, 0));
        }
        let mut add = |number: StackNumber| {
            let of_stack = self.numbers.get_mut(number.stack);
            let Some((items, value, rows)) =
                of_stack.and_then(|all| all.get_mut(number.id.index()))
            else {
                return;
            };
            *items += number.items;
            *rows += number.rows;
            match (value, number.value) {
                (Some(mine), Some(theirs)) => mine.merge(&theirs),
                (mine, theirs) => *mine = theirs,
            }
        };
        match one {
            Some(one) => self.runner.numbers_of(one, &mut add),
            None => self.runner.numbers(&mut add),
        }
        let time = now();
        let is_last = match self.state {
            State::Ended => layout::IS_LAST,
            _ => 0,
        };
        for served in &self.served {
            let at = served.at.filter(|at| is_told(*at));
            let Some(numbers) = at.and_then(|at| self.numbers.get(at)) else {
                continue;
            };
            let name = served.stack.name.as_deref().unwrap_or_default();
            let has_failed = match self.failures.contains_key(name) {
                true => layout::HAS_FAILED,
                false => 0,
            };
            served.readers.tell(time, is_last | has_failed, numbers);
        }
    }

    /// Lets the components of a stack write what they write when all is known.
    fn write_last(&mut self, stack: &Stack, state: &StackState) {
        let accounts = state
            .components
            .iter()
            .filter_map(|it| it.account.as_deref());
        for last in accounts.filter_map(|account| account.last.as_ref()) {
            let run = RunEnd {
                ledger: &self.ledger(),
                notes: &self.source.notes(),
            };
            if let Err(failure) = last.0.write(&run) {
                let failed = Failed {
                    component: None,
                    what: without_marks(&failure.message),
                };
                self.failures.insert(name_of(stack), failed);
            }
        }
    }

    /// What runs for a flow, and which of its flows that is.
    fn find(&self, number: u64) -> Option<(&Served, usize)> {
        self.served.iter().find_map(|served| {
            let mut flows = served.flows.iter();
            let at = flows.position(|flow| flow.number == number)?;
            Some((served, at))
        })
    }

    /// What is known of a stack, one that is over among them.
    fn state_of(&self, stack: &Stack) -> Option<StackState> {
        let mut running = self.runner.stacks().iter();
        let running = running.position(|it| it.name == stack.name);
        running.and_then(|at| self.runner.state(at)).or_else(|| {
            let mut over = self.over.iter();
            let (_, state) = over.find(|(it, _)| it.name == stack.name)?;
            Some(state.clone())
        })
    }

    /// What a stack has counted for its users.
    fn counted(&self, served: &Served, state: &StackState) -> Results {
        let failed = self.failures.get(&name_of(&served.stack));
        results(
            &served.stack,
            served.hidden,
            state,
            failed.map(|failed| served.explain(failed)),
            self.state == State::Ended,
        )
    }

    /// Has a flow run: as one more of those for whom its stack runs already, where several can have that in common.
    fn open(&mut self, flow: NewFlow) -> Result<(), String> {
        if flow.ring.is_over() {
            // While this was on its way.
            return Err("the flow has ended".to_owned());
        }
        let mut named = flow.stack.clone();
        let same = self.served.iter().position(|served| {
            named.name.clone_from(&served.stack.name);
            served.stack.does_as(&named)
        });
        if let Some(at) = same
            && let Some(state) = self.state_of(&self.served[at].stack)
            && is_shared(&self.served[at].stack, &state)
        {
            let base = self.counted(&self.served[at], &state);
            if base.failure.is_none() {
                self.served[at].add(flow, Some(base));
                return Ok(());
            }
        }
        let number = flow.number;
        self.served.push(Served::new(flow));
        if let Err(error) = self.run_stacks(false) {
            self.served.retain(|served| !served.is_of(number));
            return Err(error);
        }
        if let Some(at) = self.served.last().and_then(|served| served.at) {
            self.tell_of(Some(at));
        }
        Ok(())
    }

    /// Ends flows. Returns the last results of the first.
    fn close(&mut self, flows: &[u64]) -> Option<Results> {
        let mut flows = flows.to_vec();
        flows.retain(|flow| !self.dismiss(*flow));
        if flows.is_empty() {
            return None;
        }
        let first = flows.first().copied();
        let mut last = first.and_then(|flow| {
            let cut = self.cut.get(&flow).cloned();
            cut.or_else(|| self.results(flow, None).ok())
        });
        if let Some(last) = &mut last {
            last.is_last = true;
        }
        let mut gone = Vec::new();
        for flow in &flows {
            self.cut.remove(flow);
        }
        self.served.retain_mut(|served| {
            let (removed, stay): (Vec<ServedFlow>, _) = core::mem::take(&mut served.flows)
                .into_iter()
                .partition(|flow| flows.contains(&flow.number));
            served.flows = stay;
            for flow in removed {
                served.readers.remove(flow.number);
                if served.flows.is_empty() && Some(flow.number) == first {
                    gone.push((name_of(&served.stack), served.hidden, flow));
                }
            }
            !served.flows.is_empty()
        });
        let ended = self.run_stacks(false).unwrap_or_default();
        for (name, hidden, flow) in gone {
            let mut ended = ended.iter();
            let Some(ended) = ended.find(|it| name_of(&it.stack) == name) else {
                continue;
            };
            let failure = ended.failure.as_ref().map(|it| Failed::of(it).what);
            let results = results(&ended.stack, hidden, &ended.state, failure, true);
            last = Some(Results {
                lost: last.map_or(0, |last| last.lost),
                ..flow.of(results)
            });
        }
        last
    }

    /// What a flow has; of the component with a label alone, which forgets it.
    fn results(&mut self, number: u64, take: Option<&str>) -> Result<Results, String> {
        if let Some(cut) = self.cut.get(&number) {
            return Ok(cut.clone());
        }
        let not_there = || format!("there is no flow {number}");
        let (served, at) = self.find(number).ok_or_else(not_there)?;
        let (stack, hidden) = (served.stack.clone(), served.hidden);
        let mut state = self.state_of(&stack).ok_or_else(not_there)?;
        if let Some(label) = take {
            let mut nodes = stack.nodes.iter().enumerate().skip(hidden);
            let has_table = |it: &(usize, &flowgauge_stack::Node)| {
                let (_, node) = it;
                node.label == label && node.info.result.is_some_and(|it| !it.columns.is_empty())
            };
            let node = nodes.find(has_table).map(|(node, _)| node);
            let node =
                node.ok_or_else(|| format!("the flow has no component {label} with a table"))?;
            let mut running = self.runner.stacks().iter();
            if let Some(at) = running.position(|it| it.name == stack.name) {
                let taken = self.runner.take(at, NodeId(node as u32));
                state.components[node].result = taken;
            }
            // What has failed is told once more.
            let mut over = self.over.iter_mut();
            if let Some((_, state)) = over.find(|(it, _)| it.name == stack.name) {
                state.components[node].result = None;
            }
            let (served, _) = self.find(number).ok_or_else(not_there)?;
            let mut results = self.counted(served, &state);
            results.components.retain(|it| it.component == label);
            results.lost = self.lost(served, &served.flows[at]);
            return Ok(results);
        }
        let (served, _) = self.find(number).ok_or_else(not_there)?;
        let flow = &served.flows[at];
        Ok(Results {
            lost: self.lost(served, flow),
            ..flow.of(self.counted(served, &state))
        })
    }

    /// Takes over what always runs, and further flows. Returns which stacks have failed.
    fn change(
        &mut self,
        stacks: Vec<Stack>,
        flows: Vec<NewFlow>,
        anew: bool,
    ) -> Result<Vec<(String, String)>, String> {
        let before = core::mem::replace(&mut self.always, stacks);
        if let Err(error) = self.run_stacks(anew) {
            self.always = before;
            return Err(error);
        }
        self.tell();
        let mut failures = Vec::new();
        for flow in flows {
            let name = name_of(&flow.stack);
            if let Err(error) = self.open(flow) {
                failures.push((name, error));
            }
        }
        let failed = self.failures.iter();
        let failed = failed.map(|(name, failed)| (name.clone(), failed.what.clone()));
        failures.extend(failed);
        Ok(failures)
    }

    /// Has the runner run what is to.
    fn run_stacks(&mut self, anew: bool) -> Result<Vec<Ended>, String> {
        let stacks = self.always.iter();
        let stacks = stacks.chain(self.served.iter().map(|served| &served.stack));
        let programs = self.programs.as_ref();
        let stacks = stacks.chain(programs.and_then(Programs::stack));
        let stacks: Vec<Stack> = stacks.cloned().collect();
        if self.state == State::Ended {
            // What has been read stays to be asked for.
            return match stacks.iter().all(|stack| self.has(stack)) {
                true => Ok(Vec::new()),
                false => Err("the device has ended".to_owned()),
            };
        }
        let stays_over = |stack: &Stack| {
            let is_over = || self.over.iter().any(|(over, _)| over.does_as(stack));
            let has_failed = !anew && self.failures.contains_key(&name_of(stack));
            has_failed && (self.has(stack) || is_over())
        };
        let (over, stacks): (Vec<Stack>, Vec<Stack>) = stacks.into_iter().partition(stays_over);
        let change = self.runner.replace(Program { stacks });
        let change = change.map_err(|error| error.to_string())?;
        for Ended { stack, state, .. } in &change.ended {
            self.write_last(stack, state);
            self.over.push((stack.clone(), state.clone()));
        }
        self.over
            .retain(|(stack, _)| over.iter().any(|over| over.does_as(stack)));
        let names: Vec<String> = over.iter().map(name_of).collect();
        self.failures.retain(|name, _| names.contains(name));
        let has_failed = self.take_failures();
        // They stand in this order, but for those that are over.
        let mut running = (0..).zip(self.runner.stacks()).peekable();
        for stack in &self.always {
            running.next_if(|(_, it)| it.name == stack.name);
        }
        for served in &mut self.served {
            let its = running.next_if(|(_, it)| it.name == served.stack.name);
            served.at = its.map(|(at, _)| at);
            served.readers.set_patience(self.patience);
        }
        if let Some(programs) = &mut self.programs {
            let is_its = |it: &Stack| it.name.as_deref() == Some(programs::NAME);
            let its = running.next_if(|(_, it)| is_its(it));
            programs.set_place(its.map(|(at, _)| at));
        }
        if has_failed {
            self.tell();
        }
        Ok(change.ended)
    }

    fn has(&self, stack: &Stack) -> bool {
        self.runner.stacks().iter().any(|it| it.does_as(stack))
    }
}

impl Served {
    fn is_of(&self, number: u64) -> bool {
        self.flows.iter().any(|flow| flow.number == number)
    }
}

impl Failed {
    fn of(failure: &ComponentFailure) -> Failed {
        Failed {
            component: Some(failure.label.clone()),
            what: without_marks(&failure.to_string()),
        }
    }
}

fn name_of(stack: &Stack) -> String {
    stack.name.clone().unwrap_or_default()
}
