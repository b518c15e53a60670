//! RMON's tables of devices: `[rmon]` gives each of them a stack that counts all its packets, in the tables of one subagent.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use flowgauge_registry::Contents;
use flowgauge_rmon::Probe;
use flowgauge_rmon::agentx::{self, Address, Event, Identity};
use flowgauge_rmon::directory::{self, Directory};
use flowgauge_rmon::feed::{self, BadFile, Clock, ControlFile};
use flowgauge_rmon::others::{self, User};
use flowgauge_rmon::reaction::Reaction;
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Items, Outlet, Parallel, Registry, ResultInfo,
    ResultValue, SettingError, Settings, Stack, options,
};
use flowgauge_sys::interfaces;
use flowgauge_wire::Nanos;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::config::{Config, ConfigError};
use crate::news::News;
use crate::text;

/// What the stack of a device is called, and its component.
pub(crate) const NAME: &str = "rmon";

/// RMON's tables of devices, for SNMP managers.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct RmonConfig {
    /// Devices whose packets are counted; `*` is all.
    pub devices: Vec<String>,
    /// The AgentX master: the path of its socket, or host:port.
    pub agentx: String,
    /// The SNMP context of the objects; without, the default one.
    pub context: Option<String>,
    /// Of several subagents with the same objects the one with the lowest number is asked.
    pub priority: u8,
    /// A file of control rows, rewritten when managers change some.
    pub config: Option<PathBuf>,
    /// A file of an SNMP user who reads objects of other agents.
    pub snmp: Option<PathBuf>,
    /// A program that is run at each alarm.
    pub then: Option<PathBuf>,
    /// Protocols over TCP and UDP are told by content, too.
    pub contents: bool,
}

impl Default for RmonConfig {
    fn default() -> RmonConfig {
        RmonConfig {
            devices: vec!["*".to_owned()],
            agentx: "/var/agentx/master".to_owned(),
            context: None,
            priority: 127,
            config: None,
            snmp: None,
            then: None,
            contents: false,
        }
    }
}

impl RmonConfig {
    /// What is wrong with it, and what to do about it.
    pub(crate) fn fault(&self) -> Option<(String, &'static str)> {
        if let Err(error) = Address::from_str(&self.agentx) {
            return Some((format!("agentx: {error}"), "as agentXSocket in snmpd.conf"));
        }
        if let Some(program) = self.then.as_ref().filter(|it| !it.is_absolute()) {
            let what = format!("then: {} is not a whole path", program.display());
            return Some((what, "\"/usr/local/bin/alarm\", for example"));
        }
        (self.priority == 0).then(|| ("priority = 0 cannot be".to_owned(), "it is 1 to 255"))
    }

    pub(crate) fn has(&self, device: &str) -> bool {
        self.devices
            .iter()
            .any(|name| name == "*" || name == device)
    }

    /// The same subagent, whatever its devices are.
    fn subagent(&self) -> RmonConfig {
        RmonConfig {
            devices: Vec::new(),
            ..self.clone()
        }
    }

    /// The stack of a device, an interface or files.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn stack(&self, interface: Option<&str>) -> Result<Stack, String> {
        let mut options = vec![
            ("agentx", self.agentx.clone()),
            ("priority", self.priority.to_string()),
            (
                "contents",
                if self.contents { "yes" } else { "no" }.to_owned(),
            ),
        ];
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let others = [
            ("interface", interface.map(str::to_owned)),
            ("context", self.context.clone()),
            ("config", file(&self.config)),
            ("snmp", file(&self.snmp)),
            ("then", file(&self.then)),
        ];
        options.extend(
            others
                .into_iter()
                .filter_map(|(name, it)| Some((name, it?))),
        );
        let options = options.iter();
        let options = options.map(|(name, value)| format!("{name} = {}", text::quoted(value)));
        let options: Vec<String> = options.collect();
        let text = format!("{NAME} {{ {} }}", options.join(", "));
        text::of(NAME, &text, &Registry::new([&INFO]))
    }
}

static INFO: ComponentInfo = ComponentInfo {
    name: NAME,
    summary: "counts packets in RMON's tables",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("packets counted", "packets")),
    parallel: Parallel::Never("it has a single table of hosts"),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    interface: Text, "interface of the packets; default: number 1";
    agentx: Text = "/var/agentx/master", "the AgentX master";
    context: Text, "SNMP context of the objects";
    priority: Integer(1, 255) as u32 = "127", "the lowest of several subagents answers";
    config: Text, "file of control rows";
    contents: Flag = "no", "also identifies protocols over TCP and UDP by content";
    snmp: Text, "file of an SNMP user for objects of other agents";
    then: Text, "program to run at each alarm";
}

/// A subagent, with the tables of all devices.
struct Agent {
    wanted: RmonConfig,
    tables: Mutex<Probe>,
    clock: Clock,
    file: Mutex<ControlFile>,
    is_over: AtomicBool,
    news: News,
    /// Why there is no session.
    trouble: Mutex<Option<String>>,
}

