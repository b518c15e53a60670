//! The flows of this process, and its connection to the sensor.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use flowgauge_link::{Identity, KeyFolder};
use flowgauge_mapi::{Argument, Call, Error, Shape};
use flowgauge_sensor_client::protocol::{DeviceStatus, Secret};
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::{
    CREDENTIAL_VARIABLE, Client, PREFETCH, Sensors, credential_of_environment,
    socket_of_environment,
};

use crate::abi::{RawPacket, RawResults};
use crate::devices::{create_device, devices};
use crate::error::{
    self, CONNECTED_TWICE, NO_DEVICE, NO_FLOW_YET, NOT_BUILT, RIGHTS, SOCKET, UNKNOWN_FLOW,
    UNKNOWN_FUNCTION, of_client,
};
use crate::flow::{Flow, no_result};
use crate::scope::Scope;

/// The environment's variable that names the key with which sensors of other machines are asked.
const IDENTITY_VARIABLE: &str = "FLOWGAUGE_IDENTITY";
/// How often a program that waits for a result looks for it, at first and later.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(2);
pub(crate) const LAST_LOOK: Duration = Duration::from_millis(50);
/// How long the numbers of a sensor of another machine are waited for.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// Descriptors of flows, also of those of the process that this one was forked from.
static DESCRIPTORS: AtomicI32 = AtomicI32::new(0);
static STATE: RwLock<State> = RwLock::new(State::new());

/// What a process has.
pub(crate) struct State {
    client: Option<Client>,
    /// Those of other machines.
    sensors: Option<Arc<Sensors>>,
    /// What is brought to sensors that are connected to from now on, in place of what the environment names.
    credential: Option<Secret>,
    flows: BTreeMap<c_int, Handle>,
    /// Offline devices, by name.
    pub(crate) offline: BTreeMap<String, usize>,
    /// Devices in the order in which they were seen first: a device keeps its number.
    devices: Vec<String>,
}

impl State {
    pub(crate) const fn new() -> State {
        State {
            client: None,
            sensors: None,
            credential: None,
            flows: BTreeMap::new(),
            offline: BTreeMap::new(),
            devices: Vec::new(),
        }
    }

    /// The number of a device, which it keeps.
    pub(crate) fn device_number(&mut self, name: &str) -> c_int {
        let known = self.devices.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.devices.push(name.to_owned());
            self.devices.len() - 1
        });
        at as c_int + 1
    }

    /// Begins anew in the child of a fork. Connections to other machines are the parent's, and would be ended for both.
    pub(crate) fn begin_anew(&mut self) {
        let before = core::mem::replace(self, State::new());
        self.credential = before.credential;
        let scopes = before.flows.into_values();
        let scopes: Vec<Handle> = scopes
            .filter(|flow| matches!(flow, Handle::Scope(_)))
            .collect();
        core::mem::forget((scopes, before.sensors));
    }
}

/// What a descriptor stands for.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    Flow(Arc<Flow>),
    Scope(Arc<Scope>),
}

impl Deref for Handle {
    type Target = dyn Descriptor;

    fn deref(&self) -> &Self::Target {
        match self {
            Handle::Flow(flow) => &**flow,
            Handle::Scope(scope) => &**scope,
        }
    }
}

