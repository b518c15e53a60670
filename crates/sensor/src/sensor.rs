//! The sensor: its devices, and who comes to its socket.

mod own_files;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, FilterSet};
use flowgauge_runtime::stacks::Ended;
use flowgauge_sensor_client::protocol::{
    Answer, FlowStatus, OpenedFlow, Refusal, Results, StackStatus, Status, send_answer,
};
use flowgauge_stack::{Node, Stack};
use flowgauge_sys::local::{self, Connection, Listener, Peer};
use flowgauge_sys::{privileges, process};
use flowgauge_wire::{Ledger, LinkType};
use parking_lot::Mutex;

use self::own_files::{Came, name_files};
use crate::config::{Checked, Config, ConfigError, DeviceConfig};
use crate::device::{Device, Opened, Running};
use crate::readers::{FlowRing, Readers, UserMemory};
use crate::results::{is_shared, results, since};
use crate::rights::{People, Rights, Visible};
use crate::session;
use crate::sharing::Sharing;
use crate::text;

/// Whom root becomes once devices are open, where the configuration does not say: the first that exists.
const USERS: [&str; 2] = ["flowgauge", "nobody"];
/// Connections at once, and of one user.
const MOST_CONNECTIONS: u64 = 1024;
const MOST_OF_A_USER: usize = 32;
/// Time between two looks for memory that stacks left when they ended.
const RELEASE: Duration = Duration::from_secs(10);
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
    /// Its stacks cannot begin.
    #[error("device {device}: {error}")]
    Stacks {
        /// Which.
        device: String,
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
            StartError::Socket { .. } => "the folder of the socket must be there and writable",
            StartError::User { .. } => "it takes root and an existing user",
            StartError::Stacks { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// A sensor that runs.
pub struct Sensor {
    /// Its configuration, and its socket; none of a sensor of programs with libscap alone.
    path: Option<PathBuf>,
    bound: Option<Bound>,
    people: Arc<People>,
    state: Mutex<State>,
    started: Instant,
    connections: AtomicU64,
    flows: AtomicU64,
    is_stopped: Arc<AtomicBool>,
}

struct State {
    checked: Checked,
    devices: BTreeMap<String, Arc<Device>>,
    /// Whose those are that the configuration does not have.
    owners: BTreeMap<String, Asker>,
    flows: BTreeMap<u64, Flow>,
    /// What users of connections may still look at of flows that ended without them.
    ended: Vec<(u64, Arc<FlowRing>)>,
    users: BTreeMap<u32, User>,
    /// Whether flows have ended, whose memory may be kept for nobody.
    has_ended: bool,
    /// Where programs with libscap come to, by interface: whose peers see root there though it was given up.
    shared: BTreeMap<String, Arc<Listener>>,
}

/// A user with connections.
struct User {
    connections: usize,
    memory: Arc<UserMemory>,
}

/// A sensor of one interface for programs with libscap, without a configuration.
pub struct Alone {
    /// Where they come to.
    pub listener: Arc<Listener>,
    /// A group whose members may come, too.
    pub group: Option<u32>,
    /// How long it stays when the last one has gone; without, until it is stopped.
    pub grace: Option<Duration>,
    /// Bytes of chunks that may wait for all of them.
    pub memory: u64,
}

/// A flow of a user.
struct Flow {
    device: String,
    /// What runs for it: others may have the same.
    stack: Stack,
    /// What that had counted before.
    base: Option<Results>,
    /// Whose it is.
    by: Asker,
    ring: Arc<FlowRing>,
    /// All for whom the stack runs.
    readers: Arc<Readers>,
    /// What its components write to.
    _files: Vec<Came>,
}

/// A socket that is freed when it is not listened on any more.
struct Bound {
    listener: Listener,
    socket: PathBuf,
}

impl Bound {
    fn at(socket: PathBuf) -> Result<Bound, StartError> {
        let listener = Listener::bind_path(&socket).map_err(|error| StartError::Socket {
            socket: socket.display().to_string(),
            error,
        })?;
        Ok(Bound { listener, socket })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        local::free_path(&self.socket);
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) session: u64,
    pub(crate) peer: Peer,
    pub(crate) groups: Vec<u32>,
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
        let bound = Bound::at(socket)?;
        let mut sensor = Sensor::new(checked, is_stopped);
        sensor.path = Some(config.to_owned());
        sensor.bound = Some(bound);
        sensor.begin(opened, None)?;
        Ok(sensor)
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
        let checked = Checked {
            config,
            stacks: BTreeMap::new(),
        };
        let mut sensor = Sensor::new(checked, is_stopped);
        let state = sensor.state.get_mut();
        state.shared.insert(interface.to_owned(), alone.listener);
        let opened = open_all(&state.checked)?;
        sensor.begin(opened, alone.grace)?;
        Ok(sensor)
    }

    fn new(checked: Checked, is_stopped: Arc<AtomicBool>) -> Sensor {
        Sensor {
            path: None,
            bound: None,
            people: Arc::new(People::new(process::user(), &checked.config)),
            state: Mutex::new(State {
                checked,
                devices: BTreeMap::new(),
                owners: BTreeMap::new(),
                flows: BTreeMap::new(),
                ended: Vec::new(),
                users: BTreeMap::new(),
                has_ended: false,
                shared: BTreeMap::new(),
            }),
            started: Instant::now(),
            connections: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            is_stopped,
        }
    }

    /// Gives up root, and starts the devices that are open.
    fn begin(
        &mut self,
        opened: Vec<(String, Opened)>,
        grace: Option<Duration>,
    ) -> Result<(), StartError> {
        let state = self.state.get_mut();
        let config = &state.checked.config;
        for (interface, _) in config.devices.keys().filter_map(|name| config.shared(name)) {
            if !state.shared.contains_key(interface)
                && let Some(listener) = Sharing::listen(interface)
            {
                state.shared.insert(interface.to_owned(), listener);
            }
        }
        give_up_root(state.checked.config.user.as_deref())?;
        process::harden().map_err(|error| StartError::User {
            user: "a process that gains no rights".to_owned(),
            error,
        })?;
        for (name, source) in opened {
            let stacks = state.checked.stacks.get(&name).cloned().unwrap_or_default();
            let holds = source.config.hold;
            let sharing = state.sharing(&self.people, &name, grace);
            let device = source.start(&name, stacks, sharing, holds);
            let device = device.map_err(|error| StartError::Stacks {
                device: name.clone(),
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

    /// Serves users until it is stopped; `look` is called ten times a second meanwhile. Then devices and stacks end. Returns
    /// where packets went.
    pub fn run(self: &Arc<Sensor>, mut look: impl FnMut(&Sensor)) -> Ledger {
        let mut session = 0;
        let mut released = Instant::now();
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
            let Some(bound) = &self.bound else {
                // Without a socket there is nothing to do when the device is over.
                if self.state.lock().devices.values().all(|it| it.is_over()) {
                    break;
                }
                thread::sleep(LOOK);
                continue;
            };
            let waits = local::wait_any(&[bound.listener.as_fd()], Some(LOOK));
            if !waits.is_ok_and(|waits| waits.contains(&true)) {
                continue;
            }
            loop {
                match bound.listener.accept() {
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
        let devices = core::mem::take(&mut self.state.lock().devices);
        let mut ledger = Ledger::default();
        for device in devices.into_values().filter_map(Arc::into_inner) {
            ledger.merge(&device.end());
        }
        ledger
    }

    pub(crate) fn is_stopped(&self) -> bool {
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
        };
        let rights = self.rights(&asker);
        let refused = if rights.is_nothing() {
            Some("you have no rights here")
        } else {
            let users = &mut self.state.lock().users;
            let of_user = users.entry(peer.user).or_insert_with(|| User {
                connections: 0,
                memory: Arc::new(UserMemory::new(rights.memory)),
            });
            let (all, reserve) = match rights.admin {
                true => (u64::MAX, usize::MAX),
                false => (MOST_CONNECTIONS, MOST_OF_A_USER),
            };
            let is_room =
                self.connections.load(Ordering::Relaxed) < all && of_user.connections < reserve;
            of_user.connections += usize::from(is_room);
            (!is_room).then_some("there are too many connections")
        };
        if let Some(why) = refused {
            let hint = "the sensor's configuration has the rights of users";
            let _ = send_answer(
                &connection,
                &Answer::Refused(Refusal::with_hint(why, hint)),
                &[],
            );
            connection.stop_receiving();
            return;
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        let sensor = Arc::clone(self);
        let serve = move || {
            session::serve(&sensor, &connection, &asker);
            sensor.forget(&asker);
        };
        // Where there is no thread for it the connection ends.
        let started = thread::Builder::new()
            .name("fg-user".to_owned())
            .spawn(serve);
        if started.is_err() {
            self.leave(peer.user);
        }
    }

    fn leave(&self, user: u32) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        let users = &mut self.state.lock().users;
        if let Some(of_user) = users.get_mut(&user) {
            of_user.connections -= 1;
            if of_user.connections == 0 {
                users.remove(&user);
            }
        }
    }

    /// A connection has ended, and its flows with it.
    fn forget(&self, asker: &Asker) {
        let mut state = self.state.lock();
        let mut devices = Vec::new();
        state.flows.retain(|number, flow| {
            let is_its = flow.by.session == asker.session;
            if is_its {
                flow.readers.remove(*number);
                devices.push(flow.device.clone());
            }
            !is_its
        });
        state.ended.retain(|(session, _)| *session != asker.session);
        let owned = state
            .owners
            .extract_if(.., |_, owner| owner.session == asker.session);
        let owned: Vec<String> = owned.map(|(name, _)| name).collect();
        let owned: Vec<_> = owned
            .iter()
            .filter_map(|name| state.devices.remove(name))
            .collect();
        devices.sort();
        devices.dedup();
        for device in devices {
            let _ = state.run(&device);
            state.has_ended = true;
        }
        drop(state);
        drop(owned);
        self.leave(asker.peer.user);
    }

    pub(crate) fn rights(&self, asker: &Asker) -> Rights {
        self.people.rights(asker.peer, &asker.groups)
    }

    /// How it is; of flows those of the asker, or all for who may see them.
    pub(crate) fn status(&self, asker: &Asker, rights: &Rights) -> Status {
        let state = self.state.lock();
        let devices = state.devices.iter();
        let devices = devices.filter(|(name, _)| match state.owners.get(*name) {
            Some(owner) => rights.admin || owner.session == asker.session,
            None => rights.may_use(name),
        });
        let devices = devices.map(|(name, device)| {
            let (mut status, shown) = device.status(name);
            for (stack, _, failure) in shown.into_iter().flat_map(|shown| shown.stacks) {
                let flows = state.flows.iter();
                let flows = flows.filter(|(_, flow)| flow.stack.name == stack.name);
                let flows = flows.map(|(number, flow)| FlowStatus {
                    flow: *number,
                    user: flow.by.peer.user,
                    process: flow.by.peer.process,
                });
                let seen = |flow: &FlowStatus| rights.admin || flow.user == asker.peer.user;
                let flows: Vec<FlowStatus> = flows.filter(seen).collect();
                // On a device that has ended those stay whose flows were closed.
                let is_always = !state.is_flow(&stack);
                if flows.is_empty() && !(is_always && rights.admin) {
                    continue;
                }
                status.stacks.push(StackStatus {
                    stack: stack.name.clone().unwrap_or_default(),
                    flows,
                    components: stack.nodes.iter().map(|node| node.label.clone()).collect(),
                    failure,
                });
            }
            status
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            seconds: self.started.elapsed().as_secs(),
            memory: process::memory_in_use(),
            connections: self.connections.load(Ordering::Relaxed),
            devices: devices.collect(),
        }
    }

    /// The stack of a flow.
    ///
    /// # Errors
    /// Why it may not be.
    pub(crate) fn checked(
        &self,
        asker: &Asker,
        rights: &Rights,
        device: &str,
        text: &str,
    ) -> Result<Stack, Refusal> {
        let state = self.state.lock();
        let rights = state.rights_on(asker, rights, device)?;
        let links = state.device(device).map(|device| device.links.clone());
        drop(state);
        rights.allow_text(text)?;
        let stack = text::stack("flow", &rights.forced(text)).map_err(Refusal::new)?;
        rights.allow(&stack)?;
        fits(&stack, &links.unwrap_or_default())?;
        Ok(stack)
    }

    /// A new flow, and descriptors of the memory that is shared with its user.
    ///
    /// # Errors
    /// Why it may not be, or cannot.
    pub(crate) fn open(
        &self,
        asker: &Asker,
        rights: &Rights,
        device: &str,
        text: &str,
        files: Vec<OwnedFd>,
    ) -> Result<(OpenedFlow, Vec<OwnedFd>), Refusal> {
        let number = self.flows.fetch_add(1, Ordering::Relaxed) + 1;
        let mut stack = self.checked(asker, rights, device, text)?;
        stack.name = Some(format!("flow {number}"));
        let mut state = self.state.lock();
        let files = name_files(&mut stack, files, &state.may_be_sent_onto(device))?;
        let of_user = |flow: &&Flow| flow.by.peer.user == asker.peer.user;
        let flows = state.flows.values().filter(of_user).count();
        if flows >= rights.most_flows as usize {
            return Err(Refusal::with_hint(
                format!("{flows} flows are open, and no more may be"),
                "close others; most_flows of the sensor's configuration says how many",
            ));
        }
        let (stack, base, readers) = match state.running(device, &stack) {
            Some((stack, base, readers)) => (stack, Some(base), readers),
            None => {
                let readers = Arc::<Readers>::default();
                readers.attach(&mut stack);
                (stack, None, readers)
            }
        };
        let user = state.users.get(&asker.peer.user);
        let user = user.ok_or_else(|| Refusal::new("you are not known any more"))?;
        let made = user.memory.ring(number, &stack, base.as_ref());
        let (ring, shared) = made.map_err(|error| {
            Refusal::new(format!("no memory can be shared for the flow: {error}"))
        })?;
        let ring = Arc::new(ring);
        readers.add(Arc::clone(&ring));
        let is_new = base.is_none();
        let components = stack.nodes.iter().map(|node| node.label.clone()).collect();
        let flow = Flow {
            device: device.to_owned(),
            stack,
            base,
            by: asker.clone(),
            ring,
            readers,
            _files: files,
        };
        state.flows.insert(number, flow);
        if is_new && let Err(error) = state.run(device) {
            state.flows.remove(&number);
            return Err(Refusal::new(error));
        }
        Ok((OpenedFlow { number, components }, shared))
    }

    /// The results of a flow of a connection; with `take`, the table of that component, which forgets it.
    ///
    /// # Errors
    /// When it has no such flow, and no such component with a table.
    pub(crate) fn results(
        &self,
        asker: &Asker,
        number: u64,
        take: Option<&str>,
    ) -> Result<Results, Refusal> {
        let state = self.state.lock();
        let flow = state.flow(asker, number)?;
        let (stack, base) = (flow.stack.clone(), flow.base.clone());
        let readers = Arc::clone(&flow.readers);
        let device = state.devices.get(&flow.device).map(Arc::clone);
        drop(state);
        if let Some(label) = take {
            let has_table = |node: &Node| node.info.result.is_some_and(|it| !it.columns.is_empty());
            let mut nodes = stack.nodes.iter();
            if !nodes.any(|node| node.label == label && has_table(node)) {
                let error = format!("the flow has no component {label} with a table");
                return Err(Refusal::new(error));
            }
        }
        if let Some(label) = take {
            readers.reads(label);
        }
        let name = stack.name.clone().unwrap_or_default();
        let what = take.map(|label| (name, label.to_owned()));
        let shown = device.and_then(|device| device.take(what));
        let shown = shown.ok_or_else(|| Refusal::new("the device has ended"))?;
        let results = shown.results(&stack);
        let results = results.ok_or_else(|| Refusal::new("the flow has ended with its device"))?;
        let mut results = results;
        if let Some(label) = take {
            results.components.retain(|it| it.component == label);
            return Ok(results);
        }
        Ok(match base {
            Some(base) => since(results, &base),
            None => results,
        })
    }

    /// A user reads the rows that were taken of a component: more of them are waited with.
    ///
    /// # Errors
    /// When it has no such flow.
    pub(crate) fn reads(&self, asker: &Asker, flow: u64, component: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        state.flow(asker, flow)?.readers.reads(component);
        Ok(())
    }

    /// Ends a flow of a connection.
    ///
    /// # Errors
    /// When it has no such flow.
    pub(crate) fn close(&self, asker: &Asker, number: u64) -> Result<Results, Refusal> {
        let mut last = self.results(asker, number, None)?;
        last.is_last = true;
        let mut state = self.state.lock();
        let Some(flow) = state.flows.remove(&number) else {
            return Ok(last);
        };
        flow.readers.remove(number);
        let ended = state.run(&flow.device).map_err(Refusal::new)?;
        state.has_ended = true;
        let mut ended = ended.into_iter();
        let ended = ended.find(|ended| ended.stack.name == flow.stack.name);
        Ok(ended.map_or(last, |ended| {
            let failure = ended.failure.map(|failure| failure.to_string());
            let results = results(&ended.stack, &ended.state, failure, true);
            match &flow.base {
                Some(base) => since(results, base),
                None => results,
            }
        }))
    }

    /// Reads the files of a device that holds.
    ///
    /// # Errors
    /// When there is no such device.
    pub(crate) fn start_device(
        &self,
        asker: &Asker,
        rights: &Rights,
        device: &str,
    ) -> Result<(), Refusal> {
        let state = self.state.lock();
        state.rights_on(asker, rights, device)?;
        state.device(device).map_err(Refusal::new)?.start();
        Ok(())
    }

    /// Takes the configuration anew: what did not change goes on. Returns what was changed.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    pub fn reload(&self) -> Result<Vec<String>, StartError> {
        let Some(path) = &self.path else {
            return Ok(vec!["there is no configuration".to_owned()]);
        };
        let checked = Checked::read(path)?;
        let mut state = self.state.lock();
        let mut said = Vec::new();
        let old = &state.checked.config;
        if (&old.socket, &old.user) != (&checked.config.socket, &checked.config.user) {
            let what = "socket and user stay what they were until the sensor is started again";
            said.push(what.to_owned());
        }
        if (&old.users, &old.groups) != (&checked.config.users, &checked.config.groups) {
            said.push("rights have changed".to_owned());
        }
        // What can fail comes before anything is taken away.
        let opened = state.open_changed(&checked)?;
        let before = core::mem::replace(&mut state.checked, checked);
        self.people.change(&state.checked.config);
        state.end_forbidden(&self.people, &mut said);
        let gone = state.devices.keys();
        let gone = gone.filter(|name| !state.owners.contains_key(*name));
        let gone: Vec<String> = gone.cloned().collect();
        for name in gone {
            if !state.checked.config.devices.contains_key(&name) {
                state.end(|_, flow| flow.device == name);
                state.devices.remove(&name);
                said.push(format!("device {name} ended"));
            }
        }
        let mut new = Vec::new();
        for (name, source) in opened {
            // The files of its stacks are closed before others open them.
            let was = state.devices.remove(&name).is_some();
            let of_it = state.flows.values_mut().filter(|flow| flow.device == name);
            for flow in of_it {
                flow.base = None;
                flow.ring.begin_anew();
            }
            let sharing = state.sharing(&self.people, &name, None);
            let device = source.start(&name, Vec::new(), sharing, true);
            let device = device.map_err(|error| StartError::Stacks {
                device: name.clone(),
                error: error.to_string(),
            })?;
            said.push(match was {
                true => format!("device {name} replaced"),
                false => format!("device {name} started"),
            });
            state.devices.insert(name.clone(), Arc::new(device));
            new.push(name);
        }
        let names: Vec<String> = state.checked.config.devices.keys().cloned().collect();
        for name in names {
            let changed = changed(&before, &state.checked, &name);
            let is_new = new.contains(&name);
            if let Err(error) = state.run_anew(&name) {
                said.push(format!("device {name}: not changed: {error}"));
                continue;
            }
            if let Some(device) = state.devices.get(&name)
                && is_new
                && !device.config.hold
            {
                device.start();
            }
            if !changed.is_empty() {
                said.push(format!("device {name}: changed {}", changed.join(", ")));
            }
            let shown = state.devices.get(&name).and_then(|device| device.show());
            for (stack, _, failure) in shown.iter().flat_map(|shown| &shown.stacks) {
                let name = stack.name.clone().unwrap_or_default();
                if let Some(failure) = failure {
                    said.push(format!("stack {name} failed: {failure}"));
                }
            }
        }
        if said.is_empty() {
            said.push("nothing has changed".to_owned());
        }
        Ok(said)
    }
}

/// Whether the capture filters of a flow can be for packets of these link types, as they are before something makes others.
fn fits(stack: &Stack, links: &[LinkType]) -> Result<(), Refusal> {
    let nodes = stack
        .nodes
        .iter()
        .take_while(|node| node.info.name != "cook");
    for node in nodes.filter(|node| node.info.name == "filter") {
        let expression = node.settings.text("expression").unwrap_or_default();
        let mut filters = FilterSet::new(expression, DEFAULT_SNAP_LEN, None);
        for link in links {
            filters.for_link(*link).map_err(|error| Refusal {
                error: format!("{}: error: expression: {error}", node.label),
                hint: error.hint(),
            })?;
        }
    }
    Ok(())
}

/// The names of a device's stacks that differ, or that only one has.
fn changed(before: &Checked, after: &Checked, device: &str) -> Vec<String> {
    let of = |checked: &Checked| checked.stacks.get(device).cloned().unwrap_or_default();
    let (before, after) = (of(before), of(after));
    let is_in = |one: &Stack, all: &[Stack]| all.iter().any(|other| other.does_as(one));
    let gone = before.iter().filter(|stack| !is_in(stack, &after));
    let new = after.iter().filter(|stack| !is_in(stack, &before));
    let mut names: Vec<String> = gone
        .chain(new)
        .filter_map(|stack| stack.name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

impl State {
    /// Opens the devices that are new or differ.
    fn open_changed(&self, checked: &Checked) -> Result<Vec<(String, Opened)>, StartError> {
        let mut opened = Vec::new();
        for (name, config) in &checked.config.devices {
            let is_same = |device: &Arc<Device>| device.config == *config;
            if self.devices.get(name).is_some_and(is_same) {
                continue;
            }
            let source = Opened::open(name, config).map_err(|error| StartError::Device {
                device: name.clone(),
                error,
            })?;
            opened.push((name.clone(), source));
        }
        Ok(opened)
    }

    /// Ends flows that their users may not have any more.
    fn end_forbidden(&mut self, people: &People, said: &mut Vec<String>) {
        let owners = self.owners.clone();
        self.end(|number, flow| {
            let rights = people.rights(flow.by.peer, &flow.by.groups);
            let (rights, may_use) = match owners.contains_key(&flow.device) {
                true => (rights.on_own(), true),
                false => (rights.clone(), rights.may_use(&flow.device)),
            };
            let is_allowed = may_use && rights.allow(&flow.stack).is_ok();
            if !is_allowed {
                said.push(format!("flow {number} is not allowed any more"));
            }
            !is_allowed
        });
    }

    /// Ends flows without their users, who may be looking at what they share.
    fn end(&mut self, mut ends: impl FnMut(u64, &Flow) -> bool) {
        let ended = self
            .flows
            .extract_if(.., |number, flow| ends(*number, flow));
        for (number, flow) in ended {
            flow.readers.remove(number);
            flow.ring.end();
            self.ended.push((flow.by.session, flow.ring));
        }
    }

    /// What somebody may do on a device.
    ///
    /// # Errors
    /// Nothing, or it is not there.
    fn rights_on(&self, asker: &Asker, rights: &Rights, device: &str) -> Result<Rights, Refusal> {
        let found = match self.owners.get(device) {
            Some(owner) => (owner.session == asker.session).then(|| rights.on_own()),
            None => rights.may_use(device).then(|| rights.clone()),
        };
        let found = found.filter(|_| self.devices.contains_key(device));
        found.ok_or_else(|| {
            Refusal::with_hint(
                format!("device \"{device}\" is not there, or not for you"),
                "flowgauge sensor status shows the devices",
            )
        })
    }

    fn flow(&self, asker: &Asker, number: u64) -> Result<&Flow, Refusal> {
        let flow = self.flows.get(&number);
        let flow = flow.filter(|flow| flow.by.session == asker.session);
        flow.ok_or_else(|| Refusal::new(format!("there is no flow {number} of yours")))
    }

    /// Where programs come to for the streams of a device, if they may.
    fn sharing(
        &self,
        people: &Arc<People>,
        device: &str,
        grace: Option<Duration>,
    ) -> Option<Sharing> {
        let (interface, memory) = self.checked.config.shared(device)?;
        let listener = Arc::clone(self.shared.get(interface)?);
        let people = Arc::clone(people);
        Some(Sharing::new(listener, device, people, memory, grace))
    }

    /// What a device runs already for a flow of these components, and what that has counted, if one more may have it.
    fn running(&self, device: &str, stack: &Stack) -> Option<(Stack, Results, Arc<Readers>)> {
        let mut flows = self.flows.values().filter(|flow| flow.device == device);
        let mut named = stack.clone();
        let same = flows.find(|flow| {
            named.name.clone_from(&flow.stack.name);
            flow.stack.does_as(&named)
        })?;
        let shown = self.devices.get(device)?.show()?;
        let (_, state, _) = shown.of(&same.stack)?;
        let base = shown.results(&same.stack)?;
        let is_shared = is_shared(stack, state) && base.failure.is_none();
        is_shared.then(|| (same.stack.clone(), base, Arc::clone(&same.readers)))
    }

    /// The stacks of a device: those of the configuration, and of flows.
    fn stacks_of(&self, device: &str) -> Running {
        let always = self.checked.stacks.get(device).into_iter().flatten();
        let mut stacks: Vec<Stack> = always.cloned().collect();
        let mut readers = BTreeMap::new();
        for flow in self.flows.values().filter(|flow| flow.device == device) {
            let name = flow.stack.name.clone().unwrap_or_default();
            if readers.insert(name, Arc::clone(&flow.readers)).is_none() {
                stacks.push(flow.stack.clone());
            }
        }
        Running { stacks, readers }
    }

    /// Whether a stack is none of the configuration's.
    fn is_flow(&self, stack: &Stack) -> bool {
        let mut always = self.checked.stacks.values().flatten();
        !always.any(|always| always.name == stack.name)
    }

    /// Has a device run what it is to.
    fn run(&self, device: &str) -> Result<Vec<Ended>, String> {
        self.device(device)?.run(self.stacks_of(device), false)
    }

    /// The same; what has failed begins anew.
    fn run_anew(&self, device: &str) -> Result<Vec<Ended>, String> {
        self.device(device)?.run(self.stacks_of(device), true)
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

    fn device(&self, name: &str) -> Result<&Device, String> {
        let found = self.devices.get(name).map(Arc::as_ref);
        found.ok_or_else(|| format!("there is no device \"{name}\""))
    }
}

/// Opens all devices of a configuration.
fn open_all(checked: &Checked) -> Result<Vec<(String, Opened)>, StartError> {
    let devices = checked.config.devices.iter();
    let opened = devices.map(|(name, device)| {
        let opened = Opened::open(name, device).map_err(|error| StartError::Device {
            device: name.clone(),
            error,
        })?;
        Ok((name.clone(), opened))
    });
    opened.collect()
}

fn give_up_root(user: Option<&str>) -> Result<(), StartError> {
    if !privileges::is_root() {
        return Ok(());
    }
    let default = || USERS.into_iter().find(|user| privileges::user_exists(user));
    let Some(user) = user.or_else(default).filter(|user| *user != "root") else {
        return Ok(());
    };
    privileges::drop_to(user).map_err(|error| StartError::User {
        user: user.to_owned(),
        error,
    })
}
