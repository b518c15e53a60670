//! Flows of users: opened, asked for and closed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, FilterSet};
use flowgauge_sensor_client::protocol::{OpenedFlow, Refusal, Results};
use flowgauge_stack::Stack;
use flowgauge_wire::LinkType;

use super::own_files::name_files;
use super::{Asker, Flow, Sensor, StackFlow, State, What};
use crate::accounts::Account;
use crate::device::Device;
use crate::granted::Granted;
use crate::readers::Readers;
use crate::text::{self, FORCED_FAILS, FlowStack};

/// How long who has used up a share of the processors waits for some of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked meanwhile whether the sensor ends.
const LOOK: Duration = Duration::from_millis(50);

impl Sensor {
    /// Has a user's work done that takes processor time, when it is the user's turn and there is something left of the share.
    pub(crate) fn in_turn<T: Send>(
        &self,
        account: &Account,
        work: impl FnOnce() -> Result<T, Refusal> + Send,
    ) -> Result<T, Refusal> {
        let until = Instant::now() + PATIENCE;
        while let Some(owed) = account.owes() {
            if Instant::now() >= until || self.is_stopped() {
                let error = format!(
                    "you have exceeded your CPU share, cpu = {}",
                    account.share()
                );
                return Err(Refusal::with_hint(error, "close flows, or try again later"));
            }
            thread::sleep(owed.min(LOOK));
        }
        let done = self.turns.take(account, work);
        done.map_err(|error| Refusal::new(format!("cannot start a thread: {error}")))?
    }

    pub(crate) fn account(&self, asker: &Asker, rights: &Granted) -> Arc<Account> {
        self.accounts.of(asker.who(), rights.cpu)
    }

    /// A number for a flow.
    pub(crate) fn next_flow(&self) -> u64 {
        self.flows.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a flow, if its user may have one more.
    ///
    /// # Errors
    /// No more may be open.
    pub(crate) fn insert(&self, number: u64, flow: Flow, rights: &Granted) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        state.has_room(&flow.by, rights)?;
        state.flows.insert(number, flow);
        Ok(())
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Flow> {
        self.state.lock().flows.remove(&number)
    }

    pub(crate) fn has_flow(&self, number: u64) -> bool {
        self.state.lock().flows.contains_key(&number)
    }

    /// The device that captures an interface for programs to share.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn capturing(&self, interface: &str) -> Result<(String, Arc<Device>), Refusal> {
        let state = self.state.lock();
        let shares = |name: &&String| {
            let shared = state.checked.config.shared(name);
            shared.is_some_and(|(of, _)| of == interface)
        };
        let found = state.devices.iter().find(|(name, _)| shares(name));
        let found = found.map(|(name, device)| (name.clone(), Arc::clone(device)));
        found.ok_or_else(|| {
            Refusal::with_hint(
                format!(
                    "no device captures \"{}\" for programs",
                    interface.escape_debug()
                ),
                "set shared_memory for a device of the interface",
            )
        })
    }

    /// The device that a flow is to be on, and what its user may do there.
    pub(super) fn place(
        &self,
        asker: &Asker,
        rights: &Granted,
        device: &str,
    ) -> Result<(Arc<Device>, Granted), Refusal> {
        let state = self.state.lock();
        let rights = state.rights_on(asker, rights, device)?;
        let device = state.device(device).map_err(Refusal::new)?;
        Ok((device, rights))
    }

    /// Whether a flow could be opened.
    ///
    /// # Errors
    /// Why it may not be.
    pub(crate) fn check(
        &self,
        asker: &Asker,
        rights: &Granted,
        device: &str,
        text: &str,
    ) -> Result<(), Refusal> {
        let (place, rights) = self.place(asker, rights, device)?;
        if text.is_empty() {
            return Ok(());
        }
        rights.allow_text(text)?;
        let account = self.account(asker, &rights);
        self.in_turn(&account, || {
            fits(&checked(&rights, device, text)?.stack, &place.links)
        })
    }

