//! A flow on devices of many sensors: opened on all at the same time, asked on all at the same time.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flowgauge_link::Identity;
use serde_json::{Map, Value};

use crate::client::{Client, ClientError, Pending};
use crate::flow::{Flow, Packet, Reading, Readings};
use crate::protocol::{Request, Results};
use crate::scope::Member;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the answer of a member is waited for; while it owes one, it is not waited for again.
const ANSWER: Duration = Duration::from_secs(1);
/// A member that is down is tried again after this time, and twice as long after each failure, up to the last.
const FIRST_TRY: Duration = Duration::from_millis(500);
const LAST_TRY: Duration = Duration::from_secs(10);
/// Threads that connect at once.
const CONNECTING: usize = 32;

/// Connections to sensors, one for each, which flows share.
#[derive(Debug)]
pub struct Sensors {
    /// The socket of this machine's.
    socket: PathBuf,
    identity: Option<Identity>,
    open: Mutex<BTreeMap<String, Arc<Mutex<Open>>>>,
}

/// A connection, if there is one.
#[derive(Debug, Default)]
struct Open {
    client: Option<Client>,
    /// When it was tried last without success, and why: those who waited for that do not try in turn.
    failed: Option<(Instant, String, Option<String>)>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sensors {
    /// With the socket of this machine's sensor, and who this machine is to those of others.
    pub fn new(socket: PathBuf, identity: Option<Identity>) -> Sensors {
        Sensors {
            socket,
            identity,
            open: Mutex::default(),
        }
    }

    /// The connection to a member's sensor.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn client(&self, member: &Member) -> Result<Client, ClientError> {
        let asked = Instant::now();
        let key = member.address.clone().unwrap_or_default();
        let place = Arc::clone(lock(&self.open).entry(key).or_default());
        // Others to the same sensor wait for this one, those to other sensors do not.
        let mut place = lock(&place);
        if let Some(client) = place.client.as_ref().filter(|client| !client.is_gone()) {
            return Ok(client.clone());
        }
        if let Some((at, what, hint)) = &place.failed
            && *at >= asked
        {
            return Err(ClientError::NotReached(what.clone(), hint.clone()));
        }
        place.client = None;
        match self.connect(member) {
            Ok(client) => Ok(place.client.insert(client).clone()),
            Err(error) => {
                place.failed = Some((Instant::now(), error.to_string(), error.hint()));
                Err(error)
            }
        }
    }

    fn connect(&self, member: &Member) -> Result<Client, ClientError> {
        match (&member.address, &self.identity) {
            (None, _) => Client::connect(&self.socket),
            (Some(address), Some(identity)) => Client::connect_to(identity, address, None, CONNECT),
            (Some(_), None) => Err(ClientError::Nobody),
        }
    }
}

/// A flow that has members.
#[derive(Debug)]
pub struct ScopeFlow {
    inner: Arc<Inner>,
    /// Whose turn it is to give a packet.
    turn: usize,
}

#[derive(Debug)]
struct Inner {
    sensors: Arc<Sensors>,
    stack: String,
    /// Files that its components write to; a sensor elsewhere refuses them.
    files: Vec<OwnedFd>,
    /// How often numbers come by themselves; zero: when they are asked for.
    push: Duration,
    members: Vec<(Member, Mutex<State>)>,
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// How a member is.
#[derive(Debug)]
struct State {
    flow: Option<Flow>,
    /// Why there is none.
    error: Option<ClientError>,
    since: SystemTime,
    /// How often it was opened.
    generation: u32,
    try_at: Instant,
    delay: Duration,
    /// The answer that it owes.
    owed: Option<Pending>,
}

/// How a member of a flow is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Which.
    pub member: Member,
    /// `ok`, `down` or `refused`.
    pub state: &'static str,
    /// Since when.
    pub since: SystemTime,
    /// Why it is not ok, and what to do about it.
    pub error: Option<(String, Option<String>)>,
    /// How often the flow was set up there: from the second time on its results begin anew.
    pub generation: u32,
}

impl ScopeFlow {
    /// Opens a flow on all members. Those that cannot be reached are tried again from time to time; those that refuse are not.
    ///
    /// # Errors
    /// That of the first, where no member has the flow.
    pub fn open(
        sensors: &Arc<Sensors>,
        members: Vec<Member>,
        stack: &str,
        files: &[OwnedFd],
        push: Duration,
    ) -> Result<ScopeFlow, ClientError> {
        let new = |member| {
            let state = State {
                flow: None,
                error: None,
                since: SystemTime::now(),
                generation: 0,
                try_at: Instant::now(),
                delay: FIRST_TRY,
                owed: None,
            };
            (member, Mutex::new(state))
        };
        let inner = Arc::new(Inner {
            sensors: Arc::clone(sensors),
            stack: stack.to_owned(),
            files: (files.iter())
                .map(OwnedFd::try_clone)
                .collect::<Result<_, _>>()?,
            push,
            members: members.into_iter().map(new).collect(),
            is_over: Mutex::new(false),
            ended: Condvar::new(),
        });
        inner.connect();
        let mut states = inner.members.iter().map(|(_, state)| lock(state));
        if states.all(|state| state.flow.is_none())
            && let Some((_, first)) = inner.members.first()
        {
            return Err(lock(first).error.take().unwrap_or(ClientError::Nobody));
        }
        let looking = Arc::downgrade(&inner);
        // Without it, members that go do not come back.
        let _ = thread::Builder::new()
            .name("fg-scope".to_owned())
            .spawn(move || look(&looking));
        Ok(ScopeFlow { inner, turn: 0 })
    }

