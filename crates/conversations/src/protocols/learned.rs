//! Endpoints of which a conversation told what is spoken there.

use std::collections::HashMap;

use flowgauge_wire::{Address, Nanos};

/// How long it is believed without being told again.
const BELIEVED: Nanos = Nanos(3_600_000_000_000);
/// Endpoints at most; a full table is emptied.
const MOST: usize = 1 << 16;

/// What was told, by address and port.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    endpoints: HashMap<(Address, u16), (&'static str, Nanos)>,
    /// What a conversation told of what goes there next.
    notes: HashMap<(Address, u16), Note>,
}

/// What goes to an endpoint next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The command that asked for it, where one has.
    pub(crate) command: Option<String>,
    /// Its argument: a name.
    pub(crate) name: Option<String>,
    /// The endpoint is the client's: the server connects to it.
    pub(crate) is_active: bool,
}

/// Notes at most; they are texts.
const MOST_NOTES: usize = 1 << 12;

impl Learned {
    pub(crate) fn add(&mut self, endpoint: (Address, u16), protocol: &'static str, now: Nanos) {
        if self.endpoints.len() >= MOST {
            self.endpoints.clear();
        }
        self.endpoints.insert(endpoint, (protocol, now));
    }

    /// Tells what goes to an endpoint next.
    pub(crate) fn note(&mut self, endpoint: (Address, u16), note: Note) {
        if self.notes.len() >= MOST_NOTES {
            self.notes.clear();
        }
        self.notes.insert(endpoint, note);
    }

    /// What was told of it; once.
    pub(crate) fn take_note(&mut self, endpoint: (Address, u16)) -> Option<Note> {
        self.notes.remove(&endpoint)
    }

    /// Whether no endpoint is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// The protocol's name.
    pub(crate) fn get(&self, endpoint: (Address, u16), now: Nanos) -> Option<&'static str> {
        let (protocol, since) = *self.endpoints.get(&endpoint)?;
        (now.0.saturating_sub(since.0) < BELIEVED.0).then_some(protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_believed_for_an_hour() {
        let mut learned = Learned::default();
        let endpoint = (Address::v4([192, 0, 2, 1]), 2049);
        learned.add(endpoint, "rpc", Nanos(0));
        assert_eq!(learned.get(endpoint, Nanos(1)), Some("rpc"));
        assert_eq!(learned.get((endpoint.0, 2048), Nanos(1)), None);
        assert_eq!(learned.get(endpoint, BELIEVED), None);
    }

    #[test]
    fn notes_are_told_once_and_bounded() {
        let mut learned = Learned::default();
        let endpoint = |port| (Address::v4([192, 0, 2, 1]), port);
        for port in 0..=u16::MAX {
            learned.note(endpoint(port), Note::default());
            assert!(learned.notes.len() <= MOST_NOTES);
        }
        assert_eq!(learned.take_note(endpoint(u16::MAX)), Some(Note::default()));
        assert_eq!(learned.take_note(endpoint(u16::MAX)), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut learned = Learned::default();
        for port in 0..=u16::MAX {
            for last in 0..3 {
                let address = Address::v4([192, 0, 2, last]);
                learned.add((address, port), "rpc", Nanos(0));
                assert!(learned.endpoints.len() <= MOST);
            }
        }
    }
}
