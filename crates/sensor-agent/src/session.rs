//! A user's connection: requests are passed on one after the other; numbers and packets of flows go out beside them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_link::{Conversation, MessageSender};
use flowgauge_sensor_client::protocol::{Answer, Refusal, Request};
use flowgauge_sensor_client::remote::message::{Asked, Said};
use flowgauge_sensor_client::{Client, ClientError};
use parking_lot::{Condvar, Mutex};

use crate::flow::Sent;

/// How often a user is asked whether it is there: connections that say nothing end.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether a flow has come to its end.
const LOOK: Duration = Duration::from_millis(250);
/// Numbers are not sent more often.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// Serves a user until one of the two, or the sensor, goes.
pub(crate) fn serve(conversation: &mut Conversation, socket: &Path) {
    let session = Arc::new(Session {
        client: OnceLock::new(),
        user: conversation.peer().name.clone(),
        key: conversation.peer().key.clone(),
        sender: conversation.sender(),
        flows: Mutex::default(),
        pushes: Mutex::default(),
        changed: Condvar::new(),
    });
    let pushing = Arc::clone(&session);
    let pusher = thread::Builder::new()
        .name("agent-numbers".to_owned())
        .spawn(move || pushing.push());
    while let Ok(Some(message)) = conversation.receive() {
        let Some(asked) = Asked::of(&message) else {
            break;
        };
        if pusher.is_err() || session.take(&asked, socket).is_none() {
            break;
        }
    }
    session.end();
    if let Ok(pusher) = pusher {
        let _ = pusher.join();
    }
}

struct Session {
    /// The sensor, once it was asked for something.
    client: OnceLock<Client>,
    /// Who the user is.
    user: String,
    /// SHA-256 of the key that the user showed.
    key: String,
    sender: MessageSender,
    flows: Mutex<BTreeMap<u64, Arc<Sent>>>,
    pushes: Mutex<Pushes>,
    changed: Condvar,
}

/// What goes out without being asked for.
#[derive(Default)]
struct Pushes {
    flows: BTreeMap<u64, Push>,
    is_over: bool,
}

struct Push {
    every: Duration,
    due: Instant,
    flow: Arc<Sent>,
}

impl Session {
    /// Does what a message says. `None`: the connection is over.
    fn take(&self, asked: &Asked<'_>, socket: &Path) -> Option<()> {
        match asked {
            Asked::Ask { id, request } => {
                let answer = self.answer(request, socket)?;
                let answer = answer.unwrap_or_else(Answer::Refused);
                let answer = serde_json::to_vec(&answer).ok()?;
                let head = Said::Answer {
                    id: *id,
                    answer: &[],
                };
                self.sender.send(&[&head.head(), &answer]).ok()?;
            }
            Asked::Read { id, flow } => {
                // Of a flow that is not there nothing has changed.
                let found = self.flows.lock().get(flow).cloned();
                let numbers = Said::Numbers {
                    id: *id,
                    flow: *flow,
                    changes: &[],
                };
                match found {
                    Some(flow) => flow.send_numbers(*id, &self.sender).ok()?,
                    None => self.sender.send(&[&numbers.head()]).ok()?,
                }
                self.has_sensor()?;
            }
            Asked::Every { flow, millis } => {
                let found = self.flows.lock().get(flow).cloned();
                let every = Duration::from_millis(*millis).max(LEAST_INTERVAL);
                let mut pushes = self.pushes.lock();
                match found {
                    Some(found) if *millis > 0 => {
                        let push = Push {
                            every,
                            due: Instant::now(),
                            flow: found,
                        };
                        pushes.flows.insert(*flow, push);
                    }
                    _ => drop(pushes.flows.remove(flow)),
                }
                self.changed.notify_all();
            }
            Asked::Credit { flow, bytes } => {
                let found = self.flows.lock().get(flow).cloned();
                if let Some(flow) = found {
                    flow.allow(*bytes, &self.sender);
                }
            }
            Asked::Alive => {}
        }
        Some(())
    }

