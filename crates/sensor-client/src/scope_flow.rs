//! A flow on devices of many sensors: opened on all at the same time, asked on all at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use flowgauge_link::{Identity, Reactor};
use serde_json::{Map, Value};

use crate::client::{Client, ClientError, Pending};
use crate::flow::{Flow, Packet, Reading, Readings};
use crate::members::{Held, MemberState, Members, Trouble, keep_trying, lock};
use crate::protocol::{Request, Results, Secret};
use crate::remote::{News, PREFETCH};
use crate::scope::Member;
use crate::turns::{Head, Next, Turns};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the answer of a member is waited for; while it owes one, it is not waited for again.
const ANSWER: Duration = Duration::from_secs(1);

/// Connections to sensors, one for each, which flows share.
#[derive(Debug)]
pub struct Sensors {
    /// The socket of this machine's.
    socket: PathBuf,
    identity: Option<Identity>,
    /// What is brought to each.
    credential: Option<Secret>,
    /// What receives for all of them.
    reactor: OnceLock<Reactor>,
    open: Mutex<BTreeMap<String, Arc<Mutex<Open>>>>,
}

/// A connection, if there is one.
#[derive(Debug, Default)]
struct Open {
    client: Option<Client>,
    /// Devices that are there.
    devices: BTreeSet<String>,
    /// When it was tried last without success, and why: those who waited for that do not try in turn.
    failed: Option<(Instant, Arc<ClientError>)>,
}

impl Sensors {
    /// With the socket of this machine's sensor, and who this machine is to those of others.
    pub fn new(socket: PathBuf, identity: Option<Identity>) -> Sensors {
        Sensors {
            socket,
            identity,
            credential: None,
            reactor: OnceLock::new(),
            open: Mutex::default(),
        }
    }

    /// With a credential that is brought to each of them.
    #[must_use]
    pub fn with_credential(mut self, credential: Option<Secret>) -> Sensors {
        self.credential = credential;
        self
    }

    /// The connection to a member's sensor.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn client(&self, member: &Member) -> Result<Client, ClientError> {
        let asked = Instant::now();
        let place = self.place(member);
        // Others to the same sensor wait for this one, those to other sensors do not.
        let mut place = lock(&place);
        if let Some(client) = place.client.as_ref().filter(|client| !client.is_gone()) {
            return Ok(client.clone());
        }
        if let Some((at, error)) = &place.failed
            && *at >= asked
        {
            return Err(ClientError::NotReached(Arc::clone(error)));
        }
        *place = Open::default();
        match self.connect(member) {
            Ok(client) => Ok(place.client.insert(client).clone()),
            Err(error) => {
                let error = Arc::new(error);
                place.failed = Some((Instant::now(), Arc::clone(&error)));
                Err(ClientError::NotReached(error))
            }
        }
    }

    /// The connection to a member's sensor, if there is one: nothing is waited for.
    pub fn connected(&self, member: &Member) -> Option<Client> {
        let place = self.place(member);
        let place = place.try_lock().ok()?;
        let client = place.client.as_ref().filter(|client| !client.is_gone());
        client.cloned()
    }

    /// The connection to a member's sensor, which has the member's device: it is asked once for each.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn device(&self, member: &Member) -> Result<Client, ClientError> {
        let client = self.client(member)?;
        let place = self.place(member);
        if !lock(&place).devices.contains(&member.device) {
            client.check(&member.device, "")?;
            lock(&place).devices.insert(member.device.clone());
        }
        Ok(client)
    }

    fn reactor(&self) -> Result<&Reactor, ClientError> {
        match self.reactor.get() {
            Some(reactor) => Ok(reactor),
            None => {
                // Another thread may have been first.
                let new = Reactor::new()?;
                Ok(self.reactor.get_or_init(|| new))
            }
        }
    }

    fn place(&self, member: &Member) -> Arc<Mutex<Open>> {
        let key = member.address.clone().unwrap_or_default();
        Arc::clone(lock(&self.open).entry(key).or_default())
    }

    fn connect(&self, member: &Member) -> Result<Client, ClientError> {
        let client = match (&member.address, &self.identity) {
            (None, _) => Client::connect(&self.socket),
            (Some(address), Some(identity)) => {
                Client::connect_on(self.reactor()?, identity, address, None, CONNECT)
            }
            (Some(_), None) => Err(ClientError::Nobody),
        }?;
        if let Some(credential) = &self.credential {
            client.bring(credential)?;
        }
        Ok(client)
    }
}