/// What can be done with a descriptor.
pub(crate) trait Descriptor {
    fn fd(&self) -> c_int;
    fn device(&self) -> &str;
    fn device_id(&self) -> c_int;
    /// Applies a function. Returns its number.
    fn apply(&self, name: &str, arguments: Arguments<'_>) -> Result<c_int, Error>;
    /// Sets how its members send.
    fn set(&self, setting: Setting) -> Result<(), Error>;
    /// The functions that were applied.
    fn functions(&self) -> Vec<Call>;
    /// Begins it.
    fn connect(&self) -> Result<(), Error>;
    /// Whether it was connected.
    fn was_connected(&self) -> bool;
    /// Whether results can be asked for.
    fn is_connected(&self) -> Result<(), Error>;
    /// The result of a function. Waits for it where MAPI does.
    fn read(&self, fid: c_int) -> Result<*mut RawResults, Error>;
    /// In which setting up of a member the result was counted that was read last of a function; 0: it had none.
    fn generation(&self, fid: c_int, member: usize) -> Option<u32>;
    /// The next packet of a `TO_BUFFER`. `None`: there is none, or no further one.
    fn next(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Error>;
    /// Packets that came to a function, and that it passed.
    fn passed(&self, fid: usize) -> Result<(u64, u64), Error>;
    fn status(&self) -> Result<Status, Error>;
    /// When it was opened, in seconds since 1970; 0: not yet.
    fn since(&self) -> u64;
    /// When its device came to its end, in seconds since 1970; 0: not yet.
    fn until(&self) -> u64;
    fn is_closed(&self) -> bool;
    fn close(&self) -> Result<(), Error>;
    /// Whether a sensor has gone.
    fn is_gone(&self) -> bool;
    /// Whether a sensor is of another machine.
    fn is_remote(&self) -> bool;
    /// How many members it has.
    fn size(&self) -> usize;
    /// How a member is, counted from 0.
    fn member(&self, at: usize) -> Option<MemberInfo>;
}

/// What can be set of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting {
    /// Results come every so often by themselves; zero: they are asked for.
    Push(Duration),
    /// Bytes of packets that a member may send before more are asked for.
    Prefetch(u64),
    /// Packets come by capture time, and wait so long for earlier ones; nothing: they come of the members in turn.
    ByTime(Option<Duration>),
}

/// How the sensors of other machines send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// [`Setting::Push`].
    pub(crate) push: Duration,
    /// [`Setting::Prefetch`].
    pub(crate) prefetch: u64,
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer {
            push: Duration::ZERO,
            prefetch: PREFETCH,
        }
    }
}

/// How a member of a descriptor is.
pub(crate) struct MemberInfo {
    pub(crate) name: String,
    /// As `enum mapi_member_state` counts them.
    pub(crate) state: u32,
    pub(crate) since: SystemTime,
    pub(crate) generation: u32,
    pub(crate) reason: String,
}

/// What there is, for a look.
pub(crate) fn state() -> RwLockReadGuard<'static, State> {
    STATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// What there is, to change it. In the child of a fork it is made empty.
pub(crate) fn state_mut() -> std::sync::RwLockWriteGuard<'static, State> {
    STATE.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the argument of a place from 0, if there is one, of the kind that the letter says.
pub(crate) type Arguments<'a> = &'a mut dyn FnMut(usize, char) -> Option<Result<Argument, String>>;

/// How a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Init,
    Active,
    Finished,
}

/// The connection, made if there is none or the sensor was started anew.
pub(crate) fn client() -> Result<Client, Error> {
    if let Some(client) = state().client.as_ref().filter(|client| !client.is_gone()) {
        return Ok(client.clone());
    }
    let mut state = state_mut();
    if let Some(client) = state.client.as_ref().filter(|client| !client.is_gone()) {
        return Ok(client.clone());
    }
    let credential = credential(&state)?;
    let client = connect(credential.as_ref())?;
    state.client = Some(client.clone());
    Ok(client)
}

fn connect(credential: Option<&Secret>) -> Result<Client, Error> {
    let client =
        Client::connect(&socket_of_environment()).map_err(|error| of_client(&error, SOCKET))?;
    if let Some(credential) = credential {
        let brought = client.bring(credential);
        brought.map_err(|error| of_client(&error, RIGHTS))?;
    }
    Ok(client)
}

/// What is brought to sensors: what the program gave, else what the environment names.
fn credential(state: &State) -> Result<Option<Secret>, Error> {
    if state.credential.is_some() {
        return Ok(state.credential.clone());
    }
    credential_of_environment().map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Error::new(
            RIGHTS,
            format!("{CREDENTIAL_VARIABLE}: {error}; hint: {hint}"),
        )
    })
}

