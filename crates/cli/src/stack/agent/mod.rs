//! `flowgauge stack agent`: runs stacks for those who may ask for it.
//!
//! Requests and replies are JSON objects on a link between machines. Every stack is checked before it
//! starts, runs in a process of its own, and keeps to one folder.

mod job;
mod memory;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component as PathPart, Path};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use flowgauge_credential::{Access, Asker, Facts, NoRights, STANDING, Visible, Who};
use flowgauge_link::{Conversation, ListenerOptions, Responder};
use flowgauge_registry::registry;
use flowgauge_sensor::facts_of;
use flowgauge_stack::syntax::{Document, Item};
use flowgauge_stack::{Input, Program, Sources, check, parse, parse_stack};
use flowgauge_sys::privileges;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::{Value, json};

pub(super) use self::job::end_with_agent;
use self::job::{Definition, Job, Place};
use self::memory::{Memory, Remembered};
use self::rights::Rights;
use crate::confinement;
use crate::control::Control;
use crate::failure::Failure;
use crate::keys;
use crate::options::{Action, AgentOptions};
use crate::say::say;

/// The longest message: a stack is shorter.
pub(super) const MOST_MESSAGE: usize = 1 << 20;
/// What is asked for.
pub(super) const SERVICE: &str = "messages";
/// How long an agent waits for stacks of one before it that was killed.
const ORPHAN_WAIT: Duration = Duration::from_secs(10);
/// Those who watch are told this often.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody still has rights.
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// When it cannot listen, or there are no rights or keys.
pub(super) fn run(options: &AgentOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    let access = rights::read(&options.rights).map_err(|error| Failure::Usage {
        what: error.to_string(),
        hint: error.hint().map(str::to_owned),
    })?;
    let folder = fs::canonicalize(&options.folder).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", options.folder.display()),
            "the folder must exist, and be used for stacks only",
        )
    })?;
    if let Some(user) = &options.user
        && !(privileges::is_root() && privileges::user_exists(user))
    {
        return Err(Failure::usage(
            format!("stacks cannot run as {user}"),
            "--user needs root and an existing user",
        ));
    }
    let identity = keys::identity(&options.identity)?;
    let keys_of_stacks = options.identity.keys.as_deref();
    let keys_of_stacks = keys_of_stacks.and_then(|path| std::path::absolute(path).ok());
    let memory = options.state.as_ref().map(|state| remember(state, &folder));
    // Components that are made, to be checked, may look at what their options name.
    confinement::of_names(&folder)?;
    let agent = Arc::new(Agent {
        access,
        place: Place {
            folder,
            user: options.user.clone(),
            keys: keys_of_stacks,
        },
        memory: memory.transpose()?,
        control: control.clone(),
        jobs: Mutex::new(Jobs::new(options.most.into())),
    });
    let listening = ListenerOptions {
        allowed: agent
            .access
            .names()
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        most_connections: 64,
        max_frame: MOST_MESSAGE,
        ..ListenerOptions::new(&options.listen)
    };
    let answering = agent.clone();
    let responder = Responder::bind(&identity, SERVICE, listening, move |conversation| {
        answering.converse(conversation);
    });
    let responder = responder.map_err(|error| keys::of_link(&error))?;
    say!("flowgauge: agent at {}", responder.local_address());
    agent.begin(options.forget);
    let mut judged = Instant::now();
    while !control.stopped() {
        agent.forget_done();
        if judged.elapsed() >= JUDGE_EVERY {
            agent.end_refused();
            judged = Instant::now();
        }
        thread::sleep(Duration::from_millis(100));
    }
    drop(responder);
    let mut jobs = agent.jobs.lock();
    if !jobs.all.is_empty() {
        say!("flowgauge: stopping {} stacks", jobs.all.len());
    }
    jobs.all.clear();
    Ok(())
}

/// The folder of what is remembered.
fn remember(state: &Path, folder: &Path) -> Result<Memory, Failure> {
    let memory = Memory::open(state).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", state.display()),
            "--state names a folder that the agent may write to",
        )
    })?;
    if memory.folder().starts_with(folder) {
        return Err(Failure::usage(
            format!("{}: stacks could write there", state.display()),
            "choose a folder for --state that is not within --folder",
        ));
    }
    Ok(memory)
}

struct Agent {
    access: Access<Rights>,
    place: Place,
    memory: Option<Memory>,
    control: Control,
    jobs: Mutex<Jobs>,
}

/// What is said instead of doing it.
struct Refused {
    error: String,
    hint: Option<String>,
}