/// A flow that has members.
#[derive(Debug)]
pub struct ScopeFlow {
    inner: Arc<Inner>,
    turns: Turns,
}

#[derive(Debug)]
struct Inner {
    sensors: Arc<Sensors>,
    stack: String,
    /// Files that its components write to; a sensor elsewhere refuses them.
    files: Vec<OwnedFd>,
    /// How often numbers come by themselves; zero: when they are asked for.
    push: Duration,
    prefetch: AtomicU64,
    members: Members<Has>,
    news: Arc<News>,
}

/// What a member has.
#[derive(Debug)]
struct Has {
    flow: Flow,
    /// Answers that it owes or that came late, by the component whose table was taken: who asks for the same next gets them.
    owed: BTreeMap<Option<String>, Pending>,
}

impl Has {
    fn is_due(&mut self) -> bool {
        self.owed.values_mut().any(Pending::is_due)
    }
}

impl Held for Has {
    fn is_gone(&self) -> bool {
        self.flow.client().is_gone()
    }
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
        let inner = Arc::new(Inner {
            sensors: Arc::clone(sensors),
            stack: stack.to_owned(),
            files: (files.iter())
                .map(OwnedFd::try_clone)
                .collect::<Result<_, _>>()?,
            push,
            prefetch: AtomicU64::new(PREFETCH),
            members: Members::new(members),
            news: Arc::default(),
        });
        let errors = inner.connect();
        if errors.len() == inner.members.size()
            && let Some(first) = errors.into_iter().next()
        {
            return Err(first);
        }
        keep_trying(
            Arc::downgrade(&inner),
            |inner| &inner.members,
            |inner| drop(inner.connect()),
        );
        Ok(ScopeFlow {
            inner,
            turns: Turns::default(),
        })
    }

    /// How many members it has.
    pub fn size(&self) -> usize {
        self.inner.members.size()
    }

    /// Whether no more comes to any member that has the flow, as far as they have told.
    pub fn is_over(&self) -> bool {
        let is_over = |has: &mut Has| has.flow.readings().latest(0).is_last;
        let mut known = self
            .inner
            .members
            .map(is_over)
            .into_iter()
            .flatten()
            .peekable();
        known.peek().is_some() && known.all(|is_over| is_over)
    }

    /// Members of which nothing more comes, though it should: those that are down, and interfaces whose sensor has stopped.
    pub fn gone(&self) -> Vec<Member> {
        let has_stopped =
            |has: &mut Has| has.flow.opened().is_live && has.flow.readings().latest(0).is_last;
        let gone = self.inner.members.map(has_stopped);
        let gone = self.inner.members.all().zip(gone);
        gone.filter(|(_, has_stopped)| has_stopped.unwrap_or(true))
            .map(|(member, _)| member.clone())
            .collect()
    }

    /// How each member is.
    pub fn states(&self) -> Vec<MemberState> {
        let all = 0..self.size();
        all.filter_map(|at| self.inner.members.state(at)).collect()
    }

    /// What a component has counted at each member, by its label: asked of all at the same time, where they do not send it by
    /// themselves. Nothing of those that are down; of those that do not answer what they said last.
    pub fn read(&self, component: &str) -> Vec<Option<Reading>> {
        let places = self.inner.members.map(|has| {
            let place = has.flow.component(component)?;
            Some((has.flow.readings(), place))
        });
        let places: Vec<_> = places.into_iter().map(Option::flatten).collect();
        self.inner.refresh();
        let read = places.iter();
        read.map(|found| found.as_ref().map(|(readings, at)| readings.latest(*at)))
            .collect()
    }

    /// The results of each member, in the order of the scope, or why there are none.
    pub fn results(&self) -> Vec<Result<Results, String>> {
        self.ask(None, false)
    }

    /// The table of a component, by its label, which each member forgets: that of an answer that came late, too.
    pub fn take(&self, component: &str) -> Vec<Result<Results, String>> {
        self.ask(Some(component), false)
    }

    /// Takes the rows that wait in tables of components that keep them to be taken, as far as members have told: by member, each
    /// with the place of its component.
    pub fn take_rows(&self) -> Vec<Vec<(usize, Map<String, Value>)>> {
        let places = self.inner.members.map(|has| {
            let flow = (!has.is_due()).then_some(&has.flow)?;
            let components = flow.opened().components.clone();
            Some((
                flow.readings(),
                flow.client().clone(),
                flow.number(),
                components,
            ))
        });
        let all = places.into_iter().map(|place| {
            let Some((readings, client, number, components)) = place.flatten() else {
                return Vec::new();
            };
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
        self.inner.refresh();
    }

    /// Ends the flow. Returns its last results, and in their tables what was taken and came late.
    pub fn close(&mut self) -> Vec<Result<Results, String>> {
        self.inner.members.end();
        let late = self.inner.members.map(|has| core::mem::take(&mut has.owed));
        let mut last = self.ask(None, true);
        for (last, late) in last.iter_mut().zip(late) {
            let Ok(last) = last else { continue };
            for (_, mut pending) in late
                .into_iter()
                .flatten()
                .filter(|(take, _)| take.is_some())
            {
                if let Ok(Some(late)) = pending.results(Instant::now()) {
                    last.begin_with(late);
                }
            }
        }
        for has in self.inner.members.take_all() {
            has.flow.client().forget(has.flow.number());
        }
        last
    }

    /// Asks for results, of all components or with the table of one, and ends the flow with them if it `closes`.
    fn ask(&self, take: Option<&str>, closes: bool) -> Vec<Result<Results, String>> {
        let silent = || "it does not answer".to_owned();
        let take = take.map(str::to_owned);
        let members = &self.inner.members;
        let begun = (0..self.size()).map(|at| {
            let begun = members.with(at, |has| {
                if has.is_due() {
                    return Err(silent());
                }
                if let Some(late) = has.owed.remove(&take) {
                    return Ok(late);
                }
                let (flow, take) = (has.flow.number(), take.clone());
                let request = match closes {
                    true => Request::Close { flow },
                    false => Request::Results { flow, take },
                };
                let begun = has.flow.client().begin(&request);
                begun.map_err(|error| error.to_string())
            });
            begun.unwrap_or_else(|| {
                let state = members.state(at);
                let trouble = state.and_then(|state| state.trouble);
                Err(trouble.map(|it| it.what).unwrap_or_default())
            })
        });
        let begun: Vec<Result<Pending, String>> = begun.collect();
        let until = Instant::now() + ANSWER;
        let answers = begun.into_iter().enumerate().map(|(at, begun)| {
            let mut pending = begun?;
            let answer = pending.results(until);
            members.set_late(at, matches!(answer, Ok(None)));
            match answer {
                Ok(Some(results)) => Ok(results),
                Ok(None) => {
                    members.with(at, |has| has.owed.insert(take.clone(), pending));
                    Err(silent())
                }
                Err(error) => {
                    if let ClientError::Refused(refusal) = &error
                        && refusal.has_ended
                    {
                        members.fail(at, Trouble::from(&error), |_| true);
                    }
                    Err(error.to_string())
                }
            }
        });
        answers.collect()
    }

    /// How many bytes of packets a member elsewhere may send before more are asked for.
    pub fn set_prefetch(&self, bytes: u64) {
        self.inner.prefetch.store(bytes, Ordering::Relaxed);
        self.inner.members.map(|has| has.flow.set_prefetch(bytes));
    }

    /// Has packets come by capture time ([`Turns::by_time`]); with `None` of the members in turn, as at first.
    pub fn by_time(&mut self, patience: Option<Duration>) {
        self.turns.by_time(patience);
    }

    /// Does something with the next packet, and whose it is. `None`: none came within `limit`, or none will.
    pub fn next<R>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(usize, Packet<'_>) -> R,
    ) -> Option<R> {
        // What waits for its turn by time, and packets of this machine, are looked for.
        const LOOK: Duration = Duration::from_millis(2);
        const LAST_LOOK: Duration = Duration::from_millis(100);

        let until = Instant::now().checked_add(limit);
        let members = &self.inner.members;
        let is_told = self.turns.is_in_turn() && members.all().all(|it| it.address.is_some());
        let look = if is_told { LAST_LOOK } else { LOOK };
        loop {
            let news = self.inner.news.count();
            let head = |at| {
                let head = members.with(at, |has| {
                    // In this order: what came before the end is taken.
                    let is_over = has.flow.readings().latest(0).is_over();
                    match has.flow.peek(Duration::ZERO) {
                        Ok(Some((_, time))) => Head::Packet(time),
                        Ok(None) if !is_over => Head::Nothing {
                            is_live: has.flow.opened().is_live,
                        },
                        _ => Head::Over,
                    }
                });
                head.unwrap_or(Head::Over)
            };
            match self.turns.next(0..members.size(), head) {
                Next::Take(at) => {
                    let packet = |has: &mut Has| {
                        let next = has.flow.next(Duration::ZERO);
                        next.ok().flatten().map(|packet| work(at, packet))
                    };
                    return members.with(at, packet).flatten();
                }
                Next::Over => return None,
                Next::Wait => {
                    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                    match left {
                        Some(Duration::ZERO) => return None,
                        left => self.inner.news.wait(news, left.unwrap_or(look).min(look)),
                    }
                }
            }
        }
    }

    /// Has the files of the members' devices read.
    pub fn start(&self) -> Vec<Result<(), ClientError>> {
        let started = self.inner.members.all().map(|member| {
            let client = self.inner.sensors.client(member);
            let started = client.and_then(|client| client.start(&member.device));
            started.map_err(|error| self.inner.of(member, error))
        });
        started.collect()
    }
}

impl Drop for ScopeFlow {
    fn drop(&mut self) {
        self.inner.members.end();
        self.inner.members.take_all().iter().for_each(end);
    }
}

impl Inner {
    /// Opens the flow where it is not, and can be tried again. Returns why it could not be.
    fn connect(&self) -> Vec<ClientError> {
        let open = |at, member: &Member| {
            let opened = self.open(member).map_err(|error| self.of(member, error));
            // One that nobody wants any more.
            let put = self.members.put(at, opened?);
            put.or_else(|has| {
                end(&has);
                Ok(())
            })
        };
        self.members.try_again(open, |error| match error {
            ClientError::Member(_, error) => Trouble::from(&**error),
            error => Trouble::from(error),
        })
    }

    fn open(&self, member: &Member) -> Result<Has, ClientError> {
        let client = self.sensors.client(member)?;
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(OwnedFd::as_fd).collect();
        let flow = client.open(&member.device, &self.stack, &files)?;
        if !self.push.is_zero() {
            flow.push(self.push)?;
        }
        flow.tell_to(&self.news);
        flow.set_prefetch(self.prefetch.load(Ordering::Relaxed));
        Ok(Has {
            flow,
            owed: BTreeMap::new(),
        })
    }

    /// An error, and whose it is where there are others.
    fn of(&self, member: &Member, error: ClientError) -> ClientError {
        match self.members.size() {
            1 => error,
            _ => ClientError::Member(member.clone(), Box::new(error)),
        }
    }

    /// Asks all members for their numbers, and notes who does not answer.
    fn refresh(&self) {
        let readings = self.members.map(|has| has.flow.readings());
        let readings: Vec<_> = readings.into_iter().enumerate().collect();
        let there: Vec<_> = (readings.iter())
            .filter_map(|(at, readings)| Some((*at, readings.as_ref()?)))
            .collect();
        let came = Readings::refresh(there.iter().map(|(_, readings)| *readings), ANSWER);
        for ((at, _), came) in there.iter().zip(came) {
            self.members.set_late(*at, !came);
        }
    }
}

/// Ends a flow whose last results nobody waits for.
fn end(has: &Has) {
    let number = has.flow.number();
    has.flow.client().forget(number);
    let _ = has.flow.client().begin(&Request::Close { flow: number });
}
