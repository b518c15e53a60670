//! A function with its arguments.

use crate::functions::{Becomes, Function};

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A text.
    Text(String),
    /// A number: of an int, of 64 bits, of a flow or of a function.
    Number(i128),
}

/// Why a function cannot be applied, with MAPI's number of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// MAPI's number.
    pub number: i32,
    /// What is wrong.
    pub message: String,
}

/// An argument is wrong, and nothing says which.
const ARGUMENTS: i32 = 7000;
/// No such function of the flow.
const NO_FUNCTION: i32 = 6147;

impl Error {
    pub(crate) fn new(number: i32, message: impl Into<String>) -> Error {
        Error {
            number,
            message: message.into(),
        }
    }

    /// Of an argument by its place from 0: 7001 to 7005 are the first five, 7011 the sixth.
    fn of(place: usize, function: &Function, what: &str) -> Error {
        let number = match place {
            0..5 => ARGUMENTS + 1 + place as i32,
            5 => 7011,
            _ => ARGUMENTS,
        };
        Error::new(
            number,
            format!("argument {} of {}: {what}", place + 1, function.name),
        )
    }
}

/// A function applied to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub function: &'static Function,
    /// Its arguments; those left out at the end have their defaults.
    pub arguments: Vec<Argument>,
}

/// The label of a flow's function by its number.
pub fn label(number: usize) -> String {
    format!("f{number}")
}

impl Call {
    /// The component that function `number` of a flow is, whose functions before are those below.
    ///
    /// # Errors
    /// An argument that is missing, of another kind, or names no function before.
    pub fn component(&self, number: usize) -> Result<String, Error> {
        let function = self.function;
        if self.arguments.len() < function.required {
            let what = "is missing";
            return Err(Error::of(self.arguments.len(), function, what));
        }
        if self.arguments.len() > function.becomes.len() {
            return Err(Error::of(
                function.becomes.len(),
                function,
                "is one too many",
            ));
        }
        let mut options = vec![format!("as = {}", label(number))];
        let letters = function.arguments.chars();
        let given = self.arguments.iter().zip(function.becomes).zip(letters);
        for (place, ((argument, becomes), letter)) in given.enumerate() {
            let wrong = |what: &str| Error::of(place, function, what);
            let is_text = matches!(letter, 's' | 'S' | 'w');
            let text = match argument {
                Argument::Text(text) if is_text => quoted(text),
                Argument::Number(number) if !is_text => number.to_string(),
                Argument::Text(_) => return Err(wrong("is no number")),
                Argument::Number(_) => return Err(wrong("is no text")),
            };
            let value = match argument {
                Argument::Number(value) => *value,
                Argument::Text(_) => 0,
            };
            options.extend(match *becomes {
                Becomes::Option(name) => Some(format!("{name} = {text}")),
                Becomes::Time(name) => {
                    let Argument::Text(time) = argument else {
                        return Err(wrong("is no text"));
                    };
                    let time = time_of(time).ok_or_else(|| wrong("is no time, as 500ms"))?;
                    Some(format!("{name} = {time}"))
                }
                Becomes::Nanos(name, nanos) => {
                    let nanos = u64::try_from(value)
                        .ok()
                        .and_then(|it| it.checked_mul(nanos));
                    let nanos = nanos.ok_or_else(|| wrong("is too large, or less than 0"))?;
                    Some(format!("{name} = {nanos}ns"))
                }
                Becomes::Flag(name) => Some(format!("{name} = {}", yes(value))),
                Becomes::Function(name) => {
                    let before = usize::try_from(value).ok();
                    let before = before.filter(|before| (1..number).contains(before));
                    let before = before.ok_or_else(|| {
                        Error::new(
                            NO_FUNCTION,
                            format!("{value} is no function before {}", function.name),
                        )
                    })?;
                    Some(format!("{name} = {}", label(before)))
                }
                Becomes::Flow | Becomes::Nothing | Becomes::Special => None,
            });
        }
        if function.name == "TOP" {
            options.push(format!("by = {}", self.top_field()?));
        }
        Ok(format!(
            "{} {{ {} }}",
            function.component,
            options.join(", ")
        ))
    }

    /// The field of `TOP`, by its number within its protocol.
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
                "ip.src",
                "ip.dst",
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
        let number = |place: usize| match self.arguments.get(place) {
            Some(Argument::Number(number)) => usize::try_from(*number).unwrap_or(0),
            _ => 0,
        };
        let wrong = |place: usize, what: &str| Error::of(place, self.function, what);
        let fields = number(1).checked_sub(1).and_then(|at| FIELDS.get(at));
        let fields = fields.ok_or_else(|| wrong(1, "is no protocol: 1 IP, 2 TCP, 3 UDP"))?;
        let before: usize = FIELDS
            .iter()
            .take(number(1) - 1)
            .map(|fields| fields.len())
            .sum();
        let field = number(2)
            .checked_sub(before + 1)
            .and_then(|at| fields.get(at));
        field
            .copied()
            .ok_or_else(|| wrong(2, "is no field of that protocol"))
    }
}

fn yes(value: i128) -> &'static str {
    match value {
        0 => "no",
        _ => "yes",
    }
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace(['\n', '\r'], " "))
}

/// A time of MAPI's as one of stacks: without a unit, seconds.
fn time_of(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
    match &text[digits.len()..] {
        "" => is_number.then(|| format!("{digits}s")),
        "us" | "ms" | "s" | "m" => is_number.then(|| text.to_owned()),
        _ => None,
    }
}
