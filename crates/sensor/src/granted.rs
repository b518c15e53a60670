//! What somebody may do: the policy that flows are held against, and rules that hold for everybody.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use flowgauge_credential::{Argument, Facts, Policy, Request, STANDING, Visible};
use flowgauge_matcher::positions;
use flowgauge_sensor_client::protocol::Refusal;
use flowgauge_stack::{ComponentKind, Input, Node, OptionValue};
use flowgauge_sys::files;

use crate::rights::Rights;
use crate::text::{filter_error, quoted};

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

pub(crate) fn filter_text(filter: &str) -> String {
    format!("filter {{ expression = {} }} ", quoted(filter))
}

pub(crate) fn anonymize_text(file: &str) -> String {
    format!("anonymize {{ policy = {} }} ", quoted(file))
}

/// What somebody may do: a policy, and what of it is no matter of flows.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) policy: Arc<Policy>,
    /// Who asks, for the policy.
    pub(crate) by: Arc<Facts>,
    pub(crate) memory: u64,
    pub(crate) cpu: f64,
    pub(crate) inject: bool,
    pub(crate) admin: bool,
    /// Why nothing is allowed, if so.
    pub(crate) nothing: Option<String>,
    /// Files of policies to anonymize by.
    pub(crate) anonymization: Arc<BTreeMap<String, PathBuf>>,
}

impl Granted {
    /// Of root, and of who started the sensor: all.
    pub(crate) fn all() -> Granted {
        Granted {
            policy: Arc::default(),
            by: Arc::default(),
            memory: Rights::default().memory,
            cpu: f64::INFINITY,
            inject: true,
            admin: true,
            nothing: None,
            anonymization: Arc::default(),
        }
    }

    /// Nothing, and why.
    pub(crate) fn nothing(why: impl Into<String>) -> Granted {
        let rights = Rights::default();
        Granted {
            cpu: rights.cpu,
            inject: false,
            admin: false,
            nothing: Some(why.into()),
            ..Granted::all()
        }
    }

    /// Those for files that the user brings: what is in them is not the sensor's to hide.
    pub(crate) fn on_own(&self) -> Granted {
        Granted {
            policy: Arc::new(self.policy.for_own_files()),
            ..self.clone()
        }
    }

    fn request<'a>(&'a self, facts: &'a Facts) -> Request<'a> {
        Request {
            facts,
            by: &self.by,
            time: now(),
        }
    }

    /// Whether programs may have the streams of a device as they are.
    ///
    /// # Errors
    /// They may not.
    pub(crate) fn may_share(&self, device: &str) -> Result<(), Refusal> {
        self.standing()?;
        let facts = [&["device"], STANDING].concat();
        match self.policy.allows_all_but(&facts) && self.may_use(device) {
            true => Ok(()),
            false => Err(Refusal::by_rights(
                "you may not have its streams",
                "it needs packets = \"payload\" without functions, filter, anonymize and packets_per_second in the \
                user's rights",
            )),
        }
    }

    pub(crate) fn may_use(&self, device: &str) -> bool {
        let facts = Facts::default().on(device);
        let policy = self.policy.of_facts(&[&["device"], STANDING].concat());
        self.nothing.is_none() && policy.judge(&self.request(&facts)).is_ok()
    }

    /// Whether there is anything that may be done now, by who asks.
    ///
    /// # Errors
    /// Why there is not.
    pub(crate) fn standing(&self) -> Result<(), Refusal> {
        if let Some(why) = &self.nothing {
            return Err(Refusal::by_rights(why.clone(), RIGHTS));
        }
        let facts = Facts::default();
        let policy = self.policy.of_facts(STANDING);
        policy.judge(&self.request(&facts)).map_err(|denial| {
            let hint = "flowgauge credential show prints its holder and expiry; the sensor's configuration has the \
            rights of users";
            Refusal::by_rights(denial.to_string(), hint)
        })
    }

