//! The element at work: sessions, and the measurements that they share.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use flowgauge_link::Identity;
use flowgauge_sensor_client::Sensors;
use flowgauge_sensor_client::scope;
use flowgauge_sys::notice::tell;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::fault::Fault;
use crate::measure::{self, Named, Task};
use crate::modules::{self, Metric};
use crate::points::filter_text;
use crate::probes::Grants;
use crate::publish::Series;
use crate::rights::{Asker, Measures as _, People, now};
use crate::session::{MOST_FILTERS, MOST_FILTERS_TEXT, Order, Outcome, Session, State};
use crate::store::{Domain, Kept, PeerElement, Store};
use crate::turns::Turns;

/// When it is tried again to keep a session.
const AGAIN: Duration = Duration::from_secs(5);
/// What is told of what cannot be had, whatever it is.
const UNAVAILABLE: &str = "resource not available";

/// What all of an element shares.
pub(crate) struct Inner {
    pub(crate) config: Config,
    /// Who it is among elements, in links, and in certificates.
    pub(crate) identity: Option<Identity>,
    pub(crate) people: People,
    pub(crate) store: Store,
    pub(crate) series: Mutex<Series>,
    sensors: Arc<Sensors>,
    turns: Turns,
    /// Measurements under way, by what and how long is measured.
    shared: Mutex<HashMap<String, Weak<Shared>>>,
    live: Mutex<HashMap<String, Live>>,
    opening: Mutex<()>,
    pub(crate) grants: Grants,
    /// The element ends: what sessions lack then is no failure of theirs.
    pub(crate) is_ending: AtomicBool,
}

/// The result of a measurement that several may wait for, once it is there; nothing of one that was cancelled.
type Shared = watch::Sender<Option<Option<Result<Measured, String>>>>;

/// How long is measured.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: u32,
    /// The end, in seconds since 1970, of what begins at a time that was set: being late must not make what follows later still.
    ends: Option<f64>,
}

impl Span {
    fn of(seconds: u32) -> Span {
        Span {
            seconds,
            ends: None,
        }
    }

    /// Seconds from now on.
    fn left(self, now: f64) -> f64 {
        let seconds = f64::from(self.seconds);
        self.ends
            .map_or(seconds, |ends| (ends - now).clamp(1.0, seconds))
    }
}

/// A result, and its number in the database, if it could be stored.
type Measured = (Arc<Outcome>, Option<i64>);

/// A session that runs.
struct Live {
    accounts: Vec<String>,
    task: Option<AbortHandle>,
    /// Why it cannot be kept as it is.
    trouble: Option<String>,
    /// True once it has ended.
    ended: watch::Receiver<bool>,
}

/// Where something is measured.
enum Site {
    Here(Box<Task>),
    Peer(PeerElement),
    /// Between this element and that of the destination.
    Path(PeerElement),
}

impl Inner {
    pub(crate) fn new(config: Config, identity: Option<Identity>) -> Result<Inner, String> {
        Ok(Inner {
            people: People::new(
                config.anonymous.clone(),
                config.users.clone(),
                &config.issuers,
                config.revoked.as_deref(),
            )?,
            store: Store::open(&config)?,
            series: Mutex::default(),
            sensors: Arc::new(Sensors::new(config.socket.clone(), identity.clone())),
            turns: Turns::new(config.most_measurements),
            shared: Mutex::default(),
            live: Mutex::default(),
            opening: Mutex::default(),
            grants: Grants::default(),
            is_ending: AtomicBool::new(false),
            identity,
            config,
        })
    }

    /// Its name among elements.
    pub(crate) fn name(&self) -> &str {
        self.identity.as_ref().map_or("", Identity::name)
    }

    /// Goes on with the sessions that ran when the element ended.
    pub(crate) fn resume(self: &Arc<Self>) -> Result<(), Fault> {
        for kept in self.store.sessions(None, true)? {
            self.begin(kept, Vec::new());
        }
        Ok(())
    }

