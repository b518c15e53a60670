//! Calls of functions, with arguments.

use std::io::Read as _;
use std::path::Path;

use chrono::{Local, NaiveDateTime};
use flowgauge_sys::files::{self, How};

use crate::flow::{Target, label};
use crate::functions::{Becomes, Function};

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A text.
    Text(String),
    /// A number: an int, a 64-bit number, a flow or a function.
    Number(i128),
    /// A missing text (a null pointer).
    Null,
}

/// An error, with MAPI's error number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// MAPI's number.
    pub number: i32,
    /// The message.
    pub message: String,
}

impl Error {
    /// An invalid argument, without its position.
    pub const ARGUMENTS: i32 = 7000;
    /// The flow has no such function.
    pub const NO_FUNCTION: i32 = 6147;
    /// A file cannot be opened.
    pub const FILE: i32 = 6155;
    /// No such device.
    pub const NO_DEVICE: i32 = 3200;
    /// The filter of BPF_FILTER is invalid.
    pub const BPF: i32 = 1025;
    /// The user is not authorised.
    pub const RIGHTS: i32 = 8003;
    /// A function was applied after connecting; or an unsupported file format.
    pub const NOT_NOW: i32 = 7006;

    /// An error with its number.
    pub fn new(number: i32, message: impl Into<String>) -> Error {
        Error {
            number,
            message: message.into(),
        }
    }

    /// The error number of an argument by its index: 7001 to 7005 for the first five, 7011 for the sixth.
    pub fn number_of(place: usize) -> i32 {
        match place {
            0..5 => Error::ARGUMENTS + 1 + place as i32,
            5 => 7011,
            _ => Error::ARGUMENTS,
        }
    }
}

/// What numbers may be, where the component does not say it: function, place from 0, from, to.
const BOUNDS: &[(&str, usize, i128, i128)] = &[
    ("EXPIRED_FLOWS", 0, 1, i32::MAX as i128),
    ("HASHSAMP", 1, 0, i32::MAX as i128),
    ("SAMPLE", 0, 1, i32::MAX as i128),
    ("THRESHOLD", 5, 0, i32::MAX as i128),
    ("THRESHOLD", 6, 1, i32::MAX as i128),
    ("THRESHOLD", 7, 0, 100_000),
    ("TO_BUFFER", 0, 0, 1),
    ("TOP", 0, 1, 1000),
];

/// Texts that may be empty; others mean nothing then. Of STR_SEARCH the component says what is wrong.
const MAY_BE_EMPTY: &[(&str, usize)] = &[
    ("BPF_FILTER", 0),
    ("FLOW_REPORT", 2),
    ("FLOW_REPORT", 3),
    ("RES2FILE", 2),
    ("STR_SEARCH", 0),
];

/// A call of a function, as applied to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: &'static Function,
    /// Its arguments; omitted trailing arguments have their defaults.
    pub arguments: Vec<Argument>,
    /// Whether arguments that are flows were omitted.
    pub hides_flows: bool,
}

/// What a call needs to know of its flow to become a component.
pub(crate) struct Place<'a> {
    /// Its label.
    pub(crate) label: String,
    /// The label of a function of a flow.
    pub(crate) find: &'a mut dyn FnMut(i128, i128) -> Result<String, Error>,
    /// What the program opens, by number.
    pub(crate) targets: &'a mut Vec<Target>,
    /// Whether the value after each packet is asked for.
    pub(crate) has_values: bool,
}

impl Call {
    /// Something is wrong with the argument at a place from 0, which who wrote it counts from 1.
    fn wrong(&self, place: usize, what: &str) -> Error {
        let before = self.function.becomes.iter().take(place);
        let hidden = before.filter(|it| self.hides_flows && matches!(it, Becomes::Flow));
        let (number, name) = (place + 1 - hidden.count(), self.function.name);
        let message = format!("argument {number} of {name}: {what}");
        Error::new(Error::number_of(place), message)
    }