    /// The text of what is forced before a flow. What a layer forces comes behind what those before it do, so that a holder
    /// who narrows a credential learns no more by it than by components of the flow.
    ///
    /// # Errors
    /// A credential asks for what is not there, or for more than it may.
    pub(crate) fn forced(&self) -> Result<String, Refusal> {
        let mut forced = String::new();
        let (mut visible, mut anonymized) = (Visible::Payload, Vec::new());
        for layer in self.policy.layers() {
            let (duties, origin) = (&layer.block.duties, &layer.origin);
            for filter in &duties.filters {
                if let (Visible::None, Some(why)) = (visible, filter_fault(filter)) {
                    let error = format!("the filter of {origin} is not allowed: {why}");
                    return Err(Refusal::new(error));
                }
                forced += &filter_text(filter);
            }
            if let Some(rate) = duties.packets_per_second {
                forced += &format!("rate_limit {{ packets = {rate} }} ");
            }
            if duties.packets == Some(Visible::Headers) && visible == Visible::Payload {
                forced += "headers ";
            }
            visible = duties.packets.map_or(visible, |own| visible.min(own));
            let Some(name) = &duties.anonymize else {
                continue;
            };
            let file = match self.anonymization.get(name) {
                Some(file) => file.display().to_string(),
                // Of tables; who brings a credential names no files of the sensor's.
                None if layer.id.is_none() => name.clone(),
                None => {
                    let error = format!("{origin} requires an unknown policy \"{name}\"");
                    let hint = "define it in the table anonymization of the sensor's configuration";
                    return Err(Refusal::with_hint(error, hint));
                }
            };
            if !anonymized.contains(&file) {
                forced += &anonymize_text(&file);
                anonymized.push(file);
            }
        }
        Ok(forced)
    }

    /// Which filter of the credential cannot be one, and why: its holder may know, as it is the holder's own.
    pub(crate) fn filter_that_fails(&self) -> Option<Refusal> {
        let brought = self
            .policy
            .layers()
            .iter()
            .filter(|layer| layer.id.is_some());
        let mut filters = brought.flat_map(|layer| {
            let filters = layer.block.duties.filters.iter();
            filters.map(move |filter| (&layer.origin, filter))
        });
        filters.find_map(|(origin, filter)| {
            let why = filter_error(filter)?;
            let error = format!("the filter of {origin} cannot be used: {why}");
            let hint = "a filter is an expression of pcap-filter(7); have the credential reissued";
            Some(Refusal::with_hint(error, hint))
        })
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

    /// Whether a flow of these components may run on a device.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn allow(&self, device: &str, own: &[Node]) -> Result<(), Refusal> {
        if let Some(why) = &self.nothing {
            return Err(Refusal::by_rights(why.clone(), RIGHTS));
        }
        if !self.admin && own.len() > MOST_COMPONENTS {
            let error = format!("a flow has at most {MOST_COMPONENTS} components");
            return Err(Refusal::with_hint(error, "split it into several flows"));
        }
        for node in own {
            self.allow_node(node)?;
        }
        let denied = self.policy.judge(&self.request(&facts(device, own)));
        denied.map_err(|denial| Refusal::by_rights(denial.to_string(), RIGHTS))
    }

    /// What each statement of the policy says of a flow, in words.
    pub(crate) fn explain(&self, device: &str, own: &[Node]) -> Vec<String> {
        let findings = self.policy.explain(&self.request(&facts(device, own)));
        let findings = findings.iter().map(|finding| {
            let (origin, words) = (&finding.origin, &finding.words);
            match &finding.refused {
                None => format!("yes  {origin}: {words}"),
                Some(what) => format!("no   {origin}: {words}: not {what} [{}]", finding.check),
            }
        });
        findings.collect()
    }

    fn allow_node(&self, node: &Node) -> Result<(), Refusal> {
        let name = node.info.name;
        let refused =
            |why: &str| Refusal::by_rights(format!("{} is not allowed: {why}", node.label), RIGHTS);
        if node.info.input == Input::Nothing {
            return Err(refused("the device is the source of its flows"));
        }
        if node.info.kind == ComponentKind::Thread {
            return Err(refused("the sensor decides about threads"));
        }
        if name == "inject" && !self.inject {
            return Err(refused("it sends packets, and inject = true allows it"));
        }
        if is_to_standard_output(node) {
            let error = format!("{}: a flow has no standard output", node.label);
            let hint = "name a file that it writes: flowgauge sensor flow -w FILE, or file = FILE";
            return Err(Refusal::with_hint(error, hint));
        }
        if (node.info.effects)(&node.settings) && !writes_to_user(node) {
            return Err(refused("it accesses something outside the flow"));
        }
        let names_file = node.settings.iter().any(|setting| {
            let text = node.settings.text(setting.option.name).unwrap_or_default();
            let mut paths = setting.option.kind.paths(text);
            paths.any(|_| setting.option.name != "file" || !writes_to_user(node))
        });
        if names_file {
            return Err(refused("it names a file on the sensor's machine"));
        }
        if !self.admin
            && let Some(what) = too_large(node).or_else(|| slow_patterns(node))
        {
            return Err(refused(&what));
        }
        Ok(())
    }
}

