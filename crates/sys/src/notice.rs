//! What happens while a program runs, for the person who watches: links that break, disks that are full.

use std::sync::OnceLock;

/// Who is told.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Has lines told as they come, from whatever thread. The first call counts; without one nothing is told.
pub fn tell_notices(tell: fn(&str)) {
    let _ = TELL.set(tell);
}

/// Tells a line.
pub fn tell(line: core::fmt::Arguments<'_>) {
    if let Some(tell) = TELL.get() {
        tell(&line.to_string());
    }
}
