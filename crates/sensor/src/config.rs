//! The configuration: a file in TOML.
//!
//! ```toml
//! socket = "/run/flowgauge/sensor.sock"
//!
//! [devices.eth0]
//! filter = "not port 2233"
//!
//! [stacks.flows]
//! stack = "flows - output { file = /var/log/flowgauge/flows.json }"
//!
//! [users.alice]
//! packets = "payload"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_credential::{Revoked, RightsTable as _};
use flowgauge_sensor_client::DEFAULT_SOCKET;
use flowgauge_stack::Stack;
use flowgauge_sys::files::Folder;
use flowgauge_sys::process;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::rights::Rights;
use crate::rmon::{self, RmonConfig};
use crate::text;

/// Where the configuration is, unless something else is said.
pub const DEFAULT_FILE: &str = "/etc/flowgauge/sensor.toml";
/// The longest configuration that is read.
const MAX_BYTES: u64 = 4 << 20;

/// What a sensor does.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The socket that users come to.
    pub socket: PathBuf,
    /// The user that the process becomes once devices are open, if it is root.
    pub user: Option<String>,
    /// Interfaces that flows may send packets onto, of users with the right to it.
    pub inject: Vec<String>,
    /// What is captured, by name.
    pub devices: BTreeMap<String, DeviceConfig>,
    /// Stacks that always run, by name.
    pub stacks: BTreeMap<String, StackConfig>,
    /// RMON's tables of devices, for SNMP managers.
    pub rmon: Option<RmonConfig>,
    /// Rights of users, by name or number.
    pub users: BTreeMap<String, Rights>,
    /// Rights of all members of groups, by name or number.
    pub groups: BTreeMap<String, Rights>,
    /// Users, by name or number, who may speak for those of other machines: whom agents run as.
    pub agents: Vec<String>,
    /// Rights of users of other machines, by the name in their certificate; `*` is everybody else.
    pub remotes: BTreeMap<String, Rights>,
    /// Who issues credentials, by name: their keys, and what their credentials can allow at most.
    pub issuers: BTreeMap<String, Rights>,
    /// A file with the identifiers of credentials that were revoked.
    pub revoked: Option<PathBuf>,
    /// Files of policies to anonymize by, by the names that credentials and tables of rights have for them.
    pub anonymization: BTreeMap<String, PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            socket: PathBuf::from(DEFAULT_SOCKET),
            user: None,
            inject: Vec::new(),
            devices: BTreeMap::new(),
            stacks: BTreeMap::new(),
            rmon: None,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            agents: Vec::new(),
            remotes: BTreeMap::new(),
            issuers: BTreeMap::new(),
            revoked: None,
            anonymization: BTreeMap::new(),
        }
    }
}

/// An interface, or files in its place.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// The interface; the device's name where it is not said.
    pub interface: Option<String>,
    /// Captures to read in place of an interface, merged by time; names may be patterns.
    pub files: Vec<PathBuf>,
    /// How fast files are read.
    pub speed: Speed,
    /// Files are read from when a user asks for it on, so that flows are there before the first packet.
    pub hold: bool,
    /// A filter as in pcap-filter(7).
    pub filter: String,
    /// Threads that share its packets.
    pub workers: u16,
    /// Bytes of each packet that are captured.
    pub snapshot_length: u32,
    /// Bytes of the kernel's ring.
    pub buffer: u64,
    /// Whether to receive what is not for this host, too.
    pub promiscuous: bool,
    /// Bytes of chunks that programs with libscap may let wait, all together; 0: they capture for themselves.
    pub shared_memory: u64,
    /// What keeps packets away that nothing on the device wants.
    pub offload: Offload,
}

impl Default for DeviceConfig {
    fn default() -> DeviceConfig {
        DeviceConfig {
            interface: None,
            files: Vec::new(),
            speed: Speed::Full,
            hold: false,
            filter: String::new(),
            workers: 1,
            snapshot_length: DEFAULT_SNAP_LEN,
            buffer: 64 << 20,
            promiscuous: true,
            shared_memory: most_memory().min(1 << 30),
            offload: Offload::Auto,
        }
    }
}