/// Packets come within this time, in nanoseconds, if any do.
const LATE: u64 = 1_000_000_000;

/// The subagents of this process. They and their rows stay while devices are replaced.
static AGENTS: Mutex<Vec<Arc<Agent>>> = Mutex::new(Vec::new());

impl Agent {
    fn of(wanted: &RmonConfig) -> Option<Arc<Agent>> {
        let agents = AGENTS.lock();
        agents.iter().find(|it| it.wanted == *wanted).cloned()
    }

    fn start(
        wanted: RmonConfig,
        (tables, file, account): (Probe, ControlFile, Option<User>),
    ) -> Result<(), String> {
        let address = Address::from_str(&wanted.agentx).map_err(|error| error.to_string())?;
        let news = News::default();
        for row in file.untaken(&tables) {
            news.tell(format!("rmon: {}", not_active(&row)));
        }
        let subagent = agentx::Options {
            address,
            identity: Identity {
                description: format!("flowgauge {}: RMON", env!("CARGO_PKG_VERSION")),
                context: wanted.context.clone().map(String::into_bytes),
                priority: wanted.priority,
            },
        };
        let agent = Arc::new(Agent {
            wanted,
            tables: Mutex::new(tables),
            clock: Clock::default(),
            file: Mutex::new(file),
            is_over: AtomicBool::new(false),
            news,
            trouble: Mutex::default(),
        });
        let own = Arc::clone(&agent);
        let thread = thread::Builder::new().name("fg-rmon".to_owned());
        let failed = |error| format!("cannot start a thread: {error}");
        let started = thread.spawn(move || {
            let now = || own.clock.ticks();
            let mut reaction = Reaction::new(own.wanted.then.clone());
            agentx::run(&subagent, &own.tables, &own.is_over, now, |event| {
                own.tell(&event, &mut reaction);
            });
        });
        started.map_err(failed)?;
        if let Some(account) = account {
            let own = Arc::clone(&agent);
            let thread = thread::Builder::new().name("fg-rmon-snmp".to_owned());
            let started = thread.spawn(move || {
                others::run(&account, &own.tables, &own.is_over, |trouble| {
                    let line = trouble.unwrap_or_else(|| "the SNMP agent answers again".to_owned());
                    own.news.tell(format!("rmon: {line}"));
                });
            });
            started.map_err(failed)?;
        }
        AGENTS.lock().push(agent);
        Ok(())
    }

    fn tell(&self, event: &Event, reaction: &mut Reaction) {
        let master = &self.wanted.agentx;
        let line = match event {
            Event::Registered => {
                *self.trouble.lock() = None;
                format!("rmon: registered with the AgentX master at {master}")
            }
            Event::Lost(reason) => {
                let line = format!("rmon: no AgentX session at {master}: {reason}");
                *self.trouble.lock() = Some(line.clone());
                line
            }
            Event::Notified(notification, is_sent) => {
                if let Some(why) = reaction.to(notification) {
                    self.news.tell(format!("rmon: {why}"));
                }
                if *is_sent {
                    return;
                }
                let kind = &notification.kind;
                format!("rmon: a notification could not be sent: {kind}")
            }
        };
        self.news.tell(line);
    }

    /// Goes on where no packets come, and keeps what managers have set.
    fn attend(&self) {
        let now = self.clock.now().0.saturating_sub(LATE);
        self.tables.lock().tick(Nanos(now));
        if let Some(why) = self.file.lock().keep(&self.tables) {
            self.news.tell(why);
        }
        feed::note_errors(&self.tables);
    }
}

/// Starts the subagent that a configuration wants, if it does not run yet, with the tables of all interfaces: rows of its file
/// are of those.
pub(crate) fn begin(config: &Config) -> Result<(), ConfigError> {
    let Some(wanted) = config.rmon.as_ref().map(RmonConfig::subagent) else {
        return Ok(());
    };
    if Agent::of(&wanted).is_some() {
        return Ok(());
    }
    let begun = Agent::start(wanted, tables(config)?);
    begun.map_err(|error| ConfigError::new("rmon", error, "check the values"))
}

/// Finds out what is wrong with the file of control rows. Returns what is to be said of rows that will not be active.
pub(crate) fn check(config: &Config) -> Result<Vec<String>, ConfigError> {
    let (tables, file, _) = tables(config)?;
    let untaken = file.untaken(&tables);
    match untaken.iter().find(|row| !row.waits()) {
        Some(row) => Err(of_file(row)),
        None => Ok(untaken.iter().map(not_active).collect()),
    }
}

