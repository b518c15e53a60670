//! What happens on links while they run, for the person who watches.

use std::sync::OnceLock;

/// Who is told.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Has connections made, broken and refused told, a line each, from threads of the links. The first
/// call counts; without one nothing is told.
pub fn tell_notices(tell: fn(&str)) {
    let _ = TELL.set(tell);
}

/// Tells a line that belongs to a link, as what uses one has to say it.
pub fn tell(line: core::fmt::Arguments<'_>) {
    notice(line);
}

pub(crate) fn notice(line: core::fmt::Arguments<'_>) {
    if let Some(tell) = TELL.get() {
        tell(&line.to_string());
    }
}
