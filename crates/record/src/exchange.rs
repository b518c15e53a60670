//! A request and its reply, of whatever protocol.

use flowgauge_wire::Nanos;

use crate::parties::Parties;
use crate::text::protocol_name;
use crate::value::Symbol;

/// A request and its reply, or one of them alone, each with the time of its last byte. A record, for
/// the messages that have one.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a, M> {
    /// Between whom.
    pub parties: Parties,
    /// Protocol below: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// What was asked.
    pub request: Option<(Nanos, &'a M)>,
    /// What was answered.
    pub reply: Option<(Nanos, &'a M)>,
    /// How often the request came again before the reply.
    pub repeats: u64,
    /// The bound that took its reply from the request.
    pub limit: Option<&'static str>,
}

impl<'a, M> Exchange<'a, M> {
    /// When it began.
    pub fn time(&self) -> Nanos {
        let first = self.request.or(self.reply);
        first.map(|it| it.0).unwrap_or_default()
    }

    /// What it has: matched, no_reply or no_request.
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
