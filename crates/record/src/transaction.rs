//! Records about a request and its reply.

use flowgauge_wire::Nanos;

use crate::any::OwnedObject;
use crate::exchange::state;
use crate::schema::record;
use crate::value::{Object, Symbol};

record! {
    /// Fields of a [`TransactionRow`].
    TRANSACTION, TRANSACTION_SCHEMA for TransactionRow<'_> as it {
        let [request, reply] = [it.request, it.reply].map(|message| message.map(|it| it.0));
    }:
    time Time "TIME" 1 = request.or(reply).unwrap_or_default(), "time of the request, or of the reply if there is no \
    request";
    latency Duration Seconds "LATENCY" 1 = request.zip(reply).map(|(asked, answered)| Nanos(answered.0.saturating_sub(asked.0))), "from the request to the reply; null if either is absent";
    state Text "STATE" 1 = Symbol(state(request.is_some(), reply.is_some())), "matched, no_reply or no_request";
    repeats Unsigned "REPEATS" 3 = it.repeats, "repetitions of the request before the reply";
    request Object = Object(it.request.map(|it| it.1)), "the record of the request, or null";
    reply Object = Object(it.reply.map(|it| it.1)), "the record of the reply, or null";
}

/// A request with its reply, or one of them alone.
#[derive(Clone, Copy, Debug)]
pub struct TransactionRow<'a> {
    /// Its time and contents.
    pub request: Option<(Nanos, &'a OwnedObject)>,
    /// Its time and contents.
    pub reply: Option<(Nanos, &'a OwnedObject)>,
    /// Number of repetitions of the request.
    pub repeats: u64,
}