/// What to do about a refusal.
const RIGHTS: &str = "rights come from the agent's --rights FILE, restricted by the credential";

impl From<NoRights> for Refused {
    fn from(no: NoRights) -> Refused {
        Refused::new(no.error).with_hint(no.hint)
    }
}

impl Refused {
    fn new(error: impl Into<String>) -> Refused {
        Refused {
            error: error.into(),
            hint: None,
        }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Refused {
        self.hint = Some(hint.into());
        self
    }
}

impl Agent {
    /// Starts what ran when the agent was there last, or forgets it.
    fn begin(&self, forgets: bool) {
        let Some(memory) = &self.memory else {
            return;
        };
        let (all, unreadable) = match memory.all() {
            Ok(found) => found,
            Err(error) => {
                say!("flowgauge: warning: {}: {error}", memory.folder().display());
                return;
            }
        };
        for name in unreadable {
            say!("flowgauge: warning: the record of {name} cannot be read");
            if forgets {
                self.forget(&name);
            }
        }
        for remembered in all {
            let name = remembered.name.clone();
            if forgets {
                self.forget(&name);
            } else if let Err(refused) = self.start_again(remembered) {
                say!(
                    "flowgauge: warning: {name} is not restarted: {}",
                    refused.error
                );
            }
        }
    }

    /// Starts a stack that is remembered, if its owner may do that still.
    fn start_again(&self, remembered: Remembered) -> Result<(), Refused> {
        let Remembered {
            name,
            definition,
            process,
        } = remembered;
        let asker = self.access.asker(definition.who.clone())?;
        // It may have come by either.
        let started = allowed(&definition, &asker, Action::Start);
        started.or_else(|_| allowed(&definition, &asker, Action::Configure))?;
        // It notices that its agent is gone; what it holds is needed.
        let until = Instant::now() + ORPHAN_WAIT;
        while is_stack(process) && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        self.start(&name, definition).map(drop)
    }

    /// Remembers a stack that runs.
    fn keep(&self, name: &str, job: &mut Job) {
        let Some(memory) = &self.memory else {
            return;
        };
        match memory.keep(name, &job.definition, job.process()) {
            Ok(()) => job.is_remembered = true,
            Err(error) => say!("flowgauge: warning: {name} is not recorded: {error}"),
        }
    }

    fn forget(&self, name: &str) {
        let forgotten = self.memory.as_ref().map(|memory| memory.forget(name));
        if let Some(Err(error)) = forgotten {
            say!("flowgauge: warning: the record of {name} cannot be deleted: {error}");
        }
    }

    /// What has come to its end is not to begin again.
    fn forget_done(&self) {
        if self.memory.is_none() {
            return;
        }
        for (name, job) in &mut self.jobs.lock().all {
            if job.is_remembered && job.is_done() {
                job.is_remembered = false;
                self.forget(name);
            }
        }
    }

    /// Stops stacks of those who have no rights any more.
    fn end_refused(&self) {
        let jobs = self.jobs.lock();
        let running = jobs.all.iter().filter(|(_, job)| !job.has_ended());
        let running: Vec<(String, Who)> = running
            .map(|(name, job)| (name.clone(), job.definition.who.clone()))
            .collect();
        drop(jobs);
        for (name, who) in running {
            let Err(no) = self.access.asker(who) else {
                continue;
            };
            say!("flowgauge: {name} stopped: {no}");
            let taken = self.jobs.lock().take(&name, false);
            let Ok(mut job) = taken else {
                continue;
            };
            self.forget(&name);
            job.stop();
            job.tell(&format!("--- stopped: {no}\n"));
            self.jobs.lock().give_back(&name, Some(job));
        }
    }

