//! Messages for people, on standard error.
//!
//! `eprintln!` panics where standard error cannot be written (a full disk, a terminal that is
//! gone); a message is never worth the packets of a capture.

use std::fmt::Arguments;
use std::io::Write;

use flowgauge_record::text::harmless_lines;
pub(crate) use flowgauge_record::words::{count, instead_of, near};

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
    let text = text.to_string();
    let shown = harmless_lines(&text);
    let _ = std::io::stderr().lock().write_all(shown.as_bytes());
}
