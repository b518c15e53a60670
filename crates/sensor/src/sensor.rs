//! The sensor: its devices, and who comes to its socket.

mod flow;
mod flows;
mod own_files;
mod reload;
mod standing;
mod status;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_credential::{Facts, Visible};
use flowgauge_runtime::shared;
use flowgauge_sensor_client::protocol::{Answer, Refusal, send_answer};
use flowgauge_stack::{OptionKind, Stack};
use flowgauge_sys::files::Folder;
use flowgauge_sys::local::{self, Connection, Listener, Peer};
use flowgauge_sys::{files, privileges, process};
use flowgauge_wire::Ledger;
use parking_lot::Mutex;

use self::flow::StackFlow;
pub(crate) use self::flow::{Flow, What};
pub(crate) use self::standing::Stranger;
use crate::accounts::{Accounts, Who};
use crate::config::{Checked, Config, ConfigError, DeviceConfig};
use crate::device::{Device, Opened, Source};
use crate::granted::Granted;
use crate::news::News;
use crate::people::{Brought, People};
use crate::readers::{FlowRing, UserMemory};
use crate::rights::Rights;
use crate::rmon;
use crate::session;
use crate::sharing::Sharing;
use crate::turns::Turns;

/// Whom root becomes once devices are open, where the configuration does not say: the first that exists.
const USERS: [&str; 2] = ["flowgauge", "nobody"];
/// Time between two looks for memory that stacks left when they ended.
const RELEASE: Duration = Duration::from_secs(10);
/// Flows of a connection that ended without it, of which it is known why.
const MOST_ENDED: usize = 64;
/// How long users have at the end to ask for their flows' last results.
const PARTING: Duration = Duration::from_secs(2);
/// How often it is looked whether the sensor is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Why a sensor cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device cannot be opened.
    #[error("device {device}: {error}")]
    Device {
        /// Which.
        device: String,
        /// Why.
        error: flowgauge_capture::Error,
    },
    /// An interface is new, which only root may open.
    #[error("device {device}: {error}; root has become {user}")]
    Rootless {
        /// Which.
        device: String,
        /// Whom root became.
        user: String,
        /// Why.
        error: Box<flowgauge_capture::Error>,
    },
    /// Its stacks cannot begin.
    #[error("device {device}: {error}{}", became(.user.as_deref()))]
    Stacks {
        /// Which.
        device: String,
        /// Whom root became.
        user: Option<String>,
        /// Why.
        error: String,
    },
    /// The socket cannot be opened.
    #[error("{socket}: {error}")]
    Socket {
        /// Which.
        socket: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file of credentials that were revoked cannot be read.
    #[error("revoked: {0}")]
    Revoked(String),
    /// Root cannot be given up.
    #[error("cannot become {user}: {error}")]
    User {
        /// Who.
        user: String,
        /// Why.
        error: std::io::Error,
    },
}

impl StartError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            StartError::Config(error) => error.hint()?,
            StartError::Device { error, .. } => return error.hint(),
            StartError::Socket { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
                "another sensor runs there: flowgauge sensor status"
            }
            StartError::Socket { .. } => "the folder of the socket must exist and be writable",
            StartError::User { .. } => "it needs root and an existing user",
            StartError::Revoked(_) => {
                "set revoked in the configuration to a file that the sensor can read"
            }
            StartError::Rootless { .. } => {
                "root privileges were dropped when the sensor started: restart it (systemctl restart flowgauge-sensor)"
            }
            StartError::Stacks { user: Some(_), .. } => {
                "files of stacks must be writable for that user; choose another with user in the configuration"
            }
            StartError::Stacks { user: None, .. } => return None,
        };
        Some(hint.to_owned())
    }
}

fn became(user: Option<&str>) -> String {
    user.map_or_else(String::new, |user| {
        format!("; as user {user}, which root becomes")
    })
}

/// A sensor that runs.
pub struct Sensor {
    /// Its configuration, and its socket; none of a sensor of programs with libscap alone.
    path: Option<PathBuf>,
    bound: Option<Bound>,
    /// Whom root became.
    became: Option<String>,
    people: Arc<People>,
    /// Never held while a device, a file or a user is waited for.
    state: Mutex<State>,
    /// Held while the configuration is taken anew.
    reloading: Mutex<()>,
    turns: Turns,
    accounts: Accounts,
    started: Instant,
    connections: AtomicU64,
    /// ... of those without rights.
    strangers: AtomicU64,
    flows: AtomicU64,
    is_stopped: Arc<AtomicBool>,
    /// Nothing is answered any more.
    has_ended: AtomicBool,
    news: Arc<News>,
}

