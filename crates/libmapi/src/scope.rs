//! A flow on devices of many sensors: each member is a flow as any other, and what is asked for is asked of all at the same time.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flowgauge_mapi::{Call, Error, Shape};
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::{Client, Readings, Sensors};

use crate::abi::{RawPacket, RawResults};
use crate::error::{NO_DEVICE, NOT_BUILT, NOT_CONNECTED, SOCKET, of_client};
use crate::results;
use crate::session::{
    ANSWER, Arguments, Descriptor, FIRST_LOOK, Flow, GONE, LAST_LOOK, MemberInfo, Status, call,
    calls_of, connected_twice, has_packets, has_result, lock, open_waiting, seconds, too_late,
};

/// How long a member may take to set a flow up, or for a table. One that does not give its numbers is not asked for tables.
const SETUP: Duration = Duration::from_secs(5);
/// A member that is down is tried again after this time, and twice as long after each failure, up to the last.
const FIRST_TRY: Duration = Duration::from_millis(500);
const LAST_TRY: Duration = Duration::from_secs(10);
/// Threads that ask members at once.
const MOST_THREADS: usize = 32;

/// A flow that has members.
#[derive(Debug)]
pub(crate) struct Scope {
    fd: c_int,
    device_id: c_int,
    text: String,
    sensors: Arc<Sensors>,
    places: Vec<Place>,
    /// Who applies functions, connects, or adds a member that is back.
    setup: Mutex<()>,
    calls: Mutex<Vec<Call>>,
    /// When it was connected.
    since: OnceLock<SystemTime>,
    /// What the program was given of functions.
    shown: Mutex<BTreeMap<c_int, Shown>>,
    turn: Mutex<Turn>,
    is_closed: AtomicBool,
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// A member.
#[derive(Debug)]
struct Place {
    member: Member,
    state: Mutex<State>,
}

/// How a member is.
#[derive(Debug)]
struct State {
    flow: Option<Arc<Flow>>,
    /// Why there is none.
    error: Option<Error>,
    /// It did not answer when it was asked last.
    is_late: bool,
    since: SystemTime,
    /// How often its flow was set up.
    generation: u32,
    try_at: Instant,
    delay: Duration,
    /// A flow that failed and is still in its sensor.
    failed: Option<Arc<Flow>>,
}

/// A vector of results, until the function is read again.
#[derive(Debug)]
struct Shown {
    results: Vec<RawResults>,
    /// Where they point to: flows have their own, and zeros are for the others, as large structures are aligned.
    _flows: Vec<Arc<Flow>>,
    _zeros: Vec<u128>,
}

/// Whose packet is next, and whose the program has.
#[derive(Debug, Default)]
struct Turn {
    at: usize,
    _current: Option<Arc<Flow>>,
}

/// Does something with all of many at once. Results are in their order.
fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let size = all.len().div_ceil(MOST_THREADS).max(1);
    let some = |some: &[T]| some.iter().map(&work).collect::<Vec<R>>();
    if all.len() <= 1 {
        return some(all);
    }
    thread::scope(|scope| {
        let started = all.chunks(size).map(|chunk| {
            let thread = thread::Builder::new().spawn_scoped(scope, || some(chunk));
            thread.map_err(|_| chunk)
        });
        let started: Vec<_> = started.collect();
        let done = started.into_iter().flat_map(|started| match started {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|fault| std::panic::resume_unwind(fault)),
            Err(chunk) => some(chunk),
        });
        done.collect()
    })
}

/// The error that says most: not that one cannot be reached, where another says why.
fn first(errors: impl Iterator<Item = Error>) -> Option<Error> {
    errors.min_by_key(|error| error.number == SOCKET)
}

fn is_passing(error: &Error) -> bool {
    error.number == SOCKET
}