    /// What the sensor answers. `None`: it has gone, and all that this user had there.
    fn answer(&self, request: &[u8], socket: &Path) -> Option<Result<Answer, Refusal>> {
        let request = match serde_json::from_slice::<Request>(request) {
            Ok(request) => request,
            Err(error) => {
                let refusal = Refusal::new(format!("this is not a request: {error}"));
                return Some(Err(refusal));
            }
        };
        let client = match self.client.get() {
            Some(client) => client,
            None => match self.connect(socket) {
                Ok(client) => self.client.get_or_init(|| client),
                Err(ClientError::Refused(refusal)) => return Some(Err(refusal)),
                Err(error) => return Some(Err(refusal_of(&error))),
            },
        };
        match self.pass_on(client, &request) {
            Ok(answer) => Some(Ok(answer)),
            Err(ClientError::Refused(refusal)) => Some(Err(refusal)),
            // The connection ends with it, for the user to see that flows have ended.
            Err(_) => None,
        }
    }

    /// A connection to the sensor, which knows whose it is.
    fn connect(&self, socket: &Path) -> Result<Client, ClientError> {
        let client = Client::connect(socket)?;
        client.speak_for(&self.user, Some(&self.key))?;
        Ok(client)
    }

    /// Whether the sensor is still there: what it shared stays as it was when it goes.
    fn has_sensor(&self) -> Option<()> {
        self.client
            .get()
            .filter(|client| !client.is_gone())
            .map(drop)
    }

    fn pass_on(&self, client: &Client, request: &Request) -> Result<Answer, ClientError> {
        let no = |what: &str| {
            let hint = "ask on the sensor's machine";
            Err(ClientError::Refused(Refusal::with_hint(what, hint)))
        };
        match request {
            Request::Open { device, stack } => {
                let flow = client.open(device, stack, &[])?;
                let opened = flow.opened().clone();
                let sent = Arc::new(Sent::new(flow));
                self.flows.lock().insert(opened.number, sent);
                // From now on it is looked for its end.
                let _pushes = self.pushes.lock();
                self.changed.notify_all();
                Ok(Answer::Flow(opened))
            }
            Request::Close { flow } => {
                self.pushes.lock().flows.remove(flow);
                if let Some(flow) = self.flows.lock().remove(flow) {
                    flow.end();
                }
                client.ask(request)
            }
            Request::CreateDevice => no("files of another machine cannot be read here"),
            Request::SpeakFor { .. } => no("users speak for themselves"),
            _ => client.ask(request),
        }
    }

    /// Sends numbers when they are due, until the session ends.
    fn push(&self) {
        let mut asked = Instant::now();
        let mut pushes = self.pushes.lock();
        while !pushes.is_over {
            let now = Instant::now();
            let due = pushes.flows.values_mut().filter(|push| push.due <= now);
            let due = due.map(|push| {
                // What could not be sent in time is not sent twice later.
                push.due = (push.due + push.every).max(now);
                Arc::clone(&push.flow)
            });
            let due: Vec<Arc<Sent>> = due.collect();
            let asks = asked + ASK_EVERY <= now;
            if asks || !due.is_empty() {
                drop(pushes);
                let mut sent = Ok(());
                if asks {
                    sent = self.sender.send(&[&Said::Alive.head()]);
                    asked = now;
                }
                for flow in &due {
                    sent = sent.and_then(|()| flow.send_numbers(0, &self.sender));
                }
                if sent.is_err() || !self.flows.lock().is_empty() && self.has_sensor().is_none() {
                    self.sender.close();
                    return;
                }
                pushes = self.pushes.lock();
                continue;
            }
            drop(pushes);
            let flows: Vec<Arc<Sent>> = self.flows.lock().values().cloned().collect();
            let told = flows
                .iter()
                .try_for_each(|flow| flow.tell_end(&self.sender));
            if told.is_err() {
                self.sender.close();
                return;
            }
            pushes = self.pushes.lock();
            let next = pushes.flows.values().map(|push| push.due).min();
            let is_idle = self.flows.lock().is_empty();
            let look = if is_idle { ASK_EVERY } else { LOOK };
            let look = (asked + ASK_EVERY).min(now + look);
            let next = next.map_or(look, |next| next.min(look));
            if !pushes.is_over {
                self.changed.wait_until(&mut pushes, next);
            }
        }
    }

    /// The connection is over.
    fn end(&self) {
        self.pushes.lock().is_over = true;
        self.changed.notify_all();
        for flow in core::mem::take(&mut *self.flows.lock()).into_values() {
            flow.end();
        }
    }
}

/// An error with the sensor, for a user who cannot see this machine.
fn refusal_of(error: &ClientError) -> Refusal {
    Refusal {
        is_passing: true,
        ..Refusal::with_hint(
            format!("its agent runs, but {error}"),
            "start the sensor there",
        )
    }
}