/// Has sensors asked with what a credential allows: for a flow that is not connected, else (0) for all that are created from
/// now on.
pub(crate) fn set_credential(fd: c_int, text: &str) -> Result<(), Error> {
    let credential = Secret::new(text.trim());
    if fd == 0 {
        let mut state = state_mut();
        state.credential = Some(credential);
        // Flows that are there keep their connections.
        (state.client, state.sensors) = (None, None);
        return Ok(());
    }
    let flow = flow(fd)?;
    if flow.was_connected() {
        return Err(Error::new(
            CONNECTED_TWICE,
            "the flow was connected already",
        ));
    }
    match flow {
        Handle::Flow(flow) if flow.owns_device => {
            let what = "a flow on a file is asked for with the credential of the program: give it with 0 in place of the flow, \
                 before the flow is created";
            Err(Error::new(NOT_BUILT, what))
        }
        Handle::Flow(flow) => {
            flow.ask_by(connect(Some(&credential))?);
            Ok(())
        }
        Handle::Scope(scope) => {
            let identity = match scope.is_remote() {
                true => Some(identity()?),
                false => None,
            };
            let sensors = Sensors::new(socket_of_environment(), identity);
            scope.ask_by(Arc::new(sensors.with_credential(Some(credential))))
        }
    }
}

/// Who this program is to sensors of other machines.
fn identity() -> Result<Identity, Error> {
    let name = std::env::var(IDENTITY_VARIABLE).ok();
    let identity = KeyFolder::usual().identity(name.as_deref());
    identity.map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        let what =
            format!("sensors of other machines want to know who asks: {error}; hint: {hint}");
        Error::new(RIGHTS, what)
    })
}

/// Connections to the sensors of members, which scopes share.
fn sensors(members: &[Member]) -> Result<Arc<Sensors>, Error> {
    if members.iter().all(|member| member.address.is_none()) {
        let credential = credential(&state())?;
        let sensors = Sensors::new(socket_of_environment(), None).with_credential(credential);
        return Ok(Arc::new(sensors));
    }
    let mut state = state_mut();
    if let Some(sensors) = &state.sensors {
        return Ok(Arc::clone(sensors));
    }
    let credential = credential(&state)?;
    let sensors =
        Sensors::new(socket_of_environment(), Some(identity()?)).with_credential(credential);
    let sensors = Arc::new(sensors);
    Ok(Arc::clone(state.sensors.insert(sensors)))
}

/// A flow on a device of its own.
pub(crate) fn create_offline(path: &str) -> Result<c_int, Error> {
    let device = create_device(path)?;
    create(&device, true).inspect_err(|_| {
        let _ = client().map(|client| client.delete_device(&device));
    })
}

/// A flow on a device. Returns its descriptor.
pub(crate) fn create(device: &str, owns_device: bool) -> Result<c_int, Error> {
    if device.contains([':', ',', '/']) {
        return create_scope(device);
    }
    let client = client()?;
    let (client, device_id) = match devices() {
        Ok(devices) => (Ok(client), number_of(device, &devices)?),
        // Its functions are refused so, unless it gets a credential of its own.
        Err(error) if error.number == RIGHTS && !owns_device => {
            (Err(error), state_mut().device_number(device))
        }
        Err(error) => return Err(error),
    };
    let fd = next_descriptor();
    let mut flow = Flow::new(fd, client, device);
    (flow.device_id, flow.owns_device) = (device_id, owns_device);
    state_mut().flows.insert(fd, Handle::Flow(Arc::new(flow)));
    Ok(fd)
}

/// The number of a device that the sensor has.
fn number_of(device: &str, devices: &BTreeMap<c_int, DeviceStatus>) -> Result<c_int, Error> {
    let found = devices.iter().find(|(_, known)| known.device == device);
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = devices
            .values()
            .map(|known| known.device.as_str())
            .collect();
        let what = format!(
            "the sensor has no device {device}, but {}",
            known.join(", ")
        );
        Error::new(NO_DEVICE, what)
    });
    found.map(|(number, _)| *number)
}

/// The descriptor of a new scope, and the number of its device.
pub(crate) fn new_numbers(text: &str) -> (c_int, c_int) {
    (next_descriptor(), state_mut().device_number(text))
}

fn next_descriptor() -> c_int {
    DESCRIPTORS.fetch_add(1, Ordering::Relaxed) + 1
}

