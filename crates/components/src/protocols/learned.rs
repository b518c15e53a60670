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
}

impl Learned {
    pub(crate) fn add(&mut self, endpoint: (Address, u16), protocol: &'static str, now: Nanos) {
        if self.endpoints.len() >= MOST {
            self.endpoints.clear();
        }
        self.endpoints.insert(endpoint, (protocol, now));
    }

    /// The protocol's name.
    pub(crate) fn get(&self, endpoint: (Address, u16), now: Nanos) -> Option<&'static str> {
        if self.endpoints.is_empty() {
            return None;
        }
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