    /// Answers one after the other.
    fn converse(&self, conversation: &mut Conversation) {
        while let Ok(Some(message)) = conversation.receive() {
            let request: Value = serde_json::from_slice(&message).unwrap_or_default();
            let result = self.answer(&request, conversation);
            let reply = match result {
                Ok(reply) => reply,
                Err(refused) => json!({"error": refused.error, "hint": refused.hint}),
            };
            if conversation.send(reply.to_string().as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Value, conversation: &Conversation) -> Result<Value, Refused> {
        let word = |key: &str| request.get(key).and_then(Value::as_str).unwrap_or_default();
        let action = word("do").parse::<Action>();
        let action = action.map_err(|_| Refused::new("unknown request"))?;
        let peer = conversation.peer();
        let by = peer.name.as_str();
        let who = Who {
            name: Some(peer.name.clone()),
            key: Some(peer.key.clone()),
            credential: Some(word("credential"))
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        };
        let asker = self.access.asker(who)?;
        let asks = Facts::default().request(action.into());
        let only = [&["request"], STANDING].concat();
        if let Err(denial) = asker.may(&asks, Some(&only)) {
            say!("flowgauge: {by} may not {}: {denial}", word("do"));
            return Err(
                Refused::new(format!("{by} may not {}: {denial}", word("do"))).with_hint(RIGHTS),
            );
        }
        let name = word("name");
        if !matches!(action, Action::List | Action::Start) {
            let definition = self.with(name, |job| Ok(job.definition.clone()))?;
            may_reach(&definition, &asker, action)?;
            if action == Action::Restart {
                self.access.asker(definition.who)?;
            }
        }
        match action {
            Action::List => Ok(json!({"stacks": self.jobs.lock().describe()})),
            Action::Show => self.with(name, |job| {
                let mut described = job.describe(name);
                described["text"] = json!(job.definition.text);
                described["said"] = json!(job.said_since(0).0);
                Ok(described)
            }),
            Action::Watch => self.watch(name, request, conversation),
            Action::Start => {
                let definition = definition(&asker, request, action)?;
                self.has_room(name, &asker)?;
                self.start(name, definition)
            }
            Action::Stop => {
                // It takes its time, which is nobody else's.
                let mut job = self.jobs.lock().take(name, false)?;
                self.forget(name);
                job.stop();
                self.jobs.lock().give_back(name, None);
                say!("flowgauge: {by} stopped {name}");
                let mut described = job.describe(name);
                described["said"] = json!(job.said_since(0).0);
                Ok(described)
            }
            Action::Restart => self.again(by, name, None),
            Action::Configure => {
                let definition = definition(&asker, request, action)?;
                self.again(by, name, Some(definition))
            }
        }
    }

    fn with<T>(
        &self,
        name: &str,
        work: impl FnOnce(&mut Job) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let mut jobs = self.jobs.lock();
        match jobs.all.get_mut(name) {
            Some(job) => work(job),
            None => Err(jobs.unknown(name)),
        }
    }

    fn start(&self, name: &str, definition: Definition) -> Result<Value, Refused> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.starts_with('.') || !(1..=64).contains(&name.len()) || !name.chars().all(is_good) {
            return Err(Refused::new(format!(
                "\"{name}\" is not a name for a stack"
            )));
        }
        let by = definition.by().to_owned();
        let mut jobs = self.jobs.lock();
        jobs.refuse_start(name)?;
        let job = Job::start(definition, &self.place)
            .map_err(|error| Refused::new(format!("cannot create a process for it: {error}")))?;
        say!("flowgauge: {by} started {name}");
        let job = jobs.all.entry(name.to_owned()).insert_entry(job).into_mut();
        self.keep(name, job);
        Ok(job.describe(name))
    }

    fn again(
        &self,
        by: &str,
        name: &str,
        definition: Option<Definition>,
    ) -> Result<Value, Refused> {
        // Others are answered while it ends.
        let mut job = self.jobs.lock().take(name, true)?;
        let result = job.restart(definition, &self.place);
        let described = job.describe(name);
        if result.is_ok() {
            self.keep(name, &mut job);
        }
        self.jobs.lock().give_back(name, Some(job));
        result.map_err(|error| Refused::new(format!("{name} cannot be started: {error}")))?;
        say!("flowgauge: {by} restarted {name}");
        Ok(described)
    }

    /// Sends what a stack says until it ends.
    fn watch(
        &self,
        name: &str,
        request: &Value,
        conversation: &Conversation,
    ) -> Result<Value, Refused> {
        let every = request.get("every").and_then(Value::as_u64).unwrap_or(5);
        let every = Duration::from_secs(every.clamp(1, 3600));
        let mut from = 0;
        let mut asked = Instant::now();
        loop {
            let is_due = asked.elapsed() >= every;
            let mut is_running = false;
            let mut described = self.with(name, |job| {
                is_running = job.is_running();
                if is_due {
                    job.ask_for_counts();
                }
                let (said, to) = job.said_since(from);
                from = to;
                let mut described = job.describe(name);
                described["said"] = json!(said);
                Ok(described)
            })?;
            if is_due {
                asked = Instant::now();
            }
            if !is_running || self.control.stopped() {
                // The pipe may have something left.
                thread::sleep(WATCH_EVERY);
                let rest = self.with(name, |job| Ok(json!(job.said_since(from).0)));
                if let (Ok(Value::String(rest)), Value::String(said)) =
                    (rest, &mut described["said"])
                {
                    said.push_str(&rest);
                }
                described["running"] = json!(false);
                return Ok(described);
            }
            let sent = conversation.send(described.to_string().as_bytes());
            sent.map_err(|error| Refused::new(error.to_string()))?;
            thread::sleep(WATCH_EVERY);
        }
    }

    /// Whether somebody may have one more stack, beside those that run under other names.
    fn has_room(&self, name: &str, asker: &Asker<Rights>) -> Result<(), Refused> {
        let jobs = self.jobs.lock();
        let others = jobs.all.iter();
        let others = others.filter(|(other, job)| *other != name && !job.has_ended());
        let others: Vec<Vec<String>> = others
            .map(|(_, job)| job.definition.who.accounts())
            .collect();
        let others: Vec<&[String]> = others.iter().map(Vec::as_slice).collect();
        asker.has_room(&others).map_err(|(own, origin)| {
            Refused::new(format!(
                "you already have {own} stacks, the maximum ({origin})"
            ))
            .with_hint("stop others")
        })
    }
}

/// What a request wants to run, checked.
fn definition(
    asker: &Asker<Rights>,
    request: &Value,
    action: Action,
) -> Result<Definition, Refused> {
    let read = Definition::deserialize(request);
    let read = read.map_err(|error| Refused::new(format!("this is not a stack: {error}")))?;
    let who = asker.who.clone();
    let definition = Definition { who, ..read };
    allowed(&definition, asker, action)?;
    Ok(definition)
}

/// The stacks of an agent.
struct Jobs {
    all: BTreeMap<String, Job>,
    /// Names of those that are being stopped, or started again, which takes its time. Their processes count.
    changing: BTreeMap<String, Value>,
    /// So many may run.
    most: usize,
}

impl Jobs {
    fn new(most: usize) -> Jobs {
        Jobs {
            all: BTreeMap::new(),
            changing: BTreeMap::new(),
            most,
        }
    }

