//! Colours and size of the terminal on standard output.

use std::io::{self, IsTerminal};

/// Values of an option for colours; see [`has_colors`].
pub const WHEN: [&str; 3] = ["auto", "always", "never"];

/// Whether to write colours to standard output, given one of [`WHEN`]. With auto, on a terminal that supports them,
/// unless `NO_COLOR` is set (no-color.org).
pub fn has_colors(when: &str) -> bool {
    match when {
        "always" => true,
        "never" => false,
        _ => {
            let is_unset = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
            let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
            is_unset("NO_COLOR") && !is_dumb && io::stdout().is_terminal()
        }
    }
}

/// Number of columns, if standard output is a terminal that reports it.
pub fn width() -> Option<usize> {
    // Its height says nothing: it is 0 where only the width was set.
    let (columns, _) = size()?;
    (columns > 0).then_some(columns)
}

/// Numbers of columns and lines, if standard output is a terminal; 0 if unknown.
pub fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
}
