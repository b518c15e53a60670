//! What users may do.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use flowgauge_matcher::positions;
use flowgauge_sensor_client::protocol::Refusal;
use flowgauge_stack::{ComponentKind, Input, Node, OptionValue};
use flowgauge_sys::local::Peer;
use flowgauge_sys::{files, privileges};
use parking_lot::RwLock;
use serde::Deserialize;

use crate::accounts::Who;
use crate::config::Config;
use crate::text::{self, quoted};

/// What a user, or a member of a group, may do.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Rights {
    /// Devices that flows may be on; `*` is all.
    pub devices: Vec<String>,
    /// What flows may see of packets.
    pub packets: Visible,
    /// Components that flows may have, where not all that `packets` allows.
    pub functions: Option<Vec<String>>,
    /// A filter as in pcap-filter(7) before every flow.
    pub filter: Option<String>,
    /// A file with a policy that packets are anonymized by before every flow.
    pub anonymize: Option<String>,
    /// Flows at once.
    pub most_flows: u32,
    /// Bytes of packets that may wait for the user in shared memory.
    pub memory: u64,
    /// Processors that the user's flows may take: 0.5 is half of one.
    pub cpu: f64,
    /// May send packets onto the interfaces that the configuration names for it.
    pub inject: bool,
    /// May see everybody's flows, reload and stop the sensor.
    pub admin: bool,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            devices: vec!["*".to_owned()],
            packets: Visible::None,
            functions: None,
            filter: None,
            anonymize: None,
            most_flows: 64,
            memory: 64 << 20,
            cpu: 0.5,
            inject: false,
            admin: false,
        }
    }
}

/// Whose rights are which.
pub(crate) struct People {
    /// Who started the sensor; root may become somebody that others are, too.
    owner: u32,
    tables: RwLock<Tables>,
    /// Users of other machines who have come so far: their numbers are their places.
    names: RwLock<Vec<Arc<str>>>,
}

/// Rights by the numbers of users, and of groups in the order of their names.
struct Tables {
    users: BTreeMap<u32, Rights>,
    groups: Vec<(u32, Rights)>,
    /// Users who may speak for those of other machines, whose rights are these.
    agents: Vec<u32>,
    remotes: BTreeMap<String, Rights>,
}

impl Tables {
    fn of(config: &Config) -> Tables {
        let users = config.users.iter();
        let users = users
            .filter_map(|(name, rights)| Some((privileges::user_id(name).ok()?, rights.clone())));
        let groups = config.groups.iter();
        let groups = groups
            .filter_map(|(name, rights)| Some((privileges::group_id(name).ok()?, rights.clone())));
        Tables {
            users: users.collect(),
            groups: groups.collect(),
            agents: (config.agents.iter())
                .filter_map(|name| privileges::user_id(name).ok())
                .collect(),
            remotes: config.remotes.clone(),
        }
    }
}

/// Users of other machines whose names are kept.
const MOST_NAMES: usize = 1 << 16;

impl People {
    pub(crate) fn new(owner: u32, config: &Config) -> People {
        People {
            owner,
            tables: RwLock::new(Tables::of(config)),
            names: RwLock::default(),
        }
    }

    /// Whether somebody may speak for users of other machines.
    pub(crate) fn is_agent(&self, peer: Peer) -> bool {
        peer.user == 0 || peer.user == self.owner || self.tables.read().agents.contains(&peer.user)
    }

