//! Values of options.

use core::fmt;
use core::num::{IntErrorKind, ParseIntError};

/// The kind of value that an option takes. It determines help, checks and units.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionKind {
    /// A whole number within bounds; `k`, `M`, `G` are thousands, millions and billions.
    Integer {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
    /// A number with a fraction.
    Number {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// `yes` or `no`.
    Flag,
    /// A duration: seconds, or with a unit `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
    Duration,
    /// Bytes, or with a unit `k`, `M`, `G`, `T` (powers of 1024).
    Size,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The number of a branch of this switch, from 0.
    Branch,
    /// The name of an input file.
    InputFile,
    /// The names of input files, one per line.
    InputFiles,
    /// A word that the component knows, or the name of an input file.
    WordOrFile,
    /// The name of an output file.
    OutputFile,
    /// The name of an input directory.
    InputFolder,
    /// The name of an output directory.
    OutputFolder,
    /// A packet filter in tcpdump's syntax.
    Filter,
    /// Another component that has a result, by its label or as `name(k)`.
    Reference,
    /// Several other components that have results, separated by blanks or commas.
    References,
    /// Another component whose result is a number.
    Measure,
}

impl OptionKind {
    /// Whether its values name components.
    pub const fn is_reference(self) -> bool {
        matches!(
            self,
            OptionKind::Reference | OptionKind::References | OptionKind::Measure
        )
    }

    /// Whether its values name files or directories, which components open only through
    /// `flowgauge_sys::files`.
    pub const fn is_path(self) -> bool {
        matches!(
            self,
            OptionKind::InputFile
                | OptionKind::InputFiles
                | OptionKind::WordOrFile
                | OptionKind::OutputFile
                | OptionKind::InputFolder
                | OptionKind::OutputFolder
        )
    }

    /// The names of files and directories in a value, as far as they are known without times and
    /// keys.
    pub fn paths(self, text: &str) -> impl Iterator<Item = &str> {
        let lines = if self == OptionKind::InputFiles {
            usize::MAX
        } else {
            1
        };
        let names = text.splitn(lines, '\n').filter(|name| !name.is_empty());
        names.filter(move |_| self.is_path())
    }

    /// The kind of value, as shown in listings.
    pub const fn name(self) -> &'static str {
        match self {
            OptionKind::Integer { .. } => "integer",
            OptionKind::Number { .. } => "number",
            OptionKind::Flag => "yes|no",
            OptionKind::Duration => "duration",
            OptionKind::Size => "size",
            OptionKind::Text | OptionKind::WordOrFile => "text",
            OptionKind::Choice(_) => "word",
            OptionKind::Branch => "branch",
            OptionKind::InputFile | OptionKind::OutputFile => "file",
            OptionKind::InputFiles => "files",
            OptionKind::InputFolder | OptionKind::OutputFolder => "folder",
            OptionKind::Filter => "filter",
            OptionKind::Reference | OptionKind::Measure => "component",
            OptionKind::References => "components",
        }
    }

    /// Parses a value of this kind.
    ///
    /// # Errors
    /// A message that says what is wrong with the value.
    pub fn read(self, text: &str) -> Result<OptionValue, String> {
        match self {
            OptionKind::Integer { min, max } => {
                let number = scaled(text, DECIMAL_UNITS)?;
                within(number, min, max).map(OptionValue::Integer)
            }
            OptionKind::Number { min, max } => {
                let number: f64 = text
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite())
                    .ok_or_else(|| format!("\"{text}\" is not a number"))?;
                within(number, min, max).map(OptionValue::Number)
            }
            OptionKind::Flag => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" | "1" => Ok(OptionValue::Flag(true)),
                "no" | "false" | "off" | "0" => Ok(OptionValue::Flag(false)),
                _ => Err(format!("\"{text}\" is neither yes nor no")),
            },
            OptionKind::Duration => duration(text).map(OptionValue::Duration),
            OptionKind::Size => {
                let size = scaled(text, BINARY_UNITS)?;
                u64::try_from(size)
                    .map(OptionValue::Size)
                    .map_err(|_| format!("{text} is less than 0"))
            }
            OptionKind::Choice(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| OptionValue::Text((*word).to_owned()))
                .ok_or_else(|| format!("\"{text}\" is not one of {}", words.join(", "))),
            OptionKind::Branch => {
                let number = scaled(text, &[])?;
                within(number, 0, 255).map(OptionValue::Integer)
            }
            kind if kind.is_path() && text.is_empty() => Err("is empty".to_owned()),
            OptionKind::Reference | OptionKind::Measure | OptionKind::References
                if text.trim().is_empty() =>
            {
                Err("is empty".to_owned())
            }
            OptionKind::Text
            | OptionKind::InputFile
            | OptionKind::InputFiles
            | OptionKind::WordOrFile
            | OptionKind::OutputFile
            | OptionKind::InputFolder
            | OptionKind::OutputFolder
            | OptionKind::Filter
            | OptionKind::Reference
            | OptionKind::Measure
            | OptionKind::References => Ok(OptionValue::Text(text.to_owned())),
        }
    }
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// Of [`OptionKind::Integer`] and [`OptionKind::Branch`].
    Integer(i64),
    /// Of [`OptionKind::Number`].
    Number(f64),
    /// Of [`OptionKind::Flag`].
    Flag(bool),
    /// Of [`OptionKind::Duration`], in nanoseconds.
    Duration(u64),
    /// Of [`OptionKind::Size`], in bytes.
    Size(u64),
    /// Of all other kinds.
    Text(String),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Integer(number) => write!(f, "{number}"),
            OptionValue::Number(number) => write!(f, "{number}"),
            OptionValue::Flag(true) => f.write_str("yes"),
            OptionValue::Flag(false) => f.write_str("no"),
            OptionValue::Duration(nanos) => write_scaled(f, *nanos, TIME_UNITS),
            OptionValue::Size(bytes) => write_scaled(f, *bytes, SIZE_UNITS),
            OptionValue::Text(text) => f.write_str(text),
        }
    }
}