    fn describe(&mut self) -> Vec<Value> {
        let all = self.all.iter_mut().map(|(name, job)| job.describe(name));
        all.chain(self.changing.values().cloned()).collect()
    }

    fn unknown(&self, name: &str) -> Refused {
        if self.changing.contains_key(name) {
            return Refused::new(format!("{name} is being stopped or restarted"))
                .with_hint("try again in a moment");
        }
        let names: Vec<&str> = self.all.keys().map(String::as_str).collect();
        Refused::new(format!("no stack named \"{name}\"")).with_hint(match names.as_slice() {
            [] => "no stacks are running".to_owned(),
            names => format!("stacks: {}", names.join(", ")),
        })
    }

    /// Whether a stack of this name may not begin, and why.
    fn refuse_start(&mut self, name: &str) -> Result<(), Refused> {
        if self.changing.contains_key(name) {
            return Err(self.unknown(name));
        }
        if self.all.get_mut(name).is_some_and(Job::is_running) {
            return Err(Refused::new(format!("stack {name} is already running"))
                .with_hint("use configure to replace it, stop to end it"));
        }
        self.refuse_more(name)
    }

    /// Whether no other stack may run beside those that do, whatever this one is doing.
    fn refuse_more(&mut self, name: &str) -> Result<(), Refused> {
        let (mut running, mut known) = (self.changing.len(), self.changing.len());
        for (_, job) in self.all.iter_mut().filter(|(other, _)| *other != name) {
            running += usize::from(job.is_running());
            known += 1;
        }
        if running >= self.most || known >= 4 * self.most {
            return Err(
                Refused::new(format!("{} stacks are running, the maximum", self.most))
                    .with_hint("stop others, or raise the agent's --most"),
            );
        }
        Ok(())
    }

    /// Takes a stack out to stop it or start it again. Until it is given back nothing else happens to its name.
    fn take(&mut self, name: &str, starts: bool) -> Result<Job, Refused> {
        if starts && self.all.contains_key(name) {
            self.refuse_more(name)?;
        }
        let job = self.all.remove(name);
        let mut job = job.ok_or_else(|| self.unknown(name))?;
        let mut described = job.describe(name);
        described["state"] = json!("stopping");
        self.changing.insert(name.to_owned(), described);
        Ok(job)
    }