/// A flow on the devices of many sensors.
fn create_scope(text: &str) -> Result<c_int, Error> {
    let members = flowgauge_sensor_client::scope::members(text);
    let members = members.map_err(|error| {
        let what = format!("{error}; hint: {}", error.hint());
        Error::new(NO_DEVICE, what)
    })?;
    let scope = Scope::create(text, sensors(&members)?, members)?;
    let fd = scope.fd();
    state_mut().flows.insert(fd, Handle::Scope(scope));
    Ok(fd)
}

/// What a descriptor stands for.
pub(crate) fn flow(fd: c_int) -> Result<Handle, Error> {
    // What was not created, and why nobody asked yet: that is what is told.
    if fd < 0
        && let Some(before) = error::last()
    {
        return Err(before);
    }
    let found = state().flows.get(&fd).cloned();
    found.ok_or_else(|| match DESCRIPTORS.load(Ordering::Relaxed) {
        0 => Error::new(NO_FLOW_YET, "no flow was created yet"),
        made if fd > 0 && fd <= made => {
            let what = format!("flow {fd} was closed, or is of the process that forked this one");
            Error::new(UNKNOWN_FLOW, what)
        }
        _ => Error::new(UNKNOWN_FLOW, format!("there is no flow {fd}")),
    })
}

/// The flow with the next higher descriptor.
pub(crate) fn flow_after(fd: c_int) -> Option<Handle> {
    let state = state();
    let mut flows = state.flows.range(fd.max(0) + 1..);
    flows.next().map(|(_, flow)| flow.clone())
}

/// The functions of a descriptor.
pub(crate) fn calls_of(fd: i128) -> Option<Vec<Call>> {
    let flow = state().flows.get(&c_int::try_from(fd).ok()?).cloned()?;
    Some(flow.functions())
}

/// Opens all flows that wait for nothing any more. Returns how that was for one of them.
pub(crate) fn open_waiting(own: c_int) -> Result<(), Error> {
    let all: Vec<Handle> = state().flows.values().cloned().collect();
    let mut of_own = Ok(());
    for flow in &all {
        let opened = match flow {
            Handle::Flow(flow) => flow.open_if_it_may(own),
            Handle::Scope(scope) => scope.open_if_it_may(),
        };
        if flow.fd() == own {
            of_own = opened;
        }
    }
    of_own
}

/// Ends a flow.
pub(crate) fn close(fd: c_int) -> Result<(), Error> {
    let flow = flow(fd)?;
    state_mut().flows.remove(&fd);
    flow.close()
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

pub(crate) fn too_late() -> Error {
    let what = "functions are applied before the flow is connected";
    Error::new(Error::NOT_NOW, what)
}

pub(crate) fn connected_twice() -> Error {
    Error::new(CONNECTED_TWICE, "the flow is connected")
}

/// Whether a function has a result that is read.
pub(crate) fn has_result(call: &Call) -> Result<(), Error> {
    let shape = call.function.result;
    let has_no_samples = shape == Shape::Sample && call.number(1) == Some(0);
    match matches!(shape, Shape::Nothing | Shape::Packets) || has_no_samples {
        true => Err(no_result(call)),
        false => Ok(()),
    }
}

/// Whether packets of a function are read.
pub(crate) fn has_packets(call: &Call) -> Result<(), Error> {
    if call.function.result == Shape::Packets {
        return Ok(());
    }
    let what = format!("{} keeps no packets", call.function.name);
    Err(Error::new(Error::NO_FUNCTION, what))
}

/// The function of a name with its arguments, each as its letter says.
pub(crate) fn call(name: &str, argument: Arguments<'_>) -> Result<Call, Error> {
    let function = flowgauge_mapi::find(name);
    let function = function
        .ok_or_else(|| Error::new(UNKNOWN_FUNCTION, format!("there is no function {name}")))?;
    let mut arguments = Vec::new();
    for (at, letter) in function.arguments.chars().enumerate() {
        match argument(at, letter) {
            Some(Ok(argument)) => arguments.push(argument),
            Some(Err(what)) => {
                let number = Error::number_of(at);
                return Err(Error::new(number, format!("{name}: {what}")));
            }
            None => break,
        }
    }
    Ok(Call {
        function,
        arguments,
        hides_flows: false,
    })
}
