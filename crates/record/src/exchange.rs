//! A request and its reply, of any protocol.

use flowgauge_wire::Nanos;

use crate::parties::Parties;
use crate::text::protocol_name;
use crate::value::Symbol;

/// A request and its reply, or one of them alone, each with the time of its last byte. It is a
/// record if the messages are of a type with a schema.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a, M> {
    /// Client and server.
    pub parties: Parties,
    /// Transport protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// The request.
    pub request: Option<(Nanos, &'a M)>,
    /// The reply.
    pub reply: Option<(Nanos, &'a M)>,
    /// Number of repetitions of the request before the reply.
    pub repeats: u64,
    /// The limit that separated the reply from its request.
    pub limit: Option<&'static str>,
}

impl<'a, M> Exchange<'a, M> {
    /// Time of its start.
    pub fn time(&self) -> Nanos {
        let first = self.request.or(self.reply);
        first.map(|it| it.0).unwrap_or_default()
    }

    /// Its state: matched, no_reply or no_request.
    pub const fn state(&self) -> &'static str {
        state(self.request.is_some(), self.reply.is_some())
    }

    /// The request, the reply, and the first of them that there is.
    pub(crate) fn messages(&self) -> Option<(Option<&'a M>, Option<&'a M>, &'a M)> {
        let (request, reply) = (self.request.map(|it| it.1), self.reply.map(|it| it.1));
        Some((request, reply, request.or(reply)?))
    }

    /// From the request to the reply.
    pub(crate) fn latency(&self) -> Option<Nanos> {
        let (asked, answered) = (self.request?.0, self.reply?.0);
        Some(Nanos(answered.0.saturating_sub(asked.0)))
    }

    /// The protocol below.
    pub(crate) fn carrier(&self) -> Symbol<'static> {
        Symbol(protocol_name(self.protocol))
    }
}

/// What there is of a request and its reply: matched, no_reply or no_request.
pub(crate) const fn state(has_request: bool, has_reply: bool) -> &'static str {
    match (has_request, has_reply) {
        (true, true) => "matched",
        (true, false) => "no_reply",
        _ => "no_request",
    }
}
