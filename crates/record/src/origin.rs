//! What records about conversations begin with.

use flowgauge_wire::Nanos;

use crate::parties::Parties;

/// When something was said, and between whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// When it began.
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