    /// A new flow, and descriptors of the memory that is shared with its user.
    ///
    /// # Errors
    /// Why it may not be, or cannot.
    pub(crate) fn open(
        &self,
        asker: &Asker,
        rights: &Granted,
        device: &str,
        text: &str,
        files: Vec<OwnedFd>,
    ) -> Result<(OpenedFlow, Vec<OwnedFd>), Refusal> {
        let number = self.next_flow();
        let (place, rights) = self.place(asker, rights, device)?;
        rights.allow_text(text)?;
        let account = self.account(asker, &rights);
        let readers = Arc::<Readers>::default();
        let (made, files) = self.in_turn(&account, || {
            let mut made = checked(&rights, device, text)?;
            made.stack.name = Some(format!("flow {number}"));
            fits(&made.stack, &place.links)?;
            let interfaces = self.state.lock().may_be_sent_onto(device);
            let files = name_files(&mut made.stack, files, &interfaces)?;
            readers.attach(&mut made.stack);
            let prepared = place.prepare(&mut made.stack);
            prepared.map_err(|error| Refusal::new(error.message))?;
            Ok((made, files))
        })?;
        let FlowStack { stack, hidden } = made;
        let memory = {
            let state = self.state.lock();
            let user = state.users.get(&asker.who());
            user.map(|user| Arc::clone(&user.memory))
        };
        let memory = memory.ok_or_else(|| Refusal::new("your connection is no longer known"))?;
        let ring = memory.ring(number, &stack, hidden);
        let (ring, shared) = ring
            .map_err(|error| Refusal::new(format!("cannot share memory for the flow: {error}")))?;
        let own = stack.nodes.iter().skip(hidden);
        let components = own.map(|node| node.label.clone()).collect();
        let flow = Flow {
            device: device.to_owned(),
            by: asker.clone(),
            account,
            is_timed: rights.policy.is_timed(),
            what: What::Stack(Box::new(StackFlow {
                stack,
                hidden,
                forced: rights.forced()?,
                ring: Arc::new(ring),
                readers,
                files,
            })),
        };
        let new = flow.as_new(number);
        self.insert(number, flow, &rights)?;
        let opened = new.map_or(Ok(()), |new| place.open(new));
        if let Err(error) = opened {
            // A device in the place of the one that was asked may have it.
            let flow = self.remove(number);
            let now = self.state.lock().device(device);
            if let (Some(flow), Ok(now)) = (flow, now) {
                flow.end(&error);
                now.close(None, vec![number]);
            }
            return Err(Refusal::new(error));
        }
        if !self.has_flow(number) {
            // The configuration was taken anew meanwhile.
            place.close(None, vec![number]);
            return Err(Refusal::new("the flow is no longer allowed"));
        }
        let opened = OpenedFlow {
            number,
            components,
            is_live: place.is_live(),
        };
        Ok((opened, shared))
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
        let device = self.state.lock().device_of(asker, number)?;
        let results = device.results(asker.who(), number, take.map(str::to_owned));
        let results = results.map_err(Refusal::new)?;
        if let Some(label) = take {
            self.reads(asker, number, label)?;
        }
        Ok(results)
    }

    /// A user reads the rows that were taken of a component: more of them are waited with.
    ///
    /// # Errors
    /// When it has no such flow.
    pub(crate) fn reads(&self, asker: &Asker, flow: u64, component: &str) -> Result<(), Refusal> {
        let state = self.state.lock();
        state.device_of(asker, flow)?;
        if let Some(of) = state.flows.get(&flow).and_then(Flow::stack) {
            of.readers.reads(component);
        }
        Ok(())
    }

    /// Ends a flow of a connection.
    ///
    /// # Errors
    /// When it has no such flow.
    pub(crate) fn close(&self, asker: &Asker, number: u64) -> Result<Results, Refusal> {
        let device = self.state.lock().device_of(asker, number)?;
        let last = device.close_one(asker.who(), number);
        let mut state = self.state.lock();
        // Its files are closed when the device has done with them.
        let flow = state.flows.remove(&number);
        state.has_ended = true;
        drop(state);
        drop(flow);
        last.ok_or_else(|| Refusal::new("the flow has ended with its device"))
    }

    /// Reads the files of a device that holds.
    ///
    /// # Errors
    /// When there is no such device.
    pub(crate) fn start_device(
        &self,
        asker: &Asker,
        rights: &Granted,
        device: &str,
    ) -> Result<(), Refusal> {
        self.place(asker, rights, device)?.0.start();
        Ok(())
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
                hint: error.hint(),
                ..Refusal::new(format!("{}: error: expression: {error}", node.label))
            })?;
        }
    }
    Ok(())
}

/// The stack of a flow, with what is forced before it.
fn checked(rights: &Granted, device: &str, text: &str) -> Result<FlowStack, Refusal> {
    let flow = text::flow("flow", &rights.forced()?, text);
    let flow = flow.map_err(|error| {
        let fails = (error == FORCED_FAILS).then(|| rights.filter_that_fails());
        fails.flatten().unwrap_or_else(|| Refusal::new(error))
    })?;
    rights.allow(device, &flow.stack.nodes[flow.hidden..])?;
    Ok(flow)
}

impl State {
    /// Whether somebody may have one more flow: of the user, and of each credential with a block that bounds them.
    ///
    /// # Errors
    /// No more may be open.
    fn has_room(&self, asker: &Asker, rights: &Granted) -> Result<(), Refusal> {
        for layer in rights.policy.layers() {
            let Some(most) = layer.block.duties.most_flows else {
                continue;
            };
            let is_counted = |flow: &&Flow| match (&layer.id, &flow.by.credential) {
                (None, _) => flow.by.who() == asker.who(),
                (Some(id), Some(brought)) => brought.has(id),
                (Some(_), None) => false,
            };
            let flows = self.flows.values().filter(is_counted).count();
            if flows >= most as usize {
                return Err(Refusal::by_rights(
                    format!(
                        "{flows} flows are already open, the maximum ({})",
                        layer.origin
                    ),
                    "close others, or raise most_flows in the rights of the user or the credential",
                ));
            }
        }
        Ok(())
    }
}
