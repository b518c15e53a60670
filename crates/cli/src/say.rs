//! Messages for people, on standard error.
//!
//! `eprintln!` panics where standard error cannot be written (a full disk, a terminal that is
//! gone); a message is never worth the packets of a capture.

use std::fmt::{self, Arguments};
use std::io::Write;

use flowgauge_record::text::harmless;

/// Prints a line on standard error; one that cannot be written is lost.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::say::line(format_args!($($argument)*))
    };
}
pub(crate) use say;

/// Writes `text` and a line feed in one piece.
pub(crate) fn line(text: Arguments<'_>) {
    part(format_args!("{text}\n"));
}

/// Writes `text` without a line feed behind it. It may quote names and comments of captures.
pub(crate) fn part(text: Arguments<'_>) {
    let shown: String = text
        .to_string()
        .chars()
        .map(|character| match character {
            '\n' | '\t' => character,
            other => harmless(other),
        })
        .collect();
    let _ = std::io::stderr().lock().write_all(shown.as_bytes());
}

/// A number of things: `count(1, "packet")` is "1 packet", `count(2, "packet")` "2 packets".
pub(crate) fn count(number: u64, thing: &str) -> Count<'_> {
    Count { number, thing }
}

/// See [`count`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count<'a> {
    number: u64,
    thing: &'a str,
}

impl Count<'_> {
    /// With its verb: "1 packet was", "2 packets were".
    pub(crate) fn were(self) -> String {
        let verb = if self.number == 1 { "was" } else { "were" };
        format!("{self} {verb}")
    }
}

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { number, thing } = *self;
        let ending = match (number, thing.ends_with("ch")) {
            (1, _) => "",
            (_, true) => "es",
            _ => "s",
        };
        write!(f, "{number} {thing}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(count(0, "packet").to_string(), "0 packets");
        assert_eq!(count(1, "match").to_string(), "1 match");
        assert_eq!(count(2, "match").to_string(), "2 matches");
        assert_eq!(count(1, "flow").were(), "1 flow was");
        assert_eq!(count(3, "flow").were(), "3 flows were");
    }
}