    /// Opens a session.
    ///
    /// # Errors
    /// It is not possible, not available, or there are too many.
    pub(crate) fn open(
        self: &Arc<Self>,
        asker: &Asker,
        order: Order,
        via: Vec<String>,
    ) -> Result<Session, Fault> {
        order.check()?;
        crate::publish::check(self, &order)?;
        // Always the same work: who may not ask learns nothing of what is there.
        let domains = [&order.source, &order.destination].map(|name| self.store.domain(name));
        let [source, destination] = domains;
        let both = source?.zip(destination?);
        let both = both.filter(|_| asker.may_measure(&order));
        let ((source, _), (destination, _)) = both.ok_or_else(Fault::unavailable)?;
        if order.metric.declared().site != modules::Site::Probes {
            let filters = all_filters(&source, &destination, &order, asker.filters(&order));
            let hint = "combine filters into a shorter one: \"tcp port 80 or 443\"";
            filters.map_err(|error| Fault::invalid("filters", error, hint))?;
        }
        // Until it counts itself: several at once are no way past the bounds.
        let _opening = self.opening.lock();
        {
            let live = self.live.lock();
            if live.len() >= self.config.most_sessions as usize {
                return Err(Fault::busy("there are too many sessions"));
            }
            let accounts = live.values().map(|live| &live.accounts[..]);
            asker.has_place(&accounts.collect::<Vec<_>>())?;
        }
        // Not a secret: owners are looked at.
        let random = || RandomState::new().hash_one(0);
        let session = Session {
            id: format!("{:016x}{:016x}", random(), random()),
            order,
            state: State::Running,
            created: now(),
            made: 0,
            missed: 0,
            error: None,
        };
        let kept = Kept {
            session: session.clone(),
            owner: asker.owner.clone(),
            who: asker.who.clone(),
        };
        self.store.put_session(&kept)?;
        self.begin(kept, via);
        Ok(session)
    }