/// How fast files are read.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// As fast as the stacks take it.
    #[default]
    Full,
    /// In their time: a packet comes as long after the first as it was captured after it.
    Real,
}

/// What keeps packets away from a device before they are copied.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// A program on the socket of the interface, where the kernel takes it.
    Auto,
    /// Nothing: all packets come.
    None,
    /// As `Auto`, and without it the device cannot be opened.
    Socket,
}

/// A stack that always runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct StackConfig {
    /// Its components.
    pub stack: String,
    /// A file that they are in, in place of `stack`; beside that of the configuration where the name is relative.
    pub file: Option<PathBuf>,
    /// The device that it runs on; the only one where there is one.
    pub device: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    place: String,
    message: String,
    hint: Option<String>,
}

impl ConfigError {
    /// Where in a configuration what is wrong, and what to do about it.
    pub fn new(place: impl Into<String>, message: impl Into<String>, hint: &str) -> ConfigError {
        ConfigError {
            place: place.into(),
            message: message.into(),
            hint: Some(hint.to_owned()),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// A configuration that was checked, with its stacks by device.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) config: Config,
    pub(crate) stacks: BTreeMap<String, Vec<Stack>>,
}

impl Checked {
    pub(crate) fn read(path: &Path) -> Result<Checked, ConfigError> {
        let hint = "flowgauge sensor check --config FILE checks a configuration";
        let text = read_text(path, hint)?;
        let checked = Checked::parse(&text, path)?;
        if let Some(file) = &checked.config.revoked
            && let Err(error) = Revoked::read(file)
        {
            return Err(ConfigError {
                place: format!("{}: revoked: {}", path.display(), file.display()),
                message: error,
                hint: Some(REVOKED.to_owned()),
            });
        }
        Ok(checked)
    }

    pub(crate) fn parse(text: &str, path: &Path) -> Result<Checked, ConfigError> {
        let config: Config = parse_toml(text, path)?;
        let wrong = |table: &str, name: &str, message: String, hint: Option<&str>| {
            let headers = [format!("[{table}.{name}]"), format!("[{table}.\"{name}\"]")];
            let is_it = |line: &str| headers.iter().any(|header| line.trim().starts_with(header));
            let at = text.lines().position(is_it);
            ConfigError {
                place: match at {
                    Some(at) => format!("{}:{}: {table}.{name}", path.display(), at + 1),
                    None => format!("{}: {table}.{name}", path.display()),
                },
                message,
                hint: hint.map(str::to_owned),
            }
        };
        for (name, device) in &config.devices {
            if let Some((message, hint)) = device.fault(name) {
                return Err(wrong("devices", name, message, Some(hint)));
            }
        }
        let mut stacks: BTreeMap<String, Vec<Stack>> = BTreeMap::new();
        for (name, stack) in &config.stacks {
            let device = config.device_of(stack).map_err(|message| {
                let hint = "set device to the name of a table devices";
                wrong("stacks", name, message, Some(hint))
            })?;
            if !is_name(name) {
                let message = "not a valid stack name".to_owned();
                return Err(wrong("stacks", name, message, Some(NAMES)));
            }
            let read = stack.read(path).map_err(|message| {
                let hint = "set stack to the components, or file to the name of their file";
                wrong("stacks", name, message, Some(hint))
            })?;
            let made = match &read {
                Some((file, components)) => text::at(name, file, components),
                None => text::stack(name, &stack.stack).map_err(|found| {
                    let padded = padded(text, name);
                    padded.map_or(found, |padded| {
                        let place = path.display().to_string();
                        text::at(name, &place, &padded).err().unwrap_or_default()
                    })
                }),
            };
            let made = made.map_err(|found| match found.split_once(": error: ") {
                Some((place, message)) => ConfigError {
                    place: format!("{place}: stacks.{name}"),
                    message: message.to_owned(),
                    hint: None,
                },
                None => wrong("stacks", name, found, None),
            })?;
            if made.has_source() {
                let message = "it has a source of its own".to_owned();
                let hint = "the device is the source of its stacks";
                return Err(wrong("stacks", name, message, Some(hint)));
            }
            stacks.entry(device.to_owned()).or_default().push(made);
        }
        config
            .add_rmon(&mut stacks)
            .map_err(|(message, hint)| ConfigError {
                place: format!("{}: rmon", path.display()),
                message,
                hint: Some(hint.to_owned()),
            })?;
        for (table, all) in [
            ("users", &config.users),
            ("groups", &config.groups),
            ("remotes", &config.remotes),
            ("issuers", &config.issuers),
        ] {
            for (name, rights) in all {
                let is_issuer = table == "issuers";
                let fault = rights.fault_of_key(is_issuer);
                let fault = fault.or_else(|| rights.fault(&config, is_issuer));
                if let Some((message, hint)) = fault {
                    return Err(wrong(table, name, message, Some(hint)));
                }
            }
        }
        Ok(Checked { config, stacks })
    }
}

/// What to do about a file of what was revoked that cannot be used.
const REVOKED: &str =
    "it has identifiers of credentials, one per line; empty if nothing was revoked";

impl Config {
    /// The file of a policy to anonymize by, of its name or itself.
    pub(crate) fn anonymization_file(&self, policy: &str) -> String {
        let named = self.anonymization.get(policy);
        named.map_or_else(|| policy.to_owned(), |file| file.display().to_string())
    }

    /// The interface of a device that programs may share, and the memory for that: of several devices of one interface the
    /// first's.
    pub(crate) fn shared(&self, device: &str) -> Option<(&str, u64)> {
        let (name, config) = self.devices.get_key_value(device)?;
        let interface = config.interface(name)?;
        let mut all = self.devices.iter();
        let first = all
            .find(|(name, config)| config.interface(name) == Some(interface))?
            .0;
        (config.shared_memory > 0 && first == name).then_some((interface, config.shared_memory))
    }

    /// Adds the stacks of RMON's tables.
    fn add_rmon(
        &self,
        stacks: &mut BTreeMap<String, Vec<Stack>>,
    ) -> Result<(), (String, &'static str)> {
        let Some(rmon) = &self.rmon else {
            return Ok(());
        };
        if let Some(fault) = rmon.fault() {
            return Err(fault);
        }
        if self.stacks.contains_key(rmon::NAME) {
            let message = "a stack already has this name".to_owned();
            return Err((message, "rename the stack"));
        }
        let mut unknown = rmon.devices.iter();
        let is_unknown = |name: &&String| *name != "*" && !self.devices.contains_key(*name);
        if let Some(name) = unknown.find(is_unknown) {
            let message = format!("there is no device \"{name}\"");
            return Err((message, "set devices to names of tables devices"));
        }
        for (name, device) in self.devices.iter().filter(|(name, _)| rmon.has(name)) {
            let stack = rmon.stack(device.interface(name));
            let stack = stack.map_err(|message| (message, "check the values"))?;
            stacks.entry(name.clone()).or_default().push(stack);
        }
        Ok(())
    }

    fn device_of<'a>(&'a self, stack: &'a StackConfig) -> Result<&'a str, String> {
        let mut devices = self.devices.keys();
        match (&stack.device, devices.next(), devices.next()) {
            (Some(name), ..) if self.devices.contains_key(name) => Ok(name),
            (Some(name), ..) => Err(format!("there is no device \"{name}\"")),
            (None, Some(name), None) => Ok(name),
            (None, None, _) => Err("no device to run on".to_owned()),
            (None, ..) => Err("there are several devices, and none is named".to_owned()),
        }
    }
}

impl DeviceConfig {
    /// The interface, where it is one.
    pub fn interface<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let interface = self.interface.as_deref().unwrap_or(name);
        self.files.is_empty().then_some(interface)
    }

    fn fault(&self, name: &str) -> Option<(String, &'static str)> {
        let is_file = !self.files.is_empty();
        if !is_name(name) {
            let message = format!("\"{}\" cannot be the name of a device", name.escape_debug());
            return Some((message, NAMES));
        }
        let sizes = [
            ("buffer", self.buffer),
            ("shared_memory", self.shared_memory),
        ];
        let mut sizes = sizes.iter();
        if let Some((option, bytes)) = sizes.find(|(_, bytes)| *bytes > most_memory()) {
            let message = format!("{option} = {bytes} is more than a quarter of the memory");
            return Some((message, "some hundred megabytes suffice"));
        }
        let filter = format!(
            "filter {{ expression = {} }} count",
            text::quoted(&self.filter)
        );
        if let Err(found) = text::stack("filter", &filter) {
            return Some((found, "filter is as for tcpdump"));
        }
        if is_file && self.interface.is_some() {
            return Some((
                "it has both an interface and files".to_owned(),
                "a device is an interface or files",
            ));
        }
        if !is_file && (self.hold || self.speed != Speed::Full) {
            return Some((
                "hold and speed are for files".to_owned(),
                "name the files, or leave both out",
            ));
        }
        if is_file && self.offload == Offload::Socket {
            return Some((
                "offload is for interfaces, not for files".to_owned(),
                "leave it out",
            ));
        }
        if self.offload == Offload::Socket && self.snapshot_length < DEFAULT_SNAP_LEN {
            return Some((
                "offload needs whole packets, and snapshot_length truncates them".to_owned(),
                "omit one of them",
            ));
        }
        if self.workers == 0 || self.workers > 256 {
            return Some((
                format!("workers = {} cannot be", self.workers),
                "a device has 1 to 256",
            ));
        }
        None
    }
}

impl StackConfig {
    /// The file that its components are in, and what is in that, if they are in one.
    fn read(&self, config: &Path) -> Result<Option<(String, String)>, String> {
        let file = match (&self.file, self.stack.is_empty()) {
            (None, false) => return Ok(None),
            (Some(file), true) => file,
            (Some(_), false) => return Err("it has a stack and a file".to_owned()),
            (None, true) => return Err("it has no components".to_owned()),
        };
        let file = config.parent().unwrap_or(Path::new("")).join(file);
        let shown = file.display().to_string();
        let bytes = Folder::anywhere().read(&file, MAX_BYTES);
        let bytes = bytes.map_err(|error| format!("{shown}: {error}"))?;
        let bytes = bytes.ok_or_else(|| format!("{shown} is longer than 4 MiB"))?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| format!("{shown} is not UTF-8 text"))?;
        Ok(Some((shown, text)))
    }
}

