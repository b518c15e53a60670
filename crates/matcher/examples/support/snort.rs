//! Rules in Snort's syntax, as far as `examples/pcap/nids` looks at them, read and compared in the plainest way.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Ports that rules name.
const NAMED: [(&str, &str); 6] = [
    ("$HTTP_PORTS", "80,591,593,3128,8000,8008,8080,8081,8888"),
    ("$SHELLCODE_PORTS", "!80"),
    ("$ORACLE_PORTS", "1521"),
    ("$SSH_PORTS", "22"),
    ("$FTP_PORTS", "21,2100,3535"),
    (
        "$FILE_DATA_PORTS",
        "80,110,143,591,593,3128,8000,8008,8080,8081,8888",
    ),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    with: Vec<RangeInclusive<u16>>,
    without: Vec<RangeInclusive<u16>>,
}

impl Ports {
    fn read(text: &str) -> Option<Ports> {
        let mut ports = Ports::default();
        if text == "any" {
            return Some(ports);
        }
        let (except, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let named = NAMED.iter().find(|(name, _)| *name == text);
        let list = named.map_or(text, |(_, list)| list);
        for part in list.trim_matches(['[', ']']).split(',') {
            let (negated, part) = match part.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, part),
            };
            let (low, high) = part.split_once(':').unwrap_or((part, part));
            let low = if low.is_empty() { "0" } else { low };
            let high = if high.is_empty() { "65535" } else { high };
            let range = low.parse().ok()?..=high.parse().ok()?;
            if negated == except {
                ports.with.push(range);
            } else {
                ports.without.push(range);
            }
        }
        Some(ports)
    }

    /// All of them, if they are no more than this.
    pub(crate) fn list(&self, most: usize) -> Option<BTreeSet<u16>> {
        let all = self.with.iter().cloned().flatten();
        let all: BTreeSet<u16> = all.filter(|port| self.have(*port)).collect();
        (!self.with.is_empty() && all.len() <= most).then_some(all)
    }

    pub(crate) fn have(&self, port: u16) -> bool {
        let within =
            |ranges: &[RangeInclusive<u16>]| ranges.iter().any(|range| range.contains(&port));
        (self.with.is_empty() || within(&self.with)) && !within(&self.without)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    offset: usize,
    depth: Option<usize>,
    nocase: bool,
    pub(crate) negated: bool,
    after: bool,
}

impl Content {
    fn read(text: &str) -> Option<Content> {
        let mut content = Content {
            negated: text.starts_with('!'),
            ..Content::default()
        };
        let text = text.trim_start_matches('!').strip_prefix('"')?;
        // Between bars is hexadecimal.
        for (at, part) in text.strip_suffix('"')?.split('|').enumerate() {
            if at % 2 == 1 {
                for byte in part.split_whitespace() {
                    content.bytes.push(u8::from_str_radix(byte, 16).ok()?);
                }
                continue;
            }
            let mut bytes = part.bytes();
            while let Some(byte) = bytes.next() {
                let byte = if byte == b'\\' { bytes.next()? } else { byte };
                content.bytes.push(byte);
            }
        }
        Some(content)
    }

    /// Where it ends, if it begins at `from` at the earliest.
    fn end(&self, payload: &[u8], from: usize) -> Option<usize> {
        let end = self.depth.map_or(payload.len(), |depth| {
            payload.len().min(self.offset + depth)
        });
        let from = from.max(self.offset);
        let same = |window: &[u8]| {
            if self.nocase {
                window.eq_ignore_ascii_case(&self.bytes)
            } else {
                window == self.bytes
            }
        };
        let searched = payload.get(from..end)?;
        let at = searched.windows(self.bytes.len()).position(same)?;
        Some(from + at + self.bytes.len())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) sid: u32,
    /// Of UDP; otherwise of TCP.
    pub(crate) udp: bool,
    /// Source and destination.
    pub(crate) ports: [Ports; 2],
    pub(crate) contents: Vec<Content>,
}

impl Rule {
    pub(crate) fn has_ports(&self, ports: [u16; 2]) -> bool {
        self.ports[0].have(ports[0]) && self.ports[1].have(ports[1])
    }

    pub(crate) fn is_in(&self, payload: &[u8]) -> bool {
        let mut last = 0;
        self.contents.iter().all(|content| {
            let end = content.end(payload, if content.after { last } else { 0 });
            last = end.unwrap_or(last);
            end.is_some() != content.negated
        })
    }
}

/// The rules of a line: one for each protocol and direction.
fn rules_of(line: &str) -> Option<Vec<Rule>> {
    let (head, body) = line.split_once('(')?;
    let [_, protocol, _, source, direction, _, destination] =
        head.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let (mut sid, mut contents) = (0, Vec::new());
    for option in options(body.trim_end().strip_suffix(')')?) {
        let (name, value) = option.split_once(':').unwrap_or((&option, ""));
        let last = contents.last_mut();
        match (name, last) {
            ("sid", _) => sid = value.parse().ok()?,
            ("content" | "uricontent", _) => contents.push(Content::read(value)?),
            ("nocase", Some(last)) => last.nocase = true,
            ("offset", Some(last)) => last.offset = value.parse().ok()?,
            ("depth", Some(last)) => last.depth = Some(value.parse().ok()?),
            ("distance", Some(last)) => last.after = true,
            _ => {}
        }
    }
    if contents.iter().all(|content| content.negated) {
        return Some(Vec::new());
    }
    let forth = [Ports::read(source)?, Ports::read(destination)?];
    let mut ways = vec![forth.clone()];
    if direction == "<>" && (source, destination) != ("any", "any") {
        let [source, destination] = forth;
        ways.push([destination, source]);
    }
    let protocols: &[bool] = match protocol {
        "tcp" => &[false],
        "udp" => &[true],
        "ip" => &[false, true],
        _ => &[],
    };
    let both = ways
        .into_iter()
        .flat_map(|ports| protocols.iter().map(move |udp| (*udp, ports.clone())));
    Some(
        both.map(|(udp, ports)| Rule {
            sid,
            udp,
            ports,
            contents: contents.clone(),
        })
        .collect(),
    )
}

/// Options as they stand between semicolons outside of quotation marks.
fn options(body: &str) -> Vec<String> {
    let (mut all, mut current) = (Vec::new(), String::new());
    let (mut quoted, mut escaped) = (false, false);
    for letter in body.chars() {
        if letter == ';' && !quoted && !escaped {
            all.push(current.trim().to_owned());
            current.clear();
            continue;
        }
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        current.push(letter);
    }
    all
}

/// The rules of a text.
///
/// # Errors
/// The line that is none.
pub(crate) fn read(text: &str) -> Result<Vec<Rule>, String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rules = lines.map(|line| rules_of(line).ok_or_else(|| format!("no rule: {line}")));
    let rules: Vec<Vec<Rule>> = rules.collect::<Result<_, _>>()?;
    Ok(rules.into_iter().flatten().collect())
}