    /// How many members it has.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// Whether no more comes to any member that has the flow, as far as they have told.
    pub fn is_over(&self) -> bool {
        let states = self.inner.members.iter().map(|(_, state)| lock(state));
        let mut flows = states
            .filter_map(|state| Some(state.flow.as_ref()?.readings()))
            .peekable();
        flows.peek().is_some() && flows.all(|readings| readings.latest(0).is_last)
    }

    /// How each member is.
    pub fn states(&self) -> Vec<MemberState> {
        let members = self.inner.members.iter();
        let states = members.map(|(member, state)| {
            let state = lock(state);
            let error = state.error.as_ref();
            MemberState {
                member: member.clone(),
                state: match error {
                    None => "ok",
                    Some(error) if is_final(error) => "refused",
                    Some(_) => "down",
                },
                since: state.since,
                error: error.map(|error| (error.to_string(), error.hint())),
                generation: state.generation,
            }
        });
        states.collect()
    }

    /// What a component has counted at each member, by its label: asked of all at the same time, where they do not send it by
    /// themselves. Nothing of those that are down; of those that do not answer what they said last.
    pub fn read(&self, component: &str) -> Vec<Option<Reading>> {
        let readings = self.inner.members.iter().map(|(_, state)| {
            let mut state = lock(state);
            self.inner.look_at(&mut state);
            let flow = state.flow.as_ref()?;
            Some((flow.readings(), flow.component(component)?))
        });
        let readings: Vec<_> = readings.collect();
        let all = readings.iter().flatten().map(|(readings, _)| readings);
        Readings::refresh(all, ANSWER);
        let read = readings.iter();
        read.map(|found| found.as_ref().map(|(readings, at)| readings.latest(*at)))
            .collect()
    }

    /// The results of each member, in the order of the scope, or why there are none.
    pub fn results(&self) -> Vec<Result<Results, String>> {
        self.ask(|flow| Request::Results { flow, take: None })
    }

    /// The table of a component, by its label, which each member forgets.
    pub fn take(&self, component: &str) -> Vec<Result<Results, String>> {
        self.ask(|flow| Request::Results {
            flow,
            take: Some(component.to_owned()),
        })
    }

    /// Takes the rows that wait in tables of components that keep them to be taken, as far as members have told: by member, each
    /// with the place of its component.
    pub fn take_rows(&self) -> Vec<Vec<(usize, Map<String, Value>)>> {
        let all = self.inner.members.iter().map(|(_, state)| {
            let state = lock(state);
            let Some(flow) = state.flow.as_ref().filter(|_| state.owed.is_none()) else {
                return Vec::new();
            };
            let (readings, client, number) =
                (flow.readings(), flow.client().clone(), flow.number());
            let components = flow.opened().components.clone();
            drop(state);
            let waiting = components.iter().enumerate();
            let waiting = waiting.filter(|(at, _)| readings.latest(*at).rows > 0);
            let rows = waiting.flat_map(|(at, label)| {
                let taken = client.take(number, label).map(|taken| taken.components);
                let its = taken.unwrap_or_default().into_iter();
                let its = its.filter(|component| component.component == *label);
                its.flat_map(move |component| component.rows.unwrap_or_default())
                    .map(move |row| (at, row))
            });
            rows.collect()
        });
        all.collect()
    }

    /// Asks all members for what their components have counted.
    pub fn refresh(&self) {
        let states = self.inner.members.iter().map(|(_, state)| lock(state));
        let readings = states.filter_map(|state| Some(state.flow.as_ref()?.readings()));
        let readings: Vec<Readings> = readings.collect();
        Readings::refresh(readings.iter(), ANSWER);
    }

    /// Ends the flow. Returns its last results.
    pub fn close(&mut self) -> Vec<Result<Results, String>> {
        self.inner.end();
        let last = self.ask(|flow| Request::Close { flow });
        for (_, state) in &self.inner.members {
            if let Some(flow) = lock(state).flow.take() {
                flow.client().forget(flow.number());
            }
        }
        last
    }