struct State {
    checked: Checked,
    devices: BTreeMap<String, Arc<Device>>,
    /// Whose those are that the configuration does not have.
    owners: BTreeMap<String, Asker>,
    flows: BTreeMap<u64, Flow>,
    /// Flows that ended without their users.
    ended: BTreeMap<u64, Gone>,
    users: BTreeMap<Who, User>,
    /// Whether flows have ended, whose memory may be kept for nobody.
    has_ended: bool,
    /// Where programs with libscap look for it, by interface: their peers see root there though it was given up.
    names: BTreeMap<String, Arc<Listener>>,
    /// How long devices stay that programs share when the last one has gone.
    grace: Option<Duration>,
}

/// A user with connections.
struct User {
    connections: usize,
    memory: Arc<UserMemory>,
}

/// A flow that ended without its user.
struct Gone {
    session: u64,
    why: String,
    /// What its user may still look at.
    _ring: Option<Arc<FlowRing>>,
}

/// A sensor of one interface for programs with libscap, without a configuration.
pub struct Alone {
    /// Where its packets come from; without, it opens the interface and gives up root.
    pub source: Option<Source>,
    /// Where they come to.
    pub listener: Arc<Listener>,
    /// A group whose members may come, too.
    pub group: Option<u32>,
    /// How long it stays when the last one has gone; without, until it is stopped.
    pub grace: Option<Duration>,
    /// Bytes of chunks that may wait for all of them.
    pub memory: u64,
}

/// Flows that have ended, of which their devices are to be told.
type Ended = Vec<(u64, Flow)>;

/// A socket that is freed when it is not listened on any more.
struct Bound {
    listener: Listener,
    socket: PathBuf,
    is_free: AtomicBool,
}

impl Bound {
    /// At a path that `owner` frees, if root becomes that user.
    fn at(socket: PathBuf, owner: Option<&str>) -> Result<Bound, StartError> {
        let number = owner.map(privileges::user_id).transpose();
        let number = number.map_err(|error| StartError::User {
            user: owner.unwrap_or_default().to_owned(),
            error,
        })?;
        let listener =
            Listener::bind_path(&socket, number).map_err(|error| StartError::Socket {
                socket: socket.display().to_string(),
                error,
            })?;
        Ok(Bound {
            listener,
            socket,
            is_free: AtomicBool::new(false),
        })
    }
}

impl Bound {
    /// Frees the name, once: another sensor may take it.
    fn free(&self) -> std::io::Result<()> {
        match self.is_free.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => local::free_path(&self.socket),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = self.free();
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) session: u64,
    pub(crate) peer: Peer,
    pub(crate) groups: Vec<u32>,
    /// The user of another machine that it speaks for: number and name.
    pub(crate) remote: Option<(u32, String)>,
    /// Who asks, for policies.
    pub(crate) by: Arc<Facts>,
    /// What it brought.
    pub(crate) credential: Option<Arc<Brought>>,
}

impl Asker {
    pub(crate) fn who(&self) -> Who {
        match (&self.credential, &self.remote) {
            (Some(brought), _) => Who::remote(brought.number),
            (None, Some((number, _))) => Who::remote(*number),
            (None, None) => Who::local(self.peer.user),
        }
    }

    /// As it is called in the log.
    pub(crate) fn shown(&self) -> String {
        match &self.remote {
            Some((_, name)) => format!("user @{}", name.escape_debug()),
            None => format!("user {}", self.peer.user),
        }
    }

    fn rights(&self, people: &People) -> Granted {
        match (&self.credential, &self.remote) {
            (Some(brought), _) => people.granted_by(brought, &self.by),
            (None, Some((_, name))) => people.rights_of(name),
            (None, None) => people.rights(self.peer, &self.groups),
        }
    }
}

