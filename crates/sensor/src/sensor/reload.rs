//! The configuration taken anew: what did not change goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgauge_stack::Stack;

use super::{Ended, Sensor, StartError, State, of_device};
use crate::config::{Checked, Config};
use crate::device::{Device, NewFlow, Opened};
use crate::people::{People, Tables};
use crate::rmon;

impl Sensor {
    /// Takes the configuration anew, as somebody asked: what did not change goes on. Returns what was changed, which is among the
    /// [`news`](Sensor::news), too.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    pub fn reload(&self, by: &str) -> Result<Vec<String>, StartError> {
        let taken = self.take_anew();
        match &taken {
            Ok(said) => {
                let lines = said.iter().map(|line| format!("reloaded {by}: {line}"));
                lines.for_each(|line| self.news.tell(line));
            }
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; hint: {hint}"));
                let hint = hint.unwrap_or_default();
                let what =
                    format!("not reloaded {by}, the sensor continues as it was: {error}{hint}");
                self.news.tell(what);
            }
        }
        taken
    }

    fn take_anew(&self) -> Result<Vec<String>, StartError> {
        let Some(path) = &self.path else {
            return Ok(vec!["there is no configuration".to_owned()]);
        };
        // Others who reload wait; nobody else does.
        let _alone = self.reloading.lock();
        let checked = Checked::read(path)?;
        let mut said = Vec::new();
        let devices = self.state.lock().devices.clone();
        // What can fail, and what takes long, comes before anything is taken away.
        let opened = open_changed(&devices, &checked, self.became.as_deref())?;
        let tables = Tables::of(&checked.config).map_err(StartError::Revoked)?;
        rmon::begin(&checked.config)?;
        let (before, ended, gone) = self.adopt(checked, tables, &mut said);
        close(&devices, ended);
        for (name, device) in gone {
            device.end();
            said.push(format!("device {name} ended"));
        }
        let mut new = BTreeMap::new();
        for (name, source) in opened {
            let (was, flows) = self.replace(&name, source)?;
            said.push(match was {
                true => format!("device {name} replaced"),
                false => format!("device {name} started"),
            });
            new.insert(name, flows);
        }
        self.run_changed(&before, new, &mut said);
        let wanted = self.state.lock().checked.config.rmon.clone();
        rmon::end(before.config.rmon.as_ref(), wanted.as_ref(), &self.news);
        if said.is_empty() {
            said.push("nothing has changed".to_owned());
        }
        Ok(said)
    }

    /// The configuration is this one. Returns the one before, flows that have ended, and devices that are to.
    fn adopt(
        &self,
        checked: Checked,
        tables: Tables,
        said: &mut Vec<String>,
    ) -> (Checked, Ended, Vec<(String, Arc<Device>)>) {
        let mut state = self.state.lock();
        let old = &state.checked.config;
        let new = &checked.config;
        if (&old.socket, &old.user) != (&new.socket, &new.user) {
            let what = "socket and user stay what they were until the sensor is started again";
            said.push(what.to_owned());
        }
        let of_rights = |it: &Config| {
            let tables = [&it.users, &it.groups, &it.remotes, &it.issuers].map(Clone::clone);
            (tables, it.revoked.clone(), it.anonymization.clone())
        };
        if of_rights(old) != of_rights(new) {
            said.push("rights have changed".to_owned());
        }
        let before = core::mem::replace(&mut state.checked, checked);
        self.people.change(tables);
        let mut ended = state.end_forbidden(&self.people, said);
        for flow in state.flows.values_mut() {
            let rights = flow.by.rights(&self.people);
            flow.account.set_share(rights.cpu);
            flow.is_timed = rights.policy.is_timed();
        }
        let gone = state.devices.keys();
        let gone = gone.filter(|name| {
            !state.owners.contains_key(*name) && !state.checked.config.devices.contains_key(*name)
        });
        let gone: Vec<String> = gone.cloned().collect();
        let why = "its device is not there any more";
        ended.extend(state.end(why, |flow| gone.contains(&flow.device)));
        let gone = gone.into_iter().filter_map(|name| {
            let device = state.devices.remove(&name)?;
            Some((name, device))
        });
        let gone = gone.collect();
        (before, ended, gone)
    }

    /// Puts a device in the place of the one with this name, if there is one. Its packets do not come yet. Returns whether
    /// there was one.
    fn replace(&self, name: &str, source: Opened) -> Result<(bool, Vec<NewFlow>), StartError> {
        let sharing = self.state.lock().sharing(name);
        let device = source.start(name, Vec::new(), sharing, true, &self.news);
        let device = device.map_err(|error| StartError::Stacks {
            device: name.to_owned(),
            user: self.became.clone(),
            error: error.to_string(),
        })?;
        let mut state = self.state.lock();
        let was = state.devices.insert(name.to_owned(), Arc::new(device));
        // A file is of one run: a second one would begin in the middle of it.
        let why = "its device was replaced, and a file that it writes is of one run";
        let ended = state.end(why, |flow| {
            let writes = flow.stack().is_some_and(|of| !of.files.is_empty());
            flow.device == name && writes
        });
        drop(state);
        // The files of its stacks are closed before others open them.
        if let Some(was) = &was {
            was.end();
        }
        drop(ended);
        let state = self.state.lock();
        let flows = state.flows.iter().filter(|(_, flow)| flow.device == name);
        let flows = flows.filter_map(|(number, flow)| {
            let new = flow.as_new(*number)?;
            new.ring.begin_anew();
            Some(new)
        });
        Ok((was.is_some(), flows.collect()))
    }

    /// Has all devices run what they are to, and those that are new begin.
    fn run_changed(
        &self,
        before: &Checked,
        mut new: BTreeMap<String, Vec<NewFlow>>,
        said: &mut Vec<String>,
    ) {
        let state = self.state.lock();
        let checked = state.checked.clone();
        let devices = state.devices.clone();
        drop(state);
        for name in checked.config.devices.keys() {
            let Some(device) = devices.get(name) else {
                continue;
            };
            let changed = changed(before, &checked, name);
            let is_new = new.contains_key(name);
            let mut stacks = checked.stacks.get(name).cloned().unwrap_or_default();
            let mut flows = new.remove(name).unwrap_or_default();
            let failed = device.failed();
            let begins = |stack: &&mut Stack| {
                let name = stack.name.as_ref();
                is_new || name.is_some_and(|name| changed.contains(name) || failed.contains(name))
            };
            let begin = stacks.iter_mut().filter(begins);
            for stack in begin.chain(flows.iter_mut().map(|flow| &mut flow.stack)) {
                // What cannot be made the device finds, too.
                let _ = device.prepare(stack);
            }
            let failed = match device.run(stacks, flows, true) {
                Ok(failed) => failed,
                Err(error) => {
                    said.push(format!("device {name}: not changed: {error}"));
                    continue;
                }
            };
            if is_new && !device.config.hold {
                device.start();
            }
            if !changed.is_empty() {
                said.push(format!("device {name}: changed {}", changed.join(", ")));
            }
            let failed = failed.into_iter();
            said.extend(failed.map(|(stack, failure)| format!("stack {stack} failed: {failure}")));
        }
    }
}