    fn ask(&self, request: impl Fn(u64) -> Request) -> Vec<Result<Results, String>> {
        let begun = self.inner.members.iter().map(|(_, state)| {
            let mut state = lock(state);
            self.inner.look_at(&mut state);
            // An answer that comes late is nobody's.
            if state.owed.as_mut().is_some_and(|owed| owed.is_due()) {
                return Err("it does not answer".to_owned());
            }
            state.owed = None;
            let Some(flow) = &state.flow else {
                let error = state.error.as_ref();
                return Err(error.map_or_else(String::new, ClientError::to_string));
            };
            let begun = flow.client().begin(&request(flow.number()));
            begun.map_err(|error| error.to_string())
        });
        let begun: Vec<Result<Pending, String>> = begun.collect();
        let until = Instant::now() + ANSWER;
        let members = self.inner.members.iter();
        let answers = members.zip(begun).map(|((_, state), begun)| {
            let mut pending = begun?;
            match pending.results(until) {
                Ok(Some(results)) => Ok(results),
                Ok(None) => {
                    lock(state).owed = Some(pending);
                    Err("it does not answer".to_owned())
                }
                Err(error) => Err(error.to_string()),
            }
        });
        answers.collect()
    }

    /// The next packet, of the members in turn, and whose it is. `None`: none came within `limit`, or none will.
    pub fn next(&mut self, limit: Duration) -> Option<(usize, Vec<u8>, usize)> {
        const LOOK: Duration = Duration::from_millis(2);

        let until = Instant::now().checked_add(limit);
        loop {
            let mut is_over = true;
            for _ in 0..self.inner.members.len() {
                let at = self.turn % self.inner.members.len();
                self.turn = at + 1;
                let mut state = lock(&self.inner.members[at].1);
                self.inner.look_at(&mut state);
                let Some(flow) = &mut state.flow else {
                    continue;
                };
                is_over &= flow.readings().latest(0).is_over();
                if let Ok(Some(Packet { component, record })) = flow.next(Duration::ZERO) {
                    return Some((at, record.to_vec(), component));
                }
            }
            if is_over || until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            thread::sleep(LOOK);
        }
    }

    /// Has the files of the members' devices read.
    pub fn start(&self) -> Vec<Result<(), ClientError>> {
        let members = self.inner.members.iter();
        let started = members.map(|(member, _)| {
            let client = self.inner.sensors.client(member);
            client.and_then(|client| client.start(&member.device))
        });
        started.collect()
    }
}

impl Drop for ScopeFlow {
    fn drop(&mut self) {
        self.inner.end();
        for (_, state) in &self.inner.members {
            if let Some(flow) = lock(state).flow.take() {
                end(&flow);
            }
        }
    }
}

impl Inner {
    fn end(&self) {
        *lock(&self.is_over) = true;
        self.ended.notify_all();
    }

    /// Notes that a member has gone.
    fn look_at(&self, state: &mut State) {
        let is_gone = |flow: &Flow| flow.client().is_gone();
        if state.flow.as_ref().is_some_and(is_gone) {
            state.fail(ClientError::Lost);
        }
    }

    /// Opens the flow where it is not, and can be tried again.
    fn connect(&self) {
        let now = Instant::now();
        let wanted = self.members.iter().filter(|(_, state)| {
            let mut state = lock(state);
            self.look_at(&mut state);
            let is_refused = state.error.as_ref().is_some_and(is_final);
            state.flow.is_none() && !is_refused && state.try_at <= now
        });
        let wanted: Vec<&(Member, Mutex<State>)> = wanted.collect();
        let each = wanted.len().div_ceil(CONNECTING).max(1);
        thread::scope(|scope| {
            for some in wanted.chunks(each) {
                let open = || {
                    some.iter()
                        .for_each(|(member, state)| self.open(member, state))
                };
                match wanted.len() {
                    1 => open(),
                    _ => drop(scope.spawn(open)),
                }
            }
        });
    }

    fn open(&self, member: &Member, state: &Mutex<State>) {
        let client = self.sensors.client(member);
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(OwnedFd::as_fd).collect();
        let opened = client.and_then(|client| client.open(&member.device, &self.stack, &files));
        let opened = opened.and_then(|flow| match self.push.is_zero() {
            true => Ok(flow),
            false => flow.push(self.push).map(|()| flow),
        });
        let mut state = lock(state);
        match opened {
            Ok(flow) if *lock(&self.is_over) => end(&flow),
            Ok(flow) => {
                state.flow = Some(flow);
                state.error = None;
                state.owed = None;
                state.since = SystemTime::now();
                state.generation += 1;
                state.delay = FIRST_TRY;
            }
            Err(error) => state.fail(error),
        }
    }
}

impl State {
    fn fail(&mut self, error: ClientError) {
        if self.flow.take().is_some() || self.error.is_none() {
            self.since = SystemTime::now();
        }
        self.error = Some(error);
        self.owed = None;
        self.try_at = Instant::now() + self.delay;
        self.delay = (self.delay * 2).min(LAST_TRY);
    }
}

/// Ends a flow whose last results nobody waits for.
fn end(flow: &Flow) {
    let number = flow.number();
    flow.client().forget(number);
    let _ = flow.client().begin(&Request::Close { flow: number });
}

/// Whether it will not be otherwise later.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if !refusal.is_passing)
}

/// Opens the flow anew where it ended, until it is over.
fn look(inner: &Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        let is_over = lock(&inner.is_over);
        let waited = inner.ended.wait_timeout(is_over, FIRST_TRY);
        let is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *is_over {
            return;
        }
        drop(is_over);
        inner.connect();
    }
}