impl Sensor {
    /// Reads the configuration, opens its devices and the socket, gives up root, and starts the stacks. `is_stopped` ends it.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &Path, is_stopped: Arc<AtomicBool>) -> Result<Sensor, StartError> {
        let checked = Checked::read(config)?;
        let opened = open_all(&checked)?;
        let socket = &checked.config.socket;
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
        let bound = Bound::at(socket, heir(checked.config.user.as_deref()).as_deref())?;
        let mut sensor = Sensor::new(checked, is_stopped)?;
        sensor.path = Some(config.to_owned());
        sensor.bound = Some(bound);
        sensor.begin(opened)?;
        Ok(sensor)
    }

    /// Checks what [`start`](Sensor::start) would find wrong, as far as that can be seen without a device. Where this process
    /// is root it becomes the user that the sensor would, as files are written with that user's rights. Returns how many
    /// devices and stacks there are, and what is to be said all the same.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn check_config(config: &Path) -> Result<(usize, usize, Vec<String>), StartError> {
        let Checked { config, stacks } = Checked::read(config)?;
        let socket = &config.socket;
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
        // The folder itself would be made.
        let above = socket.parent().and_then(|folder| folder.parent());
        if above.is_some_and(|above| !Folder::anywhere().is_folder(above)) {
            return Err(StartError::Socket {
                socket: socket.display().to_string(),
                error: std::io::ErrorKind::NotFound.into(),
            });
        }
        let user = give_up_root(config.user.as_deref())?;
        let all = stacks.iter();
        let all = all.flat_map(|(device, stacks)| stacks.iter().map(move |stack| (device, stack)));
        for (device, stack) in all.filter(|_| user.is_some()) {
            unwritable(stack).map_err(|error| StartError::Stacks {
                device: device.clone(),
                user: user.clone(),
                error,
            })?;
        }
        let notes = rmon::check(&config)?;
        Ok((config.devices.len(), config.stacks.len(), notes))
    }

    /// Captures on an interface for programs with libscap alone.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn share(
        interface: &str,
        alone: Alone,
        is_stopped: Arc<AtomicBool>,
    ) -> Result<Sensor, StartError> {
        let mut config = Config::default();
        let device = DeviceConfig {
            shared_memory: alone.memory,
            ..DeviceConfig::default()
        };
        config.devices.insert(interface.to_owned(), device);
        if let Some(group) = alone.group {
            let rights = Rights {
                packets: Visible::Payload,
                ..Rights::default()
            };
            config.groups.insert(group.to_string(), rights);
        }
        let mut checked = Checked {
            config,
            stacks: BTreeMap::new(),
        };
        let opened = match alone.source {
            None => open_all(&checked)?,
            Some(source) => {
                checked.config.user = Some("root".to_owned());
                let config = &checked.config.devices[interface];
                let opened = Opened::of_source(interface, config, source);
                vec![(interface.to_owned(), opened.map_err(of_device(interface))?)]
            }
        };
        let mut sensor = Sensor::new(checked, is_stopped)?;
        let state = sensor.state.get_mut();
        state.names.insert(interface.to_owned(), alone.listener);
        state.grace = alone.grace;
        sensor.begin(opened)?;
        Ok(sensor)
    }

    fn new(checked: Checked, is_stopped: Arc<AtomicBool>) -> Result<Sensor, StartError> {
        let people = People::new(process::user(), &checked.config);
        let people = people.map_err(StartError::Revoked)?;
        Ok(Sensor {
            path: None,
            bound: None,
            became: None,
            people: Arc::new(people),
            state: Mutex::new(State {
                checked,
                devices: BTreeMap::new(),
                owners: BTreeMap::new(),
                flows: BTreeMap::new(),
                ended: BTreeMap::new(),
                users: BTreeMap::new(),
                has_ended: false,
                names: BTreeMap::new(),
                grace: None,
            }),
            reloading: Mutex::default(),
            turns: Turns::new(),
            accounts: Accounts::default(),
            started: Instant::now(),
            connections: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            is_stopped,
            has_ended: AtomicBool::new(false),
            news: Arc::default(),
        })
    }

    /// Gives up root, and starts the devices that are open.
    fn begin(&mut self, opened: Vec<(String, Opened)>) -> Result<(), StartError> {
        let state = self.state.get_mut();
        let config = &state.checked.config;
        for (interface, _) in config.devices.keys().filter_map(|name| config.shared(name)) {
            // Where another process has the name programs go there.
            if !state.names.contains_key(interface)
                && let Ok(listener) = shared::listen(interface)
            {
                state.names.insert(interface.to_owned(), Arc::new(listener));
            }
        }
        self.became = give_up_root(state.checked.config.user.as_deref())?;
        files::refuse_pipes();
        process::harden().map_err(|error| StartError::User {
            user: "a process that gains no rights".to_owned(),
            error,
        })?;
        rmon::begin(&state.checked.config)?;
        for (name, source) in opened {
            let stacks = state.checked.stacks.get(&name).cloned().unwrap_or_default();
            let holds = source.config.hold;
            let sharing = state.sharing(&name);
            let device = source.start(&name, stacks, sharing, holds, &self.news);
            let device = device.map_err(|error| StartError::Stacks {
                device: name.clone(),
                user: self.became.clone(),
                error: error.to_string(),
            })?;
            state.devices.insert(name, Arc::new(device));
        }
        Ok(())
    }

    /// The socket that users come to.
    pub fn socket(&self) -> Option<&Path> {
        self.bound.as_ref().map(|bound| bound.socket.as_path())
    }

    /// What it captures and reads.
    pub fn devices(&self) -> String {
        let state = self.state.lock();
        let devices = state
            .devices
            .values()
            .map(|device| device.describes.as_str());
        let devices: Vec<&str> = devices.collect();
        match devices.is_empty() {
            true => "without devices".to_owned(),
            false => format!("listening on {}", devices.join(", ")),
        }
    }

    /// Serves users until it is stopped; `look` is called ten times a second meanwhile, and once more when it [is
    /// stopped](Sensor::is_stopped). Then devices and stacks end. Returns where packets went.
    pub fn run(self: &Arc<Sensor>, mut look: impl FnMut(&Sensor)) -> Ledger {
        let mut session = 0;
        let mut released = Instant::now();
        let looking = self.look_at_rights();
        let names: Vec<Arc<Listener>> = self.state.lock().names.values().cloned().collect();
        let names = names.iter().map(|listener| &**listener);
        let bound = self.bound.iter().map(|bound| &bound.listener);
        let listeners: Vec<&Listener> = bound.chain(names).collect();
        while !self.is_stopped() {
            look(self);
            // Not waiting for who has the lock: the watchdog is told here.
            let has_ended = || {
                let state = self.state.try_lock();
                state.is_some_and(|mut state| core::mem::take(&mut state.has_ended))
            };
            if released.elapsed() >= RELEASE && has_ended() {
                process::release_freed_memory();
                released = Instant::now();
            }
            if self.bound.is_none() {
                // Without a socket there is nothing to do when the device is over.
                let devices: Vec<_> = self.state.lock().devices.values().cloned().collect();
                if devices.iter().all(|it| it.is_over()) {
                    break;
                }
            }
            let files: Vec<_> = listeners.iter().map(|it| it.as_fd()).collect();
            let Ok(waiting) = local::wait_any(&files, Some(LOOK)) else {
                continue;
            };
            for (listener, _) in listeners.iter().zip(waiting).filter(|(_, waits)| *waits) {
                loop {
                    match listener.accept() {
                        Ok(Some(connection)) => {
                            session += 1;
                            self.welcome(connection, session);
                        }
                        Ok(None) => break,
                        Err(_) => {
                            // No descriptor is left: one may be soon.
                            thread::sleep(LOOK);
                            break;
                        }
                    }
                }
            }
        }
        look(self);
        // Connections, and what is taken anew, may end after the process.
        if let Some(bound) = &self.bound
            && let Err(error) = bound.free()
        {
            let socket = bound.socket.display();
            self.news.tell(format!(
                "{socket} remains until a sensor starts there: {error}"
            ));
        }
        drop(looking);
        self.part();
        let devices = core::mem::take(&mut self.state.lock().devices);
        let mut ledger = Ledger::default();
        for device in devices.into_values() {
            ledger.merge(&device.end());
        }
        let before = self.state.lock().checked.config.rmon.clone();
        rmon::end(before.as_ref(), None, &self.news);
        ledger
    }

    /// Has all devices come to their ends, and lets users ask for the last results of their flows.
    fn part(&self) {
        let until = Instant::now() + PARTING;
        for device in self.state.lock().devices.values() {
            device.finish();
        }
        while !self.state.lock().flows.is_empty() && Instant::now() < until {
            thread::sleep(LOOK / 10);
        }
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// What happened since it was asked last that no user is told: lines for a log.
    pub fn news(&self) -> Vec<String> {
        let mut news = self.news.take();
        news.extend(rmon::news());
        news
    }

    /// Whether nothing is answered any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Has a thread serve a connection, if there may be one more.
    fn welcome(self: &Arc<Sensor>, connection: Connection, session: u64) {
        let (Ok(peer), Ok(groups)) = (connection.peer(), connection.peer_groups()) else {
            return;
        };
        let asker = Asker {
            session,
            peer,
            groups,
            remote: None,
            by: Arc::default(),
            credential: None,
        };
        if let Err(refusal) = self.admit(&asker) {
            let _ = send_answer(&connection, &Answer::Refused(refusal), &[]);
            connection.stop_receiving();
            return;
        }
        let (who, connection) = (asker.who(), Arc::new(connection));
        self.connections.fetch_add(1, Ordering::Relaxed);
        let sensor = Arc::clone(self);
        let serve = move || {
            process::stand_back();
            let mut asker = asker;
            session::serve(&sensor, &connection, &mut asker);
            sensor.forget(&asker);
        };
        // Where there is no thread for it the connection ends.
        let started = thread::Builder::new()
            .name("fg-user".to_owned())
            .spawn(serve);
        if started.is_err() {
            self.leave(who);
        }
    }

    /// A connection has ended, and its flows with it.
    fn forget(&self, asker: &Asker) {
        let mut state = self.state.lock();
        let flows = state
            .flows
            .extract_if(.., |_, flow| flow.by.session == asker.session);
        let flows: Vec<(u64, Flow)> = flows.collect();
        state.ended.retain(|_, gone| gone.session != asker.session);
        let owned = state
            .owners
            .extract_if(.., |_, owner| owner.session == asker.session);
        let owned: Vec<String> = owned.map(|(name, _)| name).collect();
        let owned: Vec<_> = owned
            .iter()
            .filter_map(|name| state.devices.remove(name))
            .collect();
        let devices = state.devices.clone();
        state.has_ended |= !flows.is_empty();
        drop(state);
        drop(owned);
        let mut by_device: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (number, flow) in &flows {
            by_device.entry(&flow.device).or_default().push(*number);
        }
        for (device, flows) in by_device {
            if let Some(device) = devices.get(device) {
                device.close(Some(asker.who()), flows);
            }
        }
        self.leave(asker.who());
    }

    pub(crate) fn rights(&self, asker: &Asker) -> Granted {
        asker.rights(&self.people)
    }
}