impl Scope {
    /// A flow on all members. `number` gives its descriptor and the number of its device, once there is one.
    pub(crate) fn create(
        text: &str,
        sensors: Arc<Sensors>,
        members: Vec<Member>,
        number: &dyn Fn() -> (c_int, c_int),
    ) -> Result<Arc<Scope>, Error> {
        let found = each(&members, |member| find(&sensors, member));
        if found.iter().all(Result::is_err) {
            let error = first(found.into_iter().filter_map(Result::err));
            return Err(error.unwrap_or_else(unreachable));
        }
        let (fd, device_id) = number();
        let places = members.into_iter().zip(found).map(|(member, found)| {
            let mut state = State {
                flow: None,
                error: None,
                is_late: false,
                since: SystemTime::now(),
                generation: 0,
                try_at: Instant::now(),
                delay: FIRST_TRY,
                failed: None,
            };
            match found {
                Ok(found) => state.begin(found.flow(fd)),
                Err(error) => state.fail(error),
            }
            Place {
                member,
                state: Mutex::new(state),
            }
        });
        let scope = Arc::new(Scope {
            fd,
            device_id,
            text: text.to_owned(),
            sensors,
            places: places.collect(),
            setup: Mutex::default(),
            calls: Mutex::default(),
            since: OnceLock::new(),
            shown: Mutex::default(),
            turn: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_over: Mutex::new(false),
            ended: Condvar::new(),
        });
        let looking = Arc::downgrade(&scope);
        // Without it, members that go do not come back.
        let _ = thread::Builder::new()
            .name("mapi-scope".to_owned())
            .spawn(move || look(&looking));
        Ok(scope)
    }

    /// The members that are there, and their flows.
    fn flows(&self) -> Vec<(usize, Arc<Flow>)> {
        let flows = self.places.iter().enumerate().filter_map(|(at, place)| {
            let mut state = lock(&place.state);
            state.look();
            Some((at, Arc::clone(state.flow.as_ref()?)))
        });
        flows.collect()
    }

    /// Does something to the flows of all members that are there. Those that fail are left out from then on, unless all do.
    fn on_all(&self, work: impl Fn(&Flow) -> Result<(), Error> + Sync) -> Result<(), Error> {
        let flows = self.flows();
        let done = each(&flows, |(_, flow)| work(flow));
        let is_done = done.iter().any(Result::is_ok);
        let mut errors = Vec::new();
        for ((at, flow), done) in flows.iter().zip(done) {
            if let Err(error) = done {
                if is_done || is_passing(&error) {
                    self.fail(*at, flow, error.clone());
                }
                errors.push(error);
            }
        }
        match is_done {
            true => Ok(()),
            false => Err(first(errors.into_iter()).unwrap_or_else(unreachable)),
        }
    }

    /// Notes that a member's flow has failed.
    fn fail(&self, at: usize, flow: &Arc<Flow>, error: Error) {
        let mut state = lock(&self.places[at].state);
        if state
            .flow
            .as_ref()
            .is_some_and(|its| Arc::ptr_eq(its, flow))
        {
            state.fail(error);
        }
    }

