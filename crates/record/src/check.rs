//! Facts about the machine.

use crate::schema::{FieldVisitor, Record, fields};

fields! {
    /// Fields of [`CheckRow`].
    CheckFields, CHECK, CHECK_SCHEMA:
    check Text None "CHECK" 1 "what was looked at";
    status Text None "STATUS" 1 "ok, warn, missing or unknown";
    found Text None "FOUND" 1 "what was found";
    advice Text None "" 0 "what to do about it; null when nothing";
}

/// One fact about the machine.
#[derive(Clone, Copy, Debug)]
pub struct CheckRow<'a> {
    /// What was looked at.
    pub name: &'a str,
    /// How it turned out.
    pub status: &'a str,
    /// What was found.
    pub found: &'a str,
    /// What to do about it.
    pub advice: Option<&'a str>,
}

impl Record for CheckRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.text(&CHECK.check, self.name);
        visitor.symbol(&CHECK.status, self.status.as_bytes());
        visitor.text(&CHECK.found, self.found);
        match self.advice {
            Some(advice) => visitor.text(&CHECK.advice, advice),
            None => visitor.null(&CHECK.advice),
        }
    }
}
