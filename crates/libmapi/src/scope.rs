//! A flow on devices of many sensors: each member is a flow as any other, and what is asked for is asked of all at the same time.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use flowgauge_mapi::{Call, Error, Shape};
use flowgauge_sensor_client::members::{Held, Members, Trouble, each, keep_trying};
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::turns::{Head, Next, Turns};
use flowgauge_sensor_client::{News, Readings, Sensors};

use crate::abi::{RawPacket, RawResults};
use crate::error::{NO_DEVICE, NOT_CONNECTED, RIGHTS, SOCKET, of_client};
use crate::flow::{Flow, Patience, awaits_nobody, knows_flows, may_follow};
use crate::own::Instance;
use crate::results;
use crate::session::{
    ANSWER, Arguments, Descriptor, FIRST_LOOK, LAST_LOOK, MemberInfo, Setting, Status, Transfer,
    call, calls_of, connected_twice, has_packets, has_result, lock, new_numbers, open_waiting,
    seconds, too_late,
};

/// How long a member may take to set a flow up, or for a table. One that does not give its numbers is not asked for tables.
const SETUP: Duration = Duration::from_secs(5);

/// A flow that has members.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Its descriptor and the number of its device, once a member was there.
    numbers: OnceLock<(c_int, c_int)>,
    text: String,
    sensors: Mutex<Arc<Sensors>>,
    /// Why the sensors refuse all members, until there is a credential.
    refused: Mutex<Option<Error>>,
    members: Members<Arc<Flow>>,
    /// Who applies functions, connects, or adds a member that is back.
    setup: Mutex<()>,
    calls: Mutex<Vec<Call>>,
    /// It was connected; with `SYNC` it may still have to wait.
    is_connected: AtomicBool,
    /// When its members were opened.
    since: OnceLock<SystemTime>,
    /// What the program was given of functions.
    shown: Mutex<BTreeMap<c_int, Shown>>,
    turn: Mutex<Turn>,
    /// What comes to members on other machines.
    news: Arc<News>,
    /// How members send, where the program has said so.
    transfer: Mutex<Option<Transfer>>,
    /// Flows that failed and are still in their sensors.
    failed: Mutex<Vec<Arc<Flow>>>,
    is_closed: AtomicBool,
}

impl Held for Flow {
    fn is_gone(&self) -> bool {
        Descriptor::is_gone(self)
    }
}

/// A vector of results, until the function is read again.
#[derive(Debug)]
struct Shown {
    results: Vec<RawResults>,
    /// Of which setting up of each member they are; 0: there is none.
    generations: Vec<u32>,
    /// Where they point to: flows have their own, and zeros are for the others, as large structures are aligned.
    _flows: Vec<Arc<Flow>>,
    _zeros: Vec<u128>,
}

/// Whose packet is next, and whose the program has.
#[derive(Debug, Default)]
struct Turn {
    turns: Turns,
    _current: Option<Arc<Flow>>,
}

/// The error that says most: not that one cannot be reached, where another says why.
fn first(errors: impl Iterator<Item = Error>) -> Option<Error> {
    errors.min_by_key(|error| error.number == SOCKET)
}

fn is_passing(error: &Error) -> bool {
    error.number == SOCKET
}

fn trouble(error: &Error) -> Trouble {
    Trouble {
        what: error.message.clone(),
        hint: None,
        is_passing: is_passing(error),
    }
}

