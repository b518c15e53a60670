//! Standard output as a terminal: whether there are colours on it, and how wide it is.

use std::io::{self, IsTerminal};

/// Words of an option that says when there are colours; [`has_colors`] reads them.
pub const WHEN: [&str; 3] = ["auto", "always", "never"];

/// Whether what goes to standard output is to have colours, where an option says one of [`WHEN`]: auto is on a terminal that can
/// show them, unless `NO_COLOR` is set (no-color.org).
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

/// Its columns, where it is a terminal and says so.
pub fn width() -> Option<usize> {
    // Its height says nothing: it is 0 where only the width was set.
    let (columns, _) = size()?;
    (columns > 0).then_some(columns)
}

/// Its columns and lines, where it is a terminal; 0 where it does not say.
pub fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
}
