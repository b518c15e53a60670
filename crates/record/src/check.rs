//! Facts about the machine.

use crate::schema::record;
use crate::value::Symbol;

record! {
    /// Fields of [`CheckRow`].
    CHECK, CHECK_SCHEMA for CheckRow<'_> as it:
    check Text "CHECK" 1 = it.name, "what was checked";
    status Text "STATUS" 1 = Symbol(it.status), "ok, warn, missing or unknown";
    found Text "FOUND" 1 = it.found, "what was found";
    advice Text = it.advice, "recommended action, or null";
}

/// A fact about the machine.
#[derive(Clone, Copy, Debug)]
pub struct CheckRow<'a> {
    /// The thing that was checked.
    pub name: &'a str,
    /// The result.
    pub status: &'a str,
    /// The details.
    pub found: &'a str,
    /// What to do about it.
    pub advice: Option<&'a str>,
}