    /// The number of a user of another machine. Nothing where there are too many.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let names = &mut *self.names.write();
        let known = names.iter().position(|known| **known == *name);
        let at = match known {
            None if names.len() == MOST_NAMES => return None,
            None => {
                names.push(name.into());
                names.len() - 1
            }
            Some(at) => at,
        };
        u32::try_from(at).ok()
    }

    /// The name of a user of another machine.
    pub(crate) fn name(&self, who: Who) -> Option<String> {
        let names = self.names.read();
        let name = names.get(usize::try_from(who.remote_number()?).ok()?)?;
        Some(name.to_string())
    }

    /// What a user of another machine may do.
    pub(crate) fn rights_of(&self, name: &str) -> Rights {
        let tables = self.tables.read();
        let found = tables.remotes.get(name);
        let found = found.or_else(|| tables.remotes.get("*"));
        found.map_or_else(Rights::none, Rights::clone)
    }

    /// Takes the tables anew.
    pub(crate) fn change(&self, config: &Config) {
        *self.tables.write() = Tables::of(config);
    }

    pub(crate) fn rights(&self, peer: Peer, groups: &[u32]) -> Rights {
        if peer.user == 0 || peer.user == self.owner {
            return Rights::all();
        }
        let tables = self.tables.read();
        let is_in = |id: u32| id == peer.group || groups.contains(&id);
        let of_groups = || tables.groups.iter().find(|(id, _)| is_in(*id));
        let found = tables.users.get(&peer.user);
        let found = found.or_else(|| of_groups().map(|(_, rights)| rights));
        found.map_or_else(Rights::none, Rights::clone)
    }
}

/// What of packets flows may see.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Visible {
    /// Counts only: components of [`COUNTING`].
    #[default]
    None,
    /// Headers up to that of transport: what is behind is cut off before every flow.
    Headers,
    /// All, payload among it.
    Payload,
}

/// Components from whose results no byte of a packet can be learned but what capture filters can ask for: headers, addresses
/// and lengths. ([`filter_fault`] refuses filters that reach further.)
const COUNTING: &[&str] = &[
    "binary_operation",
    "bucket",
    "burst",
    "bytes",
    "copy",
    "count",
    "distribution",
    "filter",
    "gap",
    "identity",
    "result_to_file",
    "sample",
    "start_stop",
    "statistics",
    "threshold",
];

/// What `memory` may be.
const MEMORY: RangeInclusive<u64> = 1 << 20..=64 << 30;
/// What `cpu` may be.
const CPU: RangeInclusive<f64> = 0.01..=1024.0;
/// Components that a flow may have.
const MOST_COMPONENTS: usize = 32;
/// The longest text of a flow: a filter takes longer to compile than it is.
const MOST_TEXT: usize = 4 << 10;
/// What an expression may have of [`positions`].
const MOST_POSITIONS: u64 = 500;
/// Rows of a histogram.
const MOST_ROWS: f64 = 1000.0;
/// What options may be that decide how much is kept.
const MOST: &[(&str, u64)] = &[
    ("capacity", 100_000),
    ("count", 1000),
    ("flows", 10_000),
    ("max_flows", 100_000),
    ("memory", 64 << 20),
    ("packets", 10_000),
    ("rows", 50_000),
    ("samples", 1000),
    ("slots", 1000),
    ("snap", 65_535),
    ("table", 100_000),
];

impl Rights {
    /// Those of root, and of who started the sensor.
    pub(crate) fn all() -> Rights {
        Rights {
            packets: Visible::Payload,
            most_flows: u32::MAX,
            cpu: f64::INFINITY,
            inject: true,
            admin: true,
            ..Rights::default()
        }
    }

    /// Those of who is in no table: nothing.
    pub(crate) fn none() -> Rights {
        Rights {
            devices: Vec::new(),
            most_flows: 0,
            ..Rights::default()
        }
    }

    /// Those for files that the user brings: what is in them is not the sensor's to hide.
    pub(crate) fn on_own(&self) -> Rights {
        Rights {
            packets: Visible::Payload,
            filter: None,
            anonymize: None,
            ..self.clone()
        }
    }