    fn give_back(&mut self, name: &str, job: Option<Job>) {
        self.changing.remove(name);
        self.all.extend(job.map(|job| (name.to_owned(), job)));
    }
}

/// Whether a stack is right, and who asks may have it run.
fn allowed(definition: &Definition, asker: &Asker<Rights>, action: Action) -> Result<(), Refused> {
    for file in &definition.read {
        stays_within(file)?;
    }
    let program = compile(definition)?;
    let by = definition.by();
    let interfaces = interfaces_of(definition, &program);
    let nodes = || program.stacks.iter().flat_map(|stack| stack.nodes.iter());
    for node in nodes() {
        for setting in node.settings.iter() {
            let option = setting.option;
            let text = node.settings.text(option.name).unwrap_or_default();
            // What it says on standard output is kept.
            for path in option.kind.paths(text).filter(|path| *path != "-") {
                stays_within(path)?;
            }
            if matches!(option.name, "to" | "listen" | "kafka") && !asker.rights.network {
                let error = format!("{by} may not use the network ({})", node.label);
                return Err(Refused::new(error).with_hint("network = true allows it"));
            }
        }
    }
    let refuses = asker.layers().iter().find(|layer| {
        let duties = &layer.block.duties;
        duties.packets.is_some_and(|it| it != Visible::Payload)
            || !duties.filters.is_empty()
            || duties.anonymize.is_some()
            || duties.packets_per_second.is_some()
    });
    if let Some(layer) = refuses {
        let error = format!("{} restricts access to packets", layer.origin);
        let hint = "an agent's stacks see whole packets: open a flow on a sensor instead (flowgauge sensor flow)";
        return Err(Refused::new(error).with_hint(hint));
    }
    let judge = |facts: Facts| {
        let facts = facts.request(action.into());
        asker
            .may(&facts, None)
            .map_err(|denial| Refused::new(denial.to_string()).with_hint(RIGHTS))
    };
    if interfaces.is_empty() {
        return judge(facts_of(nodes()));
    }
    for interface in interfaces {
        if !asker.rights.may_capture(interface) {
            let error = format!("{by} may not capture on {interface}");
            return Err(Refused::new(error).with_hint("interfaces = [...] allows it"));
        }
        judge(facts_of(nodes()).on(interface))?;
    }
    Ok(())
}

/// Whether a process is a stack that an agent started.
fn is_stack(process: u32) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = b"\0stack\0run\0";
    command.windows(words.len()).any(|part| part == words)
}

/// Files are in the agent's folder, or below it.
fn stays_within(file: &str) -> Result<(), Refused> {
    let parts = Path::new(file).components();
    let mut is_inside = !file.is_empty() && !file.starts_with('-');
    for part in parts {
        is_inside &= matches!(part, PathPart::Normal(_) | PathPart::CurDir);
    }
    if is_inside {
        return Ok(());
    }
    Err(Refused::new(format!("{file}: not in the agent's folder"))
        .with_hint("use relative names in the agent's --folder"))
}

/// What a stack captures on.
fn interfaces_of<'a>(definition: &'a Definition, program: &'a Program) -> BTreeSet<&'a str> {
    let given = definition.interfaces.iter().map(String::as_str);
    let nodes = program.stacks.iter().flat_map(|stack| stack.nodes.iter());
    let sources = nodes.filter(|node| node.info.input == Input::Nothing);
    let named = sources.filter_map(|node| node.settings.text("interface"));
    given.chain(named.filter(|name| !name.is_empty())).collect()
}

/// Whether somebody may have something to do with a stack: a credential for some devices is one for what captures there.
fn may_reach(
    definition: &Definition,
    asker: &Asker<Rights>,
    action: Action,
) -> Result<(), Refused> {
    let program = compile(definition)?;
    let only = [&["device", "request"], STANDING].concat();
    let judge = |facts: Facts| {
        let allowed = asker.may(&facts.request(action.into()), Some(&only));
        allowed.map_err(|denial| Refused::new(denial.to_string()).with_hint(RIGHTS))
    };
    let interfaces = interfaces_of(definition, &program);
    if interfaces.is_empty() {
        return judge(Facts::default());
    }
    let mut interfaces = interfaces.into_iter();
    interfaces.try_for_each(|interface| judge(Facts::default().on(interface)))
}

/// The components of a stack.
fn compile(definition: &Definition) -> Result<Program, Refused> {
    let mut sources = Sources::default();
    let file = sources.add("stack".to_owned(), definition.text.clone());
    let file = file.ok_or_else(|| Refused::new("the stack is too long"))?;
    let document = match definition.is_bare {
        true => parse_stack(&sources, file).map(Document::of),
        false => parse(&sources, file),
    };
    let document = document.map_err(|found| Refused::new(found.show(&sources).to_string()))?;
    let mut items = document.items.iter();
    if items.any(|item| matches!(item, Item::Include(_))) {
        let error = "a stack for an agent cannot include other files";
        return Err(Refused::new(error));
    }
    let checked = check(&document, registry());
    checked.program.ok_or_else(|| {
        let found = checked.diagnostics.iter();
        let found = found.map(|found| found.show(&sources).to_string());
        Refused::new(found.collect::<Vec<String>>().join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn files_stay_in_the_folder() {
        for file in ["a.pcap", "a/b.pcap", "./a"] {
            assert!(stays_within(file).is_ok(), "{file}");
        }
        for file in ["/etc/passwd", "../a", "a/../../b", "", "-", "-w"] {
            assert!(stays_within(file).is_err(), "{file}");
        }
    }

    #[test]
    fn a_name_is_taken_while_its_stack_is_changed_and_its_process_counts() {
        let place = Place {
            folder: PathBuf::from("/"),
            user: None,
            keys: None,
        };
        let ended = || {
            let definition = Definition {
                is_bare: true,
                ..Definition::default()
            };
            // This test program, which knows no such words and ends.
            let mut job = Job::start(definition, &place).unwrap();
            job.stop();
            job
        };
        let error = |refused: Result<(), Refused>| refused.err().map(|refused| refused.error);
        let mut jobs = Jobs::new(1);
        for name in ["a", "b"] {
            jobs.refuse_start(name).ok().unwrap();
            jobs.all.insert(name.to_owned(), ended());
        }
        let job = jobs.take("a", true).ok().unwrap();
        assert_eq!(jobs.describe()[1]["state"], "stopping");
        for refused in [
            jobs.refuse_start("a"),
            jobs.take("a", false).map(drop),
            jobs.take("a", true).map(drop),
        ] {
            let error = error(refused).unwrap();
            assert_eq!(error, "a is being stopped or restarted");
        }
        for refused in [jobs.refuse_start("b"), jobs.take("b", true).map(drop)] {
            let error = error(refused).unwrap();
            assert_eq!(error, "1 stacks are running, the maximum");
        }
        jobs.give_back("a", Some(job));
        let job = jobs.take("b", true).ok().unwrap();
        jobs.give_back("b", Some(job));
        assert_eq!(error(jobs.refuse_start("c")), None);
        assert_eq!(jobs.describe().len(), 2);
    }

    #[test]
    fn stacks_are_checked_and_kept_to_what_is_allowed() {
        let refused = |text: &str, table: &str| {
            let definition = Definition {
                text: text.to_owned(),
                is_bare: true,
                ..Definition::default()
            };
            let allowed = allowed(&definition, &rights::tests::asker(table), Action::Start);
            allowed.err().map(|refused| refused.error)
        };
        assert_eq!(refused("tcpscan - count", ""), None);
        assert!(refused("tcpscann", "").unwrap().contains("tcpscann"));
        let outside = refused("output { file = /tmp/x.pcap }", "").unwrap();
        assert!(outside.contains("not in the agent's folder"), "{outside}");
        assert_eq!(refused("output { file = x.pcap }", ""), None);
        for sends in [
            "output { to = c:1 }",
            "packets output { kafka = c:1, topic = t }",
        ] {
            assert!(refused(sends, "").unwrap().contains("network"));
            assert_eq!(refused(sends, "network = true"), None);
        }
        let captures = "pcap { interface = eth0 } - count";
        assert!(
            refused(captures, "")
                .unwrap()
                .contains("may not capture on eth0")
        );
        assert_eq!(refused(captures, "interfaces = [\"eth0\"]"), None);
        let reads = refused("pcap { file = /root/x.pcap } - count", "").unwrap();
        assert!(reads.contains("not in the agent's folder"), "{reads}");
        let bounded = "functions = [\"top(count<=10)\"]";
        assert_eq!(refused("top { by = ip.src, count = 10 }", bounded), None);
        for (other, part) in [
            ("top { by = ip.src, count = 11 }", "count of top"),
            ("count", "only the components top"),
        ] {
            assert!(refused(other, bounded).unwrap().contains(part));
        }
        let keys = refused("output { to = c:1, keys = /root }", "network = true").unwrap();
        assert!(keys.contains("not in the agent's folder"), "{keys}");
    }
}
