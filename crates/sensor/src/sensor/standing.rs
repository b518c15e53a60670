//! Who somebody is, and whether what is open may stay so: speaking for others, credentials, and what changes with time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_credential::Facts;
use flowgauge_sensor_client::protocol::Refusal;
use flowgauge_sys::privileges;

use super::reload::close;
use super::{Asker, Flow, LOOK, Sensor, User};
use crate::accounts::Who;
use crate::granted::Granted;
use crate::people::People;
use crate::readers::UserMemory;
use crate::text;

/// Connections at once, and of one user.
const MOST_CONNECTIONS: u64 = 1024;
const MOST_OF_A_USER: usize = 32;
/// Connections of those without rights, who may bring a credential.
const MOST_STRANGERS: u64 = 256;
/// ... and of one of them, with those that brought one.
const MOST_OF_A_STRANGER: usize = 16;
/// How often it is looked whether flows may still be there.
const EVERY: Duration = Duration::from_secs(1);
/// How long somebody without rights may take to bring a credential.
const COMING: Duration = Duration::from_secs(10);

impl Flow {
    /// Why its user may not have it any more, if so; of a device of the user's own, or of the sensor's.
    pub(super) fn refused(&self, people: &People, is_own: bool) -> Option<String> {
        let rights = self.by.rights(people);
        if let Some(why) = rights.nothing {
            return Some(why);
        }
        let Some(of) = self.stack() else {
            return rights.may_share(&self.device).err().map(|it| it.text());
        };
        let rights = if is_own { rights.on_own() } else { rights };
        let allowed = rights.allow(&self.device, &of.stack.nodes[of.hidden..]);
        match (allowed, rights.forced()) {
            (Err(refusal), _) | (_, Err(refusal)) => Some(refusal.error),
            (Ok(()), Ok(forced)) => {
                (forced != of.forced).then(|| "what comes before it has changed".to_owned())
            }
        }
    }
}

/// The thread that looks at rights: it ends with this.
pub(super) struct Looking {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Sensor {
    /// Takes a connection of somebody into account.
    ///
    /// # Errors
    /// There are too many, or it may do nothing.
    pub(super) fn admit(&self, asker: &Asker) -> Result<(), Refusal> {
        let rights = self.rights(asker);
        let is_agent = asker.remote.is_none() && self.people.is_agent(asker.peer);
        if let (Some(why), false) = (&rights.nothing, is_agent) {
            let hint = "the sensor's configuration has the rights of users, in remotes those of other machines, in agents who may speak for them";
            // Who brings a credential comes without rights.
            let may_come = asker.credential.is_none() && self.people.has_issuers();
            if !may_come {
                return Err(Refusal::by_rights(why.clone(), hint));
            }
            if self.strangers.load(Ordering::Relaxed) >= MOST_STRANGERS {
                let error =
                    format!("{why}, and {MOST_STRANGERS} others are about to bring a credential");
                return Err(Refusal::with_hint(error, "try again in some seconds"));
            }
        }
        let users = &mut self.state.lock().users;
        let of_user = users.entry(asker.who()).or_insert_with(|| User {
            connections: 0,
            memory: Arc::new(UserMemory::new(rights.memory)),
        });
        let (all, of_one) = match (rights.admin, is_agent) {
            (true, _) => (u64::MAX, usize::MAX),
            (false, true) => (MOST_CONNECTIONS, usize::MAX),
            (false, false) if rights.nothing.is_some() => (MOST_CONNECTIONS, MOST_OF_A_STRANGER),
            (false, false) => (MOST_CONNECTIONS, MOST_OF_A_USER),
        };
        let has_room = self.connections.load(Ordering::Relaxed) < all;
        if has_room && of_user.connections < of_one {
            of_user.connections += 1;
            return Ok(());
        }
        if of_user.connections == 0 {
            users.remove(&asker.who());
        }
        Err(match has_room {
            true => Refusal::with_hint(
                format!("you already have {of_one} connections, the maximum"),
                "close others, or open several flows on one connection",
            ),
            false => Refusal::with_hint(
                format!("the sensor already has {MOST_CONNECTIONS} connections, the maximum"),
                "try again later",
            ),
        })
    }

    pub(super) fn leave(&self, who: Who) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.leave_user(who);
    }

    fn leave_user(&self, who: Who) {
        let users = &mut self.state.lock().users;
        if let Some(of_user) = users.get_mut(&who) {
            of_user.connections -= 1;
            if of_user.connections == 0 {
                users.remove(&who);
            }
        }
    }

    /// Somebody's connection is one of a user of another machine from now on, who showed a certificate with this key.
    ///
    /// # Errors
    /// It may not speak for others, or it has asked for something already, or that user may not come.
    pub(crate) fn speak_for(
        &self,
        asker: &mut Asker,
        name: String,
        key: Option<&str>,
    ) -> Result<(), Refusal> {
        if asker.remote.is_some() || !self.people.is_agent(asker.peer) {
            return Err(Refusal::with_hint(
                "you may not speak for others",
                "agents = [USER] in the sensor's configuration says who may",
            ));
        }
        self.has_nothing(asker)?;
        let number = self.people.number(&name);
        let number = number.ok_or_else(|| Refusal::new("there are too many users"))?;
        self.become_one(
            asker,
            Asker {
                by: Arc::new(Facts::default().certificate(&name, key)),
                remote: Some((number, name)),
                credential: None,
                ..asker.clone()
            },
        )
    }

