//! Records about a request and its reply.

use flowgauge_wire::Nanos;

use crate::any::{KnownRecord, OwnedObject};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a [`TransactionRow`].
    TransactionFields, TRANSACTION, TRANSACTION_SCHEMA:
    time Time None "TIME" 1 "when the request was seen, or where there is none the reply";
    latency Duration Seconds "LATENCY" 1 "from the request to the reply; null without one of them";
    state Text None "STATE" 1 "matched, no_reply or no_request";
    repeats Unsigned None "REPEATS" 3 "how often the request came again before the reply";
    request Object None "" 0 "the record of the request, or null";
    reply Object None "" 0 "the record of the reply, or null";
}

/// A request with its reply, or one of them alone.
#[derive(Clone, Copy, Debug)]
pub struct TransactionRow<'a> {
    /// When it was seen, and what it was.
    pub request: Option<(Nanos, &'a OwnedObject)>,
    /// When it was seen, and what it was.
    pub reply: Option<(Nanos, &'a OwnedObject)>,
    /// How often the request came again.
    pub repeats: u64,
}

impl Record for TransactionRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let times = (self.request.map(|it| it.0), self.reply.map(|it| it.0));
        let time = times.0.or(times.1).unwrap_or_default();
        visitor.time(&TRANSACTION.time, time);
        match times {
            (Some(request), Some(reply)) => {
                visitor.duration(
                    &TRANSACTION.latency,
                    Nanos(reply.0.saturating_sub(request.0)),
                );
            }
            _ => visitor.null(&TRANSACTION.latency),
        }
        let state: &[u8] = match (self.request.is_some(), self.reply.is_some()) {
            (true, true) => b"matched",
            (true, false) => b"no_reply",
            (false, _) => b"no_request",
        };
        visitor.symbol(&TRANSACTION.state, state);
        visitor.unsigned(&TRANSACTION.repeats, self.repeats);
        visitor.object(&TRANSACTION.request, self.request.map(|it| it.1));
        visitor.object(&TRANSACTION.reply, self.reply.map(|it| it.1));
    }
}

impl KnownRecord for TransactionRow<'_> {
    fn schema(&self) -> Schema {
        TRANSACTION_SCHEMA
    }
}