/// What to do about a refusal.
pub(crate) const RIGHTS: &str =
    "the sensor's configuration has the rights of users; flowgauge sensor explain shows them";

/// Seconds since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// What a flow of these components asks for.
fn facts(device: &str, own: &[Node]) -> Facts {
    facts_of(own).on(device)
}

/// What components are, for a policy.
pub fn facts_of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Facts {
    let mut facts = Facts::default();
    for node in nodes {
        let name = node.info.name;
        let expression = node.settings.text("expression").unwrap_or_default();
        let sees = match (COUNTING.contains(&name), name) {
            (false, _) => Some("it can reveal packet contents"),
            (true, "filter") => filter_fault(expression),
            (true, _) => None,
        };
        facts.component(name, sees);
        for option in node.info.options {
            let value = node.settings.setting(option.name).map(|it| &it.value);
            let whole = |number: u64| Argument::Number(i64::try_from(number).unwrap_or(i64::MAX));
            let value = match value {
                None => Argument::LeftOut,
                Some(OptionValue::Integer(number)) => Argument::Number(*number),
                Some(OptionValue::Size(number) | OptionValue::Duration(number)) => whole(*number),
                Some(value) => Argument::Text(value.to_string()),
            };
            facts.argument(name, option.name, &value);
        }
    }
    facts
}

/// Options that have a component write elsewhere, or to further files.
const ELSEWHERE: [&str; 5] = ["to", "kafka", "rotate_size", "rotate_time", "rotate_files"];

/// Whether a component would write to the standard output, which is the sensor's.
fn is_to_standard_output(node: &Node) -> bool {
    matches!(node.info.name, "output" | "result_to_file")
        && node.settings.text("file").is_none_or(|file| file == "-")
        && ELSEWHERE
            .iter()
            .all(|option| node.settings.setting(option).is_none())
}