    /// Somebody brings a credential: what it allows counts from now on, and nothing else.
    ///
    /// # Errors
    /// It is not taken, or it has asked for something already.
    pub(crate) fn bring(&self, asker: &mut Asker, text: &str) -> Result<(), Refusal> {
        self.has_nothing(asker)?;
        let brought = Arc::new(self.people.take(text)?);
        let by = match asker.remote {
            Some(_) => Arc::clone(&asker.by),
            None => {
                let name = privileges::user_name(asker.peer.user);
                Arc::new(Facts::default().user(asker.peer.user, name.as_deref()))
            }
        };
        self.people.granted_by(&brought, &by).standing()?;
        self.become_one(
            asker,
            Asker {
                by,
                credential: Some(brought),
                ..asker.clone()
            },
        )
    }

    fn has_nothing(&self, asker: &Asker) -> Result<(), Refusal> {
        let state = self.state.lock();
        let is_its = |by: &Asker| by.session == asker.session;
        let has_flow = state.flows.values().any(|flow| is_its(&flow.by));
        match has_flow || state.owners.values().any(is_its) {
            true => Err(Refusal::new("it has flows of its own")),
            false => Ok(()),
        }
    }

    fn become_one(&self, asker: &mut Asker, other: Asker) -> Result<(), Refusal> {
        self.admit(&other)?;
        self.leave_user(asker.who());
        *asker = other;
        Ok(())
    }

    /// What each statement says of a flow, and what would come before it.
    ///
    /// # Errors
    /// There is no such flow to be asked for.
    pub(crate) fn explain(
        &self,
        asker: &Asker,
        rights: &Granted,
        device: &str,
        stack: &str,
    ) -> Result<Vec<String>, Refusal> {
        rights.allow_text(stack)?;
        // Statements are shown of devices that are not there, too.
        let (rights, is_there) = match self.place(asker, rights, device) {
            Ok((_, rights)) => (rights, Ok(())),
            Err(refusal) => (rights.clone(), Err(refusal.error)),
        };
        let account = self.account(asker, &rights);
        self.in_turn(&account, || {
            let (mut lines, verdict) = if stack.trim().is_empty() {
                let verdict = rights.may_share(device);
                let verdict = verdict.map_err(|refusal| refusal.text());
                (rights.explain(device, &[]), verdict)
            } else {
                let flow = text::flow("flow", "", stack).map_err(Refusal::new)?;
                let verdict = rights.allow(device, &flow.stack.nodes);
                let verdict = verdict.and_then(|()| rights.forced().map(drop));
                let verdict = verdict.map_err(|refusal| refusal.error);
                (rights.explain(device, &flow.stack.nodes), verdict)
            };
            lines.push(match verdict.and(is_there) {
                Ok(()) => "allowed".to_owned(),
                Err(why) => format!("refused: {why}"),
            });
            Ok(lines)
        })
    }

    /// Has a thread look every second whether flows may still be there: credentials are revoked, and rights end.
    pub(super) fn look_at_rights(self: &Arc<Sensor>) -> Looking {
        let is_over = Arc::new(AtomicBool::new(false));
        let (sensor, over) = (Arc::clone(self), Arc::clone(&is_over));
        let looks = move || {
            let mut looked = Instant::now();
            while !over.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                if looked.elapsed() >= EVERY {
                    looked = Instant::now();
                    sensor.end_refused();
                }
            }
        };
        let thread = thread::Builder::new().name("fg-rights".to_owned());
        Looking {
            is_over,
            thread: thread.spawn(looks).ok(),
        }
    }

    /// Ends flows whose users have lost their right to them since.
    fn end_refused(&self) {
        let was_revoked = self.people.refresh_revoked();
        let mut state = self.state.lock();
        let (mut timed, mut devices) = (Vec::new(), None);
        for (number, flow) in &state.flows {
            let is_changed = was_revoked && flow.by.credential.is_some();
            if is_changed || flow.is_timed {
                timed.push(*number);
            }
        }
        let mut ended = Vec::new();
        // One after the other, that nobody waits for long.
        for number in timed {
            let Some(flow) = state.flows.get(&number) else {
                continue;
            };
            // What its components ask for stays what it is.
            if let Err(refusal) = flow.by.rights(&self.people).standing() {
                let why = refusal.error;
                ended.extend(state.end_each(|it, _| (it == number).then(|| why.clone())));
                devices = Some(state.devices.clone());
            }
            parking_lot::MutexGuard::bump(&mut state);
        }
        drop(state);
        close(&devices.unwrap_or_default(), ended);
    }

    /// Counts a connection of somebody without rights, who is to bring a credential soon.
    pub(crate) fn stranger(&self, asker: &Asker) -> Option<Stranger<'_>> {
        let is_agent = asker.remote.is_none() && self.people.is_agent(asker.peer);
        let is_one = !is_agent && self.rights(asker).nothing.is_some();
        is_one.then(|| {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            Stranger {
                sensor: self,
                until: Instant::now() + COMING,
            }
        })
    }
}

/// A connection of somebody without rights.
pub(crate) struct Stranger<'a> {
    sensor: &'a Sensor,
    until: Instant,
}

impl Stranger<'_> {
    /// Whether it has been there for too long.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        self.sensor.strangers.fetch_sub(1, Ordering::Relaxed);
    }
}