    /// Whether nothing is allowed.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Rights::none()
    }

    /// What is wrong with them, and what to do about it.
    pub(crate) fn fault(&self, config: &Config) -> Option<(String, &'static str)> {
        let is_known = |name: &&String| *name == "*" || config.devices.contains_key(*name);
        if let Some(name) = self.devices.iter().find(|name| !is_known(name)) {
            let hint = "devices names tables of devices, or \"*\"";
            return Some((format!("there is no device \"{name}\""), hint));
        }
        if let Err(found) = text::stack("filter", &(self.forced() + "count")) {
            return Some((found, "filter is as for tcpdump, anonymize a file"));
        }
        if !MEMORY.contains(&self.memory) {
            let message = format!("memory = {} cannot be", self.memory);
            return Some((message, "a user has 1 MiB to 64 GiB, in bytes"));
        }
        if !CPU.contains(&self.cpu) {
            let message = format!("cpu = {} cannot be", self.cpu);
            return Some((message, "a user has 0.01 to 1024 processors"));
        }
        let registry = flowgauge_registry::registry();
        let mut functions = self.functions.iter().flatten();
        if let Some(name) = functions.find(|name| registry.find(name).is_none()) {
            let hint = "flowgauge stack list shows the components";
            return Some((format!("there is no component \"{name}\""), hint));
        }
        None
    }

    /// Whether programs may have the streams of a device as they are, or why not.
    pub(crate) fn may_share(&self, device: &str) -> Result<(), &'static str> {
        match self.packets == Visible::Payload
            && self.functions.is_none()
            && self.filter.is_none()
            && self.anonymize.is_none()
            && self.may_use(device)
        {
            true => Ok(()),
            false => Err(
                "you may not have its streams; hint: it takes packets = \"payload\" without functions, filter and anonymize in the \
                 sensor's configuration",
            ),
        }
    }

    pub(crate) fn may_use(&self, device: &str) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|name| name == "*" || name == device)
    }

    /// The text of what is forced before a flow.
    pub(crate) fn forced(&self) -> String {
        let mut forced = String::new();
        if let Some(filter) = &self.filter {
            forced += &format!("filter {{ expression = {} }} ", quoted(filter));
        }
        if self.packets == Visible::Headers {
            forced += "headers ";
        }
        if let Some(policy) = &self.anonymize {
            forced += &format!("anonymize {{ policy = {} }} ", quoted(policy));
        }
        forced
    }

    /// Whether the text of a flow is looked at.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn allow_text(&self, text: &str) -> Result<(), Refusal> {
        if self.admin || text.len() <= MOST_TEXT {
            return Ok(());
        }
        let error = format!(
            "a flow has at most {MOST_TEXT} bytes, this one {}",
            text.len()
        );
        Err(Refusal::with_hint(error, "split it into several flows"))
    }

    /// Whether a flow of these components may run.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn allow(&self, own: &[Node]) -> Result<(), Refusal> {
        if !self.admin && own.len() > MOST_COMPONENTS {
            let error = format!("a flow has at most {MOST_COMPONENTS} components");
            return Err(Refusal::with_hint(error, "split it into several flows"));
        }
        for node in own {
            self.allow_node(node)?;
        }
        Ok(())
    }

    fn allow_node(&self, node: &Node) -> Result<(), Refusal> {
        let name = node.info.name;
        let refused = |why: &str| {
            Refusal::with_hint(
                format!("{} is not allowed: {why}", node.label),
                "the sensor's configuration has the rights of users",
            )
        };
        if node.info.input == Input::Nothing {
            return Err(refused("the device is the source of its flows"));
        }
        if node.info.kind == ComponentKind::Thread {
            return Err(refused("the sensor decides about threads"));
        }
        if name == "inject" && !self.inject {
            return Err(refused("it sends packets, and inject = true allows it"));
        }
        if (node.info.effects)(&node.settings) && !writes_to_user(node) {
            return Err(refused("it reads or writes something outside of the flow"));
        }
        let names_file = node.settings.iter().any(|setting| {
            let text = node.settings.text(setting.option.name).unwrap_or_default();
            let mut paths = setting.option.kind.paths(text);
            paths.any(|_| setting.option.name != "file" || !writes_to_user(node))
        });
        if names_file {
            return Err(refused("it names a file of the sensor's"));
        }
        if !self.admin
            && let Some(what) = too_large(node).or_else(|| slow_patterns(node))
        {
            return Err(refused(&what));
        }
        if let Some(functions) = &self.functions {
            let registry = flowgauge_registry::registry();
            let mut allowed = functions.iter().filter_map(|name| registry.find(name));
            if !allowed.any(|info| core::ptr::eq(info, node.info)) {
                return Err(refused("it is none of the functions allowed"));
            }
        }
        if self.packets != Visible::None {
            return Ok(());
        }
        if !COUNTING.contains(&name) {
            return Err(refused("it can tell what is in packets"));
        }
        let expression = node.settings.text("expression").unwrap_or_default();
        match filter_fault(expression) {
            Some(why) if name == "filter" => Err(refused(why)),
            _ => Ok(()),
        }
    }
}