    /// The component.
    pub(crate) fn component(&self, place: &mut Place<'_>) -> Result<String, Error> {
        let function = self.function;
        if self.arguments.len() < function.required {
            return Err(self.wrong(self.arguments.len(), "is missing"));
        }
        if self.arguments.len() > function.becomes.len() {
            let last = function.becomes.len();
            return Err(self.wrong(last, "is one too many"));
        }
        let mut options = vec![format!("as = {}", place.label)];
        let mut flow = 0;
        let letters = function.arguments.chars();
        let given = self.arguments.iter().zip(function.becomes).zip(letters);
        for (at, ((argument, becomes), letter)) in given.enumerate() {
            let wrong = |what: &str| self.wrong(at, what);
            let (text, value) = match (argument, letter) {
                (Argument::Null, 'w') => {
                    return Err(Error::new(Error::FILE, "there is no name of a file"));
                }
                (Argument::Text(text), 's' | 'S' | 'w') => (text.as_str(), 0),
                (Argument::Number(number), 'i' | 'c' | 'l' | 'r' | 'f') => ("", *number),
                (Argument::Null | Argument::Number(_), _) => return Err(wrong("is not text")),
                (Argument::Text(_), _) => return Err(wrong("is not a number")),
            };
            self.check(at, argument)?;
            let shown = match argument {
                Argument::Text(text) if function.name == "ANONYMIZE" => quoted(&rules(text)),
                Argument::Text(text) => quoted(text),
                _ => value.to_string(),
            };
            options.extend(match *becomes {
                Becomes::Option(name) | Becomes::Or(name, _) => Some(format!("{name} = {shown}")),
                Becomes::Time(name) => {
                    let time =
                        time_of(text).ok_or_else(|| wrong("is not a duration such as 500ms"))?;
                    Some(format!("{name} = {time}"))
                }
                Becomes::Ticks(name) => {
                    let ticks = ticks_of(text);
                    let ticks = ticks
                        .ok_or_else(|| wrong("is neither a number nor a duration such as 500ms"))?;
                    Some(format!("{name} = {ticks}"))
                }
                Becomes::When(name) => Some(format!("{name} = {}", quoted(&utc(text)))),
                Becomes::Nanos(name, nanos) => {
                    let nanos = u64::try_from(value)
                        .ok()
                        .and_then(|it| it.checked_mul(nanos));
                    let nanos = nanos.ok_or_else(|| wrong("is too large, or less than 0"))?;
                    Some(format!("{name} = {nanos}ns"))
                }
                Becomes::Flag(_) if !(0..=1).contains(&value) => {
                    return Err(wrong("is neither 0 nor 1"));
                }
                Becomes::Flag(name) => Some(format!("{name} = {}", ["no", "yes"][value as usize])),
                Becomes::Function(name) => Some(format!("{name} = {}", (place.find)(flow, value)?)),
                Becomes::Flow => {
                    flow = value;
                    None
                }
                Becomes::Nothing | Becomes::Special(_) | Becomes::Named(_) => None,
            });
        }
        for becomes in function.becomes.iter().skip(self.arguments.len()) {
            if let Becomes::Or(name, default) = becomes {
                options.push(format!("{name} = {default}"));
            }
        }
        self.special(place, &mut options)?;
        let name = function.component;
        let options = options.join(", ");
        Ok(match (function.name, self.text(1)) {
            ("FLOW_REPORT", None | Some("SHMEM")) => {
                format!("copy ( flows {{ as = {} }} discard )", place.label)
            }
            ("FLOW_REPORT", _) => format!("copy ( flows {name} {{ {options} }} discard )"),
            _ => format!("{name} {{ {options} }}"),
        })
    }

