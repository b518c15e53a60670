//! The common first fields of records about conversations.

use flowgauge_wire::Nanos;

use crate::parties::Parties;

/// Time, client and server of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its start.
    pub time: Nanos,
    /// Client and server.
    pub parties: Parties,
}

impl Origin {
    /// How long it took until then.
    pub(crate) fn until(self, end: Nanos) -> Nanos {
        Nanos(end.0.saturating_sub(self.time.0))
    }
}