fn tables(config: &Config) -> Result<(Probe, ControlFile, Option<User>), ConfigError> {
    let Some(rmon) = &config.rmon else {
        return Ok((Probe::new(), ControlFile::default(), None));
    };
    let mut tables = match rmon.contents {
        true => Probe::with(Directory::with_contents()),
        false => Probe::new(),
    };
    let account = rmon.snmp.as_deref().map(User::read).transpose();
    let account =
        account.map_err(|error| ConfigError::new("rmon: snmp", error.to_string(), error.hint()))?;
    if account.is_some() {
        tables.ask_others();
    }
    for (name, device) in config.devices.iter().filter(|(name, _)| rmon.has(name)) {
        take_interface(&mut tables, device.interface(name));
    }
    let file = ControlFile::load(rmon.config.as_deref(), &mut tables);
    Ok((tables, file.map_err(|error| of_file(&error))?, account))
}

fn of_file(error: &BadFile) -> ConfigError {
    ConfigError::new("rmon: config", error.to_string(), error.hint())
}

fn not_active(row: &BadFile) -> String {
    format!("{row}; the row is not active; hint: {}", row.hint())
}

/// The place of a device's interface in the tables.
fn take_interface(tables: &mut Probe, interface: Option<&str>) -> usize {
    let number = match interface {
        Some(name) => interfaces::index_of(name).map(i32::cast_unsigned),
        None => Some(1),
    };
    let name = interface.unwrap_or_default();
    let place = tables.take_interface(name, number, interfaces::speed(name));
    tables.note_mtu(place, interfaces::mtu_of(name).unwrap_or(0));
    place
}

/// Looks after the subagents, which is done now and then, and tells what happened to them.
pub(crate) fn news() -> Vec<String> {
    let agents = AGENTS.lock();
    agents.iter().for_each(|agent| agent.attend());
    let news = agents.iter().map(|agent| agent.news.take());
    news.flatten().collect()
}

/// Ends a subagent that no configuration wants any more.
pub(crate) fn end(before: Option<&RmonConfig>, after: Option<&RmonConfig>, news: &News) {
    let [before, after] = [before, after].map(|it| it.map(RmonConfig::subagent));
    let Some(before) = before.filter(|before| after.as_ref() != Some(before)) else {
        return;
    };
    AGENTS.lock().retain(|agent| {
        let goes = agent.wanted == before;
        if goes {
            agent.is_over.store(true, Ordering::Relaxed);
            if let Some(why) = agent.file.lock().finish(&agent.tables) {
                news.tell(why);
            }
        }
        !goes
    });
}

/// Tells how many packets the ring of an interface has lost so far.
pub(crate) fn note_drops(interface: &str, dropped: impl FnOnce() -> u64) {
    let agents = AGENTS.lock();
    if agents.is_empty() {
        return;
    }
    let dropped = dropped();
    for agent in agents.iter() {
        let mut tables = agent.tables.lock();
        if let Some(place) = tables.interface_of(interface) {
            tables.note_drops(place, dropped);
        }
    }
}

/// A device in the tables.
struct Rmon {
    interface: Option<String>,
    wanted: RmonConfig,
    is_live: bool,
    /// And the device's place in them.
    agent: Option<(Arc<Agent>, usize)>,
    packets: u64,
    /// What packets speak.
    contents: Option<(Box<Contents>, Vec<u16>)>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    Ok(Box::new(Rmon {
        interface: options.interface,
        wanted: RmonConfig {
            devices: Vec::new(),
            agentx: options.agentx,
            context: options.context,
            priority: u8::try_from(options.priority).unwrap_or(u8::MAX),
            config: options.config.map(PathBuf::from),
            snmp: options.snmp.map(PathBuf::from),
            then: options.then.map(PathBuf::from),
            contents: options.contents,
        },
        is_live: settings.is_live(),
        contents: options
            .contents
            .then(|| (Box::new(Contents::new(directory::content)), Vec::new())),
        agent: None,
        packets: 0,
    }))
}

impl Component for Rmon {
    fn start(&mut self) -> Result<(), Failure> {
        let agent = Agent::of(&self.wanted);
        let agent = agent.ok_or_else(|| Failure::of("its subagent has ended", None))?;
        let place = take_interface(&mut agent.tables.lock(), self.interface.as_deref());
        self.agent = Some((agent, place));
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let (Items::Packets(packets), Some((agent, place))) = (items, &self.agent) else {
            return;
        };
        if let (false, Some(last)) = (self.is_live, packets.batch.packets.last()) {
            agent.clock.set(last.time);
        }
        self.packets += packets.selected.len() as u64;
        let mut contents = &[][..];
        if let Some((looking, numbers)) = &mut self.contents {
            looking.look(packets.batch, packets.decoded, numbers);
            contents = numbers;
        }
        let mut tables = agent.tables.lock();
        tables.observe_of(*place, packets.batch, packets.decoded, contents, |at| {
            packets.selected.contains(at)
        });
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        if let Some((agent, _)) = &self.agent {
            agent.tables.lock().tick(now);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.packets))
    }

    fn account(&self) -> Option<Box<Account>> {
        let (agent, _) = self.agent.as_ref()?;
        Some(Box::new(Account {
            notes: agent.trouble.lock().iter().cloned().collect(),
            ..Account::default()
        }))
    }
}