/// The text of a configuration.
///
/// # Errors
/// It cannot be read, with this hint.
pub fn read_text(path: &Path, hint: &str) -> Result<String, ConfigError> {
    let unread = |message: &dyn core::fmt::Display| {
        ConfigError::new(path.display().to_string(), message.to_string(), hint)
    };
    let bytes = Folder::anywhere().read(path, MAX_BYTES);
    let bytes = bytes.map_err(|error| unread(&error))?;
    let bytes = bytes.ok_or_else(|| unread(&"is longer than 4 MiB"))?;
    let text = String::from_utf8(bytes).map_err(|_| unread(&"is not UTF-8 text"))?;
    // An editor that is writing it, or could not.
    match text.trim().is_empty() {
        true => Err(unread(&"is empty")),
        false => Ok(text),
    }
}

/// What a configuration in TOML says.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn parse_toml<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        ConfigError {
            place: format!("{}:{line}", path.display()),
            hint: text::nearest_of(error.message()),
            message: error.message().to_owned(),
        }
    })
}

/// The text of a stack in the configuration, behind as many lines and columns as stand before it there.
fn padded(text: &str, name: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Places {
        stacks: BTreeMap<String, Place>,
    }
    #[derive(Deserialize)]
    struct Place {
        stack: toml::Spanned<String>,
    }

    let mut places: Places = toml::from_str(text).ok()?;
    let stack = places.stacks.remove(name)?.stack;
    let written = text.get(stack.span().start..)?;
    let quotes = match written.starts_with("\"\"\"") || written.starts_with("'''") {
        true => 3,
        false => 1,
    };
    let begins = stack.span().start + quotes;
    let newline = usize::from(quotes == 3 && text.get(begins..)?.starts_with('\n'));
    let before = text.get(..begins + newline)?;
    let column = before.lines().next_back().unwrap_or_default();
    let column = if before.ends_with('\n') { "" } else { column };
    let lines = "\n".repeat(line_of(text, before.len()) - 1);
    let blanks = " ".repeat(column.chars().count());
    Some(lines + &blanks + stack.get_ref())
}