    /// The function of a number, of a flow that is connected.
    fn function(&self, fid: c_int) -> Result<Call, Error> {
        self.is_connected()?;
        let at = usize::try_from(fid).ok().and_then(|fid| fid.checked_sub(1));
        let found = at.and_then(|at| lock(&self.calls).get(at).cloned());
        let unknown = || format!("flow {} has no function {fid}", self.fd);
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
            let mut state = lock(&self.places[at].state);
            state.look();
            state.set_late(!came);
            if came {
                there.push((at, Arc::clone(&flow)));
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
        let read = |(_, flow): &(usize, Arc<Flow>)| flow.result(fid);
        let results = match call.function.result {
            // What was told is read.
            Shape::Number(_) | Shape::File => there.iter().map(read).collect(),
            _ => each(&there, read),
        };
        let (mut good, mut reasons) = (Vec::new(), Vec::new());
        for ((at, flow), result) in there.into_iter().zip(results) {
            match result {
                Ok(result) => good.push((at, flow, result)),
                Err(error) if flow.has_failed() => self.fail(at, &flow, error),
                Err(error) if is_passing(&error) => {
                    let mut state = lock(&self.places[at].state);
                    state.look();
                    state.set_late(true);
                }
                Err(error) => reasons.push(error),
            }
        }
        match reasons.into_iter().next() {
            Some(reason) if good.is_empty() => Err(reason),
            _ => Ok(good),
        }
    }

    /// A packet that is there, of the members in turn. `Err(None)`: nothing more comes.
    fn next_there(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Option<Error>> {
        let mut turn = lock(&self.turn);
        let mut flows = self.flows();
        let from = flows.partition_point(|(at, _)| *at < turn.at);
        flows.rotate_left(from);
        if flows.is_empty() {
            return Err(Some(unreachable()));
        }
        let limit = match flows.len() {
            1 => LAST_LOOK,
            _ => Duration::ZERO,
        };
        let mut is_over = true;
        for (at, flow) in flows {
            // In this order: what came before the end is taken.
            let is_last = flow.is_over();
            match flow.next_within(fid, limit) {
                Ok(Some(packet)) => {
                    turn.at = at + 1;
                    turn._current = Some(flow);
                    return Ok(Some(packet));
                }
                Ok(None) if flow.has_failed() => {
                    self.fail(at, &flow, Error::new(SOCKET, "the flow has failed"));
                }
                Ok(None) => is_over &= is_last,
                Err(error) if is_passing(&error) => self.fail(at, &flow, error),
                Err(error) => return Err(Some(error)),
            }
        }
        if is_over { Err(None) } else { Ok(None) }
    }

    /// Sets flows up anew where members are down and it is time to try.
    fn revive(&self) {
        let now = Instant::now();
        let due = self.places.iter().filter(|place| {
            let mut state = lock(&place.state);
            state.look();
            let is_down = state.error.as_ref().is_some_and(is_passing);
            is_down && state.try_at <= now
        });
        let due: Vec<&Place> = due.collect();
        each(&due, |place| {
            let failed = lock(&place.state).failed.take();
            if let Some(failed) = failed {
                let _ = failed.close();
            }
            let revived = find(&self.sensors, &place.member)
                .and_then(|found| self.follow(place, Arc::new(found.flow(self.fd))));
            if let Err(error) = revived {
                lock(&place.state).fail(error);
            }
        });
    }

    /// Brings the flow of a member to where those of others are.
    fn follow(&self, place: &Place, flow: Arc<Flow>) -> Result<(), Error> {
        loop {
            let calls = lock(&self.calls).clone();
            for call in calls.iter().skip(flow.functions().len()) {
                flow.add(call.clone())?;
            }
            let was_connected = self.was_connected();
            if was_connected && !flow.was_connected() {
                flow.open_alone()?;
            }
            let setup = lock(&self.setup);
            let is_same = lock(&self.calls).len() == calls.len();
            if self.is_closed() {
                drop(setup);
                return flow.close();
            }
            if is_same && self.was_connected() == was_connected {
                lock(&place.state).begin_with(flow);
                return Ok(());
            }
        }
    }
}

/// A member's device, which is there.
struct Found {
    client: Client,
    status: flowgauge_sensor_client::protocol::DeviceStatus,
}

impl Found {
    fn flow(self, fd: c_int) -> Flow {
        Flow::new(fd, self.client, &self.status)
    }
}

fn find(sensors: &Sensors, member: &Member) -> Result<Found, Error> {
    let failed = |error| {
        let error = of_client(&error, NO_DEVICE);
        Error::new(error.number, format!("{member}: {}", error.message))
    };
    let client = sensors.client(member).map_err(failed)?.with_patience(SETUP);
    let devices = client.status().map_err(failed)?.devices;
    let mut known = devices.iter();
    match known.find(|status| status.device == member.device) {
        Some(status) => Ok(Found {
            status: status.clone(),
            client,
        }),
        None => {
            let known: Vec<&str> = devices.iter().map(|known| known.device.as_str()).collect();
            let what = format!(
                "{member}: the sensor has no such device, but {}",
                known.join(", ")
            );
            Err(Error::new(NO_DEVICE, what))
        }
    }
}

fn unreachable() -> Error {
    Error::new(
        SOCKET,
        "no sensor of the scope can be reached; they are tried again",
    )
}

impl State {
    fn begin(&mut self, flow: Flow) {
        self.begin_with(Arc::new(flow));
    }

    fn begin_with(&mut self, flow: Arc<Flow>) {
        self.flow = Some(flow);
        self.error = None;
        self.is_late = false;
        self.since = SystemTime::now();
        self.generation += 1;
        self.delay = FIRST_TRY;
    }

    /// Notes whether it has gone.
    fn look(&mut self) {
        if self.flow.as_ref().is_some_and(|flow| flow.is_gone()) {
            self.fail(Error::new(SOCKET, GONE));
        }
    }

    fn fail(&mut self, error: Error) {
        let flow = self.flow.take();
        if flow.is_some() || self.error.is_none() {
            self.since = SystemTime::now();
        }
        self.failed = flow.filter(|flow| !flow.is_gone());
        self.error = Some(error);
        self.is_late = false;
        self.try_at = Instant::now() + self.delay;
        self.delay = (self.delay * 2).min(LAST_TRY);
    }

    fn set_late(&mut self, is_late: bool) {
        if self.flow.is_some() && self.is_late != is_late {
            self.is_late = is_late;
            self.since = SystemTime::now();
        }
    }
}

/// Sets flows up anew until the scope is closed.
fn look(scope: &Weak<Scope>) {
    while let Some(scope) = scope.upgrade() {
        let is_over = lock(&scope.is_over);
        let waited = scope.ended.wait_timeout(is_over, FIRST_TRY);
        let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if is_over {
            return;
        }
        scope.revive();
    }
}

impl Descriptor for Scope {
    fn fd(&self) -> c_int {
        self.fd
    }

    fn device(&self) -> &str {
        &self.text
    }

    fn device_id(&self) -> c_int {
        self.device_id
    }

    fn apply(&self, name: &str, arguments: Arguments<'_>) -> Result<c_int, Error> {
        let _setup = lock(&self.setup);
        if self.was_connected() {
            return Err(too_late());
        }
        let call = call(name, arguments)?;
        let name = call.function.name;
        if call.function.is_own() || name == "SYNC" {
            let what = format!("{name}: is not built for flows on several sensors");
            return Err(Error::new(NOT_BUILT, what));
        }
        let mut calls = lock(&self.calls).clone();
        calls.push(call.clone());
        let stack = flowgauge_mapi::stack(&calls, self.fd.into(), &calls_of)?;
        if !stack.targets.is_empty() {
            let what = format!(
                "{name} writes on this machine, to which sensors of others cannot; hint: have packets (TO_BUFFER) or results come, and write them"
            );
            return Err(Error::new(Error::FILE, what));
        }
        self.on_all(|flow| flow.add(call.clone()).map(drop))?;
        let fid = calls.len() as c_int;
        *lock(&self.calls) = calls;
        Ok(fid)
    }

    fn functions(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    fn connect(&self) -> Result<(), Error> {
        let setup = lock(&self.setup);
        if self.was_connected() {
            return Err(connected_twice());
        }
        self.on_all(Flow::open_alone)?;
        let _ = self.since.set(SystemTime::now());
        drop(setup);
        // Those on this machine that waited for it.
        open_waiting(self.fd)
    }

    fn was_connected(&self) -> bool {
        self.since.get().is_some()
    }

    fn is_connected(&self) -> Result<(), Error> {
        match self.was_connected() {
            true => Ok(()),
            false => Err(Error::new(NOT_CONNECTED, "the flow is not connected")),
        }
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
            results: self.places.iter().map(|_| none()).collect(),
            _flows: Vec::new(),
            _zeros: zeros,
        };
        for (at, flow, result) in good {
            new.results[at] = result;
            new._flows.push(flow);
        }
        let mut shown = lock(&self.shown);
        shown.insert(fid, new);
        let results = shown.get_mut(&fid).map(|shown| shown.results.as_mut_ptr());
        Ok(results.unwrap_or(core::ptr::null_mut()))
    }

    fn next(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Error> {
        let call = self.function(fid)?;
        has_packets(&call)?;
        let waits = call.number(0).unwrap_or(0) == 0;
        let mut look = FIRST_LOOK;
        while !self.is_closed() {
            match self.next_there(fid) {
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
        if !self.was_connected() {
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
        *lock(&self.is_over) = true;
        self.ended.notify_all();
        drop(setup);
        // A member that has gone has ended its flow.
        each(&self.flows(), |(_, flow)| flow.close().ok());
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.flows().len() < self.places.len()
    }

    fn is_remote(&self) -> bool {
        self.places
            .iter()
            .any(|place| place.member.address.is_some())
    }

    fn size(&self) -> usize {
        self.places.len()
    }

    fn member(&self, at: usize) -> Option<MemberInfo> {
        let place = self.places.get(at)?;
        let mut state = lock(&place.state);
        state.look();
        let (number, reason) = match &state.error {
            Some(error) if is_passing(error) => (1, error.message.as_str()),
            Some(error) => (2, error.message.as_str()),
            None if state.is_late => (3, "it does not answer"),
            None => (0, ""),
        };
        Some(MemberInfo {
            name: place.member.to_string(),
            state: number,
            since: state.since,
            generation: state.generation,
            reason: reason.to_owned(),
        })
    }
}