    fn begin(self: &Arc<Self>, mut kept: Kept, via: Vec<String>) {
        let (ended, receiver) = watch::channel(false);
        let id = kept.session.id.clone();
        let live = Live {
            accounts: kept.who.accounts(),
            task: None,
            trouble: None,
            ended: receiver,
        };
        self.live.lock().insert(id.clone(), live);
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move {
            let result = inner.run(&mut kept, &via).await;
            if inner.is_ending.load(Ordering::Relaxed) {
                return;
            }
            kept.session.state = match result {
                Ok(()) => State::Done,
                Err(error) => {
                    kept.session.error = Some(error);
                    State::Failed
                }
            };
            // Where the disk is full, the session runs until there is room to say how it ended.
            while !inner.keep(&kept) {
                sleep(AGAIN).await;
            }
            inner.live.lock().remove(&kept.session.id);
            let _ = ended.send(true);
        });
        if let Some(live) = self.live.lock().get_mut(&id) {
            live.task = Some(task.abort_handle());
        }
    }

    /// Keeps a session as it is. Returns whether it could be; else a restart finds it as it was.
    fn keep(&self, kept: &Kept) -> bool {
        let Err(fault) = self.store.put_session(kept) else {
            return true;
        };
        let (id, error) = (&kept.session.id, fault.problem.error);
        tell(format_args!("session {id}: {error}"));
        if let Some(live) = self.live.lock().get_mut(id) {
            live.trouble = Some(format!("its end cannot be stored: {error}"));
        }
        false
    }

    /// Why a session cannot be kept as it is, if so: what is kept of it says nothing of that.
    pub(crate) fn trouble(&self, id: &str) -> Option<String> {
        self.live.lock().get(id)?.trouble.clone()
    }

    /// Waits until a session has ended, for some time.
    pub(crate) async fn wait(&self, id: &str, time: Duration) {
        let ended = self.live.lock().get(id).map(|live| live.ended.clone());
        if let Some(mut ended) = ended {
            let _ = timeout(time, ended.wait_for(|ended| *ended)).await;
        }
    }

    /// Ends a session that runs.
    pub(crate) fn cancel(&self, mut kept: Kept) -> Result<Session, Fault> {
        let live = self.live.lock().remove(&kept.session.id);
        if let Some(task) = live.and_then(|live| live.task) {
            task.abort();
            kept.session.state = State::Cancelled;
            self.store.put_session(&kept)?;
        }
        Ok(kept.session)
    }

    /// A session's measurements, in the order of its periods.
    async fn run(self: &Arc<Self>, kept: &mut Kept, via: &[String]) -> Result<(), String> {
        let order = kept.session.order.clone();
        let asker = self.asker(kept)?;
        let measured = measured(&order, &asker);
        let period = &order.period;
        if let Some(historical) = period
            .historical
            .as_ref()
            .filter(|_| kept.session.made == 0)
        {
            let until = historical.until.unwrap_or_else(now);
            let found = self.store.between(&measured, historical.from, until);
            for result in found.map_err(said)? {
                self.store
                    .put_found(&kept.session.id, result)
                    .map_err(said)?;
            }
        }
        if let Some(recent) = period
            .most_recent
            .as_ref()
            .filter(|_| kept.session.made == 0)
        {
            match self.store.last(&measured).map_err(said)? {
                Some((ended, result)) if now() - ended <= f64::from(recent.max_age) => {
                    self.store
                        .put_found(&kept.session.id, result)
                        .map_err(said)?;
                }
                _ => {
                    let span = Span::of(recent.seconds);
                    self.measure(kept, &asker, span, via).await?;
                }
            }
        }
        if let Some(one_shot) = period.one_shot.as_ref().filter(|_| kept.session.made == 0) {
            let span = Span::of(one_shot.seconds);
            self.measure(kept, &asker, span, via).await?;
        }
        let Some(periodic) = &period.periodic else {
            return Ok(());
        };
        let mut due = periodic.next(now());
        while kept.session.made < periodic.times {
            let (begin, missed) = periodic.late(due, now());
            kept.session.missed = kept.session.missed.saturating_add(missed);
            due = begin + f64::from(periodic.every);
            let left = begin - now();
            sleep(Duration::from_secs_f64(left.max(0.0))).await;
            // Rights may have ended meanwhile.
            let asker = self.asker(kept)?;
            let seconds = periodic.seconds();
            let span = Span {
                seconds,
                ends: Some(begin + f64::from(seconds)),
            };
            let done = self.measure(kept, &asker, span, via).await;
            // One that fails is no reason to give up the others.
            kept.session.error = done.err();
            kept.session.made += 1;
            self.keep(kept);
        }
        kept.session.error.take().map_or(Ok(()), Err)
    }

    /// Who asked for a session, with the rights of now.
    fn asker(&self, kept: &Kept) -> Result<Asker, String> {
        let asker = self.people.asker(kept.who.clone());
        let asker = asker.map_err(|no| no.error)?;
        match asker.may_measure(&kept.session.order) {
            true => Ok(asker),
            false => Err(UNAVAILABLE.to_owned()),
        }
    }

    /// Measures once, together with all others who want the same now, and publishes the result.
    async fn measure(
        self: &Arc<Self>,
        kept: &mut Kept,
        asker: &Asker,
        span: Span,
        via: &[String],
    ) -> Result<(), String> {
        let mut order = kept.session.order.clone();
        order.filters = asker.filters(&order);
        let measured = measured(&kept.session.order, asker);
        let person = kept.who.person();
        let together = self.together(&person, &measured, &order, span, via);
        let (outcome, number) = together.await.map_err(|error| match asker.rights.admin {
            true => error,
            false => measure::without_reason(error),
        })?;
        // The right may have ended while it was measured.
        self.asker(kept)?;
        if let Some(number) = number {
            self.store
                .put_found(&kept.session.id, number)
                .map_err(said)?;
        }
        crate::publish::publish(self, kept, (&measured, &order), &outcome).await?;
        match number {
            Some(_) => Ok(()),
            None => Err("the result could not be stored: the element's log says why".to_owned()),
        }
    }

    /// Measures, or waits for an equal measurement that is under way. Who begins one has the turn: what waits for that holds up no others
    /// who want the same.
    async fn together(
        self: &Arc<Self>,
        account: &str,
        measured: &str,
        order: &Order,
        span: Span,
        via: &[String],
    ) -> Result<Measured, String> {
        let key = format!("{} {measured}", span.seconds);
        let (mut turn, mut has_waited) = (None, false);
        loop {
            let begun = {
                let mut shared = self.shared.lock();
                shared.retain(|_, under_way| under_way.strong_count() > 0);
                match (shared.get(&key).and_then(Weak::upgrade), turn.take()) {
                    (Some(under_way), _) => Some(under_way.subscribe()),
                    (None, None) => None,
                    (None, Some(turn)) => {
                        let under_way: Arc<Shared> = Arc::new(watch::channel(None).0);
                        shared.insert(key.clone(), Arc::downgrade(&under_way));
                        let result = under_way.subscribe();
                        let (inner, order, via) = (Arc::clone(self), order.clone(), via.to_vec());
                        let measured = measured.to_owned();
                        tokio::spawn(async move {
                            let _turn = turn;
                            let outcome = inner.one(&order, span, &via, &under_way).await;
                            // Of a time that nobody asked for.
                            let outcome = outcome.filter(|_| !under_way.is_closed());
                            let stored = outcome.map(|it| it.map(|it| inner.stored(&measured, it)));
                            let _ = under_way.send(Some(stored));
                        });
                        Some(result)
                    }
                }
            };
            let Some(mut result) = begun else {
                if has_waited {
                    return Err("too many measurements are running".to_owned());
                }
                turn = self.turns.take(account).await;
                has_waited = turn.is_none();
                continue;
            };
            let found = result.wait_for(Option::is_some).await;
            let found = found.map_err(|_| "the measurement ended without a result".to_owned())?;
            // Nothing: nobody waited any more when it was joined.
            if let Some(Some(found)) = found.clone() {
                return found;
            }
        }
    }

    fn stored(&self, measured: &str, outcome: Outcome) -> Measured {
        let number = self.store.put_result(measured, &outcome);
        if let Err(fault) = &number {
            tell(format_args!(
                "a result is not stored: {}",
                fault.problem.error
            ));
        }
        (Arc::new(outcome), number.ok())
    }

    /// A measurement, here or by the peer whose domain is the source. It ends when nobody waits for it any more.
    async fn one(
        self: &Arc<Self>,
        order: &Order,
        span: Span,
        via: &[String],
        under_way: &Arc<Shared>,
    ) -> Option<Result<Outcome, String>> {
        tokio::select! {
            outcome = self.outcome(order, span, via, under_way) => Some(outcome),
            () = under_way.closed() => None,
        }
    }

    async fn outcome(
        self: &Arc<Self>,
        order: &Order,
        span: Span,
        via: &[String],
        under_way: &Arc<Shared>,
    ) -> Result<Outcome, String> {
        // Others are asked for whole seconds.
        let seconds = span.left(now()) as u32;
        match self.site(order, span).await? {
            Site::Peer(peer) => self.forward(&peer, order, seconds, via).await,
            Site::Path(peer) => self.probe(&peer, order, seconds).await,
            Site::Here(task) => {
                let (sensors, under_way) = (Arc::clone(&self.sensors), Arc::clone(under_way));
                let measuring = tokio::task::spawn_blocking(move || {
                    measure::measure(&sensors, &task, &|| under_way.is_closed())
                });
                measuring
                    .await
                    .unwrap_or_else(|_| Err("the measurement has failed".to_owned()))
            }
        }
    }

    /// Where something is measured: sensors of other domains are asked for at their elements.
    async fn site(&self, order: &Order, span: Span) -> Result<Site, String> {
        let unavailable = || UNAVAILABLE.to_owned();
        let domain = |name: &str| {
            self.store
                .domain(name)
                .map_err(said)?
                .ok_or_else(unavailable)
        };
        let (source, peer) = domain(&order.source)?;
        if let Some(peer) = peer {
            return Ok(Site::Peer(peer));
        }
        let site = order.metric.declared().site;
        let is_between = site == modules::Site::Between;
        let (mut destination, peer) = domain(&order.destination)?;
        if site == modules::Site::Probes {
            let peer =
                peer.ok_or("probes are between elements, and this one answers for both domains")?;
            return Ok(Site::Path(peer));
        }
        if let Some(peer) = peer
            && (is_between || !source.networks.is_empty())
        {
            destination = self.domain_of(&peer, &order.destination).await?;
            // A device of that machine's own sensor means another one here.
            destination
                .sensors
                .retain(|sensor| sensor.device.contains(':'));
        }
        let time = Duration::from_secs_f64(span.left(now()));
        let task = Task {
            metric: order.metric,
            count: order.parameters.count() as usize,
            filters: all_filters(&source, &destination, order, order.filters.clone())?,
            source: named(&source),
            destination: named(&destination),
            time,
            ends: span.ends.map(|_| Instant::now() + time),
        };
        let is_empty = task.source.is_empty() || is_between && task.destination.is_empty();
        match is_empty {
            true => Err(unavailable()),
            false => Ok(Site::Here(Box::new(task))),
        }
    }
}

