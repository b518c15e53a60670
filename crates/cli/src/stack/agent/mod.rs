//! `flowgauge stack agent`: runs stacks for those who may ask for it.
//!
//! Requests and replies are JSON objects on a link between machines. Every stack is checked before it
//! starts, runs in a process of its own, and keeps to one folder.

mod job;
mod memory;
mod rights;

use std::collections::BTreeMap;
use std::path::{Component as PathPart, Path};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use flowgauge_link::{Conversation, ListenerOptions, Responder};
use flowgauge_registry::registry;
use flowgauge_stack::syntax::{Document, Item};
use flowgauge_stack::{Input, Sources, check, parse, parse_stack};
use flowgauge_sys::privileges;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use strum::VariantArray as _;

pub(super) use self::job::end_with_agent;
use self::job::{Definition, Job, Place};
use self::memory::{Memory, Remembered};
use self::rights::{Action, Rights};
use crate::confinement;
use crate::control::Control;
use crate::failure::Failure;
use crate::input::text_of_file;
use crate::keys;
use crate::options::AgentOptions;
use crate::say::say;

/// The longest message: a stack is shorter.
pub(super) const MOST_MESSAGE: usize = 1 << 20;
/// What is asked for.
pub(super) const SERVICE: &str = "messages";
/// How long an agent waits for stacks of one before it that was killed.
const ORPHAN_WAIT: Duration = Duration::from_secs(10);
/// Those who watch are told this often.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// When it cannot listen, or there are no rights or keys.
pub(super) fn run(options: &AgentOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    let text = text_of_file(&options.rights).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", options.rights.display()),
            "a line for each name, as: ops all network interfaces=eth0",
        )
    })?;
    let rights = rights::read(&text).map_err(|error| {
        let known: Vec<&str> = Action::VARIANTS.iter().map(Into::into).collect();
        let known = known.join(", ");
        Failure::usage(
            format!("{}: {error}", options.rights.display()),
            format!("rights are {known}, all, network, interfaces=IFACE,..."),
        )
    })?;
    let folder = fs::canonicalize(&options.folder).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", options.folder.display()),
            "the folder must be there, and belong to stacks alone",
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
        rights,
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
        allowed: agent.rights.keys().cloned().collect(),
        most_connections: 64,
        max_frame: MOST_MESSAGE,
        ..ListenerOptions::new(&options.listen)
    };
    if listening.allowed.is_empty() {
        return Err(Failure::usage(
            format!("{}: nobody may do anything", options.rights.display()),
            "a line for each name, as: ops all network interfaces=eth0",
        ));
    }
    let answering = agent.clone();
    let responder = Responder::bind(&identity, SERVICE, listening, move |conversation| {
        answering.converse(conversation);
    });
    let responder = responder.map_err(|error| keys::of_link(&error))?;
    say!("flowgauge: agent at {}", responder.local_address());
    agent.begin(options.forget);
    while !control.stopped() {
        agent.forget_done();
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
    rights: BTreeMap<String, Rights>,
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
            say!("flowgauge: warning: what is remembered of {name} cannot be read");
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
                    "flowgauge: warning: {name} is not started again: {}",
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
        let by = &definition.by;
        let rights = self.rights.get(by).filter(|it| it.may(Action::Start));
        let rights = rights.ok_or_else(|| Refused::new(format!("{by} may not start")))?;
        allowed(&definition, rights)?;
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
            Err(error) => say!("flowgauge: warning: {name} is not remembered: {error}"),
        }
    }

    fn forget(&self, name: &str) {
        let forgotten = self.memory.as_ref().map(|memory| memory.forget(name));
        if let Some(Err(error)) = forgotten {
            say!("flowgauge: warning: {name} is still remembered: {error}");
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

    /// Answers one after the other.
    fn converse(&self, conversation: &mut Conversation) {
        while let Ok(Some(message)) = conversation.receive() {
            let name = conversation.peer().name.clone();
            let request: Value = serde_json::from_slice(&message).unwrap_or_default();
            let result = self.answer(&name, &request, conversation);
            let reply = match result {
                Ok(reply) => reply,
                Err(refused) => json!({"error": refused.error, "hint": refused.hint}),
            };
            if conversation.send(reply.to_string().as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(
        &self,
        by: &str,
        request: &Value,
        conversation: &Conversation,
    ) -> Result<Value, Refused> {
        let word = |key: &str| request.get(key).and_then(Value::as_str).unwrap_or_default();
        let action = word("do").parse();
        let action = action.map_err(|_| Refused::new("there is no such request"))?;
        let none = Rights::default();
        let rights = self.rights.get(by).unwrap_or(&none);
        if !rights.may(action) {
            say!("flowgauge: {by} may not {}", word("do"));
            return Err(Refused::new(format!("{by} may not {}", word("do")))
                .with_hint("the agent's file of rights says who may"));
        }
        let name = word("name");
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
                let definition = self.definition(by, rights, request)?;
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
                let definition = self.definition(by, rights, request)?;
                self.again(by, name, Some(definition))
            }
        }
    }

    fn with(
        &self,
        name: &str,
        work: impl FnOnce(&mut Job) -> Result<Value, Refused>,
    ) -> Result<Value, Refused> {
        let mut jobs = self.jobs.lock();
        match jobs.all.get_mut(name) {
            Some(job) => work(job),
            None => Err(jobs.unknown(name)),
        }
    }

    fn start(&self, name: &str, definition: Definition) -> Result<Value, Refused> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
            return Err(Refused::new(format!("\"{name}\" is no name for a stack")));
        }
        let by = definition.by.clone();
        let mut jobs = self.jobs.lock();
        jobs.refuse_start(name)?;
        let job = Job::start(definition, &self.place)
            .map_err(|error| Refused::new(format!("no process can be made for it: {error}")))?;
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
        say!("flowgauge: {by} started {name} again");
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

    /// What a request wants to run, checked.
    fn definition(
        &self,
        by: &str,
        rights: &Rights,
        request: &Value,
    ) -> Result<Definition, Refused> {
        let read = Definition::deserialize(request);
        let read = read.map_err(|error| Refused::new(format!("this is no stack: {error}")))?;
        let by = by.to_owned();
        let definition = Definition { by, ..read };
        allowed(&definition, rights)?;
        Ok(definition)
    }
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
            return Refused::new(format!("{name} is being stopped or started again"))
                .with_hint("ask again when it has been");
        }
        let names: Vec<&str> = self.all.keys().map(String::as_str).collect();
        Refused::new(format!("there is no stack \"{name}\"")).with_hint(match names.as_slice() {
            [] => "no stacks are running".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        })
    }

    /// Whether a stack of this name may not begin, and why.
    fn refuse_start(&mut self, name: &str) -> Result<(), Refused> {
        if self.changing.contains_key(name) {
            return Err(self.unknown(name));
        }
        if self.all.get_mut(name).is_some_and(Job::is_running) {
            return Err(
                Refused::new(format!("there is a stack {name} already, and it runs"))
                    .with_hint("configure gives it another text, stop ends it"),
            );
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
                Refused::new(format!("{} stacks run, and no more may", self.most))
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

fn may_capture(definition: &Definition, rights: &Rights, interface: &str) -> Result<(), Refused> {
    match rights.may_capture(interface) {
        true => Ok(()),
        false => Err(
            Refused::new(format!("{} may not capture on {interface}", definition.by))
                .with_hint("the agent's file of rights says interfaces="),
        ),
    }
}

/// Whether a stack is right, and its owner may have it run.
fn allowed(definition: &Definition, rights: &Rights) -> Result<(), Refused> {
    for interface in &definition.interfaces {
        may_capture(definition, rights, interface)?;
    }
    for file in &definition.read {
        stays_within(file)?;
    }
    check_text(definition, rights)
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
        .with_hint("files of stacks are in the agent's --folder, by relative names"))
}

/// Whether a stack is right, and does nothing that it may not.
fn check_text(definition: &Definition, rights: &Rights) -> Result<(), Refused> {
    let mut sources = Sources::default();
    let file = sources.add("stack".to_owned(), definition.text.clone());
    let file = file.ok_or_else(|| Refused::new("the stack is too long"))?;
    let document = match definition.is_bare {
        true => parse_stack(&sources, file).map(Document::of),
        false => parse(&sources, file),
    };
    let document = document.map_err(|found| Refused::new(found.show(&sources).to_string()))?;
    if document
        .items
        .iter()
        .any(|item| matches!(item, Item::Include(_)))
    {
        return Err(Refused::new(
            "a stack for an agent is one text: it cannot include others",
        ));
    }
    let checked = check(&document, registry());
    let Some(program) = checked.program else {
        let found = checked
            .diagnostics
            .iter()
            .map(|found| found.show(&sources).to_string());
        return Err(Refused::new(found.collect::<Vec<String>>().join("\n")));
    };
    for node in program.stacks.iter().flat_map(|stack| stack.nodes.iter()) {
        for setting in node.settings.iter() {
            let option = setting.option;
            let text = node.settings.text(option.name).unwrap_or_default();
            // What it says on standard output is kept.
            for path in option.kind.paths(text).filter(|path| *path != "-") {
                stays_within(path)?;
            }
            let is_source = node.info.input == Input::Nothing;
            if is_source && option.name == "interface" && !text.is_empty() {
                may_capture(definition, rights, text)?;
            }
            if matches!(option.name, "to" | "listen" | "kafka") && !rights.network {
                return Err(Refused::new(format!(
                    "{} may not use the network ({})",
                    definition.by, node.label
                ))
                .with_hint("the agent's file of rights says network"));
            }
        }
    }
    Ok(())
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
        let ended = |name: &str| {
            let definition = Definition {
                text: String::new(),
                is_bare: true,
                read: Vec::new(),
                interfaces: Vec::new(),
                by: name.to_owned(),
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
            jobs.all.insert(name.to_owned(), ended(name));
        }
        let job = jobs.take("a", true).ok().unwrap();
        assert_eq!(jobs.describe()[1]["state"], "stopping");
        for refused in [
            jobs.refuse_start("a"),
            jobs.take("a", false).map(drop),
            jobs.take("a", true).map(drop),
        ] {
            let error = error(refused).unwrap();
            assert_eq!(error, "a is being stopped or started again");
        }
        for refused in [jobs.refuse_start("b"), jobs.take("b", true).map(drop)] {
            let error = error(refused).unwrap();
            assert_eq!(error, "1 stacks run, and no more may");
        }
        jobs.give_back("a", Some(job));
        let job = jobs.take("b", true).ok().unwrap();
        jobs.give_back("b", Some(job));
        assert_eq!(error(jobs.refuse_start("c")), None);
        assert_eq!(jobs.describe().len(), 2);
    }

    #[test]
    fn stacks_are_checked_and_kept_to_what_is_allowed() {
        let refused = |text: &str, line: &str| {
            let rights = rights::read(line).unwrap().remove("ops").unwrap();
            let definition = Definition {
                text: text.to_owned(),
                is_bare: true,
                read: Vec::new(),
                interfaces: Vec::new(),
                by: "ops".to_owned(),
            };
            check_text(&definition, &rights)
                .err()
                .map(|refused| refused.error)
        };
        assert_eq!(refused("tcpscan - count", "ops all"), None);
        assert!(refused("tcpscann", "ops all").unwrap().contains("tcpscann"));
        let outside = refused("output { file = /tmp/x.pcap }", "ops all").unwrap();
        assert!(outside.contains("not in the agent's folder"), "{outside}");
        assert_eq!(refused("output { file = x.pcap }", "ops all"), None);
        for sends in [
            "output { to = c:1 }",
            "packets output { kafka = c:1, topic = t }",
        ] {
            assert!(refused(sends, "ops all").unwrap().contains("network"));
            assert_eq!(refused(sends, "ops all network"), None);
        }
        let captures = "pcap { interface = eth0 } - count";
        assert!(
            refused(captures, "ops all")
                .unwrap()
                .contains("may not capture on eth0")
        );
        assert_eq!(refused(captures, "ops all interfaces=eth0"), None);
        let reads = refused("pcap { file = /root/x.pcap } - count", "ops all").unwrap();
        assert!(reads.contains("not in the agent's folder"), "{reads}");
        let keys = refused("output { to = c:1, keys = /root }", "ops all network").unwrap();
        assert!(keys.contains("not in the agent's folder"), "{keys}");
    }
}