impl State {
    /// What somebody may do on a device.
    ///
    /// # Errors
    /// Nothing, or it is not there.
    fn rights_on(&self, asker: &Asker, rights: &Granted, device: &str) -> Result<Granted, Refusal> {
        let found = match self.owners.get(device) {
            Some(owner) => (owner.session == asker.session).then(|| rights.on_own()),
            None => rights.may_use(device).then(|| rights.clone()),
        };
        let found = found.filter(|_| self.devices.contains_key(device));
        if found.is_none() {
            rights.standing()?;
        }
        found.ok_or_else(|| {
            Refusal::with_hint(
                format!("no device \"{device}\", or no right to it"),
                "flowgauge sensor status shows the devices",
            )
        })
    }

    /// The device of a flow of a connection.
    fn device_of(&self, asker: &Asker, number: u64) -> Result<Arc<Device>, Refusal> {
        let flow = self.flows.get(&number);
        if let Some(flow) = flow.filter(|flow| flow.by.session == asker.session) {
            return self.device(&flow.device).map_err(Refusal::new);
        }
        let gone = self.ended.get(&number);
        let gone = gone.filter(|gone| gone.session == asker.session);
        let error = match gone {
            Some(gone) => format!("flow {number} has ended: {}", gone.why),
            None => format!("there is no flow {number} of yours"),
        };
        Err(Refusal {
            has_ended: true,
            ..Refusal::new(error)
        })
    }