/// What is measured, whoever asks and however long: results with equal texts can stand for each other.
fn measured(order: &Order, asker: &Asker) -> String {
    let declared = order.metric.declared();
    let count = declared.has_count().then(|| order.parameters.count());
    serde_json::json!([
        order.source,
        order.destination,
        declared.name,
        count,
        asker.filters(order)
    ])
    .to_string()
}

pub(crate) fn said(fault: Fault) -> String {
    fault.problem.error
}

/// The sensors of a domain, with their names for users.
fn named(domain: &Domain) -> Vec<Named> {
    let sensors = domain.sensors.iter().filter_map(|sensor| {
        let members = scope::members(&sensor.device).ok()?;
        let [member] = &members[..] else { return None };
        Some((format!("{}/{}", domain.name, sensor.name), member.clone()))
    });
    sensors.collect()
}

/// All filters before what measures, those of the domains' networks first.
///
/// # Errors
/// They are more than sensors take.
fn all_filters(
    source: &Domain,
    destination: &Domain,
    order: &Order,
    filters: Vec<String>,
) -> Result<Vec<String>, String> {
    if filters.len() > MOST_FILTERS {
        let count = filters.len();
        return Err(format!(
            "with those that are forced there are {count} filters, and {MOST_FILTERS} at most"
        ));
    }
    let is_one_way = matches!(order.metric, Metric::Bandwidth | Metric::Throughput);
    let networks = networks(source, destination, !is_one_way).into_iter();
    let filters: Vec<String> = networks.chain(filters).collect();
    match filter_text(&filters).len() {
        ..=MOST_FILTERS_TEXT => Ok(filters),
        bytes => Err(format!(
            "with those that are forced and of the domains' networks, the filters have {bytes} bytes, and {MOST_FILTERS_TEXT} at most"
        )),
    }
}

/// A filter for packets from one domain's networks to those of the other, or both ways; nothing, where they are not known.
fn networks(source: &Domain, destination: &Domain, is_both: bool) -> Option<String> {
    if source.networks.is_empty() || destination.networks.is_empty() {
        return None;
    }
    let one_of = |way: &str, domain: &Domain| {
        let all = domain
            .networks
            .iter()
            .map(|network| format!("{way} net {network}"));
        format!("({})", all.collect::<Vec<_>>().join(" or "))
    };
    let way = |from, to| format!("({} and {})", one_of("src", from), one_of("dst", to));
    let there = way(source, destination);
    Some(match is_both {
        true => format!("{there} or {}", way(destination, source)),
        false => there,
    })
}