const DECIMAL_UNITS: &[(&str, i64)] = &[("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)];
const BINARY_UNITS: &[(&str, i64)] = &[
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];
/// Largest first.
const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const SIZE_UNITS: &[(&str, u64)] = &[
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("k", 1 << 10),
    ("", 1),
];

/// In the largest unit of which it is a whole number.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |unit: &&(&str, u64)| value != 0 && value.is_multiple_of(unit.1);
    let (unit, factor) = units.iter().find(fits).copied().unwrap_or(("", 1));
    write!(f, "{}{unit}", value / factor)
}

fn within<N: PartialOrd + fmt::Display>(number: N, min: N, max: N) -> Result<N, String> {
    if number < min {
        return Err(format!("{number} is less than {min}"));
    }
    if number > max {
        return Err(format!("{number} is more than {max}"));
    }
    Ok(number)
}

/// A whole number with a unit.
fn scaled(text: &str, units: &[(&str, i64)]) -> Result<i64, String> {
    let (digits, unit) = split_unit(text);
    let factor = if unit.is_empty() {
        1
    } else {
        factor_of(unit, units)?
    };
    let number: i64 = digits.parse().map_err(|error: ParseIntError| {
        if matches!(error.kind(), IntErrorKind::PosOverflow) {
            return format!("{text} is too large");
        }
        format!("\"{text}\" is not a whole number")
    })?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("{text} is too large"))
}

/// Nanoseconds.
fn duration(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_unit(text);
    let unit = if unit.is_empty() { "s" } else { unit };
    let factor = factor_of(unit, TIME_UNITS)?;
    if let Ok(whole) = digits.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| format!("{text} is too long"));
    }
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("\"{text}\" is not a duration"))?;
    let nanos = number * factor as f64;
    if nanos >= u64::MAX as f64 {
        return Err(format!("{text} is too long"));
    }
    Ok(nanos as u64)
}

fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (digits.trim_end(), &text[digits.len()..])
}

fn factor_of<N: Copy>(unit: &str, units: &[(&str, N)]) -> Result<N, String> {
    match units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
    {
        Some((_, factor)) => Ok(*factor),
        None if units.is_empty() => Err(format!("takes no unit such as \"{unit}\"")),
        None => {
            let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "unknown unit \"{unit}\"; known: {}",
                names.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: OptionKind = OptionKind::Integer {
        min: -5,
        max: 1_000_000,
    };

    fn refused(kind: OptionKind, text: &str) -> String {
        kind.read(text).expect_err(text)
    }

    #[test]
    fn numbers_have_units_and_bounds() {
        assert_eq!(ANY.read("12k"), Ok(OptionValue::Integer(12_000)));
        assert_eq!(ANY.read("-5"), Ok(OptionValue::Integer(-5)));
        assert_eq!(refused(ANY, "2M"), "2000000 is more than 1000000");
        assert_eq!(refused(ANY, "-6"), "-6 is less than -5");
        assert_eq!(refused(ANY, "1.5"), "\"1.5\" is not a whole number");
        let large = "18446744073709551615";
        assert_eq!(refused(ANY, large), format!("{large} is too large"));
        assert_eq!(refused(ANY, "3x"), "unknown unit \"x\"; known: k, m, g");
        assert_eq!(
            refused(ANY, "9223372036854775807k"),
            "9223372036854775807k is too large"
        );
        let share = OptionKind::Number { min: 0.0, max: 1.0 };
        assert_eq!(share.read("0.25"), Ok(OptionValue::Number(0.25)));
        assert_eq!(refused(share, "NaN"), "\"NaN\" is not a number");
        assert_eq!(
            refused(OptionKind::Branch, "1k"),
            "takes no unit such as \"k\""
        );
    }

    #[test]
    fn durations_are_seconds_unless_a_unit_says_otherwise() {
        let read = |text| match OptionKind::Duration.read(text) {
            Ok(OptionValue::Duration(nanos)) => nanos,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(read("60"), 60_000_000_000);
        assert_eq!(read("1.5"), 1_500_000_000);
        assert_eq!(read("250ms"), 250_000_000);
        assert_eq!(read("2 h"), 7_200_000_000_000);
        assert_eq!(read("7ns"), 7);
        assert_eq!(
            refused(OptionKind::Duration, "-1"),
            "\"-1\" is not a duration"
        );
        assert_eq!(
            refused(OptionKind::Duration, "999999d"),
            "999999d is too long"
        );
        assert_eq!(OptionValue::Duration(read("90")).to_string(), "90s");
        assert_eq!(OptionValue::Duration(read("120")).to_string(), "2m");
    }

    #[test]
    fn sizes_are_bytes_with_powers_of_1024() {
        assert_eq!(OptionKind::Size.read("64k"), Ok(OptionValue::Size(65_536)));
        assert_eq!(
            OptionKind::Size.read("1GiB"),
            Ok(OptionValue::Size(1 << 30))
        );
        assert_eq!(refused(OptionKind::Size, "-1"), "-1 is less than 0");
        assert_eq!(OptionValue::Size(65_536).to_string(), "64k");
        assert_eq!(OptionValue::Size(0).to_string(), "0");
    }

    #[test]
    fn words_flags_and_names() {
        let choice = OptionKind::Choice(&["wait", "drop"]);
        assert_eq!(
            choice.read("DROP"),
            Ok(OptionValue::Text("drop".to_owned()))
        );
        assert_eq!(refused(choice, "x"), "\"x\" is not one of wait, drop");
        assert_eq!(OptionKind::Flag.read("on"), Ok(OptionValue::Flag(true)));
        assert_eq!(
            refused(OptionKind::Flag, "maybe"),
            "\"maybe\" is neither yes nor no"
        );
        assert_eq!(refused(OptionKind::OutputFile, ""), "is empty");
    }
}
