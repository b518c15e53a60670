//! How a sensor is, for who asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flowgauge_sensor_client::protocol::{DeviceStatus, Status, UserStatus};
use flowgauge_sys::process;

use super::{Asker, Sensor, What};
use crate::accounts::Who;
use crate::device::{Device, LOOK};
use crate::granted::Granted;
use crate::sharing::Capturing;

/// How long it is waited for what programs have asked for to be done.
const HEARING: Duration = Duration::from_secs(1);

impl Sensor {
    /// How it is; of flows those of the asker, or all for who may see them.
    pub(crate) fn status(&self, asker: &Asker, rights: &Granted, shared: bool) -> Status {
        let state = self.state.lock();
        let devices = state.devices.iter();
        let devices = devices.filter(|(name, _)| match state.owners.get(*name) {
            Some(owner) => rights.admin || owner.session == asker.session,
            None => rights.may_use(name),
        });
        let devices = devices.map(|(name, device)| (name.clone(), Arc::clone(device)));
        let devices: Vec<(String, Arc<Device>)> = devices.collect();
        // What programs have asked for by now comes first.
        let until = Instant::now() + HEARING;
        let programs = state.flows.values().filter_map(|flow| match &flow.what {
            What::Streams(capturing) => Some(Arc::clone(capturing)),
            What::Stack(_) => None,
        });
        let programs: Vec<Arc<Capturing>> = programs.collect();
        let mut users = BTreeMap::new();
        for (who, user) in &state.users {
            users.insert(*who, (user.connections, Arc::clone(&user.memory)));
        }
        drop(state);
        for program in programs {
            program.settle(until);
        }
        let who = asker.who();
        let account = self.account(asker, rights);
        // Devices that do not answer are waited for together.
        let asked = devices
            .iter()
            .map(|(_, device)| device.look(&account, shared));
        let asked: Vec<_> = asked.collect();
        let until = Instant::now() + LOOK;
        let devices = devices.iter().zip(&asked);
        let devices = devices
            .map(|((name, device), asked)| device.status(name, who, rights.admin, asked, until));
        let mut devices: Vec<DeviceStatus> = devices.collect();
        let stacks = devices.iter_mut().flat_map(|device| &mut device.stacks);
        for flow in stacks.flat_map(|stack| &mut stack.flows) {
            flow.name = self.people.name(Who(flow.user));
        }
        let accounts = self.accounts.all().into_iter();
        let seen = accounts.filter(|account| rights.admin || account.who() == who);
        let users = seen.map(|account| {
            let user = users.get(&account.who());
            let (memory, most) = user.map_or((0, 0), |(_, memory)| memory.fill());
            UserStatus {
                user: account.who().0,
                name: self.people.name(account.who()),
                connections: user.map_or(0, |(connections, _)| *connections as u64),
                cpu_ns: account.spent(),
                cpu: Some(account.share()).filter(|share| share.is_finite()),
                is_over: account.owes().is_some(),
                memory,
                most_memory: most,
            }
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            seconds: self.started.elapsed().as_secs(),
            memory: process::memory_in_use(),
            connections: self.connections.load(Ordering::Relaxed),
            devices,
            users: users.collect(),
        }
    }
}