    /// How programs share the streams of a device, if they may.
    fn sharing(&self, device: &str) -> Option<Sharing> {
        let config = &self.checked.config;
        let (interface, memory) = config.shared(device)?;
        Some(Sharing {
            for_many: !(config.users.is_empty()
                && config.groups.is_empty()
                && config.issuers.is_empty()),
            interface: interface.to_owned(),
            memory,
            grace: self.grace,
        })
    }

    /// Interfaces that flows of a device may send packets onto: never the one that it captures.
    fn may_be_sent_onto(&self, device: &str) -> Vec<String> {
        let captured = self
            .devices
            .get(device)
            .and_then(|it| it.config.interface(device));
        let interfaces = self.checked.config.inject.iter();
        let others = interfaces.filter(|name| captured.is_none_or(|captured| captured != *name));
        others.cloned().collect()
    }

    fn device(&self, name: &str) -> Result<Arc<Device>, String> {
        let found = self.devices.get(name).map(Arc::clone);
        found.ok_or_else(|| format!("there is no device \"{name}\""))
    }

    /// Ends flows without their users, who may be looking at what they share.
    fn end(&mut self, why: &str, mut ends: impl FnMut(&Flow) -> bool) -> Ended {
        self.end_each(|_, flow| ends(flow).then(|| why.to_owned()))
    }