/// Whether a component writes to a file or socket that came with the flow, and to nothing else.
fn writes_to_user(node: &Node) -> bool {
    const ELSEWHERE: [&str; 4] = ["to", "rotate_size", "rotate_time", "rotate_files"];

    let settings = &node.settings;
    let is_handed = |option| settings.text(option).and_then(files::handed).is_some();
    let is_there = |option| settings.setting(option).is_some();
    match node.info.name {
        "flow_export" => return is_handed(if is_there("to") { "to" } else { "file" }),
        "inject" => return is_handed("to") && !is_there("interface"),
        _ => {}
    }
    matches!(node.info.name, "output" | "result_to_file")
        && is_handed("file")
        && ELSEWHERE
            .iter()
            .all(|option| settings.setting(option).is_none())
}

/// Why the patterns of a component take too long to compile, which nothing can end: with these bounds it is a second.
fn slow_patterns(node: &Node) -> Option<String> {
    let patterns = node.settings.text("pattern").unwrap_or_default();
    if node.info.name != "match" || node.settings.flag("fixed") {
        return None;
    }
    let sizes = patterns.lines().map(|it| positions(it.as_bytes()));
    let sizes: Vec<u64> = sizes.collect();
    let all = sizes
        .iter()
        .fold(0, |all: u64, size| all.saturating_add(*size));
    let most = sizes.iter().max().copied().unwrap_or(0);
    (most > MOST_POSITIONS || all > 8 * MOST_POSITIONS).then(|| {
        let all_most = 8 * MOST_POSITIONS;
        format!(
            "with repeats as {{1,100}} written out a pattern has at most {MOST_POSITIONS} characters, all of them {all_most}"
        )
    })
}

/// What of a component's options asks for too much memory.
fn too_large(node: &Node) -> Option<String> {
    for setting in node.settings.iter() {
        let option = setting.option;
        let value = match setting.value {
            OptionValue::Integer(value) => u64::try_from(value).unwrap_or(0),
            OptionValue::Size(value) => value,
            _ => continue,
        };
        let default = option.default.and_then(|text| option.kind.read(text).ok());
        let most = MOST.iter().find(|(name, _)| *name == option.name);
        if let Some((name, most)) = most
            && value > *most
            && !writes_to_user(node)
            && default.as_ref() != Some(&setting.value)
        {
            return Some(format!("{name} is at most {most}"));
        }
    }
    let number = |name: &str| {
        let settings = &node.settings;
        let integer = settings.integer(name).map(|value| value as f64);
        let size = settings.size(name).map(|value| value as f64);
        let text = settings
            .text(name)
            .and_then(|text| text.trim().parse().ok());
        integer.or(size).or(text)
    };
    let step = number("step").or_else(|| number("interval"));
    let (min, max) = (number("min").unwrap_or(0.0), number("max").unwrap_or(0.0));
    let is_histogram = matches!(node.info.name, "distribution" | "burst");
    let rows = (max - min) / step.unwrap_or(f64::MAX);
    let is_bounded = rows.is_finite() && rows <= MOST_ROWS;
    (is_histogram && !is_bounded).then(|| format!("it has at most {MOST_ROWS} rows"))
}