/// A quarter of the machine's memory.
pub fn most_memory() -> u64 {
    process::machine_memory().map_or(u64::MAX, |bytes| bytes / 4)
}

const NAMES: &str = "names consist of letters, digits and - _ . @";

/// Whether it can be the name of a device or stack. (What runs for flows has a blank in its name.)
fn is_name(name: &str) -> bool {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_good)
}

/// The line of a place, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (String, Option<String>) {
        let error = Checked::parse(text, Path::new("s.toml")).unwrap_err();
        (error.to_string(), error.hint)
    }

    #[test]
    fn every_option_has_a_default() {
        let empty = Checked::parse("", Path::new("s.toml")).unwrap();
        assert_eq!(empty.config, Config::default());
        let one = Checked::parse("[devices.eth0]\n", Path::new("s.toml")).unwrap();
        let device = &one.config.devices["eth0"];
        assert_eq!(device.interface("eth0"), Some("eth0"));
        assert_eq!(device, &DeviceConfig::default());
    }

    #[test]
    fn the_default_file_shows_the_defaults() {
        let text = include_str!("../../../packaging/sensor.toml");
        assert_eq!(
            Checked::parse(text, Path::new("s.toml")).unwrap().config,
            Config::default()
        );
        let options = text.lines().filter_map(|line| line.strip_prefix('#'));
        let options = options.filter(|line| line.starts_with('[') || line.contains(" = "));
        let options = options.filter(|line| !line.starts_with(' '));
        let shown: String = options.map(|line| format!("{line}\n")).collect();
        let shown = Checked::parse(&shown, Path::new("s.toml")).unwrap().config;
        let eth0 = &shown.devices["eth0"];
        let interface = Some("eth0".to_owned());
        assert_eq!(
            eth0,
            &DeviceConfig {
                interface,
                ..DeviceConfig::default()
            }
        );
        let replay = DeviceConfig {
            files: shown.devices["replay"].files.clone(),
            ..DeviceConfig::default()
        };
        assert_eq!(shown.devices["replay"], replay);
        assert_eq!(shown.socket, Config::default().socket);
        let alice = Rights {
            functions: shown.users["alice"].functions.clone(),
            filter: shown.users["alice"].filter.clone(),
            anonymize: shown.users["alice"].anonymize.clone(),
            packets_per_second: shown.users["alice"].packets_per_second,
            times: shown.users["alice"].times.clone(),
            expires: shown.users["alice"].expires.clone(),
            ..Rights::default()
        };
        assert_eq!(shown.users["alice"], alice);
    }

    #[test]
    fn stacks_run_on_the_only_device_or_on_the_one_that_they_name() {
        let text = "[devices.a]\n[devices.b]\n[stacks.one]\nstack = \"count\"\ndevice = \"b\"\n";
        let checked = Checked::parse(text, Path::new("s.toml")).unwrap();
        assert_eq!(checked.stacks["b"][0].name.as_deref(), Some("one"));
        let (message, hint) = error(&text.replace("device = \"b\"", ""));
        assert!(
            message.starts_with("s.toml:3: stacks.one: there are several"),
            "{message}"
        );
        assert!(hint.is_some());
        let (message, _) = error(&text.replace("\"b\"", "\"c\""));
        assert!(message.ends_with("there is no device \"c\""), "{message}");
    }

    #[test]
    fn stacks_may_be_in_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(folder.path().join("c.stack"), "# all of it\ncount").unwrap();
        let text = "[devices.a]\n[stacks.x]\nfile = \"c.stack\"\n";
        let checked = Checked::parse(text, &path).unwrap();
        assert_eq!(checked.stacks["a"][0].nodes[0].label, "count");
        std::fs::write(folder.path().join("c.stack"), "count\ncuont").unwrap();
        let message = Checked::parse(text, &path).unwrap_err().to_string();
        assert!(message.contains("c.stack:2:1: stacks.x: "), "{message}");
        let both = format!("{text}stack = \"count\"\n");
        assert!(Checked::parse(&both, &path).is_err());
    }

    #[test]
    fn rmon_is_a_stack_of_each_of_its_devices() {
        let devices = "[devices.a]\n[devices.b]\nfiles = [\"x\"]\n";
        let stacks = |text: &str| {
            let text = format!("{devices}[rmon]\n{text}");
            Checked::parse(&text, Path::new("s.toml")).unwrap().stacks
        };
        let named = |stacks: &BTreeMap<String, Vec<Stack>>| {
            stacks.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(&stacks("")), "a b");
        let one = stacks("devices = [\"b\"]\ncontext = \"a\\\"b\"\nconfig = \"/x y\"\n");
        assert_eq!(named(&one), "b");
        let settings = &one["b"][0].nodes[0].settings;
        assert_eq!(settings.text("context"), Some("a\"b"));
        assert_eq!(settings.text("config"), Some("/x y"));
        for (text, expected) in [
            ("devices = [\"c\"]", "there is no device \"c\""),
            ("agentx = \"here\"", "agentx: \"here\" is not an address"),
            ("priority = 0", "priority = 0 cannot be"),
            (
                "[stacks.rmon]\ndevice = \"a\"\nstack = \"count\"",
                "a stack already has this name",
            ),
        ] {
            let (message, hint) = error(&format!("{devices}[rmon]\n{text}\n"));
            assert!(message.contains(expected), "{message}");
            assert!(hint.is_some(), "{message}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let (message, hint) = error("socket = \"/x\"\n[devices.a]\nfiltre = \"tcp\"\n");
        assert!(
            message.starts_with("s.toml:3: unknown field `filtre`"),
            "{message}"
        );
        assert_eq!(hint.as_deref(), Some("did you mean filter?"));
        for (text, place) in [
            ("[stacks.x]\nstack = \"cuont\"\n", "3:10"),
            ("[stacks.x]\nstack = \"\"\"\ncount\n  cuont\"\"\"\n", "5:3"),
            ("[stacks]\n\nx.stack = '''count cuont'''\n", "4:20"),
        ] {
            let (message, _) = error(&format!("[devices.a]\n{text}"));
            let expected = format!("s.toml:{place}: stacks.x: unknown component cuont");
            assert!(message.starts_with(&expected), "{message}");
        }
        let (message, _) = error("[devices.a]\n[stacks.x]\n");
        assert_eq!(message, "s.toml:2: stacks.x: it has no components");
        let (message, _) = error("[devices.a]\n[stacks.x]\nfile = \"no.stack\"\n");
        assert!(
            message.starts_with("s.toml:2: stacks.x: no.stack: "),
            "{message}"
        );
        let (message, _) = error("[devices.a]\nhold = true\n");
        assert!(
            message.contains("hold and speed are for files"),
            "{message}"
        );
        let (message, _) = error("[devices.a]\n[stacks.x]\nstack = \"pcap { file = x } count\"\n");
        assert!(message.contains("a source of its own"), "{message}");
    }
}