    /// Whether an argument can mean something.
    fn check(&self, at: usize, argument: &Argument) -> Result<(), Error> {
        let name = self.function.name;
        let wrong = |what: &str| Err(self.wrong(at, what));
        let of_place = |(of, place, ..): &&(&str, usize, i128, i128)| (*of, *place) == (name, at);
        match argument {
            Argument::Text(text) if text.trim_matches([' ', '\t', '\n', ';', ',']).is_empty() => {
                match MAY_BE_EMPTY.contains(&(name, at))
                    || self.function.arguments.as_bytes().get(at) == Some(&b'w')
                {
                    true => Ok(()),
                    false => wrong("is empty"),
                }
            }
            Argument::Number(number) => match BOUNDS.iter().find(of_place) {
                Some((.., least, most)) if !(*least..=*most).contains(number) => {
                    wrong(&format!("{number} is not between {least} and {most}"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The error when a sensor refuses this call as function `number` of a flow, from the sensor's message about the
    /// component. If the message names an option, the error number is that of the corresponding argument.
    pub fn refused(&self, number: usize, said: &str, is_about_rights: bool) -> Error {
        let name = self.function.name;
        let (_, found) = said.split_once("error: ").unwrap_or_default();
        let (option, what) = found.split_once(": ").unwrap_or_default();
        let fault = match (name, option) {
            _ if is_about_rights => Error::RIGHTS,
            ("BPF_FILTER", "expression") => Error::BPF,
            ("STR_SEARCH", "pattern") if what.starts_with("a |") => 3503,
            ("STR_SEARCH", "depth") if what.contains("of the pattern") => 3504,
            ("STR_SEARCH", "pattern") => 3505,
            (_, option) => match self.function.place_of(option) {
                Some(place) => Error::number_of(place),
                None => Error::ARGUMENTS,
            },
        };
        let message = match (is_about_rights, found.lines().next()) {
            (false, Some(line)) => format!("{name}: {line}"),
            _ => named(said, number, name),
        };
        Error::new(fault, message)
    }

    /// A number among the arguments, if it was given.
    pub fn number(&self, at: usize) -> Option<i128> {
        match self.arguments.get(at) {
            Some(Argument::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A text among the arguments, if it was given.
    pub fn text(&self, at: usize) -> Option<&str> {
        match self.arguments.get(at) {
            Some(Argument::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// What a function's arguments become together.
    fn special(&self, place: &mut Place<'_>, options: &mut Vec<String>) -> Result<(), Error> {
        let wrong = |at: usize, what: &str| self.wrong(at, what);
        match self.function.name {
            "PKT_COUNTER" | "BYTE_COUNTER" if place.has_values => {
                options.push("values = yes".to_owned());
            }
            "GAP" => options.push("unit = ticks".to_owned()),
            "HASHSAMP" if self.number(1) == Some(0) => options.push("samples = 0".to_owned()),
            "TOP" => options.push(format!("by = {}", quoted(self.top_field()?))),
            "STATS" => options.extend(match self.text(2) {
                None | Some("0") => None,
                Some("1") => Some("skip = 1".to_owned()),
                Some(time) => {
                    let time =
                        time_of(time).ok_or_else(|| wrong(2, "is not a duration such as 500ms"))?;
                    Some(format!("every = {time}"))
                }
            }),
            "THRESHOLD" => {
                let kind = self.number(0).unwrap_or(0);
                if !(0..=2).contains(&(kind & 63)) || !(0..192).contains(&kind) {
                    let what = "is not a type: 0 char, 1 int, 2 unsigned long long, with 64 or 128";
                    return Err(wrong(0, what));
                }
                let divider = self.number(6).unwrap_or(1);
                let count = match self.number(7).unwrap_or(1) {
                    0 => 100_000,
                    count => count,
                };
                options.push("interval = 10ms".to_owned());
                options.push(format!("divider = {divider}, count = {count}"));
            }
            "TO_FILE" => {
                if self.number(0) != Some(0) {
                    let what = "only MFF_PCAP is written";
                    return Err(Error::new(Error::NOT_NOW, what));
                }
                options.push(file(place, self.text(1), None));
                if let Some(count) = self.number(2).filter(|count| *count != 0) {
                    options.push(format!("packets = {count}"));
                }
            }
            "RES2FILE" => self.results_to_file(place, options)?,
            "ANONYMIZEIP" => {
                let rules = "IP,SRC_IP,PREFIX_PRESERVING; IP,DST_IP,PREFIX_PRESERVING";
                options.push(format!("rules = \"{rules}\""));
                if let Some(key) = self.text(0) {
                    let key = key_of(key);
                    let key = key.ok_or_else(|| {
                        wrong(0, "is not a key of 32 bytes or 64 hexadecimal digits")
                    })?;
                    options.push(format!("secret = {key}"));
                }
            }
            "FLOW_REPORT" => self.flow_report(place, options)?,
            "RULER" => {
                let rules = rules_of(self.text(0).unwrap_or_default())?;
                options.push(format!("filter = {}", quoted(&rules)));
            }
            "INJECT" => {
                let interface = self.text(0).unwrap_or_default().to_owned();
                options.push(handed(place, "to", Target::Interface(interface)));
            }
            _ => {}
        }
        Ok(())
    }

    /// `RES2FILE`: its types and functions are lists that belong together.
    fn results_to_file(
        &self,
        place: &mut Place<'_>,
        options: &mut Vec<String>,
    ) -> Result<(), Error> {
        let wrong = |at: usize, what: &str| self.wrong(at, what);
        let mut labels = Vec::new();
        for entry in self.text(1).unwrap_or_default().split(',') {
            let (function, flow) = entry.split_once('@').unwrap_or((entry, "0"));
            let numbers = (function.trim().parse(), flow.trim().parse());
            let (Ok(function), Ok(flow)) = numbers else {
                return Err(wrong(1, "is not a list such as 1@1,2@1"));
            };
            let label = (place.find)(flow, function);
            labels.push(label.map_err(|error| wrong(1, &error.message))?);
        }
        let types = self.text(0).unwrap_or_default();
        let is_type = |text: &str| matches!(text.trim(), "0" | "1" | "2" | "3");
        if !types.split(',').all(is_type) {
            // Of lists in each other's place MAPI tells the second.
            let at = usize::from(types.contains('@'));
            return Err(wrong(at, "the types are not a list of 0 to 3 as 1,1"));
        }
        if types.split(',').count() != labels.len() {
            return Err(wrong(0, "are not as many types as functions"));
        }
        options.push(format!("of = \"{}\"", labels.join(", ")));
        options.push(format!("types = \"{types}\""));
        options.extend(match self.text(4).unwrap_or_default() {
            "-1" => None,
            "0" => Some("each = yes".to_owned()),
            time => {
                let time = time_of(time).ok_or_else(|| wrong(4, "is not a duration such as 5s"))?;
                Some(format!("interval = {time}"))
            }
        });
        // The program writes the first line: it may be anything.
        let header = self.text(2).map(|header| format!("{header}\n"));
        options.push(file(place, self.text(3), header));
        Ok(())
    }

    /// `FLOW_REPORT`: without a place to export to it counts.
    fn flow_report(&self, place: &mut Place<'_>, options: &mut Vec<String>) -> Result<(), Error> {
        let format = self.text(0).unwrap_or("IPFIX");
        if !matches!(format, "NETFLOW_V5" | "NETFLOW_V9" | "IPFIX") {
            let what = "is not a format: NETFLOW_V5, NETFLOW_V9 or IPFIX";
            return Err(self.wrong(0, what));
        }
        options.push(format!("format = {format}"));
        let to = self.text(1).unwrap_or("SHMEM");
        options.push(match to.strip_prefix("file:") {
            Some(path) => file(place, Some(path), None),
            None if to == "SHMEM" => return Ok(()),
            None if to.contains(':') => handed(place, "to", Target::Collector(to.to_owned())),
            None => {
                let what = "is neither SHMEM nor host:port nor file:name";
                return Err(self.wrong(1, what));
            }
        });
        for (at, option) in [(2, "keys"), (3, "values")] {
            let names = self.text(at).filter(|names| !names.is_empty());
            options.extend(names.map(|names| format!("{option} = {}", quoted(names))));
        }
        Ok(())
    }

    /// The fields of `TOP`, by their number through all protocols.
    fn top_field(&self) -> Result<&'static str, Error> {
        const FIELDS: [&[&str]; 3] = [
            &[
                "ip.dsfield",
                "ip.len",
                "ip.id",
                "ip.frag_offset",
                "ip.ttl",
                "ip.proto",
                "ip.checksum",
                "ip.src ipv6.src",
                "ip.dst ipv6.dst",
            ],
            &[
                "tcp.srcport",
                "tcp.dstport",
                "tcp.seq",
                "tcp.ack",
                "tcp.flags",
                "tcp.window_size_value",
                "tcp.checksum",
                "tcp.urgent_pointer",
            ],
            &["udp.srcport", "udp.dstport", "udp.length", "udp.checksum"],
        ];
        let number = |at: usize| usize::try_from(self.number(at).unwrap_or(0)).unwrap_or(0);
        let wrong = |at: usize, what: &str| self.wrong(at, what);
        let fields = number(1).checked_sub(1).and_then(|at| FIELDS.get(at));
        let fields = fields.ok_or_else(|| wrong(1, "is not a protocol: 1 IP, 2 TCP, 3 UDP"))?;
        let before = FIELDS.iter().take(number(1) - 1);
        let before: usize = before.map(|fields| fields.len()).sum();
        let field = number(2).checked_sub(before + 1);
        let field = field.and_then(|at| fields.get(at)).copied();
        field.ok_or_else(|| wrong(2, "is not a field of that protocol"))
    }
}

/// A file that the program opens.
fn file(place: &mut Place<'_>, path: Option<&str>, begins: Option<String>) -> String {
    let path = path.unwrap_or_default().to_owned();
    let begins = begins.unwrap_or_default();
    handed(place, "file", Target::File { path, begins })
}

/// Something that the program opens, as an option of the component.
fn handed(place: &mut Place<'_>, option: &str, target: Target) -> String {
    place.targets.push(target);
    format!("{option} = fd:{}", place.targets.len() - 1)
}

/// Replaces the component of function `number` in a message by the name of the function.
pub fn named(said: &str, number: usize, name: &str) -> String {
    match said.strip_prefix(&label(number)) {
        Some(rest) if !rest.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("{name}{rest}")
        }
        _ => said.to_owned(),
    }
}

/// Rules of `RULER`: the text, or that of a file, which the program may read.
fn rules_of(text: &str) -> Result<String, Error> {
    const MOST: u64 = 64 << 10;

    if text.contains("=>") {
        return Ok(text.to_owned());
    }
    let read = files::named().open(Path::new(text), How::read());
    let read = read.and_then(|file| {
        let mut rules = String::new();
        file.take(MOST).read_to_string(&mut rules).map(|_| rules)
    });
    read.map_err(|error| Error::new(Error::FILE, format!("{text}: {error}")))
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace(['\n', '\r'], " "))
}

/// Rules of `ANONYMIZE` in the words of the component. What is no one-way function is replaced by one.
fn rules(text: &str) -> String {
    let words = text.split(',').map(|word| match word.trim() {
        "SHA" => "SHA1",
        "SHA_2" | "CRC32" | "TRIPLEDES" | "AES" | "DES" => "SHA256",
        "UDP_DATAGRAM_LENGTH" => "LENGTH",
        "FLOW" => "FLOW_LABEL",
        "MAX_FORWRDS" => "MAX_FORWARDS",
        _ => word,
    });
    words.collect::<Vec<_>>().join(",")
}

/// A number, and its unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.parse().ok()?;
    Some((number, &text[digits.len()..]))
}

/// A time of MAPI's as one of stacks: without a unit, seconds. 0 is none.
fn time_of(text: &str) -> Option<String> {
    match split(text)? {
        (0, _) => None,
        (number, "") => Some(format!("{number}s")),
        (number, unit @ ("us" | "ms" | "s" | "m")) => Some(format!("{number}{unit}")),
        _ => None,
    }
}

/// A number, or a time in units of 2^-32 seconds.
fn ticks_of(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let nanos: u64 = match unit {
        "" => return Some(number),
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(ticks)
}

/// Nanoseconds as seconds in 32.32 fixed point.
pub fn ticks(nanos: u64) -> u64 {
    ((u128::from(nanos) << 32) / 1_000_000_000) as u64
}

/// A date in the program's time zone as one of UTC; other texts as they are.
fn utc(text: &str) -> String {
    const FORM: &str = "%Y-%m-%d %H:%M:%S";

    let date = NaiveDateTime::parse_from_str(text, FORM).ok();
    let date = date.and_then(|date| date.and_local_timezone(Local).earliest());
    date.map_or_else(
        || text.to_owned(),
        |date| date.naive_utc().format(FORM).to_string(),
    )
}

/// A key in hexadecimal digits.
fn key_of(text: &str) -> Option<String> {
    let is_digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.len() {
        64 if is_digits => Some(text.to_owned()),
        32 => Some(text.bytes().map(|byte| format!("{byte:02x}")).collect()),
        _ => None,
    }
}