/// Opens the devices that are new or differ.
fn open_changed(
    devices: &BTreeMap<String, Arc<Device>>,
    checked: &Checked,
    became: Option<&str>,
) -> Result<Vec<(String, Opened)>, StartError> {
    let mut opened = Vec::new();
    for (name, config) in &checked.config.devices {
        let is_same = |device: &Arc<Device>| device.config == *config;
        if devices.get(name).is_some_and(is_same) {
            continue;
        }
        let source = Opened::open(name, config).map_err(|error| match became {
            Some(user) if error.is_about_rights() => StartError::Rootless {
                device: name.clone(),
                user: user.to_owned(),
                error: Box::new(error),
            },
            _ => of_device(name)(error),
        })?;
        opened.push((name.clone(), source));
    }
    Ok(opened)
}

/// Has devices end flows. Programs go by themselves.
pub(super) fn close(devices: &BTreeMap<String, Arc<Device>>, ended: Ended) {
    let stacks = ended.into_iter().filter(|(_, flow)| flow.stack().is_some());
    for (number, flow) in stacks {
        if let Some(device) = devices.get(&flow.device) {
            device.close(None, vec![number]);
        }
    }
}

impl State {
    /// Ends flows that their users may not have any more.
    fn end_forbidden(&mut self, people: &People, said: &mut Vec<String>) -> Ended {
        let owners = self.owners.clone();
        self.end_each(|number, flow| {
            let why = flow.refused(people, owners.contains_key(&flow.device));
            said.extend(
                (why.iter()).map(|why| format!("flow {number} is not allowed any more: {why}")),
            );
            why
        })
    }
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