/// Why a filter may not be asked by who may see no payload: an offset can be anywhere in the packet, unless it is a number within
/// a header's fixed part, and after some words all that follows is looked for further behind.
fn filter_fault(expression: &str) -> Option<&'static str> {
    const SHIFT: [&str; 9] = [
        "vlan",
        "mpls",
        "pppoed",
        "pppoes",
        "geneve",
        "vxlan",
        "protochain",
        "llc",
        "wlan",
    ];

    let is_of_word = |letter: char| letter.is_ascii_alphanumeric();
    let mut words = expression.split(|letter| !is_of_word(letter));
    if words.any(|word| SHIFT.contains(&word)) {
        return Some("its filter looks behind headers that need not be there");
    }
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once('[') {
        let before = before.trim_end();
        let header = before.trim_end_matches(is_of_word).len();
        // As a word of its own: not an address or an escaped name.
        let is_word = before[..header].is_empty()
            || before[..header].ends_with(|letter: char| " \t\n(!&|+-*/<>=".contains(letter));
        let place = after.split_once(']').filter(|_| is_word);
        rest = match place {
            Some((place, rest)) if is_within(&before[header..], place) => rest,
            _ => return Some("an offset reaches the payload"),
        };
    }
    None
}

/// Whether an offset, with the number of bytes if that is given, is within the fixed part of a header: `13`, `0x0c : 2`.
fn is_within(header: &str, place: &str) -> bool {
    /// Headers, and the bytes that each has.
    const HEADERS: [(&str, usize); 6] = [
        ("icmp", 8),
        ("icmp6", 8),
        ("ip", 20),
        ("ip6", 40),
        ("tcp", 20),
        ("udp", 8),
    ];
    /// Offsets that have a name, in the header that they are meant for.
    const NAMES: [(&str, &str, usize); 5] = [
        ("icmp", "icmptype", 0),
        ("icmp", "icmpcode", 1),
        ("icmp6", "icmp6type", 0),
        ("icmp6", "icmp6code", 1),
        ("tcp", "tcpflags", 13),
    ];

    let number = |text: &str| {
        let text = text.trim();
        let is_octal = text.len() > 1 && text.starts_with('0');
        match text.strip_prefix("0x") {
            Some(digits) => usize::from_str_radix(digits, 16).ok(),
            None => text.parse().ok().filter(|_| !is_octal),
        }
    };
    let (at, bytes) = place.split_once(':').unwrap_or((place, "1"));
    let named = NAMES
        .iter()
        .find(|(of, name, _)| (*of, *name) == (header, at.trim()));
    let at = named.map(|it| it.2).or_else(|| number(at));
    let len = HEADERS.iter().find(|(name, _)| *name == header);
    match (at, number(bytes), len) {
        (Some(at), Some(bytes), Some((_, len))) => at < *len && bytes <= len - at,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::stack;

    fn refused(rights: &Rights, text: &str) -> Option<String> {
        let stack = stack("flow", text).unwrap();
        rights
            .allow(&stack.nodes)
            .err()
            .map(|refusal| refusal.error)
    }

    #[test]
    fn who_sees_no_packets_counts() {
        let rights = Rights::default();
        assert_eq!(refused(&rights, "filter { port 53 } count bytes"), None);
        let flags = "filter { \"(tcp[tcpflags] & tcp-syn != 0) or icmp[icmptype] = 8\" } count";
        assert_eq!(refused(&rights, flags), None);
        for filter in [
            "tcp[13] & 2 != 0",
            "tcp[0x0c:2] = 5 and (ip[8] < 3 or ip6[7]<3)",
            "!(tcp [ 16 : 4 ] = 0) and ip[16:4] = ip[12:4]",
            "udp[4:2] > 100 or icmp[icmptype]=8 or ip6[36:4]=1",
        ] {
            let text = format!("filter {{ \"{filter}\" }} count");
            assert_eq!(refused(&rights, &text), None, "{text}");
        }
        for text in [
            "filter { tcp[17:4] = 0 } count",
            "filter { tcp[20] = 0 } count",
            "filter { udp[8] = 0 } count",
            "filter { ip[20] = 0 } count",
            "filter { ip6[40] = 0 } count",
            "filter { \"tcp[tcp[12]] = 0\" } count",
            "filter { \"tcp[(0+40)] = 0\" } count",
            "filter { \"tcp[024] = 0\" } count",
            "filter { \"tcp[19:2] = 0\" } count",
            "filter { \"ether[14] = 0\" } count",
            "filter { \"ip[tcpflags] = 0 and ip[60] = 0\" } count",
            "search { pattern = secret } count",
            "display_filter { frame contains 47:45:54 } count",
            "filter { tcp[32] = 0x47 } count",
            "filter { udp[tcpflags] = 0x65 } count",
            "filter { icmp[tcpflags] = 0x65 } count",
            "filter { \"vlan 4094 or ether proto 0x5420\" } count",
            "filter { \"ether[54:4] = 1\" } count",
            "to_buffer",
            "hash_sample { range = 1024 }",
            "hash { layer = 3 }",
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
        }
    }

    #[test]
    fn nobody_takes_much_memory() {
        let rights = Rights::default();
        let many = "count ".repeat(33);
        for text in [
            "bytes - distribution { of = bytes, min = 0, max = 100000, interval = 1 }",
            "burst { min = 0, max = 64k, step = 1 }",
            "count - bucket { of = count, slots = 1000000 }",
            many.as_str(),
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
            assert_eq!(refused(&Rights::all(), text), None, "{text}");
        }
        for text in [
            "bytes - distribution { of = bytes, min = 0, max = 1500, interval = 100 }",
            "burst",
            "count - bucket { of = count }",
        ] {
            assert_eq!(refused(&rights, text), None, "{text}");
        }
        assert!(rights.allow_text(&"x".repeat(5000)).is_err());
    }

    #[test]
    fn nobody_keeps_a_compiler_busy() {
        let rights = Rights {
            packets: Visible::Payload,
            ..Rights::default()
        };
        let many = format!("match {{ pattern = \"{}\" }}", "a{1,450}\\n".repeat(9));
        let long = format!("match {{ pattern = \"{}\" }}", "GET /a ".repeat(100));
        for text in [
            "match { pattern = \"(?:a?){1,800}a{800}\" }",
            "match { pattern = \"((a{1,30}b){1,30}c){1,10}\" }",
            many.as_str(),
            long.as_str(),
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
            assert_eq!(refused(&Rights::all(), text), None, "{text}");
        }
        let fixed = long.replace(" }", ", fixed = yes }");
        for text in [
            fixed.as_str(),
            "match { pattern = \"GET /[a-z]{1,200}\\nHost: .{1,100}\\r\" }",
        ] {
            assert_eq!(refused(&rights, text), None, "{text}");
        }
    }

    #[test]
    fn nobody_reaches_files_or_the_network() {
        let rights = Rights::all();
        for text in [
            "output { file = /tmp/x.pcap }",
            "output { to = c:1 }",
            "anonymize { policy = /etc/shadow } count",
            "thread count",
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
        }
        assert_eq!(refused(&rights, "search { pattern = secret } count"), None);
    }

    #[test]
    fn functions_and_a_filter_are_those_of_the_configuration() {
        let rights = Rights {
            functions: Some(vec!["PKT_COUNTER".to_owned()]),
            filter: Some("net 10.0.0.0/8 and tcp[13] = 2".to_owned()),
            ..Rights::all()
        };
        assert_eq!(refused(&rights, "count"), None);
        assert!(refused(&rights, "bytes").is_some());
        assert!(refused(&rights, "filter { tcp } count").is_some());
        let flow = crate::text::flow("flow", &rights.forced(), "count").unwrap();
        assert_eq!(flow.hidden, 1);
        let own = &flow.stack.nodes[flow.hidden..];
        assert_eq!(rights.allow(own).err(), None);
    }
}