    /// Ends those for which there is a reason.
    fn end_each(&mut self, mut why: impl FnMut(u64, &Flow) -> Option<String>) -> Ended {
        let mut reasons = Vec::new();
        let ended = self.flows.extract_if(.., |number, flow| {
            let reason = why(*number, flow);
            let ends = reason.is_some();
            reasons.extend(reason);
            ends
        });
        let ended: Ended = ended.collect();
        for ((number, flow), why) in ended.iter().zip(reasons) {
            flow.end(&why);
            self.keep(*number, flow, why);
        }
        self.has_ended |= !ended.is_empty();
        ended
    }

    /// What a connection may still ask of a flow that has ended.
    fn keep(&mut self, number: u64, flow: &Flow, why: String) {
        let session = flow.by.session;
        let of_session = |(_, gone): &(&u64, &Gone)| gone.session == session;
        if self.ended.iter().filter(of_session).count() >= MOST_ENDED {
            let oldest = self
                .ended
                .iter()
                .find(of_session)
                .map(|(number, _)| *number);
            oldest.and_then(|number| self.ended.remove(&number));
        }
        let gone = Gone {
            session,
            why,
            _ring: flow.stack().map(|of| Arc::clone(&of.ring)),
        };
        self.ended.insert(number, gone);
    }
}

/// Opens all devices of a configuration.
fn open_all(checked: &Checked) -> Result<Vec<(String, Opened)>, StartError> {
    let devices = checked.config.devices.iter();
    let opened = devices.map(|(name, device)| {
        let opened = Opened::open(name, device).map_err(of_device(name))?;
        Ok((name.clone(), opened))
    });
    opened.collect()
}

pub(super) fn of_device(device: &str) -> impl FnOnce(flowgauge_capture::Error) -> StartError {
    |error| StartError::Device {
        device: device.to_owned(),
        error,
    }
}

/// Whether this process could write the files that a stack names.
///
/// # Errors
/// The first that it could not.
fn unwritable(stack: &Stack) -> Result<(), String> {
    for node in stack.nodes.iter() {
        let options = node.settings.iter().map(|setting| setting.option);
        let files = options.filter(|option| option.kind == OptionKind::OutputFile);
        let paths = files.filter_map(|option| node.settings.text(option.name));
        // Of fields of a time nothing is known yet.
        for path in paths.filter(|path| *path != "-" && !path.contains('%')) {
            files::check_writable(Path::new(path)).map_err(|error| {
                let name = stack.name.as_deref().unwrap_or_default();
                format!("stack {name}: {}: cannot write {path}: {error}", node.label)
            })?;
        }
    }
    Ok(())
}

/// Returns whom root became, if this process was root.
fn give_up_root(user: Option<&str>) -> Result<Option<String>, StartError> {
    let Some(user) = heir(user) else {
        return Ok(None);
    };
    privileges::drop_to(&user).map_err(|error| StartError::User {
        user: user.clone(),
        error,
    })?;
    Ok(Some(user))
}

/// Whom root becomes, if this process is root and is not to stay it.
fn heir(user: Option<&str>) -> Option<String> {
    let default = || USERS.into_iter().find(|user| privileges::user_exists(user));
    let user = user.or_else(default).filter(|user| *user != "root");
    user.filter(|_| privileges::is_root()).map(str::to_owned)
}