impl Scope {
    /// A flow on all members.
    pub(crate) fn create(
        text: &str,
        sensors: Arc<Sensors>,
        members: Vec<Member>,
    ) -> Result<Arc<Scope>, Error> {
        let scope = Arc::new(Scope {
            numbers: OnceLock::new(),
            text: text.to_owned(),
            sensors: Mutex::new(sensors),
            refused: Mutex::default(),
            members: Members::new(members),
            setup: Mutex::default(),
            calls: Mutex::default(),
            is_connected: AtomicBool::new(false),
            since: OnceLock::new(),
            shown: Mutex::default(),
            turn: Mutex::default(),
            news: Arc::default(),
            transfer: Mutex::default(),
            failed: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        match scope.begin() {
            // It may get a credential of its own.
            Err(error) if error.number == RIGHTS => {
                scope.numbers.get_or_init(|| new_numbers(text));
            }
            begun => begun?,
        }
        keep_trying(
            Arc::downgrade(&scope),
            |scope| &scope.members,
            |scope| drop(scope.revive()),
        );
        Ok(scope)
    }

    /// Tries all members. An error where there is none.
    fn begin(&self) -> Result<(), Error> {
        let errors = self.revive();
        let error = match errors.len() == self.members.size() {
            true => Some(first(errors.into_iter()).unwrap_or_else(unreachable)),
            false => None,
        };
        (*lock(&self.refused)).clone_from(&error);
        error.map_or(Ok(()), Err)
    }

    /// Has other connections to the sensors ask for it, before it is connected.
    pub(crate) fn ask_by(&self, sensors: Arc<Sensors>) -> Result<(), Error> {
        let setup = lock(&self.setup);
        *lock(&self.sensors) = sensors;
        self.members.begin_anew();
        drop(setup);
        self.begin()
    }

    /// Why no member can be asked.
    fn nobody(&self) -> Error {
        lock(&self.refused).clone().unwrap_or_else(unreachable)
    }

    /// The members that are there, and their flows.
    fn flows(&self) -> Vec<(usize, Arc<Flow>)> {
        let flows = self.members.map(|flow| Arc::clone(flow));
        let flows = flows.into_iter().enumerate();
        flows.filter_map(|(at, flow)| Some((at, flow?))).collect()
    }

    /// Whether a function can be applied, as far as its arguments say: what one sensor says of it holds for all. What a member's
    /// user may not have it tells when the flow is connected.
    fn check(&self, call: &Call, number: usize, stack: &str) -> Result<(), Error> {
        let mut errors = Vec::new();
        for (at, flow) in self.flows() {
            match flow.check(call, number, stack) {
                Ok(()) => return Ok(()),
                Err(error) if is_passing(&error) => {
                    self.fail(at, &flow, &error);
                    errors.push(error);
                }
                Err(error) => errors.push(error),
            }
        }
        Err(first(errors.into_iter()).unwrap_or_else(|| self.nobody()))
    }

    /// Opens the flows of all members that are there. Those that fail are left out from then on, unless all do.
    fn open_all(&self, calls: &[Call]) -> Result<(), Error> {
        let flows = self.flows();
        let opened = each(&flows, |(_, flow)| self.open(flow, calls));
        let is_open = opened.iter().any(Result::is_ok);
        let mut errors = Vec::new();
        for ((at, flow), opened) in flows.iter().zip(opened) {
            if let Err(error) = opened {
                if is_open || is_passing(&error) {
                    self.fail(*at, flow, &error);
                }
                errors.push(error);
            }
        }
        match is_open {
            true => Ok(()),
            false => Err(first(errors.into_iter()).unwrap_or_else(|| self.nobody())),
        }
    }

    /// Opens it if it waits for nothing any more. Why it failed its program is told when it asks.
    pub(crate) fn open_if_it_may(&self) -> Result<(), Error> {
        let _setup = lock(&self.setup);
        let calls = self.functions();
        let is_open = self.since.get().is_some();
        if is_open || !self.was_connected() || !awaits_nobody(&calls, self.fd()) {
            return Ok(());
        }
        let opened = self.open_all(&calls);
        lock(&self.refused).clone_from(&opened.as_ref().err().cloned());
        opened?;
        let _ = self.since.set(SystemTime::now());
        Ok(())
    }

    /// Notes that a member's flow has failed.
    fn fail(&self, at: usize, flow: &Arc<Flow>, error: &Error) {
        let is_it = |its: &Arc<Flow>| Arc::ptr_eq(its, flow);
        let failed = self.members.fail(at, trouble(error), is_it);
        lock(&self.failed).extend(failed.filter(|flow| !Descriptor::is_gone(&**flow)));
    }

    /// The function of a number, of a flow that is connected.
    fn function(&self, fid: c_int) -> Result<Call, Error> {
        self.is_connected()?;
        let at = usize::try_from(fid).ok().and_then(|fid| fid.checked_sub(1));
        let found = at.and_then(|at| lock(&self.calls).get(at).cloned());
        let unknown = || format!("flow {} has no function {fid}", self.fd());
        found.ok_or_else(|| Error::new(Error::NO_FUNCTION, unknown()))
    }

    /// Asks all for their numbers. Notes who does not answer, and returns those who do.
    fn refresh(&self) -> Vec<(usize, Arc<Flow>)> {
        let flows = self.flows();
        let with = flows
            .into_iter()
            .filter_map(|(at, flow)| Some((flow.readings()?, at, flow)));
        let with: Vec<_> = with.collect();
        let came = Readings::refresh(with.iter().map(|(readings, ..)| readings), ANSWER);
        let mut there = Vec::new();
        for ((_, at, flow), came) in with.into_iter().zip(came) {
            self.members.set_late(at, !came);
            if came {
                there.push((at, flow));
            }
        }
        there
    }

    /// The results of a function, and whose they are. An error where no member has one, and one of them says why.
    fn results(
        &self,
        fid: c_int,
        call: &Call,
    ) -> Result<Vec<(usize, Arc<Flow>, RawResults)>, Error> {
        let there = self.refresh();
        let patience = Patience::default();
        let read = |(_, flow): &(usize, Arc<Flow>)| flow.result(fid, &patience);
        let results = match call.function.result {
            // What was told is read.
            Shape::Number(_) | Shape::File => there.iter().map(read).collect(),
            _ => each(&there, read),
        };
        let (mut good, mut reasons) = (Vec::new(), Vec::new());
        for ((at, flow), result) in there.into_iter().zip(results) {
            match result {
                Ok(result) => good.push((at, flow, result)),
                Err(error) if flow.has_failed() => self.fail(at, &flow, &error),
                Err(error) if is_passing(&error) => self.members.set_late(at, true),
                Err(error) => reasons.push(error),
            }
        }
        match reasons.into_iter().next() {
            Some(reason) if good.is_empty() => Err(reason),
            _ => Ok(good),
        }
    }

    /// A packet that is there. `Err(None)`: nothing more comes.
    fn next_there(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Option<Error>> {
        let mut turn = lock(&self.turn);
        let flows: BTreeMap<usize, Arc<Flow>> = self.flows().into_iter().collect();
        if flows.is_empty() {
            return Err(Some(unreachable()));
        }
        let limit = match flows.len() {
            1 => LAST_LOOK,
            _ => Duration::ZERO,
        };
        let (mut error, mut has_failed) = (None, false);
        let next = turn.turns.next(flows.keys().copied(), |at| {
            let flow = &flows[&at];
            // In this order: what came before the end is taken.
            let is_over = flow.is_over();
            match flow.time_of_next(fid, limit) {
                Ok(Some(time)) => return Head::Packet(time),
                Ok(None) if flow.has_failed() => {
                    has_failed = true;
                    self.fail(at, flow, &Error::new(SOCKET, "the flow has failed"));
                }
                Ok(None) if is_over => {}
                Ok(None) => {
                    return Head::Nothing {
                        is_live: flow.is_live(),
                    };
                }
                Err(passing) if is_passing(&passing) => {
                    has_failed = true;
                    self.fail(at, flow, &passing);
                }
                Err(other) => error = Some(other),
            }
            Head::Over
        });
        match (next, error) {
            (Next::Take(at), _) => {
                let packet = flows[&at].next_within(fid, Duration::ZERO);
                turn._current = Some(Arc::clone(&flows[&at]));
                packet.map_err(Some)
            }
            (_, Some(error)) => Err(Some(error)),
            // Who is left may be nobody, which is no end.
            (Next::Over, None) if has_failed && self.flows().is_empty() => Err(Some(unreachable())),
            (Next::Wait, None) => Ok(None),
            (Next::Over, None) => Err(None),
        }
    }

    /// Opens the flow of a member.
    fn open(&self, flow: &Arc<Flow>, calls: &[Call]) -> Result<(), Error> {
        flow.open_alone(calls.to_vec())?;
        flow.tell_to(&self.news);
        let transfer = *lock(&self.transfer);
        transfer.map_or(Ok(()), |transfer| flow.transfer(transfer))
    }

    /// Sets flows up anew where members are down and it is time to try. Returns why it failed.
    fn revive(&self) -> Vec<Error> {
        for failed in core::mem::take(&mut *lock(&self.failed)) {
            let _ = failed.close();
        }
        let revive = |at, member: &Member| self.set_up(at, member);
        self.members.try_again(revive, trouble)
    }

    /// Brings a member to where the others are.
    fn set_up(&self, at: usize, member: &Member) -> Result<(), Error> {
        let failed = |error| {
            let error = of_client(&error, NO_DEVICE);
            Error::new(error.number, format!("{member}: {}", error.message))
        };
        let sensors = Arc::clone(&lock(&self.sensors));
        let client = sensors.device(member).map_err(failed)?;
        let client = client.with_patience(SETUP);
        let (fd, _) = *self.numbers.get_or_init(|| new_numbers(&self.text));
        loop {
            let is_open = self.since.get().is_some();
            let flow = Arc::new(Flow::new(fd, Ok(client.clone()), &member.device));
            if is_open {
                self.open(&flow, &self.functions())?;
            }
            let setup = lock(&self.setup);
            if !Arc::ptr_eq(&sensors, &lock(&self.sensors)) {
                // Those that are asked now are tried by themselves.
                return flow.close();
            }
            if self.since.get().is_some() == is_open {
                let before = self.members.state(at).map_or(0, |state| state.generation);
                flow.generation.store(before + 1, Ordering::Relaxed);
                let put = self.members.put(at, flow);
                drop(setup);
                return put.or_else(|unwanted| unwanted.close());
            }
        }
    }
}

fn unreachable() -> Error {
    Error::new(
        SOCKET,
        "no sensor of the scope can be reached; they are tried again",
    )
}

impl Descriptor for Scope {
    fn fd(&self) -> c_int {
        self.numbers.get().map_or(0, |numbers| numbers.0)
    }

    fn device(&self) -> &str {
        &self.text
    }

    fn device_id(&self) -> c_int {
        self.numbers.get().map_or(0, |numbers| numbers.1)
    }

    fn apply(&self, name: &str, arguments: Arguments<'_>) -> Result<c_int, Error> {
        let _setup = lock(&self.setup);
        if self.was_connected() {
            return Err(too_late());
        }
        let call = call(name, arguments)?;
        let name = call.function.name;
        let mut calls = lock(&self.calls).clone();
        knows_flows(&call, self.fd())?;
        may_follow(&calls, &call)?;
        calls.push(call.clone());
        let stack = flowgauge_mapi::stack(&calls, self.fd().into(), &calls_of)?;
        if !stack.targets.is_empty() {
            let what = format!(
                "{name} writes on this machine, to which sensors of others cannot; hint: have packets (TO_BUFFER) or results come, and write them"
            );
            return Err(Error::new(Error::FILE, what));
        }
        self.check(&call, calls.len(), &stack.text)?;
        if call.function.is_own() {
            // Each member gets its own; here it is seen whether it takes its arguments.
            Instance::new(calls.len(), &call)?;
        }
        let fid = calls.len() as c_int;
        *lock(&self.calls) = calls;
        Ok(fid)
    }

    fn set(&self, setting: Setting) -> Result<(), Error> {
        let mut transfer = lock(&self.transfer);
        let mut new = transfer.unwrap_or_default();
        match setting {
            Setting::Push(every) => new.push = every,
            Setting::Prefetch(bytes) => new.prefetch = bytes,
            Setting::ByTime(patience) => {
                lock(&self.turn).turns.by_time(patience);
                return Ok(());
            }
        }
        *transfer = Some(new);
        drop(transfer);
        for (at, flow) in self.flows() {
            if let Err(error) = flow.transfer(new) {
                self.fail(at, &flow, &error);
            }
        }
        Ok(())
    }

    fn functions(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    fn connect(&self) -> Result<(), Error> {
        if self.is_connected.swap(true, Ordering::Relaxed) {
            return Err(connected_twice());
        }
        let opened = open_waiting(self.fd());
        if opened.is_err() {
            self.is_connected.store(false, Ordering::Relaxed);
        }
        opened
    }

    fn was_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    fn is_connected(&self) -> Result<(), Error> {
        let waits = match self.was_connected() {
            _ if self.since.get().is_some() => return Ok(()),
            true => "the flow waits for others (SYNC)",
            false => "the flow is not connected",
        };
        Err(lock(&self.refused)
            .clone()
            .unwrap_or_else(|| Error::new(NOT_CONNECTED, waits)))
    }

    fn read(&self, fid: c_int) -> Result<*mut RawResults, Error> {
        let call = self.function(fid)?;
        has_result(&call)?;
        let good = self.results(fid, &call)?;
        let mut zeros = vec![0_u128; results::nothing(&call).len().div_ceil(16)];
        let nothing = zeros.as_mut_ptr();
        let none = || RawResults {
            res: AtomicPtr::new(nothing.cast()),
            ts: 0,
            size: 0,
        };
        let mut new = Shown {
            results: (0..self.size()).map(|_| none()).collect(),
            generations: vec![0; self.size()],
            _flows: Vec::new(),
            _zeros: zeros,
        };
        for (at, flow, result) in good {
            new.results[at] = result;
            new.generations[at] = flow.generation.load(Ordering::Relaxed);
            new._flows.push(flow);
        }
        let mut shown = lock(&self.shown);
        shown.insert(fid, new);
        let results = shown.get_mut(&fid).map(|shown| shown.results.as_mut_ptr());
        Ok(results.unwrap_or(core::ptr::null_mut()))
    }

    fn generation(&self, fid: c_int, member: usize) -> Option<u32> {
        let shown = lock(&self.shown);
        let generations = shown.get(&fid).map(|shown| &shown.generations);
        generations.map_or(Some(0), |all| all.get(member).copied())
    }

    fn next(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Error> {
        let call = self.function(fid)?;
        has_packets(&call)?;
        let waits = call.number(0).unwrap_or(0) == 0;
        let is_elsewhere = self.members.all().all(|member| member.address.is_some());
        let has_own = lock(&self.calls).iter().any(|call| call.function.is_own());
        let is_told = is_elsewhere && !has_own && lock(&self.turn).turns.is_in_turn();
        let mut look = FIRST_LOOK;
        while !self.is_closed() {
            let news = self.news.count();
            match self.next_there(fid) {
                Ok(None) if waits && is_told => self.news.wait(news, LAST_LOOK),
                Ok(None) if waits => thread::sleep(look),
                Ok(packet) => return Ok(packet),
                Err(None) => break,
                Err(Some(error)) => return Err(error),
            }
            look = (look * 2).min(LAST_LOOK / 5);
        }
        Ok(None)
    }

    fn passed(&self, fid: usize) -> Result<(u64, u64), Error> {
        let passed = self
            .refresh()
            .into_iter()
            .filter_map(|(_, flow)| flow.passed(fid).ok());
        Ok(passed.fold((0, 0), |sum, (came, passed)| (sum.0 + came, sum.1 + passed)))
    }

    fn status(&self) -> Result<Status, Error> {
        if self.since.get().is_none() {
            return Ok(Status::Init);
        }
        let there = self.refresh();
        let is_over = !there.is_empty() && there.iter().all(|(_, flow)| flow.is_over());
        Ok(if is_over {
            Status::Finished
        } else {
            Status::Active
        })
    }

    fn since(&self) -> u64 {
        self.since.get().map_or(0, |since| seconds(*since))
    }

    fn until(&self) -> u64 {
        let flows = self.flows();
        match flows.iter().all(|(_, flow)| flow.is_over()) {
            true => flows
                .iter()
                .map(|(_, flow)| flow.until())
                .max()
                .unwrap_or(0),
            false => 0,
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) -> Result<(), Error> {
        // Whoever adds a member sees it, or its flow is seen here.
        let setup = lock(&self.setup);
        self.is_closed.store(true, Ordering::Relaxed);
        self.members.end();
        drop(setup);
        // A member that has gone has ended its flow.
        each(&self.flows(), |(_, flow)| flow.close().ok());
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.flows().len() < self.size()
    }

    fn is_remote(&self) -> bool {
        self.members.all().any(|member| member.address.is_some())
    }

    fn size(&self) -> usize {
        self.members.size()
    }

    fn member(&self, at: usize) -> Option<MemberInfo> {
        let state = self.members.state(at)?;
        let (number, reason) = match state.state {
            "down" => (1, ""),
            "refused" => (2, ""),
            "late" => (3, "it does not answer"),
            _ => (0, ""),
        };
        Some(MemberInfo {
            name: state.member.to_string(),
            state: number,
            since: state.since,
            generation: state.generation,
            reason: state.trouble.map_or(reason.to_owned(), |it| it.what),
        })
    }
}