/// Whether a component writes to a file or socket that came with the flow, and to nothing else.
fn writes_to_user(node: &Node) -> bool {
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
            "with repeats such as {{1,100}} expanded, and unbounded ones as 32, a pattern has at most \
            {MOST_POSITIONS} characters, all patterns {all_most}"
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
        return Some("its filter uses offsets after optional headers");
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
    use flowgauge_credential::RightsTable as _;
    use flowgauge_credential::{Layer, Limits};

    use super::*;
    use crate::rights::function;
    use crate::text::stack;

    fn granted(rights: &Rights) -> Granted {
        let layer = Layer {
            origin: "users.alice".to_owned(),
            id: None,
            block: rights.block().unwrap(),
        };
        Granted {
            policy: Arc::new(Policy::new(vec![layer])),
            admin: rights.admin,
            inject: rights.inject,
            ..Granted::all()
        }
    }

    fn refused(granted: &Granted, text: &str) -> Option<String> {
        let stack = stack("flow", text).unwrap();
        let denied = granted.allow("eth0", &stack.nodes).err();
        denied.map(|refusal| refusal.error)
    }

    #[test]
    fn who_sees_no_packets_counts() {
        let rights = granted(&Rights::default());
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
        let rights = granted(&Rights::default());
        let many = "count ".repeat(33);
        for text in [
            "bytes - distribution { of = bytes, min = 0, max = 100000, interval = 1 }",
            "burst { min = 0, max = 64k, step = 1 }",
            "count - bucket { of = count, slots = 1000000 }",
            many.as_str(),
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
            assert_eq!(refused(&Granted::all(), text), None, "{text}");
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
        let rights = granted(&Rights {
            packets: Visible::Payload,
            ..Rights::default()
        });
        let many = format!("match {{ pattern = \"{}\" }}", "a{1,450}\\n".repeat(9));
        let long = format!("match {{ pattern = \"{}\" }}", "GET /a ".repeat(100));
        let endless = format!("match {{ pattern = \"{}\" }}", "(a.*b|c.*d)".repeat(28));
        for text in [
            "match { pattern = \"(?:a?){1,800}a{800}\" }",
            "match { pattern = \"((a{1,30}b){1,30}c){1,10}\" }",
            many.as_str(),
            long.as_str(),
            endless.as_str(),
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
            assert_eq!(refused(&Granted::all(), text), None, "{text}");
        }
        let fixed = long.replace(" }", ", fixed = yes }");
        for text in [
            fixed.as_str(),
            "match { pattern = \"GET /[a-z]{1,200}\\nHost: .{1,100}\\r\" }",
            "match { pattern = \"User-Agent: .*curl.*\\nCookie: [a-z]+=.*;\" }",
        ] {
            assert_eq!(refused(&rights, text), None, "{text}");
        }
    }

    #[test]
    fn nobody_reaches_files_or_the_network() {
        let rights = Granted::all();
        for text in [
            "output { file = /tmp/x.pcap }",
            "output { to = c:1 }",
            "packets output { kafka = c:1, topic = t }",
            "anonymize { policy = /etc/shadow } count",
            "thread count",
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
        }
        assert_eq!(refused(&rights, "search { pattern = secret } count"), None);
    }

    #[test]
    fn functions_and_a_filter_are_those_of_the_configuration() {
        let rights = granted(&Rights {
            functions: Some(vec!["PKT_COUNTER".to_owned(), "top(count<=10)".to_owned()]),
            filter: Some("net 10.0.0.0/8 and tcp[13] = 2".to_owned()),
            packets: Visible::Payload,
            ..Rights::default()
        });
        assert_eq!(refused(&rights, "count"), None);
        assert_eq!(
            refused(&rights, "bytes").unwrap(),
            "bytes is not allowed: only the components count, top (users.alice)"
        );
        assert!(refused(&rights, "filter { tcp } count").is_some());
        assert_eq!(refused(&rights, "top { by = ip.src, count = 10 }"), None);
        assert_eq!(
            refused(&rights, "top { by = ip.src, count = 11 }").unwrap(),
            "top with count = 11 is not allowed: count of top at most 10 (users.alice)"
        );
        let forced = rights.forced().unwrap();
        let flow = crate::text::flow("flow", &forced, "count").unwrap();
        assert_eq!(flow.hidden, 1);
        let own = &flow.stack.nodes[flow.hidden..];
        assert_eq!(rights.allow("eth0", own).err(), None);
        for wrong in ["cuont", "top(cuont<=10)", "top(by<=10)", "count("] {
            assert!(function(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_holder_learns_nothing_by_narrowing() {
        let layer = |id: Option<&str>, limits: Limits| Layer {
            origin: "block 1".to_owned(),
            id: id.map(str::to_owned),
            block: limits.block(),
        };
        let filter = |text: &str| Limits {
            filter: Some(text.to_owned()),
            ..Limits::default()
        };
        let table = Limits {
            packets: Some(Visible::Headers),
            anonymize: Some("/etc/all.toml".to_owned()),
            packets_per_second: Some(9),
            ..filter("tcp")
        };
        let forced = |table: Limits, block: Limits| {
            let layers = vec![layer(None, table), layer(Some("1f"), block)];
            let granted = Granted {
                policy: Arc::new(Policy::new(layers)),
                anonymization: Arc::new(BTreeMap::from([("strict".to_owned(), "/s".into())])),
                ..Granted::all()
            };
            granted.forced().map_err(|refusal| refusal.error)
        };
        // Addresses that the filter asks for are those that the holder sees anyway.
        let block = Limits {
            anonymize: Some("strict".to_owned()),
            packets: Some(Visible::Headers),
            ..filter("host 10.1.2.3")
        };
        assert_eq!(
            forced(table.clone(), block).unwrap(),
            "filter { expression = \"tcp\" } rate_limit { packets = 9 } headers anonymize { policy = \"/etc/all.toml\" } \
             filter { expression = \"host 10.1.2.3\" } anonymize { policy = \"/s\" } "
        );
        let counts = Limits {
            packets: Some(Visible::None),
            ..filter("tcp[32] = 0x47")
        };
        assert!(forced(counts.clone(), Limits::default()).is_ok());
        let refused = forced(counts, filter("tcp[32] = 0x47")).unwrap_err();
        assert!(
            refused.contains("an offset reaches the payload"),
            "{refused}"
        );
        let named = Limits {
            anonymize: Some("/etc/shadow".to_owned()),
            ..Limits::default()
        };
        let refused = forced(Limits::default(), named).unwrap_err();
        assert!(refused.contains("unknown policy"), "{refused}");
    }
}
